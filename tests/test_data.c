/* SPDX-License-Identifier: Apache-2.0 */
/* test_data.c - drawn clips, prompts and their vectors, pixels packed into channels. */
#include "tessera/data.h"
#include "test.h"

#include <stdlib.h>

static tess_data *open_data(tess_ctx *ctx, const tess_data_opts *opts, tess_data_info *info)
{
    tess_data *data = NULL;
    CHECK_OK(tess_data_open(ctx, opts, &data));
    CHECK_OK(tess_data_query(data, info));
    return data;
}

static size_t numbers(const tess_data_info *i)
{
    return (size_t)i->channels * (size_t)i->frames * (size_t)i->height * (size_t)i->width;
}

/* A sample as pixels, in memory the caller frees. */
static uint8_t *pixels_of(const tess_data *data, const tess_data_info *info, tess_split split,
                          int64_t index, char *prompt)
{
    float *x = malloc(numbers(info) * sizeof *x);
    uint8_t *pixels = malloc(numbers(info));
    assert_true(x && pixels);
    CHECK_OK(tess_data_sample(data, split, index, x, NULL, prompt, prompt ? 160 : 0));
    CHECK_OK(tess_data_pixels(info, x, pixels));
    free(x);
    return pixels;
}

/* ---- all drawn sources ----------------------------------------------------------------------- */

static const char *const names[] = {"shapes", "recall", "recall-aligned"};

static void the_defaults_are_shapes_of_8_frames(void **state)
{
    tess_data_info info;
    tess_data *data = open_data(*state, NULL, &info);
    assert_string_equal(info.kind, "shapes");
    assert_int_equal(info.channels, 3);
    assert_int_equal(info.frames, 8);
    assert_int_equal(info.height, 32);
    assert_int_equal(info.width, 32);
    assert_int_equal(info.pack, 1);
    assert_int_equal(info.text_len, 16);
    assert_int_equal(info.text_dim, 64);
    assert_int_equal(info.clips, 0);
    assert_int_equal(info.skipped, 0);
    tess_data_close(data);
}

/* The same bytes from a second object, in another order and packed or not; other ones for every
 * other (seed, split, index). */
static void a_sample_is_a_function_of_seed_split_and_index(void **state)
{
    for (size_t k = 0; k < 3; k++) {
        tess_data_info info, packed_info;
        tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = names[k], .seed = 7};
        tess_data *data = open_data(*state, &opts, &info);
        opts.pack = 2;
        tess_data *packed = open_data(*state, &opts, &packed_info);
        assert_int_equal(packed_info.channels, 12);
        assert_int_equal(packed_info.height, 16);
        opts.seed = 8;
        tess_data *other = open_data(*state, &opts, &packed_info);
        uint8_t *a = pixels_of(data, &info, TESS_SPLIT_TRAIN, 5, NULL);
        uint8_t *b = pixels_of(packed, &packed_info, TESS_SPLIT_TRAIN, 5, NULL);
        uint8_t *differ[] = {pixels_of(data, &info, TESS_SPLIT_TRAIN, 6, NULL),
                             pixels_of(data, &info, TESS_SPLIT_VALIDATION, 5, NULL),
                             pixels_of(data, &info, TESS_SPLIT_TRAIN, INT64_MAX, NULL),
                             pixels_of(other, &packed_info, TESS_SPLIT_TRAIN, 5, NULL)};
        assert_memory_equal(a, b, numbers(&info));
        for (size_t i = 0; i < 4; i++) {
            assert_memory_not_equal(a, differ[i], numbers(&info));
            free(differ[i]);
        }
        free(a);
        free(b);
        tess_data_close(data);
        tess_data_close(packed);
        tess_data_close(other);
    }
}

static void sampling_allocates_nothing(void **state)
{
    tess_ctx *ctx = *state;
    for (size_t k = 0; k < 3; k++) {
        tess_data_info info;
        tess_ctx_info before, after;
        tess_data *data =
            open_data(ctx, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = names[k]}, &info);
        float *x = malloc(numbers(&info) * sizeof *x), *text = malloc(16 * 64 * sizeof *text);
        assert_true(x && text);
        CHECK_OK(tess_ctx_query(ctx, &before));
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, 1, x, text, NULL, 0));
        CHECK_OK(tess_ctx_query(ctx, &after));
        assert_int_equal(before.allocations, after.allocations);
        free(x);
        free(text);
        tess_data_close(data);
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The centre of what is brighter than the background, and its share of the frame. */
static double centre(const uint8_t *frame, int side, double at[2])
{
    double weight = 0, sum[2] = {0, 0};
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            const uint8_t *p = frame + ((size_t)y * (size_t)side + (size_t)x) * 3;
            const int top = p[0] > p[1] ? (p[0] > p[2] ? p[0] : p[2]) : (p[1] > p[2] ? p[1] : p[2]);
            const double w = top > 60;
            weight += w;
            sum[0] += w * x;
            sum[1] += w * y;
        }
    at[0] = sum[0] / weight;
    at[1] = sum[1] / weight;
    return weight / (side * side);
}

