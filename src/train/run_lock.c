/* SPDX-License-Identifier: Apache-2.0 */
/* run_lock.c - one trainer for a folder: a lock that is held as long as the run exists.
 *
 * The lock is flock's on the file `lock` of the folder, whose text names the holder. The kernel
 * releases it with the process, however that ends, so that the file of a killed process blocks no
 * other one. On NFS flock is a lock of the server (Linux 2.6.12 and later), which all hosts
 * respect, unless it is mounted with nolock or local_lock=flock: then the lock of another host is
 * hidden. The end of a run removes the file, so a file that names another host is that of a run
 * that was killed there, or that goes on: a warning says so. fcntl's locks are no choice: a process
 * loses them when it closes any descriptor of the file, and they do not exclude a second run of the
 * same process. A file system without locks is reported and used all the same.
 *
 * The end of the run removes the file before it releases the lock. Whoever opened the file in
 * between holds a lock on a file that has no name: the file that was opened must still be the one
 * that the name leads to.
 */
#include "train_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOLDER_BYTES = 256 };

/* The first line of the file; "" if there is none. */
static void read_holder(int fd, char holder[HOLDER_BYTES])
{
    const ssize_t n = pread(fd, holder, HOLDER_BYTES - 1, 0);
    holder[n > 0 ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
}

/* EINVAL, with the holder's text; closes the file. */
static tess_status refuse(int fd, const char *folder)
{
    char holder[HOLDER_BYTES];
    read_holder(fd, holder);
    close(fd);
    return tess__fail(TESS_EINVAL,
                      "%s: is the folder of a run in progress, of %s; must be another folder, or "
                      "wait for the end of that run",
                      folder, *holder ? holder : "another process");
}

/* Whether the name still leads to the open file. */
static int is_named(int fd, const char *path)
{
    struct stat open_file, named;
    return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

enum { HOST_BYTES = HOLDER_BYTES - 64 };

/* Of a file that is locked: warns if the run that left it was one of another host. */
static void check_host(tess_ctx *ctx, int fd, const char *path, const char *host)
{
    char holder[HOLDER_BYTES];
    read_holder(fd, holder);
    const char *named = strstr(holder, " on host ");
    if (named && strcmp(named + strlen(" on host "), host) != 0)
        tess__log(ctx, TESS_LOG_WARN,
                  "%s: was left by %s, which was killed or still runs: some network file systems "
                  "do not show the locks of other hosts",
                  path, holder);
}

static void write_holder(int fd, const char *host)
{
    char holder[HOLDER_BYTES];
    const int n = snprintf(holder, sizeof holder, "process %ld on host %s\n", (long)getpid(), host);
    /* The text is for a sentence; the lock holds without it. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)n, 0) != n)
        return;
}

tess_status tess__run_lock(tess_train *train)
{
    const char *folder = train->opts.folder;
    char path[PATH_MAX];
    char host[HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    TESS_TRY(tess__path(path, folder, "lock"));
    train->lock_made = mkdir(folder, 0777) == 0;
    TESS_TRY(tess__make_folder(folder));
    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK)
                return refuse(fd, folder);
            tess__log(train->ctx, TESS_LOG_WARN,
                      "%s: cannot be locked: %m; a second run in this folder is not noticed", path);
        }
        if (is_named(fd, path)) {
            check_host(train->ctx, fd, path, host);
            write_holder(fd, host);
            train->lock = fd;
            return TESS_OK;
        }
        close(fd);
    }
}

void tess__run_unlock(tess_train *train)
{
    char path[PATH_MAX];
    if (train->lock < 0)
        return;
    tess__good_end(train);
    if (tess__path(path, train->opts.folder, "lock") == TESS_OK)
        unlink(path);
    close(train->lock);
    if (train->lock_made)
        rmdir(train->opts.folder); /* where nothing was written */
    train->lock = -1;
}
