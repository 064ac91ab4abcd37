/* SPDX-License-Identifier: Apache-2.0 */
/* comm_internal.h - communicators: what an algorithm over many ranks may ask for.
 *
 * What lives here: messages between ranks, and everything that is made of them. What comes in: a
 * group of ranks. What goes out: the same answer on each of them.
 *
 * A kind of communicator moves single messages, and that is all it does: comm_request.c checks
 * arguments, counts, and turns an all-to-all into messages; the collectives are made of
 * all-to-alls, so that their sums have one order on every kind.
 */
#ifndef TESS_COMM_INTERNAL_H
#define TESS_COMM_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/advanced/collectives.h"
#include "tessera/comm.h"

enum {
    TESS_SENTENCE_MAX = 1024,   /* bytes of an error sentence as it travels, NUL included */
    TESS_COMM_PIECE = 64 << 10, /* bytes of the scratch for each rank: what a sum sends at a time */
};

/* One message of a request. The k-th message from a rank to another one is the k-th that this one
 * receives from it: number tells them apart when several are under way. */
typedef struct {
    int peer;
    int done;
    int64_t number;
    char *data; /* of a message to send never written */
    int64_t bytes;
} tess__message;

struct tess_request {
    int open;
    tess_traffic_kind traffic;
    int64_t number;  /* in a trace; 0: of a blocking call */
    const char *own; /* what the rank sends itself or, in an exchange, another one */
    int64_t own_bytes;
    int n_sends, n_receives;
    tess__message *sends, *receives; /* at most size - 1 each */
};

/* A public call, as a trace writes it down. */
typedef struct {
    const char *op;
    tess_traffic_kind traffic;
    int64_t sent, received, most; /* bytes to others, from others, to one of them */
    int64_t request;              /* that of a started operation and of its wait; 0: none */
} tess__call;

typedef struct {
    const char *kind;
    /* Begin to move one message of the communicator. */
    tess_status (*send)(tess_comm *comm, tess__message *message);
    tess_status (*receive)(tess_comm *comm, tess__message *message);
    /* Returns when all messages of the request are done, or when a rank has failed. */
    tess_status (*finish)(tess_comm *comm, tess_request *request);
    /* Moves started messages on. Fails if a rank of the world has failed. */
    tess_status (*progress)(tess_comm *comm);
    /* Tells the world of the sentence. After it and after a failure that came from another rank the
     * buffers of all open requests are the caller's. */
    void (*fail)(tess_comm *comm, tess_status status, const char *sentence);
    int64_t (*clock)(const tess_comm *comm);
    int64_t (*new_tag)(tess_comm *comm); /* a number that it gives only once in the world */
    /* Collective. A communicator of n ranks of comm, of which order[i] is rank i and this one is
     * rank `rank`; tag is a new_tag number of one of them. n 0: *sub is NULL. */
    tess_status (*subgroup)(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                            tess_comm **sub);
    /* Writes a call down before it is made. NULL for all but a trace, which plays alone: what a
     * rank cannot know of the others it takes to be like its own. */
    tess_status (*note)(tess_comm *comm, const tess__call *call);
    void (*destroy)(tess_comm *comm); /* frees what hangs on comm, not comm itself */
} tess__comm_ops;

/* Embedded first in each kind's own struct. */
struct tess_comm {
    tess_ctx *ctx;
    const tess__comm_ops *ops;
    int rank, size, nodes, node;
    tess_comm_counts counts;
    tess__arena arena;
    int64_t *sent, *received; /* (size) numbers of the next messages to and from each rank */
    int64_t *sizes[2];        /* (size) for collectives */
    tess__message *messages;  /* (TESS_COMM_OPEN, 2, size - 1) */
    char *scratch;            /* size * TESS_COMM_PIECE bytes */
    tess_request requests[TESS_COMM_OPEN];
};

/* ---- comm.c ---------------------------------------------------------------------------------- */

/* A communicator at the front of a kind's own struct of `bytes` bytes, the rest of which is 0.
 * NULL: no memory. free does not ask the kind what hangs on it; NULL accepted. */
tess_comm *tess__comm_make(tess_ctx *ctx, const tess__comm_ops *ops, size_t bytes, int rank,
                           int size);
void tess__comm_free(tess_comm *comm);

/* Ends a request that is open. */
tess_status tess__comm_finish(tess_comm *comm, tess_request *request);

/* ---- comm_request.c -------------------------------------------------------------------------- */

/* From every rank to every rank, as tess_comm_alltoallv lays it out, or the same bytes of send to
 * everyone. Arguments are checked before. */
typedef struct {
    const char *send;
    const int64_t *send_bytes; /* NULL: all of send to everyone, recv_bytes[rank] bytes */
    char *recv;
    const int64_t *recv_bytes;
} tess__alltoallv_args;
tess_status tess__comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                       const tess__alltoallv_args *args, tess_request **request);
tess_status tess__comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                 const tess__alltoallv_args *args);

/* Writes an all-to-all or a gather down, if the communicator is a trace. */
tess_status tess__comm_note(tess_comm *comm, const char *op, tess_traffic_kind traffic,
                            const tess__alltoallv_args *args, int64_t request);

/* Counts bytes and messages that a trace did not send one by one. */
void tess__comm_count(tess_comm *comm, tess_traffic_kind traffic, int64_t bytes, int64_t messages);

/* All-gather of `bytes` bytes of every rank. */
tess_status tess__comm_allgather(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv);

/* EINVAL, naming the argument, if traffic is none. */
tess_status tess__comm_check(const char *fn, const tess_comm *comm, tess_traffic_kind traffic);

/* EINVAL if sizes are negative or too large, or data is missing; name is "send" or "recv". */
tess_status tess__comm_check_bytes(const char *fn, const tess_comm *comm, const char *name,
                                   const void *data, const int64_t *bytes);

#endif
