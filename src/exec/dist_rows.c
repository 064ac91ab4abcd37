/* SPDX-License-Identifier: Apache-2.0 */
/* dist_rows.c - rows from their owner ranks to the computing ranks, and back.
 *
 * Tensors that are moved at the same time share one all-to-all. The message from p to c, c != p,
 * has one tensor after the other, in each the samples, in each the rows in the order of c's packed
 * buffer. Where every rank needs its own heads of q, k and v:
 *
 *   local rows of p   q, k, v   | head 0 | head 1 | head 2 | head 3 | head 4 |   p's tokens
 *                                             |                          |
 *                                             v                          v
 *   message           one       [ q of heads 1, 4 | k of heads 1, 4 | v of heads 1, 4 ]
 *                                             |
 *                                             v
 *   packed on c       q         head 1 | tokens of rank 0 | .. of rank p .. | of the last rank |
 *   (k, v alike)                head 4 | tokens of rank 0 | .. of rank p .. | of the last rank |
 *
 * Rows whose owner computes with them are copied directly to the packed buffer while the messages
 * are in flight. On the way back a row may come from several ranks (gradients of keys): each head
 * is one item of work, which adds its segments in rank order, so the sum does not depend on
 * threads.
 *
 * Cost of rank p: bytes as src/plan/price/traffic.c counts them, one message per peer with rows;
 * each row is copied twice, three times with the all-to-all, one that is not sent once.
 */
#include "dist_attn_internal.h"

#include <assert.h>
#include <string.h>

enum { PARALLEL_FLOATS = 1 << 16 }; /* smaller moves use one thread */

/* ---- exchanges ------------------------------------------------------------------------------- */

static void number_rows(tess__segment_list *list)
{
    int64_t at = 0;
    for (int64_t i = 0; i < list->n; i++) {
        tess__segment *segment = &list->segments[i];
        if (i > 0 && segment->peer != segment[-1].peer)
            at = 0;
        segment->at = at;
        at += segment->rows;
    }
}

/* The segments of one head: the first peer overwrites, where it has all rows, the others add. */
static void order_head(tess__row_exchange *exchange, int head, int64_t local_rows)
{
    const int64_t begin = exchange->first[head], end = exchange->first[head + 1];
    tess__segment *const segments = exchange->local.segments;
    int64_t written = 0;
    for (int64_t i = begin; i < end; i++) {
        tess__segment *segment = &segments[exchange->by_head[i]];
        segment->adds = segment->peer != segments[exchange->by_head[begin]].peer;
        written += segment->adds ? 0 : segment->rows;
    }
    exchange->clear[head] = written < local_rows;
    for (int64_t i = begin; i < end && exchange->clear[head]; i++)
        segments[exchange->by_head[i]].adds = 1;
}

void tess__row_exchange_complete(tess__row_exchange *exchange, int heads, int64_t local_rows)
{
    number_rows(&exchange->local);
    number_rows(&exchange->packed);
    memset(exchange->first, 0, ((size_t)heads + 1) * sizeof *exchange->first);
    for (int64_t i = 0; i < exchange->local.n; i++)
        exchange->first[exchange->local.segments[i].head + 1]++;
    for (int h = 0; h < heads; h++)
        exchange->first[h + 1] += exchange->first[h];
    for (int64_t i = 0; i < exchange->local.n; i++) /* advances first[h] to first[h + 1] */
        exchange->by_head[exchange->first[exchange->local.segments[i].head]++] = i;
    memmove(exchange->first + 1, exchange->first, (size_t)heads * sizeof *exchange->first);
    exchange->first[0] = 0;
    for (int h = 0; h < heads; h++)
        order_head(exchange, h, local_rows);
}

