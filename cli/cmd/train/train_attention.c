/* SPDX-License-Identifier: Apache-2.0 */
/* train_attention.c - the options of sparse attention, from the command line to the library. */
#include "train_attention.h"
#include "choices.h"

#include <string.h>

/* "2x4x4", or "auto" for zeros. */
static tess_status read_cube(cli *c, const char *text, int cube[3])
{
    if (strcmp(text, "auto") == 0 || choices_cube(text, cube))
        return TESS_OK;
    return out_usage(c, "--cube is \"%.80s\", must be auto or sizes such as 2x4x4", text);
}

/* Rules that a table of options cannot tell. */
static tess_status check(cli *c, const train_values *v)
{
    if (v->rank % 8)
        return out_usage(c, "--rank is %lld, must be a multiple of 8 up to 64", (long long)v->rank);
    if (v->min_density > v->max_density)
        return out_usage(c, "--min-density is %g, must be at most --max-density, %g",
                         v->min_density, v->max_density);
    if (v->back_recall > v->switch_recall)
        return out_usage(c, "--back-recall is %g, must be at most --switch-recall, %g",
                         v->back_recall, v->switch_recall);
    return TESS_OK;
}

tess_status train_attention(cli *c, const train_values *v, tess_attention_opts *opts)
{
    tess_attention_opts o = {
        .kind = (tess_attention)choices_find(choices_attention, v->attention),
        .density = v->density,
        .mass = v->mass,
        .min_density = v->min_density,
        .max_density = v->max_density,
        .compensate = strcmp(v->compensate, "on") == 0 ? 1 : -1,
        .input = strcmp(v->predictor, "qk") == 0 ? TESS_PREDICT_QK : TESS_PREDICT_HIDDEN,
        .rotary = strcmp(v->predictor, "hidden-plain") == 0 ? -1 : 1,
        .rank = (int)v->rank,
        .loss = strcmp(v->predictor_loss, "kl") == 0 ? TESS_PREDICT_KL : TESS_PREDICT_COSINE,
        .proxy = (tess_proxy)choices_find(choices_proxy, v->proxy),
        .lr = v->predictor_lr,
        .switch_by = (tess_switch)choices_find(choices_switch, v->switch_by),
        .switch_step = v->switch_step,
        .switch_loss = v->switch_loss,
        .switch_recall = v->switch_recall,
        .back_recall = v->back_recall,
        .profile_every = v->profile_every,
        .check_every = v->check_every,
        .index_memory = v->index_memory,
        .dispatch = strcmp(v->dispatch, "auto") == 0 ? NULL : v->dispatch,
    };
    TRY(check(c, v));
    if (o.kind != TESS_ATTENTION_DENSE && !o.dispatch) { /* who gains is measured */
        TRY(cache_choose(c, v->cache));
        o.cache = cache_folder(c);
    }
    TRY(read_cube(c, v->cube, o.cube));
    *opts = o;
    return TESS_OK;
}
