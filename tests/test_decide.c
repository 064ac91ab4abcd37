/* SPDX-License-Identifier: Apache-2.0 */
/* test_decide.c - the rules of sparse attention, driven with made-up measurements. */
#include "ctx_fixture.h"
#include "dsv/decide.h"
#include "model/observe.h"

#include <stdlib.h>
#include <unistd.h>

enum { LAYERS = 2, HEADS = 2, UNITS = 512, QUARTILES = TESS_NOISE_BUCKETS };

static const tess__rules by_recall = {.learns = 1,
                                      .switch_by = TESS_SWITCH_RECALL,
                                      .switch_recall = 0.95,
                                      .back_recall = 0.9,
                                      .switch_loss = 0.01,
                                      .min_density = 0.03,
                                      .max_density = 1,
                                      .round = 8};

static tess__dsv_state make(int n_cubes)
{
    static const int cubes[3][3] = {{2, 2, 2}, {2, 4, 4}, {4, 4, 4}};
    tess__dsv_state d;
    CHECK_OK(tess__dsv_state_create(ctx, LAYERS, HEADS, cubes, n_cubes, &d));
    d.cube_chosen = n_cubes == 1;
    return d;
}

/* The same density for both heads in every quarter. */
static void profile(tess__dsv_state *d, int cube, int layer, double density)
{
    for (int b = 0; b < QUARTILES; b++)
        tess__fold_density(d, cube, layer, b, (double[HEADS]){density, density});
}

static void check(tess__dsv_state *d, int cube, int layer, double first, double second)
{
    tess__fold_recall(d, &by_recall, cube, layer, (double[HEADS]){first, second});
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct {
    int n;
    tess__event events[64];
} heard;

static heard hear_end(const tess__dsv_state *d, const tess__rules *rules, int64_t step)
{
    heard h = {.n = 0};
    tess__event_list events = {h.events, 0, 64};
    tess__decide_end(d, rules, step, &events);
    h.n = events.n;
    return h;
}

static int count(const heard *h, tess__event_kind kind)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        n += h->events[i].kind == kind;
    return n;
}

static heard decide(tess__dsv_state *d, const tess__rules *rules, int64_t step)
{
    heard h = {.n = 0};
    tess__event_list events = {h.events, 0, 64};
    if (tess__decide_stages(d, rules, step, &events))
        tess__decide_heads(d, rules, step, UNITS, &events);
    h.n = events.n;
    return h;
}

/* ---- measurements ---------------------------------------------------------------------------- */

static void the_first_ten_values_weigh_the_same_and_later_ones_a_tenth(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    for (int i = 1; i <= 10; i++)
        profile(&d, 0, 0, i / 10.0);
    assert_true(fabs(tess__layer_density(&d, 0, 0) - 0.55) < 1e-12);
    profile(&d, 0, 0, 0.0);
    assert_true(fabs(tess__layer_density(&d, 0, 0) - 0.495) < 1e-12);
    assert_true(isnan(tess__layer_density(&d, 0, 1)));
    tess__dsv_state_destroy(&d);
}

static void quarters_of_the_noise_are_kept_apart(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    assert_int_equal(tess__quartile(0.0), 0);
    assert_int_equal(tess__quartile(0.25), 1);
    assert_int_equal(tess__quartile(0.999), 3);
    assert_int_equal(tess__quartile(1.0), 3);
    tess__fold_density(&d, 0, 0, 0, (double[]){0.125, 0.25});
    tess__fold_density(&d, 0, 0, 3, (double[]){0.5, 0.75});
    assert_int_equal(tess__budget(&d, &by_recall, 0, 0, 0, 0, UNITS), 64);
    assert_int_equal(tess__budget(&d, &by_recall, 0, 0, 3, 1, UNITS), 384);
    /* One that was not measured has the mean of those that were: 0.3125. */
    assert_int_equal(tess__budget(&d, &by_recall, 0, 0, 1, 0, UNITS), 160);
    assert_int_equal(tess__budget(&d, &by_recall, 0, 1, 1, 0, UNITS), 0);
    tess__dsv_state_destroy(&d);
}

