/* SPDX-License-Identifier: Apache-2.0 */
/* train_progress.c - the line of a run while it trains, one state per step.
 *
 *   step 300/1500  loss 0.4321  mean 0.4410 falling  51.2 ms/step  10 k tokens/s  1:02 left
 *
 * mean is the running mean of the loss over about 50 steps; its direction compares it with its own
 * running mean. A narrow terminal has a shorter form of the same. Validation, samples and
 * checkpoints between two steps show on the line too; other calls of the library do not. With -v a
 * line of its own names the parts of a step, at most every 10 seconds.
 */
#include "train_job.h"

#include "tessera/advanced/machine.h"

#include <math.h>
#include <string.h>

static const double slow_memory = 0.98, flat_within = 0.02;

static const char *trend(const train_line *l)
{
    const double change = l->step.loss_mean / l->slow - 1.0;
    return change < -flat_within ? "falling" : change > flat_within ? "rising" : "flat";
}

/* Seconds to the end, as the steps so far took them. */
static double seconds_left(const train_job *j)
{
    const tess_step *s = &j->line.step;
    const double each = 1e-9 * (double)(tess_clock_ns() - j->begun) / (double)(s->step - j->first);
    return each * (double)(s->steps - s->step);
}

/* Level 0 is the long form; 1 is shorter, 2 has single spaces, 3 is the least. Numbers have a fixed
 * width, so that the line does not jump. */
static int format(const train_job *j, int level, char *text, size_t bytes)
{
    const tess_step *s = &j->line.step;
    const char *gap = level < 2 ? "  " : " ";
    const int digits = level ? 3 : 4;
    char head[64], loss[96], rate[32], left[32], density[32] = "";
    snprintf(head, sizeof head, "%s%lld/%lld", level ? "" : "step ", (long long)s->step,
             (long long)s->steps);
    snprintf(loss, sizeof loss, "loss %.*f%smean %.*f%s%s", digits, s->loss, gap, digits,
             s->loss_mean, level ? "" : " ", level ? "" : trend(&j->line));
    progress_rate(s->tokens_per_s, rate);
    progress_time(seconds_left(j), left);
    if (j->opts.attention.kind != TESS_ATTENTION_DENSE)
        snprintf(density, sizeof density, "density %.2f%s", s->density, gap);
    return snprintf(text, bytes, "%s%s%s%s%*.*f ms%s%s%s %s%s%s%s left", head, gap, loss, gap,
                    level < 2 ? 5 : 0, s->step_ms < 99.95 ? 1 : 0, s->step_ms,
                    level < 3 ? "/step" : "", gap, rate, level ? "tok/s" : "tokens/s", gap, density,
                    left);
}

/* The longest form that fits. A form that did not fit is not tried again, for a line that changes
 * its form from step to step cannot be read. */
static void step_text(train_job *j, char text[256])
{
    const int width = j->c->progress.terminal ? progress_width() : 255;
    if (width != j->line.width)
        j->line.level = 0;
    j->line.width = width;
    while (format(j, j->line.level, text, 256) > width && j->line.level < 3)
        j->line.level++;
}

/* "step 300 took 51.2 ms: attention 20.1, linear layers 25.3, ..." */
static void show_parts(train_job *j, const tess_step *s)
{
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"attention", s->attention_ms}, {"linear layers", s->linear_ms},
                 {"selection", s->select_ms},    {"predictors", s->learn_ms},
                 {"profile", s->profile_ms},     {"other", s->other_ms},
                 {"optimiser", s->optimiser_ms}, {"data", s->data_ms},
                 {"exchange", s->exchange_ms},   {"planning", s->plan_ms}};
    static const int64_t every = 10000000000;
    const int64_t now = tess_clock_ns();
    char text[512];
    if (!j->c->common->verbose || (j->line.parts_at && now - j->line.parts_at < every))
        return;
    j->line.parts_at = now;
    size_t used = (size_t)snprintf(text, sizeof text, "step %lld took %.3g ms:", (long long)s->step,
                                   s->step_ms);
    const char *comma = "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts && used < sizeof text; i++)
        if (parts[i].ms > 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %s %.3g", comma,
                                     parts[i].name, parts[i].ms);
            comma = ",";
        }
    out_log(j->c, TESS_LOG_INFO, text);
}

/* Long work after a step that is not shown yet; the calls of a step itself are too short. */
static void on_inner(void *user, const char *what, int64_t done, int64_t total)
{
    static const char *const shown[] = {"validating", "sampling", "writing bytes"};
    static const char *const names[] = {"validation", "preview samples", "checkpoint"};
    const train_job *j = user;
    char text[128];
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (strcmp(what, shown[i]) == 0 && total > 0) {
            snprintf(text, sizeof text, "step %lld/%lld  %s, %d %%",
                     (long long)j->line.step.step + 1, (long long)j->opts.steps, names[i],
                     (int)(100 * ((double)done / (double)total)));
            progress_line(j->c, text);
        }
}

void train_progress_begin(train_job *j)
{
    j->begun = tess_clock_ns();
    j->line = (train_line){.step = {.step = j->first, .steps = j->opts.steps}};
    progress_own(j->c, on_inner, j);
}

void train_progress_step(train_job *j, const tess_step *step)
{
    train_line *l = &j->line;
    char text[256];
    const int first = l->step.step == j->first;
    l->step = *step;
    l->slow =
        first ? step->loss_mean : slow_memory * l->slow + (1.0 - slow_memory) * step->loss_mean;
    show_parts(j, step);
    step_text(j, text);
    progress_step(j->c, text);
}

void train_progress_end(train_job *j)
{
    progress_own(j->c, NULL, NULL);
    progress_clear(j->c);
}
