/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_log.c - what nccl-tests print, read as rows of measured collectives.
 *
 *   # Collective test starting: all_reduce_perf
 *   #  Rank  0 Group  0 Pid  4242 on  node-a device  0 [0x07] NVIDIA A100-SXM4-40GB
 *   #       size         count  type redop root   time  algbw  busbw #wrong   time ...
 *          1024           256 float   sum   -1  34.66   0.03   0.06      0  34.47 ...
 *
 * A line is a comment or a row. Of comments, two kinds matter: those that name the test and those
 * that list ranks with their hosts; ranks listed after rows open another run. A row begins with its
 * bytes and ends with time, algbw, busbw and errors, out of place and in place; between them stand
 * two to five words, which differ with the version. Lines of other programs (warnings of NCCL, of
 * MPI) are not rows: they do not begin with a number.
 */
#include "cost_internal.h"

#include "file/file_internal.h"

#include <string.h>

enum { WORDS_MAX = 24, HOST_MAX = 64, HOSTS_MAX = 4096, ROWS_MAX = 1 << 20 };

typedef struct {
    const char *text;
    size_t length;
} word;

typedef struct {
    const char *name; /* of the file */
    tess_nccl_log *log;
    tess_collective_op given, op; /* op: of this run; TESS_COLLECTIVE_OPS: not known */
    int ranks, hosts, rows_read;
    char (*host)[HOST_MAX]; /* HOSTS_MAX of them */
    int64_t line;
} reader;

static tess_status fail(const reader *r, const char *what)
{
    return tess__fail(TESS_EFORMAT, "%s: line %lld: %s", r->name, (long long)r->line, what);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int split(const char *text, size_t length, word *words)
{
    int n = 0;
    size_t i = 0;
    while (i < length && n < WORDS_MAX) {
        while (i < length && blank(text[i]))
            i++;
        const size_t begin = i;
        while (i < length && !blank(text[i]))
            i++;
        if (i > begin)
            words[n++] = (word){text + begin, i - begin};
    }
    return n;
}

static int is(word w, const char *text)
{
    return w.length == strlen(text) && memcmp(w.text, text, w.length) == 0;
}

static int integer(word w, int64_t *value)
{
    int64_t x = 0;
    for (size_t i = 0; i < w.length; i++) {
        if (w.text[i] < '0' || w.text[i] > '9' || x > (int64_t)1 << 53)
            return 0;
        x = x * 10 + (w.text[i] - '0');
    }
    *value = x;
    return w.length > 0 && x <= (int64_t)1 << 53;
}

/* A decimal number without a sign: digits, and a point among them. */
static int number(word w, double *value)
{
    double x = 0.0, unit = 1.0;
    int point = 0, digits = 0;
    for (size_t i = 0; i < w.length; i++) {
        if (w.text[i] == '.' && !point) {
            point = 1;
            continue;
        }
        if (w.text[i] < '0' || w.text[i] > '9' || ++digits > 18)
            return 0;
        x = x * 10.0 + (w.text[i] - '0');
        unit *= point ? 10.0 : 1.0;
    }
    *value = x / unit;
    return digits > 0;
}

/* ---- comments -------------------------------------------------------------------------------- */

static tess_collective_op op_of(word w)
{
    for (int i = 0; i < TESS_COLLECTIVE_OPS; i++)
        if (is(w, tess_nccl_test_name((tess_collective_op)i)))
            return (tess_collective_op)i;
    return TESS_COLLECTIVE_OPS;
}

static void next_run(reader *r)
{
    r->ranks = r->hosts = r->rows_read = 0;
    r->op = r->given;
}

/* # Rank 0 [Group 0] Pid 1 on HOST device ... */
static tess_status read_rank(reader *r, const word *words, int n)
{
    if (r->rows_read)
        next_run(r);
    for (int i = 3; i + 1 < n; i++) {
        if (!is(words[i], "on"))
            continue;
        const word host = words[i + 1];
        if (host.length >= HOST_MAX)
            return fail(r, "the name of a host has more than 63 bytes");
        int at = 0;
        while (at < r->hosts && !is(host, r->host[at]))
            at++;
        if (at == HOSTS_MAX)
            return fail(r, "more than 4096 hosts");
        if (at == r->hosts) {
            memcpy(r->host[at], host.text, host.length);
            r->host[at][host.length] = '\0';
            r->hosts++;
        }
        if (++r->ranks > 1 << 20)
            return fail(r, "more than 1048576 ranks");
        return TESS_OK;
    }
    return fail(r, "a rank without \"on\" and its host");
}

static tess_status read_comment(reader *r, const word *words, int n)
{
    if (n >= 4 && is(words[1], "Rank"))
        return read_rank(r, words, n);
    for (int i = 1; i < n; i++) {
        const tess_collective_op op = op_of(words[i]);
        if (op == TESS_COLLECTIVE_OPS)
            continue;
        if (r->rows_read)
            next_run(r);
        r->op = op;
    }
    return TESS_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static tess_status append(reader *r, const tess_collective_row *row)
{
    tess_nccl_log *log = r->log;
    if (log->n == ROWS_MAX)
        return fail(r, "more than 1048576 rows");
    TESS_GROW(log->ctx, log->rows, log->n, log->n + 1, log->room);
    log->rows[log->n++] = *row;
    return TESS_OK;
}

static tess_status read_row(reader *r, const word *words, int n)
{
    tess_collective_row row = {.line = r->line};
    int64_t count;
    double value[6];
    if (n < 11 || n > 14)
        return fail(r, "a row has 11 to 14 columns");
    if (!integer(words[0], &row.work.bytes) || !integer(words[1], &count))
        return fail(r, "the size and the count of a row are integers");
    for (int i = 0; i < 6; i++)
        if (!number(words[n - 8 + i + i / 3], &value[i]))
            return fail(r, "time, algbw and busbw of a row are numbers");
    if (!(value[0] > 0.0))
        return fail(r, "the time out of place is 0, must be above");
    if (r->ranks == 0)
        return fail(r, "a row before the ranks of its run are listed");
    if (r->op == TESS_COLLECTIVE_OPS)
        return fail(r, "the run does not say which collective it is");
    r->rows_read = 1;
    if (r->ranks == 1 || row.work.bytes == 0)
        return TESS_OK;
    if (r->ranks % r->hosts)
        return fail(r, "the hosts of the run have different numbers of ranks");
    row.work.op = r->op;
    row.work.gpus = r->ranks;
    row.work.per_node = r->ranks / r->hosts;
    row.us = value[0];
    return append(r, &row);
}

static tess_status read_line(reader *r, const char *text, size_t length)
{
    word words[WORDS_MAX];
    const int n = split(text, length, words);
    if (n == 0)
        return TESS_OK;
    if (words[0].text[0] == '#') {
        /* "#Rank" and "# Rank" are the same. */
        if (words[0].length > 1)
            return TESS_OK;
        return read_comment(r, words, n);
    }
    if (words[0].text[0] < '0' || words[0].text[0] > '9')
        return TESS_OK;
    return read_row(r, words, n);
}

static tess_status read_lines(reader *r, const char *text, size_t bytes)
{
    next_run(r);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - text) - at : bytes - at;
        r->line++;
        if (memchr(text + at, '\0', length))
            return fail(r, "a NUL byte");
        TESS_TRY(read_line(r, text + at, length));
        at += length + 1;
    }
    if (r->log->n == 0)
        return tess__fail(TESS_EFORMAT, "%s: no row of nccl-tests with two ranks or more", r->name);
    return TESS_OK;
}

