/* SPDX-License-Identifier: Apache-2.0 */
/* test_clip.c - clips written to files of every kind, and read back. */
#include "clips.h"

#include "media/media_internal.h"
#include "tess_config.h"

#ifdef TESS_HAVE_PNG
#include <png.h>
#endif

/* The mean of |clip - back| over bytes, where back is the clip with every pixel enlarged. */
static double mean_error(const tess_clip *clip, const tess_clip *back)
{
    const int factor = back->width / clip->width;
    double sum = 0;
    for (int t = 0; t < clip->frames; t++)
        for (int y = 0; y < clip->height; y++)
            for (int x = 0; x < clip->width; x++) {
                const int row = t * back->height + y * factor + factor / 2;
                const uint8_t *a = clip->pixels + ((t * clip->height + y) * clip->width + x) * 3;
                const uint8_t *b = back->pixels + (row * back->width + x * factor + factor / 2) * 3;
                for (int c = 0; c < 3; c++)
                    sum += abs(a[c] - b[c]);
            }
    return sum / (double)clip_bytes(clip);
}

/* Writes a clip, reads it as the file has it, and returns the mean error. */
static double round_trip(tess_ctx *ctx, const char *name, const tess_clip *clip)
{
    const char *path = in_folder(name);
    tess_clip_file *file = NULL;
    tess_clip back;
    CHECK_OK(tess_clip_write(ctx, path, clip, 1));
    CHECK_OK(tess_clip_open(ctx, path, NULL, &file));
    CHECK_OK(tess_clip_view(file, &back));
    assert_int_equal(back.frames, clip->frames);
    assert_int_equal(back.height / clip->height, back.width / clip->width);
    if (fabs(back.fps - clip->fps) > 0.02 * clip->fps) /* hundredths of a second in a GIF */
        fail_msg("%s: %g fps became %g", name, clip->fps, back.fps);
    const double error = mean_error(clip, &back);
    tess_clip_close(file);
    return error;
}

static const struct {
    int frames, height, width;
    double fps;
} shapes[] = {{1, 1, 1, 1},
              {8, 32, 32, 8},
              {5, 33, 47, 25},
              {17, 64, 48, 30000.0 / 1001},
              {3, 300, 401, 12.5}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* yuv.c says 2 per byte at most; most are off by less than 1. */
static void y4m_comes_back_within_rounding(void **state)
{
    for (int i = 0; i < N_SHAPES; i++) {
        tess_clip clip =
            make_clip(shapes[i].frames, shapes[i].height, shapes[i].width, shapes[i].fps);
        assert_true(round_trip(*state, "a.y4m", &clip) < 1.0);
        free((void *)clip.pixels);
    }
}

static void every_colour_survives_yuv_within_2(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const tess__yuv m = tess__yuv_of(kind & 1, kind >> 1);
        for (int c = 0; c < 1 << 24; c += 61) {
            const int rgb[3] = {c >> 16, c >> 8 & 255, c & 255};
            uint8_t yuv[3], back[3];
            tess__rgb_to_yuv(&m, rgb, yuv);
            tess__yuv_to_rgb(&m, yuv[0], yuv[1], yuv[2], back);
            for (int k = 0; k < 3; k++)
                assert_in_range(back[k] + 2 - rgb[k], 0, 4);
        }
        uint8_t grey[3];
        tess__rgb_to_yuv(&m, (int[]){255, 255, 255}, grey);
        assert_int_equal(grey[0], kind >> 1 ? 255 : 235);
        assert_int_equal(grey[1], 128);
        assert_int_equal(grey[2], 128);
        tess__rgb_to_yuv(&m, (int[]){0, 0, 0}, grey);
        assert_int_equal(grey[0], kind >> 1 ? 0 : 16);
    }
}

