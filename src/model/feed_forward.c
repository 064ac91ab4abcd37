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

static void norm_input(tess_pass *p, tess__matrix x)
{
    const int64_t dim = p->z.dim;
    tess__norm_rows(p, x, p->ws.mod + MOD_SCALE2 * dim, p->ws.mod + MOD_SHIFT2 * dim, MOD_ALL * dim,
                    p->ws.n);
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
    const tess__matrix saved = tess__slot_of(p, s, SET_H);
    const float *x2 = tess__stream_at(p, s, SET_X2);
    float *act = p->ws.big;
    norm_input(p, tess__stream_rounded(p, x2));
    for (int64_t row = 0, rows; row < p->z.rows; row += rows) {
        rows = rows_at(p, row);
        const tess__matrix h = saved.at ? tess__matrix_from(saved, row * p->z.ffn) : saved;
        TESS_TRY(tess__layer_gelu(p, &first, rows, p->ws.n + row * p->z.dim, h, act));
        TESS_TRY(tess__layer_residual(p, &second, row, rows, tess__matrix_f32(act), x2,
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
    float *dh = p->ws.big, *act = p->ws.big + size;
    const tess__matrix again = {.at = p->ws.big + 2 * size, .half = p->z.half},
                       saved = tess__slot_of(p, s, SET_H);
    const tess__matrix h = saved.at ? tess__matrix_from(saved, row * p->z.ffn) : again;
    float *n = p->ws.n + row * dim, *t = p->ws.t + row * dim;
    if (!s->at[SET_H])
        TESS_TRY(tess__layer_forward(p, &first, rows, tess__matrix_f32(n), again, NULL));
    TESS_TRY(tess__layer_gelu_dx(p, &second, rows, t, h, act, dh));
    TESS_TRY(tess__layer_m(p, &second, row, rows, tess__matrix_f32(act),
                           row != tess__cut_of(p, row).begin));
    TESS_TRY(tess__layer_dw(p, &first, rows, dh, tess__matrix_f32(n)));
    return tess__layer_dx(p, &first, rows, dh, t, 0, NULL);
}

tess_status tess__ffn_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer second = tess__block_layer(p, layer, B_FFN2_W, B_FFN2_B, 1);
    const int64_t dim = p->z.dim;
    const float *gate = p->ws.mod + MOD_GATE2 * dim;
    const tess__matrix x2 = tess__slot_of(p, s, SET_X2);
    norm_input(p, x2);
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
    tess__norm_rows_backward(p, p->ws.t, x2, p->ws.mod + MOD_SCALE2 * dim, MOD_ALL * dim, p->ws.g,
                             p->ws.dmod + MOD_SCALE2 * dim, p->ws.dmod + MOD_SHIFT2 * dim);
    return TESS_OK;
}
