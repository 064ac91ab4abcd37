/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - gradients, gathered weights and the optimiser: what a step has beside its passes.
 *
 * Data parallelism adds gradients up over dp cp ranks (experts: over the ranks that hold the same
 * ones): an all-reduce, or with a split optimiser a reduce-scatter of gradients and an all-gather
 * of weights. They hide behind the backward pass of the last micro-batch and the forward pass of
 * the first one as far as the era overlaps them. With weights split too (ZeRO-3, FSDP) every layer
 * gathers its weights before each pass and scatters its gradients after, for every micro-batch.
 * With replicas (HSDP) that is among the ranks of one replica, and the scattered gradients are
 * added up among replicas, by the same rule of overlap.
 */
#include "sim_internal.h"

#include <math.h>
#include <string.h>

/* Of the stages of a rank, with the layers of further predictions: how many layers of each kind. */
static void count_layers(const tess_sim *sim, int stage, double n[TESS__PARTS])
{
    const int stages[] = {stage, tess__other_stage(sim, stage)};
    const int kind = sim->s.model.experts ? TESS__LATER : TESS__LAYER;
    memset(n, 0, TESS__PARTS * sizeof *n);
    for (int i = 0; i < (stages[0] == stages[1] ? 1 : 2); i++) {
        const int last = stages[i] == tess__head_stage(sim);
        n[TESS__LAYER] += sim->layers[stages[i]];
        n[TESS__LATER] += sim->later[stages[i]];
        n[TESS__EMBED] += stages[i] == 0;
        n[TESS__HEAD] += last;
        n[kind] += last ? sim->s.model.predict_layers : 0;
    }
}

double tess__stage_weights(const tess_sim *sim, int stage, double *experts)
{
    double counts[TESS__PARTS], n = 0.0;
    count_layers(sim, stage, counts);
    *experts = counts[TESS__LATER] * sim->parts[TESS__LATER].expert_weights;
    for (int i = 0; i < TESS__PARTS; i++)
        n += counts[i] * sim->parts[i].weights;
    return n;
}

double tess__stage_trained(const tess_sim *sim, int stage, double *experts)
{
    double counts[TESS__PARTS], n = 0.0;
    count_layers(sim, stage, counts);
    *experts = counts[TESS__LATER] * sim->parts[TESS__LATER].expert_trained;
    for (int i = 0; i < TESS__PARTS; i++)
        n += counts[i] * sim->parts[i].trained;
    return n;
}

static double hidden_share(const tess_sim *sim, int parameter)
{
    const double era = sim->era[parameter];
    const int overlap = sim->s.training.overlap_dp;
    return overlap == TESS_SIM_OFF ? 0.0 : overlap == TESS_SIM_ON && era == 0.0 ? 0.9 : era;
}

int tess__overlaps_dp(const tess_sim *sim, int forward)
{
    return hidden_share(sim, forward ? TESS__ERA_DP_FORWARD : TESS__ERA_DP_HIDDEN) > 0.0;
}

static double grad_bytes(const tess_sim *sim)
{
    return sim->s.training.grad_bytes ? sim->s.training.grad_bytes : sim->era[TESS__ERA_GRAD_BYTES];
}

/* Seconds of a collective of `bytes` for each parameter of this rank, experts apart. Among replicas
 * it is of the part that the rank has. */
static double both(tess_sim *sim, const char *name, int pass, tess_collective_op what, int among,
                   double weights, double experts, double bytes)
{
    const double share = sim->era[TESS__ERA_NETWORK_SHARE];
    double seconds = 0.0;
    const double counts[] = {weights - experts, experts};
    for (int i = 0; i < 2; i++) {
        const tess__shard_ranks group = tess__shard_group(sim, among, i);
        const double part = among == TESS__REPLICAS ? tess__shard_group(sim, TESS__SHARD, i).n : 1;
        if (counts[i] <= 0.0 || group.n < 2)
            continue;
        /* Many small collectives pay for their hops each. */
        const double calls = pass == TESS__STEP ? fmax(sim->dp_calls, 1.0) : 1.0;
        tess__op *op =
            tess__add_comm(sim, name, pass, TESS__DP, what, bytes * counts[i] / (part * calls),
                           group.n, group.stride, 1.0);
        const double nodes = (double)group.stride * group.n / sim->cluster->node_gpus;
        op->seconds *= calls;
        if (nodes > 1.0)
            op->seconds *= (1.0 + sim->era[TESS__ERA_NETWORK_LOSS] * log2(nodes)) / share;
        seconds += op->seconds;
    }
    return seconds;
}

/* Seconds to add gradients up: scattered within a replica, then added up among replicas. */
static double scatter(tess_sim *sim, int pass, double weights, double experts)
{
    return both(sim, "scatter gradients", pass, TESS_REDUCE_SCATTER, TESS__SHARD, weights, experts,
                grad_bytes(sim)) +
           both(sim, "reduce over replicas", pass, TESS_ALL_REDUCE, TESS__REPLICAS, weights,
                experts, grad_bytes(sim));
}

