/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - what is in a folder, in the order of the names.
 *
 * Names are compared with the numbers in them as numbers, so that frame-10.png follows frame-9.png.
 * Names that begin with a dot are left out.
 */
#include "media_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int tess__ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
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

typedef struct {
    tess__arena *arena;
    const char *folder;
    char **paths;
    int n, room;
} listing;

static tess_status add(listing *l, const char *name)
{
    enum { MOST = 1 << 24 };
    const size_t length = strlen(l->folder) + strlen(name) + 2;
    if (l->n == l->room) {
        if (l->n == MOST)
            return tess__fail(TESS_ENOTSUP, "%s: has more than %d files", l->folder, MOST);
        const int room = l->room ? 2 * l->room : 64;
        char **paths = TESS_TAKE(l->arena, (size_t)room * sizeof *paths);
        if (l->n > 0)
            memcpy(paths, l->paths, (size_t)l->n * sizeof *paths);
        l->paths = paths;
        l->room = room;
    }
    char *path = TESS_TAKE(l->arena, length);
    const size_t slash = l->folder[strlen(l->folder) - 1] == '/';
    snprintf(path, length, "%s%s%s", l->folder, slash ? "" : "/", name);
    l->paths[l->n++] = path;
    return TESS_OK;
}

tess_status tess__folder_list(tess__arena *arena, const char *folder,
                              int (*wanted)(const char *folder, const char *name), char ***paths,
                              int *n)
{
    listing l = {.arena = arena, .folder = folder};
    DIR *dir = opendir(folder);
    if (!dir)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", folder);
    tess_status status = TESS_OK;
    errno = 0;
    for (const struct dirent *e; status == TESS_OK && (e = readdir(dir)); errno = 0)
        if (e->d_name[0] != '.' && wanted(folder, e->d_name))
            status = add(&l, e->d_name);
    if (status == TESS_OK && errno)
        status = tess__fail(TESS_EIO, "%s: cannot read: %m", folder);
    closedir(dir);
    if (status != TESS_OK)
        return status;
    if (l.n > 0)
        qsort(l.paths, (size_t)l.n, sizeof *l.paths, by_name);
    *paths = l.paths;
    *n = l.n;
    return TESS_OK;
}

int tess__folder_has(const char *folder, int (*wanted)(const char *folder, const char *name))
{
    DIR *dir = opendir(folder);
    int found = 0;
    if (!dir)
        return 0;
    for (const struct dirent *e; !found && (e = readdir(dir));)
        found = e->d_name[0] != '.' && wanted(folder, e->d_name);
    closedir(dir);
    return found;
}
