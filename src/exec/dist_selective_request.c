/* SPDX-License-Identifier: Apache-2.0 */
/* dist_selective_request.c - requests for key rows between ranks.
 *
 * A rank needs, of each sample and head it has shares of, the union of the units in its lists. It
 * sends each owner rank the set of needed units with rows there (encoded by unit_set.c), and the
 * owner replies with K and V of their rows (dist_selective_rows.c); no row is sent twice, and only
 * requested rows are sent:
 *
 *   c   bytes of the request   ->  p     control, 8 bytes
 *       units, by sample, head ->        index
 *
 * A unit may have rows on two owner ranks; each replies with its own.
 */
#include "dist_selective.h"

#include <string.h>

/* ---- sets ------------------------------------------------------------------------------------ */

static size_t set_counts(const tess_dist_attn *d, const tess__selective *x, size_t *theirs,
                         size_t *places)
{
    const size_t batch = (size_t)d->opts.batch;
    *theirs = batch * (size_t)(x->first[d->ranks] * x->local_words);
    *places = batch * (size_t)x->n_local_heads + 1;
    return batch * (size_t)(x->n_local_heads * x->words);
}

static size_t label_bytes(const tess_dist_attn *d)
{
    const size_t heads = (size_t)d->opts.batch * (size_t)d->opts.heads;
    return d->opts.compensate > 1 ? heads * (size_t)d->local_rows : 0;
}

size_t tess__key_requests_bytes(const tess_dist_attn *d, const tess__selective *x)
{
    size_t theirs, places;
    const size_t mine = set_counts(d, x, &theirs, &places);
    return 8 * (mine + theirs + places) + label_bytes(d);
}

tess__key_requests tess__key_requests_of(const tess_dist_attn *d, const tess__selective *x,
                                         uint8_t *own)
{
    size_t theirs, places;
    const size_t mine = set_counts(d, x, &theirs, &places);
    uint64_t *at = (void *)own;
    return (tess__key_requests){at, at + mine, (int64_t *)(void *)(at + mine + theirs),
                                (uint8_t *)(at + mine + theirs + places)};
}

static uint64_t *needed_at(const tess__selective *x, const tess__key_requests *a, int sample,
                           int64_t head)
{
    return a->needed + (sample * x->n_local_heads + head) * x->words;
}

uint64_t *tess__requested_at(const tess_dist_attn *d, const tess__selective *x,
                             const tess__key_requests *a, int sample, int64_t item)
{
    return a->requested + (sample * x->first[d->ranks] + item) * x->local_words;
}

tess__row_span tess__next_rows(const tess_dist_attn *d, const uint64_t *set, int value,
                               int64_t base, int64_t n, int64_t low, int64_t high, int64_t *at)
{
    const int64_t first = tess__set_next(set, *at, n, value);
    const int64_t last = tess__set_next(set, first, n, !value);
    *at = last;
    if (first == last)
        return (tess__row_span){0, 0};
    const int64_t begin = tess__unit_row(d, base + first), end = tess__unit_row(d, base + last);
    return (tess__row_span){TESS_MAX(begin, low), TESS_MIN(end, high)};
}

int64_t tess__count_rows(const tess_dist_attn *d, const uint64_t *set, int64_t base, int64_t begin,
                         int64_t end, int64_t low, int64_t high)
{
    int64_t rows = 0, at = begin;
    for (tess__row_span s;
         s = tess__next_rows(d, set, 1, base, end, low, high, &at), s.end > s.begin;)
        rows += s.end - s.begin;
    return rows;
}

int64_t tess__rows_from(const tess_dist_attn *d, const tess__selective *x,
                        const tess__key_requests *a, int p, int sample, int64_t head)
{
    return tess__count_rows(d, needed_at(x, a, sample, head), 0, x->unit_begin[p], x->unit_end[p],
                            d->opts.bounds[p], d->opts.bounds[p + 1]);
}

int64_t tess__rows_for(const tess_dist_attn *d, const tess__selective *x,
                       const tess__key_requests *a, int sample, int64_t item)
{
    const int64_t begin = x->unit_begin[d->rank], n = x->unit_end[d->rank] - begin;
    return tess__count_rows(d, tess__requested_at(d, x, a, sample, item), begin, 0, n,
                            d->opts.bounds[d->rank], d->opts.bounds[d->rank + 1]);
}

