/* SPDX-License-Identifier: Apache-2.0 */
/* call_csv.c - the collectives that tessera trace wrote, read as rows of measured collectives.
 *
 *   file,rank,call,op,group,in_bytes,out_bytes,dtype,stream,begin_ns,ns,source
 *
 * Lines with the same process group, call and operation are members of one call, of which the
 * shortest counts: the others waited for the last one. Ranks are counted node by node, so that the
 * ranks of a group that share rank / node_gpus share a node. Calls are passed over where operation,
 * group or bytes are not known, where the cost model has no such operation, and where the group has
 * a different number of ranks on its nodes. Cost: n log n for the sort.
 */
#include "cost_internal.h"

#include "file/csv.h"
#include "file/file_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_NAME, RANK, CALL, OP, GROUP, IN, OUT, DTYPE, STREAM, BEGIN, NS, SOURCE, COLUMNS };
static const char *const columns[COLUMNS] = {"file",   "rank",     "call",      "op",
                                             "group",  "in_bytes", "out_bytes", "dtype",
                                             "stream", "begin_ns", "ns",        "source"};

/* One line of the file. */
typedef struct {
    tess__csv_field group;
    int64_t call, ns;
    tess_collective_row row;
} member;

typedef struct {
    tess_ctx *ctx;
    tess__csv csv;
    int node_gpus;
    member *members;
    int64_t n, room;
} reader;

/* ---- lines ---------------------------------------------------------------------------------- */

static tess_status fail(const reader *r, const char *rule, const tess__csv_field *field)
{
    char quote[TESS_CSV_QUOTE];
    return tess__fail(TESS_EFORMAT, "%s: line %lld: \"%s\": %s", r->csv.name,
                      (long long)r->csv.line, tess__csv_quote(field, quote), rule);
}

static tess_status read_fields(reader *r, tess__csv_field fields[COLUMNS])
{
    int n = 0;
    do {
        tess__csv_field field;
        TESS_TRY(tess__csv_next(&r->csv, &field));
        if (n < COLUMNS)
            fields[n] = field;
        n++;
    } while (!r->csv.end_of_record);
    if (n != COLUMNS)
        return tess__fail(TESS_EFORMAT, "%s: line %lld: %d fields, must be %d", r->csv.name,
                          (long long)r->csv.line, n, COLUMNS);
    return TESS_OK;
}

/* Ranks of the group, and how many of them share a node; 0 ranks: they are not spread evenly. */
static tess_status read_group(const reader *r, const tess__csv_field *field, tess_collective *work)
{
    int64_t node = -1, here = 0, first = 0;
    int even = 1;
    work->gpus = 0;
    for (size_t i = 0; i < field->length;) {
        int64_t rank = 0;
        const size_t begin = i;
        for (; i < field->length && field->text[i] >= '0' && field->text[i] <= '9'; i++)
            rank = TESS_MIN(10 * rank + (field->text[i] - '0'), (int64_t)1 << 20);
        if (i == begin || rank == 1 << 20 || (i < field->length && field->text[i] != ' '))
            return fail(r, "a group has ranks below 1048576 with spaces between them", field);
        i++;
        if (rank / r->node_gpus != node) {
            even &= first == 0 || here == first;
            first = first ? first : here;
            node = rank / r->node_gpus;
            here = 0;
        }
        here++;
        work->gpus++;
    }
    even &= first == 0 || here == first;
    work->per_node = (int)here;
    work->gpus = even ? work->gpus : 0;
    return TESS_OK;
}

/* An empty field is -1. */
static tess_status read_number(const reader *r, const tess__csv_field *field, int64_t *value)
{
    *value = -1;
    if (field->length > 0 && (!tess__csv_integer(field, value) || *value > (int64_t)1 << 53))
        return fail(r, "must be an integer 0..2^53, or empty", field);
    return TESS_OK;
}

