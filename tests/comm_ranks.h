/* SPDX-License-Identifier: Apache-2.0 */
/* comm_ranks.h - what every communicator must do, as the work of one rank: run by threads
 * (test_comm.c) and under mpirun (mpi/test_comm_mpi.c).
 *
 * cmocka's assertions leave a function by a jump, which a rank on a thread of its own cannot do:
 * EXPECT returns a failure instead, after printing which expectation was not met.
 */
#ifndef TESS_TEST_COMM_RANKS_H
#define TESS_TEST_COMM_RANKS_H

#include "test.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"
#include "tessera/comm.h"

#include <stdlib.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return not_met(#condition, __FILE__, __LINE__);                                        \
    } while (0)
#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        const tess_status expect_status_ = (call);                                                 \
        if (expect_status_ != TESS_OK)                                                             \
            return not_met(#call, __FILE__, __LINE__);                                             \
    } while (0)
#define EXPECT_FAILS(call, status, sentence)                                                       \
    do {                                                                                           \
        EXPECT((call) == (status));                                                                \
        EXPECT(strcmp(tess_last_error(), sentence) == 0);                                          \
    } while (0)

static inline tess_status not_met(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not met: %s (last error: %s)\n", file, line, what, tess_last_error());
    return TESS_EFORMAT;
}

/* A failure of this thread with a sentence of its own. */
static inline tess_status fail_here(int who)
{
    tess_ctx *none = NULL;
    return tess_ctx_create(&(tess_ctx_opts){.threads = -1 - who}, &none);
}

static inline void sentence_of(int who, char sentence[200])
{
    snprintf(sentence, 200,
             "tess_ctx_create: threads is %d, must be 1..1024, or 0 for all usable cores",
             -1 - who);
}

static inline uint32_t noise(uint64_t a, uint64_t b, uint64_t c)
{
    uint32_t bits = 0;
    (void)tess_random_bits(a, b, c, &bits, 1);
    return bits;
}

/* How many bytes go from one rank to another in a round, a quarter of them none, and which. */
static inline int64_t size_of(int round, int from, int to)
{
    const uint32_t r = noise((uint64_t)round, (uint64_t)from, (uint64_t)to);
    return r % 4 == 0 ? 0 : r % 5000;
}

static inline unsigned char byte_of(int round, int from, int to, int64_t i)
{
    return (unsigned char)(round * 31 + from * 7 + to * 13 + i * 5 + (i >> 8));
}

enum { RANKS_MOST = 8, ROUND_BYTES = RANKS_MOST * 5000 };

typedef struct {
    int64_t send_bytes[RANKS_MOST], recv_bytes[RANKS_MOST];
    unsigned char send[ROUND_BYTES], recv[ROUND_BYTES];
} round_data;

static inline void fill_round(round_data *d, int round, int rank, int size)
{
    unsigned char *at = d->send;
    for (int p = 0; p < size; p++) {
        d->send_bytes[p] = size_of(round, rank, p);
        d->recv_bytes[p] = size_of(round, p, rank);
        for (int64_t i = 0; i < d->send_bytes[p]; i++)
            *at++ = byte_of(round, rank, p, i);
    }
    memset(d->recv, 0xEE, sizeof d->recv);
}

static inline tess_status check_round(const round_data *d, int round, int rank, int size)
{
    const unsigned char *at = d->recv;
    for (int p = 0; p < size; p++)
        for (int64_t i = 0; i < d->recv_bytes[p]; i++)
            EXPECT(*at++ == byte_of(round, p, rank, i));
    while (at < d->recv + sizeof d->recv)
        EXPECT(*at++ == 0xEE);
    return TESS_OK;
}

/* Adds to counts what a round sends to others. */
static inline void count_round(const round_data *d, int rank, int size, tess_traffic_kind traffic,
                               tess_comm_counts *counts)
{
    for (int p = 0; p < size; p++)
        if (p != rank && d->send_bytes[p] > 0) {
            counts->bytes[traffic] += d->send_bytes[p];
            counts->messages[traffic]++;
        }
}

