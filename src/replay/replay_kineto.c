/* SPDX-License-Identifier: Apache-2.0 */
/* replay_kineto.c - a rank of a profiler's trace in the event engine.
 *
 * Streams of the GPU, and one for each thread of the host that launches. What runs on the GPU (an
 * act) begins when
 *
 *   - the act before it in its stream has ended,
 *   - its launch has returned; a thread's own time between its launches stays as recorded,
 *   - of two streams: where it began within 10 us after the end of a collective of another stream,
 *     its own stream having been idle, that collective has ended; a collective waits in the same
 *     way for a kernel or copy of another stream
 *
 * and after the lag that the recording has beside these, which stays. So a replay with all recorded
 * times gives every recorded begin again. An act that began before its launch returned waits for
 * the part of the launch before its begin; where a launch returned after its act had ended (a copy
 * that blocks), the host goes on when the act has ended. After a synchronisation it goes on when
 * all that it waited for has ended (replay_host.c), and the time until the call returned.
 *
 * Kernels lose what communication beside them cost in the recording (overlap_internal.h); the
 * engine adds what it costs in the replay. Cost: acts x streams.
 */
#include "replay_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_comm(const tess__act *a)
{
    return a->kernel_class == TESS_KERNEL_COMMUNICATION;
}

/* ---- streams and launches -------------------------------------------------------------------- */

static int find_stream(tess__player *p, const tess__act *a)
{
    for (int i = 0; i < p->n_streams; i++)
        if (p->streams[i].stream == a->stream && p->streams[i].device == a->device)
            return i;
    p->streams[p->n_streams] = (tess__gpu_stream){a->device, a->stream, -1, -1};
    return p->n_streams++;
}

enum { STREAMS_MAX = 4096 };

int tess__replay_kineto_streams(const tess_activity *file)
{
    tess__gpu_stream streams[STREAMS_MAX];
    uint64_t threads[STREAMS_MAX];
    tess__player p = {.streams = streams, .threads = threads};
    for (int64_t i = 0; i < file->n_acts; i++) {
        (void)find_stream(&p, &file->acts[i]);
        if (file->acts[i].launch != TESS__NO_LAUNCH)
            (void)tess__player_thread(&p, file->acts[i].thread);
        if (p.n_streams == STREAMS_MAX || p.n_threads == STREAMS_MAX)
            return -1;
    }
    return p.n_streams + p.n_threads;
}

static int by_launch(const void *x, const void *y)
{
    const tess__host_launch *a = x, *b = y;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->act > b->act) - (a->act < b->act);
}

/* ---- the GPU --------------------------------------------------------------------------------- */

/* The act of another stream whose end this one waited for; -1: none. */
static int64_t find_cause(const tess__player *p, int64_t i, int own)
{
    const tess__act *a = &p->file->acts[i];
    const int64_t idle = p->streams[own].last;
    int64_t found = -1;
    for (int k = 0; k < p->n_streams; k++) {
        int64_t other = p->streams[k].last;
        if (k == own || other < 0)
            continue;
        if (tess__act_end(&p->file->acts[other]) > a->begin)
            other = p->streams[k].before;
        if (other < 0)
            continue;
        const tess__act *o = &p->file->acts[other];
        const int64_t end = tess__act_end(o);
        if (end > a->begin || a->begin - end > TESS__REPLAY_NEAR_NS || is_comm(o) == is_comm(a) ||
            (idle >= 0 && tess__act_end(&p->file->acts[idle]) > end))
            continue;
        if (found < 0 || end > tess__act_end(&p->file->acts[found]))
            found = other;
    }
    return found;
}

static int32_t add_lag(const tess__player *p, int16_t stream, int64_t ns)
{
    tess_timeline *t = p->r->timeline;
    return tess__timeline_add(t, &(tess__tl_op){.row = p->row,
                                                .stream = stream,
                                                .cat = TESS__CAT_HOST,
                                                .class = TESS__REPLAY_HOST,
                                                .name = tess__timeline_name(t, "lag"),
                                                .call = -1,
                                                .ns = ns});
}

