/* SPDX-License-Identifier: Apache-2.0 */
/* activity.c - the activity of a file: loading, asking, freeing. */
#include "activity_internal.h"

tess_status tess_activity_load(tess_ctx *ctx, const char *path, const tess_activity_opts *opts,
                               tess_activity **file)
{
    tess__byte_stream *bytes = NULL;
    TESS_REQUIRE(ctx, path, file);
    if (opts && opts->rank_given)
        TESS_TRY(tess__check_range(__func__, "rank", opts->rank, 0, (1 << 20) - 1));
    TESS_TRY(tess__byte_stream_open(ctx, path, &bytes));
    return tess__activity_parse(ctx, path, bytes, opts, file);
}

void tess_activity_destroy(tess_activity *f)
{
    if (!f)
        return;
    void *const parts[] = {f->acts,   f->launches, f->syncs,       f->host,
                           f->steps,  f->calls,    f->groups,      f->labels,
                           f->drafts, f->notes,    f->names.items, f->names.table};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        tess__free(f->ctx, parts[i]);
    tess__arena_free(&f->arena);
    tess__free(f->ctx, f);
}

tess_status tess_activity_query(const tess_activity *file, tess_activity_info *info)
{
    TESS_REQUIRE(file, info);
    *info = file->info;
    return TESS_OK;
}

const char *tess_activity_note(const tess_activity *file, int index)
{
    return file && index >= 0 && index < file->info.notes ? file->notes[index] : NULL;
}

tess_status tess_activity_calls(const tess_activity *file, const tess_activity_call **calls,
                                int64_t *n)
{
    TESS_REQUIRE(file, calls, n);
    *calls = file->calls;
    *n = file->info.calls;
    return TESS_OK;
}