static inline tess_status expect_counts(const tess_comm *comm, const tess_comm_counts *want)
{
    tess_comm_counts got;
    EXPECT_OK(tess_comm_counts_read(comm, &got));
    for (int i = 0; i < TESS_TRAFFIC_COUNT; i++) {
        EXPECT(got.bytes[i] == want->bytes[i]);
        EXPECT(got.messages[i] == want->messages[i]);
    }
    EXPECT(got.wait_ns >= 0);
    return TESS_OK;
}

/* ---- the work of a rank ---------------------------------------------------------------------- */

typedef struct {
    tess_ctx *ctx;
    int rank, size;
} place;

static inline tess_status rank_alltoall(const place *me, tess_comm *comm)
{
    tess_comm_counts counts = {0};
    round_data d;
    for (int round = 0; round < 20; round++) {
        const tess_traffic_kind traffic = round % TESS_TRAFFIC_COUNT;
        fill_round(&d, round, me->rank, me->size);
        count_round(&d, me->rank, me->size, traffic, &counts);
        EXPECT_OK(tess_comm_alltoallv(comm, traffic, d.send, d.send_bytes, d.recv, d.recv_bytes));
        EXPECT_OK(check_round(&d, round, me->rank, me->size));
    }
    const int64_t none[RANKS_MOST] = {0};
    EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, NULL, none, NULL, none));
    return expect_counts(comm, &counts);
}

static inline tess_status rank_overlap(const place *me, tess_comm *comm)
{
    enum { OPEN = 8 };
    tess_ctx_info before, after;
    round_data *d = calloc(OPEN, sizeof *d);
    tess_request *requests[OPEN];
    EXPECT(d != NULL);
    for (int i = 0; i < OPEN; i++)
        fill_round(&d[i], i, me->rank, me->size);
    EXPECT_OK(tess_ctx_query(me->ctx, &before));
    for (int i = 0; i < OPEN; i++)
        EXPECT_OK(tess_comm_start_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, d[i].send, d[i].send_bytes,
                                            d[i].recv, d[i].recv_bytes, &requests[i]));
    EXPECT_OK(tess_comm_progress(comm));
    /* Each rank in an order of its own. */
    for (int i = 0; i < OPEN; i++)
        EXPECT_OK(tess_comm_wait(comm, requests[(me->rank % 2 ? i : OPEN - 1 - i)]));
    EXPECT_OK(tess_ctx_query(me->ctx, &after));
    EXPECT(before.allocations == after.allocations);
    for (int i = 0; i < OPEN; i++)
        EXPECT_OK(check_round(&d[i], i, me->rank, me->size));
    EXPECT_OK(tess_comm_wait(comm, NULL));
    EXPECT_FAILS(tess_comm_wait(comm, requests[0]), TESS_EINVAL,
                 "tess_comm_wait: request is not open on this communicator");
    free(d);
    return TESS_OK;
}

static inline tess_status rank_too_many(const place *me, tess_comm *comm)
{
    tess_request *requests[TESS_COMM_OPEN], *another = NULL;
    int out[TESS_COMM_OPEN], in[TESS_COMM_OPEN];
    const int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
    for (int i = 0; i < TESS_COMM_OPEN; i++) {
        out[i] = 100 * me->rank + i;
        EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_INDEX, &out[i], sizeof out[i], next,
                                           &in[i], sizeof in[i], before, &requests[i]));
    }
    EXPECT_FAILS(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_INDEX, &out[0], sizeof out[0], next,
                                          &in[0], sizeof in[0], before, &another),
                 TESS_EINVAL,
                 "64 operations are open on a communicator, that is the most: tess_comm_wait ends "
                 "them");
    EXPECT(another == NULL);
    for (int i = 0; i < TESS_COMM_OPEN; i++)
        EXPECT_OK(tess_comm_wait(comm, requests[i]));
    for (int i = 0; i < TESS_COMM_OPEN; i++)
        EXPECT(in[i] == 100 * before + i);
    return TESS_OK;
}

/* Something goes once round the ring, and a message down the line from the first rank to the last,
 * whose end ranks have a neighbour on one side only. */
