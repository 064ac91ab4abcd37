/* SPDX-License-Identifier: Apache-2.0 */
/* plan_detail.c - one layer of a plan as the page draws it.
 *
 *   {"step":..,"layer":..,"shares":"base64","before":"base64" or null,
 *    "maps":[{"head":..,"density":..,"rows":..,"columns":..,"cells":"base64","key_cuts":[..]},..]}
 *
 * Shares are numbers of 7 bits a byte, the lowest first, with the high bit on all bytes but the
 * last (LEB128): for each head how many there are, and of each share its rank and its first block
 * as differences from the last share's rank and end (2 d, or -2 d - 1 for d < 0), its blocks, and
 * its load. "before" are the contiguous loads of the ranks. A load is in units of 1 / 4096 of the
 * mean rank's.
 *
 * A map is the head's mask in the order of the plan, shrunk to at most `cells` x `cells` cells; a
 * cell is the fraction of its blocks that are selected, 0..255. Cost: O(heads q_blocks), and
 * O(q_blocks k_blocks) for each map.
 */
#include "plan_page.h"

#include "tessera/advanced/explain.h"

#include <math.h>
#include <string.h>

enum { CELLS = TESS_DETAIL_CELLS };

/* ---- shares ---------------------------------------------------------------------------------- */

static void add_number(tess__markup *bytes, uint64_t value)
{
    for (; value >> 7; value >>= 7)
        tess__markup_add(bytes, &(char){(char)(128 | (value & 127))}, 1);
    tess__markup_add(bytes, &(char){(char)value}, 1);
}

static void add_difference(tess__markup *bytes, int64_t d)
{
    add_number(bytes, d < 0 ? (uint64_t)(-2 * d - 1) : (uint64_t)(2 * d));
}

static void add_load(tess__markup *bytes, int64_t load, double mean)
{
    add_number(bytes, mean > 0.0 ? (uint64_t)(4096.0 * (double)load / mean + 0.5) : 0);
}

/* Work of the share's query blocks; rows has the load of each query block of its head. */
static int64_t share_load(const tess__detail *d, const tess_share *share, const int64_t *rows)
{
    const tess_plan_layer *l = d->layer;
    const int64_t group = l->head_group ? l->head_group[share->head] : 0;
    const int32_t *order = l->q_order ? l->q_order + group * d->q_blocks : NULL;
    int64_t load = 0;
    for (int32_t i = share->q_begin; i < share->q_end; i++)
        load += rows[order ? order[i] : i];
    return load;
}

static void add_head(const tess__detail *d, int head, const int64_t *rows, double mean,
                     tess__markup *bytes)
{
    int64_t n = 0, rank = 0, end = 0;
    for (int64_t i = 0; i < d->layer->n_shares; i++)
        n += d->layer->shares[i].head == head;
    add_number(bytes, (uint64_t)n);
    for (int64_t i = 0; i < d->layer->n_shares; i++) {
        const tess_share *s = &d->layer->shares[i];
        if (s->head != head)
            continue;
        add_difference(bytes, s->rank - rank);
        add_difference(bytes, s->q_begin - end);
        add_number(bytes, (uint64_t)(s->q_end - s->q_begin));
        add_load(bytes, share_load(d, s, rows), mean);
        rank = s->rank;
        end = s->q_end;
    }
}

/* The mean load of a rank. rows: (q_blocks), overwritten. */
static tess_status mean_load(const tess__detail *d, int64_t *rows, double *mean)
{
    double sum = 0.0;
    for (int head = 0; head < d->heads; head++) {
        TESS_TRY(tess_work_rows(d->work, d->index, head, rows));
        for (int32_t i = 0; i < d->q_blocks; i++)
            sum += (double)rows[i];
    }
    *mean = sum / d->ranks;
    return TESS_OK;
}

static tess_status add_shares(const tess__detail *d, int64_t *rows, double mean, tess__jw *w)
{
    tess__markup bytes = {.ctx = d->ctx};
    tess_status status = TESS_OK;
    for (int head = 0; head < d->heads && !status; head++) {
        status = tess_work_rows(d->work, d->index, head, rows);
        if (!status)
            add_head(d, head, rows, mean, &bytes);
    }
    tess__markup_bytes(w, "shares", bytes.data, bytes.size);
    status = status ? status : bytes.status;
    tess__markup_free(&bytes);
    return status;
}

/* Loads of the ranks without a plan; null where the heads do not divide. */
static tess_status add_before(const tess__detail *d, double mean, tess__jw *w)
{
    int64_t *loads = TESS_ALLOC(d->ctx, (size_t)d->ranks * sizeof *loads);
    tess__markup bytes = {.ctx = d->ctx};
    tess_status status = tess_plan_loads_before(d->plan, d->index, d->work, loads);
    for (int rank = 0; !status && loads[0] >= 0 && rank < d->ranks; rank++)
        add_load(&bytes, loads[rank], mean);
    if (bytes.size)
        tess__markup_bytes(w, "before", bytes.data, bytes.size);
    else
        tess__jw_null(w, "before");
    status = status ? status : bytes.status;
    tess__markup_free(&bytes);
    tess__free(d->ctx, loads);
    return status;
}