static void budgets_are_rounded_up_between_floor_and_cap(void **state)
{
    (void)state;
    static const struct {
        double measured, given, min, max;
        int round, units, want;
    } cases[] = {
        {0.1, 0, 0.03, 1, 8, 512, 56},                                         /* 51.2 */
        {0.125, 0, 0.03, 1, 8, 512, 64},                                       /* exactly */
        {0.001, 0, 0.03, 1, 8, 512, 16},                                       /* the floor, 15.4 */
        {0.9, 0, 0.03, 0.25, 8, 512, 128},                                     /* the cap */
        {0.9, 0.125, 0.03, 0.25, 8, 512, 64}, {0.99, 0, 0.03, 1, 8, 510, 510}, /* not above all */
        {0.1, 0, 0.03, 1, 1, 64, 7},                                           /* cubes */
        {0.0, 0, 0.0, 1, 1, 64, 1},                                            /* at least one */
        {0.7, 0, 0.03, 1, 1, 10, 7}, /* 0.7 * 10 is above 7 in floating point */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess__dsv_state d = make(1);
        tess__rules rules = by_recall;
        rules.density = cases[i].given;
        rules.min_density = cases[i].min;
        rules.max_density = cases[i].max;
        rules.round = cases[i].round;
        profile(&d, 0, 0, cases[i].measured);
        assert_int_equal(tess__budget(&d, &rules, 0, 0, 2, 1, cases[i].units), cases[i].want);
        tess__dsv_state_destroy(&d);
    }
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void a_layer_switches_after_two_good_checks_and_a_settled_density(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    rules.choosing = TESS__CHOOSE_SPARSE;
    for (int i = 0; i < 5; i++) {
        /* Layer 0 settles; layer 1 does not: its mean falls from 0.6 to 0.4. */
        profile(&d, 0, 0, 0.3);
        profile(&d, 0, 1, 0.6 - 0.1 * i);
        assert_int_equal(decide(&d, &rules, i + 1).n, 0);
        check(&d, 0, 0, 0.96, i == 3 ? 0.5 : 0.97);
        check(&d, 0, 1, 0.99, 0.99);
    }
    assert_int_equal(decide(&d, &rules, 6).n, 0); /* one good check since the bad one */
    check(&d, 0, 0, 0.96, 0.97);
    check(&d, 0, 1, 0.99, 0.99);
    const heard h = decide(&d, &rules, 7);
    assert_int_equal(count(&h, TESS__EVENT_SWITCH), 1);
    assert_int_equal(count(&h, TESS__EVENT_DISPATCH), 1);
    assert_true(d.sparse[0] && !d.sparse[1]);
    assert_int_equal(d.since[0], 7);
    for (int i = 0; i < QUARTILES * HEADS; i++)
        assert_int_equal(d.choice[i], 1);
    assert_int_equal(decide(&d, &rules, 8).n, 0);
    char text[TESS__EVENT_BYTES];
    tess__event_text(&h.events[0], text);
    assert_string_equal(text,
                        "step 7: layer 0 becomes sparse, by the rule of recall: recall 0.965, "
                        "needed 0.95, density 0.3 that moved by 0");
    tess__event_json(&h.events[0], text);
    assert_string_equal(text, "{\"step\": 7, \"layer\": 0, \"event\": \"switch\", \"why\": "
                              "{\"rule\": \"recall\", \"recall\": 0.965, \"recall_limit\": 0.95, "
                              "\"density\": 0.3, \"density_change\": 0}}\n");
    tess__dsv_state_destroy(&d);
}

static void a_loss_switches_all_layers_at_once(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    rules.switch_by = TESS_SWITCH_LOSS;
    rules.choosing = TESS__CHOOSE_SPARSE;
    tess__fold_loss(&d, 0.011);
    profile(&d, 0, 0, 0.2);
    assert_int_equal(decide(&d, &rules, 2).n, 0);
    tess__fold_loss(&d, 0.007); /* mean 0.009 */
    const heard h = decide(&d, &rules, 3);
    assert_int_equal(count(&h, TESS__EVENT_SWITCH), 1); /* layer 1 has no budget yet */
    profile(&d, 0, 1, 0.2);
    const heard later = decide(&d, &rules, 4);
    assert_int_equal(count(&later, TESS__EVENT_SWITCH), 1);
    assert_int_equal(d.updates, 2);
    tess__dsv_state_destroy(&d);
}

static void a_step_switches_when_it_is_done(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    rules.learns = 0;
    rules.switch_by = TESS_SWITCH_STEP;
    rules.switch_step = 300;
    rules.density = 0.125;
    rules.choosing = TESS__CHOOSE_SPARSE;
    assert_int_equal(decide(&d, &rules, 300).n, 0);
    const heard h = decide(&d, &rules, 301);
    assert_int_equal(count(&h, TESS__EVENT_SWITCH), LAYERS);
    tess__dsv_state_destroy(&d);
}

static void heads_go_back_and_come_again(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    rules.density = 0.25;
    rules.choosing = TESS__CHOOSE_SPARSE;
    check(&d, 0, 0, 1.0, 0.92);
    check(&d, 0, 0, 1.0, 0.92);
    assert_int_equal(count(&(heard){0}, TESS__EVENT_BACK), 0);
    heard h = decide(&d, &rules, 10);
    assert_true(d.sparse[0]);
    assert_int_equal(count(&h, TESS__EVENT_BACK), 0);
    check(&d, 0, 0, 1.0, 0.89);
    h = decide(&d, &rules, 11);
    assert_int_equal(count(&h, TESS__EVENT_BACK), 1);
    assert_int_equal(count(&h, TESS__EVENT_DISPATCH), 1);
    for (int b = 0; b < QUARTILES; b++)
        assert_true(d.choice[b * HEADS] && !d.choice[b * HEADS + 1]);
    char text[TESS__EVENT_BYTES];
    tess__event_text(&h.events[0], text);
    assert_string_equal(text, "step 11: layer 0 head 1 is dense again: recall 0.89, needed 0.9");
    assert_int_equal(decide(&d, &rules, 12).n, 0);
    check(&d, 0, 0, 1.0, 0.96);
    assert_int_equal(decide(&d, &rules, 13).n, 0); /* one check is not enough */
    check(&d, 0, 0, 1.0, 0.96);
    h = decide(&d, &rules, 14);
    assert_int_equal(count(&h, TESS__EVENT_AGAIN), 1);
    assert_true(d.choice[1] == 1);
    tess__dsv_state_destroy(&d);
}

static void a_layer_goes_back_by_its_mean_and_comes_again(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    char text[TESS__EVENT_BYTES];
    rules.density = 0.25;
    rules.choosing = TESS__CHOOSE_SPARSE;
    rules.switch_by = TESS_SWITCH_STEP; /* which alone would let it switch again at once */
    rules.switch_step = 8;
    check(&d, 0, 0, 1.0, 0.95);
    heard h = decide(&d, &rules, 9);
    assert_true(d.sparse[0] && d.since[0] == 9);
    check(&d, 0, 0, 0.8, 0.88);
    h = decide(&d, &rules, 11);
    assert_int_equal(h.n, 1);
    assert_true(h.events[0].kind == TESS__EVENT_BACK && h.events[0].head == -1);
    tess__event_text(&h.events[0], text);
    assert_string_equal(text, "step 11: layer 0 is dense again: recall 0.84, needed 0.9");
    tess__event_json(&h.events[0], text);
    assert_string_equal(text, "{\"step\": 11, \"layer\": 0, \"event\": \"back\", \"why\": "
                              "{\"recall\": 0.84, \"limit\": 0.9}}\n");
    assert_true(!d.sparse[0] && d.since[0] == 11 && !d.back[0] && !d.back[1]);
    for (int i = 0; i < QUARTILES * HEADS; i++)
        assert_int_equal(d.choice[i], 0);
    assert_int_equal(decide(&d, &rules, 12).n, 0);
    check(&d, 0, 0, 1.0, 1.0);
    assert_int_equal(decide(&d, &rules, 13).n, 0); /* one check is not enough */
    check(&d, 0, 0, 1.0, 1.0);
    h = decide(&d, &rules, 14);
    assert_int_equal(count(&h, TESS__EVENT_SWITCH), 1);
    assert_true(d.sparse[0] && d.choice[0] && d.choice[1]);
    tess__dsv_state_destroy(&d);
}

static void a_layer_goes_back_with_the_last_of_its_heads(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    char text[TESS__EVENT_BYTES];
    rules.density = 0.25;
    rules.choosing = TESS__CHOOSE_SPARSE;
    check(&d, 0, 0, 1.0, 1.0);
    check(&d, 0, 0, 1.0, 1.0);
    decide(&d, &rules, 10);
    check(&d, 0, 0, 1.0, 0.85);
    heard h = decide(&d, &rules, 11);
    assert_true(h.events[0].kind == TESS__EVENT_BACK && h.events[0].head == 1);
    assert_true(d.sparse[0] && d.back[1]);
    check(&d, 0, 0, 0.88, 0.94); /* head 1 is not good enough yet, head 0 not any more */
    h = decide(&d, &rules, 12);
    assert_int_equal(h.n, 1);
    tess__event_text(&h.events[0], text);
    assert_string_equal(
        text, "step 12: layer 0 is dense again: recall 0.91, heads that are dense again 2");
    assert_true(!d.sparse[0] && !d.back[0] && !d.back[1]);
    tess__dsv_state_destroy(&d);
}

static void what_was_missing_is_reported_by_its_rule(void **state)
{
    (void)state;
    static const struct {
        tess_switch by;
        int64_t since;
        const char *sentence;
    } cases[] = {
        {TESS_SWITCH_LOSS, 0,
         "step 40: layer 0 stayed dense to the end: recall 0.75, density 0.2, loss of the "
         "predictors "
         "0.5, limit 0.01"},
        {TESS_SWITCH_STEP, 0,
         "step 40: layer 0 stayed dense to the end: recall 0.75, density 0.2, switch after step "
         "50"},
        {TESS_SWITCH_STEP, 31,
         "step 40: layer 0 stayed dense to the end, since step 31: recall 0.75, needed 0.95, "
         "density 0.2, switch after step 50"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess__dsv_state d = make(3);
        tess__rules rules = by_recall;
        char text[TESS__EVENT_BYTES];
        rules.switch_by = cases[i].by;
        rules.switch_step = 50;
        d.sparse[1] = 1;
        d.since[0] = cases[i].since;
        tess__fold_loss(&d, 0.5);
        for (int c = 0; c < 3; c++) { /* the second cube is the one that would be chosen */
            tess__fold_overlap(&d, c, c < 2 ? 0.95 : 0.5);
            profile(&d, c, 0, 0.1 * (c + 1));
            check(&d, c, 0, 0.25 * (c + 2), 0.25 * (c + 2));
        }
        const heard h = hear_end(&d, &rules, 40);
        assert_int_equal(h.n, 1);
        tess__event_text(&h.events[0], text);
        assert_string_equal(text, cases[i].sentence);
        tess__dsv_state_destroy(&d);
    }
}

static void layers_that_stay_dense_are_reported_at_the_end(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    d.sparse[1] = 1;
    check(&d, 0, 0, 0.5, 0.75);
    const heard h = hear_end(&d, &by_recall, 40);
    assert_int_equal(h.n, 1);
    char text[TESS__EVENT_BYTES];
    tess__event_text(&h.events[0], text);
    assert_string_equal(text,
                        "step 40: layer 0 stayed dense to the end: recall 0.625, needed 0.95");
    tess__dsv_state_destroy(&d);
}

/* ---- cubes and dispatch ---------------------------------------------------------------------- */

static void the_largest_cube_that_overlaps_enough_is_chosen_when_a_layer_is_ready(void **state)
{
    (void)state;
    static const struct {
        double overlap[3];
        int want;
    } cases[] = {{{0.99, 0.95, 0.85}, 4}, {{0.99, 0.95, 0.91}, 4}, {{0.8, 0.7, 0.6}, 2}};
    static const int last[3] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        tess__dsv_state d = make(3);
        tess__rules rules = by_recall;
        rules.choosing = TESS__CHOOSE_SPARSE;
        for (int c = 0; c < 3; c++) {
            tess__fold_overlap(&d, c, cases[i].overlap[c]);
            profile(&d, c, 0, 0.1 * (c + 1));
        }
        assert_int_equal(decide(&d, &rules, 1).n, 0);
        for (int n = 0; n < 5; n++)
            for (int c = 0; c < 3; c++)
                check(&d, c, 0, 1.0, 1.0);
        const heard h = decide(&d, &rules, 2);
        assert_int_equal(h.events[0].kind, TESS__EVENT_CUBE);
        assert_true(d.cube_chosen && d.n_cubes == 1 && d.sparse[0]);
        assert_int_equal(d.cubes[0].cube[1], cases[i].want);
        assert_true(fabs(tess__layer_density(&d, 0, 0) - 0.1 * (last[i] + 1)) < 1e-12);
        tess__dsv_state_destroy(&d);
    }
}

static void a_head_is_sparse_below_the_break_even_density_with_slack(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    d.break_even = 0.25;
    d.sparse[0] = 1;
    for (int b = 0; b < QUARTILES; b++)
        tess__fold_density(&d, 0, 0, b, (double[]){0.0625 * (b + 1), 0.9});
    decide(&d, &rules, 2);
    /* Budgets of head 0 are 1/16, 2/16, 3/16 and 4/16, which is not below 1/4. */
    assert_true(d.choice[0] && d.choice[2] && d.choice[4] && !d.choice[6]);
    assert_true(!d.choice[1] && !d.choice[7]);
    d.cubes[0].density[4] = 0.265; /* the budget is 136 of 512, 0.2656: within a tenth of 1/4 */
    decide(&d, &rules, 3);
    assert_true(d.choice[4]);
    d.cubes[0].density[4] = 0.28;
    decide(&d, &rules, 4);
    assert_false(d.choice[4]);
    rules.units_most = 63; /* of 512: there is room for 1/16, but not for 2/16 */
    const heard h = decide(&d, &rules, 5);
    assert_true(d.choice[0] && !d.choice[2]);
    char text[TESS__EVENT_BYTES];
    tess__event_text(&h.events[0], text);
    assert_string_equal(text,
                        "step 5: layer 0: noise 0-25 % 1, 25-50 % 0, 50-75 % 0, 75-100 % 0 of 2 "
                        "heads sparse, density 0.883, break-even 0.25, room for density 0.123");
    tess__dsv_state_destroy(&d);
}

static void choices_can_be_imposed(void **state)
{
    (void)state;
    tess__dsv_state d = make(1);
    tess__rules rules = by_recall;
    uint8_t imposed[LAYERS * QUARTILES * HEADS] = {0, 1, 1};
    rules.choosing = TESS__CHOOSE_IMPOSED;
    rules.imposed = imposed;
    rules.density = 0.5;
    d.sparse[0] = 1;
    decide(&d, &rules, 1);
    assert_memory_equal(d.choice, imposed, sizeof imposed);
    tess__dsv_state_destroy(&d);
}

static void a_window_comes_nearest_to_the_density_from_above(void **state)
{
    (void)state;
    static const struct {
        int cubes[3];
        double density;
        int want[3];
    } cases[] = {
        {{4, 4, 4}, 1.0 / 64, {1, 1, 1}}, {{4, 4, 4}, 0.125, {2, 2, 2}},
        {{4, 4, 4}, 0.13, {1, 3, 3}},     {{4, 2, 2}, 0.25, {2, 1, 2}},
        {{4, 4, 4}, 1.0, {4, 4, 4}},      {{1, 1, 1}, 0.01, {1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int window[3];
        const double share = tess__window(cases[i].cubes, cases[i].density, window);
        double product = 1;
        for (int a = 0; a < 3; a++)
            product *= (double)window[a] / cases[i].cubes[a];
        assert_true(fabs(share - product) < 1e-12 && share >= cases[i].density - 1e-12);
        assert_memory_equal(window, cases[i].want, sizeof window);
    }
}

/* Groups of each head are decided when its layer switches, and then stay. */
static void heads_share_keys_in_the_groups_that_overlap_more(void **state)
{
    (void)state;
    static const struct {
        double error, cubes[HEADS], content[HEADS];
        int want[HEADS];
        const char *sentence;
    } cases[] = {
        {0,
         {0.7, 0.9},
         {0.9, 0.91},
         {1, 0},
         "step 2: layer 0 shares keys by content in 1 of 2 heads, in cubes in the others: overlap "
         "in cubes 0.8, by content 0.905"},
        {0,
         {0.9, 0.9},
         {0.91, 0.6},
         {0, 0},
         "step 2: layer 0 shares keys in cubes: overlap in cubes 0.9, by content 0.755"},
        {0.1,
         {0.4, 0.5},
         {0.2, 0.4},
         {1, 1},
         "step 2: layer 0 shares keys by content: density needed in cubes 0.45, by content 0.3"},
        {0.1,
         {0.4, 0.5},
         {0.39, 0.4},
         {0, 1},
         "step 2: layer 0 shares keys by content in 1 of 2 heads, in cubes in the others: density "
         "needed in cubes 0.45, by content 0.395"},
        {0,
         {(double)NAN, (double)NAN},
         {(double)NAN, (double)NAN},
         {0, 0},
         "step 2: layer 0 shares keys in cubes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess__rules rules = by_recall;
        tess__dsv_state d = make(1);
        char text[TESS__EVENT_BYTES];
        rules.switch_by = TESS_SWITCH_STEP;
        rules.switch_step = 1;
        rules.density = 0.25;
        rules.learns = 0;
        rules.groups = 1;
        rules.error = cases[i].error;
        rules.choosing = TESS__CHOOSE_SPARSE;
        tess__fold_shared(&d, 0, 0, cases[i].cubes, cases[i].content);
        const heard h = decide(&d, &rules, 2);
        assert_int_equal(count(&h, TESS__EVENT_GROUP), LAYERS);
        assert_int_equal(h.events[1].kind, TESS__EVENT_GROUP);
        tess__event_text(&h.events[1], text);
        assert_string_equal(text, cases[i].sentence);
        for (int head = 0; head < HEADS; head++) {
            assert_int_equal(d.content[head], cases[i].want[head]);
            assert_int_equal(d.content[HEADS + head], 0); /* layer 1: not measured */
        }
        tess__fold_shared(&d, 0, 0, (double[HEADS]){1, 1}, (double[HEADS]){0, 0});
        const heard later = decide(&d, &rules, 3);
        assert_int_equal(count(&later, TESS__EVENT_GROUP), 0);
        assert_int_equal(d.content[0], cases[i].want[0]);
        tess__dsv_state_destroy(&d);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static const tess_attention_opts attention = {TESS_ATTENTION_OPTS_DEFAULTS,
                                              .kind = TESS_ATTENTION_DSV,
                                              .mass = 0.9,
                                              .min_density = 0.03,
                                              .max_density = 0.25,
                                              .compensate = 0,
                                              .group = TESS_GROUP_AUTO,
                                              .proj_dim = 32,
                                              .proxy = TESS_PROXY_SOFTMAX};

static void decisions_come_back_bit_for_bit(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-decide-XXXXXX", other[] = "/tmp/tess-decide-XXXXXX";
    tess__dsv_state d = make(3), read;
    close(mkstemp(path));
    close(mkstemp(other));
    for (int i = 0; i < 7; i++) {
        profile(&d, i % 3, i % 2, 1.0 / (i + 3));
        check(&d, i % 3, i % 2, 0.97 + 0.001 * i, 0.99);
        tess__fold_overlap(&d, i % 3, 0.9 + 0.01 * i);
        tess__fold_loss(&d, 1.0 / (7 + i));
        tess__fold_shared(&d, i % 3, i % 2, (double[HEADS]){0.7, 1.0 / (i + 2)},
                          (double[HEADS]){0.8, 0.9});
    }
    d.sparse[1] = 1;
    d.since[1] = 77;
    d.back[3] = 1;
    d.choice[9] = 1;
    d.content[2] = 1;
    d.break_even = 1.0 / 3;
    CHECK_OK(tess__dsv_state_write(ctx, path, &d, &attention, UNITS));
    CHECK_OK(tess__dsv_state_read(ctx, path, NULL, 0, &read));
    assert_int_equal(read.n_cubes, 3);
    assert_true(read.loss == d.loss && read.updates == 7 && read.break_even == d.break_even);
    assert_memory_equal(read.cubes[1].density, d.cubes[1].density,
                        LAYERS * QUARTILES * HEADS * sizeof(double));
    assert_memory_equal(read.choice, d.choice, LAYERS * QUARTILES * HEADS);
    assert_memory_equal(read.content, d.content, LAYERS * HEADS);
    assert_memory_equal(read.cubes[2].shared, d.cubes[2].shared,
                        2 * LAYERS * HEADS * sizeof(double));
    assert_true(read.attention.group == TESS_GROUP_AUTO && read.cubes[0].compared[0] == 2);
    assert_true(read.attention.kind == TESS_ATTENTION_DSV && read.attention.proj_dim == 32 &&
                read.attention.compensate == 0 && read.attention.proxy == TESS_PROXY_SOFTMAX);
    CHECK_OK(tess__dsv_state_write(ctx, other, &read, &read.attention, UNITS));
    char a[32768], b[32768];
    FILE *f = fopen(path, "r"), *g = fopen(other, "r");
    const size_t n = fread(a, 1, sizeof a, f);
    assert_int_equal(fread(b, 1, sizeof b, g), n);
    assert_true(n > 1000 && n < sizeof a);
    assert_memory_equal(a, b, n);
    fclose(f);
    fclose(g);
    unlink(path);
    unlink(other);
    tess__dsv_state_destroy(&read);
    tess__dsv_state_destroy(&d);
}

static void files_that_break_a_rule_are_reported_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"[]", "d.json: line 1: the document is an array, must be an object"},
        {"{\"format\": 2}", "d.json: line 1: \"format\" is 2, must be 1"},
        {"{\"format\": 1,\n\"layers\": 0}", "d.json: line 2: \"layers\" is 0, must be 1..1024"},
        {"{\"format\": 1, \"layers\": 1, \"heads\": 1, \"cubes\": [], \"decisions\": []}",
         "d.json: line 1: \"cubes\" has 0 elements, must have 1..6"},
        {"{\"format\": 1, \"layers\": 1, \"heads\": 1, \"cubes\": [{}], \"decisions\": []}",
         "d.json: line 1: \"decisions\" has 0 elements, must have 1"},
        {"{\"format\": 1, \"layers\": 1, \"heads\": 1, \"cubes\": [{}], \"decisions\": [{}]}",
         "d.json: line 1: the document lacks \"attention\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess__dsv_state d;
        CHECK_FAILS(tess__dsv_state_read(ctx, "d.json", cases[i].text, strlen(cases[i].text), &d),
                    TESS_EFORMAT, cases[i].sentence);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_ten_values_weigh_the_same_and_later_ones_a_tenth),
    cmocka_unit_test(quarters_of_the_noise_are_kept_apart),
    cmocka_unit_test(budgets_are_rounded_up_between_floor_and_cap),
    cmocka_unit_test(a_layer_switches_after_two_good_checks_and_a_settled_density),
    cmocka_unit_test(a_loss_switches_all_layers_at_once),
    cmocka_unit_test(a_step_switches_when_it_is_done),
    cmocka_unit_test(heads_go_back_and_come_again),
    cmocka_unit_test(a_layer_goes_back_by_its_mean_and_comes_again),
    cmocka_unit_test(a_layer_goes_back_with_the_last_of_its_heads),
    cmocka_unit_test(layers_that_stay_dense_are_reported_at_the_end),
    cmocka_unit_test(what_was_missing_is_reported_by_its_rule),
    cmocka_unit_test(the_largest_cube_that_overlaps_enough_is_chosen_when_a_layer_is_ready),
    cmocka_unit_test(a_head_is_sparse_below_the_break_even_density_with_slack),
    cmocka_unit_test(choices_can_be_imposed),
    cmocka_unit_test(a_window_comes_nearest_to_the_density_from_above),
    cmocka_unit_test(heads_share_keys_in_the_groups_that_overlap_more),
    cmocka_unit_test(decisions_come_back_bit_for_bit),
    cmocka_unit_test(files_that_break_a_rule_are_reported_with_their_line),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
