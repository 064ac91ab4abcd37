/* SPDX-License-Identifier: Apache-2.0 */
/* partition_data.h - what the tests of partitions share: random numbers and loads, published
 * profiles.
 */
#ifndef TESS_PARTITION_DATA_H
#define TESS_PARTITION_DATA_H

#include "test.h"

#include "plan/partition/partition.h"

#include <inttypes.h>
#include <stdlib.h>

/* splitmix64: the same numbers everywhere. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0..n-1 */
static inline int64_t below(uint64_t *state, int64_t n)
{
    return (int64_t)(next_random(state) % (uint64_t)n);
}

/* Loads of several characters: small and equal ones, wide ones, few heavy ones, zeros. */
static inline void random_loads(uint64_t *state, int64_t *loads, int n)
{
    const int64_t kind = below(state, 4);
    for (int i = 0; i < n; i++) {
        loads[i] = kind == 0   ? below(state, 5)
                   : kind == 1 ? below(state, 1000000007)
                   : kind == 2
                       ? (below(state, 5) == 0 ? 1 + below(state, 1000000) : below(state, 100))
                       : below(state, 100) + 1;
    }
}

/* Fills group_of by a method. */
static inline void split(tess__partition_scratch *space, const tess__heads *heads,
                         tess_plan_method method, int32_t *group_of)
{
    for (int h = 0; h < heads->heads; h++)
        group_of[h] = -1;
    tess__heads_split(space, heads, method, group_of);
}

/* A space for up to these. */
static inline tess__partition_scratch *new_space(tess_ctx *ctx, int heads, int ranks,
                                                 int32_t blocks, int ring)
{
    tess__partition_scratch *space = NULL;
    CHECK_OK(tess__partition_scratch_create(
        ctx, &(tess__partition_scratch_shape){heads, ranks, blocks, blocks, ring}, &space));
    return space;
}

/* A published profile: densities (steps, layers, heads) of step,layer,head,density. Its folder is
 * named by the environment variable TESS_REFERENCE; the test is skipped without. */
typedef struct {
    int cells, heads;
    double *density; /* (cells, heads) */
} profile;

static inline profile read_profile(const char *name)
{
    const char *folder = getenv("TESS_REFERENCE");
    if (!folder) {
        print_message("skipped: TESS_REFERENCE names no folder with sparsity/%s\n", name);
        skip();
    }
    char path[4096], line[256];
    snprintf(path, sizeof path, "%s/sparsity/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    profile p = {0};
    int step, layer, head, rows = 0, cell[2] = {-1, -1};
    double density;
    assert_non_null(fgets(line, sizeof line, file));
    p.density = malloc(200000 * sizeof *p.density);
    assert_non_null(p.density);
    while (fscanf(file, "%d,%d,%d,%lf", &step, &layer, &head, &density) == 4 && rows < 200000) {
        p.cells += step != cell[0] || layer != cell[1];
        cell[0] = step;
        cell[1] = layer;
        p.density[rows++] = density;
        p.heads = head + 1 > p.heads ? head + 1 : p.heads;
    }
    fclose(file);
    assert_int_equal(rows, p.cells * p.heads);
    return p;
}

/* ---- what a file of tests has, made by its set_up
 * ------------------------------------------------ */

static tess_ctx *ctx;
static tess__partition_scratch *space;

static inline int tear_down(void **state)
{
    (void)state;
    tess__partition_scratch_destroy(space);
    tess_ctx_destroy(ctx);
    return 0;
}

static inline tess_work *mask_work(const uint8_t *mask, int heads, int32_t q_blocks,
                                   int32_t k_blocks)
{
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_masks(ctx,
                                  &(tess_mask_set){.layers = 1,
                                                   .heads = heads,
                                                   .q_blocks = q_blocks,
                                                   .k_blocks = k_blocks,
                                                   .data = mask,
                                                   .kind = TESS_MASK_BYTES},
                                  &work));
    return work;
}

#endif
