/* SPDX-License-Identifier: Apache-2.0 */
/* test_sample_ranks.c - sampling on many ranks, as threads: the clips of one rank, plans that are
 * kept, failures that all hear of. */
#include "sample_data.h"

enum { RANKS_MOST = 4 };

/* What rank 1 does that the others do not. */
typedef enum {
    ODD_NONE,
    ODD_TEXT,
    ODD_OPTIONS,
    ODD_DENSITY, /* these of attention */
    ODD_MASS,
    ODD_COMPENSATE,
    ODD_WEIGHTS,
    ODD_STOPS
} oddity;

typedef struct {
    tess_sample_opts opts;
    oddity odd;
    int64_t plans[TESS_CP_EVENT_COUNT]; /* events that rank 0 received */
    result results[RANKS_MOST];
    tess_comm_counts sent[RANKS_MOST];
    tess_status status[RANKS_MOST];
    char sentence[RANKS_MOST][512];
} story;

static _Thread_local int stops; /* 1: this rank stops in its third step */

static int stop_here(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)total;
    return stops && strcmp(what, "sampling") == 0 && done == 2;
}

static void count_event(void *user, const tess_cp_event *event)
{
    story *s = user;
    s->plans[event->kind]++;
}

/* No assertion here: it would leave the thread of the rank. */
static void sample_rank(tess_ctx *ctx, tess_comm *comm, story *s, int rank)
{
    tess_model *model = NULL;
    tess_model_info info;
    float prompts[sizeof text / sizeof *text];
    tess_sample_opts opts = s->opts;
    const oddity odd = rank == 1 ? s->odd : ODD_NONE;
    memcpy(prompts, text, sizeof text);
    opts.comm = comm;
    opts.cluster = "a100-80"; /* plans that depend on no clock */
    opts.density = s->results[rank].density;
    tess_attention_opts attention =
        opts.attention ? *opts.attention : (tess_attention_opts)TESS_ATTENTION_OPTS_INIT;
    attention.density += odd == ODD_DENSITY ? 0.125 : 0.0;
    attention.mass -= odd == ODD_MASS ? 0.125 : 0.0;
    attention.compensate = odd == ODD_COMPENSATE ? !attention.compensate : attention.compensate;
    opts.attention = opts.attention ? &attention : NULL;
    opts.sent = &s->sent[rank];
    opts.plan_event = rank == 0 ? count_event : NULL;
    opts.plan_user = s;
    prompts[3] += odd == ODD_TEXT;
    opts.seed += odd == ODD_OPTIONS;
    stops = odd == ODD_STOPS;
    tess_status status = tess_model_load(ctx, checkpoint, NULL, &model);
    if (status == TESS_OK && odd == ODD_WEIGHTS && tess_model_query(model, &info) == TESS_OK)
        info.values[7] += 1.0f;
    if (status == TESS_OK)
        status = tess_sample_run(model, &opts, prompts, s->results[rank].latents);
    s->status[rank] = status;
    snprintf(s->sentence[rank], sizeof s->sentence[rank], "%s",
             status == TESS_OK ? "" : tess_last_error());
    tess_model_destroy(model);
}

/* A failure is checked by the test: returned, it would be sent to ranks that have it already. */
static tess_status play_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    sample_rank(ctx, comm, user, info.rank);
    return TESS_OK;
}

/* The failure of the first rank that has one. */
static tess_status play(story *s, int ranks)
{
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1, .progress = stop_here}, ranks, NULL,
                               play_rank, s));
    for (int r = 0; r < ranks; r++)
        if (s->status[r] != TESS_OK)
            return tess__fail(s->status[r], "%s", s->sentence[r]);
    return TESS_OK;
}

/* Plays a story that goes well: all ranks have the same bits, and those are one rank's within 1e-4,
 * relative: eight steps add up differences of sums in another order, about 1e-6 in each, which two
 * layers and guidance multiply by a few. */
static void check_ranks(int ranks, tess_sample_opts opts)
{
    static double want[2 * LATENT];
    story *s = calloc(1, sizeof *s), *again = calloc(1, sizeof *again);
    assert_true(s && again);
    result *one = sample(1, opts);
    s->opts = again->opts = opts;
    CHECK_OK(play(s, ranks));
    CHECK_OK(play(again, ranks));
    for (int i = 0; i < 2 * LATENT; i++)
        want[i] = one->latents[i];
    CHECK_CLOSE(s->results[0].latents, want, 2 * LATENT, 1e-4);
    CHECK_CLOSE(s->results[0].density, one->density, STEPS * 4, 1e-9);
    for (int r = 0; r < ranks; r++) {
        assert_memory_equal(s->results[r].latents, s->results[0].latents, sizeof one->latents);
        assert_memory_equal(s->results[r].latents, again->results[r].latents, sizeof one->latents);
        CHECK_CLOSE(s->results[r].density, one->density, STEPS * 4, 1e-9);
    }
    free(one);
    free(s);
    free(again);
}

