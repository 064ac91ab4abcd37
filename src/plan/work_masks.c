/* SPDX-License-Identifier: Apache-2.0 */
/* work_masks.c - work from block masks: the caller's, or a file's.
 *
 * One pass: a row is copied to words (packed, where it comes as bytes) and counted at once, and the
 * counts become prefix sums of the head. Bytes: the mask once, its bits once.
 */
#include "work.h"

#include "file/file_internal.h"
#include "tessera/advanced/explain.h"

#include <string.h>

enum { COUNT_MAX = 65536 };

/* ---- checks ------------------------------------------------------------------------------- */

/* One side: `blocks` blocks of `rows` rows are what `tokens` rows make. */
static tess_status check_side(const char *who, char side, const char *rows_name, int64_t tokens,
                              int32_t rows, int32_t blocks)
{
    char name[] = "tokens_?";
    name[7] = side;
    TESS_TRY(tess__check_range(who, name, tokens, 1, INT32_MAX));
    TESS_TRY(tess__check_range(who, rows_name, rows, 1, INT32_MAX));
    const int64_t made = (tokens + rows - 1) / rows;
    if (made != blocks)
        return tess__invalid(who,
                             "%c_blocks is %d, but tokens_%c %lld in blocks of %d rows make %lld",
                             side, blocks, side, (long long)tokens, rows, (long long)made);
    return TESS_OK;
}

static int sizes_known(const tess_mask_set *m)
{
    return m->tokens_q || m->tokens_k || m->group || m->unit;
}

/* Everything but the data. */
static tess_status check_shape(const char *who, const tess_mask_set *m)
{
    TESS_TRY(tess__check_range(who, "layers", m->layers, 1, COUNT_MAX));
    TESS_TRY(tess__check_range(who, "heads", m->heads, 1, COUNT_MAX));
    TESS_TRY(tess__check_range(who, "q_blocks", m->q_blocks, 1, INT32_MAX));
    TESS_TRY(tess__check_range(who, "k_blocks", m->k_blocks, 1, INT32_MAX));
    if (!sizes_known(m))
        return TESS_OK;
    TESS_TRY(check_side(who, 'q', "group", m->tokens_q, m->group, m->q_blocks));
    return check_side(who, 'k', "unit", m->tokens_k, m->unit, m->k_blocks);
}

static tess_status check_masks(const char *who, const tess_mask_set *m)
{
    TESS_TRY(check_shape(who, m));
    if (m->kind != TESS_MASK_BYTES && m->kind != TESS_MASK_BITS)
        return tess__invalid(who, "kind is %d, must be %d or %d", (int)m->kind, TESS_MASK_BYTES,
                             TESS_MASK_BITS);
    if (!m->data)
        return tess__invalid(who, "data is NULL");
    return TESS_OK;
}

static tess_status make(tess_ctx *ctx, const tess_mask_set *m, tess_work **work)
{
    const int known = sizes_known(m);
    const tess_work_info info = {.layers = m->layers,
                                 .heads = m->heads,
                                 .q_blocks = m->q_blocks,
                                 .k_blocks = m->k_blocks,
                                 .tokens_q = m->tokens_q,
                                 .tokens_k = m->tokens_k,
                                 .group = known ? m->group : 1,
                                 .unit = known ? m->unit : 1,
                                 .masks = 1,
                                 .unit_pairs = (double)m->group * (double)m->unit};
    return tess__work_make(ctx, &info, NULL, NULL, 0, work);
}

/* ---- the pass ------------------------------------------------------------------------------- */

/* Takes the mask of head number `at`, counted over layers. */
static void set_head(tess_work *work, size_t at, const uint8_t *mask, int bytes)
{
    const int32_t q_blocks = work->info.q_blocks, k_blocks = work->info.k_blocks;
    const size_t stride = bytes ? (size_t)k_blocks : ((size_t)k_blocks + 7) / 8;
    int64_t (*const row)(uint64_t *, const void *, int, int32_t) = work->ctx->kernels->bits_row;
    uint64_t *bits = work->bits + at * (size_t)q_blocks * (size_t)work->words;
    int64_t *prefix = work->prefix + at * ((size_t)q_blocks + 1);
    int64_t sum = 0;
    for (int32_t q = 0; q < q_blocks; q++) {
        prefix[q] = sum;
        sum += row(bits, mask, bytes, k_blocks);
        bits += work->words;
        mask += stride;
    }
    prefix[q_blocks] = sum;
    work->info.total += sum - work->loads[at];
    work->loads[at] = sum;
}

