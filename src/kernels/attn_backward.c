/* SPDX-License-Identifier: Apache-2.0 */
/* attn_backward.c - gradients of one tile of queries and a list of keys.
 *
 *   S = scale * log2(e) * K Q^T    P = 2^(S - lse)       dV += P dO
 *   dP = V dO^T                    dS = P (dP - delta)   dK += scale * dS Q     dQ = scale * dS^T K
 *
 * with delta = rowsum(dO * O) - dlse, which is the softmax's derivative and that of lse in one.
 * As in the forward pass, everything is kept by key: S[i][q]. K and V rows are broadcast from where
 * they lie, dK and dV rows are added to where they lie, and only K's panels for dQ are copied. The
 * caller owns the listed rows of dK and dV while this runs, and walks keys and tiles in a fixed
 * order: no atomics, the same bits every time. What the virtual key takes back from the keys that
 * were not dropped (attn_virtual.c) is where the sums for rows of dK and dV begin, and costs
 * nothing. Virtual keys of clusters are differentiated by attn_cluster_keys, before any range of
 * keys begins:
 *
 *   P', dS' (clusters, n) as above, for the means k' and v' of the n_c rows that each cluster lost
 *   dQ = scale dS'^T K'        each row of cluster c gets  sum_q P'_cq / n_c dO_q  for dV,
 *                                                   scale sum_q dS'_cq / n_c Q_q  for dK
 *
 * summed over all tiles (`given`), and a listed row must get it back: not as a vector for each tile
 * and cluster, but as weights P'_cq / n_c and dS'_cq / n_c that are taken off its own P and dS
 * before the products with dO and Q: 2 C floats for each query.
 *
 * Work: 10 n D flop per key; 24 D bytes per key (K and V read, dK and dV read and written).
 */
#include "attn_tile.h"
#include "cluster_keys.h"
#include "entries.h"
#include "gemm.h"
#include "keys.h"

#include <math.h>

/* Packs the tile: transposes for the score products, rows for the gradients, lse and delta. */
static void prepare(const tess__attn_bwd *job, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const float *q0 = t->q.data;
    pack_gathered(w->qt, q0, t->q.stride, t->rows, t->n, t->dim, t->scale * (float)M_LOG2E, w->qn);
    pack_gathered(w->gt, job->dout, job->stride_dout, t->rows, t->n, t->dim, 1.0f, w->gn);
    const float *rows[TESS_TILE_DENSE_MOST];
    for (int q = 0; q < t->n; q++)
        rows[q] = q0 + tess__query_row(t, q) * t->q.stride;
    pack_rows(w->qn, rows, t->n, t->dim, t->scale);
    for (int q = 0; q < t->n; q++)
        rows[q] = job->dout + tess__query_row(t, q) * job->stride_dout;
    pack_rows(w->gn, rows, t->n, t->dim, 1.0f);

    for (int q = 0; q < t->n; q++) {
        const int64_t row = tess__query_row(t, q);
        const float *o = job->o + row * job->stride_o;
        const float *g = rows[q];
        vf sum = {0};
        int d = 0;
        for (; d + VL <= t->dim; d += VL)
            sum += vf_load(o + d) * vf_load(g + d);
        float delta = vf_sum(sum);
        for (; d < t->dim; d++)
            delta += o[d] * g[d];
        w->l[q] = delta - (job->dlse ? job->dlse[row] : 0.0f);
        /* A query that saw nothing has no probabilities. */
        w->m[q] = job->lse[row] == -INFINITY ? 1e30f : job->lse[row] * (float)M_LOG2E;
    }
    for (int q = t->n; q % VL != 0; q++)
        w->m[q] = w->l[q] = 0.0f;

    const size_t wide = (size_t)tess__wide(t->dim), bytes = (size_t)t->dim * sizeof(float);
    memset(w->start, 0, 2 * wide * sizeof(float));
    if (job->start) {
        memcpy(w->start, job->start, bytes);
        memcpy(w->start + wide, job->start + t->dim, bytes);
    }
}

/* S becomes P and dP becomes dS. */
static void softmax_gradient(const tess__attn_tile *t, tess__attn_scratch *w, int n)
{
    for (int q = 0; q < t->n; q += VL) {
        const vf m = vf_load(w->m + q), delta = vf_load(w->l + q);
        float *s = w->st + q, *g = w->dt + q;
        for (int i = 0; i < n; i++, s += TESS_SCORE_LD, g += TESS_SCORE_LD) {
            const vf p = vf_exp2(vf_load(s) - m);
            vf_store(s, p);
            vf_store(g, p * (vf_load(g) - delta));
        }
    }
}

