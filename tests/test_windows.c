/* SPDX-License-Identifier: Apache-2.0 */
/* test_windows.c - windows of long clips: any frame without those before it, every window once in
 * an epoch, splits that share no frame, crops and mirrors by the index alone, angles, pictures. */
#include "video_data.h"

#include "data/data_internal.h"

static char warnings[4096];

static void on_log(void *user, tess_log_level level, const char *message)
{
    (void)user;
    const size_t used = strlen(warnings);
    assert_int_equal(level, TESS_LOG_WARN);
    snprintf(warnings + used, sizeof warnings - used, "%s\n", message);
}

static int make_logging_world(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2, .log = on_log}, (tess_ctx **)state);
}

static tess_data *open_data(tess_ctx *ctx, const tess_data_opts *opts, tess_data_info *info)
{
    tess_data *data = NULL;
    CHECK_OK(tess_data_open(ctx, opts, &data));
    CHECK_OK(tess_data_query(data, info));
    return data;
}

/* ---- any frame ------------------------------------------------------------------------------- */

static uint64_t hash(const uint8_t *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 0x100000001b3;
    return h;
}

/* Every frame of the list, in an order that jumps, is the one that reading in order gives. */
static void check_any_frame(tess_ctx *ctx, const char *name, int want)
{
    tess__reader *reader;
    tess__arena arena = {.ctx = ctx};
    tess__frames frames = {0};
    uint64_t all[128];
    const uint8_t *rgb;
    double time;
    int n = 0;
    CHECK_OK(tess__reader_open(ctx, in_folder(name), 0, &reader));
    const size_t bytes = (size_t)reader->height * (size_t)reader->width * 3;
    for (;; n++) {
        CHECK_OK(reader->next(reader, &rgb, &time));
        if (!rgb)
            break;
        assert_true(n < 128);
        all[n] = hash(rgb, bytes);
    }
    reader->close(reader);
    assert_int_equal(n, want);
    CHECK_OK(tess__reader_open(ctx, in_folder(name), 0, &reader));
    CHECK_OK(reader->list(reader, &arena, &frames));
    assert_int_equal(frames.n, want);
    for (int i = 0; i < 3 * n; i++) {
        const int k = i < n ? (int)tess__shuffle(3, 0, n, i) : i % n;
        CHECK_OK(reader->at(reader, &frames, k, &rgb));
        if (hash(rgb, bytes) != all[k])
            fail_msg("%s: frame %d differs when it is read after others", name, k);
    }
    reader->close(reader);
    tess__arena_free(&arena);
}

