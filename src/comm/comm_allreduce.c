/* SPDX-License-Identifier: Apache-2.0 */
/* comm_allreduce.c - all-reduce: sums and maxima over ranks, every element combined in rank order.
 *
 * p ranks, n bytes, latency a and time b per byte of a link. A few bytes are all-gathered, and each
 * rank combines them all: a + (p - 1) n b. Longer arrays are cut into p segments, a reduce-scatter
 * followed by an all-gather: rank r receives segment r of every rank and combines them, then all
 * ranks gather the results:
 *
 *   x of 3 ranks    to rank 0   to rank 1   to rank 2       combined       gathered
 *   a0 a1 a2        a0          a1          a2              s0 = a0+b0+c0  s0 s1 s2
 *   b0 b1 b2        b0          b1          b2              s1 = a1+b1+c1  s0 s1 s2
 *   c0 c1 c2        c0          c1          c2              s2 = a2+b2+c2  s0 s1 s2
 *
 * which is 2 a + 2 (p - 1) / p n b, in pieces as large as the communicator's scratch. In both
 * algorithms an element is ((a + b) + c) + ..., so its bits do not depend on the algorithm, the
 * pieces or the kind of communicator.
 */
#include "comm_internal.h"

#include <string.h>

/* Largest array that is all-gathered. Both algorithms take the same time at
 * n = a / b * p / ((p - 1) (p - 2)): with 2 us and 10 GB/s, a / b = 20 kB, that is 30 kB for 3
 * ranks, 4 kB for 8 and 1.5 kB for 16. A constant, so that all ranks choose the same algorithm. */
enum { SMALL_BYTES = 4096 };

static void add_f32(void *into, const void *with, int64_t n)
{
    float *a = into;
    const float *b = with;
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void add_f64(void *into, const void *with, int64_t n)
{
    double *a = into;
    const double *b = with;
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void add_i64(void *into, const void *with, int64_t n)
{
    uint64_t *a = into;
    const uint64_t *b = with;
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void max_f32(void *into, const void *with, int64_t n)
{
    float *a = into;
    const float *b = with;
    for (int64_t i = 0; i < n; i++)
        if (!(a[i] >= b[i]) && a[i] == a[i])
            a[i] = b[i];
}

static void max_f64(void *into, const void *with, int64_t n)
{
    double *a = into;
    const double *b = with;
    for (int64_t i = 0; i < n; i++)
        if (!(a[i] >= b[i]) && a[i] == a[i])
            a[i] = b[i];
}

static void max_i64(void *into, const void *with, int64_t n)
{
    int64_t *a = into;
    const int64_t *b = with;
    for (int64_t i = 0; i < n; i++)
        if (a[i] < b[i])
            a[i] = b[i];
}

static const tess__reduction reductions[TESS_DTYPE_COUNT][TESS_REDUCE_COUNT] = {
    [TESS_DTYPE_F32] = {{"sum", sizeof(float), add_f32}, {"max", sizeof(float), max_f32}},
    [TESS_DTYPE_F64] = {{"sum", sizeof(double), add_f64}, {"max", sizeof(double), max_f64}},
    [TESS_DTYPE_I64] = {{"sum", sizeof(int64_t), add_i64}, {"max", sizeof(int64_t), max_i64}},
};

/* out = the scratch's p rows of n elements, combined in rank order. */
static void combine(const tess_comm *comm, const tess__reduction *op, char *out, int64_t n)
{
    const size_t row = (size_t)n * op->size;
    memcpy(out, comm->scratch, row);
    for (int p = 1; p < comm->size; p++)
        op->combine(out, comm->scratch + (size_t)p * row, n);
}

tess_status tess__reduce_by_allgather(tess_comm *comm, tess_traffic_kind traffic,
                                      const tess__reduction *op, char *x, int64_t n)
{
    TESS_TRY(tess__comm_allgather(comm, traffic, x, n * (int64_t)op->size, comm->scratch));
    combine(comm, op, x, n);
    return TESS_OK;
}

static tess_status reduce_by_segments(tess_comm *comm, tess_traffic_kind traffic,
                                      const tess__reduction *op, char *x, int64_t n)
{
    const int64_t each = n / comm->size, rest = n % comm->size, size = (int64_t)op->size;
    const int64_t own = each + (comm->rank < rest);
    int64_t *out = comm->sizes[0], *in = comm->sizes[1];
    for (int p = 0; p < comm->size; p++) {
        out[p] = (each + (p < rest)) * size;
        in[p] = own * size;
    }
    char *segment = x + (each * comm->rank + TESS_MIN(comm->rank, rest)) * size;
    TESS_TRY(
        tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){x, out, comm->scratch, in}));
    combine(comm, op, segment, own);
    return tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){segment, NULL, x, out});
}

int64_t tess__allreduce_bytes(const tess_comm *comm, const tess__reduction *op, int64_t n,
                              int64_t *messages)
{
    const int64_t size = comm->size, peers = size - 1;
    const int64_t most = size * (TESS_COMM_PIECE / (int64_t)op->size);
    int64_t elements = 0;
    *messages = n > 0 ? peers : 0;
    if (n * (int64_t)op->size <= SMALL_BYTES)
        return peers * n * (int64_t)op->size;
    *messages = 0;
    for (int64_t now; n > 0; n -= now) {
        now = TESS_MIN(n, most);
        const int64_t own = now / size + (comm->rank < now % size);
        elements += now - own + peers * own;
        *messages += TESS_MIN(now, size) - (own > 0) + (own > 0 ? peers : 0);
    }
    return elements * (int64_t)op->size;
}

static tess_status check(const tess_comm *comm, tess_traffic_kind traffic, const void *x, int64_t n,
                         tess_dtype dtype, tess_reduce_op op)
{
    const char *fn = "tess_comm_allreduce";
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    if (n < 0 || n > INT64_MAX / 16)
        return tess__invalid(fn, "n is %lld, must be 0..2^59", (long long)n);
    if (n > 0 && !x)
        return tess__invalid(fn, "x is NULL, with %lld elements", (long long)n);
    TESS_TRY(tess__check_enum(fn, "op", (int)op, TESS_REDUCE_COUNT, "tess_reduce_op"));
    if ((unsigned)dtype >= TESS_DTYPE_COUNT || !reductions[dtype][op].combine)
        return tess__invalid(fn, "dtype is %d, must be F32, F64 or I64", (int)dtype);
    return TESS_OK;
}

tess_status tess_comm_allreduce(tess_comm *comm, tess_traffic_kind traffic, void *data, int64_t n,
                                tess_dtype dtype, tess_reduce_op reduce)
{
    TESS_TRY(check(comm, traffic, data, n, dtype, reduce));
    const tess__reduction *op = &reductions[dtype][reduce];
    if (comm->ops->allreduce)
        return comm->ops->allreduce(comm, traffic, op, data, n);
    if (comm->size == 1)
        return TESS_OK;
    char *x = data;
    if (n * (int64_t)op->size <= SMALL_BYTES)
        return n > 0 ? tess__reduce_by_allgather(comm, traffic, op, x, n)
                     : comm->ops->progress(comm);
    const int64_t most = comm->size * (TESS_COMM_PIECE / (int64_t)op->size);
    while (n > 0) {
        const int64_t now = TESS_MIN(n, most);
        TESS_TRY(reduce_by_segments(comm, traffic, op, x, now));
        x += now * (int64_t)op->size;
        n -= now;
    }
    return TESS_OK;
}