int64_t tess__segment_list_rows(const tess__segment_list *list, int rank, int ranks)
{
    int64_t rows = 0;
    for (int p = 0; p < ranks; p++)
        rows += p == rank ? 0 : list->rows[p];
    return rows;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows `stride_to` and `stride_from` floats apart. */
static void copy_rows(float *to, int64_t stride_to, const float *from, int64_t stride_from,
                      int64_t rows, int width)
{
    if (stride_to == width && stride_from == width) {
        memcpy(to, from, (size_t)rows * (size_t)width * sizeof *to);
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += stride_to, from += stride_from)
        memcpy(to, from, (size_t)width * sizeof *to);
}

static void add_rows(float *restrict to, int64_t stride_to, const float *restrict from,
                     int64_t rows, int width)
{
    for (int64_t r = 0; r < rows; r++, to += stride_to, from += width)
        for (int i = 0; i < width; i++)
            to[i] += from[i];
}

/* The same of integers; width: of floats. */
static void add_fixed(float *to, int64_t stride_to, const float *from, int64_t rows, int width)
{
    for (int64_t r = 0; r < rows; r++, to += stride_to, from += width) {
        int64_t *sum = (int64_t *)(void *)to;
        const int64_t *part = (const int64_t *)(const void *)from;
        for (int i = 0; i < width / 2; i++)
            sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)part[i]);
    }
}

static float *packed_row(const tess__transfer *t, int64_t b, int64_t place)
{
    return t->packed + (b * t->exchange->packed_rows + place) * t->width;
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct {
    tess_dist_attn *d;
    const tess__transfer *transfers;
    int n, back;
} job;

static const tess__segment_list *sends_of(const job *j, int i)
{
    return j->back ? &j->transfers[i].exchange->packed : &j->transfers[i].exchange->local;
}

static const tess__segment_list *recvs_of(const job *j, int i)
{
    return j->back ? &j->transfers[i].exchange->local : &j->transfers[i].exchange->packed;
}

/* Offsets of each transfer in each message, and the bytes of each message; returns the sum. Rows of
 * this rank itself are in no message. */
static size_t lay_out(const job *j, const tess__segment_list *(*list_of)(const job *, int),
                      int64_t *base, int64_t *bytes)
{
    const tess_dist_attn *d = j->d;
    int64_t at = 0;
    for (int p = 0; p < d->ranks; p++) {
        const int64_t begin = at;
        for (int i = 0; i < j->n; i++) {
            base[(int64_t)i * d->ranks + p] = at;
            at += p == d->rank ? 0 : d->opts.batch * list_of(j, i)->rows[p] * j->transfers[i].width;
        }
        bytes[p] = (at - begin) * (int64_t)sizeof(float);
    }
    return (size_t)at * sizeof(float);
}

static float *message_row(const job *j, float *buffer, const int64_t *base, int i,
                          const tess__segment_list *list, int64_t b, const tess__segment *segment)
{
    const int64_t first = base[(int64_t)i * j->d->ranks + segment->peer];
    return buffer + first + (b * list->rows[segment->peer] + segment->at) * j->transfers[i].width;
}

/* ---- packing and unpacking ------------------------------------------------------------------- */

static int threads_of(const job *j)
{
    const tess_dist_attn *d = j->d;
    int64_t floats = 0;
    for (int i = 0; i < j->n; i++)
        floats += (d->opts.heads * d->local_rows + j->transfers[i].exchange->packed_rows) *
                  j->transfers[i].width;
    return floats * d->opts.batch < PARALLEL_FLOATS ? 1 : d->ctx->threads;
}

static int chunk_of(const job *j, int64_t items)
{
    const int64_t chunk = items / (16 * (int64_t)j->d->ctx->threads);
    return (int)TESS_MIN(TESS_MAX(chunk, 1), 4096);
}

/* Copies the rows of a transfer that are sent. */
static void pack(const job *j, int i, int threads)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *t = &j->transfers[i];
    const tess__segment_list *list = sends_of(j, i);
    const int64_t items = list->n * d->opts.batch;
    const int chunk = chunk_of(j, items);
#pragma omp parallel for num_threads(threads) schedule(dynamic, chunk)
    for (int64_t item = 0; item < items; item++) {
        const int64_t b = item / list->n;
        const tess__segment *segment = &list->segments[item % list->n];
        if (segment->peer == d->rank)
            continue;
        float *to = message_row(j, d->send.data, d->send_base, i, list, b, segment);
        if (j->back)
            copy_rows(to, t->width, packed_row(t, b, segment->place), t->width, segment->rows,
                      t->width);
        else
            copy_rows(to, t->width, tess__view_row(&t->local, b, segment->head, segment->row),
                      t->local.stride_s, segment->rows, t->width);
    }
}

/* To the packed buffer: the rows of this rank itself (own 1), or the received ones. */
static void unpack(const job *j, int i, int own, int threads)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *t = &j->transfers[i];
    const tess__segment_list *list = recvs_of(j, i);
    const int64_t items = list->n * d->opts.batch;
    const int chunk = chunk_of(j, items);