/* The same where keys have clusters: what the virtual keys give to every row of a cluster is taken
 * off P and dS of the listed ones, and dQ's dS, from which nothing is taken, goes to w->bt. */
static void softmax_take_back(const tess__attn_bwd *job, tess__attn_scratch *w, int n)
{
    const tess__attn_tile *t = &job->tile;
    const size_t nq = (size_t)t->n, half = (size_t)t->clusters * nq;
    const float *taken[TESS_CHUNK];
    for (int i = 0; i < n; i++)
        taken[i] = job->weights + t->labels[w->rows[i]] * nq;
    for (int q = 0; q < t->n; q += VL) {
        const vf m = vf_load(w->m + q), delta = vf_load(w->l + q);
        const int left = t->n - q, whole = left >= VL;
        float *s = w->st + q, *g = w->dt + q, *dq = w->bt + q;
        for (int i = 0; i < n; i++, s += TESS_SCORE_LD, g += TESS_SCORE_LD, dq += TESS_SCORE_LD) {
            const float *back = taken[i] + q;
            const vf back_p = whole ? vf_load(back) : vf_load_first(back, left);
            const vf back_g = whole ? vf_load(back + half) : vf_load_first(back + half, left);
            const vf p = vf_exp2(vf_load(s) - m), ds = p * (vf_load(g) - delta);
            vf_store(s, p - back_p);
            vf_store(g, ds - back_g);
            vf_store(dq, ds);
        }
    }
}

/* Adds a block to the columns d.. of MR rows, `left` of which exist. */
VINLINE void add_block(float *const *rows, int d, int left, vf c[MR][2])
{
    if (left >= NR) {
        VUNROLL
        for (int r = 0; r < MR; r++) {
            vf_store(rows[r] + d, vf_load(rows[r] + d) + c[r][0]);
            vf_store(rows[r] + d + VL, vf_load(rows[r] + d + VL) + c[r][1]);
        }
        return;
    }
    for (int r = 0; r < MR; r++) {
        float block[NR];
        vf_store(block, c[r][0]);
        vf_store(block + VL, c[r][1]);
        for (int j = 0; j < left; j++)
            rows[r][d + j] += block[j];
    }
}

/* rows[i] += start + sum over queries of weights[i][q] * panel row q. */
static void add_rows(const tess__attn_tile *t, const float *weights, const float *panels, int n,
                     const float *start, float *const *rows)
{
    for (int d = 0; d < t->dim; d += NR) {
        const float *b = panels + (size_t)d * (size_t)t->n;
        const vf start0 = vf_load(start + d), start1 = vf_load(start + d + VL);
        for (int i = 0; i < n; i += MR) {
            const float *a[MR];
            VUNROLL
            for (int r = 0; r < MR; r++)
                a[r] = weights + (size_t)(i + r) * TESS_SCORE_LD;
            VUNROLL
            for (int r = 0; r < MR; r++)
                v_prefetch_write(rows[i + MR + r] + d);
            vf c[MR][2];
            VUNROLL
            for (int r = 0; r < MR; r++) {
                c[r][0] = start0;
                c[r][1] = start1;
            }
            gemm_rows(MR, t->n, a, b, c);
            add_block(rows + i, d, t->dim - d, c);
        }
    }
}

/* Where the gradients of the chunk's rows lie; rows past the end go to the spare one. The rows of a
 * token list are far apart and no hardware prefetcher sees the next: they are called in here, two
 * products before they are added to (D = 64: 0.72 -> 0.80 of the FMA peak at density 0.1). */
static void gradient_pointers(const tess__attn_bwd *job, tess__attn_scratch *w, int n)
{
    for (int i = 0; i < n; i++) {
        w->dkp[i] = job->dk + (int64_t)w->rows[i] * job->stride_dk;
        w->dvp[i] = job->dv + (int64_t)w->rows[i] * job->stride_dv;
        for (int d = 0; d < job->tile.dim; d += 16) {
            v_prefetch_write(w->dkp[i] + d);
            v_prefetch_write(w->dvp[i] + d);
        }
    }
    for (int i = n; i < n + TESS_SPARE; i++)
        w->dkp[i] = w->dvp[i] = w->spare;
}