/* Of clips with one object: what the sentence says of its way holds from frame 0 to frame 5 of 8,
 * by 5/7 of .3 of the side and more; it covers between that of a thin letter of the smallest radius
 * (about .03) and a disc of the largest (pi / 16 = .2) with its edge. */
static void shapes_move_as_the_prompt_says(void **state)
{
    enum { SIDE = 32, CLIPS = 400 };
    tess_data_info info;
    tess_data *data =
        open_data(*state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = "shapes"}, &info);
    int single = 0, ways[4] = {0};
    for (int64_t i = 0; i < CLIPS; i++) {
        static const char *const words[] = {"left", "right", "up", "down"};
        char prompt[160];
        uint8_t *pixels = pixels_of(data, &info, TESS_SPLIT_TRAIN, i, prompt);
        const size_t frame = SIDE * SIDE * 3;
        if (!strstr(prompt, " and ")) {
            double from[2], to[2];
            const double cover = centre(pixels, SIDE, from);
            (void)centre(pixels + 5 * frame, SIDE, to);
            assert_true(cover > 0.025 && cover < 0.23);
            const double way[4] = {from[0] - to[0], to[0] - from[0], from[1] - to[1],
                                   to[1] - from[1]};
            for (int w = 0; w < 4; w++)
                if (strstr(prompt, words[w])) {
                    ways[w]++;
                    if (way[w] < 0.2 * SIDE)
                        fail_msg("sample %lld, \"%s\": %.2f pixels", (long long)i, prompt, way[w]);
                }
            single++;
        }
        free(pixels);
    }
    assert_in_range(single, CLIPS * 80 / 100, CLIPS * 96 / 100);
    for (int w = 0; w < 4; w++) /* a quarter each, within four deviations of a binomial */
        assert_in_range(ways[w], single / 4 - 35, single / 4 + 35);
    tess_data_close(data);
}

static void shapes_stay_in_frames_of_any_size(void **state)
{
    static const int sizes[][3] = {{1, 8, 8}, {5, 8, 40}, {21, 48, 36}, {81, 64, 64}};
    for (size_t s = 0; s < 4; s++) {
        tess_data_info info;
        tess_data *data =
            open_data(*state,
                      &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .frames = sizes[s][0],
                                        .height = sizes[s][1], .width = sizes[s][2], .pack = 2},
                      &info);
        /* The outermost pixels belong to the background but for the soft edge that touches them,
         * or a square in a corner: never is a whole side lit. */
        for (int64_t i = 0; i < 40; i++) {
            uint8_t *pixels = pixels_of(data, &info, TESS_SPLIT_VALIDATION, i, NULL);
            const size_t width = (size_t)sizes[s][2], frame = width * (size_t)sizes[s][1] * 3;
            for (int t = 0; t < sizes[s][0]; t++) {
                int lit = 0;
                for (size_t x = 0; x < width; x++)
                    lit += pixels[(size_t)t * frame + x * 3 + 1] > 30;
                assert_true(lit < sizes[s][2]);
            }
            free(pixels);
        }
        tess_data_close(data);
    }
}

/* ---- recall ---------------------------------------------------------------------------------- */

enum { TOKEN = 4, TOKENS = 8, HOLD = 2 };

static int same_token(const uint8_t *pixels, const int a[3], const int b[3])
{
    const size_t side = TOKEN * TOKENS;
    for (int y = 0; y < TOKEN; y++) {
        const size_t row_a = ((size_t)a[0] * side + (size_t)(a[1] * TOKEN + y)) * side;
        const size_t row_b = ((size_t)b[0] * side + (size_t)(b[1] * TOKEN + y)) * side;
        if (memcmp(pixels + (row_a + (size_t)a[2] * TOKEN) * 3,
                   pixels + (row_b + (size_t)b[2] * TOKEN) * 3, TOKEN * 3) != 0)
            return 0;
    }
    return 1;
}

