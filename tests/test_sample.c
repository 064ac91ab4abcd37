/* SPDX-License-Identifier: Apache-2.0 */
/* test_sample.c - sampling with sparse attention: as trained, at a density, as measured. */
#include "sample_data.h"

static int same(const result *a, const result *b)
{
    return memcmp(a->latents, b->latents, sizeof a->latents) == 0;
}

/* ---- as trained ----------------------------------------------------------------------------- */

static void a_checkpoint_stores_how_it_attends(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_checkpoint got;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_checkpoint_read(ctx, checkpoint, &got));
    assert_int_equal(got.attention.kind, TESS_ATTENTION_DSV);
    assert_true(got.attention.max_density == 0.5 && got.attention.mass == 0.9);
    assert_memory_equal(got.attention.cube, ((int[3]){2, 2, 2}), sizeof got.attention.cube);
    tess_ctx_destroy(ctx);
}

static void a_checkpoint_is_sampled_as_it_was_trained(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_checkpoint got;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_checkpoint_read(ctx, checkpoint, &got));
    tess_ctx_destroy(ctx);
    const tess_attention_opts dense = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DENSE};
    result *trained = sample(1, opts_of(checkpoint, NULL));
    result *asked = sample(3, opts_of(checkpoint, &got.attention));
    result *plain = sample(2, opts_of(checkpoint, &dense)), *none = sample(1, opts_of(NULL, NULL));
    assert_true(same(trained, asked) && same(plain, none));
    assert_false(same(trained, plain));
    for (int i = 0; i < STEPS * 4; i++) {
        assert_true(trained->density[i] > 0.0 && trained->density[i] <= 0.5);
        assert_true(plain->density[i] == 1.0);
    }
    free(trained);
    free(asked);
    free(plain);
    free(none);
}

static void caps_and_densities_replace_the_budgets(void **state)
{
    (void)state;
    const tess_attention_opts cap = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV,
                                     .max_density = 0.125};
    const tess_attention_opts quarter = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV,
                                         .density = 0.25};
    result *capped = sample(2, opts_of(checkpoint, &cap));
    result *even = sample(2, opts_of(checkpoint, &quarter));
    for (int i = 0; i < STEPS * 4; i++) {
        assert_float_equal(capped->density[i], 0.125, 1e-12);
        assert_float_equal(even->density[i], 0.25, 1e-12);
    }
    free(capped);
    free(even);
}

/* ---- other kinds ---------------------------------------------------------------------------- */

/* At density 1 every kind is dense attention in the same order of tokens, to the bit. */
static void every_kind_at_full_density_is_dense(void **state)
{
    (void)state;
    tess_sample_opts ordered = opts_of(NULL, NULL);
    ordered.cube[0] = ordered.cube[1] = ordered.cube[2] = 2;
    result *dense = sample(2, ordered);
    for (int kind = TESS_ATTENTION_ORACLE; kind <= TESS_ATTENTION_RANDOM; kind++) {
        const tess_attention_opts a = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = (tess_attention)kind,
                                       .density = 1.0, .cube = {2, 2, 2}};
        result *r = sample(2, opts_of(NULL, &a));
        assert_true(same(r, dense));
        for (int i = 0; i < STEPS * 4; i++)
            assert_true(r->density[i] == 1.0);
        free(r);
    }
    free(dense);
}

static void every_kind_has_the_same_bits_for_any_threads(void **state)
{
    (void)state;
    for (int kind = TESS_ATTENTION_DSV; kind <= TESS_ATTENTION_RANDOM; kind++)
        for (int measured = 0; measured < 2; measured++) {
            const tess_attention_opts a = {
                TESS_ATTENTION_OPTS_DEFAULTS, .kind = (tess_attention)kind,
                .density = measured ? 0.0 : 0.2, .mass = measured ? 0.6 : 0.9};
            if (measured && kind == TESS_ATTENTION_WINDOW)
                continue;
            result *one = sample(1, opts_of(checkpoint, &a));
            result *three = sample(3, opts_of(checkpoint, &a));
            assert_memory_equal(one, three, sizeof *one);
            free(one);
            free(three);
        }
}

