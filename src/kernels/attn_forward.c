/* SPDX-License-Identifier: Apache-2.0 */
/* attn_forward.c - attention of one tile of queries over a list of keys.
 *
 *   S = scale * log2(e) * K Q^T,  P = 2^(S - m),  O = P^T V / l,  lse = (m + log2 l) / log2(e)
 *
 * Scores are kept by key: S[i][q] is key i of the chunk and query q of the tile. So a key's row is
 * only ever broadcast from where it lies (no gather, no transpose of K), the softmax runs down the
 * columns without a horizontal operation, and P is already the operand that the second product
 * broadcasts. V's rows are copied into panels, one at a time, which costs one copy per n queries.
 * The softmax is the online one: m and l are the running maximum and sum of each query, and O is
 * rescaled when m grows. A tile that sees no key gets O = 0 and lse = -inf.
 *
 * Where the list leaves keys out and the tile asks for it, a virtual key comes last
 * (virtual_key.h): the list's rows are summed chunk by chunk while they are in the cache, so its
 * place is the end of the last chunk. Where keys have clusters, the list is walked in their order,
 * and a chunk of virtual keys, one for each cluster, comes last (cluster_keys.h).
 *
 * Work: 4 n D flop and 8 D bytes per key, 2 D more for the sums. Scratch: attn_tile.h.
 */
#include "attn_tile.h"
#include "cluster_keys.h"
#include "entries.h"
#include "gemm.h"
#include "keys.h"
#include "virtual_key.h"

#include <math.h>

enum { PREFETCH_LEAST = 32 };        /* queries, for prefetching to be next to nothing */
static const float M_START = -1e30f; /* below every score, and finite: m - m is never NaN */

/* Multiplies row q of the output by 2^(m_old - m_new), left in w->top by softmax(). */
static void rescale(const tess__attn_tile *t, tess__attn_scratch *w)
{
    for (int q = 0; q < t->n; q++) {
        if (w->top[q] == 1.0f)
            continue;
        const vf a = vf_set1(w->top[q]);
        float *o = w->acc + (size_t)q * (size_t)tess__wide(t->dim);
        for (int d = 0; d < t->dim; d += VL)
            vf_store(o + d, a * vf_load(o + d));
    }
}

/* S becomes P; m and l take the chunk in; w->top becomes the factor of what was summed before. */
static void softmax(const tess__attn_tile *t, tess__attn_scratch *w, int n)
{
    for (int q = 0; q < t->n; q += VL) {
        const vf m_old = vf_load(w->m + q), m = vf_max(m_old, vf_load(w->top + q));
        const vf factor = vf_exp2(m_old - m);
        vf sum = {0};
        float *s = w->st + q;
        for (int i = 0; i < n; i++, s += TESS_SCORE_LD) {
            const vf p = vf_exp2(vf_load(s) - m);
            vf_store(s, p);
            sum += p;
        }
        vf_store(w->l + q, vf_load(w->l + q) * factor + sum);
        vf_store(w->m + q, m);
        vf_store(w->top + q, factor);
    }
}

/* l is 0 only where there was no key; a NaN among the scores is in l, and reaches o and lse. */
static void finish(const tess__attn_fwd *job, const tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    for (int q = 0; q < t->n; q++) {
        const float l = w->l[q], inverse = 1.0f / l;
        const int64_t row = tess__query_row(t, q);
        float *o = job->o + row * job->stride_o;
        const float *acc = w->acc + (size_t)q * (size_t)tess__wide(t->dim);
        for (int d = 0; d < t->dim; d++)
            o[d] = l != 0.0f ? acc[d] * inverse : 0.0f;
        if (job->lse)
            job->lse[row] = l != 0.0f ? (w->m[q] + log2f(l)) * (float)M_LN2 : -INFINITY;
    }
}

/* Points at the chunk's n rows, takes them into the sums, and puts the virtual key behind the last
 * of them. Returns how many keys that makes. */
