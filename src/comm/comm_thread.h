/* SPDX-License-Identifier: Apache-2.0 */
/* comm_thread.h - ranks as threads of one process: their mailboxes, their clocks, their world.
 *
 * A rank has a mailbox, into which others put descriptors: where the bytes of a message lie and
 * what it is. Whenever a rank is in a call of its communicator it takes out the descriptors that it
 * expects, and copies the bytes from the sender's buffer into its own; the sender waits for that.
 */
#ifndef TESS_COMM_THREAD_H
#define TESS_COMM_THREAD_H

#include "comm_internal.h"

#include <pthread.h>

/* ---- comm_link.c: virtual time --------------------------------------------------------------- */

/* Of one rank, used by its thread alone. Wires are [0] to its node, [1] to other nodes. */
typedef struct {
    int64_t now;           /* virtual time up to `cpu` */
    int64_t cpu;           /* CPU time of the thread that `now` includes */
    int64_t out[2], in[2]; /* when the wires are free */
} tess__clock;

/* A message of `bytes` starts at clock->now: returns when it leaves, and *sent is when its last
 * byte has left. */
int64_t tess__link_leave(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                         int64_t *sent);

/* When a message that left at `leaves` has arrived. Called in the order in which they leave. */
int64_t tess__link_arrive(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                          int64_t leaves);

/* ---- comm_mailbox.c: descriptors and mailboxes ----------------------------------------------- */

typedef struct tess__mailbox tess__mailbox;

typedef struct tess__descriptor {
    struct tess__descriptor *next; /* in the receiver's mailbox, or among those that it expects */
    tess__mailbox *owner;          /* the sender's; of one that is expected the receiver's */
    int64_t tag;                   /* of the communicator */
    int from;                      /* rank there */
    int64_t number;
    int64_t bytes; /* as sent */
    tess__message *message;
    int64_t leaves, sent; /* virtual times */
    int done;             /* copied; guarded by the owner's mutex */
    int timed;            /* of a receive: the clock has been told when it arrived */
} tess__descriptor;

struct tess__mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tess__descriptor *first, *last; /* descriptors to this rank */
    tess__descriptor *expected;     /* by this rank, whose thread alone looks here */
    atomic_int copying;             /* descriptors of this rank that are being copied */
    atomic_int left;                /* this rank's function has returned */
    tess__clock clock;
};

/* What the ranks share. */
typedef struct {
    int ranks;
    int linked; /* 1: virtual clocks */
    tess_link link;
    tess__mailbox *mailboxes;
    _Atomic int64_t tags;
    atomic_int failed;
    pthread_mutex_t mutex; /* of the failure; status and sentence do not change once failed is 1 */
    tess_status status;
    char sentence[TESS_SENTENCE_MAX];
    pthread_mutex_t core_mutex; /* no other is locked while this is held */
    pthread_cond_t core_free;
    int cores; /* that no rank computes on; linked worlds alone count them */
} tess__world;

/* comm_thread_run.c: with virtual clocks a rank computes only while it has a core of its own, for
 * ranks that take turns on one empty each other's caches, and it would show in their CPU times. It
 * gives the core back while it waits. */
void tess__core_acquire(tess__world *world);
void tess__core_release(tess__world *world);

void tess__mailbox_wake(tess__mailbox *mailbox);
void tess__mailbox_post(tess__mailbox *mailbox, tess__descriptor *descriptor);

/* Takes one expected descriptor out of the mailbox and reads it; 0 if there is none. The mutex of
 * mine is held on entry and on return, but not between when it returns 1. */
int tess__mailbox_receive(tess__mailbox *mine);

/* Takes descriptors of the rank at `world_rank` back out of all mailboxes, and expects none: those
 * of one communicator, or all if tag is -1. */
void tess__mailbox_withdraw(tess__world *world, int world_rank, int64_t tag);

/* ---- comm_thread.c --------------------------------------------------------------------------- */

/* The communicator of rank `rank` of the world. */
tess_status tess__thread_comm(tess_ctx *ctx, tess__world *world, int rank, tess_comm **comm);

/* On the rank's own thread: before its function is called, and after it has returned. */
void tess__thread_enter(tess_comm *comm);
void tess__thread_leave(tess_comm *comm);

#endif
