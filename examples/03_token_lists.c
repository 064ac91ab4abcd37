/* SPDX-License-Identifier: Apache-2.0 */
/* 03_token_lists.c - attention over lists of single keys, forward and backward.
 *
 * What it shows: a selection by offsets and indices, as DSV's token lists are (each group of 64
 * queries has its own ascending list of keys), and the gradients of a loss by q, k and v. They are
 * checked by moving a little along a direction: the loss must change as the gradients say.
 *
 *   cc 03_token_lists.c $(pkg-config --cflags --libs tessera) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <tessera/tessera.h>

enum { HEADS = 2, TOKENS = 640, DIM = 64, GROUP = 64, LISTS = HEADS * TOKENS / GROUP };
enum { ALL = HEADS * TOKENS * DIM, ROOM = LISTS * TOKENS };

static float q[ALL], k[ALL], v[ALL], o[ALL], lse[HEADS * TOKENS];
static float dout[ALL], dq[ALL], dk[ALL], dv[ALL], way[3 * ALL], chance[ROOM];
static float *const in[] = {q, k, v, dout}, *const gradients[] = {dq, dk, dv};
static int64_t offsets[LISTS + 1];
static int32_t indices[ROOM];

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

static tess_view view(float *x) /* [heads, tokens, head_dim] */
{
    return (tess_view){x, TESS_DTYPE_F32, ALL, TOKENS * DIM, DIM};
}

int main(void)
{
    tess_ctx *ctx;
    TRY(tess_ctx_create(NULL, &ctx));
    for (int i = 0; i < 4; i++)
        TRY(tess_random_normal(1, (uint64_t)i, 0, in[i], ALL));
    TRY(tess_random_normal(1, 4, 0, way, 3 * ALL));
    TRY(tess_random_uniform(1, 5, 0, chance, ROOM));

    for (int list = 0; list < LISTS; list++) { /* keeps about a tenth of the keys */
        int64_t n = offsets[list];
        for (int key = 0; key < TOKENS; key++)
            if (chance[list * TOKENS + key] < 0.1f)
                indices[n++] = key;
        offsets[list + 1] = n;
    }
    const tess_sel_shape lists_shape = {1, HEADS, TOKENS, TOKENS, GROUP, 1, NULL, NULL, 0, 0};
    tess_selection *sel;
    TRY(tess_selection_create(ctx, &lists_shape, offsets[LISTS], &sel));
    TRY(tess_selection_set_lists(sel, offsets, indices));

    /* loss = sum of o * dout, so that dout is its gradient by o. */
    const tess_view vq = view(q), vk = view(k), vv = view(v), vo = view(o), vdout = view(dout);
    const tess_view vdq = view(dq), vdk = view(dk), vdv = view(dv);
    const tess_attn_saved saved = {&vq, &vk, &vv, &vo, lse};
    tess_attn *attn;
    TRY(tess_attn_create(
        ctx,
        &(tess_attn_shape){
            .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS},
        &attn));
    TRY(tess_attn_forward(attn, sel, &vq, &vk, &vv, &vo, lse));
    TRY(tess_attn_backward(attn, sel, &saved, &vdout, NULL, &vdq, &vdk, &vdv));

    double by_gradient = 0.0, by_difference = 0.0, step = 3e-3;
    for (int i = 0; i < 3 * ALL; i++)
        by_gradient += (double)gradients[i / ALL][i % ALL] * (double)way[i];
    for (int side = 1; side >= -1; side -= 2) { /* to +step, then from there to -step */
        for (int i = 0; i < 3 * ALL; i++)
            in[i / ALL][i % ALL] += (float)(side > 0 ? step : -2.0 * step) * way[i];
        TRY(tess_attn_forward(attn, sel, &vq, &vk, &vv, &vo, lse));
        for (int i = 0; i < ALL; i++)
            by_difference += side * (double)o[i] * (double)dout[i] / (2.0 * step);
    }
    printf("density %.4f\n", (double)offsets[LISTS] / ROOM);
    printf("change of the loss: %.4f by the gradients, %.4f by trying\n", by_gradient,
           by_difference);
    tess_attn_destroy(attn);
    tess_selection_destroy(sel);
    tess_ctx_destroy(ctx);
    return fabs(by_gradient - by_difference) < 1e-3 * fabs(by_gradient) ? 0 : 1;
}
