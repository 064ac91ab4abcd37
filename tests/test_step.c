/* SPDX-License-Identifier: Apache-2.0 */
/* test_step.c - parts of a training step by themselves: what stages ask for, the predictors'
 * update, gradients and values of many ranks. */
#include "sparse_data.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/step.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const tess_status try_ = (call);                                                           \
        if (try_ != TESS_OK)                                                                       \
            return try_;                                                                           \
    } while (0)

/* ---- stages ---------------------------------------------------------------------------------- */

static void stages_have_their_defaults(void **state)
{
    (void)state;
    tess_stage first, second;
    CHECK_OK(tess_stage_query(
        &(tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV}, 0, 100,
        &first));
    CHECK_OK(tess_stage_query(
        &(tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV}, 1, 2000,
        &second));
    assert_int_equal(first.profile_every, 10);
    assert_int_equal(second.profile_every, 25);
    assert_int_equal(first.check_every, 25);
    assert_int_equal(second.check_every, 25);
    assert_float_equal(first.lr, 0.01, 0);
    assert_float_equal(second.lr, 0.1 * 0.01, 0);
    assert_float_equal(second.mass, 0.9, 0);
    assert_int_equal(first.rows, 100); /* all, of so few */
    assert_int_equal(second.rows, 250);
}

static void stages_follow_the_options(void **state)
{
    (void)state;
    const tess_attention_opts opts = {TESS_ATTENTION_OPTS_DEFAULTS,
                                      .kind = TESS_ATTENTION_DSV,
                                      .lr = 0.5,
                                      .lr_sparse = 0.5,
                                      .mass = 0.75,
                                      .profile_every = 1000000000,
                                      .check_every = 3};
    tess_stage stage;
    CHECK_OK(tess_stage_query(&opts, 1, 1 << 20, &stage));
    assert_int_equal(stage.profile_every, 1000000000);
    assert_int_equal(stage.check_every, 3);
    assert_float_equal(stage.lr, 0.25, 0);
    assert_float_equal(stage.mass, 0.75, 0);
    assert_int_equal(stage.rows, 512);
    CHECK_FAILS(tess_stage_query(NULL, 1, 8, &stage), TESS_EINVAL,
                "tess_stage_query: opts is NULL");
    CHECK_FAILS(tess_stage_query(&opts, 2, 8, &stage), TESS_EINVAL,
                "tess_stage_query: sparse is 2, must be 0 or 1");
    CHECK_FAILS(tess_stage_query(&opts, 1, 0, &stage), TESS_EINVAL,
                "tess_stage_query: tokens is 0, must be 1..2147483647");
    CHECK_FAILS(
        tess_stage_query(&(tess_attention_opts){TESS_ATTENTION_OPTS_DEFAULTS, .check_every = -1}, 1,
                         8, &stage),
        TESS_EINVAL, "tess_stage_query: attention.check_every is -1, must be 1..1000000000 steps");
}

/* ---- learning -------------------------------------------------------------------------------- */

static void updates_are_those_of_adamw(void **state)
{
    (void)state;
    enum { UPDATES = 3 };
    tess_ctx *ctx = NULL;
    tess_predictor *predictor = NULL;
    tess_predictor_info info;
    tess_learner *learner = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_predictor_create(ctx, &config, NULL, &predictor));
    CHECK_OK(tess_predictor_query(predictor, &info));
    CHECK_OK(tess_learner_create(ctx, predictor, LAYERS, &learner));
    const size_t n = (size_t)info.count;
    double *want = widened(info.values, n), *first = calloc(n, sizeof *first),
           *second = calloc(n, sizeof *second);
    assert_true(first && second);
    for (int t = 1; t <= UPDATES; t++) {
        int updated = 0;
        fill_normal(info.gradients, n, (uint64_t)t);
        CHECK_OK(tess_learner_update(learner, 0.01, &updated));
        assert_int_equal(updated, 1);
        for (size_t i = 0; i < n; i++) {
            const double g = info.gradients[i];
            first[i] = 0.9 * first[i] + 0.1 * g;
            second[i] = 0.99 * second[i] + 0.01 * g * g;
            want[i] -=
                0.01 * first[i] / (1 - pow(0.9, t)) / (sqrt(second[i] / (1 - pow(0.99, t))) + 1e-8);
        }
    }
    for (size_t i = 0; i < n; i++)
        assert_float_equal(info.values[i], want[i], 1e-6);
    free(want);
    free(first);
    free(second);
    tess_learner_destroy(learner);
    tess_predictor_destroy(predictor);
    tess_ctx_destroy(ctx);
}

