/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - models: one buffer of values, one of gradients, and what lies where in them. */
#include "model_internal.h"

#include <math.h>
#include <string.h>

/* ---- creation ------------------------------------------------------------------------------- */

enum { NAME_BYTES = 64 };

static size_t object_bytes(const tess__params *params)
{
    const size_t n = (size_t)params->params;
    return tess__arena_round(sizeof(tess_model)) + tess__arena_round(n * sizeof(char *)) +
           tess__arena_round(n * NAME_BYTES);
}

size_t tess__model_bytes(const tess__params *params)
{
    return object_bytes(params) + TESS_CHUNK_OVERHEAD + tess__model_buffer_bytes(params);
}

size_t tess__model_buffer_bytes(const tess__params *params)
{
    return tess__arena_round((size_t)params->count * sizeof(float)) + TESS_ALLOC_OVERHEAD;
}

static void make_names(tess_model *m, char *names)
{
    for (int i = 0; i < m->params.params; i++, names += NAME_BYTES) {
        int layer;
        const tess__param *p = tess__params_at(&m->params, i, &layer);
        if (layer < 0)
            snprintf(names, NAME_BYTES, "%s", p->name);
        else
            snprintf(names, NAME_BYTES, "blocks.%d.%s", layer, p->name);
        m->names[i] = names;
    }
}

static tess_status make_buffers(tess_model *m, int gradients)
{
    const size_t bytes = (size_t)m->params.count * sizeof(float);
    m->values = TESS_ALLOC(m->ctx, bytes);
    if (gradients)
        m->gradients = TESS_ALLOC_ZERO(m->ctx, bytes);
    return TESS_OK;
}

tess_status tess__model_make(tess_ctx *ctx, const tess_model_config *config, int gradients,
                             tess_model **model)
{
    tess__params params;
    tess__params_make(config, &params);
    const size_t n = (size_t)params.params;
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, object_bytes(&params)));
    tess_model *made = tess__arena_take(&arena, sizeof *made);
    *made = (tess_model){
        .ctx = ctx, .config = *config, .dim = config->heads * config->head_dim, .params = params};
    made->names = tess__arena_take(&arena, n * sizeof *made->names);
    make_names(made, tess__arena_take(&arena, n * NAME_BYTES));
    made->arena = arena;
    const tess_status status = make_buffers(made, gradients);
    if (status == TESS_OK)
        *model = made;
    else
        tess_model_destroy(made);
    return status;
}

tess_status tess__model_sums(tess_model *m)
{
    if (!m->sums)
        m->sums = TESS_ALLOC_ZERO(m->ctx, (size_t)m->params.count * sizeof *m->sums);
    return TESS_OK;
}

void tess__model_read_sums(const tess_model *m)
{
    enum { CHUNK = 1 << 16 };
    const int64_t count = m->params.count;
#pragma omp parallel for num_threads(m->ctx->threads)
    for (int64_t i = 0; i < count; i += CHUNK)
        m->ctx->kernels->fixed_read(m->gradients + i, m->sums + i, TESS_MIN(count - i, CHUNK));
}

void tess_model_destroy(tess_model *model)
{
    if (!model)
        return;
    tess__free(model->ctx, model->values);
    tess__free(model->ctx, model->gradients);
    tess__free(model->ctx, model->sums);
    tess__arena arena = model->arena; /* the object itself lies in it */
    tess__arena_free(&arena);
}

/* ---- first values ---------------------------------------------------------------------------- */

/* The deviation of the random numbers; 0 for constants. */
static double deviation(const tess_model *m, const tess__param *p)
{
    switch (p->init) {
    case TESS__INIT_XAVIER:
        return sqrt(2.0 / ((double)p->shape[0] + (double)p->count / (double)p->shape[0]));
    case TESS__INIT_SMALL: return 0.02;
    case TESS__INIT_TABLE: return 1.0 / sqrt((double)m->dim);
    default: return 0.0;
    }
}

/* Numbers begin .. begin + n - 1 of parameter number index. */
static void fill(const tess_model *m, int index, uint64_t seed, int64_t begin, int64_t n)
{
    int layer;
    const tess__param *p = tess__params_at(&m->params, index, &layer);
    float *value = m->values + p->offset + begin +
                   (layer < 0 ? 0 : m->params.block_begin + layer * m->params.block_count);
    const float factor = (float)deviation(m, p);
    if (factor > 0.0f)
        tess_random_normal(seed, (uint64_t)index, (uint64_t)begin, value, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        value[i] = factor > 0.0f ? factor * value[i] : p->init == TESS__INIT_ONE;
}

static void fill_all(const tess_model *m, uint64_t seed)
{
    enum { CHUNK = 1 << 16 };
    for (int index = 0; index < m->params.params; index++) {
        int layer;
        const int64_t count = tess__params_at(&m->params, index, &layer)->count;
#pragma omp parallel for num_threads(m->ctx->threads)
        for (int64_t i = 0; i < count; i += CHUNK)
            fill(m, index, seed, i, count - i < CHUNK ? count - i : CHUNK);
    }
}

tess_status tess_model_create(tess_ctx *ctx, const tess_model_config *config,
                              const tess_model_opts *opts, tess_model **model)
{
    static const tess_model_opts defaults;
    TESS_REQUIRE(ctx, config, model);
    TESS_TRY(tess_model_config_check(config));
    opts = opts ? opts : &defaults;
    tess_model *made = NULL;
    TESS_TRY(tess__model_make(ctx, config, opts->gradients != 0, &made));
    fill_all(made, opts->seed);
    *model = made;
    return TESS_OK;
}

/* ---- questions ------------------------------------------------------------------------------- */

tess_status tess_model_query(const tess_model *model, tess_model_info *info)
{
    TESS_REQUIRE(model, info);
    *info = (tess_model_info){
        .ctx = model->ctx,
        .config = model->config,
        .params = model->params.params,
        .count = model->params.count,
        .values = model->values,
        .gradients = model->gradients,
    };
    return TESS_OK;
}

tess_status tess_model_param(const tess_model *model, int index, tess_param *param)
{
    TESS_REQUIRE(model, param);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, model->params.params - 1));
    int layer;
    const tess__param *p = tess__params_at(&model->params, index, &layer);
    const int64_t at =
        p->offset + (layer < 0 ? 0 : model->params.block_begin + layer * model->params.block_count);
    *param = (tess_param){
        .name = model->names[index],
        .kind = p->kind,
        .layer = layer,
        .rank = p->rank,
        .count = p->count,
        .value = model->values + at,
        .gradient = model->gradients ? model->gradients + at : NULL,
    };
    memcpy(param->shape, p->shape, sizeof param->shape);
    return TESS_OK;
}

tess_status tess_model_zero_gradients(tess_model *model)
{
    TESS_REQUIRE(model);
    if (!model->gradients)
        return tess__invalid(__func__, "the model was made without gradients");
    memset(model->gradients, 0, (size_t)model->params.count * sizeof(float));
    if (model->sums)
        memset(model->sums, 0, (size_t)model->params.count * sizeof *model->sums);
    return TESS_OK;
}
