/* SPDX-License-Identifier: Apache-2.0 */
/* test_strategy_text.c - the text of strategies: every value is read back from its text, short
 * forms are read, everything else is refused with a sentence. */
#include "test.h"

#include "plan/strategy_internal.h"

static void check_equal(const tess_strategy *a, const tess_strategy *b)
{
    assert_int_equal(a->method, b->method);
    assert_int_equal(a->ulysses, b->ulysses);
    assert_int_equal(a->ring, b->ring);
    assert_int_equal(a->selective, b->selective);
    assert_int_equal(a->placement, b->placement);
}

static void check_round_trip(const tess_strategy *s, int ranks)
{
    char text[TESS_STRATEGY_TEXT];
    tess_strategy again;
    tess_strategy_format(s, text);
    CHECK_OK(tess_strategy_parse(text, ranks, &again));
    check_equal(s, &again);
}

static void every_strategy_is_read_back_from_its_text(void **state)
{
    (void)state;
    static const int all[] = {1, 2, 7, 8, 12, 1024, 65536};
    check_round_trip(&(tess_strategy){.method = TESS_PLAN_AUTO}, 8);
    check_round_trip(&(tess_strategy){TESS_PLAN_FRACTIONAL, 1, 1, 1, TESS_PLACE_HEADS_INSIDE}, 8);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int u = 1; u <= all[i]; u++)
            for (int m = TESS_PLAN_CONTIGUOUS; all[i] % u == 0 && m < TESS_PLAN_METHOD_COUNT; m++)
                for (int p = 0; p < TESS_PLACEMENT_COUNT; p++) {
                    tess_strategy s = {(tess_plan_method)m, u, all[i] / u, 1, (tess_placement)p};
                    check_round_trip(&s, all[i]);
                    s.selective = s.ring;
                    s.ring = 1;
                    check_round_trip(&s, all[i]);
                }
}

static void texts_name_method_degrees_and_placement(void **state)
{
    (void)state;
    static const struct {
        tess_strategy strategy;
        const char *text;
    } cases[] = {
        {{TESS_PLAN_AUTO, 0, 0, 0, TESS_PLACE_HEADS_INSIDE}, "auto"},
        {{TESS_PLAN_FRACTIONAL, 1, 1, 1, TESS_PLACE_HEADS_INSIDE}, "fractional"},
        {{TESS_PLAN_REFINED, 4, 2, 1, TESS_PLACE_HEADS_INSIDE}, "refined U4 x R2"},
        {{TESS_PLAN_DB_SP, 2, 1, 4, TESS_PLACE_HEADS_INSIDE}, "db-sp U2 x C4"},
        {{TESS_PLAN_LPT, 8, 1, 1, TESS_PLACE_HEADS_INSIDE}, "lpt U8 x R1"},
        {{TESS_PLAN_REFINED, 4, 2, 1, TESS_PLACE_SEQUENCE_INSIDE},
         "refined U4 x R2 sequence-inside"},
        {{TESS_PLAN_FRACTIONAL, 2, 1, 4, TESS_PLACE_HEADS_INSIDE}, "fractional U2 x C4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[TESS_STRATEGY_TEXT];
        tess_strategy_format(&cases[i].strategy, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void short_forms_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tess_strategy want;
    } cases[] = {
        {NULL, {TESS_PLAN_AUTO, 0, 0, 0, TESS_PLACE_HEADS_INSIDE}},
        {"contiguous", {TESS_PLAN_CONTIGUOUS, 8, 1, 1, TESS_PLACE_HEADS_INSIDE}},
        {"db-sp", {TESS_PLAN_DB_SP, 8, 1, 1, TESS_PLACE_HEADS_INSIDE}},
        {"refined", {TESS_PLAN_REFINED, 8, 1, 1, TESS_PLACE_HEADS_INSIDE}},
        {"ring", {TESS_PLAN_REFINED, 1, 8, 1, TESS_PLACE_HEADS_INSIDE}},
        {"selective", {TESS_PLAN_REFINED, 1, 1, 8, TESS_PLACE_HEADS_INSIDE}},
        {"4x2r", {TESS_PLAN_REFINED, 4, 2, 1, TESS_PLACE_HEADS_INSIDE}},
        {"2x4s", {TESS_PLAN_REFINED, 2, 1, 4, TESS_PLACE_HEADS_INSIDE}},
        {"8x1", {TESS_PLAN_REFINED, 8, 1, 1, TESS_PLACE_HEADS_INSIDE}},
        {"1x8r", {TESS_PLAN_REFINED, 1, 8, 1, TESS_PLACE_HEADS_INSIDE}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_strategy got;
        CHECK_OK(tess_strategy_parse(cases[i].text, 8, &got));
        check_equal(&got, &cases[i].want);
    }
}

static void wrong_texts_get_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"rign", "strategy is \"rign\", did you mean ring?"},
        {"fractionl", "strategy is \"fractionl\", did you mean fractional?"},
        {"", "strategy is \"\", must be auto, ring, selective, a method such as refined or "
             "fractional, or degrees such as 4x2r, 2x4s or 8x1"},
        {"3x2r", "strategy is \"3x2r\", must be degrees that make 8 ranks"},
        {"refined U3 x R2", "strategy is \"refined U3 x R2\", must be degrees that make 8 ranks"},
        {"99999999999999999999x1",
         "strategy is \"99999999999999999999x1\", must be degrees that make 8 ranks"},
        {"4x2", "strategy is \"4x2\", must say what splits the sequence: 4x2r, a ring, or 4x2s, "
                "selective"},
    };
    static const char *const bad[] = {"4x2q",
                                      "4x2rr",
                                      "x2r",
                                      "4xr",
                                      "0x8r",
                                      "4x02r",
                                      "-4x2r",
                                      "refined ",
                                      "refined U4",
                                      "refined U4 x",
                                      "refined U4 x R",
                                      "refined U4 x Q2",
                                      "refined U4 x R2 ",
                                      "auto U4 x R2",
                                      "refined U4 x R2 heads-inside",
                                      "U4 x R2",
                                      "fractional x"};
    tess_strategy s = {.ulysses = -7};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "tess_strategy_parse: %s", cases[i].sentence);
        CHECK_FAILS(tess_strategy_parse(cases[i].text, 8, &s), TESS_EINVAL, sentence);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tess_strategy_parse(bad[i], 8, &s), TESS_EINVAL);
    assert_int_equal(s.ulysses, -7);
    CHECK_FAILS(tess_strategy_parse("auto", 0, &s), TESS_EINVAL,
                "tess_strategy_parse: ranks is 0, must be 1..65536");
    CHECK_FAILS(tess_strategy_parse("auto", 8, NULL), TESS_EINVAL,
                "tess_strategy_parse: strategy is NULL");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_strategy_is_read_back_from_its_text),
    cmocka_unit_test(texts_name_method_degrees_and_placement),
    cmocka_unit_test(short_forms_are_read),
    cmocka_unit_test(wrong_texts_get_a_sentence),
};

RUN_TESTS(tests)
