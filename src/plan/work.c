/* SPDX-License-Identifier: Apache-2.0 */
/* work.c - the work of one step: the object, and work that is known by head only.
 *
 * Memory is one arena of one allocation:
 *
 *   | tess_work | bounds_q (q+1) | bounds_k (k+1) | loads (layers, heads) |
 *   | prefix (layers, heads, q+1) | slices (n, words) | bits (layers, heads, q, words) |
 *
 * with bounds only where blocks have sizes of their own, and the second line only with masks: an
 * eighth of a byte for each pair of blocks.
 */
#include "work.h"

#include "tessera/advanced/explain.h"

#include <string.h>

enum { COUNT_MAX = 65536 };

/* ---- memory ------------------------------------------------------------------------------- */

enum { BOUNDS_Q, BOUNDS_K, LOADS, PREFIX, SLICES, BITS, PIECES };

/* Digits of the rows of key blocks that occur; 1 where every block counts one. */
static uint32_t digits_of(const tess_work *work)
{
    if (!work->by_rows)
        return 1;
    uint32_t digits = 0;
    for (int32_t k = 0; k < work->info.k_blocks; k++)
        digits |= (uint32_t)(tess__work_k_row(work, k + 1) - tess__work_k_row(work, k));
    return digits;
}

/* Bytes of each piece; 1 where they overflow. */
static int piece_bytes(const tess_work *work, int with_bounds_q, int with_bounds_k, int slices,
                       size_t bytes[PIECES])
{
    const tess_work_info *in = &work->info;
    const size_t heads = (size_t)in->layers * (size_t)in->heads;
    const size_t row = (size_t)work->words * sizeof(uint64_t);
    memset(bytes, 0, PIECES * sizeof *bytes);
    bytes[BOUNDS_Q] = with_bounds_q ? ((size_t)in->q_blocks + 1) * sizeof(int64_t) : 0;
    bytes[BOUNDS_K] = with_bounds_k ? ((size_t)in->k_blocks + 1) * sizeof(int64_t) : 0;
    bytes[LOADS] = heads * sizeof(int64_t);
    if (!in->masks)
        return 0;
    bytes[SLICES] = (size_t)slices * row;
    size_t rows;
    return tess__mul(heads, ((size_t)in->q_blocks + 1) * sizeof(int64_t), &bytes[PREFIX]) ||
           tess__mul(heads, (size_t)in->q_blocks, &rows) || tess__mul(rows, row, &bytes[BITS]) ||
           bytes[PREFIX] > SIZE_MAX / 4 || bytes[BITS] > SIZE_MAX / 4;
}

static void fill_slices(tess_work *work, uint32_t digits, uint64_t *memory)
{
    const size_t words = (size_t)work->words;
    memset(memory, 0, (size_t)__builtin_popcount(digits) * words * sizeof *memory);
    for (; digits; digits &= digits - 1, memory += words) {
        work->digit[work->n_slices] = __builtin_ctz(digits);
        work->slices[work->n_slices++] = memory;
    }
    for (int32_t k = 0; k < work->info.k_blocks; k++) {
        const int64_t rows = tess__work_k_row(work, k + 1) - tess__work_k_row(work, k);
        const int64_t counts = work->by_rows ? rows : 1;
        for (int i = 0; i < work->n_slices; i++)
            work->slices[i][k / 64] |= (uint64_t)((counts >> work->digit[i]) & 1) << (k % 64);
    }
}

tess_status tess__work_make(tess_ctx *ctx, const tess_work_info *info, const int64_t *bounds_q,
                            const int64_t *bounds_k, int by_rows, tess_work **work)
{
    tess_work model = {.ctx = ctx,
                       .arena = {.ctx = ctx},
                       .info = *info,
                       .rows_q = info->tokens_q ? info->tokens_q : info->q_blocks,
                       .rows_k = info->tokens_k ? info->tokens_k : info->k_blocks,
                       .bounds_q = bounds_q,
                       .bounds_k = bounds_k,
                       .by_rows = by_rows,
                       .words = info->masks ? (int)(((int64_t)info->k_blocks + 63) / 64) : 0};
    const uint32_t digits = info->masks ? digits_of(&model) : 0;
    size_t bytes[PIECES], total = tess__arena_round(sizeof model);
    if (piece_bytes(&model, bounds_q != NULL, bounds_k != NULL, __builtin_popcount(digits), bytes))
        return tess__nomem(SIZE_MAX);
    for (int i = 0; i < PIECES; i++)
        total += tess__arena_round(bytes[i]);
    TESS_TRY(tess__arena_reserve(&model.arena, total));
    tess_work *made = tess__arena_take(&model.arena, sizeof model);
    void *piece[PIECES]; /* the reserve above holds them all: no take can fail */
    for (int i = 0; i < PIECES; i++)
        piece[i] = tess__arena_take(&model.arena, bytes[i]);
    *made = model;
    if (bounds_q)
        made->bounds_q = memcpy(piece[BOUNDS_Q], bounds_q, bytes[BOUNDS_Q]);
    if (bounds_k)
        made->bounds_k = memcpy(piece[BOUNDS_K], bounds_k, bytes[BOUNDS_K]);
    made->loads = piece[LOADS];
    if (info->masks) {
        made->prefix = piece[PREFIX];
        made->bits = piece[BITS];
        fill_slices(made, digits, piece[SLICES]);
    }
    *work = made;
    return TESS_OK;
}

