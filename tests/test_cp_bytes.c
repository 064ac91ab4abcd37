/* SPDX-License-Identifier: Apache-2.0 */
/* test_cp_bytes.c - what a context says that ranks send is what they send, byte for byte:
 * strategies of all kinds, dense layers beside ones whose keys are selected by projected q and k.
 *
 * Ranks are threads, and a failed assertion must not leave one: they fill what the test checks.
 * Lists take every second key, the other half in the next group, so that every rank has work with
 * every part of the keys and needs all of them: nothing depends on what was chosen but the messages
 * of a selective layer that name keys.
 */
#include "ctx_fixture.h"

#include "tessera/cp.h"

#include <stdlib.h>

enum { RANKS = 4, LAYERS = 2, HEADS = 5, DIM = 16, LOW = 6, BATCH = 2, TOKENS = 203, GROUPS = 9 };
enum { FLOATS = BATCH * HEADS * TOKENS * DIM };

static const int64_t groups[GROUPS + 1] = {0, 21, 45, 66, 90, 111, 135, 156, 180, TOKENS};

typedef struct {
    const char *strategy;
    int low, train, lse; /* low: layer 0 has lists */
    int ask_lse;         /* 1: the last pass asks for lse, whatever the options say */
    double density[3];   /* of layer 1, by step */
    /* Of rank 0. */
    tess_cp_layer_info layers[LAYERS];
    int replanned[3];
} show;

static tess_status choose(void *user, const tess_share_in *in, tess_selection *lists, int *dense)
{
    int64_t offsets[GROUPS + 1] = {0};
    int32_t indices[GROUPS * (TOKENS / 2 + 1)];
    (void)user;
    if (!in->q_low || !in->k_low)
        return TESS_EINVAL;
    for (int32_t i = 0; i < in->n_groups; i++) {
        offsets[i + 1] = offsets[i];
        for (int32_t key = in->groups[i] % 2; key < TOKENS; key += 2)
            indices[offsets[i + 1]++] = key;
    }
    *dense = 0;
    return tess_selection_set_lists(lists, offsets, indices);
}

/* Forward of all layers, and backward, on numbers that do not matter. */
static tess_status pass(const show *s, const tess_cp *c, int lse, float *x)
{
    tess_cp_info info;
    tess_status status = tess_cp_view(c, &info);
    const int64_t rows = info.rows;
    const tess_view in = {x, TESS_DTYPE_F32, HEADS * rows * DIM, rows * DIM, DIM};
    const tess_view low = {x, TESS_DTYPE_F32, HEADS * rows * LOW, rows * LOW, LOW};
    tess_view out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = in;
        out[i].data = x + (i + 1) * FLOATS;
    }
    for (int pass = 0; pass < 1 + s->train; pass++)
        for (int l = 0; status == TESS_OK && l < LAYERS; l++) {
            const int lists = s->low && l == 0;
            const tess_dist_call call = {.layer = l,
                                         .save = s->train ? l : -1,
                                         .choose = lists ? choose : NULL,
                                         .q_low = lists ? &low : NULL,
                                         .k_low = lists ? &low : NULL,
                                         .unions = info.unions};
            status = pass
                         ? tess_dist_attn_backward(info.attn, &call, &in, &out[0], &out[1], &out[2])
                         : tess_dist_attn_forward(info.attn, &call, &in, &in, &in, &out[0],
                                                  lse ? x + 4 * FLOATS : NULL);
        }
    return status;
}

static tess_status run(show *s, int rank, tess_cp *c, float *x)
{
    tess_status status = TESS_OK;
    for (int i = 0; status == TESS_OK && i < 3; i++) {
        double density[LAYERS * HEADS];
        int replanned = -1;
        for (int h = 0; h < LAYERS * HEADS; h++)
            density[h] = h >= HEADS ? s->density[i] : s->low ? 0.5 : 1.0;
        if (i > 0)
            status = pass(s, c, s->lse || (s->ask_lse && i == 2), x);
        if (status == TESS_OK)
            status = tess_cp_plan(c, i, density, &replanned);
        if (rank == 0)
            s->replanned[i] = replanned;
    }
    for (int l = 0; status == TESS_OK && rank == 0 && l < LAYERS; l++)
        status = tess_cp_layer(c, l, &s->layers[l]);
    return status;
}

