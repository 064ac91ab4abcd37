/* SPDX-License-Identifier: Apache-2.0 */
/* step_log.c - files of a run that grow by a line per step: metrics, events, densities.
 *
 * A line is appended by one write, so that a killed process leaves at most the last one cut short.
 * A run that resumes at step n first cuts the files behind the lines of step n, by writing them
 * again: later lines are of steps that will be done once more. A line begins with its step, as
 * {"step": 12 or 12, . A CSV file of another version may have other columns: its fields are moved
 * below the same names in the header of this version, and missing ones stay empty.
 */
#include "train_internal.h"

#include "file/out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MOST = 2048 };

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

/* The bytes of the field at the beginning of a line: up to a comma that is in no quotes, or \n. */
static size_t field_bytes(const char *text)
{
    size_t n = 0;
    for (int quoted = 0; text[n] && text[n] != '\n' && (quoted || text[n] != ','); n++)
        quoted ^= text[n] == '"';
    return n;
}

/* The field of a line that stands where `name` stands in its head; "" if there is none. */
static const char *field_below(const char *head, const char *name, size_t bytes, const char *line)
{
    for (;;) {
        const size_t at = field_bytes(head), below = field_bytes(line);
        if (at == bytes && memcmp(head, name, bytes) == 0)
            return line;
        if (head[at] != ',' || line[below] != ',')
            return "";
        head += at + 1;
        line += below + 1;
    }
}

/* A line below one head, as a line below another. */
static tess_status write_below(const char *from, const char *to, const char *line, tess__out *out)
{
    for (;;) {
        const size_t name = field_bytes(to);
        const char *field = field_below(from, to, name, line);
        TESS_TRY(tess__out_write(out, field, field_bytes(field)));
        TESS_TRY(tess__out_write(out, to[name] == ',' ? "," : "\n", 1));
        if (to[name] != ',')
            return TESS_OK;
        to += name + 1;
    }
}

/* Copies the whole lines of steps 1 .. last. */
static tess_status copy_lines(FILE *in, const char *head, int64_t last, tess__out *out)
{
    char text[LINE_MOST], from[LINE_MOST] = "";
    while (fgets(text, sizeof text, in)) {
        const size_t n = strlen(text);
        const int64_t step = step_of(text);
        if (*head && !*from && step == 0)
            memcpy(from, text, n + 1);
        if (n == 0 || text[n - 1] != '\n' || step <= 0 || step > last)
            continue;
        if (!*from || strcmp(from, head) == 0)
            TESS_TRY(tess__out_write(out, text, n));
        else
            TESS_TRY(write_below(from, head, text, out));
    }
    return TESS_OK;
}

tess_status tess__lines_cut(tess_ctx *ctx, const char *path, const char *head, int64_t last)
{
    tess__out *out = NULL;
    struct stat st;
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))
        return tess__fail(TESS_EIO, "%s: cannot write: is a pipe, must be a regular file", path);
    TESS_TRY(tess__out_open(ctx, path, &out));
    tess_status status = tess__out_write(out, head, strlen(head));
    FILE *in = fopen(path, "re");
    if (in && status == TESS_OK)
        status = copy_lines(in, head, last, out);
    if (in)
        fclose(in);
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}
