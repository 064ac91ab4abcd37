/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_file.c - a timeline as a Chrome trace, which Perfetto opens.
 *
 *   {"traceEvents": [
 *   {"ph":"M","pid":3,"name":"process_name","args":{"name":"rank 3"}},
 *   {"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"compute"}},
 *   {"ph":"X","pid":3,"tid":1,"ts":12.345,"dur":0.5,"name":"qkv","cat":"compute"},
 *   {"ph":"X","pid":3,"tid":2,"ts":13.5,"dur":1,"name":"reduce","cat":"communication",
 *    "args":{"group":"tp:0+1x8","call":0,"op":"all_reduce","bytes":4096,"pass":"3F2"}},
 *   {"ph":"C","pid":3,"ts":14.5,"name":"memory","args":{"state":1000,"activations":20}}]}
 *
 * Times are microseconds with three decimals, made from nanoseconds without a rounding. A stream is
 * the track behind its number, from 1: Perfetto puts a track 0 into that of the process's number.
 * Written piece by piece: the file is never in memory.
 */
#include "file/json_write.h"
#include "file/out.h"
#include "timeline_internal.h"

#include <string.h>
#include <zlib.h>

enum { PIECE = 1 << 18, EVENT_MAX = 4096, NAME_MAX_BYTES = 1024 };

typedef struct {
    tess__out *out;
    z_stream zip;
    int gzip;
    char *text;            /* PIECE bytes, of which `used` wait */
    unsigned char *packed; /* PIECE bytes, with gzip */
    size_t used;
    int64_t events;
} writer;

/* ---- bytes ----------------------------------------------------------------------------------- */

static tess_status send(writer *w, int last)
{
    if (!w->gzip) {
        const size_t n = w->used;
        w->used = 0;
        return tess__out_write(w->out, w->text, n);
    }
    w->zip.next_in = (unsigned char *)w->text;
    w->zip.avail_in = (uInt)w->used;
    w->used = 0;
    do {
        w->zip.next_out = w->packed;
        w->zip.avail_out = PIECE;
        deflate(&w->zip, last ? Z_FINISH : Z_NO_FLUSH);
        TESS_TRY(tess__out_write(w->out, w->packed, PIECE - w->zip.avail_out));
    } while (w->zip.avail_out == 0);
    return TESS_OK;
}

/* Room for one more event. */
static tess_status make_room(writer *w)
{
    return w->used + EVENT_MAX + 8 * NAME_MAX_BYTES > PIECE ? send(w, 0) : TESS_OK;
}

static void put(writer *w, const char *text)
{
    const size_t n = strlen(text);
    memcpy(w->text + w->used, text, n);
    w->used += n;
}

static void put_int(writer *w, int64_t value)
{
    char digits[24];
    int at = (int)sizeof digits;
    uint64_t n = value < 0 ? 0 : (uint64_t)value;
    do
        digits[--at] = (char)('0' + n % 10);
    while (n /= 10);
    memcpy(w->text + w->used, digits + at, sizeof digits - (size_t)at);
    w->used += sizeof digits - (size_t)at;
}

static void put_us(writer *w, int64_t ns)
{
    put_int(w, ns / 1000);
    const int rest = (int)(ns % 1000);
    if (rest == 0)
        return;
    char *p = w->text + w->used;
    p[0] = '.';
    p[1] = (char)('0' + rest / 100);
    p[2] = (char)('0' + rest / 10 % 10);
    p[3] = (char)('0' + rest % 10);
    w->used += rest % 10 ? 4 : rest % 100 ? 3 : 2;
}

/* A name in quotes, cut where it is very long. */
static void put_name(writer *w, const char *name)
{
    put(w, "\"");
    for (size_t i = 0; name[i] && i < NAME_MAX_BYTES; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c < 32)
            w->used += (size_t)snprintf(w->text + w->used, 8, "\\u%04x", c);
        else if (c == '"' || c == '\\') {
            w->text[w->used++] = '\\';
            w->text[w->used++] = (char)c;
        } else {
            w->text[w->used++] = (char)c;
        }
    }
    put(w, "\"");
}

/* ---- events ---------------------------------------------------------------------------------- */

static void put_head(writer *w, int rank, int stream, int64_t begin, int64_t end)
{
    put(w, w->events++ ? ",\n{\"ph\":\"X\",\"pid\":" : "{\"ph\":\"X\",\"pid\":");
    put_int(w, rank);
    put(w, ",\"tid\":");
    put_int(w, stream + 1);
    put(w, ",\"ts\":");
    put_us(w, begin);
    put(w, ",\"dur\":");
    put_us(w, end - begin);
    put(w, ",\"name\":");
}

static void put_call(writer *w, const tess_timeline *t, const tess__view *view, int rank,
                     const tess__tl_op *op)
{
    char group[64] = "";
    const tess__tl_call *call = &t->calls[op->call];
    view->group(view->user, rank, call, group);
    put(w, ",\"args\":{\"group\":");
    put_name(w, group);
    put(w, ",\"call\":");
    put_int(w, call->number);
    put(w, ",\"op\":");
    put_name(w, view->ops[call->op]);
    put(w, ",\"bytes\":");
    put_int(w, call->bytes);
}

