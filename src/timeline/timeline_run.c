/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_run.c - the event engine: operations begin and end in the order of time.
 *
 * An operation is ready when the one before it in its stream and all that it depends on have ended.
 * It begins then; a member of a call begins when the last member is ready. One queue has the end of
 * each running operation or call, the earliest first, and of equal times the one with the smaller
 * number: the order of events, and so every time, depends on the input alone.
 *
 * Compute and communication that run together take longer: timeline_slow.c.
 *
 * n operations, e dependencies: O(n log(running) + e), 8 n + 8 e bytes beside the operations.
 */
#include "timeline_engine.h"

#include <string.h>

/* ---- the queue ------------------------------------------------------------------------------- */

static int before(const tess__end *a, const tess__end *b)
{
    return a->at != b->at ? a->at < b->at : a->event < b->event;
}

tess_status tess__engine_push(tess__engine *e, int64_t at, int32_t event)
{
    TESS_GROW(e->t->ctx, e->queue, e->queued, e->queued + 1, e->room);
    const tess__end end = {at, event};
    int64_t i = e->queued++;
    while (i > 0 && before(&end, &e->queue[(i - 1) / 2])) {
        e->queue[i] = e->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->queue[i] = end;
    return TESS_OK;
}

static tess__end pop(tess__engine *e)
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

/* ---- events ---------------------------------------------------------------------------------- */

static tess_status begin_alone(tess__engine *e, int32_t i, int64_t now, int32_t cause)
{
    tess__tl_op *event = &e->t->ops[i];
    event->begin = now;
    event->cause = cause;
    event->end = now + event->ns;
    TESS_TRY(tess__slow_begin(e, i, now));
    return tess__engine_push(e, event->end, i);
}

static tess_status begin_call(tess__engine *e, const tess__tl_call *call, int64_t now,
                              int32_t cause)
{
    for (int32_t i = call->first; i >= 0; i = e->t->next_member[i]) {
        tess__tl_op *event = &e->t->ops[i];
        event->begin = now;
        event->cause = cause;
        event->end = now + event->ns;
    }
    TESS_TRY(tess__slow_begin_call(e, call, now));
    return tess__engine_push(e, e->t->ops[call->first].end, call->first);
}

static tess_status make_ready(tess__engine *e, int32_t i, int64_t now, int32_t cause)
{
    tess__tl_op *event = &e->t->ops[i];
    event->ready = now;
    if (event->call < 0)
        return begin_alone(e, i, now, cause);
    tess__tl_call *call = &e->t->calls[event->call];
    return ++call->arrived == call->members ? begin_call(e, call, now, cause) : TESS_OK;
}

static tess_status drop_pending(tess__engine *e, int32_t i, int64_t now, int32_t cause)
{
    return --e->pending[i] == 0 ? make_ready(e, i, now, cause) : TESS_OK;
}

static tess_status end_event(tess__engine *e, int32_t i)
{
    tess_timeline *t = e->t;
    const tess__tl_op *event = &t->ops[i];
    const int64_t now = event->end;
    e->done++;
    TESS_TRY(tess__slow_end(e, i, now));
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
static void link_events(tess__engine *e)
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

static tess_status reserve(tess__engine *e, tess__arena *arena)
{
    const tess_timeline *t = e->t;
    const size_t n = (size_t)t->n;
    e->pending = TESS_TAKE_ZERO(arena, n * sizeof *e->pending);
    e->offsets = TESS_TAKE_ZERO(arena, (n + 1) * sizeof *e->offsets);
    e->after = TESS_TAKE(arena, (size_t)t->n_edges * sizeof *e->after);
    return tess__slow_reserve(e, arena);
}

/* The sentence about the first operation that never ends though all before it in its stream do. */
static tess_status stuck(const tess__engine *e)
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

static tess_status run(tess__engine *e)
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
    tess__engine e = {.t = t};
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
