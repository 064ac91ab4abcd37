/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - scores of a few queries against all keys, and what a softmax over them needs.
 *
 *   panel_pack:  keys (n, dim) -> panels (ceil(n / 16), dim, 16), the last one filled with zeros
 *   score:       S = Q K^T, rows x 16 * panels
 *   lse_step:    m, l = the running maximum and sum of 2^(scale2 S - m), one pair per row
 *   mass_step:   mass_j += sum over rows of 2^(scale2 S_ij - lse2_i)
 *
 * A panel holds 16 keys with each dimension's 16 values side by side, so that a score row comes
 * out in whole vectors. MR rows share every load of a panel: MR * NV accumulators, NV loads and MR
 * broadcasts per dimension. Each score is one chain of multiply-adds over the dimensions in
 * ascending order, whatever the block it falls into: its bits do not depend on its neighbours.
 *
 * Flop: score 2 * rows * n * dim. Bytes: score reads the panels once for all rows as long as the
 * rows' queries stay in the first-level cache, and writes 4 * rows * n.
 */
#include "entries.h"
#include "vec.h"

#include <math.h>

enum {
    NV = TESS_PANEL / VL, /* vectors across a panel */
    MR = NV == 1   ? 12
         : NV == 2 ? 6
                   : 3 /* rows of a register block */
};

void TESS_K(tess__panel_pack)(float *panels, const float *k, int64_t stride, int n, int dim)
{
    for (int j0 = 0; j0 < n; j0 += TESS_PANEL, panels += TESS_PANEL * dim) {
        const int here = n - j0 < TESS_PANEL ? n - j0 : TESS_PANEL;
        for (int j = 0; j < here; j++)
            for (int d = 0; d < dim; d++)
                panels[d * TESS_PANEL + j] = k[(j0 + j) * stride + d];
        for (int j = here; j < TESS_PANEL; j++)
            for (int d = 0; d < dim; d++)
                panels[d * TESS_PANEL + j] = 0.0f;
    }
}

/* One panel against mr rows; mr is a constant where this is inlined. */
VINLINE void score_block(float *s, int64_t ld, const float *q, int64_t stride, int mr,
                         const float *panel, int dim)
{
    vf c[MR][NV];
    VUNROLL
    for (int i = 0; i < mr; i++)
        VUNROLL
    for (int n = 0; n < NV; n++)
        c[i][n] = (vf){0};
    for (int d = 0; d < dim; d++) {
        vf b[NV];
        VUNROLL
        for (int n = 0; n < NV; n++)
            b[n] = vf_load(panel + d * TESS_PANEL + n * VL);
        VUNROLL
        for (int i = 0; i < mr; i++) {
            const vf a = vf_set1(q[i * stride + d]);
            VUNROLL
            for (int n = 0; n < NV; n++)
                c[i][n] += a * b[n];
        }
    }
    VUNROLL
    for (int i = 0; i < mr; i++)
        VUNROLL
    for (int n = 0; n < NV; n++)
        vf_store(s + i * ld + n * VL, c[i][n]);
}

void TESS_K(tess__score)(float *s, int64_t ld, const float *q, int64_t stride, int rows,
                         const float *panels, int64_t n_panels, int dim)
{
    for (int64_t p = 0; p < n_panels; p++) {
        const float *panel = panels + p * TESS_PANEL * dim;
        float *to = s + p * TESS_PANEL;
        for (int i = 0; i < rows && rows < MR; i++)
            score_block(to + i * ld, ld, q + i * stride, stride, 1, panel, dim);
        /* The last block moves back over rows that are done: they get the same bits again. */
        for (int i = 0; i < rows && rows >= MR; i += MR) {
            const int at = i < rows - MR ? i : rows - MR;
            score_block(to + at * ld, ld, q + at * stride, stride, MR, panel, dim);
        }
    }
}

/* The scores a row of n ends with, others -inf. */
VINLINE vf load_tail(const float *s, int n)
{
    float tail[VL];
    for (int i = 0; i < VL; i++)
        tail[i] = i < n ? s[i] : -INFINITY;
    return vf_load(tail);
}

/* x where it does not exceed the bound; NaN stays. */
VINLINE vf at_most(vf x, float bound)
{
    const vi beyond = x > vf_set1(bound);
    return (vf)(((vi)x & ~beyond) | ((vi)vf_set1(bound) & beyond));
}

/* 2^(scale s - max), max being the largest rounded product: at most 1. A fused product of huge
 * scores may exceed it by its rounding. */
VINLINE vf term_of(vf s, vf scale, vf max)
{
    return vf_exp2(at_most(s * scale - max, 0.0f));
}

/* A NaN among the scores makes the sum NaN, and a row that saw only -inf keeps m = -inf, l = 0. */
void TESS_K(tess__lse_step)(float *m, float *l, const float *s, int64_t ld, int rows, int n,
                            float scale2)
{
    const vf scale = vf_set1(scale2);
    for (int i = 0; i < rows; i++, s += ld) {
        vf top = vf_set1(-INFINITY);
        int j = 0;
        for (; j + VL <= n; j += VL)
            top = vf_max(top, vf_load(s + j));
        if (j < n)
            top = vf_max(top, load_tail(s + j, n - j));
        float max = m[i];
        for (int e = 0; e < VL; e++)
            max = top[e] * scale2 > max ? top[e] * scale2 : max;
        if (max == -INFINITY) {
            for (j = 0; j < n; j++)
                l[i] += s[j] != s[j] ? s[j] : 0.0f;
            continue;
        }
        const vf shift = vf_set1(max);
        vf sum = {0};
        for (j = 0; j + VL <= n; j += VL)
            sum += term_of(vf_load(s + j), scale, shift);
        if (j < n)
            sum += term_of(load_tail(s + j, n - j), scale, shift);
        l[i] = (m[i] == -INFINITY ? l[i] : l[i] * exp2f(m[i] - max)) + vf_sum(sum);
        m[i] = max;
    }
}

/* 2^x up to 2^64, 0 below 2^-126 and where x is NaN: mass that a stale lse misjudges stays finite
 * when summed. */
VINLINE vf mass_of(vf x)
{
    const vi some = x >= vf_set1(-126.0f);
    return (vf)((vi)vf_exp2(at_most(x, 64.0f)) & some);
}

void TESS_K(tess__mass_step)(float *mass, const float *s, int64_t ld, int rows, int n, float scale2,
                             const float *lse2)
{
    const vf scale = vf_set1(scale2);
    int j = 0;
    for (; j + VL <= n; j += VL) {
        vf sum = {0};
        for (int i = 0; i < rows; i++)
            sum += mass_of(vf_load(s + i * ld + j) * scale - vf_set1(lse2[i]));
        vf_store(mass + j, vf_load(mass + j) + sum);
    }
    if (j == n)
        return;
    vf sum = {0};
    for (int i = 0; i < rows; i++)
        sum += mass_of(load_tail(s + i * ld + j, n - j) * scale - vf_set1(lse2[i]));
    for (int e = 0; j + e < n; e++)
        mass[j + e] += sum[e];
}
