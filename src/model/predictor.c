/* SPDX-License-Identifier: Apache-2.0 */
/* predictor.c - predictors: their parameters in one buffer, gradients in another, first values.
 *
 * A layer has the matrices of q and k, and the biases of both if its input is the hidden state:
 *
 *   | q.weight | k.weight | q.bias | k.bias |      so that the two are one linear layer
 *
 * Numbers: 2 heads rank head_dim of each layer; heads times that and 2 heads rank for hidden.
 */
#include "observe.h"
#include "sparse_internal.h"
#include "tessera/advanced/collectives.h"

#include <math.h>
#include <string.h>

enum { NAME_BYTES = 64, PROJ_DIM_DEFAULT = 16, RANK_MAX = 64 };

static const char *const parts[] = {"q.weight", "k.weight", "q.bias", "k.bias"};

int64_t tess__predictor_matrix(const tess_predictor *p)
{
    const int64_t inputs = p->opts.input == TESS_PREDICT_HIDDEN
                               ? (int64_t)p->config.heads * p->config.head_dim
                               : p->config.head_dim;
    return (int64_t)p->config.heads * p->opts.proj_dim * inputs;
}

/* ---- life ------------------------------------------------------------------------------------ */

static tess_status check_opts(const char *who, const tess_predictor_opts *opts)
{
    if (opts->input != TESS_PREDICT_QK && opts->input != TESS_PREDICT_HIDDEN)
        return tess__invalid(who, "input is %d, must be QK (0) or HIDDEN (1)", (int)opts->input);
    if (opts->proj_dim < 0 || opts->proj_dim > RANK_MAX || opts->proj_dim % 8 != 0)
        return tess__invalid(who, "proj_dim is %d, must be a multiple of 8 up to %d",
                             opts->proj_dim, RANK_MAX);
    TESS_TRY(tess__check_flag(who, "rotary", opts->rotary));
    if (opts->rotary && opts->input == TESS_PREDICT_QK)
        return tess__invalid(who, "rotary is 1, must be 0 for QK, which is rotated");
    return TESS_OK;
}

tess_status tess__predictor_make(tess_ctx *ctx, const tess_model_config *config,
                                 const tess_predictor_opts *opts, tess_predictor **predictor)
{
    const int hidden = opts->input == TESS_PREDICT_HIDDEN, params = hidden ? 4 : 2;
    const size_t object = tess__arena_round(sizeof(tess_predictor));
    tess_predictor *made =
        TESS_ALLOC(ctx, object + (size_t)config->layers * (size_t)params * NAME_BYTES);
    *made = (tess_predictor){.ctx = ctx, .opts = *opts, .config = *config, .layer_params = params};
    made->names = (char *)made + object;
    made->layer_count = 2 * tess__predictor_matrix(made) +
                        (hidden ? 2 * (int64_t)config->heads * opts->proj_dim : 0);
    for (int i = 0; i < config->layers * params; i++)
        snprintf(made->names + (size_t)i * NAME_BYTES, NAME_BYTES, "blocks.%d.attn1.predictor.%s",
                 i / params, parts[i % params]);
    const size_t bytes = (size_t)(config->layers * made->layer_count) * sizeof(float);
    made->values = tess__alloc(ctx, bytes);
    made->gradients = made->values ? tess__alloc_zero(ctx, bytes) : NULL;
    if (!made->gradients) {
        tess_predictor_destroy(made);
        return TESS_ENOMEM;
    }
    *predictor = made;
    return TESS_OK;
}

void tess_predictor_destroy(tess_predictor *predictor)
{
    if (!predictor)
        return;
    tess__free(predictor->ctx, predictor->values);
    tess__free(predictor->ctx, predictor->gradients);
    tess__free(predictor->ctx, predictor->sums);
    tess__free(predictor->ctx, predictor);
}

/* ---- sums in fixed point --------------------------------------------------------------------- */

tess_status tess__predictor_sums(tess_predictor *p)
{
    const size_t n = (size_t)(p->config.layers * p->layer_count);
    if (!p->sums)
        p->sums = TESS_ALLOC_ZERO(p->ctx, n * sizeof *p->sums);
    return TESS_OK;
}

tess_status tess__predictor_reduce(tess_predictor *p, tess_comm *world)
{
    const int64_t n = p->config.layers * p->layer_count;
    int64_t beyond = p->beyond;
    if (!p->sums)
        return TESS_OK;
    if (world) {
        TESS_TRY(tess_comm_allreduce(world, TESS_TRAFFIC_PAYLOAD, p->sums, n, TESS_DTYPE_I64,
                                     TESS_REDUCE_SUM));
        TESS_TRY(tess_comm_allreduce(world, TESS_TRAFFIC_CONTROL, &beyond, 1, TESS_DTYPE_I64,
                                     TESS_REDUCE_MAX));
    }
    p->ctx->kernels->fixed_read(p->gradients, p->sums, n);
    if (beyond)
        p->gradients[0] = NAN;
    memset(p->sums, 0, (size_t)n * sizeof *p->sums);
    p->beyond = 0;
    return TESS_OK;
}