tess_status tess__nccl_log_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_collective_op op, tess_nccl_log **log)
{
    reader r = {.name = name, .given = op};
    r.log = TESS_ALLOC_ZERO(ctx, sizeof *r.log);
    r.log->ctx = ctx;
    r.host = tess__alloc(ctx, (size_t)HOSTS_MAX * sizeof *r.host);
    tess_status status = r.host ? read_lines(&r, text, bytes) : TESS_ENOMEM;
    tess__free(ctx, r.host);
    if (status != TESS_OK) {
        tess_nccl_log_close(r.log);
        return status;
    }
    *log = r.log;
    return TESS_OK;
}

tess_status tess_nccl_log_open(tess_ctx *ctx, const char *path, tess_collective_op op,
                               tess_nccl_log **log)
{
    TESS_REQUIRE(ctx, path, log);
    TESS_TRY(
        tess__check_enum(__func__, "op", (int)op, TESS_COLLECTIVE_OPS + 1, "tess_collective_op"));
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    const tess_status status =
        tess__nccl_log_parse(ctx, path, (const char *)source.data, source.bytes, op, log);
    tess__source_close(&source);
    return status;
}

tess_status tess_nccl_log_rows(const tess_nccl_log *log, const tess_collective_row **rows,
                               int64_t *n)
{
    TESS_REQUIRE(log, rows, n);
    *rows = log->rows;
    *n = log->n;
    return TESS_OK;
}

void tess_nccl_log_close(tess_nccl_log *log)
{
    if (!log)
        return;
    tess__free(log->ctx, log->rows);
    tess__free(log->ctx, log);
}