static int chunk_pointers(const tess__attn_tile *t, tess__attn_scratch *w, int n, int sum, int last)
{
    if (n > 0) {
        key_pointers(w->kp, &t->k, w->rows, n, t->dim, t->bf16, w->kf);
        key_pointers(w->vp, &t->v, w->rows, n, t->dim, t->bf16, w->vf);
        if (t->keys.units && !t->bf16 && t->n >= PREFETCH_LEAST) {
            prefetch_keys(w->kp, n, t->dim);
            prefetch_keys(w->vp, n, t->dim);
        }
    }
    if (sum)
        virtual_add(t, w, n);
    if (!last || t->dropped == 0)
        return n;
    virtual_finish(t, w->sum, w);
    for (int i = n; i <= n + TESS_SPARE; i++) {
        w->kp[i] = w->mean;
        w->vp[i] = w->mean + tess__wide(t->dim);
    }
    return n + 1;
}

/* Takes the n keys to which w->kp and w->vp point into the softmax and the output. Those from
 * `first` on are virtual, and bias is what their scores get: a virtual key's is that of as many
 * keys as were dropped. The maximum that the softmax subtracts is left without this, which costs
 * nothing: 2^31 is far from the end of the range. */
static void take_keys(const tess__attn_tile *t, tess__attn_scratch *w, int n, int first,
                      const float *bias)
{
    gemm_scores(w->st, w->kp, n, w->qt, t->n, t->dim, w->top, M_START);
    for (int i = first; i < n; i++)
        for (int q = 0; q < t->n; q += VL) {
            float *s = w->st + (size_t)i * TESS_SCORE_LD + q;
            vf_store(s, vf_load(s) + vf_set1(bias[i - first]));
        }
    softmax(t, w, n);
    rescale(t, w);
    gemm_output(w->acc, w->st, n, w->vp, w->panel, t->n, t->dim);
}

/* The list in the order of clusters, and then a virtual key for each. */
static void walk_clusters(const tess__attn_tile *t, tess__attn_scratch *w)
{
    cluster_cursor at;
    int n, of[TESS_CLUSTERS_MAX];
    float dropped[TESS_CLUSTERS_MAX];
    clusters_start(t, w, &at);
    while ((n = clusters_next(t, w, &at)) > 0) {
        chunk_pointers(t, w, n, 0, 0);
        clusters_add(t, w, &at, w->sum, n);
        take_keys(t, w, n, n, NULL);
    }
    n = clusters_finish(t, w, of, dropped);
    for (int i = 0; i < n; i++)
        dropped[i] = log2f(dropped[i]);
    take_keys(t, w, n, 0, dropped);
}

static void walk_list(const tess__attn_tile *t, tess__attn_scratch *w)
{
    key_cursor at = keys_start(&t->keys);
    const int sum = virtual_start(t, w);
    const float bias = t->dropped > 0 ? log2f((float)t->dropped) : 0.0f;
    int n, done = 0;
    while (!done) {
        n = keys_next(&t->keys, &at, w->rows);
        done = n < TESS_CHUNK;
        n = chunk_pointers(t, w, n, sum, done);
        if (n == 0)
            break;
        take_keys(t, w, n, done && t->dropped > 0 ? n - 1 : n, &bias);
    }
}

void TESS_K(tess__attn_forward)(const tess__attn_fwd *job, tess__attn_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    pack_gathered(w->qt, t->q.data, t->q.stride, t->rows, t->n, t->dim, t->scale * (float)M_LOG2E,
                  w->qn);
    for (int q = 0; q < t->n; q += VL) {
        vf_store(w->m + q, vf_set1(M_START));
        vf_store(w->l + q, (vf){0});
    }
    memset(w->acc, 0, (size_t)t->n * (size_t)tess__wide(t->dim) * sizeof(float));

    if (t->clusters > 0 && t->dropped > 0)
        walk_clusters(t, w);
    else
        walk_list(t, w);
    finish(job, w);
}
