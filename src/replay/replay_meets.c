/* SPDX-License-Identifier: Apache-2.0 */
/* replay_meets.c - which calls of different ranks are the same one, and how long it takes.
 *
 * The n-th call of a process group is the same call on all members. Its time is the longest that
 * any member's bytes give on the cluster. Where no member knows operation and bytes it is the
 * shortest recorded time: what the others take longer is waiting. A call whose process group is not
 * known, or has one rank, is of its rank alone. Messages between two ranks of a larger group are no
 * calls of all members: where members have different numbers of calls, a send_receive is of its
 * rank alone.
 *
 * Process groups are compared as lists of ranks: cost calls x ranks of a group.
 */
#include "replay_internal.h"

#include "tessera/advanced/cost.h"

#include <string.h>

/* ---- process groups -------------------------------------------------------------------------- */

static int has_rank(const tess__meet_group *g, int rank)
{
    int low = 0, high = g->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (g->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->n && g->ranks[low] == rank;
}

static tess_status add_group(tess_replay *r, const int32_t *ranks, int n, int kind, int32_t *group)
{
    int32_t *own = TESS_TAKE(&r->arena, (size_t)n * sizeof *own);
    memcpy(own, ranks, (size_t)n * sizeof *own);
    TESS_GROW(r->ctx, r->groups, r->n_groups, r->n_groups + 1, r->room_groups);
    tess__meet_group *g = &r->groups[r->n_groups];
    *g = (tess__meet_group){.ranks = own, .n = n, .kind = kind};
    for (int i = 0; i < r->n; i++)
        g->rows += has_rank(g, r->rows[i].rank);
    *group = (int32_t)r->n_groups++;
    return TESS_OK;
}

static tess_status find_group(tess_replay *r, const int32_t *ranks, int n, int kind, int32_t *group)
{
    for (int64_t i = 0; i < r->n_groups; i++)
        if (r->groups[i].n == n && r->groups[i].kind == kind &&
            memcmp(r->groups[i].ranks, ranks, (size_t)n * sizeof *ranks) == 0) {
            *group = (int32_t)i;
            return TESS_OK;
        }
    return add_group(r, ranks, n, kind, group);
}

/* first, first + stride, ... without a list where the group is known. */
static tess_status find_stride(tess_replay *r, const tess__replay_call *call, int32_t *group)
{
    for (int64_t i = 0; i < r->n_groups; i++) {
        const tess__meet_group *g = &r->groups[i];
        int k = 0;
        while (g->n == call->count && g->kind == 0 && k < g->n &&
               g->ranks[k] == call->first + k * call->stride)
            k++;
        if (g->n == call->count && k == g->n) {
            *group = (int32_t)i;
            return TESS_OK;
        }
    }
    int32_t *ranks = TESS_ALLOC(r->ctx, (size_t)call->count * sizeof *ranks);
    for (int k = 0; k < call->count; k++)
        ranks[k] = call->first + k * call->stride;
    const tess_status status = add_group(r, ranks, call->count, 0, group);
    tess__free(r->ctx, ranks);
    return status;
}

/* Ranks of a group on its fullest node. */
static int near_of(const tess_replay *r, const tess__meet_group *g)
{
    int most = 0, run = 0;
    for (int i = 0; i < g->n; i++) {
        run = i > 0 && g->ranks[i] / r->per_node == g->ranks[i - 1] / r->per_node ? run + 1 : 1;
        most = TESS_MAX(most, run);
    }
    return most;
}

/* ---- prices ---------------------------------------------------------------------------------- */

static tess_status price(const tess_replay *r, const tess__meet_group *g, tess_collective work,
                         int64_t *ns)
{
    const int64_t limit = (int64_t)1 << 53;
    tess_collective_result result;
    *ns = 0;
    if (work.bytes <= 0)
        return TESS_OK;
    work.gpus = g->n;
    work.per_node = near_of(r, g);
    work.bytes = TESS_MIN(work.bytes, limit);
    TESS_TRY(tess_collective_time(r->cluster, &work, &result));
    *ns = result.ns;
    return TESS_OK;
}

/* What cost.h knows a profiler's call as; 0: not enough is known. */
static int collective_of(const tess_activity_call *c, tess_collective *work)
{
    static const tess_collective_op ops[] = {TESS_ALL_REDUCE, TESS_ALL_GATHER, TESS_REDUCE_SCATTER,
                                             TESS_ALL_TO_ALL, TESS_BROADCAST,  TESS_SEND_RECEIVE,
                                             TESS_BROADCAST,  TESS_BROADCAST,  TESS_BROADCAST};
    if (c->op >= TESS_CALL_UNKNOWN)
        return 0;
    work->op = ops[c->op];
    work->bytes = TESS_MAX(c->in_bytes, c->out_bytes);
    if (c->op == TESS_CALL_ALL_GATHER && c->out_bytes < 0 && c->in_bytes > 0 &&
        c->in_bytes <= INT64_MAX / c->n_ranks)
        work->bytes = c->in_bytes * c->n_ranks;
    if (c->op == TESS_CALL_REDUCE_SCATTER && c->in_bytes < 0 && c->out_bytes > 0 &&
        c->out_bytes <= INT64_MAX / c->n_ranks)
        work->bytes = c->out_bytes * c->n_ranks;
    return work->bytes >= 0;
}

/* ---- meets ----------------------------------------------------------------------------------- */

static tess_status number_of(tess_replay *r, tess__replay_row *row, int32_t group, int32_t *number)
{
    const int64_t had = row->n_counts;
    TESS_GROW(r->ctx, row->counts, had, group + 1, row->n_counts);
    if (row->n_counts > had)
        memset(row->counts + had, 0, (size_t)(row->n_counts - had) * sizeof *row->counts);
    *number = row->counts[group]++;
    return TESS_OK;
}

static tess_status meet_of(tess_replay *r, int32_t group, int32_t number, int op, int32_t *meet)
{
    tess__meet_group *g = &r->groups[group];
    if (number < g->n_meets) {
        *meet = g->meets[number];
        return TESS_OK;
    }
    TESS_GROW(r->ctx, g->meets, g->n_meets, number + 1, g->room);
    TESS_GROW(r->ctx, r->meets, r->n_meets, r->n_meets + 1, r->room_meets);
    r->meets[r->n_meets] = (tess__meet){.group = group,
                                        .number = number,
                                        .op = op,
                                        .priced = -1,
                                        .recorded = INT64_MAX,
                                        .call = -1};
    *meet = g->meets[g->n_meets++] = (int32_t)r->n_meets++;
    return TESS_OK;
}

static tess_status put_meet(tess_replay *r, tess__replay_row *row, int32_t meet)
{
    TESS_GROW(r->ctx, row->meets, row->n_meets, row->n_meets + 1, row->room_meets);
    row->meets[row->n_meets++] = meet;
    return TESS_OK;
}

/* The row's next call in a group; work NULL: not enough is known to price it. */
static tess_status add(tess_replay *r, tess__replay_row *row, int32_t group, int op,
                       const tess_collective *work, int64_t recorded)
{
    int32_t number, meet;
    int64_t ns = -1;
    TESS_TRY(number_of(r, row, group, &number));
    TESS_TRY(meet_of(r, group, number, op, &meet));
    if (work && r->cluster)
        TESS_TRY(price(r, &r->groups[group], *work, &ns));
    tess__meet *m = &r->meets[meet];
    if (m->op != op)
        TESS_TRY(TESS_NOTE(r,
                           "%s: call %d of a process group of %d ranks is %s, and %s in "
                           "another file: they are not of the same step",
                           row->path, number, r->groups[group].n,
                           tess_call_op_name((tess_call_op)op),
                           tess_call_op_name((tess_call_op)m->op)));
    m->priced = TESS_MAX(m->priced, ns);
    m->bytes = TESS_MAX(m->bytes, work ? work->bytes : 0);
    m->recorded = TESS_MIN(m->recorded, recorded);
    m->members++;
    r->info.calls++;
    r->info.unpriced += r->cluster && ns < 0;
    return put_meet(r, row, meet);
}

/* A call of tess_comm_trace_write as a profiler calls it. */
static int op_of(int op)
{
    static const int ops[TESS_TRACE_OPS] = {
        TESS_CALL_ALL_TO_ALL, TESS_CALL_SEND_RECEIVE, TESS_CALL_ALL_GATHER, TESS_CALL_BROADCAST,
        TESS_CALL_ALL_REDUCE, TESS_CALL_ALL_REDUCE,   TESS_CALL_ALL_REDUCE, TESS_CALL_ALL_REDUCE};
    return ops[op];
}

static tess_status add_ours(tess_replay *r, tess__replay_row *row)
{
    for (int64_t i = 0; i < row->ours->info.calls; i++) {
        const tess__replay_call *call = &row->ours->calls[i];
        int32_t group;
        if (call->op == TESS_TRACE_OPS || call->count < 2 ||
            (call->sent == 0 && call->received == 0)) {
            TESS_TRY(put_meet(r, row, -1));
            continue;
        }
        const tess_collective work = tess__replay_collective(call, r->per_node);
        TESS_TRY(find_stride(r, call, &group));
        TESS_TRY(add(r, row, group, op_of(call->op), &work, call->took));
    }
    return TESS_OK;
}

static tess_status add_kineto(tess_replay *r, tess__replay_row *row)
{
    const tess_activity *file = row->kineto;
    for (int64_t i = 0; i < file->info.calls; i++) {
        const tess_activity_call *call = &file->calls[i];
        tess_collective work = {0};
        int32_t group;
        if (!call->ranks || call->n_ranks < 2) {
            r->info.calls += !call->ranks;
            r->info.unpriced += !call->ranks && r->cluster;
            TESS_TRY(put_meet(r, row, -1));
            continue;
        }
        const int known = collective_of(call, &work);
        r->like_broadcast += known && call->op >= TESS_CALL_REDUCE;
        TESS_TRY(find_group(r, call->ranks, call->n_ranks, 0, &group));
        TESS_TRY(add(r, row, group, (int)call->op, known ? &work : NULL, call->ns));
    }
    return TESS_OK;
}

static tess_status add_program_call(tess_replay *r, tess__replay_row *row,
                                    const tess__program_event *e)
{
    const tess__program_group *g = &row->program->groups[e->group];
    const tess_activity_call call = {
        .op = e->op, .in_bytes = e->in_bytes, .out_bytes = e->out_bytes, .n_ranks = g->n};
    tess_collective work = {0};
    int32_t group;
    if (g->n < 2)
        return put_meet(r, row, -1);
    (void)collective_of(&call, &work);
    r->like_broadcast += e->op >= TESS_CALL_REDUCE;
    if (e->peer >= 0) {
        const int32_t pair[2] = {TESS_MIN(row->rank, e->peer), TESS_MAX(row->rank, e->peer)};
        const int upward = (e->peer > row->rank) != e->receives;
        TESS_TRY(find_group(r, pair, 2, upward ? 1 : 2, &group));
    } else {
        TESS_TRY(find_group(r, g->ranks, g->n, 0, &group));
    }
    return add(r, row, group, e->op, e->ns >= 0 && r->as_recorded ? NULL : &work,
               TESS_MAX(e->ns, (int64_t)0));
}

static tess_status add_program(tess_replay *r, tess__replay_row *row)
{
    for (int64_t i = 0; i < row->program->n; i++)
        if (row->program->events[i].kind == TESS__PROGRAM_CALL)
            TESS_TRY(add_program_call(r, row, &row->program->events[i]));
    return TESS_OK;
}

/* Groups whose rows have different numbers of calls. */
static void count_unmatched(tess_replay *r)
{
    for (int64_t i = 0; i < r->n_meets; i++) {
        const tess__meet *m = &r->meets[i];
        if (m->members < r->groups[m->group].rows) {
            r->groups[m->group].uneven = 1;
            r->info.unmatched += m->members;
        }
    }
}

tess_status tess__replay_find_meets(tess_replay *r)
{
    for (int i = 0; i < r->n; i++)
        TESS_TRY(r->rows[i].ours     ? add_ours(r, &r->rows[i])
                 : r->rows[i].kineto ? add_kineto(r, &r->rows[i])
                                     : add_program(r, &r->rows[i]));
    count_unmatched(r);
    if (r->info.unmatched)
        TESS_TRY(TESS_NOTE(r,
                           "calls that are not in the files of all members, in which "
                           "no rank waits for the others: %lld",
                           (long long)r->info.unmatched));
    if (r->info.unpriced)
        TESS_TRY(TESS_NOTE(r,
                           "calls with their recorded time, because operation, bytes "
                           "or process group are not known: %lld",
                           (long long)r->info.unpriced));
    if (r->like_broadcast && r->cluster)
        TESS_TRY(TESS_NOTE(r,
                           "calls of reduce, gather and scatter, priced like "
                           "broadcast: %lld",
                           (long long)r->like_broadcast));
    return TESS_OK;
}

void tess__replay_join(tess_replay *r, int32_t meet, int64_t recorded, tess__tl_op *op)
{
    op->cat = TESS__CAT_COMM;
    op->class = TESS_KERNEL_COMMUNICATION;
    op->call = -1;
    op->ns = recorded;
    if (meet < 0 || r->as_recorded)
        return;
    tess__meet *m = &r->meets[meet];
    op->ns = m->priced >= 0 ? m->priced : m->recorded;
    if (m->op == TESS_CALL_SEND_RECEIVE && r->groups[m->group].uneven)
        return;
    if (m->call < 0)
        m->call = tess__timeline_call(r->timeline, &(tess__tl_call){.group = m->group,
                                                                    .number = m->number,
                                                                    .op = m->op,
                                                                    .bytes = m->bytes});
    op->call = m->call;
}
