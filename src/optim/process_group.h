/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.h - training on many ranks: groups, sharded optimiser, gradient reduce-scatter.
 *
 * Context-parallel groups of cp_size ranks share the tokens of each clip; the dp_size groups share
 * the clips of a step (data parallelism):
 *
 *   rank = dp_rank * cp_size + cp_rank
 *
 * Every rank holds all weights and all gradients. The state of the optimiser is sharded by whole
 * parameters (ZeRO-1): each has one owner rank, which adds the gradients of all ranks in rank
 * order, updates the parameter and sends it to all:
 *
 *   backward of a block -> its gradients are sent to their owners while the next block runs
 *   all gradients received -> norm, over all ranks -> update of owned parameters -> all-gather
 *
 * A step sends 4 (P - 1) / P bytes per parameter and rank, twice: what an all-reduce would send.
 *
 * Failures. A failure of one rank inside a step is sent by tess_comm_fail: the other ranks,
 * wherever they wait, return with its sentence. After work of one rank alone (files), and where
 * every rank may fail at the same place, the ranks agree on the status.
 */
#ifndef TESS_PROCESS_GROUP_H
#define TESS_PROCESS_GROUP_H

#include "model/model_internal.h"
#include "optim.h"
#include "tessera/advanced/collectives.h"
#include "tessera/train.h"

/* ---- process_group.c ------------------------------------------------------------------------- */

typedef struct {
    tess_comm *world;     /* the caller's; NULL: one rank */
    tess_comm *cp_comm;   /* of the context-parallel group; NULL: cp_size is 1, but for exact_ranks
                             a communicator of one rank */
    int rank, size;       /* 0 and 1 without a world */
    int dp_size, dp_rank; /* groups that share the clips, and the number of this one */
    int cp_size, cp_rank; /* ranks that share the tokens of a clip, and this one's number */
    int failure_known;    /* 1: all ranks know of the failure that is being returned */
} tess__process_group;

/* Collective. Makes the groups of the options; EINVAL if they do not divide ranks and clips. mixed:
 * 1: of clips of several sizes, whose ranks are all groups of their own and take uneven shares. */
tess_status tess__pg_open(const char *who, tess_ctx *ctx, const tess_train_opts *opts, int mixed,
                          tess__process_group *pg);
void tess__pg_close(tess__process_group *pg); /* {0} accepted */

/* The same without communicators: sizes and numbers alone. */
tess_status tess__pg_layout(const char *who, const tess_train_opts *opts, int mixed,
                            tess__process_group *pg);

static inline int tess__pg_many(const tess__process_group *pg)
{
    return pg->size > 1;
}

/* Collective: the failure of the lowest rank that failed, on all ranks. One rank: mine. */
tess_status tess__pg_agree(tess__process_group *pg, tess_status mine);

/* The status of a public call; first sends a failure that the other ranks do not know of. */
tess_status tess__pg_propagate(tess__process_group *pg, tess_status status);

/* Collective: sums over all ranks; over groups: of values that all ranks of a context-parallel
 * group have, each group counted once. */
tess_status tess__pg_allreduce(const tess__process_group *pg, double *values, int64_t n);
tess_status tess__pg_allreduce_groups(const tess__process_group *pg, double *values, int64_t n);

/* Collective: EINVAL on all ranks if one has another `what` than rank 0. */
tess_status tess__pg_check_same(tess__process_group *pg, const char *what, const void *data,
                                size_t bytes);

/* The clock of waiting times: virtual for ranks with simulated links, else the wall clock. NULL
 * accepted. */
int64_t tess__pg_clock(const tess__process_group *pg);

/* Adds `times` (1 or -1) times the counts of a communicator; NULL accepted. */
void tess__counts_add(const tess_comm *comm, int times, tess_comm_counts *sum);

/* ---- owners.c: which rank owns which parameters ---------------------------------------------- */

/* Parameters whose gradients are ready together form a part: part 0 those before the blocks, then
 * one part per block, then those after the blocks. */
typedef struct {
    tess__arena arena;
    int n_slots, parts, ranks;
    tess__optim_slot *slots; /* (n_slots): of the whole model, first and second set */
    int64_t total, total_second;
    int *owner;     /* (n_slots) */
    int *order;     /* (n_slots): the slots of a part by owner */
    int *begin;     /* (parts + 1): first slot of each */
    int64_t *bytes; /* (parts, ranks): of the slots of each owner */
} tess__owners;

tess_status tess__owners_create(tess_ctx *ctx, const tess__params *params, tess_optim optim,
                                int ranks, tess__owners *owners);
void tess__owners_destroy(tess__owners *owners); /* {0} accepted */

/* Copies the slots of a rank; returns how many. slots has room for all, or is NULL. */
int tess__owners_own(const tess__owners *owners, int rank, tess__optim_slot *slots);

/* Bytes of the largest part, and of the largest share of a part that a rank owns. */
int64_t tess__owners_part(const tess__owners *owners);
int64_t tess__owners_share(const tess__owners *owners, int rank);

/* ---- reduce.c: gradients to their owners, values back ---------------------------------------- */

/* One part in flight: send buffer by owner, receive buffer by rank. */
typedef struct {
    float *send, *recv;
    int64_t *recv_bytes; /* (ranks), all the same */
    int64_t *send_bytes; /* (ranks) */
    tess_request *request;
    int part; /* -1: none */
} tess__stage;

enum { TESS__STAGES = 2 };

typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    const tess__process_group *pg;
    const tess__owners *owners;
    float *gradients;    /* of the model */
    const int64_t *sums; /* the same in fixed point, with exact_ranks; else NULL */
    int half;            /* 1: gradients travel as bf16 */
    tess__stage stages[TESS__STAGES];
    int next;
    int64_t waited_ns; /* for parts in flight, in total */
} tess__reduce;

tess_status tess__reduce_create(tess_ctx *ctx, const tess__process_group *pg,
                                const tess__owners *owners, float *gradients, const int64_t *sums,
                                int half, tess__reduce *reduce);
void tess__reduce_destroy(tess__reduce *reduce); /* {0} accepted */
int64_t tess__reduce_bytes(const tess__owners *owners, int rank, int exact);

/* A tess__ready_fn; user: the tess__reduce. After layer -1 every owner has its sums. */
tess_status tess__reduce_ready(void *user, int layer);

/* Collective: every rank receives every parameter of values from its owner. */
tess_status tess__reduce_values(tess__reduce *reduce, float *values);

/* ---- state_gather.c: the optimiser's state on rank 0 ----------------------------------------- */

typedef enum { TESS__STATE_FIRST, TESS__STATE_SECOND, TESS__STATE_EMA } tess__state_kind;

/* Collective: fills `to` of rank 0 in the layout of the owners' slots; unused on other ranks. */
tess_status tess__state_gather(const tess__process_group *pg, const tess__owners *owners,
                               const tess__optim *optim, tess__state_kind kind, float *to);

#endif