static void add_act(tess__player *p, int64_t i)
{
    const tess__act *a = &p->file->acts[i];
    tess_replay *r = p->r;
    tess_timeline *t = r->timeline;
    tess__gpu_stream *own = &p->streams[p->place[i]];
    const int64_t cause = find_cause(p, i, p->place[i]);
    const char *name = p->file->names.items[a->name].text;
    int64_t ready = p->host[i] >= 0 ? p->marks[i] : p->origin;
    if (own->last >= 0)
        ready = TESS_MAX(ready, tess__act_end(&p->file->acts[own->last]));
    if (cause >= 0)
        ready = TESS_MAX(ready, tess__act_end(&p->file->acts[cause]));
    tess__tl_op op = {.row = p->row,
                      .stream = (int16_t)p->place[i],
                      .cat = a->kind == TESS__ACT_KERNEL ? TESS__CAT_COMPUTE : TESS__CAT_COPY,
                      .class = a->kernel_class,
                      .name = tess__timeline_name(t, name),
                      .call = -1,
                      .ns = a->ns};
    int32_t first = a->begin > ready ? add_lag(p, op.stream, a->begin - ready) : -1;
    if (is_comm(a))
        tess__replay_join(r, a->call < 0 ? -1 : r->rows[p->row].meets[a->call], a->ns, &op);
    else if (op.cat == TESS__CAT_COMPUTE)
        op.ns = llround(r->scale *
                        (double)tess__replay_alone(r, name, a->kernel_class, a->ns, p->beside[i]));
    r->rows[p->row].result.calls += is_comm(a);
    p->ops[i] = tess__timeline_add(t, &op);
    first = first < 0 ? p->ops[i] : first;
    tess__timeline_depend(t, first, p->host[i]);
    if (cause >= 0)
        tess__timeline_depend(t, first, p->ops[cause]);
    tess__timeline_depend(t, p->waiter[i], p->ops[i]);
    own->before = own->last;
    own->last = i;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* ns of each kernel with a collective beside it. Both ascend by begin: `first` is the first time
 * with collectives that ends behind the begin of the kernel. */
static void count_beside(tess__player *p)
{
    const tess_activity *f = p->file;
    int64_t n = 0, first = 0;
    for (int64_t i = 0; i < f->n_acts; i++) {
        const tess__act *c = &f->acts[i];
        if (!is_comm(c))
            continue;
        if (n > 0 && c->begin <= p->comms[n - 1].end)
            p->comms[n - 1].end = TESS_MAX(p->comms[n - 1].end, tess__act_end(c));
        else
            p->comms[n++] = (tess__comm_time){c->begin, tess__act_end(c)};
    }
    for (int64_t i = 0; i < f->n_acts; i++) {
        const tess__act *a = &f->acts[i];
        while (first < n && p->comms[first].end <= a->begin)
            first++;
        p->beside[i] = 0;
        for (int64_t k = first; k < n && p->comms[k].begin < tess__act_end(a); k++)
            p->beside[i] +=
                TESS_MIN(tess__act_end(a), p->comms[k].end) - TESS_MAX(a->begin, p->comms[k].begin);
    }
}

static void find_origin(tess__player *p)
{
    const tess_activity *f = p->file;
    p->origin = f->acts[0].begin;
    for (int64_t i = 0; i < f->n_acts; i++)
        if (f->acts[i].launch != TESS__NO_LAUNCH)
            p->origin = TESS_MIN(p->origin, f->acts[i].launch);
}

static tess_status reserve(tess__player *p, tess__arena *arena)
{
    const size_t n = (size_t)p->file->n_acts, most = (size_t)p->r->streams;
    p->streams = TESS_TAKE(arena, most * sizeof *p->streams);
    p->threads = TESS_TAKE(arena, most * sizeof *p->threads);
    p->place = TESS_TAKE(arena, n * sizeof *p->place);
    p->order = TESS_TAKE(arena, n * sizeof *p->order);
    p->marks = TESS_TAKE(arena, n * sizeof *p->marks);
    p->host = TESS_TAKE(arena, n * sizeof *p->host);
    p->ops = TESS_TAKE(arena, n * sizeof *p->ops);
    p->waiter = TESS_TAKE(arena, n * sizeof *p->waiter);
    p->beside = TESS_TAKE(arena, n * sizeof *p->beside);
    p->comms = TESS_TAKE(arena, n * sizeof *p->comms);
    p->waited = TESS_TAKE(arena, most * sizeof *p->waited);
    memset(p->host, 0xff, n * sizeof *p->host);
    memset(p->waiter, 0xff, n * sizeof *p->waiter);
    return TESS_OK;
}

tess_status tess__replay_kineto(tess_replay *r, int number)
{
    tess__arena arena = {.ctx = r->ctx};
    const tess_activity *f = r->rows[number].kineto;
    tess__player p = {.r = r, .file = f, .row = number};
    tess_status status = reserve(&p, &arena);
    if (status == TESS_OK) {
        for (int64_t i = 0; i < f->n_acts; i++) {
            p.place[i] = find_stream(&p, &f->acts[i]);
            p.order[i] = (tess__host_launch){f->acts[i].thread, f->acts[i].launch, i};
        }
        qsort(p.order, (size_t)f->n_acts, sizeof *p.order, by_launch);
        find_origin(&p);
        count_beside(&p);
        status = tess__player_sort_acts(&p, &arena);
    }
    if (status == TESS_OK)
        status = tess__player_add_host(&p);
    if (status == TESS_OK) {
        for (int64_t i = 0; i < f->n_acts; i++)
            add_act(&p, i);
        for (int64_t i = 0; i < p.n_waits; i++)
            tess__timeline_depend(r->timeline, p.waits[2 * i], p.ops[p.waits[2 * i + 1]]);
        r->rows[number].result.recorded_ns = f->info.span_ns;
        status = r->timeline->status;
    }
    tess__free(r->ctx, p.waits);
    tess__arena_free(&arena);
    return status;
}
