/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - a mixture of experts: routing, exchange of tokens, grouped products.
 *
 * A rank has experts / ep experts. Each of its rows goes to top_k experts: it is copied (permute),
 * sent to the ranks of its experts (all-to-all), multiplied there in groups, sent back and summed
 * with its weights (unpermute). Routing is taken as even; `capacity` is the busiest rank's load
 * over the mean. The shared expert is an MLP of all rows.
 *
 * With ep_nodes N a token's experts lie on at most N of the G nodes of a group (DeepSeek).
 * It travels to each of them once, to the rank of its own place, which passes it on in the node. Of
 * N nodes k experts that are drawn evenly are on N (1 - (1 - 1/N)^k). Both ways run at a time, and
 * the longer is waited for.
 */
#include "sim_internal.h"

#include <math.h>

/* here: ranks of the group in a node. */
static void exchange_by_node(tess_sim *sim, const char *name, int pass, double rows, int here)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double share = sim->era[TESS__ERA_EP_EXPOSED], k = sim->s.model.top_k;
    const int nodes = l->ep / here;
    const double most = TESS_MIN(l->ep_nodes, nodes);
    const double copies = most * (1.0 - pow(1.0 - 1.0 / most, k));
    const double bytes = sim->element * sim->s.model.hidden * rows;
    tess__op *far = tess__add_comm(sim, name, pass, TESS__EP, TESS_ALL_TO_ALL, bytes * copies / k,
                                   nodes, here * l->etp, share);
    if (here < 2)
        return;
    tess__op *near = tess__add_comm(sim, name[0] == 'd' ? "dispatch in node" : "combine in node",
                                    pass, TESS__EP, TESS_ALL_TO_ALL, bytes, here, l->etp, share);
    tess__op *shorter = far->seconds < near->seconds ? far : near;
    shorter->hidden += shorter->seconds;
    shorter->seconds = 0.0;
}

static void exchange(tess_sim *sim, const char *name, double rows)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double bytes = sim->element * rows * sim->s.model.hidden;
    const double share = sim->era[TESS__ERA_EP_EXPOSED];
    const int here = TESS_MIN(l->ep, TESS_MAX(sim->cluster->node_gpus / l->etp, 1));
    const int by_node = l->ep_nodes && l->ep > here && l->ep % here == 0;
    for (int pass = TESS__FORWARD; pass <= TESS__BACKWARD; pass++) {
        if (by_node)
            exchange_by_node(sim, name, pass, rows, here);
        else if (l->ep > 1)
            tess__add_comm(sim, name, pass, TESS__EP, TESS_ALL_TO_ALL, bytes, l->ep, l->etp, share);
        if (l->etp > 1)
            tess__add_comm(sim, name, pass, TESS__EP,
                           (pass == TESS__FORWARD) == (name[0] == 'd') ? TESS_ALL_GATHER
                                                                       : TESS_REDUCE_SCATTER,
                           bytes * l->etp, l->etp, 1, share);
    }
}

static void permute(tess_sim *sim, const char *name, double rows)
{
    const tess_sim_model *m = &sim->s.model;
    const double bytes = sim->element * m->hidden * (sim->rows + rows);
    tess__add_memory(sim, name, TESS__FORWARD, bytes);
    tess__add_memory(sim, name, TESS__BACKWARD, bytes);
}

void tess__expert_ops(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_layout *l = &sim->s.layout;
    const double e = sim->element, local = (double)m->experts / l->ep;
    /* Without sequence parallelism tp ranks hold the same rows, and route their share of them. */
    const double own = sim->tokens / l->tp, sent = own * m->top_k;
    const double rows = sent * l->etp * m->capacity;
    const double input = e * sim->rows * m->hidden;
    tess__model_part *part = &sim->parts[sim->part];

    tess__op *router =
        tess__add_gemm(sim, "router", TESS__FORWARD, 1, own, m->experts, m->hidden, TESS_SIM_BF16);
    router->saved = input;
    router->freed = TESS_SIM_AGAIN_NORM;
    tess__add_gemm(sim, "router", TESS__BACKWARD, 1, own, m->hidden, m->experts, TESS_SIM_BF16);
    if (!sim->s.training.lora)
        tess__add_gemm(sim, "router", TESS__WEIGHT, 1, m->experts, m->hidden, own, TESS_SIM_BF16);
    tess__add_memory(sim, "choose experts", TESS__FORWARD, 16.0 * own * m->experts)->saved =
        8.0 * own * m->experts;
    tess__add_weights(sim, (double)m->experts * m->hidden);
    permute(sim, "permute", sent);
    exchange(sim, "dispatch", sent);
    const double before = part->weights, trained_before = part->trained;
    tess__mlp_ops(sim, local, rows / local, (double)m->expert_ffn / l->etp, e * rows * m->hidden);
    part->expert_weights = part->weights - before;
    part->expert_trained = part->trained - trained_before;
    exchange(sim, "combine", sent);
    permute(sim, "unpermute", sent);
    const int first = sim->n_ops;
    if (m->shared_ffn)
        tess__mlp_ops(sim, 1.0, sim->tokens, (double)m->shared_ffn / l->tp, 0.0);
    tess__mark_again(sim, first, TESS_SIM_AGAIN_MLP, 1);
}
