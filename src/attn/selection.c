/* SPDX-License-Identifier: Apache-2.0 */
/* selection.c - which keys each query sees: the object, its memory, and what it holds.
 *
 * A selection is a sparse matrix of (query group, key unit) for every (batch, head), stored by
 * rows: offsets (int64) and ascending indices (int32). Its memory is one arena of one allocation,
 *
 *   | tess_selection | bounds_q (n_q+1) | bounds_k (n_k+1) | tiles (n_q+1) | offsets (lists+1) |
 *   | indices (capacity) |
 *
 * selection_set.c writes the lists.
 */
#include "attn_internal.h"

#include <assert.h>
#include <string.h>

enum { HEADS_MAX = 65536 };

/* One of the two sides of a shape, and the names that its sentences use. */
typedef struct {
    char name; /* 'q' or 'k' */
    const char *uniform_name;
    int64_t tokens;
    int32_t uniform;       /* rows of each range, when bounds is NULL */
    const int64_t *bounds; /* (n + 1), or NULL */
    int32_t n;
} side;

static side side_q(const tess_sel_shape *s)
{
    return (side){'q', "group", s->tokens_q, s->group, s->bounds_q, s->n_q};
}

static side side_k(const tess_sel_shape *s)
{
    return (side){'k', "unit", s->tokens_k, s->unit, s->bounds_k, s->n_k};
}

static tess_status check_bounds(const char *who, const side *s)
{
    const int64_t least = s->tokens > 0, most = s->tokens;
    if (s->n < least || s->n > most)
        return tess__invalid(who, "n_%c is %d, must be %lld..%lld for %lld tokens", s->name, s->n,
                             (long long)least, (long long)most, (long long)s->tokens);
    if (s->bounds[0] != 0)
        return tess__invalid(who, "bounds_%c[0] is %lld, must be 0", s->name,
                             (long long)s->bounds[0]);
    for (int32_t i = 1; i <= s->n; i++)
        if (s->bounds[i] <= s->bounds[i - 1])
            return tess__invalid(who, "bounds_%c[%d] is %lld, must be above %lld before it",
                                 s->name, i, (long long)s->bounds[i], (long long)s->bounds[i - 1]);
    if (s->bounds[s->n] != s->tokens)
        return tess__invalid(who, "bounds_%c[%d] is %lld, must be tokens_%c, %lld", s->name, s->n,
                             (long long)s->bounds[s->n], s->name, (long long)s->tokens);
    return TESS_OK;
}

static int32_t range_count(const side *s)
{
    return s->bounds ? s->n : (int32_t)((s->tokens + s->uniform - 1) / s->uniform);
}

/* Checks the side; *n = its number of ranges. */
static tess_status check_side(const char *who, const side *s, int32_t *n)
{
    if (s->tokens < 0 || s->tokens > INT32_MAX)
        return tess__invalid(who, "tokens_%c is %lld, must be 0..%d", s->name, (long long)s->tokens,
                             INT32_MAX);
    if (s->bounds) {
        TESS_TRY(check_bounds(who, s));
        *n = s->n;
        return TESS_OK;
    }
    if (s->uniform < 1)
        return tess__invalid(who, "%s is %d, must be 1 or more, or bounds_%c given",
                             s->uniform_name, s->uniform, s->name);
    *n = range_count(s);
    return TESS_OK;
}

tess_status tess__sel_shape_check(const char *who, const tess_sel_shape *shape, int32_t *n_q,
                                  int32_t *n_k)
{
    TESS_TRY(tess__check_range(who, "batch", shape->batch, 1, HEADS_MAX));
    TESS_TRY(tess__check_range(who, "heads", shape->heads, 1, HEADS_MAX));
    const side q = side_q(shape), k = side_k(shape);
    TESS_TRY(check_side(who, &q, n_q));
    TESS_TRY(check_side(who, &k, n_k));
    /* From here on every count of lists, units, mask elements and pairs fits in an int64_t. */
    const int64_t heads = (int64_t)shape->batch * shape->heads;
    int64_t pairs;
    if (__builtin_mul_overflow(shape->tokens_q * shape->tokens_k, heads, &pairs))
        return tess__invalid(who, "%lld x %lld tokens in %lld heads, must be below 2^63 pairs",
                             (long long)shape->tokens_q, (long long)shape->tokens_k,
                             (long long)heads);
    return TESS_OK;
}

