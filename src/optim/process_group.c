/* SPDX-License-Identifier: Apache-2.0 */
/* process_group.c - the ranks of a run: their groups, what they agree on, and how they leave together.
 *
 * Cost: one communicator of the ranks of a group besides the world's (comm.c says what it holds).
 * An agreement is 4 bytes to every rank and one latency, a sum what comm_sum.c says; to compare n
 * bytes is rank 0's n to every rank and three latencies. A run alone has no communicator, and pays
 * for none of them.
 */
#include "process_group.h"

#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

tess_status tess__team_place(const char *who, const tess_train_opts *opts, tess__team *team)
{
    tess_comm_info info = {.rank = 0, .size = 1};
    if (opts->comm)
        TESS_TRY(tess_comm_query(opts->comm, &info));
    const int context = opts->ranks_context ? opts->ranks_context : info.size;
    if (context < 1 || info.size % context != 0)
        return tess__fail(TESS_EINVAL, "%s: ranks_context is %d, must divide the %d ranks", who,
                          context, info.size);
    const int groups = info.size / context;
    if (opts->batch % groups != 0)
        return tess__fail(TESS_EINVAL,
                          "%s: batch is %d, must be a multiple of the %d groups of ranks that "
                          "share it",
                          who, opts->batch, groups);
    *team = (tess__team){.rank = info.rank,
                         .size = info.size,
                         .groups = groups,
                         .group = info.rank / context,
                         .ranks_context = context,
                         .place = info.rank % context};
    return TESS_OK;
}

tess_status tess__team_open(const char *who, const tess_train_opts *opts, tess__team *team)
{
    tess__team made;
    tess_comm *across = NULL;
    TESS_TRY(tess__team_place(who, opts, &made));
    if (made.size > 1) {
        made.world = opts->comm;
        TESS_TRY(tess_comm_grid(made.world, made.ranks_context, &made.context, &across));
        tess_comm_destroy(across);
    }
    if (made.ranks_context == 1) {
        tess_comm_destroy(made.context);
        made.context = NULL;
    }
    *team = made;
    return TESS_OK;
}

void tess__team_close(tess__team *team)
{
    tess_comm_destroy(team->context);
    team->context = NULL;
}

/* ---- agreement ------------------------------------------------------------------------------- */

tess_status tess__team_agree(tess__team *team, tess_status mine)
{
    if (!team->world)
        return mine;
    const tess_status agreed = tess_comm_agree(team->world, mine);
    team->known |= agreed != TESS_OK;
    return agreed;
}

tess_status tess__team_leave(tess__team *team, tess_status status)
{
    const int known = team->known;
    team->known = 0;
    if (status == TESS_OK || known || !team->world)
        return status;
    return tess_comm_fail(team->world, status);
}

tess_status tess__team_same(tess__team *team, const char *what, const void *data, size_t bytes)
{
    if (!team->world)
        return TESS_OK;
    const tess_status status = tess_comm_same(team->world, what, data, bytes);
    team->known |= status != TESS_OK;
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------ */

tess_status tess__team_sum(const tess__team *team, double *values, int64_t n)
{
    return team->world ? tess_comm_sum_f64(team->world, TESS_TRAFFIC_CONTROL, values, n) : TESS_OK;
}

tess_status tess__team_sum_once(const tess__team *team, double *values, int64_t n)
{
    if (team->place > 0)
        memset(values, 0, (size_t)n * sizeof *values);
    return tess__team_sum(team, values, n);
}

/* ---- time and counts ------------------------------------------------------------------------- */

int64_t tess__team_clock(const tess__team *team)
{
    return team && team->world ? tess_comm_clock(team->world) : tess_clock_ns();
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
