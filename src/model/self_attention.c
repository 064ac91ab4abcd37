/* SPDX-License-Identifier: Apache-2.0 */
/* self_attention.c - the self attention of a block, forward and backward.
 *
 *   n = norm(x0) scale1 + shift1      qkv = n w^T + b
 *   q, k: RMS norm, rotated           o1 = attention(q, k, v)
 *   x1 = x0 + gate1 (o1 wo^T + bo)
 *
 * Attention reads its keys many times, so q, k and v are laid out head by head for it. The
 * backward pass makes them again from qkv rather than keeping them. sparse_attention.c runs it.
 *
 *   big, in units of rows * dim:   q k v | dq dk dv, by heads;  then dqkv by rows over q k v
 */
#include "pass_internal.h"

static void make_parts(const tess_pass *p, int layer, float *heads, tess__qkv_part parts[3])
{
    const tess_model *m = p->model;
    const int64_t n = p->z.rows * p->z.dim;
    static const tess__block_param norms[2] = {B_NORM_Q1, B_NORM_K1};
    for (int i = 0; i < 3; i++)
        parts[i] = (tess__qkv_part){.heads = heads + i * n, .rotate = i < 2};
    for (int i = 0; i < 2 && m->config.qk_norm; i++) {
        parts[i].weight = tess__block_at(m, m->values, layer, norms[i]);
        if (m->gradients)
            parts[i].dweight = tess__block_at(m, m->gradients, layer, norms[i]);
    }
}

static void norm_input(tess_pass *p, tess__matrix x)
{
    const int64_t dim = p->z.dim;
    tess__norm_rows(p, x, p->ws.mod + MOD_SCALE1 * dim, p->ws.mod + MOD_SHIFT1 * dim, MOD_ALL * dim,
                    p->ws.n);
}

tess_status tess__self_forward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer qkv = tess__block_layer(p, layer, B_Q1_W, B_Q1_B, 3);
    const tess__layer out = tess__block_layer(p, layer, B_O1_W, B_O1_B, 1);
    const tess__matrix rows = tess__slot_of(p, s, SET_QKV);
    const float *x0 = tess__stream_at(p, s, SET_X0);
    tess__qkv_part parts[3];
    norm_input(p, tess__stream_rounded(p, x0));
    TESS_TRY(tess__layer_forward(p, &qkv, p->z.rows, tess__matrix_f32(p->ws.n), rows, NULL));
    make_parts(p, layer, p->ws.big, parts);
    tess__to_heads(p, ROWS_TOKENS, rows, 3, parts);
    tess__output_begin(p, s, SET_O1);
    TESS_TRY(tess__attend_forward(p, layer, parts, s));
    tess__output_end(p, s, SET_O1);
    TESS_TRY(tess__layer_residual(p, &out, 0, p->z.rows, tess__slot_of(p, s, SET_O1), x0,
                                  p->ws.mod + MOD_GATE1 * p->z.dim,
                                  tess__stream_begin(p, s, SET_X1)));
    tess__stream_end(p, s, SET_X1);
    return TESS_OK;
}

/* The layer behind attention: its gradients and its gate's; p->ws.t = the gradient of o1. */
static tess_status out_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer out = tess__block_layer(p, layer, B_O1_W, B_O1_B, 1);
    const int64_t dim = p->z.dim;
    const float *gate = p->ws.mod + MOD_GATE1 * dim;
    tess__gate_rows(p, p->ws.g, gate, p->ws.n);
    TESS_TRY(tess__layer_dx(p, &out, p->z.rows, p->ws.n, p->ws.t, 0, NULL));
    for (int64_t row = 0, rows; row < p->z.rows; row += rows) {
        const int64_t at = row / p->z.local * MOD_ALL * dim;
        rows = tess__cut_of(p, row).end - row;
        TESS_TRY(tess__layer_m(p, &out, row, rows,
                               tess__matrix_from(tess__slot_of(p, s, SET_O1), row * dim), 0));
        tess__gate_backward(p, &out, row, rows, gate + at, p->ws.dmod + MOD_GATE1 * dim + at);
    }
    return TESS_OK;
}

tess_status tess__self_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer qkv = tess__block_layer(p, layer, B_Q1_W, B_Q1_B, 3);
    const int64_t dim = p->z.dim, rows = p->z.rows;
    const tess__matrix saved = tess__slot_of(p, s, SET_QKV), x0 = tess__slot_of(p, s, SET_X0);
    tess__qkv_part parts[3], gradients[3];
    TESS_TRY(out_backward(p, layer, s));
    make_parts(p, layer, p->ws.big, parts);
    make_parts(p, layer, p->ws.big + 3 * rows * dim, gradients);
    if (!p->ranks.comm) /* the executor keeps its own */
        tess__to_heads(p, ROWS_TOKENS, saved, 3, parts);
    norm_input(p, x0);
    tess__output_read(p, s, SET_O1);
    TESS_TRY(tess__attend_backward(p, layer, parts, gradients, s, p->ws.t));
    float *dqkv = p->ws.big;
    tess__from_heads(p, ROWS_TOKENS, saved, 3, gradients, dqkv);
    TESS_TRY(tess__layer_dw(p, &qkv, rows, dqkv, tess__matrix_f32(p->ws.n)));
    TESS_TRY(tess__layer_dx(p, &qkv, rows, dqkv, p->ws.t, 0, NULL));
    tess__norm_rows_backward(p, p->ws.t, x0, p->ws.mod + MOD_SCALE1 * dim, MOD_ALL * dim, p->ws.g,
                             p->ws.dmod + MOD_SCALE1 * dim, p->ws.dmod + MOD_SHIFT1 * dim);
    return TESS_OK;
}
