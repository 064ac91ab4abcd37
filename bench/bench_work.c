/* SPDX-License-Identifier: Apache-2.0 */
/* bench_work.c - what the planner's sums over masks cost, beside a copy of the mask.
 *
 *   bench_work [heads [blocks [ring]]]        40 1184 8
 *
 * One layer of random bits, one thread, the best of SAMPLES. $TESS_ISA forces an instruction set.
 */
#include "plan/work.h"
#include "tessera/advanced/explain.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 40 };

typedef struct {
    tess_work *work;
    tess_mask_set bits, bytes;
    void *copy;
    size_t size; /* of the bits */
    int32_t *order, *cuts;
    int64_t *sums;
    int ring;
} job;

static tess_status run_copy(job *j)
{
    memcpy(j->copy, j->bits.data, j->size);
    return TESS_OK;
}

static tess_status run_bits(job *j)
{
    return tess_work_set_masks(j->work, &j->bits);
}

static tess_status run_bytes(job *j)
{
    return tess_work_set_masks(j->work, &j->bytes);
}

static tess_status run_tiles(job *j)
{
    return tess__work_tiles(j->work, 0, NULL, j->bits.heads, j->order, j->cuts, j->order, j->cuts,
                            j->ring, j->sums);
}

static tess_status run_columns(job *j)
{
    tess__work_columns(j->work, 0, NULL, j->bits.heads, NULL, 0, j->bits.q_blocks, j->sums);
    return TESS_OK;
}

static tess_status run_heads(job *j)
{
    double rho;
    return tess_work_imbalance(j->work, 0, j->ring, 1, TESS_RHO_RING, &rho);
}

static tess_status run_ring(job *j)
{
    double rho;
    return tess_work_imbalance(j->work, 0, 1, j->ring, TESS_RHO_RING, &rho);
}

static void need(int good)
{
    if (!good) {
        fprintf(stderr, "bench_work: %s\n", tess_last_error());
        exit(1);
    }
}

static void time_it(const char *name, job *j, tess_status (*run)(job *))
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t begin = tess_clock_ns();
        need(run(j) == TESS_OK);
        const int64_t took = tess_clock_ns() - begin;
        best = took < best ? took : best;
    }
    printf("%-36s %9.3f ms\n", name, (double)best * 1e-6);
}

/* Random bits, the same as bytes, a random order and even cuts. */
static void fill(job *j, uint8_t *bits, uint8_t *bytes)
{
    const int32_t n = j->bits.k_blocks;
    const size_t row = ((size_t)n + 7) / 8, rows = j->size / row;
    need(tess_random_bits(1, 0, 0, (uint32_t *)bits, (j->size + 3) / 4) == TESS_OK);
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < (size_t)n; k++)
            bytes[r * (size_t)n + k] = bits[r * row + k / 8] >> (k % 8) & 1;
    for (int32_t i = 0; i < n; i++) {
        uint32_t at;
        need(tess_random_bits(2, 0, (uint64_t)i, &at, 1) == TESS_OK);
        at %= (uint32_t)i + 1;
        j->order[i] = j->order[at];
        j->order[at] = i;
    }
    for (int i = 0; i <= j->ring; i++)
        j->cuts[i] = (int32_t)((int64_t)n * i / j->ring);
}

int main(int argc, char **argv)
{
    const int heads = argc > 1 ? atoi(argv[1]) : 40, n = argc > 2 ? atoi(argv[2]) : 1184;
    const int ring = argc > 3 ? atoi(argv[3]) : 8;
    if (heads < 1 || n < 1 || ring < 1) {
        fprintf(stderr, "bench_work: [heads [blocks [ring]]], 1 or more each\n");
        return 2;
    }
    const size_t blocks = (size_t)n, rows = (size_t)heads * blocks,
                 tiles = (size_t)ring * (size_t)ring;
    job j = {.size = rows * ((blocks + 7) / 8), .ring = ring};
    uint8_t *bits = malloc(j.size + 4), *bytes = malloc(rows * blocks);
    j.copy = malloc(j.size);
    j.order = malloc(blocks * sizeof *j.order);
    j.cuts = malloc(((size_t)ring + 1) * sizeof *j.cuts);
    j.sums = malloc((blocks + tiles) * sizeof *j.sums);
    need(bits && bytes && j.copy && j.order && j.cuts && j.sums);
    j.bits = (tess_mask_set){.layers = 1,
                             .heads = heads,
                             .q_blocks = n,
                             .k_blocks = n,
                             .data = bits,
                             .kind = TESS_MASK_BITS};
    j.bytes = j.bits;
    j.bytes.data = bytes;
    j.bytes.kind = TESS_MASK_BYTES;
    fill(&j, bits, bytes);
    tess_ctx *ctx = NULL;
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) == TESS_OK);
    need(tess_work_from_masks(ctx, &j.bits, &j.work) == TESS_OK);
    time_it("copy of the bits", &j, run_copy);
    time_it("masks from bits", &j, run_bits);
    time_it("masks from bytes", &j, run_bytes);
    time_it("tiles of permuted blocks", &j, run_tiles);
    time_it("loads of key blocks", &j, run_columns);
    time_it("imbalance of head runs", &j, run_heads);
    time_it("imbalance of a ring", &j, run_ring);
    tess_work_destroy(j.work);
    tess_ctx_destroy(ctx);
    free(bits);
    free(bytes);
    free(j.copy);
    free(j.order);
    free(j.cuts);
    free(j.sums);
    return 0;
}
