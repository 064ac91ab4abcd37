/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi_message.c - messages over MPI, and waiting for them.
 *
 * Messages are non-blocking sends and receives of bytes, cut into chunks: the next chunk of a
 * message starts when the previous one is done. The tag is the number of the message between its
 * two ranks, which separates the chunks of several open requests.
 */
#include "comm_mpi.h"

#include <sched.h>

enum {
    CHUNK = 1 << 26, /* bytes; MPI counts with an int */
    TAGS = 1 << 15,  /* tags that every MPI supports */
    SPINS = 200,     /* polls before the processor is yielded: about 50 us */
};

/* An error ends the message; check_result returns it. */
static void start_chunk(const tess__comm_mpi *self, tess__message *m, int sends)
{
    tess__mpi_transfer *f = tess__mpi_transfer_of(self, m);
    const int tag = (int)(m->number % TAGS);
    char *data = m->data + f->begun;
    f->chunk = f->got = m->bytes - f->begun < CHUNK ? (int)(m->bytes - f->begun) : CHUNK;
    f->begun += f->chunk;
    f->code = sends ? MPI_Isend(data, f->chunk, MPI_BYTE, m->peer, tag, self->mpi, &f->handle)
                    : MPI_Irecv(data, f->chunk, MPI_BYTE, m->peer, tag, self->mpi, &f->handle);
    m->done = f->code != MPI_SUCCESS;
}

static tess_status check_result(const tess__comm_mpi *self, const tess__message *m)
{
    const tess__mpi_transfer *f = tess__mpi_transfer_of(self, m);
    int kind = MPI_SUCCESS;
    if (f->code != MPI_SUCCESS)
        MPI_Error_class(f->code, &kind);
    if (kind == MPI_ERR_TRUNCATE)
        return tess__fail(TESS_EINVAL, "rank %d sent more bytes than the %lld that rank %d expects",
                          m->peer, (long long)m->bytes, self->comm.rank);
    if (f->code != MPI_SUCCESS)
        return tess__mpi_error("a message", f->code);
    if (f->got != f->chunk)
        return tess__fail(TESS_EINVAL, "rank %d sent %lld bytes where rank %d expects %lld",
                          m->peer, (long long)f->begun - f->chunk + f->got, self->comm.rank,
                          (long long)m->bytes);
    return TESS_OK;
}

tess_status tess__mpi_send(tess_comm *comm, tess__message *m)
{
    const tess__comm_mpi *self = (const tess__comm_mpi *)comm;
    *tess__mpi_transfer_of(self, m) = (tess__mpi_transfer){.handle = MPI_REQUEST_NULL};
    start_chunk(self, m, 1);
    return check_result(self, m);
}

tess_status tess__mpi_receive(tess_comm *comm, tess__message *m)
{
    const tess__comm_mpi *self = (const tess__comm_mpi *)comm;
    *tess__mpi_transfer_of(self, m) = (tess__mpi_transfer){.handle = MPI_REQUEST_NULL};
    start_chunk(self, m, 0);
    return check_result(self, m);
}

static void advance(const tess__comm_mpi *self, tess__message *m, int sends)
{
    tess__mpi_transfer *f = tess__mpi_transfer_of(self, m);
    MPI_Status status;
    int arrived = 0;
    f->code = MPI_Test(&f->handle, &arrived, &status);
    if (f->code == MPI_SUCCESS && !arrived)
        return;
    if (f->code == MPI_SUCCESS && !sends)
        MPI_Get_count(&status, MPI_BYTE, &f->got);
    m->done = 1;
    if (f->code == MPI_SUCCESS && f->got == f->chunk && f->begun < m->bytes)
        start_chunk(self, m, sends);
}

/* Advances a request; returns the number of its messages that are not done. */
static int advance_request(const tess__comm_mpi *self, tess_request *r)
{
    int open = 0;
    for (int i = 0; i < r->n_receives + r->n_sends; i++) {
        tess__message *m = tess__mpi_message(r, i);
        if (!m->done)
            advance(self, m, i >= r->n_receives);
        open += !m->done;
    }
    return open;
}

/* Advances the chunks of all requests: another rank may wait for any of them. */
static void advance_all(const tess__mpi_world *world)
{
    for (tess__comm_mpi *c = world->comms; c; c = c->next)
        for (int i = 0; i < TESS_COMM_OPEN; i++)
            if (c->comm.requests[i].open)
                advance_request(c, &c->comm.requests[i]);
}

/* ---- waiting --------------------------------------------------------------------------------- */

tess_status tess__mpi_progress(tess_comm *comm)
{
    tess__mpi_world *world = ((const tess__comm_mpi *)comm)->world;
    TESS_TRY(tess__mpi_check_failure(world));
    advance_all(world);
    return TESS_OK;
}

tess_status tess__mpi_finish(tess_comm *comm, tess_request *request)
{
    const tess__comm_mpi *self = (const tess__comm_mpi *)comm;
    int64_t begun = 0;
    for (int polls = 0; advance_request(self, request) > 0; polls++) {
        TESS_TRY(tess__mpi_check_failure(self->world));
        advance_all(self->world);
        if (polls < SPINS)
            continue;
        begun = begun ? begun : tess_clock_ns();
        TESS_TRY(tess__mpi_check_silence(self->world, begun));
        sched_yield();
    }
    for (int i = 0; i < request->n_receives + request->n_sends; i++)
        TESS_TRY(check_result(self, tess__mpi_message(request, i)));
    return TESS_OK;
}
