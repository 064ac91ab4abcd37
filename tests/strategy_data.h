/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_data.h - works, options and a cluster of round numbers for the tests of the strategy. */
#ifndef TESS_STRATEGY_DATA_H
#define TESS_STRATEGY_DATA_H

#include "plan/strategy_internal.h"

#include <stdlib.h>

enum { MAX_RANKS = 24, MAX_FOUND = 128 };

static tess_ctx *ctx;

/* 100 GB/s inside after 1 us, 8 adapters of 10 GB/s after 2 us, calls of 3 us, 10 TFLOP/s for
 * sparse attention forward and 5 backward, a row costs 100 keys, 2 GiB. */
static tess_cluster *round_cluster;
static const char round_text[] =
    "{\"schema\": 1, \"about\": \"round numbers\","
    " \"gpu\": {\"name\": \"G\", \"peak_tflops\": {\"bf16\": 40}, \"memory_gib\": 2,"
    "  \"memory_gbytes_per_s\": 1000, \"origin\": \"none\"},"
    " \"node\": {\"gpus\": 8, \"link\": {\"name\": \"L\", \"gbytes_per_s\": 200,"
    "  \"latency_us\": 1, \"efficiency\": 0.5, \"origin\": \"none\"}},"
    " \"network\": {\"name\": \"N\", \"nics\": 8, \"gbytes_per_s\": 20, \"latency_us\": 2,"
    "  \"efficiency\": 0.5, \"oversubscription\": 1, \"origin\": \"none\"},"
    " \"launch\": {\"us\": 3, \"origin\": \"none\"},"
    " \"attention\": {\"forward\": 0.5, \"backward\": 0.25, \"sparse\": 0.5, \"row_keys\": 100,"
    "  \"origin\": \"none\"}}";

static inline int make_world(void **state)
{
    (void)state;
    return tess_ctx_create(NULL, &ctx) != TESS_OK ||
           tess__cluster_parse(ctx, "round", round_text, sizeof round_text - 1, &round_cluster) !=
               TESS_OK;
}

static inline int drop_world(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_cluster_destroy(round_cluster);
    const int leak = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return leak;
}

/* ---- works ----------------------------------------------------------------------------------- */

static inline int draw(uint64_t seed, uint64_t index, int low, int high)
{
    uint32_t bits;
    CHECK_OK(tess_random_bits(seed, 77, index, &bits, 1));
    return low + (int)(bits % (uint32_t)(high - low + 1));
}

/* One layer of heads that all have this density. */
static inline tess_work *even_work(int heads, int64_t tokens, int32_t group, double density)
{
    double all[64];
    tess_work *work = NULL;
    for (int h = 0; h < heads; h++)
        all[h] = density;
    CHECK_OK(tess_work_from_density(ctx, all, 1, heads, tokens, group, &work));
    return work;
}

/* One layer of masks in which about `percent` of the blocks are selected, more in some heads, rows
 * and columns than in others; tokens that do not divide into blocks. */
static inline tess_work *random_masks(uint64_t seed, int heads, int32_t q, int32_t k, int percent)
{
    const size_t n = (size_t)heads * (size_t)q * (size_t)k;
    uint8_t *mask = malloc(n);
    uint32_t *bits = malloc(n * sizeof *bits);
    assert_true(mask && bits);
    CHECK_OK(tess_random_bits(seed, 5, 0, bits, n));
    for (size_t i = 0; i < n; i++) {
        const size_t head = i / (size_t)(q * k), row = i / (size_t)k % (size_t)q;
        const uint32_t chance = (uint32_t)percent * (uint32_t)(1 + head % 3 + row % 2) / 2;
        mask[i] = bits[i] % 100 < chance;
    }
    const tess_mask_set set = {.layers = 1,
                               .heads = heads,
                               .q_blocks = q,
                               .k_blocks = k,
                               .data = mask,
                               .kind = TESS_MASK_BYTES,
                               .tokens_q = (int64_t)q * 64 - 8,
                               .tokens_k = (int64_t)k * 32 - 3,
                               .group = 64,
                               .unit = 32};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_masks(ctx, &set, &work));
    free(mask);
    free(bits);
    return work;
}

