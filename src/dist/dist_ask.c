/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ask.c - which rows of keys ranks ask each other for, and those rows on their way.
 *
 * A rank needs, of each sample and head it has shares of, the units that its lists name together.
 * It tells each owner which of the units with rows there these are (unit_set.c has the form), and
 * the owner answers with K and V of their rows; no row travels twice, and none that nobody named:
 *
 *   c   bytes of the question  ->  p     control, 8 bytes
 *       units, by sample, head ->        index
 *       K rows, V rows, by sample, head  <-  payload: the union, row by row
 *       dK rows, dV rows       ->        backward: the same rows; p adds them, ranks ascending
 *
 * The rows of a sample and head lie in token order, so that what comes from an owner is one piece.
 * A unit may have rows on two owners; each answers with its own.
 */
#include "dist_selective.h"

#include <string.h>

/* ---- sets ------------------------------------------------------------------------------------ */

static size_t set_counts(const tess_dist_attn *d, const tess__selective *x, size_t *theirs,
                         size_t *places)
{
    const size_t batch = (size_t)d->opts.batch;
    *theirs = batch * (size_t)(x->first[d->ranks] * x->home_words);
    *places = batch * (size_t)x->n_mine + 1;
    return batch * (size_t)(x->n_mine * x->words);
}

size_t tess__asked_bytes(const tess_dist_attn *d, const tess__selective *x)
{
    size_t theirs, places;
    const size_t mine = set_counts(d, x, &theirs, &places);
    return 8 * (mine + theirs + places);
}

tess__asked tess__asked_of(const tess_dist_attn *d, const tess__selective *x, uint8_t *own)
{
    size_t theirs, places;
    const size_t mine = set_counts(d, x, &theirs, &places);
    uint64_t *at = (void *)own;
    return (tess__asked){at, at + mine, (int64_t *)(void *)(at + mine + theirs)};
}

static uint64_t *mine_at(const tess__selective *x, const tess__asked *a, int sample, int64_t head)
{
    return a->mine + (sample * x->n_mine + head) * x->words;
}

static uint64_t *theirs_at(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                           int sample, int64_t item)
{
    return a->theirs + (sample * x->first[d->ranks] + item) * x->home_words;
}

/* Rows of a run of units that begin at or behind low and end at or before high. */
typedef struct {
    int64_t begin, end;
} span;

/* The next rows in [low, high) of units at..n-1 of a set, whose unit 0 is `base`; at moves behind
 * them. No rows: there are no more. */
static span next_rows(const tess_dist_attn *d, const uint64_t *set, int64_t base, int64_t n,
                      int64_t low, int64_t high, int64_t *at)
{
    const int64_t first = tess__set_next(set, *at, n, 1);
    const int64_t last = tess__set_next(set, first, n, 0);
    *at = last;
    if (first == last)
        return (span){0, 0};
    const int64_t begin = tess__unit_row(d, base + first), end = tess__unit_row(d, base + last);
    return (span){begin > low ? begin : low, end < high ? end : high};
}

static int64_t count_rows(const tess_dist_attn *d, const uint64_t *set, int64_t base, int64_t begin,
                          int64_t end, int64_t low, int64_t high)
{
    int64_t rows = 0, at = begin;
    for (span s; s = next_rows(d, set, base, end, low, high, &at), s.end > s.begin;)
        rows += s.end - s.begin;
    return rows;
}

/* Rows of a sample and head that owner p has of what this rank needs. */
static int64_t rows_from(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                         int p, int sample, int64_t head)
{
    return count_rows(d, mine_at(x, a, sample, head), 0, x->unit_begin[p], x->unit_end[p],
                      d->opts.bounds[p], d->opts.bounds[p + 1]);
}

/* Rows here of a sample and head that a rank needs. */
static int64_t rows_for(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                        int sample, int64_t item)
{
    const int64_t begin = x->unit_begin[d->rank], n = x->unit_end[d->rank] - begin;
    return count_rows(d, theirs_at(d, x, a, sample, item), begin, 0, n, d->opts.bounds[d->rank],
                      d->opts.bounds[d->rank + 1]);
}

/* ---- questions ------------------------------------------------------------------------------- */

int64_t tess__ask_scratch(const tess_dist_attn *d, const tess__selective *x)
{
    return x->message_out + x->message_in + 2 * (int64_t)sizeof(int64_t) * d->ranks;
}

