/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.c - the lists of a selection by key unit: which query groups see it.
 *
 * A counting sort: count the groups of each unit, sum the counts to offsets, then write each group
 * to its units' lists. Groups are taken in order, so the lists ascend. The work is cut by (batch,
 * head, range of units); a list ascends, so the part of it that lies in a range is found by
 * bisection, and no two items of work write to the same place.
 *
 * Cost: O(indices + units), twice over the lists. Memory, reserved at the first call:
 *
 *   | offsets_t (batch * heads * n_k + 2) | indices_t (capacity) |
 *
 * offsets_t has one element more than its reader sees. Counts go two places up, so that after the
 * sum the element above a unit is its begin; writing moves it to its end, the begin of the next.
 */
#include "attn_internal.h"

#include "tessera/advanced/selection.h"

#include <string.h>

/* Ranges of units in each head: enough to keep threads even with one head, and small enough for
 * the ends of a range's lists to stay in a core's cache. */
enum { RANGES_LEAST = 16, RANGE_UNITS = 4096 };

/* The first place of the ascending list that holds `unit` or more. */
static const int32_t *lower_bound(const int32_t *begin, const int32_t *end, int64_t unit)
{
    while (begin < end) {
        const int32_t *middle = begin + (end - begin) / 2;
        if (*middle < unit)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* The units of one range in one head: counts them (indices_t NULL), or writes their groups. */
static void transpose_range(const tess_selection *sel, int64_t head, int64_t range, int64_t ranges,
                            int64_t *offsets_t, int32_t *indices_t)
{
    const int64_t begin = sel->n_k * range / ranges, end = sel->n_k * (range + 1) / ranges;
    if (begin == end)
        return;
    int64_t *const place = offsets_t + head * sel->n_k + (indices_t ? 1 : 2);
    for (int32_t g = 0; g < sel->n_q; g++) {
        const int64_t list = head * sel->n_q + g;
        const int32_t *last = sel->indices + sel->offsets[list + 1];
        const int32_t *i = lower_bound(sel->indices + sel->offsets[list], last, begin);
        for (; i < last && *i < end; i++) {
            if (indices_t)
                indices_t[place[*i]] = g;
            place[*i]++;
        }
    }
}

static tess_status reserve(tess_selection *sel)
{
    const int64_t counts[] = {(int64_t)sel->batch * sel->heads * sel->n_k + 2, sel->capacity};
    const size_t sizes[] = {sizeof(int64_t), sizeof(int32_t)};
    TESS_TRY(tess__arena_reserve(&sel->arena, tess__sel_bytes(2, counts, sizes)));
    sel->offsets_t = tess__arena_take(&sel->arena, (size_t)counts[0] * sizes[0]);
    sel->indices_t = tess__arena_take(&sel->arena, (size_t)counts[1] * sizes[1]);
    return TESS_OK;
}

tess_status tess_selection_transpose(tess_selection *sel)
{
    TESS_REQUIRE(sel);
    if (sel->transposed)
        return TESS_OK;
    if (!sel->offsets_t)
        TESS_TRY(reserve(sel));

    const int64_t heads = (int64_t)sel->batch * sel->heads, units = heads * sel->n_k;
    const int64_t ranges = RANGES_LEAST + sel->n_k / RANGE_UNITS, items = heads * ranges;
    const int threads = tess__selection_team(sel, sel->offsets[sel->lists]);
    int64_t *const offsets_t = sel->offsets_t;
    memset(offsets_t, 0, ((size_t)units + 2) * sizeof *offsets_t);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t item = 0; item < items; item++)
        transpose_range(sel, item / ranges, item % ranges, ranges, offsets_t, NULL);
    for (int64_t u = 1; u < units + 2; u++)
        offsets_t[u] += offsets_t[u - 1];
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t item = 0; item < items; item++)
        transpose_range(sel, item / ranges, item % ranges, ranges, offsets_t, sel->indices_t);
    sel->transposed = 1;
    return TESS_OK;
}
