/* SPDX-License-Identifier: Apache-2.0 */
/* test_pass_ranks.c - passes whose tokens are shared by ranks, which are threads, against one rank:
 * output, gradients, learning, hooks, memory, failures. */
#include "ranks_data.h"

static const int32_t keys[BATCH * HEADS] = {9, 0, 20, 13, 5, 33};

/* ---- comparing ------------------------------------------------------------------------------- */

static void check_near(const char *what, const float *got, const float *want, int64_t n,
                       double tolerance)
{
    double *wide = widened(want, (size_t)n);
    size_t at = 0;
    const double worst = worst_element_(got, 0, wide, (size_t)n, &at);
    if (!(worst <= tolerance))
        fail_msg("%s[%zu] is %.9g, must be %.9g: off by %.3g of the largest", what, at,
                 (double)got[at], (double)want[at], worst);
    free(wide);
}

/* Of n numbers, the sums over ranks in the first's place. */
static float *summed(const trial *t, int ranks, int learned, int64_t n)
{
    float *sum = room_for(n);
    for (int64_t i = 0; i < n; i++) {
        double all = 0.0;
        for (int r = 0; r < ranks; r++)
            all += (double)(learned ? t->of[r].learned : t->of[r].gradients)[i];
        sum[i] = (float)all;
    }
    return sum;
}

/* Each parameter by itself, for their gradients differ in size. */
static void check_gradients(const trial *t, int ranks, double tolerance)
{
    float *sum = summed(t, ranks, 0, t->one.info.count);
    for (int i = 0; i < t->one.info.params; i++) {
        tess_param param;
        CHECK_OK(tess_model_param(t->one.model, i, &param));
        const int64_t at = param.value - t->one.info.values;
        check_near(param.name, sum + at, t->alone.gradients + at, param.count, tolerance);
    }
    free(sum);
}

static void check_hooks(const trial *t, double tolerance)
{
    const shown *a = &t->hooked, *b = &t->hooked_one;
    check_near("q", &a->q[0][0][0][0][0], &b->q[0][0][0][0][0], sizeof a->q / 4, tolerance);
    check_near("k", &a->k[0][0][0][0][0], &b->k[0][0][0][0][0], sizeof a->k / 4, tolerance);
    if (t->shape.train)
        check_near("lse", &a->lse[0][0][0][0], &b->lse[0][0][0][0], sizeof a->lse / 4, tolerance);
    if (t->room.proj_dim == 0)
        return;
    check_near("q_low", &a->q_low[0][0][0][0][0], &b->q_low[0][0][0][0][0], sizeof a->q_low / 4,
               tolerance);
    check_near("k_low", &a->k_low[0][0][0][0][0], &b->k_low[0][0][0][0][0], sizeof a->k_low / 4,
               tolerance);
}

static void check_learning(const trial *t, int ranks, double tolerance)
{
    float *sum = summed(t, ranks, 1, learned_count());
    check_near("learned", sum, t->alone.learned, learned_count(), tolerance);
    free(sum);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int r = 0; r < ranks; r++) {
            assert_memory_equal(t->of[r].losses[layer], t->of[0].losses[layer],
                                sizeof t->of[0].losses[layer]);
            if (t->layers[layer].learn)
                CHECK_CLOSE(t->of[r].losses[layer], t->alone.losses[layer], BATCH * HEADS,
                            tolerance);
        }
}

/* What all ranks have alike, and what they have together. */
static void check_ranks(trial *t, int ranks, double tolerance)
{
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, ranks, NULL, run_rank, t));
    for (int r = 0; r < ranks; r++) {
        const result *of = &t->of[r];
        check_near("out", of->out, t->alone.out, (int64_t)t->one.n_out, tolerance);
        check_near("dx", of->dx, t->alone.dx, (int64_t)t->one.n_x, tolerance);
        assert_memory_equal(of->out, t->of[0].out, t->one.n_out * sizeof(float));
        assert_memory_equal(of->dx, t->of[0].dx, t->one.n_x * sizeof(float));
        assert_true(of->repeats);
        for (int layer = 0; layer < LAYERS; layer++)
            CHECK_CLOSE(of->density[layer], t->alone.density[layer], BATCH * HEADS, 1e-12);
    }
    if (t->shape.train)
        check_gradients(t, ranks, tolerance);
    check_hooks(t, tolerance);
    if (t->room.proj_dim > 0)
        check_learning(t, ranks, tolerance);
}

