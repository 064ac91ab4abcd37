/* SPDX-License-Identifier: Apache-2.0 */
/* single_thread.c - put before an MPI by LD_PRELOAD: one that offers no threads. */
#include <mpi.h>

/* Not every mpi.h makes it visible. */
__attribute__((visibility("default"))) int MPI_Init_thread(int *argc, char ***argv, int required,
                                                           int *provided)
{
    const int status = PMPI_Init_thread(argc, argv, required, provided);
    *provided = MPI_THREAD_SINGLE;
    return status;
}
