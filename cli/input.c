/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - text files that the command itself reads: settings, problems, results of a bench.
 *
 * A pipe is read if a process writes to it, as in --settings <(jq ...); one without a writer would
 * be waited for without end, and is refused after some seconds.
 */
#include "cli.h"

#include "tessera/advanced/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t wait_ns = 5000000000; /* for a writer */

/* The first byte, or EOF, once there is one. */
static tess_status first_byte(cli *c, int fd, const char *path, int *byte)
{
    const int64_t deadline = tess_clock_ns() + wait_ns;
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    struct stat st = {0};
    const int pipe = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
    for (;;) {
        unsigned char got;
        const ssize_t n = read(fd, &got, 1);
        *byte = n == 1 ? got : EOF;
        if (n == 1 || (n == 0 && !pipe))
            return TESS_OK;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return out_fail(c, TESS_EIO, "%.200s: cannot read: %s", path, strerror(errno));
        if (n == 0 && tess_clock_ns() > deadline)
            return out_fail(c, TESS_EIO, "%.200s: cannot read: is a pipe that no process writes to",
                            path);
        if (signals_caught())
            return TESS_ESTOPPED;
        poll(n < 0 ? &poller : NULL, n < 0, n < 0 ? 100 : 10);
    }
}

tess_status input_open(cli *c, const char *path, FILE **f)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int byte = EOF;
    *f = NULL;
    if (fd < 0)
        return out_fail(c, TESS_EIO, "%.200s: cannot open: %s", path, strerror(errno));
    const tess_status status = first_byte(c, fd, path, &byte);
    if (status == TESS_OK && fcntl(fd, F_SETFL, 0) == 0) /* the rest is waited for */
        *f = fdopen(fd, "r");
    if (!*f) {
        close(fd);
        return status != TESS_OK ? status : out_fail(c, TESS_ENOMEM, "no memory for %.200s", path);
    }
    if (byte != EOF)
        ungetc(byte, *f);
    return TESS_OK;
}