/* ---- what is computed ------------------------------------------------------------------------ */

static trial *make_trial(tess_keep keep, const tess_sparse_opts *room, const char *strategy)
{
    trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->shape = shape_with(NULL);
    t->shape.keep = keep;
    t->strategy = strategy;
    t->predictor.proj_dim = LOW;
    t->sparse = room != NULL;
    if (room)
        t->room = *room;
    t->attend = (tess_attend){.seed = 3, .step = 4};
    for (int layer = 0; layer < LAYERS; layer++)
        t->layers[layer].hook = 1;
    return t;
}

/* Sums of products in another order, and attention merged in other parts: a few 2^-24 of the
 * largest, through two layers and back. */
static const double TOL = 1e-5;

static void check_all_ranks(trial *t)
{
    run_alone(t);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
        check_ranks(t, ranks, TOL);
    drop_trial(t);
}

static void dense_passes_equal_one_rank(void **state)
{
    (void)state;
    check_all_ranks(make_trial(TESS_KEEP_ALL, NULL, "fractional"));
    check_all_ranks(make_trial(TESS_KEEP_BLOCKS, NULL, NULL));
}

static void passes_without_training_equal_one_rank(void **state)
{
    (void)state;
    trial *t = make_trial(TESS_KEEP_ALL, NULL, "fractional");
    t->shape.train = 0;
    check_all_ranks(t);
}

/* Predictors of both kinds that choose and learn, with and without the virtual key. */
static void passes_with_predictors_equal_one_rank(void **state)
{
    (void)state;
    for (int choice = 0; choice < 8; choice++) {
        const tess_sparse_opts room = {.proj_dim = LOW,
                                       .learn_rows = LEARN,
                                       .compensate = choice / 2 % 2 ? 1 + choice % 2 * 3 : 0};
        trial *t = make_trial(choice & 1 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, &room, "fractional");
        const int hidden = choice / 4;
        t->predictor =
            (tess_predictor_opts){hidden ? TESS_PREDICT_HIDDEN : TESS_PREDICT_QK, LOW, hidden, 1};
        t->attend.loss = choice & 1 ? TESS_PREDICT_COSINE : TESS_PREDICT_KL;
        for (int layer = 0; layer < LAYERS; layer++) {
            t->layers[layer].kind = TESS_SELECT_PREDICTOR;
            t->layers[layer].keys = keys;
            t->layers[layer].learn = 1;
        }
        check_all_ranks(t);
    }
}

static void use_predictor(trial *t)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        t->layers[layer].kind = TESS_SELECT_PREDICTOR;
        t->layers[layer].keys = keys;
    }
}

static int virtual_count(int i)
{
    static const int counts[] = {0, 1, 4};
    return counts[i % 3];
}

/* Keys that go round, or that are asked for: dense, and on the keys of a predictor. */
static void keys_that_are_nowhere_whole_equal_one_rank(void **state)
{
    (void)state;
    static const char *const strategies[] = {"ring", "selective", "2x2r", "2x2s"};
    for (int choice = 0; choice < 8; choice++) {
        const tess_sparse_opts room = {.proj_dim = LOW,
                                       .compensate = choice == 5 ? 1 : choice % 2 * 3};
        const int sparse = choice % 2, some = choice / 2 < 2;
        trial *t = make_trial(choice & 4 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL,
                              sparse || choice / 2 % 2 ? &room : NULL, strategies[choice / 2]);
        if (sparse)
            use_predictor(t);
        run_alone(t);
        for (int ranks = some ? 2 : 4; ranks <= (some ? 3 : 4); ranks++)
            check_ranks(t, ranks, TOL);
        drop_trial(t);
    }
}

