/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_selection.c - the part of a selection that a slot computes, in the order of its packed
 * rows.
 *
 * Groups of the part are the selection's, cut by the plan's query blocks, in the order of the
 * slot's blocks; units likewise. A list of the part is the list of its group, each unit replaced by
 * where its rows lie among the packed keys, ascending. No mask of groups by units is made.
 *
 * Cost: the lists of the slot's groups are read twice, first to count, and every list of the part
 * is sorted: O(n log n) of its n units. Memory while it runs:
 *
 *   | two arrays of ranges (groups, units) | first (units of sel + 1) | place (units of the part) |
 */
#include "exchange_internal.h"

#include "attn/attn_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One side of the part: its ranges in packed order. */
typedef struct {
    int64_t *bounds; /* (n + 1): packed rows where ranges begin */
    int32_t *from;   /* (n): the range of the selection that each is cut from */
    int32_t n;
} packed_side;

/* What is read of a side of the selection, and of the blocks that the slot has there. */
typedef struct {
    const int64_t *sel_bounds;
    int32_t sel_n;
    const int32_t *ids;
    int32_t n_ids;
    const int64_t *rows; /* (blocks + 1): where the plan's blocks begin */
} side_in;

/* Ranges of the selection that share rows with the blocks, one for each block that they do so with;
 * out NULL only counts. */
static int64_t cut_side(const side_in *in, packed_side *out)
{
    int64_t n = 0, place = 0;
    for (int32_t i = 0; i < in->n_ids; i++) {
        const int64_t begin = in->rows[in->ids[i]], end = in->rows[in->ids[i] + 1];
        if (begin == end)
            continue;
        for (int32_t r = tess__range_of(in->sel_bounds, in->sel_n, begin);
             r < in->sel_n && in->sel_bounds[r] < end; r++, n++) {
            const int64_t first = TESS_MAX(begin, in->sel_bounds[r]);
            const int64_t last = TESS_MIN(end, in->sel_bounds[r + 1]);
            if (out) {
                out->bounds[n] = place;
                out->from[n] = r;
            }
            place += last - first;
        }
    }
    if (out)
        out->bounds[n] = place;
    return n;
}

static tess_status make_side(tess__arena *arena, const side_in *in, packed_side *out)
{
    const int64_t n = cut_side(in, NULL);
    if (n > INT32_MAX)
        return tess__invalid("tess_exchange_selection", "%lld ranges, must be at most %d",
                             (long long)n, INT32_MAX);
    out->bounds = TESS_TAKE(arena, ((size_t)n + 1) * sizeof *out->bounds);
    out->from = TESS_TAKE(arena, (size_t)n * sizeof *out->from);
    out->n = (int32_t)n;
    cut_side(in, out);
    return TESS_OK;
}

/* Where each unit of the selection lies in the part: place[first[u]..first[u + 1]). */
static tess_status invert(tess__arena *arena, const packed_side *k, int32_t units, int64_t **first,
                          int32_t **place)
{
    int64_t *at = TESS_TAKE(arena, ((size_t)units + 2) * sizeof *at);
    int32_t *list = TESS_TAKE(arena, (size_t)k->n * sizeof *list);
    memset(at, 0, ((size_t)units + 2) * sizeof *at);
    for (int32_t i = 0; i < k->n; i++)
        at[k->from[i] + 2]++;
    for (int32_t u = 0; u < units; u++)
        at[u + 2] += at[u + 1];
    for (int32_t i = 0; i < k->n; i++)
        list[at[k->from[i] + 1]++] = i;
    *first = at;
    *place = list;
    return TESS_OK;
}

/* The list of a group of the part, or only its length; *missing = a unit whose rows the slot does
 * not all hold. */
static int64_t part_list(const tess_selection *sel, int64_t list, const int64_t *first,
                         const int32_t *place, const int64_t *held, int32_t *indices,
                         int32_t *missing)
{
    int64_t n = 0;
    int sorted = 1;
    for (int64_t i = sel->offsets[list]; i < sel->offsets[list + 1]; i++) {
        const int32_t unit = sel->indices[i];
        if (held && held[unit] != sel->bounds_k[unit + 1] - sel->bounds_k[unit])
            *missing = unit;
        for (int64_t p = first[unit]; p < first[unit + 1]; p++, n++) {
            if (!indices)
                continue;
            indices[n] = place[p];
            sorted = sorted && (n == 0 || indices[n - 1] < indices[n]);
        }
    }
    if (indices && !sorted)
        qsort(indices, (size_t)n, sizeof *indices, tess__by_int32);
    return n;
}

