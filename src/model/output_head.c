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
    tess__modulate(p, tess__outer_at(m, m->values, P_TABLE), 2, p->temb, 0);
    tess__norm_rows(p, last, p->mod + MOD_SCALE1 * dim, p->mod + MOD_SHIFT1 * dim, MOD_ALL * dim,
                    p->n);
}

tess_status tess__head_forward(tess_pass *p, const float *last, float *out)
{
    const tess__layer l = tess__outer_layer(p, P_OUT_W);
    norm_input(p, last);
    float *rows = tess__whole_place(p, p->big, p->z.patch_out);
    TESS_TRY(tess__layer_forward(p, &l, p->z.rows, p->n, rows, NULL));
    return tess__whole_latent(p, p->big, p->model->config.out_channels, 1, out);
}

tess_status tess__head_backward(tess_pass *p, const float *dout)
{
    const tess_model *m = p->model;
    const tess__layer l = tess__outer_layer(p, P_OUT_W);
    const int64_t dim = p->z.dim;
    norm_input(p, p->last);
    tess__patches_gather(p, dout, m->config.out_channels, 1, p->big);
    TESS_TRY(tess__layer_dw(p, &l, p->z.rows, p->big, p->n));
    TESS_TRY(tess__layer_dx(p, &l, p->z.rows, p->big, p->t, 0, NULL));
    memset(p->g, 0, (size_t)(p->z.rows * dim) * sizeof *p->g);
    tess__norm_rows_backward(p, p->t, p->last, p->mod + MOD_SCALE1 * dim, MOD_ALL * dim, p->g,
                             p->dmod + MOD_SCALE1 * dim, p->dmod + MOD_SHIFT1 * dim);
    tess__modulate_backward(p, tess__outer_at(m, m->gradients, P_TABLE), 2, p->dtemb, 0);
    return TESS_OK;
}