static void check_all_ranks(const char *from, const tess_attention_opts *attention)
{
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int halves = -1; halves <= 0; halves++) {
            tess_sample_opts opts = opts_of(from, attention);
            opts.guidance = 2.0;
            opts.halves = halves ? TESS_HALVES_OFF : TESS_HALVES_AUTO;
            check_ranks(ranks, opts);
        }
}

static void clips_of_many_ranks_are_those_of_one(void **state)
{
    (void)state;
    check_all_ranks(NULL, NULL);
}

static void so_they_are_with_the_budgets_of_a_checkpoint(void **state)
{
    (void)state;
    check_all_ranks(checkpoint, NULL);
}

/* The half without prompts gets what the other one measures. */
static void so_they_are_with_measured_budgets(void **state)
{
    (void)state;
    const tess_attention_opts half = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE,
                                      .mass = 0.5};
    check_all_ranks(NULL, &half);
}

static void so_they_are_with_keys_that_are_used_again(void **state)
{
    (void)state;
    const tess_attention_opts search = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_SEARCH,
                                        .density = 0.2, .cube = {2, 2, 2}};
    const tess_attention_opts measured = {TESS_ATTENTION_OPTS_DEFAULTS,
                                          .kind = TESS_ATTENTION_SEARCH, .mass = 0.5,
                                          .cube = {2, 2, 2}};
    check_all_ranks(NULL, &search);
    check_all_ranks(NULL, &measured);
}

static void so_they_are_without_guidance(void **state)
{
    (void)state;
    const tess_attention_opts window = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_WINDOW,
                                        .density = 0.5};
    check_ranks(4, opts_of(NULL, NULL));
    check_ranks(3, opts_of(checkpoint, NULL));
    check_ranks(2, opts_of(NULL, &window));
}

/* A dense plan for the first step, one for the densities that it saw, and few more. */
static void plans_are_kept_from_step_to_step(void **state)
{
    (void)state;
    story *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->opts = opts_of(checkpoint, NULL);
    CHECK_OK(play(s, 2));
    const int64_t made = s->plans[TESS_CP_PLAN_NEW], kept = s->plans[TESS_CP_PLAN_REUSED];
    assert_true(made >= 1 && made <= 3);
    assert_int_equal(made + kept, STEPS);
    free(s);
}

/* By every rank, in halves or not; a second call adds to it. */
static void bytes_sent_are_reported_by_kind(void **state)
{
    (void)state;
    for (int halves = -1; halves <= 0; halves++) {
        story *s = calloc(1, sizeof *s);
        assert_non_null(s);
        s->opts = opts_of(checkpoint, NULL);
        s->opts.guidance = 2.0;
        s->opts.halves = halves ? TESS_HALVES_OFF : TESS_HALVES_AUTO;
        s->opts.strategy = "selective";
        CHECK_OK(play(s, 4));
        const tess_comm_counts once = s->sent[1];
        CHECK_OK(play(s, 4));
        for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
            assert_true(once.bytes[kind] > 0 && once.messages[kind] > 0);
            assert_int_equal(s->sent[1].bytes[kind], 2 * once.bytes[kind]);
            assert_int_equal(s->sent[1].messages[kind], 2 * once.messages[kind]);
        }
        /* Velocities of two clips in each step, at least. */
        if (halves == 0)
            assert_true(once.bytes[TESS_TRAFFIC_PAYLOAD] > STEPS * 2 * LATENT * 4);
        free(s);
    }
}

static void halves_that_cannot_be_are_an_error(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        double guidance;
        const char *sentence;
    } cases[] = {
        {3, 2.0,
         "tess_sample_run: halves are asked for with 3 ranks and guidance 2, need an even number "
         "of "
         "ranks and a guidance other than 1"},
        {2, 1.0,
         "tess_sample_run: halves are asked for with 2 ranks and guidance 1, need an even number "
         "of "
         "ranks and a guidance other than 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story *s = calloc(1, sizeof *s);
        assert_non_null(s);
        s->opts = opts_of(NULL, NULL);
        s->opts.guidance = cases[i].guidance;
        s->opts.halves = TESS_HALVES_ON;
        CHECK_FAILS(play(s, cases[i].ranks), TESS_EINVAL, cases[i].sentence);
        free(s);
    }
}

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    static const struct {
        oddity odd;
        const char *sentence;
    } cases[] = {
        {ODD_TEXT, "rank 1 has another set of prompts than rank 0"},
        {ODD_OPTIONS, "rank 1 has another set of options than rank 0"},
        {ODD_DENSITY, "rank 1 has another set of options than rank 0"},
        {ODD_MASS, "rank 1 has another set of options than rank 0"},
        {ODD_COMPENSATE, "rank 1 has another set of options than rank 0"},
        {ODD_WEIGHTS, "rank 1 has another set of weights than rank 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        story *s = calloc(1, sizeof *s);
        assert_non_null(s);
        const tess_attention_opts oracle = {TESS_ATTENTION_OPTS_DEFAULTS,
                                            .kind = TESS_ATTENTION_ORACLE,
                                            .density = cases[i].odd == ODD_MASS ? 0.0 : 0.5,
                                            .mass = cases[i].odd == ODD_MASS ? 0.5 : 0.0};
        s->opts = opts_of(NULL, &oracle);
        s->odd = cases[i].odd;
        assert_int_equal(play(s, 3), TESS_EINVAL);
        for (int r = 0; r < 3; r++)
            assert_non_null(strstr(s->sentence[r], cases[i].sentence));
        free(s);
    }
}

