/* SPDX-License-Identifier: Apache-2.0 */
/* test_cp.c - plans at run time: strategies in words, rates, plans kept and made, sentences.
 *
 * Ranks are threads. They fill what the test then checks: a failed assertion must not leave a
 * thread. Clusters with names make predictions the same everywhere.
 */
#include "ctx_fixture.h"

#include "cp/cp_internal.h"
#include "tessera/cp.h"

#include <stdlib.h>

enum { RANKS = 4, LAYERS = 2, HEADS = 8, DIM = 16, TOKENS = 200, GROUPS = 10, EVENTS_MAX = 16 };

static const int64_t groups[GROUPS + 1] = {0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200};

/* ---- contexts on several ranks --------------------------------------------------------------- */

/* What ranks are given and what they say. */
typedef struct {
    tess_cp_opts opts;
    int odd;     /* 1: rank 2 has one layer more */
    int attends; /* 1: forward passes after each plan */
    int steps;   /* plans */
    double density[4][RANKS][LAYERS * HEADS];
    /* Of rank 0, but for bounds. */
    char events[EVENTS_MAX][512];
    tess_cp_event_kind kinds[EVENTS_MAX];
    int n_events;
    int replanned[4];
    tess_cp_info info;
    tess_cp_layer_info layers[LAYERS];
    char words[LAYERS][64];
    int64_t rows[RANKS], first[RANKS];
    tess_share shares[RANKS][64]; /* of layer 0 */
    int64_t n_shares[RANKS];
} stage;

static stage *play;

static void listen(void *user, const tess_cp_event *event)
{
    stage *s = user;
    if (s->n_events < EVENTS_MAX) {
        s->kinds[s->n_events] = event->kind;
        snprintf(s->events[s->n_events++], sizeof s->events[0], "%s", event->sentence);
    }
}

/* One forward pass over all layers on numbers that do not matter. */
static tess_status attend(const tess_cp *c)
{
    tess_cp_info info;
    const tess_status known = tess_cp_view(c, &info);
    if (known != TESS_OK)
        return known;
    const int64_t rows = info.rows;
    float *x = calloc((size_t)(HEADS * rows * DIM) * 2, sizeof *x);
    const tess_view in = {x, TESS_DTYPE_F32, HEADS * rows * DIM, rows * DIM, DIM};
    const tess_view out = {x + HEADS * rows * DIM, TESS_DTYPE_F32, HEADS * rows * DIM, rows * DIM,
                           DIM};
    tess_status status = TESS_OK;
    for (int l = 0; status == TESS_OK && l < LAYERS; l++) {
        const tess_dist_call call = {.layer = l, .save = -1, .unions = info.unions};
        status = tess_dist_attn_forward(info.attn, &call, &in, &in, &in, &out, NULL);
    }
    free(x);
    return status;
}

static tess_status read_state(stage *s, const tess_cp *c, int rank)
{
    tess_cp_info info;
    tess_plan_layer layer;
    tess_status status = tess_cp_view(c, &info);
    s->rows[rank] = info.rows;
    s->first[rank] = info.first;
    if (status == TESS_OK)
        status = tess_plan_layer_view(info.plan, 0, &layer);
    if (status == TESS_OK && layer.n_shares <= 64) {
        memcpy(s->shares[rank], layer.shares, (size_t)layer.n_shares * sizeof *layer.shares);
        s->n_shares[rank] = layer.n_shares;
    }
    for (int l = 0; status == TESS_OK && rank == 0 && l < LAYERS; l++) {
        status = tess_cp_layer(c, l, &s->layers[l]);
        if (status == TESS_OK)
            snprintf(s->words[l], sizeof s->words[l], "%s", s->layers[l].words);
    }
    if (rank == 0)
        s->info = info;
    return status;
}

static tess_status act(void *user, tess_ctx *rank_ctx, tess_comm *comm)
{
    stage *s = user;
    tess_cp_opts opts = s->opts;
    tess_comm_info group;
    tess_cp *c = NULL;
    tess_status status = tess_comm_query(comm, &group);
    opts.layers += s->odd && group.rank == 2;
    opts.on_event = group.rank == 0 ? listen : NULL;
    opts.user = s;
    if (status == TESS_OK)
        status = tess_cp_create(rank_ctx, comm, &opts, &c);
    for (int i = 0; status == TESS_OK && i < s->steps; i++) {
        int made = -1;
        status = tess_cp_plan(c, 10 * i, s->density[i][group.rank], &made);
        if (group.rank == 0)
            s->replanned[i] = made;
        if (status == TESS_OK)
            status = read_state(s, c, group.rank);
        if (status == TESS_OK && s->attends)
            status = attend(c);
    }
    tess_cp_destroy(c);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

static void set_stage(const char *strategy, int steps)
{
    memset(play, 0, sizeof *play);
    play->steps = steps;
    play->opts = (tess_cp_opts){.layers = LAYERS,
                                .heads = HEADS,
                                .head_dim = DIM,
                                .batch = 1,
                                .tokens = TOKENS,
                                .n_groups = GROUPS,
                                .groups = groups,
                                .strategy = strategy,
                                .cluster = "h100"};
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < RANKS; r++)
            for (int h = 0; h < LAYERS * HEADS; h++)
                play->density[i][r][h] = 0.25;
}

