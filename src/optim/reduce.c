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
 * With exact_ranks sums in fixed point travel in place of gradients, eight bytes for four, and are
 * read when all are added: the order of ranks does not matter, nor how many there are.
 *
 * In mixed precision gradients are rounded to bf16 on their way, all of them alike, and are added
 * in fp32: two bytes for four. Values are the weights of fp32, and travel as they are.
 *
 * Values return by an all-gather for each part: the shard of every owner to all ranks.
 */
#include "process_group.h"

#include <string.h>

/* Copies the slots of a part that `rank` owns (or all, for -1) between an array of elements of
 * `size` bytes and a packed buffer; owner by owner in the packed one. */
static void copy_slots(const tess__reduce *r, int part, int rank, void *array, void *packed,
                       size_t size, int pack)
{
    const tess__owners *o = r->owners;
    char *at = packed;
    for (int i = o->begin[part]; i < o->begin[part + 1]; i++) {
        const tess__optim_slot *slot = &o->slots[o->order[i]];
        if (rank >= 0 && o->owner[o->order[i]] != rank)
            continue;
        const size_t bytes = (size_t)slot->count * size;
        char *place = (char *)array + (size_t)slot->at * size;
        memcpy(pack ? at : place, pack ? place : at, bytes);
        at += bytes;
    }
}

/* Gradients of a part, owner by owner, as bf16. */
static void pack_halves(const tess__reduce *r, int part, uint16_t *packed)
{
    const tess__owners *o = r->owners;
    for (int i = o->begin[part]; i < o->begin[part + 1]; i++) {
        const tess__optim_slot *slot = &o->slots[o->order[i]];
        tess_convert(r->ctx, TESS_DTYPE_F32, r->gradients + slot->at, TESS_DTYPE_BF16, packed,
                     slot->count);
        packed += slot->count;
    }
}

/* Bytes of an element on its way to the owner. */
static int64_t size_of(const tess__reduce *r)
{
    return (int64_t)(r->sums ? sizeof *r->sums : r->half ? sizeof(uint16_t) : sizeof(float));
}

/* The same over those of a float, for buffers. */
static size_t words_of(const tess__reduce *r)
{
    return r->sums ? sizeof *r->sums / sizeof(float) : 1;
}

/* ---- life ------------------------------------------------------------------------------------ */

int64_t tess__reduce_bytes(const tess__owners *owners, int rank, int exact)
{
    const int64_t words = exact ? (int64_t)(sizeof(int64_t) / sizeof(float)) : 1;
    return TESS__STAGES *
           (words * (tess__owners_part(owners) + owners->ranks * tess__owners_share(owners, rank)) +
            2 * owners->ranks * (int64_t)sizeof(int64_t));
}

tess_status tess__reduce_create(tess_ctx *ctx, const tess__process_group *pg,
                                const tess__owners *owners, float *gradients, const int64_t *sums,
                                int half, tess__reduce *reduce)
{
    tess__reduce r = {.ctx = ctx,
                      .arena = {.ctx = ctx},
                      .pg = pg,
                      .owners = owners,
                      .gradients = gradients,
                      .sums = sums,
                      .half = half};
    const size_t words = words_of(&r), ranks = (size_t)owners->ranks;
    const size_t send = words * (size_t)tess__owners_part(owners);
    const size_t recv = words * ranks * (size_t)tess__owners_share(owners, pg->rank);
    for (int i = 0; i < TESS__STAGES; i++) {
        tess__stage *s = &r.stages[i];
        s->part = -1;
        s->send = tess__arena_take(&r.arena, send);
        s->recv = tess__arena_take(&r.arena, recv);
        s->recv_bytes = tess__arena_take(&r.arena, 2 * ranks * sizeof *s->recv_bytes);
        s->send_bytes = s->recv_bytes + ranks;
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

/* The same in fixed point, read into `packed` as floats. */
static void sum_fixed(const tess__reduce *r, int64_t *recv, int64_t n, float *packed)
{
    const int ranks = r->owners->ranks;
#pragma omp parallel for num_threads(r->ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += TESS_PIECE) {
        const int64_t count = TESS_MIN(n - at, TESS_PIECE);
        for (int rank = 1; rank < ranks; rank++) {
            const int64_t *from = recv + rank * n + at;
            for (int64_t i = 0; i < count; i++)
                recv[at + i] = (int64_t)((uint64_t)recv[at + i] + (uint64_t)from[i]);
        }
        r->ctx->kernels->fixed_read(packed + at, recv + at, count);
    }
}

/* The same of bf16, added as floats into `packed`. */
static void sum_halves(const tess__reduce *r, const uint16_t *recv, int64_t n, float *packed)
{
    enum { PIECE = 1024 };
    const int ranks = r->owners->ranks;
#pragma omp parallel for num_threads(r->ctx->threads) schedule(static)
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t count = TESS_MIN(n - at, PIECE);
        float *to = packed + at, part[PIECE];
        r->ctx->kernels->f32_from_bf16(to, recv + at, (size_t)count);
        for (int rank = 1; rank < ranks; rank++) {
            r->ctx->kernels->f32_from_bf16(part, recv + rank * n + at, (size_t)count);
            for (int64_t i = 0; i < count; i++)
                to[i] += part[i];
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
    const int64_t n = s->recv_bytes[0] / size_of(r);
    float *sums = r->sums || r->half ? s->send : s->recv;
    if (r->sums)
        sum_fixed(r, (int64_t *)(void *)s->recv, n, sums);
    else if (r->half)
        sum_halves(r, (const uint16_t *)(const void *)s->recv, n, sums);
    else
        sum_ranks(r, s->recv, n);
    copy_slots(r, part, r->pg->rank, r->gradients, sums, sizeof *sums, 0);
    return TESS_OK;
}

static tess_status send_part(tess__reduce *r, int part)
{
    const tess__owners *o = r->owners;
    const int64_t *bytes = o->bytes + (int64_t)part * o->ranks;
    tess__stage *s = &r->stages[r->next++ % TESS__STAGES];
    TESS_TRY(receive_part(r, s));
    const int64_t size = size_of(r), whole = (int64_t)sizeof(float);
    if (r->sums)
        copy_slots(r, part, -1, (void *)(uintptr_t)r->sums, s->send, sizeof *r->sums, 1);
    else if (r->half)
        pack_halves(r, part, (uint16_t *)(void *)s->send);
    else
        copy_slots(r, part, -1, r->gradients, s->send, sizeof *r->gradients, 1);
    for (int rank = 0; rank < o->ranks; rank++) {
        s->send_bytes[rank] = bytes[rank] / whole * size;
        s->recv_bytes[rank] = bytes[r->pg->rank] / whole * size;
    }
    TESS_TRY(tess_comm_start_alltoallv(r->pg->world, TESS_TRAFFIC_PAYLOAD, s->send, s->send_bytes,
                                       s->recv, s->recv_bytes, &s->request));
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
        copy_slots(r, part, r->pg->rank, values, s->recv, sizeof *values, 1);
        const int64_t begin = tess_comm_clock(r->pg->world);
        TESS_TRY(tess_comm_allgatherv(r->pg->world, TESS_TRAFFIC_PAYLOAD, s->recv,
                                      bytes[r->pg->rank], s->send, bytes));
        r->waited_ns += tess_comm_clock(r->pg->world) - begin;
        copy_slots(r, part, -1, values, s->send, sizeof *values, 0);
    }
    return TESS_OK;
}
