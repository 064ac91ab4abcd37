/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_run.c - the event engine: operations begin and end in the order of time.
 *
 * An operation is ready when the one before it in its stream and all that it depends on have ended.
 * It begins then; a member of a call begins when the last member is ready. One queue has the end of
 * each running operation or call, the earliest first, and of equal times the one with the smaller
 * number: the order of events, and so every time, depends on the input alone.
 *
 * Compute beside communication is slower: while communication runs on a row, an operation there
 * that takes s ppm longer does 10^6 / (10^6 + s) ns of its work in a nanosecond. When communication
 * begins or ends on the row, the work that is left is counted and the end set anew; the queue's
 * entry of the old end is recognised by its time.
 *
 * n operations, e dependencies: O(n log(running) + e), 8 n + 8 e bytes beside the operations.
 */
#include "timeline_internal.h"

#include <string.h>

typedef struct {
    int64_t at;
    int32_t event; /* of a call: its first member */
} tess__end;

typedef struct {
    tess_timeline *t;
    int32_t *pending; /* what each operation still waits for */
    int64_t *offsets; /* into after, of each operation */
    int32_t *after;
    tess__end *queue; /* a binary heap */
    int64_t queued, room;
    int32_t *slow;    /* ppm of each name and class, where anything slows down; else NULL */
    int32_t *running; /* of each (row, stream): the compute operation; -1: none */
    int32_t *comms;   /* of each row: communication that runs */
    int64_t *left;    /* of each (row, stream): work of `running` at the time `since` */
    int64_t *since;
    int64_t done;
} engine;

/* ---- the queue ------------------------------------------------------------------------------- */

static int before(const tess__end *a, const tess__end *b)
{
    return a->at != b->at ? a->at < b->at : a->event < b->event;
}

static tess_status push(engine *e, int64_t at, int32_t event)
{
    TESS_TRY(
        tess__grow(e->t->ctx, &e->queue, sizeof *e->queue, e->queued, e->queued + 1, &e->room));
    const tess__end end = {at, event};
    int64_t i = e->queued++;
    while (i > 0 && before(&end, &e->queue[(i - 1) / 2])) {
        e->queue[i] = e->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->queue[i] = end;
    return TESS_OK;
}

static tess__end pop(engine *e)
{
    const tess__end top = e->queue[0], last = e->queue[--e->queued];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= e->queued)
            break;
        if (child + 1 < e->queued && before(&e->queue[child + 1], &e->queue[child]))
            child++;
        if (!before(&e->queue[child], &last))
            break;
        e->queue[i] = e->queue[child];
        i = child;
    }
    e->queue[i] = last;
    return top;
}

/* ---- compute beside communication ------------------------------------------------------------ */

enum { MILLION = 1000000 };

static int32_t ppm_of(const engine *e, const tess__tl_op *event)
{
    if (!e->slow || event->cat != TESS__CAT_COMPUTE || event->call >= 0)
        return 0;
    return e->slow[(int64_t)event->name * TESS__CLASS_MAX + event->class];
}

/* ns that `work` takes at `ppm` more, at most what an int64_t holds; rounded up. */
static int64_t stretched(int64_t work, int32_t ppm)
{
    const __int128 ns = ((__int128)work * (MILLION + ppm) + MILLION - 1) / MILLION;
    return ns > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)ns;
}

