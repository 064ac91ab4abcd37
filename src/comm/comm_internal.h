/* SPDX-License-Identifier: Apache-2.0 */
/* comm_internal.h - communicators: messages between ranks, and the collectives made of them.
 *
 * A kind of communicator (self, thread, MPI) implements point-to-point messages and nothing else:
 * comm_request.c checks arguments, counts bytes, and splits an all-to-all into messages; the other
 * collectives are made of all-to-alls, so that a sum has one order of additions on every kind. The
 * trace recorder has no other ranks to exchange messages with and implements the collectives
 * itself.
 */
#ifndef TESS_COMM_INTERNAL_H
#define TESS_COMM_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/advanced/collectives.h"
#include "tessera/comm.h"

enum {
    TESS_SENTENCE_MAX = 1024,   /* bytes of an error sentence in a message, NUL included */
    TESS_COMM_PIECE = 64 << 10, /* bytes of scratch per rank: the most a collective sends at once */
};

/* One message of a request. The k-th message from rank p to rank q is the k-th that q receives from
 * p; `number` identifies it when several are in flight. */
typedef struct {
    int peer;
    int done;
    int64_t number;
    char *data; /* a message to send is only read */
    int64_t bytes;
} tess__message;

struct tess_request {
    int open;
    tess_traffic_kind traffic;
    int64_t number;  /* of a started operation, set by the trace recorder; 0: none */
    const char *own; /* what the rank sends to itself or, in a send-receive, to its peer */
    int64_t own_bytes;
    int n_sends, n_receives;
    tess__message *sends, *receives; /* at most size - 1 each */
};

/* Buffers of an all-to-all, laid out as for tess_comm_alltoallv, or of an all-gather. */
typedef struct {
    const char *send;
    const int64_t *send_bytes; /* NULL: an all-gather of the recv_bytes[rank] bytes of send */
    char *recv;
    const int64_t *recv_bytes;
} tess__alltoallv_args;

/* One message to rank `to` and one from rank `from`; -1: none. */
typedef struct {
    const void *send;
    int64_t send_bytes;
    int to;
    void *recv;
    int64_t recv_bytes;
    int from;
} tess__sendrecv_args;

/* An element-wise operation of an all-reduce. */
typedef struct {
    const char *name;                                         /* in a trace */
    size_t size;                                              /* bytes of an element */
    void (*combine)(void *into, const void *with, int64_t n); /* into = into op with */
} tess__reduction;

typedef struct {
    const char *kind;
    int synthetic; /* 1: no other rank runs, and received bytes are placeholders */

    /* Start one message of the communicator. */
    tess_status (*send)(tess_comm *comm, tess__message *message);
    tess_status (*receive)(tess_comm *comm, tess__message *message);
    /* Returns when all messages of the request are done, or when a rank has failed. */
    tess_status (*finish)(tess_comm *comm, tess_request *request);
    /* Advances started messages. Fails if a rank of the world has failed. */
    tess_status (*progress)(tess_comm *comm);
    /* Sends the failure to all ranks of the world. After this call, and after a failure received
     * from another rank, the buffers of all open requests belong to the caller. */
    void (*fail)(tess_comm *comm, tess_status status, const char *sentence);
    /* Watches for ranks that do not answer; NULL: there are none. */
    tess_status (*watch)(tess_comm *comm, const tess_comm_watch_opts *opts);
    int64_t (*clock)(const tess_comm *comm);
    int64_t (*new_tag)(tess_comm *comm); /* a number that is unique in the world */
    /* Collective. A communicator of n ranks of comm: order[i] is its rank i, this rank is its rank
     * `rank`; tag is a new tag of one of them. n 0: *sub is NULL. */
    tess_status (*subgroup)(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                            tess_comm **sub);
    void (*destroy)(tess_comm *comm); /* frees what comm refers to, not comm itself */

    /* Optional; NULL: the generic algorithm, made of messages. Arguments are checked before. */
    tess_status (*alltoallv)(tess_comm *comm, tess_traffic_kind traffic,
                             const tess__alltoallv_args *args,
                             tess_request **request); /* request NULL: blocking */
    tess_status (*sendrecv)(tess_comm *comm, tess_traffic_kind traffic,
                            const tess__sendrecv_args *args, tess_request **request);
    tess_status (*broadcast)(tess_comm *comm, tess_traffic_kind traffic, int root, int64_t bytes);
    tess_status (*allreduce)(tess_comm *comm, tess_traffic_kind traffic, const tess__reduction *op,
                             char *x, int64_t n);
    tess_status (*agree)(tess_comm *comm, tess_status mine);
    tess_status (*check_equal)(tess_comm *comm, int64_t bytes);
    tess_status (*split)(tess_comm *comm, int color, int key, tess_comm **sub);
    tess_status (*grid)(tess_comm *comm, int columns, tess_comm **row, tess_comm **column);
    tess_status (*measure)(tess_comm *comm, tess_link *link);
} tess__comm_ops;

