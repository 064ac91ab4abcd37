/* SPDX-License-Identifier: Apache-2.0 */
/* unit_set.c - sets of key units as bitmasks: as messages, and lists within them.
 *
 * A message about n units has one of four forms, named by its first byte:
 *
 *   NONE, ALL    nothing follows
 *   BITS         (n + 7) / 8 bytes, the lowest bit first
 *   GAPS         number of units, then for each the number of units skipped since the previous one;
 *                numbers in groups of 7 bits, the lowest first, top bit set where more follow
 *
 * GAPS is used where it is shorter than BITS: a set of few units takes a byte or two per unit, and
 * no set takes more than its bits and a byte. Cost: a pass over the words, and over the units of
 * GAPS.
 */
#include "unit_set.h"

#include "base/base_internal.h"

#include <string.h>

enum { NONE, ALL, BITS, GAPS };

/* The bits [at, at + n) of the set, n at most 64. */
static uint64_t get_bits(const uint64_t *set, int64_t at, int n)
{
    const int shift = (int)(at % 64);
    uint64_t word = set[at / 64] >> shift;
    if (shift + n > 64)
        word |= set[at / 64 + 1] << (64 - shift);
    return n < 64 ? word & ((UINT64_C(1) << n) - 1) : word;
}

/* Sets the bits of word at [at, at + n). */
static void set_bits(uint64_t *set, int64_t at, int n, uint64_t word)
{
    const int shift = (int)(at % 64);
    set[at / 64] |= word << shift;
    if (shift + n > 64)
        set[at / 64 + 1] |= word >> (64 - shift);
}

static int step(int64_t at, int64_t end)
{
    return end - at < 64 ? (int)(end - at) : 64;
}

void tess__set_fill(uint64_t *set, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += 64) {
        const int n = step(at, end);
        set_bits(set, at, n, n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0));
    }
}

int64_t tess__set_next(const uint64_t *set, int64_t begin, int64_t end, int value)
{
    while (begin < end) {
        const uint64_t word = (value ? set[begin / 64] : ~set[begin / 64]) >> (begin % 64);
        if (word) {
            begin += __builtin_ctzll(word);
            return TESS_MIN(begin, end);
        }
        begin += 64 - begin % 64;
    }
    return end;
}

int64_t tess__set_count(const uint64_t *set, int64_t begin, int64_t end)
{
    int64_t n = 0;
    for (int64_t at = begin; at < end; at += 64)
        n += __builtin_popcountll(get_bits(set, at, step(at, end)));
    return n;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t *write_number(uint8_t *to, uint64_t number)
{
    for (; number > 127; number >>= 7)
        *to++ = (uint8_t)(number & 127) | 128;
    *to++ = (uint8_t)number;
    return to;
}

/* The number at *from, which is advanced; -1 at the end of the bytes, or from 2^35 on. */
static int64_t read_number(const uint8_t **from, const uint8_t *end)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 35 && *from < end; shift += 7) {
        const uint8_t byte = *(*from)++;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return (int64_t)number;
    }
    return -1;
}

/* The form GAPS after its first byte; NULL if it would reach `most` bytes. */
static uint8_t *write_gaps(const uint64_t *set, int64_t begin, int64_t end, int64_t count,
                           int64_t most, uint8_t *to)
{
    if (most < 10 || count >= most)
        return NULL;
    const uint8_t *const last = to + most - 5; /* a number has at most 5 bytes */
    to = write_number(to, (uint64_t)count);
    int64_t next = begin;
    for (int64_t unit = begin; (unit = tess__set_next(set, unit, end, 1)) < end; unit++) {
        if (to >= last)
            return NULL;
        to = write_number(to, (uint64_t)(unit - next));
        next = unit + 1;
    }
    return to;
}

int64_t tess__set_encode(const uint64_t *set, int64_t begin, int64_t end, uint8_t *message)
{
    const int64_t count = tess__set_count(set, begin, end), bytes = (end - begin + 7) / 8;
    message[0] = count == 0 ? NONE : ALL;
    if (count == 0 || count == end - begin)
        return 1;
    const uint8_t *behind = write_gaps(set, begin, end, count, bytes, message + 1);
    message[0] = behind ? GAPS : BITS;
    if (behind)
        return behind - message;
    for (int64_t at = begin; at < end; at += 64) {
        const uint64_t word = get_bits(set, at, step(at, end));
        const int64_t first = (at - begin) / 8, left = bytes - first;
        for (int i = 0; i < 8 && i < left; i++)
            message[1 + first + i] = (uint8_t)(word >> (8 * i));
    }
    return 1 + bytes;
}

