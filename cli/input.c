/* SPDX-License-Identifier: Apache-2.0 */
/* input.c - text files that the command itself reads: settings, problems, results of a bench.
 *
 * A pipe is read if a process writes to it, as in --settings <(jq ...); one that no process has
 * open would be waited for without end, and is refused.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first byte, or EOF, once there is one. */
static tess_status first_byte(cli *c, int fd, const char *path, int *byte)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    struct stat st = {0};
    for (;;) {
        unsigned char got;
        const ssize_t n = read(fd, &got, 1);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return out_fail(c, TESS_EIO, "%.200s: cannot read: %s", path, strerror(errno));
        if (n == 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
            return out_fail(c, TESS_EIO, "%.200s: cannot read: is a pipe that no process writes to",
                            path);
        *byte = n == 1 ? got : EOF;
        if (n >= 0)
            return TESS_OK;
        if (signals_caught())
            return TESS_ESTOPPED;
        poll(&poller, 1, 100);
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
