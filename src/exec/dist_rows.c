/* SPDX-License-Identifier: Apache-2.0 */
/* dist_rows.c - rows from their owners to the ranks that compute with them, and back.
 *
 * Tensors that travel at the same time share one all-to-all. The message from p to c, c != p, has
 * one tensor after the other, in each the samples, in each the rows in the order of c's packed
 * buffer. With ranks that need heads of their own, of q, k and v:
 *
 *   home of p       q, k, v   | head 0 | head 1 | head 2 | head 3 | head 4 |   p's tokens
 *                                           |                          |
 *                                           v                          v
 *   message         one       [ q of heads 1, 4 | k of heads 1, 4 | v of heads 1, 4 ]
 *                                           |
 *                                           v
 *   packed of c     q         head 1 | tokens of rank 0 | .. of rank p .. | of the last rank |
 *   (k, v alike)              head 4 | tokens of rank 0 | .. of rank p .. | of the last rank |
 *
 * Rows that stay are copied straight from home to the packed buffer, while the messages travel.
 * On the way home a row may come from several ranks (gradients of keys): each head is one item of
 * work, which takes its segments in rank order, so the sum has one order whatever the threads do.
 *
 * Cost of rank p: bytes as src/plan/traffic.c counts them, one message for each peer that rows are
 * for; each row is copied twice on the way, three times with the all-to-all, one that stays once.
 */
#include "dist_attn_internal.h"

#include <assert.h>
#include <string.h>

enum { TEAM_FLOATS = 1 << 16 }; /* below this a team of threads costs more than it saves */

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

/* The segments of one head: the first peer writes its rows where they are all there are, the others
 * add. */
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
    for (int64_t i = 0; i < exchange->local.n; i++) /* leaves first[h] at the begin of head h + 1 */
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

static float *packed_row(const tess__transfer *c, int64_t b, int64_t place)
{
    return c->packed + (b * c->exchange->packed_rows + place) * c->width;
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

/* Where each transfers of each message begins, and the bytes of all, which it returns; what stays
 * is no message. */
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

/* ---- both sides of a message ----------------------------------------------------------------- */

static int team_of(const job *j)
{
    const tess_dist_attn *d = j->d;
    int64_t floats = 0;
    for (int i = 0; i < j->n; i++)
        floats += (d->opts.heads * d->local_rows + j->transfers[i].exchange->packed_rows) *
                  j->transfers[i].width;
    return floats * d->opts.batch < TEAM_FLOATS ? 1 : d->ctx->threads;
}

static int chunk_of(const job *j, int64_t items)
{
    const int64_t chunk = items / (16 * (int64_t)j->d->ctx->threads);
    return chunk < 1 ? 1 : chunk > 4096 ? 4096 : (int)chunk;
}

/* Copies the segments of a transfers's sending side that leave. */
static void pack(const job *j, int i, int team)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *c = &j->transfers[i];
    const tess__segment_list *list = sends_of(j, i);
    const int64_t items = list->n * d->opts.batch;
    const int chunk = chunk_of(j, items);
#pragma omp parallel for num_threads(team) schedule(dynamic, chunk)
    for (int64_t item = 0; item < items; item++) {
        const int64_t b = item / list->n;
        const tess__segment *segment = &list->segments[item % list->n];
        if (segment->peer == d->rank)
            continue;
        float *to = message_row(j, d->send.data, d->send_base, i, list, b, segment);
        if (j->back)
            copy_rows(to, c->width, packed_row(c, b, segment->place), c->width, segment->rows,
                      c->width);
        else
            copy_rows(to, c->width, tess__view_row(&c->local, b, segment->head, segment->row),
                      c->local.stride_s, segment->rows, c->width);
    }
}

/* Out: to the packed buffer, the segments that stay or those that received. */
static void unpack(const job *j, int i, int stays, int team)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *c = &j->transfers[i];
    const tess__segment_list *list = recvs_of(j, i);
    const int64_t items = list->n * d->opts.batch;
    const int chunk = chunk_of(j, items);
#pragma omp parallel for num_threads(team) schedule(dynamic, chunk)
    for (int64_t item = 0; item < items; item++) {
        const int64_t b = item / list->n;
        const tess__segment *segment = &list->segments[item % list->n];
        if ((segment->peer == d->rank) != stays)
            continue;
        float *to = packed_row(c, b, segment->place);
        if (stays)
            copy_rows(to, c->width, tess__view_row(&c->local, b, segment->head, segment->row),
                      c->local.stride_s, segment->rows, c->width);
        else
            copy_rows(to, c->width, message_row(j, d->recv.data, d->recv_base, i, list, b, segment),
                      c->width, segment->rows, c->width);
    }
}

static void clear_rows(const tess__transfer *c, int64_t b, int32_t head, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        memset(tess__view_row(&c->local, b, head, r), 0, (size_t)c->width * sizeof(float));
}

/* Back: all rows of a head at home, from what received and what stays, in rank order. */
static void return_head(const job *j, int i, int64_t b, int32_t head)
{
    tess_dist_attn *d = j->d;
    const tess__transfer *c = &j->transfers[i];
    const tess__row_exchange *exchange = c->exchange;
    if (exchange->clear[head])
        clear_rows(c, b, head, d->local_rows);
    for (int64_t k = exchange->first[head]; k < exchange->first[head + 1]; k++) {
        const tess__segment *segment = &exchange->local.segments[exchange->by_head[k]];
        const float *from = segment->peer == d->rank ? packed_row(c, b, segment->place)
                                                     : message_row(j, d->recv.data, d->recv_base, i,
                                                                   &exchange->local, b, segment);
        float *to = tess__view_row(&c->local, b, head, segment->row);
        if (segment->adds)
            add_rows(to, c->local.stride_s, from, segment->rows, c->width);
        else
            copy_rows(to, c->local.stride_s, from, c->width, segment->rows, c->width);
    }
}

static void return_to_owners(const job *j, int i, int team)
{
    const int64_t heads = j->d->opts.heads, items = heads * j->d->opts.batch;
#pragma omp parallel for num_threads(team) schedule(dynamic)
    for (int64_t item = 0; item < items; item++)
        return_head(j, i, item / heads, (int32_t)(item % heads));
}

/* ---- all together ---------------------------------------------------------------------------- */

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
    const int team = team_of(&j);
    for (int i = 0; i < n; i++)
        pack(&j, i, team);

    tess_request *request = NULL;
    const int64_t packed = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_start_alltoallv(d->comm, TESS_TRAFFIC_PAYLOAD, d->send.data, d->send_bytes,
                                       d->recv.data, d->recv_bytes, &request));
    const int64_t started = tess_comm_clock(d->comm);
    for (int i = 0; i < n && !back; i++)
        unpack(&j, i, 1, team);
    const int64_t copied = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_wait(d->comm, request));
    const int64_t arrived = tess_comm_clock(d->comm);
    for (int i = 0; i < n; i++)
        if (back)
            return_to_owners(&j, i, team);
        else
            unpack(&j, i, 0, team);
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
