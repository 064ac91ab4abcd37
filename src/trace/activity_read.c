/* SPDX-License-Identifier: Apache-2.0 */
/* activity_read.c - a trace from its file: members of the document, events, notes. */
#include "activity_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- members of the document ---------------------------------------------------------------- */

static int small_number(tess__json_slice value, int *out)
{
    int64_t x;
    if (!tess__json_decimal(value, 0, &x) || x < 0 || x > 1 << 20)
        return 0;
    *out = (int)x;
    return 1;
}

static tess_status read_pg(tess__event_reader *r, tess__json_slice config)
{
    const int n = tess__json_fields(config, r->fields);
    tess__json_slice name = {0}, ranks = {0};
    int32_t group, label;
    for (int i = 0; i < n; i++) {
        if (tess__json_slice_is(r->fields[i].key, "pg_name"))
            name = r->fields[i].value;
        else if (tess__json_slice_is(r->fields[i].key, "ranks"))
            ranks = r->fields[i].value;
    }
    if (name.length < 2 || name.text[0] != '"')
        return TESS_OK;
    TESS_TRY(tess__group_text(r->file, ranks, &group));
    return tess__group_label_add(r->file, (tess__json_slice){name.text + 1, name.length - 2}, group,
                                 &label);
}

/* "pg_config": [{"pg_name": "0", "ranks": [0, 1]}, ...] */
static tess_status read_pgs(tess__event_reader *r, tess__json_slice list)
{
    const int64_t n = tess__json_elements(list, NULL, 0);
    if (n <= 0)
        return TESS_OK;
    tess__json_slice *configs = tess__alloc(r->file->ctx, (size_t)n * sizeof *configs);
    tess_status status = configs ? TESS_OK : TESS_ENOMEM;
    if (configs)
        tess__json_elements(list, configs, n);
    for (int64_t i = 0; i < n && status == TESS_OK; i++)
        status = read_pg(r, configs[i]);
    tess__free(r->file->ctx, configs);
    return status;
}

static tess_status read_distributed(tess__event_reader *r, tess__json_slice info)
{
    tess_activity *f = r->file;
    const int n = tess__json_fields(info, r->fields);
    tess__json_slice groups = {0};
    for (int i = 0; i < n; i++) {
        if (tess__json_slice_is(r->fields[i].key, "rank"))
            small_number(r->fields[i].value, &f->info.rank);
        else if (tess__json_slice_is(r->fields[i].key, "world_size"))
            small_number(r->fields[i].value, &f->info.ranks);
        else if (tess__json_slice_is(r->fields[i].key, "pg_config"))
            groups = r->fields[i].value;
    }
    return read_pgs(r, groups);
}

/* "otherData" of tess_comm_trace_write. */
static void read_ours(tess__event_reader *r, tess__json_slice other)
{
    const int n = tess__json_fields(other, r->fields);
    for (int i = 0; i < n; i++)
        r->ours |= tess__json_slice_is(r->fields[i].key, "tessera_trace");
    for (int i = 0; i < n && r->ours; i++) {
        if (tess__json_slice_is(r->fields[i].key, "rank"))
            small_number(r->fields[i].value, &r->file->info.rank);
        else if (tess__json_slice_is(r->fields[i].key, "ranks"))
            small_number(r->fields[i].value, &r->file->info.ranks);
    }
}

static tess_status read_member(tess__event_reader *r, const tess__json_item *item)
{
    if (tess__json_slice_is(item->key, "distributedInfo"))
        return read_distributed(r, item->value);
    if (tess__json_slice_is(item->key, "otherData"))
        read_ours(r, item->value);
    else if (tess__json_slice_is(item->key, "baseTimeNanoseconds") &&
             (!tess__json_decimal(item->value, 0, &r->file->base_ns) ||
              r->file->base_ns > (int64_t)1 << 61 || r->file->base_ns < 0))
        r->file->base_ns = 0;
    return TESS_OK;
}

/* The number behind the last "rank" of the file's name: "rank3", "rank-3", "rank_3"; -1: none. */
static int rank_of_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    int rank = -1;
    for (const char *p = slash ? slash + 1 : path; (p = strstr(p, "rank")) != NULL;) {
        p += 4;
        const char *digits = p + (*p == '-' || *p == '_' || *p == '=' || *p == '.');
        int64_t x = 0;
        if (*digits < '0' || *digits > '9')
            continue;
        for (; *digits >= '0' && *digits <= '9'; digits++)
            x = TESS_MIN(10 * x + (*digits - '0'), (int64_t)1 << 20);
        rank = x < 1 << 20 ? (int)x : rank;
    }
    return rank;
}

/* ---- notes ---------------------------------------------------------------------------------- */

static tess_status note_count(tess_activity *f, int64_t n, const char *one, const char *many)
{
    return n == 0   ? TESS_OK
           : n == 1 ? TESS_NOTE(f, "1 %s", one)
                    : TESS_NOTE(f, "%lld %s", (long long)n, many);
}