/* A rank has all queries of its heads: the groups of one rank, and its keys. */
static void groups_by_content_of_whole_heads_equal_one_rank(void **state)
{
    (void)state;
    for (int choice = 0; choice < 6; choice++) {
        const tess_sparse_opts room = {.proj_dim = LOW,
                                       .compensate = virtual_count(choice),
                                       .group = choice % 3 == 2 ? TESS_GROUP_RANDOM
                                                                : TESS_GROUP_CONTENT};
        trial *t = make_trial(choice & 1 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, &room,
                              choice < 3 ? "contiguous" : "refined");
        use_predictor(t);
        if (choice >= 3)
            t->layers[1].kind = TESS_SELECT_ORACLE;
        run_alone(t);
        for (int ranks = 1; ranks <= HEADS; ranks++)
            check_ranks(t, ranks, TOL);
        drop_trial(t);
    }
}

/* Parts of heads have groups of their own: on lists of all keys these make no difference, on others
 * the bits are those of every run. */
static void groups_by_content_of_parts_of_heads(void **state)
{
    (void)state;
    static const char *const strategies[] = {"fractional", "ring", "selective", "2x2r", "2x2s"};
    static const int32_t all[BATCH * HEADS] = {TOKENS, 0, TOKENS, TOKENS, TOKENS, TOKENS};
    for (int choice = 0; choice < 10; choice++) {
        const tess_sparse_opts room = {
            .proj_dim = LOW, .compensate = virtual_count(choice / 2), .group = TESS_GROUP_CONTENT};
        const char *strategy = strategies[choice / 2];
        trial *t = make_trial(choice / 2 % 2 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, &room, strategy);
        use_predictor(t);
        for (int layer = 0; choice % 2 && layer < LAYERS; layer++)
            t->layers[layer].keys = all;
        run_alone(t);
        if (choice % 2) {
            check_ranks(t, 4, TOL);
        } else {
            CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 4, NULL, run_rank, t));
            for (int r = 0; r < 4; r++) {
                assert_true(t->of[r].repeats);
                assert_memory_equal(t->of[r].out, t->of[0].out, t->one.n_out * sizeof(float));
                for (int layer = 0; layer < LAYERS; layer++) /* lists as long as one rank's */
                    CHECK_CLOSE(t->of[r].density[layer], t->alone.density[layer], BATCH * HEADS,
                                1e-12);
            }
            assert_true(apart(t->of[0].out, t->alone.out, (int64_t)t->one.n_out) < 0.5);
        }
        drop_trial(t);
    }
}

/* The first layer dense, the second by each other kind. */
static void other_selectors_choose_the_same_keys(void **state)
{
    (void)state;
    static const tess_select_kind kinds[] = {TESS_SELECT_ORACLE, TESS_SELECT_POOLED,
                                             TESS_SELECT_SEARCH, TESS_SELECT_WINDOW,
                                             TESS_SELECT_RANDOM};
    static const int32_t cubes[BATCH * HEADS] = {3, 0, 5, 2, 1, 12};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const tess_sparse_opts room = {.unit_cubes = (int)i % 2};
        trial *t = make_trial(TESS_KEEP_ALL, &room, "fractional");
        t->layers[1].kind = kinds[i];
        t->layers[1].keys = room.unit_cubes ? cubes : keys;
        for (int a = 0; a < 3; a++)
            t->attend.window[a] = 1 + a % 2;
        check_all_ranks(t);
    }
}

/* Two steps: one that searches, and one of other clips that uses its keys again. */
static tess_status run_two_steps(const trial *t, tess_cp *context, tess_pass *pass, float *out)
{
    static const double density[LAYERS * HEADS] = {1, 0.05, 0.3, 0.05, 1, 0.05};
    float *x = malloc(t->one.n_x * sizeof *x);
    tess_attend attend = t->attend;
    tess_status status = x ? TESS_OK : TESS_ENOMEM;
    attend.layers = t->layers;
    for (int k = 0; k < 2 && status == TESS_OK; k++, attend.step++) {
        for (size_t i = 0; i < t->one.n_x; i++)
            x[i] = k ? -t->one.x[i] : t->one.x[i];
        status = tess_pass_attend(pass, &attend);
        if (status == TESS_OK && context && k == 1) /* groups move to ranks that did not search */
            status = tess_cp_plan(context, 1, density, NULL);
        if (status == TESS_OK)
            status =
                tess_pass_forward(pass, &(tess_model_in){x, t->one.timestep, t->one.text}, out);
    }
    free(x);
    return status;
}

