/* SPDX-License-Identifier: Apache-2.0 */
/* out_clean.c - removes the temporary files that killed processes left in a folder.
 *
 * out.c holds a lock on each of its temporary files. One that can be locked here belongs to a
 * process that is dead; one of a process that lives, on whatever host, cannot. On a file system
 * without locks all of them stay.
 */
#include "out.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_temporary(const char *name)
{
    int used = 0;
    return sscanf(name, ".tessera-%*[0-9]-%*[0-9].tmp%n", &used) == 0 && used > 0 && !name[used];
}

void tess__out_clean(const char *folder)
{
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        if (!is_temporary(e->d_name))
            continue;
        struct stat st;
        /* To write: NFS locks no other descriptor for one process alone. */
        const int fd = openat(dirfd(dir), e->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
        close(fd);
    }
    if (dir)
        closedir(dir);
}
