/* SPDX-License-Identifier: Apache-2.0 */
/* replay_host.c - the threads of the host of a rank: launches, and synchronisations with the GPU.
 *
 * A thread's own time between its launches stays as recorded. A call such as cudaDeviceSynchronize
 * that began at b and returned at e waits for
 *
 *   - the whole device: of every stream the last act that was launched before b and ended by e,
 *     whether or not the host had to wait for it in the recording
 *   - a stream or an event, which the call does not name: the one act among these that ended last,
 *     if that was after b and at most 10 us before e
 *
 * Cost: a binary search in each stream, and the acts that other threads launched meanwhile.
 */
#include "replay_internal.h"

#include <string.h>

/* ---- acts by stream -------------------------------------------------------------------------- */

tess_status tess__player_sort_acts(tess__player *p, tess__arena *arena)
{
    const tess_activity *file = p->file;
    tess__stream_acts *s = &p->by_stream;
    const size_t n = (size_t)file->n_acts, streams = (size_t)p->n_streams;
    s->acts = TESS_TAKE(arena, n * sizeof *s->acts);
    s->latest = TESS_TAKE(arena, n * sizeof *s->latest);
    s->first = TESS_TAKE(arena, (streams + 2) * sizeof *s->first);
    memset(s->first, 0, (streams + 2) * sizeof *s->first);
    for (int64_t i = 0; i < file->n_acts; i++)
        s->first[p->place[i] + 2]++;
    for (size_t k = 2; k < streams + 2; k++)
        s->first[k] += s->first[k - 1];
    for (int64_t i = 0; i < file->n_acts;
         i++) { /* first[k + 1] goes from the begin of k to its end */
        s->acts[s->first[p->place[i] + 1]++] = i;
        s->latest[i] = TESS_MAX(file->acts[i].launch, i > 0 ? s->latest[i - 1] : TESS__NO_LAUNCH);
    }
    return TESS_OK;
}

/* ---- synchronisations ------------------------------------------------------------------------ */

/* The last act of a stream that the call can have waited for; -1: none. No act before it may have
 * been launched after the call began: stamps that contradict each other would wait in a circle. */
static int64_t last_act(const tess__player *p, int stream, const tess__host_sync *sync)
{
    const tess__act *acts = p->file->acts;
    const tess__stream_acts *s = &p->by_stream;
    int64_t low = s->first[stream], high = s->first[stream + 1];
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (s->latest[s->acts[middle]] < sync->begin && acts[s->acts[middle]].begin < sync->end)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t k = low - 1; k >= s->first[stream]; k--) {
        const tess__act *a = &acts[s->acts[k]];
        if (tess__act_end(a) <= sync->end &&
            (a->launch != TESS__NO_LAUNCH || a->begin < sync->begin))
            return s->acts[k];
    }
    return -1;
}

/* The acts that a synchronisation waits for go to p->waited; *ended: when the last of them ended in
 * the recording, not before the call began. */
static int find_waited(tess__player *p, const tess__host_sync *sync, int64_t *ended)
{
    int n = 0;
    int64_t last = -1;
    *ended = sync->begin;
    for (int k = 0; k < p->n_streams; k++) {
        const int64_t i = last_act(p, k, sync);
        if (i < 0)
            continue;
        if (sync->device)
            p->waited[n++] = i;
        if (tess__act_end(&p->file->acts[i]) > *ended) {
            *ended = tess__act_end(&p->file->acts[i]);
            last = i;
        }
    }
    if (sync->device || last < 0)
        return n;
    if (sync->end - *ended > TESS__REPLAY_NEAR_NS)
        return 0;
    p->waited[0] = last;
    return 1;
}

/* ---- the host -------------------------------------------------------------------------------- */

int tess__player_thread(tess__player *p, uint64_t thread)
{
    for (int i = 0; i < p->n_threads; i++)
        if (p->threads[i] == thread)
            return i;
    p->threads[p->n_threads] = thread;
    return p->n_threads++;
}

/* A thread of the host while its operations are made. */
typedef struct {
    int16_t stream;
    int64_t mark;    /* when it has done what was made so far, stamp of the file */
    int64_t blocked; /* the act that its next operation waits for; -1: none */
} host_thread;

/* The host's own time until `until`. */
static int32_t add_own_time(tess__player *p, host_thread *h, int64_t until)
{
    tess_timeline *t = p->r->timeline;
    const int32_t op = tess__timeline_add(t, &(tess__tl_op){.row = p->row,
                                                            .stream = h->stream,
                                                            .cat = TESS__CAT_HOST,
                                                            .class = TESS__REPLAY_HOST,
                                                            .name = tess__timeline_name(t, "host"),
                                                            .call = -1,
                                                            .ns = until - h->mark});
    if (h->blocked >= 0)
        p->waiter[h->blocked] = op;
    h->mark = until;
    h->blocked = -1;
    return op;
}

static tess_status add_sync(tess__player *p, host_thread *h, const tess__host_sync *sync)
{
    int64_t ended;
    const int n = find_waited(p, sync, &ended);
    if (n == 0 || sync->begin < h->mark)
        return TESS_OK;
    (void)add_own_time(p, h, sync->begin);
    h->mark = ended;
    const int32_t op = add_own_time(p, h, sync->end);
    TESS_TRY(tess__grow(p->r->ctx, &p->waits, 2 * sizeof *p->waits, p->n_waits, p->n_waits + n,
                        &p->room_waits));
    for (int i = 0; i < n; i++) {
        p->waits[2 * p->n_waits] = op;
        p->waits[2 * p->n_waits++ + 1] = (int32_t)p->waited[i];
    }
    return TESS_OK;
}

/* One operation for each launch: the host's time since the launch before it; two for each
 * synchronisation between launches: until it begins, and from the end of what it waits for until it
 * returns. */
tess_status tess__player_add_host(tess__player *p)
{
    const tess_activity *f = p->file;
    host_thread h = {.blocked = -1};
    int64_t sync = 0;
    for (int64_t k = 0; k < f->n_acts; k++) {
        const int64_t i = p->order[k].act;
        const tess__act *a = &f->acts[i];
        if (a->launch == TESS__NO_LAUNCH)
            continue;
        if (k == 0 || p->order[k - 1].at == TESS__NO_LAUNCH || p->order[k - 1].thread != a->thread)
            h = (host_thread){(int16_t)(p->n_streams + tess__player_thread(p, a->thread)),
                              p->origin, -1};
        for (; sync < f->n_syncs && f->syncs[sync].thread <= a->thread; sync++) {
            if (f->syncs[sync].thread == a->thread && f->syncs[sync].begin > a->launch)
                break;
            if (f->syncs[sync].thread == a->thread)
                TESS_TRY(add_sync(p, &h, &f->syncs[sync]));
        }
        const int64_t returned = a->launch + a->launch_ns;
        p->marks[i] = TESS_MAX(TESS_MIN(returned, a->begin), h.mark);
        p->host[i] = add_own_time(p, &h, p->marks[i]);
        if (a->kind == TESS__ACT_COPY && returned >= tess__act_end(a) &&
            tess__act_end(a) > h.mark) {
            h.blocked = i;
            h.mark = tess__act_end(a);
        }
    }
    return TESS_OK;
}
