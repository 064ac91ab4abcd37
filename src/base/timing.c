/* SPDX-License-Identifier: Apache-2.0 */
/* timing.c - how long a call takes on a machine that others disturb.
 *
 *   probe, sample, probe, sample, ..., probe
 *
 * A probe runs the FMA kernel for about half a millisecond on every thread and adds up their rates.
 * A sample is quiet if the probes on both its sides reach `quiet` of the best probe of the run; the
 * others are dropped and more are taken, up to samples_max. The judgement is made at the end, when
 * the best probe is known, and after each sample to see whether enough are quiet.
 */
#include "base.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 7, SAMPLES_LIMIT = 10000, PROBE_NS = 500000 };

int64_t tess_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double seconds_since(int64_t start)
{
    const int64_t ns = tess_clock_ns() - start;
    return (double)(ns > 0 ? ns : 1) * 1e-9;
}

/* Rounds of the FMA kernel that take about PROBE_NS: doubled until the clock can see them. */
static int64_t calibrate(const tess_ctx *ctx)
{
    float sink = 0.0f;
    for (int64_t rounds = 1024;; rounds *= 2) {
        const int64_t start = tess_clock_ns();
        ctx->kernels->fma(rounds, &sink);
        const int64_t ns = tess_clock_ns() - start;
        if (ns >= PROBE_NS / 4 || rounds >= (int64_t)1 << 40)
            return ns > 0 ? rounds * PROBE_NS / ns + 1 : rounds;
    }
}

/* FLOP/s of all threads together. */
static double probe(const tess_ctx *ctx, int threads, int64_t rounds)
{
    double rate = 0.0;
#pragma omp parallel num_threads(threads) reduction(+ : rate)
    {
        float sink = 0.0f;
        const int64_t start = tess_clock_ns();
        const int64_t flop = ctx->kernels->fma(rounds, &sink);
        rate += (double)flop / seconds_since(start);
    }
    return rate;
}

/* Copies the times whose probes before and after reach `least` to kept; returns how many. */
static int keep_quiet(const double *times, const double *probes, int n, double least, double *kept)
{
    int quiet = 0;
    for (int i = 0; i < n; i++)
        if (probes[i] >= least && probes[i + 1] >= least)
            kept[quiet++] = times[i];
    return quiet;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *times, int n, tess_timing *timing)
{
    qsort(times, (size_t)n, sizeof *times, by_size);
    timing->best = times[0];
    timing->low = times[n / 4];
    timing->median = n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
    timing->high = times[(3 * n) / 4];
}

tess_status tess__timing_run(tess_ctx *ctx, int threads, const tess_timing_opts *opts,
                             tess_timed_fn fn, void *user, tess_timing *timing)
{
    const int wanted = opts->samples, most = opts->samples_max;
    double *times = tess__alloc(ctx, (size_t)(3 * most + 1) * sizeof *times);
    if (!times)
        return TESS_ENOMEM;
    double *probes = times + most, *kept = probes + most + 1;

    tess_status status = fn(user);
    const int64_t rounds = calibrate(ctx);
    probe(ctx, threads, rounds); /* wakes the threads */
    double best = probes[0] = probe(ctx, threads, rounds);
    int n = 0, quiet = 0;
    while (status == TESS_OK && n < most && quiet < wanted) {
        const int64_t start = tess_clock_ns();
        status = fn(user);
        times[n] = seconds_since(start);
        probes[++n] = probe(ctx, threads, rounds);
        best = probes[n] > best ? probes[n] : best;
        quiet = keep_quiet(times, probes, n, opts->quiet * best, kept);
        if (status == TESS_OK)
            status = tess__progress(ctx, "timing", quiet, wanted);
    }
    if (status == TESS_OK) {
        *timing = (tess_timing){
            .kept = quiet, .dropped = n - quiet, .disturbed = quiet < wanted, .flops = best};
        summarise(quiet ? kept : times, quiet ? quiet : n, timing);
    }
    tess__free(ctx, times);
    return status;
}

tess_status tess_timing_run(tess_ctx *ctx, const tess_timing_opts *opts, tess_timed_fn fn,
                            void *user, tess_timing *timing)
{
    if (!ctx || !fn || !timing)
        return tess__fail(TESS_EINVAL, "tess_timing_run: %s is NULL",
                          !ctx  ? "ctx"
                          : !fn ? "fn"
                                : "timing");
    tess_timing_opts o = opts ? *opts : (tess_timing_opts){0};
    if (o.samples < 0 || o.samples > SAMPLES_LIMIT)
        return tess__fail(TESS_EINVAL, "tess_timing_run: samples is %d, must be 1..%d, or 0 for %d",
                          o.samples, SAMPLES_LIMIT, SAMPLES);
    o.samples = o.samples ? o.samples : SAMPLES;
    o.samples_max = o.samples_max ? o.samples_max : 4 * o.samples;
    if (o.samples_max < o.samples || o.samples_max > 4 * SAMPLES_LIMIT)
        return tess__fail(TESS_EINVAL, "tess_timing_run: samples_max is %d, must be %d..%d",
                          o.samples_max, o.samples, 4 * SAMPLES_LIMIT);
    if (!(o.quiet >= 0.0 && o.quiet <= 1.0))
        return tess__fail(TESS_EINVAL, "tess_timing_run: quiet is %g, must be 0..1", o.quiet);
    o.quiet = o.quiet > 0.0 ? o.quiet : 0.93;
    return tess__timing_run(ctx, ctx->threads, &o, fn, user, timing);
}