/* ---- requests -------------------------------------------------------------------------------- */

int64_t tess__request_scratch(const tess_dist_attn *d, const tess__selective *x)
{
    return x->request_bytes_out + x->request_bytes_in + 2 * (int64_t)sizeof(int64_t) * d->ranks;
}

int tess__requests_keys(const tess__selective *x, int c, int p)
{
    return x->first[c + 1] > x->first[c] && x->unit_end[p] > x->unit_begin[p];
}

/* Encodes the requests one after the other; bytes: of each request, for the ranks that get one. */
static void write_requests(const tess_dist_attn *d, const tess__selective *x,
                           const tess__key_requests *a, uint8_t *message, int64_t *bytes)
{
    int64_t at = 0, n = 0;
    for (int p = 0; p < d->ranks; p++) {
        const int64_t begin = at;
        for (int sample = 0; tess__requests_keys(x, d->rank, p) && sample < d->opts.batch; sample++)
            for (int64_t h = 0; h < x->n_local_heads; h++)
                at += tess__set_encode(needed_at(x, a, sample, h), x->unit_begin[p], x->unit_end[p],
                                       message + at);
        if (tess__requests_keys(x, d->rank, p))
            bytes[n++] = at - begin;
        d->send_base[p] = at - begin;
    }
}

/* 0 if a request is malformed. */
static int read_requests(const tess_dist_attn *d, const tess__selective *x,
                         const tess__key_requests *a, const uint8_t *message)
{
    const int64_t n = x->unit_end[d->rank] - x->unit_begin[d->rank];
    for (int c = 0; c < d->ranks; c++) {
        const uint8_t *const end = message + d->recv_base[c];
        for (int sample = 0; d->recv_base[c] > 0 && sample < d->opts.batch; sample++)
            for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
                const int64_t bytes = tess__set_decode(message, end - message, 0, n,
                                                       tess__requested_at(d, x, a, sample, item));
                if (bytes == 0)
                    return 0;
                message += bytes;
            }
        if (message != end)
            return 0;
    }
    return 1;
}

/* Of a trace: no other rank sends requests; each requests what this rank requests of itself. */
static void mirror_requests(const tess_dist_attn *d, const tess__selective *x,
                            const tess__key_requests *a)
{
    const int64_t first = x->first[d->rank];
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t item = 0; x->n_local_heads > 0 && item < x->first[d->ranks]; item++)
            if (item < first || item >= first + x->n_local_heads)
                memcpy(tess__requested_at(d, x, a, sample, item),
                       tess__requested_at(d, x, a, sample, first + item % x->n_local_heads),
                       (size_t)x->local_words * sizeof *a->requested);
}

/* The bytes of each request, from the received sizes; -1 if they are impossible. */
static int64_t request_sizes(const tess_dist_attn *d, const tess__selective *x, int synthetic,
                             const int64_t *sizes)
{
    int64_t total = 0;
    for (int c = 0, n = 0; c < d->ranks; c++) {
        const int64_t bytes = tess__requests_keys(x, c, d->rank) ? sizes[n++] : 0;
        if (bytes < 0 || bytes > x->request_bytes_in)
            return -1;
        d->recv_base[c] = synthetic && c != d->rank ? 0 : bytes;
        total += d->recv_base[c];
    }
    return total <= x->request_bytes_in ? total : -1;
}

/* Grows a buffer to n floats with a reserve: the next lists may select more. */
static tess_status grow(const tess_dist_attn *d, tess__buffer *buffer, int64_t n)
{
    if (buffer->data && (size_t)n * sizeof(float) <= buffer->bytes)
        return TESS_OK;
    return tess__buffer_grow(d->ctx, buffer, n + n / 8, sizeof(float));
}

