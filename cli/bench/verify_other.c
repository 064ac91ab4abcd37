/* SPDX-License-Identifier: Apache-2.0 */
/* verify_other.c - selections and linear layers against the double-precision reference. */
#include "verify.h"

#include "ref/ref.h"

#include <math.h>
#include <string.h>

static const double epsilon = 0x1p-24;

/* ---- selections --------------------------------------------------------------------------- */

/* A selection is right if it has as many units as asked for and none of the others scores higher
 * than one of them by more than rounding can explain. Scores of proxies are dot products of dim
 * terms after a mean over a group: sqrt(dim) and sqrt(group) units of 2^-24 of the largest. Masses
 * carry the errors of scores, up to 6 sqrt(dim), through an exponential (3) and sums over the keys
 * and the group. */
static double select_tolerance(const workload *w)
{
    const double dim = w->in.head_dim, group = (double)w->p.group, keys = (double)w->p.tokens_k;
    if (w->rule.kind == TESS_SELECT_ORACLE || w->rule.proxy == TESS_PROXY_SOFTMAX)
        return 2 * epsilon * (6 * sqrt(dim) + 3 + sqrt(keys) + sqrt(group));
    return 2 * epsilon * (sqrt(dim) + sqrt(group) + sqrt((double)w->p.unit));
}

tess_status verify_select(workload *w, int all, verdict *v)
{
    tess_selection_lists lists;
    void *rows, *memory;
    double difference = 0, largest = 0;
    TRY(workload_select(w));
    TRY(tess_selection_view(w->chosen, &lists));
    const tess_sel_shape *s = &lists.shape;
    const int64_t count =
        verify_count(lists.lists, workload_select_flop(w) / (double)lists.lists, all);
    TRY(workload_take(w, count, TESS_DTYPE_I64, &rows));
    TRY(workload_take(w, s->n_k, TESS_DTYPE_F64, &memory));
    TRY(verify_sample(w, 100, count, lists.lists, rows));
    for (int64_t i = 0; i < count; i++) {
        const int64_t list = ((const int64_t *)rows)[i], head = list / s->n_q;
        const int64_t begin = lists.offsets[list], n = lists.offsets[list + 1] - begin;
        double *scores = memory;
        TRY(ref_select_scores(w->c->ctx, &w->rule, &w->in, s, head / s->heads, head % s->heads,
                              (int32_t)(list % s->n_q), scores));
        const double miss = ref_select_miss(scores, s->n_k, lists.indices + begin, n);
        difference = n == w->in.budget.keys ? fmax(difference, miss) : INFINITY;
        for (int32_t u = 0; u < s->n_k; u++)
            largest = fmax(largest, fabs(scores[u]));
    }
    verify_add(v, "units", difference, largest, select_tolerance(w));
    v->checked = count;
    v->total = lists.lists;
    return TESS_OK;
}

/* ---- linear layers ------------------------------------------------------------------------ */

/* Sums of n products of normal numbers: the partial sums grow as sqrt(n), and so do the largest
 * results; the roundings add up like a random walk to sqrt(n) / 2 units of 2^-24 of them. The
 * factor of 4 covers the worst of many elements. */
static double linear_tolerance(int64_t n)
{
    return epsilon * (2 + 2 * sqrt((double)n));
}

typedef struct {
    workload *w;
    int64_t count, *rows;
    float *x, *dy;               /* (count, k), (count, n) */
    double *y, *dx, *dw, *dbias; /* wanted; dx lies where y does */
} linear_sample;

static tess_status pack(linear_sample *s, const float *from, int64_t width, float **to)
{
    void *data;
    TRY(workload_take(s->w, s->count * width, TESS_DTYPE_F32, &data));
    *to = data;
    for (int64_t i = 0; i < s->count; i++)
        memcpy(*to + i * width, from + s->rows[i] * width, (size_t)width * sizeof **to);
    return TESS_OK;
}

static tess_status make_sample(linear_sample *s, int all)
{
    workload *w = s->w;
    const problem *p = &w->p;
    void *rows, *y, *dw, *dbias;
    s->count = verify_count(p->m, workload_linear_flop(p) / (double)p->m, all);
    TRY(workload_take(w, s->count, TESS_DTYPE_I64, &rows));
    s->rows = rows;
    TRY(verify_sample(w, 100, s->count, p->m, rows));
    TRY(pack(s, w->x, p->k, &s->x));
    TRY(workload_take(w, s->count * (p->n > p->k ? p->n : p->k), TESS_DTYPE_F64, &y));
    s->y = s->dx = y;
    if (!p->backward)
        return TESS_OK;
    TRY(workload_take(w, p->n * p->k, TESS_DTYPE_F64, &dw));
    TRY(workload_take(w, p->n, TESS_DTYPE_F64, &dbias));
    s->dw = dw;
    s->dbias = dbias;
    TRY(pack(s, w->dy, p->n, &s->dy));
    if (s->count < p->m) {
        memset(w->dy, 0, (size_t)(p->m * p->n) * sizeof *w->dy);
        for (int64_t i = 0; i < s->count; i++)
            memcpy(w->dy + s->rows[i] * p->n, s->dy + i * p->n, (size_t)p->n * sizeof *w->dy);
    }
    return TESS_OK;
}

static void compare(const char *name, verify_rows r, double tolerance, verdict *v)
{
    double difference = 0, largest = 0;
    verify_widen(&r, &difference, &largest);
    verify_add(v, name, difference, largest, tolerance);
}

tess_status verify_linear(workload *w, int all, verdict *v)
{
    const problem *p = &w->p;
    const int64_t m = p->m, n = p->n, k = p->k;
    linear_sample s = {.w = w};
    TRY(make_sample(&s, all));
    TRY(workload_linear(w));
    if (p->forward) {
        ref_linear_forward(s.count, k, n, s.x, w->w, w->bias, s.y);
        compare("y", (verify_rows){w->y, n, s.y, s.rows, s.count, n}, linear_tolerance(k), v);
    }
    if (p->backward) {
        ref_linear_backward(s.count, k, n, s.x, w->w, s.dy, s.dx, s.dw, s.dbias);
        compare("dx", (verify_rows){w->dx, k, s.dx, s.rows, s.count, k}, linear_tolerance(n), v);
        compare("dw", (verify_rows){w->dw, k, s.dw, NULL, n, k}, linear_tolerance(m), v);
        compare("dbias", (verify_rows){w->dbias, n, s.dbias, NULL, 1, n}, linear_tolerance(m), v);
    }
    v->checked = s.count;
    v->total = m;
    return TESS_OK;
}
