/* SPDX-License-Identifier: Apache-2.0 */
/* profile_own.c - recall of a selector of one's own, head by head.
 *
 * The plugin gets what it gets in sampling, with the number of the clip as sample and the noise
 * quartile as step.
 */
#include "cmd_profile.h"

#include <math.h>

static const float *rows_of(const tess_view *view, int b, int h)
{
    return (const float *)view->data + b * view->stride_b + h * view->stride_h;
}

tess_selector_task profile_own_task(const profile_probe *p, const tess_hook_in *hook, int b, int h)
{
    const profile_order *order = &p->orders[0];
    return (tess_selector_task){
        .layer = hook->layer,
        .head = h,
        .sample = p->sample + b,
        .step = p->level,
        .seed = (uint64_t)(p->sample + b) << 32 | (uint32_t)(hook->layer * p->heads + h),
        .grid = {p->grid[0], p->grid[1], p->grid[2]},
        .cube = {order->cube[0], order->cube[1], order->cube[2]},
        .head_dim = p->head_dim,
        .scale = (float)(1 / sqrt(p->head_dim)),
        .q = rows_of(hook->q, b, h),
        .k = rows_of(hook->k, b, h),
        .stride_q = hook->q->stride_s,
        .stride_k = hook->k->stride_s,
        .tokens_k = p->tokens,
        .n_cubes = order->groups,
        .cubes = order->bounds,
        .bounds_q = order->bounds,
        .keys = p->keys[b * p->heads + h],
    };
}

static tess_status measure(const profile_probe *p, const tess_hook_in *hook, int32_t every, int b,
                           int h, tess_selection *sel)
{
    const tess_selector_task task = profile_own_task(p, hook, b, h);
    tess_view q = *hook->q, k = *hook->k;
    q.data = (void *)task.q;
    k.data = (void *)task.k;
    TRY(tess_plugin_run(p->plugin, &task, sel));
    return tess_selection_measure(
        p->ctx, sel,
        &(tess_sel_measure_in){.q = &q, .k = &k, .head_dim = p->head_dim, .every = every},
        &p->stats[b * p->heads + h]);
}

tess_status profile_own_recall(profile_probe *p, const tess_hook_in *hook, int32_t every)
{
    const tess_sel_shape shape = profile_groups(p, &p->orders[0], 1, 1);
    tess_selection *sel = NULL;
    tess_plugin_info info;
    TRY(tess_plugin_query(p->plugin, &info));
    TRY(tess_selection_create(p->ctx, &shape, p->orders[0].groups * p->tokens, &sel));
    tess_status status = TESS_OK;
    for (int i = 0; i < p->batch * p->heads && status == TESS_OK; i++) {
        if (info.masks) /* which have as many as they have */
            p->keys[i] = (int32_t)p->tokens;
        status = measure(p, hook, every, i / p->heads, i % p->heads, sel);
    }
    tess_selection_destroy(sel);
    return status;
}
