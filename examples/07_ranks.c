/* SPDX-License-Identifier: Apache-2.0 */
/* 07_ranks.c - sparse attention over three ranks by a plan, forward and backward, and over one.
 *
 * What it shows: ranks as threads, each the owner of some tokens; a plan that each makes for
 * itself; lists of keys, chosen by the rank that computes; outputs and gradients returned.
 *
 *   cc 07_ranks.c $(pkg-config --cflags --libs tessera) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { HEADS = 4, BLOCKS = 12, BLOCK = 64, TOKENS = 750, DIM = 32, ALL = HEADS * TOKENS * DIM };
enum { Q, K, V, DOUT, INPUTS, O = INPUTS, DQ, DK, DV, TENSORS };

static float x[2][TENSORS][ALL]; /* [heads, tokens, head_dim]: of three ranks, of one */
static uint8_t mask[HEADS][BLOCKS][BLOCKS];

#define TRY(call)                                                                                  \
    if ((status = (call)) != TESS_OK) /* the others hear of it, and leave, too */                  \
    return tess_comm_fail(comm, status)

static tess_status choose(void *user, const tess_share_in *share, tess_selection *lists, int *dense)
{
    int64_t offsets[BLOCKS + 1] = {0};
    int32_t indices[BLOCKS * BLOCKS], n = 0;
    (void)user, (void)dense;
    for (int i = 0; i < share->n_groups; i++) { /* some query blocks of one head */
        for (int k = 0; k < BLOCKS; k++)
            if (mask[share->head][share->groups[i]][k])
                indices[n++] = k;
        offsets[i + 1] = n;
    }
    return tess_selection_set_lists(lists, offsets, indices);
}

/* What every rank does; over MPI it is the same, with a communicator of tessera/mpi.h. */
static tess_status rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    const tess_mask_set set = {1,      HEADS,  BLOCKS, BLOCKS, mask, TESS_MASK_BYTES,
                               TOKENS, TOKENS, BLOCK,  BLOCK};
    int64_t blocks[BLOCKS + 1], bounds[] = {0, 250, 500, TOKENS}; /* which may cut blocks */
    for (int i = 0; i <= BLOCKS; i++)
        blocks[i] = i < BLOCKS ? i * BLOCK : TOKENS;
    tess_status status;
    tess_comm_info me;
    TRY(tess_comm_query(comm, &me));
    bounds[me.size] = TOKENS;
    tess_work *work;
    tess_plan *plan;
    TRY(tess_work_from_masks(ctx, &set, &work));
    const tess_plan_opts how = {TESS_PLAN_OPTS_DEFAULTS, .ranks = me.size,
                                .strategy.method = TESS_PLAN_FRACTIONAL};
    TRY(tess_plan_create(ctx, work, NULL, &how, &plan)); /* the same on all: nothing is sent */

    tess_dist_attn *attn;
    tess_dist_attn_opts opts = {.batch = 1, .heads = HEADS, .head_dim = DIM, .tokens = TOKENS};
    opts.bounds = bounds;
    opts.groups = opts.units = blocks; /* lists are of blocks for blocks */
    opts.n_groups = opts.n_units = BLOCKS;
    opts.saves = 1;
    TRY(tess_dist_attn_create(ctx, comm, &opts, &attn));
    TRY(tess_dist_attn_plan(attn, plan));
    tess_view v[TENSORS];
    for (int i = 0; i < TENSORS; i++) /* of the local rows */
        v[i] = (tess_view){x[me.size == 1][i] + bounds[me.rank] * DIM, TESS_DTYPE_F32, ALL,
                           TOKENS * DIM, DIM};
    const tess_dist_call call = {.choose = choose, .user = user};
    TRY(tess_dist_attn_forward(attn, &call, &v[Q], &v[K], &v[V], &v[O], NULL));
    TRY(tess_dist_attn_backward(attn, &call, &v[DOUT], &v[DQ], &v[DK], &v[DV]));
    tess_dist_attn_destroy(attn);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    return TESS_OK;
}

int main(void)
{
    double worst = 0.0;
    for (int i = 0; i < 2 * INPUTS; i++)
        tess_random_normal(1, (uint64_t)(i / 2), 0, x[i % 2][i / 2], ALL);
    for (int i = 0; i < HEADS * BLOCKS * BLOCKS; i++) /* head h sees 3 h blocks on each side */
        (&mask[0][0][0])[i] = abs(i / BLOCKS % BLOCKS - i % BLOCKS) <= 3 * (i / BLOCKS / BLOCKS);
    for (int ranks = 3; ranks >= 1; ranks -= 2)
        if (tess_comm_threads(NULL, ranks, NULL, rank, NULL) != TESS_OK) {
            fprintf(stderr, "%s\n", tess_last_error());
            return 1;
        }
    for (int i = O * ALL; i < TENSORS * ALL; i++)
        worst = fmax(worst, fabs((double)(x[0][i / ALL][i % ALL] - x[1][i / ALL][i % ALL])));
    printf("largest difference of o, dq, dk and dv to those of one rank: %.1e\n", worst);
    return worst < 1e-5 ? 0 : 1;
}