/* The first step of each quarter is dense; what it measures holds until the next one. */
static void budgets_of_a_mass_are_measured_in_each_quarter(void **state)
{
    (void)state;
    const tess_attention_opts half = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE,
                                      .mass = 0.5};
    result *r = sample(2, opts_of(NULL, &half));
    for (int k = 0; k < STEPS; k++) {
        const double u = 1.0 - (double)k / STEPS, before = 1.0 - (k - 1.0) / STEPS;
        const int first = k == 0 || tess__quartile(u) != tess__quartile(before);
        for (int i = 0; i < 4; i++) {
            const double density = r->density[k * 4 + i];
            assert_true(first ? density == 1.0 : density > 0.0 && density < 0.9);
            if (!first && k > 1 &&
                tess__quartile(before) == tess__quartile(1.0 - (k - 2.0) / STEPS))
                assert_true(density == r->density[(k - 1) * 4 + i]);
        }
    }
    free(r);
}

static void guidance_counts_both_of_its_passes(void **state)
{
    (void)state;
    const tess_attention_opts half = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE,
                                      .mass = 0.5};
    tess_sample_opts opts = opts_of(NULL, &half);
    opts.guidance = 2.0;
    result *r = sample(2, opts);
    /* In the first step the pass with text is dense, the other one is sparse. */
    for (int i = 0; i < 4; i++)
        assert_true(r->density[i] > 0.5 && r->density[i] < 1.0);
    free(r);
}

/* Kinds that are not the checkpoint's share keys in its cubes, and have its virtual key. */
static void other_kinds_go_on_in_the_cubes_of_the_checkpoint(void **state)
{
    (void)state;
    for (int kind = TESS_ATTENTION_DSV; kind <= TESS_ATTENTION_RANDOM; kind++) {
        tess_attention_opts as[] = {
            {TESS_ATTENTION_OPTS_DEFAULTS, .density = 0.25},
            {TESS_ATTENTION_OPTS_DEFAULTS, .density = 0.25, .cube = {2, 2, 2}, .compensate = 1},
            {TESS_ATTENTION_OPTS_DEFAULTS, .density = 0.25, .cube = {1, 2, 2}},
            {TESS_ATTENTION_OPTS_DEFAULTS, .density = 0.25, .compensate = 0}};
        result *r[4];
        for (int i = 0; i < 4; i++) {
            as[i].kind = (tess_attention)kind;
            r[i] = sample(2, opts_of(checkpoint, &as[i]));
        }
        assert_true(same(r[0], r[1]));
        assert_false(same(r[0], r[2]));
        assert_false(same(r[0], r[3]));
        for (int i = 0; i < 4; i++)
            free(r[i]);
    }
}

/* Predictors choose for single queries by the same scores whatever the proxy, but not for groups.
 */
static void predictors_serve_in_other_cubes_and_by_other_proxies(void **state)
{
    (void)state;
    for (int single = 0; single < 2; single++) {
        tess_attention_opts mean = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV,
                                    .density = 0.25},
                            centre;
        for (int a = 0; a < 3 && single; a++)
            mean.cube[a] = 1;
        centre = mean;
        centre.proxy = TESS_PROXY_CENTRE;
        result *r[] = {sample(2, opts_of(checkpoint, &mean)),
                       sample(2, opts_of(checkpoint, &centre))};
        assert_int_equal(same(r[0], r[1]), single);
        for (int i = 0; i < STEPS * 4; i++)
            assert_float_equal(r[0]->density[i], 0.25, 1e-12);
        free(r[0]);
        free(r[1]);
    }
}

