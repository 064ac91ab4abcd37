/* SPDX-License-Identifier: Apache-2.0 */
/* test_clip_bad.c - clips that are broken, foreign or wrongly asked for, and their sentences. */
#include "clips.h"

/* The sentence begins with the path of a file in the folder, and goes on as given. */
static void check_refused(tess_ctx *ctx, const char *name, const tess_clip_opts *opts,
                          tess_status status, const char *rest)
{
    tess_clip_file *file = NULL;
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s/%s%s", folder, name, rest);
    CHECK_FAILS(tess_clip_open(ctx, in_folder(name), opts, &file), status, sentence);
    assert_null(file);
}

static void y4m_that_breaks_a_rule_is_refused(void **state)
{
    static const struct {
        const char *text;
        tess_status status;
        const char *rest;
    } cases[] = {
        {"", TESS_EFORMAT, ": must begin with YUV4MPEG2"},
        {"YUV4MPEG", TESS_EFORMAT, ": must begin with YUV4MPEG2"},
        {"RIFF....AVI LIST\n", TESS_EFORMAT, ": must begin with YUV4MPEG2"},
        {"YUV4MPEG2 W2 H2", TESS_EFORMAT, ": first line: must end within 4096 bytes"},
        {"YUV4MPEG2 W2\nFRAME\nabcdef", TESS_EFORMAT, ": first line: has no H, the height"},
        {"YUV4MPEG2 H2\n", TESS_EFORMAT, ": first line: has no W, the width"},
        {"YUV4MPEG2 W0 H2\n", TESS_EFORMAT, ": first line: \"W0\", must be 1..16384"},
        {"YUV4MPEG2 W2 H99999999999\n", TESS_EFORMAT,
         ": first line: \"H99999999999\", must be 1..16384"},
        {"YUV4MPEG2 W-2 H2\n", TESS_EFORMAT, ": first line: \"W-2\", must be 1..16384"},
        {"YUV4MPEG2 W2 H2 F25\n", TESS_EFORMAT,
         ": first line: \"F25\", must be two numbers and a colon between them"},
        {"YUV4MPEG2 W2 H2 F:1\n", TESS_EFORMAT,
         ": first line: \"F:1\", must be two numbers and a colon between them"},
        {"YUV4MPEG2 W2 H2 C420p10\n", TESS_ENOTSUP,
         ": first line: \"C420p10\", only C420, C422, C444 and Cmono of 8 bits are read"},
        {"YUV4MPEG2 W2 H2 It\n", TESS_ENOTSUP,
         ": first line: \"It\", interlaced frames are not read"},
        {"YUV4MPEG2 W2 H2\n", TESS_EFORMAT, ": has no frames"},
        {"YUV4MPEG2 W2 H2\nFRA", TESS_EFORMAT, ": frame 0: has fewer than 6 bytes"},
        {"YUV4MPEG2 W2 H2\nFRAME\nabcde", TESS_EFORMAT, ": frame 0: has 5 bytes, must be 6"},
        {"YUV4MPEG2 W2 H2\nframe\nabcdef", TESS_EFORMAT, ": frame 0: must begin with a line FRAME"},
        {"YUV4MPEG2 W2 H2\nFRAME\nabcdefFRAME\nabc", TESS_EFORMAT,
         ": frame 1: has 3 bytes, must be 6"},
        {"YUV4MPEG2 W16384 H16384\nFRAME\n", TESS_EFORMAT,
         ": frame 0: has fewer than 402653184 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(in_folder("bad.y4m"), cases[i].text, strlen(cases[i].text));
        check_refused(*state, "bad.y4m", NULL, cases[i].status, cases[i].rest);
    }
}

static void a_clip_that_is_too_short_says_how_long_it_is(void **state)
{
    tess_clip clip = make_clip(5, 8, 8, 10);
    CHECK_OK(tess_clip_write(*state, in_folder("short.y4m"), &clip, 1));
    check_refused(*state, "short.y4m", &(tess_clip_opts){.frames = 6}, TESS_EFORMAT,
                  ": has 5 frames, 6 are wanted");
    check_refused(*state, "short.y4m", &(tess_clip_opts){.frames = 6, .fps = 4}, TESS_EFORMAT,
                  ": has 2 frames at 4 fps, 6 are wanted");
    if (need("FFmpeg")) {
        CHECK_OK(tess_clip_write(*state, in_folder("short.mp4"), &clip, 1));
        check_refused(*state, "short.mp4", &(tess_clip_opts){.frames = 6}, TESS_EFORMAT,
                      ": has 5 frames, 6 are wanted");
    }
    free((void *)clip.pixels);
}

/* Every cut of an MP4 is refused or, where only its end is missing, whole: nothing crashes, and the
 * sentence names the file. */
static void a_cut_or_damaged_video_is_refused(void **state)
{
    if (!need("FFmpeg"))
        return;
    static const char *const names[] = {"whole.mp4", "whole.gif"};
    tess_clip clip = make_clip(8, 32, 32, 8);
    for (int kind = 0; kind < 2; kind++) {
        CHECK_OK(tess_clip_write(*state, in_folder(names[kind]), &clip, 1));
        size_t n;
        uint8_t *bytes = read_file(in_folder(names[kind]), &n);
        int refused = 0;
        for (int cut = 0; cut < 12; cut++) {
            tess_clip_file *file = NULL;
            const char *path = in_folder(kind ? "cut.gif" : "cut.mp4");
            write_file(path, bytes, n * (size_t)cut / 12);
            const tess_status status =
                tess_clip_open(*state, path, &(tess_clip_opts){.frames = 8}, &file);
            assert_true((status == TESS_OK) == (file != NULL));
            if (status != TESS_OK)
                assert_ptr_equal(strstr(tess_last_error(), path), tess_last_error());
            refused += status == TESS_EFORMAT;
            tess_clip_close(file);
        }
        assert_true(refused >= 11);
        /* Damage in the middle: any answer but a crash or a half-made clip. */
        for (size_t at = 40; at < n; at += n / 40 + 1) {
            tess_clip_file *file = NULL;
            const char *path = in_folder(kind ? "bent.gif" : "bent.mp4");
            uint8_t kept = bytes[at];
            bytes[at] = (uint8_t)~kept;
            write_file(path, bytes, n);
            bytes[at] = kept;
            const tess_status status = tess_clip_open(*state, path, NULL, &file);
            assert_true((status == TESS_OK) == (file != NULL));
            tess_clip_close(file);
        }
        free(bytes);
    }
    free((void *)clip.pixels);
}

static void foreign_files_are_refused(void **state)
{
    write_file(in_folder("empty.mp4"), "", 0);
    write_file(in_folder("text.mp4"), "This is no video at all.\n", 25);
    if (have("FFmpeg")) {
        check_refused(*state, "empty.mp4", NULL, TESS_EFORMAT,
                      ": FFmpeg cannot read it: Invalid data found when processing input");
        check_refused(*state, "text.mp4", NULL, TESS_EFORMAT,
                      ": FFmpeg cannot read it: Invalid data found when processing input");
    } else {
        check_refused(*state, "text.mp4", NULL, TESS_ENOTSUP,
                      ": this build has no FFmpeg, clips are read from .y4m and folders of PNGs");
    }
    check_refused(*state, "none.mp4", NULL, TESS_EIO, ": cannot open: No such file or directory");
    mkdir(in_folder("hollow"), 0777);
    check_refused(*state, "hollow", NULL, TESS_EFORMAT,
                  ": has no pictures that end in .png, .jpg or .jpeg");
}

/* A playlist or a name must not make FFmpeg leave the machine. */
static void nothing_is_fetched(void **state)
{
    if (!need("FFmpeg"))
        return;
    static const char list[] = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n"
                               "http://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n";
    write_file(in_folder("list.m3u8"), list, sizeof list - 1);
    tess_clip_file *file = NULL;
    assert_int_not_equal(tess_clip_open(*state, in_folder("list.m3u8"), NULL, &file), TESS_OK);
    CHECK_FAILS(tess_clip_open(*state, "http://127.0.0.1:9/a.mp4", NULL, &file), TESS_EIO,
                "http://127.0.0.1:9/a.mp4: cannot open: No such file or directory");
    assert_null(file);
}

static void broken_pictures_are_refused(void **state)
{
    if (!need("libpng"))
        return;
    const uint8_t pixels[3 * 64] = {1, 2, 3};
    mkdir(in_folder("mixed"), 0777);
    CHECK_OK(tess_image_write(*state, in_folder("mixed/0.png"), &(tess_image){8, 8, 3, pixels}));
    CHECK_OK(tess_image_write(*state, in_folder("mixed/1.png"), &(tess_image){8, 4, 3, pixels}));
    tess_clip_file *file = NULL;
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s/mixed/1.png: is 4 x 8, the first picture is 8 x 8",
             folder);
    CHECK_FAILS(tess_clip_open(*state, in_folder("mixed"), NULL, &file), TESS_EFORMAT, sentence);
    size_t n;
    uint8_t *bytes = read_file(in_folder("mixed/0.png"), &n);
    for (size_t cut = 0; cut < n; cut += 7) {
        write_file(in_folder("mixed/1.png"), bytes, cut);
        assert_int_equal(tess_clip_open(*state, in_folder("mixed"), NULL, &file), TESS_EFORMAT);
    }
    assert_null(file);
    free(bytes);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    tess_ctx *ctx = *state;
    tess_clip_file *file = NULL;
    tess_clip clip;
    CHECK_FAILS(tess_clip_open(NULL, "a", NULL, &file), TESS_EINVAL, "tess_clip_open: ctx is NULL");
    CHECK_FAILS(tess_clip_open(ctx, NULL, NULL, &file), TESS_EINVAL,
                "tess_clip_open: path is NULL");
    CHECK_FAILS(tess_clip_open(ctx, "a", NULL, NULL), TESS_EINVAL, "tess_clip_open: file is NULL");
    CHECK_FAILS(tess_clip_open(ctx, "a", &(tess_clip_opts){.frames = -1}, &file), TESS_EINVAL,
                "tess_clip_open: frames is -1, must be 0..65536");
    CHECK_FAILS(tess_clip_open(ctx, "a", &(tess_clip_opts){.height = 16385}, &file), TESS_EINVAL,
                "tess_clip_open: height is 16385, must be 0..16384");
    CHECK_FAILS(tess_clip_open(ctx, "a", &(tess_clip_opts){.width = -1}, &file), TESS_EINVAL,
                "tess_clip_open: width is -1, must be 0..16384");
    CHECK_FAILS(tess_clip_open(ctx, "a", &(tess_clip_opts){.fps = NAN}, &file), TESS_EINVAL,
                "tess_clip_open: fps is nan, must be 0..1000");
    CHECK_FAILS(tess_clip_view(NULL, &clip), TESS_EINVAL, "tess_clip_view: file is NULL");
    tess_clip_close(NULL);
}

