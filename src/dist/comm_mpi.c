/* SPDX-License-Identifier: Apache-2.0 */
/* comm_mpi.c - a communicator over MPI: the only file that includes <mpi.h>.
 *
 * agree: an allreduce finds the lowest rank that failed (MIN over rank, or size if fine); if there
 * is one it broadcasts its status and sentence.
 *   cost: allreduce of 4 bytes, 2 log2(p) alpha; on failure also a broadcast of 1 KiB.
 */
#include "dist.h"
#include "tessera/mpi.h"

typedef struct {
    tess_comm comm;
    MPI_Comm mpi;
} comm_mpi;

static tess_status mpi_fail(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return tess__fail(TESS_EIO, "%s failed: %s", what, text);
}

static tess_status mpi_agree(tess_comm *comm, tess_status mine, char sentence[TESS_SENTENCE_MAX])
{
    const comm_mpi *self = (const comm_mpi *)comm;
    int first = mine == TESS_OK ? comm->size : comm->rank;
    int code = MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, self->mpi);
    if (code != MPI_SUCCESS) {
        snprintf(sentence, TESS_SENTENCE_MAX, "MPI_Allreduce failed with code %d", code);
        return TESS_EIO;
    }
    if (first == comm->size)
        return TESS_OK;
    int status = mine;
    if ((code = MPI_Bcast(&status, 1, MPI_INT, first, self->mpi)) != MPI_SUCCESS ||
        (code = MPI_Bcast(sentence, TESS_SENTENCE_MAX, MPI_CHAR, first, self->mpi)) !=
            MPI_SUCCESS) {
        snprintf(sentence, TESS_SENTENCE_MAX, "MPI_Bcast failed with code %d", code);
        return TESS_EIO;
    }
    return (tess_status)status;
}

static void mpi_destroy(tess_comm *comm)
{
    comm_mpi *self = (comm_mpi *)comm;
    MPI_Comm_free(&self->mpi);
}

static const tess__comm_ops mpi_ops = {"mpi", mpi_agree, mpi_destroy};

tess_status tess_comm_from_mpi(tess_ctx *ctx, MPI_Comm mpi, tess_comm **comm)
{
    if (!ctx || !comm)
        return tess__fail(TESS_EINVAL, "tess_comm_from_mpi: %s is NULL", ctx ? "comm" : "ctx");
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended)
        return tess__fail(TESS_EINVAL,
                          "tess_comm_from_mpi: MPI is not running (MPI_Init comes first)");
    if (mpi == MPI_COMM_NULL)
        return tess__fail(TESS_EINVAL, "tess_comm_from_mpi: mpi is MPI_COMM_NULL");

    comm_mpi *made = tess__alloc(ctx, sizeof *made);
    /* Collective: whoever lacks memory takes part, and then all leave together. */
    int missing = !made, anyone = 0;
    int code = MPI_Allreduce(&missing, &anyone, 1, MPI_INT, MPI_MAX, mpi);
    if (code != MPI_SUCCESS || anyone) {
        tess__free(ctx, made);
        return code != MPI_SUCCESS
                   ? mpi_fail("MPI_Allreduce", code)
                   : tess__fail(TESS_ENOMEM, "a rank has no memory for a communicator");
    }
    *made = (comm_mpi){.comm = {.ctx = ctx, .ops = &mpi_ops}};
    if ((code = MPI_Comm_dup(mpi, &made->mpi)) != MPI_SUCCESS) {
        tess__free(ctx, made);
        return mpi_fail("MPI_Comm_dup", code);
    }
    MPI_Comm_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
    MPI_Comm_rank(made->mpi, &made->comm.rank);
    MPI_Comm_size(made->mpi, &made->comm.size);
    *comm = &made->comm;
    return TESS_OK;
}
