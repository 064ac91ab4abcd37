/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the options of a run: defaults, rules, and the schedule of the rates.
 *
 *   rate (step + 1) / warmup     up to there; then constant;
 *   rate (steps - step) / (steps - from)     from step `from` = decay_from * steps on
 */
#include "train_internal.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
    double otherwise, min, max; /* min..max, without max itself where it is open */
    int open, none;             /* none: a value below 0 is allowed, and is kept */
} reals[] = {
    {"decay_from", offsetof(tess_train_opts, decay_from), 0.5, 0, 1, 0, 1},
    {"lr", offsetof(tess_train_opts, lr), 3e-3, 0, 1e3, 0, 0},
    {"lr_muon", offsetof(tess_train_opts, lr_muon), 0.02, 0, 1e3, 0, 0},
    {"beta1", offsetof(tess_train_opts, beta1), 0.9, 0, 1, 1, 0},
    {"beta2", offsetof(tess_train_opts, beta2), 0.99, 0, 1, 1, 0},
    {"momentum", offsetof(tess_train_opts, momentum), 0.95, 0, 1, 1, 0},
    {"weight_decay", offsetof(tess_train_opts, weight_decay), 0, 0, 1e3, 0, 0},
    {"clip", offsetof(tess_train_opts, clip), 1, 0, 1e30, 0, 1},
    {"ema", offsetof(tess_train_opts, ema), 0.995, 0, 1, 1, 1},
    {"shift", offsetof(tess_train_opts, shift), 2, 1e-3, 1e3, 0, 0},
    {"prompt_dropout", offsetof(tess_train_opts, prompt_dropout), 0.12, 0, 1, 0, 1},
    {"guidance", offsetof(tess_train_opts, guidance), 2, -1e3, 1e3, 0, 0},
};

static const struct {
    const char *name;
    size_t offset;
    int64_t otherwise, max; /* 1..max */
    int wide, none;         /* wide: an int64_t */
} wholes[] = {
    {"batch", offsetof(tess_train_opts, batch), 4, 65536, 0, 0},
    {"accumulate", offsetof(tess_train_opts, accumulate), 1, 65536, 0, 0},
    {"steps", offsetof(tess_train_opts, steps), 1500, 1000000000, 1, 0},
    {"warmup", offsetof(tess_train_opts, warmup), 50, 1000000000, 1, 1},
    {"validate_every", offsetof(tess_train_opts, validate_every), 250, 1000000000, 1, 1},
    {"validate_clips", offsetof(tess_train_opts, validate_clips), 16, 1000000, 0, 0},
    {"checkpoint_every", offsetof(tess_train_opts, checkpoint_every), 500, 1000000000, 1, 1},
    {"checkpoints_kept", offsetof(tess_train_opts, checkpoints_kept), 3, 1000000, 0, 1},
    {"sample_every", offsetof(tess_train_opts, sample_every), -1, 1000000000, 1, 1},
    {"sample_steps", offsetof(tess_train_opts, sample_steps), 25, 10000, 0, 0},
};

static tess_status fill_reals(const char *who, tess_train_opts *opts)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *value = (double *)((char *)opts + reals[i].offset);
        if (*value == 0.0)
            *value = reals[i].otherwise;
        const double v = *value;
        const int above = reals[i].open ? v >= reals[i].max : v > reals[i].max;
        if (isnan(v) || above || (v < reals[i].min && !(reals[i].none && v < 0)))
            return tess__fail(TESS_EINVAL, "%s: %s is %g, must be %g..%g%s", who, reals[i].name, v,
                              reals[i].min, reals[i].max,
                              reals[i].open   ? ", the end not included"
                              : reals[i].none ? ", or below 0 for none"
                                              : "");
    }
    return TESS_OK;
}

static tess_status fill_wholes(const char *who, tess_train_opts *opts)
{
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        char *place = (char *)opts + wholes[i].offset;
        int64_t v = wholes[i].wide ? *(int64_t *)place : *(int *)place;
        if (v == 0)
            v = wholes[i].otherwise;
        if (v > wholes[i].max || (v < 1 && !wholes[i].none))
            return tess__fail(TESS_EINVAL, "%s: %s is %lld, must be 1..%lld%s", who, wholes[i].name,
                              (long long)v, (long long)wholes[i].max,
                              wholes[i].none ? ", or below 0 for none" : "");
        if (wholes[i].wide)
            *(int64_t *)place = v;
        else
            *(int *)place = (int)v;
    }
    return TESS_OK;
}

tess_status tess__train_options(const char *who, const tess_train_opts *given,
                                tess_train_opts *opts)
{
    *opts = given ? *given : (tess_train_opts){0};
    TESS_TRY(fill_reals(who, opts));
    TESS_TRY(fill_wholes(who, opts));
    if (opts->optim != TESS_OPTIM_MUON && opts->optim != TESS_OPTIM_ADAMW)
        return tess__fail(TESS_EINVAL, "%s: optim is %d, must be a tess_optim", who,
                          (int)opts->optim);
    return tess__attention_options(who, &opts->attention);
}

uint64_t tess__train_options_hash(const tess_train_opts *opts)
{
    const int64_t others[] = {(int64_t)opts->seed, opts->optim,        opts->keep,
                              opts->store,         opts->cube[0],      opts->cube[1],
                              opts->cube[2],       opts->ranks_context};
    uint64_t h = tess__attention_hash(&opts->attention);
    h = tess__hash(h, others, sizeof others);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        h = tess__hash(h, (const char *)opts + reals[i].offset, sizeof(double));
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        h = tess__hash(h, (const char *)opts + wholes[i].offset,
                       wholes[i].wide ? sizeof(int64_t) : sizeof(int));
    return opts->settings ? tess__hash(h, opts->settings, strlen(opts->settings)) : h;
}

double tess__schedule(const tess_train_opts *opts, int64_t step)
{
    const double rise =
        opts->warmup > 0 && step < opts->warmup ? (double)(step + 1) / (double)opts->warmup : 1.0;
    if (opts->decay_from < 0)
        return rise;
    const double end = (double)opts->steps, from = opts->decay_from * end, at = (double)step;
    const double fall = at > from ? (end - at) / (end - from) : 1.0;
    return rise * fall;
}