static void what_is_not_finite_is_not_learned(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_predictor *predictor = NULL;
    tess_predictor_info info;
    tess_learner *learner = NULL;
    int updated = 1;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_predictor_create(ctx, &config, NULL, &predictor));
    CHECK_OK(tess_predictor_query(predictor, &info));
    CHECK_FAILS(tess_learner_create(ctx, predictor, 3, &learner), TESS_EINVAL,
                "tess_learner_create: layers is 3, must divide the predictor's 4 parameters");
    CHECK_OK(tess_learner_create(ctx, predictor, LAYERS, &learner));
    const float before = info.values[0];
    fill_normal(info.gradients, (size_t)info.count, 1);
    info.gradients[info.count - 1] = NAN;
    CHECK_OK(tess_learner_update(learner, 0.01, &updated));
    assert_int_equal(updated, 0);
    assert_true(info.values[0] == before);
    info.gradients[info.count - 1] = 0;
    CHECK_OK(tess_learner_update(learner, 0.01, &updated));
    assert_int_equal(updated, 1);
    assert_true(info.values[0] != before);
    CHECK_FAILS(tess_learner_update(learner, -1, &updated), TESS_EINVAL,
                "tess_learner_update: lr is -1, must be 0..1000");
    tess_learner_destroy(learner);
    tess_learner_destroy(NULL);
    tess_predictor_destroy(predictor);
    tess_ctx_destroy(ctx);
}

/* ---- gradients of many ranks ----------------------------------------------------------------- */

enum { RANKS = 3, RUNS = 2 };

/* What the ranks are given, and what they give back. */
typedef struct {
    tess_pass_shape shape;
    int64_t count;
    int params;
    float *dout[RANKS]; /* of each: other gradients */
    const world *w;
    float *own[RANKS], *summed[RANKS], *values[RANKS];
    int owner[RANKS][128];
    int64_t waited[RANKS];
    int detached; /* 1: without a pass attached gradients are a rank's own */
} shared;

static tess_status both(const shared *s, tess_model *model, tess_pass *pass, float *out, int rank)
{
    const world *w = s->w;
    TRY(tess_model_zero_gradients(model));
    TRY(tess_pass_forward(pass, &(tess_model_in){w->x, w->timestep, w->text}, out));
    return tess_pass_backward(pass, s->dout[rank], NULL);
}

static tess_status reduce(shared *s, tess_comm *comm, tess_model *model, tess_pass *pass,
                          float *out, int rank)
{
    const size_t bytes = (size_t)s->count * sizeof(float);
    tess_model_info info;
    tess_reduce_info reduced;
    tess_reduce *r = NULL;
    TRY(tess_model_query(model, &info));
    TRY(both(s, model, pass, out, rank));
    memcpy(s->own[rank], info.gradients, bytes);
    TRY(tess_reduce_create(model, comm, TESS_OPTIM_MUON, &r));
    tess_status status = tess_reduce_attach(r, pass);
    for (int run = 0; run < RUNS && status == TESS_OK; run++) /* stages are used again */
        status = both(s, model, pass, out, rank);
    if (status == TESS_OK) {
        memcpy(s->summed[rank], info.gradients, bytes);
        for (int64_t i = 0; i < s->count; i++)
            info.values[i] = (float)rank;
        status = tess_reduce_values(r);
    }
    if (status == TESS_OK)
        status = tess_reduce_query(r, &reduced);
    if (status == TESS_OK) {
        memcpy(s->values[rank], info.values, bytes);
        memcpy(s->owner[rank], reduced.owner, (size_t)reduced.params * sizeof(int));
        s->waited[rank] = reduced.waited_ns;
        memcpy(info.values, s->w->info.values, bytes);
        status = tess_reduce_attach(r, NULL);
    }
    if (status == TESS_OK)
        status = both(s, model, pass, out, rank);
    if (status == TESS_OK && rank == 0)
        s->detached = memcmp(s->own[rank], info.gradients, bytes) == 0;
    tess_reduce_destroy(r);
    return status;
}

