/* SPDX-License-Identifier: Apache-2.0 */
/* dist.h (internal) - communicators: what an algorithm over many ranks may ask for.
 *
 * What lives here: the table of operations that each kind of communicator fills in. What comes in:
 * a group of ranks. What goes out: the same answer on each of them.
 */
#ifndef TESS_DIST_H
#define TESS_DIST_H

#include "base/base.h"
#include "tessera/dist.h"

enum { TESS_SENTENCE_MAX = 1024 }; /* bytes of an error sentence as it travels, NUL included */

typedef struct {
    const char *kind;
    /* Writes the status of the lowest failed rank and its sentence; TESS_OK if none failed. */
    tess_status (*agree)(tess_comm *comm, tess_status mine, char sentence[TESS_SENTENCE_MAX]);
    void (*destroy)(tess_comm *comm); /* frees what hangs on comm, not comm itself */
} tess__comm_ops;

/* Embedded first in each kind's own struct. */
struct tess_comm {
    tess_ctx *ctx;
    const tess__comm_ops *ops;
    int rank, size;
};

#endif