/* dQ, without the scale, gets what the n keys to which w->kp points give. */
static void add_queries(const tess__attn_tile *t, const float *ds, tess__attn_scratch *w, int n)
{
    gemm_output(w->acc, ds, n, w->kp, w->panel, t->n, t->dim);
}

/* Writes the tile's rows of dq and its weights (2, clusters, n), and adds to given (clusters, 2,
 * dim). At least one row is dropped. */
void TESS_K(tess__attn_cluster_keys)(const tess__attn_bwd *job, float *dq, int64_t stride_dq,
                                     float *weights, float *given, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const size_t n = (size_t)t->n, dim = (size_t)t->dim, wide = (size_t)tess__wide(t->dim);
    int of[TESS_CLUSTERS_MAX];
    float dropped[TESS_CLUSTERS_MAX];
    TESS_K(tess__attn_cluster_sums)(t, w->sum, w->count, w);
    const int m = clusters_finish(t, w, of, dropped);
    prepare(job, w);
    gemm_scores(w->st, w->kp, m, w->qt, t->n, t->dim, NULL, 0.0f);
    gemm_scores(w->dt, w->vp, m, w->gt, t->n, t->dim, NULL, 0.0f);
    for (int i = 0; i < m; i++) {
        const float bias = log2f(dropped[i]);
        for (int q = 0; q < t->n; q++)
            w->st[(size_t)i * TESS_SCORE_LD + (size_t)q] += bias;
    }
    softmax_gradient(t, w, m);
    memset(w->acc, 0, n * wide * sizeof(float));
    add_queries(t, w->dt, w, m);
    for (size_t q = 0; q < n; q++)
        for (size_t d = 0; d < dim; d++)
            dq[tess__query_row(t, (int)q) * stride_dq + (int64_t)d] =
                t->scale * w->acc[q * wide + d];

    memset(weights, 0, 2 * (size_t)t->clusters * n * sizeof *weights);
    for (int i = 0; i < m + TESS_SPARE; i++) {
        w->dkp[i] = i < m ? given + (size_t)of[i] * 2 * dim : w->spare;
        w->dvp[i] = i < m ? w->dkp[i] + dim : w->spare;
        if (i >= m)
            continue;
        float *p = w->st + (size_t)i * TESS_SCORE_LD, *g = w->dt + (size_t)i * TESS_SCORE_LD;
        const float fraction = 1.0f / dropped[i];
        for (size_t q = 0; q < n; q++) {
            p[q] *= fraction;
            g[q] *= fraction;
        }
        memcpy(weights + (size_t)of[i] * n, p, n * sizeof *p);
        memcpy(weights + (size_t)(t->clusters + of[i]) * n, g, n * sizeof *g);
    }
    add_rows(t, w->st, w->gn, m, w->start, w->dvp);
    add_rows(t, w->dt, w->qn, m, w->start, w->dkp);
}

void TESS_K(tess__attn_backward)(const tess__attn_bwd *job, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const size_t size = (size_t)t->n * (size_t)tess__wide(t->dim);
    /* They are wanted in the order of keys, which no hardware prefetcher guesses. */
    for (int i = 0; job->weights && i < 2 * t->clusters * t->n; i += 16)
        v_prefetch(job->weights + i);
    prepare(job, w);
    memset(w->acc, 0, size * sizeof(float));

    key_cursor at = keys_start(&t->keys);
    int n;
    while ((n = keys_next(&t->keys, &at, w->rows)) > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        gradient_pointers(job, w, n);
        gemm_scores(w->st, w->kp, n, w->qt, t->n, t->dim, NULL, 0.0f);
        gemm_scores(w->dt, w->vp, n, w->gt, t->n, t->dim, NULL, 0.0f);
        if (job->weights)
            softmax_take_back(job, w, n);
        else
            softmax_gradient(t, w, n);
        add_rows(t, w->st, w->gn, n, w->start + tess__wide(t->dim), w->dvp);
        add_rows(t, w->dt, w->qn, n, w->start, w->dkp);
        add_queries(t, job->weights ? w->bt : w->dt, w, n);
    }
    /* dQ was summed without the scale, which belongs to every term. */
    const vf scale = vf_set1(t->scale);
    for (size_t i = 0; i < size; i += VL)
        vf_store(w->acc + i, scale * vf_load(w->acc + i));
}
