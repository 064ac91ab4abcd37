/* SPDX-License-Identifier: Apache-2.0 */
/* plan_detail.c - one layer of a plan as the page draws it.
 *
 *   {"step":..,"layer":..,"strategy":"..","shares":[[rank,head,q_begin,q_end,load],..],
 *    "before":[load of each rank, contiguous] or null,
 *    "maps":[{"head":..,"density":..,"rows":..,"columns":..,"cells":"base64","key_cuts":[..]},..]}
 *
 * A map is the head's mask in the order of the plan, shrunk to at most CELLS x CELLS cells; a cell
 * is the share of its blocks that are selected, 0..255. Cost: O(heads q_blocks), for each map
 * O(q_blocks k_blocks).
 */
#include "plan_page.h"

#include "plan/plan_internal.h"
#include "plan/work.h"

#include <string.h>

enum { CELLS = 96 };

/* Work of the share's query blocks; rows has the load of each query block of its head. */
static int64_t share_load(const tess__detail *d, const tess_share *share, const int64_t *rows)
{
    const int64_t group = tess__rank_group(d->plan, share->rank);
    const int32_t *order = d->plan->q_order ? d->plan->q_order + group * d->q_blocks : NULL;
    int64_t load = 0;
    for (int32_t i = share->q_begin; i < share->q_end; i++)
        load += rows[order ? order[i] : i];
    return load;
}

static tess_status add_shares(const tess__detail *d, int64_t *rows, tess__markup *text)
{
    tess__markup_print(text, "\"shares\":[");
    const char *comma = "";
    for (int head = 0; head < d->heads; head++) {
        TESS_TRY(tess_work_rows(d->work, d->layer, head, rows));
        for (int64_t i = 0; i < d->plan->n_shares; i++) {
            const tess_share *s = &d->plan->shares[i];
            if (s->head != head)
                continue;
            tess__markup_print(text, "%s[%d,%d,%d,%d,%lld]", comma, s->rank, head, s->q_begin,
                               s->q_end, (long long)share_load(d, s, rows));
            comma = ",";
        }
    }
    tess__markup_print(text, "]");
    return TESS_OK;
}

/* Loads of contiguous heads and contiguous query blocks at the plan's degrees; ranks in the order
 * (head group, sequence part). Not defined where the heads do not divide. */
static tess_status add_before(const tess__detail *d, int64_t *rows, tess__markup *text)
{
    const tess_plan_layer *p = d->plan;
    const int groups = p->strategy.method == TESS_PLAN_FRACTIONAL ? d->ranks : p->strategy.ulysses;
    const int parts = d->ranks / groups;
    if (d->heads % groups != 0) {
        tess__markup_print(text, ",\"before\":null");
        return TESS_OK;
    }
    int64_t *loads = tess__alloc_zero(d->ctx, (size_t)d->ranks * sizeof *loads);
    if (!loads)
        return tess__nomem((size_t)d->ranks * sizeof *loads);
    tess_status status = TESS_OK;
    for (int head = 0; head < d->heads && !status; head++) {
        status = tess_work_rows(d->work, d->layer, head, rows);
        const int group = head / (d->heads / groups);
        for (int part = 0; part < parts && !status; part++)
            for (int32_t q = tess__even_cut(d->q_blocks, parts, part);
                 q < tess__even_cut(d->q_blocks, parts, part + 1); q++)
                loads[group * parts + part] += rows[q];
    }
    tess__markup_print(text, ",\"before\":[");
    for (int r = 0; r < d->ranks; r++)
        tess__markup_print(text, "%s%lld", r ? "," : "", (long long)loads[r]);
    tess__markup_print(text, "]");
    tess__free(d->ctx, loads);
    return status;
}

typedef struct {
    int32_t rows, columns; /* cells */
    int64_t counts[CELLS * CELLS];
    uint8_t cells[CELLS * CELLS];
} picture;

