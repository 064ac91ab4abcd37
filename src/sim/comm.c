/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - the time of a collective among ranks of the layout.
 *
 * Ranks are numbered tensor parallel first, then context, data and pipeline parallel. A group of n
 * ranks that lie `stride` apart has min(n, node_gpus / stride) members in a node.
 */
#include "sim.h"

#include <math.h>

static double ring_seconds(const tess_sim *sim, double bytes, double n, double members)
{
    const tess_cluster_info *c = sim->cluster;
    const double link = c->link_bandwidth * c->link_efficiency;
    double rate = link, hop = (double)c->link_latency * 1e-9;
    if (members < n) {
        const double nic =
            c->nic_bandwidth * c->network_efficiency / c->oversubscription * c->nics / c->node_gpus;
        rate = fmin(link, nic * members);
        hop = (double)c->network_latency * 1e-9;
    }
    return (n - 1.0) / n * bytes / rate + hop * (n > members ? ceil(n / members) : n - 1.0);
}

double tess__comm_seconds(const tess_sim *sim, int what, double bytes, int n, int stride)
{
    const tess_cluster_info *c = sim->cluster;
    if (n < 2)
        return 0.0;
    const double launch = (double)c->launch * 1e-9;
    double members = floor((double)c->node_gpus / stride);
    members = members < 1.0 ? 1.0 : fmin(members, n);
    const double once = ring_seconds(sim, bytes, n, members);
    switch (what) {
    case TESS__ALL_REDUCE: return launch + 2.0 * once;
    case TESS__SEND: return launch + 2.0 * ring_seconds(sim, bytes, 2.0, members < 2.0 ? 1.0 : 2.0);
    case TESS__ALL_TO_ALL:
        if (members < n) {
            const double nic = c->nic_bandwidth * c->network_efficiency / c->oversubscription *
                               c->nics / c->node_gpus;
            return launch + (n - members) / n * bytes / nic + (double)c->network_latency * 1e-9;
        }
        return launch + once;
    default: return launch + once;
    }
}
