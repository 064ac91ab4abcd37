/* SPDX-License-Identifier: Apache-2.0 */
/* density.c - how many keys groups of queries need, and what sharing them costs.
 *
 * With mass_u the softmax mass of unit u summed over a group's queries (mass.c), p_iu that of query
 * i alone, and top_K(x) the share that the K largest of x have of their sum:
 *
 *   density = K / units,  K the least with top_K(mass) >= share
 *   overlap = top_K(mass) / mean over i of top_K(p_i),
 *             K given, or the mean over i of the least with top_K(p_i) >= share, rounded up
 *
 * (At the group's own K the shared set reaches the share by definition, and overlap would say
 * nothing.) Each group's numbers go to a record of its own, and records are taken in order: the
 * bits do not depend on threads. Flop for each measured query: density 4 S head_dim, half of it
 * with a given lse; overlap 8 S head_dim; and a radix sort of the units per group or query.
 * Memory: one head's keys, and a few rows of scores per thread.
 */
#include "predict_internal.h"
#include "select_internal.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double queries; /* 0: left out */
    double value;   /* density or overlap of the group */
} record;

typedef struct job job;
typedef void (*measure_fn)(const job *j, const tess__scratch *w, int32_t g, record *r);

struct job {
    tess_ctx *ctx;
    const tess_density_in *in;
    const char *what; /* for the progress callback */
    measure_fn measure;
    const tess_selection *sel; /* groups and units */
    tess__mass_keys keys;
    float *panels;
    int64_t b, h;
    int32_t every, first, measured; /* groups: each `every`-th, `measured` of them */
    int32_t units;                  /* overlap: K, or 0 */
    record *records;                /* (measured) */
};

/* The softmax masses of a group, in w->scores; returns its queries that count. */
static int64_t group_mass(const job *j, const tess__scratch *w, int32_t g, const float *lse)
{
    const tess_selection *sel = j->sel;
    const int64_t row = sel->bounds_q[g], rows = sel->bounds_q[g + 1] - row;
    const int64_t head = j->b * sel->heads + j->h;
    return tess__mass_group(&j->keys, tess__view_row(j->in->q, j->b, j->h, row), j->in->q->stride_s,
                            rows, lse ? lse + head * sel->tokens_q + row : NULL, w, w->scores);
}

static void measure_density(const job *j, const tess__scratch *w, int32_t g, record *r)
{
    const int32_t n_k = j->sel->n_k;
    r->queries = (double)group_mass(j, w, g, j->in->lse);
    if (r->queries > 0.0)
        r->value = (double)tess__mass_count(w->scores, n_k, j->in->mass, w) / n_k;
}

/* ---- overlap ------------------------------------------------------------------------------- */

static int is_finite_row(const float *scores, int64_t n)
{
    /* 0 times what is not finite is NaN, and stays in the sum. */
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += 0.0f * scores[i];
    return sum == 0.0f;
}

/* Sums over the queries of a group what each needs alone (k 0), or what its own k best hold;
 * returns how many queries count. */
static int64_t sum_queries(const job *j, const tess__scratch *w, int32_t g, int32_t k, double *sum)
{
    const tess_selection *sel = j->sel;
    const int64_t begin = sel->bounds_q[g], end = sel->bounds_q[g + 1], tokens = sel->tokens_k;
    int64_t counted = 0;
    *sum = 0.0;
    for (int64_t row = begin; row < end; row++) {
        const int64_t at = (row - begin) % TESS__ROWS, left = end - row;
        if (at == 0)
            j->keys.kernels->score(w->rows, w->ld, tess__view_row(j->in->q, j->b, j->h, row),
                                   j->in->q->stride_s, left < TESS__ROWS ? (int)left : TESS__ROWS,
                                   j->panels, (tokens + TESS_PANEL - 1) / TESS_PANEL,
                                   j->in->head_dim);
        const float *scores = w->rows + at * w->ld;
        if (!is_finite_row(scores, tokens))
            continue;
        tess__mass_row(&j->keys, scores, w, w->scores);
        *sum += k > 0 ? tess__mass_top(w->scores, sel->n_k, k, w)
                      : (double)tess__mass_count(w->scores, sel->n_k, j->in->mass, w);
        counted++;
    }
    return counted;
}

