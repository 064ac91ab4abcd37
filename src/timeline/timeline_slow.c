/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_slow.c - compute and communication that run together take longer.
 *
 * An operation that takes s ppm longer beside the other side does 10^6 / (10^6 + s) ns of its work
 * in a nanosecond while an operation of the other side runs on its row; a call does so while
 * compute runs on the row of any member, because all members end together. When the first one of
 * the other side begins, or the last one ends, the work that is left is counted and the end set
 * anew; the queue's entry of the old end is recognised by its time.
 *
 * Work is rounded down and times are rounded up, in 128 bits: the same everywhere. Cost: streams of
 * a row for each change, members of a call for each of its changes.
 */
#include "timeline_engine.h"

#include <string.h>

enum { MILLION = 1000000 };

static int side_of(const tess__tl_op *op)
{
    return op->cat == TESS__CAT_COMM                      ? TESS__SIDE_COMM
           : op->cat == TESS__CAT_COMPUTE && op->call < 0 ? TESS__SIDE_COMPUTE
                                                          : -1;
}

static int32_t ppm_of(const tess__engine *e, const tess__tl_op *op)
{
    return side_of(op) < 0 ? 0 : e->slow[(int64_t)op->name * TESS__CLASS_MAX + op->class];
}

/* ns that `work` takes at `ppm` more, at most what an int64_t holds; rounded up. */
static int64_t stretched(int64_t work, int32_t ppm)
{
    const __int128 ns = ((__int128)work * (MILLION + ppm) + MILLION - 1) / MILLION;
    return ns > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)ns;
}

static int64_t place_of(const tess__engine *e, const tess__tl_op *op)
{
    return (int64_t)op->row * e->t->streams + op->stream;
}

/* ---- ends set anew --------------------------------------------------------------------------- */

/* The time from `now` on of work whose rate changes: slow 1, it is slow from now on. */
static int64_t time_left(tess__work_left *w, int32_t ppm, int slow, int64_t now)
{
    const int64_t gone = now - w->since;
    const int64_t work = slow ? gone : (int64_t)((__int128)gone * MILLION / (MILLION + ppm));
    w->left -= TESS_MIN(work, w->left);
    w->since = now;
    return slow ? stretched(w->left, ppm) : w->left;
}

static tess_status retime(tess__engine *e, int32_t i, int slow, int64_t now)
{
    tess__tl_op *op = &e->t->ops[i];
    op->end = now + time_left(&e->works[place_of(e, op)], ppm_of(e, op), slow, now);
    return tess__engine_push(e, op->end, i);
}

/* Compute on one member's row has begun (change 1) or ended (-1). */
static tess_status retime_call(tess__engine *e, int32_t i, int change, int64_t now)
{
    const tess__tl_op *op = &e->t->ops[i];
    const tess__tl_call *call = &e->t->calls[op->call];
    tess__work_left *w = &e->call_works[op->call];
    const int32_t was = w->busy;
    w->busy += change;
    if ((was > 0) == (w->busy > 0))
        return TESS_OK;
    const int64_t end = now + time_left(w, ppm_of(e, op), w->busy > 0, now);
    for (int32_t k = call->first; k >= 0; k = e->t->next_member[k])
        e->t->ops[k].end = end;
    return tess__engine_push(e, end, call->first);
}

/* One more (change 1) or less of a side on a row: what runs there of the other side changes its
 * rate. */
static tess_status count(tess__engine *e, int32_t row, int side, int change, int64_t now)
{
    int32_t *counted = &e->counts[side][row];
    const int32_t was = *counted;
    *counted += change;
    if ((was > 0) == (*counted > 0))
        return TESS_OK;
    for (int s = 0; s < e->t->streams; s++) {
        const int32_t i = e->running[(int64_t)row * e->t->streams + s];
        if (i < 0)
            continue;
        const tess__tl_op *op = &e->t->ops[i];
        const int other = side_of(op);
        if (other < 0 || other == side || ppm_of(e, op) == 0)
            continue;
        if (op->call >= 0)
            TESS_TRY(retime_call(e, i, change, now));
        else if (op->end > now)
            TESS_TRY(retime(e, i, *counted > 0, now));
    }
    return TESS_OK;
}

/* ---- begins and ends ------------------------------------------------------------------------- */

tess_status tess__slow_begin(tess__engine *e, int32_t i, int64_t now)
{
    tess__tl_op *op = &e->t->ops[i];
    const int side = side_of(op);
    const int64_t at = place_of(e, op);
    if (!e->slow || side < 0)
        return TESS_OK;
    e->running[at] = i;
    e->works[at] = (tess__work_left){.left = op->ns, .since = now};
    if (e->counts[!side][op->row] > 0)
        op->end = now + stretched(op->ns, ppm_of(e, op));
    return count(e, op->row, side, 1, now);
}

tess_status tess__slow_begin_call(tess__engine *e, const tess__tl_call *call, int64_t now)
{
    tess_timeline *t = e->t;
    int32_t busy = 0;
    if (!e->slow)
        return TESS_OK;
    for (int32_t i = call->first; i >= 0; i = t->next_member[i])
        busy += e->counts[TESS__SIDE_COMPUTE][t->ops[i].row] > 0;
    const tess__tl_op *first = &t->ops[call->first];
    const int64_t ns = busy ? stretched(first->ns, ppm_of(e, first)) : first->ns;
    e->call_works[first->call] = (tess__work_left){.left = first->ns, .since = now, .busy = busy};
    for (int32_t i = call->first; i >= 0; i = t->next_member[i]) {
        t->ops[i].end = now + ns;
        e->running[place_of(e, &t->ops[i])] = i;
    }
    for (int32_t i = call->first; i >= 0; i = t->next_member[i])
        if (side_of(&t->ops[i]) >= 0)
            TESS_TRY(count(e, t->ops[i].row, TESS__SIDE_COMM, 1, now));
    return TESS_OK;
}

tess_status tess__slow_end(tess__engine *e, int32_t i, int64_t now)
{
    const tess__tl_op *op = &e->t->ops[i];
    const int side = side_of(op);
    if (!e->slow)
        return TESS_OK;
    e->running[place_of(e, op)] = -1;
    return side < 0 ? TESS_OK : count(e, op->row, side, -1, now);
}

tess_status tess__slow_reserve(tess__engine *e, tess__arena *arena)
{
    const tess_timeline *t = e->t;
    const size_t places = (size_t)t->rows * (size_t)t->streams, rows = (size_t)t->rows;
    if (!t->slow)
        return TESS_OK;
    const size_t kinds = (size_t)t->n_names * TESS__CLASS_MAX;
    e->slow = TESS_TAKE(arena, kinds * sizeof *e->slow);
    e->running = TESS_TAKE(arena, places * sizeof *e->running);
    e->works = TESS_TAKE(arena, places * sizeof *e->works);
    e->call_works = TESS_TAKE(arena, (size_t)t->n_calls * sizeof *e->call_works);
    memset(e->running, 0xff, places * sizeof *e->running);
    for (int side = 0; side < TESS__SIDES; side++) {
        e->counts[side] = TESS_TAKE_ZERO(arena, rows * sizeof *e->counts[side]);
    }
    for (size_t i = 0; i < kinds; i++)
        e->slow[i] = TESS_MAX(
            0, t->slow(t->slow_user, t->names[i / TESS__CLASS_MAX], (int)(i % TESS__CLASS_MAX)));
    return TESS_OK;
}
