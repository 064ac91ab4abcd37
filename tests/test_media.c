/* SPDX-License-Identifier: Apache-2.0 */
/* test_media.c - pictures written by the training library, read back by libpng. */
#include "tessera/advanced/clip.h"
#include "tessera/media.h"
#include "test.h"

#include <png.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/tess-media-XXXXXX.png";

static void check_round_trip(tess_ctx *ctx, int width, int height, int channels)
{
    const size_t n = (size_t)width * (size_t)height * (size_t)channels;
    uint8_t *pixels = malloc(n), *back = malloc(n);
    assert_true(pixels && back);
    for (size_t i = 0; i < n; i++)
        pixels[i] = (uint8_t)(i * 37 + i / 251);
    CHECK_OK(tess_image_write(ctx, path, &(tess_image){width, height, channels, pixels}));

    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, path));
    assert_int_equal(image.width, width);
    assert_int_equal(image.height, height);
    image.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_memory_equal(pixels, back, n);
    free(pixels);
    free(back);
}

static void pictures_come_back_as_they_were(void **state)
{
    tess_ctx *ctx = *state;
    check_round_trip(ctx, 1, 1, 1);
    check_round_trip(ctx, 1, 1, 3);
    check_round_trip(ctx, 257, 3, 3);
    check_round_trip(ctx, 640, 480, 3);
    check_round_trip(ctx, 65535, 2, 1);
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
}

static void a_wrong_picture_gets_a_sentence(void **state)
{
    tess_ctx *ctx = *state;
    const uint8_t dot[3] = {1, 2, 3};
    CHECK_FAILS(tess_image_write(ctx, path, &(tess_image){0, 5, 1, dot}), TESS_EINVAL,
                "tess_image_write: the image is 0 x 5, sides must be 1..65535");
    CHECK_FAILS(tess_image_write(ctx, path, &(tess_image){1, 70000, 1, dot}), TESS_EINVAL,
                "tess_image_write: the image is 1 x 70000, sides must be 1..65535");
    CHECK_FAILS(tess_image_write(ctx, path, &(tess_image){1, 1, 2, dot}), TESS_EINVAL,
                "tess_image_write: channels is 2, must be 1 or 3");
    CHECK_FAILS(tess_image_write(ctx, path, &(tess_image){1, 1, 3, NULL}), TESS_EINVAL,
                "tess_image_write: pixels is NULL");
    CHECK_FAILS(tess_image_write(ctx, NULL, NULL), TESS_EINVAL, "tess_image_write: path is NULL");
    assert_int_equal(tess_image_write(ctx, "/no/such/folder/x.png", &(tess_image){1, 1, 3, dot}),
                     TESS_EIO);
    assert_non_null(strstr(tess_last_error(), "/no/such/folder/x.png: "));
}

static void the_components_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < tess_train_component_count(); i++) {
        tess_component c;
        CHECK_OK(tess_train_component_query(i, &c));
        assert_true(c.name[0] && c.effect[0]);
    }
    tess_component c;
    CHECK_FAILS(tess_train_component_query(3, &c), TESS_EINVAL,
                "tess_train_component_query: index is 3, must be 0..2");
}

static int make_ctx(void **state)
{
    const int fd = mkstemps(path, 4);
    if (fd < 0)
        return -1;
    close(fd);
    return tess_ctx_create(NULL, (tess_ctx **)state);
}

static int drop_ctx(void **state)
{
    unlink(path);
    tess_ctx_destroy(*state);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pictures_come_back_as_they_were),
    cmocka_unit_test(a_wrong_picture_gets_a_sentence),
    cmocka_unit_test(the_components_are_named),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