/* Rows of each unit of the selection that the part holds. */
static tess_status count_held(tess__arena *arena, const packed_side *k, int32_t units,
                              int64_t **held)
{
    int64_t *rows = TESS_TAKE(arena, (size_t)units * sizeof *rows);
    memset(rows, 0, (size_t)units * sizeof *rows);
    for (int32_t i = 0; i < k->n; i++)
        rows[k->from[i]] += k->bounds[i + 1] - k->bounds[i];
    *held = rows;
    return TESS_OK;
}

/* Counts the lists of the part into offsets, or writes them behind offsets that are known. */
static tess_status walk(const tess_selection *sel, int head, const packed_side *q,
                        const int64_t *first, const int32_t *place, const int64_t *held,
                        int64_t *offsets, int32_t *indices)
{
    int64_t n = 0;
    offsets[0] = 0;
    for (int b = 0; b < sel->batch; b++) {
        const int64_t lists = ((int64_t)b * sel->heads + head) * sel->n_q;
        for (int32_t g = 0; g < q->n; g++, n++) {
            int32_t missing = -1;
            offsets[n + 1] =
                offsets[n] + part_list(sel, lists + q->from[g], first, place, held,
                                       indices ? indices + offsets[n] : NULL, &missing);
            if (missing >= 0)
                return tess__invalid("tess_exchange_selection",
                                     "head %d selects keys %lld..%lld, which the slot does not "
                                     "hold: give tess_plan_exchange the work of the selection",
                                     head, (long long)sel->bounds_k[missing],
                                     (long long)sel->bounds_k[missing + 1] - 1);
        }
    }
    return TESS_OK;
}

/* The keys of the slot at the step. */
static tess_status find_keys(const char *who, const tess_exchange *x, const tess_slot *slot,
                             int step, side_in *k)
{
    TESS_TRY(tess__check_range(who, "step", step, 0, x->ring.steps - 1));
    k->ids = slot->k_ids;
    k->n_ids = slot->n_k;
    if (x->ring.steps > 1) {
        k->ids = x->ring.step[step].k_ids;
        k->n_ids = x->ring.step[step].n_k;
    }
    return TESS_OK;
}

static tess_status build(tess__arena *arena, tess_ctx *ctx, const tess_exchange *x,
                         const tess_selection *sel, const tess_slot *slot, const side_in *in_q,
                         const side_in *in_k, tess_selection **part)
{
    packed_side q = {0}, k = {0};
    int64_t *first = NULL, *held = NULL, *offsets;
    int32_t *place = NULL;
    TESS_TRY(make_side(arena, in_q, &q));
    TESS_TRY(make_side(arena, in_k, &k));
    TESS_TRY(invert(arena, &k, sel->n_k, &first, &place));
    if (x->ring.steps == 1) /* in a ring the other keys come at other steps */
        TESS_TRY(count_held(arena, &k, sel->n_k, &held));
    offsets = TESS_TAKE(arena, ((size_t)sel->batch * (size_t)q.n + 1) * sizeof *offsets);
    TESS_TRY(walk(sel, slot->head, &q, first, place, held, offsets, NULL));
    const tess_sel_shape shape = {.batch = sel->batch,
                                  .heads = 1,
                                  .tokens_q = q.bounds[q.n],
                                  .tokens_k = k.bounds[k.n],
                                  .bounds_q = q.bounds,
                                  .bounds_k = k.bounds,
                                  .n_q = q.n,
                                  .n_k = k.n};
    tess_selection *made = NULL;
    TESS_TRY(tess_selection_create(ctx, &shape, offsets[(int64_t)sel->batch * q.n], &made));
    const tess_status status =
        walk(sel, slot->head, &q, first, place, held, made->offsets, made->indices);
    assert(status == TESS_OK);
    (void)status;
    tess__selection_changed(made);
    *part = made;
    return TESS_OK;
}

tess_status tess_exchange_selection(tess_ctx *ctx, const tess_exchange *exchange,
                                    const tess_selection *sel, int64_t slot, int step,
                                    tess_selection **part)
{
    TESS_REQUIRE(ctx, exchange, sel, part);
    const tess_exchange *x = exchange;
    TESS_TRY(tess__check_range(__func__, "slot", slot, 0, x->n_slots - 1));
    TESS_TRY(
        tess__selection_fits(__func__, sel, sel->batch, x->info.heads, x->tokens_q, x->tokens_k));
    const tess_slot *s = &x->slots[slot];
    const side_in q = {sel->bounds_q, sel->n_q, s->q_ids, s->n_q, x->rows_q};
    side_in k = {.sel_bounds = sel->bounds_k, .sel_n = sel->n_k, .rows = x->rows_k};
    TESS_TRY(find_keys(__func__, x, s, step, &k));
    tess__arena arena = {.ctx = ctx};
    const tess_status status = build(&arena, ctx, x, sel, s, &q, &k, part);
    tess__arena_free(&arena);
    return status;
}