/* Every token of 8 x 8 x 8 has 32 copies, itself included: four cards of four tokens, four of each
 * card on each of eight frames. */
static void every_token_of_a_board_has_32_copies(void **state)
{
    for (size_t k = 1; k < 3; k++) {
        tess_data_info info;
        tess_data *data = open_data(
            *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = names[k]}, &info);
        uint8_t *pixels = pixels_of(data, &info, TESS_SPLIT_TRAIN, 3, NULL);
        for (size_t i = 0; i < numbers(&info); i++)
            assert_true(pixels[i] == 0 || pixels[i] == 255);
        for (int i = 0; i < TOKENS * TOKENS; i++) {
            int copies = 0;
            for (int j = 0; j < 8 * TOKENS * TOKENS; j++)
                copies += same_token(pixels, (int[]){4, i / TOKENS, i % TOKENS},
                                     (int[]){j / 64, j / TOKENS % TOKENS, j % TOKENS});
            assert_int_equal(copies, 32);
        }
        free(pixels);
        tess_data_close(data);
    }
}

/* The roll, in tokens, that turns frame a into frame b; -1 if there is none. */
static int roll_between(const uint8_t *pixels, int a, int b)
{
    for (int roll = 0; roll < TOKENS * TOKENS; roll++) {
        int same = 1;
        for (int i = 0; i < TOKENS * TOKENS && same; i++) {
            const int y = i / TOKENS, x = i % TOKENS;
            same =
                same_token(pixels, (int[]){a, y, x},
                           (int[]){b, (y + roll / TOKENS) % TOKENS, (x + roll % TOKENS) % TOKENS});
        }
        if (same)
            return roll;
    }
    return -1;
}

static int ring_distance(int a)
{
    return a > TOKENS / 2 ? TOKENS - a : a;
}

/* Two frames are alike; the next two are the same board, rolled by two cards (four tokens) in some
 * direction, and shifted boards differ from that by one token at most. A board that maps to itself
 * under a roll is too rare for these samples. */
static void boards_lie_two_frames_and_roll_by_two_cards(void **state)
{
    for (size_t k = 1; k < 3; k++) {
        tess_data_info info;
        tess_data *data = open_data(
            *state, &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .source = names[k]}, &info);
        const int slack = k == 1; /* of "recall" */
        int odd = 0;
        for (int64_t i = 0; i < 12; i++) {
            uint8_t *pixels = pixels_of(data, &info, TESS_SPLIT_TRAIN, i, NULL);
            for (int t = 0; t < 8; t += HOLD) {
                assert_int_equal(roll_between(pixels, t, t + 1), 0);
                if (t == 0)
                    continue;
                const int roll = roll_between(pixels, t - 1, t);
                assert_true(roll >= 0);
                const int dy = ring_distance(roll / TOKENS), dx = ring_distance(roll % TOKENS);
                assert_true(dy >= 4 - slack || dx >= 4 - slack);
                odd += roll % 2 || roll / TOKENS % 2;
            }
            free(pixels);
        }
        assert_true(slack ? odd > 12 : odd == 0);
        tess_data_close(data);
    }
}

/* ---- prompts --------------------------------------------------------------------------------- */

static void words_become_vectors_in_order(void **state)
{
    float a[4 * 8], b[4 * 8], longer[2 * 16], vectors[16 * 64];
    CHECK_OK(tess_text_vectors("a Red disc", 4, 8, a));
    CHECK_OK(tess_text_vectors("  DISC,red--a!! ", 4, 8, b));
    assert_memory_equal(a, b + 16, 8 * sizeof *a);
    assert_memory_equal(a + 8, b + 8, 8 * sizeof *a);
    assert_memory_not_equal(a, a + 8, 8 * sizeof *a);
    for (int i = 24; i < 32; i++)
        assert_true(a[i] == 0 && b[i] == 0);
    CHECK_OK(tess_text_vectors("a red disc", 2, 16, longer)); /* the third word is left out */
    assert_memory_equal(longer + 16, a + 8, 8 * sizeof *a);
    CHECK_OK(tess_text_vectors("", 4, 8, a));
    for (int i = 0; i < 32; i++)
        assert_true(a[i] == 0);

    tess_data_info info;
    char prompt[160], cut[6];
    tess_data *data = open_data(*state, NULL, &info);
    float sampled[16 * 64];
    CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, 0, NULL, sampled, prompt, sizeof prompt));
    CHECK_OK(tess_data_prompt(data, prompt, vectors));
    assert_memory_equal(sampled, vectors, sizeof vectors);
    CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, 0, NULL, NULL, cut, sizeof cut));
    assert_memory_equal(cut, prompt, 5);
    assert_int_equal(cut[5], 0);
    tess_data_close(data);
}

