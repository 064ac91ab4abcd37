/* SPDX-License-Identifier: Apache-2.0 */
/* png.c - pictures to PNG files and back, through libpng.
 *
 * libpng leaves an error by longjmp. Everything that must survive the jump lives in one struct, and
 * the function that calls setjmp has no local that changes after it. The bytes go through
 * tess__out, so that the file appears only when it is complete; memory comes from the context.
 *
 * What is read becomes 8-bit RGB: palettes and grey are widened, 16 bits are cut to 8, transparency
 * is laid over black, in linear light where the file names its gamma.
 */
#include "media_internal.h"

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
#include <errno.h>
#include <png.h>

/* What reading and writing have in common; the first member of each. */
typedef struct {
    tess_ctx *ctx;
    const char *path;
    png_structp png;
    png_infop info;
    tess_status wrong;            /* what an error of libpng's own is */
    tess_log_level warning_level; /* of libpng's warnings in the log */
    tess_status status;           /* of the callback that made libpng give up */
} job;

static void on_error(png_structp png, png_const_charp message)
{
    job *j = png_get_error_ptr(png);
    if (j->status == TESS_OK)
        j->status = tess__fail(j->wrong, "%s: libpng: %s", j->path, message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    const job *j = png_get_error_ptr(png);
    tess__log(j->ctx, j->warning_level, "%s: libpng: %s", j->path, message);
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    job *j = png_get_mem_ptr(png);
    void *memory = tess__alloc(j->ctx, bytes);
    if (!memory)
        j->status = TESS_ENOMEM; /* its sentence stands; libpng's own would hide it */
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    const job *j = png_get_mem_ptr(png);
    tess__free(j->ctx, memory);
}

_Noreturn static void give_up(job *j, tess_status status)
{
    j->status = status;
    png_longjmp(j->png, 1);
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct {
    job job;
    tess__out *out;
} writer;

static void on_write(png_structp png, png_bytep bytes, size_t n)
{
    writer *w = png_get_io_ptr(png);
    const tess_status status = tess__out_write(w->out, bytes, n);
    if (status != TESS_OK)
        give_up(&w->job, status);
}

static void on_flush(png_structp png)
{
    (void)png; /* tess__out_commit does it */
}

/* The jump lands here. */
static tess_status write_rows(writer *w, const tess_image *image)
{
    const png_structp png = w->job.png;
    const png_infop info = w->job.info;
    if (setjmp(png_jmpbuf(png))) /* NOLINT: libpng's way to report */
        return w->job.status;
    png_set_write_fn(png, w, on_write, on_flush);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    const size_t stride = (size_t)image->width * (size_t)image->channels;
    for (size_t y = 0; y < (size_t)image->height; y++)
        png_write_row(png, image->pixels + y * stride);
    png_write_end(png, info);
    return TESS_OK;
}

tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image)
{
    TESS_TRY(check_image(ctx, path, image));
    writer w = {{.ctx = ctx, .path = path, .wrong = TESS_EIO, .warning_level = TESS_LOG_WARN},
                NULL};
    job *j = &w.job;
    TESS_TRY(tess__out_open(ctx, path, &w.out));
    j->png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, j, on_error, on_warning, j, on_alloc,
                                       on_free);
    j->info = j->png ? png_create_info_struct(j->png) : NULL;
    const tess_status status = j->info ? write_rows(&w, image) : TESS_ENOMEM;
    png_destroy_write_struct(&j->png, &j->info);
    if (status == TESS_OK)
        return tess__out_commit(w.out);
    tess__out_abort(w.out);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct {
    job job;
    tess__source source;
    size_t offset;
    int height, width;
    uint8_t *pixels;
    png_bytep *rows;
} reader;

static void on_read(png_structp png, png_bytep bytes, size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (n > r->source.bytes - r->offset)
        give_up(&r->job, tess__fail(TESS_EFORMAT, "%s: is cut short", r->job.path));
    if (tess__source_copy(&r->source, r->offset, bytes, n))
        give_up(&r->job, tess__source_failed(&r->source, errno));
    r->offset += n;
}

static void alloc_pixels(reader *r)
{
    const size_t stride = (size_t)r->width * 3;
    r->pixels = tess__alloc(r->job.ctx, (size_t)r->height * stride);
    r->rows = r->pixels ? tess__alloc(r->job.ctx, (size_t)r->height * sizeof *r->rows) : NULL;
    if (!r->rows)
        give_up(&r->job, TESS_ENOMEM);
    for (int y = 0; y < r->height; y++)
        r->rows[y] = r->pixels + (size_t)y * stride;
}

/* The jump lands here. */
static tess_status read_rows(reader *r)
{
    const png_structp png = r->job.png;
    const png_infop info = r->job.info;
    if (setjmp(png_jmpbuf(png))) /* NOLINT: libpng's way to report */
        return r->job.status;
    png_set_read_fn(png, r, on_read);
    png_set_user_limits(png, TESS__CLIP_SIDE_MAX, TESS__CLIP_SIDE_MAX);
    png_read_info(png, info);
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    if (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA ||
        png_get_valid(png, info, PNG_INFO_tRNS)) {
        png_color_16 black = {0};
        png_set_background(png, &black, PNG_BACKGROUND_GAMMA_SCREEN, 0, 1.0);
    }
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    r->height = (int)png_get_image_height(png, info);
    r->width = (int)png_get_image_width(png, info);
    if (png_get_rowbytes(png, info) != (size_t)r->width * 3)
        png_error(png, "rows are not RGB");
    alloc_pixels(r);
    png_read_image(png, r->rows);
    png_read_end(png, NULL);
    return TESS_OK;
}

tess_status tess__png_read(tess_ctx *ctx, const char *path, int *height, int *width,
                           uint8_t **pixels)
{
    reader r = {
        .job = {.ctx = ctx, .path = path, .wrong = TESS_EFORMAT, .warning_level = TESS_LOG_DEBUG}};
    job *j = &r.job;
    TESS_TRY(tess__source_open(path, &r.source));
    j->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, j, on_error, on_warning, j, on_alloc,
                                      on_free);
    j->info = j->png ? png_create_info_struct(j->png) : NULL;
    const tess_status status = j->info ? read_rows(&r) : TESS_ENOMEM;
    png_destroy_read_struct(&j->png, &j->info, NULL);
    tess__free(ctx, r.rows);
    tess__source_close(&r.source);
    if (status != TESS_OK) {
        tess__free(ctx, r.pixels);
        return status;
    }
    *height = r.height;
    *width = r.width;
    *pixels = r.pixels;
    return TESS_OK;
}
#else
tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image)
{
    TESS_TRY(check_image(ctx, path, image));
    return tess__fail(TESS_ENOTSUP, "tess_image_write: this build has no libpng");
}

tess_status tess__png_read(tess_ctx *ctx, const char *path, int *height, int *width,
                           uint8_t **pixels)
{
    (void)ctx;
    (void)height;
    (void)width;
    (void)pixels;
    return tess__fail(TESS_ENOTSUP, "%s: this build has no libpng", path);
}
#endif
