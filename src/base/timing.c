/* SPDX-License-Identifier: Apache-2.0 */
/* timing.c - how long a call takes on a machine that others disturb.
 *
 *   probe, sample, probe, sample, ..., probe
 *
 * A probe runs the FMA kernel, or products in bf16, for about half a millisecond on every thread
 * and adds up their rates.
 * A sample is quiet if the probes on both its sides reach `quiet` of the best probe of the run, and
 * if the process was not preempted meanwhile: a probe is shorter than a time slice, so the count
 * of involuntary switches shows what happens inside a long sample. The others are dropped and
 * more are taken, up to samples_max. The judgement is made after each sample over all of them,
 * since a better probe may come. The first call warms up and does not count, unless it takes so
 * long that its beginning does not matter.
 */
#include "base_internal.h"

#include <sys/resource.h>
#include <time.h>

enum { SAMPLES = 7, SAMPLES_LIMIT = 10000, PROBE_NS = 500000 };
static const double warm_seconds = 5.0;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tess_clock_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t tess__cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static double seconds_since(int64_t start)
{
    const int64_t ns = tess_clock_ns() - start;
    return (double)(ns > 0 ? ns : 1) * 1e-9;
}

/* Rounds of the FMA kernel that take about PROBE_NS: doubled until the clock can see them. */
static int64_t calibrate(tess__rate_fn rate)
{
    float sink = 0.0f;
    for (int64_t rounds = 1024;; rounds *= 2) {
        const int64_t start = tess_clock_ns();
        rate(rounds, &sink);
        const int64_t ns = tess_clock_ns() - start;
        if (ns >= PROBE_NS / 4 || rounds >= (int64_t)1 << 40)
            return ns > 0 ? rounds * PROBE_NS / ns + 1 : rounds;
    }
}

/* FLOP/s of all threads together. */
static double probe(tess__rate_fn fma, int threads, int64_t rounds)
{
    double rate = 0.0;
#pragma omp parallel num_threads(threads) reduction(+ : rate)
    {
        float sink = 0.0f;
        const int64_t start = tess_clock_ns();
        const int64_t flop = fma(rounds, &sink);
        rate += (double)flop / seconds_since(start);
    }
    return rate;
}

static long switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* The kernel's own work switches a thread out now and then; a competitor does it hundreds of times
 * a second. */
static int pushed_aside(long count, double seconds, int threads)
{
    return (double)count > 2.0 + 20.0 * seconds * threads;
}

/* What is known of each sample; sample i lies between probes i and i + 1. */
typedef struct {
    double *times, *probes, *kept; /* kept: the times of the quiet ones */
    unsigned char *aside;
} record;

/* Gathers the quiet samples of n; returns how many. */
static int keep_quiet(const record *r, int n, double least)
{
    int quiet = 0;
    for (int i = 0; i < n; i++)
        if (r->probes[i] >= least && r->probes[i + 1] >= least && !r->aside[i])
            r->kept[quiet++] = r->times[i];
    return quiet;
}

static void summarise(double *times, int n, tess_timing *timing)
{
    timing->median = tess__median(times, (size_t)n);
    timing->best = times[0];
    timing->low = times[n / 4];
    timing->high = times[(3 * n) / 4];
}

tess_status tess__timing_run(tess_ctx *ctx, const char *what, int threads,
                             const tess_timing_opts *opts, tess_timed_fn fn, void *user,
                             tess_timing *timing)
{
    const int wanted = opts->samples, most = opts->samples_max;
    record r = {.times = TESS_ALLOC(ctx, (size_t)(3 * most + 1) * sizeof *r.times + (size_t)most)};
    r.probes = r.times + most;
    r.kept = r.probes + most + 1;
    r.aside = (unsigned char *)(r.kept + most);

    tess_status status = TESS_OK;
    const tess__rate_fn rate = tess__rate_of(ctx, opts->probe);
    const int64_t rounds = calibrate(rate);
    probe(rate, threads, rounds); /* wakes the threads */
    double best = r.probes[0] = probe(rate, threads, rounds);
    int n = 0, quiet = 0, warm = 0;
    while (status == TESS_OK && n < most && quiet < wanted) {
        const long before = switches();
        const int64_t start = tess_clock_ns();
        status = fn(user);
        r.times[n] = seconds_since(start);
        if (!warm && r.times[n] < warm_seconds) {
            warm = 1;
            r.probes[0] = probe(rate, threads, rounds);
            best = TESS_MAX(r.probes[0], best);
            continue;
        }
        warm = 1;
        r.aside[n] = (unsigned char)pushed_aside(switches() - before, r.times[n], threads);
        r.probes[++n] = probe(rate, threads, rounds);
        best = TESS_MAX(r.probes[n], best);
        quiet = keep_quiet(&r, n, opts->quiet * best);
        if (status == TESS_OK)
            status = tess__progress(ctx, what, quiet, wanted);
    }
    if (status == TESS_OK) {
        *timing = (tess_timing){
            .kept = quiet, .dropped = n - quiet, .disturbed = quiet < wanted, .flops = best};
        summarise(quiet ? r.kept : r.times, quiet ? quiet : n, timing);
    }
    tess__free(ctx, r.times);
    return status;
}

tess_status tess_timing_run(tess_ctx *ctx, const tess_timing_opts *opts, tess_timed_fn fn,
                            void *user, tess_timing *timing)
{
    TESS_REQUIRE(ctx, fn, timing);
    tess_timing_opts o = opts ? *opts : (tess_timing_opts){0};
    if (o.samples < 0 || o.samples > SAMPLES_LIMIT)
        return tess__invalid(__func__, "samples is %d, must be 1..%d, or 0 for %d", o.samples,
                             SAMPLES_LIMIT, SAMPLES);
    o.samples = o.samples ? o.samples : SAMPLES;
    o.samples_max = o.samples_max ? o.samples_max : 4 * o.samples;
    TESS_TRY(
        tess__check_range(__func__, "samples_max", o.samples_max, o.samples, 4 * SAMPLES_LIMIT));
    TESS_TRY(tess__check_number(__func__, "quiet", o.quiet, 0, 1));
    TESS_TRY(tess__check_enum(__func__, "probe", (int)o.probe, 2, "tess_precision"));
    o.quiet = o.quiet > 0.0 ? o.quiet : 0.93;
    return tess__timing_run(ctx, "timing", ctx->threads, &o, fn, user, timing);
}
