/* SPDX-License-Identifier: Apache-2.0 */
/* 04_top_k.c - a selector chooses the keys: exactly K for each group, by projected scores.
 *
 * What it shows: a selector, the selection it fills, how good that selection is, and what its
 * sparsity costs in the output. The predictor scores short vectors, here the first 16 of 64
 * elements, which carry most of the score in this made-up data; training makes such vectors in
 * earnest. A random choice of as many keys stands beside it.
 *
 *   cc 04_top_k.c $(pkg-config --cflags --libs tessera) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <tessera/tessera.h>

enum { HEADS = 2, TOKENS = 1024, DIM = 64, LOW = 16, GROUP = 16, KEYS = 128 };
enum { ALL = HEADS * TOKENS * DIM };

static float q[ALL], k[ALL], v[ALL], dense[ALL], sparse[ALL];

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

static tess_view view(float *x) /* [heads, tokens, head_dim] */
{
    return (tess_view){x, TESS_DTYPE_F32, ALL, TOKENS * DIM, DIM};
}

/* Queries of a group look for much the same, and most of it stands in the first elements. */
static void shape_data(void)
{
    for (int i = 0; i < ALL; i++) {
        const int first = i / (GROUP * DIM) * GROUP * DIM + i % DIM; /* of the group's first row */
        if (i % DIM < LOW)
            q[i] = i == first ? 4.0f * q[i] : q[first] + q[i];
    }
}

int main(void)
{
    const tess_view vq = view(q), vk = view(k), vv = view(v), vd = view(dense), vs = view(sparse);
    const tess_select_kind kinds[] = {TESS_SELECT_PREDICTOR, TESS_SELECT_RANDOM};
    double recall[2], error[2] = {0.0, 0.0};
    tess_ctx *ctx;
    tess_attn *attn;
    tess_selection *sel;
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_random_normal(1, 0, 0, q, ALL));
    TRY(tess_random_normal(1, 1, 0, k, ALL));
    TRY(tess_random_normal(1, 2, 0, v, ALL));
    shape_data();
    TRY(tess_attn_create(
        ctx,
        &(tess_attn_shape){
            .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS},
        &attn));
    TRY(tess_attn_forward(attn, NULL, &vq, &vk, &vv, &vd, NULL));
    const tess_sel_shape shape = {1, HEADS, TOKENS, TOKENS, GROUP, 1, NULL, NULL, 0, 0};
    TRY(tess_selection_create(ctx, &shape, (int64_t)HEADS * TOKENS / GROUP * KEYS, &sel));

    for (int n = 0; n < 2; n++) {
        const tess_select_in in = {.q = &vq, .k = &vk, .head_dim = LOW, .budget.keys = KEYS};
        const tess_sel_measure_in measure = {.q = &vq, .k = &vk, .head_dim = DIM};
        tess_selector *selector;
        tess_sel_stats stats;
        TRY(tess_selector_create(ctx, &(tess_selector_opts){.kind = kinds[n]}, &selector));
        TRY(tess_selector_run(selector, &in, sel));
        TRY(tess_selection_measure(ctx, sel, &measure, &stats));
        TRY(tess_attn_forward(attn, sel, &vq, &vk, &vv, &vs, NULL));
        for (int i = 0; i < ALL; i++)
            if (fabs((double)dense[i] - (double)sparse[i]) > error[n])
                error[n] = fabs((double)dense[i] - (double)sparse[i]);
        recall[n] = stats.recall;
        printf("%-9s density %.3f  recall %.3f  mass %.3f  largest difference to dense %.3f\n",
               tess_select_kind_name(kinds[n]), stats.density, stats.recall, stats.mass, error[n]);
        tess_selector_destroy(selector);
    }
    tess_selection_destroy(sel);
    tess_attn_destroy(attn);
    tess_ctx_destroy(ctx);
    return recall[0] > 0.9 && recall[1] < 0.5 && error[0] < error[1] ? 0 : 1;
}
