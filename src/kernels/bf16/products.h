/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - products of bf16 matrices, summed in fp32: by tiles or by dot products of pairs.
 *
 *   C (32, 32) = or += sum_i A_i B_i,  A_i (32, 32) and B_i (32, 32) blocks of bf16
 *
 * A block is 2 KiB without gaps: two halves of 16 rows by 32 columns for A; for B two halves of 16
 * columns, each 16 rows of 16 pairs, a pair being two rows of one column (as tiles want it):
 *
 *   A  half h, row r       a[512 h + 32 r + k]             row 16 h + r, column k
 *   B  half h, pair p      b[512 h + 32 p + 2 c + i]       row 2 p + i, column 16 h + c
 *
 * All instruction sets read these very blocks: TESS_TILES takes A and B into tile registers, the
 * others broadcast a pair of A against a vector of 16 pairs of B, or on ARM multiply two rows by
 * two columns (products_mmla.h). Tiles and pairs have their instruction, and a portable emulation
 * that runs the same source on any machine; what the emulation does not copy is the order in which
 * the 32 products of a step are added.
 *
 * Between the products of a step comes other work, `between`: tiles are multiplied beside it, and
 * c is written after all of it. What step i of it writes may be read by step i + 2 of the products.
 * Work: 2 * 32^3 flop for each i.
 */
#ifndef TESS_PRODUCTS_H
#define TESS_PRODUCTS_H

#include "kernels/vec.h"

/* With the instruction products are part of the loops around them; emulated, they are functions,
 * which compile in reasonable time. */
#if defined(__AMX_BF16__) || defined(__AVX512BF16__) ||                                            \
    defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PRODUCTS VINLINE
#define PRODUCTS_UNROLL VUNROLL
#define PRODUCTS_UNROLL2 VUNROLL2
#else
#define PRODUCTS static __attribute__((noinline, unused))
#define PRODUCTS_UNROLL
#define PRODUCTS_UNROLL2
#endif

enum { BLOCK = 32, BLOCK_SIZE = 1024, HALF_SIZE = 512, PARTS = 4 };

/* Operand i: list[i] + offset where there is a list, else base + i * step. */
typedef struct {
    const uint16_t *base;
    const uint16_t *const *list;
    ptrdiff_t step; /* or the offset */
} operand;

VINLINE const uint16_t *operand_at(const operand *x, int i)
{
    return x->list ? x->list[i] + x->step : x->base + i * x->step;
}

/* Part `part` of the other work beside step i of n: of PARTS a step. */
typedef void (*between_fn)(void *user, int i, int n, int part);

VINLINE void between_nothing(void *user, int i, int n, int part)
{
    (void)user, (void)i, (void)n, (void)part;
}

#ifdef TESS_TILES
/* ---- tiles ----------------------------------------------------------------------------------- */

#ifdef __AMX_BF16__
/* Eight tiles of 16 rows of 64 bytes. The sizes are constants of palette 1: CPUID's leaves with
 * them are hidden by some hypervisors on which tiles work. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

VINLINE void products_begin(void)
{
    const tile_config config = {.palette = 1,
                                .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

/* Tiles that are in use are saved at every switch of threads. */
VINLINE void products_end(void)
{
    __asm__ volatile("tilerelease");
}

/* The compilers' own names of these do not say that memory is read and written. */
#define TILES
#define TILE_ZERO(c) __asm__ volatile("tilezero %%tmm" #c : :)
#define TILE_LOAD(t, p, bytes)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(bytes)) : "memory")
#define TILE_STORE(t, p, bytes)                                                                    \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"                                           \
                     :                                                                             \
                     : "r"(p), "r"((int64_t)(bytes))                                               \
                     : "memory")
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#else
typedef struct {
    uint32_t x[16][16];
} tile;

VINLINE void products_begin(void)
{
}

VINLINE void products_end(void)
{
}

VINLINE float pair_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

PRODUCTS void tile_load(tile *t, const void *p, size_t bytes)
{
    for (size_t r = 0; r < 16; r++)
        memcpy(t->x[r], (const char *)p + r * bytes, sizeof t->x[r]);
}

PRODUCTS void tile_store(const tile *t, void *p, size_t bytes)
{
    for (size_t r = 0; r < 16; r++)
        memcpy((char *)p + r * bytes, t->x[r], sizeof t->x[r]);
}

PRODUCTS void tile_dot(tile *c, const tile *a, const tile *b)
{
    for (int r = 0; r < 16; r++) {
        vf sum;
        memcpy(&sum, c->x[r], sizeof sum);
        for (int p = 0; p < 16; p++) {
            vi pairs;
            memcpy(&pairs, b->x[p], sizeof pairs);
            sum += vf_set1(pair_float(a->x[r][p] << 16)) * (vf)(pairs << 16);
            sum += vf_set1(pair_float(a->x[r][p] & 0xffff0000u)) * (vf)(pairs & vi_set1(-65536));
        }
        memcpy(c->x[r], &sum, sizeof sum);
    }
}

