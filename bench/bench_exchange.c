/* SPDX-License-Identifier: Apache-2.0 */
/* bench_exchange.c - what it costs to derive the exchange lists of one layer, for all ranks.
 *
 *   bench_exchange [ranks]        8
 *
 * 75,600 tokens in blocks of 64, 40 heads, shards of equal rows (which cut blocks), one thread, the
 * best of SAMPLES: lists of runs, and the same row by row. Orders are random, which gives as many
 * runs as there can be; masks have 10 % of their blocks.
 */
#include "plan/plan_internal.h"
#include "tessera/advanced/exchange.h"

#include <stdlib.h>
#include <time.h>

enum {
    TOKENS = 75600,
    GROUP = 64,
    BLOCKS = (TOKENS + GROUP - 1) / GROUP,
    HEADS = 40,
    SAMPLES = 9,
    RANKS = 1024
};

typedef struct {
    tess_ctx *ctx;
    tess_work *work;
    int ranks;
    int64_t *bounds;
    int32_t *order; /* (ranks, BLOCKS) */
} bench;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "bench_exchange: %s\n", tess_last_error());
        exit(1);
    }
}

/* Nanoseconds of this thread alone: others may use the machine. */
static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *take(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        exit(1);
    return p;
}

static uint32_t draw(uint32_t below)
{
    static uint64_t drawn;
    uint32_t bits;
    need(tess_random_bits(3, 0, drawn++, &bits, 1));
    return (uint32_t)(((uint64_t)bits * below) >> 32);
}

static tess_work *masked_work(tess_ctx *ctx)
{
    const size_t n = (size_t)HEADS * BLOCKS * BLOCKS;
    uint8_t *mask = take(n);
    for (size_t i = 0; i < n; i++)
        mask[i] = (uint8_t)((i * 2654435761u >> 16) % 10 == 0);
    const tess_mask_set set = {1,      HEADS,  BLOCKS, BLOCKS, mask, TESS_MASK_BYTES,
                               TOKENS, TOKENS, GROUP,  GROUP};
    tess_work *work;
    need(tess_work_from_masks(ctx, &set, &work));
    free(mask);
    return work;
}

/* All ranks: the lists, and with rows their index arrays too. Seconds of the best sample. */
static double measure(const bench *b, const tess_plan *plan, const tess_work *work, int rows,
                      int64_t *runs)
{
    double least = 1e30;
    int64_t *index = take((size_t)HEADS * TOKENS * 2 * sizeof *index);
    for (int s = 0; s < SAMPLES; s++) {
        *runs = 0;
        const int64_t start = now();
        for (int r = 0; r < b->ranks; r++) {
            tess_exchange *x;
            need(tess_plan_exchange(plan, work, 0, r, b->bounds, NULL, &x));
            for (int side = 0; side < 2; side++) {
                tess_rows_view view;
                need(tess_exchange_view(x, (tess_rows)side, &view));
                *runs += view.n_sends + view.n_recvs;
                if (rows)
                    need(tess_exchange_index(x, (tess_rows)side, TESS_LAYOUT_HEADS, index, index));
            }
            tess_exchange_destroy(x);
        }
        const double seconds = 1e-9 * (double)(now() - start);
        least = seconds < least ? seconds : least;
    }
    free(index);
    return least;
}

static void run(const bench *b, const char *name, int ulysses, int ring, int selective,
                int permuted)
{
    tess_plan_info info;
    tess__plan_info_of_work(b->work, &info);
    info.ranks = b->ranks;
    info.nodes = 1;
    info.head_dim = 128;
    info.element_bytes = 2;
    tess_plan *plan;
    need(tess__plan_new(b->ctx, name, &info, &plan));
    tess__layer_heads in = {.strategy = {.method = TESS_PLAN_REFINED,
                                         .ulysses = ulysses,
                                         .ring = ring,
                                         .selective = selective},
                            .q_order = permuted ? b->order : NULL,
                            .k_order = permuted ? b->order : NULL};
    int32_t group[HEADS];
    tess_share shares[HEADS + RANKS];
    if (ulysses * ring * selective == b->ranks) {
        for (int h = 0; h < HEADS; h++)
            group[h] = h % ulysses;
        in.head_group = group;
        need(tess__layer_from_heads(&plan->arena, &info, &in, &plan->layers[0]));
    } else { /* fractional: the same number of blocks for every rank, heads in their order */
        int64_t n = 0;
        const int64_t all = (int64_t)HEADS * BLOCKS;
        for (int64_t at = 0; at < all;) {
            const int rank = (int)(at * b->ranks / all);
            int64_t end = (at / BLOCKS + 1) * BLOCKS;
            const int64_t mine = ((rank + 1) * all + b->ranks - 1) / b->ranks;
            end = mine < end ? mine : end;
            shares[n++] = (tess_share){rank, (int32_t)(at / BLOCKS), (int32_t)(at % BLOCKS),
                                       (int32_t)(end - at / BLOCKS * BLOCKS)};
            at = end;
        }
        need(tess__layer_from_shares(&plan->arena, &info, &in, shares, n, &plan->layers[0]));
    }
    need(tess_plan_check(plan, b->work));
    int64_t runs;
    const tess_work *work = selective > 1 ? b->work : NULL;
    const double lists = measure(b, plan, work, 0, &runs);
    const double rows = measure(b, plan, work, 1, &runs);
    printf("%-28s %9lld runs  lists %7.3f ms  row by row %7.3f ms\n", name, (long long)runs,
           1e3 * lists, 1e3 * rows);
    tess_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    bench b = {.ranks = argc > 1 ? atoi(argv[1]) : 8};
    if (b.ranks < 1 || b.ranks > RANKS)
        return 2;
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &b.ctx));
    b.work = masked_work(b.ctx);
    b.bounds = take((RANKS + 1) * sizeof *b.bounds);
    for (int r = 0; r <= b.ranks; r++)
        b.bounds[r] = (int64_t)TOKENS * r / b.ranks;
    b.order = take((size_t)RANKS * BLOCKS * sizeof *b.order);
    for (int u = 0; u < b.ranks; u++) {
        int32_t *order = b.order + (size_t)u * BLOCKS;
        for (int32_t i = 0; i < BLOCKS; i++)
            order[i] = i;
        for (int32_t i = BLOCKS - 1; i > 0; i--) {
            const int32_t j = (int32_t)draw((uint32_t)i + 1), kept = order[i];
            order[i] = order[j];
            order[j] = kept;
        }
    }
    const int two = b.ranks % 2 ? 1 : 2;
    run(&b, "ulysses", b.ranks, 1, 1, 0);
    run(&b, "ring", 1, b.ranks, 1, 0);
    run(&b, "ring, permuted", 1, b.ranks, 1, 1);
    run(&b, "ulysses 2 x ring, permuted", two, b.ranks / two, 1, 1);
    run(&b, "selective", 1, 1, b.ranks, 0);
    run(&b, "fractional", 1, 1, 1, 0);
    tess_work_destroy(b.work);
    free(b.bounds);
    free(b.order);
    tess_ctx_destroy(b.ctx);
    return 0;
}
