/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check_select.c - the selection on the device against scores in double precision.
 *
 * A list is right if it has as many units as asked, ascending, and no unit is left out whose score
 * is above that of one taken by more than 1e-6 of the largest; equal scores and NaN have no such
 * margin.
 */
#include "gpu_internal.h"

#include <math.h>
#include <string.h>

enum { HEADS = 2, GROUP = 32, TAIL = 64, MARK = -7 };

static const char who[] = "tess_gpu_check";

typedef enum { NORMAL, TIES, SOME_NAN } scores;

typedef struct {
    tess_gpu *gpu;
    int rank;
    scores kind;
    int32_t n_q, n_k, keep[HEADS];
    tess__arena arena;
    tess_gpu_memory memory;
    tess_gpu_selection *sel;
    float *q, *k;
    void *d_q, *d_k;
    int64_t need;
    int32_t *first, *again;
    double *score;
} check;

static tess_status prepare(check *c, int64_t tokens)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = HEADS,
                                  .tokens_q = (int64_t)c->n_q * GROUP,
                                  .tokens_k = tokens,
                                  .group = GROUP,
                                  .unit = 1};
    const size_t n_q = (size_t)HEADS * (size_t)c->n_q * (size_t)c->rank,
                 n_k = (size_t)HEADS * (size_t)c->n_k * (size_t)c->rank;
    TESS_TRY(tess__gpu_random(&c->arena, 6, n_q, &c->q));
    TESS_TRY(tess__gpu_random(&c->arena, 7, n_k, &c->k));
    for (size_t i = 0; i < n_k; i++) {
        if (c->kind == TIES) /* few values, all exact */
            c->k[i] = (float)(int)(c->k[i] * 1.5f) * 0.5f;
        if (c->kind == SOME_NAN && i / (size_t)c->rank % 7 == 3)
            c->k[i] = NAN;
    }
    for (size_t i = 0; i < n_q && c->kind == TIES; i++)
        c->q[i] = (float)(int)(c->q[i] * 2.0f);
    TESS_TRY(tess__gpu_allocate(&c->memory, n_q * sizeof(float), &c->d_q));
    TESS_TRY(tess__gpu_allocate(&c->memory, n_k * sizeof(float), &c->d_k));
    TESS_TRY(tess__gpu_copy_in(&c->memory, c->d_q, c->q, n_q * sizeof(float)));
    TESS_TRY(tess__gpu_copy_in(&c->memory, c->d_k, c->k, n_k * sizeof(float)));
    c->need = (int64_t)(c->keep[0] + c->keep[1]) * c->n_q;
    c->first = TESS_TAKE(&c->arena, sizeof(int32_t) * (size_t)(c->need + TAIL));
    c->again = TESS_TAKE(&c->arena, sizeof(int32_t) * (size_t)(c->need + TAIL));
    c->score = TESS_TAKE(&c->arena, sizeof(double) * (size_t)c->n_k);
    return tess_gpu_selection_create(c->gpu, &shape, c->need + TAIL, &c->sel);
}

static tess_status run_device(check *c, int32_t *lists)
{
    const int64_t r = c->rank;
    const size_t bytes = sizeof(int32_t) * (size_t)(c->need + TAIL);
    const tess_view q = {c->d_q, TESS_DTYPE_F32, HEADS * c->n_q * r, c->n_q * r, r};
    const tess_view k = {c->d_k, TESS_DTYPE_F32, HEADS * c->n_k * r, c->n_k * r, r};
    const tess_gpu_select_in in = {&q, &k, c->rank, c->keep};
    void *const indices = (void *)(uintptr_t)c->sel->indices;
    for (int64_t i = 0; i < c->need + TAIL; i++)
        lists[i] = MARK;
    TESS_TRY(tess__gpu_copy_in(&c->memory, indices, lists, bytes));
    TESS_TRY(tess_gpu_select(c->gpu, &in, c->sel, NULL));
    return tess__gpu_copy_out(&c->memory, lists, indices, bytes);
}