static void any_frame_of_a_video_is_read_alone(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    static const video_case cases[] = {
        {"a.mp4", "libx264", 100, 48, 64, 25, .gop = 12, .b_frames = 2},
        {"open.mp4", "libx264", 100, 48, 64, 25, .gop = 12, .b_frames = 3, .open_gop = 1},
        {"one.mkv", "libx264", 60, 48, 64, 30, .gop = 250, .b_frames = 3},
        {"b.mp4", "mpeg4", 90, 48, 64, 24, .gop = 12, .b_frames = 2},
        {"b.avi", "mpeg4", 60, 48, 64, 24, .gop = 12},
        {"c.mpg", "mpeg2video", 60, 48, 64, 25, .gop = 12, .b_frames = 2, .open_gop = 1},
        {"c.ts", "mpeg2video", 60, 48, 64, 25, .gop = 15, .b_frames = 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (put_video(&cases[i]))
            check_any_frame(*state, cases[i].name, cases[i].frames);
#endif
    tess_clip clip = make_clip(20, 24, 32, 8);
    CHECK_OK(tess_clip_write(*state, in_folder("a.y4m"), &clip, 1));
    check_any_frame(*state, "a.y4m", 20);
    if (have("FFmpeg")) {
        CHECK_OK(tess_clip_write(*state, in_folder("a.gif"), &clip, 1));
        check_any_frame(*state, "a.gif", 20);
    }
    free((void *)clip.pixels);
}

/* ---- windows --------------------------------------------------------------------------------- */

enum { SIDE = 8, WINDOW = 4 };

/* A folder of y4m clips of these lengths. All frames are counted; frame n is grey of 5 + 4 n, which
 * YUV keeps apart. */
static void put_clips(tess_ctx *ctx, const char *name, const int *lengths, int n)
{
    char path[64];
    int frame = 0;
    mkdir(in_folder(name), 0777);
    for (int c = 0; c < n; c++) {
        tess_clip clip = make_clip(lengths[c], SIDE, SIDE, 10);
        for (int t = 0; t < lengths[c]; t++, frame++)
            memset((uint8_t *)clip.pixels + (size_t)t * SIDE * SIDE * 3, 5 + 4 * frame,
                   SIDE * SIDE * 3);
        snprintf(path, sizeof path, "%s/c%d.y4m", name, c);
        CHECK_OK(tess_clip_write(ctx, in_folder(path), &clip, 1));
        free((void *)clip.pixels);
    }
}

/* The number of a sample's first frame; its frames must follow each other. */
static int first_of(const tess_data *data, tess_split split, int64_t index)
{
    float x[3 * WINDOW * SIDE * SIDE];
    CHECK_OK(tess_data_sample(data, split, index, x, NULL, NULL, 0));
    int first = 0;
    for (int t = 0; t < WINDOW; t++) {
        const int at = (int)lround(((x[(size_t)t * SIDE * SIDE] + 1) * 127.5 - 5) / 4);
        first = t == 0 ? at : first;
        assert_int_equal(at, first + t);
    }
    return first;
}

static void every_window_is_read_once_in_an_epoch(void **state)
{
    static const int lengths[] = {30, 17, 5, 9};
    put_clips(*state, "long", lengths, 4);
    for (int stride = 1; stride <= 3; stride++)
        for (int random = 0; random < 2; random++) {
            tess_data_info info;
            tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("long"),
                                   .frames = WINDOW,        .height = SIDE,
                                   .width = SIDE,           .stride = stride,
                                   .random_start = random,  .seed = 5};
            tess_data *data = open_data(*state, &opts, &info);
            /* 4 frames of the clips of 30, 17 and 9 are held out; 5 is too short for that. */
            int64_t want = 0, moved = 0;
            for (int c = 0; c < 4; c++)
                want += ((lengths[c] >= 8 ? lengths[c] - 4 : lengths[c]) - WINDOW) / stride + 1;
            assert_int_equal(info.windows, want);
            assert_int_equal(info.windows_validation, 3);
            assert_int_equal(info.clips, 4);
            assert_int_equal(info.clips_validation, 3);
            int before[64];
            for (int epoch = 0; epoch < 3; epoch++) {
                uint8_t found[256] = {0};
                for (int64_t i = 0; i < want; i++) {
                    const int at = first_of(data, TESS_SPLIT_TRAIN, epoch * want + i);
                    int c = 0, t = at, clip, start;
                    for (; t >= lengths[c]; c++)
                        t -= lengths[c];
                    CHECK_OK(
                        tess_data_locate(data, TESS_SPLIT_TRAIN, epoch * want + i, &clip, &start));
                    assert_int_equal(clip, c);
                    assert_int_equal(start, t);
                    const int end = lengths[c] >= 8 ? lengths[c] - 4 : lengths[c];
                    assert_in_range(t, 0, end - WINDOW);
                    assert_int_equal(found[at]++, 0);
                    moved += epoch > 0 && before[i] != at;
                    before[i] = at;
                }
            }
            assert_true(moved > want);
            for (int64_t i = 0; i < 6; i++) { /* the ends, whatever the seed */
                const int at = first_of(data, TESS_SPLIT_VALIDATION, i);
                assert_true(at == 30 - 4 || at == 47 - 4 || at == 61 - 4);
            }
            tess_data_close(data);
        }
}

static void windows_are_those_of_the_index_with_any_cache(void **state)
{
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                           .source = in_folder("long"),
                           .frames = WINDOW,
                           .height = 6,
                           .width = 4,
                           .stride = 3,
                           .random_start = 1,
                           .random_crop = 1,
                           .flip = 1,
                           .seed = 1};
    enum { NUMBERS = 3 * WINDOW * 6 * 4 };
    tess_data_info info;
    tess_data *all = open_data(*state, &opts, &info);
    for (int64_t cache = 0; cache < 3000; cache += 2500) { /* none, and one clip */
        opts.cache = cache;
        opts.source = in_folder("long");
        tess_data *some = open_data(*state, &opts, &info);
        for (int64_t i = 40; i >= 0; i--) {
            float a[NUMBERS], b[NUMBERS];
            CHECK_OK(tess_data_sample(all, (tess_split)(i % 2), i / 2, a, NULL, NULL, 0));
            CHECK_OK(tess_data_sample(some, (tess_split)(i % 2), i / 2, b, NULL, NULL, 0));
            assert_memory_equal(a, b, sizeof a);
        }
        tess_data_close(some);
    }
    tess_data_close(all);
}

static void the_first_frames_are_those_of_before(void **state)
{
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS, .source = in_folder("long"), .frames = WINDOW,
                           .height = SIDE, .width = SIDE};
    tess_data *data = open_data(*state, &opts, &info);
    assert_int_equal(info.clips, 3);
    assert_int_equal(info.windows, 3);
    for (int64_t i = 0; i < 6; i++) {
        const int at = first_of(data, TESS_SPLIT_TRAIN, i);
        assert_true(at == 0 || at == 30 || at == 47 || at == 52);
    }
    tess_data_close(data);
}

