/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - the ranks that split weights, gradients and optimiser, and those that hold copies.
 *
 * n ranks hold the same weights: dp cp of them tp apart, of experts tp cp dp / (ep etp) of them
 * ep etp apart. Without replicas they split the state among all of them. With r replicas (HSDP)
 * n / r neighbours do,
 *
 *   rank  0 1 2 3 | 4 5 6 7     n = 8, r = 2: shards of 4 ranks, pairs {0, 4}, {1, 5}, ...
 *
 * so that what is gathered and scattered stays among neighbours, and gradients are added up over r
 * ranks that are n / r times as far apart.
 */
#include "sim/sim_internal.h"

tess__shard_ranks tess__shard_group(const tess_sim *sim, int which, int experts)
{
    const tess_sim_layout *l = &sim->s.layout;
    const int stride = experts ? l->ep * l->etp : l->tp;
    const int all = experts ? (int)((int64_t)l->tp * l->cp * l->dp / stride) : l->dp * l->cp;
    const int shard = all / l->replicas;
    switch (which) {
    case TESS__SHARD: return (tess__shard_ranks){shard, stride};
    case TESS__REPLICAS: return (tess__shard_ranks){l->replicas, stride * shard};
    default: return (tess__shard_ranks){all, stride};
    }
}
