/* SPDX-License-Identifier: Apache-2.0 */
/* bits.c - rows of a mask as bits in 64-bit words: packed, counted, added up by column.
 *
 * Element e of a row is bit e % 64 of word e / 64, as little-endian machines see bits in memory.
 *
 * Columns are added up with all 64 of a word side by side: plane b of the sum holds digit 2^b of
 * every column. A full adder takes three words of one weight to a word of that weight and one of
 * twice it in five operations, so that 16 rows become one word of weight 16 with 15 adders:
 *
 *   rows     16 x weight 1 --8 adders--> 8 x 2 --4--> 4 x 4 --2--> 2 x 8 --1--> 1 x 16
 *
 * which costs 5 operations on vectors for each word of a row. Whoever wants the sum over a set of
 * columns counts the bits of each plane in the set once for all rows, not once for each.
 *
 * Bytes: every row once. Planes are held in registers; the last vector of a row overlaps the one
 * before where words do not fill vectors.
 */
#include "entries.h"
#include "vec_compress.h"

typedef uint64_t vu __attribute__((vector_size(TESS_VEC)));
enum { VU = TESS_VEC / (int)sizeof(uint64_t) };

/* Where no instruction counts bits, in a form that compilers turn into vectors. */
VINLINE int64_t count_word(uint64_t x)
{
#if defined(__POPCNT__) || defined(__aarch64__)
    return __builtin_popcountll(x);
#else
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    x += x >> 8;
    x += x >> 16;
    x += x >> 32;
    return (int64_t)(x & 127);
#endif
}

VINLINE uint64_t load_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static int64_t row_of_bytes(uint64_t *words, const uint8_t *from, int32_t n)
{
    int64_t sum = 0;
    for (; n >= 64; n -= 64, from += 64, words++) {
        *words = bits_of_bytes(from);
        sum += count_word(*words);
    }
    if (n == 0)
        return sum;
    uint8_t last[64] = {0};
    memcpy(last, from, (size_t)n);
    *words = bits_of_bytes(last);
    return sum + count_word(*words);
}

static int64_t row_of_bits(uint64_t *words, const uint8_t *from, int32_t n)
{
    const int full = n / 64, left = n % 64, tail = (left + 7) / 8;
    int64_t sum = 0;
    for (int i = 0; i < full; i++) {
        words[i] = load_word(from + (size_t)i * 8);
        sum += count_word(words[i]);
    }
    if (left == 0)
        return sum;
    uint64_t word = 0;
    if (full > 0) /* the last eight bytes of the row, without those before the tail */
        word = load_word(from + (size_t)full * 8 + tail - 8) >> (64 - 8 * tail);
    else
        memcpy(&word, from, (size_t)tail);
    words[full] = word & ((UINT64_C(1) << left) - 1);
    return sum + count_word(words[full]);
}

int64_t TESS_K(tess__bits_row)(uint64_t *words, const void *mask, int bytes, int32_t n)
{
    return bytes ? row_of_bytes(words, mask, n) : row_of_bits(words, mask, n);
}

int64_t TESS_K(tess__bits_and_count)(const uint64_t *a, const uint64_t *b, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += count_word(a[i] & b[i]);
    return sum;
}

/* ---- columns ------------------------------------------------------------------------------ */

/* *low + a + b = the new *low + 2 * the result. */
VINLINE vu add3(vu *low, vu a, vu b)
{
    const vu either = *low ^ a, carry = (*low & a) | (either & b);
    *low = either ^ b;
    return carry;
}

VINLINE vu load(const uint64_t *row, int lanes)
{
    vu v = {0};
    if (lanes == VU)
        memcpy(&v, row, sizeof v);
    else
        memcpy(&v, row, (size_t)lanes * sizeof *row);
    return v;
}

/* Adds v of weight 2^from to the planes. */
VINLINE void ripple(vu planes[TESS_PLANES], vu v, int from)
{
    VUNROLL
    for (int b = from; b < TESS_PLANES; b++) {
        const vu carry = planes[b] & v;
        planes[b] ^= v;
        v = carry;
    }
}

/* Four rows from `at` on: into planes 0 and 1; the result has weight 4. */
VINLINE vu add4(vu planes[TESS_PLANES], const uint64_t *const *rows, int at, int lanes)
{
    const vu two_a = add3(&planes[0], load(rows[0] + at, lanes), load(rows[1] + at, lanes));
    const vu two_b = add3(&planes[0], load(rows[2] + at, lanes), load(rows[3] + at, lanes));
    return add3(&planes[1], two_a, two_b);
}

/* Eight rows from `at` on: into planes 0, 1 and 2; the result has weight 8. */
VINLINE vu add8(vu planes[TESS_PLANES], const uint64_t *const *rows, int at, int lanes)
{
    const vu four_a = add4(planes, rows, at, lanes);
    const vu four_b = add4(planes, rows + 4, at, lanes);
    return add3(&planes[2], four_a, four_b);
}

/* The planes of `lanes` columns of words from `at` on. */
VINLINE void add_columns(vu planes[TESS_PLANES], const uint64_t *const *rows, int n, int at,
                         int lanes)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const vu eight_a = add8(planes, rows + i, at, lanes);
        const vu eight_b = add8(planes, rows + i + 8, at, lanes);
        ripple(planes, add3(&planes[3], eight_a, eight_b), 4);
    }
    for (; i < n; i++)
        ripple(planes, load(rows[i] + at, lanes), 0);
}

void TESS_K(tess__bits_planes)(uint64_t *planes, const uint64_t *const *rows, int n, int words)
{
    for (int at = 0; at < words; at += VU) {
        const int lanes = words < VU ? words : VU;
        const int begin = at + VU <= words ? at : words - lanes;
        vu sum[TESS_PLANES] = {0};
        if (lanes == VU)
            add_columns(sum, rows, n, begin, VU);
        else
            add_columns(sum, rows, n, begin, lanes);
        for (int b = 0; b < TESS_PLANES; b++)
            memcpy(planes + (size_t)b * (size_t)words + begin, &sum[b],
                   (size_t)lanes * sizeof *planes);
    }
}
