/* SPDX-License-Identifier: Apache-2.0 */
/* selection_set.c - writes the lists of a selection: from lists, from a mask.
 *
 * Lists can hold 1e8 indices and masks 1e10 elements, so both are read at the speed of memory by
 * all threads. The lists are cut into at most PARTS runs of neighbours, however many threads there
 * are. Everything is checked before the first write: a call that fails leaves the selection as it
 * was, without memory of its own.
 */
#include "attn_internal.h"

#include <assert.h>
#include <string.h>

enum { PARTS = 1024 };

/* The first list of part number `part` of `parts`. */
static int64_t part_begin(int64_t lists, int part, int parts)
{
    return lists / parts * part + (lists % parts < part ? lists % parts : part);
}

static int parts_of(int64_t lists)
{
    return lists < PARTS ? (int)lists : PARTS;
}

int tess__selection_team(const tess_selection *sel, int64_t work)
{
    /* Below this a team costs more than it saves. */
    return work < (1 << 16) ? 1 : sel->ctx->threads;
}

/* ---- lists -------------------------------------------------------------------------------- */

/* The first offset that falls, or lists + 1. */
static int64_t first_falling_offset(const tess_selection *sel, const int64_t *offsets)
{
    const int threads = tess__selection_team(sel, sel->lists);
    const int parts = parts_of(sel->lists);
    int64_t first = sel->lists + 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(min : first)
    for (int part = 0; part < parts; part++) {
        const int64_t end = part_begin(sel->lists, part + 1, parts);
        for (int64_t i = part_begin(sel->lists, part, parts) + 1; i <= end && i < first; i++)
            if (offsets[i] < offsets[i - 1])
                first = i;
    }
    return first;
}

/* Ascending from 0 or more to at most n_k - 1. No way out of the loop, so that it becomes vectors.
 */
static int list_is_valid(const int32_t *list, int64_t n, int32_t n_k)
{
    if (n == 0)
        return 1;
    int bad = (list[0] < 0) | (list[n - 1] >= n_k);
    for (int64_t i = 1; i < n; i++)
        bad |= list[i] <= list[i - 1];
    return !bad;
}

/* The first list that is not valid, or `lists`. */
static int64_t first_invalid_list(const tess_selection *sel, const int64_t *offsets,
                                  const int32_t *indices)
{
    const int threads = tess__selection_team(sel, offsets[sel->lists]);
    const int parts = offsets[sel->lists] > 0 ? parts_of(sel->lists) : 0;
    int64_t first = sel->lists;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(min : first)
    for (int part = 0; part < parts; part++) {
        const int64_t end = part_begin(sel->lists, part + 1, parts);
        for (int64_t i = part_begin(sel->lists, part, parts); i < end && i < first; i++)
            if (!list_is_valid(indices + offsets[i], offsets[i + 1] - offsets[i], sel->n_k))
                first = i;
    }
    return first;
}

/* The sentence about the first wrong index of a list that is not valid. */
static tess_status fail_list(const tess_selection *sel, int64_t list, const int64_t *offsets,
                             const int32_t *indices)
{
    int64_t i = offsets[list];
    while (indices[i] >= 0 && indices[i] < sel->n_k &&
           (i == offsets[list] || indices[i] > indices[i - 1]))
        i++;
    if (indices[i] < 0 || indices[i] >= sel->n_k)
        return tess__fail(TESS_EINVAL,
                          "tess_selection_set_lists: indices[%lld] is %d in list %lld, must be "
                          "below %d and not negative",
                          (long long)i, indices[i], (long long)list, sel->n_k);
    return tess__fail(
        TESS_EINVAL,
        "tess_selection_set_lists: indices[%lld] is %d in list %lld, must be above %d "
        "before it",
        (long long)i, indices[i], (long long)list, indices[i - 1]);
}

static tess_status check_offsets(const tess_selection *sel, const int64_t *offsets)
{
    static const char who[] = "tess_selection_set_lists";
    if (offsets[0] != 0)
        return tess__invalid(who, "offsets[0] is %lld, must be 0", (long long)offsets[0]);
    const int64_t i = first_falling_offset(sel, offsets);
    if (i <= sel->lists)
        return tess__invalid(who, "offsets[%lld] is %lld, must be %lld or more as before it",
                             (long long)i, (long long)offsets[i], (long long)offsets[i - 1]);
    if (offsets[sel->lists] > sel->capacity)
        return tess__invalid(who, "%lld indices, the selection has room for %lld",
                             (long long)offsets[sel->lists], (long long)sel->capacity);
    return TESS_OK;
}

/* memcpy by all threads. */
static void copy_indices(tess_selection *sel, const int32_t *indices, int64_t n)
{
    const int threads = tess__selection_team(sel, n);
    const int parts = parts_of(n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < parts; part++) {
        const int64_t begin = part_begin(n, part, parts), end = part_begin(n, part + 1, parts);
        memcpy(sel->indices + begin, indices + begin, (size_t)(end - begin) * sizeof *indices);
    }
}

