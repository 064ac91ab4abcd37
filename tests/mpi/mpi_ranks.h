/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_ranks.h - the main of a test under mpirun: who this rank is, and whether all ranks came. */
#ifndef TESS_TEST_MPI_RANKS_H
#define TESS_TEST_MPI_RANKS_H

#include "tessera/mpi.h"

#include <stdio.h>
#include <stdlib.h>

static int rank, size;

/* The program's argument is the number of ranks that the launcher was to start. */
static void start_ranks(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && atoi(argv[1]) != size) {
        fprintf(stderr, "%d ranks, expected %s: is this the launcher of another MPI?\n", size,
                argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

#endif
