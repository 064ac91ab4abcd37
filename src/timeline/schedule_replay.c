/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_replay.c - a pipeline schedule in time: begin and end of every pass.
 *
 *   F of stage k needs F of stage k - 1
 *   B or I of stage k needs F of stage k, and B or I of stage k + 1
 *   W of stage k needs I of stage k
 *
 * of the same micro-batch. A pass begins when its rank is free and its inputs are there: at the end
 * of what made them, and `hop` later where that was on another rank. A rank runs until the input of
 * its next pass is not known; the rank that makes it wakes it up. O(actions), integers only.
 */
#include "timeline_internal.h"

#include <string.h>

typedef struct {
    const tess_schedule *s;
    const tess_schedule_times *times;
    int64_t *forward,
        *backward; /* end of F, and of B or I, by stage and micro-batch; -1: not yet */
    int64_t *next; /* action of each rank */
    int64_t *free_at;
    int32_t *queue; /* ranks that may go on: a ring of `ranks` places */
    uint8_t *queued;
    int head, waiting;
    int64_t done, end;
} replay;

static int64_t place(const replay *r, int stage, int64_t batch)
{
    return stage * r->s->batches + batch;
}

/* When what `from` made at `end` is there on the rank of stage `to`. */
static int64_t arrival(const replay *r, int64_t end, int from, int to)
{
    return r->s->rank_of[from] == r->s->rank_of[to] ? end : end + r->times->hop_ns;
}

/* When the inputs of an action are there; -1: not known yet. */
static int64_t ready_at(const replay *r, const tess__action *a)
{
    const int k = a->stage;
    const int64_t own = place(r, k, a->batch);
    if (a->kind == TESS__ACT_W)
        return r->backward[own];
    if (a->kind == TESS__ACT_F) {
        if (k == 0)
            return 0;
        const int64_t end = r->forward[place(r, k - 1, a->batch)];
        return end < 0 ? -1 : arrival(r, end, k - 1, k);
    }
    if (r->forward[own] < 0 || k == r->s->stages - 1)
        return r->forward[own];
    const int64_t end = r->backward[place(r, k + 1, a->batch)];
    return end < 0 ? -1 : TESS_MAX(r->forward[own], arrival(r, end, k + 1, k));
}

static int64_t action_ns(const tess_schedule_times *t, const tess__action *a)
{
    switch (a->kind) {
    case TESS__ACT_F: return t->forward_ns[a->stage];
    case TESS__ACT_I: return t->input_ns[a->stage];
    case TESS__ACT_W: return t->weight_ns[a->stage];
    default: return t->input_ns[a->stage] + t->weight_ns[a->stage];
    }
}

static void wake(replay *r, int rank)
{
    if (r->queued[rank])
        return;
    r->queued[rank] = 1;
    r->queue[(r->head + r->waiting++) % r->s->ranks] = rank;
}

/* Runs the actions of a rank until one whose input is not known. */
static void run_rank(replay *r, int rank, int64_t *begins, int64_t *ends)
{
    const tess_schedule *s = r->s;
    for (int64_t i = r->next[rank]; i < s->first[rank + 1]; i++) {
        const tess__action *a = &s->actions[i];
        const int64_t ready = ready_at(r, a);
        if (ready < 0)
            return;
        const int64_t begin = TESS_MAX(ready, r->free_at[rank]),
                      end = begin + action_ns(r->times, a);
        r->free_at[rank] = end;
        r->next[rank] = i + 1;
        r->done++;
        r->end = TESS_MAX(r->end, end);
        if (begins)
            begins[i] = begin;
        if (ends)
            ends[i] = end;
        if (a->kind == TESS__ACT_W)
            continue;
        (a->kind == TESS__ACT_F ? r->forward : r->backward)[place(r, a->stage, a->batch)] = end;
        const int to = a->kind == TESS__ACT_F ? a->stage + 1 : a->stage - 1;
        if (to >= 0 && to < s->stages && s->rank_of[to] != rank)
            wake(r, s->rank_of[to]);
    }
}

static tess_status fail_stuck(const replay *r)
{
    const tess_schedule *s = r->s;
    char text[40], other[64] = "";
    int rank = 0;
    while (r->next[rank] == s->first[rank + 1])
        rank++;
    const tess__action *a = &s->actions[r->next[rank]];
    const int64_t own = place(r, a->stage, a->batch);
    if (a->kind == TESS__ACT_W)
        snprintf(other, sizeof other, "%dI%d", a->stage, a->batch);
    else if (a->kind == TESS__ACT_F)
        snprintf(other, sizeof other, "%dF%d", a->stage - 1, a->batch);
    else if (r->forward[own] < 0)
        snprintf(other, sizeof other, "%dF%d", a->stage, a->batch);
    else
        snprintf(other, sizeof other, "the gradient of stage %d, micro-batch %d", a->stage + 1,
                 a->batch);
    return tess__fail(TESS_EINVAL, "deadlock: rank %d waits for ever with %s for %s", rank,
                      tess__action_text(a, text), other);
}