tess_status tess_selection_set_lists(tess_selection *sel, const int64_t *offsets,
                                     const int32_t *indices)
{
    TESS_REQUIRE(sel, offsets);
    TESS_TRY(check_offsets(sel, offsets));
    const int64_t n = offsets[sel->lists];
    if (!indices && n > 0)
        return tess__invalid(__func__, "indices is NULL");
    const int64_t bad = first_invalid_list(sel, offsets, indices);
    if (bad < sel->lists)
        return fail_list(sel, bad, offsets, indices);
    memcpy(sel->offsets, offsets, ((size_t)sel->lists + 1) * sizeof *offsets);
    copy_indices(sel, indices, n);
    tess__selection_changed(sel);
    return TESS_OK;
}

void tess__selection_changed(const tess_selection *sel)
{
    (void)sel;
    assert(sel->offsets[0] == 0 && sel->offsets[sel->lists] <= sel->capacity);
    assert(first_falling_offset(sel, sel->offsets) > sel->lists);
    assert(first_invalid_list(sel, sel->offsets, sel->indices) == sel->lists);
}

/* ---- mask --------------------------------------------------------------------------------- */

/* A row of a mask, taken CHUNK elements at a time. */
enum { CHUNK = 4096 };
typedef struct {
    const tess__kernels *kernels;
    const uint8_t *data;
    int bytes; /* 1: a byte each, 0: a bit each */
    int32_t n;
} mask_row;

static mask_row mask_row_at(const tess_selection *sel, const void *mask, tess_mask_kind kind,
                            int64_t row)
{
    const int bytes = kind == TESS_MASK_BYTES;
    const size_t stride = bytes ? (size_t)sel->n_k : ((size_t)sel->n_k + 7) / 8;
    return (mask_row){sel->ctx->kernels, (const uint8_t *)mask + (size_t)row * stride, bytes,
                      sel->n_k};
}

/* Elements at .. at + CHUNK - 1 as bits; returns how many are set. */
static int64_t mask_chunk(const mask_row *row, int64_t at, uint64_t words[CHUNK / 64])
{
    const int32_t n = row->n - at < CHUNK ? (int32_t)(row->n - at) : CHUNK;
    return row->kernels->bits_row(words, row->data + (row->bytes ? at : at / 8), row->bytes, n);
}

static int64_t mask_count(mask_row row)
{
    uint64_t words[CHUNK / 64];
    int64_t n = 0;
    for (int64_t at = 0; at < row.n; at += CHUNK)
        n += mask_chunk(&row, at, words);
    return n;
}

/* Writes the indices of the row; returns how many. */
static int64_t mask_indices(mask_row row, int32_t *indices)
{
    uint64_t words[CHUNK / 64];
    int64_t n = 0;
    for (int64_t at = 0; at < row.n; at += CHUNK) {
        const int64_t end = n + mask_chunk(&row, at, words);
        for (int i = 0; n < end; i++)
            for (uint64_t word = words[i]; word; word &= word - 1)
                indices[n++] = (int32_t)at + 64 * i + __builtin_ctzll(word);
    }
    return n;
}

tess_status tess_selection_set_mask(tess_selection *sel, const void *mask, tess_mask_kind kind)
{
    TESS_REQUIRE(sel);
    if (kind != TESS_MASK_BYTES && kind != TESS_MASK_BITS)
        return tess__invalid(__func__, "kind is %d, must be %d or %d", (int)kind, TESS_MASK_BYTES,
                             TESS_MASK_BITS);
    if (!mask && sel->lists > 0 && sel->n_k > 0)
        return tess__invalid(__func__, "mask is NULL");
    if (!mask)
        mask = ""; /* it has no element, and none is read */

    /* Counts by part first: each part then knows where its indices begin. */
    const int threads = tess__selection_team(sel, sel->lists * sel->n_k / 8);
    const int parts = parts_of(sel->lists);
    int64_t begins[PARTS + 1] = {0};
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int part = 0; part < parts; part++) {
        const int64_t end = part_begin(sel->lists, part + 1, parts);
        int64_t n = 0;
        for (int64_t i = part_begin(sel->lists, part, parts); i < end; i++)
            n += mask_count(mask_row_at(sel, mask, kind, i));
        begins[part + 1] = n;
    }
    for (int part = 0; part < parts; part++)
        begins[part + 1] += begins[part];
    if (begins[parts] > sel->capacity)
        return tess__invalid(__func__,
                             "the mask selects %lld units, the selection has room for %lld",
                             (long long)begins[parts], (long long)sel->capacity);

#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int part = 0; part < parts; part++) {
        const int64_t end = part_begin(sel->lists, part + 1, parts);
        int64_t at = begins[part];
        for (int64_t i = part_begin(sel->lists, part, parts); i < end; i++) {
            at += mask_indices(mask_row_at(sel, mask, kind, i), sel->indices + at);
            sel->offsets[i + 1] = at;
        }
    }
    tess__selection_changed(sel);
    return TESS_OK;
}