static tess_status on_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    shared *s = user;
    tess_comm_info group;
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_model_info info;
    float *out = malloc(s->w->n_out * sizeof *out);
    TRY(tess_comm_query(comm, &group));
    tess_status status = out ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess_model_create(ctx, &config, &(tess_model_opts){.gradients = 1}, &model);
    if (status == TESS_OK)
        status = tess_model_query(model, &info);
    if (status == TESS_OK) {
        memcpy(info.values, s->w->info.values, (size_t)info.count * sizeof(float));
        status = tess_pass_create(model, &s->shape, &pass);
    }
    if (status == TESS_OK)
        status = reduce(s, comm, model, pass, out, group.rank);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    free(out);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

static void check_param(const shared *s, const world *w, int index)
{
    tess_param p;
    CHECK_OK(tess_model_param(w->model, index, &p));
    const int64_t at = p.value - w->info.values;
    const int owner = s->owner[0][index];
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(s->owner[rank][index], owner);
        for (int64_t i = at; i < at + p.count; i++)
            assert_float_equal(s->values[rank][i], (float)owner, 0);
    }
    for (int64_t i = at; i < at + p.count; i++) {
        float sum = s->own[0][i];
        for (int rank = 1; rank < RANKS; rank++)
            sum += s->own[rank][i];
        assert_memory_equal(&s->summed[owner][i], &sum, sizeof sum);
    }
}

static void owners_have_the_sums_and_give_the_values(void **state)
{
    (void)state;
    shared s = {.shape = shape_with(NULL)};
    world w = make_world(1, &config, &s.shape);
    int owned[RANKS] = {0};
    s.w = &w;
    s.count = w.info.count;
    s.params = w.info.params;
    assert_true(s.params <= 128);
    for (int rank = 0; rank < RANKS; rank++) {
        s.dout[rank] = floats(w.n_out, 40 + (uint64_t)rank);
        s.own[rank] = floats((size_t)s.count, 1);
        s.summed[rank] = floats((size_t)s.count, 1);
        s.values[rank] = floats((size_t)s.count, 1);
    }
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, RANKS, NULL, on_rank, &s));
    for (int i = 0; i < s.params; i++) {
        check_param(&s, &w, i);
        owned[s.owner[0][i]]++;
    }
    assert_int_equal(s.detached, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(owned[rank] > 0 && s.waited[rank] > 0);
        free(s.dout[rank]);
        free(s.own[rank]);
        free(s.summed[rank]);
        free(s.values[rank]);
    }
    drop_world(&w);
}

static void a_reduce_is_of_one_model_with_gradients(void **state)
{
    (void)state;
    const tess_pass_shape shape = shape_with(NULL);
    world a = make_world(1, &config, &shape), b = make_world(1, &config, &shape);
    tess_model *plain = NULL;
    tess_comm *comm = NULL;
    tess_reduce *r = NULL;
    CHECK_OK(tess_comm_self(a.ctx, &comm));
    CHECK_OK(tess_model_create(a.ctx, &config, NULL, &plain));
    CHECK_FAILS(tess_reduce_create(plain, comm, TESS_OPTIM_MUON, &r), TESS_EINVAL,
                "tess_reduce_create: the model was made without gradients");
    CHECK_FAILS(tess_reduce_create(a.model, comm, (tess_optim)2, &r), TESS_EINVAL,
                "tess_reduce_create: optim is 2, must be a tess_optim");
    CHECK_OK(tess_reduce_create(a.model, comm, TESS_OPTIM_ADAMW, &r));
    CHECK_FAILS(tess_reduce_attach(r, b.pass), TESS_EINVAL,
                "tess_reduce_attach: the pass is of another model");
    tess_reduce_destroy(r);
    tess_reduce_destroy(NULL);
    tess_model_destroy(plain);
    tess_comm_destroy(comm);
    drop_world(&a);
    drop_world(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_have_their_defaults),
    cmocka_unit_test(stages_follow_the_options),
    cmocka_unit_test(updates_are_those_of_adamw),
    cmocka_unit_test(what_is_not_finite_is_not_learned),
    cmocka_unit_test(owners_have_the_sums_and_give_the_values),
    cmocka_unit_test(a_reduce_is_of_one_model_with_gradients),
};
RUN_TESTS(tests)