static size_t head_bytes(const tess_work *work, int bytes)
{
    const size_t k = (size_t)work->info.k_blocks;
    return (size_t)work->info.q_blocks * (bytes ? k : (k + 7) / 8);
}

/* The loads of heads not taken yet are 0. */
static void set_all(tess_work *work, const tess_mask_set *m)
{
    const size_t n = (size_t)m->layers * (size_t)m->heads;
    const int bytes = m->kind == TESS_MASK_BYTES;
    const size_t stride = head_bytes(work, bytes);
    for (size_t i = 0; i < n; i++)
        set_head(work, i, (const uint8_t *)m->data + i * stride, bytes);
}

static void clear_loads(tess_work *work)
{
    memset(work->loads, 0,
           (size_t)work->info.layers * (size_t)work->info.heads * sizeof *work->loads);
    work->info.total = 0;
}

tess_status tess_work_from_masks(tess_ctx *ctx, const tess_mask_set *masks, tess_work **work)
{
    TESS_REQUIRE(ctx, masks, work);
    TESS_TRY(check_masks(__func__, masks));
    tess_work *made = NULL;
    TESS_TRY(make(ctx, masks, &made));
    clear_loads(made);
    set_all(made, masks);
    *work = made;
    return TESS_OK;
}

tess_status tess_work_set_masks(tess_work *work, const tess_mask_set *masks)
{
    TESS_REQUIRE(work, masks);
    TESS_TRY(check_masks(__func__, masks));
    const tess_work_info *in = &work->info;
    if (!in->masks || work->by_rows)
        return tess__invalid(__func__, "the work was not made from masks");
    const int known = sizes_known(masks);
    const struct {
        const char *name;
        int64_t have, want;
    } rules[] = {
        {"layers", masks->layers, in->layers},          {"heads", masks->heads, in->heads},
        {"q_blocks", masks->q_blocks, in->q_blocks},    {"k_blocks", masks->k_blocks, in->k_blocks},
        {"tokens_q", masks->tokens_q, in->tokens_q},    {"tokens_k", masks->tokens_k, in->tokens_k},
        {"group", known ? masks->group : 1, in->group}, {"unit", known ? masks->unit : 1, in->unit},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].have != rules[i].want)
            return tess__invalid(__func__, "%s is %lld, must be %lld as the work was made",
                                 rules[i].name, (long long)rules[i].have, (long long)rules[i].want);
    set_all(work, masks);
    return TESS_OK;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* A sentence about the first byte of head number `at`, counted over the layers of the file, that is
 * neither 0 nor 1, or TESS_OK. */
static tess_status check_bytes(const char *name, const tess_mask_set *m, size_t at,
                               const uint8_t *mask, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= mask[i];
    if (any <= 1)
        return TESS_OK;
    size_t i = 0;
    while (mask[i] <= 1)
        i++;
    const size_t k = (size_t)m->k_blocks, heads = (size_t)m->heads;
    return tess__fail(TESS_EFORMAT,
                      "%s: layer %zu, head %zu, query block %zu, key block %zu: value is %d, must "
                      "be 0 or 1",
                      name, at / heads, at % heads, i / k, i % k, mask[i]);
}

