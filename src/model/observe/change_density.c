/* SPDX-License-Identifier: Apache-2.0 */
/* change_density.c - the density that a limit of the change of the model's output needs.
 *
 * Sparse attention changes the output o of a head by delta, and the output y of the model by J
 * delta. The backward pass has g, the gradient of the loss L = |y - target|^2 / M with respect to
 * o: a multiple s of J^T r, r = y - target. If r is taken to have no preferred direction,
 *
 *   E (g . delta)^2 = s^2 L |J delta|^2
 *
 * and if g and delta of a query have none relative to each other either, (g . delta)^2 is |g|^2
 * |delta|^2 / D, so that a head changes the model's output, in % of the loss, by
 *
 *   change_h = 100 / (s^2 M L^2)  sum over queries of |g|^2 |delta|^2 / D
 *
 * of which the sum is the product of two means: |g|^2 over all queries, times the weight
 * 1 / (s^2 M L^2) = s^2 M / R^2 of the sample (R: sum of squares of the gradient with respect to
 * y), and |delta|^2 over the sampled ones (output_change.c). Heads are taken to change the output
 * independently, so that of N heads of all layers each may change it by `error` / N. Both
 * assumptions are checked against passes with dense attention, which give `calibration`.
 *
 * The density of a head is the smallest one whose change is at most that, with log(change) taken to
 * be linear in log(density) between two of the trial; NaN where there was no gradient.
 *
 * Cost: one pass over the gradient of a profiled layer's attention output.
 */
#include "attn/attn_internal.h"
#include "model/observe.h"

#include <math.h>

enum { QUARTILES = TESS_NOISE_BUCKETS, TRIALS = TESS__TRIAL_DENSITIES };

/* ---- gradients ------------------------------------------------------------------------------- */

void tess__observe_weigh(tess__observer *o, const float *gradient, int batch, int64_t n,
                         double slope)
{
    for (int b = 0; b < batch; b++) {
        const double squares = o->ctx->kernels->sum_squares(gradient + b * n, (size_t)n);
        o->weights[b] = squares > 0.0 ? slope * slope * (double)n / (squares * squares) : 0.0;
    }
}

/* sum of |dout|^2 over the local tokens of one head. */
static double head_squares(const tess_pass *p, const tess_view *dout, int sample, int head)
{
    double sum = 0.0;
    for (int64_t row = 0; row < p->z.local; row++) {
        const float *g = tess__view_row(dout, sample, head, row);
        float squares = 0.0f;
        for (int d = 0; d < p->z.head_dim; d++)
            squares += g[d] * g[d];
        sum += (double)squares;
    }
    return sum;
}

void tess__observe_gradient(const tess_pass *p, int layer, const tess_view *dout)
{
    const tess__observer *o = p->observer;
    const int heads = p->z.heads, all = (int)p->z.batch * heads;
    if (!o || o->opts.error <= 0.0 || !o->layers[layer].profile)
        return;
#pragma omp parallel for num_threads(p->ctx->threads) schedule(static)
    for (int i = 0; i < all; i++)
        o->values[i] = o->weights[i / heads] * head_squares(p, dout, i / heads, i % heads);
    for (int c = 0; c < o->n_orders; c++)
        for (int i = 0; i < all; i++) {
            const int64_t row = (int64_t)layer * QUARTILES + o->quartiles[i / heads];
            o->sums.cubes[c].gradient[row * heads + i % heads] += o->values[i];
        }
}

/* ---- densities ------------------------------------------------------------------------------- */

static double trial_density(int i)
{
    return ldexp(1.0, i - TRIALS);
}

/* change (TRIALS): by density. */
static double density_of(const double *change, double limit)
{
    int i = TRIALS;
    while (i > 0 && change[i - 1] <= limit)
        i--;
    if (i == TRIALS)
        return 1.0;
    if (i == 0 || change[i] <= 0.0 || !isfinite(change[i - 1]))
        return trial_density(i);
    /* Between the last density that changes too much and the first that does not. */
    const double part = log(change[i - 1] / limit) / log(change[i - 1] / change[i]);
    return trial_density(i - 1) * exp2(TESS_MIN(part, 1.0));
}

void tess__change_densities(const tess__observer *o, int order, int layer, int quartile,
                            int content, double *density)
{
    const tess__cube_sums *sums = &o->sums.cubes[order];
    const double *changes = content ? sums->change2 : sums->change;
    const int heads = o->opts.heads;
    const int64_t row = (int64_t)layer * QUARTILES + quartile, place = row * heads;
    const double means = sums->profiles[row] * sums->queries[row] * o->opts.head_dim;
    const double limit = o->opts.error / ((double)o->opts.layers * heads);
    for (int h = 0; h < heads; h++) {
        const double unit = 100.0 * o->calibration * sums->gradient[place + h] / means;
        double change[TRIALS];
        for (int i = 0; i < TRIALS; i++)
            change[i] = unit * changes[(place + h) * TRIALS + i];
        density[h] = unit > 0.0 ? density_of(change, limit) : (double)NAN;
    }
}
