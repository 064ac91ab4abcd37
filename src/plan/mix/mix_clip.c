/* SPDX-License-Identifier: Apache-2.0 */
/* mix_clip.c - the attention of one clip of a mixture as a plan of fractional heads, which
 * executors run. O(parts of the plan + shares of the clip). */
#include "mix_plan.h"

#include "plan/plan_internal.h"

/* shares NULL: only counts. Ranks are numbered by the parts of the clip that have places. */
static int64_t add_shares(const tess__mix_work *w, const tess_mix_part *part, int32_t rank,
                          tess_share *shares)
{
    int64_t n = 0;
    for (int64_t at = part->begin; at < part->end; n++) {
        const int64_t head = at / w->blocks, end = TESS_MIN((head + 1) * w->blocks, part->end);
        if (shares)
            shares[n] = (tess_share){rank, (int32_t)head, (int32_t)(at - head * w->blocks),
                                     (int32_t)(end - head * w->blocks)};
        at = end;
    }
    return n;
}

/* Counts the ranks and shares of the clip, and writes the shares where there is room for them. */
static int count(const tess_mix_plan *plan, int64_t clip, int64_t *n, tess_share *shares)
{
    int ranks = 0;
    *n = 0;
    for (int64_t i = 0; i < plan->view.n_parts; i++) {
        const tess_mix_part *part = &plan->view.parts[i];
        if (part->clip == clip)
            *n +=
                add_shares(&plan->work[clip], part, (int32_t)ranks++, shares ? shares + *n : NULL);
    }
    return ranks;
}

tess_status tess_mix_clip_plan(const tess_mix_plan *plan, int64_t clip, tess_plan **made)
{
    TESS_REQUIRE(plan, made);
    TESS_TRY(tess__check_range(__func__, "clip", clip, 0, plan->view.clips - 1));
    const tess__mix_work *w = &plan->work[clip];
    const tess__mix_rules *r = &plan->rules;
    int64_t n;
    const int ranks = count(plan, clip, &n, NULL);
    tess_share *shares = TESS_ALLOC(plan->ctx, (size_t)n * sizeof *shares);
    count(plan, clip, &n, shares);
    const tess_plan_info info = {.ranks = ranks,
                                 .nodes = 1,
                                 .layers = 1,
                                 .heads = r->heads,
                                 .q_blocks = w->blocks,
                                 .k_blocks = w->blocks,
                                 .tokens_q = w->tokens,
                                 .tokens_k = w->tokens,
                                 .group = r->group,
                                 .unit = r->group,
                                 .pass = r->train ? TESS_PLAN_TRAIN : TESS_PLAN_FORWARD,
                                 .head_dim = r->head_dim,
                                 .element_bytes = (int)(r->row_bytes / r->head_dim)};
    const tess__layer_heads in = {.strategy = {TESS_PLAN_FRACTIONAL, 1, 1, 1, 0}};
    tess_plan *p = NULL;
    tess_status status = tess__plan_new(plan->ctx, __func__, &info, &p);
    if (status == TESS_OK)
        status = tess__layer_from_shares(&p->arena, &p->info, &in, shares, n, &p->layers[0]);
    tess__free(plan->ctx, shares);
    if (status != TESS_OK) {
        tess_plan_destroy(p);
        return status;
    }
    *made = p;
    return TESS_OK;
}
