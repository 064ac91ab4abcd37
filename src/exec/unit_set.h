/* SPDX-License-Identifier: Apache-2.0 */
/* unit_set.h - sets of key units as bits: as messages, as runs of rows, and lists among them.
 *
 * Unit u is bit u % 64 of word u / 64; bits beyond the last unit are 0.
 */
#ifndef TESS_UNIT_SET_H
#define TESS_UNIT_SET_H

#include <stddef.h>
#include <stdint.h>

/* Words of a set of n units. */
static inline int64_t tess__set_words(int64_t n)
{
    return (n + 63) / 64;
}

/* Adds units begin..end-1. */
void tess__set_fill(uint64_t *set, int64_t begin, int64_t end);

/* The first unit of begin..end-1 that is in the set (value 1) or is not (0); end if there is none.
 */
int64_t tess__set_next(const uint64_t *set, int64_t begin, int64_t end, int value);

/* How many of units begin..end-1 the set has. */
int64_t tess__set_count(const uint64_t *set, int64_t begin, int64_t end);

/* ---- as messages ----------------------------------------------------------------------------- */

/* Bytes that a message about n units has at most. */
static inline int64_t tess__set_message_most(int64_t n)
{
    return 1 + (n + 7) / 8;
}

/* Writes which of units begin..end-1 the set has; returns the bytes. */
int64_t tess__set_encode(const uint64_t *set, int64_t begin, int64_t end, uint8_t *message);

/* Adds the units that a message of at most `bytes` bytes names, of begin..end-1. Returns the bytes
 * it has, 0 if it is not one. */
int64_t tess__set_decode(const uint8_t *message, int64_t bytes, int64_t begin, int64_t end,
                         uint64_t *set);

/* ---- lists among some units ------------------------------------------------------------------ */

/* Units first..first+n-1, one after the other in a packed buffer. */
typedef struct {
    int64_t first, n;
} tess__unit_run;

/* Lists as they are kept: n_groups rows of bits, `stride` bytes apart, unit u in bit u % 8 of byte
 * u / 8 of a row. */
typedef struct {
    const uint8_t *bits;
    size_t stride;
    int32_t n_groups;
    int64_t n_units;
} tess__bit_lists;

/* set |= all lists. */
void tess__set_join(uint64_t *set, const tess__bit_lists *lists);

/* Whether some list has a unit of the runs. */
int tess__lists_meet(const tess__bit_lists *lists, const tess__unit_run *runs, int64_t n_runs);

/* The lists among the units of runs, numbered in their order. offsets (n_groups + 1) from 0 on;
 * returns offsets[n_groups]. */
int64_t tess__lists_in_runs(const tess__bit_lists *lists, const tess__unit_run *runs,
                            int64_t n_runs, int64_t *offsets, int32_t *indices);

/* The same among the units of a set, which has all of theirs; before (words): units of the set
 * before each word. */
int64_t tess__lists_in_set(const tess__bit_lists *lists, const uint64_t *set, const int32_t *before,
                           int64_t *offsets, int32_t *indices);

#endif
