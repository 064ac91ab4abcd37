/* SPDX-License-Identifier: Apache-2.0 */
/* comm_collectives.c - all-gather, broadcast, agreement: collectives made of messages.
 *
 * p ranks, n bytes, latency a and time b per byte of a link:
 *
 *   all-gather    every rank to every other one        a + (p - 1) n b
 *   broadcast     up to a piece: the root to all       a + (p - 1) n b
 *                 else: the root scatters p pieces,    2 a + 2 (p - 1) / p n b
 *                 then an all-gather
 *   agree         all-gather of 4 bytes; on failure    a
 *                 a broadcast of the sentence
 *   check_equal   broadcast of rank 0's bytes in pieces, and an all-gather of the comparisons
 */
#include "comm_internal.h"

#include <string.h>

/* ---- all-gather and broadcast ---------------------------------------------------------------- */

tess_status tess_comm_allgatherv(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv, const int64_t *recv_bytes)
{
    TESS_TRY(tess__comm_check(__func__, comm, traffic));
    TESS_TRY(tess__comm_check_bytes(__func__, comm, "recv", recv, recv_bytes));
    if (bytes != recv_bytes[comm->rank])
        return tess__invalid(__func__, "bytes is %lld, must be recv_bytes[%d], %lld",
                             (long long)bytes, comm->rank, (long long)recv_bytes[comm->rank]);
    if (bytes > 0 && !send)
        return tess__invalid(__func__, "send is NULL, with %lld bytes", (long long)bytes);
    const tess__alltoallv_args args = {send, NULL, recv, recv_bytes};
    return comm->ops->alltoallv ? comm->ops->alltoallv(comm, traffic, &args, NULL)
                                : tess__comm_alltoallv(comm, traffic, &args);
}

static tess_status broadcast_direct(tess_comm *comm, tess_traffic_kind traffic, int root,
                                    void *data, int64_t bytes)
{
    int64_t *in = comm->sizes[0];
    memset(in, 0, (size_t)comm->size * sizeof *in);
    in[root] = bytes;
    return tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){data, NULL, data, in});
}

int64_t tess__piece_begin(int64_t n, int size, int p)
{
    const int64_t rest = n % size;
    return n / size * p + TESS_MIN(p, rest);
}

static tess_status broadcast_in_pieces(tess_comm *comm, tess_traffic_kind traffic, int root,
                                       char *data, int64_t bytes)
{
    int64_t *out = comm->sizes[0], *in = comm->sizes[1];
    for (int p = 0; p < comm->size; p++) {
        out[p] =
            tess__piece_begin(bytes, comm->size, p + 1) - tess__piece_begin(bytes, comm->size, p);
        in[p] = 0;
    }
    in[root] = out[comm->rank];
    char *own = data + tess__piece_begin(bytes, comm->size, comm->rank);
    if (comm->rank != root)
        memset(out, 0, (size_t)comm->size * sizeof *out);
    TESS_TRY(tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){data, out, own, in}));
    for (int p = 0; p < comm->size; p++)
        in[p] =
            tess__piece_begin(bytes, comm->size, p + 1) - tess__piece_begin(bytes, comm->size, p);
    return tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){own, NULL, data, in});
}

int tess__broadcast_is_direct(const tess_comm *comm, int64_t bytes)
{
    return bytes <= TESS_COMM_PIECE || comm->size <= 2;
}

tess_status tess_comm_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root, void *data,
                                int64_t bytes)
{
    TESS_TRY(tess__comm_check(__func__, comm, traffic));
    TESS_TRY(tess__check_range(__func__, "root", root, 0, comm->size - 1));
    TESS_TRY(tess__check_least(__func__, "bytes", bytes, 0));
    if (bytes > 0 && !data)
        return tess__invalid(__func__, "data is NULL, with %lld bytes", (long long)bytes);
    if (bytes == 0)
        return comm->ops->progress(comm);
    if (comm->ops->broadcast)
        return comm->ops->broadcast(comm, traffic, root, bytes);
    return tess__broadcast_is_direct(comm, bytes)
               ? broadcast_direct(comm, traffic, root, data, bytes)
               : broadcast_in_pieces(comm, traffic, root, data, bytes);
}

/* ---- agreement ------------------------------------------------------------------------------- */

tess_status tess_comm_agree(tess_comm *comm, tess_status mine)
{
    TESS_REQUIRE(comm);
    const int32_t own = mine;
    char sentence[TESS_SENTENCE_MAX] = "";
    strncpy(sentence, tess_last_error(), sizeof sentence - 1);
    if (comm->ops->agree)
        return comm->ops->agree(comm, mine);
    if (comm->size == 1)
        return mine == TESS_OK ? TESS_OK : tess__fail(mine, "%s", sentence);

    const int32_t *statuses = (const int32_t *)(void *)comm->scratch;
    TESS_TRY(tess__comm_allgather(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, comm->scratch));
    for (int p = 0; p < comm->size; p++) {
        const tess_status status = statuses[p];
        if (status == TESS_OK)
            continue;
        TESS_TRY(broadcast_direct(comm, TESS_TRAFFIC_CONTROL, p, sentence, sizeof sentence));
        return tess__fail(status, "%s", sentence);
    }
    return TESS_OK;
}

/* Sets *differs if the bytes differ from rank 0's; all ranks have the same number of bytes. */
static tess_status compare(tess_comm *comm, const char *data, int64_t bytes, int32_t *differs)
{
    for (int64_t at = 0; at < bytes; at += TESS_COMM_PIECE) {
        const int64_t n = TESS_MIN(bytes - at, TESS_COMM_PIECE);
        if (comm->rank == 0)
            memcpy(comm->scratch, data + at, (size_t)n);
        TESS_TRY(broadcast_direct(comm, TESS_TRAFFIC_CONTROL, 0, comm->scratch, n));
        *differs |= memcmp(comm->scratch, data + at, (size_t)n) != 0;
    }
    return TESS_OK;
}

tess_status tess_comm_check_equal(tess_comm *comm, const char *what, const void *data, size_t bytes)
{
    if (!comm || !what || (!data && bytes > 0))
        return tess__invalid(__func__, "%s is NULL", !comm ? "comm" : !what ? "what" : "data");
    if (bytes > INT64_MAX / 2)
        return tess__invalid(__func__, "bytes is %zu, must be below 2^62", bytes);
    if (comm->ops->check_equal)
        return comm->ops->check_equal(comm, (int64_t)bytes);
    if (comm->size == 1)
        return TESS_OK;

    /* Sizes first; the bytes are compared only where all sizes are equal. */
    const int64_t own = (int64_t)bytes;
    int64_t *sizes = (int64_t *)(void *)comm->scratch;
    int32_t differs = 0, *found = (int32_t *)(void *)comm->scratch;
    int first = comm->size;
    TESS_TRY(tess__comm_allgather(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, sizes));
    for (int p = comm->size - 1; p > 0; p--)
        if (sizes[p] != sizes[0])
            first = p;
    if (first == comm->size) {
        TESS_TRY(compare(comm, data, own, &differs));
        TESS_TRY(tess__comm_allgather(comm, TESS_TRAFFIC_CONTROL, &differs, sizeof differs,
                                      comm->scratch));
        for (int p = comm->size - 1; p > 0; p--)
            if (found[p])
                first = p;
    }
    if (first == comm->size)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "rank %d has another %s than rank 0", first, what);
}