/* Steps 0, 3 and 6 of 8 search: with that of 0 alone, a clip is the oracle's. */
static void search_is_the_oracle_until_it_uses_its_keys_again(void **state)
{
    (void)state;
    const tess_attention_opts oracle = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE,
                                        .density = 0.2};
    const tess_attention_opts search = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_SEARCH,
                                        .density = 0.2};
    for (int guided = 0; guided < 2; guided++) {
        tess_sample_opts as[] = {opts_of(NULL, &oracle), opts_of(NULL, &search),
                                 opts_of(NULL, &search), opts_of(NULL, &search)};
        result *r[4];
        as[1].search_every = 1;
        as[2].search_every = 3;
        for (int i = 0; i < 4; i++) {
            as[i].guidance = guided ? 2.0 : 1.0;
            r[i] = sample(2, as[i]);
            for (int k = 0; k < STEPS * 4; k++)
                assert_float_equal(r[i]->density[k], r[0]->density[k], 1e-12);
        }
        assert_true(same(r[0], r[1]));
        assert_false(same(r[0], r[2]));
        assert_false(same(r[0], r[3])); /* 4 where nothing is said */
        assert_false(same(r[2], r[3]));
        as[0].steps = as[3].steps = 1;
        result *first[] = {sample(2, as[0]), sample(2, as[3])};
        assert_true(same(first[0], first[1]));
        as[0].steps = as[3].steps = 2;
        result *second[] = {sample(2, as[0]), sample(2, as[3])};
        assert_false(same(second[0], second[1]));
        for (int i = 0; i < 4; i++)
            free(r[i]);
        for (int i = 0; i < 2; i++) {
            free(first[i]);
            free(second[i]);
        }
    }
}

/* ---- bad input ------------------------------------------------------------------------------ */

static void wrong_ways_to_attend_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_model *model = NULL;
    float latents[2 * LATENT], untouched[2 * LATENT];
    char sentence[256];
    fill_normal(latents, 2 * LATENT, 1);
    memcpy(untouched, latents, sizeof latents);
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    CHECK_OK(tess_model_load(ctx, checkpoint, NULL, &model));
    const struct {
        const char *from;
        tess_attention_opts attention;
        const char *sentence;
    } cases[] = {
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV, .density = 0.1},
         "attention is DSV, but the model has no predictors"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_WINDOW},
         "attention.density is 0, a window needs one"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = (tess_attention)8},
         "attention.kind is 8, must be one of dense, dsv, oracle, pooled, search, window, random, "
         "own"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_OWN},
         "attention.selector is missing, kind is own"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE, .density = 1.5},
         "attention.density is 1.5, must be 0..1"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE, .mass = -1},
         "attention.mass is -1, must be 1e-06..1"},
        {NULL,
         {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_ORACLE, .density = 0.5,
          .cube = {2, -1, 2}},
         "attention.cube[1] is -1, must be 1 or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tess_sample_opts opts = opts_of(cases[i].from, &cases[i].attention);
        snprintf(sentence, sizeof sentence, "tess_sample_run: %s", cases[i].sentence);
        CHECK_FAILS(tess_sample_run(model, &opts, text, latents), TESS_EINVAL, sentence);
    }
    const tess_attention_opts other = {TESS_ATTENTION_OPTS_DEFAULTS, .kind = TESS_ATTENTION_DSV,
                                       .max_density = 0.25, .cube = {1, 2, 2}};
    const tess_sample_opts opts = opts_of(checkpoint, &other);
    snprintf(sentence, sizeof sentence,
             "%s: cubes were 2x2x2, must be resumed with them, not 1x2x2", checkpoint);
    CHECK_FAILS(tess_sample_run(model, &opts, text, latents), TESS_EINVAL, sentence);
    assert_memory_equal(latents, untouched, sizeof latents);
    tess_model_destroy(model);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_checkpoint_stores_how_it_attends),
    cmocka_unit_test(a_checkpoint_is_sampled_as_it_was_trained),
    cmocka_unit_test(caps_and_densities_replace_the_budgets),
    cmocka_unit_test(every_kind_at_full_density_is_dense),
    cmocka_unit_test(every_kind_has_the_same_bits_for_any_threads),
    cmocka_unit_test(budgets_of_a_mass_are_measured_in_each_quarter),
    cmocka_unit_test(guidance_counts_both_of_its_passes),
    cmocka_unit_test(other_kinds_go_on_in_the_cubes_of_the_checkpoint),
    cmocka_unit_test(predictors_serve_in_other_cubes_and_by_other_proxies),
    cmocka_unit_test(search_is_the_oracle_until_it_uses_its_keys_again),
    cmocka_unit_test(wrong_ways_to_attend_are_named),
};

RUN_TESTS_WITH(tests, make_run, drop_run)