static tess_status act(void *user, tess_ctx *own, tess_comm *comm)
{
    show *s = user;
    const tess_cp_opts opts = {.layers = LAYERS,
                               .heads = HEADS,
                               .head_dim = DIM,
                               .batch = BATCH,
                               .tokens = TOKENS,
                               .n_groups = GROUPS,
                               .groups = groups,
                               .proj_dim = LOW,
                               .lse = s->lse,
                               .saves = s->train ? LAYERS : 0,
                               .train = s->train,
                               .strategy = s->strategy,
                               .union_share = 1.0,
                               .cluster = "h100"};
    tess_cp *c = NULL;
    tess_comm_info group;
    float *x = calloc(5 * FLOATS, sizeof *x);
    tess_status status = x ? tess_comm_query(comm, &group) : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess_cp_create(own, comm, &opts, &c);
    if (status == TESS_OK)
        status = run(s, group.rank, c, x);
    tess_cp_destroy(c);
    free(x);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

static void play(show *s)
{
    for (int i = 0; i < 3; i++)
        s->density[i] = s->density[i] == 0.0 ? 1.0 : s->density[i];
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, RANKS, NULL, act, s));
}

/* Of selective layers the messages that name keys are estimated: at most a bit for each key, and
 * some bytes for each head and owner. Projected q and k are many times that. */
static void check_layers(const show *s, int selective)
{
    const int64_t names = selective ? BATCH * HEADS * (TOKENS / 8 + 3 * RANKS) : 0;
    for (int l = 0; l < LAYERS; l++) {
        const tess_cp_layer_info *info = &s->layers[l];
        assert_true(info->bytes_predicted > 50 * names);
        assert_in_range(info->bytes_sent + names, info->bytes_predicted,
                        info->bytes_predicted + 2 * names);
    }
}

static void ranks_send_what_was_predicted(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        int selective;
    } cases[] = {{"refined", 0}, {"fractional", 0}, {"ring", 0},
                 {"2x2r", 0},    {"selective", 1},  {"2x2s", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how = 0; how < 8; how++) {
            show s = {.strategy = cases[i].words,
                      .low = how & 1,
                      .train = how >> 1 & 1,
                      .lse = how >> 2 & 1};
            play(&s);
            check_layers(&s, cases[i].selective);
        }
}

/* Whole heads of any method, here and in a step whose calls ask for lse, as the measurement of
 * heads does, beside the plan. */
static void lse_that_is_not_planned_is_not_counted(void **state)
{
    (void)state;
    static const char *const strategies[] = {"contiguous", "db-sp", "refined", "fractional"};
    for (int i = 0; i < 8; i++) {
        show s = {.strategy = strategies[i % 4], .low = i / 4, .train = 1, .ask_lse = 1};
        play(&s);
        check_layers(&s, 0);
    }
}

/* A layer more with lists is hardly less work, but other bytes. */
static void a_layer_that_begins_to_choose_is_planned_anew(void **state)
{
    (void)state;
    for (int low = 0; low < 2; low++) {
        show s = {.strategy = "refined", .low = 1, .density = {1.0, 1.0, low ? 0.99 : 1.0}};
        play(&s);
        assert_int_equal(s.replanned[1], 0);
        assert_int_equal(s.replanned[2], low);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_send_what_was_predicted),
    cmocka_unit_test(lse_that_is_not_planned_is_not_counted),
    cmocka_unit_test(a_layer_that_begins_to_choose_is_planned_anew),
};
RUN_TESTS(tests)
