/* SPDX-License-Identifier: Apache-2.0 */
/* out.c - output files that appear whole or not at all.
 *
 * Bytes go to a temporary file in the destination's folder; commit syncs it, renames it over the
 * destination and syncs the folder, so that after a crash at any moment the name leads to the
 * complete old file or to the complete new one. What a killed process leaves behind is called
 * .tessera-<pid>-<n>.tmp. The temporary file is locked until it is closed, so that out_clean.c
 * recognises those of killed processes, on any host.
 *
 * A destination that is a symbolic link is written through: the file it leads to is replaced, the
 * link stays. One that exists and is not a regular file (a terminal, a pipe, /dev/null) cannot be
 * replaced by a rename and is written to as it is.
 *
 * Small writes gather in a buffer; a write of the buffer's size or more goes straight to the file.
 */
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, LINKS_MAX = 40, NAMES_MAX = 10000, TEMP_ROOM = 64 };

struct tess__out {
    tess_ctx *ctx;
    int fd;     /* -1 once synced */
    char *path; /* as the caller spells it: what errors say */
    char *real; /* behind symbolic links: what is replaced */
    char *temp; /* "" when the destination is written directly */
    size_t used;
    unsigned char buffer[BUFFER];
};

static tess_status write_failed(const tess__out *out)
{
    return tess__fail(TESS_EIO, "%s: cannot write: %m", out->path);
}

/* Length of the folder's part of path, the last slash included; 0 if there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Replaces real, of PATH_MAX bytes, by what it leads to; a link to nothing is followed too. */
static tess_status follow_links(const char *path, char *real)
{
    char target[PATH_MAX];
    for (int hops = 0;; hops++) {
        const ssize_t n = readlink(real, target, sizeof target);
        if (n < 0)
            return TESS_OK; /* not a link, or not there: the next call on it says what is wrong */
        const size_t folder = target[0] == '/' ? 0 : folder_length(real);
        if (hops == LINKS_MAX || folder + (size_t)n >= PATH_MAX) {
            errno = hops == LINKS_MAX ? ELOOP : ENAMETOOLONG;
            return tess__fail(TESS_EIO, "%s: cannot create: %m", path);
        }
        memcpy(real + folder, target, (size_t)n);
        real[folder + (size_t)n] = '\0';
    }
}

/* 0: a cleaner has removed the file, or is about to. File systems without locks have no cleaner. */
static int lock_temp(int fd)
{
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK;
    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

/* Opens a file of a name no one uses beside real. The mode is what the process's umask leaves, as
 * for any file a program creates. */
static tess_status open_temp(tess__out *out)
{
    const size_t folder = folder_length(out->real);
    memcpy(out->temp, out->real, folder);
    for (int n = 0; n < NAMES_MAX; n++) {
        snprintf(out->temp + folder, TEMP_ROOM, ".tessera-%ld-%d.tmp", (long)getpid(), n);
        out->fd = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd >= 0 && lock_temp(out->fd))
            return TESS_OK;
        if (out->fd >= 0)
            close(out->fd);
        else if (errno != EEXIST && errno != EINTR)
            break;
    }
    out->temp[0] = '\0';
    return tess__fail(TESS_EIO, "%s: cannot create: %m", out->path);
}

