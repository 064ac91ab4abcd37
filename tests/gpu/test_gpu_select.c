/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_select.c - the selection kernels in the emulation: the lists of double precision. */
#include "gpu_passes.h"

#include <stdlib.h>

typedef struct {
    int heads, n_q, n_k, rank, keep;
    int kind; /* of scores */
} select_problem;

enum { NORMAL, TIES, EQUAL, SOME_NAN, SORTED, ONE_ROW_OFF, ABOVE_SAMPLE };

static const select_problem problems[] = {
    {2, 20, 300, 16, 30, NORMAL},         {1, 16, 100, 8, 1, NORMAL},
    {1, 5, 257, 64, 257, NORMAL},         {1, 33, 2100, 16, 210, NORMAL},
    {1, 16, 4099, 16, 41, NORMAL},        {1, 3, 2500, 32, 2000, NORMAL},
    {1, 16, 700, 16, 70, TIES},           {1, 16, 2600, 16, 130, TIES},
    {1, 16, 2200, 16, 500, EQUAL},        {1, 16, 400, 16, 390, SOME_NAN},
    {1, 16, 2500, 16, 2450, SOME_NAN},    {1, 16, 3000, 16, 300, SORTED},
    {1, 7, 2048, 40, 1, NORMAL},          {1, 16, 2600, 16, 0, NORMAL},
    {1, 4, 2048, 16, 204, ONE_ROW_OFF},   {1, 16, 300, 32, 40, NORMAL},
    {1, 16, 2048, 16, 512, ABOVE_SAMPLE},
};

typedef struct {
    float *q, *k;
    int *indices;
    long long *offsets;
    int *keep;
    double *score;
} arrays;

/* Scores of which exactly 512 are above the range that the kernel's sample gives: 428 that are not
 * in the sample, and its 84 largest. Of 2048 units the sample has those of tiles 4 n + 7 n % 4, of
 * 8 units; with 512 wanted, the range is from the 170th of the sample to the 85th. These two are
 * 85 * 771 = 65535 apart, as integers: the last of the 256 intervals then has more than one of
 * their values. All scores are exact and distinct. */
static float above_sample(int unit)
{
    const int tile = unit / 8, n = tile / 4, i = 8 * n + unit % 8;
    if (tile % 4 == n * 7 % 4)
        return 1.0f + (float)(771 * i) * 0x1p-23f;
    if (tile % 4 == (n * 7 + 1) % 4 && i < 428)
        return 2.0f + (float)unit * 0x1p-12f;
    return 0.5f + (float)unit * 0x1p-13f;
}

static void fill(const select_problem *p, arrays *x)
{
    const size_t n_q = (size_t)(p->heads * p->n_q * p->rank);
    const size_t n_k = (size_t)(p->heads * p->n_k * p->rank);
    fill_normal(x->q, n_q, 7);
    fill_normal(x->k, n_k, 8);
    for (size_t i = 0; i < n_k; i++) {
        const size_t unit = i / (size_t)p->rank, dim = i % (size_t)p->rank;
        if (p->kind == TIES) /* few values, all exact */
            x->k[i] = (float)(int)(x->k[i] * 1.5f) * 0.5f;
        if (p->kind == EQUAL)
            x->k[i] = (float)(dim + 1);
        if (p->kind == SOME_NAN && unit % 7 == 3 && dim == 2)
            x->k[i] = NAN;
        if (p->kind == SORTED)
            x->k[i] = dim == 0 ? (float)unit * 1e-3f : 0.0f;
        if (p->kind == ONE_ROW_OFF && unit < 100) /* scores of a sample say little of these */
            x->k[i] *= 1e4f;
        if (p->kind == ABOVE_SAMPLE)
            x->k[i] = dim == 0 ? above_sample((int)unit) : 0.0f;
    }
    if (p->kind == ABOVE_SAMPLE)
        for (int g = 0; g < p->n_q; g++)
            x->q[g * p->rank] = (float)(1 << g % 4);
    if (p->kind == TIES)
        for (size_t i = 0; i < n_q; i++)
            x->q[i] = (float)(int)(x->q[i] * 2.0f);
    if (p->kind == SOME_NAN)
        x->q[4] = NAN; /* all scores of group 0 */
}

/* Whether unit i is before unit j in the order of the rule. */
static int before(const double *score, int i, int j)
{
    if (isnan(score[i]) || isnan(score[j]))
        return isnan(score[j]) && (!isnan(score[i]) || i < j);
    return score[i] > score[j] || (score[i] == score[j] && i < j);
}

/* As many as asked, ascending, and no unit left out is before one that is taken: but for scores
 * that are closer than 1e-6 of the largest, which float products may exchange. */