static void run_stage(void)
{
    CHECK_OK(tess_comm_threads(NULL, RANKS, NULL, act, play));
}

static void local_rows_are_even_shards(void **state)
{
    (void)state;
    static const int64_t odd[GROUPS + 1] = {0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 203};
    set_stage("fractional", 1);
    play->opts.tokens = 203;
    play->opts.groups = odd;
    run_stage();
    const int64_t rows[RANKS] = {51, 51, 51, 50};
    int64_t first = 0;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(play->rows[r], rows[r]);
        assert_int_equal(play->first[r], first);
        first += rows[r];
    }
}

static void every_decision_is_reported_in_a_sentence(void **state)
{
    (void)state;
    set_stage("fractional", 3);
    for (int r = 0; r < RANKS; r++) /* nearly all work in one head of each layer */
        for (int h = 0; h < LAYERS * HEADS; h++)
            play->density[2][r][h] = h % HEADS == 0 ? 0.9 : 0.157;
    play->opts.replan_above = 1.1;
    run_stage();
    assert_int_equal(play->n_events, 4);
    assert_string_equal(play->events[0], "rates of cluster h100");
    assert_int_equal(play->kinds[0], TESS_CP_RATES);
    assert_int_equal(play->kinds[1], TESS_CP_PLAN_NEW);
    assert_int_equal(play->kinds[2], TESS_CP_PLAN_REUSED);
    assert_int_equal(play->kinds[3], TESS_CP_PLAN_NEW);
    assert_string_equal(
        play->events[2],
        "plan 1 kept for step 10: imbalance 1.00; imbalance 1.000, not above 1.100");
    const char *want = "plan 1 of step 0: 2 layers fractional, imbalance 1.00, predicted ";
    assert_memory_equal(play->events[1], want, strlen(want));
    want = "plan 2 of step 20: 2 layers fractional, imbalance 1.0";
    assert_memory_equal(play->events[3], want, strlen(want));
    assert_non_null(strstr(play->events[3], "(was 2."));
    assert_non_null(strstr(play->events[3], "MiB sent; the last was kept 1 step"));
    assert_int_equal(play->replanned[0], 1);
    assert_int_equal(play->replanned[1], 0);
    assert_int_equal(play->replanned[2], 1);
}

static void a_plan_is_made_anew_when_there_is_other_work(void **state)
{
    (void)state;
    set_stage("refined", 4);
    for (int r = 0; r < RANKS; r++)
        for (int h = 0; h < LAYERS * HEADS; h++) {
            play->density[1][r][h] = 0.30; /* a fifth more is not enough */
            play->density[2][r][h] = 0.40;
            play->density[3][r][h] = 0.20; /* half of that */
        }
    run_stage();
    const int want[4] = {1, 0, 1, 1};
    for (int i = 0; i < 4; i++)
        assert_int_equal(play->replanned[i], want[i]);
    set_stage("refined", 2);
    play->opts.replan_always = 1;
    run_stage();
    assert_int_equal(play->replanned[1], 1);
}

static void ranks_plan_the_mean_of_their_densities(void **state)
{
    (void)state;
    static tess_share mean[64];
    set_stage("fractional", 1);
    for (int r = 0; r < RANKS; r++)
        for (int h = 0; h < LAYERS * HEADS; h++) /* dyadic, so that the mean is exact */
            play->density[0][r][h] = 0.125 * (1 + h % 5) + (r % 2 ? 0.0625 : -0.0625);
    run_stage();
    const int64_t n = play->n_shares[0];
    assert_true(n > HEADS);
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(play->n_shares[r], n);
        assert_memory_equal(play->shares[r], play->shares[0], (size_t)n * sizeof *mean);
    }
    memcpy(mean, play->shares[0], (size_t)n * sizeof *mean);
    for (int r = 0; r < RANKS; r++)
        for (int h = 0; h < LAYERS * HEADS; h++)
            play->density[0][r][h] = 0.125 * (1 + h % 5);
    run_stage();
    assert_int_equal(play->n_shares[0], n);
    assert_memory_equal(play->shares[0], mean, (size_t)n * sizeof *mean);
}