static inline tess_status rank_ring(const place *me, tess_comm *comm)
{
    tess_comm_counts counts = {0};
    tess_request *request = NULL;
    const int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
    int64_t have[100], comes[100];
    for (int i = 0; i < 100; i++)
        have[i] = me->rank * 1000 + i;
    for (int step = 1; step <= me->size; step++) {
        EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, have, sizeof have, next,
                                           comes, sizeof comes, before, &request));
        EXPECT_OK(tess_comm_wait(comm, request));
        memcpy(have, comes, sizeof have);
        const int owner = (me->rank + step * (me->size - 1)) % me->size;
        for (int i = 0; i < 100; i++)
            EXPECT(have[i] == owner * 1000 + i);
        if (me->size > 1) {
            counts.bytes[TESS_TRAFFIC_PAYLOAD] += sizeof have;
            counts.messages[TESS_TRAFFIC_PAYLOAD]++;
        }
    }
    const int to = me->rank + 1 < me->size ? me->rank + 1 : -1;
    int passed = me->rank == 0 ? 42 : 0;
    EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_CONTROL, NULL, 0, -1, &passed,
                                       sizeof passed, me->rank - 1, &request));
    EXPECT_OK(tess_comm_wait(comm, request));
    EXPECT(passed == 42);
    EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_CONTROL, &passed, sizeof passed, to, NULL,
                                       0, -1, &request));
    EXPECT_OK(tess_comm_wait(comm, request));
    counts.bytes[TESS_TRAFFIC_CONTROL] += to < 0 ? 0 : (int64_t)sizeof passed;
    counts.messages[TESS_TRAFFIC_CONTROL] += to >= 0;
    return expect_counts(comm, &counts);
}

/* Numbers whose sum depends on the order of its additions. */
static inline float value_of(int rank, int64_t i)
{
    const uint64_t mixed = (uint64_t)(i * 8 + rank + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return (float)(mixed >> 40) * 1e-3f - 17.0f;
}

/* Lengths below and above what goes to everyone at once, of uneven segments, of several pieces. */
static inline tess_status rank_sums(const place *me, tess_comm *comm)
{
    static const int64_t lengths[] = {0, 1, 7, 1024, 1025, 5003, 150001};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int64_t n = lengths[l];
        float *x = malloc((size_t)(n + 1) * sizeof *x), *want = malloc((size_t)(n + 1) * sizeof *x);
        double *y = malloc((size_t)(n + 1) * sizeof *y);
        EXPECT(x && want && y);
        for (int64_t i = 0; i < n; i++) {
            want[i] = value_of(0, i);
            for (int p = 1; p < me->size; p++)
                want[i] += value_of(p, i);
        }
        for (int again = 0; again < 2; again++) {
            for (int64_t i = 0; i < n; i++) {
                x[i] = value_of(me->rank, i);
                y[i] = (double)value_of(me->rank, i) * 3.0;
            }
            EXPECT_OK(tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, x, n, TESS_DTYPE_F32,
                                          TESS_REDUCE_SUM));
            EXPECT(memcmp(x, want, (size_t)n * sizeof *x) == 0);
            EXPECT_OK(tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, y, n, TESS_DTYPE_F64,
                                          TESS_REDUCE_SUM));
            for (int64_t i = 0; i < n && i < 3000; i++) {
                double sum = (double)value_of(0, i) * 3.0;
                for (int p = 1; p < me->size; p++)
                    sum += (double)value_of(p, i) * 3.0;
                EXPECT(y[i] == sum);
            }
        }
        free(x);
        free(want);
        free(y);
    }
    return TESS_OK;
}

