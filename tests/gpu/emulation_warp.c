/* SPDX-License-Identifier: Apache-2.0 */
/* emulation_warp.c - what the 32 lanes of a warp do together: ldmatrix, products, shuffles, votes.
 * The fragments are those of the PTX manual; test_gpu_layout.c compares them with a second source.
 */
#include "emulation_internal.h"

float emulation_fp16(u16 x)
{
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const float sign = x & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                            : ldexpf((float)fraction, -24));
}

/* Lanes 8i .. 8i + 7 name the rows of matrix i. Eight rows are read at once: those that share a
 * group of four banks come after each other. */
static int count_rows(emulation_lane lane[32])
{
    emulation_counted.ldmatrix++;
    for (int i = 0; i < 32; i += 8) {
        int rows[8] = {0}, most = 0;
        for (int j = 0; j < 8; j++) {
            const u8 *const row = lane[i + j].operand;
            if (!emulation_inside_shared(row, 16)) {
                emulation_problem("a row of ldmatrix out of shared memory, or not aligned");
                return 0;
            }
            const int n = ++rows[(row - emulation_shared()) / 16 % 8];
            most = n > most ? n : most;
        }
        emulation_counted.conflicts += most - 1;
    }
    return 1;
}

/* Lane l has elements 2(l%4) and + 1 of row l/4. */
static void load_matrices(emulation_lane lane[32])
{
    if (!count_rows(lane))
        return;
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            memcpy((u32 *)lane[l].result + i, (const u8 *)lane[8 * i + l / 4].operand + 4 * (l % 4),
                   4);
}

/* The same of the transposed matrices: elements (2(l%4), l/4) and (2(l%4) + 1, l/4). */
static void load_transposed(emulation_lane lane[32])
{
    if (!count_rows(lane))
        return;
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            u16 x[2];
            for (int e = 0; e < 2; e++)
                memcpy(x + e, (const u8 *)lane[8 * i + 2 * (l % 4) + e].operand + 2 * (l / 4), 2);
            ((u32 *)lane[l].result)[i] = x[0] | (u32)x[1] << 16;
        }
}

void emulation_ldmatrix(u32 r[4], const u8 *row, int transposed, int line)
{
    emulation_meet(transposed ? load_transposed : load_matrices, row, r, line);
}

typedef struct {
    u32 a[4], b[2];
} mma_operand;

static float element(u32 x, int high, int fp16)
{
    const u16 half = (u16)(high ? x >> 16 : x);
    return fp16 ? emulation_fp16(half) : as_float((u32)half << 16);
}

/* c(row, column) += the sum over k of a(row, k) b(k, column), of the operands of all lanes. */
static void multiply(emulation_lane lane[32], int fp16)
{
    float a[16][16], b[16][8];
    emulation_counted.mma++;
    for (int l = 0; l < 32; l++) {
        const mma_operand *const x = lane[l].operand;
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < 2; e++)
                a[l / 4 + 8 * (i & 1)][2 * (l % 4) + e + 8 * (i >> 1)] = element(x->a[i], e, fp16);
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < 2; e++)
                b[2 * (l % 4) + e + 8 * i][l / 4] = element(x->b[i], e, fp16);
    }
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            const int row = l / 4 + 8 * (e >> 1), column = 2 * (l % 4) + (e & 1);
            float *const c = (float *)lane[l].result + e;
            for (int k = 0; k < 16; k++)
                *c += a[row][k] * b[k][column];
        }
}

static void multiply_bf16(emulation_lane lane[32])
{
    multiply(lane, 0);
}

static void multiply_fp16(emulation_lane lane[32])
{
    multiply(lane, 1);
}

void emulation_mma(float c[4], const u32 a[4], u32 b0, u32 b1, int fp16, int line)
{
    const mma_operand operand = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulation_meet(fp16 ? multiply_fp16 : multiply_bf16, &operand, c, line);
}

typedef struct {
    u32 x;
    int mask;
} shuffle_operand;

static void shuffle(emulation_lane lane[32])
{
    for (int l = 0; l < 32; l++) {
        const shuffle_operand *const self = lane[l].operand;
        *(u32 *)lane[l].result = ((const shuffle_operand *)lane[l ^ self->mask].operand)->x;
    }
}

u32 emulation_shuffle(u32 x, int mask, int line)
{
    const shuffle_operand operand = {x, mask};
    u32 y = 0;
    emulation_meet(shuffle, &operand, &y, line);
    return y;
}

static void any(emulation_lane lane[32])
{
    int found = 0;
    for (int l = 0; l < 32; l++)
        found |= *(const int *)lane[l].operand;
    for (int l = 0; l < 32; l++)
        *(int *)lane[l].result = found != 0;
}

int emulation_any(int x, int line)
{
    int y = 0;
    emulation_meet(any, &x, &y, line);
    return y;
}