/* Whether rank c asks owner p for anything: both know. */
static int asks(const tess__selective *x, int c, int p)
{
    return x->first[c + 1] > x->first[c] && x->unit_end[p] > x->unit_begin[p];
}

/* The questions one after the other; bytes (ranks) of each, packed to those who are asked. */
static int64_t write_questions(const tess_dist_attn *d, const tess__selective *x,
                               const tess__asked *a, uint8_t *message, int64_t *bytes)
{
    int64_t at = 0, n = 0;
    for (int p = 0; p < d->ranks; p++) {
        const int64_t begin = at;
        for (int sample = 0; asks(x, d->rank, p) && sample < d->opts.batch; sample++)
            for (int64_t h = 0; h < x->n_mine; h++)
                at += tess__set_encode(mine_at(x, a, sample, h), x->unit_begin[p], x->unit_end[p],
                                       message + at);
        if (asks(x, d->rank, p))
            bytes[n++] = at - begin;
        d->send_base[p] = at - begin;
    }
    return at;
}

/* 0 if some question is not one. */
static int read_questions(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                          const uint8_t *message)
{
    const int64_t n = x->unit_end[d->rank] - x->unit_begin[d->rank];
    for (int c = 0; c < d->ranks; c++) {
        const uint8_t *const end = message + d->recv_base[c];
        for (int sample = 0; d->recv_base[c] > 0 && sample < d->opts.batch; sample++)
            for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
                const int64_t bytes = tess__set_decode(message, end - message, 0, n,
                                                       theirs_at(d, x, a, sample, item));
                if (bytes == 0)
                    return 0;
                message += bytes;
            }
        if (message != end)
            return 0;
    }
    return 1;
}

/* Room for n floats, and some more where there is not enough: the next lists may ask for more. */
static tess_status grow(const tess_dist_attn *d, tess__buffer *buffer, int64_t n)
{
    if (buffer->data && (size_t)n * sizeof(float) <= buffer->bytes)
        return TESS_OK;
    return tess__buffer_grow(d->ctx, buffer, n + n / 8, sizeof(float));
}

/* Where the rows of each sample and head begin, and room for them. */
static tess_status place_rows(const tess_dist_attn *d, tess__dist_run *run,
                              const tess__selective *x, const tess__asked *a)
{
    a->places[0] = 0;
    for (int64_t i = 0; i < d->opts.batch * x->n_mine; i++)
        a->places[i + 1] = a->places[i] + count_rows(d, a->mine + i * x->words, 0, 0,
                                                     d->opts.n_units, 0, d->opts.tokens);
    const int64_t rows = a->places[d->opts.batch * x->n_mine];
    return grow(d, &run->set->keys, 2 * rows * d->opts.head_dim);
}

/* Room for the rows that come and go: each buffer for both, for gradients go the other way. */
static tess_status reserve_messages(tess_dist_attn *d, const tess__selective *x,
                                    const tess__asked *a)
{
    int64_t out = 0, in = 0;
    for (int sample = 0; sample < d->opts.batch; sample++) {
        for (int64_t item = 0; item < x->first[d->ranks]; item++)
            if (item < x->first[d->rank] || item >= x->first[d->rank + 1])
                out += rows_for(d, x, a, sample, item);
        for (int p = 0; p < d->ranks; p++)
            for (int64_t h = 0; p != d->rank && h < x->n_mine; h++)
                in += rows_from(d, x, a, p, sample, h);
    }
    const int64_t most = 2 * (out > in ? out : in) * d->opts.head_dim;
    TESS_TRY(grow(d, &d->send, most));
    return grow(d, &d->recv, most);
}

/* Both sides' sizes of an exchange in which some ranks ask others: `bytes` each. */
static void fixed_sizes(const tess_dist_attn *d, const tess__selective *x, int64_t bytes)
{
    for (int p = 0; p < d->ranks; p++) {
        d->send_bytes[p] = asks(x, d->rank, p) ? bytes : 0;
        d->recv_bytes[p] = asks(x, p, d->rank) ? bytes : 0;
    }
}

