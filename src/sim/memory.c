/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - bytes of one GPU, part by part, and the peak.
 *
 * State: weights in the element type, gradients as they are kept, and for Adam 12 bytes of master
 * weight and moments (8 where training is in fp32), split over data-parallel ranks as `zero` says.
 *
 * Activations: what the operations of a layer keep for the backward pass, for each layer and each
 * micro-batch in flight. 1F1B has min(m, p - i) in flight at stage i; interleaved, in chunks of a
 * v-th of the stage,
 *
 *   (p - i - 1) 2 + (v - 1) p + 1   chunks, at most m v,
 *
 * (interleaved-zb once p - i - 1, zb-v p 2, gpipe all of them; a file's are counted; dualpipe has
 * p + 1 of the mean of a rank's two stages, whose weights and gradients it has both),
 * which at the first stage is 1 + (p - 1) / (p v) times the whole model's layers. Selective
 * recomputation leaves out what scores and softmax keep, full recomputation all but the input of
 * each layer; what one layer needs while it runs again is `working`.
 */
#include "events/events_internal.h"
#include "sim_internal.h"

#include <math.h>

/* Micro-batches of all layers of a stage. */
static double in_flight(const tess_sim *sim, int stage)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double m = (double)sim->batches, p = l->pp, v = l->vpp;
    const double wait = p - stage - 1.0;
    switch (l->schedule) {
    case TESS_SIM_GPIPE:
    case TESS_SIM_GPIPE_LOOPED: return m;
    case TESS_SIM_INTERLEAVED: return fmin(m, (2.0 * wait + (v - 1.0) * p + 1.0) / v);
    case TESS_SIM_INTERLEAVED_ZB: return fmin(m, (wait + (v - 1.0) * p + 1.0) / v);
    case TESS_SIM_ZB_V: return fmin(m, p);
    case TESS_SIM_DUALPIPE: return fmin(m, p + 1.0);
    case TESS_SIM_SCHEDULE_FILE: return sim->schedule ? tess__file_in_flight(sim, stage) : m;
    default: return fmin(m, p - stage);
    }
}

/* Of a layer's activations, what selective recomputation does not keep. */
static double dropped(const tess_sim *sim, const tess__model_part *p)
{
    if (tess__products_again(sim) == 0.0)
        return p->saved_dropped;
    return sim->era[TESS__ERA_AGAIN_GEMM] > 0.0 ? p->saved * (1.0 - sim->era[TESS__ERA_AGAIN_KEPT])
                                                : fmax(p->saved - p->saved_input - p->results, 0.0);
}

double tess__kept(const tess_sim *sim, int part, double layers)
{
    const tess__model_part *p = &sim->parts[part];
    const tess_sim_training *t = &sim->s.training;
    const double again = t->recompute_layers ? fmin(t->recompute_layers, layers) : layers;
    switch (t->recompute) {
    case TESS_SIM_RECOMPUTE_FULL: return again * p->saved_input + (layers - again) * p->saved;
    case TESS_SIM_RECOMPUTE_OP:
    case TESS_SIM_RECOMPUTE_SELECTIVE: return layers * p->saved - again * dropped(sim, p);
    default: return layers * p->saved;
    }
}

/* What one layer needs while it runs backward, and before that again; at the last stage besides,
 * the gradient of the logits. */
static double working_of(const tess_sim *sim, int stage)
{
    const tess_sim_training *t = &sim->s.training;
    double most = 0.0;
    for (int part = TESS__LAYER; part <= TESS__LATER; part++) {
        const int n = part == TESS__LAYER ? sim->layers[stage] : sim->later[stage];
        const tess__model_part *p = &sim->parts[part];
        const double again = t->recompute == TESS_SIM_RECOMPUTE_FULL   ? p->saved - p->saved_input
                             : t->recompute != TESS_SIM_RECOMPUTE_NONE ? dropped(sim, p)
                                                                       : 0.0;
        if (n)
            most = fmax(most, p->working + again);
    }
    return most + (stage == tess__head_stage(sim) ? sim->parts[TESS__HEAD].working : 0.0);
}

