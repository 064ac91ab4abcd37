/* SPDX-License-Identifier: Apache-2.0 */
/* test_ctx.c - a context that is destroyed before the objects made with it: the last of them frees
 * it. An allocator counts, so that memory that stays behind is found without a sanitizer too. */
#include "test.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/exchange.h"
#include "tessera/advanced/predict.h"
#include "tessera/advanced/profile_report.h"
#include "tessera/cp.h"
#include "tessera/file.h"
#include "tessera/report.h"
#include "tessera/select.h"
#include "tessera/sim.h"
#ifdef TEST_TRAIN
#include "tessera/advanced/sparse.h"
#include "tessera/advanced/step.h"
#include "tessera/train.h"
#endif

#include <stdlib.h>
#include <unistd.h>

static long live; /* blocks of the allocator */

static void *counted(void *user, size_t bytes)
{
    (void)user;
    void *p = aligned_alloc(64, bytes);
    live += p != NULL;
    return p;
}

static void release(void *user, void *p)
{
    (void)user;
    live -= p != NULL;
    free(p);
}

static tess_ctx *make(void)
{
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 1, .allocator = {.alloc = counted, .free = release}}, &ctx));
    return ctx;
}

/* Makes an object, destroys the context, destroys the object: nothing is left. */
#define OUTLIVES(type, create, destroy)                                                            \
    do {                                                                                           \
        tess_ctx *ctx = make();                                                                    \
        type *object = NULL;                                                                       \
        CHECK_OK(create);                                                                          \
        tess_ctx_destroy(ctx);                                                                     \
        assert_true(live > 1);                                                                     \
        destroy(object);                                                                           \
        assert_int_equal(live, 0);                                                                 \
    } while (0)

static void a_context_alone_is_freed(void **state)
{
    (void)state;
    tess_ctx_destroy(make());
    assert_int_equal(live, 0);
    tess_ctx_destroy(NULL);
}

static void attention_outlives_its_context(void **state)
{
    (void)state;
    const tess_sel_shape lists = {
        .batch = 1, .heads = 1, .tokens_q = 8, .tokens_k = 8, .group = 4, .unit = 4};
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = 8, .tokens_q = 8, .tokens_k = 8};
    const tess_predict_shape learned = {
        .batch = 1, .heads = 1, .head_dim = 8, .rank = 8, .tokens = 8, .rows = 4};
    OUTLIVES(tess_selection, tess_selection_create(ctx, &lists, 4, &object),
             tess_selection_destroy);
    OUTLIVES(tess_selector,
             tess_selector_create(ctx, &(tess_selector_opts){.kind = TESS_SELECT_ORACLE}, &object),
             tess_selector_destroy);
    OUTLIVES(tess_attn, tess_attn_create(ctx, &shape, &object), tess_attn_destroy);
    OUTLIVES(tess_predict, tess_predict_create(ctx, &learned, &object), tess_predict_destroy);
}

static void an_object_works_without_the_callers_context(void **state)
{
    (void)state;
    float x[4][8 * 8] = {{0}}, lse[8];
    tess_view v[4];
    tess_ctx *ctx = make();
    tess_attn *attn = NULL;
    for (int i = 0; i < 4; i++)
        v[i] = (tess_view){x[i], TESS_DTYPE_F32, 64, 64, 8};
    CHECK_OK(tess_attn_create(
        ctx,
        &(tess_attn_shape){.batch = 1, .heads = 1, .head_dim = 8, .tokens_q = 8, .tokens_k = 8},
        &attn));
    tess_ctx_destroy(ctx);
    CHECK_OK(tess_attn_forward(attn, NULL, &v[0], &v[1], &v[2], &v[3], lse));
    tess_attn_destroy(attn);
    assert_int_equal(live, 0);
}

static void plans_outlive_their_context(void **state)
{
    (void)state;
    static const int64_t weights[] = {5, 3, 2, 1}, bounds[] = {0, 2, 4};
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 2};
    OUTLIVES(tess_work, tess_work_from_weights(ctx, weights, 1, 4, 4, &object), tess_work_destroy);
    OUTLIVES(tess_cluster, tess_cluster_load(ctx, "h100", &object), tess_cluster_destroy);
    OUTLIVES(tess_plan_report, tess_plan_report_create(ctx, NULL, &object),
             tess_plan_report_destroy);
    tess_ctx *ctx = make();
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    tess_exchange *exchange = NULL;
    CHECK_OK(tess_work_from_weights(ctx, weights, 1, 4, 4, &work));
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    CHECK_OK(tess_plan_exchange(plan, NULL, 0, 1, bounds, NULL, &exchange));
    tess_ctx_destroy(ctx);
    tess_work_destroy(work);
    tess_plan_destroy(plan);
    assert_true(live > 1);
    tess_exchange_destroy(exchange);
    assert_int_equal(live, 0);
}

