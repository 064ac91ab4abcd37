/* SPDX-License-Identifier: Apache-2.0 */
/* test_cp_unions.c - which keys selective layers would need: measured while other strategies run,
 * counted here by brute force, and taken for plans.
 *
 * Ranks are threads over slow links, so that the bytes of a strategy decide. Layers attend to
 * bands, which neighbours share, or to keys that are drawn.
 */
#include "ctx_fixture.h"

#include "tessera/cp.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS = 4, LAYERS = 2, HEADS = 8, DIM = 16, TOKENS = 512, GROUP = 16, GROUPS = 32 };
enum { STEPS_MAX = 40, EVENTS_MAX = 64, DENSE_HEAD = 5 };
enum { NONE, BAND, DRAWN };

typedef struct {
    tess_cp_opts opts;
    int unit; /* rows of a key unit */
    int steps;
    int lists[STEPS_MAX][LAYERS]; /* of each step; NONE: a dense layer */
    float *q, *k, *v, *o;         /* (HEADS, TOKENS, DIM); o of the last step's layers after each
                                     other */
    /* By step and rank, as planned before it. */
    double shares[STEPS_MAX][RANKS][LAYERS * (RANKS + 1)];
    char words[STEPS_MAX][RANKS][LAYERS][64];
    int made[STEPS_MAX][RANKS];
    size_t bytes[STEPS_MAX][RANKS];               /* of memory */
    tess_cp_layer_info layers[STEPS_MAX][LAYERS]; /* of rank 0 */
    char events[EVENTS_MAX][512];
    int64_t event_steps[EVENTS_MAX];
    int n_events;
    int step; /* of a rank's own copy */
} stage;

static stage *play;

/* ---- lists ----------------------------------------------------------------------------------- */

static int64_t groups[GROUPS + 1], units[TOKENS + 1];

/* Whether group g of a head attends to a unit. */
static int has(int kind, int unit_rows, int layer, int head, int g, int64_t unit)
{
    const int64_t n = TOKENS / unit_rows;
    if (kind == BAND) { /* round, so that all parts are alike */
        const int64_t middle = (g * GROUP + GROUP / 2) / unit_rows;
        const int64_t apart = llabs(unit - middle), wide = (24 + 4 * head) / unit_rows;
        return apart <= wide || n - apart <= wide;
    }
    uint64_t x = (uint64_t)(((layer * HEADS + head) * GROUPS + g) * TOKENS + unit + 1);
    x *= UINT64_C(0x9E3779B97F4A7C15);
    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return x >> 62 == 0; /* a quarter */
}

static tess_status choose(void *user, const tess_share_in *in, tess_selection *lists, int *dense)
{
    const stage *s = user;
    static _Thread_local int64_t offsets[GROUPS + 1];
    static _Thread_local int32_t indices[GROUPS * TOKENS];
    int64_t n = 0;
    *dense = in->head == DENSE_HEAD;
    for (int32_t i = 0; i < in->n_groups; i++) {
        offsets[i] = n;
        for (int32_t unit = 0; unit < TOKENS / s->unit; unit++)
            if (has(s->lists[s->step][in->layer], s->unit, in->layer, in->head, in->groups[i],
                    unit))
                indices[n++] = unit;
    }
    offsets[in->n_groups] = n;
    return *dense ? TESS_OK : tess_selection_set_lists(lists, offsets, indices);
}