static inline tess_status rank_largest(const place *me, tess_comm *comm)
{
    float f[] = {(float)me->rank, me->rank == 0 ? NAN : 5.0f};
    EXPECT_OK(tess_comm_allreduce(comm, TESS_TRAFFIC_INDEX, f, 2, TESS_DTYPE_F32, TESS_REDUCE_MAX));
    EXPECT(f[0] == (float)(me->size - 1) && isnan(f[1]));
    double x[] = {me->rank, -me->rank, me->rank == 0 ? (double)NAN : 5.0,
                  me->rank == me->size - 1 ? (double)NAN : 5.0, -(double)INFINITY};
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, x, 5, TESS_DTYPE_F64, TESS_REDUCE_MAX));
    EXPECT(x[0] == me->size - 1 && x[1] == 0.0 && isnan(x[2]) && isnan(x[3]));
    EXPECT(x[4] == -(double)INFINITY);
    int64_t y[] = {me->rank, -me->rank, INT64_MIN}, z[] = {1, me->rank};
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, y, 3, TESS_DTYPE_I64, TESS_REDUCE_MAX));
    EXPECT(y[0] == me->size - 1 && y[1] == 0 && y[2] == INT64_MIN);
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, z, 2, TESS_DTYPE_I64, TESS_REDUCE_SUM));
    EXPECT(z[0] == me->size && z[1] == me->size * (me->size - 1) / 2);
    tess_comm_counts counts = {0};
    counts.messages[TESS_TRAFFIC_CONTROL] = 3 * (me->size - 1);
    counts.bytes[TESS_TRAFFIC_CONTROL] = (int64_t)(5 + 3 + 2) * 8 * (me->size - 1);
    counts.messages[TESS_TRAFFIC_INDEX] = me->size - 1;
    counts.bytes[TESS_TRAFFIC_INDEX] = 2 * 4 * (me->size - 1);
    return expect_counts(comm, &counts);
}

static inline tess_status rank_gather(const place *me, tess_comm *comm)
{
    tess_comm_counts counts = {0};
    round_data d;
    for (int in_place = 0; in_place < 2; in_place++) {
        unsigned char *own = d.recv;
        memset(d.recv, 0xEE, sizeof d.recv);
        for (int p = 0; p < me->size; p++) {
            d.recv_bytes[p] = size_of(9, p, p);
            own += p < me->rank ? d.recv_bytes[p] : 0;
        }
        unsigned char *from = in_place ? own : d.send;
        const int64_t n = d.recv_bytes[me->rank];
        for (int64_t i = 0; i < n; i++)
            from[i] = byte_of(9, me->rank, 0, i);
        EXPECT_OK(tess_comm_allgatherv(comm, TESS_TRAFFIC_INDEX, from, n, d.recv, d.recv_bytes));
        const unsigned char *at = d.recv;
        for (int p = 0; p < me->size; p++)
            for (int64_t i = 0; i < d.recv_bytes[p]; i++)
                EXPECT(*at++ == byte_of(9, p, 0, i));
        EXPECT(at == d.recv + sizeof d.recv || *at == 0xEE);
        counts.bytes[TESS_TRAFFIC_INDEX] += (me->size - 1) * n;
        counts.messages[TESS_TRAFFIC_INDEX] += n > 0 ? me->size - 1 : 0;
    }
    return expect_counts(comm, &counts);
}

static inline tess_status rank_broadcast(const place *me, tess_comm *comm)
{
    static const int64_t sizes[] = {0, 1, 65536, 65537, 300001};
    unsigned char *data = malloc(300001);
    EXPECT(data != NULL);
    for (int root = 0; root < me->size; root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int64_t i = 0; i < sizes[s]; i++)
                data[i] = me->rank == root ? byte_of((int)s, root, 0, i) : 0;
            EXPECT_OK(tess_comm_broadcast(comm, TESS_TRAFFIC_PAYLOAD, root, data, sizes[s]));
            for (int64_t i = 0; i < sizes[s]; i++)
                EXPECT(data[i] == byte_of((int)s, root, 0, i));
        }
    free(data);
    return TESS_OK;
}

static inline tess_status rank_agree(const place *me, tess_comm *comm)
{
    char sentence[200];
    EXPECT_OK(tess_comm_agree(comm, TESS_OK));
    for (int lowest = 0; lowest < me->size; lowest++) {
        /* Those above fail with another status: status and sentence come from one rank. */
        tess_status mine = me->rank >= lowest ? fail_here(me->rank) : TESS_OK;
        if (me->rank > lowest)
            mine = TESS_EIO;
        sentence_of(lowest, sentence);
        EXPECT_FAILS(tess_comm_agree(comm, mine), TESS_EINVAL, sentence);
        EXPECT_OK(tess_comm_agree(comm, TESS_OK));
    }
    return TESS_OK;
}

