/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - rotary positions in three dimensions.
 *
 * A head's elements are cut into three parts, for frame, row and column: row and column get
 * 2 floor(head_dim / 6) each, the frame the rest. Pair i of a part of n elements is rotated by
 * place / 10000^(2i / n). Tables along each axis hold what rotary.c takes; a token's rotation is
 * put together from three rows of them.
 */
#include "pass_internal.h"

#include <math.h>
#include <string.h>

void tess__rope_dims(int head_dim, int dims[3])
{
    dims[1] = dims[2] = 2 * (head_dim / 6);
    dims[0] = head_dim - dims[1] - dims[2];
}

void tess__rope_make(const tess_pass *p, int dim, float *const rope[3])
{
    int dims[3];
    tess__rope_dims(dim, dims);
    for (int axis = 0; axis < 3; axis++) {
        const int n = dims[axis];
        for (int place = 0; place < p->z.grid[axis]; place++) {
            float *cc = rope[axis] + (size_t)place * 2 * (size_t)n, *ss = cc + n;
            for (int i = 0; i < n; i += 2) {
                const double angle = place * pow(10000.0, -(double)i / n);
                cc[i] = cc[i + 1] = (float)cos(angle);
                ss[i + 1] = (float)sin(angle);
                ss[i] = -ss[i + 1];
            }
        }
    }
}

void tess__rope_at(const tess_pass *p, int64_t token, int dim, float *const rope[3],
                   float out[TESS__ROPE_MAX])
{
    const int *grid = p->z.grid;
    const int64_t raster = p->perm ? p->perm[token] : token;
    const int64_t place[3] = {raster / grid[2] / grid[1], raster / grid[2] % grid[1],
                              raster % grid[2]};
    int dims[3];
    size_t at = 0;
    tess__rope_dims(dim, dims);
    for (int axis = 0; axis < 3; axis++) {
        const size_t n = (size_t)dims[axis], bytes = n * sizeof *out;
        const float *cc = rope[axis] + (size_t)place[axis] * 2 * n;
        memcpy(out + at, cc, bytes);
        memcpy(out + dim + at, cc + n, bytes);
        at += n;
    }
}
