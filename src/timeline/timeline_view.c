/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_view.c - a timeline to its readers: sizes, operations, memory, a file of ranks. */
#include "timeline_internal.h"

#include <string.h>

const char *const tess__tl_cats[TESS__CATS] = {"compute", "communication", "copy", "wait"};

static const char *const plain_streams[] = {"compute"};
static const tess__view plain_view = {.streams = plain_streams};

static tess_status check_ran(const char *who, const tess_timeline *t)
{
    return t->ran && (t->view || t->streams == 1) ? TESS_OK
                                                  : tess__invalid(who, "timeline has not run");
}

tess_status tess_timeline_query(const tess_timeline *t, tess_timeline_info *info)
{
    TESS_REQUIRE(t, info);
    TESS_TRY(check_ran(__func__, t));
    *info = (tess_timeline_info){.ns = t->end,
                                 .ranks = t->view ? t->ranks : t->rows,
                                 .classes = t->rows,
                                 .operations = t->n,
                                 .streams = t->streams,
                                 .counters = t->n_counters};
    return TESS_OK;
}

static int first_rank(const tess_timeline *t, int row)
{
    return t->view ? t->first_rank[row] : row;
}

tess_status tess_timeline_class_of(const tess_timeline *t, int rank, int *first)
{
    TESS_REQUIRE(t, first);
    TESS_TRY(check_ran(__func__, t));
    TESS_TRY(tess__check_range(__func__, "rank", rank, 0, (t->view ? t->ranks : t->rows) - 1));
    *first = t->view ? t->first_rank[t->row_of[rank]] : rank;
    return TESS_OK;
}

tess_status tess_timeline_stream(const tess_timeline *t, int rank, int stream, char text[64])
{
    TESS_REQUIRE(t, text);
    TESS_TRY(check_ran(__func__, t));
    const tess__view *view = t->view ? t->view : &plain_view;
    TESS_TRY(tess__check_range(__func__, "rank", rank, 0, (t->view ? t->ranks : t->rows) - 1));
    TESS_TRY(tess__check_range(__func__, "stream", stream, 0, t->streams - 1));
    text[0] = '\0';
    if (view->stream && stream >= view->named)
        view->stream(view->user, rank, stream, text);
    else
        snprintf(text, 64, "%s", view->streams[stream]);
    return TESS_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

tess_status tess_timeline_critical(const tess_timeline *t, int index, const char **name,
                                   int64_t *ns)
{
    TESS_REQUIRE(t, name, ns);
    TESS_TRY(check_ran(__func__, t));
    int64_t all[TESS__CLASS_MAX];
    *name = NULL;
    int n = 0;
    while (t->classes && t->classes[n])
        n++;
    if (index < 0 || index >= n)
        return tess__invalid(__func__, "index is %d, must be below %d", index, n);
    tess__timeline_critical(t, all);
    *name = t->classes[index];
    *ns = all[index];
    return TESS_OK;
}

tess_status tess_timeline_op_query(const tess_timeline *t, int64_t index, tess_timeline_op *op)
{
    TESS_REQUIRE(t, op);
    TESS_TRY(check_ran(__func__, t));
    TESS_TRY(tess__check_range(__func__, "index", index, 0, t->n - 1));
    const tess__tl_op *o = &t->ops[index];
    const int tag = t->view && t->view->tags && o->tag >= 0;
    *op = (tess_timeline_op){.rank = first_rank(t, o->row),
                             .stream = o->stream,
                             .name = t->names[o->name],
                             .cat = tess__tl_cats[o->cat],
                             .kind = t->classes ? t->classes[o->class] : "",
                             .pass = tag ? t->names[o->tag] : "",
                             .ready = o->ready,
                             .begin = o->begin,
                             .end = o->end,
                             .bytes = o->call >= 0 ? t->calls[o->call].bytes : 0,
                             .critical = t->critical ? t->critical[index] : 0};
    return TESS_OK;
}

tess_status tess_timeline_memory_query(const tess_timeline *t, int64_t index,
                                       tess_timeline_memory *memory)
{
    TESS_REQUIRE(t, memory);
    TESS_TRY(check_ran(__func__, t));
    TESS_TRY(tess__check_range(__func__, "index", index, 0, t->n_counters - 1));
    const tess__tl_counter *c = &t->counters[index];
    *memory = (tess_timeline_memory){first_rank(t, c->row), t->ops[c->op].end, c->value[0],
                                     c->value[1], c->value[2]};
    return TESS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

tess_status tess_timeline_write_ranks(const tess_timeline *t, const int *ranks, int n,
                                      const char *path, int64_t *events)
{
    TESS_REQUIRE(t, path);
    TESS_TRY(check_ran(__func__, t));
    const int all = t->view ? t->ranks : t->rows;
    const int count = ranks ? n : t->rows;
    int64_t written;
    int32_t *lists = TESS_ALLOC(t->ctx, 2 * (size_t)TESS_MAX(count, 1) * sizeof *lists);
    tess_status status = TESS_OK;
    for (int i = 0; i < count && status == TESS_OK; i++) {
        lists[i] = ranks ? ranks[i] : first_rank(t, i);
        status = tess__check_range(__func__, "rank", lists[i], 0, all - 1);
        if (status == TESS_OK)
            lists[count + i] = t->view ? t->row_of[lists[i]] : lists[i];
    }
    tess__view view = t->view ? *t->view : plain_view;
    view.ranks = lists;
    view.rows = lists + count;
    view.n = count;
    if (status == TESS_OK)
        status = tess__timeline_write(t, &view, path, &written);
    if (status == TESS_OK && events)
        *events = written;
    tess__free(t->ctx, lists);
    return status;
}

tess_status tess_timeline_write(const tess_timeline *t, const char *path)
{
    return tess_timeline_write_ranks(t, NULL, 0, path, NULL);
}
