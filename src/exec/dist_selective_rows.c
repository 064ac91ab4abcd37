/* SPDX-License-Identifier: Apache-2.0 */
/* dist_selective_rows.c - requested key rows from their owner ranks, and their gradients back.
 *
 *   p   K rows, V rows, by sample, head   ->  c     payload: the union, row by row
 *       dK rows, dV rows                  <-        backward: the same rows; p adds them, ranks
 *                                                   ascending
 *
 * The rows of a sample and head are in token order, so that those of one owner are contiguous.
 * Virtual keys represent rows that are not requested, too: their owners send the sums of these, two
 * rows of floats for each sample and head (control), and receive the gradient of each such row.
 * With clusters of keys they send two rows for each cluster, and how many rows each has.
 */
#include "dist_selective.h"

#include <string.h>

/* ---- rows ------------------------------------------------------------------------------------ */

/* Local rows, `stride` floats apart, and those of a message, `step` floats apart. */
typedef void (*rows_fn)(float *local, int64_t stride, float *message, int64_t step, int64_t rows,
                        int width);

static void copy_rows_out(float *local, int64_t stride, float *message, int64_t step, int64_t rows,
                          int width)
{
    if (stride == width && step == width) {
        memcpy(message, local, (size_t)rows * (size_t)width * sizeof *local);
        return;
    }
    for (int64_t r = 0; r < rows; r++, local += stride, message += step)
        memcpy(message, local, (size_t)width * sizeof *local);
}

static void add_rows(float *local, int64_t stride, float *message, int64_t step, int64_t rows,
                     int width)
{
    for (int64_t r = 0; r < rows; r++) {
        float *restrict to = local + r * stride;
        const float *restrict from = message + r * step;
        for (int i = 0; i < width; i++)
            to[i] += from[i];
    }
}

/* Calls fn for the requested rows of view, with consecutive rows of the message; returns the end of
 * these. */
static float *each_row(const tess_dist_attn *d, const tess__selective *x,
                       const tess__key_requests *a, int sample, int64_t item, const tess_view *view,
                       rows_fn fn, float *message)
{
    const uint64_t *set = tess__requested_at(d, x, a, sample, item);
    const int64_t low = d->opts.bounds[d->rank], high = d->opts.bounds[d->rank + 1];
    const int64_t base = x->unit_begin[d->rank], n = x->unit_end[d->rank] - base;
    const int64_t step = d->opts.head_dim;
    int64_t at = 0;
    for (tess__row_span s;
         s = tess__next_rows(d, set, 1, base, n, low, high, &at), s.end > s.begin;) {
        fn(tess__view_row(view, sample, x->heads[item], s.begin - low), view->stride_s, message,
           step, s.end - s.begin, d->opts.head_dim);
        message += (s.end - s.begin) * step;
    }
    return message;
}

/* Bytes of the messages of rows: to the requesting ranks, and from the owner ranks. */
static void row_sizes(const tess_dist_attn *d, const tess__selective *x,
                      const tess__key_requests *a, int64_t *to_requester, int64_t *from_owner)
{
    const int64_t row = 2 * d->opts.head_dim * (int64_t)sizeof(float);
    for (int r = 0; r < d->ranks; r++) {
        int64_t out = 0, in = 0;
        for (int sample = 0; r != d->rank && sample < d->opts.batch; sample++) {
            for (int64_t item = x->first[r]; item < x->first[r + 1]; item++)
                out += tess__rows_for(d, x, a, sample, item);
            for (int64_t h = 0; h < x->n_local_heads; h++)
                in += tess__rows_from(d, x, a, r, sample, h);
        }
        to_requester[r] = out * row;
        from_owner[r] = in * row;
    }
}

/* Rows of sample and head i before those of owner p. */
static int64_t rows_before(const tess_dist_attn *d, const tess__selective *x,
                           const tess__key_requests *a, int p, int64_t i)
{
    return tess__count_rows(d, a->needed + i * x->words, 0, 0, x->unit_end[p], 0,
                            d->opts.bounds[p]);
}

/* Copies the rows of every sample and head of owner p, K and then V, from keys to a message (out)
 * or from it. Returns the end of the message. */
