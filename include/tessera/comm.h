/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - communicators: groups of ranks. (MPI's are made by mpi.h, in libtessera_mpi.)
 *
 * A communicator is a group of ranks, numbered from 0, that call the same functions on it in the
 * same order. Calls are collective unless they say otherwise: every rank of the group makes them.
 * A rank that cannot go on while others wait for it calls tess_comm_fail, and nobody hangs.
 *
 * Four kinds: "self" is one rank alone; "thread" has its ranks on threads of one process, for tests
 * and for measuring links that are not there; "mpi" is for machines; "trace" plays one rank of
 * many alone, and writes down what it sends and computes.
 *
 * Bytes travel as they are: all ranks are of one architecture. Sizes are known on both sides: a
 * message of another size than its receiver expects is an error there. A communicator belongs to
 * the thread that uses it; a part (of tess_comm_split) is destroyed before its whole is.
 */
#ifndef TESSERA_COMM_H
#define TESSERA_COMM_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_comm tess_comm;

typedef struct {
    const char *kind; /* "self", "thread", "mpi", "trace" */
    int rank, size;
    int nodes, node; /* hosts of the group; this rank's, numbered by their lowest ranks */
} tess_comm_info;

/* Not collective. */
TESS_API tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info);

/* Not collective; requests that are still open are given up. */
TESS_API void tess_comm_destroy(tess_comm *comm);

/* ---- what is sent -------------------------------------------------------------------------- */

typedef enum {
    TESS_TRAFFIC_PAYLOAD, /* rows of tensors, gradients, weights */
    TESS_TRAFFIC_INDEX,   /* which rows */
    TESS_TRAFFIC_CONTROL, /* counts, agreement, settings; sums that virtual keys are made of */
    TESS_TRAFFIC_COUNT
} tess_traffic_kind;

/* What this rank sent to other ranks on this communicator (what it sends on a part counts there),
 * and how long it waited for messages on it. */
typedef struct {
    int64_t bytes[TESS_TRAFFIC_COUNT];
    int64_t messages[TESS_TRAFFIC_COUNT];
    int64_t wait_ns; /* by tess_comm_clock */
} tess_comm_counts;

/* ---- failure and agreement ----------------------------------------------------------------- */

/* Every rank gets the status and the sentence of the lowest rank that failed, or TESS_OK if none
 * did: nobody leaves while another waits. The communicator stays usable. */
TESS_API tess_status tess_comm_agree(tess_comm *comm, tess_status mine);

/* Not collective. Tells all ranks of the world, the communicator that no split made, that this one
 * cannot go on: their calls, also those in which they wait and those on parts, return this status
 * with the sentence "rank 2: <this thread's tess_last_error>", with the rank's number in the world.
 * Returns mine; TESS_OK tells nobody. Afterwards communicators of that world can be asked and
 * destroyed, and nothing else. Buffers of open operations are the callers' again; over MPI, which
 * cannot take a send back, if all ranks come to a call within two seconds: a rank that another one
 * does not answer should end its process rather than go on. */
TESS_API tess_status tess_comm_fail(tess_comm *comm, tess_status mine);

/* ---- links, and ranks as threads ----------------------------------------------------------- */

/* What lies between ranks. All 0: nothing is injected. */
typedef struct {
    int64_t latency;          /* ns */
    double bandwidth;         /* bytes/s each way of each rank; 0: infinite */
    int node_ranks;           /* ranks of a node, neighbours; 0: one node is all */
    int64_t network_latency;  /* between nodes */
    double network_bandwidth; /* the same, each way of each rank */
    double network_alone; /* measured: what a rank has while the others of its node are silent */
    int share_cores;      /* threads alone: 1: ranks compute at once, however many there are */
} tess_link;

/* The work of one rank. ctx and comm are its own, and gone when it returns. */
typedef tess_status (*tess_rank_fn)(void *user, tess_ctx *ctx, tess_comm *comm);

/* Calls fn on `ranks` threads (1..1024), each with a context made from opts (threads 0 means 1) and
 * a communicator of all. Returns when all have, with the failure of the lowest rank that has one. A
 * rank that fails has called tess_comm_fail. A communicator of n ranks reserves about 78 KiB for
 * each of them on each of them, for all n 78 KiB n^2 of address space: 5 MiB for 8 ranks, 0.3 GiB
 * for 64, 78 GiB for 1024, of which only what messages and sums touch becomes memory. ENOMEM where
 * the system does not reserve that much.
 *
 * With a link every rank has a virtual clock, tess_comm_clock: it advances by the CPU time of the
 * rank's thread outside of calls on communicators, and inside of them to the arrival of what the
 * rank waits for. Nothing sleeps, so eight ranks on two cores measure what eight cores with such
 * links would take. No more ranks compute at once than there are cores: fn must wait for other
 * ranks through its communicator alone. With share_cores all of them do, in slices that the system
 * gives them: caches are shared and clocks late, but where the machine is slow for a while it is so
 * for all ranks alike, and their CPU times compare. Contexts must have one thread. A rank has a
 * wire to the ranks of its node and one to other nodes, both ways at once. A message of n bytes
 * that starts at t leaves when its wire is free, at s >= t, keeps it for n / bandwidth, and has
 * arrived at s + latency + n / bandwidth, or later by what its receiver's wire is busy with
 * messages that left before. */
TESS_API tess_status tess_comm_threads(const tess_ctx_opts *opts, int ranks, const tess_link *link,
                                       tess_rank_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif
