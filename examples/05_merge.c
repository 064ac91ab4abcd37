/* SPDX-License-Identifier: Apache-2.0 */
/* 05_merge.c - attention over two halves of the keys, merged into attention over all of them.
 *
 * What it shows: lse is all that is needed beside o to put partial results together. This is how
 * keys that lie on several machines, or that arrive in pieces, become one softmax. A row that saw
 * nothing has o = 0 and lse = -inf and changes nothing.
 *
 *   cc 05_merge.c $(pkg-config --cflags --libs tessera) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <tessera/tessera.h>

enum { HEADS = 2, TOKENS = 900, HALF = 333, DIM = 128, ROWS = HEADS * TOKENS, ALL = ROWS * DIM };

static float q[ALL], k[ALL], v[ALL];
static float whole[ALL], first[ALL], second[ALL], lse_whole[ROWS], lse_first[ROWS],
    lse_second[ROWS];

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

static tess_view view(float *x, int token) /* [heads, tokens, head_dim], from a token on */
{
    return (tess_view){x + token * DIM, TESS_DTYPE_F32, ALL, TOKENS * DIM, DIM};
}

/* o, lse = attention of all queries to the keys begin..end. */
static tess_status attend(tess_ctx *ctx, int begin, int end, float *o, float *lse)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = end - begin};
    const tess_view vq = view(q, 0), vk = view(k, begin), vv = view(v, begin), vo = view(o, 0);
    tess_attn *attn;
    tess_status status = tess_attn_create(ctx, &shape, &attn);
    if (status != TESS_OK)
        return status;
    status = tess_attn_forward(attn, NULL, &vq, &vk, &vv, &vo, lse);
    tess_attn_destroy(attn);
    return status;
}

int main(void)
{
    tess_ctx *ctx;
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_random_normal(1, 0, 0, q, ALL));
    TRY(tess_random_normal(1, 1, 0, k, ALL));
    TRY(tess_random_normal(1, 2, 0, v, ALL));
    TRY(attend(ctx, 0, TOKENS, whole, lse_whole));
    TRY(attend(ctx, 0, HALF, first, lse_first));
    TRY(attend(ctx, HALF, TOKENS, second, lse_second));

    const tess_attn_shape shape = {
        .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS};
    const tess_view vfirst = view(first, 0), vsecond = view(second, 0);
    TRY(tess_attn_merge(&shape, &vsecond, lse_second, &vfirst, lse_first)); /* into the first */

    float worst = 0.0f, worst_lse = 0.0f;
    for (int i = 0; i < ALL; i++)
        worst = fmaxf(worst, fabsf(whole[i] - first[i]));
    for (int i = 0; i < ROWS; i++)
        worst_lse = fmaxf(worst_lse, fabsf(lse_whole[i] - lse_first[i]));
    printf("keys 0..%d and %d..%d merged, against all %d at once:\n", HALF, HALF, TOKENS, TOKENS);
    printf("largest difference of o %.1e, of lse %.1e\n", (double)worst, (double)worst_lse);
    tess_ctx_destroy(ctx);
    return worst < 1e-5f && worst_lse < 1e-5f ? 0 : 1;
}