/* ---- first values ---------------------------------------------------------------------------- */

/* With the same matrix w of deviation s for both, q_low k_low / sqrt(rank) is on average
 * s^2 sqrt(rank) q k, which is the score of attention, q k / sqrt(head_dim), for
 * s^4 = 1 / (rank head_dim). */
static tess_status fill_layer(const tess_predictor *p, int layer, uint64_t seed)
{
    const int hidden = p->opts.input == TESS_PREDICT_HIDDEN;
    const int64_t n = tess__predictor_matrix(p), drawn = hidden ? 2 * n : n;
    const double dim = (double)p->config.heads * p->config.head_dim;
    const double deviation =
        hidden ? 1.0 / sqrt(dim) : pow((double)p->opts.proj_dim * p->config.head_dim, -0.25);
    float *w = tess__predictor_at(p, p->values, layer);
    TESS_TRY(tess_random_normal(seed, (uint64_t)layer, 0, w, (size_t)drawn));
    for (int64_t i = 0; i < drawn; i++)
        w[i] *= (float)deviation;
    if (hidden)
        memset(w + drawn, 0, (size_t)(p->layer_count - drawn) * sizeof *w);
    else
        memcpy(w + n, w, (size_t)n * sizeof *w);
    return TESS_OK;
}

tess_status tess_predictor_create(tess_ctx *ctx, const tess_model_config *config,
                                  const tess_predictor_opts *opts, tess_predictor **predictor)
{
    TESS_REQUIRE(ctx, config, predictor);
    tess_predictor_opts resolved = opts ? *opts : (tess_predictor_opts){0};
    TESS_TRY(tess_model_config_check(config));
    TESS_TRY(check_opts(__func__, &resolved));
    resolved.proj_dim = resolved.proj_dim ? resolved.proj_dim : PROJ_DIM_DEFAULT;
    tess_predictor *made = NULL;
    TESS_TRY(tess__predictor_make(ctx, config, &resolved, &made));
    for (int layer = 0; layer < config->layers; layer++) {
        const tess_status status = fill_layer(made, layer, resolved.seed);
        if (status != TESS_OK) {
            tess_predictor_destroy(made);
            return status;
        }
    }
    *predictor = made;
    return TESS_OK;
}

/* ---- questions ------------------------------------------------------------------------------- */

tess_status tess_predictor_query(const tess_predictor *predictor, tess_predictor_info *info)
{
    TESS_REQUIRE(predictor, info);
    *info = (tess_predictor_info){
        .opts = predictor->opts,
        .params = predictor->config.layers * predictor->layer_params,
        .count = predictor->config.layers * predictor->layer_count,
        .values = predictor->values,
        .gradients = predictor->gradients,
    };
    return TESS_OK;
}

tess_status tess_predictor_param(const tess_predictor *predictor, int index, tess_param *param)
{
    TESS_REQUIRE(predictor, param);
    const tess_predictor *p = predictor;
    const int n = p->config.layers * p->layer_params;
    TESS_TRY(tess__check_range(__func__, "index", index, 0, n - 1));
    const int layer = index / p->layer_params, part = index % p->layer_params;
    const int64_t heads = p->config.heads, rank = p->opts.proj_dim, dim = p->config.head_dim;
    const int64_t matrix = tess__predictor_matrix(p), bias = heads * rank;
    const int64_t at = part < 2 ? part * matrix : 2 * matrix + (part - 2) * bias;
    const int hidden = p->opts.input == TESS_PREDICT_HIDDEN;
    *param = (tess_param){
        .name = p->names + (size_t)index * NAME_BYTES,
        .kind = part < 2 ? TESS_PARAM_MATRIX : TESS_PARAM_VECTOR,
        .layer = layer,
        .rank = part >= 2 ? 1
                : hidden  ? 2
                          : 3,
        .shape = {hidden ? heads * rank : heads, hidden ? heads * dim : rank, dim},
        .count = part < 2 ? matrix : bias,
        .value = tess__predictor_at(p, p->values, layer) + at,
        .gradient = tess__predictor_at(p, p->gradients, layer) + at,
    };
    for (int i = param->rank; i < 5; i++)
        param->shape[i] = 0;
    return TESS_OK;
}

tess_status tess_predictor_zero_gradients(tess_predictor *predictor)
{
    TESS_REQUIRE(predictor);
    memset(predictor->gradients, 0,
           (size_t)(predictor->config.layers * predictor->layer_count) * sizeof(float));
    return TESS_OK;
}
