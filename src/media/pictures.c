/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c - a folder of PNGs as a clip: its frames in the order of their names. All pictures
 * must have the size of the first. */
#include "media_internal.h"

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    tess__arena arena;
    char **names; /* paths */
    int n, at;
    uint8_t *rgb;
} pictures;

static int is_picture(const char *folder, const char *name)
{
    (void)folder;
    return tess__ends_in(name, ".png");
}

static tess_status next_picture(tess__reader *reader, const uint8_t **rgb, double *time)
{
    pictures *p = (pictures *)reader;
    *time = p->at;
    if (p->at == p->n) {
        *rgb = NULL;
        return TESS_OK;
    }
    if (p->at > 0 || !p->rgb) { /* the first was read to know the size */
        int height, width;
        tess__free(reader->ctx, p->rgb);
        p->rgb = NULL;
        TESS_TRY(tess__png_read(reader->ctx, p->names[p->at], &height, &width, &p->rgb));
        if (height != reader->height || width != reader->width)
            return tess__fail(TESS_EFORMAT, "%s: is %d x %d, the first picture is %d x %d",
                              p->names[p->at], height, width, reader->height, reader->width);
    }
    p->at++;
    *rgb = p->rgb;
    return TESS_OK;
}

static void close_pictures(tess__reader *reader)
{
    pictures *p = (pictures *)reader;
    tess__free(reader->ctx, p->rgb);
    tess__arena_free(&p->arena);
    tess__free(reader->ctx, p);
}

tess_status tess__pictures_open(tess_ctx *ctx, const char *folder, tess__reader **reader)
{
    pictures *p = tess__alloc_zero(ctx, sizeof *p);
    if (!p)
        return TESS_ENOMEM;
    p->arena.ctx = ctx;
    p->reader =
        (tess__reader){.ctx = ctx, .path = folder, .next = next_picture, .close = close_pictures};
    tess_status status = tess__folder_list(&p->arena, folder, is_picture, &p->names, &p->n);
    if (status == TESS_OK && p->n == 0)
        status = tess__fail(TESS_EFORMAT, "%s: has no pictures that end in .png", folder);
    if (status == TESS_OK)
        status = tess__png_read(ctx, p->names[0], &p->reader.height, &p->reader.width, &p->rgb);
    if (status != TESS_OK) {
        close_pictures(&p->reader);
        return status;
    }
    *reader = &p->reader;
    return TESS_OK;
}
