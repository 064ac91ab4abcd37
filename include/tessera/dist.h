/* SPDX-License-Identifier: Apache-2.0 */
/* dist.h - many ranks: communicators. (MPI's is made by mpi.h, in libtessera_mpi.)
 *
 * A communicator is a group of ranks that call the same functions in the same order.
 */
#ifndef TESSERA_DIST_H
#define TESSERA_DIST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tess_comm tess_comm;

typedef struct {
    const char *kind; /* "self", "mpi" */
    int rank, size;
} tess_comm_info;

/* One rank that is alone. */
TESS_API tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm);

TESS_API tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info);

/* Collective. Every rank gets the status and the sentence of the lowest rank that failed, or
 * TESS_OK if none did: nobody leaves while another waits. */
TESS_API tess_status tess_comm_agree(tess_comm *comm, tess_status mine);

TESS_API void tess_comm_destroy(tess_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
