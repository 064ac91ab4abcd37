/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - new clips: Euler's method along the learned velocity, with guidance.
 *
 *   s_k = shift(1 - k / steps),  x <- x + (s_{k+1} - s_k) v(x, 1000 s_k, text)
 *   v = v_none + guidance (v_text - v_none)
 *
 * from noise at s = 1 to a clip at s = 0. Each step is one forward pass, two with guidance. Clip i
 * begins as the normal numbers of stream i: it does not depend on the other clips of a
 * batch of the same size. sample_ranks.c distributes it over ranks.
 */
#include "sample_ranks.h"

#include "options/option_check.h"

static void begin(const tess_ctx *ctx, const tess__sampling *s, float *x)
{
    enum { PART = 4096 };
    const int64_t parts = (s->size + PART - 1) / PART;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < s->batch * parts; i++) {
        const int64_t clip = i / parts, at = i % parts * PART;
        const int64_t n = s->size - at < PART ? s->size - at : PART;
        tess_random_normal(s->seed, tess__stream(TESS__SAMPLE, s->first + clip), (uint64_t)at,
                           x + clip * s->size + at, (size_t)n);
    }
}

/* x += length (v_none + guidance (v - v_none)) */
static void move(const tess_ctx *ctx, const tess__sampling *s, double length, float *x)
{
    const float full = (float)(length * (s->v_none ? s->guidance : 1.0));
    const float rest = (float)(length * (1.0 - s->guidance));
    const int64_t n = s->batch * s->size;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += TESS_PIECE) {
        const int64_t end = n - at < TESS_PIECE ? n : at + TESS_PIECE;
        for (int64_t i = at; i < end; i++)
            x[i] += s->v_none ? full * s->v[i] + rest * s->v_none[i] : full * s->v[i];
    }
}

/* One evaluation: the velocity with a text, or pass 1 of a step: without. */
static tess_status evaluate(tess_pass *pass, const tess__sampling *s, const float *x, int k,
                            int evaluation)
{
    const tess_model_in in = {x, s->timestep, evaluation ? s->none : s->text};
    if (s->sampler)
        TESS_TRY(tess__sampler_attend(s->sampler, pass, k, evaluation));
    TESS_TRY(tess_pass_forward(pass, &in, evaluation ? s->v_none : s->v));
    TESS_TRY(tess__sample_ranks_observe(s->ranks, pass, (int)s->batch));
    return s->sampler ? tess__sampler_observe(s->sampler, pass, k) : TESS_OK;
}

/* The velocities of a step. Budgets that are measured with prompts hold for the pass without. */
static tess_status evaluate_step(tess_pass *pass, const tess__sampling *s, const float *x, int k)
{
    const int measures = s->sampler && tess__sampler_measures(s->sampler, k);
    TESS_TRY(tess__sample_ranks_plan(s->ranks, k));
    if (tess__sample_ranks_evaluates(s->ranks, 0))
        TESS_TRY(evaluate(pass, s, x, k, 0));
    if (measures)
        TESS_TRY(tess__sampler_share(s->sampler, s->ranks, k));
    if (s->v_none && tess__sample_ranks_evaluates(s->ranks, 1))
        TESS_TRY(evaluate(pass, s, x, k, 1));
    return tess__sample_ranks_exchange(s->ranks, s->v, s->v_none, s->batch * s->size);
}

tess_status tess__sample(const tess_ctx *ctx, tess_pass *pass, const tess__sampling *s, float *x)
{
    begin(ctx, s, x);
    for (int k = 0; k < s->steps; k++) {
        TESS_TRY(tess__progress(ctx, "sampling", k, s->steps));
        const double now = tess__shifted(s->shift, 1.0 - (double)k / s->steps);
        const double next = tess__shifted(s->shift, 1.0 - (double)(k + 1) / s->steps);
        for (int64_t b = 0; b < s->batch; b++)
            s->timestep[b] = (float)(1000.0 * now);
        for (int64_t b = 0; b < s->batch && s->table; b++)
            s->u[b] = 1.0 - (double)k / s->steps;
        if (s->table)
            TESS_TRY(tess__attend_table_set(s->table, pass, s->u,
                                            &(tess__attend_pass){.number = k, .sample = s->first}));
        TESS_TRY(evaluate_step(pass, s, x, k));
        move(ctx, s, next - now, x);
    }
    return s->sampler ? tess__sampler_end(s->sampler, s->ranks) : TESS_OK;
}

static tess_status check(const char *who, const tess_model *model, tess_sample_opts *o)
{
    const tess_model_config *config = &model->config;
    o->text_len = o->text_len ? o->text_len : config->text_len;
    TESS_TRY(tess__options_check(who, TESS_OPTIONS_SAMPLE, o));
    if (o->exact_ranks)
        TESS_TRY(tess__exact_precision(who, o->precision));
    if (config->in_channels != config->out_channels)
        return tess__invalid(who, "the model has %d channels in and %d out, must be as many",
                             config->in_channels, config->out_channels);
    return TESS_OK;
}

