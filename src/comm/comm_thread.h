/* SPDX-License-Identifier: Apache-2.0 */
/* comm_thread.h - ranks as threads of one process: mailboxes, virtual clocks, the shared world.
 *
 * Each rank has a mailbox of pending message descriptors: address, size and identity of a message.
 * The protocol is rendezvous: in every call on a communicator a rank removes the descriptors that
 * it expects and copies the bytes from the sender's buffer into its own; the sender waits for that.
 */
#ifndef TESS_COMM_THREAD_H
#define TESS_COMM_THREAD_H

#include "comm_internal.h"

#include <pthread.h>

/* ---- comm_link.c: virtual time --------------------------------------------------------------- */

/* The virtual clock of a rank, used by its thread alone. Links are [0] within the node, [1] to
 * other nodes. */
typedef struct {
    int64_t now;           /* virtual time up to `cpu` */
    int64_t cpu;           /* CPU time of the thread that `now` includes */
    int64_t out[2], in[2]; /* when the links are free */
} tess__clock;

/* A message of `bytes` starts at clock->now: returns when it leaves; its last byte leaves at *sent.
 * */
int64_t tess__link_leave(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                         int64_t *sent);

/* Arrival time of a message that left at `leaves`. Called in the order in which messages leave. */
int64_t tess__link_arrive(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                          int64_t leaves);

/* ---- comm_mailbox.c: descriptors and mailboxes ----------------------------------------------- */

typedef struct tess__mailbox tess__mailbox;

typedef struct tess__descriptor {
    struct tess__descriptor *next; /* in the receiver's mailbox, or in its list `expected` */
    tess__mailbox *owner;          /* the sender's; of an expected message the receiver's */
    int64_t tag;                   /* of the communicator */
    int from;                      /* rank in that communicator */
    int64_t number;
    int64_t bytes; /* as sent */
    tess__message *message;
    int64_t leaves, sent; /* virtual times */
    int done;             /* copied; guarded by the owner's mutex */
    int timed;            /* of a receive: the clock includes its arrival */
} tess__descriptor;

struct tess__mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tess__descriptor *first, *last; /* descriptors to this rank */
    tess__descriptor *expected;     /* by this rank; used by its thread alone */
    atomic_int copying;             /* descriptors of this rank that are being copied */
    atomic_int left;                /* this rank's function has returned */
    tess__clock clock;
};

/* State that all ranks share. */
typedef struct {
    int ranks;
    int linked; /* 1: virtual clocks */
    tess_link link;
    tess__mailbox *mailboxes;
    _Atomic int64_t tags;
    atomic_int failed;
    pthread_mutex_t mutex; /* of status and sentence, which are constant once failed is 1 */
    tess_status status;
    char sentence[TESS_SENTENCE_MAX];
    pthread_mutex_t core_mutex; /* no other is locked while this is held */
    pthread_cond_t core_free;
    int cores; /* free cores; counted with virtual clocks only */
} tess__world;

/* comm_thread_run.c: with virtual clocks a rank computes only while it holds a core: ranks that
 * share a core would evict each other's caches, which would increase their CPU times. A rank
 * releases the core while it waits. */
void tess__core_acquire(tess__world *world);
void tess__core_release(tess__world *world);

void tess__mailbox_wake(tess__mailbox *mailbox);
void tess__mailbox_post(tess__mailbox *mailbox, tess__descriptor *descriptor);

/* Removes one expected descriptor from the mailbox and copies its message; 0 if there is none. The
 * mutex of mine is held on entry and on return, but released during the copy. */
int tess__mailbox_receive(tess__mailbox *mine);

/* Removes the descriptors of rank `world_rank` from all mailboxes and empties its list `expected`:
 * those of one communicator, or all if tag is -1. */
void tess__mailbox_withdraw(tess__world *world, int world_rank, int64_t tag);

/* ---- comm_thread.c --------------------------------------------------------------------------- */

/* The communicator of rank `rank` of the world. */
tess_status tess__thread_comm(tess_ctx *ctx, tess__world *world, int rank, tess_comm **comm);

/* Called on the rank's thread before its function is called, and after it has returned. */
void tess__thread_enter(tess_comm *comm);
void tess__thread_leave(tess_comm *comm);

#endif
