/* SPDX-License-Identifier: Apache-2.0 */
/* 01_dense_attention.c - the smallest program: attention of all queries to all keys.
 *
 * What it shows: a context (instruction set and threads), views of your own buffers without a
 * copy, an attention object that owns the workspace, and how an error speaks. The buffers are in
 * the order [tokens, heads, head_dim] that a linear layer leaves behind; [heads, tokens, head_dim]
 * is the same with other strides.
 *
 *   cc 01_dense_attention.c $(pkg-config --cflags --libs tessera) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <tessera/tessera.h>

enum { TOKENS = 1000, HEADS = 4, DIM = 64, ALL = TOKENS * HEADS * DIM };

static float q[ALL], k[ALL], v[ALL], o[ALL], lse[HEADS * TOKENS];

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

static size_t at(int head, int token)
{
    return ((size_t)token * HEADS + (size_t)head) * DIM;
}

/* The largest difference of one output row to the formula in double precision. */
static double row_error(int h, int t)
{
    static double p[TOKENS];
    double sum = 0.0, worst = 0.0;
    for (int j = 0; j < TOKENS; j++) {
        double s = 0.0;
        for (int d = 0; d < DIM; d++)
            s += (double)q[at(h, t) + (size_t)d] * (double)k[at(h, j) + (size_t)d];
        p[j] = exp(s / sqrt(DIM));
        sum += p[j];
    }
    for (int d = 0; d < DIM; d++) {
        double x = 0.0;
        for (int j = 0; j < TOKENS; j++)
            x += p[j] / sum * (double)v[at(h, j) + (size_t)d];
        worst = fmax(worst, fabs(x - (double)o[at(h, t) + (size_t)d]));
    }
    return fmax(worst, fabs(log(sum) - (double)lse[h * TOKENS + t]));
}

int main(void)
{
    tess_ctx *ctx;
    tess_ctx_info info;
    TRY(tess_ctx_create(NULL, &ctx)); /* NULL: every default */
    TRY(tess_ctx_query(ctx, &info));
    TRY(tess_random_normal(1, 0, 0, q, ALL)); /* seed 1, streams 0, 1, 2 */
    TRY(tess_random_normal(1, 1, 0, k, ALL));
    TRY(tess_random_normal(1, 2, 0, v, ALL));

    const tess_view vq = {q, TESS_DTYPE_F32, ALL, DIM, HEADS * DIM}; /* strides of b, h, s */
    const tess_view vk = {k, TESS_DTYPE_F32, ALL, DIM, HEADS * DIM};
    const tess_view vv = {v, TESS_DTYPE_F32, ALL, DIM, HEADS * DIM};
    const tess_view vo = {o, TESS_DTYPE_F32, ALL, DIM, HEADS * DIM};
    const tess_attn_shape shape = {
        .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS};
    tess_attn *attn;
    TRY(tess_attn_create(ctx, &shape, &attn)); /* the scale 0 stands for 1 / sqrt(head_dim) */
    TRY(tess_attn_forward(attn, NULL, &vq, &vk, &vv, &vo, lse)); /* no selection: dense */

    double worst = 0.0;
    for (int t = 0; t < TOKENS; t += 111)
        worst = fmax(worst, row_error(t % HEADS, t));
    printf("dense attention of %d heads x %d tokens x %d on %s, %d threads\n", HEADS, TOKENS, DIM,
           info.isa, info.threads);
    printf("largest difference to double precision, o and lse: %.1e\n", worst);
    tess_attn_destroy(attn);
    tess_ctx_destroy(ctx);
    return worst < 1e-5 ? 0 : 1;
}