/* Places of one piece of memory, the widest first. */
static void lay_out(replay *r, void *memory)
{
    const size_t passes = (size_t)r->s->stages * (size_t)r->s->batches;
    const size_t ranks = (size_t)r->s->ranks;
    r->forward = memory;
    r->backward = r->forward + passes;
    r->next = r->backward + passes;
    r->free_at = r->next + ranks;
    r->queue = (int32_t *)(void *)(r->free_at + ranks);
    r->queued = (uint8_t *)(r->queue + ranks);
    memset(r->forward, 0xff, 2 * passes * sizeof *r->forward);
    memset(r->free_at, 0, ranks * sizeof *r->free_at);
    memset(r->queued, 0, ranks);
    memcpy(r->next, r->s->first, ranks * sizeof *r->next);
}

size_t tess__schedule_replay_bytes(const tess_schedule *s)
{
    const size_t passes = (size_t)s->stages * (size_t)s->batches, ranks = (size_t)s->ranks;
    return (2 * passes + 2 * ranks) * sizeof(int64_t) + ranks * (sizeof(int32_t) + 1);
}

tess_status tess__schedule_run_in(const tess_schedule *s, const tess_schedule_times *times,
                                  void *memory, int64_t *begins, int64_t *ends, int64_t *length)
{
    replay r = {.s = s, .times = times};
    lay_out(&r, memory);
    for (int rank = 0; rank < s->ranks; rank++)
        wake(&r, rank);
    while (r.waiting > 0) {
        const int rank = r.queue[r.head];
        r.head = (r.head + 1) % s->ranks;
        r.waiting--;
        r.queued[rank] = 0;
        run_rank(&r, rank, begins, ends);
    }
    if (r.done != s->n)
        return fail_stuck(&r);
    *length = r.end;
    return TESS_OK;
}

tess_status tess__schedule_run(const tess_schedule *s, const tess_schedule_times *times,
                               int64_t *begins, int64_t *ends, int64_t *length)
{
    void *memory = TESS_ALLOC(s->ctx, tess__schedule_replay_bytes(s));
    const tess_status status = tess__schedule_run_in(s, times, memory, begins, ends, length);
    tess__free(s->ctx, memory);
    return status;
}

/* ---- what a schedule takes ------------------------------------------------------------------- */

void tess__schedule_in_flight(const tess_schedule *s, int *in_flight)
{
    for (int r = 0; r < s->ranks; r++) {
        int now = 0, most = 0;
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const int kind = s->actions[i].kind;
            now += kind == TESS__ACT_F ? 1 : kind == TESS__ACT_W ? 0 : -1;
            most = TESS_MAX(most, now);
        }
        in_flight[r] = most;
    }
}

static tess_status check_times(const char *who, const tess_schedule *s,
                               const tess_schedule_times *times)
{
    const int64_t most = INT64_MAX / 4 / TESS_MAX(s->n, (int64_t)1);
    const struct {
        const char *name;
        const int64_t *ns;
    } lists[] = {{"forward_ns", times->forward_ns},
                 {"input_ns", times->input_ns},
                 {"weight_ns", times->weight_ns}};
    for (int i = 0; i < 3; i++) {
        if (!lists[i].ns)
            return tess__invalid(who, "%s is NULL", lists[i].name);
        for (int k = 0; k < s->stages; k++)
            TESS_TRY(tess__check_range(who, lists[i].name, lists[i].ns[k], 0, most / 4));
    }
    return tess__check_range(who, "hop_ns", times->hop_ns, 0, most / 4);
}

tess_status tess_schedule_replay(const tess_schedule *s, const tess_schedule_times *times,
                                 tess_schedule_result *result, int *in_flight,
                                 tess_timeline **timeline)
{
    TESS_REQUIRE(s, times, result);
    TESS_TRY(check_times(__func__, s, times));
    tess_schedule_result r = {0};
    TESS_TRY(tess__schedule_run(s, times, NULL, NULL, &r.ns));
    if (timeline)
        TESS_TRY(tess__schedule_timeline(s, times, timeline));
    double busy = 0.0;
    for (int64_t i = 0; i < s->n; i++)
        busy += (double)action_ns(times, &s->actions[i]);
    r.bubble = r.ns > 0 ? 1.0 - busy / ((double)r.ns * s->ranks) : 0.0;
    if (in_flight)
        tess__schedule_in_flight(s, in_flight);
    *result = r;
    return TESS_OK;
}
