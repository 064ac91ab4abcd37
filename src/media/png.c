/* SPDX-License-Identifier: Apache-2.0 */
/* png.c - pictures as PNG files, through libpng.
 *
 * libpng leaves an error by longjmp. Everything that must survive the jump lives in one struct, and
 * the function that calls setjmp has no local that changes after it. The bytes go through
 * tess__out, so that the file appears only when it is complete; memory comes from the context.
 */
#include "media.h"

#include "tess_config.h"

static tess_status check_image(const tess_ctx *ctx, const char *path, const tess_image *image)
{
    enum { SIDE_MAX = 65535 };
    if (!ctx || !path || !image)
        return tess__fail(TESS_EINVAL, "tess_image_write: %s is NULL",
                          !ctx    ? "ctx"
                          : !path ? "path"
                                  : "image");
    if (!image->pixels)
        return tess__fail(TESS_EINVAL, "tess_image_write: pixels is NULL");
    if (image->width < 1 || image->width > SIDE_MAX || image->height < 1 ||
        image->height > SIDE_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_image_write: the image is %d x %d, sides must be 1..%d",
                          image->width, image->height, SIDE_MAX);
    if (image->channels != 1 && image->channels != 3)
        return tess__fail(TESS_EINVAL, "tess_image_write: channels is %d, must be 1 or 3",
                          image->channels);
    return TESS_OK;
}

#ifdef TESS_HAVE_PNG
#include <png.h>

typedef struct {
    tess_ctx *ctx;
    const char *path;
    tess__out *out;
    png_structp png;
    png_infop info;
    tess_status status; /* of the callback that made libpng give up */
} writer;

static void on_error(png_structp png, png_const_charp message)
{
    writer *w = png_get_error_ptr(png);
    if (w->status == TESS_OK)
        w->status = tess__fail(TESS_EIO, "%s: libpng: %s", w->path, message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    const writer *w = png_get_error_ptr(png);
    tess__log(w->ctx, TESS_LOG_WARN, "%s: libpng: %s", w->path, message);
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    writer *w = png_get_mem_ptr(png);
    void *memory = tess__alloc(w->ctx, bytes);
    if (!memory)
        w->status = TESS_ENOMEM; /* its sentence stands; libpng's own would hide it */
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    const writer *w = png_get_mem_ptr(png);
    tess__free(w->ctx, memory);
}

static void on_write(png_structp png, png_bytep bytes, size_t n)
{
    writer *w = png_get_io_ptr(png);
    const tess_status status = tess__out_write(w->out, bytes, n);
    if (status != TESS_OK) {
        w->status = status;
        png_longjmp(png, 1);
    }
}

static void on_flush(png_structp png)
{
    (void)png; /* tess__out_commit does it */
}

/* Returns w->status; the jump lands here. */
static tess_status write_rows(writer *w, const tess_image *image)
{
    if (setjmp(png_jmpbuf(w->png))) /* NOLINT: libpng's way to report */
        return w->status;
    png_set_write_fn(w->png, w, on_write, on_flush);
    png_set_IHDR(w->png, w->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(w->png, w->info);
    const size_t stride = (size_t)image->width * (size_t)image->channels;
    for (size_t y = 0; y < (size_t)image->height; y++)
        png_write_row(w->png, image->pixels + y * stride);
    png_write_end(w->png, w->info);
    return TESS_OK;
}

tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image)
{
    TESS_TRY(check_image(ctx, path, image));
    writer w = {.ctx = ctx, .path = path};
    TESS_TRY(tess__out_open(ctx, path, &w.out));
    w.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &w, on_error, on_warning, &w, on_alloc,
                                      on_free);
    w.info = w.png ? png_create_info_struct(w.png) : NULL;
    tess_status status = w.info ? write_rows(&w, image) : TESS_ENOMEM;
    png_destroy_write_struct(&w.png, &w.info);
    if (status == TESS_OK)
        return tess__out_commit(w.out);
    tess__out_abort(w.out);
    return status;
}
#else
tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image)
{
    TESS_TRY(check_image(ctx, path, image));
    return tess__fail(TESS_ENOTSUP, "tess_image_write: this build has no libpng");
}
#endif