/* Offsets of the rows of each sample and head, and space for them. */
static tess_status place_rows(const tess_dist_attn *d, tess__dist_run *run,
                              const tess__selective *x, const tess__key_requests *a)
{
    a->row_offsets[0] = 0;
    for (int64_t i = 0; i < d->opts.batch * x->n_local_heads; i++)
        a->row_offsets[i + 1] =
            a->row_offsets[i] +
            tess__count_rows(d, a->needed + i * x->words, 0, 0, d->opts.n_units, 0, d->opts.tokens);
    const int64_t rows = a->row_offsets[d->opts.batch * x->n_local_heads];
    return grow(d, &run->acts->keys, 2 * rows * d->opts.head_dim);
}

/* Space for the rows sent and received: each buffer for both, since gradients go the other way. */
static tess_status reserve_messages(tess_dist_attn *d, const tess__selective *x,
                                    const tess__key_requests *a)
{
    int64_t out = 0, in = 0;
    for (int sample = 0; sample < d->opts.batch; sample++) {
        for (int64_t item = 0; item < x->first[d->ranks]; item++)
            if (item < x->first[d->rank] || item >= x->first[d->rank + 1])
                out += tess__rows_for(d, x, a, sample, item);
        for (int p = 0; p < d->ranks; p++)
            for (int64_t h = 0; p != d->rank && h < x->n_local_heads; h++)
                in += tess__rows_from(d, x, a, p, sample, h);
    }
    if (d->opts.compensate) { /* sums for each sample, head and owner, in rows of k and v */
        const int64_t row = 2 * d->opts.head_dim, each = (tess__dist_sums(d) + row - 1) / row;
        out += each * d->opts.batch * x->first[d->ranks];
        in += each * d->opts.batch * x->n_local_heads * d->ranks;
    }
    const int64_t most = 2 * TESS_MAX(out, in) * d->opts.head_dim;
    TESS_TRY(grow(d, &d->send, most));
    return grow(d, &d->recv, most);
}

/* Sizes of an all-to-all with `bytes` from each rank to each owner that it requests keys of. */
static void fixed_sizes(const tess_dist_attn *d, const tess__selective *x, int64_t bytes)
{
    for (int p = 0; p < d->ranks; p++) {
        d->send_bytes[p] = tess__requests_keys(x, d->rank, p) ? bytes : 0;
        d->recv_bytes[p] = tess__requests_keys(x, p, d->rank) ? bytes : 0;
    }
}

tess_status tess__request_keys(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                               const tess__key_requests *a)
{
    int64_t *const sizes = d->scratch.data, *const sizes_in = sizes + d->ranks;
    uint8_t *const out = (uint8_t *)(sizes_in + d->ranks), *const in = out + x->request_bytes_out;
    if (run->status == TESS_OK)
        run->status = place_rows(d, run, x, a);
    if (run->status != TESS_OK) /* requests nothing; all ranks return the failure together below */
        memset(a->needed, 0,
               (size_t)(d->opts.batch * x->n_local_heads * x->words) * sizeof *a->needed);
    write_requests(d, x, a, out, sizes);
    fixed_sizes(d, x, sizeof(int64_t));
    TESS_TRY(tess_comm_alltoallv(d->comm, TESS_TRAFFIC_CONTROL, sizes, d->send_bytes, sizes_in,
                                 d->recv_bytes));
    const int synthetic = d->comm->ops->synthetic;
    if (request_sizes(d, x, synthetic, sizes_in) <
        0) /* the other ranks continue with the next call */
        return tess_comm_fail(d->comm, tess__fail(TESS_EFORMAT,
                                                  "requests for keys have more than %lld bytes",
                                                  (long long)x->request_bytes_in));
    TESS_TRY(tess_comm_alltoallv(d->comm, TESS_TRAFFIC_INDEX, out, d->send_base, in, d->recv_base));
    memset(a->requested, 0,
           (size_t)(d->opts.batch * x->first[d->ranks] * x->local_words) * sizeof *a->requested);
    if (!read_requests(d, x, a, in) && run->status == TESS_OK)
        run->status = tess__fail(TESS_EFORMAT, "a request for keys is malformed");
    if (synthetic)
        mirror_requests(d, x, a);
    if (run->status == TESS_OK)
        run->status = reserve_messages(d, x, a);
    return tess__run_agree(d, run);
}
