/* SPDX-License-Identifier: Apache-2.0 */
/* file_source.c - the bytes of an open file: a mapping for headers, a descriptor for copies.
 *
 * Headers are parsed in the mapping, so that opening touches nothing else. Large copies are taken
 * from the mapping too, which is up to twice as fast as pread where the kernel's copy is the slower
 * one, and never slower. The pages are asked for first (MADV_POPULATE_READ, Linux 5.14): one call
 * instead of a page fault for every few of them, and a file that has shrunk or a disk that fails is
 * an error there, where a page fault would kill the process. When that call fails for any reason,
 * and for small copies, pread does the work and says what is wrong.
 */
#include "file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, MAPPED_MIN = 1 << 18 };

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static tess_status map(tess__source *source)
{
    struct stat st;
    if (fstat(source->fd, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot read: %m", source->name);
    if (S_ISDIR(st.st_mode))
        return tess__fail(TESS_EIO, "%s: cannot read: is a folder", source->name);
    if (!S_ISREG(st.st_mode))
        return tess__fail(TESS_EIO, "%s: cannot read: is not a regular file", source->name);
    if (st.st_size == 0)
        return TESS_OK; /* nothing to map; the format says what is missing */
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, source->fd, 0);
    if (data == MAP_FAILED)
        return tess__fail(TESS_EIO, "%s: cannot map %lld bytes: %m", source->name,
                          (long long)st.st_size);
    source->data = data;
    source->bytes = (size_t)st.st_size;
    return TESS_OK;
}

tess_status tess__source_open(const char *name, tess__source *source)
{
    *source = (tess__source){.name = name, .fd = -1};
    /* Without O_NONBLOCK the open of a pipe would wait for someone to write to it. */
    do
        source->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (source->fd < 0 && errno == EINTR);
    if (source->fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", name);
    const tess_status status = map(source);
    if (status != TESS_OK)
        tess__source_close(source);
    return status;
}

void tess__source_close(tess__source *source)
{
    if (source->fd < 0)
        return;
    if (source->data)
        munmap((void *)source->data, source->bytes);
    close(source->fd);
    *source = (tess__source){.fd = -1};
}

/* Whether n bytes at offset are now in memory and mapped. Ranges start on a page; where pages are
 * larger than PAGE the call says no. Emulators say yes to advice they do not know, so the file's
 * size is asked for too. */
static int populate(const tess__source *source, size_t offset, size_t n)
{
    const size_t start = offset / PAGE * PAGE;
    struct stat st;
    if (fstat(source->fd, &st) != 0 || (uint64_t)st.st_size < offset + n)
        return 0;
    return madvise((void *)(source->data + start), offset + n - start, MADV_POPULATE_READ) == 0;
}

int tess__source_copy(const tess__source *source, size_t offset, void *dst, size_t n)
{
    if (source->fd < 0 || (n >= MAPPED_MIN && populate(source, offset, n))) {
        memcpy(dst, source->data + offset, n);
        return 0;
    }
    char *to = dst;
    while (n > 0) {
        const ssize_t got = pread(source->fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got < 0 ? errno : 0;
            return 1;
        }
        to += got;
        offset += (size_t)got;
        n -= (size_t)got;
    }
    return 0;
}

tess_status tess__source_failed(const tess__source *source, int error)
{
    if (error == 0)
        return tess__fail(TESS_EIO, "%s: cannot read: the file has shrunk since it was opened",
                          source->name);
    errno = error;
    return tess__fail(TESS_EIO, "%s: cannot read: %m", source->name);
}
