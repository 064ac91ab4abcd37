/* SPDX-License-Identifier: Apache-2.0 */
/* 06_plan.c - a mask of blocks, planned for three ranks, and what one of them does.
 *
 * What it shows: work from a mask, a plan that balances it although three ranks do not divide four
 * heads, the pieces of a rank, and which rows it exchanges with whom. Every rank makes the same
 * plan from the same mask and derives its own lists: nothing is sent to agree on them.
 *
 *   cc 06_plan.c $(pkg-config --cflags --libs tessera) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/advanced/exchange.h>
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
    const tess_plan_opts opts = {.ranks = RANKS, .strategy.method = TESS_PLAN_FRACTIONAL};
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

    const int64_t bounds[RANKS + 1] = {0, 250, 500, TOKENS}; /* cut blocks of 64 rows */
    tess_exchange *exchange;
    TRY(tess_plan_exchange(plan, NULL, 0, ME, bounds, NULL, &exchange));
    static const char *const names[] = {"Q", "K and V", "O"};
    int64_t sent = 0, back = 0;
    for (int rows = TESS_ROWS_Q; rows <= TESS_ROWS_O; rows++) {
        tess_rows_view view;
        TRY(tess_exchange_view(exchange, (tess_rows)rows, &view));
        printf("%s: %lld rows out, %lld in\n", names[rows], (long long)view.send_total,
               (long long)view.recv_total);
        for (int64_t i = 0; rows != TESS_ROWS_O && i < view.n_recvs; i++)
            printf("  %lld rows of head %d from rank %d: row %lld there, place %lld here\n",
                   (long long)view.recvs[i].rows, view.recvs[i].head, view.recvs[i].peer,
                   (long long)view.recvs[i].row, (long long)view.recvs[i].place);
        sent += rows == TESS_ROWS_Q ? view.send_total : 0;
        back += rows == TESS_ROWS_O ? view.recv_total : 0;
    }
    tess_exchange_destroy(exchange);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_ctx_destroy(ctx);
    return sent != back; /* what went out as Q comes back as O */
}
