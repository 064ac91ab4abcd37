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
 * that blocks), the host goes on when the act has ended.
 *
 * Kernels lose what communication beside them cost in the recording (overlap_internal.h); the
 * engine adds what it costs in the replay. Cost: acts x streams.
 */
#include "replay_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t NEAR_NS = 10000;

/* A stream of the GPU: its last two acts, by number; -1: none. */
typedef struct {
    int32_t device, stream;
    int64_t last, before;
} gpu_stream;

/* An act in the order of its thread. */
typedef struct {
    uint64_t thread;
    int64_t at, act;
} launch;

/* A time with a collective. */
typedef struct {
    int64_t begin, end;
} comm_time;

typedef struct {
    tess_replay *r;
    const tess_activity *file;
    int row;
    gpu_stream *streams;
    uint64_t *threads;
    int n_streams, n_threads;
    int32_t *place;   /* (acts): number of its stream */
    launch *order;    /* (acts): by thread and launch */
    int64_t *marks;   /* (acts): when the host lets it begin, stamp of the file */
    int32_t *host;    /* (acts): operation that ends at the mark; -1: launch not known */
    int32_t *ops;     /* (acts) */
    int32_t *waiter;  /* (acts): operation of the host that waits for its end; -1: none */
    int64_t *beside;  /* (acts): ns with communication beside it */
    comm_time *comms; /* (acts): disjoint, ascending */
    int64_t origin;
} player;

static int is_comm(const tess__act *a)
{
    return a->kernel_class == TESS_KERNEL_COMMUNICATION;
}

static int64_t end_of(const tess__act *a)
{
    return a->begin + a->ns;
}

/* ---- streams and threads --------------------------------------------------------------------- */

static int find_stream(player *p, const tess__act *a)
{
    for (int i = 0; i < p->n_streams; i++)
        if (p->streams[i].stream == a->stream && p->streams[i].device == a->device)
            return i;
    p->streams[p->n_streams] = (gpu_stream){a->device, a->stream, -1, -1};
    return p->n_streams++;
}

static int find_thread(player *p, uint64_t thread)
{
    for (int i = 0; i < p->n_threads; i++)
        if (p->threads[i] == thread)
            return i;
    p->threads[p->n_threads] = thread;
    return p->n_threads++;
}

enum { STREAMS_MAX = 4096 };

int tess__replay_kineto_streams(const tess_activity *file)
{
    gpu_stream streams[STREAMS_MAX];
    uint64_t threads[STREAMS_MAX];
    player p = {.streams = streams, .threads = threads};
    for (int64_t i = 0; i < file->n_acts; i++) {
        (void)find_stream(&p, &file->acts[i]);
        if (file->acts[i].launch != TESS__NO_LAUNCH)
            (void)find_thread(&p, file->acts[i].thread);
        if (p.n_streams == STREAMS_MAX || p.n_threads == STREAMS_MAX)
            return -1;
    }
    return p.n_streams + p.n_threads;
}

/* ---- the host -------------------------------------------------------------------------------- */

static int by_launch(const void *x, const void *y)
{
    const launch *a = x, *b = y;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->act > b->act) - (a->act < b->act);
}

/* One operation for each launch: the host's time since the launch before it. */
static void add_host(player *p)
{
    const tess_activity *f = p->file;
    tess_timeline *t = p->r->timeline;
    const int32_t name = tess__timeline_name(t, "host");
    int64_t mark = p->origin, blocked = -1; /* blocked: the act that the host waited for */
    for (int64_t k = 0; k < f->n_acts; k++) {
        const int64_t i = p->order[k].act;
        const tess__act *a = &f->acts[i];
        if (a->launch == TESS__NO_LAUNCH)
            continue;
        if (k == 0 || p->order[k - 1].at == TESS__NO_LAUNCH ||
            p->order[k - 1].thread != a->thread) {
            mark = p->origin;
            blocked = -1;
        }
        const int64_t returned = a->launch + a->launch_ns;
        p->marks[i] = TESS_MIN(returned, a->begin);
        p->marks[i] = TESS_MAX(p->marks[i], mark);
        p->host[i] = tess__timeline_add(
            t, &(tess__tl_op){.row = p->row,
                              .stream = (int16_t)(p->n_streams + find_thread(p, a->thread)),
                              .cat = TESS__CAT_HOST,
                              .class = TESS__REPLAY_HOST,
                              .name = name,
                              .call = -1,
                              .ns = p->marks[i] - mark});
        if (blocked >= 0)
            p->waiter[blocked] = p->host[i];
        mark = p->marks[i];
        blocked = a->kind == TESS__ACT_COPY && returned >= end_of(a) && end_of(a) > mark ? i : -1;
        if (blocked >= 0)
            mark = end_of(a);
    }
}