/* The layers of the tensor that are asked for, as masks. */
static tess_status read_shape(const char *name, const tess_tensor *t, const tess_mask_opts *opts,
                              tess_mask_set *m)
{
    if (t->dtype != TESS_DTYPE_BOOL && t->dtype != TESS_DTYPE_U8)
        return tess__fail(TESS_EFORMAT, "%s: elements are %s, a mask's must be BOOL or U8", name,
                          tess_dtype_name(t->dtype));
    if (t->rank != 3 && t->rank != 4)
        return tess__fail(
            TESS_EFORMAT,
            "%s: rank is %d, must be 3 or 4: [layers,] heads, query blocks, key blocks", name,
            t->rank);
    const int64_t *s = t->shape + t->rank - 3, layers = t->rank == 4 ? t->shape[0] : 1;
    const int64_t most[] = {COUNT_MAX, INT32_MAX, INT32_MAX};
    int fits = layers >= 1 && layers <= COUNT_MAX;
    for (int i = 0; i < 3; i++)
        fits &= s[i] >= 1 && s[i] <= most[i];
    char text[TESS_SHAPE_TEXT];
    if (!fits)
        return tess__fail(TESS_EFORMAT,
                          "%s: shape is %s, must have 1..%d layers and heads and 1..%d blocks",
                          name, tess__shape_text(t->rank, t->shape, text), COUNT_MAX, INT32_MAX);
    if (opts->layer < 0 || opts->layers < 0 || (int64_t)opts->layer + opts->layers > layers ||
        opts->layer == layers)
        return tess__fail(
            TESS_EINVAL, "%s: layers %d..%lld are asked for, it has 0..%lld", name, opts->layer,
            (long long)opts->layer + (opts->layers ? opts->layers - 1 : 0), (long long)layers - 1);
    *m = (tess_mask_set){
        .layers = opts->layers ? opts->layers : (int)layers - opts->layer,
        .heads = (int)s[0],
        .q_blocks = (int32_t)s[1],
        .k_blocks = (int32_t)s[2],
        .kind = TESS_MASK_BYTES,
        .tokens_q = opts->tokens_q ? opts->tokens_q : s[1] * opts->group,
        .tokens_k = opts->tokens_k ? opts->tokens_k : s[2] * opts->unit,
        .group = opts->group,
        .unit = opts->unit,
    };
    m->data = (const uint8_t *)t->data + (size_t)opts->layer * (size_t)(s[0] * s[1] * s[2]);
    return check_shape(name, m);
}

/* Takes the masks head by head, so that a long read can be followed and stopped. */
static tess_status read_heads(const char *name, tess_work *work, const tess_mask_set *m,
                              int first_layer, tess_dtype dtype)
{
    const size_t first = (size_t)first_layer * (size_t)m->heads;
    const size_t n = (size_t)m->layers * (size_t)m->heads, stride = head_bytes(work, 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *mask = (const uint8_t *)m->data + i * stride;
        TESS_TRY(tess__progress(work->ctx, "reading masks", (int64_t)i, (int64_t)n));
        if (dtype == TESS_DTYPE_U8)
            TESS_TRY(check_bytes(name, m, first + i, mask, stride));
        set_head(work, i, mask, 1);
    }
    return TESS_OK;
}

tess_status tess__work_read(tess_ctx *ctx, const char *name, tess_file *file,
                            const tess_mask_opts *opts, tess_work **work)
{
    static const tess_mask_opts none;
    tess_tensor t;
    tess_mask_set m;
    tess_work *made = NULL;
    tess_file_info info;
    TESS_TRY(tess_file_query(file, &info));
    if (info.tensors == 2)
        return tess__work_read_lists(ctx, name, file, opts ? opts : &none, work);
    TESS_TRY(tess_file_tensor(file, NULL, &t));
    TESS_TRY(read_shape(name, &t, opts ? opts : &none, &m));
    TESS_TRY(make(ctx, &m, &made));
    clear_loads(made);
    const tess_status status = read_heads(name, made, &m, opts ? opts->layer : 0, t.dtype);
    if (status == TESS_OK)
        *work = made;
    else
        tess_work_destroy(made);
    return status;
}

tess_status tess_work_load(tess_ctx *ctx, const char *path, const tess_mask_opts *opts,
                           tess_work **work)
{
    TESS_REQUIRE(ctx, path, work);
    tess_file *file = NULL;
    TESS_TRY(tess_file_open(ctx, path, &file));
    const tess_status status = tess__work_read(ctx, path, file, opts, work);
    tess_file_close(file);
    return status;
}
