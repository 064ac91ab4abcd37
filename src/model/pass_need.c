/* SPDX-License-Identifier: Apache-2.0 */
/* pass_need.c - the objects that a pass stands on, and the bytes that a model and a pass take. */
#include "attn/attn_internal.h"
#include "attn/predict_internal.h"
#include "ranks.h"

static tess_precision precision_of(const tess__sizes *z)
{
    return z->half ? TESS_PRECISION_BF16 : TESS_PRECISION_FP32;
}

tess_attn_shape tess__pass_attention(const tess__sizes *z, int64_t keys)
{
    return (tess_attn_shape){.batch = z->batch,
                             .heads = z->heads,
                             .head_dim = z->head_dim,
                             .tokens_q = z->local,
                             .tokens_k = keys,
                             .precision = precision_of(z)};
}

tess_attn_shape tess__pass_one(const tess_pass *p)
{
    return (tess_attn_shape){.batch = 1,
                             .heads = 1,
                             .head_dim = p->z.head_dim,
                             .tokens_q = p->z.tokens,
                             .tokens_k = p->z.tokens,
                             .compensate = p->room.compensate,
                             .precision = precision_of(&p->z)};
}

tess_sel_shape tess__pass_lists(const tess_pass *p)
{
    const tess__sizes *z = &p->z;
    return (tess_sel_shape){.batch = 1,
                            .heads = 1,
                            .tokens_q = z->tokens,
                            .tokens_k = z->tokens,
                            .unit = 1,
                            .bounds_q = p->sparse.bounds,
                            .n_q = z->n_q,
                            .bounds_k = p->room.unit_cubes ? p->sparse.bounds : NULL,
                            .n_k = z->n_k};
}

tess_predict_shape tess__pass_predict(const tess_pass *p)
{
    return (tess_predict_shape){.batch = p->z.batch,
                                .heads = p->z.heads,
                                .head_dim = p->z.head_dim,
                                .rank = p->room.proj_dim,
                                .tokens = p->z.local,
                                .rows = p->room.learn_rows ? p->room.learn_rows : 1};
}

/* What attention of one head comes to hold for its virtual keys. */
static size_t virtual_bytes(const tess_pass *p, int threads)
{
    const int64_t volume = (int64_t)p->z.cube[0] * p->z.cube[1] * p->z.cube[2];
    const int64_t tiles = p->z.n_q * ((volume + TESS_TILE - 1) / TESS_TILE);
    const tess_attn_shape one = tess__pass_one(p);
    const size_t bytes = tess__attn_virtual_bytes(&one, tiles, threads);
    return p->room.compensate && p->shape.train ? tess__arena_round(bytes) + TESS_ALLOC_OVERHEAD
                                                : 0;
}

/* Of the objects that sparse attention stands on, at most. */
static size_t sparse_bytes(const tess_pass *p, int threads)
{
    if (!p->z.sparse)
        return 0;
    const tess_attn_shape one = tess__pass_one(p);
    const tess_sel_shape lists = tess__pass_lists(p);
    const tess_predict_shape predict = tess__pass_predict(p);
    const int64_t capacity = (int64_t)p->z.n_q * p->z.units_most;
    const int dim = p->room.proj_dim > p->z.head_dim ? p->room.proj_dim : p->z.head_dim;
    /* A window of cubes has no budget, so its lists are staged. */
    const int64_t staged = p->room.unit_cubes ? capacity : 0;
    size_t choosing = p->room.proj_dim ? tess__predict_bytes(&predict, threads) : 0;
    if (!p->room.dense)
        choosing += tess__selector_bytes(&lists, dim, staged, threads);
    if (p->ranks.comm)
        return choosing + tess__whole_heads_bytes(p);
    if (p->room.dense)
        return choosing;
    const size_t backward = p->shape.train ? tess__attn_backward_bytes(&one, threads, 1) : 0;
    return choosing + tess__attn_bytes(&one, threads, 0) + backward + virtual_bytes(p, threads) +
           tess__selection_bytes(p->z.n_q, p->z.n_k, p->z.n_q, capacity);
}

/* Of attention that is dense. */
static size_t attention_bytes(const tess_pass *p, const tess_attn_shape *s, int threads)
{
    return tess__attn_bytes(s, threads, 1) +
           (p->shape.train ? tess__attn_backward_bytes(s, threads, 0) : 0);
}

static size_t linear_bytes(const tess_pass *p, int threads)
{
    return p->z.half ? tess__linear_bf16_need(threads) : 0;
}

static int exact_train(const tess_pass *p)
{
    return p->z.exact && p->shape.train;
}

/* Of the model's sums in fixed point. */
static int64_t sums_bytes(const tess_pass *p, const tess__params *params)
{
    return exact_train(p) ? params->count * (int64_t)sizeof(int64_t) + TESS_ALLOC_OVERHEAD : 0;
}

tess_status tess_model_need(const tess_model_config *config, const tess_model_opts *opts,
                            const tess_pass_shape *shape, int threads, tess_model_memory *memory)
{
    TESS_REQUIRE(config, shape, memory);
    TESS_TRY(tess__check_range(__func__, "threads", threads, 1, 1024));
    TESS_TRY(tess_model_config_check(config));
    tess_pass pass = {.shape = *shape, .ranks = tess__ranks_of(shape->context), .threads = threads};
    if (shape->sparse)
        pass.room = *shape->sparse;
    tess__params params;
    size_t saved;
    TESS_TRY(tess__pass_sizes(__func__, config, shape, &pass.z));
    tess__params_make(config, &params);
    const size_t all = tess__pass_layout(&pass, NULL, &saved);
    const tess_attn_shape self = tess__pass_attention(&pass.z, pass.z.tokens);
    const tess_attn_shape cross = tess__pass_attention(&pass.z, pass.z.text);
    tess_model_memory m = {
        .weights = (int64_t)tess__model_bytes(&params),
        .gradients = (opts && opts->gradients ? (int64_t)tess__model_buffer_bytes(&params) : 0) +
                     sums_bytes(&pass, &params),
        .activations = (int64_t)saved,
        .workspace = (int64_t)(all - saved + tess__arena_round(sizeof pass) + TESS_ALLOC_OVERHEAD +
                               (shape->context ? 0 : attention_bytes(&pass, &self, threads)) +
                               attention_bytes(&pass, &cross, threads) * (1 + exact_train(&pass)) +
                               linear_bytes(&pass, threads) + sparse_bytes(&pass, threads)),
    };
    m.total = m.weights + m.gradients + m.activations + m.workspace;
    *memory = m;
    return TESS_OK;
}
