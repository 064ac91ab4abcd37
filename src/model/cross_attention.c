/* SPDX-License-Identifier: Apache-2.0 */
/* cross_attention.c - the attention of a block to the text, forward and backward.
 *
 *   n = norm2(x1), or x1 without cross_attn_norm
 *   q2 = n wq^T + bq      kv2 = context wkv^T + bkv      q, k: RMS norm
 *   o2 = attention(q, k, v)      x2 = x1 + o2 wo^T + bo
 *
 * The gradient of the context is added up over all blocks in p->cond.dtext_emb.
 *
 *   big: q by rows * dim, k and v by text rows * dim, then their gradients in the same order, all
 *   by heads; then dq2 and dkv2 by rows over q, k and v
 */
#include "pass_internal.h"

static void count_attention(tess_pass *p, tess__lap lap)
{
    const int64_t took = tess__lap_end(p, lap);
    p->times.attention_ns += took;
    p->times.cross_ns += took;
}

/* What big holds from `heads` on: q in parts[0], k and v in parts[1] and parts[2]. */
static void make_parts(const tess_pass *p, int layer, float *heads, tess__qkv_part parts[3])
{
    const tess_model *m = p->model;
    const int64_t n = p->z.rows * p->z.dim, text = p->z.text_rows * p->z.dim;
    static const tess__block_param norms[2] = {B_NORM_Q2, B_NORM_K2};
    parts[0] = (tess__qkv_part){.heads = heads};
    parts[1] = (tess__qkv_part){.heads = heads + n};
    parts[2] = (tess__qkv_part){.heads = heads + n + text};
    for (int i = 0; i < 2 && m->config.qk_norm; i++) {
        parts[i].weight = tess__block_at(m, m->values, layer, norms[i]);
        if (m->gradients)
            parts[i].dweight = tess__block_at(m, m->gradients, layer, norms[i]);
    }
}

static void make_views(const tess_pass *p, const tess__qkv_part parts[3], tess_view views[3])
{
    for (int i = 0; i < 3; i++)
        views[i] = tess__heads_view(p, parts[i].heads, i == 0 ? p->z.local : p->z.text);
}

static void to_heads(tess_pass *p, const tess__set *s, const tess__qkv_part parts[3])
{
    tess__to_heads(p, ROWS_TOKENS, tess__slot_of(p, s, SET_Q2), 1, parts);
    tess__to_heads(p, ROWS_TEXT, tess__slot_of(p, s, SET_KV2), 2, parts + 1);
}

/* x1 through norm2, where there is one. */
static tess__matrix norm_input(tess_pass *p, int layer, tess__matrix x1)
{
    const tess_model *m = p->model;
    if (!m->config.cross_attn_norm)
        return x1;
    tess__norm_rows(p, x1, tess__block_at(m, m->values, layer, B_NORM2_W),
                    tess__block_at(m, m->values, layer, B_NORM2_B), 0, p->ws.n);
    return tess__matrix_f32(p->ws.n);
}

tess_status tess__cross_forward(tess_pass *p, int layer, const tess__set *s)
{
    const tess__layer query = tess__block_layer(p, layer, B_Q2_W, B_Q2_B, 1);
    const tess__layer kv = tess__block_layer(p, layer, B_K2_W, B_K2_B, 2);
    const tess__layer out = tess__block_layer(p, layer, B_O2_W, B_O2_B, 1);
    const float *x1 = tess__stream_at(p, s, SET_X1);
    const tess__matrix n = norm_input(p, layer, tess__stream_rounded(p, x1));
    tess__qkv_part parts[3];
    tess_view v[3];
    TESS_TRY(tess__layer_forward(p, &query, p->z.rows, n, tess__slot_of(p, s, SET_Q2), NULL));
    TESS_TRY(tess__layer_forward(p, &kv, p->z.text_rows, tess__matrix_f32(p->cond.text_emb),
                                 tess__slot_of(p, s, SET_KV2), NULL));
    make_parts(p, layer, p->ws.big, parts);
    to_heads(p, s, parts);
    make_views(p, parts, v);

    const tess__lap lap = tess__lap_begin(p);
    tess__output_begin(p, s, SET_O2);
    const tess_view o = tess__rows_view(p, p->ws.o);
    TESS_TRY(tess_attn_forward(p->cross, NULL, &v[0], &v[1], &v[2], &o, s->at[SET_LSE2]));
    count_attention(p, lap);
    tess__output_end(p, s, SET_O2);
    TESS_TRY(tess__layer_residual(p, &out, 0, p->z.rows, tess__slot_of(p, s, SET_O2), x1, NULL,
                                  tess__stream_begin(p, s, SET_X2)));
    tess__stream_end(p, s, SET_X2);
    return TESS_OK;
}