/* ---- the GPU --------------------------------------------------------------------------------- */

/* The act of another stream whose end this one waited for; -1: none. */
static int64_t find_cause(const player *p, int64_t i, int own)
{
    const tess__act *a = &p->file->acts[i];
    const int64_t idle = p->streams[own].last;
    int64_t found = -1;
    for (int k = 0; k < p->n_streams; k++) {
        int64_t other = p->streams[k].last;
        if (k == own || other < 0)
            continue;
        if (end_of(&p->file->acts[other]) > a->begin)
            other = p->streams[k].before;
        if (other < 0)
            continue;
        const tess__act *o = &p->file->acts[other];
        const int64_t end = end_of(o);
        if (end > a->begin || a->begin - end > NEAR_NS || is_comm(o) == is_comm(a) ||
            (idle >= 0 && end_of(&p->file->acts[idle]) > end))
            continue;
        if (found < 0 || end > end_of(&p->file->acts[found]))
            found = other;
    }
    return found;
}

static int32_t add_lag(const player *p, int16_t stream, int64_t ns)
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

static void add_act(player *p, int64_t i)
{
    const tess__act *a = &p->file->acts[i];
    tess_replay *r = p->r;
    tess_timeline *t = r->timeline;
    gpu_stream *own = &p->streams[p->place[i]];
    const int64_t cause = find_cause(p, i, p->place[i]);
    const char *name = p->file->names.items[a->name].text;
    int64_t ready = p->host[i] >= 0 ? p->marks[i] : p->origin;
    if (own->last >= 0)
        ready = TESS_MAX(ready, end_of(&p->file->acts[own->last]));
    if (cause >= 0)
        ready = TESS_MAX(ready, end_of(&p->file->acts[cause]));
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
static void count_beside(player *p)
{
    const tess_activity *f = p->file;
    int64_t n = 0, first = 0;
    for (int64_t i = 0; i < f->n_acts; i++) {
        const tess__act *c = &f->acts[i];
        if (!is_comm(c))
            continue;
        if (n > 0 && c->begin <= p->comms[n - 1].end)
            p->comms[n - 1].end = TESS_MAX(p->comms[n - 1].end, end_of(c));
        else
            p->comms[n++] = (comm_time){c->begin, end_of(c)};
    }
    for (int64_t i = 0; i < f->n_acts; i++) {
        const tess__act *a = &f->acts[i];
        while (first < n && p->comms[first].end <= a->begin)
            first++;
        p->beside[i] = 0;
        for (int64_t k = first; k < n && p->comms[k].begin < end_of(a); k++)
            p->beside[i] +=
                TESS_MIN(end_of(a), p->comms[k].end) - TESS_MAX(a->begin, p->comms[k].begin);
    }
}

static void find_origin(player *p)
{
    const tess_activity *f = p->file;
    p->origin = f->acts[0].begin;
    for (int64_t i = 0; i < f->n_acts; i++)
        if (f->acts[i].launch != TESS__NO_LAUNCH)
            p->origin = TESS_MIN(p->origin, f->acts[i].launch);
}

static tess_status reserve(player *p, tess__arena *arena)
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
    memset(p->host, 0xff, n * sizeof *p->host);
    memset(p->waiter, 0xff, n * sizeof *p->waiter);
    return TESS_OK;
}

tess_status tess__replay_kineto(tess_replay *r, int number)
{
    tess__arena arena = {.ctx = r->ctx};
    const tess_activity *f = r->rows[number].kineto;
    player p = {.r = r, .file = f, .row = number};
    tess_status status = reserve(&p, &arena);
    if (status == TESS_OK) {
        for (int64_t i = 0; i < f->n_acts; i++) {
            p.place[i] = find_stream(&p, &f->acts[i]);
            p.order[i] = (launch){f->acts[i].thread, f->acts[i].launch, i};
        }
        qsort(p.order, (size_t)f->n_acts, sizeof *p.order, by_launch);
        find_origin(&p);
        count_beside(&p);
        add_host(&p);
        for (int64_t i = 0; i < f->n_acts; i++)
            add_act(&p, i);
        r->rows[number].result.recorded_ns = f->info.span_ns;
        status = r->timeline->status;
    }
    tess__arena_free(&arena);
    return status;
}
