/* SPDX-License-Identifier: Apache-2.0 */
/* centroids.c - k-means on keys of which each rank has some rows.
 *
 * A set of centroids belongs to a head of one sample, or to a head of all samples of a batch. Rows
 * take part that are `step` tokens apart, so that a set sees at most SAMPLE of them; the same rows
 * for any number of ranks. A rank adds up its own rows, and the sums over ranks move the centroids:
 *
 *   start   sums = the rows that the centroids begin with, spread evenly, each on its own rank
 *   round   sums (sets * heads, clusters, head_dim + 1) = the rows nearest to each centroid, and
 *           their number
 *   move    centroids = sums over the ranks / number; a cluster without rows keeps its centroid
 *
 * Nothing is random. A set of a head is one thread's: the same bits for any number of threads.
 *
 * Cost of a round: 2 C D flop and D additions in double for each row that takes part.
 */
#include "attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { SAMPLE = 4096, PIECE = 128 };

/* Rows of one sample that take part are 0, step, 2 step, ...; of a set there are n. */
typedef struct {
    int samples; /* of a set */
    int64_t step, each, n;
} sampling;

static sampling sampling_of(const tess__centroid_shape *s)
{
    const int samples = s->batch / s->sets;
    const int64_t step = (samples * s->tokens + SAMPLE - 1) / SAMPLE;
    const int64_t each = (s->tokens + step - 1) / step;
    return (sampling){samples, step, each, samples * each};
}

int64_t tess__centroid_sums(const tess__centroid_shape *s)
{
    return (int64_t)s->sets * s->heads * s->clusters * (s->head_dim + 1);
}

void tess__centroids_start(const tess__centroid_shape *s, const tess_view *k, double *sums)
{
    const sampling p = sampling_of(s);
    const int64_t width = s->head_dim + 1, items = (int64_t)s->sets * s->heads * s->clusters;
    memset(sums, 0, (size_t)tess__centroid_sums(s) * sizeof *sums);
    for (int64_t item = 0; item < items; item++) {
        const int64_t c = item % s->clusters, h = item / s->clusters % s->heads;
        const int64_t set = item / s->clusters / s->heads;
        const int64_t at = (p.n - 1) * c / (s->clusters - 1), b = set * p.samples + at / p.each;
        const int64_t token = at % p.each * p.step - s->first;
        if (token < 0 || token >= s->local)
            continue;
        const float *row = tess__view_row(k, b, h, token);
        for (int d = 0; d < s->head_dim; d++)
            sums[item * width + d] = (double)row[d];
        sums[item * width + s->head_dim] = 1.0;
    }
}

/* Rows of one sample of a set of a head. */
static void sum_rows(const tess_attn *attn, const tess__nearest *nearest, int64_t n, double *sums,
                     tess__attn_scratch *w)
{
    uint8_t labels[PIECE];
    const int dim = nearest->dim;
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        const int64_t rows = TESS_MIN(n - begin, PIECE);
        tess__nearest piece = *nearest;
        piece.k.data = (const float *)nearest->k.data + begin * nearest->k.stride;
        attn->ctx->kernels->attn_nearest(&piece, 0, rows, labels, w);
        for (int64_t r = 0; r < rows; r++) {
            const float *row = (const float *)piece.k.data + r * piece.k.stride;
            double *sum = sums + (int64_t)labels[r] * (dim + 1);
            for (int d = 0; d < dim; d++)
                sum[d] += (double)row[d];
            sum[dim] += 1.0;
        }
    }
}

void tess__centroid_halves(const float *centroids, int clusters, int dim, float *half)
{
    for (int c = 0; c < clusters; c++, centroids += dim) {
        double sum = 0.0;
        for (int d = 0; d < dim; d++)
            sum += (double)centroids[d] * (double)centroids[d];
        half[c] = (float)(0.5 * sum);
    }
}

/* One set of one head. */
static void sum_set(const tess_attn *attn, const tess__centroid_shape *s, const tess_view *k,
                    const float *centroids, int64_t item, double *sums, tess__attn_scratch *w)
{
    const sampling p = sampling_of(s);
    const int64_t h = item % s->heads, set = item / s->heads;
    const int64_t first = (s->first + p.step - 1) / p.step * p.step - s->first;
    const int64_t n = first < s->local ? (s->local - first + p.step - 1) / p.step : 0;
    float half[TESS_CLUSTERS_MAX];
    tess__nearest nearest = {.dim = s->head_dim,
                             .clusters = s->clusters,
                             .centroids = centroids + item * s->clusters * s->head_dim,
                             .half = half};
    tess__centroid_halves(nearest.centroids, s->clusters, s->head_dim, half);
    sums += item * s->clusters * (s->head_dim + 1);
    memset(sums, 0, (size_t)s->clusters * ((size_t)s->head_dim + 1) * sizeof *sums);
    for (int64_t b = set * p.samples; n > 0 && b < (set + 1) * p.samples; b++) {
        nearest.k = (tess__rows){tess__view_row(k, b, h, first), k->stride_s * p.step};
        sum_rows(attn, &nearest, n, sums, w);
    }
}

void tess__centroids_round(tess_attn *attn, const tess__centroid_shape *s, const tess_view *k,
                           const float *centroids, double *sums)
{
#pragma omp parallel for num_threads(attn->ctx->threads) schedule(dynamic)
    for (int64_t item = 0; item < (int64_t)s->sets * s->heads; item++)
        sum_set(attn, s, k, centroids, item, sums, &attn->scratch[omp_get_thread_num()]);
}

void tess__centroids_move(const tess__centroid_shape *s, const double *sums, float *centroids)
{
    const int dim = s->head_dim;
    for (int64_t item = 0; item < (int64_t)s->sets * s->heads * s->clusters;
         item++, sums += dim + 1)
        for (int d = 0; sums[dim] > 0.0 && d < dim; d++)
            centroids[item * dim + d] = (float)(sums[d] / sums[dim]);
}

void tess__centroid_distances(tess_attn *attn, const tess_view *k, int64_t n, int clusters, int dim,
                              const float *centroids, float *distances)
{
    float half[TESS_CLUSTERS_MAX];
    tess__centroid_halves(centroids, clusters, dim, half);
#pragma omp parallel for num_threads(attn->ctx->threads)
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        const int64_t rows = TESS_MIN(n - begin, PIECE);
        const tess__nearest nearest = {.k = {tess__view_row(k, 0, 0, begin), k->stride_s},
                                       .dim = dim,
                                       .clusters = clusters,
                                       .centroids = centroids,
                                       .half = half};
        uint8_t labels[PIECE];
        attn->ctx->kernels->attn_nearest(&nearest, 0, rows, labels,
                                         &attn->scratch[omp_get_thread_num()]);
        for (int64_t r = 0; r < rows; r++) {
            const float *row = tess__view_row(k, 0, 0, begin + r);
            const float *centroid = centroids + (ptrdiff_t)labels[r] * dim;
            double sum = 0.0;
            for (int d = 0; d < dim; d++)
                sum +=
                    ((double)row[d] - (double)centroid[d]) * ((double)row[d] - (double)centroid[d]);
            distances[begin + r] = (float)sqrt(sum);
        }
    }
}
