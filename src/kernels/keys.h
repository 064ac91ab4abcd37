/* SPDX-License-Identifier: Apache-2.0 */
/* keys.h - walks a list of keys in chunks, and turns a chunk into pointers to rows. */
#ifndef TESS_KEYS_H
#define TESS_KEYS_H

#include "attn_tile.h"
#include "vec.h"

typedef tess__key_cursor key_cursor;

VINLINE key_cursor keys_start(const tess__key_list *list)
{
    return (key_cursor){0, list->units ? -1 : list->begin};
}

/* Writes up to TESS_CHUNK row numbers; returns how many, 0 at the end. */
VINLINE int keys_next(const tess__key_list *list, key_cursor *at, int32_t *rows)
{
    int n = 0;
    if (!list->units) {
        for (; n < TESS_CHUNK && at->row < list->end; n++)
            rows[n] = (int32_t)at->row++;
        return n;
    }
    if (!list->bounds) {
        const int64_t left = list->n - at->unit;
        n = left < TESS_CHUNK ? (int)left : TESS_CHUNK;
        memcpy(rows, list->units + at->unit, (size_t)n * sizeof *rows);
        at->unit += n;
        return n;
    }
    while (n < TESS_CHUNK && at->unit < list->n) {
        const int64_t *unit = list->bounds + list->units[at->unit];
        int64_t row = at->row < 0 ? unit[0] : at->row;
        while (n < TESS_CHUNK && row < unit[1])
            rows[n++] = (int32_t)row++;
        at->row = row < unit[1] ? row : -1;
        at->unit += at->row < 0;
    }
    return n;
}

/* The same for rows below `end`, of which the rest are left for a later call; with dropped, for the
 * rows that the list does not name. The cursor begins as {0, 0}. */
VINLINE int keys_next_below(const tess__key_list *list, int64_t end, int dropped, key_cursor *at,
                            int32_t *rows)
{
    int n = 0;
    if (!list->bounds && !dropped) {
        while (n < TESS_CHUNK && at->unit < list->n && list->units[at->unit] < end)
            rows[n++] = list->units[at->unit++];
        return n;
    }
    while (n < TESS_CHUNK && at->row < end) {
        int64_t first = INT64_MAX, last = INT64_MAX; /* of the next unit of the list */
        if (at->unit < list->n) {
            const int32_t unit = list->units[at->unit];
            first = list->bounds ? list->bounds[unit] : unit;
            last = list->bounds ? list->bounds[unit + 1] : first + 1;
        }
        if (!dropped && at->row < first)
            at->row = first;
        const int64_t stop = dropped ? first : last;
        while (n < TESS_CHUNK && at->row < stop && at->row < end)
            rows[n++] = (int32_t)at->row++;
        if (at->row < stop)
            break;
        at->row = last;
        at->unit++;
    }
    return n;
}

/* bf16 is the upper half of a float. */
VINLINE void widen_row(float *out, const uint16_t *x, int dim)
{
    for (int d = 0; d < dim; d++) {
        const uint32_t bits = (uint32_t)x[d] << 16;
        memcpy(&out[d], &bits, sizeof bits);
    }
}

/* Pointers to n rows; bf16 rows are widened into `wide`, dim apart. SPARE more repeat the last row,
 * for register blocks that reach past the end. */
VINLINE void key_pointers(const float **out, const tess__rows *x, const int32_t *rows, int n,
                          int dim, int bf16, float *wide)
{
    for (int i = 0; i < n; i++) {
        if (bf16) {
            widen_row(wide + (size_t)i * (size_t)dim,
                      (const uint16_t *)x->data + (int64_t)rows[i] * x->stride, dim);
            out[i] = wide + (size_t)i * (size_t)dim;
        } else {
            out[i] = (const float *)x->data + (int64_t)rows[i] * x->stride;
        }
    }
    for (int i = n; i < n + TESS_SPARE; i++)
        out[i] = out[n - 1];
}

/* Calls n rows into the cache, all at once: rows of a list are far apart, no hardware prefetcher
 * sees the next, and a product that comes upon them one by one waits for each (density 0.1 of 16k
 * keys: 9 % of the forward pass). */
VINLINE void prefetch_keys(const float *const *rows, int n, int dim)
{
    for (int i = 0; i < n; i++)
        for (int d = 0; d < dim; d += 16)
            v_prefetch(rows[i] + d);
}

#endif
