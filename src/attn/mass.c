/* SPDX-License-Identifier: Apache-2.0 */
/* mass.c - softmax mass of key units over a group of queries, without a matrix of scores.
 *
 *   lse_i  = log2 sum over all keys j of 2^(scale2 q_i k_j)            pass 1, unless it is given
 *   mass_u = sum over queries i of the group and keys j of unit u of 2^(scale2 q_i k_j - lse_i)
 *
 * Both passes go over tiles of 64 queries by 256 keys, whose scores stay in the second-level cache.
 * A query whose lse is not finite (NaN or infinite inputs) is set apart with lse = +inf, so that it
 * adds 0 everywhere.
 *
 * Flop: 2 n tokens dim per pass. Memory: one tile. The order of all sums is fixed by the shapes.
 */
#include "select_internal.h"

#include <math.h>
#include <string.h>

void tess__mass_pack(const tess__kernels *kernels, float *panels, const tess_view *k, int64_t b,
                     int64_t h, int64_t tokens, int dim)
{
    const int64_t n_panels = (tokens + TESS_PANEL - 1) / TESS_PANEL;
#pragma omp for schedule(static)
    for (int64_t p = 0; p < n_panels; p++) {
        const int64_t at = p * TESS_PANEL, left = tokens - at;
        kernels->panel_pack(panels + (size_t)at * (size_t)dim, tess__view_row(k, b, h, at),
                            k->stride_s, left < TESS_PANEL ? (int)left : TESS_PANEL, dim);
    }
}

/* Scores of rows queries against the keys of the tile that begins at key j; returns its keys. */
static int score_tile(const tess__mass_keys *keys, const float *q, int64_t stride, int rows,
                      int64_t j, const tess__scratch *w)
{
    const int64_t left = keys->tokens - j;
    const int n = left < TESS__TILE_K ? (int)left : TESS__TILE_K;
    keys->kernels->score(w->tile, TESS__TILE_LD, q, stride, rows,
                         keys->panels + (size_t)j * (size_t)keys->dim,
                         (n + TESS_PANEL - 1) / TESS_PANEL, keys->dim);
    return n;
}

static void compute_lse2(const tess__mass_keys *keys, const float *q, int64_t stride, int rows,
                         const tess__scratch *w, float lse2[TESS__TILE_Q])
{
    float m[TESS__TILE_Q], l[TESS__TILE_Q];
    for (int i = 0; i < rows; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
    }
    for (int64_t j = 0; j < keys->tokens; j += TESS__TILE_K) {
        const int n = score_tile(keys, q, stride, rows, j, w);
        keys->kernels->lse_step(m, l, w->tile, TESS__TILE_LD, rows, n, keys->scale2);
    }
    for (int i = 0; i < rows; i++)
        lse2[i] = m[i] + log2f(l[i]);
}

/* Adds the masses of n keys from key j to those of their units; *u is the unit of key j. */
static void fold(const tess__mass_keys *keys, const float *key_mass, int64_t j, int n, float *mass,
                 int32_t *u)
{
    for (int i = 0; i < n; i++) {
        *u += j + i >= keys->bounds[*u + 1];
        mass[*u] += key_mass[i];
    }
}

static void add_mass(const tess__mass_keys *keys, const float *q, int64_t stride, int rows,
                     const float *lse2, const tess__scratch *w, float *mass)
{
    const int single = keys->n_k == keys->tokens;
    int32_t u = 0;
    for (int64_t j = 0; j < keys->tokens; j += TESS__TILE_K) {
        const int n = score_tile(keys, q, stride, rows, j, w);
        float *to = single ? mass + j : w->mass;
        if (!single)
            memset(to, 0, sizeof *to * (size_t)n);
        keys->kernels->mass_step(to, w->tile, TESS__TILE_LD, rows, n, keys->scale2, lse2);
        if (!single)
            fold(keys, to, j, n, mass, &u);
    }
}

