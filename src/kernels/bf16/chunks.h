/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - a tile's list of keys as groups of 32, in chunks of 8, and rows of a tile in bf16.
 *
 * Where the keys of a head are packed as blocks, a group is where it lies; single rows are gathered
 * into blocks. A row's group depends on its place in the list alone.
 */
#ifndef TESS_CHUNKS_H
#define TESS_CHUNKS_H

#include "bf16.h"
#include "blocks.h"

/* n groups, the last of which has `left` keys; the rest of it are zeros. */
typedef struct {
    int n, left, keys;
    const uint16_t *k[TESS_BF16_CHUNK], *v[TESS_BF16_CHUNK], *t[TESS_BF16_CHUNK];
} chunk;

/* Floats as bf16, to nearest, ties to even; a NaN stays one. The instruction makes denormals zeros,
 * as those that multiply do. */
VINLINE void narrow_row(uint16_t *out, const float *x, int n, int wide)
{
    int d = 0;
#if defined(__AVX512BF16__)
    for (; d + BLOCK <= n; d += BLOCK)
        words_store(out + d,
                    (vi)_mm512_cvtne2ps_pbh((__m512)vf_load(x + d + VL), (__m512)vf_load(x + d)));
#endif
    for (; d < n; d++) {
        uint32_t bits;
        memcpy(&bits, x + d, sizeof bits);
        const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        out[d] =
            (uint16_t)((int32_t)(bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
    }
    memset(out + n, 0, (size_t)(wide - n) * sizeof *out);
}

/* Pointers to 32 rows in bf16, which is in `stage` if it is not so already; rows past n are zeros
 * there. */
static inline void stage_rows(const uint16_t **out, uint16_t *stage, const void *x, int bf16,
                              int64_t stride, const int32_t *numbers, int n, int dim)
{
    const int wide = tess__wide(dim);
    for (int i = 0; i < BLOCK; i++) {
        const int64_t at = (numbers && i < n ? numbers[i] : i) * stride;
        uint16_t *to = stage + (ptrdiff_t)i * wide;
        out[i] = to;
        if (i >= n) {
            memset(to, 0, (size_t)wide * sizeof *to);
        } else if (!bf16) {
            narrow_row(to, (const float *)x + at, dim, wide);
        } else if (dim == wide) {
            out[i] = (const uint16_t *)x + at;
        } else {
            memcpy(to, (const uint16_t *)x + at, (size_t)dim * sizeof *to);
            memset(to + dim, 0, (size_t)(wide - dim) * sizeof *to);
        }
    }
}

/* The next rows of a list, a chunk's at most; 0 at the end. */
static inline int chunk_rows(const tess__key_list *list, tess__key_cursor *at, int32_t *rows)
{
    enum { MOST = TESS_BF16_CHUNK * TESS_BF16_GROUP };
    int n = 0;
    if (!list->units || !list->bounds) {
        const int64_t left = list->units ? list->n - at->unit : list->end - at->row;
        n = left < MOST ? (int)left : MOST;
        for (int i = 0; i < n; i++)
            rows[i] = list->units ? list->units[at->unit + i] : (int32_t)(at->row + i);
        at->unit += n;
        at->row += n;
        return n;
    }
    while (n < MOST && at->unit < list->n) {
        const int64_t *unit = list->bounds + list->units[at->unit];
        int64_t row = at->row < 0 ? unit[0] : at->row;
        while (n < MOST && row < unit[1])
            rows[n++] = (int32_t)row++;
        at->row = row < unit[1] ? row : -1;
        at->unit += at->row < 0;
    }
    return n;
}

VINLINE tess__key_cursor chunk_start(const tess__key_list *list)
{
    return (tess__key_cursor){0, list->units ? -1 : list->begin};
}

/* Gathers a group whose rows lie side by side: k to key[0]; v to key[1], transposed (forward) or
 * not; k transposed to key[2] (backward). */
static inline void gather_group(const uint16_t *from, const int32_t *numbers, int64_t first, int n,
                                int backward, const uint16_t *zeros, uint16_t *k, uint16_t *v,
                                uint16_t *kt, int wide)
{
    const uint16_t *kr[BLOCK], *vr[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        const uint16_t *row = i < n ? from + (numbers[i] - first) * 2 * wide : zeros;
        kr[i] = row;
        vr[i] = i < n ? row + wide : zeros;
    }
    for (int d = 0; d < wide; d += BLOCK) {
        block_rows(k + (ptrdiff_t)d * BLOCK, kr, d);
        if (backward) {
            block_rows(v + (ptrdiff_t)d * BLOCK, vr, d);
            block_columns(kt + (ptrdiff_t)d * BLOCK, kr, d);
        } else {
            block_columns(v + (ptrdiff_t)d * BLOCK, vr, d);
        }
    }
}

/* The next chunk; n is 0 at the end. */
static inline void chunk_next(chunk *c, const tess__attn_tile *t, const tess__bf16_keys *keys,
                              int backward, tess__key_cursor *at, tess__bf16_scratch *w)
{
    const int wide = tess__wide(t->dim);
    const ptrdiff_t size = (ptrdiff_t)BLOCK * wide;
    c->keys = chunk_rows(&t->keys, at, w->rows);
    c->n = (c->keys + BLOCK - 1) / BLOCK;
    c->left = c->keys - (c->n - 1) * BLOCK;
    for (int g = 0; g < c->n; g++) {
        const int32_t *numbers = w->rows + (ptrdiff_t)g * BLOCK;
        if (!keys->rows) {
            const ptrdiff_t from = (numbers[0] - keys->first) / BLOCK * size;
            c->k[g] = keys->k + from;
            c->v[g] = (backward ? keys->v : keys->vt) + from;
            c->t[g] = backward ? keys->kt + from : NULL;
            continue;
        }
        uint16_t *k = w->gathered + g * size, *v = k + TESS_BF16_CHUNK * size;
        uint16_t *kt = v + TESS_BF16_CHUNK * size;
        memset(w->stage, 0, (size_t)wide * sizeof *w->stage);
        gather_group(keys->rows, numbers, keys->first, g == c->n - 1 ? c->left : BLOCK, backward,
                     w->stage, k, v, kt, wide);
        c->k[g] = k;
        c->v[g] = v;
        c->t[g] = kt;
    }
}

/* Rows from `left` on of a block of scores are those of no key. */
VINLINE void mask_rows(float *s, int left)
{
    for (int i = left * BLOCK; i < BLOCK * BLOCK; i += VL)
        vf_store(s + i, vf_set1(-1e30f));
}

/* Weights end at 2^-100: products with denormals would be 0 where tiles multiply. */
static const float EXP_LEAST = -100.0f;

/* 2^x to 1e-4, by a polynomial of degree 3 of the fraction; below EXP_LEAST it may be 0. half is
 * added to the mantissa, which is in [1, 2): 2^-8 rounds what is cut to bf16 afterwards. */
VINLINE vf bf16_exp2(vf x, float half)
{
    const vf c0 = vf_set1(0.9998119f + half);
#if defined(__AVX512DQ__)
    const vf f = (vf)_mm512_reduce_ps((__m512)x, 1);
    vf p = vf_set1(0.0790204f) * f + vf_set1(0.2241254f);
    p = p * f + vf_set1(0.6967559f);
    p = p * f + c0;
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    x = vf_max(vf_set1(EXP_LEAST), x);
    const vf magic = vf_set1(12582912.0f + 127.0f);
    const vf n = (x - vf_set1(0.5f)) + magic;
    const vf f = x - (n - magic);
    vf p = vf_set1(0.0790204f) * f + vf_set1(0.2241254f);
    p = p * f + vf_set1(0.6967559f);
    p = p * f + c0;
    return p * (vf)((vi)n << 23);
#endif
}

/* a and b cut to bf16, side by side. */
VINLINE vi cut_pairs(vf a, vf b)
{
#if defined(__AVX512BW__)
    return (vi)_mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32((__m512i)a, 16), (__m512i)b);
#else
    return high_pairs((vi)a, (vi)b);
#endif
}

/* sum + both halves of the pairs. */
VINLINE vf add_pairs(vf sum, vi pairs)
{
#if defined(__AVX512BF16__)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pairs,
                                (__m512bh)_mm512_set1_epi32(0x3f803f80));
#else
    return sum + (vf)(pairs << 16) + (vf)(pairs & vi_set1(-65536));
#endif
}

#endif