#pragma omp parallel for num_threads(threads) schedule(dynamic, chunk)
    for (int64_t item = 0; item < items; item++) {
        const int64_t b = item / list->n;
        const tess__segment *segment = &list->segments[item % list->n];
        if ((segment->peer == d->rank) != own)
            continue;
        float *to = packed_row(t, b, segment->place);
        if (own)
            copy_rows(to, t->width, tess__view_row(&t->local, b, segment->head, segment->row),
                      t->local.stride_s, segment->rows, t->width);
        else
            copy_rows(to, t->width, message_row(j, d->recv.data, d->recv_base, i, list, b, segment),
                      t->width, segment->rows, t->width);
    }
}

static void clear_rows(const tess__transfer *t, int64_t b, int32_t head, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memset(tess__view_row(&t->local, b, head, r), 0, (size_t)t->width * sizeof(float));
}

/* To the owner: all local rows of a head, from received rows and own ones, in rank order. */
static void return_head(const job *j, int i, int64_t b, int32_t head)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *t = &j->transfers[i];
    const tess__row_exchange *exchange = t->exchange;
    if (exchange->clear[head])
        clear_rows(t, b, head, d->local_rows);
    for (int64_t k = exchange->first[head]; k < exchange->first[head + 1]; k++) {
        const tess__segment *segment = &exchange->local.segments[exchange->by_head[k]];
        const float *from = segment->peer == d->rank ? packed_row(t, b, segment->place)
                                                     : message_row(j, d->recv.data, d->recv_base, i,
                                                                   &exchange->local, b, segment);
        float *to = tess__view_row(&t->local, b, head, segment->row);
        if (segment->adds && t->fixed)
            add_fixed(to, t->local.stride_s, from, segment->rows, t->width);
        else if (segment->adds)
            add_rows(to, t->local.stride_s, from, segment->rows, t->width);
        else
            copy_rows(to, t->local.stride_s, from, t->width, segment->rows, t->width);
    }
}

static void return_to_owners(const job *j, int i, int threads)
{
    const int64_t heads = j->d->opts.heads, items = heads * j->d->opts.batch;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t item = 0; item < items; item++)
        return_head(j, i, item / heads, (int32_t)(item % heads));
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static tess_status exchange_rows(tess_dist_attn *d, tess_dist_stats *stats,
                                 const tess__transfer *transfers, int n, int back)
{
    assert(n <= TESS__TRANSFERS_MAX);
    const job j = {d, transfers, n, back};
    const int64_t begin = tess_comm_clock(d->comm);
    const size_t out = lay_out(&j, sends_of, d->send_base, d->send_bytes);
    const size_t in = lay_out(&j, recvs_of, d->recv_base, d->recv_bytes);
    assert(out <= d->send.bytes && in <= d->recv.bytes);
    (void)out, (void)in; /* without assertions */
    const int threads = threads_of(&j);
    for (int i = 0; i < n; i++)
        pack(&j, i, threads);

    tess_request *request = NULL;
    const int64_t packed = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_start_alltoallv(d->comm, TESS_TRAFFIC_PAYLOAD, d->send.data, d->send_bytes,
                                       d->recv.data, d->recv_bytes, &request));
    const int64_t started = tess_comm_clock(d->comm);
    for (int i = 0; i < n && !back; i++)
        unpack(&j, i, 1, threads);
    const int64_t copied = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_wait(d->comm, request));
    const int64_t arrived = tess_comm_clock(d->comm);
    for (int i = 0; i < n; i++)
        if (back)
            return_to_owners(&j, i, threads);
        else
            unpack(&j, i, 0, threads);
    stats->exchange_ns += started - packed + arrived - copied;
    stats->move_ns += packed - begin + copied - started + tess_comm_clock(d->comm) - arrived;
    return TESS_OK;
}

tess_status tess__rows_to_compute(tess_dist_attn *d, tess_dist_stats *stats,
                                  const tess__transfer *transfers, int n)
{
    return exchange_rows(d, stats, transfers, n, 0);
}

tess_status tess__rows_to_owners(tess_dist_attn *d, tess_dist_stats *stats,
                                 const tess__transfer *transfers, int n)
{
    return exchange_rows(d, stats, transfers, n, 1);
}
