/* SPDX-License-Identifier: Apache-2.0 */
/* attention_options.c - the options of sparse attention: defaults and rules. */
#include "control.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
    double otherwise, min, max;
} reals[] = {
    {"density", offsetof(tess_attention_opts, density), 0, 0, 1},
    {"mass", offsetof(tess_attention_opts, mass), 0.9, 1e-6, 1},
    {"min_density", offsetof(tess_attention_opts, min_density), 0.03, 0, 1},
    {"max_density", offsetof(tess_attention_opts, max_density), 1, 0, 1},
    {"lr", offsetof(tess_attention_opts, lr), 0.01, 0, 1e3},
    {"switch_loss", offsetof(tess_attention_opts, switch_loss), 0.01, 0, 1e6},
    {"switch_recall", offsetof(tess_attention_opts, switch_recall), 0.95, 0, 1},
    {"back_recall", offsetof(tess_attention_opts, back_recall), 0.9, 0, 1},
    {"break_even", offsetof(tess_attention_opts, break_even), 0, 0, 1e6},
};

static tess_status fill_reals(const char *who, tess_attention_opts *o)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *value = (double *)((char *)o + reals[i].offset);
        if (*value == 0.0)
            *value = reals[i].otherwise;
        if (!(*value >= reals[i].min && *value <= reals[i].max))
            return tess__fail(TESS_EINVAL, "%s: attention.%s is %g, must be %g..%g", who,
                              reals[i].name, *value, reals[i].min, reals[i].max);
    }
    if (o->lr_later == 0.0)
        o->lr_later = 0.1 * o->lr;
    if (!(o->lr_later >= 0.0 && o->lr_later <= 1e3))
        return tess__fail(TESS_EINVAL, "%s: attention.lr_later is %g, must be 0..1000", who,
                          o->lr_later);
    if (o->min_density > o->max_density)
        return tess__fail(TESS_EINVAL,
                          "%s: attention.min_density is %g, must be at most max_density, %g", who,
                          o->min_density, o->max_density);
    if (o->back_recall > o->switch_recall)
        return tess__fail(TESS_EINVAL,
                          "%s: attention.back_recall is %g, must be at most switch_recall, %g", who,
                          o->back_recall, o->switch_recall);
    return TESS_OK;
}

static tess_status fill_wholes(const char *who, tess_attention_opts *o)
{
    static const int64_t most = 1000000000;
    const struct {
        const char *name;
        int64_t *place, otherwise, max;
    } wholes[] = {
        {"switch_step", &o->switch_step, 300, most},
        {"profile_every", &o->profile_every, 0, most},
        {"check_every", &o->check_every, 25, most},
        {"index_memory", &o->index_memory, 0, (int64_t)1 << 52},
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        int64_t *value = wholes[i].place;
        if (*value == 0)
            *value = wholes[i].otherwise;
        if (*value < 0 || *value > wholes[i].max)
            return tess__fail(TESS_EINVAL, "%s: attention.%s is %lld, must be 0..%lld", who,
                              wholes[i].name, (long long)*value, (long long)wholes[i].max);
    }
    o->rank = o->rank ? o->rank : 16;
    if (o->rank < 8 || o->rank > 64 || o->rank % 8)
        return tess__fail(TESS_EINVAL, "%s: attention.rank is %d, must be a multiple of 8 up to 64",
                          who, o->rank);
    return TESS_OK;
}

static tess_status check_enums(const char *who, const tess_attention_opts *o)
{
    const struct {
        const char *name, *type;
        int value, max;
    } enums[] = {
        {"kind", "tess_attention", (int)o->kind, TESS_ATTENTION_RANDOM},
        {"input", "tess_predict_input", (int)o->input, TESS_PREDICT_HIDDEN},
        {"loss", "tess_predict_loss", (int)o->loss, TESS_PREDICT_COSINE},
        {"proxy", "tess_proxy", (int)o->proxy, TESS_PROXY_SOFTMAX},
        {"switch_by", "tess_switch", (int)o->switch_by, TESS_SWITCH_STEP},
    };
    for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
        if (enums[i].value < 0 || enums[i].value > enums[i].max)
            return tess__fail(TESS_EINVAL, "%s: attention.%s is %d, must be a %s", who,
                              enums[i].name, enums[i].value, enums[i].type);
    const int given = o->cube[0] || o->cube[1] || o->cube[2];
    for (int i = 0; i < 3 && given; i++)
        if (o->cube[i] < 1)
            return tess__fail(TESS_EINVAL, "%s: attention.cube[%d] is %d, must be 1 or more", who,
                              i, o->cube[i]);
    return TESS_OK;
}

tess_status tess__attention_options(const char *who, tess_attention_opts *opts)
{
    TESS_TRY(check_enums(who, opts));
    TESS_TRY(fill_reals(who, opts));
    TESS_TRY(fill_wholes(who, opts));
    opts->compensate = opts->compensate < 0 ? -1 : 1;
    opts->rotary = opts->rotary < 0 ? -1 : 1;
    if (opts->kind != TESS_ATTENTION_DSV)
        opts->switch_by = TESS_SWITCH_STEP;
    return TESS_OK;
}

uint64_t tess__attention_hash(const tess_attention_opts *o)
{
    const int64_t wholes[] = {o->kind,          o->compensate,  o->input,       o->rotary,
                              o->rank,          o->loss,        o->proxy,       o->switch_by,
                              o->cube[0],       o->cube[1],     o->cube[2],     o->switch_step,
                              o->profile_every, o->check_every, o->index_memory};
    uint64_t h = tess__hash(0, wholes, sizeof wholes);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        h = tess__hash(h, (const char *)o + reals[i].offset, sizeof(double));
    h = tess__hash(h, &o->lr_later, sizeof o->lr_later);
    return o->dispatch ? tess__hash(h, o->dispatch, strlen(o->dispatch)) : h;
}

void tess__attention_rules(const tess_attention_opts *o, tess__rules *rules)
{
    *rules = (tess__rules){
        .learns = o->kind == TESS_ATTENTION_DSV,
        .switch_by = o->switch_by,
        .switch_step = o->switch_step,
        .switch_loss = o->switch_loss,
        .switch_recall = o->switch_recall,
        .back_recall = o->back_recall,
        .density = o->density,
        .min_density = o->min_density,
        .max_density = o->max_density,
        .round = tess__attention_by_cubes(o->kind) ? 1 : 8,
        .choosing = !o->dispatch                         ? TESS__CHOOSE_TABLE
                    : strcmp(o->dispatch, "sparse") == 0 ? TESS__CHOOSE_SPARSE
                                                         : TESS__CHOOSE_IMPOSED,
    };
}
