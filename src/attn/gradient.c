/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - the backward pass over all threads, without atomics on numbers.
 *
 * The keys of each head are cut into ranges. One thread takes a range and walks the head's tiles of
 * queries in order: the range's rows of dk and dv are its own. A tile's dq gets a part from every
 * range, and range r adds its part after range r - 1 has, in finished:
 *
 *   range 0   tile 0 | tile 1 | tile 2 | ...      finished[0] counts the tiles it has finished
 *   range 1            tile 0 | tile 1 | ...      adds to tile t when finished[0] > t
 *   range 2                     tile 0 | ...      adds to tile t when finished[1] > t
 *
 * So every sum has one order, whatever the threads do, nothing is computed twice and no copy of dq
 * is kept. Items run range by range over all heads, so that threads meet on one head only when
 * there are fewer heads than threads, and then they follow each other a tile apart.
 *
 * The number of ranges follows from the shape and the selection alone. A range should hold enough
 * keys of a tile to pay for packing its queries (4 n D floats against 10 n D flop per key), and a
 * call with few heads still needs items for many threads.
 *
 * With virtual keys, these come first: they need the whole list of a tile and what they give goes
 * to every key, so that each range begins with their sum. See attn_virtual.c.
 */
#include "bf16_attention.h"

#include <omp.h>
#include <string.h>

enum {
    KEYS_GOOD = 768,
    KEYS_LEAST = 192,
    /* Elements of k, where products are in bf16: packing a tile's queries costs as much, products
     * half; but a range should not leave the cache either. */
    ELEMENTS_LEAST_BF16 = 384 * 64,
    ITEMS_LEAST = 16,
    /* Virtual keys: tiles side by side, and elements of k in a block, with v half of a second-level
     * cache of 512 KiB. */
    TILES_MOST = 64,
    BLOCK_FLOATS = 32768,
};

typedef struct {
    const tess_attn *attn;
    const tess_selection *sel;
    const tess_attn_saved *saved;
    const tess_view *dout, *dq, *dk, *dv;
    const float *dlse;
    int64_t tiles, ranges;
    int64_t units;     /* key units, or without a selection groups of unit_rows rows */
    int64_t unit_rows; /* 1; whole blocks where products are in bf16 */
    int by_rows;       /* of the latter: bf16_attention.h */
    int64_t parts;     /* items of a head's virtual keys */
} job;

/* Keys that a tile has on average. */
static int64_t keys_per_tile(const tess_attn *attn, const tess_selection *sel)
{
    if (!sel)
        return attn->shape.tokens_k;
    if (sel->lists == 0 || sel->n_k == 0)
        return 0;
    const int64_t units = sel->offsets[sel->lists] / sel->lists;
    return units * (sel->tokens_k / sel->n_k);
}

static int64_t choose_ranges(const tess_attn *attn, const tess_selection *sel, int64_t units)
{
    const int64_t keys = keys_per_tile(attn, sel);
    const int64_t heads = (int64_t)attn->shape.batch * attn->shape.heads;
    const int64_t wanted = (ITEMS_LEAST + heads - 1) / heads;
    const int64_t elements = ELEMENTS_LEAST_BF16 / tess__wide(attn->shape.head_dim);
    const int64_t affordable = keys / (attn->bf16 ? TESS_MAX(elements, KEYS_LEAST) : KEYS_LEAST);
    int64_t n = keys / KEYS_GOOD;
    if (n < wanted)
        n = TESS_MIN(wanted, affordable);
    n = n > TESS_RANGES_MAX ? TESS_RANGES_MAX : n;
    n = n > units ? units : n;
    return n < 1 ? 1 : n;
}

