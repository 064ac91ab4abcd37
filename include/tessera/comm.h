/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - communicators: groups of ranks. (mpi.h, of libtessera_mpi, makes one over MPI.)
 *
 * A communicator is a group of ranks, numbered from 0, that call the same functions on it in the
 * same order. Calls are collective unless they say otherwise: every rank of the group makes them. A
 * rank that cannot continue while others wait for it calls tess_comm_fail, so that no rank hangs.
 *
 * Four kinds: "self" is a single rank; "thread" has its ranks on threads of one process, for tests
 * and for emulated links; "mpi" is for real machines; "trace" is a trace recorder: one rank of many
 * runs alone, and its communication and computing times are recorded.
 *
 * Bytes are sent unconverted: all ranks have the same architecture. Sizes are known on both sides:
 * a message of another size than its receiver expects is an error there. A communicator belongs to
 * the thread that uses it; a sub-communicator (tess_comm_split) is destroyed before its parent.
 */
#ifndef TESSERA_COMM_H
#define TESSERA_COMM_H

#include "base.h"

TESS_BEGIN_DECLS

typedef struct tess_comm tess_comm;

typedef struct {
    const char *kind; /* "self", "thread", "mpi", "trace" */
    int rank, size;
    int nodes, node; /* hosts of the group; this rank's host, numbered by their lowest ranks */
} tess_comm_info;

/* Not collective. */
TESS_API tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info);

/* Not collective; open requests are cancelled. */
TESS_API void tess_comm_destroy(tess_comm *comm);

/* ---- traffic counts ------------------------------------------------------------------------ */

typedef enum {
    TESS_TRAFFIC_PAYLOAD, /* rows of tensors, gradients, weights */
    TESS_TRAFFIC_INDEX,   /* which rows */
    TESS_TRAFFIC_CONTROL, /* counts, agreement, settings; sums that virtual keys are made of */
    TESS_TRAFFIC_COUNT
} tess_traffic_kind;

/* What this rank sent to other ranks on this communicator (sub-communicators count their own), and
 * how long it waited for messages. */
typedef struct {
    int64_t bytes[TESS_TRAFFIC_COUNT];
    int64_t messages[TESS_TRAFFIC_COUNT];
    int64_t wait_ns; /* by tess_comm_clock */
} tess_comm_counts;

/* ---- failure and agreement ----------------------------------------------------------------- */

/* Returns on every rank the status and the error sentence of the lowest rank that failed, or
 * TESS_OK if none did: no rank returns early while others wait for it. The communicator stays
 * usable. */
TESS_API tess_status tess_comm_agree(tess_comm *comm, tess_status mine);

/* Not collective. Notifies all ranks of the world (the communicator that no split made) that this
 * rank cannot continue: their calls, blocked ones and those on sub-communicators too, return this
 * status with the sentence "rank 2: <this thread's tess_last_error>", with the rank in the world.
 * Returns mine; TESS_OK sends nothing. Afterwards communicators of that world can be queried and
 * destroyed, and nothing else. Buffers of open operations belong to the callers again; over MPI,
 * which cannot cancel a send, only if all ranks make a call within two seconds: a rank to which
 * another one does not answer should end its process. */
TESS_API tess_status tess_comm_fail(tess_comm *comm, tess_status mine);

/* ---- links, and ranks as threads ----------------------------------------------------------- */

/* The link between ranks. All 0: no delay is injected. */
typedef struct {
    int64_t latency;          /* ns */
    double bandwidth;         /* bytes/s each way of each rank; 0: infinite */
    int node_ranks;           /* consecutive ranks per node; 0: all on one node */
    int64_t network_latency;  /* between nodes */
    double network_bandwidth; /* the same, each way of each rank */
    double network_alone;     /* measured: of one rank while the others of its node send nothing */
    int share_cores;          /* threads only: 1: all ranks compute at once, also on fewer cores */
} tess_link;

/* The function of one rank. ctx and comm are its own, and destroyed when it returns. */
typedef tess_status (*tess_rank_fn)(void *user, tess_ctx *ctx, tess_comm *comm);

/* Calls fn on `ranks` threads (1..1024), each with a context made from opts (threads 0 means 1) and
 * a communicator of all. Returns when all have returned, with the failure of the lowest rank that
 * has one. A rank that fails has called tess_comm_fail. A communicator of n ranks reserves about
 * 78 KiB per pair of ranks, 78 KiB n^2 of address space: 5 MiB for 8 ranks, 0.3 GiB for 64, 78 GiB
 * for 1024, of which only the pages that messages and collectives write become memory. ENOMEM where
 * the system does not reserve that much.
 *
 * With a link every rank has a virtual clock, tess_comm_clock: it advances by the CPU time of the
 * rank's thread outside of calls on communicators, and inside of them to the arrival of the message
 * that the rank waits for. Nothing sleeps, so eight ranks on two cores measure what eight cores
 * with such links would take. No more ranks compute at once than there are cores: fn must wait for
 * other ranks through its communicator only. With share_cores all ranks compute at once,
 * time-sliced by the system: caches are shared and clocks are late, but a machine that is slow for
 * a while is slow for all ranks alike, and their CPU times compare. Contexts must have one thread.
 * A rank has one full-duplex link to the ranks of its node and one to other nodes. A message of n
 * bytes that starts at t leaves when its link is free, at s >= t, occupies it for n / bandwidth,
 * and has arrived at s + latency + n / bandwidth, or later if its receiver's link is busy with
 * messages that left before. */
TESS_API tess_status tess_comm_threads(const tess_ctx_opts *opts, int ranks, const tess_link *link,
                                       tess_rank_fn fn, void *user);

TESS_END_DECLS

#endif
