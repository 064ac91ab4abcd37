/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi_watch.c - ranks that do not answer: stopped, or without a call for long.
 *
 * A rank whose call has waited for ASK_NS sends an empty question to all ranks of the world, on the
 * communicator of the failure notices. A rank answers whenever it polls that communicator: in every
 * call that waits, and in tess_comm_progress. One question to a rank is open at a time; an answered
 * one is repeated after AGAIN_NS. So a rank that waits for a stopped one answers, and the stopped
 * one alone is silent.
 */
#include "comm_mpi.h"

static const int64_t ASK_NS = 1000000000, AGAIN_NS = 1000000000, TICK_NS = 50000000;

static void send_empty(const tess__mpi_world *world, int to, int tag)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    if (MPI_Isend(NULL, 0, MPI_BYTE, to, tag, world->notices, &handle) == MPI_SUCCESS)
        MPI_Request_free(&handle);
}

void tess__mpi_answer(tess__mpi_world *world, int from, int tag)
{
    if (tag == TESS__TAG_QUESTION)
        send_empty(world, from, TESS__TAG_ANSWER);
    if (tag == TESS__TAG_ANSWER && world->peers)
        world->peers[from] = (tess__mpi_peer){.heard = tess_clock_ns()};
}

tess_status tess__mpi_watch(tess_comm *comm, const tess_comm_watch_opts *opts)
{
    tess__mpi_world *world = ((const tess__comm_mpi *)comm)->world;
    if (!world->peers)
        world->peers = TESS_ALLOC_ZERO(comm->ctx, (size_t)world->size * sizeof *world->peers);
    world->watch = *opts;
    if (world->watch.report_ns == 0)
        world->watch.report_ns = 30000000000;
    return TESS_OK;
}

/* How long a question to a rank has been open in a wait that began then; 0: none is. */
static int64_t silence(const tess__mpi_world *world, int p, int64_t begun, int64_t now)
{
    const int64_t asked = world->peers[p].asked;
    return p == world->rank || asked == 0 ? 0 : now - (asked > begun ? asked : begun);
}

/* The lowest rank that answers reports, so that one rank does. */
static void report(tess__mpi_world *world, int p, int64_t begun, int64_t now)
{
    const tess_comm_watch_opts *o = &world->watch;
    const int64_t silent = silence(world, p, begun, now);
    if (!o->report || silent < o->report_ns || world->peers[p].reported)
        return;
    for (int lower = 0; lower < world->rank; lower++)
        if (silence(world, lower, begun, now) < o->report_ns)
            return;
    world->peers[p].reported = 1;
    o->report(o->user, p, silent);
}

tess_status tess__mpi_check_silence(tess__mpi_world *world, int64_t begun)
{
    const int64_t now = tess_clock_ns();
    if (!world->peers || now - begun < ASK_NS || now - world->checked < TICK_NS)
        return TESS_OK;
    world->checked = now;
    for (int p = 0; p < world->size; p++) {
        tess__mpi_peer *peer = &world->peers[p];
        if (p != world->rank && peer->asked == 0 && now - peer->heard >= AGAIN_NS) {
            send_empty(world, p, TESS__TAG_QUESTION);
            peer->asked = now;
        }
    }
    for (int p = 0; p < world->size; p++) {
        const int64_t silent = silence(world, p, begun, now), limit = world->watch.limit_ns;
        report(world, p, begun, now);
        if (limit > 0 && silent >= limit)
            return tess__fail(TESS_EIO,
                              "rank %d has not answered for %lld s, the limit: its process is "
                              "stopped, or its host does not respond, or it computes for longer",
                              p, (long long)(silent / 1000000000));
    }
    return TESS_OK;
}