/* One rank differs, in its size, in its first byte, in its last one beyond a piece. */
static inline tess_status rank_same(const place *me, tess_comm *comm)
{
    enum { BYTES = 150000 };
    char *data = calloc(1, BYTES), sentence[100];
    EXPECT(data != NULL);
    EXPECT_OK(tess_comm_check_equal(comm, "version", "0.1.0", 5));
    EXPECT_OK(tess_comm_check_equal(comm, "nothing", NULL, 0));
    EXPECT_OK(tess_comm_check_equal(comm, "hash of weights", data, BYTES));
    for (int who = 1; who < me->size; who++) {
        snprintf(sentence, sizeof sentence, "rank %d has another table than rank 0", who);
        const int other = me->rank >= who;
        EXPECT_FAILS(tess_comm_check_equal(comm, "table", data, (size_t)(BYTES - other)),
                     TESS_EINVAL, sentence);
        data[0] = (char)other;
        EXPECT_FAILS(tess_comm_check_equal(comm, "table", data, BYTES), TESS_EINVAL, sentence);
        data[0] = 0;
        data[BYTES - 1] = (char)other;
        EXPECT_FAILS(tess_comm_check_equal(comm, "table", data, BYTES), TESS_EINVAL, sentence);
        data[BYTES - 1] = 0;
    }
    free(data);
    return TESS_OK;
}

/* The part's ranks are those expected, and it works: a sum of the old ranks. */
static inline tess_status expect_part(tess_comm *part, int old, int rank, int size, int64_t sum)
{
    tess_comm_info info;
    EXPECT(part != NULL);
    EXPECT_OK(tess_comm_query(part, &info));
    EXPECT(info.rank == rank && info.size == size);
    EXPECT(info.nodes == 1 && info.node == 0);
    int64_t x = old;
    EXPECT_OK(
        tess_comm_allreduce(part, TESS_TRAFFIC_PAYLOAD, &x, 1, TESS_DTYPE_I64, TESS_REDUCE_SUM));
    EXPECT(x == sum);
    tess_comm_counts counts = {0};
    counts.bytes[TESS_TRAFFIC_PAYLOAD] = 8 * (size - 1);
    counts.messages[TESS_TRAFFIC_PAYLOAD] = size - 1;
    return expect_counts(part, &counts);
}

/* Even and odd ranks in reverse order, then halves of these; rank 0 alone stays out of a third. */
static inline tess_status rank_split(const place *me, tess_comm *comm)
{
    tess_comm_counts before, after;
    tess_comm *part = NULL, *half = NULL, *others = NULL;
    const int n = me->size, odd = me->rank % 2, size = (n + 1 - odd) / 2;
    const int rank = size - 1 - me->rank / 2;
    int64_t sum = 0, half_sum = 0;
    for (int p = odd; p < n; p += 2)
        sum += p;
    EXPECT_OK(tess_comm_split(comm, odd, -me->rank, &part));
    EXPECT_OK(tess_comm_counts_read(comm, &before));
    EXPECT_OK(expect_part(part, me->rank, rank, size, sum));
    EXPECT_OK(tess_comm_counts_read(comm, &after));
    EXPECT(memcmp(before.bytes, after.bytes, sizeof before.bytes) == 0);

    const int upper = rank >= size / 2, first = upper ? size / 2 : 0;
    const int half_size = upper ? size - size / 2 : size / 2;
    for (int i = first; i < first + half_size; i++)
        half_sum += 2 * (size - 1 - i) + odd;
    EXPECT_OK(tess_comm_split(part, upper, 0, &half));
    EXPECT_OK(expect_part(half, me->rank, rank - first, half_size, half_sum));

    EXPECT_OK(tess_comm_split(comm, me->rank == 0 ? -1 : 7, 0, &others));
    EXPECT((others == NULL) == (me->rank == 0));
    if (others)
        EXPECT_OK(expect_part(others, me->rank, me->rank - 1, n - 1, (int64_t)n * (n - 1) / 2));
    /* Messages of parts and of the whole are kept apart. */
    int64_t x = 1, y = 1;
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_PAYLOAD, &x, 1, TESS_DTYPE_I64, TESS_REDUCE_SUM));
    EXPECT_OK(
        tess_comm_allreduce(part, TESS_TRAFFIC_PAYLOAD, &y, 1, TESS_DTYPE_I64, TESS_REDUCE_SUM));
    EXPECT(x == n && y == size);
    tess_comm_destroy(others);
    tess_comm_destroy(half);
    tess_comm_destroy(part);
    return TESS_OK;
}

