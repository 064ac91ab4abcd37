/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.c - communicators over MPI: creation, sub-communicators, destruction. */
#include "comm_mpi.h"

enum { EAGER = 2048 }; /* bytes that every MPI sends eagerly, without a rendezvous */

tess_status tess__mpi_error(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tess__fail(TESS_EIO, "%s failed: %s", what, text);
}

static int64_t mpi_clock(const tess_comm *comm)
{
    (void)comm;
    return tess_clock_ns();
}

static int64_t mpi_new_tag(tess_comm *comm)
{
    (void)comm;
    return 0; /* MPI distinguishes communicators itself */
}

/* After a failure: receives and discards messages that arrived, about which some MPIs complain when
 * they are finalised. Messages that have not arrived completely are left, for their sender may be
 * gone. */
static void drain(MPI_Comm mpi)
{
    MPI_Status status;
    int there = 0, bytes = 0;
    char discarded[EAGER];
    while (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi, &there, &status) == MPI_SUCCESS && there &&
           MPI_Get_count(&status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes <= EAGER)
        MPI_Recv(discarded, EAGER, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, mpi,
                 MPI_STATUS_IGNORE);
}

static void mpi_destroy(tess_comm *comm)
{
    tess__comm_mpi *self = (tess__comm_mpi *)comm;
    tess__comm_mpi **at = &self->world->comms;
    tess__mpi_abandon(self);
    if (self->world->failed)
        drain(self->mpi);
    if (self->is_world)
        drain(self->world->notices);
    while (*at != self)
        at = &(*at)->next;
    *at = self->next;
    /* After a failure messages may still arrive, and MPI would deliver them to the next
     * communicator with the same context id: this one is not freed, so that its id is not reused.
     * */
    if (!self->world->failed)
        MPI_Comm_free(&self->mpi);
    if (self->is_world && !self->world->failed)
        MPI_Comm_free(&self->world->notices);
    if (self->is_world) {
        tess__free(comm->ctx, self->world->peers);
        tess__free(comm->ctx, self->world);
    }
}

static tess_status mpi_subgroup(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                                tess_comm **sub);

static const tess__comm_ops mpi_ops = {
    .kind = "mpi",
    .send = tess__mpi_send,
    .receive = tess__mpi_receive,
    .finish = tess__mpi_finish,
    .progress = tess__mpi_progress,
    .fail = tess__mpi_fail,
    .watch = tess__mpi_watch,
    .clock = mpi_clock,
    .new_tag = mpi_new_tag,
    .subgroup = mpi_subgroup,
    .destroy = mpi_destroy,
};

/* A communicator without its world and MPI communicator. */
static tess__comm_mpi *make(tess_ctx *ctx, int rank, int size)
{
    tess__comm_mpi *made =
        (tess__comm_mpi *)tess__comm_make(ctx, &mpi_ops, sizeof *made, rank, size);
    if (!made)
        return NULL;
    const size_t transfers = TESS_COMM_OPEN * 2 * ((size_t)size - 1) * sizeof *made->transfers;
    made->transfers = tess__arena_take(&made->comm.arena, transfers);
    made->world_ranks =
        tess__arena_take(&made->comm.arena, (size_t)size * sizeof *made->world_ranks);
    if (made->transfers && made->world_ranks)
        return made;
    tess__comm_free(&made->comm);
    return NULL;
}

static void join(tess__comm_mpi *made, tess__mpi_world *world, MPI_Comm mpi)
{
    made->world = world;
    made->mpi = mpi;
    made->next = world->comms;
    world->comms = made;
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
}

static tess_status mpi_subgroup(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                                tess_comm **sub)
{
    const tess__comm_mpi *self = (const tess__comm_mpi *)comm;
    MPI_Comm mpi = MPI_COMM_NULL;
    (void)tag;
    *sub = NULL;
    const int code = MPI_Comm_split(self->mpi, n > 0 ? order[0] : MPI_UNDEFINED, rank, &mpi);
    if (code != MPI_SUCCESS)
        return tess__mpi_error("MPI_Comm_split", code);
    if (n == 0)
        return TESS_OK;
    tess__comm_mpi *made = make(comm->ctx, rank, n);
    if (!made) {
        MPI_Comm_free(&mpi);
        return TESS_ENOMEM;
    }
    for (int i = 0; i < n; i++)
        made->world_ranks[i] = self->world_ranks[order[i]];
    join(made, self->world, mpi);
    *sub = &made->comm;
    return TESS_OK;
}