/* Communication on a row has begun (change 1) or ended (-1) at `now`. */
static tess_status count_comm(engine *e, int32_t row, int change, int64_t now)
{
    if (!e->slow)
        return TESS_OK;
    const int32_t was = e->comms[row];
    e->comms[row] += change;
    if ((was > 0) == (e->comms[row] > 0))
        return TESS_OK;
    for (int s = 0; s < e->t->streams; s++) {
        const int64_t at = (int64_t)row * e->t->streams + s;
        if (e->running[at] < 0)
            continue;
        tess__tl_op *event = &e->t->ops[e->running[at]];
        const int32_t ppm = ppm_of(e, event);
        if (ppm == 0 || event->end <= now)
            continue;
        const int64_t gone = now - e->since[at];
        const int64_t work = was > 0 ? (int64_t)((__int128)gone * MILLION / (MILLION + ppm)) : gone;
        e->left[at] -= TESS_MIN(work, e->left[at]);
        e->since[at] = now;
        event->end = now + (e->comms[row] > 0 ? stretched(e->left[at], ppm) : e->left[at]);
        TESS_TRY(push(e, event->end, e->running[at]));
    }
    return TESS_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static tess_status begin_alone(engine *e, int32_t i, int64_t now, int32_t cause)
{
    tess__tl_op *event = &e->t->ops[i];
    event->begin = now;
    event->cause = cause;
    event->end = now + event->ns;
    const int32_t ppm = ppm_of(e, event);
    if (ppm > 0) {
        const int64_t at = (int64_t)event->row * e->t->streams + event->stream;
        e->running[at] = i;
        e->left[at] = event->ns;
        e->since[at] = now;
        if (e->comms[event->row] > 0)
            event->end = now + stretched(event->ns, ppm);
    }
    if (event->cat == TESS__CAT_COMM)
        TESS_TRY(count_comm(e, event->row, 1, now));
    return push(e, event->end, i);
}

static tess_status begin_call(engine *e, const tess__tl_call *call, int64_t now, int32_t cause)
{
    for (int32_t i = call->first; i >= 0; i = e->t->next_member[i]) {
        tess__tl_op *event = &e->t->ops[i];
        event->begin = now;
        event->cause = cause;
        event->end = now + event->ns;
        TESS_TRY(count_comm(e, event->row, 1, now));
    }
    return push(e, e->t->ops[call->first].end, call->first);
}

static tess_status make_ready(engine *e, int32_t i, int64_t now, int32_t cause)
{
    tess__tl_op *event = &e->t->ops[i];
    event->ready = now;
    if (event->call < 0)
        return begin_alone(e, i, now, cause);
    tess__tl_call *call = &e->t->calls[event->call];
    return ++call->arrived == call->members ? begin_call(e, call, now, cause) : TESS_OK;
}

static tess_status drop_pending(engine *e, int32_t i, int64_t now, int32_t cause)
{
    return --e->pending[i] == 0 ? make_ready(e, i, now, cause) : TESS_OK;
}

static tess_status end_event(engine *e, int32_t i)
{
    tess_timeline *t = e->t;
    const tess__tl_op *event = &t->ops[i];
    const int64_t now = event->end;
    e->done++;
    if (e->slow && event->call < 0)
        e->running[(int64_t)event->row * t->streams + event->stream] = -1;
    if (event->cat == TESS__CAT_COMM)
        TESS_TRY(count_comm(e, event->row, -1, now));
    if (t->last_op < 0 || now > t->end) {
        t->end = now;
        t->last_op = i;
    }
    if (t->next[i] >= 0)
        TESS_TRY(drop_pending(e, t->next[i], now, i));
    for (int64_t k = e->offsets[i]; k < e->offsets[i + 1]; k++)
        TESS_TRY(drop_pending(e, e->after[k], now, i));
    return TESS_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* What each operation waits for, and what waits for it. */
static void link_events(engine *e)
{
    const tess_timeline *t = e->t;
    for (int64_t k = 0; k < t->n_edges; k++) {
        e->offsets[t->edges[k].before + 1]++;
        e->pending[t->edges[k].after]++;
    }
    for (int64_t i = 0; i < t->n; i++) {
        e->offsets[i + 1] += e->offsets[i];
        if (t->next[i] >= 0)
            e->pending[t->next[i]]++;
    }
    for (int64_t k = t->n_edges - 1; k >= 0; k--)
        e->after[--e->offsets[t->edges[k].before + 1]] = t->edges[k].after;
    /* Each offset has moved back to its own beginning, one place to the right. */
    memmove(e->offsets, e->offsets + 1, (size_t)t->n * sizeof *e->offsets);
    e->offsets[t->n] = t->n_edges;
}

static tess_status reserve(engine *e, tess__arena *arena)
{
    const tess_timeline *t = e->t;
    const size_t n = (size_t)t->n, places = (size_t)t->rows * (size_t)t->streams;
    e->pending = tess__arena_take(arena, n * sizeof *e->pending);
    e->offsets = tess__arena_take(arena, (n + 1) * sizeof *e->offsets);
    e->after = tess__arena_take(arena, (size_t)t->n_edges * sizeof *e->after);
    if (!e->pending || !e->offsets || !e->after)
        return TESS_ENOMEM;
    memset(e->pending, 0, n * sizeof *e->pending);
    memset(e->offsets, 0, (n + 1) * sizeof *e->offsets);
    if (!t->slow)
        return TESS_OK;
    const size_t kinds = (size_t)t->n_names * TESS__CLASS_MAX;
    e->slow = tess__arena_take(arena, kinds * sizeof *e->slow);
    e->running = tess__arena_take(arena, places * sizeof *e->running);
    e->comms = tess__arena_take(arena, (size_t)t->rows * sizeof *e->comms);
    e->left = tess__arena_take(arena, places * sizeof *e->left);
    e->since = tess__arena_take(arena, places * sizeof *e->since);
    if (!e->slow || !e->running || !e->comms || !e->left || !e->since)
        return TESS_ENOMEM;
    memset(e->running, 0xff, places * sizeof *e->running);
    memset(e->comms, 0, (size_t)t->rows * sizeof *e->comms);
    for (size_t i = 0; i < kinds; i++)
        e->slow[i] = TESS_MAX(
            0, t->slow(t->slow_user, t->names[i / TESS__CLASS_MAX], (int)(i % TESS__CLASS_MAX)));
    return TESS_OK;
}

/* The sentence about the first operation that never ends though all before it in its stream do. */
static tess_status stuck(const engine *e)
{
    const tess_timeline *t = e->t;
    int64_t *const behind = e->offsets; /* 1: one before it in its stream never ends */
    memset(behind, 0, (size_t)t->n * sizeof *behind);
    for (int64_t i = 0; i < t->n; i++)
        if (e->pending[i] >= 0 && t->next[i] >= 0)
            behind[t->next[i]] = 1;
    int64_t at = 0;
    while (e->pending[at] < 0 || behind[at])
        at++;
    const tess__tl_op *event = &t->ops[at];
    return tess__fail(TESS_EINVAL, "timeline: row %d, stream %d: \"%s\" waits for ever", event->row,
                      event->stream, t->names[event->name]);
}

static tess_status run(engine *e)
{
    tess_timeline *t = e->t;
    link_events(e);
    for (int64_t i = 0; i < t->n_calls; i++)
        t->calls[i].arrived = 0;
    t->end = 0;
    t->last_op = -1;
    for (int32_t i = 0; i < t->n; i++)
        if (e->pending[i] == 0)
            TESS_TRY(make_ready(e, i, 0, -1));
    while (e->queued > 0) {
        const tess__end end = pop(e);
        const tess__tl_op *event = &t->ops[end.event];
        if (event->end != end.at || e->pending[end.event] < 0)
            continue; /* slowed down or sped up since */
        if (event->call < 0) {
            e->pending[end.event] = -1;
            TESS_TRY(end_event(e, end.event));
            continue;
        }
        for (int32_t i = t->calls[event->call].first; i >= 0; i = t->next_member[i]) {
            e->pending[i] = -1;
            TESS_TRY(end_event(e, i));
        }
    }
    return e->done == t->n ? TESS_OK : stuck(e);
}

tess_status tess__timeline_run(tess_timeline *t)
{
    engine e = {.t = t};
    tess__arena arena = {.ctx = t->ctx};
    t->ran = 0;
    tess_status status = t->status;
    if (status == TESS_OK)
        status = reserve(&e, &arena);
    if (status == TESS_OK)
        status = run(&e);
    tess__free(t->ctx, e.queue);
    tess__arena_free(&arena);
    t->ran = status == TESS_OK;
    return status;
}