#define TILES tile tiles[8];
#define TILE_ZERO(c) memset(&tiles[c], 0, sizeof tiles[c])
#define TILE_LOAD(t, p, bytes) tile_load(&tiles[t], p, bytes)
#define TILE_STORE(t, p, bytes) tile_store(&tiles[t], p, bytes)
#define TILE_DOT(c, a, b) tile_dot(&tiles[c], &tiles[a], &tiles[b])
#endif

/* c: 32 rows of 32 floats without gaps. */
PRODUCTS void block_products(float *c, int add, int n, operand a, operand b, between_fn between,
                             void *user)
{
    TILES
    if (add) {
        TILE_LOAD(0, c, 128);
        TILE_LOAD(1, c + 16, 128);
        TILE_LOAD(2, c + 512, 128);
        TILE_LOAD(3, c + 528, 128);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    VUNROLL4
    for (int i = 0; i < n; i++) {
        const uint16_t *x = operand_at(&a, i), *y = operand_at(&b, i);
        TILE_LOAD(4, x, 64);
        TILE_LOAD(6, y, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, y + HALF_SIZE, 64);
        between(user, i, n, 0);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(5, x + HALF_SIZE, 64);
        between(user, i, n, 1);
        TILE_DOT(2, 5, 6);
        between(user, i, n, 2);
        TILE_DOT(3, 5, 7);
        between(user, i, n, 3);
    }
    TILE_STORE(0, c, 128);
    TILE_STORE(1, c + 16, 128);
    TILE_STORE(2, c + 512, 128);
    TILE_STORE(3, c + 528, 128);
}

/* Multiplies tiles that stay in registers. Returns the flop done. */
PRODUCTS int64_t products_rate(int64_t rounds, const uint16_t *a, const uint16_t *b, float *c)
{
    TILES
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_LOAD(4, a, 64);
    TILE_LOAD(5, a + HALF_SIZE, 64);
    TILE_LOAD(6, b, 64);
    TILE_LOAD(7, b + HALF_SIZE, 64);
    for (int64_t r = 0; r < rounds; r++) {
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, c, 128);
    TILE_STORE(1, c + 16, 128);
    TILE_STORE(2, c + 512, 128);
    TILE_STORE(3, c + 528, 128);
    return rounds * 2 * BLOCK * BLOCK * BLOCK;
}

#else
/* ---- dot products of pairs ------------------------------------------------------------------- */

VINLINE void products_begin(void)
{
}

VINLINE void products_end(void)
{
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#include "products_mmla.h"
#else
/* c + the two products of the pair at a with each pair of b. */
VINLINE vf pair_dot(vf c, vi b, const uint16_t *a)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
#ifdef __AVX512BF16__
    return (vf)_mm512_dpbf16_ps((__m512)c, (__m512bh)b, (__m512bh)_mm512_set1_epi32(pair));
#else
    const vi x = vi_set1(pair);
    c += (vf)(x << 16) * (vf)(b << 16);
    return c + (vf)(x & vi_set1(-65536)) * (vf)(b & vi_set1(-65536));
#endif
}

VINLINE vi pairs_load(const uint16_t *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

enum { ROWS = 8 }; /* of a register block, by 32 columns: 16 sums */

PRODUCTS void block_products(float *c, int add, int n, operand a, operand b, between_fn between,
                             void *user)
{
    for (int i = 0; i < n; i++)
        for (int part = 0; part < PARTS; part++)
            between(user, i, n, part);
    for (int r0 = 0; r0 < BLOCK; r0 += ROWS, c += (ptrdiff_t)ROWS * BLOCK) {
        vf s[ROWS][2];
        PRODUCTS_UNROLL
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++)
                s[r][h] = add ? vf_load(c + r * BLOCK + h * 16) : (vf){0};
        for (int i = 0; i < n; i++) {
            const uint16_t *x = operand_at(&a, i) + (ptrdiff_t)r0 * BLOCK;
            const uint16_t *y = operand_at(&b, i);
            PRODUCTS_UNROLL2
            for (int p = 0; p < 16; p++) {
                const vi b0 = pairs_load(y + p * 32), b1 = pairs_load(y + HALF_SIZE + p * 32);
                PRODUCTS_UNROLL
                for (int r = 0; r < ROWS; r++) {
                    s[r][0] = pair_dot(s[r][0], b0, x + r * BLOCK + 2 * p);
                    s[r][1] = pair_dot(s[r][1], b1, x + r * BLOCK + 2 * p);
                }
            }
        }
        PRODUCTS_UNROLL
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++)
                vf_store(c + r * BLOCK + h * 16, s[r][h]);
    }
}

/* Adds to sums c that stay in registers. Returns the flop done. */
PRODUCTS int64_t products_rate(int64_t rounds, const uint16_t *a, const uint16_t *b, float *c)
{
    enum { CHAINS = 16 };
    vf s[CHAINS];
    const vi x = pairs_load(b);
    for (int j = 0; j < CHAINS; j++)
        s[j] = vf_load(c + (ptrdiff_t)j * 16);
    for (int64_t r = 0; r < rounds; r++) {
        PRODUCTS_UNROLL
        for (int j = 0; j < CHAINS; j++)
            s[j] = pair_dot(s[j], x, a);
    }
    for (int j = 0; j < CHAINS; j++)
        vf_store(c + j * 16, s[j]);
    return rounds * CHAINS * 16 * 4;
}
#endif
#endif

#endif
