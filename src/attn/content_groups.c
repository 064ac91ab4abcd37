/* SPDX-License-Identifier: Apache-2.0 */
/* content_groups.c - queries of one head grouped by what they look for.
 *
 * Groups of given sizes by recursive bisection: the rows of a part are projected on the direction
 * in which they spread most (the first principal component, ROUNDS rounds of power iteration from
 * the row farthest from the mean), and the lower rows go to the first half of the part's groups.
 * Equal projections go by row number; inside a group rows ascend. Nothing is random, and a part is
 * one thread's: the same rows for any number of threads.
 *
 *   x = q - mean      w <- X^T (X w) / |X^T (X w)|      rows ordered by x.w
 *
 * Groups of random rows are for comparison: a permutation drawn by a seed in the place of content.
 *
 * Cost: 4 (ROUNDS + 1) n D flop and a selection in O(n) for each of log2(groups) levels.
 */
#include "attn_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4 };

/* A row and its place along the direction. */
typedef struct {
    float along;
    int32_t row;
} placed;

static int before(const placed *a, const placed *b)
{
    return a->along < b->along || (a->along == b->along && a->row < b->row);
}

static float dot(const float *a, const double *b, const double *mean, int dim)
{
    double sum = 0.0;
    for (int d = 0; d < dim; d++)
        sum += ((double)a[d] - mean[d]) * b[d];
    return (float)sum;
}

static const float *row_of(const tess_view *q, int32_t row)
{
    return (const float *)q->data + row * q->stride_s;
}

/* mean (dim), and w (dim): the row farthest from it, without it. */
static void start_direction(const tess_view *q, const placed *rows, int64_t n, int dim,
                            double *mean, double *w)
{
    double most = -1.0;
    int64_t far = 0;
    memset(mean, 0, (size_t)dim * sizeof *mean);
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < dim; d++)
            mean[d] += (double)row_of(q, rows[i].row)[d] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int d = 0; d < dim; d++) {
            const double x = (double)row_of(q, rows[i].row)[d] - mean[d];
            sum += x * x;
        }
        if (sum > most) {
            most = sum;
            far = i;
        }
    }
    for (int d = 0; d < dim; d++)
        w[d] = (double)row_of(q, rows[far].row)[d] - mean[d];
}

/* Writes how far each row lies along the direction of largest spread. */
static void project(const tess_view *q, placed *rows, int64_t n, int dim)
{
    double mean[TESS_DIM_MAX], w[TESS_DIM_MAX], next[TESS_DIM_MAX];
    start_direction(q, rows, n, dim, mean, w);
    for (int round = 0; round < ROUNDS; round++) {
        double size = 0.0;
        memset(next, 0, (size_t)dim * sizeof *next);
        for (int64_t i = 0; i < n; i++) {
            const float *row = row_of(q, rows[i].row);
            const double along = (double)dot(row, w, mean, dim);
            for (int d = 0; d < dim; d++)
                next[d] += along * ((double)row[d] - mean[d]);
        }
        for (int d = 0; d < dim; d++)
            size += next[d] * next[d];
        if (!(size > 0.0) || !isfinite(size)) /* all rows are the same, or none is a number */
            break;
        for (int d = 0; d < dim; d++)
            w[d] = next[d] / sqrt(size);
    }
    for (int64_t i = 0; i < n; i++) {
        const float along = dot(row_of(q, rows[i].row), w, mean, dim);
        rows[i].along = isnan(along) ? 0.0f : along;
    }
}

/* Brings the k lowest of n rows to the front, by quickselect around the middle of three. */
static void split(placed *rows, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        placed a = rows[low], b = rows[low + (high - low) / 2], c = rows[high];
        const placed pivot = before(&a, &b) ? (before(&b, &c)   ? b
                                               : before(&a, &c) ? c
                                                                : a)
                                            : (before(&a, &c)   ? a
                                               : before(&b, &c) ? c
                                                                : b);
        int64_t i = low, j = high;
        while (i <= j) {
            while (before(&rows[i], &pivot))
                i++;
            while (before(&pivot, &rows[j]))
                j--;
            if (i > j)
                break;
            const placed kept = rows[i];
            rows[i++] = rows[j];
            rows[j--] = kept;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = ((const placed *)a)->row, y = ((const placed *)b)->row;
    return (x > y) - (x < y);
}

/* First group of part p of `parts`, of n groups. */
static int32_t group_at(int32_t n, int64_t parts, int64_t p)
{
    return (int32_t)(n * p / parts);
}

size_t tess__content_bytes(int64_t tokens)
{
    return (size_t)tokens * sizeof(placed);
}

void tess__content_groups(const tess_ctx *ctx, const tess_view *q, int dim, int32_t n_q,
                          const int64_t *bounds, void *room, int32_t *rows)
{
    placed *all = room;
    const int64_t tokens = bounds[n_q];
    assert(dim <= TESS_DIM_MAX);
    for (int64_t i = 0; i < tokens; i++)
        all[i] = (placed){0.0f, (int32_t)i};
    for (int64_t parts = 1; parts < n_q; parts *= 2) {
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
        for (int64_t p = 0; p < parts; p++) {
            const int32_t first = group_at(n_q, parts, p), last = group_at(n_q, parts, p + 1);
            const int32_t middle = group_at(n_q, 2 * parts, 2 * p + 1);
            const int64_t begin = bounds[first], n = bounds[last] - begin;
            if (middle == first || middle == last)
                continue;
            project(q, all + begin, n, dim);
            split(all + begin, n, bounds[middle] - begin);
        }
    }
#pragma omp parallel for num_threads(ctx->threads) schedule(dynamic)
    for (int32_t g = 0; g < n_q; g++) {
        qsort(all + bounds[g], (size_t)(bounds[g + 1] - bounds[g]), sizeof *all, ascending);
        for (int64_t i = bounds[g]; i < bounds[g + 1]; i++)
            rows[i] = all[i].row;
    }
}

tess_status tess__random_groups(uint64_t seed, int32_t n_q, const int64_t *bounds, int32_t *rows)
{
    const int64_t tokens = bounds[n_q];
    for (int64_t i = 0; i < tokens; i++)
        rows[i] = (int32_t)i;
    for (int64_t i = tokens - 1; i > 0; i--) {
        uint32_t word;
        TESS_TRY(tess_random_bits(seed, 0, (uint64_t)i, &word, 1));
        const int64_t j = (int64_t)((uint64_t)word * (uint64_t)(i + 1) >> 32);
        const int32_t kept = rows[i];
        rows[i] = rows[j];
        rows[j] = kept;
    }
    return TESS_OK;
}