static tess_status open_direct(tess__out *out)
{
    out->temp[0] = '\0';
    do
        out->fd = open(out->real, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    while (out->fd < 0 && errno == EINTR);
    if (out->fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot create: %m", out->path);
    return TESS_OK;
}

static void out_free(tess__out *out)
{
    tess_ctx *ctx = out->ctx;
    if (out->fd >= 0)
        close(out->fd);
    tess__free(ctx, out->path);
    tess__free(ctx, out);
}

tess_status tess__out_open(tess_ctx *ctx, const char *path, tess__out **out)
{
    const size_t length = strlen(path);
    char real[PATH_MAX];
    if (length == 0 || length >= PATH_MAX) {
        errno = length ? ENAMETOOLONG : ENOENT;
        return tess__fail(TESS_EIO, "%.200s: cannot create: %m", path);
    }
    memcpy(real, path, length + 1);
    TESS_TRY(follow_links(path, real));

    const size_t length_real = strlen(real);
    tess__out *made = tess__alloc(ctx, sizeof *made);
    char *names = made ? tess__alloc(ctx, length + 2 * length_real + TEMP_ROOM + 3) : NULL;
    if (!names) {
        tess__free(ctx, made);
        return TESS_ENOMEM;
    }
    made->ctx = ctx;
    made->fd = -1;
    made->used = 0;
    made->path = names;
    made->real = names + length + 1;
    made->temp = made->real + length_real + 1;
    memcpy(made->path, path, length + 1);
    memcpy(made->real, real, length_real + 1);

    struct stat st;
    const int special = stat(real, &st) == 0 && !S_ISREG(st.st_mode);
    const tess_status status = special ? open_direct(made) : open_temp(made);
    if (status == TESS_OK)
        *out = made;
    else
        out_free(made);
    return status;
}

static tess_status write_all(tess__out *out, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(out->fd, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed(out);
        bytes += done;
        n -= (size_t)done;
    }
    return TESS_OK;
}

static tess_status flush(tess__out *out)
{
    const size_t n = out->used;
    out->used = 0;
    return write_all(out, out->buffer, n);
}

tess_status tess__out_write(tess__out *out, const void *bytes, size_t n)
{
    if (n > BUFFER - out->used)
        TESS_TRY(flush(out));
    if (n >= BUFFER)
        return write_all(out, bytes, n);
    if (n > 0)
        memcpy(out->buffer + out->used, bytes, n);
    out->used += n;
    return TESS_OK;
}

tess_status tess__out_patch(tess__out *out, uint64_t offset, const void *bytes, size_t n)
{
    TESS_TRY(flush(out));
    const unsigned char *p = bytes;
    while (n > 0) {
        const ssize_t done = pwrite(out->fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed(out);
        p += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return TESS_OK;
}

/* Some file systems and all devices know no sync: EINVAL then, and nothing is lost. */
static int sync_fd(int fd)
{
    int failed;
    do
        failed = fsync(fd);
    while (failed && errno == EINTR);
    return failed && errno != EINVAL && errno != ENOTSUP && errno != EROFS;
}

static tess_status to_disk(tess__out *out)
{
    TESS_TRY(flush(out));
    return sync_fd(out->fd) ? write_failed(out) : TESS_OK;
}

tess_status tess__out_sync(tess__out *out)
{
    if (out->fd < 0)
        return TESS_OK;
    TESS_TRY(to_disk(out));
    const int fd = out->fd;
    out->fd = -1; /* Linux frees the number even if close is interrupted */
    if (close(fd) != 0 && errno != EINTR)
        return write_failed(out);
    return TESS_OK;
}

/* Cuts real down to its folder: the name is not needed after the rename. */
static tess_status sync_folder(tess__out *out)
{
    const size_t folder = folder_length(out->real);
    out->real[folder] = '\0';
    const int fd = open(folder ? out->real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return TESS_OK; /* a folder that may be written but not read cannot be synced by anyone */
    const tess_status status = sync_fd(fd) ? write_failed(out) : TESS_OK;
    close(fd);
    return status;
}

tess_status tess__out_commit(tess__out *out)
{
    /* A temporary file stays locked until it has its name. */
    tess_status status = out->fd >= 0 && out->temp[0] ? to_disk(out) : tess__out_sync(out);
    if (status == TESS_OK && out->temp[0]) {
        if (rename(out->temp, out->real) != 0) {
            status = write_failed(out);
        } else {
            out->temp[0] = '\0';
            status = sync_folder(out);
        }
    }
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    out_free(out);
    return TESS_OK;
}

void tess__out_abort(tess__out *out)
{
    if (!out)
        return;
    if (out->temp[0])
        unlink(out->temp);
    out_free(out);
}