static void crops_and_mirrors_come_from_all_of_the_frame(void **state)
{
    /* Columns of a frame twice as wide as it is high: red grows from column to column. */
    tess_clip clip = make_clip(40, 8, 16, 10);
    uint8_t *p = (uint8_t *)clip.pixels;
    for (int i = 0; i < 40 * 8 * 16; i++, p += 3) {
        p[0] = (uint8_t)(50 + 8 * (i % 16));
        p[1] = p[2] = 128;
    }
    CHECK_OK(tess_clip_write(*state, in_folder("wide.y4m"), &clip, 1));
    free((void *)clip.pixels);
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                           .source = in_folder("wide.y4m"),
                           .frames = 1,
                           .height = 8,
                           .width = 8,
                           .stride = 1,
                           .random_crop = 1,
                           .flip = 1};
    tess_data *data = open_data(*state, &opts, &info);
    int offsets[9] = {0}, mirrored = 0;
    for (int64_t i = 0; i < 200; i++) {
        float x[3 * 8 * 8];
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, i, x, NULL, NULL, 0));
        const int mirror = x[0] > x[7];
        const int left = (int)lround(((x[mirror ? 7 : 0] + 1) * 127.5 - 50) / 8);
        assert_in_range(left, 0, 8);
        offsets[left]++;
        mirrored += mirror;
        CHECK_OK(tess_data_sample(data, TESS_SPLIT_VALIDATION, i, x, NULL, NULL, 0));
        assert_true(x[0] < x[7]);
        assert_int_equal(lround(((x[0] + 1) * 127.5 - 50) / 8), 4);
    }
    /* 200 draws of 9: each is there but for a chance of 9 (8/9)^200 = 5e-10. */
    for (int i = 0; i < 9; i++)
        assert_true(offsets[i] > 0);
    assert_in_range(mirrored, 60, 140); /* six deviations of 7.1 */
    tess_data_close(data);
}

static void windows_follow_the_wanted_rate(void **state)
{
    static const double rates[] = {5, 10, 15, 2.5};
    static const int lengths[] = {21, 20};
    put_clips(*state, "rates", lengths, 2);
    for (int r = 0; r < 4; r++) {
        tess_data_info info;
        tess_clip clip;
        tess_clip_file *file;
        CHECK_OK(tess_clip_open(*state, in_folder("rates/c0.y4m"),
                                &(tess_clip_opts){.fps = rates[r]}, &file));
        CHECK_OK(tess_clip_view(file, &clip));
        tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                               .source = in_folder("rates/c0.y4m"),
                               .frames = 2,
                               .height = SIDE,
                               .width = SIDE,
                               .stride = 1,
                               .fps = rates[r]};
        tess_data *data = open_data(*state, &opts, &info);
        /* All windows of two frames but those that reach into the last two. */
        assert_int_equal(info.windows, clip.frames - 3);
        tess_data_clip record;
        assert_int_equal(tess_data_clip_count(data), 1);
        CHECK_OK(tess_data_clip_query(data, 0, &record));
        assert_int_equal(record.frames, clip.frames);
        assert_true(record.fps == 10);
        for (int64_t i = 0; i < info.windows; i++) {
            float x[3 * 2 * SIDE * SIDE];
            CHECK_OK(tess_data_sample(data, TESS_SPLIT_TRAIN, i, x, NULL, NULL, 0));
            const int at = (int)tess__shuffle(tess__data_seed(0, "clips"), 0, info.windows, i);
            for (int k = 0; k < 2; k++)
                assert_true(lround((x[(size_t)k * SIDE * SIDE] + 1) * 127.5) ==
                            clip.pixels[(size_t)(at + k) * SIDE * SIDE * 3]);
        }
        tess_data_close(data);
        tess_clip_close(file);
    }
}

/* ---- files as people have them --------------------------------------------------------------- */

static void frames_are_rotated_as_the_file_asks_for(void **state)
{
#ifdef TESS_HAVE_FFMPEG
    static const struct {
        double degrees;
        int top, left; /* where the bright corner is shown */
        int transposed;
    } angles[] = {{90, 1, 0, 1}, {180, 0, 0, 0}, {270, 0, 1, 1}};
    for (int i = 0; i < 3; i++) {
        tess_clip_file *file;
        tess_clip clip;
        const video_case c = {
            "rotated.mp4", "mpeg4", 4, 32, 64, 8, .gop = 4, .rotation = angles[i].degrees};
        if (!put_video(&c))
            return;
        CHECK_OK(tess_clip_open(*state, in_folder("rotated.mp4"), NULL, &file));
        CHECK_OK(tess_clip_view(file, &clip));
        assert_int_equal(clip.height, angles[i].transposed ? 64 : 32);
        assert_int_equal(clip.width, angles[i].transposed ? 32 : 64);
        for (int top = 0; top < 2; top++)
            for (int left = 0; left < 2; left++) {
                const int y = top ? 2 : clip.height - 3, x = left ? 2 : clip.width - 3;
                const int bright =
                    clip.pixels[((size_t)y * (size_t)clip.width + (size_t)x) * 3] > 150;
                assert_int_equal(bright, top == angles[i].top && left == angles[i].left);
            }
        tess_clip_close(file);
        CHECK_OK(tess_clip_open(*state, in_folder("rotated.mp4"), &(tess_clip_opts){.as_stored = 1},
                                &file));
        CHECK_OK(tess_clip_view(file, &clip));
        assert_int_equal(clip.height, 32);
        assert_true(clip.pixels[(2 * 64 + 2) * 3] > 150);
        tess_clip_close(file);
    }
#else
    (void)state;
    need("FFmpeg");
#endif
}

