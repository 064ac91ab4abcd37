/* SPDX-License-Identifier: Apache-2.0 */
/* measure.c - the peaks of this machine: FMAs, products in bf16, memory read and copy bandwidth.
 *
 * Each is measured on one thread and on all of the context's, and is the best quiet sample of
 * timing.c. The memory is cut evenly over the threads that will use it, and each touches its own
 * part first, so that it lies on that thread's NUMA node. It is larger than every cache four times
 * over, but takes at most a quarter of what is available. A call goes over a window of it, at least
 * 128 MiB where there are several, and the next call over the next one: whatever a cache held of a
 * window has left it before the window is used again, and the measurement stays short also with a
 * cache of 260 MiB.
 */
#include "base_internal.h"
#include "kernels/bf16/bf16.h"

#include <omp.h>
#include <string.h>

typedef struct {
    const tess_ctx *ctx;
    int threads;
    tess__rate_fn multiply; /* what run_rate measures */
    int64_t rounds;         /* of it, per thread */
    float *memory;
    size_t floats;  /* of memory; a multiple of 2 * 16 * threads * windows */
    size_t windows; /* of each thread's part */
    size_t calls;   /* so far */
    float sink;     /* keeps the sums alive */
    double work;    /* flop or bytes of one call */
} job;

static tess_status run_rate(void *user)
{
    job *j = user;
    double flop = 0.0;
#pragma omp parallel num_threads(j->threads) reduction(+ : flop)
    {
        float sink = 0.0f;
        flop += (double)j->multiply(j->rounds, &sink);
    }
    j->work = flop;
    return TESS_OK;
}

/* The window of the calling thread for this call. */
static float *window_of(const job *j)
{
    const size_t part = j->floats / (size_t)j->threads;
    return j->memory + part * (size_t)omp_get_thread_num() +
           part / j->windows * (j->calls % j->windows);
}

/* Window by window: the first touch of a gigabyte takes a second, and may be stopped. */
static tess_status touch(job *j)
{
    const size_t window = j->floats / (size_t)j->threads / j->windows;
    for (size_t i = 0; i < j->windows; i++, j->calls++) {
        TESS_TRY(tess__progress(j->ctx, "measuring memory", (int64_t)i, (int64_t)j->windows));
#pragma omp parallel num_threads(j->threads)
        memset(window_of(j), 1, window * sizeof(float));
    }
    return TESS_OK;
}

static tess_status run_read(void *user)
{
    job *j = user;
    const size_t window = j->floats / (size_t)j->threads / j->windows;
    float sum = 0.0f;
#pragma omp parallel num_threads(j->threads) reduction(+ : sum)
    sum += j->ctx->kernels->read(window_of(j), window);
    j->calls++;
    j->sink += sum;
    j->work = (double)(window * (size_t)j->threads * sizeof(float));
    return TESS_OK;
}

static tess_status run_copy(void *user)
{
    job *j = user;
    const size_t half = j->floats / (size_t)j->threads / j->windows / 2;
#pragma omp parallel num_threads(j->threads)
    {
        float *mine = window_of(j);
        memcpy(mine + half, mine, half * sizeof(float));
    }
    j->calls++;
    j->work = (double)(half * (size_t)j->threads * sizeof(float));
    return TESS_OK;
}

/* Adds the samples to the counts and writes the best rate. */
static tess_status rate(tess_ctx *ctx, job *j, const char *what, tess_timed_fn fn,
                        tess_speed *speed, double *result)
{
    const tess_timing_opts opts = {.samples = 5, .samples_max = 15, .quiet = 0.93};
    tess_timing timing;
    TESS_TRY(tess__timing_run(ctx, what, j->threads, &opts, fn, j, &timing));
    speed->kept += timing.kept;
    speed->dropped += timing.dropped;
    *result = j->work / timing.best;
    return TESS_OK;
}

static void size_memory(const tess_machine *machine, job *j)
{
    const int64_t window = (int64_t)128 << 20;
    const int64_t largest =
        machine->cache_l3 > machine->cache_l2 ? machine->cache_l3 : machine->cache_l2;
    int64_t bytes = 4 * largest * machine->sockets;
    bytes = bytes < window ? window : bytes;
    if (machine->memory_available > 0 && bytes > machine->memory_available / 4)
        bytes = machine->memory_available / 4;
    j->windows = bytes > window ? (size_t)(bytes / window) : 1;
    const size_t unit = 2 * 16 * (size_t)j->threads * j->windows;
    j->floats = ((size_t)bytes / sizeof(float) + unit - 1) / unit * unit;
}

/* Products in bf16 of every instruction set that this machine has, by the same threads. */
static tess_status measure_bf16(tess_ctx *ctx, job *j, int all, tess_speed *found)
{
    enum { MOST = sizeof found->bf16 / sizeof *found->bf16 };
    found->n_bf16 = 0;
    for (int i = 0; i < tess__isa_total && found->n_bf16 < MOST; i++) {
        const tess__isa *isa = &tess__isas[i];
        if (!isa->products || isa->test_only || *tess__isa_missing(i))
            continue;
        const int at = found->n_bf16++;
        j->multiply = isa->products->rate;
        j->rounds = 20000;
        found->bf16[at].isa = isa->name;
        TESS_TRY(rate(ctx, j, "measuring the rate of bf16", run_rate, found,
                      all ? &found->bf16[at].all : &found->bf16[at].one));
    }
    return TESS_OK;
}

tess_status tess_machine_measure(tess_ctx *ctx, tess_speed *speed)
{
    TESS_REQUIRE(ctx, speed);
    tess_machine machine;
    TESS_TRY(tess_machine_query(ctx, &machine));
    tess_speed found = {0};
    tess_status status = TESS_OK;
    for (int all = 0; all < 2 && status == TESS_OK; all++) {
        job j = {.ctx = ctx,
                 .threads = all ? ctx->threads : 1,
                 .multiply = ctx->kernels->fma,
                 .rounds = 1000000};
        size_memory(&machine, &j);
        j.memory = TESS_ALLOC(ctx, j.floats * sizeof(float));
        status = touch(&j);
        const struct {
            const char *what;
            tess_timed_fn run;
            double *result;
        } peaks[] = {
            {"measuring the FMA rate", run_rate, all ? &found.flops_all : &found.flops_one},
            {"measuring memory reads", run_read, all ? &found.read_all : &found.read_one},
            {"measuring memory copies", run_copy, all ? &found.copy_all : &found.copy_one},
        };
        for (int i = 0; i < 3 && status == TESS_OK; i++)
            status = rate(ctx, &j, peaks[i].what, peaks[i].run, &found, peaks[i].result);
        tess__free(ctx, j.memory);
        if (status == TESS_OK)
            status = measure_bf16(ctx, &j, all, &found);
    }
    TESS_TRY(status);
    *speed = found;
    return TESS_OK;
}