static tess_status run_searching(void *user, tess_ctx *ctx, tess_comm *comm)
{
    trial *t = user;
    rank_objects o = {0};
    tess_comm_info info;
    tess_model_info model;
    TRY(tess_comm_query(comm, &info));
    tess_pass_shape shape = t->shape;
    tess_status status = make_context(t, ctx, comm, &o.context);
    shape.sparse = &t->room;
    shape.context = o.context;
    if (status == TESS_OK)
        status = tess_model_create(ctx, &config, &(tess_model_opts){0, 1}, &o.model);
    if (status == TESS_OK)
        status = tess_model_query(o.model, &model);
    if (status == TESS_OK) {
        memcpy(model.values, t->one.info.values, (size_t)model.count * sizeof(float));
        status = tess_pass_create(o.model, &shape, &o.pass);
    }
    if (status == TESS_OK)
        status = run_two_steps(t, o.context, o.pass, t->of[info.rank].out);
    tess_pass_destroy(o.pass);
    tess_model_destroy(o.model);
    tess_cp_destroy(o.context);
    return status;
}

static void what_ranks_found_is_used_again_by_others(void **state)
{
    (void)state;
    const tess_sparse_opts room = {.searches = 1};
    trial *t = make_trial(TESS_KEEP_ALL, &room, "fractional");
    t->shape.train = 0;
    t->attend.reuse = 1;
    for (int layer = 0; layer < LAYERS; layer++)
        t->layers[layer] = (tess_attend_layer){.kind = TESS_SELECT_SEARCH, .keys = keys};
    run_alone(t);
    CHECK_OK(tess_pass_attend(t->one.pass, NULL));
    CHECK_OK(run_two_steps(t, NULL, t->one.pass, t->alone.out));
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, ranks, NULL, run_searching, t));
        for (int r = 0; r < ranks; r++)
            check_near("out", t->of[r].out, t->alone.out, (int64_t)t->one.n_out, TOL);
    }
    drop_trial(t);
}

/* What is kept in halves is rounded for the gradients: 0.5 % of their length. */
static void halves_round_gradients_and_not_the_output(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        trial *t = make_trial((tess_keep)keep, NULL, "fractional");
        run_alone(t);
        t->shape.store = TESS_DTYPE_BF16;
        CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 3, NULL, run_rank, t));
        check_near("out", t->of[2].out, t->alone.out, (int64_t)t->one.n_out, TOL);
        float *sum = summed(t, 3, 0, t->one.info.count);
        const double off = apart(sum, t->alone.gradients, t->one.info.count);
        if (!(off > 1e-5 && off < 0.01))
            fail_msg("gradients are off by %g", off);
        free(sum);
        drop_trial(t);
    }
}

/* In BF16 sums in another order are rounded: half a per cent of the gradients' length, as much as
 * between F32 and BF16. */
static void passes_in_bf16_equal_one_rank_but_for_rounding(void **state)
{
    (void)state;
    static const char *const strategies[] = {"fractional", "contiguous", "ring"};
    for (int i = 0; i < 4; i++) {
        const tess_sparse_opts room = {.proj_dim = LOW, .learn_rows = LEARN, .compensate = 1};
        trial *t = make_trial(i == 1 ? TESS_KEEP_BLOCKS : TESS_KEEP_ALL, i == 3 ? &room : NULL,
                              strategies[i % 3]);
        if (i == 3)
            use_predictor(t);
        t->shape.precision = TESS_PRECISION_BF16;
        run_alone(t);
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, ranks, NULL, run_rank, t));
            float *sum = summed(t, ranks, 0, t->one.info.count);
            const double out = apart(t->of[0].out, t->alone.out, (int64_t)t->one.n_out);
            const double off = apart(sum, t->alone.gradients, t->one.info.count);
            print_message("%d ranks: out %.2e, gradients %.2e\n", ranks, out, off);
            assert_true(out < 0.005 && off < 0.01);
            for (int r = 0; r < ranks; r++)
                assert_true(t->of[r].repeats);
            free(sum);
        }
        drop_trial(t);
    }
}

/* ---- memory and time ------------------------------------------------------------------------- */