static int64_t read_gaps(const uint8_t *message, int64_t bytes, int64_t begin, int64_t end,
                         uint64_t *set)
{
    const uint8_t *from = message + 1;
    int64_t left = read_number(&from, message + bytes), next = begin;
    if (left < 0)
        return 0;
    for (; left > 0; left--) {
        const int64_t gap = read_number(&from, message + bytes);
        if (gap < 0 || gap >= end - next)
            return 0;
        next += gap;
        set[next / 64] |= UINT64_C(1) << (next % 64);
        next++;
    }
    return from - message;
}

int64_t tess__set_decode(const uint8_t *message, int64_t bytes, int64_t begin, int64_t end,
                         uint64_t *set)
{
    const int64_t whole = (end - begin + 7) / 8;
    if (bytes < 1 || message[0] > GAPS)
        return 0;
    if (message[0] == GAPS)
        return read_gaps(message, bytes, begin, end, set);
    if (message[0] == ALL)
        tess__set_fill(set, begin, end);
    if (message[0] != BITS)
        return 1;
    if (bytes < 1 + whole)
        return 0;
    for (int64_t at = begin; at < end; at += 64) {
        const int n = step(at, end);
        const int64_t first = (at - begin) / 8, left = whole - first;
        uint64_t word = 0;
        for (int i = 0; i < 8 && i < left; i++)
            word |= (uint64_t)message[1 + first + i] << (8 * i);
        set_bits(set, at, n, n < 64 ? word & ((UINT64_C(1) << n) - 1) : word);
    }
    return 1 + whole;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The n bits of a bitmask from unit `at` on, n at most 64; reads only bytes that have such a bit.
 * */
static uint64_t get_byte_bits(const uint8_t *row, int64_t at, int n)
{
    const uint8_t *from = row + at / 8;
    const int shift = (int)(at % 8), bytes = (shift + n + 7) / 8;
    uint64_t word = 0;
    if (bytes >= 8)
        for (int i = 0; i < 8; i++)
            word |= (uint64_t)from[i] << (8 * i);
    else
        for (int i = 0; i < bytes; i++)
            word |= (uint64_t)from[i] << (8 * i);
    word >>= shift;
    if (bytes > 8)
        word |= (uint64_t)from[8] << (64 - shift);
    return n < 64 ? word & ((UINT64_C(1) << n) - 1) : word;
}

void tess__set_join(uint64_t *set, const tess__bit_lists *lists)
{
    for (int32_t g = 0; g < lists->n_groups; g++) {
        const uint8_t *row = lists->bits + (size_t)g * lists->stride;
        for (int64_t at = 0; at < lists->n_units; at += 64)
            set[at / 64] |= get_byte_bits(row, at, step(at, lists->n_units));
    }
}

int tess__lists_meet(const tess__bit_lists *lists, const tess__unit_run *runs, int64_t n_runs)
{
    for (int32_t g = 0; g < lists->n_groups; g++)
        for (int64_t r = 0; r < n_runs; r++) {
            const int64_t end = runs[r].first + runs[r].n;
            for (int64_t at = runs[r].first; at < end; at += 64)
                if (get_byte_bits(lists->bits + (size_t)g * lists->stride, at, step(at, end)))
                    return 1;
        }
    return 0;
}

int64_t tess__lists_in_runs(const tess__bit_lists *lists, const tess__unit_run *runs,
                            int64_t n_runs, int64_t *offsets, int32_t *indices)
{
    int64_t n = 0;
    offsets[0] = 0;
    for (int32_t g = 0; g < lists->n_groups; g++) {
        const uint8_t *row = lists->bits + (size_t)g * lists->stride;
        int64_t place = 0;
        for (int64_t r = 0; r < n_runs; r++) {
            const int64_t first = runs[r].first, end = first + runs[r].n;
            for (int64_t at = first; at < end; at += 64)
                for (uint64_t w = get_byte_bits(row, at, step(at, end)); w; w &= w - 1)
                    indices[n++] = (int32_t)(place + at - first + __builtin_ctzll(w));
            place += runs[r].n;
        }
        offsets[g + 1] = n;
    }
    return n;
}

int64_t tess__lists_in_set(const tess__bit_lists *lists, const uint64_t *set, const int32_t *before,
                           int64_t *offsets, int32_t *indices)
{
    int64_t n = 0;
    offsets[0] = 0;
    for (int32_t g = 0; g < lists->n_groups; g++) {
        const uint8_t *row = lists->bits + (size_t)g * lists->stride;
        for (int64_t at = 0; at < lists->n_units; at += 64)
            for (uint64_t w = get_byte_bits(row, at, step(at, lists->n_units)); w; w &= w - 1) {
                const uint64_t below = (w & -w) - 1;
                indices[n++] = before[at / 64] + __builtin_popcountll(set[at / 64] & below);
            }
        offsets[g + 1] = n;
    }
    return n;
}
