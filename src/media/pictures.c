/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c - a folder of pictures as a clip: its frames in the order of their names. All pictures
 * must have the size of the first. A picture alone is a clip of one frame. PNGs are read by libpng,
 * JPEGs by FFmpeg. */
#include "media_internal.h"

#include <string.h>

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    tess__arena arena;
    char **names; /* paths */
    int n, at;
    uint8_t *rgb;
    int held; /* the picture in rgb */
} pictures;

int tess__is_picture(const char *folder, const char *name)
{
    (void)folder;
    return tess__ends_in(name, ".png") || tess__ends_in(name, ".jpg") ||
           tess__ends_in(name, ".jpeg");
}

static int is_png(const char *folder, const char *name)
{
    (void)folder;
    return tess__ends_in(name, ".png");
}

static tess_status read_jpeg(tess_ctx *ctx, const char *path, int *height, int *width,
                             uint8_t **pixels)
{
    tess__reader *file;
    const uint8_t *rgb;
    double time;
    TESS_TRY(tess__video_open(ctx, path, 0, &file));
    tess_status status = file->next(file, &rgb, &time);
    if (status == TESS_OK) {
        const size_t bytes = (size_t)file->height * (size_t)file->width * 3;
        *height = file->height;
        *width = file->width;
        *pixels = tess__alloc(ctx, bytes);
        if (*pixels)
            memcpy(*pixels, rgb, bytes);
        status = *pixels ? TESS_OK : TESS_ENOMEM;
    }
    file->close(file);
    return status;
}

static tess_status read_picture(tess_ctx *ctx, const char *path, int *height, int *width,
                                uint8_t **pixels)
{
    return is_png(NULL, path) ? tess__png_read(ctx, path, height, width, pixels)
                              : read_jpeg(ctx, path, height, width, pixels);
}

static tess_status next_picture(tess__reader *reader, const uint8_t **rgb, double *time)
{
    pictures *p = (pictures *)reader;
    *time = p->at;
    if (p->at == p->n) {
        *rgb = NULL;
        return TESS_OK;
    }
    if (p->at != p->held || !p->rgb) { /* the first was read to know the size */
        int height, width;
        tess__free(reader->ctx, p->rgb);
        p->rgb = NULL;
        TESS_TRY(read_picture(reader->ctx, p->names[p->at], &height, &width, &p->rgb));
        if (height != reader->height || width != reader->width)
            return tess__fail(TESS_EFORMAT, "%s: is %d x %d, the first picture is %d x %d",
                              p->names[p->at], height, width, reader->height, reader->width);
    }
    p->held = p->at++;
    *rgb = p->rgb;
    return TESS_OK;
}

static tess_status list_pictures(tess__reader *reader, tess__arena *arena, tess__frames *frames)
{
    (void)arena;
    *frames = (tess__frames){.n = ((pictures *)reader)->n};
    return TESS_OK;
}

static tess_status picture_at(tess__reader *reader, const tess__frames *frames, int k,
                              const uint8_t **rgb)
{
    pictures *p = (pictures *)reader;
    double time;
    if (k >= p->n)
        return tess__fail(TESS_EFORMAT, "%s: has %d pictures, had %d before", reader->path, p->n,
                          frames->n);
    p->at = k;
    return next_picture(reader, rgb, &time);
}

static void close_pictures(tess__reader *reader)
{
    pictures *p = (pictures *)reader;
    tess__free(reader->ctx, p->rgb);
    tess__arena_free(&p->arena);
    tess__free(reader->ctx, p);
}

/* The names of a folder's pictures; of a file that one. PNGs alone, where there are some: what lies
 * beside them is of another kind. */
static tess_status find_names(pictures *p, const char *path, int folder)
{
    if (!folder) {
        p->names = TESS_TAKE(&p->arena, sizeof *p->names);
        p->names[0] = tess__arena_string(&p->arena, path, strlen(path));
        p->n = 1;
        return p->names[0] ? TESS_OK : TESS_ENOMEM;
    }
    const int pngs = tess__folder_has(path, is_png);
    TESS_TRY(
        tess__folder_list(&p->arena, path, pngs ? is_png : tess__is_picture, &p->names, &p->n));
    if (p->n == 0)
        return tess__fail(TESS_EFORMAT, "%s: has no pictures that end in .png, .jpg or .jpeg",
                          path);
    return TESS_OK;
}

tess_status tess__pictures_open(tess_ctx *ctx, const char *path, int folder, tess__reader **reader)
{
    pictures *p = TESS_ALLOC_ZERO(ctx, sizeof *p);
    p->arena.ctx = ctx;
    p->reader = (tess__reader){.ctx = ctx,
                               .path = path,
                               .next = next_picture,
                               .list = list_pictures,
                               .at = picture_at,
                               .close = close_pictures};
    tess_status status = find_names(p, path, folder);
    if (status == TESS_OK)
        status = read_picture(ctx, p->names[0], &p->reader.height, &p->reader.width, &p->rgb);
    if (status != TESS_OK) {
        close_pictures(&p->reader);
        return status;
    }
    *reader = &p->reader;
    return TESS_OK;
}