static void wrong_clips_are_not_written(void **state)
{
    const uint8_t pixels[12] = {0};
    const tess_clip good = {1, 2, 2, 8, pixels};
    const struct {
        tess_clip clips[2];
        int n;
        const char *path, *sentence;
    } cases[] = {
        {{good}, 0, "a.gif", "tess_clip_write: n is 0, must be 1 or more"},
        {{{1, 2, 2, 8, NULL}}, 1, "a.gif", "tess_clip_write: pixels is NULL"},
        {{{0, 2, 2, 8, pixels}}, 1, "a.gif", "tess_clip_write: frames is 0, must be 1..65536"},
        {{{1, 2, 16385, 8, pixels}},
         1,
         "a.gif",
         "tess_clip_write: frames are 2 x 16385, sides must be 1..16384"},
        {{{1, 2, 2, 0, pixels}},
         1,
         "a.gif",
         "tess_clip_write: fps is 0, must be above 0 and at most 1000"},
        {{good, {1, 2, 2, 9, pixels}},
         2,
         "a.gif",
         "tess_clip_write: a clip is 1 x 2 x 2 at 9 fps, the first is 1 x 2 x 2 at 8, must be the "
         "same"},
        {{good},
         1,
         "a.avi",
         "tess_clip_write: path is \"a.avi\", must end in .mp4, .gif, .y4m or .png"},
        {{good},
         1,
         ".gif",
         "tess_clip_write: path is \".gif\", must end in .mp4, .gif, .y4m or .png"},
        {{{1, 2, 9000, 8, pixels}, {1, 2, 9000, 8, pixels}},
         2,
         "a.gif",
         "tess_clip_write: 2 clips of 9000 pixels side by side are 18001 wide, must be at most "
         "16384"},
        {{{60000, 2, 2, 8, pixels}},
         1,
         "a.png",
         "tess_clip_write: the sheet would be 6 x 240002, sides must be at most 65535"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(tess_clip_write(*state, cases[i].path, cases[i].clips, cases[i].n), TESS_EINVAL,
                    cases[i].sentence);
    CHECK_FAILS(tess_clip_write(*state, NULL, &good, 1), TESS_EINVAL,
                "tess_clip_write: path is NULL");
    static const char *const names[] = {"no/a.y4m", "no/a.gif", "no/a.mp4", "no/a.png"};
    for (int i = 0; i < 4; i++) {
        if ((i == 2 && !have("FFmpeg")) || (i == 3 && !have("libpng")))
            continue;
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s/%s: cannot create: No such file or directory",
                 folder, names[i]);
        CHECK_FAILS(tess_clip_write(*state, in_folder(names[i]), &good, 1), TESS_EIO, sentence);
    }
}

/* /dev/full takes no byte: the sentence says so, and nothing is left behind. */
static void a_full_disk_is_reported(void **state)
{
    tess_clip clip = make_clip(8, 64, 64, 8);
    static const char *const names[] = {"full.y4m", "full.gif", "full.mp4"};
    for (int i = 0; i < 3; i++) {
        if (i == 2 && !have("FFmpeg"))
            continue;
        char sentence[256];
        assert_int_equal(symlink("/dev/full", in_folder(names[i])), 0);
        snprintf(sentence, sizeof sentence, "%s/%s: cannot write: ", folder, names[i]);
        assert_int_equal(tess_clip_write(*state, in_folder(names[i]), &clip, 1), TESS_EIO);
        assert_ptr_equal(strstr(tess_last_error(), sentence), tess_last_error());
    }
    free((void *)clip.pixels);
}

/* What FFmpeg has to say about a broken file goes to the context's log, at debug level. */
static int lines;

static void count_line(void *user, tess_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, TESS_LOG_DEBUG);
    lines += strstr(message, "FFmpeg: ") == message;
}

