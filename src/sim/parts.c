/* SPDX-License-Identifier: Apache-2.0 */
/* parts.c - layers, embedding and LM head: their operations, added up for one micro-batch.
 *
 * What recomputation repeats becomes operations of its own. A layer takes
 *
 *   (gpu^p + host^p)^(1/p)
 *
 * where the GPU needs one time and the host that launches its kernels another: near the longer one,
 * more where they are alike, because neither runs far ahead of the other.
 */
#include "sim_internal.h"

#include <math.h>
#include <string.h>

/* Of a layer, which fraction of its forward pass runs again. */
static double again_share(const tess_sim *sim)
{
    const tess_sim_training *t = &sim->s.training;
    const double each = (double)sim->s.model.layers / sim->s.layout.pp;
    if (t->recompute == TESS_SIM_RECOMPUTE_NONE)
        return 0.0;
    return t->recompute_layers ? fmin(t->recompute_layers / each, 1.0) : 1.0;
}

double tess__products_again(const tess_sim *sim)
{
    const tess_sim_training *t = &sim->s.training;
    const double era = sim->era[TESS__ERA_AGAIN_GEMM];
    if (t->recompute == TESS_SIM_RECOMPUTE_OP)
        return era > 0.0 ? era : 0.5;
    return t->recompute == TESS_SIM_RECOMPUTE_SELECTIVE && !t->recompute_modules ? era : 0.0;
}

int tess__modules_again(const tess_sim *sim)
{
    const tess_sim_training *t = &sim->s.training;
    if (t->recompute != TESS_SIM_RECOMPUTE_SELECTIVE || tess__products_again(sim) > 0.0)
        return 0;
    return t->recompute_modules ? t->recompute_modules : TESS_SIM_AGAIN_CORE;
}

/* Which share of a forward operation runs again: of chosen modules all, or operation by operation a
 * share of the products and all that is elementwise. */
static double repeated(const tess_sim *sim, const tess__op *op)
{
    const double products = tess__products_again(sim);
    if (sim->s.training.recompute == TESS_SIM_RECOMPUTE_FULL)
        return 1.0;
    if (products == 0.0)
        return op->again & tess__modules_again(sim) ? 1.0 : 0.0;
    const int gather = op->kind == TESS__COMM && (int)op->batch == TESS_ALL_GATHER;
    return op->kind == TESS__GEMM ? products : op->kind == TESS__MEMORY || gather ? 1.0 : 0.0;
}

/* Forward operations that recomputation repeats, as operations of their own. */
static void repeat(tess_sim *sim, int part, int first)
{
    const double each = again_share(sim);
    const int end = sim->n_ops;
    for (int i = first; i < end && each > 0.0; i++) {
        const tess__op *op = &sim->ops[i];
        const double share = each * repeated(sim, op);
        if (op->part != part || op->pass != TESS__FORWARD || op->seconds == 0.0 || share == 0.0 ||
            sim->n_ops == TESS__OPS_MAX)
            continue;
        tess__op *copy = &sim->ops[sim->n_ops++];
        *copy = *op;
        copy->pass = TESS__AGAIN;
        copy->saved = 0.0;
        copy->seconds *= share;
        copy->flop *= share;
        copy->bytes *= share;
    }
}

static void sum_part(tess_sim *sim, int part)
{
    tess__model_part *p = &sim->parts[part];
    const int modules = tess__modules_again(sim);
    const double products = tess__products_again(sim);
    for (int i = sim->clip_first; i < sim->n_ops; i++) {
        const tess__op *op = &sim->ops[i];
        if (op->part != part)
            continue;
        p->pass[op->pass] += op->seconds;
        p->of[op->class][op->pass] += op->seconds;
        p->saved += op->saved;
        p->saved_dropped += op->freed & modules ? op->saved : 0.0;
        if (op->pass != TESS__FORWARD)
            continue;
        if (op->kind == TESS__FLASH)
            p->results += sim->element * op->batch * op->m * op->k;
        else if (op->kind == TESS__GEMM && !(op->again & TESS_SIM_AGAIN_CORE))
            p->results += (1.0 - products) * sim->element * op->batch * op->m * op->n;
    }
}