/* Few colours are exact; the gradients here have more than 256, and bins of 8 steps. */
static void gif_comes_back_within_its_palette(void **state)
{
    if (!need("FFmpeg"))
        return;
    for (int i = 0; i < N_SHAPES; i++) {
        tess_clip clip =
            make_clip(shapes[i].frames, shapes[i].height, shapes[i].width, shapes[i].fps);
        assert_true(round_trip(*state, "a.gif", &clip) < 4.0);
        uint8_t *flat = (uint8_t *)clip.pixels;
        for (size_t k = 0; k < clip_bytes(&clip); k++)
            flat[k] = (uint8_t)(flat[k] / 64 * 64);
        assert_true(round_trip(*state, "a.gif", &clip) == 0);
        free((void *)clip.pixels);
    }
    /* Noise fills the table of codes and clears it. */
    tess_clip noise = make_clip(4, 200, 260, 10);
    uint32_t *bits = malloc(clip_bytes(&noise) * sizeof *bits);
    assert_non_null(bits);
    CHECK_OK(tess_random_bits(1, 2, 3, bits, clip_bytes(&noise)));
    for (size_t k = 0; k < clip_bytes(&noise); k++)
        ((uint8_t *)noise.pixels)[k] = (uint8_t)(bits[k] >> 30 << 6);
    assert_true(round_trip(*state, "noise.gif", &noise) == 0);
    free(bits);
    free((void *)noise.pixels);
}

/* Lossy, and chroma is halved; the enlargement keeps small clips whole. */
static void mp4_comes_back_within_the_codec(void **state)
{
    if (!need("FFmpeg"))
        return;
    for (int i = 0; i < N_SHAPES; i++) {
        tess_clip clip =
            make_clip(shapes[i].frames, shapes[i].height, shapes[i].width, shapes[i].fps);
        const double error = round_trip(*state, "a.mp4", &clip);
        if (error > 4.0)
            fail_msg("%d x %d: mean error %.2f", clip.height, clip.width, error);
        free((void *)clip.pixels);
    }
}