static float *copy_pieces(const tess_dist_attn *d, const tess__selective *x,
                          const tess__key_requests *a, int p, float *keys, int out, float *message)
{
    const int64_t items = d->opts.batch * x->n_local_heads, dim = d->opts.head_dim;
    for (int64_t i = 0; i < items; i++) {
        const int64_t rows =
            tess__rows_from(d, x, a, p, (int)(i / x->n_local_heads), i % x->n_local_heads);
        const int64_t place = a->row_offsets[i] + rows_before(d, x, a, p, i);
        for (int v = 0; rows > 0 && v < 2; v++, message += rows * dim) {
            float *piece = keys + (v * a->row_offsets[items] + place) * dim;
            memcpy(out ? message : piece, out ? piece : message,
                   (size_t)(rows * dim) * sizeof *keys);
        }
    }
    return message;
}

/* Local rows that this rank itself requests: fn between the tensor and keys. */
static void own_rows(const tess_dist_attn *d, const tess__selective *x, const tess__key_requests *a,
                     const tess_view *k, const tess_view *v, rows_fn fn, float *keys)
{
    const int64_t items = d->opts.batch * x->n_local_heads, dim = d->opts.head_dim;
    for (int64_t i = 0; i < items; i++) {
        const int sample = (int)(i / x->n_local_heads);
        const int64_t item = x->first[d->rank] + i % x->n_local_heads;
        const int64_t place = a->row_offsets[i] + rows_before(d, x, a, d->rank, i);
        each_row(d, x, a, sample, item, k, fn, keys + place * dim);
        each_row(d, x, a, sample, item, v, fn, keys + (a->row_offsets[items] + place) * dim);
    }
}

/* Local rows that rank c requests: fn between the tensor and its message, K and then V for each
 * sample and head. Returns the end of the message. */
static float *requested_rows(const tess_dist_attn *d, const tess__selective *x,
                             const tess__key_requests *a, int c, const tess_view *k,
                             const tess_view *v, rows_fn fn, float *message)
{
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
            message = each_row(d, x, a, sample, item, k, fn, message);
            message = each_row(d, x, a, sample, item, v, fn, message);
        }
    return message;
}

/* One all-to-all of rows with the sizes in d->send_bytes and d->recv_bytes. */
static tess_status exchange(tess_dist_attn *d, tess_dist_stats *stats)
{
    const int64_t begin = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_alltoallv(d->comm, TESS_TRAFFIC_PAYLOAD, d->send.data, d->send_bytes,
                                 d->recv.data, d->recv_bytes));
    stats->exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

tess_status tess__keys_fetch(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                             const tess__key_requests *a)
{
    tess_dist_stats *stats = &run->layer->stats;
    const int64_t begin = tess_comm_clock(d->comm), exchanged = stats->exchange_ns;
    float *message = d->send.data;
    row_sizes(d, x, a, d->send_bytes, d->recv_bytes);
    for (int c = 0; c < d->ranks; c++)
        if (c != d->rank)
            message = requested_rows(d, x, a, c, run->k, run->v, copy_rows_out, message);
    TESS_TRY(exchange(d, stats));
    message = d->recv.data;
    for (int p = 0; p < d->ranks; p++) {
        stats->union_rows += d->recv_bytes[p] / (2 * d->opts.head_dim * (int64_t)sizeof(float));
        if (p != d->rank)
            message = copy_pieces(d, x, a, p, run->acts->keys.data, 0, message);
    }
    own_rows(d, x, a, run->k, run->v, copy_rows_out, run->acts->keys.data);
    stats->move_ns += tess_comm_clock(d->comm) - begin - (stats->exchange_ns - exchanged);
    return TESS_OK;
}

/* ---- rows that are not requested ------------------------------------------------------------ */

/* Labels of all local keys. */
static void label_rows(const tess_dist_attn *d, const tess__dist_run *run,
                       const tess__key_requests *a)
{
    if (d->opts.compensate <= 1)
        return;
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int head = 0; head < d->opts.heads; head++) {
            tess_view k = *run->k;
            k.data = tess__view_row(run->k, sample, head, 0);
            tess__use_clusters(d, run->call, sample, head);
            tess__row_labels(d->attn, d->local_rows, &k,
                             a->labels + ((int64_t)sample * d->opts.heads + head) * d->local_rows);
        }
}