/* The share of the others' keys that the part which needs most does need, row by row. */
static double brute_force(const stage *s, int step, int layer, int degree)
{
    const int owners = RANKS / degree;
    double most = 0.0;
    for (int p = 0; p < degree; p++) {
        double need = 0.0, all = 0.0;
        for (int h = 0; h < HEADS; h++)
            for (int64_t row = 0; row < TOKENS; row++) {
                int wanted = h == DENSE_HEAD;
                for (int g = p * GROUPS / degree; !wanted && g < (p + 1) * GROUPS / degree; g++)
                    wanted = has(s->lists[step][layer], s->unit, layer, h, g, row / s->unit);
                /* One of the part's ranks owns it. */
                const int near = row * degree / TOKENS == p;
                const double elsewhere = near ? 1.0 - 1.0 / owners : 1.0;
                need += wanted * elsewhere;
                all += elsewhere;
            }
        most = fmax(most, need / all);
    }
    return most;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void listen(void *user, const tess_cp_event *event)
{
    stage *s = user;
    if (s->n_events < EVENTS_MAX && event->kind != TESS_CP_PLAN_REUSED) {
        s->event_steps[s->n_events] = event->step;
        snprintf(s->events[s->n_events++], sizeof s->events[0], "%s", event->sentence);
    }
}

/* s: the rank's own copy. */
static tess_status attend(stage *s, const tess_cp_info *info)
{
    for (int l = 0; l < LAYERS; l++) {
        const int64_t at = info->first * DIM, head = TOKENS * DIM;
        const tess_view q = {s->q + at, TESS_DTYPE_F32, HEADS * head, head, DIM};
        const tess_view k = {s->k + at, TESS_DTYPE_F32, HEADS * head, head, DIM};
        const tess_view v = {s->v + at, TESS_DTYPE_F32, HEADS * head, head, DIM};
        const tess_view o = {s->o + l * HEADS * head + at, TESS_DTYPE_F32, HEADS * head, head, DIM};
        const int lists = s->lists[s->step][l];
        const tess_dist_call call = {.layer = l,
                                     .save = -1,
                                     .choose = lists == NONE ? NULL : choose,
                                     .user = s,
                                     .unions = info->unions};
        const tess_status status = tess_dist_attn_forward(info->attn, &call, &q, &k, &v, &o, NULL);
        if (status != TESS_OK)
            return status;
    }
    return TESS_OK;
}

static tess_status read_state(stage *s, const tess_cp *c, int step, int rank, tess_cp_info *info)
{
    tess_status status = tess_cp_view(c, info);
    memcpy(s->shares[step][rank], info->union_shares, sizeof s->shares[0][0]);
    for (int l = 0; status == TESS_OK && l < LAYERS; l++) {
        tess_cp_layer_info layer;
        status = tess_cp_layer(c, l, &layer);
        snprintf(s->words[step][rank][l], sizeof s->words[0][0][0], "%s", layer.words);
        if (rank == 0)
            s->layers[step][l] = layer;
    }
    return status;
}

static tess_status act(void *user, tess_ctx *rank_ctx, tess_comm *comm)
{
    stage *s = user;
    tess_cp_opts opts = s->opts;
    double density[LAYERS * HEADS];
    tess_comm_info group;
    tess_cp_info info;
    tess_ctx_info memory = {0};
    tess_cp *c = NULL;
    tess_status status = tess_comm_query(comm, &group);
    stage *own = calloc(1, sizeof *own);
    if (!own)
        return tess_comm_fail(comm, TESS_ENOMEM);
    *own = (stage){.unit = s->unit, .q = s->q, .k = s->k, .v = s->v, .o = s->o};
    memcpy(own->lists, s->lists, sizeof own->lists);
    for (int i = 0; i < LAYERS * HEADS; i++)
        density[i] = i % HEADS == DENSE_HEAD ? 1.0 : 0.2;
    opts.on_event = group.rank == 0 ? listen : NULL;
    opts.user = s;
    if (status == TESS_OK)
        status = tess_cp_create(rank_ctx, comm, &opts, &c);
    for (int i = 0; status == TESS_OK && i < s->steps; i++) {
        own->step = i;
        status = tess_cp_plan(c, i, density, &s->made[i][group.rank]);
        if (status == TESS_OK)
            status = read_state(s, c, i, group.rank, &info);
        if (status == TESS_OK)
            status = tess_ctx_query(rank_ctx, &memory);
        s->bytes[i][group.rank] = memory.bytes_now;
        if (status == TESS_OK)
            status = attend(own, &info);
    }
    tess_cp_destroy(c);
    free(own);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

/* Bands in layer 0 and drawn keys in layer 1, in all steps. */
static void set_stage(const char *strategy, int steps)
{
    stage kept = *play;
    memset(play, 0, sizeof *play);
    play->q = kept.q;
    play->k = kept.k;
    play->v = kept.v;
    play->o = kept.o;
    play->unit = 1;
    play->steps = steps;
    for (int i = 0; i < STEPS_MAX; i++) {
        play->lists[i][0] = BAND;
        play->lists[i][1] = DRAWN;
    }
    play->opts = (tess_cp_opts){.layers = LAYERS,
                                .heads = HEADS,
                                .head_dim = DIM,
                                .batch = 1,
                                .tokens = TOKENS,
                                .n_groups = GROUPS,
                                .groups = groups,
                                .strategy = strategy,
                                .replan_above = 100.0, /* balance decides nothing */
                                .flops = 2e8};
}

static void run_stage(void)
{
    const tess_link slow = {.latency = 1000, .bandwidth = 1e6};
    CHECK_OK(tess_comm_threads(NULL, RANKS, &slow, act, play));
    for (int i = 0; i < play->steps; i++) /* the same on all ranks */
        for (int r = 1; r < RANKS; r++) {
            assert_memory_equal(play->shares[i][r], play->shares[i][0], sizeof play->shares[0][0]);
            assert_memory_equal(play->words[i][r], play->words[i][0], sizeof play->words[0][0]);
            assert_int_equal(play->made[i][r], play->made[i][0]);
        }
}

static double share(int step, int layer, int degree)
{
    return play->shares[step][0][layer * (RANKS + 1) + degree];
}

static int is_selective(int step, int layer)
{
    return strstr(play->words[step][0][layer], " x C") != NULL;
}

/* How often it was reported; the step of the last time. */
static int times_reported(const char *part, int64_t *step)
{
    int n = 0;
    for (int i = 0; i < play->n_events; i++)
        if (strstr(play->events[i], part)) {
            *step = play->event_steps[i];
            n++;
        }
    return n;
}

/* The output of the last step's layer against that of the formula in double precision. */
static double output_error(int layer)
{
    const int kind = play->lists[play->steps - 1][layer];
    const float *o = play->o + (int64_t)layer * HEADS * TOKENS * DIM;
    double worst = 0.0;
    for (int h = 0; h < HEADS; h++)
        for (int row = 0; row < TOKENS; row++) {
            const int64_t at = ((int64_t)h * TOKENS + row) * DIM;
            double sum = 0.0, out[DIM] = {0};
            for (int key = 0; key < TOKENS; key++) {
                const int64_t k = ((int64_t)h * TOKENS + key) * DIM;
                double dot = 0.0;
                if (h != DENSE_HEAD &&
                    !has(kind, play->unit, layer, h, row / GROUP, key / play->unit))
                    continue;
                for (int i = 0; i < DIM; i++)
                    dot += (double)play->q[at + i] * (double)play->k[k + i];
                const double weight = exp(dot / sqrt(DIM));
                sum += weight;
                for (int i = 0; i < DIM; i++)
                    out[i] += weight * (double)play->v[k + i];
            }
            for (int i = 0; i < DIM; i++)
                worst = fmax(worst, fabs(out[i] / sum - (double)o[at + i]));
        }
    return worst;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void shares_are_those_of_brute_force(void **state)
{
    (void)state;
    for (int unit = 1; unit <= 8; unit *= 8) {
        set_stage("refined", 2);
        play->unit = unit;
        if (unit > 1) {
            play->opts.n_units = TOKENS / unit;
            play->opts.units = units;
        }
        run_stage();
        for (int l = 0; l < LAYERS; l++)
            for (int degree = 2; degree <= RANKS; degree *= 2) {
                assert_true(share(0, l, degree) == 0.0);
                assert_true(fabs(share(1, l, degree) - brute_force(play, 0, l, degree)) < 1e-12);
            }
        assert_true(share(1, 0, 4) < 0.5 && share(1, 1, 4) > 0.9);
        assert_true(share(1, 0, 3) == 0.0);    /* no degree of 4 ranks */
        assert_int_equal(play->made[1][0], 0); /* an imposed strategy gains nothing by it */
    }
}

static void layers_that_share_keys_become_selective(void **state)
{
    (void)state;
    int64_t step = -1;
    set_stage("auto", 3);
    run_stage();
    assert_false(is_selective(0, 0) || is_selective(0, 1));
    assert_int_equal(play->made[1][0], 1);
    assert_true(is_selective(1, 0));
    assert_false(is_selective(1, 1)); /* drawn keys: nearly all of them would travel */
    assert_int_equal(play->made[2][0], 0);
    assert_int_equal(
        times_reported(
            "refined U2 x C2 is no candidate: which keys its ranks would need is measured in "
            "the first step with lists",
            &step),
        1);
    assert_int_equal(step, 0);
    char sentence[256];
    snprintf(
        sentence, sizeof sentence,
        "selected keys: with 2 parts of the sequence a rank needs %.0f %% of the others' keys, "
        "with 4 %.0f %%",
        50.0 * (share(1, 0, 2) + share(1, 1, 2)), 50.0 * (share(1, 0, 4) + share(1, 1, 4)));
    assert_int_equal(times_reported(sentence, &step), 1);
    assert_int_equal(step, 1);
    for (int l = 0; l < LAYERS; l++)
        assert_true(output_error(l) < 1e-5);
    /* Rounding to rows, and indices, of which the model counts a bit for each unit. */
    const tess_cp_layer_info *observed = &play->layers[2][0];
    assert_true(observed->predicted_ns > 0);
    assert_true(llabs(observed->bytes_sent - observed->bytes_predicted) * 50 <
                observed->bytes_predicted);
}

static void memory_of_whole_keys_is_given_back(void **state)
{
    (void)state;
    const size_t sets = 40, keys = (size_t)2 * HEADS * TOKENS * DIM / RANKS * sizeof(float);
    set_stage("auto", 2);
    play->opts.saves = (int)sets;
    for (int i = 0; i < STEPS_MAX; i++)
        play->lists[i][1] = BAND;
    run_stage();
    assert_true(is_selective(1, 0) && is_selective(1, 1));
    for (int r = 0; r < RANKS; r++) /* sets are without K and V, but for the bits of more lists */
        assert_true(play->bytes[1][r] + sets * keys * 3 / 4 < play->bytes[0][r]);
}

static void keys_that_no_rank_shares_change_nothing(void **state)
{
    (void)state;
    set_stage("auto", 3);
    for (int i = 0; i < STEPS_MAX; i++)
        play->lists[i][0] = DRAWN;
    run_stage();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(play->made[i][0], i == 0);
        assert_false(is_selective(i, 0) || is_selective(i, 1));
    }
    assert_true(share(2, 0, 2) > 0.98);
}

static void lists_are_measured_again_while_a_plan_is_reused(void **state)
{
    (void)state;
    int64_t step = -1;
    set_stage("auto", 39);
    for (int i = 3; i < STEPS_MAX; i++) /* the same density, other keys */
        play->lists[i][0] = DRAWN;
    run_stage();
    int last = 1, plans = 0;
    for (int i = 0; i < play->steps; i++) {
        plans += play->made[i][0];
        last = is_selective(i, 0) ? i : last;
    }
    assert_int_equal(plans, 4); /* the first, selected keys in 4 parts, in 2 parts, none */
    assert_true(last > 3 && last < 36);
    assert_true(times_reported("selected keys: ", &step) >= 2);
    assert_true(step > 3);
}

static void dense_steps_measure_nothing(void **state)
{
    (void)state;
    int64_t step = -1;
    set_stage("auto", 5);
    for (int i = 0; i < 3; i++)
        play->lists[i][0] = play->lists[i][1] = NONE;
    run_stage();
    assert_true(share(3, 0, 2) == 0.0);
    assert_true(fabs(share(4, 0, 2) - brute_force(play, 3, 0, 2)) < 1e-12);
    assert_int_equal(times_reported("selected keys: ", &step), 1);
    assert_int_equal(step, 4);
    assert_true(is_selective(4, 0));
}

static void a_ring_shows_its_own_degree(void **state)
{
    (void)state;
    set_stage("ring", 2);
    run_stage();
    for (int l = 0; l < LAYERS; l++)
        assert_true(fabs(share(1, l, 4) - brute_force(play, 0, l, 4)) < 1e-12);
    assert_true(share(1, 0, 2) == 0.0); /* halves lie on two ranks each */
}

static void imposed_layers_get_their_prediction(void **state)
{
    (void)state;
    set_stage("2x2s", 3);
    run_stage();
    assert_int_equal(play->layers[0][0].predicted_ns, -1);
    assert_int_equal(play->made[1][0], 1);
    assert_true(play->layers[1][0].predicted_ns > 0);
    assert_int_equal(play->made[2][0], 0);
    for (int l = 0; l < LAYERS; l++)
        assert_true(fabs(share(1, l, 2) - brute_force(play, 0, l, 2)) < 1e-12);
}

static void given_shares_are_taken(void **state)
{
    (void)state;
    double given[LAYERS * (RANKS + 1)] = {0};
    int64_t step = -1;
    for (int l = 0; l < LAYERS; l++)
        given[l * (RANKS + 1) + 4] = l == 0 ? 1.0 : 0.05;
    set_stage("auto", 2);
    play->opts.union_shares = given;
    run_stage();
    for (int i = 0; i < 2; i++) {
        assert_false(is_selective(i, 0));
        assert_true(is_selective(i, 1));
        assert_memory_equal(play->shares[i][0], given, sizeof given);
    }
    assert_int_equal(times_reported("selected keys: ", &step), 0);
    set_stage("auto", 1);
    play->opts.union_share = 0.05;
    run_stage();
    assert_true(is_selective(0, 0) && is_selective(0, 1));
    assert_true(share(0, 1, 4) == 0.05);
}

static int set_up(void **state)
{
    const size_t n = (size_t)HEADS * TOKENS * DIM;
    float *x = calloc(n * (3 + LAYERS), sizeof *x);
    play = calloc(1, sizeof *play);
    if (!x || !play || tess_random_normal(7, 0, 0, x, (int64_t)(3 * n)) != TESS_OK)
        return 1;
    play->q = x;
    play->k = x + n;
    play->v = x + 2 * n;
    play->o = x + 3 * n;
    for (int g = 0; g <= GROUPS; g++)
        groups[g] = g * GROUP;
    for (int u = 0; u <= TOKENS / 8; u++)
        units[u] = u * 8;
    return make_ctx(state);
}

static int tear_down(void **state)
{
    free(play->q);
    free(play);
    return drop_ctx(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shares_are_those_of_brute_force),
    cmocka_unit_test(layers_that_share_keys_become_selective),
    cmocka_unit_test(memory_of_whole_keys_is_given_back),
    cmocka_unit_test(keys_that_no_rank_shares_change_nothing),
    cmocka_unit_test(lists_are_measured_again_while_a_plan_is_reused),
    cmocka_unit_test(dense_steps_measure_nothing),
    cmocka_unit_test(a_ring_shows_its_own_degree),
    cmocka_unit_test(imposed_layers_get_their_prediction),
    cmocka_unit_test(given_shares_are_taken),
};
RUN_TESTS_WITH(tests, set_up, tear_down)
