/* SPDX-License-Identifier: Apache-2.0 */
/* replay_ours.c - a rank of tess_comm_trace_write in the event engine.
 *
 * Two streams: computing, and messages, which follow each other. A message begins when what was
 * computed before it is done; after a blocking one, and after the wait of a started one, computing
 * goes on when it has ended. Messages of no bytes take no time and have no other members. As
 * recorded, every call and every wait blocks for the time that it took while the rank was alone.
 */
#include "replay_internal.h"

#include <math.h>

enum { COMPUTE, MESSAGES };

/* The last operation that the rank's own program waits for. */
typedef struct {
    tess_replay *r;
    int row;
    int32_t name, *ends; /* ends (calls): the message of each call; -1: none */
    int32_t waits[2];    /* computing before, and the message that it waits for */
} player;

/* Computing, if any, behind what the rank has waited for. */
static void compute(player *p, int64_t ns)
{
    if (ns <= 0 && p->waits[1] < 0)
        return;
    const int32_t op = tess__timeline_add(p->r->timeline, &(tess__tl_op){.row = p->row,
                                                                         .stream = COMPUTE,
                                                                         .cat = TESS__CAT_COMPUTE,
                                                                         .class = TESS__REPLAY_HOST,
                                                                         .name = p->name,
                                                                         .call = -1,
                                                                         .ns = ns});
    tess__timeline_depend(p->r->timeline, op, p->waits[1]);
    p->waits[0] = op;
    p->waits[1] = -1;
}

/* Two messages may be waited for one after the other: the first is tied to an empty operation. */
static void wait_for(player *p, int32_t message)
{
    if (message < 0)
        return;
    if (p->waits[1] >= 0)
        compute(p, 0);
    p->waits[1] = message;
}

static void play(player *p, int64_t number)
{
    tess_timeline *t = p->r->timeline;
    tess__replay_row *row = &p->r->rows[p->row];
    const tess__replay_call *call = &row->ours->calls[number];
    const int recorded = p->r->as_recorded, wait = call->op == TESS_TRACE_OPS;
    compute(p, llround(p->r->scale * (double)call->compute));
    if (wait && !recorded) {
        wait_for(p, p->ends[call->of]);
        return;
    }
    p->ends[number] = -1;
    if (recorded ? call->took == 0 : row->meets[number] < 0)
        return;
    const char *name = wait ? "wait" : tess_trace_op_name((tess_trace_op)call->op);
    tess__tl_op op = {.row = p->row, .stream = MESSAGES, .name = tess__timeline_name(t, name)};
    tess__replay_join(p->r, row->meets[number], call->took, &op);
    p->ends[number] = tess__timeline_add(t, &op);
    tess__timeline_depend(t, p->ends[number], p->waits[0]);
    row->result.calls += !wait;
    if (!call->started || recorded)
        wait_for(p, p->ends[number]);
}

tess_status tess__replay_ours(tess_replay *r, int number)
{
    tess__replay_row *row = &r->rows[number];
    const int64_t calls = row->ours->info.calls;
    player p = {.r = r,
                .row = number,
                .name = tess__timeline_name(r->timeline, "computing"),
                .ends = TESS_ALLOC(r->ctx, (size_t)calls * sizeof(int32_t)),
                .waits = {-1, -1}};
    for (int64_t i = 0; i < calls; i++)
        play(&p, i);
    compute(&p, 0);
    tess__free(r->ctx, p.ends);
    for (int64_t i = 0; i < calls; i++)
        row->result.recorded_ns += row->ours->calls[i].compute + row->ours->calls[i].took;
    return r->timeline->status;
}