static void pictures_are_clips_of_one_frame(void **state)
{
    if (!need("libpng"))
        return;
    static uint8_t pixels[3 * 64];
    memset(pixels, 90, sizeof pixels);
    mkdir(in_folder("photos"), 0777);
    CHECK_OK(tess_image_write(*state, in_folder("photos/a.png"), &(tess_image){8, 8, 3, pixels}));
    CHECK_OK(tess_image_write(*state, in_folder("photos/b.png"), &(tess_image){8, 8, 3, pixels}));
    write_file(in_folder("photos/b.txt"), "a grey picture", 14);
    int n = 2;
#ifdef TESS_HAVE_FFMPEG
    const video_case c = {"photos/c%d.jpg", "mjpeg", 1, 32, 32, 8, .gop = 1};
    if (put_video(&c))
        n++;
#endif
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                           .source = in_folder("photos"),
                           .frames = 1,
                           .height = 8,
                           .width = 8,
                           .stride = 1};
    tess_data *data = open_data(*state, &opts, &info);
    assert_int_equal(tess_data_clip_count(data), n);
    assert_int_equal(info.windows + info.windows_validation, n);
    assert_int_equal(info.skipped, 0);
    for (int i = 0; i < n; i++) {
        tess_data_clip clip;
        CHECK_OK(tess_data_clip_query(data, i, &clip));
        assert_int_equal(clip.frames, 1);
        assert_string_equal(clip.prompt, i == 1 ? "a grey picture" : "");
    }
    tess_data_close(data);
    /* As frames of a clip they need the folder alone. */
    opts.frames = 2;
    opts.source = in_folder("photos");
    data = open_data(*state, &opts, &info);
    assert_int_equal(tess_data_clip_count(data), 1);
    tess_data_close(data);
}

static void many_short_clips_are_one_warning(void **state)
{
    static const int lengths[] = {4, 3, 4, 2, 5, 3};
    put_clips(*state, "short", lengths, 6);
    tess_data_info info;
    tess_data_opts opts = {TESS_DATA_OPTS_DEFAULTS,
                           .source = in_folder("short"),
                           .frames = 4,
                           .height = SIDE,
                           .width = SIDE,
                           .stride = 1};
    warnings[0] = '\0';
    tess_data *data = open_data(*state, &opts, &info);
    assert_string_equal(warnings, "3 of 6 clips are shorter than 4 frames: --frames 2 keeps all\n");
    assert_int_equal(info.skipped, 3);
    tess_data_clip clip;
    CHECK_OK(tess_data_clip_query(data, 3, &clip));
    assert_int_equal(clip.frames, 2);
    assert_non_null(strstr(clip.skipped, "short/c3.y4m: has 2 frames, 4 are wanted"));
    CHECK_FAILS(tess_data_clip_query(data, 6, &clip), TESS_EINVAL,
                "tess_data_clip_query: index is 6, must be 0..5");
    tess_data_close(data);
    opts.frames = 9;
    opts.source = in_folder("short");
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "%s/short: none of its 6 clips has 9 frames, the longest has 5: --frames 5 keeps one, "
             "--frames 2 keeps all",
             folder);
    data = NULL;
    CHECK_FAILS(tess_data_open(*state, &opts, &data), TESS_EFORMAT, sentence);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_frame_of_a_video_is_read_alone),
    cmocka_unit_test(every_window_is_read_once_in_an_epoch),
    cmocka_unit_test(windows_are_those_of_the_index_with_any_cache),
    cmocka_unit_test(the_first_frames_are_those_of_before),
    cmocka_unit_test(crops_and_mirrors_come_from_all_of_the_frame),
    cmocka_unit_test(windows_follow_the_wanted_rate),
    cmocka_unit_test(frames_are_rotated_as_the_file_asks_for),
    cmocka_unit_test(pictures_are_clips_of_one_frame),
    cmocka_unit_test(many_short_clips_are_one_warning),
};
RUN_TESTS_WITH(tests, make_logging_world, drop_world)
