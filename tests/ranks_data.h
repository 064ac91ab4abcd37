/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_data.h - a pass on ranks that are threads, beside the same pass on one rank, for the tests.
 *
 * The model, its input and the predictor are those of one rank, made in the test's own thread.
 * Ranks only return statuses: assertions are the test's. */
#ifndef TESS_RANKS_DATA_H
#define TESS_RANKS_DATA_H

#include "sparse_data.h"

enum { RANKS_MAX = 4, DIM = 16, LOW = 8, LEARN = 11 };

/* What hooks get, of all heads. */
typedef struct {
    float q[LAYERS][BATCH][HEADS][TOKENS][DIM], k[LAYERS][BATCH][HEADS][TOKENS][DIM];
    float q_low[LAYERS][BATCH][HEADS][TOKENS][LOW], k_low[LAYERS][BATCH][HEADS][TOKENS][LOW];
    float lse[LAYERS][BATCH][HEADS][TOKENS];
    int heads[LAYERS]; /* shown by this rank */
} shown;

/* What one rank gives. */
typedef struct {
    float *out, *dx, *gradients, *learned; /* learned: the predictor's gradients */
    double losses[LAYERS][BATCH * HEADS], density[LAYERS][BATCH * HEADS];
    tess_pass_times times;
    int64_t bytes;   /* that the pass and its model took */
    int64_t allowed; /* that tess_model_need predicted */
    int repeats;     /* 1: a second run gave the same bits */
} result;

/* What is run, and what came of it. */
typedef struct {
    tess_pass_shape shape;
    tess_sparse_opts room;
    int sparse; /* 1: room counts */
    tess_predictor_opts predictor;
    tess_attend_layer layers[LAYERS];
    tess_attend attend;
    const char *strategy;
    world one; /* alone; its buffers are every rank's input */
    shown hooked_one, hooked;
    result alone, of[RANKS_MAX];
} trial;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const tess_status try_ = (call);                                                           \
        if (try_ != TESS_OK)                                                                       \
            return try_;                                                                           \
    } while (0)

static inline tess_status copy_tensors(void *user, const tess_hook_in *hook)
{
    shown *s = user;
    const int l = hook->layer;
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < hook->heads; i++)
            for (int t = 0; t < TOKENS; t++) {
                const int h = hook->head + i;
                const struct {
                    const tess_view *view;
                    float *to;
                    int n;
                } all[] = {{hook->q, s->q[l][b][h][t], DIM},
                           {hook->k, s->k[l][b][h][t], DIM},
                           {hook->q_low, s->q_low[l][b][h][t], LOW},
                           {hook->k_low, s->k_low[l][b][h][t], LOW}};
                for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
                    const tess_view *v = all[a].view;
                    if (v)
                        memcpy(all[a].to,
                               (float *)v->data + b * v->stride_b + i * v->stride_h +
                                   t * v->stride_s,
                               (size_t)all[a].n * sizeof(float));
                }
                if (hook->lse)
                    s->lse[l][b][h][t] = hook->lse[(b * hook->heads + i) * TOKENS + t];
            }
    return TESS_OK;
}

static inline float *room_for(int64_t n)
{
    float *data = calloc((size_t)n + 1, sizeof *data);
    assert_non_null(data);
    return data;
}

static inline int64_t learned_count(void)
{
    return LAYERS * 2 * (int64_t)HEADS * LOW * (HEADS * DIM + 1); /* of hidden, which is the most */
}

static inline result make_result(const trial *t)
{
    return (result){.out = room_for((int64_t)t->one.n_out),
                    .dx = room_for((int64_t)t->one.n_x),
                    .gradients = room_for(t->one.info.count),
                    .learned = room_for(learned_count())};
}

static inline void drop_result(result *r)
{
    free(r->out);
    free(r->dx);
    free(r->gradients);
    free(r->learned);
}

/* One pass forward and, if it trains, backward, from gradients of zero. */
static inline tess_status run_pass(const trial *t, tess_model *model, tess_pass *pass,
                                   tess_predictor *predictor, float *out, float *dx)
{
    const tess_model_in in = {t->one.x, t->one.timestep, t->one.text};
    if (t->shape.train)
        TRY(tess_model_zero_gradients(model));
    if (predictor)
        TRY(tess_predictor_zero_gradients(predictor));
    TRY(tess_pass_forward(pass, &in, out));
    return t->shape.train ? tess_pass_backward(pass, t->one.dout, dx) : TESS_OK;
}

static inline tess_status set_attend(const trial *t, tess_pass *pass, tess_predictor *predictor,
                                     shown *hooked)
{
    tess_attend attend = t->attend;
    attend.layers = t->layers;
    attend.predictor = predictor;
    attend.hook = copy_tensors;
    attend.user = hooked;
    return tess_pass_attend(pass, &attend);
}

