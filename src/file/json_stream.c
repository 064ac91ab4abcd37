/* SPDX-License-Identifier: Apache-2.0 */
/* json_stream.c - JSON documents of any size, one element of a long array at a time.
 *
 * A buffer holds a piece of the document. The next value is scanned in it; where the buffer ends
 * inside the value, the part that is there goes to the front, more is read behind it, and the value
 * is scanned again. The buffer doubles for values that are longer, up to TESS__JSON_VALUE_MAX.
 *
 *   | done | value that is being scanned ... | room for more | 0 0 0 ... |
 *           at                                end
 */
#include "json_stream.h"

#include <string.h>

enum { FIRST_ROOM = 1 << 20 };

typedef enum {
    BEFORE,        /* of the document */
    MEMBER_FIRST,  /* behind its brace */
    MEMBER_NEXT,   /* behind a member: a comma or the brace */
    ELEMENT_FIRST, /* behind the bracket of the array */
    ELEMENT_NEXT,
    AFTER, /* of the document */
} place;

typedef enum { GOT, STEPPED, MORE, BAD } outcome;

struct tess__json_stream {
    tess_ctx *ctx;
    tess__byte_stream *bytes;
    const char *name, *array;
    char *buffer; /* (room + TESS__SCAN_PAD) */
    size_t room, at, end;
    int64_t offset; /* of buffer[0] in the document */
    place place;
    int root_array, ended, cut;
    tess__json_scan scan;
    tess__json_field fields[TESS__SCAN_FIELDS];
};

/* ---- the buffer ------------------------------------------------------------------------------ */

static tess_status resize(tess__json_stream *s, size_t room)
{
    char *larger = TESS_ALLOC(s->ctx, room + TESS__SCAN_PAD);
    if (s->end > 0)
        memcpy(larger, s->buffer, s->end);
    tess__free(s->ctx, s->buffer);
    s->buffer = larger;
    s->room = room;
    return TESS_OK;
}

/* Reads more behind what has not been given yet, to the end of the buffer: a value longer than the
 * buffer is scanned again after every refill. */
static tess_status refill(tess__json_stream *s)
{
    size_t got = 1;
    int64_t done, total;
    memmove(s->buffer, s->buffer + s->at, s->end - s->at);
    s->offset += (int64_t)s->at;
    s->end -= s->at;
    s->at = 0;
    if (s->end == s->room) {
        if (s->room >= (size_t)TESS__JSON_VALUE_MAX)
            return tess__fail(TESS_EFORMAT, "%s: the value at byte %lld has more than 16 MiB",
                              s->name, (long long)s->offset);
        TESS_TRY(resize(s, 2 * s->room));
    }
    for (; got > 0 && s->end < s->room; s->end += got)
        TESS_TRY(tess__byte_stream_read(s->bytes, s->buffer + s->end, s->room - s->end, &got));
    s->ended = got == 0;
    memset(s->buffer + s->end, 0, TESS__SCAN_PAD);
    s->scan.end = s->buffer + s->end;
    tess__byte_stream_progress(s->bytes, &done, &total);
    return tess__progress(s->ctx, s->name, done, total);
}

/* ---- values ---------------------------------------------------------------------------------- */

static outcome bad(tess__json_stream *s, const char *p, const char *what)
{
    s->scan.at = p;
    s->scan.what = what;
    return p < s->scan.end ? BAD : MORE;
}

static outcome failed(const tess__json_stream *s)
{
    return s->scan.what ? BAD : MORE;
}

static outcome give(tess__json_stream *s, tess__json_item_kind kind, tess__json_slice key,
                    const char *value, const char *end, tess__json_item *item)
{
    *item = (tess__json_item){.kind = kind,
                              .key = key,
                              .value = {value, (size_t)(end - value)},
                              .fields = s->fields,
                              .n_fields = *value == '{' ? s->scan.n_fields : 0,
                              .offset = s->offset + (value - s->buffer)};
    s->at = (size_t)(end - s->buffer);
    return GOT;
}

static outcome step(tess__json_stream *s, const char *p, place to)
{
    s->at = (size_t)(p - s->buffer);
    s->place = to;
    return STEPPED;
}

static outcome begin_document(tess__json_stream *s, const char *p)
{
    static const char mark[] = "\xef\xbb\xbf"; /* a byte order mark */
    if (s->offset == 0 && p == s->buffer && strncmp(p, mark, 3) == 0)
        p = tess__json_scan_space(p + 3);
    if (*p == '{')
        return step(s, p + 1, MEMBER_FIRST);
    if (*p != '[')
        return bad(s, p, "a JSON object or array must begin");
    s->root_array = 1;
    return step(s, p + 1, ELEMENT_FIRST);
}