static void measure_overlap(const job *j, const tess__scratch *w, int32_t g, record *r)
{
    double needed, own;
    int32_t k = j->units;
    if (k == 0) {
        const int64_t counted = sum_queries(j, w, g, 0, &needed);
        if (counted == 0)
            return;
        k = (int32_t)ceil(needed / (double)counted);
    }
    const int64_t counted = sum_queries(j, w, g, k, &own);
    if (counted == 0 || group_mass(j, w, g, NULL) == 0)
        return;
    r->queries = (double)counted;
    r->value = tess__mass_top(w->scores, j->sel->n_k, k, w) * (double)counted / own;
}

/* ---- heads --------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const record *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* What a head's records say; `otherwise` if there are none. */
static double conclude(record *records, int32_t n, double quantile, double otherwise)
{
    double sum = 0.0, queries = 0.0;
    int32_t counted = 0;
    for (int32_t i = 0; i < n; i++) {
        if (records[i].queries == 0.0)
            continue;
        sum += records[i].queries * records[i].value;
        queries += records[i].queries;
        records[counted++] = records[i];
    }
    if (counted == 0)
        return otherwise;
    if (quantile == 0.0)
        return sum / queries;
    qsort(records, (size_t)counted, sizeof *records, ascending);
    const int32_t at = (int32_t)ceil(quantile * counted) - 1;
    return records[at < 0 ? 0 : at].value;
}

static tess_status measure_head(job *j, const tess__buffer *scratch,
                                const tess__scratch_shape *shape, int64_t *reported)
{
    const tess_selection *sel = j->sel;
    tess__work_queue run = {
        .ctx = j->ctx,
        .what = j->what,
        .total = j->measured,
        .before = (j->b * sel->heads + j->h) * j->measured,
        .whole = (int64_t)sel->batch * sel->heads * j->measured,
        .reported = *reported,
    };
#pragma omp parallel num_threads(j->ctx->threads)
    {
        const tess__scratch w = tess__scratch_of(scratch, shape, omp_get_thread_num());
        tess__mass_pack(j->ctx->kernels, j->panels, j->in->k, j->b, j->h, sel->tokens_k,
                        j->in->head_dim);
        int64_t i;
        while ((i = tess__work_queue_next(&run)) >= 0) {
            j->records[i] = (record){0};
            j->measure(j, &w, j->first + (int32_t)i * j->every, &j->records[i]);
        }
    }
    *reported = run.reported;
    return tess__work_queue_end(&run);
}

/* ---- the calls ----------------------------------------------------------------------------- */

static tess_status check_in(const char *who, const tess_density_in *in)
{
    int32_t n_q, n_k;
    if (!in->groups)
        return tess__invalid(who, "groups is NULL");
    TESS_TRY(tess__sel_shape_check(who, in->groups, &n_q, &n_k));
    if (in->groups->tokens_q < 1 || in->groups->tokens_k < 1)
        return tess__invalid(who, "groups has %lld queries and %lld keys, needs both",
                             (long long)in->groups->tokens_q, (long long)in->groups->tokens_k);
    TESS_TRY(tess__select_check_tokens(who, in->groups->tokens_k));
    TESS_TRY(tess__select_check_qk(who, in->q, in->k, in->head_dim, 256, in->scale,
                                   in->groups->tokens_q, in->groups->tokens_k));
    if (!(in->mass > 0.0 && in->mass <= 1.0))
        return tess__invalid(who, "mass is %g, must be above 0 and at most 1", in->mass);
    TESS_TRY(tess__check_number(who, "quantile", in->quantile, 0, 1));
    TESS_TRY(tess__check_least(who, "every", in->every, 0));
    TESS_TRY(tess__check_least(who, "first", in->first, 0));
    return TESS_OK;
}

