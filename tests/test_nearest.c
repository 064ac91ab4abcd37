/* SPDX-License-Identifier: Apache-2.0 */
/* test_nearest.c - suggestions for mistyped words. */
#include "test.h"

#include "tessera/advanced/nearest.h"

static const char *const words[] = {"heads", "head_dim", "layers", "isa",
                                    "q",     "threads",  "density"};
enum { N = sizeof words / sizeof words[0] };

static void one_typing_error_finds_the_word(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *meant;
    } cases[] = {
        {"haeds", "heads"},  /* neighbours swapped */
        {"head", "heads"},   /* one dropped */
        {"headds", "heads"}, /* one more */
        {"hexds", "heads"},  /* one replaced */
        {"HEADS", "heads"},  /* case */
        {"head-dim", "head_dim"}, {"denstiy", "density"},
        {"thraeds", "threads"}, /* nearer than heads */
        {"iss", "isa"},           {"heads", "heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(tess_nearest(cases[i].typed, words, N), cases[i].meant);
}

static void far_words_get_no_suggestion(void **state)
{
    (void)state;
    char longest[200];
    memset(longest, 'h', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const far[] = {"banana", "", "x", "he", "steps", longest};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++)
        assert_null(tess_nearest(far[i], words, N));
    assert_null(tess_nearest("heads", words, 0));
    assert_null(tess_nearest(NULL, words, N));
    assert_null(tess_nearest("heads", NULL, 3));
    assert_null(tess_nearest("heads", (const char *const[]){NULL, "", longest}, 3));
}

static void the_first_of_equally_near_words_wins(void **state)
{
    (void)state;
    assert_string_equal(tess_nearest("rin", (const char *const[]){"ring", "rind"}, 2), "ring");
    assert_string_equal(tess_nearest("rin", (const char *const[]){"rind", "ring"}, 2), "rind");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_typing_error_finds_the_word),
    cmocka_unit_test(far_words_get_no_suggestion),
    cmocka_unit_test(the_first_of_equally_near_words_wins),
};
RUN_TESTS(tests)