static tess_status put_op(writer *w, const tess_timeline *t, const tess__view *view, int rank,
                          const tess__tl_op *op)
{
    if (op->end == op->begin && op->call < 0)
        return TESS_OK; /* a mark in the order, nothing to see */
    TESS_TRY(make_room(w));
    if (op->call >= 0 && op->begin > op->ready) {
        put_head(w, rank, op->stream, op->ready, op->begin);
        put(w, "\"wait\",\"cat\":\"wait\"}");
    }
    put_head(w, rank, op->stream, op->begin, op->end);
    put_name(w, t->names[op->name]);
    put(w, ",\"cat\":\"");
    put(w, tess__tl_cats[op->cat]);
    put(w, "\"");
    const int call = op->call >= 0 && view->group, tag = view->tags && op->tag >= 0;
    if (call)
        put_call(w, t, view, rank, op);
    if (tag) {
        put(w, call ? ",\"pass\":" : ",\"args\":{\"pass\":");
        put_name(w, t->names[op->tag]);
    }
    put(w, call || tag ? "}}" : "}");
    return TESS_OK;
}

static tess_status put_counter(writer *w, const tess_timeline *t, const tess__view *view, int rank,
                               const tess__tl_counter *counter)
{
    TESS_TRY(make_room(w));
    put(w, w->events++ ? ",\n{\"ph\":\"C\",\"pid\":" : "{\"ph\":\"C\",\"pid\":");
    put_int(w, rank);
    put(w, ",\"ts\":");
    put_us(w, t->ops[counter->op].end);
    put(w, ",\"name\":\"memory\",\"args\":{");
    for (int i = 0; i < TESS__COUNTERS; i++) {
        put(w, i ? ",\"" : "\"");
        put(w, view->counters[i]);
        put(w, "\":");
        put_int(w, counter->value[i]);
    }
    put(w, "}}");
    return TESS_OK;
}

static tess_status put_rank_names(writer *w, const tess_timeline *t, const tess__view *view,
                                  int rank)
{
    char text[224];
    TESS_TRY(make_room(w));
    snprintf(
        text, sizeof text,
        "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}",
        w->events++ ? ",\n" : "", rank, rank);
    put(w, text);
    for (int s = 0; s < t->streams; s++) {
        char name[64] = "";
        if (view->stream && s >= view->named)
            view->stream(view->user, rank, s, name);
        else
            snprintf(name, sizeof name, "%s", view->streams[s]);
        if (!name[0])
            continue;
        snprintf(
            text, sizeof text,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
            "\"%s\"}}",
            rank, s + 1, name);
        TESS_TRY(make_room(w));
        put(w, text);
    }
    return TESS_OK;
}

/* Operations of each row in the order they were added: ops of row i are list[first[i]..]. */
static tess_status sort_rows(const tess_timeline *t, tess__arena *arena, int64_t **first,
                             int32_t **list)
{
    *first = TESS_TAKE_ZERO(arena, ((size_t)t->rows + 1) * sizeof **first);
    *list = TESS_TAKE(arena, (size_t)t->n * sizeof **list);
    for (int64_t i = 0; i < t->n; i++)
        (*first)[t->ops[i].row + 1]++;
    for (int r = 0; r < t->rows; r++)
        (*first)[r + 1] += (*first)[r];
    for (int64_t i = t->n - 1; i >= 0; i--)
        (*list)[--(*first)[t->ops[i].row + 1]] = (int32_t)i;
    memmove(*first, *first + 1, (size_t)t->rows * sizeof **first);
    (*first)[t->rows] = t->n;
    return TESS_OK;
}

/* The first counter of a row. */
static int64_t counters_of(const tess_timeline *t, int row)
{
    int64_t low = 0, high = t->n_counters;
    while (low < high) {
        const int64_t at = low + (high - low) / 2;
        if (t->counters[at].row < row)
            low = at + 1;
        else
            high = at;
    }
    return low;
}

static tess_status write_events(writer *w, const tess_timeline *t, const tess__view *view)
{
    tess__arena arena = {.ctx = t->ctx};
    int64_t *first = NULL;
    int32_t *list = NULL;
    tess_status status = sort_rows(t, &arena, &first, &list);
    put(w, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (int i = 0; i < view->n && status == TESS_OK; i++) {
        const int row = view->rows[i];
        status = put_rank_names(w, t, view, view->ranks[i]);
        for (int64_t k = first[row]; k < first[row + 1] && status == TESS_OK; k++)
            status = put_op(w, t, view, view->ranks[i], &t->ops[list[k]]);
        for (int64_t k = counters_of(t, row);
             view->counters && k < t->n_counters && t->counters[k].row == row && status == TESS_OK;
             k++)
            status = put_counter(w, t, view, view->ranks[i], &t->counters[k]);
    }
    tess__arena_free(&arena);
    if (status != TESS_OK)
        return status;
    put(w, "\n]}\n");
    return send(w, 1);
}

static int ends_with_gz(const char *path)
{
    const size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

tess_status tess__timeline_write(const tess_timeline *t, const tess__view *view, const char *path,
                                 int64_t *events)
{
    writer w = {.gzip = ends_with_gz(path)};
    w.text = TESS_ALLOC(t->ctx, 2 * PIECE);
    w.packed = (unsigned char *)w.text + PIECE;
    /* zlib takes its 256 KiB by itself; the fastest level packs these files ten times. */
    if (w.gzip && deflateInit2(&w.zip, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        tess__free(t->ctx, w.text);
        return tess__nomem(1 << 18);
    }
    tess_status status = tess__out_open(t->ctx, path, &w.out);
    if (status == TESS_OK) {
        status = write_events(&w, t, view);
        if (status == TESS_OK)
            status = tess__out_commit(w.out);
        else
            tess__out_abort(w.out);
    }
    if (w.gzip)
        deflateEnd(&w.zip);
    tess__free(t->ctx, w.text);
    if (status == TESS_OK)
        *events = w.events;
    return status;
}