/* Fills the picture of a head's mask, rows and columns in the order of the head's group. */
static int64_t draw_mask(const tess__detail *d, int head, const int32_t *q_order,
                         const int32_t *k_place, picture *map)
{
    int64_t selected = 0;
    memset(map->counts, 0, sizeof map->counts);
    map->rows = TESS_MIN(d->q_blocks, CELLS);
    map->columns = TESS_MIN(d->k_blocks, CELLS);
    for (int32_t i = 0; i < d->q_blocks; i++) {
        const uint64_t *bits = tess__work_bits(d->work, d->layer, head, q_order ? q_order[i] : i);
        int64_t *line = map->counts + (int64_t)i * map->rows / d->q_blocks * map->columns;
        for (int32_t k = 0; k < d->k_blocks; k++)
            if (bits[k / 64] >> (k % 64) & 1) {
                line[(int64_t)(k_place ? k_place[k] : k) * map->columns / d->k_blocks]++;
                selected++;
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
    return selected;
}

static void add_map(const tess__detail *d, int head, int32_t *k_place, picture *map,
                    tess__markup *text)
{
    const tess_plan_layer *p = d->plan;
    const int64_t group = p->head_group ? p->head_group[head] : 0;
    const int32_t *q_order = p->q_order ? p->q_order + group * d->q_blocks : NULL;
    if (p->k_order)
        for (int32_t i = 0; i < d->k_blocks; i++)
            k_place[p->k_order[group * d->k_blocks + i]] = i;
    const int64_t selected = draw_mask(d, head, q_order, p->k_order ? k_place : NULL, map);
    tess__markup_print(
        text, "{\"head\":%d,\"density\":%.6g,\"rows\":%d,\"columns\":%d,\"cells\":\"", head,
        (double)selected / ((double)d->q_blocks * d->k_blocks), map->rows, map->columns);
    tess__markup_base64(text, map->cells, (size_t)map->rows * map->columns);
    tess__markup_print(text, "\",\"key_cuts\":[");
    for (int part = 1; part < p->strategy.ring && p->k_cuts; part++)
        tess__markup_print(text, "%s%d", part > 1 ? "," : "",
                           p->k_cuts[group * (p->strategy.ring + 1) + part]);
    tess__markup_print(text, "]}");
}

static tess_status add_maps(const tess__detail *d, int maps, tess__markup *text)
{
    tess__arena arena = {.ctx = d->ctx};
    picture *map = tess__arena_take(&arena, sizeof *map);
    int32_t *k_place = tess__arena_take(&arena, (size_t)d->k_blocks * sizeof *k_place);
    tess_status status = map && k_place ? TESS_OK : tess__nomem(sizeof *map);
    tess__markup_print(text, ",\"maps\":[");
    for (int head = 0; head < maps && !status; head++) {
        if (head)
            tess__markup_add(text, ",", 1);
        add_map(d, head, k_place, map, text);
    }
    tess__markup_print(text, "]");
    tess__arena_free(&arena);
    return status;
}

tess_status tess__detail_add(const tess__detail *detail, int maps, tess__markup *text)
{
    char strategy[TESS_STRATEGY_TEXT];
    tess_strategy_format(&detail->plan->strategy, strategy);
    int64_t *rows = tess__alloc(detail->ctx, (size_t)detail->q_blocks * sizeof *rows);
    if (!rows)
        return tess__nomem((size_t)detail->q_blocks * sizeof *rows);
    tess__markup_print(text, "{\"step\":%lld,\"layer\":%lld,\"strategy\":", (long long)detail->step,
                       (long long)detail->number);
    tess__jw name = tess__markup_json(text, 0);
    name.members = 0;
    tess__jw_text(&name, NULL, strategy);
    tess__markup_add(text, ",", 1);
    tess_status status = add_shares(detail, rows, text);
    if (!status)
        status = add_before(detail, rows, text);
    tess__free(detail->ctx, rows);
    if (!status && maps > 0)
        status = add_maps(detail, maps, text);
    tess__markup_add(text, "}", 1);
    return status ? status : text->status;
}