static tess_status note_counts(tess_activity *f)
{
    const tess__act_counts *c = &f->counts;
    const struct {
        int64_t n;
        const char *one, *many;
    } rows[] = {
        {c->negative, "event left out: its duration is negative",
         "events left out: their durations are negative"},
        {c->range, "event left out: its ts or dur is no number within range",
         "events left out: their ts or dur are no numbers within range"},
        {c->no_duration, "complete event left out: it has no dur",
         "complete events left out: they have no dur"},
        {c->unpaired, "B or E event without the other", "B or E events without the other"},
        {c->not_objects, "element of traceEvents is no object",
         "elements of traceEvents are no objects"},
        {c->no_op, "collective of an unknown operation", "collectives of an unknown operation"},
        {c->no_bytes, "collective without known bytes", "collectives without known bytes"},
        {c->no_group, "collective without a known process group",
         "collectives without a known process group"},
        {c->no_launch, "kernel or copy without its launch",
         "kernels or copies without their launch"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TESS_TRY(note_count(f, rows[i].n, rows[i].one, rows[i].many));
    return TESS_OK;
}

/* Categories of the host, in quotes. */
static int is_host(const tess__category *c)
{
    static const char *const names[] = {"cpu_op",
                                        "user_annotation",
                                        "python_function",
                                        "cpu_instant_event",
                                        "cuda_runtime",
                                        "cuda_driver",
                                        "hip_runtime",
                                        "Operator",
                                        "Runtime",
                                        "Trace",
                                        "overhead",
                                        "fwdbwd",
                                        "ac2g",
                                        "async_cpu_to_gpu",
                                        "cuda_sync",
                                        "gpu_user_annotation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == c->bytes - 2 && memcmp(c->name + 1, names[i], c->bytes - 2) == 0)
            return 1;
    return 0;
}

/* Categories of activity: all of their events had no valid times. */
static int is_activity(const tess__category *c)
{
    static const char *const names[] = {"kernel", "gpu_memcpy", "gpu_memset"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == c->bytes - 2 &&
            strncasecmp(c->name + 1, names[i], c->bytes - 2) == 0)
            return 1;
    return 0;
}

/* What a file without activity has: the host alone, or another accelerator. */
static tess_status note_empty(const tess__event_reader *r)
{
    tess_activity *f = r->file;
    char list[256] = "";
    size_t used = 0;
    int other = 0, left_out = 0;
    for (int i = 0; i < r->n_categories; i++) {
        const tess__category *c = &r->categories[i];
        if (c->bytes < 3 || c->name[0] != '"')
            continue;
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%lld of %.*s", used ? ", " : "",
                             (long long)c->events, (int)c->bytes - 2, c->name + 1);
        used = TESS_MIN(used, sizeof list - 1);
        other |= !is_host(c);
        left_out |= is_activity(c);
    }
    return TESS_NOTE(f, "no GPU activity (kernel, gpu_memcpy, gpu_memset): %s%s",
                     f->info.events == 0 ? "no events at all"
                     : left_out          ? "its events were left out, "
                     : other             ? "another accelerator or profiler, "
                     : used              ? "the host only, "
                                         : "no complete events with a category",
                     list);
}

static tess_status note_all(tess__event_reader *r, const tess__json_stream *stream)
{
    tess_activity *f = r->file;
    const char *broken = tess__json_stream_broken(stream, &f->info.json_bytes);
    if (broken)
        TESS_TRY(TESS_NOTE(f,
                           "the file ends too early, after %lld bytes of JSON: %s; "
                           "what comes before is kept",
                           (long long)f->info.json_bytes, broken));
    for (int i = 0; i < r->n_threads; i++)
        f->counts.unpaired += r->depth[i];
    if (f->n_acts == 0)
        TESS_TRY(note_empty(r));
    return note_counts(f);
}

/* ---- the file ------------------------------------------------------------------------------- */

static tess_status read_stream(tess__event_reader *r, tess__json_stream *stream)
{
    tess__json_item item;
    do {
        TESS_TRY(tess__json_stream_next(stream, &item));
        if (item.kind == TESS__ITEM_ELEMENT)
            TESS_TRY(tess__event_read(r, &item));
        else if (item.kind == TESS__ITEM_MEMBER)
            TESS_TRY(read_member(r, &item));
    } while (item.kind != TESS__ITEM_END);
    return TESS_OK;
}

static tess_status read_file(tess_activity *f, tess__byte_stream *bytes,
                             const tess_activity_opts *opts, tess__event_reader *r)
{
    tess__json_stream *stream = NULL;
    TESS_TRY(tess__json_stream_open(f->ctx, bytes, f->path, "traceEvents", &stream));
    tess_status status = read_stream(r, stream);
    if (status == TESS_OK)
        status = tess__activity_link(f);
    if (status == TESS_OK && opts->step_given)
        status = tess__activity_step(f, opts->step);
    if (status == TESS_OK)
        status = tess__activity_find_calls(f);
    if (status == TESS_OK)
        status = note_all(r, stream);
    tess__json_stream_close(stream);
    return status;
}

tess_status tess__activity_parse(tess_ctx *ctx, const char *path, tess__byte_stream *bytes,
                                 const tess_activity_opts *opts, tess_activity **file)
{
    const tess_activity_opts o = opts ? *opts : (tess_activity_opts){0};
    tess_activity *f = tess__alloc_zero(ctx, sizeof *f);
    tess__event_reader *r = tess__alloc_zero(ctx, sizeof *r);
    if (f)
        *f = (tess_activity){.ctx = ctx, .arena = {.ctx = ctx}, .info = {.rank = -1}};
    if (f)
        f->path = tess__arena_string(&f->arena, path, strlen(path));
    if (!f || !r || !f->path) {
        tess__byte_stream_close(bytes);
        tess__free(ctx, r);
        tess_activity_destroy(f);
        return TESS_ENOMEM;
    }
    r->file = f;
    f->info.path = f->path;
    tess_status status = read_file(f, bytes, &o, r);
    tess__free(ctx, r);
    if (status != TESS_OK) {
        tess_activity_destroy(f);
        return status;
    }
    if (o.rank_given)
        f->info.rank = o.rank;
    else if (f->info.rank < 0)
        f->info.rank = rank_of_name(path);
    tess__activity_times(f);
    *file = f;
    return TESS_OK;
}