static void measured_times_and_bytes_come_back(void **state)
{
    (void)state;
    set_stage("refined", 3);
    play->attends = 1;
    play->opts.cluster = NULL; /* measured rates */
    run_stage();
    assert_int_equal(play->kinds[0], TESS_CP_RATES);
    assert_non_null(strstr(play->events[0], "rates measured: attention "));
    assert_non_null(strstr(play->events[0], "; links "));
    for (int l = 0; l < LAYERS; l++) {
        assert_string_equal(play->words[l], "refined U4 x R1");
        assert_true(play->layers[l].predicted_ns > 0);
        assert_true(play->layers[l].measured_ns > 0);
        assert_int_equal(play->layers[l].bytes_sent, play->layers[l].bytes_predicted);
    }
    assert_true(play->info.measured_ns > 0);
    assert_true(play->info.predicted_ns > 0);
    assert_int_equal(play->info.plans, 1);
    assert_int_equal(play->info.reused, 2);
}

static void what_is_no_candidate_is_reported_once(void **state)
{
    (void)state;
    set_stage(NULL, 2);
    play->opts.whole_keys = 1;
    play->opts.replan_always = 1;
    run_stage();
    int keys = 0;
    for (int i = 0; i < play->n_events; i++)
        keys += play->kinds[i] == TESS_CP_FALLBACK;
    assert_int_equal(keys, 1);
    assert_string_equal(play->events[1],
                        "refined U2 x R2 is no candidate: splits keys, which must stay whole");
}

/* All ranks fail with this sentence, which a rank that returns first may send to the others. */
static void fails_with(const char *sentence)
{
    assert_int_equal(tess_comm_threads(NULL, RANKS, NULL, act, play), TESS_EINVAL);
    const char *said = tess_last_error(), *at = strstr(said, sentence);
    if (!at || strlen(at) != strlen(sentence))
        fail_msg("\"%s\" does not end in \"%s\"", said, sentence);
}

static void ranks_that_disagree_are_refused(void **state)
{
    (void)state;
    set_stage("refined", 1);
    play->odd = 1;
    fails_with("rank 2 has another shape or strategy than rank 0");
}

/* A rank has rows of a pass to compute: layers and predictors of none are not for it. */
static void fewer_tokens_than_ranks_are_refused(void **state)
{
    (void)state;
    set_stage("fractional", 1);
    play->opts.tokens = RANKS - 1;
    play->opts.n_groups = 0;
    play->opts.groups = NULL;
    fails_with("tess_cp_create: tokens is 3, must be 4..2147483647");
    play->opts.tokens = RANKS;
    run_stage();
    assert_int_equal(play->rows[RANKS - 1], 1);
}

static void a_bad_density_on_one_rank_ends_all(void **state)
{
    (void)state;
    set_stage("refined", 1);
    play->density[0][3][9] = 1.5;
    fails_with("tess_cp_plan: the density of layer 1, head 1 is 1.5, must be 0..1");
}

/* ---- one rank -------------------------------------------------------------------------------- */

