/* SPDX-License-Identifier: Apache-2.0 */
/* products_mmla.h - products of bf16 blocks by BFMMLA of ARM: two rows by two columns, four terms.
 *
 * A register block is 8 rows by 8 columns of C: 16 sums, each [r][c] [r][c+1] [r+1][c] [r+1][c+1].
 * Eight terms of a row of A are one load, and 64-bit halves of two rows side by side are an
 * operand; pairs p and p + 1 of a column of B become one by interleaving 32-bit words. For eight
 * terms: 16 loads, 16 such steps, 32 instructions of 32 flop. The instruction rounds its sums of
 * pairs to odd and takes denormals for 0.
 */
#ifndef TESS_PRODUCTS_MMLA_H
#define TESS_PRODUCTS_MMLA_H

#include <arm_neon.h>

enum { SIDE = 8, SUMS = SIDE / 2 }; /* of a register block, in elements and in sums */

VINLINE bfloat16x8_t mmla_terms(uint64x2_t x)
{
    return vreinterpretq_bf16_u64(x);
}

/* Sums of rows r and r + 1, columns c .. c + 3, and those rows: each way the same exchange. */
VINLINE void mmla_exchange(float32x4_t *x, float32x4_t *y)
{
    const uint64x2_t a = vreinterpretq_u64_f32(*x), b = vreinterpretq_u64_f32(*y);
    *x = vreinterpretq_f32_u64(vzip1q_u64(a, b));
    *y = vreinterpretq_f32_u64(vzip2q_u64(a, b));
}

/* Adds eight terms: a at the first of them in the block's first row (rows 32 apart), b at their
 * first pair in its first column (pairs 32 apart). */
VINLINE void mmla_step(float32x4_t s[SUMS][SUMS], const uint16_t *a, const uint16_t *b)
{
    uint64x2_t x[2][SUMS], y[2][SUMS];
    VFOR (i, SUMS) {
        const uint64x2_t even = vreinterpretq_u64_u16(vld1q_u16(a + 2 * i * BLOCK));
        const uint64x2_t odd = vreinterpretq_u64_u16(vld1q_u16(a + (2 * i + 1) * BLOCK));
        x[0][i] = vzip1q_u64(even, odd);
        x[1][i] = vzip2q_u64(even, odd);
    }
    VFOR (i, SUMS) {
        const uint16_t *pair = b + i / 2 * 64 + i % 2 * 8; /* terms 4 (i / 2), columns 4 (i % 2) */
        const uint32x4_t first = vreinterpretq_u32_u16(vld1q_u16(pair));
        const uint32x4_t second = vreinterpretq_u32_u16(vld1q_u16(pair + 32));
        y[i / 2][i % 2 * 2] = vreinterpretq_u64_u32(vzip1q_u32(first, second));
        y[i / 2][i % 2 * 2 + 1] = vreinterpretq_u64_u32(vzip2q_u32(first, second));
    }
    VFOR (k, 2)
        VFOR (i, SUMS)
            VFOR (j, SUMS)
                s[i][j] = vbfmmlaq_f32(s[i][j], mmla_terms(x[k][i]), mmla_terms(y[k][j]));
}

PRODUCTS void block_products(float *c, int add, int n, operand a, operand b, between_fn between,
                             void *user)
{
    for (int i = 0; i < n; i++)
        for (int part = 0; part < PARTS; part++)
            between(user, i, n, part);
    for (int block = 0; block < BLOCK / SIDE * (BLOCK / SIDE); block++) {
        const ptrdiff_t row = block / (BLOCK / SIDE) * SIDE, column = block % (BLOCK / SIDE) * SIDE;
        float *to = c + row * BLOCK + column;
        float32x4_t s[SUMS][SUMS];
        VFOR (i, SUMS)
            VFOR (j, SUMS)
                s[i][j] =
                    add ? vld1q_f32(to + (2 * i + j % 2) * BLOCK + j / 2 * 4) : vdupq_n_f32(0.0f);
        VFOR (i, SUMS)
            VFOR (j, 2)
                mmla_exchange(&s[i][2 * j], &s[i][2 * j + 1]);
        for (int i = 0; i < n; i++) {
            const uint16_t *x = operand_at(&a, i) + row * BLOCK;
            const uint16_t *y = operand_at(&b, i) + column / 16 * HALF_SIZE + column % 16 * 2;
            for (int k = 0; k < BLOCK; k += 8)
                mmla_step(s, x + k, y + (ptrdiff_t)k / 2 * 32);
        }
        VFOR (i, SUMS)
            VFOR (j, 2)
                mmla_exchange(&s[i][2 * j], &s[i][2 * j + 1]);
        VFOR (i, SUMS)
            VFOR (j, SUMS)
                vst1q_f32(to + (2 * i + j % 2) * BLOCK + j / 2 * 4, s[i][j]);
    }
}

/* Adds to sums c that stay in registers. Returns the flop done. */
PRODUCTS int64_t products_rate(int64_t rounds, const uint16_t *a, const uint16_t *b, float *c)
{
    enum { CHAINS = 16 };
    float32x4_t s[CHAINS];
    const bfloat16x8_t x = vreinterpretq_bf16_u16(vld1q_u16(a));
    const bfloat16x8_t y = vreinterpretq_bf16_u16(vld1q_u16(b));
    VFOR (j, CHAINS)
        s[j] = vld1q_f32(c + (ptrdiff_t)j * 4);
    for (int64_t r = 0; r < rounds; r++)
        VFOR (j, CHAINS)
            s[j] = vbfmmlaq_f32(s[j], x, y);
    VFOR (j, CHAINS)
        vst1q_f32(c + (ptrdiff_t)j * 4, s[j]);
    return rounds * CHAINS * 32;
}

#endif
