/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the options of a run: defaults, rules, and the learning-rate schedule.
 *
 *   lr (step + 1) / warmup                 up to there; then constant;
 *   lr (steps - step) / (steps - from)     from step `from` = decay_from * steps on
 */
#include "train_internal.h"

#include "options/option_check.h"

#include <string.h>

tess_status tess__exact_options(const char *who, const tess_attention_opts *o)
{
    if (o->group != TESS_GROUP_CUBE)
        return tess__invalid(who, "attention.group must be cube with exact_ranks: ranks that share "
                                  "a head group the queries that they have");
    if (o->compensate > 1)
        return tess__invalid(who,
                             "attention.compensate is %d, must be 0 or 1 with exact_ranks: "
                             "clusters are sums over ranks",
                             o->compensate);
    return TESS_OK;
}

tess_status tess__exact_precision(const char *who, tess_precision precision)
{
    return precision == TESS_PRECISION_FP32
               ? TESS_OK
               : tess__invalid(who, "precision must be fp32 with exact_ranks: products in bf16 "
                                    "depend on which rows of a head a rank has");
}

/* What a run that learns and decides needs besides. */
static tess_status check_exact(const char *who, const tess_attention_opts *o)
{
    TESS_TRY(tess__exact_options(who, o));
    if (o->kind != TESS_ATTENTION_DENSE && !o->dispatch)
        return tess__invalid(who, "attention.dispatch is auto, must be sparse or a file with "
                                  "exact_ranks: measured times differ from run to run");
    if (o->error > 0.0)
        return tess__invalid(who, "attention.error is %g, must be 0 with exact_ranks", o->error);
    return TESS_OK;
}

tess_status tess__train_options(const char *who, const tess_train_opts *given,
                                tess_train_opts *opts)
{
    *opts = given ? *given : (tess_train_opts)TESS_TRAIN_OPTS_INIT;
    TESS_TRY(tess__options_check(who, TESS_OPTIONS_TRAIN, opts));
    TESS_TRY(tess__attention_options(who, &opts->attention));
    if (!opts->exact_ranks)
        return TESS_OK;
    TESS_TRY(tess__exact_precision(who, opts->precision));
    return check_exact(who, &opts->attention);
}

uint64_t tess__train_options_hash(const tess_train_opts *opts)
{
    uint64_t h = tess__options_hash(0, TESS_OPTIONS_TRAIN, opts);
    h = tess__options_hash(h, TESS_OPTIONS_ATTENTION, &opts->attention);
    h = tess__hash(h, &opts->seed, sizeof opts->seed);
    return opts->settings ? tess__hash(h, opts->settings, strlen(opts->settings)) : h;
}

double tess_train_schedule(const tess_train_opts *opts, int64_t step)
{
    const double rise =
        opts->warmup > 0 && step < opts->warmup ? (double)(step + 1) / (double)opts->warmup : 1.0;
    const double end = (double)opts->steps, from = opts->decay_from * end, at = (double)step;
    const double fall = at > from ? (end - at) / (end - from) : 1.0;
    return rise * fall;
}