/* Labels of a head's local keys; NULL: there is one cluster. */
static const uint8_t *labels_of(const tess_dist_attn *d, const tess__key_requests *a, int sample,
                                int32_t head)
{
    return d->opts.compensate > 1
               ? a->labels + ((int64_t)sample * d->opts.heads + head) * d->local_rows
               : NULL;
}

/* sums (tess__dist_sums) = those of the local rows that an item does not request, of a sample. */
static void sum_unrequested(const tess_dist_attn *d, const tess__dist_run *run,
                            const tess__selective *x, const tess__key_requests *a, int sample,
                            int64_t item, float *sums)
{
    const uint64_t *set = tess__requested_at(d, x, a, sample, item);
    const int64_t low = d->opts.bounds[d->rank], high = d->opts.bounds[d->rank + 1];
    const int64_t base = x->unit_begin[d->rank], n = x->unit_end[d->rank] - base;
    const uint8_t *labels = labels_of(d, a, sample, x->heads[item]);
    const int dim = d->opts.head_dim;
    for (int cluster = 0; cluster < tess__virtual_keys(d); cluster++) {
        double sum[2 * TESS_DIM_MAX] = {0};
        int64_t at = 0, rows = 0;
        for (tess__row_span s;
             s = tess__next_rows(d, set, 0, base, n, low, high, &at), s.end > s.begin;)
            for (int64_t r = s.begin - low; r < s.end - low; r++) {
                if (labels && labels[r] != cluster)
                    continue;
                const float *k = tess__view_row(run->k, sample, x->heads[item], r);
                const float *v = tess__view_row(run->v, sample, x->heads[item], r);
                for (int c = 0; c < dim; c++) {
                    sum[c] += (double)k[c];
                    sum[dim + c] += (double)v[c];
                }
                rows++;
            }
        for (int c = 0; c < 2 * dim; c++)
            sums[cluster * 2 * dim + c] = (float)sum[c];
        if (labels)
            sums[tess__virtual_keys(d) * 2 * dim + cluster] = (float)rows;
    }
}

/* Sizes of the messages of sums: from owner ranks to requesting ranks, or back. */
static void rest_sizes(const tess_dist_attn *d, const tess__selective *x, int64_t *owner,
                       int64_t *requesting)
{
    const int64_t row = d->opts.batch * tess__dist_sums(d) * (int64_t)sizeof(float);
    for (int r = 0; r < d->ranks; r++) {
        owner[r] = tess__requests_keys(x, r, d->rank) ? row * (x->first[r + 1] - x->first[r]) : 0;
        requesting[r] = tess__requests_keys(x, d->rank, r) ? row * x->n_local_heads : 0;
    }
}

tess_status tess__rest_sums_fetch(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                                  const tess__key_requests *a, float *rest)
{
    const int64_t n = d->opts.batch * x->n_local_heads * tess__dist_sums(d);
    float *out = d->send.data;
    const float *in = d->recv.data;
    label_rows(d, run, a);
    rest_sizes(d, x, d->send_bytes, d->recv_bytes);
    for (int c = 0; c < d->ranks; c++)
        for (int sample = 0; d->send_bytes[c] > 0 && sample < d->opts.batch; sample++)
            for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
                sum_unrequested(d, run, x, a, sample, item, out);
                out += tess__dist_sums(d);
            }
    const int64_t begin = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_alltoallv(d->comm, TESS_TRAFFIC_CONTROL, d->send.data, d->send_bytes,
                                 d->recv.data, d->recv_bytes));
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    memset(rest, 0, (size_t)n * sizeof *rest);
    for (int p = 0; p < d->ranks; p++)
        if (d->recv_bytes[p] > 0) {
            tess__add_floats(d, rest, in, n);
            in += n;
        }
    return TESS_OK;
}

