/* SPDX-License-Identifier: Apache-2.0 */
/* comm_collect.c - all-gather, broadcast, agreement: collectives made of messages.
 *
 * p ranks, n bytes, latency a and time b per byte of a link:
 *
 *   gather      every rank to every other one        a + (p - 1) n b
 *   broadcast   up to a piece: the root to all       a + (p - 1) n b
 *               else: the root sends each rank a     2 a + 2 (p - 1) / p n b
 *               p-th, then a gather of these
 *   agree       gather of 4 bytes; on failure a      a
 *               broadcast of the sentence
 *   same        rank 0's bytes to all, in pieces, and a gather of who found them different
 */
#include "dist.h"

#include <string.h>

/* ---- gather and broadcast ----------------------------------------------------------------------
 */

tess_status tess_comm_gather(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                             int64_t bytes, void *recv, const int64_t *recv_bytes)
{
    const char *fn = "tess_comm_gather";
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "recv", recv, recv_bytes));
    if (bytes != recv_bytes[comm->rank])
        return tess__fail(TESS_EINVAL, "%s: bytes is %lld, must be recv_bytes[%d], %lld", fn,
                          (long long)bytes, comm->rank, (long long)recv_bytes[comm->rank]);
    if (bytes > 0 && !send)
        return tess__fail(TESS_EINVAL, "%s: send is NULL, with %lld bytes", fn, (long long)bytes);
    return tess__comm_move(comm, traffic, &(tess__moves){send, NULL, recv, recv_bytes});
}

tess_status tess__comm_gather_even(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                   int64_t bytes, void *recv)
{
    for (int p = 0; p < comm->size; p++)
        comm->sizes[0][p] = bytes;
    return tess__comm_move(comm, traffic, &(tess__moves){send, NULL, recv, comm->sizes[0]});
}

static tess_status broadcast_small(tess_comm *comm, tess_traffic_kind traffic, int root, void *data,
                                   int64_t bytes)
{
    int64_t *in = comm->sizes[0];
    memset(in, 0, (size_t)comm->size * sizeof *in);
    in[root] = bytes;
    return tess__comm_move(comm, traffic, &(tess__moves){data, NULL, data, in});
}

/* n cut into size even parts. */
static int64_t part_begin(int64_t n, int size, int p)
{
    const int64_t rest = n % size;
    return n / size * p + (p < rest ? p : rest);
}

static tess_status broadcast_large(tess_comm *comm, tess_traffic_kind traffic, int root, char *data,
                                   int64_t bytes)
{
    int64_t *out = comm->sizes[0], *in = comm->sizes[1];
    for (int p = 0; p < comm->size; p++) {
        out[p] = part_begin(bytes, comm->size, p + 1) - part_begin(bytes, comm->size, p);
        in[p] = 0;
    }
    in[root] = out[comm->rank];
    char *own = data + part_begin(bytes, comm->size, comm->rank);
    if (comm->rank != root)
        memset(out, 0, (size_t)comm->size * sizeof *out);
    TESS_TRY(tess__comm_move(comm, traffic, &(tess__moves){data, out, own, in}));
    for (int p = 0; p < comm->size; p++)
        in[p] = part_begin(bytes, comm->size, p + 1) - part_begin(bytes, comm->size, p);
    return tess__comm_move(comm, traffic, &(tess__moves){own, NULL, data, in});
}

tess_status tess_comm_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root, void *data,
                                int64_t bytes)
{
    const char *fn = "tess_comm_broadcast";
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    if (root < 0 || root >= comm->size)
        return tess__fail(TESS_EINVAL, "%s: root is %d, must be 0..%d", fn, root, comm->size - 1);
    if (bytes < 0)
        return tess__fail(TESS_EINVAL, "%s: bytes is %lld, must be at least 0", fn,
                          (long long)bytes);
    if (bytes > 0 && !data)
        return tess__fail(TESS_EINVAL, "%s: data is NULL, with %lld bytes", fn, (long long)bytes);
    if (bytes == 0)
        return comm->ops->progress(comm);
    return bytes <= TESS_COMM_PIECE || comm->size <= 2
               ? broadcast_small(comm, traffic, root, data, bytes)
               : broadcast_large(comm, traffic, root, data, bytes);
}

/* ---- agreement ---------------------------------------------------------------------------------
 */

tess_status tess_comm_agree(tess_comm *comm, tess_status mine)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "tess_comm_agree: comm is NULL");
    char sentence[TESS_SENTENCE_MAX] = "";
    strncpy(sentence, tess_last_error(), sizeof sentence - 1);
    if (comm->size == 1)
        return mine == TESS_OK ? TESS_OK : tess__fail(mine, "%s", sentence);

    const int32_t own = mine;
    const int32_t *statuses = (const int32_t *)(void *)comm->scratch;
    TESS_TRY(tess__comm_gather_even(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, comm->scratch));
    for (int p = 0; p < comm->size; p++) {
        const tess_status status = statuses[p];
        if (status == TESS_OK)
            continue;
        TESS_TRY(broadcast_small(comm, TESS_TRAFFIC_CONTROL, p, sentence, sizeof sentence));
        return tess__fail(status, "%s", sentence);
    }
    return TESS_OK;
}

/* Sets *differs if the bytes are not rank 0's; all have as many. */
static tess_status compare(tess_comm *comm, const char *data, int64_t bytes, int32_t *differs)
{
    for (int64_t at = 0; at < bytes; at += TESS_COMM_PIECE) {
        const int64_t n = bytes - at < TESS_COMM_PIECE ? bytes - at : TESS_COMM_PIECE;
        if (comm->rank == 0)
            memcpy(comm->scratch, data + at, (size_t)n);
        TESS_TRY(broadcast_small(comm, TESS_TRAFFIC_CONTROL, 0, comm->scratch, n));
        *differs |= memcmp(comm->scratch, data + at, (size_t)n) != 0;
    }
    return TESS_OK;
}

tess_status tess_comm_same(tess_comm *comm, const char *what, const void *data, size_t bytes)
{
    const char *fn = "tess_comm_same";
    if (!comm || !what || (!data && bytes > 0))
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", fn,
                          !comm   ? "comm"
                          : !what ? "what"
                                  : "data");
    if (bytes > INT64_MAX / 2)
        return tess__fail(TESS_EINVAL, "%s: bytes is %zu, must be below 2^62", fn, bytes);
    if (comm->size == 1)
        return TESS_OK;

    /* Who has another size is known at once; the bytes are looked at only where all are alike. */
    const int64_t own = (int64_t)bytes;
    int64_t *sizes = (int64_t *)(void *)comm->scratch;
    int32_t differs = 0, *found = (int32_t *)(void *)comm->scratch;
    int first = comm->size;
    TESS_TRY(tess__comm_gather_even(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, sizes));
    for (int p = comm->size - 1; p > 0; p--)
        if (sizes[p] != sizes[0])
            first = p;
    if (first == comm->size) {
        TESS_TRY(compare(comm, data, own, &differs));
        TESS_TRY(tess__comm_gather_even(comm, TESS_TRAFFIC_CONTROL, &differs, sizeof differs,
                                        comm->scratch));
        for (int p = comm->size - 1; p > 0; p--)
            if (found[p])
                first = p;
    }
    if (first == comm->size)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "rank %d has another %s than rank 0", first, what);
}
