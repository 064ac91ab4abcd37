/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_ops.c - a timeline while it is described: names, calls, operations, dependencies.
 *
 * Arrays that double; an operation takes 64 bytes, a dependency 8. Names are stored once.
 */
#include "timeline_internal.h"

#include <string.h>

tess_status tess__timeline_create(tess_ctx *ctx, int rows, int streams, tess_timeline **timeline)
{
    const size_t lasts = tess__bytes((size_t)rows, (size_t)streams * sizeof(int32_t));
    tess_timeline *t = TESS_ALLOC_ZERO(ctx, sizeof *t);
    t->ctx = ctx;
    t->arena.ctx = ctx;
    t->rows = rows;
    t->streams = streams;
    t->last_op = -1;
    t->last = tess__alloc(ctx, lasts);
    if (!t->last) {
        tess__free(ctx, t);
        return TESS_ENOMEM;
    }
    memset(t->last, 0xff, lasts);
    *timeline = t;
    return TESS_OK;
}

void tess_timeline_destroy(tess_timeline *t)
{
    if (!t)
        return;
    void *const arrays[] = {t->ops,   t->next,  t->next_member, t->last,    t->calls,
                            t->edges, t->names, t->name_slots,  t->counters};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        tess__free(t->ctx, arrays[i]);
    tess__arena_free(&t->arena);
    tess__free(t->ctx, t);
}

static int32_t fail(tess_timeline *t, tess_status status)
{
    if (t->status == TESS_OK)
        t->status = status;
    return -1;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t slot_of(const tess_timeline *t, const char *name)
{
    const uint64_t mask = (uint64_t)t->n_slots - 1;
    uint64_t at = tess__hash(0, name, strlen(name)) & mask;
    while (t->name_slots[at] >= 0 && strcmp(t->names[t->name_slots[at]], name) != 0)
        at = (at + 1) & mask;
    return (int64_t)at;
}

/* Twice the slots, so that at most half of them are in use. */
static tess_status more_slots(tess_timeline *t)
{
    const int64_t n = t->n_slots ? 2 * t->n_slots : 128;
    int32_t *slots = TESS_ALLOC(t->ctx, (size_t)n * sizeof *slots);
    memset(slots, 0xff, (size_t)n * sizeof *slots);
    tess__free(t->ctx, t->name_slots);
    t->name_slots = slots;
    t->n_slots = n;
    for (int32_t i = 0; i < t->n_names; i++)
        slots[slot_of(t, t->names[i])] = i;
    return TESS_OK;
}

int32_t tess__timeline_name(tess_timeline *t, const char *name)
{
    if (2 * t->n_names >= t->n_slots && more_slots(t) != TESS_OK)
        return fail(t, TESS_ENOMEM);
    const int64_t at = slot_of(t, name);
    if (t->name_slots[at] >= 0)
        return t->name_slots[at];
    if (t->n_names == INT32_MAX)
        return fail(t, tess__fail(TESS_EINVAL, "timeline: more than %d names", INT32_MAX));
    if (tess__grow(t->ctx, &t->names, sizeof *t->names, t->n_names, t->n_names + 1,
                   &t->room_names) != TESS_OK)
        return fail(t, TESS_ENOMEM);
    const char *copy = tess__arena_string(&t->arena, name, strlen(name));
    if (!copy)
        return fail(t, TESS_ENOMEM);
    t->names[t->n_names] = copy;
    t->name_slots[at] = (int32_t)t->n_names;
    return (int32_t)t->n_names++;
}

/* ---- operations ------------------------------------------------------------------------------ */

int32_t tess__timeline_call(tess_timeline *t, const tess__tl_call *call)
{
    if (t->n_calls == INT32_MAX)
        return fail(t, tess__fail(TESS_EINVAL, "timeline: more than %d calls", INT32_MAX));
    if (tess__grow(t->ctx, &t->calls, sizeof *t->calls, t->n_calls, t->n_calls + 1,
                   &t->room_calls) != TESS_OK)
        return fail(t, TESS_ENOMEM);
    tess__tl_call *c = &t->calls[t->n_calls];
    *c = *call;
    c->members = c->arrived = 0;
    c->first = -1;
    return (int32_t)t->n_calls++;
}

int32_t tess__timeline_add(tess_timeline *t, const tess__tl_op *event)
{
    if (t->status != TESS_OK)
        return -1;
    if (t->n == INT32_MAX)
        return fail(t, tess__fail(TESS_EINVAL, "timeline: more than %d operations", INT32_MAX));
    if (tess__grow(t->ctx, &t->ops, sizeof *t->ops, t->n, t->n + 1, &t->room) != TESS_OK ||
        tess__grow(t->ctx, &t->next, sizeof *t->next, t->n, t->n + 1, &t->room_next) != TESS_OK ||
        tess__grow(t->ctx, &t->next_member, sizeof *t->next_member, t->n, t->n + 1,
                   &t->room_member) != TESS_OK)
        return fail(t, TESS_ENOMEM);
    const int32_t i = (int32_t)t->n++;
    int32_t *last = &t->last[(int64_t)event->row * t->streams + event->stream];
    t->ops[i] = *event;
    t->ops[i].cause = -1;
    t->next[i] = t->next_member[i] = -1;
    if (*last >= 0)
        t->next[*last] = i;
    *last = i;
    if (event->call >= 0) {
        tess__tl_call *call = &t->calls[event->call];
        t->next_member[i] = call->first;
        call->first = i;
        call->members++;
    }
    return i;
}

void tess__timeline_depend(tess_timeline *t, int32_t after, int32_t before)
{
    if (after < 0 || before < 0 || t->status != TESS_OK)
        return;
    if (tess__grow(t->ctx, &t->edges, sizeof *t->edges, t->n_edges, t->n_edges + 1,
                   &t->room_edges) != TESS_OK) {
        fail(t, TESS_ENOMEM);
        return;
    }
    t->edges[t->n_edges++] = (struct tess__edge){.before = before, .after = after};
}

void tess__timeline_count(tess_timeline *t, const tess__tl_counter *counter)
{
    if (t->status != TESS_OK || counter->op < 0)
        return;
    if (tess__grow(t->ctx, &t->counters, sizeof *t->counters, t->n_counters, t->n_counters + 1,
                   &t->room_counters) != TESS_OK) {
        fail(t, TESS_ENOMEM);
        return;
    }
    t->counters[t->n_counters++] = *counter;
}

void tess__timeline_slow(tess_timeline *t, tess__slow_fn slow, const void *user)
{
    t->slow = slow;
    t->slow_user = user;
}
