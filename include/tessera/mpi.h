/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - communicators over MPI. Link with libtessera_mpi. */
#ifndef TESSERA_MPI_H
#define TESSERA_MPI_H

#include "comm.h"

#include <mpi.h>

TESS_BEGIN_DECLS

/* Collective over mpi, which is duplicated: the caller may free or use it at will. MPI must be
 * initialised, and not finalised before the communicator is destroyed. MPI errors on the duplicate
 * are returned as EIO, never fatal. */
TESS_API tess_status tess_comm_from_mpi(tess_ctx *ctx, MPI_Comm mpi, tess_comm **comm);

TESS_END_DECLS

#endif