tess_status tess__ask(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                      const tess__asked *a)
{
    int64_t *const sizes = d->scratch.data, *const sizes_in = sizes + d->ranks;
    uint8_t *const out = (uint8_t *)(sizes_in + d->ranks), *const in = out + x->message_out;
    if (run->mine == TESS_OK)
        run->mine = place_rows(d, run, x, a);
    if (run->mine != TESS_OK) /* asks for nothing, and all leave together below */
        memset(a->mine, 0, (size_t)(d->opts.batch * x->n_mine * x->words) * sizeof *a->mine);
    write_questions(d, x, a, out, sizes);
    fixed_sizes(d, x, sizeof(int64_t));
    TESS_TRY(tess_comm_alltoall(d->comm, TESS_TRAFFIC_CONTROL, sizes, d->send_bytes, sizes_in,
                                d->recv_bytes));
    int64_t total = 0;
    for (int c = 0, n = 0; c < d->ranks; c++) {
        d->recv_base[c] = asks(x, c, d->rank) ? sizes_in[n++] : 0;
        total += d->recv_base[c];
    }
    if (total > x->message_in || total < 0)
        return tess__fail(TESS_EFORMAT, "a question of %lld bytes about keys, must be at most %lld",
                          (long long)total, (long long)x->message_in);
    TESS_TRY(tess_comm_alltoall(d->comm, TESS_TRAFFIC_INDEX, out, d->send_base, in, d->recv_base));
    memset(a->theirs, 0,
           (size_t)(d->opts.batch * x->first[d->ranks] * x->home_words) * sizeof *a->theirs);
    if (!read_questions(d, x, a, in) && run->mine == TESS_OK)
        run->mine = tess__fail(TESS_EFORMAT, "a question about keys that names none");
    if (run->mine == TESS_OK)
        run->mine = reserve_messages(d, x, a);
    return tess__run_agree(d, run);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows here that a sample and head of another rank asks for, as they lie at home, one by one. */
typedef void (*row_fn)(float *home, float *message, int width);

static void take_row(float *home, float *message, int width)
{
    memcpy(message, home, (size_t)width * sizeof *home);
}

static void add_row(float *home, float *message, int width)
{
    for (int i = 0; i < width; i++)
        home[i] += message[i];
}

/* Calls fn for each row of view that is asked for, with rows of the message one after the other;
 * returns where these end. */
static float *each_row(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                       int sample, int64_t item, const tess_view *view, row_fn fn, float *message)
{
    const uint64_t *set = theirs_at(d, x, a, sample, item);
    const int64_t low = d->opts.bounds[d->rank], high = d->opts.bounds[d->rank + 1];
    const int64_t base = x->unit_begin[d->rank], n = x->unit_end[d->rank] - base;
    int64_t at = 0;
    for (span s; s = next_rows(d, set, base, n, low, high, &at), s.end > s.begin;)
        for (int64_t row = s.begin; row < s.end; row++, message += d->opts.head_dim)
            fn(tess__view_row(view, sample, x->heads[item], row - low), message, d->opts.head_dim);
    return message;
}

/* Bytes of the messages of rows: to those who ask, or from those who are asked. */
static void row_sizes(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                      int64_t *asked, int64_t *asking)
{
    const int64_t row = 2 * d->opts.head_dim * (int64_t)sizeof(float);
    for (int r = 0; r < d->ranks; r++) {
        int64_t out = 0, in = 0;
        for (int sample = 0; r != d->rank && sample < d->opts.batch; sample++) {
            for (int64_t item = x->first[r]; item < x->first[r + 1]; item++)
                out += rows_for(d, x, a, sample, item);
            for (int64_t h = 0; h < x->n_mine; h++)
                in += rows_from(d, x, a, r, sample, h);
        }
        asked[r] = out * row;
        asking[r] = in * row;
    }
}

/* Rows of sample and head i before those that owner p has. */
static int64_t rows_before(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                           int p, int64_t i)
{
    return count_rows(d, a->mine + i * x->words, 0, 0, x->unit_end[p], 0, d->opts.bounds[p]);
}

/* Copies the rows of every sample and head that owner p has, K and then V, from keys to a message
 * (out) or from it. Returns where the message ends. */
static float *copy_pieces(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                          int p, float *keys, int out, float *message)
{
    const int64_t items = d->opts.batch * x->n_mine, dim = d->opts.head_dim;
    for (int64_t i = 0; i < items; i++) {
        const int64_t rows = rows_from(d, x, a, p, (int)(i / x->n_mine), i % x->n_mine);
        const int64_t place = a->places[i] + rows_before(d, x, a, p, i);
        for (int v = 0; rows > 0 && v < 2; v++, message += rows * dim) {
            float *piece = keys + (v * a->places[items] + place) * dim;
            memcpy(out ? message : piece, out ? piece : message,
                   (size_t)(rows * dim) * sizeof *keys);
        }
    }
    return message;
}

/* Rows at home that this rank itself asks for: fn between home and keys. */
static void own_rows(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                     const tess_view *k, const tess_view *v, row_fn fn, float *keys)
{
    const int64_t items = d->opts.batch * x->n_mine, dim = d->opts.head_dim;
    for (int64_t i = 0; i < items; i++) {
        const int sample = (int)(i / x->n_mine);
        const int64_t item = x->first[d->rank] + i % x->n_mine;
        const int64_t place = a->places[i] + rows_before(d, x, a, d->rank, i);
        each_row(d, x, a, sample, item, k, fn, keys + place * dim);
        each_row(d, x, a, sample, item, v, fn, keys + (a->places[items] + place) * dim);
    }
}

/* Rows at home that rank c asks for: fn between home and its message, K and then V for each sample
 * and head. Returns where the message ends. */
static float *asked_rows(const tess_dist_attn *d, const tess__selective *x, const tess__asked *a,
                         int c, const tess_view *k, const tess_view *v, row_fn fn, float *message)
{
    for (int sample = 0; sample < d->opts.batch; sample++)
        for (int64_t item = x->first[c]; item < x->first[c + 1]; item++) {
            message = each_row(d, x, a, sample, item, k, fn, message);
            message = each_row(d, x, a, sample, item, v, fn, message);
        }
    return message;
}

/* One all-to-all of rows, whose sizes are in d->send_bytes and d->recv_bytes. */
static tess_status exchange(tess_dist_attn *d, tess_dist_seen *seen)
{
    const int64_t begin = tess_comm_clock(d->comm);
    TESS_TRY(tess_comm_alltoall(d->comm, TESS_TRAFFIC_PAYLOAD, d->send.data, d->send_bytes,
                                d->recv.data, d->recv_bytes));
    seen->exchange_ns += tess_comm_clock(d->comm) - begin;
    return TESS_OK;
}

tess_status tess__keys_come(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                            const tess__asked *a)
{
    tess_dist_seen *seen = &run->layer->seen;
    const int64_t begin = tess_comm_clock(d->comm), exchanged = seen->exchange_ns;
    float *message = d->send.data;
    row_sizes(d, x, a, d->send_bytes, d->recv_bytes);
    for (int c = 0; c < d->ranks; c++)
        if (c != d->rank)
            message = asked_rows(d, x, a, c, run->k, run->v, take_row, message);
    TESS_TRY(exchange(d, seen));
    message = d->recv.data;
    for (int p = 0; p < d->ranks; p++) {
        seen->union_rows += d->recv_bytes[p] / (2 * d->opts.head_dim * (int64_t)sizeof(float));
        if (p != d->rank)
            message = copy_pieces(d, x, a, p, run->set->keys.data, 0, message);
    }
    own_rows(d, x, a, run->k, run->v, take_row, run->set->keys.data);
    seen->move_ns += tess_comm_clock(d->comm) - begin - (seen->exchange_ns - exchanged);
    return TESS_OK;
}

static void clear_home(const tess_dist_attn *d, const tess_view *view)
{
    for (int b = 0; b < d->opts.batch; b++)
        for (int h = 0; h < d->opts.heads; h++)
            for (int64_t row = 0; row < d->home; row++)
                memset(tess__view_row(view, b, h, row), 0,
                       (size_t)d->opts.head_dim * sizeof(float));
}

tess_status tess__keys_return(tess_dist_attn *d, tess__dist_run *run, const tess__selective *x,
                              const tess__asked *a, float *gradients)
{
    tess_dist_seen *seen = &run->layer->seen;
    const int64_t begin = tess_comm_clock(d->comm), exchanged = seen->exchange_ns;
    float *message = d->send.data;
    row_sizes(d, x, a, d->recv_bytes, d->send_bytes);
    for (int p = 0; p < d->ranks; p++)
        if (p != d->rank)
            message = copy_pieces(d, x, a, p, gradients, 1, message);
    TESS_TRY(exchange(d, seen));
    clear_home(d, run->home_dk);
    clear_home(d, run->home_dv);
    message = d->recv.data;
    for (int c = 0; c < d->ranks; c++)
        if (c == d->rank)
            own_rows(d, x, a, run->home_dk, run->home_dv, add_row, gradients);
        else
            message = asked_rows(d, x, a, c, run->home_dk, run->home_dv, add_row, message);
    seen->move_ns += tess_comm_clock(d->comm) - begin - (seen->exchange_ns - exchanged);
    return TESS_OK;
}