/* ---- pixels ---------------------------------------------------------------------------------- */

static void channels_are_those_of_pixel_unshuffle(void **state)
{
    (void)state;
    /* One frame of 2 x 4 pixels packed by 2: 12 channels of 1 x 2. Channel (c p + i) p + j. */
    const tess_data_info info = {.channels = 12, .frames = 1, .height = 1, .width = 2, .pack = 2};
    float x[24];
    uint8_t pixels[2 * 4 * 3];
    for (int n = 0; n < 24; n++)
        x[n] = (float)(n * 10) / 127.5F - 1.0F;
    CHECK_OK(tess_data_pixels(&info, x, pixels));
    for (int y = 0; y < 2; y++)
        for (int k = 0; k < 4; k++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(pixels[(y * 4 + k) * 3 + c],
                                 (((c * 2 + y) * 2 + k % 2) * 2 + k / 2) * 10);
    x[0] = -3.0F;
    x[1] = NAN;
    x[2] = INFINITY;
    x[3] = 0.0F;
    CHECK_OK(tess_data_pixels(&info, x, pixels));
    assert_int_equal(pixels[0], 0);
    assert_int_equal(pixels[2 * 3], 0);
    assert_int_equal(pixels[1 * 3], 255);
    assert_int_equal(pixels[3 * 3], 128); /* 127.5, to even */
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void wrong_options_get_a_sentence(void **state)
{
    static const struct {
        tess_data_opts opts;
        const char *sentence;
    } cases[] = {
        {{TESS_DATA_OPTS_DEFAULTS, .frames = -1},
         "tess_data_open: frames is -1, must be 0..4096 frames"},
        {{TESS_DATA_OPTS_DEFAULTS, .height = 20000},
         "tess_data_open: height is 20000, must be 0..16384 pixels"},
        {{TESS_DATA_OPTS_DEFAULTS, .width = -5},
         "tess_data_open: width is -5, must be 0..16384 pixels"},
        {{TESS_DATA_OPTS_DEFAULTS, .pack = 17}, "tess_data_open: pack is 17, must be 1..16 pixels"},
        {{TESS_DATA_OPTS_DEFAULTS, .pack = 3},
         "tess_data_open: a frame is 32 x 32, pack 3 must divide both sides"},
        {{TESS_DATA_OPTS_DEFAULTS, .text_len = -1},
         "tess_data_open: text_len is -1, must be 0..1048576 vectors"},
        {{TESS_DATA_OPTS_DEFAULTS, .text_dim = 1 << 21},
         "tess_data_open: text_dim is 2097152, must be 0..1048576"},
        {{TESS_DATA_OPTS_DEFAULTS, .token = 17},
         "tess_data_open: token is 17, must be 1..16 pixels"},
        {{TESS_DATA_OPTS_DEFAULTS, .fps = -1},
         "tess_data_open: fps is -1, must be 0..1000 frames per second"},
        {{TESS_DATA_OPTS_DEFAULTS, .fps = NAN},
         "tess_data_open: fps is nan, must be 0..1000 frames per second"},
        {{TESS_DATA_OPTS_DEFAULTS, .height = 4},
         "tess_data_open: a frame is 4 x 32, shapes need sides of 8 or more"},
        {{TESS_DATA_OPTS_DEFAULTS, .source = "recall", .height = 36},
         "tess_data_open: a frame is 36 x 32, must be 4 or more cards of 8 pixels on each side"},
        {{TESS_DATA_OPTS_DEFAULTS, .source = "recall", .token = 16},
         "tess_data_open: a frame is 32 x 32, must be 4 or more cards of 32 pixels on each side"},
        {{TESS_DATA_OPTS_DEFAULTS, .source = "recall", .token = 1, .height = 16384},
         "tess_data_open: a frame of 16384 x 32 has 131072 cards, must be at most 4096"},
        {{TESS_DATA_OPTS_DEFAULTS, .source = "shape"},
         "tess_data_open: source is \"shape\", neither a file nor a folder; did "
         "you mean shapes?"},
        {{TESS_DATA_OPTS_DEFAULTS, .source = "moon"},
         "tess_data_open: source is \"moon\", must be shapes, recall, "
         "recall-aligned or a path"},
    };
    tess_data *data = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(tess_data_open(*state, &cases[i].opts, &data), TESS_EINVAL, cases[i].sentence);
    CHECK_FAILS(tess_data_open(NULL, NULL, &data), TESS_EINVAL, "tess_data_open: ctx is NULL");
    CHECK_FAILS(tess_data_open(*state, NULL, NULL), TESS_EINVAL, "tess_data_open: data is NULL");
    assert_null(data);
    tess_data_close(NULL);
}

static void wrong_calls_get_a_sentence(void **state)
{
    tess_data_info info;
    float x[1];
    uint8_t pixels[1];
    char prompt[1];
    tess_data *data = open_data(*state, NULL, &info);
    CHECK_FAILS(tess_data_query(NULL, &info), TESS_EINVAL, "tess_data_query: data is NULL");
    CHECK_FAILS(tess_data_query(data, NULL), TESS_EINVAL, "tess_data_query: info is NULL");
    CHECK_FAILS(tess_data_sample(NULL, TESS_SPLIT_TRAIN, 0, x, x, NULL, 0), TESS_EINVAL,
                "tess_data_sample: data is NULL");
    CHECK_FAILS(tess_data_sample(data, (tess_split)2, 0, x, x, NULL, 0), TESS_EINVAL,
                "tess_data_sample: split is 2, must be 0 or 1");
    CHECK_FAILS(tess_data_sample(data, TESS_SPLIT_TRAIN, -1, x, x, NULL, 0), TESS_EINVAL,
                "tess_data_sample: index is -1, must be 0 or more");
    CHECK_FAILS(tess_data_sample(data, TESS_SPLIT_TRAIN, 0, NULL, NULL, prompt, 0), TESS_EINVAL,
                "tess_data_sample: prompt_bytes is 0, must be 1 or more");
    CHECK_FAILS(tess_data_prompt(data, NULL, x), TESS_EINVAL, "tess_data_prompt: prompt is NULL");
    CHECK_FAILS(tess_text_vectors(NULL, 1, 1, x), TESS_EINVAL, "tess_text_vectors: prompt is NULL");
    CHECK_FAILS(tess_text_vectors("a", 1, 1, NULL), TESS_EINVAL, "tess_text_vectors: text is NULL");
    CHECK_FAILS(tess_text_vectors("a", 0, 1, x), TESS_EINVAL,
                "tess_text_vectors: text_len is 0, must be 1 or more");
    CHECK_FAILS(tess_text_vectors("a", 1, -3, x), TESS_EINVAL,
                "tess_text_vectors: text_dim is -3, must be 1 or more");
    CHECK_FAILS(tess_data_pixels(NULL, x, pixels), TESS_EINVAL, "tess_data_pixels: info is NULL");
    CHECK_FAILS(tess_data_pixels(&info, x, NULL), TESS_EINVAL, "tess_data_pixels: pixels is NULL");
    info.channels = 16;
    CHECK_FAILS(tess_data_pixels(&info, x, pixels), TESS_EINVAL,
                "tess_data_pixels: channels is 16, pixels packed by 1 have 3");
    info.pack = 0;
    CHECK_FAILS(tess_data_pixels(&info, x, pixels), TESS_EINVAL,
                "tess_data_pixels: pack is 0, must be 1..16");
    info.pack = 1;
    info.frames = 0;
    CHECK_FAILS(tess_data_pixels(&info, x, pixels), TESS_EINVAL,
                "tess_data_pixels: the clip is 0 x 32 x 32, sides must be 1 or more");
    tess_data_close(data);
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
    cmocka_unit_test(the_defaults_are_shapes_of_8_frames),
    cmocka_unit_test(a_sample_is_a_function_of_seed_split_and_index),
    cmocka_unit_test(sampling_allocates_nothing),
    cmocka_unit_test(shapes_move_as_the_prompt_says),
    cmocka_unit_test(shapes_stay_in_frames_of_any_size),
    cmocka_unit_test(every_token_of_a_board_has_32_copies),
    cmocka_unit_test(boards_lie_two_frames_and_roll_by_two_cards),
    cmocka_unit_test(words_become_vectors_in_order),
    cmocka_unit_test(channels_are_those_of_pixel_unshuffle),
    cmocka_unit_test(wrong_options_get_a_sentence),
    cmocka_unit_test(wrong_calls_get_a_sentence),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
