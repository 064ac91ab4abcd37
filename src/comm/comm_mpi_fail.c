/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi_fail.c - a rank that fails tells the others, and messages in flight comes to its end.
 *
 * A notice of the failure goes to every rank. Each then takes its messages back as far as MPI
 * lets it, and tells when it expects none any more.
 */
#include "comm_mpi.h"

#include <sched.h>

enum { TAG_NOTICE = 0, TAG_QUIET = 1 };

static const int64_t ABANDON_NS = 2000000000; /* for messages that are given up */

/* Every rank hears that this one expects no more messages. */
static void announce_quiet(const tess__mpi_world *world)
{
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        if (p != world->rank &&
            MPI_Isend(NULL, 0, MPI_BYTE, p, TAG_QUIET, world->notices, &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
}

static void receive_quiet(tess__mpi_world *world)
{
    MPI_Status status;
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, TAG_QUIET, world->notices, &there, &status) == MPI_SUCCESS &&
           there) {
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, TAG_QUIET, world->notices,
                 MPI_STATUS_IGNORE);
        world->quiet[status.MPI_SOURCE] = 1;
    }
}

/* Looks once at every message that is still in flight, after having taken receives back if asked
 * to. Returns how many of them use the caller's memory yet. */
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

/* Ends messages in flight, so that all buffers are the caller's. A receive that nobody has begun to
 * send can be taken back, one that has begun comes to its end; then the rank says that it is quiet.
 * A send cannot be taken back: nobody reads it any more once it is done or its receiver is quiet.
 * A receiver that computes for long does not answer, so patience has an end. */
static void abandon_all(tess__mpi_world *world)
{
    const int64_t until = tess_clock_ns() + ABANDON_NS;
    int receives, told = 0;
    int moving = settle(world, 1, &receives);
    while (tess_clock_ns() < until) {
        if (!told && receives == 0) {
            announce_quiet(world);
            told = 1;
        }
        if (moving == 0)
            break;
        sched_yield();
        receive_quiet(world);
        moving = settle(world, 0, &receives);
    }
    if (!told)
        announce_quiet(world);
    for (tess__comm_mpi *c = world->comms; c; c = c->next)
        tess__mpi_abandon(c);
}

static tess_status told(const tess__mpi_world *world)
{
    return tess__fail(world->failure.status, "rank %d: %s", world->failure.rank,
                      world->failure.sentence);
}

tess_status tess__mpi_check_failure(tess__mpi_world *world)
{
    MPI_Status status;
    int there = 0;
    if (world->failed)
        return told(world);
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, world->notices, &there, &status) != MPI_SUCCESS ||
        !there)
        return TESS_OK;
    const int code = MPI_Recv(&world->failure, sizeof world->failure, MPI_BYTE, status.MPI_SOURCE,
                              TAG_NOTICE, world->notices, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        return tess__mpi_error("MPI_Recv", code);
    world->failed = 1;
    abandon_all(world);
    return told(world);
}

void tess__mpi_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    tess__mpi_world *world = ((const tess__comm_mpi *)comm)->world;
    if (world->failed)
        return; /* everyone hears, or has heard, of the other failure */
    world->failed = 1;
    world->failure = (tess__failure_notice){.status = status, .rank = world->rank};
    snprintf(world->failure.sentence, sizeof world->failure.sentence, "%s", sentence);
    for (int p = 0; p < world->size; p++) {
        MPI_Request handle = MPI_REQUEST_NULL;
        /* So short that MPI takes a copy; the buffer lives as long as the world anyway. */
        if (p != world->rank && MPI_Isend(&world->failure, sizeof world->failure, MPI_BYTE, p,
                                          TAG_NOTICE, world->notices, &handle) == MPI_SUCCESS)
            MPI_Request_free(&handle);
    }
    abandon_all(world);
}
