/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_sizes.c - data of several sizes: which sample has which size, what it holds, which clip
 * in a file gets which size, every window once in an epoch. */
#include "clips.h"

#include "data/data_internal.h"

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

static int bucket_of(const tess_data *data, tess_split split, int64_t index)
{
    int bucket;
    CHECK_OK(tess_data_bucket_of(data, split, index, &bucket));
    return bucket;
}

/* ---- drawn data ------------------------------------------------------------------------------ */

static void drawn_sizes_come_in_proportion_to_their_weights(void **state)
{
    static const int weights[] = {5, 2, 1};
    tess_data_info info, b;
    tess_data *data = open_data(*state,
                                &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .seed = 4,
                                                  .sizes = "2x16x16:5,4x32x24:2,8x48x48"},
                                &info);
    assert_int_equal(info.sizes, 3);
    assert_int_equal(info.frames, 8); /* the largest */
    assert_int_equal(info.height, 48);
    int first_order[8] = {0}, moved = 0;
    for (int64_t round = 0; round < 20; round++) {
        int n[3] = {0};
        for (int i = 0; i < 8; i++) {
            const int bucket = bucket_of(data, TESS_SPLIT_TRAIN, round * 8 + i);
            n[bucket]++;
            first_order[i] = round ? first_order[i] : bucket;
            moved += bucket != first_order[i];
        }
        for (int k = 0; k < 3; k++)
            assert_int_equal(n[k], weights[k]);
    }
    assert_true(moved > 0);
    for (int k = 0; k < 3; k++) {
        CHECK_OK(tess_data_bucket(data, k, &b));
        assert_true(b.share == weights[k] / 8.0);
    }
    CHECK_FAILS(tess_data_bucket(data, 3, &b), TESS_EINVAL,
                "tess_data_bucket: bucket is 3, must be 0..2");
    tess_data_close(data);
}

/* Sample i is what data of that size alone have as sample i. */
static void a_sample_is_that_of_its_size(void **state)
{
    tess_data_info info, b, alone;
    tess_data *data = open_data(*state,
                                &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .seed = 4, .pack = 2,
                                                  .sizes = "4x16x24:2,8x32x32"},
                                &info);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(tess_data_bucket(data, k, &b));
        const tess_data_opts one = {
            TESS_DATA_OPTS_DEFAULTS, .seed = 4,           .pack = 2, .frames = b.frames,
            .height = 2 * b.height,  .width = 2 * b.width};
        tess_data *single = open_data(*state, &one, &alone);
        assert_int_equal(alone.sizes, 1);
        assert_true(numbers(&alone) == numbers(&b));
        float *x = calloc(numbers(&b), sizeof *x), *y = calloc(numbers(&b), sizeof *y);
        assert_true(x && y);
        char mine[160], its[160];
        for (int64_t i = 0; i < 12; i++)
            for (int split = 0; split < 2; split++) {
                const tess_split s = split ? TESS_SPLIT_VALIDATION : TESS_SPLIT_TRAIN;
                if (bucket_of(data, s, i) != k)
                    continue;
                CHECK_OK(tess_data_sample(data, s, i, x, NULL, mine, sizeof mine));
                CHECK_OK(tess_data_sample(single, s, i, y, NULL, its, sizeof its));
                assert_memory_equal(x, y, numbers(&b) * sizeof *x);
                assert_string_equal(mine, its);
            }
        free(x);
        free(y);
        tess_data_close(single);
    }
    tess_data_close(data);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void texts_that_break_the_rules_are_refused(void **state)
{
    static const struct {
        const char *sizes, *sentence;
    } cases[] = {
        {"8x32", "tess_data_open: sizes has \"8x32\", must be FRAMESxHEIGHTxWIDTH in pixels, such "
                 "as 8x32x32, or with a weight, 8x32x32:4"},
        {"8x32x32,", "tess_data_open: sizes has \"\", must be FRAMESxHEIGHTxWIDTH in pixels, such "
                     "as 8x32x32, or with a weight, 8x32x32:4"},
        {"8x32x32:0", "tess_data_open: sizes has \"8x32x32:0\", must be FRAMESxHEIGHTxWIDTH in "
                      "pixels, such as 8x32x32, or with a weight, 8x32x32:4"},
        {"8x32x32,8x32x32", "tess_data_open: sizes has 8x32x32 twice"},
        {"8x8x8,8x33x32", "tess_data_open: a frame is 33 x 32, pack 2 must divide both sides"},
    };
    tess_data *data = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(tess_data_open(*state,
                                   &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .pack = 2,
                                                     .sizes = cases[i].sizes},
                                   &data),
                    TESS_EINVAL, cases[i].sentence);
    CHECK_FAILS(
        tess_data_open(*state,
                       &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .frames = 4, .sizes = "8x32x32"},
                       &data),
        TESS_EINVAL, "tess_data_open: frames is 4, must be left out where sizes is given");
}