/* The pass exists, so its sizes are within their rules and their products fit. */
static tess_status sample_with(tess_model *model, tess_pass *pass, tess__sampler *sampler,
                               tess__sample_ranks *ranks, const tess_sample_opts *o,
                               const float *text, float *latents)
{
    const tess_model_config *config = &model->config;
    const int64_t size = (int64_t)config->in_channels * o->frames * o->height * o->width;
    const size_t n = (size_t)o->batch * (size_t)size, f = sizeof(float);
    const size_t prompts = (size_t)o->batch * (size_t)o->text_len * (size_t)config->text_dim;
    const int guided = o->guidance != 1.0;
    tess__sampling s = {.sampler = sampler,
                        .ranks = ranks,
                        .batch = o->batch,
                        .size = size,
                        .steps = o->steps,
                        .shift = o->shift,
                        .guidance = o->guidance,
                        .seed = o->seed,
                        .first = o->first,
                        .text = text};
    tess__arena arena = {.ctx = model->ctx};
    float *x = tess__arena_take(&arena, n * f);
    float *none = x ? tess__alloc_zero(model->ctx, guided ? prompts * f : 0) : NULL;
    s.none = none;
    s.timestep = none ? tess__arena_take(&arena, (size_t)o->batch * f) : NULL;
    s.v = s.timestep ? tess__arena_take(&arena, n * f) : NULL;
    s.v_none = s.v && guided ? tess__arena_take(&arena, n * f) : NULL;
    tess_status status = s.v && (s.v_none || !guided) ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess__sample(model->ctx, pass, &s, x);
    for (size_t i = 0; i < n && status == TESS_OK; i++)
        latents[i] = x[i];
    tess__free(model->ctx, none);
    tess__arena_free(&arena);
    return status;
}

/* What a sampling is made of: freed together, whatever happened. */
typedef struct {
    tess__sampler *sampler;
    tess__sample_ranks ranks;
    tess_pass *pass;
} parts;

static tess_status make(tess_model *model, const tess_sample_opts *o, const float *text, parts *p)
{
    static const char who[] = "tess_sample_run";
    const int ordered = o->cube[0] || o->cube[1] || o->cube[2];
    const int *patch = model->config.patch;
    tess_pass_shape shape = {.batch = o->batch,
                             .frames = o->frames,
                             .height = o->height,
                             .width = o->width,
                             .text_len = o->text_len,
                             .cube = ordered ? o->cube : NULL,
                             .exact = o->exact_ranks,
                             .precision = o->precision};
    /* Sides that make no grid are named by the pass. */
    const int grid[3] = {o->frames / patch[0], o->height / patch[1], o->width / patch[2]};
    const int some = grid[0] > 0 && grid[1] > 0 && grid[2] > 0;
    TESS_TRY(tess__sample_ranks_open(who, model, o, text, &p->ranks));
    tess_status status = some ? tess__sampler_create(model, o, grid, &p->sampler) : TESS_OK;
    if (status == TESS_OK && o->exact_ranks && tess__sampler_attention(p->sampler))
        status = tess__exact_options(who, tess__sampler_attention(p->sampler));
    TESS_TRY(tess__pg_agree(&p->ranks.pg, status));
    if (p->sampler)
        tess__sampler_shape(p->sampler, &p->ranks, &shape);
    const tess__sharing sharing = {.config = &model->config,
                                   .shape = &shape,
                                   .attention = tess__sampler_attention(p->sampler),
                                   .strategy = o->strategy,
                                   .cluster = o->cluster,
                                   .event = o->plan_event,
                                   .user = o->plan_user};
    status = some ? tess__sample_ranks_cp(&p->ranks, &sharing) : TESS_OK;
    shape.context = p->ranks.cp;
    if (status == TESS_OK)
        status = tess_pass_create(model, &shape, &p->pass);
    return tess__pg_agree(&p->ranks.pg, status);
}

tess_status tess_sample_run(tess_model *model, const tess_sample_opts *opts, const float *text,
                            float *latents)
{
    TESS_REQUIRE(model, opts, text, latents);
    tess_sample_opts o = *opts;
    parts p = {0};
    tess__sample_ranks_init(model->ctx, &o, &p.ranks);
    tess_status status = tess__pg_agree(&p.ranks.pg, check(__func__, model, &o));
    if (status == TESS_OK)
        status = make(model, &o, text, &p);
    if (status == TESS_OK)
        status = sample_with(model, p.pass, p.sampler, &p.ranks, &o, text, latents);
    tess_pass_destroy(p.pass);
    tess__sampler_destroy(p.sampler);
    status = tess__pg_propagate(&p.ranks.pg, status);
    tess__sample_ranks_close(&p.ranks);
    return status;
}