static void a_rank_takes_the_memory_that_was_predicted(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        trial *t = make_trial((tess_keep)keep, NULL, "fractional");
        for (int layer = 0; layer < LAYERS; layer++)
            t->layers[layer].hook = 0;
        run_alone(t);
        CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 3, NULL, run_rank, t));
        for (int r = 0; r < 3; r++)
            assert_int_equal(t->of[r].bytes, t->of[r].allowed);
        drop_trial(t);
    }
    for (int group = TESS_GROUP_CUBE; group <= TESS_GROUP_RANDOM; group++) {
        const tess_sparse_opts room = {
            .proj_dim = LOW, .learn_rows = LEARN, .group = (tess_group)group};
        trial *t = make_trial(TESS_KEEP_ALL, &room, "fractional");
        use_predictor(t);
        run_alone(t);
        CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 3, NULL, run_rank, t));
        for (int r = 0; r < 3; r++)
            assert_true(t->of[r].bytes <= t->of[r].allowed &&
                        t->of[r].bytes > t->of[r].allowed / 2);
        drop_trial(t);
    }
}

/* Over slow links, whose clock is the ranks': waiting is counted, and nowhere twice. */
static void waiting_for_others_is_counted_apart(void **state)
{
    (void)state;
    const tess_link slow = {.latency = 1000000000}; /* longer than all else together */
    trial *t = make_trial(TESS_KEEP_ALL, NULL, "fractional");
    run_alone(t);
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 2, &slow, run_rank, t));
    assert_int_equal(t->alone.times.exchange_ns, 0);
    for (int r = 0; r < 2; r++) {
        const tess_pass_times *x = &t->of[r].times;
        /* Two layers forward and backward, there and back, and the output: nine at the least. */
        assert_true(x->exchange_ns > 9 * slow.latency);
        assert_true(x->attention_ns > 0 && x->linear_ns > 0 && x->other_ns > 0 &&
                    x->observe_ns > 0);
        assert_true(x->attention_ns + x->linear_ns + x->other_ns + x->observe_ns <
                    9 * slow.latency);
    }
    drop_trial(t);
}

/* ---- failures -------------------------------------------------------------------------------- */

static tess_status refuse(void *user, const tess_hook_in *hook)
{
    (void)user;
    tess_predictor *none = NULL;
    /* Any failure of the library, on the rank that is shown head 2. */
    return hook->head + hook->heads == HEADS ? tess_predictor_query(none, NULL) : TESS_OK;
}

static tess_status run_refusing(void *user, tess_ctx *ctx, tess_comm *comm)
{
    trial *t = user;
    rank_objects o = {0};
    tess_model_info info;
    tess_pass_shape shape = t->shape;
    tess_status status = make_context(t, ctx, comm, &o.context);
    shape.context = o.context;
    if (status == TESS_OK)
        status = tess_model_create(ctx, &config, &(tess_model_opts){1, 1}, &o.model);
    if (status == TESS_OK)
        status = tess_model_query(o.model, &info);
    if (status == TESS_OK)
        status = tess_pass_create(o.model, &shape, &o.pass);
    const tess_attend attend = {.layers = t->layers, .hook = refuse};
    if (status == TESS_OK)
        status = tess_pass_attend(o.pass, &attend);
    float *out = calloc(t->one.n_out, sizeof *out);
    if (status == TESS_OK)
        status = tess_pass_forward(o.pass, &(tess_model_in){t->one.x, t->one.timestep, t->one.text},
                                   out);
    free(out);
    tess_pass_destroy(o.pass);
    tess_model_destroy(o.model);
    tess_cp_destroy(o.context);
    return status;
}

static void one_rank_that_fails_ends_all(void **state)
{
    (void)state;
    trial *t = make_trial(TESS_KEEP_ALL, NULL, "fractional");
    run_alone(t);
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 3, NULL, run_refusing, t),
                TESS_EINVAL, "rank 2: tess_predictor_query: predictor is NULL");
    drop_trial(t);
}

static void a_selector_that_reads_keys_which_no_rank_has_is_refused(void **state)
{
    (void)state;
    const tess_sparse_opts room = {0};
    trial *t = make_trial(TESS_KEEP_ALL, &room, "ring");
    t->layers[1].kind = TESS_SELECT_ORACLE;
    t->layers[1].keys = keys;
    run_alone(t);
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 2, NULL, run_rank, t),
                TESS_ENOTSUP,
                "tess_pass_forward: layer 1: the selector reads all keys of a head, which no rank "
                "of this plan has");
    drop_trial(t);
}