/* What the host adds to the GPU's time. */
static double host_extra(const tess_sim *sim, double gpu, double host)
{
    const double p = sim->era[TESS__ERA_HOST_POWER], most = fmax(gpu, host);
    if (host <= 0.0)
        return 0.0;
    const double extra = most * pow(pow(gpu / most, p) + pow(host / most, p), 1.0 / p) - gpu;
    return extra < 1e-9 ? 0.0 : extra; /* below a nanosecond it is rounding */
}

static void floor_by_host(tess_sim *sim, int part)
{
    tess__model_part *p = &sim->parts[part];
    const int layer_part = part == TESS__LAYER || part == TESS__LATER;
    double comms[TESS__PASSES] = {0};
    if (sim->s.training.graphs > 0 || !layer_part)
        return;
    for (int i = sim->clip_first; i < sim->n_ops; i++)
        if (sim->ops[i].part == part && sim->ops[i].kind == TESS__COMM)
            comms[sim->ops[i].pass] += log2(fmax(sim->ops[i].m, 2.0));
    const double comm = sim->era[TESS__ERA_HOST_COMM_US] * 1e-6;
    /* A softmax in pieces is about a third more kernels than a layer has. */
    const double more = sim->attention != TESS_SIM_FLASH && !tess__softmax_fused(sim) ? 1.3 : 1.0;
    const double once = sim->era[TESS__ERA_HOST_FORWARD_US] * 1e-6 * more;
    const double forward = once + comm * comms[TESS__FORWARD];
    double backward = sim->era[TESS__ERA_HOST_BACKWARD_US] * 1e-6 * more +
                      comm * (comms[TESS__BACKWARD] + comms[TESS__AGAIN]);
    if (sim->s.training.recompute == TESS_SIM_RECOMPUTE_FULL)
        backward += again_share(sim) * once;
    const double gpu = p->pass[TESS__BACKWARD] + p->pass[TESS__WEIGHT] + p->pass[TESS__AGAIN];
    p->host[TESS__FORWARD] = host_extra(sim, p->pass[TESS__FORWARD], forward);
    p->host[TESS__BACKWARD] = host_extra(sim, gpu, backward);
    if (sim->s.training.recompute == TESS_SIM_RECOMPUTE_FULL)
        p->host[TESS__BACKWARD] += again_share(sim) * sim->era[TESS__ERA_HOST_SYNC_US] * 1e-6;
    for (int pass = TESS__FORWARD; pass <= TESS__BACKWARD; pass++) {
        p->pass[pass] += p->host[pass];
        tess__add_host(sim, part, pass, p->host[pass]);
    }
}

void tess__build_parts(tess_sim *sim)
{
    memset(sim->parts, 0, sizeof sim->parts);
    for (int part = TESS__LAYER; part <= TESS__LATER; part++) {
        const tess_sim_model *m = &sim->s.model;
        const int first = sim->n_ops;
        const int kind = tess__first_kind(m);
        if (part == TESS__LATER ? kind == m->layers && !m->experts : kind == 0)
            continue;
        tess__layer_ops(sim, part);
        repeat(sim, part, first);
        tess__fsdp_ops(sim, part);
        sum_part(sim, part);
        floor_by_host(sim, part);
    }
    tess__embed_ops(sim);
    tess__fsdp_ops(sim, TESS__EMBED);
    sum_part(sim, TESS__EMBED);
    tess__head_ops(sim);
    tess__fsdp_ops(sim, TESS__HEAD);
    sum_part(sim, TESS__HEAD);
    if (sim->s.sampling.steps)
        tess__sample_forward_only(sim);
}
