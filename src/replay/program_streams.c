/* SPDX-License-Identifier: Apache-2.0 */
/* program_streams.c - which stream of a GPU an event of a program runs on.
 *
 * A program that was recorded on a CPU has no streams. Operators follow each other on one, but for
 * those that prepare gathers of parameters (FSDP's copies and casts): operators that only read what
 * was there before the step, or what such operators wrote, and whose results only such operators
 * and all-gathers read. These run on a stream of their own, so that a gather may run ahead. Calls
 * of a process group follow each other, and messages between two ranks in each direction.
 *
 * Cost: one pass forward and one back over the storages of all events.
 */
#include "replay_program_row.h"

#include "replay_internal.h"

#include <string.h>

/* A storage that an event wrote is read by another. */
typedef struct {
    int32_t writer, reader;
} edge;

typedef struct {
    const tess__program *p;
    uint8_t *prepares;
    int32_t *writer; /* of each storage; -1: none in this step */
    edge *edges;
    int64_t n, room;
} marker;

static int is_gather(const tess__program_event *e)
{
    return e->kind == TESS__PROGRAM_CALL && e->op == TESS_CALL_ALL_GATHER;
}

/* Candidates, forward: what they read was there before, or comes from one. */
static tess_status mark_candidates(marker *m)
{
    const tess__program *p = m->p;
    for (int64_t i = 0; i < p->n; i++) {
        const tess__program_event *e = &p->events[i];
        const int32_t *s = p->stores + e->stores;
        int early = e->kind == TESS__PROGRAM_OPERATOR || is_gather(e);
        if (e->kind == TESS__PROGRAM_WAIT)
            continue;
        TESS_GROW(p->ctx, m->edges, m->n, m->n + e->n_reads, m->room);
        for (int k = 0; k < e->n_reads; k++) {
            const int32_t w = m->writer[s[k]];
            if (w < 0)
                continue;
            m->edges[m->n++] = (edge){w, (int32_t)i};
            early &= m->prepares[w] && p->events[w].kind == TESS__PROGRAM_OPERATOR;
        }
        m->prepares[i] = (uint8_t)early;
        for (int k = 0; k < e->n_writes; k++)
            m->writer[s[e->n_reads + k]] = (int32_t)i;
    }
    return TESS_OK;
}

/* 1: has a reader that prepares or gathers; 2: has another one. Edges ascend by reader, and readers
 * come after writers, so backward each reader is decided before its writers. */
static void drop_others(marker *m, uint8_t *readers)
{
    const tess__program *p = m->p;
    for (int64_t i = m->n - 1; i >= 0; i--) {
        const int32_t w = m->edges[i].writer, r = m->edges[i].reader;
        const int fits = is_gather(&p->events[r]) || (m->prepares[r] && readers[r] == 1);
        readers[w] |= fits ? 1 : 2;
    }
    for (int64_t i = 0; i < p->n; i++)
        if (p->events[i].kind == TESS__PROGRAM_OPERATOR)
            m->prepares[i] &= readers[i] == 1;
}

tess_status tess__program_row_prepare(tess__program_row *row)
{
    const tess__program *p = row->program;
    const size_t n = TESS_MAX((size_t)p->n, (size_t)1);
    row->prepares = TESS_TAKE_ZERO(row->arena, n);
    marker m = {.p = p, .prepares = row->prepares};
    m.writer = TESS_TAKE(row->arena, ((size_t)p->storages + 1) * sizeof *m.writer);
    memset(m.writer, 0xff, ((size_t)p->storages + 1) * sizeof *m.writer);
    uint8_t *readers = TESS_TAKE_ZERO(row->arena, n);
    const tess_status status = mark_candidates(&m);
    if (status == TESS_OK)
        drop_others(&m, readers);
    tess__free(p->ctx, m.edges);
    return status;
}

/* ---- streams of calls ------------------------------------------------------------------------ */

int tess__program_channel(tess__program_row *row, const tess__program_event *e)
{
    const tess__program_channel_key key = {e->peer >= 0 ? -1 : e->group, e->peer, e->receives};
    for (int i = 0; i < row->channels; i++)
        if (memcmp(&row->channel[i], &key, sizeof key) == 0)
            return TESS__PROGRAM_STREAMS + i;
    if (row->channels == TESS__PROGRAM_CHANNELS)
        return -1;
    row->channel[row->channels] = key;
    return TESS__PROGRAM_STREAMS + row->channels++;
}

int tess__program_row_streams(tess__program_row *row)
{
    const tess__program *p = row->program;
    for (int64_t i = 0; i < p->n; i++)
        if (p->events[i].kind == TESS__PROGRAM_CALL &&
            tess__program_channel(row, &p->events[i]) < 0)
            return -1;
    return TESS__PROGRAM_STREAMS + row->channels;
}

int tess__program_streams(const tess__program *p)
{
    tess__program_row row = {.program = p};
    return tess__program_row_streams(&row);
}
