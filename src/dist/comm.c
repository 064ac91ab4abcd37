/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - the public calls on a communicator, and the one whose only rank is alone. */
#include "dist.h"

#include <string.h>

static tess_status self_agree(tess_comm *comm, tess_status mine, char sentence[TESS_SENTENCE_MAX])
{
    (void)comm;
    (void)sentence;
    return mine;
}

static void self_destroy(tess_comm *comm)
{
    (void)comm;
}

static const tess__comm_ops self_ops = {"self", self_agree, self_destroy};

tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm)
{
    if (!ctx || !comm)
        return tess__fail(TESS_EINVAL, "tess_comm_self: %s is NULL", ctx ? "comm" : "ctx");
    tess_comm *made = tess__alloc(ctx, sizeof *made);
    if (!made)
        return TESS_ENOMEM;
    *made = (tess_comm){.ctx = ctx, .ops = &self_ops, .rank = 0, .size = 1};
    *comm = made;
    return TESS_OK;
}

tess_status tess_comm_query(const tess_comm *comm, tess_comm_info *info)
{
    if (!comm || !info)
        return tess__fail(TESS_EINVAL, "tess_comm_query: %s is NULL", comm ? "info" : "comm");
    *info = (tess_comm_info){.kind = comm->ops->kind, .rank = comm->rank, .size = comm->size};
    return TESS_OK;
}

tess_status tess_comm_agree(tess_comm *comm, tess_status mine)
{
    if (!comm)
        return tess__fail(TESS_EINVAL, "tess_comm_agree: comm is NULL");
    char sentence[TESS_SENTENCE_MAX] = "";
    if (mine != TESS_OK)
        strncpy(sentence, tess_last_error(), sizeof sentence - 1);
    const tess_status agreed = comm->ops->agree(comm, mine, sentence);
    return agreed == TESS_OK ? TESS_OK : tess__fail(agreed, "%s", sentence);
}

void tess_comm_destroy(tess_comm *comm)
{
    if (!comm)
        return;
    comm->ops->destroy(comm);
    tess__free(comm->ctx, comm);
}
