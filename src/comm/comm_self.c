/* SPDX-License-Identifier: Apache-2.0 */
/* comm_self.c - a communicator of one rank: no messages, nothing to wait for. */
#include "comm_internal.h"

static tess_status no_message(tess_comm *comm, tess__message *message)
{
    (void)comm;
    (void)message;
    return TESS_OK;
}

static tess_status no_finish(tess_comm *comm, tess_request *request)
{
    (void)comm;
    (void)request;
    return TESS_OK;
}

static tess_status no_progress(tess_comm *comm)
{
    (void)comm;
    return TESS_OK;
}

static void no_fail(tess_comm *comm, tess_status status, const char *sentence)
{
    (void)comm;
    (void)status;
    (void)sentence;
}

static int64_t wall(const tess_comm *comm)
{
    (void)comm;
    return tess_clock_ns();
}

static int64_t no_tag(tess_comm *comm)
{
    (void)comm;
    return 0;
}

static tess_status self_subgroup(tess_comm *comm, const int *order, int n, int rank, int64_t tag,
                                 tess_comm **sub)
{
    (void)order;
    (void)rank;
    (void)tag;
    *sub = NULL;
    return n > 0 ? tess_comm_self(comm->ctx, sub) : TESS_OK;
}

static void no_destroy(tess_comm *comm)
{
    (void)comm;
}

static const tess__comm_ops self_ops = {
    .kind = "self",
    .send = no_message,
    .receive = no_message,
    .finish = no_finish,
    .progress = no_progress,
    .fail = no_fail,
    .clock = wall,
    .new_tag = no_tag,
    .subgroup = self_subgroup,
    .destroy = no_destroy,
};

tess_status tess_comm_self(tess_ctx *ctx, tess_comm **comm)
{
    TESS_REQUIRE(ctx, comm);
    tess_comm *made = TESS_MEMORY(tess__comm_make(ctx, &self_ops, sizeof *made, 0, 1));
    *comm = made;
    return TESS_OK;
}
