/* SPDX-License-Identifier: Apache-2.0 */
/* output_head.c - from the last block's output to the velocity: norm, modulation, one linear layer.
 *
 *   out = (norm(x) scale + shift) w^T + b,  shift, scale = table + temb (scale 1 more)
 *
 * big holds the tokens' numbers, (batch * tokens, patch_out), on the way out; the local ones on the
 * way back.
 */
#include "pass_internal.h"

#include <string.h>

static void norm_input(tess_pass *p, const float *last)
{
    const tess_model *m = p->model;
    const int64_t dim = p->z.dim;
    tess__modulate(p, tess__outer_at(m, m->values, P_TABLE), 2, p->cond.temb, 0);
    tess__norm_rows(p, tess__matrix_f32(last), p->ws.mod + MOD_SCALE1 * dim,
                    p->ws.mod + MOD_SHIFT1 * dim, MOD_ALL * dim, p->ws.n);
}

tess_status tess__head_forward(tess_pass *p, const float *last, float *out)
{
    const tess__layer l = tess__outer_layer(p, P_OUT_W);
    norm_input(p, last);
    float *rows = tess__whole_place(p, p->ws.big, p->z.patch_out);
    TESS_TRY(tess__layer_forward(p, &l, p->z.rows, tess__matrix_f32(p->ws.n),
                                 tess__matrix_f32(rows), NULL));
    return tess__whole_latent(p, p->ws.big, p->model->config.out_channels, 1, out);
}

tess_status tess__head_backward(tess_pass *p, const float *dout)
{
    const tess_model *m = p->model;
    const tess__layer l = tess__outer_layer(p, P_OUT_W);
    const int64_t dim = p->z.dim;
    norm_input(p, p->act.last);
    tess__patches_gather(p, dout, m->config.out_channels, 1, p->ws.big);
    TESS_TRY(tess__layer_dw(p, &l, p->z.rows, p->ws.big, tess__matrix_f32(p->ws.n)));
    TESS_TRY(tess__layer_dx(p, &l, p->z.rows, p->ws.big, p->ws.t, 0, NULL));
    memset(p->ws.g, 0, (size_t)(p->z.rows * dim) * sizeof *p->ws.g);
    tess__norm_rows_backward(p, p->ws.t, tess__matrix_f32(p->act.last),
                             p->ws.mod + MOD_SCALE1 * dim, MOD_ALL * dim, p->ws.g,
                             p->ws.dmod + MOD_SCALE1 * dim, p->ws.dmod + MOD_SHIFT1 * dim);
    TESS_TRY(tess__exact_mod(p));
    tess__modulate_backward(p, tess__outer_at(m, m->gradients, P_TABLE), 2, p->cond.dtemb, 0);
    return TESS_OK;
}
