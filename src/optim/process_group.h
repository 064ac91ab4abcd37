/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.h - training on many ranks: who does what, who owns what, and what travels in a step.
 *
 * The ranks of a world form groups; the groups share the clips of a step, and the ranks of a group
 * share the tokens of each clip:
 *
 *   rank = group * ranks_context + place          place 0 speaks for its group
 *
 * Every rank holds all weights and all gradients. The state of the optimiser is cut by whole
 * parameters (ZeRO-1): each has one owner, which adds up the gradients of all ranks in their order,
 * updates the parameter and gives it back to all:
 *
 *   backward of a block -> gradients on their way to their owners, while the block before it runs
 *   all gradients are there -> norm, over all ranks -> update of what is owned -> values to all
 *
 * A step sends 4 (P - 1) / P bytes per parameter and rank, twice: what an all-reduce would send.
 *
 * Failures. What a rank meets alone, inside a step, it tells by tess_comm_fail: the others, who may
 * wait for it anywhere, leave with its sentence. What only one rank does (files) is agreed on
 * behind it, and so are failures that every rank may meet at the same place.
 */
#ifndef TESS_PROCESS_GROUP_H
#define TESS_PROCESS_GROUP_H

#include "model/model_internal.h"
#include "optim.h"
#include "tessera/train.h"

/* ---- process_group.c ------------------------------------------------------------------------- */

typedef struct {
    tess_comm *world;     /* the caller's; NULL: this rank is alone */
    tess_comm *cp_comm;   /* of this rank's group; NULL: its clips are its alone */
    int rank, size;       /* 0 and 1 without a world */
    int dp_size, dp_rank; /* how many there are, and which one this rank is in */
    int cp_size, cp_rank; /* ranks of a group, and this one's number in it */
    int failure_known;    /* 1: the failure under way is known to all ranks */
} tess__process_group;

/* Collective. The groups that options ask for; EINVAL if they do not divide ranks and clips. */
tess_status tess__pg_open(const char *who, const tess_train_opts *opts, tess__process_group *pg);
void tess__pg_close(tess__process_group *pg); /* {0} accepted */

/* The same without communicators: sizes and places alone. */
tess_status tess__pg_layout(const char *who, const tess_train_opts *opts, tess__process_group *pg);

static inline int tess__pg_many(const tess__process_group *pg)
{
    return pg->size > 1;
}

/* Collective: the failure of the lowest rank that has one, on all. Alone: mine. */
tess_status tess__pg_agree(tess__process_group *pg, tess_status mine);

/* What a public call returns: tells the others of a failure that they do not know of. */
tess_status tess__pg_propagate(tess__process_group *pg, tess_status status);

/* Collective: sums over the world; once: of numbers that all ranks of a group have, each group's
 * counted once. */
tess_status tess__pg_allreduce(const tess__process_group *pg, double *values, int64_t n);
tess_status tess__pg_allreduce_groups(const tess__process_group *pg, double *values, int64_t n);

/* Collective: EINVAL on all ranks if one has another `what` than rank 0. */
tess_status tess__pg_check_same(tess__process_group *pg, const char *what, const void *data,
                                size_t bytes);

/* The clock that waits are counted by: of ranks with links it is virtual. Alone, or NULL: of
 * the wall. */
int64_t tess__pg_clock(const tess__process_group *pg);

/* Adds what was counted on a communicator, NULL accepted, `times` times: 1 or -1. */
void tess__counts_add(const tess_comm *comm, int times, tess_comm_counts *sum);

/* ---- owners.c: which rank owns which parameters ---------------------------------------------- */

/* Parameters whose gradients are ready together are a part: part 0 lies before the blocks, then
 * comes one for each block, then what lies behind them. */
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

/* One part on its way: what goes out, by owners, and what comes in, by ranks. */
typedef struct {
    float *send, *recv;
    int64_t *recv_bytes; /* (ranks), all the same */
    tess_request *request;
    int part; /* -1: none */
} tess__stage;

enum { TESS__STAGES = 2 };

typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    const tess__process_group *pg;
    const tess__owners *owners;
    float *gradients; /* of the model */
    tess__stage stages[TESS__STAGES];
    int next;
    int64_t waited_ns; /* for what was on its way; since it was made */
} tess__reduce;

tess_status tess__reduce_create(tess_ctx *ctx, const tess__process_group *pg,
                                const tess__owners *owners, float *gradients, tess__reduce *reduce);
void tess__reduce_destroy(tess__reduce *reduce); /* {0} accepted */
int64_t tess__reduce_bytes(const tess__owners *owners, int rank);

/* A tess__ready_fn; user: the tess__reduce. After layer -1 all sums are at their owners. */
tess_status tess__reduce_ready(void *user, int layer);

/* Collective: every parameter of values as its owner has it. */
tess_status tess__reduce_values(tess__reduce *reduce, float *values);

/* ---- state_gather.c: the state of the optimiser in one place --------------------------------- */

typedef enum { TESS__STATE_FIRST, TESS__STATE_SECOND, TESS__STATE_EMA } tess__state_kind;

/* Collective: `to` of rank 0 is filled in as the slots of owners say; not read elsewhere. */
tess_status tess__state_gather(const tess__process_group *pg, const tess__owners *owners,
                               const tess__optim *optim, tess__state_kind kind, float *to);

#endif
