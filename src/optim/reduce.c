/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - reduce-scatter of gradients to their owners during backward, all-gather of values.
 *
 *   one part of six slots on 4 ranks; a digit is the owner of a slot
 *
 *   before       at every rank   | 0 0 | 1 | 2 2 | 3 |     its own sums, packed by owner
 *   all-to-all   at owner 2      | 2 2 | 2 2 | 2 2 | 2 2 |     its slots from ranks 0, 1, 2, 3
 *   after        at owner 2      | 2 2 |                   the four added, in that order
 *
 * A part is packed by owner and sent when its backward is done; it is received when the stage is
 * needed for the part after the next one, or at the end. So one part is in flight while another is
 * computed, and the two stages hold 2 (part + P shard) bytes. Every element is summed from rank 0
 * to the last: the same bits on repeat, whatever arrives first.
 *
 * Values return by an all-gather for each part: the shard of every owner to all ranks.
 */
#include "process_group.h"

#include <string.h>

/* Copies the slots of a part that `rank` owns (or all, for -1) between an array and a packed
 * buffer; owner by owner in the packed one. */
static void copy_slots(const tess__reduce *r, int part, int rank, float *array, float *packed,
                       int pack)
{
    const tess__owners *o = r->owners;
    int64_t at = 0;
    for (int i = o->begin[part]; i < o->begin[part + 1]; i++) {
        const tess__optim_slot *slot = &o->slots[o->order[i]];
        if (rank >= 0 && o->owner[o->order[i]] != rank)
            continue;
        const size_t bytes = (size_t)slot->count * sizeof *array;
        if (pack)
            memcpy(packed + at, array + slot->at, bytes);
        else
            memcpy(array + slot->at, packed + at, bytes);
        at += slot->count;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int64_t tess__reduce_bytes(const tess__owners *owners, int rank)
{
    return TESS__STAGES *
           (tess__owners_part(owners) + owners->ranks * tess__owners_share(owners, rank) +
            owners->ranks * (int64_t)sizeof(int64_t));
}

tess_status tess__reduce_create(tess_ctx *ctx, const tess__process_group *pg,
                                const tess__owners *owners, float *gradients, tess__reduce *reduce)
{
    tess__reduce r = {
        .ctx = ctx, .arena = {.ctx = ctx}, .pg = pg, .owners = owners, .gradients = gradients};
    const size_t send = (size_t)tess__owners_part(owners);
    const size_t recv = (size_t)owners->ranks * (size_t)tess__owners_share(owners, pg->rank);
    for (int i = 0; i < TESS__STAGES; i++) {
        tess__stage *s = &r.stages[i];
        s->part = -1;
        s->send = tess__arena_take(&r.arena, send);
        s->recv = tess__arena_take(&r.arena, recv);
        s->recv_bytes = tess__arena_take(&r.arena, (size_t)owners->ranks * sizeof *s->recv_bytes);
        if (!s->send || !s->recv || !s->recv_bytes) {
            tess__arena_free(&r.arena);
            return TESS_ENOMEM;
        }
    }
    *reduce = r;
    return TESS_OK;
}

void tess__reduce_destroy(tess__reduce *reduce)
{
    tess__arena_free(&reduce->arena);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The sum over ranks, in place of the data of rank 0. */
static void sum_ranks(const tess__reduce *r, float *recv, int64_t n)
{
    const int ranks = r->owners->ranks;
#pragma omp parallel for num_threads(r->ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += TESS_PIECE) {
        const int64_t count = TESS_MIN(n - at, TESS_PIECE);
        for (int rank = 1; rank < ranks; rank++) {
            const float *from = recv + rank * n + at;
            for (int64_t i = 0; i < count; i++)
                recv[at + i] += from[i];
        }
    }
}

static tess_status receive_part(tess__reduce *r, tess__stage *s)
{
    if (s->part < 0)
        return TESS_OK;
    const int64_t begin = tess_comm_clock(r->pg->world);
    const int part = s->part;
    tess_request *request = s->request;
    s->part = -1;
    s->request = NULL;
    TESS_TRY(tess_comm_wait(r->pg->world, request));
    r->waited_ns += tess_comm_clock(r->pg->world) - begin;
    sum_ranks(r, s->recv, s->recv_bytes[0] / (int64_t)sizeof(float));
    copy_slots(r, part, r->pg->rank, r->gradients, s->recv, 0);
    return TESS_OK;
}

static tess_status send_part(tess__reduce *r, int part)
{
    const tess__owners *o = r->owners;
    const int64_t *bytes = o->bytes + (int64_t)part * o->ranks;
    tess__stage *s = &r->stages[r->next++ % TESS__STAGES];
    TESS_TRY(receive_part(r, s));
    copy_slots(r, part, -1, r->gradients, s->send, 1);
    for (int rank = 0; rank < o->ranks; rank++)
        s->recv_bytes[rank] = bytes[r->pg->rank];
    TESS_TRY(tess_comm_start_alltoallv(r->pg->world, TESS_TRAFFIC_PAYLOAD, s->send, bytes, s->recv,
                                       s->recv_bytes, &s->request));
    s->part = part;
    return TESS_OK;
}

tess_status tess__reduce_ready(void *user, int layer)
{
    tess__reduce *r = user;
    if (layer == TESS__NOT_READY)
        return tess_comm_progress(r->pg->world);
    TESS_TRY(send_part(r, layer + 1));
    for (int i = 0; layer < 0 && i < TESS__STAGES; i++)
        TESS_TRY(receive_part(r, &r->stages[(r->next + i) % TESS__STAGES]));
    return TESS_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

tess_status tess__reduce_values(tess__reduce *r, float *values)
{
    const tess__owners *o = r->owners;
    tess__stage *s = &r->stages[0];
    for (int part = 0; part < o->parts; part++) {
        const int64_t *bytes = o->bytes + (int64_t)part * o->ranks;
        copy_slots(r, part, r->pg->rank, values, s->recv, 1);
        const int64_t begin = tess_comm_clock(r->pg->world);
        TESS_TRY(tess_comm_allgatherv(r->pg->world, TESS_TRAFFIC_PAYLOAD, s->recv,
                                      bytes[r->pg->rank], s->send, bytes));
        r->waited_ns += tess_comm_clock(r->pg->world) - begin;
        copy_slots(r, part, -1, values, s->send, 0);
    }
    return TESS_OK;
}
