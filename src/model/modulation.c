/* SPDX-License-Identifier: Apache-2.0 */
/* modulation.c - what a timestep does to a block or to the head: shifts, scales and gates.
 *
 *   mod[b][r] = table[r] + vector[b][r], and 1 more where r is a scale
 *
 * A block has six rows and as many vectors of the timestep; the head has two, both with the same
 * vector. There are batch * 6 * dim numbers: nothing here is worth a thread.
 */
#include "pass_internal.h"

void tess__modulate(tess_pass *p, const float *table, int n, const float *vectors, int64_t step)
{
    const int64_t dim = p->z.dim, stride = step ? n * step : dim;
    for (int64_t b = 0; b < p->z.batch; b++)
        for (int r = 0; r < n; r++) {
            const float one = r == MOD_SCALE1 || r == MOD_SCALE2 ? 1.0f : 0.0f;
            const float *from = table + r * dim, *vector = vectors + b * stride + r * step;
            float *to = p->ws.mod + (b * MOD_ALL + r) * dim;
            for (int64_t i = 0; i < dim; i++)
                to[i] = one + (from[i] + vector[i]);
        }
}

void tess__modulate_backward(tess_pass *p, float *dtable, int n, float *dvectors, int64_t step)
{
    const int64_t dim = p->z.dim, stride = step ? n * step : dim;
    for (int64_t b = 0; b < p->z.batch; b++)
        for (int r = 0; r < n; r++) {
            const float *from = p->ws.dmod + (b * MOD_ALL + r) * dim;
            float *to = dtable + r * dim, *vector = dvectors + b * stride + r * step;
            if (p->z.exact && tess__exact_first(p))
                tess__exact_add(p, to, from, 1.0f, dim);
            for (int64_t i = 0; i < dim; i++) {
                to[i] += from[i];
                vector[i] += from[i];
            }
        }
}