tess_status tess__work_finish(const char *who, tess_work *work)
{
    const size_t n = (size_t)work->info.layers * (size_t)work->info.heads;
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_add_overflow(total, work->loads[i], &total))
            return tess__invalid(who, "the loads add up to 2^63 or more");
    work->info.total = total;
    return TESS_OK;
}

void tess_work_destroy(tess_work *work)
{
    if (!work)
        return;
    tess__arena arena = work->arena; /* the work lies in it */
    tess__arena_free(&arena);
}

/* ---- loads of heads alone ------------------------------------------------------------------ */

static tess_status check_heads(const char *who, const tess_ctx *ctx, const char *name,
                               const void *data, int layers, int heads, tess_work **work)
{
    if (!ctx || !data || !work)
        return tess__invalid(who, "%s is NULL", !ctx ? "ctx" : !data ? name : "work");
    TESS_TRY(tess__check_range(who, "layers", layers, 1, COUNT_MAX));
    return tess__check_range(who, "heads", heads, 1, COUNT_MAX);
}

/* Adds up the loads and hands the work over, or destroys it. */
static tess_status hand_over(const char *who, tess_work *made, tess_work **work)
{
    const tess_status status = tess__work_finish(who, made);
    if (status == TESS_OK)
        *work = made;
    else
        tess_work_destroy(made);
    return status;
}

tess_status tess_work_from_weights(tess_ctx *ctx, const int64_t *weights, int layers, int heads,
                                   int32_t q_blocks, tess_work **work)
{
    TESS_TRY(check_heads(__func__, ctx, "weights", weights, layers, heads, work));
    TESS_TRY(tess__check_range(__func__, "q_blocks", q_blocks, 1, INT32_MAX));
    const size_t n = (size_t)layers * (size_t)heads;
    for (size_t i = 0; i < n; i++)
        if (weights[i] < 0)
            return tess__fail(
                TESS_EINVAL, "%s: the weight of layer %zu, head %zu is %lld, must be 0 or more",
                __func__, i / (size_t)heads, i % (size_t)heads, (long long)weights[i]);
    const tess_work_info info = {.layers = layers,
                                 .heads = heads,
                                 .q_blocks = q_blocks,
                                 .k_blocks = q_blocks,
                                 .group = 1,
                                 .unit = 1};
    tess_work *made = NULL;
    TESS_TRY(tess__work_make(ctx, &info, NULL, NULL, 0, &made));
    memcpy(made->loads, weights, n * sizeof *weights);
    return hand_over(__func__, made, work);
}

static tess_status check_densities(const char *who, const double *density, int layers, int heads)
{
    const size_t n = (size_t)layers * (size_t)heads;
    for (size_t i = 0; i < n; i++)
        if (!(density[i] >= 0.0 && density[i] <= 1.0))
            return tess__invalid(who, "the density of layer %zu, head %zu is %g, must be 0..1",
                                 i / (size_t)heads, i % (size_t)heads, density[i]);
    return TESS_OK;
}

tess_status tess_work_from_density(tess_ctx *ctx, const double *density, int layers, int heads,
                                   int64_t tokens, int32_t group, tess_work **work)
{
    TESS_TRY(check_heads(__func__, ctx, "density", density, layers, heads, work));
    TESS_TRY(tess__check_range(__func__, "tokens", tokens, 1, INT32_MAX));
    TESS_TRY(tess__check_range(__func__, "group", group, 1, INT32_MAX));
    TESS_TRY(check_densities(__func__, density, layers, heads));
    const size_t n = (size_t)layers * (size_t)heads;
    const int32_t blocks = (int32_t)((tokens + group - 1) / group);
    const tess_work_info info = {.layers = layers,
                                 .heads = heads,
                                 .q_blocks = blocks,
                                 .k_blocks = blocks,
                                 .tokens_q = tokens,
                                 .tokens_k = tokens,
                                 .group = group,
                                 .unit = group,
                                 .unit_pairs = 1.0};
    tess_work *made = NULL;
    TESS_TRY(tess__work_make(ctx, &info, NULL, NULL, 0, &made));
    const double pairs = (double)(tokens * tokens);
    for (size_t i = 0; i < n; i++)
        made->loads[i] = (int64_t)(density[i] * pairs + 0.5);
    return hand_over(__func__, made, work);
}

