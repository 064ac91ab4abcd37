/* SPDX-License-Identifier: Apache-2.0 */
/* cp_verify.c - compares every strategy of a context-parallel problem with one rank on the same
 * lists.
 *
 * One rank computes with tess_attn, whose own errors `tessera check attn,...` measures. Partial
 * sums over pieces of the keys and over ranks round differently: 1e-5 of the largest value is
 * allowed.
 */
#include "cp_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { O, LSE, DQ, DK, DV, OUTPUTS };
static const char *const names[OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};
static const double tolerance = 1e-5;

typedef struct {
    workload *w;
    const cp_lists *lists;
    tess_attn *attn;
    float *want[OUTPUTS]; /* of one layer */
    int layer;            /* that they are of; -1: none */
    double difference[OUTPUTS], largest[OUTPUTS];
    int compared; /* strategies and layers */
} verifier;

static tess_view like(const tess_view *v, float *data)
{
    tess_view same = *v;
    same.data = data;
    return same;
}

/* Dense heads have full lists, which give the bits of dense attention. */
static tess_status full_lists(const verifier *f, int layer, tess_selection **full)
{
    const cp_lists *l = f->lists;
    tess_selection_lists some;
    int64_t n = 0, list = 0, capacity = 0;
    TRY(tess_selection_view(l->chosen[layer], &some));
    for (int h = 0; h < l->heads; h++) {
        const int32_t keys = l->keys[layer * l->heads + h];
        capacity += (int64_t)l->groups * (keys ? keys : l->units);
    }
    int64_t *offsets = malloc((size_t)(some.lists + 1) * sizeof *offsets);
    int32_t *indices = malloc((size_t)capacity * sizeof *indices);
    tess_status status;
    if (offsets && indices) {
        for (; list < some.lists; list++) {
            const int dense = !l->keys[layer * l->heads + list / l->groups];
            const int64_t length = dense ? l->units : some.offsets[list + 1] - some.offsets[list];
            offsets[list] = n;
            for (int64_t i = 0; i < length; i++)
                indices[n++] = dense ? (int32_t)i : some.indices[some.offsets[list] + i];
        }
        offsets[list] = n;
        status = tess_selection_create(f->w->c->ctx, &some.shape, capacity, full);
    } else {
        status = out_fail(f->w->c, TESS_ENOMEM, "no memory for the lists of a layer");
    }
    if (status == TESS_OK)
        status = tess_selection_set_lists(*full, offsets, indices);
    free(offsets);
    free(indices);
    return status;
}

/* What one rank computes for a layer. */
static tess_status attend_alone(verifier *f, int layer)
{
    workload *w = f->w;
    tess_selection *full = NULL;
    const tess_view o = like(&w->o, f->want[O]);
    tess_status status = full_lists(f, layer, &full);
    if (status == TESS_OK)
        status = tess_attn_forward(f->attn, full, &w->q, &w->k, &w->v, &o, f->want[LSE]);
    if (status == TESS_OK && w->p.backward) {
        const tess_attn_saved saved = {&w->q, &w->k, &w->v, &o, f->want[LSE]};
        const tess_view dq = like(&w->dq, f->want[DQ]), dk = like(&w->dk, f->want[DK]),
                        dv = like(&w->dv, f->want[DV]);
        status = tess_attn_backward(f->attn, full, &saved, &w->dout, NULL, &dq, &dk, &dv);
    }
    tess_selection_destroy(full);
    f->layer = status == TESS_OK ? layer : -1;
    return status;
}

static void widen(verifier *f, int output, const float *got)
{
    const int64_t n = output == LSE ? f->w->p.heads * f->w->p.tokens
                                    : f->w->p.heads * f->w->p.tokens * f->w->p.dim;
    const float *want = f->want[output];
    for (int64_t i = 0; i < n; i++) {
        const double apart = fabs((double)got[i] - want[i]);
        f->largest[output] = fmax(f->largest[output], fabs((double)want[i]));
        f->difference[output] = isfinite(got[i]) ? fmax(f->difference[output], apart) : INFINITY;
    }
}

/* On rank 0, while the others wait. */
static tess_status compare(void *user, int run, int layer)
{
    verifier *f = user;
    workload *w = f->w;
    (void)run;
    if (f->layer != layer)
        TRY(attend_alone(f, layer));
    widen(f, O, w->o.data);
    widen(f, LSE, w->lse);
    if (w->p.backward) {
        widen(f, DQ, w->dq.data);
        widen(f, DK, w->dk.data);
        widen(f, DV, w->dv.data);
    }
    f->compared++;
    return TESS_OK;
}

static tess_status make(verifier *f)
{
    workload *w = f->w;
    const int64_t rows = w->p.heads * w->p.tokens;
    const int outputs = w->p.backward ? OUTPUTS : LSE + 1;
    TRY(tess_attn_create(w->c->ctx, &w->shape, &f->attn));
    for (int i = 0; i < outputs; i++)
        TRY(workload_matrix(w, rows, i == LSE ? 1 : w->p.dim, 0, &f->want[i]));
    return TESS_OK;
}

static tess_status run(verifier *f, cp_lists *lists, cp_job *job, verdict *v)
{
    char strategies[CP_ROWS][PROBLEM_STRATEGY_MAX];
    workload *w = f->w;
    const int n = cp_strategies(&w->p, strategies);
    TRY(cp_lists_make(w, lists));
    TRY(cp_job_make(w, lists, 0, n, job));
    for (int i = 0; i < n; i++)
        strcpy(job->runs[i].name, strategies[i]);
    job->compare = compare;
    job->user = f;
    TRY(make(f));
    TRY(cp_job_run(job));
    if (f->compared == 0)
        return out_fail(w->c, TESS_EINVAL, "%s", job->runs[0].why);
    for (int i = 0; i < (w->p.backward ? OUTPUTS : LSE + 1); i++)
        verify_add(v, names[i], f->difference[i], f->largest[i], tolerance);
    v->checked = v->total = w->p.heads * w->p.tokens;
    return TESS_OK;
}

tess_status cp_verify(workload *w, verdict *v)
{
    cp_lists lists = {0};
    cp_job job = {0};
    verifier f = {.w = w, .lists = &lists, .layer = -1};
    const tess_status status = run(&f, &lists, &job, v);
    cp_job_free(&job);
    cp_lists_free(&lists);
    tess_attn_destroy(f.attn);
    return status;
}