static outcome member(tess__json_stream *s, const char *p, tess__json_item *item)
{
    if (*p != '"')
        return bad(s, p, "a member must begin with its key in quotes");
    const char *end = tess__json_scan_value(&s->scan, p);
    if (!end)
        return failed(s);
    const tess__json_slice key = {p + 1, (size_t)(end - p) - 2};
    p = tess__json_scan_space(end);
    if (*p != ':')
        return bad(s, p, "a key without its colon");
    p = tess__json_scan_space(p + 1);
    if (*p == '[' && tess__json_slice_is(key, s->array))
        return step(s, p + 1, ELEMENT_FIRST);
    if (!(end = tess__json_scan_value(&s->scan, p)))
        return failed(s);
    s->place = MEMBER_NEXT;
    return give(s, TESS__ITEM_MEMBER, key, p, end, item);
}

static outcome element(tess__json_stream *s, const char *p, tess__json_item *item)
{
    const char *end = tess__json_scan_value(&s->scan, p);
    if (!end)
        return failed(s);
    s->place = ELEMENT_NEXT;
    return give(s, TESS__ITEM_ELEMENT, (tess__json_slice){0}, p, end, item);
}

/* One value or bracket of the buffer. */
static outcome advance(tess__json_stream *s, tess__json_item *item)
{
    const char *p = tess__json_scan_space(s->buffer + s->at);
    const int of_members = s->place == MEMBER_FIRST || s->place == MEMBER_NEXT;
    if (s->place == BEFORE)
        return begin_document(s, p);
    if (s->place == AFTER)
        return bad(s, p, "text behind the end of the document");
    if (*p == (of_members ? '}' : ']'))
        return step(s, p + 1, of_members || s->root_array ? AFTER : MEMBER_NEXT);
    if (s->place == MEMBER_NEXT || s->place == ELEMENT_NEXT) {
        if (*p != ',')
            return bad(s, p,
                       of_members ? "members must have a comma between them"
                                  : "elements must have a comma between them");
        p = tess__json_scan_space(p + 1);
    }
    return of_members ? member(s, p, item) : element(s, p, item);
}

/* ---- the stream ------------------------------------------------------------------------------ */

tess_status tess__json_stream_open(tess_ctx *ctx, tess__byte_stream *bytes, const char *name,
                                   const char *array, tess__json_stream **stream)
{
    tess__json_stream *made = tess__alloc_zero(ctx, sizeof *made);
    if (!made) {
        tess__byte_stream_close(bytes);
        return TESS_ENOMEM;
    }
    made->ctx = ctx;
    made->bytes = bytes;
    made->name = name;
    made->array = array;
    made->scan.fields = made->fields;
    const tess_status status = resize(made, FIRST_ROOM);
    if (status != TESS_OK) {
        tess__json_stream_close(made);
        return status;
    }
    memset(made->buffer, 0, TESS__SCAN_PAD);
    made->scan.end = made->buffer;
    *stream = made;
    return TESS_OK;
}

static tess_status end_early(tess__json_stream *s, tess__json_item *item)
{
    if (s->place == BEFORE)
        return tess__fail(TESS_EFORMAT, "%s: %s, must be a JSON object or array", s->name,
                          s->offset + (int64_t)s->end == 0 ? "is empty" : "has white space only");
    s->cut = s->place != AFTER;
    *item = (tess__json_item){.kind = TESS__ITEM_END};
    return TESS_OK;
}

tess_status tess__json_stream_next(tess__json_stream *s, tess__json_item *item)
{
    for (;;) {
        const outcome found = advance(s, item);
        if (found == GOT)
            return TESS_OK;
        if (found == BAD)
            return tess__fail(TESS_EFORMAT, "%s: byte %lld: %s", s->name,
                              (long long)s->offset + (s->scan.at - s->buffer), s->scan.what);
        if (found == STEPPED)
            continue;
        if (s->ended)
            return end_early(s, item);
        TESS_TRY(refill(s));
    }
}

const char *tess__json_stream_broken(const tess__json_stream *s, int64_t *bytes)
{
    const char *broken = tess__byte_stream_broken(s->bytes);
    *bytes = s->offset + (int64_t)s->end;
    return broken ? broken : s->cut ? "its JSON is not complete" : NULL;
}

void tess__json_stream_close(tess__json_stream *s)
{
    if (!s)
        return;
    tess__byte_stream_close(s->bytes);
    tess__free(s->ctx, s->buffer);
    tess__free(s->ctx, s);
}