/* Something that is wrong, on all ranks or on one, and then a sampling on the same ranks. */
typedef struct {
    const char *sentence;
    double shift;
    int halves, frames;
    const char *strategy;
    oddity odd;
    story wrong, right;
} second_try;

static tess_status try_again(void *user, tess_ctx *ctx, tess_comm *comm)
{
    second_try *t = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    sample_rank(ctx, comm, &t->wrong, info.rank);
    sample_rank(ctx, comm, &t->right, info.rank);
    return TESS_OK;
}

static void wrong_arguments_leave_the_ranks_as_they_were(void **state)
{
    (void)state;
    static second_try cases[] = {
        {.sentence = "tess_sample_run: shift is -1, must be 0.001..1000", .shift = -1.0},
        {.sentence = "halves are asked for with 3 ranks and guidance 1", .halves = TESS_HALVES_ON},
        {.sentence = "strategy is \"rign\", did you mean ring?", .strategy = "rign"},
        {.sentence = "frames is -1", .frames = -1},
        {.sentence = "rank 1 has another set of options than rank 0", .odd = ODD_OPTIONS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        second_try *t = &cases[i];
        t->wrong.opts = t->right.opts = opts_of(NULL, NULL);
        t->wrong.opts.shift = t->shift != 0.0 ? t->shift : t->right.opts.shift;
        t->wrong.opts.halves = t->halves;
        t->wrong.opts.frames = t->frames ? t->frames : t->right.opts.frames;
        t->wrong.opts.strategy = t->strategy;
        t->wrong.odd = t->odd;
        CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, 3, NULL, try_again, t));
        for (int r = 0; r < 3; r++) {
            assert_int_equal(t->wrong.status[r], TESS_EINVAL);
            if (!strstr(t->wrong.sentence[r], t->sentence))
                fail_msg("rank %d: %s, must be: %s", r, t->wrong.sentence[r], t->sentence);
            if (t->right.status[r] != TESS_OK)
                fail_msg("rank %d, after \"%s\": %s", r, t->sentence, t->right.sentence[r]);
        }
    }
}

static void a_rank_that_stops_stops_all(void **state)
{
    (void)state;
    for (int halves = -1; halves <= 0; halves++) {
        story *s = calloc(1, sizeof *s);
        assert_non_null(s);
        s->opts = opts_of(checkpoint, NULL);
        s->opts.guidance = 2.0;
        s->opts.halves = halves ? TESS_HALVES_OFF : TESS_HALVES_AUTO;
        s->odd = ODD_STOPS;
        assert_int_equal(play(s, 4), TESS_ESTOPPED);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(s->status[r], TESS_ESTOPPED);
            assert_non_null(strstr(s->sentence[r], "stopped by the caller while sampling"));
            assert_int_equal(strncmp(s->sentence[r], "rank 1: ", 8) == 0, r != 1);
        }
        free(s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(clips_of_many_ranks_are_those_of_one),
    cmocka_unit_test(so_they_are_with_the_budgets_of_a_checkpoint),
    cmocka_unit_test(so_they_are_with_measured_budgets),
    cmocka_unit_test(so_they_are_with_keys_that_are_used_again),
    cmocka_unit_test(so_they_are_without_guidance),
    cmocka_unit_test(plans_are_kept_from_step_to_step),
    cmocka_unit_test(bytes_sent_are_reported_by_kind),
    cmocka_unit_test(halves_that_cannot_be_are_an_error),
    cmocka_unit_test(ranks_that_differ_are_named),
    cmocka_unit_test(wrong_arguments_leave_the_ranks_as_they_were),
    cmocka_unit_test(a_rank_that_stops_stops_all),
};

RUN_TESTS_WITH(tests, make_run, drop_run)
