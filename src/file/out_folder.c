/* SPDX-License-Identifier: Apache-2.0 */
/* out_folder.c - several files that appear in a folder together, or not at all.
 *
 * Files are written to a temporary folder, .tessera-<pid>-<n>.tmp. Where the destination does not
 * exist yet, that folder lies beside it and becomes it by one rename: the destination is complete
 * from its first moment. Where it exists, the temporary folder lies inside, and commit renames the
 * files one by one, in the order they were asked for, over their namesakes: nothing changes before
 * all are complete and on disk, other files stay, and only a machine that stops between two of
 * these renames leaves some files new and some old.
 */
#include "out.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPS_MAX = 10000, FILES_MAX = 16, NAME_BYTES = 96 };

struct tess__folder {
    tess_ctx *ctx;
    int inside;          /* the destination exists, and the temporary folder lies in it */
    char path[PATH_MAX]; /* the destination, without a slash at its end */
    char temp[PATH_MAX]; /* "" once it is gone */
    char file[PATH_MAX]; /* the last one asked for */
    int files;
    char names[FILES_MAX][NAME_BYTES];
};

static tess_status cannot(const char *what, const tess__folder *folder)
{
    return tess__fail(TESS_EIO, "%s: cannot %s: %m", folder->path, what);
}

/* The folder that path lies in, as a text that a name may follow: "", "/" or "a/b/". */
static size_t parent_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static tess_status make_temp(tess__folder *f)
{
    const int n = f->inside ? (int)strlen(f->path) : (int)parent_length(f->path);
    for (int i = 0; i < TEMPS_MAX; i++) {
        if (snprintf(f->temp, PATH_MAX, "%.*s%s.tessera-%ld-%d.tmp", n, f->path,
                     f->inside ? "/" : "", (long)getpid(), i) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            break;
        }
        if (mkdir(f->temp, 0777) == 0)
            return TESS_OK;
        if (errno != EEXIST)
            break;
    }
    return cannot("create", f);
}

tess_status tess__folder_open(tess_ctx *ctx, const char *path, tess__folder **folder)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length >= PATH_MAX) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return tess__fail(TESS_EIO, "%.200s: cannot create: %m", path);
    }
    tess__folder *made = TESS_ALLOC(ctx, sizeof *made);
    made->ctx = ctx;
    made->files = 0;
    memcpy(made->path, path, length);
    made->path[length] = '\0';
    struct stat st;
    made->inside = stat(made->path, &st) == 0;
    tess_status status = TESS_OK;
    if (made->inside && !S_ISDIR(st.st_mode))
        status = tess__fail(TESS_EIO, "%s: cannot create: is a file", made->path);
    if (status == TESS_OK)
        status = make_temp(made);
    if (status == TESS_OK)
        *folder = made;
    else
        tess__free(ctx, made);
    return status;
}

/* Writes folder/name to path; 1 with errno set if it is too long. */
static int join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX)
        return 0;
    errno = ENAMETOOLONG;
    return 1;
}

tess_status tess__folder_file(tess__folder *folder, const char *name, const char **path)
{
    assert(folder->files < FILES_MAX && strlen(name) < NAME_BYTES);
    if (join(folder->temp, name, folder->file))
        return cannot("create", folder);
    strcpy(folder->names[folder->files++], name);
    *path = folder->file;
    return TESS_OK;
}

/* Some file systems know no sync of a folder: EINVAL then, and nothing is lost. */
static tess_status sync_folder(const tess__folder *f, const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return TESS_OK; /* a folder that may be written but not read cannot be synced by anyone */
    const int failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS;
    const tess_status status = failed ? cannot("write", f) : TESS_OK;
    close(fd);
    return status;
}

static tess_status move_up(const tess__folder *f)
{
    char from[PATH_MAX], to[PATH_MAX];
    for (int i = 0; i < f->files; i++)
        if (join(f->temp, f->names[i], from) || join(f->path, f->names[i], to) || rename(from, to))
            return cannot("write", f);
    return TESS_OK;
}

tess_status tess__folder_commit(tess__folder *folder)
{
    tess_status status = sync_folder(folder, folder->temp);
    if (status == TESS_OK && folder->inside)
        status = move_up(folder);
    else if (status == TESS_OK && rename(folder->temp, folder->path) != 0)
        status = cannot("create", folder);
    if (status == TESS_OK) {
        char parent[PATH_MAX + 1];
        snprintf(parent, sizeof parent, "%.*s.", (int)parent_length(folder->path), folder->path);
        status = sync_folder(folder, folder->inside ? folder->path : parent);
        if (!folder->inside)
            folder->temp[0] = '\0';
    }
    tess__folder_abort(folder);
    return status;
}

void tess__folder_abort(tess__folder *folder)
{
    if (!folder)
        return;
    char path[PATH_MAX];
    for (int i = 0; i < folder->files && folder->temp[0]; i++)
        if (!join(folder->temp, folder->names[i], path))
            unlink(path);
    if (folder->temp[0])
        rmdir(folder->temp);
    tess__free(folder->ctx, folder);
}