static tess_status read_line(reader *r)
{
    tess__csv_field f[COLUMNS];
    member m = {.row = {.line = r->csv.line, .work = {.op = TESS_COLLECTIVE_OPS}}};
    int64_t in, out;
    TESS_TRY(read_fields(r, f));
    TESS_TRY(read_number(r, &f[CALL], &m.call));
    TESS_TRY(read_number(r, &f[IN], &in));
    TESS_TRY(read_number(r, &f[OUT], &out));
    TESS_TRY(read_number(r, &f[NS], &m.ns));
    TESS_TRY(read_group(r, &f[GROUP], &m.row.work));
    for (int op = 0; op < TESS_COLLECTIVE_OPS; op++)
        if (tess__csv_is(&f[OP], tess_collective_name((tess_collective_op)op)))
            m.row.work.op = (tess_collective_op)op;
    m.row.work.bytes = TESS_MAX(in, out);
    m.group = f[GROUP];
    if (m.row.work.op == TESS_COLLECTIVE_OPS || m.row.work.gpus < 2 || m.row.work.bytes <= 0 ||
        m.ns <= 0 || m.call < 0)
        return TESS_OK;
    TESS_GROW(r->ctx, r->members, r->n, r->n + 1, r->room);
    r->members[r->n++] = m;
    return TESS_OK;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int same_call(const member *a, const member *b)
{
    int c = compare((int64_t)a->group.length, (int64_t)b->group.length);
    if (c == 0)
        c = memcmp(a->group.text, b->group.text, a->group.length);
    if (c == 0)
        c = compare(a->call, b->call);
    return c ? c : compare((int)a->row.work.op, (int)b->row.work.op);
}

static int by_call(const void *x, const void *y)
{
    const member *a = x, *b = y;
    int c = same_call(a, b);
    if (c == 0)
        c = compare(a->ns, b->ns);
    return c ? c : compare(a->row.line, b->row.line);
}

static int by_line(const void *x, const void *y)
{
    const tess_collective_row *a = x, *b = y;
    return compare(a->line, b->line);
}

static tess_status make_rows(reader *r, tess_nccl_log *log)
{
    qsort(r->members, (size_t)r->n, sizeof *r->members, by_call);
    TESS_GROW(r->ctx, log->rows, 0, r->n, log->room);
    for (int64_t i = 0; i < r->n; i++)
        if (i == 0 || same_call(&r->members[i], &r->members[i - 1]) != 0) {
            log->rows[log->n] = r->members[i].row;
            log->rows[log->n++].us = (double)r->members[i].ns / 1e3;
        }
    qsort(log->rows, (size_t)log->n, sizeof *log->rows, by_line);
    return TESS_OK;
}

static tess_status read_all(reader *r, tess_nccl_log *log)
{
    tess__csv_field head[COLUMNS];
    tess__csv_record(&r->csv);
    TESS_TRY(read_fields(r, head));
    for (int i = 0; i < COLUMNS; i++)
        if (!tess__csv_is(&head[i], columns[i]))
            return fail(r, "a column of another name is expected here", &head[i]);
    while (tess__csv_record(&r->csv))
        TESS_TRY(read_line(r));
    if (r->n == 0)
        return tess__fail(
            TESS_EFORMAT,
            "%s: no collective of two ranks or more whose operation, group, bytes and "
            "time are known",
            r->csv.name);
    return make_rows(r, log);
}

/* Whether the text begins with the first columns. */
static int is_csv(const char *text, size_t bytes)
{
    static const char head[] = "file,rank,call,op,group,";
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        bytes -= 3;
    }
    return bytes >= sizeof head - 1 && memcmp(text, head, sizeof head - 1) == 0;
}

tess_status tess__call_csv_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 int node_gpus, tess_nccl_log **log)
{
    reader r = {.ctx = ctx, .csv = tess__csv_start(name, text, bytes), .node_gpus = node_gpus};
    tess_nccl_log *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    const tess_status status = read_all(&r, made);
    tess__free(ctx, r.members);
    if (status == TESS_OK)
        *log = made;
    else
        tess_nccl_log_close(made);
    return status;
}

tess_status tess_collective_rows_open(tess_ctx *ctx, const char *path, tess_collective_op op,
                                      int node_gpus, tess_nccl_log **log)
{
    tess__source source;
    TESS_REQUIRE(ctx, path, log);
    TESS_TRY(
        tess__check_enum(__func__, "op", (int)op, TESS_COLLECTIVE_OPS + 1, "tess_collective_op"));
    TESS_TRY(tess__check_range(__func__, "node_gpus", node_gpus, 1, 1 << 20));
    TESS_TRY(tess__source_open(path, &source));
    const char *text = (const char *)source.data;
    const tess_status status =
        is_csv(text, source.bytes)
            ? tess__call_csv_parse(ctx, path, text, source.bytes, node_gpus, log)
            : tess__nccl_log_parse(ctx, path, text, source.bytes, op, log);
    tess__source_close(&source);
    return status;
}
