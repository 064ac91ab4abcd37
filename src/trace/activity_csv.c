/* SPDX-License-Identifier: Apache-2.0 */
/* activity_csv.c - collectives of files as CSV, a row a call; docs/formats.md has the columns. */
#include "activity_internal.h"

#include "file/out.h"

#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 16 };

typedef struct {
    tess__out *out;
    char text[PIECE];
    size_t used;
} writer;

static tess_status send(writer *w)
{
    const size_t n = w->used;
    w->used = 0;
    return tess__out_write(w->out, w->text, n);
}

static tess_status put(writer *w, const char *text, size_t n)
{
    if (n > PIECE - w->used)
        TESS_TRY(send(w));
    if (n > PIECE)
        return tess__out_write(w->out, text, n);
    memcpy(w->text + w->used, text, n);
    w->used += n;
    return TESS_OK;
}

/* A number, or nothing below 0; then a comma. */
static tess_status put_number(writer *w, int64_t x, int known)
{
    char text[32];
    const int n = known ? snprintf(text, sizeof text, "%lld,", (long long)x)
                        : snprintf(text, sizeof text, ",");
    return put(w, text, (size_t)n);
}

/* A text in quotes where a comma, a quote or a line's end is in it; then a comma. */
static tess_status put_text(writer *w, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        TESS_TRY(put(w, text, strlen(text)));
        return put(w, ",", 1);
    }
    TESS_TRY(put(w, "\"", 1));
    for (; *text; text++) {
        if (*text == '"')
            TESS_TRY(put(w, "\"", 1));
        TESS_TRY(put(w, text, 1));
    }
    return put(w, "\",", 2);
}

static tess_status put_group(writer *w, const tess_activity_call *call)
{
    char text[16];
    for (int i = 0; i < call->n_ranks; i++) {
        const int n = snprintf(text, sizeof text, "%s%d", i ? " " : "", call->ranks[i]);
        TESS_TRY(put(w, text, (size_t)n));
    }
    return put(w, ",", 1);
}

static tess_status put_call(writer *w, const tess_activity *f, const tess_activity_call *call)
{
    TESS_TRY(put_text(w, f->info.path));
    TESS_TRY(put_number(w, f->info.rank, f->info.rank >= 0));
    TESS_TRY(put_number(w, call->call, 1));
    TESS_TRY(put_text(w, tess_call_op_name(call->op)));
    TESS_TRY(put_group(w, call));
    TESS_TRY(put_number(w, call->in_bytes, call->in_bytes >= 0));
    TESS_TRY(put_number(w, call->out_bytes, call->out_bytes >= 0));
    TESS_TRY(put_text(w, call->dtype));
    TESS_TRY(put_number(w, call->stream, 1));
    TESS_TRY(put_number(w, call->begin_ns, 1));
    TESS_TRY(put_number(w, call->ns, 1));
    const char *source = tess_call_source_name(call->source);
    TESS_TRY(put(w, source, strlen(source)));
    return put(w, "\n", 1);
}

static tess_status write_all(writer *w, const tess_activity *const *files, int n)
{
    static const char head[] = "file,rank,call,op,group,in_bytes,out_bytes,dtype,stream,begin_ns,"
                               "ns,source\n";
    TESS_TRY(put(w, head, sizeof head - 1));
    for (int f = 0; f < n; f++)
        for (int64_t i = 0; i < files[f]->info.calls; i++)
            TESS_TRY(put_call(w, files[f], &files[f]->calls[i]));
    return send(w);
}

tess_status tess_activity_write(const tess_activity *const *files, int n, const char *path)
{
    TESS_REQUIRE(files, path);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 16));
    for (int i = 0; i < n; i++)
        TESS_REQUIRE(files[i]);
    tess_ctx *ctx = files[0]->ctx;
    writer *w = TESS_ALLOC_ZERO(ctx, sizeof *w);
    tess_status status = tess__out_open(ctx, path, &w->out);
    if (status == TESS_OK) {
        status = write_all(w, files, n);
        if (status == TESS_OK)
            status = tess__out_commit(w->out);
        else
            tess__out_abort(w->out);
    }
    tess__free(ctx, w);
    return status;
}
