/* SPDX-License-Identifier: Apache-2.0 */
/* bench_dist_attn.c - what a rank does in one layer of attention over many: attend, pack, exchange.
 *
 *   bench_dist_attn [tokens [ranks [ring | selective]]]        4096 2
 *
 * 12 heads of 64, whole on their ranks, or cut over all of them; forward and backward, dense and at
 * a density of 10 % in lists of single keys for groups of 64 queries. Ranks are threads with
 * virtual clocks and links of 10 GB/s, so that times are CPU times of rank 0, whatever else the
 * machine does; the best of SAMPLES. Tensors lie as [heads, tokens, dim] or as [tokens, heads,
 * dim].
 */
#include "tessera/dist_attn.h"
#include "tessera/strategy.h"
#include "tessera/advanced/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 12, DIM = 64, GROUP = 64, EVERY = 10, SAMPLES = 4, RANKS = 64, TENSORS = 8 };

typedef struct {
    int64_t tokens;
    int ranks, sparse, tokens_first;
    tess_plan *plan;
    int64_t bounds[RANKS + 1];
    int64_t *groups;  /* (n_groups + 1) */
    int64_t *offsets; /* the lists of a head, */
    int32_t *indices; /* the same for all */
    int32_t n_groups;
} bench;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "bench_dist_attn: %s\n", tess_last_error());
        exit(1);
    }
}

static void *take(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        exit(1);
    return p;
}

static tess_status choose(void *user, const tess_share_in *in, tess_selection *lists, int *dense)
{
    const bench *b = user;
    (void)dense;
    int64_t *offsets = take(((size_t)in->n_groups + 1) * sizeof *offsets);
    int32_t *indices = take((size_t)b->offsets[b->n_groups] * sizeof *indices);
    offsets[0] = 0;
    for (int32_t i = 0; i < in->n_groups; i++) {
        const int64_t first = b->offsets[in->groups[i]], n = b->offsets[in->groups[i] + 1] - first;
        memcpy(indices + offsets[i], b->indices + first, (size_t)n * sizeof *indices);
        offsets[i + 1] = offsets[i] + n;
    }
    const tess_status status = tess_selection_set_lists(lists, offsets, indices);
    free(offsets);
    free(indices);
    return status;
}

static void report(const bench *b, const tess_dist_stats *stats, int64_t ns)
{
    printf("%-6s [%s]  %8.2f ms: attention %8.2f, packing %6.2f (%.2f %%), exchange %6.2f, "
           "lists %6.2f, which keys %6.2f (%.2f %%)\n",
           b->sparse ? "10 %" : "dense", b->tokens_first ? "tokens, heads" : "heads, tokens",
           1e-6 * (double)ns, 1e-6 * (double)stats->attend_ns, 1e-6 * (double)stats->move_ns,
           100.0 * (double)stats->move_ns / (double)ns, 1e-6 * (double)stats->exchange_ns,
           1e-6 * (double)stats->select_ns, 1e-6 * (double)stats->index_ns,
           100.0 * (double)stats->index_ns / (double)ns);
}

/* Forward and backward; the shortest on rank 0 is printed. */
static void run_samples(const bench *b, tess_comm *comm, tess_dist_attn *attn, int rank,
                        const tess_view x[TENSORS])
{
    const tess_dist_call call = {.choose = b->sparse ? choose : NULL, .user = (void *)b};
    tess_dist_stats best = {0};
    int64_t least = INT64_MAX;
    for (int s = 0; s < SAMPLES; s++) {
        tess_dist_stats stats;
        const int64_t begin = tess_comm_clock(comm);
        need(tess_dist_attn_forward(attn, &call, &x[0], &x[1], &x[2], &x[3], NULL));
        need(tess_dist_attn_backward(attn, &call, &x[4], &x[5], &x[6], &x[7]));
        const int64_t ns = tess_comm_clock(comm) - begin;
        need(tess_dist_attn_stats(attn, 0, &stats));
        if (ns < least) {
            least = ns;
            best = stats;
        }
    }
    if (rank == 0)
        report(b, &best, least);
}

