/* SPDX-License-Identifier: Apache-2.0 */
/* sel_measure.c - how good a selection is: density, softmax mass, recall, overlap of neighbours.
 *
 * For each measured group with list L of K units, mass_u from mass.c, and T_i the K units that have
 * the most mass for query i alone:
 *
 *   mass    = sum over u in L of mass_u / sum of all mass_u
 *   recall  = sum over u in L of mass_u / sum of the K largest mass_u
 *   overlap = |T_i and T_(i+1)| / K, for neighbouring queries i, i + 1 of the group
 *
 * Each group's numbers go to a record of its own, and the records are summed in order: the bits do
 * not depend on threads. Flop: 6 tokens_q tokens_k head_dim for the queries that are measured, and
 * a top-K per query. Memory: one head's keys, TESS__ROWS rows of scores per thread, and a record
 * per group of one head.
 */
#include "select_internal.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* What a group adds to the averages. */
typedef struct {
    double queries;        /* the weight of recall; 0: left out */
    double recall;         /* times queries */
    double chosen, mass;   /* of the list, and of all units */
    double overlap;        /* summed over pairs */
    int64_t pairs, groups; /* groups: 1 if measured */
} record;

typedef struct {
    tess_ctx *ctx;
    const tess_selection *sel;
    const tess_sel_measure_in *in;
    const tess__kernels *kernels;
    float *panels;
    int64_t n_panels;
    float scale;
    int64_t b, h;
    int32_t every;
    record *records; /* (measured groups of a head) */
} job;

static double sum_of(const float *mass, const int32_t *index, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)mass[index ? index[i] : i];
    return sum;
}

/* Elements that two ascending lists of n share. */
static int64_t common(const int32_t *a, const int32_t *b, int64_t n)
{
    int64_t i = 0, j = 0, same = 0;
    while (i < n && j < n) {
        const int32_t x = a[i], y = b[j];
        same += x == y;
        i += x <= y;
        j += y <= x;
    }
    return same;
}

/* The overlap of the neighbours among rows queries from row on, whose lists have k units. */
static void measure_overlap(const job *j, const tess__mass_keys *keys, const tess__scratch *w,
                            int64_t row, int64_t rows, int32_t k, record *r)
{
    const int32_t n_k = j->sel->n_k;
    int32_t *list = w->index, *before = w->index + w->next;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = i % TESS__ROWS, left = rows - i;
        if (at == 0)
            j->kernels->score(w->rows, w->ld, tess__view_row(j->in->q, j->b, j->h, row + i),
                              j->in->q->stride_s, left < TESS__ROWS ? (int)left : TESS__ROWS,
                              j->panels, j->n_panels, j->in->head_dim);
        const float *scores = w->rows + at * w->ld;
        if (n_k != j->sel->tokens_k) {
            tess__mass_row(keys, scores, w, w->scores);
            scores = w->scores;
        }
        j->kernels->topk(list, scores, n_k, k, w->topk);
        if (i > 0) {
            r->overlap += (double)common(list, before, k) / k;
            r->pairs++;
        }
        int32_t *swap = list;
        list = before;
        before = swap;
    }
}

static void measure_group(const job *j, const tess__scratch *w, int32_t g, record *r)
{
    const tess_selection *sel = j->sel;
    const int64_t list = (j->b * sel->heads + j->h) * sel->n_q + g;
    const int32_t *units = sel->indices + sel->offsets[list];
    const int32_t k = (int32_t)(sel->offsets[list + 1] - sel->offsets[list]);
    const int64_t row = sel->bounds_q[g], rows = sel->bounds_q[g + 1] - row;
    const tess__mass_keys keys = {
        .kernels = j->kernels,
        .panels = j->panels,
        .tokens = sel->tokens_k,
        .dim = j->in->head_dim,
        .scale2 = j->scale * (float)M_LOG2E,
        .bounds = sel->bounds_k,
        .n_k = sel->n_k,
    };
    tess__mass_group(&keys, tess__view_row(j->in->q, j->b, j->h, row), j->in->q->stride_s, rows,
                     NULL, w, w->scores);
    *r = (record){.groups = 1,
                  .chosen = sum_of(w->scores, units, k),
                  .mass = sum_of(w->scores, NULL, sel->n_k)};
    if (k == 0)
        return;
    j->kernels->topk(w->index, w->scores, sel->n_k, k, w->topk);
    const double best = sum_of(w->scores, w->index, k);
    if (best > 0.0) {
        r->queries = (double)rows;
        r->recall = r->queries * r->chosen / best;
    }
    measure_overlap(j, &keys, w, row, rows, k, r);
}

static void add(record *to, const record *r)
{
    to->queries += r->queries;
    to->recall += r->recall;
    to->chosen += r->chosen;
    to->mass += r->mass;
    to->overlap += r->overlap;
    to->pairs += r->pairs;
    to->groups += r->groups;
}

/* Selected pairs of (query, key) of lists first .. first + n - 1. */
static double count_pairs(const tess_selection *sel, int64_t first, int64_t n)
{
    int64_t pairs = 0;
    for (int64_t list = first; list < first + n; list++) {
        const int64_t g = list % sel->n_q;
        int64_t keys = 0;
        for (int64_t i = sel->offsets[list]; i < sel->offsets[list + 1]; i++)
            keys += sel->bounds_k[sel->indices[i] + 1] - sel->bounds_k[sel->indices[i]];
        pairs += keys * (sel->bounds_q[g + 1] - sel->bounds_q[g]);
    }
    return (double)pairs;
}

