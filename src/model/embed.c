/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - what goes into the blocks: latent to tokens, timestep to modulation, text to context.
 *
 *   x0 = patches w^T + b
 *   temb = w2 silu(w1 sinusoid(timestep) + b1) + b2      six = wp silu(temb) + bp
 *   context = w2 gelu(w1 text + b1) + b2
 *
 * The sinusoids are freq / 2 cosines and then as many sines of timestep / 10000^(i / (freq / 2)).
 */
#include "pass_internal.h"

#include <math.h>
#include <string.h>

/* ---- time ------------------------------------------------------------------------------------ */

static void make_sinusoids(tess_pass *p, const float *timestep)
{
    const int64_t half = p->z.freq / 2;
    for (int64_t b = 0; b < p->z.batch; b++)
        for (int64_t i = 0; i < half; i++) {
            const double angle = timestep[b] * pow(10000.0, -(double)i / (double)half);
            p->cond.sinusoid[b * p->z.freq + i] = (float)cos(angle);
            p->cond.sinusoid[b * p->z.freq + half + i] = (float)sin(angle);
        }
}

static void silu(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(x[i] / (1.0 + exp(-(double)x[i])));
}

/* dx = dy silu'(x), in place, or added to `to`. */
static void silu_backward(const float *dy, const float *x, int64_t n, int add, float *dx)
{
    for (int64_t i = 0; i < n; i++) {
        const double s = 1.0 / (1.0 + exp(-(double)x[i]));
        const float d = (float)(dy[i] * s * (1.0 + x[i] * (1.0 - s)));
        dx[i] = add ? dx[i] + d : d;
    }
}

static tess_status time_forward(tess_pass *p, const float *timestep)
{
    const tess__layer first = tess__outer_layer(p, P_TIME1_W);
    const tess__layer second = tess__outer_layer(p, P_TIME2_W);
    const tess__layer proj = tess__outer_layer(p, P_PROJ_W);
    const int64_t batch = p->z.batch, n = batch * p->z.dim;
    make_sinusoids(p, timestep);
    TESS_TRY(tess__layer_forward(p, &first, batch, tess__matrix_f32(p->cond.sinusoid),
                                 tess__matrix_f32(p->cond.time1), NULL));
    silu(p->cond.time1, n, p->cond.time1_silu);
    TESS_TRY(tess__layer_forward(p, &second, batch, tess__matrix_f32(p->cond.time1_silu),
                                 tess__matrix_f32(p->cond.temb), NULL));
    silu(p->cond.temb, n, p->cond.temb_silu);
    return tess__layer_forward(p, &proj, batch, tess__matrix_f32(p->cond.temb_silu),
                               tess__matrix_f32(p->cond.six), NULL);
}

/* p->ws.mod is free by then, and has room for the gradients on their way. */
static tess_status time_backward(tess_pass *p)
{
    const tess__layer first = tess__outer_layer(p, P_TIME1_W);
    const tess__layer second = tess__outer_layer(p, P_TIME2_W);
    const tess__layer proj = tess__outer_layer(p, P_PROJ_W);
    const int64_t batch = p->z.batch, n = batch * p->z.dim;
    TESS_TRY(tess__layer_dw(p, &proj, batch, p->cond.dsix, tess__matrix_f32(p->cond.temb_silu)));
    TESS_TRY(tess__layer_dx(p, &proj, batch, p->cond.dsix, p->ws.mod, 0, NULL));
    silu_backward(p->ws.mod, p->cond.temb, n, 1, p->cond.dtemb);
    TESS_TRY(
        tess__layer_dw(p, &second, batch, p->cond.dtemb, tess__matrix_f32(p->cond.time1_silu)));
    TESS_TRY(tess__layer_dx(p, &second, batch, p->cond.dtemb, p->ws.mod, 0, NULL));
    silu_backward(p->ws.mod, p->cond.time1, n, 0, p->ws.mod);
    return tess__layer_dw(p, &first, batch, p->ws.mod, tess__matrix_f32(p->cond.sinusoid));
}

/* ---- text ------------------------------------------------------------------------------------ */

static tess_status text_forward(tess_pass *p, const float *text)
{
    const tess__layer first = tess__outer_layer(p, P_TEXT1_W);
    const tess__layer second = tess__outer_layer(p, P_TEXT2_W);
    float *h = p->cond.text1 ? p->cond.text1 : p->ws.big;
    if (p->cond.text)
        memcpy(p->cond.text, text, (size_t)(p->z.text_rows * p->z.text_dim) * sizeof *text);
    TESS_TRY(tess__layer_gelu(p, &first, p->z.text_rows, text, tess__matrix_f32(h), p->ws.big));
    return tess__layer_forward(p, &second, p->z.text_rows, tess__matrix_f32(p->ws.big),
                               tess__matrix_f32(p->cond.text_emb), NULL);
}

static tess_status text_backward(tess_pass *p)
{
    const tess__layer first = tess__outer_layer(p, P_TEXT1_W);
    const tess__layer second = tess__outer_layer(p, P_TEXT2_W);
    const int64_t rows = p->z.text_rows;
    float *dh = p->ws.big, *act = p->ws.big + rows * p->z.dim;
    TESS_TRY(tess__layer_gelu_dx(p, &second, rows, p->cond.dtext_emb,
                                 tess__matrix_f32(p->cond.text1), act, dh));
    TESS_TRY(tess__layer_dw(p, &second, rows, p->cond.dtext_emb, tess__matrix_f32(act)));
    return tess__layer_dw(p, &first, rows, dh, tess__matrix_f32(p->cond.text));
}

/* ---- all ------------------------------------------------------------------------------------- */

tess_status tess__embed_forward(tess_pass *p, const tess_model_in *in, float *x0)
{
    const tess__layer l = tess__outer_layer(p, P_PATCH_W);
    float *patches = p->act.patches ? p->act.patches : p->ws.big;
    TESS_TRY(time_forward(p, in->timestep));
    TESS_TRY(text_forward(p, in->text));
    tess__patches_gather(p, in->x, p->model->config.in_channels, 0, patches);
    return tess__layer_forward(p, &l, p->z.rows, tess__matrix_f32(patches), tess__matrix_f32(x0),
                               NULL);
}

tess_status tess__embed_backward(tess_pass *p, float *dx)
{
    const tess__layer l = tess__outer_layer(p, P_PATCH_W);
    TESS_TRY(text_backward(p));
    TESS_TRY(time_backward(p));
    TESS_TRY(tess__layer_dw(p, &l, p->z.rows, p->ws.g, tess__matrix_f32(p->act.patches)));
    if (!dx)
        return TESS_OK;
    float *rows = tess__whole_place(p, p->ws.big, p->z.patch_in);
    TESS_TRY(tess__layer_dx(p, &l, p->z.rows, p->ws.g, rows, 0, NULL));
    return tess__whole_latent(p, p->ws.big, p->model->config.in_channels, 0, dx);
}