/* Transformer Engine hands autograd a dummy gradient of each shape of weights, and keeps it. */
static double dummies_of(const tess_sim *sim, int stage)
{
    double bytes = 0.0;
    for (int i = 0; i < sim->n_ops; i++) {
        const tess__op *op = &sim->ops[i];
        const int here = (op->part == TESS__LAYER && sim->layers[stage]) ||
                         (op->part == TESS__LATER && sim->later[stage]);
        int known = !here || op->kind != TESS__GEMM || op->pass != TESS__WEIGHT;
        for (int k = 0; k < i && !known; k++)
            known = sim->ops[k].kind == TESS__GEMM && sim->ops[k].pass == TESS__WEIGHT &&
                    sim->ops[k].m == op->m && sim->ops[k].n == op->n &&
                    ((sim->ops[k].part == TESS__LAYER && sim->layers[stage]) ||
                     (sim->ops[k].part == TESS__LATER && sim->later[stage]));
        if (!known)
            bytes += sim->element * op->m * op->n;
    }
    return bytes;
}

static void state_of(const tess_sim *sim, int stage, tess_sim_memory *m)
{
    const tess_sim_layout *l = &sim->s.layout;
    const tess_sim_training *t = &sim->s.training;
    const int fp32 = t->precision == TESS_SIM_FP32;
    const int zero = l->zero ? l->zero : t->distributed_optimizer > 0 ? 1 : 0;
    double gradient = t->grad_bytes ? t->grad_bytes : sim->era[TESS__ERA_GRAD_BYTES];
    if (gradient > sim->element && sim->era[TESS__ERA_GRAD_COPY] > 0.5)
        gradient += sim->element;
    /* In fp32 the weights are the master weights; what passes use is gathered from them. */
    const int whole =
        !fp32 && !sim->s.sampling.steps && sim->era[TESS__ERA_STATE_FP32] > 0.5 && zero > 0;
    const double each[] = {whole && zero == 3 ? 4.0
                           : fp32             ? 4.0
                                              : 2.0,
                           whole ? 4.0 : gradient, fp32 || (whole && zero == 3) ? 8.0 : 12.0};
    double experts, frozen_experts;
    const double weights = tess__stage_trained(sim, stage, &experts);
    const double held = tess__stage_weights(sim, stage, &frozen_experts), frozen = held - weights;
    frozen_experts -= experts;
    const int other = tess__other_stage(sim, stage);
    double layers = sim->layers[stage] * sim->parts[TESS__LAYER].weights +
                    sim->later[stage] * sim->parts[TESS__LATER].weights;
    if (other != stage)
        layers += sim->layers[other] * sim->parts[TESS__LAYER].weights +
                  sim->later[other] * sim->parts[TESS__LATER].weights;
    const double over = tess__shard_group(sim, TESS__SHARD, 0).n;
    const double over_experts = fmax(tess__shard_group(sim, TESS__SHARD, 1).n, 1.0);
    double out[3];
    for (int i = 0; i < 3; i++) {
        int split = zero >= 3 - i;        /* optimiser from 1, gradients from 2, weights from 3 */
        if (whole && l->pp > 1 && i == 1) /* whole until the last micro-batch */
            split = 0;
        out[i] = each[i] * ((weights - experts) / (split ? over : 1.0) +
                            experts / (split ? over_experts : 1.0));
    }
    /* Frozen weights are in the element type, and split where weights are. */
    m->weights = out[0] + sim->element * ((frozen - frozen_experts) / (zero == 3 ? over : 1.0) +
                                          frozen_experts / (zero == 3 ? over_experts : 1.0));
    m->gradients = out[1];
    m->optimiser = out[2] / (other != stage && zero ? 2.0 : 1.0);
    m->layer_state = held > 0.0 ? (m->weights + out[1] + m->optimiser) * layers / held : 0.0;
}

/* The LM head runs backward at once, unless all forward passes come first. */
static double heads_in_flight(const tess_sim *sim)
{
    const int schedule = sim->s.layout.schedule;
    return schedule == TESS_SIM_GPIPE || schedule == TESS_SIM_GPIPE_LOOPED ? (double)sim->batches
                                                                           : 1.0;
}

