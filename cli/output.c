/* SPDX-License-Identifier: Apache-2.0 */
/* output.c - the result on stdout as text or as one JSON object; errors and log on stderr.
 *
 * With --json a command fills c->json, and out_finish prints
 *
 *   {"schema": 1, "command": ..., "version": ..., "isa": ..., "threads": ..., "seed": ..., members}
 *
 * or, if the command failed, the first three and {"error": {"status": ..., "message": ...}}. A
 * result that cannot be written is a failure; a reader that left early (head) needs no sentence.
 */
#include "cli.h"

#include "file/json_write.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 1, WIDTH = 79 };

const char *out_style(const cli *c, style s)
{
    static const char *const escapes[] = {"\033[0m", "\033[1m", "\033[32m", "\033[33m", "\033[31m"};
    return c->colour ? escapes[s] : "";
}

static void set_sentence(cli *c, const char *format, va_list args)
{
    vsnprintf(c->sentence, sizeof c->sentence, format, args);
}

tess_status out_fail(cli *c, tess_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_sentence(c, format, args);
    va_end(args);
    return status;
}

tess_status out_usage(cli *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_sentence(c, format, args);
    va_end(args);
    c->code = EXIT_USAGE;
    c->usage = 1;
    return TESS_EINVAL;
}

tess_status out_option(cli *c, const char *option, tess_status status)
{
    return status == TESS_OK ? status : out_fail(c, status, "%s: %s", option, tess_last_error());
}

tess_status out_input(cli *c, tess_status status)
{
    if ((status == TESS_EINVAL || status == TESS_EFORMAT) && !c->code)
        c->code = EXIT_USAGE;
    return status;
}

char *out_clean(const char *s, char *text, size_t bytes)
{
    size_t i = 0;
    for (; s[i] && i + 1 < bytes; i++)
        text[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
    text[i] = 0;
    return text;
}

char *out_plain(char *sentence)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    for (char *at = sentence; (at = strstr(at, "tess_"));) {
        const size_t name = strspn(at, letters);
        const int first = at == sentence || at[-1] == ' ';
        if (first && at[name] == ':' && at[name + 1] == ' ')
            memmove(at, at + name + 2, strlen(at + name + 2) + 1);
        else
            at += name;
    }
    return sentence;
}

void out_error(const cli *c, const char *sentence)
{
    char clean[2048];
    fprintf(stderr, "tessera%s%s: %s\n", c->cmd ? " " : "", c->cmd ? c->cmd->name : "",
            out_plain(out_clean(sentence, clean, sizeof clean)));
}

void out_log(void *user, tess_log_level level, const char *message)
{
    static const char *const names[] = {"", "error: ", "warning: ", "", "debug: "};
    char line[2048];
    if (((const cli *)user)->rank != 0)
        return;
    snprintf(line, sizeof line, "%s%s", names[level], message);
    progress_clear(user);
    out_error(user, line);
}

/* ---- JSON -------------------------------------------------------------------------------- */

void out_set(cli *c, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        c->json_failed = 1;
}

void out_append(cli *c, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        c->json_failed = 1;
}

json_t *out_text(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    char ascii[1024];
    size_t i = 0;
    for (; text[i] && i + 1 < sizeof ascii; i++)
        ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    ascii[i] = 0;
    return json_string(ascii);
}

json_t *out_sentence(const char *sentence)
{
    char plain[CLI_SENTENCE_MAX];
    snprintf(plain, sizeof plain, "%s", sentence);
    return out_text(out_plain(plain));
}

json_t *out_number(double value)
{
    if (isinf(value))
        return json_string(value > 0 ? "Infinity" : "-Infinity");
    return isnan(value) ? json_null() : json_real(value);
}

/* A failure to write is noticed when stdout is closed. */
static tess_status print(void *to, const char *bytes, size_t n)
{
    (void)to;
    fwrite(bytes, 1, n, stdout);
    return TESS_OK;
}

char *out_json(const json_t *value)
{
    tess__jw count = {.indent = 2};
    tess__jw_value(&count, NULL, value);
    tess__jw_buffer buffer = {.text = malloc(count.bytes + 1), .room = count.bytes + 1};
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .indent = 2};
    if (buffer.text)
        tess__jw_value(&w, NULL, value);
    return buffer.text;
}

