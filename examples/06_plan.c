/* SPDX-License-Identifier: Apache-2.0 */
/* 06_plan.c - a mask of blocks, planned for three ranks, and what one of them does.
 *
 * What it shows: work from a mask, a plan that balances it although three ranks do not divide four
 * heads, the pieces of a rank, the plan as a file and as a page. Every rank makes the same plan
 * from the same mask: nothing is sent to agree on it.
 *
 *   cc 06_plan.c $(pkg-config --cflags --libs tessera) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { RANKS = 3, ME = 1, HEADS = 4, BLOCKS = 12, BLOCK = 64, TOKENS = 750, PIECES = 64 };

#define TRY(call)                                                                                  \
    if ((call) != TESS_OK) {                                                                       \
        fprintf(stderr, "%s\n", tess_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    static uint8_t mask[HEADS][BLOCKS][BLOCKS]; /* head h sees 3 h blocks on each side */
    for (int h = 0; h < HEADS; h++)
        for (int q = 0; q < BLOCKS; q++)
            for (int k = 0; k < BLOCKS; k++)
                mask[h][q][k] = abs(q - k) <= 3 * h;
    const tess_mask_set set = {1,      HEADS,  BLOCKS, BLOCKS, mask, TESS_MASK_BYTES,
                               TOKENS, TOKENS, BLOCK,  BLOCK};
    tess_ctx *ctx;
    tess_work *work;
    tess_plan *plan;
    TRY(tess_ctx_create(NULL, &ctx));
    TRY(tess_work_from_masks(ctx, &set, &work));
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = RANKS,
                                 .strategy.method = TESS_PLAN_FRACTIONAL};
    TRY(tess_plan_create(ctx, work, NULL, &opts, &plan));
    TRY(tess_plan_check(plan, work)); /* every block exactly once */

    tess_plan_layer layer;
    double before;
    TRY(tess_plan_layer_view(plan, 0, &layer));
    TRY(tess_work_imbalance(work, 0, RANKS, 1, TESS_RHO_FREE, &before));
    printf("imbalance %.3f as the heads lie, %.3f planned, %.2f copies of keys and values\n",
           before, layer.rho[TESS_RHO_FREE], layer.kv_copies);

    tess_piece pieces[PIECES];
    int64_t n = PIECES;
    TRY(tess_plan_pieces(plan, 0, ME, pieces, &n));
    for (int64_t i = 0; i < n; i++)
        printf("rank %d computes head %d, query blocks %d..%d, key blocks %d..%d\n", ME,
               pieces[i].head, pieces[i].q_begin, pieces[i].q_end - 1, pieces[i].k_begin,
               pieces[i].k_end - 1);

    /* Plans and their pages are files; a plan that is read again is checked again. */
    tess_plan *again;
    tess_plan_report *page;
    TRY(tess_plan_save(plan, "06_plan.json"));
    TRY(tess_plan_load(ctx, "06_plan.json", &again));
    TRY(tess_plan_check(again, work));
    TRY(tess_plan_report_create(ctx, NULL, &page));
    TRY(tess_plan_report_add(page, 0, again, work));
    TRY(tess_plan_report_write(page, "06_plan.html"));
    printf("wrote 06_plan.json and 06_plan.html\n");
    tess_plan_report_destroy(page);
    tess_plan_destroy(again);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_ctx_destroy(ctx);
    return 0;
}