/* Under ZeRO-3 the weights of the layer that computes and of the one after it are whole, and so are
 * the gradients of one until they are scattered. */
static double in_flight_weights(const tess_sim *sim, int stage)
{
    const tess__model_part *parts = sim->parts;
    double most = 0.0;
    if (sim->s.layout.zero != 3)
        return 0.0;
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++) {
        const int here = part == TESS__LAYER   ? sim->layers[stage] > 0
                         : part == TESS__LATER ? sim->later[stage] > 0
                         : part == TESS__EMBED ? stage == 0
                                               : stage == tess__head_stage(sim);
        const double copies = part <= TESS__LATER ? 2.0 : 1.0;
        if (here)
            most = fmax(most, parts[part].weights * copies * sim->element);
    }
    return most + (sim->s.sampling.steps ? 0.0 : parts[TESS__LAYER].trained * 4.0);
}

static double layers_kept(const tess_sim *sim, int stage)
{
    return tess__kept(sim, TESS__LAYER, sim->layers[stage]) +
           tess__kept(sim, TESS__LATER, sim->later[stage]);
}

void tess__stage_memory(const tess_sim *sim, int stage, tess_sim_memory *m)
{
    const tess__model_part *parts = sim->parts;
    const double flight = in_flight(sim, stage);
    *m = (tess_sim_memory){.stage = stage};
    state_of(sim, stage, m);
    const int other = tess__other_stage(sim, stage);
    m->layer_activations = flight / 2.0 * (layers_kept(sim, stage) + layers_kept(sim, other));
    m->activations = m->layer_activations;
    if (stage == 0 || other == 0)
        m->activations += (stage == other ? flight : flight / 2.0) * parts[TESS__EMBED].saved;
    if (stage == tess__head_stage(sim) || other == tess__head_stage(sim))
        m->activations += heads_in_flight(sim) * parts[TESS__HEAD].saved;
    m->working = fmax(working_of(sim, stage), working_of(sim, other));
    if (sim->era[TESS__ERA_WEIGHT_DUMMY] > 0.0)
        m->buffers += dummies_of(sim, stage);
    if (sim->s.layout.pp > 1)
        m->buffers += flight * sim->era[TESS__ERA_PP_BUFFERS] * sim->element * sim->rows *
                      sim->s.model.hidden;
    m->buffers += in_flight_weights(sim, stage);
    if (sim->s.sampling.steps) /* nothing is kept for a pass backward, and nothing is updated */
        m->gradients = m->optimiser = m->activations = m->layer_activations = 0.0;
    m->allocated =
        m->weights + m->gradients + m->optimiser + m->activations + m->working + m->buffers;
}

void tess__memory_of(const tess_sim *sim, tess_sim_memory *memory)
{
    const int p = sim->s.layout.pp, stages[] = {0, p > 2 ? 1 : 0, p - 1};
    for (int i = 0; i < 3; i++) {
        tess_sim_memory m;
        tess__stage_memory(sim, stages[i], &m);
        if (i == 0 || m.allocated > memory->allocated)
            *memory = m;
    }
    const struct {
        const char *name;
        double bytes;
    } list[] = {{"weights", memory->weights},        {"gradients", memory->gradients},
                {"optimiser", memory->optimiser},    {"activations", memory->activations},
                {"working memory", memory->working}, {"buffers", memory->buffers}};
    double most = -1.0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].bytes > most) {
            most = list[i].bytes;
            memory->largest = list[i].name;
        }
    memory->reserved =
        (sim->hw[TESS__HW_RESERVED_GIB] + sim->era[TESS__ERA_RESERVED_GIB]) * 1073741824.0 +
        sim->era[TESS__ERA_FRAGMENT] * memory->allocated;
    memory->peak = memory->allocated + memory->reserved;
    memory->capacity = (double)sim->cluster->memory;
    memory->fits = memory->peak <= memory->capacity;
}
