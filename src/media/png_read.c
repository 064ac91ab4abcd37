/* SPDX-License-Identifier: Apache-2.0 */
/* png_read.c - reading PNG through libpng: any kind becomes 8-bit RGB.
 *
 * Palettes and grey are widened, 16 bits are cut to 8, transparency is laid over black, in linear
 * light where the file names its gamma. As in png.c everything that must survive libpng's longjmp
 * lives in one struct, and the function that calls setjmp changes no local of its own behind it.
 */
#include "media.h"

#include "tess_config.h"

#ifdef TESS_HAVE_PNG
#include <errno.h>
#include <png.h>

typedef struct {
    tess_ctx *ctx;
    const char *path;
    tess__source source;
    size_t offset;
    png_structp png;
    png_infop info;
    tess_status status; /* of the callback that made libpng give up */
    int height, width;
    uint8_t *pixels;
    png_bytep *rows;
} picture;

static void on_error(png_structp png, png_const_charp message)
{
    picture *p = png_get_error_ptr(png);
    if (p->status == TESS_OK)
        p->status = tess__fail(TESS_EFORMAT, "%s: libpng: %s", p->path, message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    const picture *p = png_get_error_ptr(png);
    tess__log(p->ctx, TESS_LOG_DEBUG, "%s: libpng: %s", p->path, message);
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    picture *p = png_get_mem_ptr(png);
    void *memory = tess__alloc(p->ctx, bytes);
    if (!memory)
        p->status = TESS_ENOMEM; /* its sentence stands; libpng's own would hide it */
    return memory;
}

static void on_free(png_structp png, png_voidp memory)
{
    const picture *p = png_get_mem_ptr(png);
    tess__free(p->ctx, memory);
}

static void on_read(png_structp png, png_bytep bytes, size_t n)
{
    picture *p = png_get_io_ptr(png);
    if (n > p->source.bytes - p->offset) {
        p->status = tess__fail(TESS_EFORMAT, "%s: is cut short", p->path);
        png_longjmp(png, 1);
    }
    if (tess__source_copy(&p->source, p->offset, bytes, n)) {
        p->status = tess__source_failed(&p->source, errno);
        png_longjmp(png, 1);
    }
    p->offset += n;
}

static void take_memory(picture *p)
{
    const size_t stride = (size_t)p->width * 3;
    p->pixels = tess__alloc(p->ctx, (size_t)p->height * stride);
    p->rows = p->pixels ? tess__alloc(p->ctx, (size_t)p->height * sizeof *p->rows) : NULL;
    if (!p->rows) {
        p->status = TESS_ENOMEM;
        png_longjmp(p->png, 1);
    }
    for (int y = 0; y < p->height; y++)
        p->rows[y] = p->pixels + (size_t)y * stride;
}

/* Returns the status; the jump lands here. */
static tess_status read_rows(picture *p)
{
    if (setjmp(png_jmpbuf(p->png))) /* NOLINT: libpng's way to report */
        return p->status;
    png_set_read_fn(p->png, p, on_read);
    png_set_user_limits(p->png, TESS__CLIP_SIDE_MAX, TESS__CLIP_SIDE_MAX);
    png_read_info(p->png, p->info);
    png_set_expand(p->png);
    png_set_scale_16(p->png);
    png_set_gray_to_rgb(p->png);
    if (png_get_color_type(p->png, p->info) & PNG_COLOR_MASK_ALPHA ||
        png_get_valid(p->png, p->info, PNG_INFO_tRNS)) {
        png_color_16 black = {0};
        png_set_background(p->png, &black, PNG_BACKGROUND_GAMMA_SCREEN, 0, 1.0);
    }
    png_set_interlace_handling(p->png);
    png_read_update_info(p->png, p->info);
    p->height = (int)png_get_image_height(p->png, p->info);
    p->width = (int)png_get_image_width(p->png, p->info);
    if (png_get_rowbytes(p->png, p->info) != (size_t)p->width * 3)
        png_error(p->png, "rows are not RGB");
    take_memory(p);
    png_read_image(p->png, p->rows);
    png_read_end(p->png, NULL);
    return TESS_OK;
}

tess_status tess__png_read(tess_ctx *ctx, const char *path, int *height, int *width,
                           uint8_t **pixels)
{
    picture p = {.ctx = ctx, .path = path};
    TESS_TRY(tess__source_open(path, &p.source));
    p.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &p, on_error, on_warning, &p, on_alloc,
                                     on_free);
    p.info = p.png ? png_create_info_struct(p.png) : NULL;
    const tess_status status = p.info ? read_rows(&p) : TESS_ENOMEM;
    png_destroy_read_struct(&p.png, &p.info, NULL);
    tess__free(ctx, p.rows);
    tess__source_close(&p.source);
    if (status != TESS_OK) {
        tess__free(ctx, p.pixels);
        return status;
    }
    *height = p.height;
    *width = p.width;
    *pixels = p.pixels;
    return TESS_OK;
}
#else
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
