/* SPDX-License-Identifier: Apache-2.0 */
/* attention_options.c - the options of sparse attention: rules between them. */
#include "control.h"

#include "options/option_check.h"

#include <string.h>

tess_status tess__attention_options(const char *who, tess_attention_opts *o)
{
    TESS_TRY(tess__options_check(who, TESS_OPTIONS_ATTENTION, o));
    if (o->proj_dim % 8)
        return tess__invalid(who, "attention.proj_dim is %d, must be a multiple of 8 up to 64",
                             o->proj_dim);
    if (o->min_density > o->max_density)
        return tess__invalid(who, "attention.min_density is %g, must be at most max_density, %g",
                             o->min_density, o->max_density);
    if (o->group != TESS_GROUP_CUBE &&
        (o->kind == TESS_ATTENTION_WINDOW || o->kind == TESS_ATTENTION_OWN))
        return tess__invalid(who, "attention.group must be cube, kind is %s",
                             o->kind == TESS_ATTENTION_WINDOW ? "window" : "own");
    const int ranks_keys = o->kind == TESS_ATTENTION_DSV || o->kind == TESS_ATTENTION_ORACLE ||
                           o->kind == TESS_ATTENTION_SEARCH || o->kind == TESS_ATTENTION_DENSE;
    if (o->choose == TESS_CHOOSE_ERROR && !ranks_keys)
        return tess__invalid(who, "attention.choose is error, kind must be dsv, oracle or search");
    if (o->choose == TESS_CHOOSE_ERROR && o->compensate < 2)
        return tess__invalid(who, "attention.choose is error, compensate is %d, must be 2 or more",
                             o->compensate);
    if (o->error > 0.0 && !ranks_keys)
        return tess__invalid(who, "attention.error is %g, kind must be dsv, oracle or search",
                             o->error);
    if (o->error > 0.0 && o->density > 0.0)
        return tess__invalid(who, "attention.error is %g, density is %g, must be 0", o->error,
                             o->density);
    if (o->back_recall > o->switch_recall)
        return tess__invalid(who, "attention.back_recall is %g, must be at most switch_recall, %g",
                             o->back_recall, o->switch_recall);
    if (o->kind == TESS_ATTENTION_OWN && !o->selector)
        return tess__invalid(who, "attention.selector is missing, kind is own");
    if (o->kind != TESS_ATTENTION_OWN)
        o->selector = NULL;
    if (o->kind != TESS_ATTENTION_DSV)
        o->switch_by = TESS_SWITCH_STEP;
    if (o->dispatch && strcmp(o->dispatch, "auto") == 0)
        o->dispatch = NULL;
    return TESS_OK;
}

int64_t tess__profile_interval(const tess_attention_opts *o, int sparse)
{
    enum { DENSE_EVERY = 10, SPARSE_EVERY = 25 };
    return o->profile_every ? o->profile_every : sparse ? SPARSE_EVERY : DENSE_EVERY;
}

uint64_t tess__attention_hash(const tess_attention_opts *o)
{
    return tess__options_hash(0, TESS_OPTIONS_ATTENTION, o);
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
        .error = o->error,
        .density = o->density,
        .min_density = o->min_density,
        .max_density = o->max_density,
        .round = tess__attention_by_cubes(o->kind) ? 1 : 8,
        .groups = o->group == TESS_GROUP_AUTO,
        .choosing = !o->dispatch                         ? TESS__CHOOSE_TABLE
                    : strcmp(o->dispatch, "sparse") == 0 ? TESS__CHOOSE_SPARSE
                                                         : TESS__CHOOSE_IMPOSED,
    };
}
