/* SPDX-License-Identifier: Apache-2.0 */
/* attention_file.c - how a run attends, as a member of decisions.json: what sampling needs of it.
 *
 *   "attention": {"kind": "dsv", "density": 0.0, "mass": 0.9, "error": 0.0,
 *                 "min_density": 0.03, "max_density": 1.0, "compensate": 1, "cluster_every": 0,
 *                 "choose": "mass", "group": "cube", "input": "qk", "rotary": true,
 *                 "rank": 16, "proxy": "mean"}
 */
#include "decide.h"

#include "options/option_check.h"

static const char *const inputs[] = {"qk", "hidden"};

static const char *const *words(const char *option)
{
    return tess__option_words(TESS_OPTIONS_ATTENTION, option);
}

const char *tess__attention_name(tess_attention kind)
{
    return words("kind")[kind];
}

json_t *tess__attention_out(const tess_attention_opts *o)
{
    return json_pack("{s:s,s:f,s:f,s:f,s:f,s:f,s:i,s:I,s:s,s:s,s:s,s:b,s:i,s:s}", "kind",
                     words("kind")[o->kind], "density", o->density, "mass", o->mass, "error",
                     o->error, "min_density", o->min_density, "max_density", o->max_density,
                     "compensate", o->compensate, "cluster_every", (json_int_t)o->cluster_every,
                     "choose", words("choose")[o->choose], "group", words("group")[o->group],
                     "input", inputs[o->predictor != TESS_PREDICTOR_QK], "rotary",
                     o->predictor != TESS_PREDICTOR_HIDDEN_PLAIN, "rank", o->proj_dim, "proxy",
                     words("proxy")[o->proxy]);
}

/* Runs from before there were clusters say true or false. */
static tess_status compensate_in(tess__json_node node, int *compensate)
{
    return node.value && json_is_boolean(node.value)
               ? tess__json_bool(node, compensate)
               : tess__json_int(node, 0, TESS_CLUSTERS_MAX, compensate);
}

tess_status tess__attention_in(tess__json_node node, tess_attention_opts *opts)
{
    tess__json_node o;
    int kind, input, proxy, rotary, by = TESS_CHOOSE_MASS, group = TESS_GROUP_CUBE;
    tess_attention_opts read = TESS_ATTENTION_OPTS_INIT;
    TESS_TRY(tess__json_object(node, NULL, 0, &o));
    TESS_TRY(tess__json_enum(tess__json_member(&o, "kind"), words("kind"), TESS_ATTENTION_OWN + 1,
                             &kind));
    TESS_TRY(tess__json_double(tess__json_member(&o, "density"), 0, 1, &read.density));
    TESS_TRY(tess__json_double(tess__json_member(&o, "mass"), 0, 1, &read.mass));
    TESS_TRY(tess__json_double(tess__json_optional(&o, "error"), 0, 1000, &read.error));
    TESS_TRY(tess__json_double(tess__json_member(&o, "min_density"), 0, 1, &read.min_density));
    TESS_TRY(tess__json_double(tess__json_member(&o, "max_density"), 0, 1, &read.max_density));
    TESS_TRY(compensate_in(tess__json_member(&o, "compensate"), &read.compensate));
    read.cluster_every = 0;
    TESS_TRY(tess__json_int64(tess__json_optional(&o, "cluster_every"), 0, 1000000000,
                              &read.cluster_every));
    TESS_TRY(tess__json_enum(tess__json_member(&o, "input"), inputs, 2, &input));
    TESS_TRY(tess__json_bool(tess__json_member(&o, "rotary"), &rotary));
    TESS_TRY(tess__json_int(tess__json_member(&o, "rank"), 8, 64, &read.proj_dim));
    TESS_TRY(tess__json_enum(tess__json_member(&o, "proxy"), words("proxy"), 3, &proxy));
    TESS_TRY(tess__json_enum(tess__json_optional(&o, "choose"), words("choose"), 2, &by));
    TESS_TRY(tess__json_enum(tess__json_optional(&o, "group"), words("group"), 4, &group));
    read.group = (tess_group)group;
    read.choose = (tess_choose)by;
    read.kind = (tess_attention)kind;
    read.predictor = input == 0 ? TESS_PREDICTOR_QK
                     : rotary   ? TESS_PREDICTOR_HIDDEN
                                : TESS_PREDICTOR_HIDDEN_PLAIN;
    read.proxy = (tess_proxy)proxy;
    *opts = read;
    return TESS_OK;
}
