/* SPDX-License-Identifier: Apache-2.0 */
/* workload_probe.c - the measurements of a training run in its second stage: the profile and the
 * check of recall.
 *
 * Whole groups of queries, evenly spaced and as many as in training, are gathered from a layer by a
 * hook. The profile is the fraction of the keys that holds most of their softmax; the check
 * selects keys for them by the predictor, at the budgets of their heads, and compares their mass
 * with that of as many keys chosen by the oracle. Both are timed each for itself.
 */
#include "workload.h"

#include "tessera/advanced/machine.h"

#include <string.h>

#ifdef CLI_TRAIN
/* Groups first, first + stride, ... of each head; a group larger than the room is cut. */
static void choose_groups(workload *w)
{
    const sparse_step *s = &w->sparse;
    probe *r = &w->sparse.probe;
    const int64_t each = (w->p.tokens + s->groups - 1) / s->groups;
    const int64_t wanted = s->stage.rows / each > 0 ? s->stage.rows / each : 1;
    const int64_t stride = (s->groups + wanted - 1) / wanted;
    r->bounds[0] = 0;
    for (int64_t g = stride / 2; g < s->groups && r->rows < s->stage.rows; g += stride) {
        const int64_t left = s->stage.rows - r->rows, size = s->bounds[g + 1] - s->bounds[g];
        const int64_t n = size < left ? size : left;
        for (int64_t i = 0; i < n; i++)
            r->place[r->rows + i] = s->bounds[g] + i;
        r->rows += n;
        r->bounds[++r->groups] = r->rows;
    }
}

tess_status workload_make_probe(workload *w)
{
    probe *r = &w->sparse.probe;
    const int64_t all = w->p.batch * w->p.heads, rows = w->sparse.stage.rows;
    const tess_selector_opts rule = {.kind = TESS_SELECT_PREDICTOR};
    void *data;
    TRY(workload_take(w, rows, TESS_DTYPE_I64, &data));
    r->place = data;
    TRY(workload_take(w, rows + 1, TESS_DTYPE_I64, &data));
    r->bounds = data;
    TRY(workload_matrix(w, all * rows, w->p.dim, 0, &r->q));
    TRY(workload_matrix(w, all * rows, w->sparse.room.proj_dim, 0, &r->low));
    TRY(workload_take(w, all, TESS_DTYPE_F64, &data));
    r->densities = data;
    TRY(workload_take(w, all * (int64_t)sizeof *r->stats, TESS_DTYPE_U8, &data));
    r->stats = data;
    choose_groups(w);
    return tess_selector_create(w->c->ctx, &rule, &r->selector);
}

/* (batch, heads, rows, dim) of a layer's queries, or of their projections. */
static tess_view gather(const workload *w, const tess_view *from, int64_t dim, float *to)
{
    const probe *r = &w->sparse.probe;
    const int64_t heads = w->p.heads;
    for (int64_t i = 0; i < w->p.batch * heads; i++) {
        const float *base =
            (const float *)from->data + i / heads * from->stride_b + i % heads * from->stride_h;
        for (int64_t row = 0; row < r->rows; row++)
            memcpy(to + (i * r->rows + row) * dim, base + r->place[row] * from->stride_s,
                   (size_t)dim * sizeof *to);
    }
    return (tess_view){to, TESS_DTYPE_F32, heads * r->rows * dim, r->rows * dim, dim};
}

static tess_status check(workload *w, const tess_hook_in *hook, const tess_sel_shape *shape,
                         const tess_view *q, const tess_view *low)
{
    probe *r = &w->sparse.probe;
    const int64_t all = w->p.batch * w->p.heads;
    const tess_select_in in = {.q = low,
                               .k = hook->k_low,
                               .head_dim = hook->proj_dim,
                               .budget.keys_each = w->sparse.checked + hook->layer * all};
    const tess_sel_measure_in measure = {
        .q = q, .k = hook->k, .head_dim = (int)w->p.dim, .heads = r->stats};
    tess_sel_stats stats;
    tess_selection *sel = NULL;
    int64_t capacity;
    TRY(tess_selector_capacity(r->selector, shape, &in, &capacity));
    TRY(tess_selection_create(w->c->ctx, shape, capacity, &sel));
    tess_status status = tess_selector_run(r->selector, &in, sel);
    if (status == TESS_OK)
        status = tess_selection_measure(w->c->ctx, sel, &measure, &stats);
    tess_selection_destroy(sel);
    for (int64_t i = 0; status == TESS_OK && i < all; i++)
        r->result.recall += r->stats[i].recall / (double)(all * w->p.layers);
    return status;
}

/* The hook gets all heads; it is not used where ranks share the tokens. Training gathers once for
 * both measurements, which counts as the profile's time. */
tess_status workload_hook(void *user, const tess_hook_in *hook)
{
    workload *w = user;
    probe *r = &w->sparse.probe;
    const tess_sel_shape shape = {.batch = (int)w->p.batch,
                                  .heads = (int)w->p.heads,
                                  .tokens_q = r->rows,
                                  .tokens_k = w->p.tokens,
                                  .bounds_q = r->bounds,
                                  .n_q = r->groups,
                                  .unit = 1};
    const int64_t start = tess_clock_ns();
    const tess_view q = gather(w, hook->q, w->p.dim, r->q);
    const tess_view low = gather(w, hook->q_low, hook->proj_dim, r->low);
    const tess_density_in in = {.q = &q,
                                .k = hook->k,
                                .head_dim = (int)w->p.dim,
                                .groups = &shape,
                                .mass = w->sparse.stage.mass};
    TRY(tess_density_measure(w->c->ctx, &in, r->densities));
    const int64_t profiled = tess_clock_ns();
    TRY(check(w, hook, &shape, &q, &low));
    r->result.profile += (double)(profiled - start) * 1e-9;
    r->result.check += (double)(tess_clock_ns() - profiled) * 1e-9;
    return TESS_OK;
}

tess_status workload_step_probed(workload *w, probed *result)
{
    probe *r = &w->sparse.probe;
    r->result = (probed){0};
    for (int64_t i = 0; i < w->p.layers; i++)
        w->sparse.layers[i].hook = 1;
    const tess_status status = workload_step_learned(w);
    for (int64_t i = 0; i < w->p.layers; i++)
        w->sparse.layers[i].hook = 0;
    *result = r->result;
    return status;
}
#else
tess_status workload_step_probed(workload *w, probed *result)
{
    (void)result;
    return workload_step_learned(w);
}
#endif