/* (n + 1) bounds of the side. */
static void fill_bounds(int64_t *bounds, const side *s, int32_t n)
{
    if (s->bounds) {
        memcpy(bounds, s->bounds, ((size_t)n + 1) * sizeof *bounds);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        bounds[i] = (int64_t)i * s->uniform;
    bounds[n] = s->tokens;
}

/* tiles[g] = the tiles of at most TESS_TILE rows that the groups before g are computed in. */
static void fill_tiles(int64_t *tiles, const int64_t *bounds, int32_t n)
{
    tiles[0] = 0;
    for (int32_t i = 0; i < n; i++)
        tiles[i + 1] = tiles[i] + (bounds[i + 1] - bounds[i] + TESS_TILE - 1) / TESS_TILE;
}

size_t tess__sel_bytes(int n, const int64_t counts[], const size_t sizes[])
{
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        size_t bytes;
        if (tess__mul((size_t)counts[i], sizes[i], &bytes) || bytes > SIZE_MAX / 4 ||
            __builtin_add_overflow(total, tess__arena_round(bytes), &total))
            return SIZE_MAX;
    }
    return total;
}

/* The pieces of a selection's memory, in their order. */
enum { PIECES = 6 };

static size_t list_pieces(int32_t n_q, int32_t n_k, int64_t lists, int64_t capacity,
                          size_t bytes[PIECES])
{
    const int64_t counts[PIECES] = {1,         (int64_t)n_q + 1, (int64_t)n_k + 1, (int64_t)n_q + 1,
                                    lists + 1, capacity};
    const size_t sizes[PIECES] = {sizeof(tess_selection), sizeof(int64_t), sizeof(int64_t),
                                  sizeof(int64_t),        sizeof(int64_t), sizeof(int32_t)};
    for (int i = 0; i < PIECES; i++)
        bytes[i] = (size_t)counts[i] * sizes[i];
    return tess__sel_bytes(PIECES, counts, sizes);
}

size_t tess__selection_bytes(int32_t n_q, int32_t n_k, int64_t lists, int64_t capacity)
{
    size_t bytes[PIECES];
    return list_pieces(n_q, n_k, lists, capacity, bytes) + TESS_CHUNK_OVERHEAD;
}

tess_status tess_selection_create(tess_ctx *ctx, const tess_sel_shape *shape, int64_t capacity,
                                  tess_selection **sel)
{
    TESS_REQUIRE(ctx, shape, sel);
    int32_t n_q = 0, n_k = 0;
    TESS_TRY(tess__sel_shape_check(__func__, shape, &n_q, &n_k));
    TESS_TRY(tess__check_least(__func__, "capacity", capacity, 0));

    const int64_t lists = (int64_t)shape->batch * shape->heads * n_q;
    size_t bytes[PIECES];
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, list_pieces(n_q, n_k, lists, capacity, bytes)));
    void *piece[PIECES]; /* the reserve above holds them all: no take can fail */
    for (int i = 0; i < PIECES; i++)
        piece[i] = tess__arena_take(&arena, bytes[i]);

    tess_selection *made = piece[0];
    *made = (tess_selection){
        .ctx = ctx,
        .arena = arena,
        .batch = shape->batch,
        .heads = shape->heads,
        .tokens_q = shape->tokens_q,
        .tokens_k = shape->tokens_k,
        .n_q = n_q,
        .n_k = n_k,
        .bounds_q = piece[1],
        .bounds_k = piece[2],
        .lists = lists,
        .capacity = capacity,
        .tiles = piece[3],
        .offsets = piece[4],
        .indices = piece[5],
        .group = shape->bounds_q ? 0 : shape->group,
        .unit = shape->bounds_k ? 0 : shape->unit,
        .room_q = n_q,
        .room_k = n_k,
        .room_lists = lists,
    };
    const side q = side_q(shape), k = side_k(shape);
    fill_bounds(made->bounds_q, &q, n_q);
    fill_bounds(made->bounds_k, &k, n_k);
    fill_tiles(made->tiles, made->bounds_q, n_q);
    memset(made->offsets, 0, ((size_t)lists + 1) * sizeof *made->offsets);
    *sel = made;
    return TESS_OK;
}

void tess__selection_rows(tess_selection *sel, const int32_t *rows)
{
    sel->rows = rows;
}