static inline tess_status rank_grid(const place *me, tess_comm *comm)
{
    for (int columns = 1; columns <= me->size; columns++) {
        tess_comm *row = NULL, *column = NULL;
        if (me->size % columns != 0)
            continue;
        const int rows = me->size / columns, r = me->rank / columns, c = me->rank % columns;
        EXPECT_OK(tess_comm_grid(comm, columns, &row, &column));
        EXPECT_OK(expect_part(row, me->rank, c, columns,
                              r * columns * columns + columns * (columns - 1) / 2));
        EXPECT_OK(
            expect_part(column, me->rank, r, rows, c * rows + columns * rows * (rows - 1) / 2));
        tess_comm_destroy(column);
        tess_comm_destroy(row);
    }
    tess_comm *row = NULL, *column = NULL;
    char sentence[100];
    snprintf(sentence, sizeof sentence, "tess_comm_grid: columns is %d, must divide the %d ranks",
             me->size + 1, me->size);
    EXPECT_FAILS(tess_comm_grid(comm, me->size + 1, &row, &column), TESS_EINVAL, sentence);
    return TESS_OK;
}

/* A receiver that expects another size says so; the communicator goes on. */
static inline tess_status rank_other_size(const place *me, tess_comm *comm)
{
    tess_request *request = NULL;
    char bytes[64] = {0};
    if (me->rank == 0 && me->size > 1) {
        EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, bytes, 12, 1, NULL, 0, -1,
                                           &request));
        EXPECT_OK(tess_comm_wait(comm, request));
    }
    if (me->rank == 1) {
        EXPECT_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, NULL, 0, -1, bytes, 16, 0,
                                           &request));
        EXPECT_FAILS(tess_comm_wait(comm, request), TESS_EINVAL,
                     "rank 0 sent 12 bytes where rank 1 expects 16");
    }
    return tess_comm_agree(comm, TESS_OK);
}

/* Every rank notifies `who` that it has come so far: a rank that fails at once may otherwise be
 * noticed inside the call before. */
static inline tess_status ready(const place *me, tess_comm *comm, int who)
{
    tess_request *request = NULL;
    char x = 1;
    for (int p = 0; p < me->size; p++) {
        if (p == who || (me->rank != who && me->rank != p))
            continue;
        EXPECT_OK(me->rank == who ? tess_comm_start_sendrecv(comm, TESS_TRAFFIC_CONTROL, NULL, 0,
                                                             -1, &x, 1, p, &request)
                                  : tess_comm_start_sendrecv(comm, TESS_TRAFFIC_CONTROL, &x, 1, who,
                                                             NULL, 0, -1, &request));
        EXPECT_OK(tess_comm_wait(comm, request));
    }
    return TESS_OK;
}

/* One rank fails while the others are in the middle of an all-to-all. It has started its part of it
 * and frees the buffers at once. */
