/* SPDX-License-Identifier: Apache-2.0 */
/* comm_collectives.c - all-gather, broadcast, agreement: collectives made of messages.
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
#include "comm_internal.h"

#include <string.h>

/* ---- gather and broadcast -------------------------------------------------------------------- */

tess_status tess_comm_allgatherv(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv, const int64_t *recv_bytes)
{
    const char *fn = "tess_comm_allgatherv";
    TESS_TRY(tess__comm_check(fn, comm, traffic));
    TESS_TRY(tess__comm_check_bytes(fn, comm, "recv", recv, recv_bytes));
    if (bytes != recv_bytes[comm->rank])
        return tess__fail(TESS_EINVAL, "%s: bytes is %lld, must be recv_bytes[%d], %lld", fn,
                          (long long)bytes, comm->rank, (long long)recv_bytes[comm->rank]);
    if (bytes > 0 && !send)
        return tess__fail(TESS_EINVAL, "%s: send is NULL, with %lld bytes", fn, (long long)bytes);
    const tess__alltoallv_args args = {send, NULL, recv, recv_bytes};
    TESS_TRY(tess__comm_note(comm, "gather", traffic, &args, 0));
    return tess__comm_alltoallv(comm, traffic, &args);
}

/* A trace writes down a collective that changes nothing on a rank whose others are like it. */
static tess_status play(tess_comm *comm, const char *op, tess_traffic_kind traffic, int64_t sent,
                        int64_t messages, int64_t received)
{
    const tess__call call = {.op = op,
                             .traffic = traffic,
                             .sent = sent,
                             .received = received,
                             .most = messages > 0 ? sent / messages : 0};
    tess__comm_count(comm, traffic, sent, messages);
    return comm->ops->note(comm, &call);
}

tess_status tess__comm_allgather(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv)
{
    for (int p = 0; p < comm->size; p++)
        comm->sizes[0][p] = bytes;
    return tess__comm_alltoallv(comm, traffic,
                                &(tess__alltoallv_args){send, NULL, recv, comm->sizes[0]});
}

static tess_status broadcast_small(tess_comm *comm, tess_traffic_kind traffic, int root, void *data,
                                   int64_t bytes)
{
    int64_t *in = comm->sizes[0];
    memset(in, 0, (size_t)comm->size * sizeof *in);
    in[root] = bytes;
    return tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){data, NULL, data, in});
}

/* n cut into size even parts. */
static int64_t part_begin(int64_t n, int size, int p)
{
    const int64_t rest = n % size;
    return n / size * p + TESS_MIN(p, rest);
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
    TESS_TRY(tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){data, out, own, in}));
    for (int p = 0; p < comm->size; p++)
        in[p] = part_begin(bytes, comm->size, p + 1) - part_begin(bytes, comm->size, p);
    return tess__comm_alltoallv(comm, traffic, &(tess__alltoallv_args){own, NULL, data, in});
}

static tess_status play_broadcast(tess_comm *comm, tess_traffic_kind traffic, int root,
                                  int64_t bytes, int small)
{
    const int64_t peers = comm->size - 1, is_root = comm->rank == root;
    const int64_t own =
        part_begin(bytes, comm->size, comm->rank + 1) - part_begin(bytes, comm->size, comm->rank);
    if (small)
        return play(comm, "broadcast", traffic, is_root * peers * bytes, is_root * peers,
                    is_root ? 0 : bytes);
    return play(comm, "broadcast", traffic, is_root * (bytes - own) + peers * own,
                (1 + is_root) * peers, is_root ? bytes - own : bytes);
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
    const int small = bytes <= TESS_COMM_PIECE || comm->size <= 2;
    if (comm->ops->note)
        return play_broadcast(comm, traffic, root, bytes, small);
    return small ? broadcast_small(comm, traffic, root, data, bytes)
                 : broadcast_large(comm, traffic, root, data, bytes);
}

/* ---- agreement ------------------------------------------------------------------------------- */

tess_status tess_comm_agree(tess_comm *comm, tess_status mine)
{
    TESS_REQUIRE(comm);
    const int32_t own = mine;
    const int64_t peers = comm->size - 1;
    char sentence[TESS_SENTENCE_MAX] = "";
    strncpy(sentence, tess_last_error(), sizeof sentence - 1);
    if (comm->ops->note)
        TESS_TRY(play(comm, "agree", TESS_TRAFFIC_CONTROL, peers * (int64_t)sizeof own, peers,
                      peers * (int64_t)sizeof own));
    if (comm->size == 1 || comm->ops->note)
        return mine == TESS_OK ? TESS_OK : tess__fail(mine, "%s", sentence);

    const int32_t *statuses = (const int32_t *)(void *)comm->scratch;
    TESS_TRY(tess__comm_allgather(comm, TESS_TRAFFIC_CONTROL, &own, sizeof own, comm->scratch));
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
        const int64_t n = TESS_MIN(bytes - at, TESS_COMM_PIECE);
        if (comm->rank == 0)
            memcpy(comm->scratch, data + at, (size_t)n);
        TESS_TRY(broadcast_small(comm, TESS_TRAFFIC_CONTROL, 0, comm->scratch, n));
        *differs |= memcmp(comm->scratch, data + at, (size_t)n) != 0;
    }
    return TESS_OK;
}

static tess_status play_same(tess_comm *comm, int64_t bytes)
{
    const int64_t peers = comm->size - 1, first = comm->rank == 0;
    const int64_t small = peers * (int64_t)(sizeof(int64_t) + sizeof(int32_t));
    const int64_t pieces = (bytes + TESS_COMM_PIECE - 1) / TESS_COMM_PIECE;
    return play(comm, "same", TESS_TRAFFIC_CONTROL, small + first * peers * bytes,
                peers * (2 + first * pieces), small + (first ? 0 : bytes));
}

tess_status tess_comm_check_equal(tess_comm *comm, const char *what, const void *data, size_t bytes)
{
    const char *fn = "tess_comm_check_equal";
    if (!comm || !what || (!data && bytes > 0))
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", fn,
                          !comm   ? "comm"
                          : !what ? "what"
                                  : "data");
    if (bytes > INT64_MAX / 2)
        return tess__fail(TESS_EINVAL, "%s: bytes is %zu, must be below 2^62", fn, bytes);
    if (comm->ops->note)
        return play_same(comm, (int64_t)bytes);
    if (comm->size == 1)
        return TESS_OK;

    /* Who has another size is known at once; the bytes are looked at only where all are alike. */
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
