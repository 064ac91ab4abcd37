/* SPDX-License-Identifier: Apache-2.0 */
/* train_foresee.c - what a run cannot do within its steps, said before the first one.
 *
 * A layer of dsv becomes sparse after two good checks of recall, or five where its density must
 * settle; by the rule of steps, after its step. The other kinds need no predictor: an arm that
 * branches off a trained run is sparse from its first step on.
 */
#include "train_job.h"

enum { CHECKS = 2, HISTORY = 5 }; /* of recall: good ones in a row; for a density to settle */

static int switches_by_step(const tess_attention_opts *a)
{
    return a->kind != TESS_ATTENTION_DSV || a->switch_by == TESS_SWITCH_STEP;
}

void train_switch_branched(train_job *j)
{
    tess_attention_opts *a = &j->values.opts.attention;
    if (j->branched && a->kind != TESS_ATTENTION_DENSE && a->kind != TESS_ATTENTION_DSV &&
        !train_settings_given(j->c, j->from, "switch-step"))
        a->switch_step = 1;
}

/* Steps before the first layer can be sparse, from step 0 on. */
static int64_t earliest(const tess_attention_opts *a)
{
    if (switches_by_step(a))
        return a->switch_step;
    if (a->switch_by == TESS_SWITCH_LOSS)
        return 1;
    return 1 + (a->density > 0.0 ? CHECKS : HISTORY) * a->check_every;
}

void train_foresee(const train_job *j)
{
    const tess_attention_opts *a = &j->opts.attention;
    const int64_t steps = j->opts.steps, first = earliest(a);
    char text[256];
    if (j->c->common->quiet)
        return;
    if (a->kind != TESS_ATTENTION_DENSE && first >= steps) {
        snprintf(text, sizeof text,
                 "attention stays dense: a layer becomes sparse after step %lld at the earliest%s, "
                 "and --steps is %lld",
                 (long long)first, switches_by_step(a) ? " (--switch-step)" : " (--check-every)",
                 (long long)steps);
        out_log(j->c, TESS_LOG_WARN, text);
    }
    if (j->opts.warmup >= steps && !j->resumed) {
        snprintf(text, sizeof text,
                 "the learning rate does not reach --lr: --warmup is %lld, and --steps is %lld",
                 (long long)j->opts.warmup, (long long)steps);
        out_log(j->c, TESS_LOG_WARN, text);
    }
}
