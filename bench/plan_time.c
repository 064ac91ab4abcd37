/* SPDX-License-Identifier: Apache-2.0 */
/* plan_time.c - how long partitions take, and how even they are on a density profile.
 *
 *   plan_time                       times on one core: 40 heads, 1184 x 1184 blocks, 8 ranks
 *   plan_time FILE.csv TOKENS       mean and worst imbalance of each method, over steps and layers
 *
 * Times are the best of SAMPLES calls, in microseconds of processor time.
 */
#include "plan/partition/partition.h"
#include "tessera/advanced/explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 40, BLOCKS = 1184, RANKS = 8, MANY = 1024, SAMPLES = 9 };

static tess_ctx *ctx;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "plan_time: %s\n", tess_last_error());
        exit(1);
    }
}

static void *memory(size_t bytes)
{
    void *const p = malloc(bytes);
    if (!p) {
        fprintf(stderr, "plan_time: cannot allocate %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* ---- times ----------------------------------------------------------------------------------- */

typedef struct {
    tess_work *work;
    tess__partition_scratch *space;
    tess_mask_set masks;
    int64_t loads[HEADS];
    int ranks, ring;
    tess_plan_method method;
    tess_share *shares;
    int32_t *q_order, *k_order;
    double time, bound; /* of blocks */
} job;

static void run_loads(job *j)
{
    need(tess_work_set_masks(j->work, &j->masks));
}

static void run_heads(job *j)
{
    int32_t group_of[HEADS];
    tess__heads_split(j->space,
                      &(tess__heads){.heads = HEADS, .groups = j->ranks, .loads = j->loads},
                      j->method, group_of);
}

static void run_fractional(job *j)
{
    tess__fraction_result result;
    tess__fractional(j->space,
                     &(tess__fraction_job){.work = j->work, .ranks = j->ranks, .nodes = 1},
                     j->shares, &result);
}

/* The ring groups of RANKS / ring x ring, one after the other. */
static void run_blocks(job *j)
{
    int32_t group_of[HEADS], heads[HEADS], q_cuts[RANKS + 1], k_cuts[RANKS + 1];
    const int groups = RANKS / j->ring;
    j->time = j->bound = 0.0;
    tess__heads_split(j->space, &(tess__heads){.heads = HEADS, .groups = groups, .loads = j->loads},
                      TESS_PLAN_REFINED, group_of);
    for (int g = 0; g < groups; g++) {
        tess__ring_result result;
        int n = 0;
        for (int32_t h = 0; h < HEADS; h++)
            if (group_of[h] == g)
                heads[n++] = h;
        need(tess__blocks_plan(
            j->space,
            &(tess__ring_job){
                .work = j->work, .heads = heads, .n = n, .ring = j->ring, .reward = 2},
            j->q_order, j->k_order, q_cuts, k_cuts, &result));
        j->time = result.after > j->time ? result.after : j->time;
        j->bound += result.bound / groups;
    }
}

static double measure(void (*run)(job *), job *j)
{
    double best = INFINITY;
    for (int i = 0; i < SAMPLES; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
        run(j);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        best = fmin(best, (double)(end.tv_sec - begin.tv_sec) * 1e6 +
                              (double)(end.tv_nsec - begin.tv_nsec) * 1e-3);
    }
    return best;
}

static void print(const char *what, double us, double bar)
{
    printf("%-52s %9.0f us   bar %6.0f us\n", what, us, bar);
}

/* Masks of a video: near frames, columns that all rows attend to, and some at random. */
static uint8_t *draw_masks(void)
{
    const size_t row = BLOCKS / 8;
    uint8_t *const bits = memory(HEADS * BLOCKS * row);
    uint64_t state = 1;
    memset(bits, 0, HEADS * BLOCKS * row);
    for (int h = 0; h < HEADS; h++)
        for (int q = 0; q < BLOCKS; q++)
            for (int k = 0; k < BLOCKS; k++) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                const int apart = q < k ? k - q : q - k, any = (int)(state >> 40) % 1000;
                if (apart < 8 * (h + 1) || any < 5 * (h % 7) || (k % 97 < h % 11 && any < 500) ||
                    (q < 300 && k > 700 && any < 300))
                    bits[((size_t)h * BLOCKS + (size_t)q) * row + (size_t)k / 8] |=
                        (uint8_t)(1 << k % 8);
            }
    return bits;
}

static void times(void)
{
    uint8_t *const bits = draw_masks();
    job j = {.masks = {.layers = 1,
                       .heads = HEADS,
                       .q_blocks = BLOCKS,
                       .k_blocks = BLOCKS,
                       .data = bits,
                       .kind = TESS_MASK_BITS},
             .ranks = RANKS};
    need(tess_work_from_masks(ctx, &j.masks, &j.work));
    need(tess_work_loads(j.work, 0, j.loads));
    need(tess__partition_scratch_create(
        ctx, &(tess__partition_scratch_shape){HEADS, MANY, BLOCKS, BLOCKS, RANKS}, &j.space));
    j.shares = memory((HEADS + MANY) * sizeof *j.shares);
    j.q_order = memory(BLOCKS * sizeof *j.q_order);
    j.k_order = memory(BLOCKS * sizeof *j.k_order);
    const double loads = measure(run_loads, &j);
    for (j.method = TESS_PLAN_CONTIGUOUS; j.method <= TESS_PLAN_REFINED; j.method++) {
        char what[64];
        snprintf(what, sizeof what, "%s, from %d head weights", tess_plan_method_name(j.method),
                 HEADS);
        print(what, measure(run_heads, &j), 100);
    }
    j.method = TESS_PLAN_REFINED;
    print("refined, from bit masks", loads + measure(run_heads, &j), 2000);
    print("fractional, from bit masks", loads + measure(run_fractional, &j), 2000);
    double all = 0.0;
    for (j.ring = 2; j.ring <= RANKS; j.ring *= 2) {
        char what[64];
        const double us = measure(run_blocks, &j);
        snprintf(what, sizeof what, "blocks, %d rings of %d: imbalance %.4f", RANKS / j.ring,
                 j.ring, j.time / j.bound);
        print(what, us, 20000);
        all += us;
    }
    print("blocks, all of these", all, 20000);
    tess_work_destroy(j.work);
    need(tess_work_from_weights(ctx, j.loads, 1, HEADS, BLOCKS, &j.work));
    print("fractional, from 40 head weights", measure(run_fractional, &j), 100);
    j.ranks = MANY;
    print("fractional, 1024 ranks, from 40 head weights", measure(run_fractional, &j), 5000);
    print("refined, 1024 groups, from 40 head weights", measure(run_heads, &j), 5000);
    tess_work_destroy(j.work);
    tess__partition_scratch_destroy(j.space);
    free(j.shares);
    free(j.q_order);
    free(j.k_order);
    free(bits);
}

/* ---- imbalance on a profile ------------------------------------------------------------------ */

typedef struct {
    double sum, most;
} summary;

static void add(summary *s, double value)
{
    s->sum += value;
    s->most = value > s->most ? value : s->most;
}

/* One step and layer: adds the imbalance of each method, and the copies of fractional heads. */
static void plan_cell(const double *density, int heads, int64_t tokens, int ranks, summary *rho,
                      summary *copies)
{
    tess_work *work = NULL;
    tess__partition_scratch *space = NULL;
    need(tess_work_from_density(ctx, density, 1, heads, tokens, 64, &work));
    need(tess__partition_scratch_create(
        ctx,
        &(tess__partition_scratch_shape){heads, ranks, work->info.q_blocks, work->info.k_blocks, 0},
        &space));
    int32_t *const group_of = memory((size_t)heads * sizeof *group_of);
    int64_t *const loads = memory((size_t)heads * sizeof *loads);
    tess_share *const shares = memory((size_t)(heads + ranks) * sizeof *shares);
    need(tess_work_loads(work, 0, loads));
    const double mean = work->info.total > 0 ? (double)work->info.total / ranks : 1.0;
    const tess__heads in = {.heads = heads, .groups = ranks, .loads = loads};
    for (tess_plan_method m = TESS_PLAN_CONTIGUOUS; m <= TESS_PLAN_REFINED; m++) {
        tess__heads_split(space, &in, m, group_of);
        add(&rho[m], (double)tess__heads_time(space, &in, group_of) / mean);
    }
    tess__fraction_result result;
    tess__fractional(space, &(tess__fraction_job){.work = work, .ranks = ranks, .nodes = 1}, shares,
                     &result);
    add(&rho[TESS_PLAN_FRACTIONAL], (double)result.time / mean);
    add(copies, (double)result.n / heads);
    free(group_of);
    free(loads);
    free(shares);
    tess__partition_scratch_destroy(space);
    tess_work_destroy(work);
}

static void profile_table(const char *path, int64_t tokens)
{
    static const int ranks[] = {4, 7, 8, 16, 24, 64};
    tess_profile *profile = NULL;
    tess_profile_view view;
    need(tess_profile_open(ctx, path, NULL, &profile));
    need(tess_profile_query(profile, &view));
    printf("%5s", "ranks");
    for (tess_plan_method m = TESS_PLAN_CONTIGUOUS; m <= TESS_PLAN_FRACTIONAL; m++)
        printf(" %15s", tess_plan_method_name(m));
    printf(" %8s\n", "copies");
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        summary rho[TESS_PLAN_METHOD_COUNT] = {0}, copies = {0};
        const int cells = view.steps * view.layers;
        for (int cell = 0; cell < cells; cell++)
            plan_cell(view.density + (size_t)cell * (size_t)view.heads, view.heads, tokens,
                      ranks[i], rho, &copies);
        printf("%5d", ranks[i]);
        for (tess_plan_method m = TESS_PLAN_CONTIGUOUS; m <= TESS_PLAN_FRACTIONAL; m++)
            printf("  %6.4f / %6.4f", rho[m].sum / cells, rho[m].most);
        printf("  %6.3f\n", copies.sum / cells);
    }
    tess_profile_close(profile);
}

int main(int argc, char **argv)
{
    if (argc != 1 && argc != 3) {
        fprintf(stderr, "usage: plan_time [FILE.csv TOKENS]\n");
        return 2;
    }
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    if (argc == 1)
        times();
    else
        profile_table(argv[1], atoll(argv[2]));
    tess_ctx_destroy(ctx);
    return 0;
}