/* Lets the operations from `first` on hide behind `room` seconds; returns what is waited for. */
static double hide(tess_sim *sim, int first, double seconds, double room)
{
    const double waited = fmax(seconds - room, 0.0);
    for (int i = first; i < sim->n_ops && seconds > 0.0; i++) {
        tess__op *op = &sim->ops[i];
        const double all = op->seconds;
        op->seconds *= waited / seconds;
        op->hidden = all - op->seconds;
    }
    return waited;
}

/* Passes of one micro-batch behind which gradients travel. Without interleaving all gradients are
 * complete only in the last one. With it the last pp micro-batches pass part by part, and a part's
 * gradients travel while the parts before it are still computed. Weights in front of the first
 * micro-batches are the same, backwards. */
static double window(const tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double group = fmin((double)l->pp, (double)sim->batches);
    return l->vpp > 1 ? (group * (l->vpp - 1) + 1.0) / l->vpp : 1.0;
}

double tess__gradient_seconds(tess_sim *sim, int stage)
{
    const tess_sim_layout *l = &sim->s.layout;
    double experts, waited;
    sim->part = TESS__WHOLE;
    if (l->zero == 3)
        return 0.0;
    sim->dp_calls = sim->era[TESS__ERA_DP_CALLS] * (sim->layers[stage] + sim->later[stage]);
    const double weights = tess__stage_trained(sim, stage, &experts);
    const double behind =
        hidden_share(sim, TESS__ERA_DP_HIDDEN) * sim->backward[stage] * window(sim);
    const double before =
        hidden_share(sim, TESS__ERA_DP_FORWARD) * sim->forward[stage] * window(sim);
    const int split = l->zero > 0 || sim->s.training.distributed_optimizer > 0;
    int first = sim->n_ops;
    const double all = split ? scatter(sim, TESS__STEP, weights, experts)
                             : both(sim, "reduce gradients", TESS__STEP, TESS_ALL_REDUCE,
                                    TESS__SAME_WEIGHTS, weights, experts, grad_bytes(sim));
    waited = hide(sim, first, all, behind);
    if (split) {
        first = sim->n_ops;
        waited += hide(sim, first,
                       both(sim, "gather weights", TESS__STEP, TESS_ALL_GATHER, TESS__SHARD,
                            weights, experts, sim->element),
                       before);
    }
    if (sim->s.model.tied && l->pp > 1 && sim->parts[TESS__EMBED].trained > 0.0) {
        tess__op *op = tess__add_comm(
            sim, "reduce tied embedding", TESS__STEP, TESS__DP, TESS_ALL_REDUCE,
            grad_bytes(sim) * sim->parts[TESS__EMBED].trained, 2, l->tp * l->cp * l->dp, 1.0);
        waited += op->seconds;
    }
    return waited;
}

double tess__optimiser_seconds(tess_sim *sim, int stage)
{
    const tess_sim_layout *l = &sim->s.layout;
    double experts;
    sim->part = TESS__WHOLE;
    const int split = l->zero > 0 || sim->s.training.distributed_optimizer > 0;
    const double over = split ? tess__shard_group(sim, TESS__SHARD, 0).n : 1.0;
    const double over_experts = split ? fmax(tess__shard_group(sim, TESS__SHARD, 1).n, 1.0) : 1.0;
    const double weights = tess__stage_trained(sim, stage, &experts);
    /* Two ranks that have the same two stages share the optimiser of both. */
    const double pair = tess__other_stage(sim, stage) == stage || !split ? 1.0 : 2.0;
    const double own = ((weights - experts) / over + experts / over_experts) / pair;
    const double each = l->zero > 1 ? own : weights;
    tess__op *op = tess__add_memory(sim, "optimiser", TESS__STEP,
                                    sim->era[TESS__ERA_OPT_BYTES] * own +
                                        sim->era[TESS__ERA_GRAD_TRAFFIC] * each);
    op->seconds += sim->era[TESS__ERA_OPT_MS] * 1e-3;
    return op->seconds;
}

void tess__fsdp_ops(tess_sim *sim, int part)
{
    const tess__model_part *p = &sim->parts[part];
    if (sim->s.layout.zero != 3 || p->weights == 0.0)
        return;
    sim->part = part;
    double compute[TESS__PASSES] = {0};
    for (int i = sim->clip_first; i < sim->n_ops; i++)
        if (sim->ops[i].part == part)
            compute[sim->ops[i].pass] += sim->ops[i].seconds;
    int first = sim->n_ops;
    double all = both(sim, "gather weights", TESS__FORWARD, TESS_ALL_GATHER, TESS__SHARD,
                      p->weights, p->expert_weights, sim->element);
    hide(sim, first, all, hidden_share(sim, TESS__ERA_DP_FORWARD) * compute[TESS__FORWARD]);
    first = sim->n_ops;
    all = both(sim, "gather weights", TESS__BACKWARD, TESS_ALL_GATHER, TESS__SHARD, p->weights,
               p->expert_weights, sim->element);
    all += scatter(sim, TESS__BACKWARD, p->trained, p->expert_trained);
    hide(sim, first, all,
         hidden_share(sim, TESS__ERA_DP_HIDDEN) *
             (compute[TESS__BACKWARD] + compute[TESS__WEIGHT] + compute[TESS__AGAIN]));
}
