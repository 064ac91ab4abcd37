/* SPDX-License-Identifier: Apache-2.0 */
/* pictures.c - a folder of PNGs as a clip: its frames in the order of their names.
 *
 * Names are compared with the numbers in them as numbers, so that frame-10.png follows frame-9.png.
 * All pictures must have the size of the first.
 */
#include "media.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    tess__arena arena;
    char **names; /* paths */
    int n, at;
    uint8_t *rgb;
} pictures;

static int is_picture(const char *name)
{
    const size_t n = strlen(name);
    return name[0] != '.' && n > 4 && strcasecmp(name + n - 4, ".png") == 0;
}

int tess__pictures_there(const char *folder)
{
    DIR *dir = opendir(folder);
    int found = 0;
    if (!dir)
        return 0;
    for (const struct dirent *e; !found && (e = readdir(dir));)
        found = is_picture(e->d_name);
    closedir(dir);
    return found;
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits count by their value; where that leaves names equal, by their characters. */
static int by_name(const void *x, const void *y)
{
    const char *const whole_a = *(char *const *)x, *const whole_b = *(char *const *)y;
    const char *a = whole_a, *b = whole_b;
    while (*a && *b) {
        if (!is_digit(*a) || !is_digit(*b)) {
            if (*a != *b)
                return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
            a++;
            b++;
            continue;
        }
        a += strspn(a, "0");
        b += strspn(b, "0");
        const size_t digits_a = strspn(a, "0123456789"), digits_b = strspn(b, "0123456789");
        if (digits_a != digits_b)
            return digits_a < digits_b ? -1 : 1;
        const int order = strncmp(a, b, digits_a);
        if (order)
            return order;
        a += digits_a;
        b += digits_b;
    }
    return *a || *b ? (*a ? 1 : -1) : strcmp(whole_a, whole_b);
}

static tess_status add_name(pictures *p, const char *folder, const char *name, int *room)
{
    const size_t length = strlen(folder) + strlen(name) + 2;
    if (p->n == *room) {
        const int more = *room ? 2 * *room : 64;
        if (more > 2 * TESS__CLIP_FRAMES_MAX)
            return tess__fail(TESS_ENOTSUP, "%s: has more than %d pictures", folder,
                              TESS__CLIP_FRAMES_MAX);
        char **names = tess__arena_take(&p->arena, (size_t)more * sizeof *names);
        if (!names)
            return TESS_ENOMEM;
        if (p->n > 0)
            memcpy(names, p->names, (size_t)p->n * sizeof *names);
        p->names = names;
        *room = more;
    }
    char *path = tess__arena_take(&p->arena, length);
    if (!path)
        return TESS_ENOMEM;
    snprintf(path, length, "%s/%s", folder, name);
    p->names[p->n++] = path;
    return TESS_OK;
}

static tess_status list(pictures *p, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", folder);
    tess_status status = TESS_OK;
    int room = 0;
    errno = 0;
    for (const struct dirent *e; status == TESS_OK && (e = readdir(dir)); errno = 0)
        if (is_picture(e->d_name))
            status = add_name(p, folder, e->d_name, &room);
    if (status == TESS_OK && errno)
        status = tess__fail(TESS_EIO, "%s: cannot read: %m", folder);
    closedir(dir);
    if (status == TESS_OK && p->n == 0)
        status = tess__fail(TESS_EFORMAT, "%s: has no pictures that end in .png", folder);
    if (status == TESS_OK)
        qsort(p->names, (size_t)p->n, sizeof *p->names, by_name);
    return status;
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
    tess_status status = list(p, folder);
    if (status == TESS_OK)
        status = tess__png_read(ctx, p->names[0], &p->reader.height, &p->reader.width, &p->rgb);
    if (status != TESS_OK) {
        close_pictures(&p->reader);
        return status;
    }
    *reader = &p->reader;
    return TESS_OK;
}
