/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_keys.h - a tile's virtual keys, one for each cluster of the rows its list leaves out.
 *
 *   mean_c = (sum of the cluster's rows - sum of its listed rows) / its dropped rows
 *
 * Listed rows are walked in the order of their clusters, TESS_SORT of them at a time, so that a sum
 * stays in registers while its rows pass. Where a cluster has no more listed rows than dropped
 * ones, the difference loses a factor of 2 at most, and rows of a chunk are summed in fp32, chunks
 * in double, as those of the one virtual key (virtual_key.h). Where it has more, and in the
 * cluster's own sums, all is in double: the difference keeps 2^-53 of the sums, also where a
 * cluster of thousands of rows has one that was dropped.
 *
 * Cost: 2 D additions for each row, on rows that are needed anyway, and a counting sort.
 */
#ifndef TESS_CLUSTER_KEYS_H
#define TESS_CLUSTER_KEYS_H

#include "virtual_key.h"

/* Where the next chunk in the order of clusters begins. */
typedef struct {
    key_cursor list;
    int read;                        /* rows in w->listed that are not in w->sorted yet */
    int have, used;                  /* of w->sorted */
    int cluster;                     /* of the row at `used`, or an earlier one */
    int ends[TESS_CLUSTERS_MAX + 1]; /* rows of cluster c - 1 among those read; then where those of
                                        cluster c end in w->sorted */
    uint8_t of[TESS_SORT];           /* clusters of the rows that were read */
} cluster_cursor;

/* Reads the next rows of the list and counts those of each cluster. */
VINLINE void clusters_read(const tess__attn_tile *t, tess__attn_scratch *w, cluster_cursor *at)
{
    int n = 0, more;
    while (n < TESS_SORT && (more = keys_next(&t->keys, &at->list, w->listed + n)) > 0)
        n += more;
    memset(at->ends, 0, sizeof at->ends);
    for (int i = 0; i < n; i++) {
        at->of[i] = t->labels[w->listed[i]];
        at->ends[at->of[i] + 1]++;
    }
    at->read = n;
}

/* Counts the listed rows of each cluster, and clears the sums. Labels lie far apart: those of a
 * list that is sorted at once are looked up once. */
VINLINE void clusters_start(const tess__attn_tile *t, tess__attn_scratch *w, cluster_cursor *at)
{
    memset(w->sum, 0, (size_t)t->clusters * 2 * (size_t)t->dim * sizeof *w->sum);
    at->list = keys_start(&t->keys);
    at->have = at->used = at->cluster = 0;
    clusters_read(t, w, at);
    for (int c = 0; c < t->clusters; c++)
        w->count[c] = at->ends[c + 1];
    key_cursor rest = at->list;
    for (int n; (n = keys_next(&t->keys, &rest, w->rows)) > 0;)
        for (int i = 0; i < n; i++)
            w->count[t->labels[w->rows[i]]]++;
}

/* Brings the next rows of the list into the order of clusters; rows of one keep their order. */
VINLINE void clusters_sort(const tess__attn_tile *t, tess__attn_scratch *w, cluster_cursor *at)
{
    int *place = at->ends;
    if (at->read == 0)
        clusters_read(t, w, at);
    for (int c = 0; c < t->clusters; c++)
        place[c + 1] += place[c];
    for (int i = 0; i < at->read; i++)
        w->sorted[place[at->of[i]]++] = w->listed[i];
    at->have = at->read;
    at->read = at->used = at->cluster = 0;
}

/* Writes up to TESS_CHUNK row numbers to w->rows; returns how many, fewer only at the end. */
VINLINE int clusters_next(const tess__attn_tile *t, tess__attn_scratch *w, cluster_cursor *at)
{
    if (at->used == at->have)
        clusters_sort(t, w, at);
    const int left = at->have - at->used, n = left < TESS_CHUNK ? left : TESS_CHUNK;
    memcpy(w->rows, w->sorted + at->used, (size_t)n * sizeof *w->rows);
    at->used += n;
    return n;
}

/* sum[0..nv VD) += the sum over n rows of their columns d.. on. */
VINLINE void add_columns(const int nv, double *sum, const float *const *rows, int n, int d)
{
    vd part[8];
    VFOR (j, nv)
        part[j] = vd_load(sum + j * VD);
    for (int i = 0; i < n; i++)
        VFOR (j, nv)
            part[j] += vd_load_f32(rows[i] + d + j * VD);
    VFOR (j, nv)
        memcpy(sum + j * VD, &part[j], sizeof part[j]);
}

/* dim is a multiple of 8, which VD divides. */
VINLINE void add_exactly(double *sum, const float *const *rows, int n, int dim)
{
    int d = 0;
    for (; d + 8 * VD <= dim; d += 8 * VD)
        add_columns(8, sum + d, rows, n, d);
    for (; d + 4 * VD <= dim; d += 4 * VD)
        add_columns(4, sum + d, rows, n, d);
    for (; d < dim; d += VD)
        add_columns(1, sum + d, rows, n, d);
}

/* Adds n rows of cluster c. Sums of k alone are those of k-means rounds, and need no more than
 * fp32. */
VINLINE void clusters_sum(const tess__attn_tile *t, const tess__attn_scratch *w, double *sums,
                          int c, const float *const *k, const float *const *v, int n)
{
    double *sum = sums + (size_t)c * 2 * (size_t)t->dim;
    if (!t->v.data) {
        sum_rows(sum, k, n, t->dim);
    } else if (t->members && t->members[c] >= 2 * w->count[c]) {
        sum_rows(sum, k, n, t->dim);
        sum_rows(sum + t->dim, v, n, t->dim);
    } else {
        add_exactly(sum, k, n, t->dim);
        add_exactly(sum + t->dim, v, n, t->dim);
    }
}

/* Takes the n rows of a chunk, to which w->kp and w->vp point, into the sums of their clusters. */
VINLINE void clusters_add(const tess__attn_tile *t, tess__attn_scratch *w, cluster_cursor *at,
                          double *sums, int n)
{
    const int first = at->used - n;
    for (int i = first, end; i < at->used; i = end) {
        while (at->ends[at->cluster] <= i)
            at->cluster++;
        end = at->ends[at->cluster] < at->used ? at->ends[at->cluster] : at->used;
        clusters_sum(t, w, sums, at->cluster, w->kp + i - first, w->vp + i - first, end - i);
    }
}

/* Makes the virtual keys of the clusters of which rows were dropped: row i of w->mean is that of
 * cluster of[i], which stands for n[i] rows, and its value comes `clusters` rows later. w->kp and
 * w->vp point to them. Returns how many. */
VINLINE int clusters_finish(const tess__attn_tile *t, tess__attn_scratch *w,
                            int of[TESS_CLUSTERS_MAX], float n[TESS_CLUSTERS_MAX])
{
    const size_t dim = (size_t)t->dim, wide = (size_t)tess__wide(t->dim);
    int m = 0;
    for (int c = 0; c < t->clusters; c++) {
        const int64_t dropped = t->members[c] - w->count[c];
        if (dropped == 0)
            continue;
        const double inverse = 1.0 / (double)dropped;
        for (size_t i = 0; i < 2; i++) {
            const double *total = t->total + ((size_t)c * 2 + i) * dim;
            const double *sum = w->sum + ((size_t)c * 2 + i) * dim;
            float *mean = w->mean + ((size_t)m + i * (size_t)t->clusters) * wide;
            for (size_t d = 0; d < dim; d++)
                mean[d] = (float)((total[d] - sum[d]) * inverse);
        }
        of[m] = c;
        n[m++] = (float)dropped;
    }
    for (int i = 0; i < m + TESS_SPARE; i++) {
        const size_t row = (size_t)(i < m ? i : m - 1);
        w->kp[i] = w->mean + row * wide;
        w->vp[i] = w->mean + (row + (size_t)t->clusters) * wide;
    }
    return m;
}

#endif
