/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - two attentions over different keys become one.
 *
 *   m = max(a, b)   s = e^(a-m) + e^(b-m)   lse = m + log s   o = (e^(a-m) o_a + e^(b-m) o_b) / s
 *
 * with a and b the two lse. A part that saw nothing (-inf) changes nothing; two of them give 0 and
 * -inf. Cost: three passes over a row, bound by memory.
 */
#include "attn_internal.h"

#include <math.h>

/* Row o becomes the merge with row part; returns the merged lse. */
static float merge_row(float *o, float lse, const float *part, float lse_part, int dim)
{
    if (lse_part == -INFINITY)
        return lse;
    if (lse == -INFINITY) {
        for (int d = 0; d < dim; d++)
            o[d] = part[d];
        return lse_part;
    }
    const float m = TESS_MAX(lse, lse_part);
    const float a = expf(lse - m), b = expf(lse_part - m), s = a + b;
    const float own = a / s, other = b / s; /* one division for each row, not for each element */
    for (int d = 0; d < dim; d++)
        o[d] = own * o[d] + other * part[d];
    return m + logf(s);
}

void tess__merge(int threads, const tess_attn_shape *shape, const tess_view *o_part,
                 const float *lse_part, const tess_view *o, float *lse)
{
    const int64_t tokens = shape->tokens_q, heads = shape->heads;
    const int64_t rows = shape->batch * heads * tokens;
#pragma omp parallel for num_threads(threads) if (rows * shape->head_dim > 1 << 16)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t b = i / (heads * tokens), h = i / tokens % heads, s = i % tokens;
        lse[i] = merge_row(tess__view_row(o, b, h, s), lse[i], tess__view_row(o_part, b, h, s),
                           lse_part[i], shape->head_dim);
    }
}

tess_status tess_attn_merge(const tess_attn_shape *shape, const tess_view *o_part,
                            const float *lse_part, const tess_view *o, float *lse)
{
    TESS_REQUIRE(shape);
    if (shape->batch < 1 || shape->heads < 1 || shape->head_dim < 1 || shape->tokens_q < 0)
        return tess__invalid(__func__, "the shape is %d x %d x %lld x %d, must be positive",
                             shape->batch, shape->heads, (long long)shape->tokens_q,
                             shape->head_dim);
    TESS_TRY(tess__view_check(__func__, "o_part", o_part, TESS_DTYPE_F32, TESS_DTYPE_F32,
                              shape->tokens_q));
    TESS_TRY(tess__view_check(__func__, "o", o, TESS_DTYPE_F32, TESS_DTYPE_F32, shape->tokens_q));
    if ((!lse_part || !lse) && shape->tokens_q > 0)
        return tess__invalid(__func__, "%s is NULL", lse_part ? "lse" : "lse_part");
    tess__merge(1, shape, o_part, lse_part, o, lse);
    return TESS_OK;
}