void tess__selection_reshape(tess_selection *sel, const tess_sel_shape *shape)
{
    const side q = side_q(shape), k = side_k(shape);
    const int32_t n_q = range_count(&q), n_k = range_count(&k);
    const int64_t lists = (int64_t)shape->batch * shape->heads * n_q;
    assert(n_q <= sel->room_q && n_k <= sel->room_k && lists <= sel->room_lists);
    sel->batch = shape->batch;
    sel->heads = shape->heads;
    sel->tokens_q = q.tokens;
    sel->tokens_k = k.tokens;
    sel->n_q = n_q;
    sel->n_k = n_k;
    sel->rows = NULL;
    sel->lists = lists;
    sel->group = q.bounds ? 0 : q.uniform;
    sel->unit = k.bounds ? 0 : k.uniform;
    fill_bounds(sel->bounds_q, &q, n_q);
    fill_bounds(sel->bounds_k, &k, n_k);
    fill_tiles(sel->tiles, sel->bounds_q, n_q);
    memset(sel->offsets, 0, ((size_t)lists + 1) * sizeof *sel->offsets);
}

void tess_selection_destroy(tess_selection *sel)
{
    if (!sel)
        return;
    tess__arena arena = sel->arena; /* the selection lies in it */
    tess__arena_free(&arena);
}

tess_status tess__selection_fits(const char *who, const tess_selection *sel, int batch, int heads,
                                 int64_t tokens_q, int64_t tokens_k)
{
    const struct {
        const char *name;
        int64_t have, want;
    } rules[] = {
        {"batch", sel->batch, batch},
        {"heads", sel->heads, heads},
        {"tokens_q", sel->tokens_q, tokens_q},
        {"tokens_k", sel->tokens_k, tokens_k},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].have != rules[i].want)
            return tess__invalid(who, "the selection's %s is %lld, must be %lld", rules[i].name,
                                 (long long)rules[i].have, (long long)rules[i].want);
    return TESS_OK;
}

/* Rows of the key units of one list: by the last unit alone where units are uniform. */
static int64_t list_keys(const tess_selection *sel, int64_t list)
{
    const int64_t begin = sel->offsets[list], end = sel->offsets[list + 1];
    if (begin == end)
        return 0;
    if (sel->unit > 0) {
        const int32_t last = sel->indices[end - 1];
        return (end - begin - 1) * sel->unit + sel->bounds_k[last + 1] - sel->bounds_k[last];
    }
    int64_t keys = 0;
    for (int64_t i = begin; i < end; i++)
        keys += sel->bounds_k[sel->indices[i] + 1] - sel->bounds_k[sel->indices[i]];
    return keys;
}

static int64_t count_pairs(const tess_selection *sel)
{
    const int threads = tess__selection_team(sel, sel->unit > 0 ? 0 : sel->offsets[sel->lists]);
    int64_t pairs = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : pairs)
    for (int64_t list = 0; list < sel->lists; list++) {
        const int64_t g = list % sel->n_q;
        pairs += (sel->bounds_q[g + 1] - sel->bounds_q[g]) * list_keys(sel, list);
    }
    return pairs;
}

tess_status tess_selection_view(const tess_selection *sel, tess_selection_lists *lists)
{
    TESS_REQUIRE(sel, lists);
    const int64_t pairs = count_pairs(sel);
    const double all =
        (double)sel->batch * sel->heads * (double)sel->tokens_q * (double)sel->tokens_k;
    *lists = (tess_selection_lists){
        .shape = {.batch = sel->batch,
                  .heads = sel->heads,
                  .tokens_q = sel->tokens_q,
                  .tokens_k = sel->tokens_k,
                  .group = sel->group,
                  .unit = sel->unit,
                  .bounds_q = sel->bounds_q,
                  .bounds_k = sel->bounds_k,
                  .n_q = sel->n_q,
                  .n_k = sel->n_k},
        .lists = sel->lists,
        .offsets = sel->offsets,
        .indices = sel->indices,
        .capacity = sel->capacity,
        .pairs = pairs,
        .density = all > 0.0 ? (double)pairs / all : 0.0,
    };
    return TESS_OK;
}

int32_t tess__range_of(const int64_t *bounds, int32_t n, int64_t row)
{
    int32_t low = 0, high = n - 1;
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (bounds[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