/* ---- masks ----------------------------------------------------------------------------------- */

typedef struct {
    int32_t rows, columns; /* cells */
    int64_t counts[CELLS * CELLS];
    uint8_t cells[CELLS * CELLS];
} picture;

/* Fills the picture of a head's mask, rows and columns in the order of the head's group. */
static tess_status draw_mask(const tess__detail *d, int head, const int32_t *q_order,
                             const int32_t *k_place, picture *map, int64_t *selected)
{
    *selected = 0;
    memset(map->counts, 0, sizeof map->counts);
    map->rows = TESS_MIN(d->q_blocks, d->cells);
    map->columns = TESS_MIN(d->k_blocks, d->cells);
    for (int32_t i = 0; i < d->q_blocks; i++) {
        const uint64_t *bits;
        TESS_TRY(tess_work_mask_row(d->work, d->index, head, q_order ? q_order[i] : i, &bits));
        int64_t *line = map->counts + (int64_t)i * map->rows / d->q_blocks * map->columns;
        for (int32_t k = 0; k < d->k_blocks; k++)
            if (bits[k / 64] >> (k % 64) & 1) {
                line[(int64_t)(k_place ? k_place[k] : k) * map->columns / d->k_blocks]++;
                ++*selected;
            }
    }
    for (int32_t y = 0; y < map->rows; y++)
        for (int32_t x = 0; x < map->columns; x++) {
            const int64_t high = ((int64_t)(y + 1) * d->q_blocks + map->rows - 1) / map->rows -
                                 ((int64_t)y * d->q_blocks + map->rows - 1) / map->rows;
            const int64_t wide =
                ((int64_t)(x + 1) * d->k_blocks + map->columns - 1) / map->columns -
                ((int64_t)x * d->k_blocks + map->columns - 1) / map->columns;
            const int32_t i = y * map->columns + x;
            map->cells[i] = (uint8_t)(map->counts[i] * 255 / (high * wide));
        }
    return TESS_OK;
}

static tess_status add_map(const tess__detail *d, int head, int32_t *k_place, picture *map,
                           tess__jw *w)
{
    const tess_plan_layer *l = d->layer;
    const int64_t group = l->head_group ? l->head_group[head] : 0;
    const int32_t *q_order = l->q_order ? l->q_order + group * d->q_blocks : NULL;
    const int ring = l->strategy.ring;
    int64_t selected;
    if (l->k_order)
        for (int32_t i = 0; i < d->k_blocks; i++)
            k_place[l->k_order[group * d->k_blocks + i]] = i;
    TESS_TRY(draw_mask(d, head, q_order, l->k_order ? k_place : NULL, map, &selected));
    tess__jw_begin(w, NULL, '{');
    tess__jw_int(w, "head", head);
    tess__jw_real(w, "density", (double)selected / ((double)d->q_blocks * d->k_blocks));
    tess__jw_int(w, "rows", map->rows);
    tess__jw_int(w, "columns", map->columns);
    tess__markup_bytes(w, "cells", map->cells, (size_t)map->rows * map->columns);
    tess__jw_row_i32(w, "key_cuts", l->k_cuts ? l->k_cuts + group * (ring + 1) + 1 : NULL,
                     l->k_cuts ? (size_t)ring - 1 : 0);
    tess__jw_end(w, '}');
    return TESS_OK;
}

static tess_status add_maps(const tess__detail *d, int maps, tess__jw *w)
{
    tess__arena arena = {.ctx = d->ctx};
    picture *map = tess__arena_take(&arena, sizeof *map);
    int32_t *k_place = tess__arena_take(&arena, (size_t)d->k_blocks * sizeof *k_place);
    tess_status status = map && k_place ? TESS_OK : TESS_ENOMEM;
    tess__jw_begin(w, "maps", '[');
    for (int head = 0; head < maps && !status; head++)
        status = add_map(d, head, k_place, map, w);
    tess__jw_end(w, ']');
    tess__arena_free(&arena);
    return status;
}

tess_status tess__detail_add(const tess__detail *detail, int maps, tess__markup *text)
{
    int64_t *rows = TESS_ALLOC(detail->ctx, (size_t)detail->q_blocks * sizeof *rows);
    tess__jw w = tess__markup_json(text, 6);
    double mean;
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "step", detail->step);
    tess__jw_int(&w, "layer", detail->number);
    tess_status status = mean_load(detail, rows, &mean);
    if (!status)
        status = add_shares(detail, rows, mean, &w);
    if (!status)
        status = add_before(detail, mean, &w);
    tess__free(detail->ctx, rows);
    if (!status && maps > 0)
        status = add_maps(detail, maps, &w);
    tess__jw_end(&w, '}');
    return status ? status : tess__jw_finish(&w);
}
