/* SPDX-License-Identifier: Apache-2.0 */
/* program_read.c - a trace of version 2 from its file: docs/formats.md lists the members.
 *
 * The file is streamed. "otherData" comes before "traceEvents", because events are checked against
 * the number of ranks. Other members of the document are passed over.
 */
#include "replay_program.h"

#include <string.h>

enum { RANKS_MAX = 1 << 20, WARNINGS_MAX = 4096, TEXT_MAX = 1000 };
static const int64_t BYTES_MAX = (int64_t)1 << 53;

const char *const tess__program_parts[TESS__PROGRAM_PARTS] = {
    "parameters", "gradients", "optimizer", "activations", "temporaries"};

static tess_status read_number(const tess__program *p, const tess__json_field *field, int64_t low,
                               int64_t high, int64_t *out)
{
    if (field->value.text[0] == '"' || !tess__json_decimal(field->value, 0, out) || *out < low ||
        *out > high)
        return tess__fail(TESS_EFORMAT, "%s: \"%.*s\" is %.*s, must be %lld..%lld", p->path,
                          (int)TESS_MIN(field->key.length, (size_t)40), field->key.text,
                          (int)TESS_MIN(field->value.length, (size_t)40), field->value.text,
                          (long long)low, (long long)high);
    return TESS_OK;
}

static tess_status read_memory(tess__program *p, tess__json_slice value)
{
    tess__json_field fields[TESS__SCAN_FIELDS];
    const int n = tess__json_fields(value, fields);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < TESS__PROGRAM_PARTS; k++)
            if (tess__json_slice_is(fields[i].key, tess__program_parts[k]))
                TESS_TRY(read_number(p, &fields[i], 0, BYTES_MAX, &p->parts[k]));
    return TESS_OK;
}

static tess_status read_warnings(tess__program *p, tess__json_slice value)
{
    const int64_t n = tess__json_elements(value, NULL, 0);
    if (n < 0 || n > WARNINGS_MAX)
        return tess__fail(TESS_EFORMAT, "%s: \"warnings\" must be an array of up to %d texts",
                          p->path, WARNINGS_MAX);
    tess__json_slice *items = TESS_TAKE(&p->arena, TESS_MAX((size_t)n, (size_t)1) * sizeof *items);
    tess__json_elements(value, items, n);
    p->warnings = TESS_TAKE(&p->arena, TESS_MAX((size_t)n, (size_t)1) * sizeof *p->warnings);
    for (int64_t i = 0; i < n; i++) {
        char text[TEXT_MAX];
        const size_t length = tess__json_slice_text(items[i], text, sizeof text);
        p->warnings[p->n_warnings++] = TESS_TAKE_STRING(&p->arena, text, length);
    }
    return TESS_OK;
}

static tess_status read_head(tess__program *p, tess__json_slice value)
{
    tess__json_field fields[TESS__SCAN_FIELDS];
    const int n = tess__json_fields(value, fields);
    int64_t version = 0, rank = -1, ranks = 0;
    for (int i = 0; i < n; i++) {
        const tess__json_slice key = fields[i].key;
        if (tess__json_slice_is(key, "tessera_trace"))
            TESS_TRY(read_number(p, &fields[i], 2, 2, &version));
        else if (tess__json_slice_is(key, "rank"))
            TESS_TRY(read_number(p, &fields[i], 0, RANKS_MAX - 1, &rank));
        else if (tess__json_slice_is(key, "ranks"))
            TESS_TRY(read_number(p, &fields[i], 1, RANKS_MAX, &ranks));
        else if (tess__json_slice_is(key, "peak_bytes"))
            TESS_TRY(read_number(p, &fields[i], 0, BYTES_MAX, &p->peak_bytes));
        else if (tess__json_slice_is(key, "memory"))
            TESS_TRY(read_memory(p, fields[i].value));
        else if (tess__json_slice_is(key, "warnings"))
            TESS_TRY(read_warnings(p, fields[i].value));
    }
    if (version == 0 || rank < 0 || ranks == 0)
        return tess__fail(TESS_EFORMAT, "%s: \"otherData\" lacks \"%s\"", p->path,
                          version == 0 ? "tessera_trace"
                          : rank < 0   ? "rank"
                                       : "ranks");
    if (rank >= ranks)
        return tess__fail(TESS_EFORMAT, "%s: \"rank\" is %lld, must be below \"ranks\", %lld",
                          p->path, (long long)rank, (long long)ranks);
    p->rank = (int)rank;
    p->ranks = (int)ranks;
    return TESS_OK;
}

static tess_status read_items(tess__program *p, tess__json_stream *stream)
{
    tess__json_item item;
    int64_t bytes;
    do {
        TESS_TRY(tess__json_stream_next(stream, &item));
        if (item.kind == TESS__ITEM_MEMBER && tess__json_slice_is(item.key, "otherData")) {
            if (p->ranks)
                return tess__fail(TESS_EFORMAT, "%s: \"otherData\" comes twice", p->path);
            TESS_TRY(read_head(p, item.value));
        } else if (item.kind == TESS__ITEM_ELEMENT) {
            if (!p->ranks)
                return tess__fail(TESS_EFORMAT,
                                  "%s: \"otherData\" must come before \"traceEvents\"", p->path);
            TESS_TRY(tess__program_event_read(p, &item));
        }
    } while (item.kind != TESS__ITEM_END);
    const char *broken = tess__json_stream_broken(stream, &bytes);
    if (broken)
        return tess__fail(TESS_EFORMAT, "%s: ends too early, after %lld bytes: %s", p->path,
                          (long long)bytes, broken);
    return p->ranks ? TESS_OK : tess__fail(TESS_EFORMAT, "%s: lacks \"otherData\"", p->path);
}

tess_status tess__program_read(tess_ctx *ctx, const char *path, tess__byte_stream *bytes,
                               tess__program **program)
{
    tess__json_stream *stream = NULL;
    tess__program *p = tess__alloc_zero(ctx, sizeof *p);
    if (p) {
        p->ctx = p->arena.ctx = ctx;
        p->path = tess__arena_string(&p->arena, path, strlen(path));
    }
    if (!p || !p->path) {
        tess__byte_stream_close(bytes);
        tess__program_destroy(p);
        return TESS_ENOMEM;
    }
    tess_status status = tess__json_stream_open(ctx, bytes, p->path, "traceEvents", &stream);
    if (status == TESS_OK)
        status = read_items(p, stream);
    tess__json_stream_close(stream);
    if (status == TESS_OK)
        *program = p;
    else
        tess__program_destroy(p);
    return status;
}

void tess__program_destroy(tess__program *p)
{
    if (!p)
        return;
    tess__free(p->ctx, p->events);
    tess__free(p->ctx, p->stores);
    tess__free(p->ctx, p->groups);
    tess__arena_free(&p->arena);
    tess__free(p->ctx, p);
}