static json_t *head(cli *c)
{
    json_t *object = json_object();
    out_set(c, object, "schema", json_integer(SCHEMA));
    out_set(c, object, "command", json_string(c->cmd ? c->cmd->name : ""));
    out_set(c, object, "version", json_string(tess_version()));
    return object;
}

static json_t *whole_result(cli *c)
{
    tess_ctx_info info;
    json_t *object = head(c);
    if (c->ctx && tess_ctx_query(c->ctx, &info) == TESS_OK) {
        out_set(c, object, "isa", json_string(info.isa));
        out_set(c, object, "threads", json_integer(info.threads));
        out_set(c, object, "seed", json_integer(c->common->seed));
    }
    if (json_object_update(object, c->json) != 0)
        c->json_failed = 1;
    return object;
}

static json_t *failure(cli *c, tess_status status, const char *sentence)
{
    json_t *object = head(c), *error = json_object();
    out_set(c, error, "status", json_string(tess_status_name(status)));
    out_set(c, error, "message", out_sentence(sentence));
    out_set(c, object, "error", error);
    return object;
}

/* ---- the end ----------------------------------------------------------------------------- */

int out_flush(cli *c)
{
    if (fflush(c->out) == 0 && !ferror(c->out))
        return 0;
    if (!c->lost)
        c->lost = errno;
    return -1;
}

static int reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

/* Returns 0, or -1 if the result did not reach its reader. */
static int close_stdout(const cli *c)
{
    const int left = reader_left(), lost = ferror(stdout);
    errno = 0;
    if (fclose(stdout) == 0 && !lost)
        return 0;
    errno = c->lost ? c->lost : errno;
    if (!left && errno != EPIPE) { /* EPIPE: the reader left between the two calls */
        char sentence[128];
        snprintf(sentence, sizeof sentence, "stdout: the result cannot be written%s%s",
                 errno ? ": " : "", errno ? strerror(errno) : "");
        out_error(c, sentence);
    }
    return -1;
}

int out_finish(cli *c, tess_status status)
{
    if (c->rank != 0)
        return c->code;
    progress_clear(c);
    json_t *object = NULL;
    char sentence[CLI_SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", c->sentence[0] ? c->sentence : tess_last_error());
    if (status == TESS_OK && c->json)
        object = whole_result(c);
    if (c->json_failed) {
        status = TESS_ENOMEM;
        c->code = EXIT_FAILED;
        snprintf(sentence, sizeof sentence, "no memory for the result");
    }
    if (status != TESS_OK) {
        out_error(c, sentence);
        if (c->usage)
            fprintf(stderr, "Try 'tessera%s%s --help'.\n", c->cmd ? " " : "",
                    c->cmd ? c->cmd->name : "");
        if (c->json) {
            json_decref(object);
            object = failure(c, status, sentence);
        }
    }
    if (object) {
        tess__jw w = {.write = print, .indent = 2};
        tess__jw_value(&w, NULL, object);
        (void)tess__jw_finish(&w);
        json_decref(object);
    }
    return close_stdout(c) ? EXIT_FAILED : c->code;
}

char *out_bytes(int64_t bytes, char text[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    int unit = 0;
    if (bytes < 1024) {
        snprintf(text, 32, "%lld B", (long long)bytes);
        return text;
    }
    /* 999.5 and more would need four digits. */
    for (; value >= 999.5 && unit < 5; unit++)
        value /= 1024;
    snprintf(text, 32, "%.3g %s", value, units[unit]);
    return text;
}

const char *out_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double out_median(double *x, int64_t n)
{
    if (n == 0)
        return (double)NAN;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

void out_wrap(FILE *f, const char *text, int column, int indent)
{
    int start = column < indent ? column : indent; /* of the line's words */
    while (*text) {
        const int word = (int)strcspn(text, " \n");
        if (column > start && column + 1 + word > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = start = indent;
        }
        column += fprintf(f, "%s%.*s", column > start ? " " : "", word, text);
        text += word;
        if (*text == '\n') {
            fputc('\n', f);
            column = start = 0;
        }
        text += *text != 0;
    }
}