/* Embedded first in each kind's own struct. */
struct tess_comm {
    tess_ctx *ctx;
    const tess__comm_ops *ops;
    int rank, size, nodes, node;
    tess_comm_counts counts;
    tess__arena arena;
    int64_t *sent, *received; /* (size) numbers of the next messages to and from each rank */
    int64_t *sizes[2];        /* (size) message sizes of collectives */
    tess__message *messages;  /* (TESS_COMM_OPEN, 2, size - 1) */
    char *scratch;            /* size * TESS_COMM_PIECE bytes */
    tess_request requests[TESS_COMM_OPEN];
};

/* ---- comm.c ---------------------------------------------------------------------------------- */

extern const char *const tess__traffic_names[TESS_TRAFFIC_COUNT];

/* A communicator at the front of a kind's own struct of `bytes` bytes, the rest of which is 0.
 * NULL: no memory. tess__comm_free does not call ops->destroy; NULL accepted. */
tess_comm *tess__comm_make(tess_ctx *ctx, const tess__comm_ops *ops, size_t bytes, int rank,
                           int size);
void tess__comm_free(tess_comm *comm);

/* Waits for an open request and closes it. */
tess_status tess__comm_finish(tess_comm *comm, tess_request *request);

/* ---- comm_request.c: the generic algorithms -------------------------------------------------- */

tess_status tess__comm_start_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                       const tess__alltoallv_args *args, tess_request **request);
tess_status tess__comm_alltoallv(tess_comm *comm, tess_traffic_kind traffic,
                                 const tess__alltoallv_args *args);
tess_status tess__comm_start_sendrecv(tess_comm *comm, tess_traffic_kind traffic,
                                      const tess__sendrecv_args *args, tess_request **request);

/* All-gather of `bytes` bytes of every rank. */
tess_status tess__comm_allgather(tess_comm *comm, tess_traffic_kind traffic, const void *send,
                                 int64_t bytes, void *recv);

/* Adds to the counts of the communicator. */
void tess__comm_count(tess_comm *comm, tess_traffic_kind traffic, int64_t bytes, int64_t messages);

/* EINVAL, naming the argument, if comm is NULL or traffic is not a tess_traffic_kind. */
tess_status tess__comm_check(const char *fn, const tess_comm *comm, tess_traffic_kind traffic);

/* EINVAL if sizes are negative or too large, or data is missing; name is "send" or "recv". */
tess_status tess__comm_check_bytes(const char *fn, const tess_comm *comm, const char *name,
                                   const void *data, const int64_t *bytes);

/* ---- comm_collectives.c ---------------------------------------------------------------------- */

/* Whether a broadcast goes from the root to all ranks directly, in one step. */
int tess__broadcast_is_direct(const tess_comm *comm, int64_t bytes);

/* First byte of piece p of n bytes in `size` even pieces. */
int64_t tess__piece_begin(int64_t n, int size, int p);

/* ---- comm_allreduce.c ------------------------------------------------------------------------ */

/* All-reduce in one step: every rank receives the n elements of all ranks, which fit in a piece,
 * and combines them. */
tess_status tess__reduce_by_allgather(tess_comm *comm, tess_traffic_kind traffic,
                                      const tess__reduction *op, char *x, int64_t n);

/* Bytes that a rank sends in an all-reduce of n elements, and its messages. */
int64_t tess__allreduce_bytes(const tess_comm *comm, const tess__reduction *op, int64_t n,
                              int64_t *messages);

#endif