static void the_same_clip_gives_the_same_bytes(void **state)
{
    tess_clip clip = make_clip(8, 32, 32, 8);
    static const char *const names[] = {"b.y4m", "b.gif", "b.png", "b.mp4"};
    for (int i = 0; i < 4; i++) {
        if ((i == 2 && !need("libpng")) || (i == 3 && !need("FFmpeg")))
            continue;
        size_t n[2];
        uint8_t *bytes[2];
        for (int k = 0; k < 2; k++) {
            CHECK_OK(tess_clip_write(*state, in_folder(names[i]), &clip, 1));
            bytes[k] = read_file(in_folder(names[i]), &n[k]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        free(bytes[0]);
        free(bytes[1]);
    }
    free((void *)clip.pixels);
}

/* ---- size and rate --------------------------------------------------------------------------- */

static void frames_are_taken_at_the_wanted_rate(void **state)
{
    enum { FRAMES = 30 };
    tess_clip clip = make_clip(FRAMES, 8, 8, 30);
    for (int t = 0; t < FRAMES; t++) /* each frame is its number in grey */
        memset((uint8_t *)clip.pixels + t * 192, 20 + 7 * t, 192);
    CHECK_OK(tess_clip_write(*state, in_folder("rate.y4m"), &clip, 1));
    if (have("FFmpeg"))
        CHECK_OK(tess_clip_write(*state, in_folder("rate.mp4"), &clip, 1));
    free((void *)clip.pixels);
    static const struct {
        double fps;
        int wanted, first[6], total;
    } cases[] = {
        {0, 0, {0, 1, 2, 3, 4, 5}, 30},    {30, 0, {0, 1, 2, 3, 4, 5}, 30},
        {10, 0, {0, 3, 6, 9, 12, 15}, 10}, {8, 6, {0, 3, 7, 11, 15, 18}, 6},
        {60, 0, {0, 0, 1, 1, 2, 2}, 60},   {1, 0, {0}, 1},
    };
    for (int video = 0; video <= have("FFmpeg"); video++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            tess_clip_file *file = NULL;
            CHECK_OK(tess_clip_open(
                *state, in_folder(video ? "rate.mp4" : "rate.y4m"),
                &(tess_clip_opts){
                    .fps = cases[i].fps, .frames = cases[i].wanted, .height = 8, .width = 8},
                &file));
            CHECK_OK(tess_clip_view(file, &clip));
            assert_int_equal(clip.frames, cases[i].total);
            assert_true(fabs(clip.fps - (cases[i].fps > 0 ? cases[i].fps : 30)) < 1e-6);
            for (int t = 0; t < 6 && t < clip.frames; t++) /* the step is 7, the codec's error 3 */
                assert_in_range(clip.pixels[t * 192 + 96] + 3 - (20 + 7 * cases[i].first[t]), 0, 6);
            tess_clip_close(file);
        }
}

/* Scaling keeps what is constant, and means: a wide gradient cut at its centre. */
static void frames_are_scaled_to_cover_and_cut_at_the_centre(void **state)
{
    static const int sides[][2] = {{16, 16}, {64, 64}, {7, 21}, {1, 1}, {30, 100}, {5, 200}};
    uint8_t *from = malloc(40 * 120 * 3), *to = malloc(200 * 200 * 3);
    assert_true(from && to);
    for (int y = 0; y < 40; y++)
        for (int x = 0; x < 120; x++) {
            uint8_t *p = from + (y * 120 + x) * 3;
            p[0] = (uint8_t)(2 * x + 1); /* x in units of half pixels, from 0 */
            p[1] = (uint8_t)(6 * y + 3);
            p[2] = 77;
        }
    for (size_t s = 0; s < 6; s++) {
        const int height = sides[s][0], width = sides[s][1];
        tess__resizer *resizer = NULL;
        CHECK_OK(tess__resizer_create(*state, 40, 120, height, width, &resizer));
        tess__resizer_run(resizer, from, to);
        const double down = 40.0 / height, across = 120.0 / width;
        const double ratio = down < across ? down : across;
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                const uint8_t *p = to + (y * width + x) * 3;
                const double at_x = 60 + (x + 0.5 - width / 2.0) * ratio;
                const double at_y = 20 + (y + 0.5 - height / 2.0) * ratio;
                assert_int_equal(p[2], 77);
                /* A gradient stays itself where the filter lies inside the frame. */
                const double reach = ratio > 1 ? ratio : 1;
                if (at_x - reach >= 0 && at_x + reach <= 120)
                    assert_true(fabs(p[0] - 2 * at_x) <= 1.0);
                if (at_y - reach >= 0 && at_y + reach <= 40)
                    assert_true(fabs(p[1] - 6 * at_y) <= 1.0);
            }
        tess__resizer_destroy(resizer);
    }
    free(from);
    free(to);
}

/* ---- other things in, other things out ------------------------------------------------------- */

static void put_y4m(const char *name, const char *head, const uint8_t *planes, size_t n, int frames)
{
    uint8_t bytes[4096];
    size_t at = (size_t)snprintf((char *)bytes, sizeof bytes, "%s\n", head);
    for (int t = 0; t < frames; t++) {
        at += (size_t)snprintf((char *)bytes + at, sizeof bytes - at, "FRAME Ip\n");
        memcpy(bytes + at, planes, n);
        at += n;
    }
    write_file(in_folder(name), bytes, at);
}

/* 3 x 3 pixels in each layout: chroma planes are 2 x 2, 3 x 2 and 3 x 3. */
static void y4m_of_every_layout_is_read(void **state)
{
    static const struct {
        const char *head;
        size_t bytes;
        int grey; /* 1: no chroma */
    } cases[] = {
        {"YUV4MPEG2 W3 H3 F2:1", 9 + 8, 0},
        {"YUV4MPEG2 H3 W3 C420jpeg F25:2 A0:0", 9 + 8, 0},
        {"YUV4MPEG2 W3 H3 F2:1 C420mpeg2 Ip", 9 + 8, 0},
        {"YUV4MPEG2 W3 H3 C420paldv I? XYSCSS=420", 9 + 8, 0},
        {"YUV4MPEG2 W3 H3 F0:0 C422", 9 + 12, 0},
        {"YUV4MPEG2 W3 H3 F30000:1001 C444 XCOLORRANGE=LIMITED", 9 + 18, 0},
        {"YUV4MPEG2 W3 H3 F10:1 Cmono", 9, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t planes[27];
        memset(planes, 81, 9); /* red in BT.601: 81, 90, 240 */
        const size_t chroma = (cases[i].bytes - 9) / 2;
        memset(planes + 9, 90, chroma);
        memset(planes + 9 + chroma, 240, chroma);
        put_y4m("in.y4m", cases[i].head, planes, cases[i].bytes, 2);
        tess_clip_file *file = NULL;
        tess_clip clip;
        CHECK_OK(tess_clip_open(*state, in_folder("in.y4m"), NULL, &file));
        CHECK_OK(tess_clip_view(file, &clip));
        assert_int_equal(clip.frames, 2);
        for (int k = 0; k < 2 * 9; k++) {
            const uint8_t *p = clip.pixels + k * 3;
            const uint8_t want[2][3] = {{254, 0, 0}, {76, 76, 76}};
            for (int c = 0; c < 3; c++)
                assert_in_range(p[c] + 1 - want[cases[i].grey][c], 0, 2);
        }
        tess_clip_close(file);
    }
    /* The full range takes 0 and 255 as they are. */
    put_y4m("full.y4m", "YUV4MPEG2 W1 H2 F1:1 Cmono XCOLORRANGE=FULL", (const uint8_t[]){0, 255}, 2,
            1);
    tess_clip_file *file = NULL;
    tess_clip clip;
    CHECK_OK(tess_clip_open(*state, in_folder("full.y4m"), NULL, &file));
    CHECK_OK(tess_clip_view(file, &clip));
    assert_int_equal(clip.pixels[0], 0);
    assert_int_equal(clip.pixels[3], 255);
    tess_clip_close(file);
}

static void pictures_follow_in_the_order_of_their_numbers(void **state)
{
    if (!need("libpng"))
        return;
    static const char *const names[] = {"f1.png", "f2.PNG", "f10.png", "f010.png", "g0.png"};
    static const int order[] = {0, 1, 3, 2, 4};
    char name[64];
    mkdir(in_folder("pictures"), 0777);
    for (int i = 0; i < 5; i++) {
        uint8_t pixels[4 * 6];
        memset(pixels, 10 * i, sizeof pixels);
        snprintf(name, sizeof name, "pictures/%s", names[i]);
        CHECK_OK(
            tess_image_write(*state, in_folder(name), &(tess_image){4, 2, i % 2 ? 3 : 1, pixels}));
    }
    write_file(in_folder("pictures/notes.txt"), "no picture", 10);
    tess_clip_file *file = NULL;
    tess_clip clip;
    CHECK_OK(tess_clip_open(*state, in_folder("pictures"), &(tess_clip_opts){.fps = 12}, &file));
    CHECK_OK(tess_clip_view(file, &clip));
    assert_int_equal(clip.frames, 5);
    assert_int_equal(clip.height, 2);
    assert_int_equal(clip.width, 4);
    assert_true(clip.fps == 12);
    for (int t = 0; t < 5; t++)
        for (int k = 0; k < 24; k++)
            assert_int_equal(clip.pixels[t * 24 + k], 10 * order[t]);
    tess_clip_close(file);
}

/* Transparency lies over black, mixed in linear light as these files are sRGB (half of 255 is 186
 * or 188 then); 16 bits are cut to 8, grey and palettes are widened. */
static void every_kind_of_png_is_read(void **state)
{
#ifdef TESS_HAVE_PNG
    static const png_byte rgba[2][4] = {{255, 100, 0, 255}, {255, 255, 255, 128}};
    static const png_byte ga[2][2] = {{100, 255}, {255, 0}};
    static const png_uint_16 wide[2][3] = {{65535, 25700, 0}, {32896, 32896, 32896}};
    static const png_byte indices[2] = {1, 0};
    static const png_byte map[2][4] = {{255, 255, 255, 128}, {255, 100, 0, 255}};
    const struct {
        png_uint_32 format;
        const void *pixels, *colours;
        uint8_t want[2][3];
    } cases[] = {
        {PNG_FORMAT_RGBA, rgba, NULL, {{255, 100, 0}, {187, 187, 187}}},
        {PNG_FORMAT_GA, ga, NULL, {{100, 100, 100}, {0, 0, 0}}},
        {PNG_FORMAT_LINEAR_Y | PNG_FORMAT_FLAG_COLOR, wide, NULL, {{255, 100, 0}, {128, 128, 128}}},
        {PNG_FORMAT_RGBA_COLORMAP, indices, map, {{255, 100, 0}, {187, 187, 187}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        png_image image = {.version = PNG_IMAGE_VERSION,
                           .width = 2,
                           .height = 1,
                           .format = cases[i].format,
                           .colormap_entries = 2};
        assert_true(png_image_write_to_file(&image, in_folder("kind.png"), 0, cases[i].pixels, 0,
                                            cases[i].colours));
        int height, width;
        uint8_t *pixels;
        CHECK_OK(tess__png_read(*state, in_folder("kind.png"), &height, &width, &pixels));
        assert_true(height == 1 && width == 2);
        for (int k = 0; k < 6; k++)
            assert_in_range(pixels[k] + 1 - cases[i].want[k / 3][k % 3], 0, 2);
        tess__free(*state, pixels);
    }
#else
    (void)state;
    (void)need("libpng");
#endif
}

/* A sheet has a row per clip, frames enlarged to 96, and gaps of 2; side by side is one clip. */
static void clips_are_shown_together(void **state)
{
    tess_clip clips[3];
    for (int i = 0; i < 3; i++)
        clips[i] = make_clip(4, 16, 24, 8);
    memset((uint8_t *)clips[2].pixels, 200, clip_bytes(&clips[2]));
    tess_clip_file *file = NULL;
    tess_clip back;
    CHECK_OK(tess_clip_write(*state, in_folder("three.y4m"), clips, 3));
    CHECK_OK(tess_clip_open(*state, in_folder("three.y4m"), NULL, &file));
    CHECK_OK(tess_clip_view(file, &back));
    assert_int_equal(back.width, 3 * 24 + 2);
    assert_int_equal(back.height, 16);
    assert_in_range(back.pixels[(5 * 74 + 60) * 3], 198, 202);
    tess_clip_close(file);
    if (need("libpng")) {
        mkdir(in_folder("sheet"), 0777);
        CHECK_OK(tess_clip_write(*state, in_folder("sheet/a.png"), clips, 3));
        CHECK_OK(tess_clip_open(*state, in_folder("sheet"), NULL, &file));
        CHECK_OK(tess_clip_view(file, &back));
        assert_int_equal(back.width, 2 + 4 * (24 * 4 + 2));
        assert_int_equal(back.height, 2 + 3 * (16 * 4 + 2));
        const uint8_t *corner = back.pixels + ((size_t)(2 + 2 * 66) * (size_t)back.width + 2) * 3;
        assert_int_equal(corner[0], 200);
        assert_int_equal(corner[-3], 40);
        assert_memory_equal(back.pixels + ((size_t)2 * (size_t)back.width + 2) * 3, clips[0].pixels,
                            3);
        tess_clip_close(file);
    }
    for (int i = 0; i < 3; i++)
        free((void *)clips[i].pixels);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(y4m_comes_back_within_rounding),
    cmocka_unit_test(every_colour_survives_yuv_within_2),
    cmocka_unit_test(gif_comes_back_within_its_palette),
    cmocka_unit_test(mp4_comes_back_within_the_codec),
    cmocka_unit_test(the_same_clip_gives_the_same_bytes),
    cmocka_unit_test(frames_are_taken_at_the_wanted_rate),
    cmocka_unit_test(frames_are_scaled_to_cover_and_cut_at_the_centre),
    cmocka_unit_test(y4m_of_every_layout_is_read),
    cmocka_unit_test(pictures_follow_in_the_order_of_their_numbers),
    cmocka_unit_test(every_kind_of_png_is_read),
    cmocka_unit_test(clips_are_shown_together),
};
RUN_TESTS_WITH(tests, make_world, drop_world)
