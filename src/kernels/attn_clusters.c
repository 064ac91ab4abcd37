/* SPDX-License-Identifier: Apache-2.0 */
/* attn_clusters.c - clusters of keys: the nearest centroid of each key, sums of rows by cluster.
 *
 *   label_j = argmax_c  k_j.m_c - |m_c|^2 / 2,  the lowest such c; 0 where a score is NaN
 *
 * As in the products of attention, keys are columns of a panel and centroids are broadcast, so that
 * the maximum runs down the columns.
 *
 * Work: 2 C D flop for each key; 2 D additions for each row that is summed.
 */
#include "attn_tile.h"
#include "cluster_keys.h"
#include "entries.h"
#include "gemm.h"

/* Labels of n keys from the scores in w->st. */
static void choose(const tess__nearest *x, int n, uint8_t *labels, const tess__attn_scratch *w)
{
    for (int q = 0; q < n; q += VL) {
        vf best = vf_load(w->st + q) - vf_set1(x->half[0]);
        vi label = vi_set1(0);
        for (int c = 1; c < x->clusters; c++) {
            const vf s = vf_load(w->st + (size_t)c * TESS_SCORE_LD + q) - vf_set1(x->half[c]);
            const vi better = s > best;
            best = vf_choose(better, s, best);
            label = (vi_set1(c) & better) | (label & ~better);
        }
        int32_t lanes[VL];
        memcpy(lanes, &label, sizeof lanes);
        for (int i = 0; i < VL && q + i < n; i++)
            labels[q + i] = (uint8_t)lanes[i];
    }
}

void TESS_K(tess__attn_nearest)(const tess__nearest *x, int64_t begin, int64_t end, uint8_t *labels,
                                tess__attn_scratch *w)
{
    for (int c = 0; c < x->clusters + TESS_SPARE; c++) {
        const int row = c < x->clusters ? c : x->clusters - 1;
        w->kp[c] = x->centroids + (size_t)row * (size_t)x->dim;
    }
    for (int64_t row = begin; row < end; row += TESS_CHUNK) {
        const int n = end - row < TESS_CHUNK ? (int)(end - row) : TESS_CHUNK;
        const float *k = (const float *)x->k.data + (x->bf16 ? 0 : row * x->k.stride);
        if (x->bf16) {
            const uint16_t *half = (const uint16_t *)x->k.data + row * x->k.stride;
            for (int i = 0; i < n; i++)
                widen_row(w->kf + (size_t)i * (size_t)x->dim, half + i * x->k.stride, x->dim);
            k = w->kf;
        }
        pack_transposed(w->qt, k, x->bf16 ? x->dim : x->k.stride, n, x->dim, 1.0f);
        gemm_scores(w->st, w->kp, x->clusters, w->qt, n, x->dim, NULL, 0.0f);
        choose(x, n, labels + row, w);
    }
}

/* sums (clusters, 2, dim) and count (clusters) = those of the tile's list; without v, of k alone.
 * They may be w->sum and w->count. */
void TESS_K(tess__attn_cluster_sums)(const tess__attn_tile *t, double *sums, int64_t *count,
                                     tess__attn_scratch *w)
{
    cluster_cursor at;
    int n;
    clusters_start(t, w, &at);
    if (sums != w->sum)
        memset(sums, 0, (size_t)t->clusters * 2 * (size_t)t->dim * sizeof *sums);
    while ((n = clusters_next(t, w, &at)) > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        if (t->v.data)
            key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        clusters_add(t, w, &at, sums, n);
    }
    if (count != w->count)
        memcpy(count, w->count, (size_t)t->clusters * sizeof *count);
}
