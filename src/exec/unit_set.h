/* SPDX-License-Identifier: Apache-2.0 */
/* unit_set.h - sets of key units as bitmasks: as messages, as runs of rows, and lists within them.
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

/* Number of units of begin..end-1 in the set. */
int64_t tess__set_count(const uint64_t *set, int64_t begin, int64_t end);

/* ---- messages -------------------------------------------------------------------------------- */

/* Maximal bytes of a message about n units. */
static inline int64_t tess__set_message_most(int64_t n)
{
    return 1 + (n + 7) / 8;
}

/* Encodes which of units begin..end-1 are in the set; returns the bytes. */
int64_t tess__set_encode(const uint64_t *set, int64_t begin, int64_t end, uint8_t *message);

/* Adds the units in a message of at most `bytes` bytes about units begin..end-1. Returns the bytes
 * of the message, 0 if it is malformed. */
int64_t tess__set_decode(const uint8_t *message, int64_t bytes, int64_t begin, int64_t end,
                         uint64_t *set);

/* ---- lists within runs or sets --------------------------------------------------------------- */

/* Units first..first+n-1, consecutive in a packed buffer. */
typedef struct {
    int64_t first, n;
} tess__unit_run;

/* Lists as stored: n_groups bitmasks, `stride` bytes apart, unit u in bit u % 8 of byte u / 8. */
typedef struct {
    const uint8_t *bits;
    size_t stride;
    int32_t n_groups;
    int64_t n_units;
} tess__bit_lists;

/* set |= all lists. */
void tess__set_join(uint64_t *set, const tess__bit_lists *lists);

/* Whether any list has a unit of the runs. */
int tess__lists_meet(const tess__bit_lists *lists, const tess__unit_run *runs, int64_t n_runs);

/* The entries of the lists that are in the runs, as positions in the runs. offsets (n_groups + 1)
 * start at 0; returns offsets[n_groups]. */
int64_t tess__lists_in_runs(const tess__bit_lists *lists, const tess__unit_run *runs,
                            int64_t n_runs, int64_t *offsets, int32_t *indices);

/* The same for a set, which contains all entries; before (words): number of units of the set before
 * each word. */
int64_t tess__lists_in_set(const tess__bit_lists *lists, const uint64_t *set, const int32_t *before,
                           int64_t *offsets, int32_t *indices);

#endif