tess_status tess__work_from_shares(const char *who, tess_ctx *ctx, const tess__head_work *in,
                                   tess_work **work)
{
    const size_t n = (size_t)in->layers * (size_t)in->heads;
    const tess_work_info info = {.layers = in->layers,
                                 .heads = in->heads,
                                 .q_blocks = in->n_q,
                                 .k_blocks = in->n_k,
                                 .tokens_q = in->bounds_q[in->n_q],
                                 .tokens_k = in->bounds_k[in->n_k],
                                 .unit_pairs = in->unit_pairs};
    const double pairs = (double)info.tokens_q * (double)info.tokens_k;
    tess_work *made = NULL;
    TESS_TRY(tess__work_make(ctx, &info, in->bounds_q, in->bounds_k, 0, &made));
    for (size_t i = 0; i < n; i++) {
        const double load = in->shares[i] * pairs + 0.5;
        made->loads[i] = load < 9.2e18 ? (int64_t)load : INT64_MAX;
    }
    return hand_over(who, made, work);
}

/* EINVAL unless the blocks tile some tokens. */
static tess_status check_bounds(const char *who, const int64_t *bounds, int32_t n)
{
    if (!bounds)
        return tess__invalid(who, "bounds is NULL");
    TESS_TRY(tess__check_range(who, "n_blocks", n, 1, INT32_MAX));
    if (bounds[0] != 0)
        return tess__invalid(who, "bounds[0] is %lld, must be 0", (long long)bounds[0]);
    for (int32_t i = 0; i < n; i++)
        if (bounds[i + 1] <= bounds[i])
            return tess__invalid(who, "bounds[%d] is %lld, must be above %lld", (int)(i + 1),
                                 (long long)bounds[i + 1], (long long)bounds[i]);
    return tess__check_range(who, "tokens", bounds[n], 1, INT32_MAX);
}

tess_status tess_work_from_density_blocks(tess_ctx *ctx, const double *density, int layers,
                                          int heads, const int64_t *bounds, int32_t n_blocks,
                                          tess_work **work)
{
    TESS_TRY(check_heads(__func__, ctx, "density", density, layers, heads, work));
    TESS_TRY(check_bounds(__func__, bounds, n_blocks));
    TESS_TRY(check_densities(__func__, density, layers, heads));
    const tess__head_work in = {.layers = layers,
                                .heads = heads,
                                .shares = density,
                                .bounds_q = bounds,
                                .bounds_k = bounds,
                                .n_q = n_blocks,
                                .n_k = n_blocks,
                                .unit_pairs = 1.0};
    return tess__work_from_shares(__func__, ctx, &in, work);
}

/* ---- what a work holds ---------------------------------------------------------------------- */

tess_status tess_work_query(const tess_work *work, tess_work_info *info)
{
    TESS_REQUIRE(work, info);
    *info = work->info;
    return TESS_OK;
}

static tess_status check_place(const char *who, const tess_work *work, int layer, int head,
                               const void *loads)
{
    if (!work || !loads)
        return tess__invalid(who, "%s is NULL", work ? "loads" : "work");
    TESS_TRY(tess__check_range(who, "layer", layer, 0, work->info.layers - 1));
    TESS_TRY(tess__check_range(who, "head", head, 0, work->info.heads - 1));
    return TESS_OK;
}

tess_status tess_work_loads(const tess_work *work, int layer, int64_t *loads)
{
    TESS_TRY(check_place("tess_work_loads", work, layer, 0, loads));
    memcpy(loads, work->loads + tess__work_place(work, layer, 0),
           (size_t)work->info.heads * sizeof *loads);
    return TESS_OK;
}

tess_status tess_work_rows(const tess_work *work, int layer, int head, int64_t *loads)
{
    TESS_TRY(check_place("tess_work_rows", work, layer, head, loads));
    int64_t before = 0;
    for (int32_t g = 0; g < work->info.q_blocks; g++) {
        const int64_t here = tess__work_prefix(work, layer, head, g + 1);
        loads[g] = here - before;
        before = here;
    }
    return TESS_OK;
}

tess_status tess_work_mask_row(const tess_work *work, int layer, int head, int32_t q_block,
                               const uint64_t **bits)
{
    TESS_REQUIRE(work, bits);
    TESS_TRY(check_place(__func__, work, layer, head, bits));
    TESS_TRY(tess__check_range(__func__, "q_block", q_block, 0, work->info.q_blocks - 1));
    *bits = tess__work_bits(work, layer, head, q_block);
    return TESS_OK;
}