static inline tess_status rank_fail(const place *me, tess_comm *comm)
{
    enum { BYTES = 1 << 20 };
    tess_comm *part = NULL;
    tess_request *request = NULL;
    int64_t bytes[RANKS_MOST];
    char sentence[200], expected[240];
    const int who = me->size > 2 ? 2 : me->size - 1;
    sentence_of(who, sentence);
    snprintf(expected, sizeof expected, "rank %d: %s", who, sentence);
    EXPECT_OK(tess_comm_split(comm, 0, -me->rank, &part));
    char *send = calloc((size_t)me->size, BYTES), *recv = calloc((size_t)me->size, BYTES);
    EXPECT(send && recv);
    for (int p = 0; p < me->size; p++)
        bytes[p] = BYTES;
    int64_t begin = tess_clock_ns();
    EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, send, bytes, recv, bytes));
    const int64_t usual = tess_clock_ns() - begin;
    EXPECT_OK(ready(me, comm, who));
    begin = tess_clock_ns();
    tess_status status =
        tess_comm_start_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, send, bytes, recv, bytes, &request);
    if (me->rank == who) {
        EXPECT(status == TESS_OK);
        EXPECT(tess_comm_fail(comm, fail_here(who)) == TESS_EINVAL);
        EXPECT(strcmp(tess_last_error(), sentence) == 0);
    } else {
        if (status == TESS_OK)
            status = tess_comm_wait(comm, request);
        if (status == TESS_OK)
            status = tess_comm_alltoallv(part, TESS_TRAFFIC_PAYLOAD, send, bytes, recv, bytes);
        EXPECT(status == TESS_EINVAL && strcmp(tess_last_error(), expected) == 0);
        EXPECT_FAILS(tess_comm_agree(comm, TESS_OK), TESS_EINVAL, expected);
        EXPECT_FAILS(tess_comm_progress(part), TESS_EINVAL, expected);
        int64_t x = 1;
        EXPECT_FAILS(
            tess_comm_allreduce(part, TESS_TRAFFIC_CONTROL, &x, 1, TESS_DTYPE_I64, TESS_REDUCE_SUM),
            TESS_EINVAL, expected);
        /* At once, but the machine may be busy. */
        EXPECT(tess_clock_ns() - begin < 3000000000 + 10 * usual);
    }
    free(send);
    free(recv);
    tess_comm_destroy(part);
    return TESS_OK;
}

