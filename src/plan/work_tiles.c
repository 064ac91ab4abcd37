/* SPDX-License-Identifier: Apache-2.0 */
/* work_tiles.c - sums of work over heads, query places and key parts; unions of key blocks.
 *
 * Rows of bits are added up by column first, up to TESS_PLANE_ROWS of equal weight at a time, and
 * only the planes of their sum are counted against the bits of each key part:
 *
 *   work(rows, part) = weight * sum over planes p, slices b: 2^(p + b) popcount(plane p & part & b)
 *
 * so that the cost of a row does not grow with the number of parts. A weight is 1, or the rows of
 * the query block where pairs of blocks count their rows. Without masks everything is a share of
 * the loads of heads.
 */
#include "work.h"

#include <string.h>

/* ---- batches of rows ------------------------------------------------------------------------ */

/* Calls add(user, rows, n, weight) with the rows of bits that belong to the heads and places, each
 * once, in runs of equal weight. */
typedef void (*add_fn)(void *user, const uint64_t *const *rows, int n, int64_t weight);

static void for_batches(const tess_work *work, int layer, const int32_t *heads, int n,
                        const int32_t *q_order, int32_t q_begin, int32_t q_end, add_fn add,
                        void *user)
{
    const uint64_t *rows[TESS_PLANE_ROWS];
    int filled = 0;
    int64_t weight = 1;
    for (int i = 0; i < n; i++) {
        const int head = heads ? heads[i] : i;
        for (int32_t p = q_begin; p < q_end; p++) {
            const int32_t q = q_order ? q_order[p] : p;
            const int64_t here =
                work->by_rows ? tess__work_q_row(work, q + 1) - tess__work_q_row(work, q) : 1;
            if (filled == TESS_PLANE_ROWS || (filled > 0 && here != weight)) {
                add(user, rows, filled, weight);
                filled = 0;
            }
            weight = here;
            rows[filled++] = tess__work_bits(work, layer, head, q);
        }
    }
    if (filled > 0)
        add(user, rows, filled, weight);
}

/* The load of the heads' query blocks at these places, over all keys. */
static int64_t load_of_places(const tess_work *work, int layer, const int32_t *heads, int n,
                              const int32_t *q_order, int32_t q_begin, int32_t q_end)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const int head = heads ? heads[i] : i;
        if (!q_order) {
            sum += tess__work_prefix(work, layer, head, q_end) -
                   tess__work_prefix(work, layer, head, q_begin);
            continue;
        }
        for (int32_t p = q_begin; p < q_end; p++)
            sum += tess__work_prefix(work, layer, head, q_order[p] + 1) -
                   tess__work_prefix(work, layer, head, q_order[p]);
    }
    return sum;
}

/* ---- key parts ------------------------------------------------------------------------------ */

/* Rows of the parts before each, and all of them at the end. */
static void fill_rows(tess__key_parts *parts, const int32_t *k_order, const int32_t *k_cuts)
{
    const tess_work *work = parts->work;
    parts->rows[0] = 0;
    for (int j = 0; j < parts->n; j++) {
        int64_t rows = 0;
        for (int32_t p = k_cuts[j]; p < k_cuts[j + 1]; p++) {
            const int32_t k = k_order ? k_order[p] : p;
            rows += tess__work_k_row(work, k + 1) - tess__work_k_row(work, k);
        }
        parts->rows[j + 1] = parts->rows[j] + rows;
    }
}

static uint64_t *part_bits(const tess__key_parts *parts, int part, int slice)
{
    const tess_work *work = parts->work;
    return parts->bits + (size_t)(part * work->n_slices + slice) * (size_t)work->words;
}

static void fill_bits(tess__key_parts *parts, const int32_t *k_order, const int32_t *k_cuts)
{
    const tess_work *work = parts->work;
    for (int j = 0; j < parts->n; j++)
        for (int b = 0; b < work->n_slices; b++) {
            uint64_t *bits = part_bits(parts, j, b);
            memset(bits, 0, (size_t)work->words * sizeof *bits);
            for (int32_t p = k_cuts[j]; p < k_cuts[j + 1]; p++) {
                const int32_t k = k_order ? k_order[p] : p;
                bits[k / 64] |= work->slices[b][k / 64] & UINT64_C(1) << (k % 64);
            }
        }
}

tess_status tess__key_parts_make(const tess_work *work, const int32_t *k_order,
                                 const int32_t *k_cuts, int n, tess__key_parts *parts)
{
    tess__key_parts made = {.work = work, .n = n};
    /* All keys in one part: prefix sums know what it has. */
    const int whole = n == 1 && k_cuts[0] == 0 && k_cuts[1] == work->info.k_blocks;
    if (!work->bits || whole) {
        made.rows = TESS_ALLOC(work->ctx, ((size_t)n + 1) * sizeof *made.rows);
        fill_rows(&made, k_order, k_cuts);
    } else {
        const size_t row = (size_t)work->n_slices * (size_t)work->words * sizeof *made.bits;
        made.bits = TESS_ALLOC(work->ctx, (size_t)n * row);
        fill_bits(&made, k_order, k_cuts);
    }
    *parts = made;
    return TESS_OK;
}

void tess__key_parts_free(tess__key_parts *parts)
{
    if (!parts->work)
        return;
    tess__free(parts->work->ctx, parts->bits);
    tess__free(parts->work->ctx, parts->rows);
    *parts = (tess__key_parts){0};
}

/* ---- sums ----------------------------------------------------------------------------------- */

typedef struct {
    const tess__key_parts *parts;
    int64_t *row;
} part_sum;

/* Digits that a sum of n rows can have. */
static int digits_of(int n)
{
    return 32 - __builtin_clz((unsigned)n);
}