/* A context made for other sizes. */
typedef struct {
    trial *t;
    void (*change)(trial *t); /* of what the pass is */
    tess_keep keep;           /* of the context */
} misfit;

static tess_status run_misfit(void *user, tess_ctx *ctx, tess_comm *comm)
{
    const misfit *m = user;
    trial other = {
        .shape = m->t->shape, .room = m->t->room, .sparse = m->t->sparse, .strategy = "fractional"};
    tess_cp *context = NULL;
    tess_model *model = NULL;
    tess_pass *pass = NULL;
    other.shape.keep = m->keep;
    tess_status status = make_context(&other, ctx, comm, &context);
    m->change(&other);
    other.shape.keep = TESS_KEEP_ALL;
    other.shape.context = context;
    other.shape.sparse = other.sparse ? &other.room : NULL;
    if (status == TESS_OK)
        status = tess_model_create(ctx, &config, &(tess_model_opts){1, 1}, &model);
    if (status == TESS_OK)
        status = tess_pass_create(model, &other.shape, &pass);
    tess_pass_destroy(pass);
    tess_model_destroy(model);
    tess_cp_destroy(context);
    return status;
}

static void to_batch(trial *t)
{
    t->shape.batch = 1;
}
static void to_tokens(trial *t)
{
    t->shape.frames = 2;
}
static void to_rank(trial *t)
{
    t->room.proj_dim = 16;
}
static void to_cubes(trial *t)
{
    t->room.unit_cubes = 1;
}
static void to_compensate(trial *t)
{
    t->room.compensate = 1;
}
static void to_content(trial *t)
{
    t->room.group = TESS_GROUP_CONTENT;
}
static void to_same(trial *t)
{
    (void)t;
}

static void a_context_of_other_sizes_is_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(trial *t);
        tess_keep keep;
        const char *sentence;
    } cases[] = {
        {to_batch, TESS_KEEP_ALL, "the context's batch is 2, must be the pass's, 1"},
        {to_tokens, TESS_KEEP_ALL, "the context's tokens is 75, must be the pass's, 50"},
        {to_rank, TESS_KEEP_ALL, "the context's proj_dim is 8, must be the pass's, 16"},
        {to_cubes, TESS_KEEP_ALL, "the context's n_units is 0, must be the pass's, 12"},
        {to_compensate, TESS_KEEP_ALL, "the context's compensate is 0, must be the pass's, 1"},
        {to_content, TESS_KEEP_ALL, "the context's group_rows is 0, must be the pass's, 1"},
        {to_same, TESS_KEEP_BLOCKS, "the context's saves is 1, must be 2 or more"},
    };
    const tess_sparse_opts room = {.proj_dim = LOW};
    trial *t = make_trial(TESS_KEEP_ALL, &room, "fractional");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[200];
        misfit m = {t, cases[i].change, cases[i].keep};
        snprintf(sentence, sizeof sentence, "tess_pass_create: %s", cases[i].sentence);
        CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 1, NULL, run_misfit, &m),
                    TESS_EINVAL, sentence);
    }
    free(t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(dense_passes_equal_one_rank),
    cmocka_unit_test(passes_without_training_equal_one_rank),
    cmocka_unit_test(passes_with_predictors_equal_one_rank),
    cmocka_unit_test(keys_that_are_nowhere_whole_equal_one_rank),
    cmocka_unit_test(groups_by_content_of_whole_heads_equal_one_rank),
    cmocka_unit_test(groups_by_content_of_parts_of_heads),
    cmocka_unit_test(other_selectors_choose_the_same_keys),
    cmocka_unit_test(what_ranks_found_is_used_again_by_others),
    cmocka_unit_test(halves_round_gradients_and_not_the_output),
    cmocka_unit_test(passes_in_bf16_equal_one_rank_but_for_rounding),
    cmocka_unit_test(a_rank_takes_the_memory_that_was_predicted),
    cmocka_unit_test(waiting_for_others_is_counted_apart),
    cmocka_unit_test(one_rank_that_fails_ends_all),
    cmocka_unit_test(a_selector_that_reads_keys_which_no_rank_has_is_refused),
    cmocka_unit_test(a_context_of_other_sizes_is_refused),
};

RUN_TESTS(tests)
