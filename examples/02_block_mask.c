/* SPDX-License-Identifier: Apache-2.0 */
/* 02_block_mask.c - block-sparse attention, with the mask from a .npy file.
 *
 * What it shows: files of tensors, and a selection made from a mask of blocks. Each query block
 * sees the key blocks near its own, more of them in later heads, and nothing else is computed. The
 * example writes mask.npy itself; numpy.save of a bool array (heads, q_blocks, k_blocks) is the
 * same file.
 *
 *   cc 02_block_mask.c $(pkg-config --cflags --libs tessera) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

enum { HEADS = 3, BLOCKS = 12, BLOCK = 64, DIM = 64, TOKENS = 750 }; /* the last block is shorter */
enum { ROWS = HEADS * TOKENS, ALL = ROWS * DIM, MASK = HEADS * BLOCKS * BLOCKS };

static float q[ALL], k[ALL], v[ALL], o[ALL], part[ALL];

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
    static uint8_t near[MASK];
    for (int i = 0; i < MASK; i++) {
        const int h = i / (BLOCKS * BLOCKS), away = i / BLOCKS % BLOCKS - i % BLOCKS;
        near[i] = abs(away) <= h; /* head 0: its own block; head 1: one on each side; ... */
    }
    const tess_tensor out = {"mask", TESS_DTYPE_BOOL, 3, {HEADS, BLOCKS, BLOCKS}, near};
    TRY(tess_file_write(ctx, "mask.npy", &out, 1, NULL));

    tess_file *file;
    tess_tensor mask;
    TRY(tess_file_open(ctx, "mask.npy", &file));
    TRY(tess_file_tensor(file, NULL, &mask)); /* lies in the file's mapping until the close */
    if (mask.dtype != TESS_DTYPE_BOOL || mask.rank != 3 || mask.shape[1] != BLOCKS)
        return 1;
    const tess_sel_shape shape_sel = {1, HEADS, TOKENS, TOKENS, BLOCK, BLOCK, NULL, NULL, 0, 0};
    tess_selection *sel;
    tess_selection_lists lists;
    TRY(tess_selection_create(ctx, &shape_sel, MASK, &sel));
    TRY(tess_selection_set_mask(sel, mask.data, TESS_MASK_BYTES));
    TRY(tess_selection_view(sel, &lists));
    tess_file_close(file);

    TRY(tess_random_normal(1, 0, 0, q, ALL));
    TRY(tess_random_normal(1, 1, 0, k, ALL));
    TRY(tess_random_normal(1, 2, 0, v, ALL));
    const tess_view vq = view(q), vk = view(k), vv = view(v), vo = view(o), vpart = view(part);
    tess_attn *attn, *small;
    TRY(tess_attn_create(
        ctx,
        &(tess_attn_shape){
            .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS},
        &attn));
    TRY(tess_attn_forward(attn, sel, &vq, &vk, &vv, &vo, NULL));

    /* In head 1 the first block sees the first two: dense attention over these alone is the same,
     * to the bit. */
    TRY(tess_attn_create(
        ctx,
        &(tess_attn_shape){
            .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = BLOCK, .tokens_k = 2 * BLOCK},
        &small));
    TRY(tess_attn_forward(small, NULL, &vq, &vk, &vv, &vpart, NULL));
    const int same = !memcmp(o + TOKENS * DIM, part + TOKENS * DIM, BLOCK * DIM * sizeof(float));
    printf("density %.4f: %lld of %d blocks\n", lists.density,
           (long long)lists.offsets[lists.lists], MASK);
    printf("first block of head 1 against dense over its keys: %s\n", same ? "same" : "DIFFERENT");
    tess_attn_destroy(small);
    tess_attn_destroy(attn);
    tess_selection_destroy(sel);
    tess_ctx_destroy(ctx);
    return !same;
}