static double ratio(double a, double b)
{
    return b > 0.0 ? a / b : 0.0;
}

static tess_sel_stats stats_of(const record *r, double selected, double pairs)
{
    return (tess_sel_stats){
        .density = ratio(selected, pairs),
        .mass = ratio(r->chosen, r->mass),
        .recall = ratio(r->recall, r->queries),
        .overlap = ratio(r->overlap, (double)r->pairs),
        .groups = r->groups,
        .pairs = r->pairs,
    };
}

/* Measures one head: j->b, j->h. */
static tess_status measure_head(job *j, const tess__buffer *scratch,
                                const tess__scratch_shape *shape, int64_t *reported, record *sum)
{
    const int64_t groups = ((int64_t)j->sel->n_q + j->every - 1) / j->every;
    tess__work_queue run = {
        .ctx = j->ctx,
        .what = "measuring a selection",
        .total = groups,
        .before = (j->b * j->sel->heads + j->h) * groups,
        .whole = (int64_t)j->sel->batch * j->sel->heads * groups,
        .reported = *reported,
    };
#pragma omp parallel num_threads(j->ctx->threads)
    {
        const tess__scratch w = tess__scratch_of(scratch, shape, omp_get_thread_num());
        tess__mass_pack(j->kernels, j->panels, j->in->k, j->b, j->h, j->sel->tokens_k,
                        j->in->head_dim);
        int64_t i;
        while ((i = tess__work_queue_next(&run)) >= 0)
            measure_group(j, &w, (int32_t)(i * j->every), &j->records[i]);
    }
    *reported = run.reported;
    TESS_TRY(tess__work_queue_end(&run));
    *sum = (record){0};
    for (int64_t i = 0; i < groups; i++)
        add(sum, &j->records[i]);
    return TESS_OK;
}

/* All heads, each into found[head]. */
static tess_status measure_heads(job *j, const tess__buffer *scratch,
                                 const tess__scratch_shape *shape, tess_sel_stats *found,
                                 tess_sel_stats *total)
{
    const tess_selection *sel = j->sel;
    const double pairs = (double)sel->tokens_q * (double)sel->tokens_k;
    int64_t reported = 0;
    record all = {0};
    double selected = 0.0;
    for (j->b = 0; j->b < sel->batch; j->b++)
        for (j->h = 0; j->h < sel->heads; j->h++) {
            const int64_t head = j->b * sel->heads + j->h;
            record sum;
            TESS_TRY(measure_head(j, scratch, shape, &reported, &sum));
            const double here = count_pairs(sel, head * sel->n_q, sel->n_q);
            found[head] = stats_of(&sum, here, pairs);
            add(&all, &sum);
            selected += here;
        }
    *total = stats_of(&all, selected, pairs * sel->batch * sel->heads);
    return TESS_OK;
}

tess_status tess_selection_measure(tess_ctx *ctx, const tess_selection *sel,
                                   const tess_sel_measure_in *in, tess_sel_stats *stats)
{
    TESS_REQUIRE(ctx, sel, in, stats);
    TESS_TRY(tess__select_check_qk(__func__, in->q, in->k, in->head_dim, 256, in->scale,
                                   sel->tokens_q, sel->tokens_k));
    TESS_TRY(tess__check_least(__func__, "every", in->every, 0));
    TESS_TRY(tess__select_check_tokens(__func__, sel->tokens_k));

    job j = {
        .ctx = ctx,
        .sel = sel,
        .in = in,
        .kernels = ctx->kernels,
        .n_panels = (sel->tokens_k + TESS_PANEL - 1) / TESS_PANEL,
        .scale = tess__select_scale(in->scale, in->head_dim),
        .every = in->every > 0 ? in->every : 1,
    };
    const int64_t heads = (int64_t)sel->batch * sel->heads;
    const tess__scratch_shape shape = {
        .row_keys = sel->tokens_k, .n_k = sel->n_k, .dim = in->head_dim, .tile = 1};
    tess__buffer panels = {0}, records = {0}, found = {0}, scratch = {0};
    tess_sel_stats total;
    tess_status status = tess__buffer_grow(ctx, &panels, j.n_panels * TESS_PANEL,
                                           (size_t)in->head_dim * sizeof(float));
    if (status == TESS_OK)
        status = tess__buffer_grow(ctx, &records, sel->n_q, sizeof(record));
    if (status == TESS_OK)
        status = tess__buffer_grow(ctx, &found, heads, sizeof(tess_sel_stats));
    if (status == TESS_OK)
        status = tess__scratch_grow(ctx, &scratch, &shape, ctx->threads);
    if (status == TESS_OK) {
        j.panels = panels.data;
        j.records = records.data;
        status = measure_heads(&j, &scratch, &shape, found.data, &total);
    }
    if (status == TESS_OK) {
        *stats = total;
        if (in->heads)
            memcpy(in->heads, found.data, (size_t)heads * sizeof *in->heads);
    }
    tess__buffer *const all[] = {&panels, &records, &found, &scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tess__buffer_free(ctx, all[i]);
    return status;
}
