/* SPDX-License-Identifier: Apache-2.0 */
/* sample_progress.c - the line of a sampling, one state per Euler step.
 *
 *   clips 1-4 of 8  step 7/25  312 ms/step  6560 tokens/s  density 0.25  0:12 left
 *
 * The density is that of the step before, of sparse attention on one rank.
 */
#include "cmd_sample.h"

#include "tessera/advanced/machine.h"

#include <string.h>

/* Mean over layers and heads of step k. */
static double density_of(const sample_densities *d, int64_t k)
{
    const int64_t n = (int64_t)d->layers * d->heads;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += d->last[k * n + i];
    return sum / (double)n;
}

static int64_t tokens_of(const sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    const int *patch = j->config.patch;
    return (int64_t)(d->frames / patch[0]) * (d->height / patch[1]) * (d->width / patch[2]);
}

/* Times of the steps before step k. */
static void speed_text(const sample_job *j, int64_t k, int64_t steps, double ms, char *text,
                       size_t bytes)
{
    const sample_line *l = &j->line;
    char rate[32], left[32], density[32] = "";
    const double each = 1e-9 * (double)(l->last - l->begun) / (double)k;
    const double batches = (double)(j->clips - l->first - l->n) / (double)l->n;
    const int narrow = j->c->progress.terminal && progress_width() < 99;
    if (l->sparse && j->c->ranks <= 1)
        snprintf(density, sizeof density, "  density %.2f", density_of(&j->densities, k - 1));
    snprintf(text, bytes, "  %.*f ms/step  %s %s%s  %s left", ms < 99.95, ms,
             progress_rate(1e3 * (double)(l->n * tokens_of(j)) / ms, rate),
             narrow ? "tok/s" : "tokens/s", density,
             progress_time(each * ((double)(steps - k) + batches * (double)steps), left));
}

/* Before step k of `steps`. */
static void on_inner(void *user, const char *what, int64_t k, int64_t steps)
{
    sample_job *j = user;
    sample_line *l = &j->line;
    char text[256], last[32] = "", speed[128] = "";
    if (strcmp(what, "sampling") != 0)
        return;
    const int64_t now = tess_clock_ns();
    const double ms = 1e-6 * (double)(now - l->last);
    l->last = now;
    if (k == 0)
        l->begun = now;
    else
        speed_text(j, k, steps, ms, speed, sizeof speed);
    if (l->n > 1)
        snprintf(last, sizeof last, "-%lld", (long long)l->first + l->n);
    snprintf(text, sizeof text, "clip%s %lld%s of %lld  step %lld/%lld%s", out_plural(l->n),
             (long long)l->first + 1, last, (long long)j->clips, (long long)k + 1, (long long)steps,
             speed);
    progress_step(j->c, text);
}

void sample_progress(sample_job *j, int64_t first, int64_t n, int sparse)
{
    j->line = (sample_line){.first = first, .n = n, .sparse = sparse};
    progress_own(j->c, n > 0 ? on_inner : NULL, j);
}
