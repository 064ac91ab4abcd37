/* SPDX-License-Identifier: Apache-2.0 */
/* stage_layers.c - which layers a stage of the pipeline has.
 *
 * As the scenario says, or evenly. Software that splits by cost counts the LM head as so many
 * layers as its product has weights of one layer that a token meets.
 */
#include "sim/sim_internal.h"

#include <math.h>

/* Weights of a layer that a token meets. */
static double layer_weights(const tess_sim_model *m)
{
    const double h = m->hidden, heads = m->heads, gate = m->gated ? 3.0 : 2.0;
    const double mlp = m->experts ? (double)m->top_k * (double)m->expert_ffn + (double)m->shared_ffn
                                  : (double)m->ffn;
    const double attention =
        m->kv_rank
            ? m->q_rank * (h + heads * m->head_dim) + h * (m->kv_rank + m->rope_dim) +
                  m->kv_rank * heads * (m->nope_dim + m->value_dim) + h * heads * m->value_dim
            : h * (2.0 * heads * m->head_dim + 2.0 * m->kv_heads * m->head_dim);
    return attention + gate * h * mlp;
}

int tess__first_kind(const tess_sim_model *m)
{
    return m->experts ? m->dense_layers : m->double_layers ? m->double_layers : m->layers;
}

/* Layers of the last stage, so that with LM head and further predictions it has its share. */
static int balanced_last(const tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const double p = sim->s.layout.pp, more = m->predict_layers;
    const double head = (1.0 + more) * (double)m->vocab * m->hidden / layer_weights(m) + more;
    const double last = floor((m->layers + head) / p - head + 0.5);
    return (int)fmin(fmax(last, 1.0), m->layers - (p - 1.0));
}

void tess__split_layers(tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const tess_sim_model *m = &sim->s.model;
    const int p = l->pp, outer = l->outer_layers;
    const int last_layers = p > 1 && !l->last_layers && sim->era[TESS__ERA_PP_BALANCE] > 0.5
                                ? balanced_last(sim)
                                : l->last_layers;
    int fixed_stages = 0, fixed = 0, first = 0;
    if (p > 1 && l->first_layers) {
        fixed += l->first_layers;
        fixed_stages++;
    }
    if (p > 1 && last_layers) {
        fixed += last_layers;
        fixed_stages++;
    }
    const int rest = m->layers - fixed + 2 * outer, stages = p - fixed_stages;
    for (int i = 0, k = 0; i < p; i++) {
        int n;
        if (p > 1 && i == 0 && l->first_layers) {
            n = l->first_layers;
        } else if (p > 1 && i == p - 1 && last_layers) {
            n = last_layers;
        } else {
            n = rest / stages + (k < rest % stages);
            k++;
            n -= outer * ((i == 0) + (i == p - 1));
        }
        const int plain = tess__first_kind(m) - first;
        sim->layers[i] = plain < 0 ? 0 : plain > n ? n : plain;
        sim->later[i] = n - sim->layers[i];
        first += n;
    }
}