static inline tess_status keep_result(const trial *t, const tess_model *model, tess_pass *pass,
                                      tess_predictor *predictor, result *r)
{
    tess_model_info info;
    TRY(tess_model_query(model, &info));
    if (t->shape.train)
        memcpy(r->gradients, info.gradients, (size_t)info.count * sizeof(float));
    if (predictor) {
        tess_predictor_info learned;
        TRY(tess_predictor_query(predictor, &learned));
        memcpy(r->learned, learned.gradients, (size_t)learned.count * sizeof(float));
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        tess_attend_result attended;
        TRY(tess_pass_attend_result(pass, layer, &attended));
        memcpy(r->losses[layer], attended.loss_heads, sizeof r->losses[layer]);
        memcpy(r->density[layer], attended.density, sizeof r->density[layer]);
    }
    return tess_pass_times_read(pass, &r->times);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A rank's objects, freed whatever happened. */
typedef struct {
    tess_cp *context;
    tess_model *model;
    tess_pass *pass;
    tess_predictor *predictor;
} rank_objects;

static inline tess_status make_context(const trial *t, tess_ctx *ctx, tess_comm *comm,
                                       tess_cp **context)
{
    int64_t bounds[GROUPS + 1];
    const int grid[3] = {t->shape.frames, t->shape.height, t->shape.width};
    TRY(tess_order_cubes(grid, cube, NULL, NULL, bounds, NULL));
    const tess_cp_opts opts = {
        .layers = LAYERS,
        .heads = HEADS,
        .head_dim = DIM,
        .batch = BATCH,
        .tokens = TOKENS,
        .n_groups = t->sparse ? GROUPS : 0,
        .groups = bounds,
        .n_units = t->sparse && t->room.unit_cubes ? GROUPS : 0,
        .units = bounds,
        .proj_dim = t->sparse ? t->room.proj_dim : 0,
        .compensate = t->sparse ? t->room.compensate : 0,
        .group_rows = t->sparse && t->room.group != TESS_GROUP_CUBE,
        .saves = !t->shape.train                  ? 0
                 : t->shape.keep == TESS_KEEP_ALL ? LAYERS
                                                  : 1,
        .train = t->shape.train,
        .precision = t->shape.precision,
        .strategy = t->strategy,
        .cluster = "a100-80",
    };
    TRY(tess_cp_create(ctx, comm, &opts, context));
    return tess_cp_plan(*context, 0, NULL, NULL);
}

static inline tess_status run_objects(trial *t, tess_ctx *ctx, tess_comm *comm, rank_objects *o,
                                      result *r)
{
    tess_model_info info;
    tess_ctx_info before, after;
    tess_model_memory need;
    tess_pass_shape shape = t->shape;
    const tess_model_opts opts = {t->shape.train, 1};
    TRY(make_context(t, ctx, comm, &o->context));
    if (t->room.proj_dim > 0)
        TRY(tess_predictor_create(ctx, &config, &t->predictor, &o->predictor));
    shape.sparse = t->sparse ? &t->room : NULL;
    shape.context = o->context;
    TRY(tess_ctx_query(ctx, &before));
    TRY(tess_model_create(ctx, &config, &opts, &o->model));
    TRY(tess_model_query(o->model, &info));
    memcpy(info.values, t->one.info.values, (size_t)info.count * sizeof(float));
    TRY(tess_pass_create(o->model, &shape, &o->pass));
    TRY(set_attend(t, o->pass, o->predictor, &t->hooked));
    TRY(run_pass(t, o->model, o->pass, o->predictor, r->out, r->dx));
    TRY(keep_result(t, o->model, o->pass, o->predictor, r));
    TRY(tess_ctx_query(ctx, &after));
    TRY(tess_model_need(&config, &opts, &shape, 1, &need));
    r->bytes = after.bytes_now - before.bytes_now;
    r->allowed = need.total;

    result again = {.out = calloc(t->one.n_out, sizeof(float)),
                    .dx = calloc(t->one.n_x, sizeof(float))};
    const tess_status status = run_pass(t, o->model, o->pass, o->predictor, again.out, again.dx);
    r->repeats = status == TESS_OK &&
                 memcmp(again.out, r->out, t->one.n_out * sizeof(float)) == 0 &&
                 memcmp(again.dx, r->dx, t->one.n_x * sizeof(float)) == 0 &&
                 (!t->shape.train ||
                  memcmp(info.gradients, r->gradients, (size_t)info.count * sizeof(float)) == 0);
    free(again.out);
    free(again.dx);
    return status;
}

static inline tess_status run_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    trial *t = user;
    rank_objects o = {0};
    tess_comm_info info;
    TRY(tess_comm_query(comm, &info));
    const tess_status status = run_objects(t, ctx, comm, &o, &t->of[info.rank]);
    tess_pass_destroy(o.pass);
    tess_model_destroy(o.model);
    tess_predictor_destroy(o.predictor);
    tess_cp_destroy(o.context);
    return status;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Fills in the world and the answers of one rank that has no context. */
static inline void run_alone(trial *t)
{
    tess_predictor *predictor = NULL;
    tess_pass_shape shape = t->shape;
    shape.sparse = t->sparse ? &t->room : NULL;
    t->one = make_world(1, &config, &shape);
    t->alone = make_result(t);
    if (t->room.proj_dim > 0)
        CHECK_OK(tess_predictor_create(t->one.ctx, &config, &t->predictor, &predictor));
    CHECK_OK(set_attend(t, t->one.pass, predictor, &t->hooked_one));
    CHECK_OK(run_pass(t, t->one.model, t->one.pass, predictor, t->alone.out, t->alone.dx));
    CHECK_OK(keep_result(t, t->one.model, t->one.pass, predictor, &t->alone));
    tess_predictor_destroy(predictor);
    for (int r = 0; r < RANKS_MAX; r++)
        t->of[r] = make_result(t);
}

static inline void drop_trial(trial *t)
{
    for (int r = 0; r < RANKS_MAX; r++)
        drop_result(&t->of[r]);
    drop_result(&t->alone);
    drop_world(&t->one);
    free(t);
}

#endif
