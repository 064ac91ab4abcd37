/* SPDX-License-Identifier: Apache-2.0 */
/* test_judge_shapes.c - prompt adherence: drawn clips are right, planted mistakes are named. */
#include "tessera/advanced/dataset.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { FRAMES = 8, SIDE = 32, PROMPT = 160, BYTES = FRAMES * SIDE * SIDE * 3 };

typedef struct {
    uint8_t pixels[BYTES];
    char prompt[PROMPT];
    tess_clip clip;
} drawn;

static void draw(tess_ctx *ctx, int64_t index, drawn *d)
{
    static float x[BYTES];
    tess_data *data = NULL;
    tess_data_info info;
    CHECK_OK(tess_data_open(ctx, NULL, &data));
    CHECK_OK(tess_data_query(data, &info));
    CHECK_OK(tess_data_sample(data, TESS_SPLIT_VALIDATION, index, x, NULL, d->prompt, PROMPT));
    CHECK_OK(tess_data_pixels(&info, x, d->pixels));
    d->clip = (tess_clip){FRAMES, SIDE, SIDE, 8, d->pixels};
    tess_data_close(data);
}

static int two(const char *prompt)
{
    return strstr(prompt, " and ") != NULL;
}

static void drawn_clips_are_right(void **state)
{
    drawn d;
    int found = 0;
    for (int64_t i = 0; i < 60; i++) {
        tess_shapes_score s;
        draw(*state, i, &d);
        CHECK_OK(tess_shapes_judge(*state, &d.clip, d.prompt, &s));
        assert_int_equal(s.colour.asked, 1 + two(d.prompt));
        assert_int_equal(s.colour.right, s.colour.asked);
        assert_int_equal(s.direction.right, s.direction.asked);
        if (!two(d.prompt)) { /* of two, one may hide the other */
            assert_int_equal(s.shape.right, 1);
            assert_string_equal(s.found, d.prompt);
        }
        assert_true(s.stray < 0.01);
        found += two(d.prompt);
    }
    assert_true(found > 0);
}

/* The first clip of one object, and its prompt with another word in place of its own. */
static void one_object(tess_ctx *ctx, drawn *d)
{
    int64_t i = 0;
    do
        draw(ctx, i++, d);
    while (two(d->prompt));
}

static void wrong_words_are_counted_one_by_one(void **state)
{
    drawn d;
    char colour[PROMPT], kind[PROMPT], direction[PROMPT], other[4 * PROMPT];
    tess_shapes_score s;
    one_object(*state, &d);
    for (int64_t i = 0; strstr(d.prompt, "letter") || two(d.prompt); i++)
        draw(*state, i, &d);
    assert_int_equal(sscanf(d.prompt, "a %s %s moving %s", colour, kind, direction), 3);

    snprintf(other, sizeof other, "a %s %s moving %s", strcmp(colour, "red") ? "red" : "blue", kind,
             direction);
    CHECK_OK(tess_shapes_judge(*state, &d.clip, other, &s));
    assert_int_equal(s.colour.right, 0);
    assert_int_equal(s.shape.right + s.direction.right, 2);
    assert_true(s.stray > 0.02); /* the object is of no colour that was asked for */

    snprintf(other, sizeof other, "a %s %s moving %s", colour,
             strcmp(kind, "disc") ? "disc" : "ring", direction);
    CHECK_OK(tess_shapes_judge(*state, &d.clip, other, &s));
    assert_int_equal(s.shape.right, 0);
    assert_int_equal(s.colour.right + s.direction.right, 2);

    snprintf(other, sizeof other, "a %s %s moving %s", colour, kind,
             strcmp(direction, "up") ? "up" : "down");
    CHECK_OK(tess_shapes_judge(*state, &d.clip, other, &s));
    assert_int_equal(s.direction.right, 0);
    assert_int_equal(s.colour.right + s.shape.right, 2);

    snprintf(other, sizeof other, "A %s thing", colour); /* what is not said is not asked for */
    CHECK_OK(tess_shapes_judge(*state, &d.clip, other, &s));
    assert_int_equal(s.colour.right, 1);
    assert_int_equal(s.shape.asked + s.direction.asked, 0);
}

static void a_clip_that_stands_still_or_is_empty_is_wrong(void **state)
{
    drawn d;
    tess_shapes_score s;
    one_object(*state, &d);
    for (int t = 1; t < FRAMES; t++)
        memcpy(d.pixels + (size_t)t * SIDE * SIDE * 3, d.pixels, (size_t)SIDE * SIDE * 3);
    CHECK_OK(tess_shapes_judge(*state, &d.clip, d.prompt, &s));
    assert_int_equal(s.direction.right, 0);
    assert_int_equal(s.colour.right + s.shape.right, 2);
    assert_non_null(strstr(s.found, "at rest"));

    memset(d.pixels, 20, sizeof d.pixels);
    CHECK_OK(tess_shapes_judge(*state, &d.clip, d.prompt, &s));
    assert_int_equal(s.colour.right + s.shape.right + s.direction.right, 0);
    assert_string_equal(s.found, "nothing");
    assert_true(s.stray == 0);

    for (size_t i = 0; i < sizeof d.pixels; i++)
        d.pixels[i] = (uint8_t)(128 + 127 * (int)((i * 2654435761U >> 16) % 3 - 1));
    CHECK_OK(tess_shapes_judge(*state, &d.clip, d.prompt, &s));
    assert_true(s.stray > 0.3);
}

static void prompts_that_cannot_be_judged_are_refused(void **state)
{
    drawn d;
    tess_shapes_score s;
    draw(*state, 0, &d);
    CHECK_FAILS(tess_shapes_judge(*state, &d.clip, "a dog in a park", &s), TESS_EINVAL,
                "tess_shapes_judge: prompt \"a dog in a park\" names no colour, shape or direction "
                "of shapes");
    CHECK_FAILS(tess_shapes_judge(*state, &d.clip, "a red disc and a red square", &s), TESS_EINVAL,
                "tess_shapes_judge: prompt \"a red disc and a red square\" must give two objects "
                "two colours");
    CHECK_FAILS(
        tess_shapes_judge(*state, &d.clip, "a red disc and a blue ring and a cross", &s),
        TESS_EINVAL,
        "tess_shapes_judge: prompt \"a red disc and a blue ring and a cross\" has more than "
        "2 objects");
    d.clip.frames = 0;
    assert_int_equal(tess_shapes_judge(*state, &d.clip, "a red disc", &s), TESS_EINVAL);
}

static int make_ctx(void **state)
{
    return tess_ctx_create(NULL, (tess_ctx **)state);
}

static int drop_ctx(void **state)
{
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(*state, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(drawn_clips_are_right),
    cmocka_unit_test(wrong_words_are_counted_one_by_one),
    cmocka_unit_test(a_clip_that_stands_still_or_is_empty_is_wrong),
    cmocka_unit_test(prompts_that_cannot_be_judged_are_refused),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
