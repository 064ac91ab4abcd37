/* SPDX-License-Identifier: Apache-2.0 */
/* control_clusters.c - clusters of keys that all clips share: renewed every few steps, stored.
 *
 * What is stored is centroids, 4 C head_dim bytes for each head of a layer, and not labels: keys of
 * a token are others in every clip and step, so that labels would be of no use in the next one. A
 * layer with sparse heads renews its centroids in the first pass of step number 1, 1 + N, 1 + 2 N,
 * ... and in the first step in which it is sparse, from the keys of that pass. On many ranks each
 * data-parallel group renews them from its own clips, and after the step all ranks have those of
 * rank 0, so that the checkpoint, which has these, resumes to the same bits.
 */
#include "control.h"

#include "tessera/advanced/collectives.h"

#include <string.h>

int64_t tess__clusters_count(const tess_attention_opts *o, const tess_model_config *m)
{
    return o->compensate > 1 && o->cluster_every > 0
               ? (int64_t)m->layers * m->heads * o->compensate * m->head_dim
               : 0;
}

tess_status tess__control_clusters(tess__control *c)
{
    const int64_t n = tess__clusters_count(&c->attention, &c->config);
    const size_t layers = (size_t)c->config.layers;
    if (n == 0)
        return TESS_OK;
    c->clusters.centroids = TESS_TAKE_ZERO(&c->arena, (size_t)n * sizeof(float));
    c->clusters.found = TESS_TAKE_ZERO(&c->arena, layers * sizeof *c->clusters.found);
    return TESS_OK;
}

int tess__clusters_due(const tess__control *c, int layer)
{
    const tess__shared_clusters *s = &c->clusters;
    return s->centroids && c->opts.train &&
           ((c->step - 1) % c->attention.cluster_every == 0 || s->found[layer] == 0);
}

tess_status tess__clusters_renewed(tess__control *c)
{
    const tess__process_group *pg = c->opts.pg;
    int any = 0;
    for (int layer = 0; c->clusters.centroids && layer < c->config.layers; layer++)
        if (c->table.renew[layer]) {
            c->clusters.found[layer] = c->step;
            any = 1;
        }
    if (!any || !pg || pg->dp_size <= 1)
        return TESS_OK;
    const int64_t n = tess__clusters_count(&c->attention, &c->config);
    return tess_comm_broadcast(pg->world, TESS_TRAFFIC_PAYLOAD, 0, c->clusters.centroids,
                               n * (int64_t)sizeof(float));
}
