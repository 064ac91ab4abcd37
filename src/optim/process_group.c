/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.c - the ranks of a run: data- and context-parallel groups, agreement on failures.
 *
 * Cost: one sub-communicator of the context-parallel ranks besides the world. An agreement sends 4
 * bytes to every rank in one latency; a comparison of n bytes sends those of rank 0 to every rank
 * in three latencies; comm_allreduce.c has the cost of sums. One rank alone has no communicator and
 * no such cost.
 */
#include "process_group.h"

#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

tess_status tess__pg_layout(const char *who, const tess_train_opts *opts, int mixed,
                            tess__process_group *pg)
{
    tess_comm_info info = {.rank = 0, .size = 1};
    if (opts->comm)
        TESS_TRY(tess_comm_query(opts->comm, &info));
    const int context = opts->ranks_context ? opts->ranks_context : mixed ? 1 : info.size;
    if (mixed && context > 1)
        return tess__invalid(who, "ranks_context is %d, must be 0 or 1 for clips of several sizes",
                             context);
    if (context < 1 || info.size % context != 0)
        return tess__invalid(who, "ranks_context is %d, must divide the %d ranks", context,
                             info.size);
    const int groups = info.size / context;
    if (!mixed && opts->batch % groups != 0)
        return tess__invalid(who,
                             "batch is %d, must be a multiple of the %d groups of ranks that "
                             "share it",
                             opts->batch, groups);
    *pg = (tess__process_group){.rank = info.rank,
                                .size = info.size,
                                .dp_size = groups,
                                .dp_rank = info.rank / context,
                                .cp_size = context,
                                .cp_rank = info.rank % context};
    return TESS_OK;
}

tess_status tess__pg_open(const char *who, tess_ctx *ctx, const tess_train_opts *opts, int mixed,
                          tess__process_group *pg)
{
    tess__process_group made;
    tess_comm *across = NULL;
    TESS_TRY(tess__pg_layout(who, opts, mixed, &made));
    if (made.size > 1) {
        made.world = opts->comm;
        TESS_TRY(tess_comm_grid(made.world, made.cp_size, &made.cp_comm, &across));
        tess_comm_destroy(across);
    }
    if (made.cp_size == 1) {
        tess_comm_destroy(made.cp_comm);
        made.cp_comm = NULL;
    }
    if (made.cp_size == 1 && opts->exact_ranks)
        TESS_TRY(tess__pg_agree(&made, tess_comm_self(ctx, &made.cp_comm)));
    *pg = made;
    return TESS_OK;
}

void tess__pg_close(tess__process_group *pg)
{
    tess_comm_destroy(pg->cp_comm);
    pg->cp_comm = NULL;
}

/* ---- agreement ------------------------------------------------------------------------------- */

tess_status tess__pg_agree(tess__process_group *pg, tess_status mine)
{
    if (!pg->world)
        return mine;
    const tess_status agreed = tess_comm_agree(pg->world, mine);
    pg->failure_known |= agreed != TESS_OK;
    return agreed;
}

tess_status tess__pg_propagate(tess__process_group *pg, tess_status status)
{
    const int known = pg->failure_known;
    pg->failure_known = 0;
    if (status == TESS_OK || known || !pg->world)
        return status;
    return tess_comm_fail(pg->world, status);
}

tess_status tess__pg_check_same(tess__process_group *pg, const char *what, const void *data,
                                size_t bytes)
{
    if (!pg->world)
        return TESS_OK;
    const tess_status status = tess_comm_check_equal(pg->world, what, data, bytes);
    pg->failure_known |= status != TESS_OK;
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------ */

tess_status tess__pg_allreduce(const tess__process_group *pg, double *values, int64_t n)
{
    return pg->world ? tess_comm_allreduce(pg->world, TESS_TRAFFIC_CONTROL, values, n,
                                           TESS_DTYPE_F64, TESS_REDUCE_SUM)
                     : TESS_OK;
}

tess_status tess__pg_allreduce_groups(const tess__process_group *pg, double *values, int64_t n)
{
    if (pg->cp_rank > 0)
        memset(values, 0, (size_t)n * sizeof *values);
    return tess__pg_allreduce(pg, values, n);
}

/* ---- time and counts ------------------------------------------------------------------------- */

int64_t tess__pg_clock(const tess__process_group *pg)
{
    return pg && pg->world ? tess_comm_clock(pg->world) : tess_clock_ns();
}

void tess__counts_add(const tess_comm *comm, int times, tess_comm_counts *sum)
{
    tess_comm_counts counts;
    if (!comm || tess_comm_counts_read(comm, &counts) != TESS_OK)
        return;
    for (int kind = 0; kind < TESS_TRAFFIC_COUNT; kind++) {
        sum->bytes[kind] += times * counts.bytes[kind];
        sum->messages[kind] += times * counts.messages[kind];
    }
    sum->wait_ns += times * counts.wait_ns;
}
