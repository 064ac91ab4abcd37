/* SPDX-License-Identifier: Apache-2.0 */
/* test_windows_ahead.c - windows outside the cache that a loader decodes together: the samples of
 * the index, in the loader's order, for few decoded frames; failures where the sample is. */
#include "video_data.h"

#include "data/data_internal.h"
#include "data/loader.h"

#include <dlfcn.h>

enum { WINDOW = 16, HEIGHT = 24, WIDTH = 32, NUMBERS = 3 * WINDOW * HEIGHT * WIDTH };

static atomic_llong decoded; /* frames, of all threads */

#ifdef TESS_HAVE_FFMPEG
/* In place of FFmpeg's: counts. */
int avcodec_receive_frame(AVCodecContext *codec, AVFrame *frame)
{
    int (*inner)(AVCodecContext *, AVFrame *);
    *(void **)&inner = dlsym(RTLD_NEXT, "avcodec_receive_frame");
    const int error = inner(codec, frame);
    decoded += error >= 0;
    return error;
}

/* Two videos with keyframes far apart, and one of frames alone. */
static int put_videos(void)
{
    static const video_case cases[] = {
        {"v/a.mp4", "mpeg4", 300, 48, 64, 25, .gop = 250, .b_frames = 2},
        {"v/b.avi", "mpeg4", 120, 48, 64, 25, .gop = 120},
        {"v/c.mkv", "mpeg4", 40, 48, 64, 30, .gop = 1},
    };
    mkdir(in_folder("v"), 0777);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!put_video(&cases[i]))
            return 0;
    return 1;
}

static tess_data *open_videos(tess_ctx *ctx, int64_t cache, double fps, tess_data_info *info)
{
    const tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                                 .source = in_folder("v"),
                                 .frames = WINDOW,
                                 .height = HEIGHT,
                                 .width = WIDTH,
                                 .stride = 2,
                                 .random_start = 1,
                                 .random_crop = 1,
                                 .flip = 1,
                                 .fps = fps,
                                 .cache = cache,
                                 .seed = 3};
    tess_data *data = NULL;
    CHECK_OK(tess_data_open(ctx, &opts, &data));
    CHECK_OK(tess_data_query(data, info));
    return data;
}

/* Batches `first` to `last` of a loader are the samples of the other data, in their order. */
static void compare(tess_ctx *ctx, const tess_data *all, const tess__loader_opts *opts,
                    int64_t last)
{
    static float want[NUMBERS];
    tess__loader *loader = NULL;
    CHECK_OK(tess__loader_start(ctx, opts, &loader));
    for (int64_t k = opts->first; k <= last; k++) {
        tess__batch batch;
        CHECK_OK(tess__loader_next(loader, &batch));
        assert_int_equal(batch.number, k);
        for (int i = 0; i < opts->batch; i++) {
            const int64_t index = k * (opts->of ? opts->of : opts->batch) + opts->skip + i;
            CHECK_OK(tess_data_sample(all, opts->split, index, want, NULL, NULL, 0));
            assert_memory_equal(want, batch.x + (size_t)i * NUMBERS, sizeof want);
        }
    }
    tess__loader_stop(loader);
}
#endif

static void windows_decoded_together_are_those_of_the_index(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    if (!put_videos())
        return;
    for (int rate = 0; rate < 2; rate++) {
        tess_data_info info;
        const double fps = rate ? 40 : 0; /* frames are repeated */
        tess_data *all = open_videos(*state, 1 << 30, fps, &info);
        for (int part = 0; part < 2; part++) { /* none in the cache, and the last clip */
            tess_data *some = open_videos(*state, part ? 40 * 64 * 48 * 3 : 0, fps, &info);
            const tess__loader_opts opts[] = {
                {.data = some, .batch = 3},
                {.data = some, .batch = 3, .first = 17},        /* resumed */
                {.data = some, .batch = 2, .of = 6, .skip = 4}, /* of three ranks */
                {.data = some, .batch = 1, .split = TESS_SPLIT_VALIDATION, .depth = 1},
            };
            for (int i = 0; i < 4; i++)
                compare(*state, all, &opts[i], opts[i].first + (i == 0 ? 150 : 20));
            tess_data_close(some);
        }
        tess_data_close(all);
    }
#endif
}

/* A window alone costs its 16 frames and those from the keyframe before it on. */
static void windows_of_a_clip_cost_one_pass(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    if (!put_videos())
        return;
    tess_data_info info;
    tess__loader *loader = NULL;
    tess_data *data = open_videos(*state, 0, 0, &info);
    decoded = 0;
    CHECK_OK(tess__loader_start(*state, &(tess__loader_opts){.data = data, .batch = 1}, &loader));
    for (int64_t i = 0; i < info.windows; i++) {
        tess__batch batch;
        CHECK_OK(tess__loader_next(loader, &batch));
    }
    tess__loader_stop(loader);
    /* An epoch is one group: a pass over the 460 frames for it, and one for that which follows; a
     * pass opens its file, and reads a few frames for that. */
    assert_true(info.windows > 150);
    assert_true(decoded >= 400);
    if (decoded > 2 * 500)
        fail_msg("%lld frames decoded for %lld windows", (long long)decoded,
                 (long long)info.windows);
    tess_data_close(data);
#endif
}

static void a_lost_clip_fails_at_its_sample(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    if (!put_videos())
        return;
    tess_data_info info;
    tess__loader *loader = NULL;
    tess__batch batch;
    tess_data *data = open_videos(*state, 0, 0, &info);
    remove(in_folder("v/b.avi"));
    int64_t lost = -1;
    for (int clip = -1, start; clip != 1;)
        CHECK_OK(tess_data_locate(data, TESS_SPLIT_TRAIN, ++lost, &clip, &start));
    CHECK_OK(tess__loader_start(*state, &(tess__loader_opts){.data = data, .batch = 1}, &loader));
    for (int64_t i = 0; i < lost; i++)
        CHECK_OK(tess__loader_next(loader, &batch));
    assert_int_equal(tess__loader_next(loader, &batch), TESS_EIO);
    assert_non_null(strstr(tess_last_error(), "v/b.avi: cannot open"));
    tess__loader_stop(loader);
    tess_data_close(data);
#endif
}

/* A second loader of the same data has no room of its own, and decodes one by one. */
static void two_loaders_share_data(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    if (!put_videos())
        return;
    tess_data_info info;
    tess__loader *first = NULL;
    tess_data *all = open_videos(*state, 1 << 30, 0, &info);
    tess_data *some = open_videos(*state, 0, 0, &info);
    const tess__loader_opts opts = {.data = some, .batch = 1};
    CHECK_OK(tess__loader_start(*state, &opts, &first));
    compare(*state, all, &opts, 3);
    tess__loader_stop(first);
    compare(*state, all, &opts, 3);
    tess_data_close(some);
    tess_data_close(all);
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_decoded_together_are_those_of_the_index),
    cmocka_unit_test(windows_of_a_clip_cost_one_pass),
    cmocka_unit_test(a_lost_clip_fails_at_its_sample),
    cmocka_unit_test(two_loaders_share_data),
};
RUN_TESTS_WITH(tests, make_world, drop_world)
