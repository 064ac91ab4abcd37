/* SPDX-License-Identifier: Apache-2.0 */
/* feed_forward.c - the feed-forward layer of a block, forward and backward.
 *
 *   n = norm(x2) scale2 + shift2      h = n w1^T + b1      x3 = x2 + gate2 (gelu(h) w2^T + b2)
 *
 * Its middle is ffn wide, so it is made TESS__FFN_ROWS rows at a time: only h is ever there as a
 * whole, and only where the pass keeps it. A chunk never straddles two samples, for each has a gate
 * of its own.
 *
 *   big, in units of chunk * ffn:   forward: gelu(h), or h itself; backward: dh, gelu(h), h
 */
#include "pass_internal.h"

static void norm_input(tess_pass *p, const tess__set *s)
{
    const int64_t dim = p->z.dim;
    tess__norm_rows(p, s->at[SET_X2], p->ws.mod + MOD_SCALE2 * dim, p->ws.mod + MOD_SHIFT2 * dim,
                    MOD_ALL * dim, p->ws.n);
}

static int64_t rows_at(const tess_pass *p, int64_t row)
{
    const int64_t left = tess__cut_of(p, row).end - row;
    return left < p->z.chunk ? left : p->z.chunk;
}

tess_status tess__ffn_forward(tess_pass *p, int layer, const tess__set *s, float *x_out)
{
    const tess__layer first = tess__block_layer(p, layer, B_FFN1_W, B_FFN1_B, 1);
    const tess__layer second = tess__block_layer(p, layer, B_FFN2_W, B_FFN2_B, 1);
    float *saved = s->at[SET_H];
    norm_input(p, s);
    for (int64_t row = 0, rows; row < p->z.rows; row += rows) {
        rows = rows_at(p, row);
        float *h = saved ? saved + row * p->z.ffn : p->ws.big;
        TESS_TRY(tess__layer_gelu(p, &first, rows, p->ws.n + row * p->z.dim, h, p->ws.big));
        TESS_TRY(tess__layer_residual(p, &second, row, rows, p->ws.big, s->at[SET_X2],
                                      p->ws.mod + MOD_GATE2 * p->z.dim, x_out));
    }
    return TESS_OK;
}

/* Rows row .. row + rows - 1: adds to the first layer's gradients and to ws.m, and turns ws.t from
 * the gradient of the layer's output into that of n. */
static tess_status backward_rows(tess_pass *p, int layer, const tess__set *s, int64_t row,
                                 int64_t rows)
{
    const tess__layer first = tess__block_layer(p, layer, B_FFN1_W, B_FFN1_B, 1);
    const tess__layer second = tess__block_layer(p, layer, B_FFN2_W, B_FFN2_B, 1);
    const int64_t dim = p->z.dim, size = p->z.chunk * p->z.ffn;
    float *dh = p->ws.big, *act = p->ws.big + size, *again = p->ws.big + 2 * size;
    const float *h = s->at[SET_H] ? s->at[SET_H] + row * p->z.ffn : again;
    float *n = p->ws.n + row * dim, *t = p->ws.t + row * dim;
    if (!s->at[SET_H])
        TESS_TRY(tess__layer_forward(p, &first, rows, n, again, NULL));
    TESS_TRY(tess__layer_gelu_dx(p, &second, rows, t, h, act, dh));
    TESS_TRY(tess__layer_m(p, &second, row, rows, act, row != tess__cut_of(p, row).begin));
    TESS_TRY(tess__layer_dw(p, &first, rows, dh, n));
    return tess__layer_dx(p, &first, rows, dh, t, 0, NULL);
}

tess_status tess__ffn_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer second = tess__block_layer(p, layer, B_FFN2_W, B_FFN2_B, 1);
    const int64_t dim = p->z.dim;
    const float *gate = p->ws.mod + MOD_GATE2 * dim;
    norm_input(p, s);
    tess__gate_rows(p, p->ws.g, gate, p->ws.t);
    for (int64_t row = 0, rows; row < p->z.rows; row += rows) {
        rows = rows_at(p, row);
        TESS_TRY(backward_rows(p, layer, s, row, rows));
        const tess__row_cut cut = tess__cut_of(p, row);
        const int64_t at = row / p->z.local * MOD_ALL * dim;
        if (row + rows == cut.end)
            tess__gate_backward(p, &second, cut.begin, cut.end - cut.begin, gate + at,
                                p->ws.dmod + MOD_GATE2 * dim + at);
    }
    tess__norm_rows_backward(p, p->ws.t, s->at[SET_X2], p->ws.mod + MOD_SCALE2 * dim, MOD_ALL * dim,
                             p->ws.g, p->ws.dmod + MOD_SCALE2 * dim, p->ws.dmod + MOD_SHIFT2 * dim);
    return TESS_OK;
}