static void files_and_simulators_outlive_their_context(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-ctx-XXXXXX.npy", csv[] = "/tmp/tess-ctx-XXXXXX.csv";
    close(mkstemps(path, 4));
    close(mkstemps(csv, 4));
    const tess_tensor tensor = {"x", TESS_DTYPE_F32, 1, {2}, (float[]){1, 2}};
    const tess_profile_view view = {1, 1, 1, (int64_t[]){0}, (int64_t[]){0}, (double[]){0.5}};
    tess_ctx *writer = make();
    CHECK_OK(tess_file_write(writer, path, &tensor, 1, NULL));
    CHECK_OK(tess_profile_write(writer, csv, &view));
    tess_ctx_destroy(writer);
    OUTLIVES(tess_file, tess_file_open(ctx, path, &object), tess_file_close);
    OUTLIVES(tess_profile, tess_profile_open(ctx, csv, NULL, &object), tess_profile_close);
    unlink(path);
    unlink(csv);
    OUTLIVES(tess_sim_params, tess_sim_params_load(ctx, NULL, &object), tess_sim_params_destroy);
    OUTLIVES(tess_profile_report,
             tess_profile_report_create(ctx, &(tess_profile_report_opts){.layers = 1, .heads = 1},
                                        &object),
             tess_profile_report_destroy);
    tess_ctx *ctx = make();
    tess_sim_params *params = NULL;
    tess_sim *sim = NULL;
    CHECK_OK(tess_sim_params_load(ctx, NULL, &params));
    CHECK_OK(tess_sim_create(ctx, params, &sim));
    tess_ctx_destroy(ctx);
    tess_sim_destroy(sim);
    tess_sim_params_destroy(params);
    assert_int_equal(live, 0);
}

static void communicators_outlive_their_context(void **state)
{
    (void)state;
    static const int64_t bounds[] = {0, 8};
    const tess_dist_attn_opts opts = {
        .batch = 1, .heads = 1, .head_dim = 8, .tokens = 8, .bounds = bounds};
    const tess_cp_opts group = {
        .layers = 1, .heads = 1, .head_dim = 8, .batch = 1, .tokens = 8, .cluster = "h100"};
    OUTLIVES(tess_comm, tess_comm_self(ctx, &object), tess_comm_destroy);
    OUTLIVES(tess_comm, tess_comm_trace(ctx, 0, 2, &object), tess_comm_destroy);
    tess_ctx *ctx = make();
    tess_comm *comm = NULL;
    tess_dist_attn *attn = NULL;
    tess_cp *cp = NULL;
    CHECK_OK(tess_comm_self(ctx, &comm));
    CHECK_OK(tess_dist_attn_create(ctx, comm, &opts, &attn));
    CHECK_OK(tess_cp_create(ctx, comm, &group, &cp));
    tess_ctx_destroy(ctx);
    tess_cp_destroy(cp);
    tess_dist_attn_destroy(attn);
    tess_comm_destroy(comm);
    assert_int_equal(live, 0);
}

#ifdef TEST_TRAIN
static void training_outlives_its_context(void **state)
{
    (void)state;
    const tess_data_opts source = TESS_DATA_OPTS_INIT;
    tess_train_opts opts = TESS_TRAIN_OPTS_INIT;
    tess_model_config config;
    tess_data_info info;
    tess_data *data = NULL;
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    tess_predictor *predictor = NULL;
    tess_learner *learner = NULL;
    tess_train *train = NULL;
    CHECK_OK(tess_model_preset("tiny", &config));
    tess_ctx *ctx = make();
    CHECK_OK(tess_data_open(ctx, &source, &data));
    CHECK_OK(tess_data_query(data, &info));
    config.in_channels = config.out_channels = info.channels;
    config.text_len = info.text_len;
    config.text_dim = info.text_dim;
    opts.steps = 1;
    opts.batch = 1;
    CHECK_OK(tess_model_create(ctx, &config, &(tess_model_opts){.gradients = 1}, &model));
    CHECK_OK(tess_pass_create(
        model, &(tess_pass_shape){.batch = 1, .frames = 2, .height = 4, .width = 4}, &pass));
    CHECK_OK(tess_predictor_create(ctx, &config, NULL, &predictor));
    CHECK_OK(tess_learner_create(ctx, predictor, config.layers, &learner));
    CHECK_OK(tess_train_create(model, data, &opts, &train));
    tess_ctx_destroy(ctx);
    CHECK_OK(tess_train_run(train, 1, NULL, NULL));
    tess_train_destroy(train);
    tess_learner_destroy(learner);
    tess_predictor_destroy(predictor);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    tess_data_close(data);
    assert_int_equal(live, 0);
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_context_alone_is_freed),
    cmocka_unit_test(attention_outlives_its_context),
    cmocka_unit_test(an_object_works_without_the_callers_context),
    cmocka_unit_test(plans_outlive_their_context),
    cmocka_unit_test(files_and_simulators_outlive_their_context),
    cmocka_unit_test(communicators_outlive_their_context),
#ifdef TEST_TRAIN
    cmocka_unit_test(training_outlives_its_context),
#endif
};
RUN_TESTS(tests)
