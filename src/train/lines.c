/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - files of a run that grow by a line per step: metrics, events, densities.
 *
 * A line is appended by one write, so that a killed process leaves at most the last one cut short.
 * A run that resumes at step n first cuts the files behind the lines of step n, by writing them
 * again: later lines are of steps that will be done once more. A line begins with its step, as
 * {"step": 12 or 12, .
 */
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tess_status tess__lines_add(const char *path, const char *text, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    ssize_t done;
    do
        done = write(fd, text, bytes);
    while (done < 0 && errno == EINTR);
    if (done >= 0 && (size_t)done < bytes)
        errno = ENOSPC;
    const int failed = done < 0 || (size_t)done < bytes, why = errno;
    if (close(fd) != 0 && !failed)
        return tess__fail(TESS_EIO, "%s: cannot write: %m", path);
    errno = why;
    return failed ? tess__fail(TESS_EIO, "%s: cannot write: %m", path) : TESS_OK;
}

/* The step of a line; 0: it has none. */
static int64_t step_of(const char *text)
{
    static const char head[] = "{\"step\": ";
    if (strncmp(text, head, sizeof head - 1) == 0)
        text += sizeof head - 1;
    return strtoll(text, NULL, 10);
}

/* Copies the whole lines of steps 1 .. last. */
static tess_status copy_lines(FILE *in, int64_t last, tess__out *out)
{
    char text[2048];
    while (fgets(text, sizeof text, in)) {
        const size_t n = strlen(text);
        const int64_t step = step_of(text);
        if (n > 0 && text[n - 1] == '\n' && step > 0 && step <= last)
            TESS_TRY(tess__out_write(out, text, n));
    }
    return TESS_OK;
}

tess_status tess__lines_cut(tess_ctx *ctx, const char *path, const char *head, int64_t last)
{
    tess__out *out = NULL;
    TESS_TRY(tess__out_open(ctx, path, &out));
    tess_status status = tess__out_write(out, head, strlen(head));
    FILE *in = fopen(path, "re");
    if (in && status == TESS_OK)
        status = copy_lines(in, last, out);
    if (in)
        fclose(in);
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}