static void check_list(const select_problem *p, const double *score, const int *list)
{
    double size = 0.0;
    int worst = -1, best = -1, taken = 0;
    for (int j = 0; j < p->n_k; j++)
        size = isfinite(score[j]) ? fmax(size, fabs(score[j])) : size;
    for (int j = 0; j < p->n_k; j++) {
        if (taken < p->keep && list[taken] == j) {
            taken++;
            if (worst < 0 || before(score, worst, j))
                worst = j;
        } else if (best < 0 || before(score, j, best)) {
            best = j;
        }
    }
    assert_int_equal(taken, p->keep);
    if (worst >= 0 && best >= 0 && before(score, best, worst)) {
        const int close = fabs(score[best] - score[worst]) <= 1e-6 * size;
        if (!close || score[best] == score[worst])
            fail_msg("unit %d (%.9g) is left out for %d (%.9g)", best, score[best], worst,
                     score[worst]);
    }
}

/* The same rows with so many bytes of NaN after each, and after each head. */
static tess_gpu_rows with_padding(const select_problem *p, const float *x, int rows, int bytes)
{
    const i64 own = p->rank * (i64)sizeof(float), row = own + bytes, head = rows * row + bytes;
    u8 *const to = memset(malloc((size_t)(p->heads * head)), 0xff, (size_t)(p->heads * head));
    for (i64 h = 0; h < p->heads; h++)
        for (i64 r = 0; r < rows; r++)
            memcpy(to + h * head + r * row, x + (h * rows + r) * p->rank, (size_t)own);
    return (tess_gpu_rows){to, p->heads * head, head, (int)row, 0};
}

static void run(const select_problem *p, arrays *x, u32 seed)
{
    const tess_gpu_rows q = with_padding(p, x->q, p->n_q, 16),
                        k = with_padding(p, x->k, p->n_k, 48);
    const tess_gpu_select_args args = {
        .q = q,
        .k = k,
        .keep = x->keep,
        .offsets = x->offsets,
        .indices = x->indices,
        .heads = p->heads,
        .n_q = p->n_q,
        .n_k = p->n_k,
        .rank = p->rank,
    };
    launch(p->rank <= 16   ? "select_r16"
           : p->rank <= 32 ? "select_r32"
                           : "select_r64",
           &args, (i64)p->heads * ((p->n_q + 15) / 16), seed);
    free(q.data);
    free(k.data);
}

static void test_lists_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const select_problem *const p = &problems[i];
        const size_t lists = (size_t)(p->heads * p->n_q), all = lists * (size_t)p->keep;
        arrays x = {
            .q = malloc(lists * (size_t)p->rank * sizeof(float)),
            .k = malloc((size_t)(p->heads * p->n_k * p->rank) * sizeof(float)),
            .indices = malloc(all * sizeof(int) + 1),
            .offsets = malloc((lists + 1) * sizeof(long long)),
            .keep = malloc((size_t)p->heads * sizeof(int)),
            .score = malloc((size_t)p->n_k * sizeof(double)),
        };
        for (size_t l = 0; l <= lists; l++)
            x.offsets[l] = (long long)l * p->keep;
        for (int h = 0; h < p->heads; h++)
            x.keep[h] = p->keep;
        fill(p, &x);
        run(p, &x, 0);
        for (size_t l = 0; l < lists; l++) {
            const float *const q = x.q + l * (size_t)p->rank;
            for (int j = 0; j < p->n_k; j++) {
                const size_t unit = l / (size_t)p->n_q * (size_t)p->n_k + (size_t)j;
                x.score[j] = 0.0;
                for (int d = 0; d < p->rank; d++)
                    x.score[j] += (double)q[d] * x.k[unit * (size_t)p->rank + (size_t)d];
            }
            check_list(p, x.score, x.indices + x.offsets[l]);
        }
        int *const first = memcpy(malloc(all * sizeof(int) + 1), x.indices, all * sizeof(int));
        for (u32 seed = 1; seed < (SANITIZED || p->n_k > 1000 ? 3 : 16); seed++) {
            memset(x.indices, 0xff, all * sizeof(int));
            run(p, &x, seed);
            assert_memory_equal(x.indices, first, all * sizeof(int));
        }
        free(first);
        free(x.q);
        free(x.k);
        free(x.indices);
        free(x.offsets);
        free(x.keep);
        free(x.score);
    }
}

/* Passes over the units, as products say: 6 for each 8 units and pass. */
static void test_three_passes(void **state)
{
    (void)state;
    const select_problem p = {1, 16, 8192, 16, 819, NORMAL};
    const size_t all = 16 * 819;
    long long offsets[17];
    int keep = 819;
    for (int l = 0; l <= 16; l++)
        offsets[l] = 819 * l;
    arrays x = {malloc(16 * 16 * 4), malloc(8192 * 16 * 4), malloc(all * 4), offsets, &keep, NULL};
    fill(&p, &x);
    emulation_reset();
    run(&p, &x, 0);
    const double passes = (double)emulation_read().mma / (6.0 * 8192 / 8);
    assert_true(passes == 3.0 + 512.0 / 8192.0);
    free(x.q);
    free(x.k);
    free(x.indices);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lists_are_exact),
    cmocka_unit_test(test_three_passes),
};
RUN_TESTS(tests)