static inline tess_status rank_wrong_arguments(const place *me, tess_comm *comm)
{
    tess_comm *part = NULL;
    tess_request *request = NULL;
    char x[8] = {0};
    int64_t sizes[RANKS_MOST] = {0}, other[RANKS_MOST] = {0}, negative[RANKS_MOST] = {-3};
    EXPECT_FAILS(tess_comm_alltoallv(NULL, 0, x, sizes, x, sizes), TESS_EINVAL,
                 "tess_comm_alltoallv: comm is NULL");
    EXPECT_FAILS(tess_comm_alltoallv(comm, (tess_traffic_kind)3, x, sizes, x, sizes), TESS_EINVAL,
                 "tess_comm_alltoallv: traffic is 3, must be a tess_traffic_kind");
    EXPECT_FAILS(tess_comm_alltoallv(comm, 0, x, NULL, x, sizes), TESS_EINVAL,
                 "tess_comm_alltoallv: send_bytes is NULL");
    EXPECT_FAILS(tess_comm_alltoallv(comm, 0, x, sizes, x, negative), TESS_EINVAL,
                 "tess_comm_alltoallv: recv_bytes[0] is -3, must be 0 or more");
    sizes[0] = 4;
    EXPECT_FAILS(tess_comm_alltoallv(comm, 0, NULL, sizes, x, sizes), TESS_EINVAL,
                 "tess_comm_alltoallv: send is NULL, with 4 bytes");
    sizes[0] = 0;
    other[me->rank] = 5;
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "tess_comm_start_alltoallv: rank %d sends itself 0 bytes and expects 5", me->rank);
    EXPECT_FAILS(tess_comm_start_alltoallv(comm, 0, x, sizes, x, other, &request), TESS_EINVAL,
                 sentence);
    EXPECT_FAILS(tess_comm_start_alltoallv(comm, 0, x, sizes, x, sizes, NULL), TESS_EINVAL,
                 "tess_comm_start_alltoallv: request is NULL");
    snprintf(sentence, sizeof sentence, "tess_comm_start_sendrecv: to is %d, must be -1..%d",
             me->size, me->size - 1);
    EXPECT_FAILS(tess_comm_start_sendrecv(comm, 0, x, 1, me->size, x, 1, -1, &request), TESS_EINVAL,
                 sentence);
    EXPECT_FAILS(tess_comm_start_sendrecv(comm, 0, x, 1, -1, x, -1, 0, &request), TESS_EINVAL,
                 "tess_comm_start_sendrecv: recv_bytes is -1, must be 0 or more");
    snprintf(sentence, sizeof sentence,
             "tess_comm_start_sendrecv: rank %d sends itself 1 bytes and expects 0 from itself",
             me->rank);
    EXPECT_FAILS(tess_comm_start_sendrecv(comm, 0, x, 1, me->rank, x, 1, -1, &request), TESS_EINVAL,
                 sentence);
    EXPECT_FAILS(tess_comm_broadcast(comm, 0, -1, x, 1), TESS_EINVAL,
                 me->size == 1
                     ? "tess_comm_broadcast: root is -1, must be 0..0"
                     : (snprintf(sentence, sizeof sentence,
                                 "tess_comm_broadcast: root is -1, must be 0..%d", me->size - 1),
                        sentence));
    EXPECT_FAILS(tess_comm_allreduce(comm, 0, NULL, 3, TESS_DTYPE_F32, TESS_REDUCE_SUM),
                 TESS_EINVAL, "tess_comm_allreduce: x is NULL, with 3 elements");
    EXPECT_FAILS(tess_comm_allreduce(comm, 0, NULL, -3, TESS_DTYPE_I64, TESS_REDUCE_MAX),
                 TESS_EINVAL, "tess_comm_allreduce: n is -3, must be 0..2^59");
    EXPECT_FAILS(tess_comm_allreduce(comm, 0, x, 1, TESS_DTYPE_U8, TESS_REDUCE_SUM), TESS_EINVAL,
                 "tess_comm_allreduce: dtype is 6, must be F32, F64 or I64");
    EXPECT_FAILS(tess_comm_allreduce(comm, 0, x, 1, TESS_DTYPE_F32, TESS_REDUCE_COUNT), TESS_EINVAL,
                 "tess_comm_allreduce: op is 2, must be a tess_reduce_op");
    EXPECT_FAILS(tess_comm_check_equal(comm, NULL, x, 1), TESS_EINVAL,
                 "tess_comm_check_equal: what is NULL");
    EXPECT_FAILS(tess_comm_split(comm, 0, 0, NULL), TESS_EINVAL, "tess_comm_split: sub is NULL");
    EXPECT_FAILS(tess_comm_grid(comm, 0, &part, &part), TESS_EINVAL,
                 (snprintf(sentence, sizeof sentence,
                           "tess_comm_grid: columns is 0, must divide the %d ranks", me->size),
                  sentence));
    EXPECT(request == NULL && part == NULL);
    EXPECT(tess_comm_clock(NULL) == 0);
    EXPECT(tess_comm_fail(comm, TESS_OK) == TESS_OK);
    return tess_comm_agree(comm, TESS_OK);
}

typedef struct {
    const char *name;
    tess_status (*fn)(const place *me, tess_comm *comm);
} rank_work;

static const rank_work rank_works[] = {
    {"alltoall", rank_alltoall},
    {"overlap", rank_overlap},
    {"too many", rank_too_many},
    {"ring", rank_ring},
    {"sums", rank_sums},
    {"largest", rank_largest},
    {"gather", rank_gather},
    {"broadcast", rank_broadcast},
    {"agree", rank_agree},
    {"same", rank_same},
    {"split", rank_split},
    {"grid", rank_grid},
    {"other size", rank_other_size},
    {"wrong arguments", rank_wrong_arguments},
    {"fail", rank_fail},
};

enum { WORKS = sizeof rank_works / sizeof *rank_works };

/* A rank's part in the work of that number, an int. */
static inline tess_status run_work(void *number, tess_ctx *ctx, tess_comm *comm)
{
    tess_comm_info info;
    EXPECT_OK(tess_comm_query(comm, &info));
    return rank_works[*(const int *)number].fn(&(place){ctx, info.rank, info.size}, comm);
}

#endif
