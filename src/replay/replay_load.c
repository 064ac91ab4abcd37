/* SPDX-License-Identifier: Apache-2.0 */
/* replay_load.c - files of ranks: whose trace each is, by its content.
 *
 * Our own traces have "tessera_trace" among their first bytes: version 1 (tess_comm_trace_write) is
 * read whole, version 2 (a program) streamed. Any other file is streamed as one of a profiler.
 */
#include "replay_internal.h"

#include "file/byte_stream.h"

#include <string.h>

enum { HEAD = 4096 };
static const size_t OURS_MAX = (size_t)1 << 31;

/* All that is left of a stream, behind the n bytes that were read. */
static tess_status read_all(tess_ctx *ctx, tess__byte_stream *bytes, char **text, size_t *n)
{
    int64_t room = HEAD;
    size_t got = 1;
    while (got > 0) {
        TESS_TRY(tess__grow(ctx, text, 1, (int64_t)*n, (int64_t)*n + HEAD, &room));
        TESS_TRY(tess__byte_stream_read(bytes, *text + *n, HEAD, &got));
        *n += got;
        if (*n > OURS_MAX)
            return tess__fail(TESS_EFORMAT, "a trace of tess_comm_trace_write above 2 GiB");
    }
    return TESS_OK;
}

/* The number behind "tessera_trace": in the first bytes; 0: it is not there. What is no number
 * counts as 1, whose reader says so. */
static int64_t version_of(const char *text, size_t n)
{
    static const char word[] = "\"tessera_trace\"";
    static const int64_t LARGE = 1000000;
    const size_t length = sizeof word - 1;
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(text + i, word, length) == 0) {
            int64_t version = 0;
            for (i += length; i < n && (text[i] == ' ' || text[i] == ':'); i++)
                ;
            for (; i < n && text[i] >= '0' && text[i] <= '9' && version < LARGE; i++)
                version = 10 * version + text[i] - '0';
            return version > 0 ? version : 1;
        }
    return 0;
}

/* Opens a file and reads its first bytes; *version: of our own traces, 0 of others. */
static tess_status open_head(tess_ctx *ctx, const char *path, char *text, size_t *n,
                             tess__byte_stream **bytes, int64_t *version)
{
    size_t got = 1;
    TESS_TRY(tess__byte_stream_open(ctx, path, bytes));
    while (*n < HEAD && got > 0) {
        TESS_TRY(tess__byte_stream_read(*bytes, text + *n, HEAD - *n, &got));
        *n += got;
    }
    *version = version_of(text, *n);
    return TESS_OK;
}

tess_status tess_trace_is(tess_ctx *ctx, const char *path, int *is)
{
    char text[HEAD] = "";
    size_t n = 0;
    tess__byte_stream *bytes = NULL;
    TESS_REQUIRE(ctx, path, is);
    int64_t version = 0;
    const tess_status status = open_head(ctx, path, text, &n, &bytes, &version);
    tess__byte_stream_close(bytes);
    if (status == TESS_OK)
        *is = version == 1;
    return status;
}

tess_status tess_trace_load(tess_ctx *ctx, const char *path, tess_trace **trace)
{
    tess__byte_stream *bytes = NULL;
    size_t n = 0;
    int64_t version = 0;
    TESS_REQUIRE(ctx, path, trace);
    char *text = tess__alloc(ctx, HEAD);
    tess_status status = text ? open_head(ctx, path, text, &n, &bytes, &version) : TESS_ENOMEM;
    if (status == TESS_OK)
        status = read_all(ctx, bytes, &text, &n);
    if (status == TESS_OK)
        status = tess__trace_parse(ctx, path, text, n, trace);
    tess__byte_stream_close(bytes);
    tess__free(ctx, text);
    return status;
}

