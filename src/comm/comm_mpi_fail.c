/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi_fail.c - failure of a rank: notices to all ranks, and ending the messages in flight.
 *
 * A failure notice is sent to every rank. Each rank then cancels its messages as far as MPI allows,
 * and announces when it expects no more (it is quiet).
 */
#include "comm_mpi.h"

#include <sched.h>

static const int64_t ABANDON_NS = 2000000000; /* time for messages in flight to end */

/* Announces to all ranks that this one expects no more messages. */
static void announce_quiet(const tess__mpi_world *world)
{
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        if (p != world->rank && MPI_Isend(NULL, 0, MPI_BYTE, p, TESS__TAG_QUIET, world->notices,
                                          &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
}

static void receive_quiet(tess__mpi_world *world)
{
    MPI_Status status;
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TESS__TAG_QUIET, world->notices, &there, &status) ==
               MPI_SUCCESS &&
           there) {
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TESS__TAG_QUIET, world->notices,
                 MPI_STATUS_IGNORE);
        world->quiet[status.MPI_SOURCE] = 1;
    }
}

/* Tests every message in flight once, after cancelling receives if `cancel`. Returns the number of
 * messages that still use the caller's memory. */
static int settle(const tess__mpi_world *world, int cancel, int *receives)
{
    int moving = 0;
    *receives = 0;
    for (tess__comm_mpi *c = world->comms; c; c = c->next)
        for (int i = 0; i < TESS_COMM_OPEN; i++) {
            tess_request *r = &c->comm.requests[i];
            for (int j = 0; r->open && j < r->n_receives + r->n_sends; j++) {
                tess__message *m = tess__mpi_message(r, j);
                MPI_Request *handle = &tess__mpi_transfer_of(c, m)->handle;
                const int sends = j >= r->n_receives;
                int arrived = 0;
                if (m->done)
                    continue;
                if (cancel && !sends)
                    MPI_Cancel(handle);
                m->done = MPI_Test(handle, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || arrived;
                *receives += !m->done && !sends;
                moving += !m->done && !(sends && world->quiet[c->world_ranks[m->peer]]);
            }
        }
    return moving;
}

void tess__mpi_abandon(tess__comm_mpi *self)
{
    for (int i = 0; i < TESS_COMM_OPEN; i++) {
        tess_request *r = &self->comm.requests[i];
        for (int j = 0; r->open && j < r->n_receives + r->n_sends; j++) {
            tess__mpi_transfer *f = tess__mpi_transfer_of(self, tess__mpi_message(r, j));
            if (!tess__mpi_message(r, j)->done && f->handle != MPI_REQUEST_NULL)
                MPI_Request_free(&f->handle);
            tess__mpi_message(r, j)->done = 1;
        }
    }
}

/* Ends all messages in flight, so that all buffers belong to the caller. A receive whose send has
 * not started is cancelled, one that has started is completed; then the rank announces that it is
 * quiet. A send cannot be cancelled: its buffer is free once it is done or its receiver is quiet. A
 * receiver that computes for long does not answer, so waiting is limited to ABANDON_NS. */
static void abandon_all(tess__mpi_world *world)
{
    const int64_t until = tess_clock_ns() + ABANDON_NS;
    int receives, announced = 0;
    int moving = settle(world, 1, &receives);
    while (tess_clock_ns() < until) {
        if (!announced && receives == 0) {
            announce_quiet(world);
            announced = 1;
        }
        if (moving == 0)
            break;
        sched_yield();
        receive_quiet(world);
        moving = settle(world, 0, &receives);
    }
    if (!announced)
        announce_quiet(world);
    for (tess__comm_mpi *c = world->comms; c; c = c->next)
        tess__mpi_abandon(c);
}

static tess_status failure_of(const tess__mpi_world *world)
{
    return tess__fail(world->failure.status, "rank %d: %s", world->failure.rank,
                      world->failure.sentence);
}

/* Receives the empty messages that have arrived; returns 1 if a notice of failure is next. */
static int notice_arrived(tess__mpi_world *world, MPI_Status *status)
{
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world->notices, &there, status) == MPI_SUCCESS &&
           there) {
        if (status->MPI_TAG == TESS__TAG_NOTICE)
            return 1;
        MPI_Recv(NULL, 0, MPI_BYTE, status->MPI_SOURCE, status->MPI_TAG, world->notices,
                 MPI_STATUS_IGNORE);
        if (status->MPI_TAG == TESS__TAG_QUIET)
            world->quiet[status->MPI_SOURCE] = 1;
        else
            tess__mpi_answer(world, status->MPI_SOURCE, status->MPI_TAG);
    }
    return 0;
}

tess_status tess__mpi_check_failure(tess__mpi_world *world)
{
    MPI_Status status;
    if (world->failed)
        return failure_of(world);
    if (!notice_arrived(world, &status))
        return TESS_OK;
    const int code = MPI_Recv(&world->failure, sizeof world->failure, MPI_BYTE, status.MPI_SOURCE,
                              TESS__TAG_NOTICE, world->notices, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return tess__mpi_error("MPI_Recv", code);
    world->failed = 1;
    abandon_all(world);
    return failure_of(world);
}

void tess__mpi_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    tess__mpi_world *world = ((const tess__comm_mpi *)comm)->world;
    if (world->failed)
        return; /* all ranks get the notice of the earlier failure */
    world->failed = 1;
    world->failure = (tess__failure_notice){.status = status, .rank = world->rank};
    snprintf(world->failure.sentence, sizeof world->failure.sentence, "%s", sentence);
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        /* Sent eagerly; the buffer lives as long as the world anyway. */
        if (p != world->rank && MPI_Isend(&world->failure, sizeof world->failure, MPI_BYTE, p,
                                          TESS__TAG_NOTICE, world->notices, &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
    abandon_all(world);
}
