/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - the ranks a launcher started: the only file of the command that calls MPI.
 *
 * MPI is initialised only under a launcher, because it costs more than most commands. Commands run
 * on rank 0; the others wait in world_agree and leave with the same exit code, silently.
 */
#include "cli.h"

#include <stdlib.h>

#ifdef CLI_MPI
#include "tessera/mpi.h"
#endif

int world_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return 0;
}

#ifdef CLI_MPI

static int launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK",
                                        "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return 1;
    return 0;
}

tess_status world_open(cli *c)
{
    tess_comm_info info;
    if (!launched())
        return TESS_OK;
    MPI_Init(NULL, NULL); /* MPI's errors are fatal until there is a communicator of ours */
    const tess_status status = tess_comm_from_mpi(c->ctx, MPI_COMM_WORLD, &c->comm);
    if (status != TESS_OK)
        return status;
    tess_comm_query(c->comm, &info);
    c->rank = info.rank;
    c->ranks = info.size;
    return TESS_OK;
}

tess_status world_agree(cli *c, tess_status status)
{
    if (!c->comm)
        return status;
    status = tess_comm_agree(c->comm, status);
    MPI_Allreduce(MPI_IN_PLACE, &c->code, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return status;
}

/* repeats of there and back, in a buffer that both ranks have. */
static void ping(int rank, char *buffer, int bytes, int repeats)
{
    const int peer = 1 - rank;
    for (int i = 0; i < repeats; i++) {
        if (rank == 0)
            MPI_Send(buffer, bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(buffer, bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    }
}

tess_status world_ping(cli *c, int64_t bytes, int repeats, double *us)
{
    *us = 0.0;
    if (!c->comm || c->ranks < 2)
        return TESS_OK;
    char *buffer = calloc(1, (size_t)bytes);
    int missing = !buffer, anyone = 0;
    MPI_Allreduce(&missing, &anyone, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!anyone && c->rank < 2) {
        ping(c->rank, buffer, (int)bytes, repeats / 10); /* wires and caches awake */
        const double begin = MPI_Wtime();
        ping(c->rank, buffer, (int)bytes, repeats);
        *us = (MPI_Wtime() - begin) * 1e6 / (2.0 * repeats);
    }
    free(buffer);
    return anyone ? out_fail(c, TESS_ENOMEM, "a rank has no memory for messages") : TESS_OK;
}

void world_close(cli *c)
{
    int initialised = 0;
    tess_comm_destroy(c->comm);
    if (launched() && MPI_Initialized(&initialised) == MPI_SUCCESS && initialised)
        MPI_Finalize();
}

#else

tess_status world_open(cli *c)
{
    (void)c;
    return TESS_OK;
}

tess_status world_agree(cli *c, tess_status status)
{
    (void)c;
    return status;
}

tess_status world_ping(cli *c, int64_t bytes, int repeats, double *us)
{
    (void)c;
    (void)bytes;
    (void)repeats;
    *us = 0.0;
    return TESS_OK;
}

void world_close(cli *c)
{
    (void)c;
}

#endif