/* Measures all heads into found (batch * heads). */
static tess_status measure_heads(job *j, const tess__scratch_shape *shape, double otherwise,
                                 double *found)
{
    const tess_selection *sel = j->sel;
    const double quantile = j->units < 0 ? j->in->quantile : 0.0;
    tess__buffer panels = {0}, records = {0}, scratch = {0};
    tess_ctx *ctx = j->ctx;
    const int64_t whole = (sel->tokens_k + TESS_PANEL - 1) / TESS_PANEL * TESS_PANEL;
    tess_status status =
        tess__buffer_grow(ctx, &panels, whole, (size_t)j->in->head_dim * sizeof(float));
    if (status == TESS_OK)
        status = tess__buffer_grow(ctx, &records, j->measured, sizeof(record));
    if (status == TESS_OK)
        status = tess__scratch_grow(ctx, &scratch, shape, ctx->threads);
    j->keys.panels = j->panels = panels.data;
    j->records = records.data;
    int64_t reported = 0;
    for (j->b = 0; j->b < sel->batch; j->b++)
        for (j->h = 0; j->h < sel->heads && status == TESS_OK; j->h++) {
            status = measure_head(j, &scratch, shape, &reported);
            if (status == TESS_OK)
                found[j->b * sel->heads + j->h] =
                    conclude(j->records, j->measured, quantile, otherwise);
        }
    tess__buffer_free(ctx, &panels);
    tess__buffer_free(ctx, &records);
    tess__buffer_free(ctx, &scratch);
    return status;
}

/* units: K of overlap, or below 0 for density. */
static tess_status measure(tess_ctx *ctx, const tess_density_in *in, int32_t units, double *out)
{
    tess_selection *sel = NULL;
    TESS_TRY(tess_selection_create(ctx, in->groups, 0, &sel));
    const int32_t every = in->every < 1 ? 1 : in->every > sel->n_q ? sel->n_q : in->every;
    job j = {
        .ctx = ctx,
        .in = in,
        .what = units < 0 ? "measuring density" : "measuring overlap",
        .measure = units < 0 ? measure_density : measure_overlap,
        .sel = sel,
        .keys = {.kernels = ctx->kernels,
                 .tokens = sel->tokens_k,
                 .dim = in->head_dim,
                 .scale2 = tess__select_scale(in->scale, in->head_dim) * (float)M_LOG2E,
                 .bounds = sel->bounds_k,
                 .n_k = sel->n_k},
        .every = every,
        .first = in->first % every,
        .units = units,
    };
    j.measured = (sel->n_q - j.first + every - 1) / every;
    const tess__scratch_shape shape = {.row_keys = units < 0 ? 0 : sel->tokens_k,
                                       .n_k = sel->n_k,
                                       .dim = in->head_dim,
                                       .tile = 1,
                                       .sort = 1};
    const int64_t heads = (int64_t)sel->batch * sel->heads;
    tess__buffer found = {0};
    tess_status status = tess__buffer_grow(ctx, &found, heads, sizeof(double));
    if (status == TESS_OK)
        status = measure_heads(&j, &shape, units < 0 ? 1.0 : 0.0, found.data);
    if (status == TESS_OK)
        memcpy(out, found.data, sizeof *out * (size_t)heads);
    tess__buffer_free(ctx, &found);
    tess_selection_destroy(sel);
    return status;
}

tess_status tess_density_measure(tess_ctx *ctx, const tess_density_in *in, double *density)
{
    TESS_REQUIRE(ctx, in, density);
    TESS_TRY(check_in(__func__, in));
    return measure(ctx, in, -1, density);
}

tess_status tess_overlap_measure(tess_ctx *ctx, const tess_density_in *in, int32_t keys,
                                 double *ratio)
{
    TESS_REQUIRE(ctx, in, ratio);
    TESS_TRY(check_in(__func__, in));
    int32_t n_q, n_k;
    TESS_TRY(tess__sel_shape_check(__func__, in->groups, &n_q, &n_k));
    TESS_TRY(tess__check_range(__func__, "keys", keys, 0, n_k));
    return measure(ctx, in, keys, ratio);
}