static inline tess_work *random_work(uint64_t seed)
{
    const int heads = draw(seed, 0, 1, 9), kind = draw(seed, 1, 0, 2);
    double density[9];
    tess_work *work = NULL;
    if (kind > 0)
        return random_masks(seed, heads, draw(seed, 2, 1, 12), draw(seed, 3, 1, 12),
                            draw(seed, 4, 0, 60));
    for (int h = 0; h < heads; h++)
        density[h] = draw(seed, 10 + (uint64_t)h, 0, 100) / 100.0;
    CHECK_OK(tess_work_from_density(ctx, density, 1, heads, draw(seed, 5, 1, 300),
                                    draw(seed, 6, 1, 64), &work));
    return work;
}

/* Any method at any degrees that multiply to the ranks, on any nodes. */
static inline tess_plan_opts random_opts(uint64_t seed, const tess_work *work)
{
    const int u = draw(seed, 30, 1, 4), parts = draw(seed, 31, 1, 4), ring = draw(seed, 32, 0, 1);
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = u * parts,
                           .strategy = {.ulysses = u,
                                        .ring = ring ? parts : 1,
                                        .selective = ring ? 1 : parts,
                                        .method = (tess_plan_method)draw(seed, 33, 1, 6)}};
    if (opts.strategy.method == TESS_PLAN_FRACTIONAL) {
        opts.ranks = draw(seed, 34, 1, MAX_RANKS);
        opts.strategy.ulysses = opts.strategy.ring = opts.strategy.selective = 0;
    }
    (void)work;
    opts.nodes = draw(seed, 35, 1, opts.ranks);
    return opts;
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct {
    tess_candidate c[MAX_FOUND];
    int n;
} found;

static inline void find_all(void *user, int layer, const tess_candidate *c)
{
    found *f = user;
    if (layer == 0 && f->n < MAX_FOUND)
        f->c[f->n++] = *c;
}

/* Masks of sizes at which work, not latency, decides: 64 query blocks of 512 tokens. */
static inline tess_work *large_masks(uint64_t seed)
{
    enum { HEADS = 6, N = 64 };
    static uint8_t mask[HEADS * N * N];
    static uint32_t bits[HEADS * N * N];
    CHECK_OK(tess_random_bits(seed, 9, 0, bits, HEADS * N * N));
    for (int i = 0; i < HEADS * N * N; i++) {
        const int head = i / (N * N), q = i / N % N, k = i % N;
        /* Bands in some seeds, so that tiles of a ring are empty. */
        const int inside = seed % 2 || abs(q - k) < 4 + (int)(seed % 7);
        mask[i] = inside && bits[i] % 100 < 10 + 15 * (uint32_t)((head + (int)seed) % 6);
    }
    const tess_mask_set set = {.layers = 1,
                               .heads = HEADS,
                               .q_blocks = N,
                               .k_blocks = N,
                               .data = mask,
                               .kind = TESS_MASK_BYTES,
                               .tokens_q = N * 512,
                               .tokens_k = N * 512,
                               .group = 512,
                               .unit = 512};
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_masks(ctx, &set, &work));
    return work;
}

/* Plans on the cluster of round numbers; the chosen candidate of layer 0, whose reason lives until
 * the next call. */
static inline void one_candidate_on(const tess_cluster *cluster, const tess_work *work,
                                    const tess_plan_opts *opts, tess_candidate *c)
{
    static char reason[TESS_REASON_BYTES];
    tess_plan *plan = NULL;
    found f = {0};
    CHECK_OK(tess_plan_create(ctx, work, cluster, opts, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    CHECK_OK(tess_plan_check(plan, work));
    int chosen = 0;
    while (chosen < f.n && !f.c[chosen].chosen)
        chosen++;
    assert_true(chosen < f.n);
    *c = f.c[chosen];
    snprintf(reason, sizeof reason, "%s", c->reason);
    c->reason = reason;
    tess_plan_destroy(plan);
}

static inline void one_candidate(const tess_work *work, const tess_plan_opts *opts,
                                 tess_candidate *c)
{
    one_candidate_on(round_cluster, work, opts, c);
}

/* The round cluster with one number of its description changed. */
static inline tess_cluster *round_with(size_t offset, double value)
{
    tess_cluster_info info;
    tess_cluster *cluster = NULL;
    CHECK_OK(tess_cluster_query(round_cluster, &info));
    memcpy((char *)&info + offset, &value, sizeof value);
    CHECK_OK(tess_cluster_create(ctx, &info, &cluster));
    return cluster;
}

#endif