/* p->ws.t is the gradient of o2; dq2 and dkv2 come to lie at the beginning of big. */
static tess_status attend_backward(tess_pass *p, int layer, const tess__set *s)
{
    const int64_t half = (p->z.rows + 2 * p->z.text_rows) * p->z.dim;
    tess__qkv_part parts[3], gradients[3];
    tess_view in[3], d[3];
    make_parts(p, layer, p->ws.big, parts);
    make_parts(p, layer, p->ws.big + half, gradients);
    to_heads(p, s, parts);
    make_views(p, parts, in);
    make_views(p, gradients, d);
    tess__output_read(p, s, SET_O2);

    const tess__lap lap = tess__lap_begin(p);
    const tess_view o = tess__rows_view(p, p->ws.o), dout = tess__rows_view(p, p->ws.t);
    const tess_attn_saved saved = {&in[0], &in[1], &in[2], &o, s->at[SET_LSE2]};
    TESS_TRY(p->z.exact
                 ? tess__exact_cross(p, in, s, d)
                 : tess_attn_backward(p->cross, NULL, &saved, &dout, NULL, &d[0], &d[1], &d[2]));
    count_attention(p, lap);
    tess__from_heads(p, ROWS_TOKENS, tess__slot_of(p, s, SET_Q2), 1, gradients, parts[0].heads);
    tess__from_heads(p, ROWS_TEXT, tess__slot_of(p, s, SET_KV2), 2, gradients + 1, parts[1].heads);
    return TESS_OK;
}

tess_status tess__cross_backward(tess_pass *p, int layer, const tess__set *s)
{
    const tess_model *m = p->model;
    const tess__layer query = tess__block_layer(p, layer, B_Q2_W, B_Q2_B, 1);
    const tess__layer kv = tess__block_layer(p, layer, B_K2_W, B_K2_B, 2);
    const tess__layer out = tess__block_layer(p, layer, B_O2_W, B_O2_B, 1);
    const int64_t rows = p->z.rows;
    const float *dq2 = p->ws.big, *dkv2 = p->ws.big + rows * p->z.dim;
    const tess__matrix x1 = tess__slot_of(p, s, SET_X1);
    TESS_TRY(tess__layer_dw(p, &out, rows, p->ws.g, tess__slot_of(p, s, SET_O2)));
    TESS_TRY(tess__layer_dx(p, &out, rows, p->ws.g, p->ws.t, 0, NULL));
    TESS_TRY(attend_backward(p, layer, s));
    TESS_TRY(tess__layer_dw(p, &kv, p->z.text_rows, dkv2, tess__matrix_f32(p->cond.text_emb)));
    TESS_TRY(tess__layer_dx(p, &kv, p->z.text_rows, dkv2, p->cond.dtext_emb, 1, NULL));
    TESS_TRY(tess__layer_dw(p, &query, rows, dq2, norm_input(p, layer, x1)));
    if (!m->config.cross_attn_norm)
        return tess__layer_dx(p, &query, rows, dq2, p->ws.g, 1, NULL);
    TESS_TRY(tess__layer_dx(p, &query, rows, dq2, p->ws.t, 0, NULL));
    tess__norm_rows_backward(p, p->ws.t, x1, tess__block_at(m, m->values, layer, B_NORM2_W), 0,
                             p->ws.g, tess__block_at(m, m->gradients, layer, B_NORM2_W),
                             tess__block_at(m, m->gradients, layer, B_NORM2_B));
    return TESS_OK;
}
