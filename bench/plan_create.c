/* SPDX-License-Identifier: Apache-2.0 */
/* plan_create.c - what tess_plan_create takes for one layer, of masks and of densities.
 *
 *   plan_create
 *
 * 40 heads of 1184 x 1184 blocks of 64 tokens, uneven over heads and rows, on h100; and what
 * tess_mix_plan_create takes for 512 clips of 512 to 75,600 tokens on 64 ranks. One thread, CPU
 * time, the best of SAMPLES.
 */
#include "tessera/advanced/mix.h"
#include "tessera/tessera.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HEADS = 40, BLOCKS = 1184, GROUP = 64, SAMPLES = 7, CLIPS = 512 };

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "plan_create: %s\n", tess_last_error());
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

/* A band, and beside it random blocks, fewer or more by head and by row. */
static tess_work *masked_work(tess_ctx *ctx)
{
    uint8_t *mask = malloc((size_t)HEADS * BLOCKS * BLOCKS);
    uint32_t bits[BLOCKS];
    if (!mask)
        exit(1);
    for (int i = 0; i < HEADS * BLOCKS; i++) {
        const int head = i / BLOCKS, q = i % BLOCKS;
        const uint32_t percent = (uint32_t)((5 + head % 7 * 9) * (q % 5 ? 1 : 2) / 2);
        need(tess_random_bits(3, 0, (uint64_t)i * BLOCKS, bits, BLOCKS));
        for (int k = 0; k < BLOCKS; k++)
            mask[(size_t)i * BLOCKS + (size_t)k] = abs(q - k) < 30 || bits[k] % 100 < percent;
    }
    const tess_mask_set set = {.layers = 1,
                               .heads = HEADS,
                               .q_blocks = BLOCKS,
                               .k_blocks = BLOCKS,
                               .data = mask,
                               .kind = TESS_MASK_BYTES,
                               .tokens_q = BLOCKS * GROUP,
                               .tokens_k = BLOCKS * GROUP,
                               .group = GROUP,
                               .unit = GROUP};
    tess_work *work = NULL;
    need(tess_work_from_masks(ctx, &set, &work));
    free(mask);
    return work;
}

static void run(tess_ctx *ctx, const char *name, const tess_work *work, const tess_cluster *cluster,
                const tess_plan_opts *opts)
{
    int64_t best = INT64_MAX;
    tess_plan_layer layer = {0};
    for (int s = 0; s < SAMPLES; s++) {
        tess_plan *plan = NULL;
        const int64_t start = now();
        need(tess_plan_create(ctx, work, cluster, opts, &plan));
        const int64_t ns = now() - start;
        best = ns < best ? ns : best;
        need(tess_plan_layer_view(plan, 0, &layer));
        tess_plan_destroy(plan);
    }
    printf("%-44s %8.3f ms  %s %d x %d x %d\n", name, (double)best * 1e-6,
           tess_plan_method_name(layer.strategy.method), layer.strategy.ulysses,
           layer.strategy.ring, layer.strategy.selective);
}

/* Many short clips and a few long ones, which are cut. */
static void run_clips(tess_ctx *ctx, const char *name, const tess_cluster *cluster)
{
    static const struct {
        int64_t tokens;
        int clips;
        double density;
    } sizes[] = {
        {512, 300, 1.0}, {2048, 120, 0.5}, {8192, 60, 0.3}, {32760, 25, 0.2}, {75600, 7, 0.15}};
    tess_mix_clip clips[CLIPS];
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    tess_mix_view view = {0}; /* its numbers stay, its arrays do not */
    int64_t best = INT64_MAX;
    int n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < sizes[i].clips; k++)
            clips[n++] = (tess_mix_clip){
                .tokens = sizes[i].tokens, .density = sizes[i].density, .drawn_by = -1};
    opts.ranks = 64;
    for (int s = 0; s < SAMPLES; s++) {
        tess_mix_plan *plan = NULL;
        const int64_t start = now();
        need(tess_mix_plan_create(ctx, clips, n, cluster, &opts, &plan));
        const int64_t ns = now() - start;
        best = ns < best ? ns : best;
        need(tess_mix_plan_query(plan, &view));
        tess_mix_plan_destroy(plan);
    }
    printf("%-44s %8.3f ms  imbalance %.4f, %lld cut\n", name, (double)best * 1e-6, view.rho_max,
           (long long)view.cut_clips);
}

int main(void)
{
    tess_ctx *ctx;
    tess_cluster *cluster;
    tess_work *masks, *densities;
    double density[HEADS];
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    need(tess_cluster_load(ctx, "h100", &cluster));
    masks = masked_work(ctx);
    for (int h = 0; h < HEADS; h++)
        density[h] = 0.05 + h * 37 % 100 / 120.0;
    need(tess_work_from_density(ctx, density, 1, HEADS, BLOCKS * GROUP, GROUP, &densities));
    const tess_plan_opts whole = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 8,
                                  .strategy = {.ulysses = 8, .method = TESS_PLAN_REFINED}};
    run(ctx, "masks, 8 ranks, heads alone", masks, cluster, &whole);
    run(ctx, "masks, 8 ranks, auto", masks, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8});
    run(ctx, "masks, 8 ranks, auto, no cluster", masks, NULL,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8});
    run(ctx, "masks, 16 ranks on 2 nodes, auto", masks, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 16});
    run(ctx, "masks, 32 ranks on 4 nodes, auto", masks, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 32});
    run(ctx, "masks, 128 ranks on 16 nodes, auto", masks, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 128});
    run(ctx, "densities, 8 ranks, heads alone", densities, cluster, &whole);
    run(ctx, "densities, 8 ranks, auto", densities, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8});
    run(ctx, "densities, 1024 ranks, refined, all degrees", densities, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 1024,
                          .strategy.method = TESS_PLAN_REFINED});
    run(ctx, "densities, 1024 ranks, auto", densities, cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 1024});
    run_clips(ctx, "512 clips, 64 ranks, no cluster", NULL);
    run_clips(ctx, "512 clips, 64 ranks on 8 nodes", cluster);
    tess_work_destroy(masks);
    tess_work_destroy(densities);
    tess_cluster_destroy(cluster);
    tess_ctx_destroy(ctx);
    return 0;
}
