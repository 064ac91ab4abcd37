/* SPDX-License-Identifier: Apache-2.0 */
/* train_attention.c - sparse attention: rules between options, and the cache of measurements. */
#include "train_attention.h"

#include <string.h>

tess_status train_attention(cli *c, const train_values *v, tess_attention_opts *opts)
{
    const tess_attention_opts *o = &v->opts.attention;
    if (o->proj_dim % 8)
        return out_usage(c, "--rank is %d, must be a multiple of 8 up to 64: %d or %d", o->proj_dim,
                         o->proj_dim / 8 * 8, o->proj_dim / 8 * 8 + 8);
    if (o->min_density > o->max_density)
        return out_usage(c, "--min-density is %g, must be at most --max-density, %g",
                         o->min_density, o->max_density);
    if (o->back_recall > o->switch_recall)
        return out_usage(c, "--back-recall is %g, must be at most --switch-recall, %g",
                         o->back_recall, o->switch_recall);
    *opts = *o;
    if (o->selector && o->kind == TESS_ATTENTION_DENSE)
        opts->kind = TESS_ATTENTION_OWN;
    if (!o->selector && o->kind == TESS_ATTENTION_OWN)
        return out_usage(c, "--selector is missing, --attention own chooses keys by it");
    if (o->selector && opts->kind != TESS_ATTENTION_OWN)
        return out_usage(c, "--selector is given, but --attention is %s, which chooses keys itself",
                         tess_option_find(TESS_OPTIONS_ATTENTION, "kind")->words[o->kind]);
    if (opts->kind != TESS_ATTENTION_DENSE && strcmp(o->dispatch, "auto") == 0) {
        TRY(cache_choose(c, v->cache)); /* which heads gain is measured */
        opts->cache = cache_folder(c);
    }
    return TESS_OK;
}