int64_t tess__mass_group(const tess__mass_keys *keys, const float *q, int64_t stride, int64_t n,
                         const float *lse, const tess__scratch *w, float *mass)
{
    int64_t counted = 0;
    memset(mass, 0, sizeof *mass * (size_t)keys->n_k);
    for (int64_t i = 0; i < n; i += TESS__TILE_Q) {
        const int rows = n - i < TESS__TILE_Q ? (int)(n - i) : TESS__TILE_Q;
        float lse2[TESS__TILE_Q];
        if (lse)
            for (int r = 0; r < rows; r++)
                lse2[r] = lse[i + r] * (float)M_LOG2E;
        else
            compute_lse2(keys, q + i * stride, stride, rows, w, lse2);
        for (int r = 0; r < rows; r++) {
            counted += isfinite(lse2[r]) != 0;
            lse2[r] = isfinite(lse2[r]) ? lse2[r] : INFINITY;
        }
        add_mass(keys, q + i * stride, stride, rows, lse2, w, mass);
    }
    return counted;
}

void tess__mass_row(const tess__mass_keys *keys, const float *scores, const tess__scratch *w,
                    float *mass)
{
    float max = -INFINITY;
    for (int64_t j = 0; j < keys->tokens; j++)
        max = TESS_MAX(scores[j], max);
    const float shift = isfinite(max) ? max * keys->scale2 : 0.0f;
    int32_t u = 0;
    memset(mass, 0, sizeof *mass * (size_t)keys->n_k);
    for (int64_t j = 0; j < keys->tokens; j += TESS__TILE_K) {
        const int64_t left = keys->tokens - j;
        const int n = left < TESS__TILE_K ? (int)left : TESS__TILE_K;
        memset(w->mass, 0, sizeof *w->mass * (size_t)n);
        keys->kernels->mass_step(w->mass, scores + j, 0, 1, n, keys->scale2, &shift);
        fold(keys, w->mass, j, n, mass, &u);
    }
}

/* Sorts n floats that are 0 or more, as their bits, largest first: three stable passes over 11
 * bits each, between the two halves of w->sort. Returns the sorted half. */
static const uint32_t *sort_down(const float *mass, int32_t n, const tess__scratch *w)
{
    enum { BITS = 11, BINS = 1 << BITS };
    uint32_t *from = w->sort, *to = w->sort + n;
    memcpy(from, mass, sizeof *from * (size_t)n);
    for (int shift = 0; shift < 32; shift += BITS) {
        int32_t start[BINS + 1] = {0};
        for (int32_t i = 0; i < n; i++)
            start[BINS - (from[i] >> shift) % BINS]++;
        for (int b = 1; b <= BINS; b++)
            start[b] += start[b - 1];
        for (int32_t i = 0; i < n; i++)
            to[start[BINS - 1 - (from[i] >> shift) % BINS]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static double mass_at(const uint32_t *sorted, int32_t i)
{
    float x;
    memcpy(&x, sorted + i, sizeof x);
    return (double)x;
}

/* The sum of all, from the largest down. */
static double sum_down(const uint32_t *sorted, int32_t n)
{
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        sum += mass_at(sorted, i);
    return sum;
}

int32_t tess__mass_count(const float *mass, int32_t n, double share, const tess__scratch *w)
{
    const uint32_t *sorted = sort_down(mass, n, w);
    const double total = sum_down(sorted, n);
    double sum = 0.0;
    int32_t k = 0;
    while (k < n && (k == 0 || sum < share * total))
        sum += mass_at(sorted, k++);
    return k;
}

double tess__mass_top(const float *mass, int32_t n, int32_t k, const tess__scratch *w)
{
    const uint32_t *sorted = sort_down(mass, n, w);
    const double total = sum_down(sorted, n);
    return total > 0.0 ? sum_down(sorted, k) / total : 0.0;
}