/* Sends the gradients of rows that were not requested to their owners, into d->recv. */
static tess_status rest_gradients_return(tess_dist_attn *d, tess__dist_run *run,
                                         const tess__selective *x, const float *rest)
{
    const int64_t n = d->opts.batch * x->n_local_heads * tess__dist_sums(d);
    float *out = d->send.data;
    rest_sizes(d, x, d->recv_bytes, d->send_bytes);
    for (int p = 0; p < d->ranks; p++)
        if (d->send_bytes[p] > 0) {
            memcpy(out, rest, (size_t)n * sizeof *out);
            out += n;
        }
    const int64_t begin = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_alltoallv(d->comm, TESS_TRAFFIC_CONTROL, d->send.data, d->send_bytes,
                                 d->recv.data, d->recv_bytes));
    run->layer->stats.exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

/* Adds them to the rows that an item does not request, of a sample, by their clusters. */
static void add_unrequested(const tess_dist_attn *d, const tess__dist_run *run,
                            const tess__selective *x, const tess__key_requests *a, int sample,
                            int64_t item, float *from)
{
    const uint64_t *set = tess__requested_at(d, x, a, sample, item);
    const int64_t low = d->opts.bounds[d->rank], high = d->opts.bounds[d->rank + 1];
    const int64_t base = x->unit_begin[d->rank], n = x->unit_end[d->rank] - base;
    const uint8_t *labels = labels_of(d, a, sample, x->heads[item]);
    const int dim = d->opts.head_dim;
    int64_t at = 0;
    for (tess__row_span s;
         s = tess__next_rows(d, set, 0, base, n, low, high, &at), s.end > s.begin;)
        for (int64_t r = s.begin - low; r < s.end - low; r++) {
            float *row = from + (ptrdiff_t)(labels ? labels[r] : 0) * 2 * dim;
            add_rows(tess__view_row(run->local_dk, sample, x->heads[item], r), 0, row, 0, 1, dim);
            add_rows(tess__view_row(run->local_dv, sample, x->heads[item], r), 0, row + dim, 0, 1,
                     dim);
        }
}

/* Adds these gradients, ranks ascending. */
static void add_rest(const tess_dist_attn *d, const tess__dist_run *run, const tess__selective *x,
                     const tess__key_requests *a)
{
    float *in = d->recv.data;
    for (int c = 0; c < d->ranks; c++)
        for (int sample = 0; tess__requests_keys(x, c, d->rank) && sample < d->opts.batch; sample++)
            for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
                add_unrequested(d, run, x, a, sample, item, in);
                in += tess__dist_sums(d);
            }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void clear_local(const tess_dist_attn *d, const tess_view *view)
{
    for (int b = 0; b < d->opts.batch; b++)
        for (int h = 0; h < d->opts.heads; h++)
            for (int64_t row = 0; row < d->local_rows; row++)
                memset(tess__view_row(view, b, h, row), 0,
                       (size_t)d->opts.head_dim * sizeof(float));
}

tess_status tess__key_gradients_return(tess_dist_attn *d, tess__dist_run *run,
                                       const tess__selective *x, const tess__key_requests *a,
                                       float *gradients, const float *rest)
{
    tess_dist_stats *stats = &run->layer->stats;
    const int64_t begin = tess_comm_clock(d->comm), exchanged = stats->exchange_ns;
    float *message = d->send.data;
    row_sizes(d, x, a, d->recv_bytes, d->send_bytes);
    for (int p = 0; p < d->ranks; p++)
        if (p != d->rank)
            message = copy_pieces(d, x, a, p, gradients, 1, message);
    TESS_TRY(exchange(d, stats));
    clear_local(d, run->local_dk);
    clear_local(d, run->local_dv);
    message = d->recv.data;
    for (int c = 0; c < d->ranks; c++)
        if (c == d->rank)
            own_rows(d, x, a, run->local_dk, run->local_dv, add_rows, gradients);
        else
            message = requested_rows(d, x, a, c, run->local_dk, run->local_dv, add_rows, message);
    if (rest) {
        TESS_TRY(rest_gradients_return(d, run, x, rest));
        add_rest(d, run, x, a);
    }
    stats->move_ns += tess_comm_clock(d->comm) - begin - (stats->exchange_ns - exchanged);
    return TESS_OK;
}
