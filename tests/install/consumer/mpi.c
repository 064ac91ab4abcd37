/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - uses libtessera_mpi. */
#include <stdio.h>
#include <tessera/mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    tess_ctx *ctx = NULL;
    tess_comm *comm = NULL;
    int failed = tess_ctx_create(NULL, &ctx) != TESS_OK ||
                 tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm) != TESS_OK ||
                 tess_comm_agree(comm, TESS_OK) != TESS_OK;
    if (failed)
        fprintf(stderr, "%s\n", tess_last_error());
    else
        printf("use_mpi: tessera %s\n", tess_version());
    tess_comm_destroy(comm);
    tess_ctx_destroy(ctx);
    MPI_Finalize();
    return failed;
}