static void the_log_of_ffmpeg_is_the_contexts(void **state)
{
    (void)state;
    if (!need("FFmpeg"))
        return;
    tess_ctx *ctx = NULL;
    tess_clip_file *file = NULL;
    CHECK_OK(
        tess_ctx_create(&(tess_ctx_opts){.log = count_line, .log_level = TESS_LOG_DEBUG}, &ctx));
    write_file(in_folder("noise.mp4"),
               "\0\0\0\x18"
               "ftypisom\0\0\0\0isommp42\0\0\0\x08mdat",
               32);
    assert_int_equal(tess_clip_open(ctx, in_folder("noise.mp4"), NULL, &file), TESS_EFORMAT);
    assert_true(lines > 0);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(y4m_that_breaks_a_rule_is_refused),
    cmocka_unit_test(a_clip_that_is_too_short_says_how_long_it_is),
    cmocka_unit_test(a_cut_or_damaged_video_is_refused),
    cmocka_unit_test(foreign_files_are_refused),
    cmocka_unit_test(nothing_is_fetched),
    cmocka_unit_test(broken_pictures_are_refused),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
    cmocka_unit_test(wrong_clips_are_not_written),
    cmocka_unit_test(a_full_disk_is_reported),
    cmocka_unit_test(the_log_of_ffmpeg_is_the_contexts),
};
RUN_TESTS_WITH(tests, make_world, drop_world)