/* The first place in units[0..n) whose value is at least least. */
static int64_t lower_bound(const int32_t *units, int64_t n, int64_t least)
{
    int64_t low = 0;
    while (n > 0) {
        const int64_t half = n / 2;
        if (units[low + half] < least) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

/* The row that a unit of keys begins with. */
static int64_t row_of(const job *j, int64_t unit)
{
    const int64_t row = j->sel ? j->sel->bounds_k[unit] : unit * j->unit_rows;
    return TESS_MIN(row, j->attn->shape.tokens_k);
}

/* Leaves of the tile's keys those in units first..last. */
static void cut_keys(const job *j, tess__key_list *keys, int64_t first, int64_t last)
{
    if (!keys->units) {
        keys->begin = row_of(j, first);
        keys->end = row_of(j, last);
        return;
    }
    const int64_t from = lower_bound(keys->units, keys->n, first);
    const int64_t to = lower_bound(keys->units, keys->n, last);
    keys->units += from;
    keys->n = to - from;
}

/* Rows begin as start, or as zeros without one. */
static void start_rows(const tess_view *view, int64_t b, int64_t h, int64_t first, int64_t last,
                       const float *start, int dim)
{
    for (int64_t s = first; s < last; s++) {
        float *row = tess__view_row(view, b, h, s);
        if (start)
            memcpy(row, start, (size_t)dim * sizeof *row);
        else
            memset(row, 0, (size_t)dim * sizeof *row);
    }
}

/* Rows begin as what their cluster is given. */
static void start_clusters(const job *j, int64_t head, int64_t first, int64_t last)
{
    const tess_attn *attn = j->attn;
    const int dim = attn->shape.head_dim;
    const int64_t b = head / attn->shape.heads, h = head % attn->shape.heads;
    const uint8_t *labels = attn->labels + head * attn->shape.tokens_k;
    const float *given = tess__cluster_given(attn, j->parts, head, 0);
    for (int64_t s = first; s < last; s++) {
        const float *from = given + (int64_t)labels[s] * 2 * dim;
        memcpy(tess__view_row(j->dk, b, h, s), from, (size_t)dim * sizeof *from);
        memcpy(tess__view_row(j->dv, b, h, s), from + dim, (size_t)dim * sizeof *from);
    }
}

/* Adds the tile's dq, or writes it if there is nothing yet. Without keys the part is zero. */
static void hand_over(const job *j, int64_t b, int64_t h, int first, const tess__query_tile *tile,
                      const float *acc, int has_keys)
{
    const int dim = j->attn->shape.head_dim;
    const int32_t *rows = tess__tile_rows(j->sel, b * j->attn->shape.heads + h, tile);

    if (!first && !has_keys)
        return;
    for (int q = 0; q < tile->n; q++) {
        float *row = tess__view_row(j->dq, b, h, rows ? rows[q] : tile->begin + q);
        const float *part = acc + (size_t)q * (size_t)tess__wide(dim);
        for (int d = 0; d < dim; d++)
            row[d] = first ? (has_keys ? part[d] : 0.0f) : row[d] + part[d];
    }
}

/* The kernel's view of tile t of a head with all of its keys. */
static tess__attn_bwd make_task(const job *j, int64_t head, int64_t t, tess__query_tile *tile)
{
    const tess_attn_shape *s = &j->attn->shape;
    const tess_attn_saved *in = j->saved;
    const int64_t b = head / s->heads, h = head % s->heads;
    *tile = tess__tile_at(j->attn, j->sel, t);
    const int64_t row = tess__tile_first(j->sel, tile), at = head * s->tokens_q + row;
    return (tess__attn_bwd){
        .tile = tess__tile_job(j->attn, j->sel, in->q, in->k, in->v, b, h, tile),
        .o = tess__view_row(in->o, b, h, row),
        .dout = tess__view_row(j->dout, b, h, row),
        .stride_o = in->o->stride_s,
        .stride_dout = j->dout->stride_s,
        .lse = in->lse + at,
        .dlse = j->dlse ? j->dlse + at : NULL,
        .dk = tess__view_row(j->dk, b, h, 0),
        .dv = tess__view_row(j->dv, b, h, 0),
        .stride_dk = j->dk->stride_s,
        .stride_dv = j->dv->stride_s,
    };
}

/* The virtual keys of tiles first..last - 1 of a head, at most TILES_MOST: the rows they are made
 * of are summed for all of them block by block, so that a block comes into the cache once; then dq
 * of each tile begins with its virtual key's part, and what it takes back from the keys it lists is
 * left in its start. */
static void run_virtual(const job *j, int64_t head, int64_t first, int64_t last,
                        tess__attn_scratch *w)
{
    const tess_attn *attn = j->attn;
    const tess_attn_shape *s = &attn->shape;
    const int64_t dim = s->head_dim, rows = BLOCK_FLOATS / dim;
    double *sums = tess__virtual_sums(attn, j->tiles, (int)(w - attn->scratch));
    tess__key_cursor at[TILES_MOST] = {{0}};
    tess__attn_bwd tasks[TILES_MOST];
    tess__query_tile tiles[TILES_MOST];
    for (int64_t t = first; t < last; t++)
        tasks[t - first] = make_task(j, head, t, &tiles[t - first]);
    memset(sums, 0, (size_t)((last - first) * 2 * dim) * sizeof *sums);
    for (int64_t begin = 0; begin < s->tokens_k; begin += rows) {
        const int64_t end = s->tokens_k - begin < rows ? s->tokens_k : begin + rows;
        for (int64_t t = first; t < last; t++)
            if (tasks[t - first].tile.dropped > 0)
                attn->ctx->kernels->attn_sums(&tasks[t - first].tile, end, &at[t - first],
                                              sums + (t - first) * 2 * dim, w);
    }
    for (int64_t t = first; t < last; t++) {
        const int64_t row = tess__tile_first(j->sel, &tiles[t - first]);
        float *start = tess__virtual_start(attn, j->tiles, head, t);
        if (tasks[t - first].tile.dropped > 0)
            attn->ctx->kernels->attn_virtual(
                &tasks[t - first], sums + (t - first) * 2 * dim,
                tess__view_row(j->dq, head / s->heads, head % s->heads, row), j->dq->stride_s,
                start, w);
        else
            memset(start, 0, (size_t)(2 * dim) * sizeof *start);
    }
}

/* The same where keys have clusters: each tile leaves its weights, and adds what it gives to the
 * rows of each cluster to those of its part. */
static void run_clusters(const job *j, int64_t head, int64_t part, int64_t first, int64_t last,
                         tess__attn_scratch *w)
{
    const tess_attn *attn = j->attn;
    const tess_attn_shape *s = &attn->shape;
    float *given = tess__cluster_given(attn, j->parts, head, part);
    memset(given, 0, (size_t)attn->clusters * 2 * (size_t)s->head_dim * sizeof *given);
    for (int64_t t = first; t < last; t++) {
        tess__query_tile tile;
        const tess__attn_bwd task = make_task(j, head, t, &tile);
        if (task.tile.dropped > 0)
            attn->ctx->kernels->attn_cluster_keys(
                &task,
                tess__view_row(j->dq, head / s->heads, head % s->heads,
                               tess__tile_first(j->sel, &tile)),
                j->dq->stride_s, tess__cluster_weights(attn, head, tile.begin), given, w);
    }
}

/* The cut of the tiles follows from the shape. */
int64_t tess__virtual_tiles(const tess_attn_shape *shape, int64_t tiles)
{
    const int64_t each = tiles * shape->batch * shape->heads / ITEMS_LEAST;
    return each < 1 ? 1 : each > TILES_MOST ? TILES_MOST : each;
}

int64_t tess__virtual_parts(const tess_attn_shape *shape, int64_t tiles)
{
    const int64_t each = tess__virtual_tiles(shape, tiles);
    return tiles > 0 ? (tiles + each - 1) / each : 1;
}

/* The virtual keys of all tiles. Called by all threads of the region; ends with a barrier. */
static void run_virtuals(const job *j, tess_attn *attn, tess__attn_scratch *w)
{
    const int64_t heads = (int64_t)attn->shape.batch * attn->shape.heads;
    const int64_t each = tess__virtual_tiles(&attn->shape, j->tiles), parts = j->parts;
    tess__virtual_totals(attn, j->saved->k, j->saved->v, w);
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < heads * parts; item++) {
        const int64_t first = item % parts * each, left = j->tiles - first;
        if (attn->clusters)
            run_clusters(j, item / parts, item % parts, first, first + TESS_MIN(left, each), w);
        else
            run_virtual(j, item / parts, first, first + TESS_MIN(left, each), w);
    }
    if (attn->clusters)
        tess__cluster_spread(attn, parts);
    else
        tess__virtual_spread(attn, j->tiles);
}

/* Rows of the longest range. */
static int64_t longest_range(const job *j)
{
    int64_t most = 0;
    for (int64_t r = 0; r < j->ranges; r++) {
        const int64_t rows =
            row_of(j, j->units * (r + 1) / j->ranges) - row_of(j, j->units * r / j->ranges);
        most = TESS_MAX(most, rows);
    }
    return most;
}

int64_t tess__backward_rows(const tess_attn_shape *s)
{
    const tess_attn like = {.shape = *s};
    job j = {.attn = &like, .unit_rows = TESS_BF16_GROUP};
    j.units = (s->tokens_k + TESS_BF16_GROUP - 1) / TESS_BF16_GROUP;
    j.ranges = choose_ranges(&like, NULL, j.units);
    return longest_range(&j);
}

/* One range of one head, all tiles. */
static void run_range(const job *j, tess__work_queue *run, int64_t head, int64_t range,
                      tess__attn_scratch *w)
{
    const tess_attn_shape *s = &j->attn->shape;
    const int64_t b = head / s->heads, h = head % s->heads;
    const int64_t first = j->units * range / j->ranges, last = j->units * (range + 1) / j->ranges;
    const int64_t row_first = row_of(j, first), row_last = row_of(j, last);
    const int thread = (int)(w - j->attn->scratch);
    const tess__bf16_attn *bf16 = j->attn->bf16;
    tess__bf16_keys packed;
    if (bf16)
        packed = tess__bf16_range(j->attn, j->by_rows, j->saved->k, j->saved->v, head, row_first,
                                  row_last, thread);
    const int virtual = tess__compensates(j->attn, j->sel), clusters = j->attn->clusters;
    if (virtual && clusters) {
        start_clusters(j, head, row_first, row_last);
    } else {
        const float *rest = virtual ? tess__virtual_start(j->attn, j->tiles, head, j->tiles) : NULL;
        start_rows(j->dk, b, h, row_first, row_last, rest, s->head_dim);
        start_rows(j->dv, b, h, row_first, row_last, rest ? rest + s->head_dim : NULL, s->head_dim);
    }

    _Atomic int64_t *finished = &j->attn->finished[head * TESS_RANGES_MAX + range];
    for (int64_t t = 0; t < j->tiles; t++) {
        tess__query_tile tile;
        tess__attn_bwd task = make_task(j, head, t, &tile);
        if (task.tile.dropped > 0 && clusters)
            task.weights = tess__cluster_weights(j->attn, head, tile.begin);
        else if (task.tile.dropped > 0)
            task.start = tess__virtual_start(j->attn, j->tiles, head, t);
        cut_keys(j, &task.tile.keys, first, last);
        const int has_keys =
            task.tile.keys.units ? task.tile.keys.n > 0 : task.tile.keys.end > task.tile.keys.begin;
        if (has_keys && bf16)
            bf16->products->backward(&task, &packed, &bf16->scratch[thread]);
        else if (has_keys)
            j->attn->ctx->kernels->attn_backward(&task, w);
        tess__work_queue_meanwhile(run);
        if (range > 0 && !tess__work_queue_wait(run, finished - 1, t))
            return;
        hand_over(j, b, h, range == 0 && task.tile.dropped == 0, &tile,
                  bf16 ? bf16->scratch[thread].acc : w->acc, has_keys);
        atomic_store_explicit(finished, t + 1, memory_order_release);
    }
}

static tess_status check(const tess_attn *attn, const tess_selection *sel,
                         const tess_attn_saved *saved, const tess_view *dout, const tess_view *dq,
                         const tess_view *dk, const tess_view *dv)
{
    static const char who[] = "tess_attn_backward";
    if (!attn || !saved)
        return tess__invalid(who, "%s is NULL", attn ? "saved" : "attn");
    const tess_attn_shape *s = &attn->shape;
    TESS_TRY(tess__attn_check_inputs(who, attn, sel, saved->q, saved->k, saved->v));
    TESS_TRY(tess__view_check(who, "o", saved->o, TESS_DTYPE_F32, TESS_DTYPE_F32, s->tokens_q));
    if (!saved->lse && s->tokens_q > 0)
        return tess__invalid(who, "lse is NULL");
    TESS_TRY(tess__view_check(who, "dout", dout, TESS_DTYPE_F32, TESS_DTYPE_F32, s->tokens_q));
    TESS_TRY(tess__attn_check_output(who, "dq", attn, dq, s->tokens_q));
    TESS_TRY(tess__attn_check_output(who, "dk", attn, dk, s->tokens_k));
    return tess__attn_check_output(who, "dv", attn, dv, s->tokens_k);
}

tess_status tess_attn_backward(tess_attn *attn, const tess_selection *sel,
                               const tess_attn_saved *saved, const tess_view *dout,
                               const float *dlse, const tess_view *dq, const tess_view *dk,
                               const tess_view *dv)
{
    TESS_TRY(check(attn, sel, saved, dout, dq, dk, dv));
    const int64_t heads = (int64_t)attn->shape.batch * attn->shape.heads;
    job j = {
        .attn = attn,
        .sel = sel,
        .saved = saved,
        .dout = dout,
        .dlse = dlse,
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .tiles = tess__tile_count(attn, sel),
        .unit_rows = attn->bf16 ? TESS_BF16_GROUP : 1,
        .by_rows = tess__bf16_by_rows(sel),
    };
    j.units = sel ? sel->n_k : (attn->shape.tokens_k + j.unit_rows - 1) / j.unit_rows;
    j.ranges = choose_ranges(attn, sel, j.units);
    j.parts = tess__virtual_parts(&attn->shape, j.tiles);
    if (tess__compensates(attn, sel))
        TESS_TRY(tess__attn_reserve(attn, j.tiles));
    if (attn->bf16)
        TESS_TRY(tess__bf16_reserve(attn, longest_range(&j)));
    for (int64_t i = 0; i < heads * TESS_RANGES_MAX; i++)
        atomic_init(&attn->finished[i], 0);

    tess__work_queue run = {.ctx = attn->ctx,
                            .what = "attention backward",
                            .total = heads * j.ranges,
                            .meanwhile = attn->meanwhile,
                            .meanwhile_user = attn->meanwhile_user};
#pragma omp parallel num_threads(attn->ctx->threads)
    {
        tess__attn_scratch *w = &attn->scratch[omp_get_thread_num()];
        int64_t item;
        if (tess__compensates(attn, sel))
            run_virtuals(&j, attn, w);
        while ((item = tess__work_queue_next(&run)) >= 0)
            run_range(&j, &run, item % heads, item / heads, w);
    }
    return tess__work_queue_end(&run);
}