/* Nodes are numbered by their lowest ranks: a node's number is how many lowest ranks are below. */
static int find_node(tess_comm *comm, MPI_Comm mpi)
{
    MPI_Comm node;
    int local = 0, first, number = 0;
    int code = MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &node);
    if (code != MPI_SUCCESS)
        return code;
    MPI_Comm_rank(node, &local);
    first = local == 0;
    if ((code = MPI_Allreduce(&first, &comm->nodes, 1, MPI_INT, MPI_SUM, mpi)) == MPI_SUCCESS &&
        (code = MPI_Scan(&first, &number, 1, MPI_INT, MPI_SUM, mpi)) == MPI_SUCCESS &&
        (code = MPI_Bcast(&number, 1, MPI_INT, 0, node)) == MPI_SUCCESS)
        comm->node = number - 1;
    MPI_Comm_free(&node);
    return code;
}

/* A duplicate inherits the error handler, which may abort the process: ours returns errors from its
 * first call on. */
static int duplicate(MPI_Comm mpi, MPI_Comm *made)
{
    const int code = MPI_Comm_dup(mpi, made);
    return code == MPI_SUCCESS ? MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN) : code;
}

/* Makes the world: two duplicates of mpi, and the node of each rank. On failure no MPI object is
 * held. */
static tess_status join_world(tess__comm_mpi *made, tess__mpi_world *world, MPI_Comm mpi)
{
    MPI_Comm own = MPI_COMM_NULL, notices = MPI_COMM_NULL;
    int code = duplicate(mpi, &own);
    if (code == MPI_SUCCESS)
        code = duplicate(mpi, &notices);
    if (code == MPI_SUCCESS)
        code = find_node(&made->comm, own);
    if (code != MPI_SUCCESS) {
        if (own != MPI_COMM_NULL)
            MPI_Comm_free(&own);
        if (notices != MPI_COMM_NULL)
            MPI_Comm_free(&notices);
        return tess__mpi_error("duplicating the MPI communicator", code);
    }
    world->notices = notices;
    world->rank = made->comm.rank;
    world->size = made->comm.size;
    for (int p = 0; p < world->size; p++)
        made->world_ranks[p] = p;
    made->is_world = 1;
    join(made, world, own);
    return TESS_OK;
}

tess_status tess_comm_from_mpi(tess_ctx *ctx, MPI_Comm mpi, tess_comm **comm)
{
    TESS_REQUIRE(ctx, comm);
    int started = 0, ended = 0, rank = 0, size = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended)
        return tess__invalid(__func__, "MPI is not running (MPI_Init comes first)");
    if (mpi == MPI_COMM_NULL)
        return tess__invalid(__func__, "mpi is MPI_COMM_NULL");
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);

    tess__comm_mpi *made = make(ctx, rank, size);
    tess__mpi_world *world = tess__alloc_zero(ctx, sizeof *world + (size_t)size);
    /* Collective: a rank without memory takes part, and all ranks return the failure together. */
    int missing = !made || !world, anyone = 0;
    const int code = MPI_Allreduce(&missing, &anyone, 1, MPI_INT, MPI_MAX, mpi);
    tess_status status = TESS_OK;
    if (code != MPI_SUCCESS)
        status = tess__mpi_error("MPI_Allreduce", code);
    else if (anyone)
        status = tess__fail(TESS_ENOMEM, "a rank has no memory for a communicator");
    else
        status = join_world(made, world, mpi);
    if (status != TESS_OK) {
        tess__free(ctx, world);
        tess__comm_free((tess_comm *)made);
        return status;
    }
    *comm = &made->comm;
    return TESS_OK;
}