enum { STRIP = 512 }; /* words that planes are made of at a time: 32 KiB on the stack */

static void add_to_parts(void *user, const uint64_t *const *rows, int n, int64_t weight)
{
    const part_sum *sum = user;
    const tess_work *work = sum->parts->work;
    const tess__kernels *kernels = work->ctx->kernels;
    const int digits = digits_of(n);
    uint64_t planes[TESS_PLANES * STRIP];
    const uint64_t *from[TESS_PLANE_ROWS];
    for (int at = 0; at < work->words; at += STRIP) {
        const int words = TESS_MIN(work->words - at, STRIP);
        for (int i = 0; i < n; i++)
            from[i] = rows[i] + at;
        kernels->bits_planes(planes, from, n, words);
        for (int j = 0; j < sum->parts->n; j++)
            for (int b = 0; b < work->n_slices; b++) {
                const uint64_t *part = part_bits(sum->parts, j, b) + at;
                int64_t count = 0;
                for (int p = 0; p < digits; p++)
                    count += kernels->bits_and_count(planes + (size_t)p * (size_t)words, part,
                                                     (size_t)words)
                             << p;
                sum->row[j] += (weight * count) << work->digit[b];
            }
    }
}

void tess__key_parts_sum(const tess__key_parts *parts, int layer, const int32_t *heads, int n,
                         const int32_t *q_order, int32_t q_begin, int32_t q_end, int64_t *row)
{
    const tess_work *work = parts->work;
    if (!parts->bits) {
        const int64_t load = load_of_places(work, layer, heads, n, q_order, q_begin, q_end);
        for (int j = 0; j < parts->n; j++)
            row[j] = tess__work_share(load, parts->rows[j + 1], work->rows_k) -
                     tess__work_share(load, parts->rows[j], work->rows_k);
        return;
    }
    memset(row, 0, (size_t)parts->n * sizeof *row);
    part_sum sum = {parts, row};
    for_batches(work, layer, heads, n, q_order, q_begin, q_end, add_to_parts, &sum);
}

tess_status tess__work_tiles(const tess_work *work, int layer, const int32_t *heads, int n,
                             const int32_t *q_order, const int32_t *q_cuts, const int32_t *k_order,
                             const int32_t *k_cuts, int ring, int64_t *tiles)
{
    tess__key_parts parts = {0};
    TESS_TRY(tess__key_parts_make(work, k_order, k_cuts, ring, &parts));
    for (int r = 0; r < ring; r++)
        tess__key_parts_sum(&parts, layer, heads, n, q_order, q_cuts[r], q_cuts[r + 1],
                            tiles + (size_t)r * (size_t)ring);
    tess__key_parts_free(&parts);
    return TESS_OK;
}

/* ---- columns -------------------------------------------------------------------------------- */

typedef struct {
    const tess_work *work;
    int64_t *loads;
} column_sum;

/* Eight bits as eight bytes of 0 or 1, the lowest first. */
static uint64_t spread(uint64_t bits)
{
    const uint64_t each = (bits * 0x0101010101010101u) & 0x8040201008040201u;
    return (each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/* Adds weight times the sums of 64 columns, whose planes are `words` apart, to n loads. */
static void add_word(int64_t *loads, int n, const uint64_t *planes, int words, int digits,
                     int64_t weight)
{
    for (int at = 0; at < n; at += 8) {
        uint64_t bytes = 0; /* eight sums: at most TESS_PLANE_ROWS, so that a byte holds each */
        for (int p = 0; p < digits; p++)
            bytes += spread((planes[(size_t)p * (size_t)words] >> at) & 0xff) << p;
        for (int i = at; bytes; i++, bytes >>= 8)
            loads[i] += weight * (int64_t)(bytes & 0xff);
    }
}

static void add_to_columns(void *user, const uint64_t *const *rows, int n, int64_t weight)
{
    const column_sum *sum = user;
    const tess_work *work = sum->work;
    uint64_t planes[TESS_PLANES * STRIP];
    const uint64_t *from[TESS_PLANE_ROWS];
    for (int at = 0; at < work->words; at += STRIP) {
        const int words = TESS_MIN(work->words - at, STRIP);
        for (int i = 0; i < n; i++)
            from[i] = rows[i] + at;
        work->ctx->kernels->bits_planes(planes, from, n, words);
        for (int w = 0; w < words; w++) {
            const int64_t left = work->info.k_blocks - (int64_t)(at + w) * 64;
            add_word(sum->loads + (int64_t)(at + w) * 64, left < 64 ? (int)left : 64, planes + w,
                     words, digits_of(n), weight);
        }
    }
}

void tess__work_columns(const tess_work *work, int layer, const int32_t *heads, int n,
                        const int32_t *q_order, int32_t q_begin, int32_t q_end, int64_t *loads)
{
    const int32_t k_blocks = work->info.k_blocks;
    if (!work->bits) {
        const int64_t load = load_of_places(work, layer, heads, n, q_order, q_begin, q_end);
        int64_t before = 0;
        for (int32_t k = 0; k < k_blocks; k++) {
            const int64_t here =
                tess__work_share(load, tess__work_k_row(work, k + 1), work->rows_k);
            loads[k] = here - before;
            before = here;
        }
        return;
    }
    memset(loads, 0, (size_t)k_blocks * sizeof *loads);
    column_sum sum = {work, loads};
    for_batches(work, layer, heads, n, q_order, q_begin, q_end, add_to_columns, &sum);
    if (work->by_rows)
        for (int32_t k = 0; k < k_blocks; k++)
            loads[k] *= tess__work_k_row(work, k + 1) - tess__work_k_row(work, k);
}