static tess_status load_program(tess_replay *r, const char *path, tess__replay_row *row)
{
    tess__byte_stream *bytes = NULL;
    TESS_TRY(tess__byte_stream_open(r->ctx, path, &bytes));
    TESS_TRY(tess__program_read(r->ctx, path, bytes, &row->program));
    row->rank = row->program->rank;
    row->ranks = row->program->ranks;
    for (int i = 0; i < row->program->n_warnings; i++)
        TESS_TRY(TESS_NOTE(r, "rank %d: %s", row->rank, row->program->warnings[i]));
    for (int64_t i = 0; r->as_recorded && i < row->program->n; i++)
        if (row->program->events[i].kind != TESS__PROGRAM_WAIT && row->program->events[i].ns < 0)
            return tess__fail(TESS_EINVAL,
                              "%s: has operators without times: as recorded is not possible", path);
    return TESS_OK;
}

static tess_status load_row(tess_replay *r, const char *path, tess__replay_row *row)
{
    char text[HEAD] = "";
    size_t n = 0;
    int64_t version = 0;
    tess__byte_stream *bytes = NULL;
    row->path = TESS_TAKE_STRING(&r->arena, path, strlen(path));
    const tess_status status = open_head(r->ctx, path, text, &n, &bytes, &version);
    tess__byte_stream_close(bytes);
    TESS_TRY(status);
    if (version == 2)
        return load_program(r, path, row);
    if (version > 2)
        return tess__fail(TESS_EFORMAT, "%s: \"tessera_trace\" is %lld, must be 1 or 2", path,
                          (long long)version);
    if (version) {
        TESS_TRY(tess_trace_load(r->ctx, path, &row->ours));
        row->rank = row->ours->info.rank;
        row->ranks = row->ours->info.ranks;
        return TESS_OK;
    }
    TESS_TRY(tess_activity_load(r->ctx, path, NULL, &row->kineto));
    row->rank = row->kineto->info.rank;
    row->ranks = row->kineto->info.ranks;
    for (int i = 0; i < row->kineto->info.notes; i++)
        TESS_TRY(TESS_NOTE(r, "%s: %s", path, row->kineto->notes[i]));
    if (row->kineto->n_acts == 0)
        return tess__fail(TESS_EINVAL, "%s: has no kernel and no copy of a GPU", path);
    return TESS_OK;
}

/* One file of unknown rank is rank 0 of a job of its own. */
static tess_status check_ranks(tess_replay *r)
{
    for (int i = 0; i < r->n; i++) {
        tess__replay_row *row = &r->rows[i];
        if (row->rank < 0 && r->n > 1)
            return tess__fail(
                TESS_EINVAL,
                "%s: does not say its rank; name the file so that it does (rank3.json)", row->path);
        row->rank = TESS_MAX(row->rank, 0);
        r->info.ranks = TESS_MAX(r->info.ranks, row->rank + 1);
        r->info.ranks = TESS_MAX(r->info.ranks, row->ranks);
        for (int k = 0; k < i; k++)
            if (r->rows[k].rank == row->rank)
                return tess__fail(TESS_EINVAL, "%s and %s are both of rank %d", r->rows[k].path,
                                  row->path, row->rank);
    }
    return TESS_OK;
}

tess_status tess__replay_load(tess_replay *r, const char *const *paths, int n)
{
    r->rows = TESS_ALLOC_ZERO(r->ctx, (size_t)n * sizeof *r->rows);
    for (; r->n < n; r->n++) {
        TESS_TRY(tess__progress(r->ctx, "reading traces", r->n, n));
        const tess_status status = load_row(r, paths[r->n], &r->rows[r->n]);
        if (status != TESS_OK) {
            r->n++; /* what it holds is freed with the others */
            return status;
        }
    }
    r->info.files = n;
    return check_ranks(r);
}

void tess__replay_unload(tess_replay *r)
{
    for (int i = 0; i < r->n; i++) {
        tess_trace_destroy(r->rows[i].ours);
        tess_activity_destroy(r->rows[i].kineto);
        tess__program_destroy(r->rows[i].program);
        tess__free(r->ctx, r->rows[i].counts);
        tess__free(r->ctx, r->rows[i].meets);
    }
    tess__free(r->ctx, r->rows);
    for (int64_t i = 0; i < r->n_groups; i++)
        tess__free(r->ctx, r->groups[i].meets);
    tess__free(r->ctx, r->groups);
    tess__free(r->ctx, r->meets);
    tess__free(r->ctx, r->notes);
}
