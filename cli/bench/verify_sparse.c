/* SPDX-License-Identifier: Apache-2.0 */
/* verify_sparse.c - which keys the queries of a sparse step attend to, for the reference.
 *
 * A hook of the forward pass reads the predictor's vectors, and the same selector makes the same
 * lists of them once more; they are stored as a byte for each query and key, by raster index. The
 * reference then computes with these keys, also where its parameters are moved for a difference.
 */
#include "verify.h"

#include <string.h>

#ifdef CLI_TRAIN
typedef struct {
    workload *w;
    tess_selector *selector;
    tess_selection *sel;
    const int64_t *perm; /* (tokens): raster index of each place */
    uint8_t *sees;
    uint8_t *labels; /* NULL: keys have no clusters */
} recorder;

static void mark(const recorder *r, uint8_t *sees, const tess_selection_lists *l)
{
    const int64_t tokens = r->w->p.tokens;
    memset(sees, 0, (size_t)(tokens * tokens));
    for (int32_t g = 0; g < l->shape.n_q; g++)
        for (int64_t q = l->shape.bounds_q[g]; q < l->shape.bounds_q[g + 1]; q++)
            for (int64_t i = l->offsets[g]; i < l->offsets[g + 1]; i++)
                sees[r->perm[q] * tokens + r->perm[l->indices[i]]] = 1;
}

static tess_view one_head(const tess_view *view, int64_t b, int64_t h)
{
    tess_view one = *view;
    one.data = (float *)view->data + b * view->stride_b + h * view->stride_h;
    return one;
}

/* The clusters of one head's keys, by raster index. */
static void label(const recorder *r, int64_t list, const uint8_t *labels)
{
    const int64_t tokens = r->w->p.tokens;
    for (int64_t t = 0; t < tokens; t++)
        r->labels[list * tokens + r->perm[t]] = labels[t];
}

static tess_status record(void *user, const tess_hook_in *hook)
{
    const recorder *r = user;
    const problem *p = &r->w->p;
    const int64_t heads = p->batch * p->heads, pairs = p->tokens * p->tokens;
    for (int64_t i = 0; i < heads; i++) {
        const int64_t list = hook->layer * heads + i;
        const tess_view q = one_head(hook->q_low, i / p->heads, i % p->heads);
        const tess_view k = one_head(hook->k_low, i / p->heads, i % p->heads);
        const tess_select_in in = {.q = &q,
                                   .k = &k,
                                   .head_dim = hook->proj_dim,
                                   .budget.keys = r->w->sparse.budgets[list]};
        tess_selection_lists lists;
        memset(r->sees + list * pairs, 1, (size_t)pairs);
        if (in.budget.keys == 0)
            continue;
        TRY(tess_selector_run(r->selector, &in, r->sel));
        TRY(tess_selection_view(r->sel, &lists));
        mark(r, r->sees + list * pairs, &lists);
        if (r->labels)
            label(r, list, hook->labels + i * p->tokens);
    }
    return TESS_OK;
}

static tess_status run(recorder *r)
{
    workload *w = r->w;
    sparse_step *s = &w->sparse;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = w->p.tokens,
                                  .tokens_k = w->p.tokens,
                                  .bounds_q = s->bounds,
                                  .n_q = s->groups,
                                  .unit = 1};
    const tess_selector_opts opts = {.kind = TESS_SELECT_PREDICTOR};
    TRY(tess_selector_create(w->c->ctx, &opts, &r->selector));
    TRY(tess_selection_create(w->c->ctx, &shape, s->groups * w->p.tokens, &r->sel));
    for (int64_t i = 0; i < w->p.layers; i++)
        s->layers[i].hook = 1;
    s->attend.hook = record;
    s->attend.user = r;
    return workload_step_sparse(w);
}

tess_status verify_sparse_step(workload *w, const uint8_t **sees, const uint8_t **labels)
{
    const problem *p = &w->p;
    recorder r = {.w = w};
    void *perm, *data, *clusters = NULL;
    if (p->compensate > 1)
        TRY(workload_take(w, p->layers * p->batch * p->heads * p->tokens, TESS_DTYPE_U8,
                          &clusters));
    TRY(workload_take(w, p->tokens, TESS_DTYPE_I64, &perm));
    TRY(workload_take(w, p->layers * p->batch * p->heads * p->tokens * p->tokens, TESS_DTYPE_U8,
                      &data));
    TRY(tess_order_cubes(w->sparse.grid, w->sparse.cube, perm, NULL, NULL, NULL));
    r.perm = perm;
    r.sees = data;
    r.labels = clusters;
    const tess_status status = run(&r);
    tess_selection_destroy(r.sel);
    tess_selector_destroy(r.selector);
    *sees = data;
    *labels = clusters;
    return status;
}
#endif