static void a_clip_gets_the_size_that_shows_most_of_it(void **state)
{
    (void)state;
    tess__data_size s[TESS__SIZES_MAX];
    int n;
    CHECK_OK(tess__data_sizes("8x32x32,8x32x64,16x32x32,8x64x64", s, &n));
    assert_int_equal(n, 4);
    assert_int_equal(tess__data_size_of(s, n, 7, 64, 64), -1); /* too short for all */
    assert_int_equal(tess__data_size_of(s, n, 8, 64, 64), 3);
    assert_int_equal(tess__data_size_of(s, n, 8, 63, 63), 0);   /* would be enlarged to 64 */
    assert_int_equal(tess__data_size_of(s, n, 8, 40, 80), 1);   /* wide */
    assert_int_equal(tess__data_size_of(s, n, 16, 40, 40), 2);  /* long */
    assert_int_equal(tess__data_size_of(s, n, 100, 10, 10), 2); /* enlarged least, and longest */
}

/* ---- clips in files -------------------------------------------------------------------------- */

static void put_clip(tess_ctx *ctx, const char *name, int frames, int height, int width)
{
    tess_clip clip = make_clip(frames, height, width, 8);
    CHECK_OK(tess_clip_write(ctx, in_folder(name), &clip, 1));
    free((void *)clip.pixels);
}

static void every_clip_is_in_one_bucket_and_every_window_comes_once(void **state)
{
    tess_data_info info, b;
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "in/small%d.y4m", i);
        mkdir(in_folder("in"), 0777);
        put_clip(*state, name, 6 + i, 16, 16);
        snprintf(name, sizeof name, "in/wide%d.y4m", i);
        put_clip(*state, name, 12 + i, 16, 32);
    }
    put_clip(*state, "in/short.y4m", 2, 16, 16);
    tess_data *data =
        open_data(*state,
                  &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .stride = 1, .source = in_folder("in"),
                                    .sizes = "4x16x16,4x16x32,64x16x16"},
                  &info);
    assert_int_equal(info.sizes, 2); /* no clip has 64 frames */
    assert_int_equal(info.skipped, 1);
    int64_t sum = 0;
    for (int k = 0; k < 2; k++) {
        CHECK_OK(tess_data_bucket(data, k, &b));
        assert_int_equal(b.width, k ? 32 : 16);
        sum += b.windows;
    }
    assert_true(info.windows == sum && sum > 12);
    assert_int_equal(tess_data_clip_count(data), 7);
    uint8_t found[7][64];
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        memset(found, 0, sizeof found);
        for (int64_t i = epoch * sum; i < (epoch + 1) * sum; i++) {
            tess_data_clip clip;
            int number, start;
            CHECK_OK(tess_data_locate(data, TESS_SPLIT_TRAIN, i, &number, &start));
            CHECK_OK(tess_data_clip_query(data, number, &clip));
            assert_int_equal(bucket_of(data, TESS_SPLIT_TRAIN, i), clip.width == 32);
            assert_int_equal(found[number][start]++, 0);
        }
    }
    int64_t windows = 0;
    for (int i = 0; i < 7; i++) {
        tess_data_clip clip;
        CHECK_OK(tess_data_clip_query(data, i, &clip));
        windows += clip.windows;
        assert_int_equal(clip.skipped != NULL, clip.frames == 2);
    }
    assert_true(windows == sum);
    tess_data_close(data);
    CHECK_FAILS(tess_data_open(*state,
                               &(tess_data_opts){TESS_DATA_OPTS_DEFAULTS, .stride = 1,
                                                 .source = in_folder("in"), .sizes = "4x16x16:3"},
                               &data),
                TESS_EINVAL,
                "tess_data_open: sizes gives 4x16x16 a weight, must not: clips in files are as "
                "often as they are");
}

static void on_log(void *user, tess_log_level level, const char *message)
{
    (void)user, (void)level;
    assert_true(strstr(message, "no clip gets the size 64x16x16") ||
                strstr(message, "has 2 frames, 4 are wanted"));
}

static int make_logging_world(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    return tess_ctx_create(&(tess_ctx_opts){.threads = 1, .log = on_log}, (tess_ctx **)state);
}

static int end_world(void **state)
{
    char command[600];
    tess_ctx_destroy(*state);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command); /* NOLINT(cert-env33-c): a path of our own */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(drawn_sizes_come_in_proportion_to_their_weights),
    cmocka_unit_test(a_sample_is_that_of_its_size),
    cmocka_unit_test(texts_that_break_the_rules_are_refused),
    cmocka_unit_test(a_clip_gets_the_size_that_shows_most_of_it),
    cmocka_unit_test(every_clip_is_in_one_bucket_and_every_window_comes_once),
};

int main(void)
{
    return cmocka_run_group_tests(tests, make_logging_world, end_world);
}
