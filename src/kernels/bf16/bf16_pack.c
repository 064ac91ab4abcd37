/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_pack.c - keys of a head as blocks or rows of bf16; the rate of the products.
 *
 * Bytes: 8 D (or 4 D from bf16) read and 4 to 6 D written for each key.
 */
#include "bf16_entries.h"
#include "chunks.h"

static float squared(const uint16_t *x, int wide)
{
    vf sum = {0};
    for (int d = 0; d < wide; d += 32) {
        const vi pairs = words_load(x + d);
        const vf low = (vf)(pairs << 16), high = (vf)(pairs & vi_set1(-65536));
        sum += low * low + high * high;
    }
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)sum);
#else
    return vf_sum(sum);
#endif
}

/* NaN counts as infinite: neither has a bound. */
static float larger(float most, float x)
{
    return x <= most ? most : x <= 3e38f ? x : INFINITY;
}

float TESS_K(tess__bf16_norm)(const float *x, int64_t stride, int64_t n, int dim)
{
    uint16_t row[TESS_DIM_MAX];
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        narrow_row(row, x + i * stride, dim, tess__wide(dim));
        most = larger(most, squared(row, tess__wide(dim)));
    }
    return most;
}

static const void *row_at(const tess__rows *x, int bf16, int64_t row)
{
    const int64_t at = row * x->stride;
    return bf16 ? (const void *)((const uint16_t *)x->data + at)
                : (const void *)((const float *)x->data + at);
}

void TESS_K(tess__bf16_pack)(const tess__attn_tile *t, int64_t first, int64_t n, uint16_t *k,
                             uint16_t *v, uint16_t *kt, uint16_t *vt, uint16_t *rows, float *norm,
                             tess__bf16_scratch *w)
{
    const int wide = tess__wide(t->dim);
    const ptrdiff_t size = (ptrdiff_t)BLOCK * wide;
    float most = 0.0f;
    for (int64_t i = 0; i < n; i += BLOCK) {
        const uint16_t *kr[BLOCK], *vr[BLOCK];
        const int left = n - i < BLOCK ? (int)(n - i) : BLOCK;
        const ptrdiff_t to = i / BLOCK * size;
        stage_rows(kr, w->stage, row_at(&t->k, t->bf16, first + i), t->bf16, t->k.stride, NULL,
                   left, t->dim);
        stage_rows(vr, w->stage + size, row_at(&t->v, t->bf16, first + i), t->bf16, t->v.stride,
                   NULL, left, t->dim);
        for (int r = 0; norm && r < left; r++)
            most = larger(most, squared(kr[r], wide));
        for (int r = 0; rows && r < left; r++) {
            memcpy(rows + (i + r) * 2 * wide, kr[r], (size_t)wide * sizeof *rows);
            memcpy(rows + ((i + r) * 2 + 1) * wide, vr[r], (size_t)wide * sizeof *rows);
        }
        for (int d = 0; d < wide; d += BLOCK) {
            const ptrdiff_t at = to + (ptrdiff_t)d * BLOCK;
            if (k)
                block_rows(k + at, kr, d);
            if (v)
                block_rows(v + at, vr, d);
            if (kt)
                block_columns(kt + at, kr, d);
            if (vt)
                block_columns(vt + at, vr, d);
        }
    }
    if (norm)
        *norm = most;
}

int64_t TESS_K(tess__bf16_rate)(int64_t rounds, float *sink)
{
    _Alignas(64) uint16_t a[BLOCK_SIZE], b[BLOCK_SIZE];
    _Alignas(64) float c[BLOCK_SIZE];
    /* Numbers near +-1, whose sums stay small: multipliers use less power on zeros, and are then
     * faster than they are on data. */
    for (int i = 0; i < BLOCK_SIZE; i++) {
        a[i] = (uint16_t)(0x3f80 + (i * 37 & 0x7f));
        b[i] = (uint16_t)((i & 1 ? 0xbf80 : 0x3f80) + (i * 53 & 0x7f));
        c[i] = (float)i; /* equal sums would be computed once */
    }
    products_begin();
    const int64_t flop = products_rate(rounds, a, b, c);
    products_end();
    /* All sums are used: compilers leave out those that are not, and one chain of sums measures the
     * latency of the instruction. */
    vf sum = {0};
    for (int i = 0; i < BLOCK_SIZE; i += VL)
        sum += vf_load(c + i);
    *sink += 0.0f * vf_sum(sum);
    return flop;
}