static void one_rank_alone_has_everything(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    tess_cp *c = NULL;
    tess_cp_info info;
    tess_cp_layer_info layer;
    const tess_cp_opts opts = {
        .layers = 1, .heads = 3, .head_dim = 8, .batch = 2, .tokens = 50, .flops = 1e9};
    CHECK_OK(tess_comm_self(ctx, &comm));
    CHECK_OK(tess_cp_create(ctx, comm, &opts, &c));
    CHECK_FAILS(tess_cp_layer(c, 0, &layer), TESS_EINVAL, "tess_cp_layer: there is no plan yet");
    CHECK_OK(tess_cp_plan(c, 0, NULL, NULL));
    CHECK_OK(tess_cp_view(c, &info));
    assert_int_equal(info.ranks, 1);
    assert_int_equal(info.rows, 50);
    assert_int_equal(info.opts->heads, 3);
    assert_int_equal(info.measured_ns, -1);
    /* 3 heads of 2 samples, 2500 pairs of 32 flop each, at 1 flop/ns. */
    assert_int_equal(info.predicted_ns, 3 * 2 * 2500 * 32);
    CHECK_OK(tess_cp_layer(c, 0, &layer));
    assert_int_equal(layer.bytes_predicted, 0);
    CHECK_FAILS(tess_cp_layer(c, 1, &layer), TESS_EINVAL,
                "tess_cp_layer: layer is 1, must be 0..0");
    CHECK_FAILS(tess_cp_plan(c, -1, NULL, NULL), TESS_EINVAL,
                "tess_cp_plan: step is -1, must be 0 or more");
    tess_cp_destroy(c);
    tess_comm_destroy(comm);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    tess_cp *c = NULL;
    const tess_cp_opts good = {
        .layers = 1, .heads = 3, .head_dim = 8, .batch = 1, .tokens = 50, .flops = 1e9};
    CHECK_OK(tess_comm_self(ctx, &comm));
    static const double shares[2] = {0.0, 1.5};
#define BAD(member, value, sentence)                                                               \
    do {                                                                                           \
        tess_cp_opts o = good;                                                                     \
        o.member = value;                                                                          \
        CHECK_FAILS(tess_cp_create(ctx, comm, &o, &c), TESS_EINVAL, "tess_cp_create: " sentence);  \
    } while (0)
    BAD(layers, 0, "layers is 0, must be 1..65536");
    BAD(heads, 65537, "heads is 65537, must be 1..65536");
    BAD(batch, 0, "batch is 0, must be 1..65536");
    BAD(tokens, 0, "tokens is 0, must be 1..2147483647");
    BAD(head_dim, 12, "head_dim is 12, must be a multiple of 8 up to 256");
    BAD(n_groups, 3, "groups is NULL");
    BAD(n_units, 3, "units is NULL");
    BAD(lse, 2, "lse is 2, must be 0..1");
    BAD(train, 2, "train is 2, must be 0..1");
    BAD(flops, -1.0, "flops is -1, must be 0 or 1e3..1e21");
    BAD(union_share, 1.5, "union_share is 1.5, must be 0..1");
    BAD(union_shares, shares, "union_shares[1] is 1.5, must be 0..1");
    BAD(replan_above, -1.0, "replan_above is -1, must be 0..1e9");
    BAD(strategy, "2x2r", "strategy is \"2x2r\", must be degrees that make 1 ranks");
#undef BAD
    CHECK_FAILS(tess_cp_create(NULL, comm, &good, &c), TESS_EINVAL, "tess_cp_create: ctx is NULL");
    CHECK_FAILS(tess_cp_create(ctx, comm, NULL, &c), TESS_EINVAL, "tess_cp_create: opts is NULL");
    CHECK_FAILS(tess_cp_create(ctx, comm, &good, NULL), TESS_EINVAL,
                "tess_cp_create: context is NULL");
    CHECK_FAILS(tess_cp_plan(NULL, 0, NULL, NULL), TESS_EINVAL, "tess_cp_plan: context is NULL");
    CHECK_FAILS(tess_cp_view(NULL, NULL), TESS_EINVAL, "tess_cp_view: context is NULL");
    assert_null(c);
    tess_comm_destroy(comm);
}

static tess_status impose_ring(void *user, tess_ctx *rank_ctx, tess_comm *comm)
{
    (void)user;
    tess_cp *c = NULL;
    const tess_cp_opts opts = {.layers = 1,
                               .heads = 3,
                               .head_dim = 8,
                               .batch = 1,
                               .tokens = 50,
                               .whole_keys = 1,
                               .strategy = "ring",
                               .flops = 1e9};
    return tess_cp_create(rank_ctx, comm, &opts, &c);
}

static void keys_that_must_stay_whole_are_not_split(void **state)
{
    (void)state;
    assert_int_equal(tess_comm_threads(NULL, 2, NULL, impose_ring, NULL), TESS_EINVAL);
    assert_non_null(
        strstr(tess_last_error(),
               "tess_cp_create: strategy is \"ring\", must leave keys whole: their selector "
               "needs all keys of a head on one rank"));
}

static int set_up(void **state)
{
    play = calloc(1, sizeof *play);
    return !play || make_ctx(state);
}

static int tear_down(void **state)
{
    free(play);
    return drop_ctx(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(local_rows_are_even_shards),
    cmocka_unit_test(every_decision_is_reported_in_a_sentence),
    cmocka_unit_test(a_plan_is_made_anew_when_there_is_other_work),
    cmocka_unit_test(ranks_plan_the_mean_of_their_densities),
    cmocka_unit_test(measured_times_and_bytes_come_back),
    cmocka_unit_test(what_is_no_candidate_is_reported_once),
    cmocka_unit_test(ranks_that_disagree_are_refused),
    cmocka_unit_test(fewer_tokens_than_ranks_are_refused),
    cmocka_unit_test(a_bad_density_on_one_rank_ends_all),
    cmocka_unit_test(one_rank_alone_has_everything),
    cmocka_unit_test(bad_options_are_refused),
    cmocka_unit_test(keys_that_must_stay_whole_are_not_split),
};
RUN_TESTS_WITH(tests, set_up, tear_down)