static tess_status run_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    const bench *b = user;
    tess_comm_info info;
    need(tess_comm_query(comm, &info));
    const int64_t rows = b->bounds[info.rank + 1] - b->bounds[info.rank];
    const size_t n = (size_t)rows * HEADS * DIM;
    float *data = take(TENSORS * n * sizeof *data + 1);
    need(tess_random_normal(1, (uint64_t)info.rank, 0, data, TENSORS * n));
    tess_view x[TENSORS];
    for (size_t i = 0; i < TENSORS; i++)
        x[i] = (tess_view){data + i * n, TESS_DTYPE_F32, 0, b->tokens_first ? DIM : rows * DIM,
                           b->tokens_first ? HEADS * DIM : DIM};
    const tess_dist_attn_opts opts = {.batch = 1,
                                      .heads = HEADS,
                                      .head_dim = DIM,
                                      .tokens = b->tokens,
                                      .bounds = b->bounds,
                                      .n_groups = b->n_groups,
                                      .groups = b->groups,
                                      .saves = 1};
    tess_dist_attn *attn = NULL;
    need(tess_dist_attn_create(ctx, comm, &opts, &attn));
    need(tess_dist_attn_plan(attn, b->plan));
    run_samples(b, comm, attn, info.rank, x);
    tess_dist_attn_destroy(attn);
    free(data);
    return TESS_OK;
}

/* Groups, shards, and lists in which every tenth key is. */
static void cut(bench *b)
{
    b->n_groups = (int32_t)((b->tokens + GROUP - 1) / GROUP);
    b->groups = take(((size_t)b->n_groups + 1) * sizeof *b->groups);
    b->offsets = take(((size_t)b->n_groups + 1) * sizeof *b->offsets);
    b->indices = take((size_t)b->n_groups * (size_t)(b->tokens / EVERY + 1) * sizeof *b->indices);
    int64_t used = 0;
    for (int32_t g = 0; g < b->n_groups; g++) {
        b->groups[g] = (int64_t)g * GROUP;
        b->offsets[g] = used;
        for (int64_t k = g % EVERY; k < b->tokens; k += EVERY)
            b->indices[used++] = (int32_t)k;
    }
    b->groups[b->n_groups] = b->tokens;
    b->offsets[b->n_groups] = used;
    for (int r = 0; r <= b->ranks; r++)
        b->bounds[r] = b->tokens * r / b->ranks;
}

int main(int argc, char **argv)
{
    bench b = {.tokens = argc > 1 ? atoll(argv[1]) : 4096, .ranks = argc > 2 ? atoi(argv[2]) : 2};
    if (b.tokens < 1 || b.tokens > INT32_MAX || b.ranks < 1 || b.ranks > HEADS) {
        fprintf(stderr, "usage: bench_dist_attn [tokens [ranks, 1..%d [ring | selective]]]\n",
                HEADS);
        return 2;
    }
    cut(&b);
    tess_ctx *ctx;
    tess_work *work;
    double density[HEADS];
    for (int h = 0; h < HEADS; h++)
        density[h] = 1.0;
    need(tess_ctx_create(NULL, &ctx));
    need(tess_work_from_density(ctx, density, 1, HEADS, b.tokens, GROUP, &work));
    const int ring = argc > 3 && strcmp(argv[3], "ring") == 0;
    const int selective = argc > 3 && strcmp(argv[3], "selective") == 0;
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = b.ranks,
                                 .strategy = {.method = TESS_PLAN_CONTIGUOUS,
                                              .ulysses = ring || selective ? 1 : b.ranks,
                                              .ring = ring ? b.ranks : 1,
                                              .selective = selective ? b.ranks : 1},
                                 .union_share = 1.0};
    need(tess_plan_create(ctx, work, NULL, &opts, &b.plan));
    const tess_link link = {.latency = 10000, .bandwidth = 1e10};
    for (b.sparse = 0; b.sparse < 2; b.sparse++)
        for (b.tokens_first = 0; b.tokens_first < 2; b.tokens_first++)
            need(tess_comm_threads(NULL, b.ranks, &link, run_rank, &b));
    tess_plan_destroy(b.plan);
    tess_work_destroy(work);
    tess_ctx_destroy(ctx);
    free(b.groups);
    free(b.offsets);
    free(b.indices);
    return 0;
}
