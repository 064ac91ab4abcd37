/* SPDX-License-Identifier: Apache-2.0 */
/* products.c - which instruction set multiplies in bf16, by measured rates.
 *
 * Flags do not say it: some processors multiply bf16 at half the rate of their fp32 FMAs, others at
 * twice or fifteen times it. The sets that are offered differ by such factors, so that a probe of
 * a millisecond finds the same one in every run; it stays the context's choice.
 */
#include "base_internal.h"
#include "kernels/bf16/bf16.h"

#include <string.h>

enum { NOT_MEASURED = -1, NONE = -2 };

double tess__rate_measure(tess__rate_fn rate)
{
    enum { PROBES = 5, PROBE_NS = 200000 };
    float sink = 0.0f;
    double best = 0.0;
    int64_t rounds = 256;
    for (int i = 0; i < PROBES;) {
        const int64_t start = tess_clock_ns();
        const int64_t flop = rate(rounds, &sink);
        const int64_t ns = tess_clock_ns() - start;
        if (ns < PROBE_NS && rounds < (int64_t)1 << 40) {
            rounds *= 2;
            continue;
        }
        best = TESS_MAX(best, (double)flop / (double)(ns > 0 ? ns : 1) * 1e9);
        i++;
    }
    return best;
}

/* The kernels of the context's set in this library's table: two libraries of a process have one
 * each, and ctx->kernels may point into the other one. */
static const tess__kernels *kernels_of(const tess_ctx *ctx)
{
    for (int i = 0; i < tess__isa_total; i++)
        if (strcmp(tess__isas[i].name, ctx->isa) == 0)
            return tess__isas[i].kernels;
    return NULL;
}

/* Sets that a context may use: its own, or where none was given those of the same other kernels. */
static int is_candidate(const tess_ctx *ctx, int i)
{
    const tess__isa *isa = &tess__isas[i];
    if (!isa->products || *tess__isa_missing(i))
        return 0;
    return ctx->isa_given ? strcmp(isa->name, ctx->isa) == 0
                          : !isa->test_only && isa->kernels == kernels_of(ctx);
}

/* The fastest candidate, and its rate and that of fp32; one that was given is not measured. Where
 * fp32 seems faster the best of several rounds counts: on a busy machine a probe may be disturbed,
 * and what a run computes with must not depend on that. */
static int choose(const tess_ctx *ctx, double *rate, double *fma)
{
    enum { ROUNDS = 8 };
    int best = NONE;
    *rate = *fma = 0.0;
    for (int round = 0; round < ROUNDS && *rate <= *fma; round++) {
        if (!ctx->isa_given)
            *fma = TESS_MAX(*fma, tess__rate_measure(ctx->kernels->fma));
        for (int i = 0; i < tess__isa_total; i++) {
            if (!is_candidate(ctx, i))
                continue;
            const double measured =
                ctx->isa_given ? 1.0 : tess__rate_measure(tess__isas[i].products->rate);
            if (measured > *rate) {
                *rate = measured;
                best = i;
            }
        }
        if (best == NONE)
            break;
    }
    return *rate > *fma ? best : NONE;
}

static int find(tess_ctx *ctx)
{
    int of = atomic_load(&ctx->products_of);
    if (of == NOT_MEASURED) {
        double rate, fma;
        of = choose(ctx, &rate, &fma);
        atomic_store(&ctx->products_of, of);
    }
    return of;
}

const tess__products *tess__products_of(tess_ctx *ctx, const char **isa)
{
    const int of = find(ctx);
    if (isa)
        *isa = of >= 0 ? tess__isas[of].name : ctx->isa;
    return of >= 0 ? tess__isas[of].products : NULL;
}

tess__rate_fn tess__rate_of(tess_ctx *ctx, tess_precision precision)
{
    const tess__products *products =
        precision == TESS_PRECISION_BF16 ? tess__products_of(ctx, NULL) : NULL;
    return products ? products->rate : ctx->kernels->fma;
}

static void explain(const tess_ctx *ctx, char *why, size_t size)
{
    int slow = -1;
    for (int i = 0; i < tess__isa_total; i++)
        if (is_candidate(ctx, i))
            slow = i;
    if (ctx->isa_given)
        snprintf(why, size, "%s was asked for, which has no products in bf16", ctx->isa);
    else if (slow >= 0)
        snprintf(why, size, "%s multiplies bf16 more slowly than %s multiplies fp32",
                 tess__isas[slow].name, ctx->isa);
    else
        snprintf(why, size, "this machine has no instructions for products in bf16");
}

tess_status tess_bf16_query(tess_ctx *ctx, tess_bf16_use *use)
{
    TESS_REQUIRE(ctx, use);
    tess_bf16_use found = {.precision = TESS_PRECISION_FP32};
    if (tess__products_of(ctx, &found.isa))
        found.precision = TESS_PRECISION_BF16;
    else
        explain(ctx, found.why, sizeof found.why);
    *use = found;
    return TESS_OK;
}