/* Whether unit i is before unit j in the order of the rule. */
static int before(const double *score, int i, int j)
{
    if (isnan(score[i]) || isnan(score[j]))
        return isnan(score[j]) && (!isnan(score[i]) || i < j);
    return score[i] > score[j] || (score[i] == score[j] && i < j);
}

static int is_right(const check *c, const int32_t *list, int keep)
{
    const double *const score = c->score;
    double size = 0.0;
    int worst = -1, best = -1, taken = 0;
    for (int j = 0; j < c->n_k; j++) {
        size = isfinite(score[j]) ? fmax(size, fabs(score[j])) : size;
        if (taken < keep && list[taken] == j) {
            taken++;
            if (worst < 0 || before(score, worst, j))
                worst = j;
        } else if (best < 0 || before(score, j, best)) {
            best = j;
        }
    }
    if (taken < keep)
        return 0;
    if (worst < 0 || best < 0 || before(score, worst, best))
        return 1;
    return score[best] != score[worst] && fabs(score[best] - score[worst]) <= 1e-6 * size;
}

static int wrong_lists(check *c)
{
    const int32_t *list = c->first;
    int wrong = 0;
    for (int h = 0; h < HEADS; h++)
        for (int g = 0; g < c->n_q; g++, list += c->keep[h]) {
            const float *const q = c->q + (h * c->n_q + g) * c->rank;
            for (int j = 0; j < c->n_k; j++) {
                const float *const k =
                    c->k + ((size_t)h * (size_t)c->n_k + (size_t)j) * (size_t)c->rank;
                c->score[j] = 0.0;
                for (int d = 0; d < c->rank; d++)
                    c->score[j] += (double)q[d] * k[d];
            }
            wrong += !is_right(c, list, c->keep[h]);
        }
    return wrong;
}

static tess_status check_case(check *c, const tess_gpu_check_opts *opts,
                              tess_gpu_check_result *result)
{
    static const char *const kinds[] = {"", ", many of them equal", ", some of them NaN"};
    char name[128];
    tess_gpu_case found = {.name = name, .output = "lists", .same = 1, .guarded = 1};
    snprintf(name, sizeof name, "selection, rank %d%s, %d and %d of %d keys", c->rank,
             kinds[c->kind], (int)c->keep[0], (int)c->keep[1], (int)c->n_k);
    TESS_TRY(prepare(c, opts->tokens));
    TESS_TRY(run_device(c, c->first));
    found.error = wrong_lists(c);
    for (int64_t i = c->need; i < c->need + TAIL; i++)
        found.guarded &= c->first[i] == MARK;
    for (int n = 1; n < opts->repeats; n++) {
        TESS_TRY(run_device(c, c->again));
        found.same &= memcmp(c->again, c->first, sizeof(int32_t) * (size_t)c->need) == 0;
    }
    tess__gpu_count_case(opts, result, &found);
    return TESS_OK;
}

tess_status tess__gpu_check_select(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                                   tess_gpu_check_result *result)
{
    static const struct {
        int rank;
        scores kind;
        int part[HEADS]; /* of all units, one in so many; 0: one unit */
    } cases[] = {{16, NORMAL, {10, 1}},  {8, NORMAL, {0, 3}}, {32, NORMAL, {5, 2}},
                 {64, NORMAL, {10, 50}}, {16, TIES, {10, 2}}, {16, SOME_NAN, {20, 1}}};
    tess_status status = TESS_OK;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && status == TESS_OK; i++) {
        check c = {.gpu = gpu,
                   .rank = cases[i].rank,
                   .kind = cases[i].kind,
                   .n_q = (int32_t)((opts->tokens + GROUP - 1) / GROUP),
                   .n_k = (int32_t)opts->tokens,
                   .arena = {.ctx = gpu->ctx},
                   .memory = {.gpu = gpu, .who = who}};
        for (int h = 0; h < HEADS; h++)
            c.keep[h] = cases[i].part[h] ? TESS_MAX(1, c.n_k / cases[i].part[h]) : 1;
        status = check_case(&c, opts, result);
        tess_gpu_selection_destroy(c.sel);
        tess__gpu_free(&c.memory);
        tess__arena_free(&c.arena);
    }
    return status;
}
