/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.h - communicators over MPI.
 *
 *   comm_mpi.c            creation, sub-communicators, destruction
 *   comm_mpi_message.c    messages and waiting for them
 *   comm_mpi_fail.c       notices of failure, and ending the messages in flight
 *   comm_mpi_watch.c      ranks that do not answer
 *
 * Waiting is polling. A rank that fails sends a notice to all others on a separate MPI
 * communicator, which every waiting rank polls too, between yields of the processor: no rank blocks
 * inside MPI waiting for a rank that has failed.
 */
#ifndef TESS_COMM_MPI_H
#define TESS_COMM_MPI_H

#include "comm_internal.h"
#include "tessera/advanced/collectives.h"
#include "tessera/mpi.h"

typedef struct {
    int32_t status, rank;
    char sentence[TESS_SENTENCE_MAX];
} tess__failure_notice;

/* Tags of the communicator of notices. */
enum { TESS__TAG_NOTICE, TESS__TAG_QUIET, TESS__TAG_QUESTION, TESS__TAG_ANSWER };

/* What is known of a rank that is watched, in ns of tess_clock_ns. */
typedef struct {
    int64_t asked, heard; /* the open question, 0: none; the last answer */
    int reported;
} tess__mpi_peer;

/* State that a communicator and its sub-communicators share; owned by the world communicator. */
typedef struct {
    MPI_Comm notices;
    int rank, size;
    struct tess__comm_mpi *comms; /* all communicators of this rank */
    int failed;
    tess__failure_notice failure; /* as received, or as sent to all ranks */
    tess_comm_watch_opts watch;
    tess__mpi_peer *peers; /* (size); NULL: ranks are not watched */
    int64_t checked;
    char quiet[]; /* (size) 1: expects no more messages */
} tess__mpi_world;

typedef struct {
    MPI_Request handle;
    int64_t begun;  /* bytes of the message that are in flight or done */
    int chunk, got; /* bytes of the last chunk, expected and received */
    int code;       /* the last MPI return code */
} tess__mpi_transfer;

typedef struct tess__comm_mpi {
    tess_comm comm;
    MPI_Comm mpi;
    tess__mpi_world *world;
    int is_world; /* owns the world */
    struct tess__comm_mpi *next;
    tess__mpi_transfer *transfers; /* one per message: transfer i is that of message i */
    int *world_ranks;              /* (size) ranks of the world */
} tess__comm_mpi;

/* EIO with the text of an MPI error code. */
tess_status tess__mpi_error(const char *what, int code);

static inline tess__mpi_transfer *tess__mpi_transfer_of(const tess__comm_mpi *self,
                                                        const tess__message *m)
{
    return &self->transfers[m - self->comm.messages];
}

/* Message i of a request, the receives first. */
static inline tess__message *tess__mpi_message(tess_request *r, int i)
{
    return i < r->n_receives ? &r->receives[i] : &r->sends[i - r->n_receives];
}

/* ---- comm_mpi_message.c: operations of a communicator ---------------------------------------- */

tess_status tess__mpi_send(tess_comm *comm, tess__message *m);
tess_status tess__mpi_receive(tess_comm *comm, tess__message *m);
tess_status tess__mpi_progress(tess_comm *comm);
tess_status tess__mpi_finish(tess_comm *comm, tess_request *request);

/* ---- comm_mpi_watch.c ------------------------------------------------------------------------ */

/* ops->watch. */
tess_status tess__mpi_watch(tess_comm *comm, const tess_comm_watch_opts *opts);

/* In a wait that began then: asks, reports, and fails at the limit. */
tess_status tess__mpi_check_silence(tess__mpi_world *world, int64_t begun);

/* A question or an answer was received. */
void tess__mpi_answer(tess__mpi_world *world, int from, int tag);

/* ---- comm_mpi_fail.c ------------------------------------------------------------------------- */

/* ops->fail: sends a failure notice to all ranks. */
void tess__mpi_fail(tess_comm *comm, tess_status status, const char *sentence);

/* The failure of another rank, if a notice has arrived; else TESS_OK. */
tess_status tess__mpi_check_failure(tess__mpi_world *world);

/* Frees the MPI requests of all messages in flight on a communicator. */
void tess__mpi_abandon(tess__comm_mpi *self);

#endif
