/* SPDX-License-Identifier: Apache-2.0 */
/* comm_time.c - the time of a collective among ranks of the layout.
 *
 * Ranks are numbered tensor parallel first, then context, data and pipeline parallel. A group of n
 * ranks that lie `stride` apart has min(n, node_gpus / stride) members in a node; cost.h's model of
 * collectives does the rest.
 */
#include "sim_internal.h"

#include <math.h>

/* All groups of a node run at the same time: with fewer adapters than GPUs they share them, which
 * the time of a group that is alone does not know. */
static double crowd(const tess_cluster_info *c, int n, int members)
{
    if (members >= n || c->nics >= c->node_gpus)
        return 1.0;
    const double alone = members < c->nics ? members : c->nics;
    return fmax(alone * c->node_gpus / ((double)members * c->nics), 1.0);
}

double tess__comm_seconds(const tess_sim *sim, tess_collective_op op, double bytes, int n,
                          int stride)
{
    const tess_cluster_info *c = sim->cluster;
    if (n < 2)
        return 0.0;
    const int members = stride > c->node_gpus ? 1 : c->node_gpus / stride;
    const tess_collective work = {.op = op,
                                  .bytes = (int64_t)fmin(bytes, 9007199254740992.0),
                                  .gpus = n,
                                  .per_node = members < n ? members : n};
    tess_collective_result result;
    tess__collective_ns(c, &work, &result);
    return (double)result.ns * 1e-9 * crowd(c, n, TESS_MIN(members, n));
}
