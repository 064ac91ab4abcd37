/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - one scenario from its values to the time of a step.
 *
 *   operations of each kind of layer -> seconds of a layer and a micro-batch, at least the host's
 *   -> stages -> pipeline -> gradients, optimiser -> step, and what it is made of
 *
 * Everything lives in the tess_sim: a run allocates nothing.
 */
#include "sim.h"

#include <math.h>
#include <string.h>

tess_status tess_sim_create(tess_ctx *ctx, const tess_sim_params *params, tess_sim **sim)
{
    if (!ctx || !params || !sim)
        return tess__fail(TESS_EINVAL, "tess_sim_create: %s is NULL, must not be",
                          !ctx      ? "ctx"
                          : !params ? "params"
                                    : "sim");
    tess_sim *s = tess__alloc_zero(ctx, sizeof *s);
    if (!s)
        return TESS_ENOMEM;
    s->ctx = ctx;
    s->params = params;
    *sim = s;
    return TESS_OK;
}

void tess_sim_destroy(tess_sim *sim)
{
    if (sim)
        tess__free(sim->ctx, sim);
}

/* ---- preparation ------------------------------------------------------------------------------
 */

static tess_status look_up(tess_sim *sim, const tess_cluster *cluster)
{
    const tess_sim_params *p = sim->params;
    const tess_cluster_info *c = &cluster->info;
    const int precision = sim->s.training.precision;
    const tess__param_set *hardware = NULL;
    const struct {
        const char *name;
        double peak;
    } needs[] = {{"bf16", c->flops_bf16},
                 {precision == TESS_SIM_FP32 ? "fp32" : "bf16",
                  precision == TESS_SIM_FP32 ? c->flops_fp32 : c->flops_bf16},
                 {precision >= TESS_SIM_FP8 ? "fp8" : "bf16",
                  precision >= TESS_SIM_FP8 ? c->flops_fp8 : c->flops_bf16}};
    for (int i = 0; i < 3; i++)
        if (needs[i].peak == 0.0)
            return tess__fail(TESS_ENOTSUP, "cluster %s: the peak in %s is not known", c->name,
                              needs[i].name);
    if (sim->s.layout.gpus > c->node_gpus && !c->nics)
        return tess__fail(TESS_ENOTSUP, "cluster %s: %d GPUs need a network, a node has %d",
                          c->name, sim->s.layout.gpus, c->node_gpus);
    TESS_TRY(tess__params_hardware(p, c->gpu, &hardware));
    TESS_TRY(tess__params_era(p, sim->s.system.era, &sim->i_era));
    sim->i_hw = (int)(hardware - p->hardware);
    sim->hw = hardware->value;
    sim->era = p->eras[sim->i_era].value;
    sim->scalar = sim->s.system.straggle == TESS_SIM_OFF
                      ? 1.0
                      : tess__params_scalar(p, sim->s.system.system, sim->i_era);
    sim->cluster = c;
    return TESS_OK;
}

/* Layers of each stage: as told, or even, the first stages taking what is left over. */
static void split_layers(tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const tess_sim_model *m = &sim->s.model;
    const int p = l->pp, outer = l->outer_layers;
    int fixed_stages = 0, fixed = 0, first = 0;
    if (p > 1 && l->first_layers) {
        fixed += l->first_layers;
        fixed_stages++;
    }
    if (p > 1 && l->last_layers) {
        fixed += l->last_layers;
        fixed_stages++;
    }
    const int rest = m->layers - fixed + 2 * outer, stages = p - fixed_stages;
    for (int i = 0, k = 0; i < p; i++) {
        int n;
        if (p > 1 && i == 0 && l->first_layers) {
            n = l->first_layers;
        } else if (p > 1 && i == p - 1 && l->last_layers) {
            n = l->last_layers;
        } else {
            n = rest / stages + (k < rest % stages);
            k++;
            n -= outer * ((i == 0) + (i == p - 1));
        }
        const int plain = m->experts ? m->dense_layers - first : n;
        sim->layers[i] = plain < 0 ? 0 : plain > n ? n : plain;
        sim->experts[i] = n - sim->layers[i];
        first += n;
    }
}

static void derive(tess_sim *sim)
{
    const tess_scenario *s = &sim->s;
    sim->tokens = (double)s->training.micro_batch * (double)s->model.seq / s->layout.cp;
    sim->rows = sim->tokens / (s->layout.sequence ? s->layout.tp : 1);
    sim->element = s->training.precision == TESS_SIM_FP32 ? 4.0 : 2.0;
    sim->dropout = s->training.dropout == TESS_SIM_AUTO ? sim->era[TESS__ERA_DROPOUT]
                   : s->training.dropout == TESS_SIM_ON ? 1.0
                                                        : 0.0;
    sim->attention =
        s->training.attention ? s->training.attention : (int)(sim->era[TESS__ERA_ATTENTION] + 0.5);
    sim->batches = s->training.global_batch / ((int64_t)s->layout.dp * s->training.micro_batch);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

/* Of a layer, which share of its forward pass runs again. */
static double again_share(const tess_sim *sim)
{
    const tess_sim_training *t = &sim->s.training;
    const double each = (double)sim->s.model.layers / sim->s.layout.pp;
    if (t->recompute == TESS_SIM_RECOMPUTE_NONE)
        return 0.0;
    return t->recompute_layers ? fmin(t->recompute_layers / each, 1.0) : 1.0;
}

/* Forward operations that recomputation repeats, as operations of their own. */
static void repeat(tess_sim *sim, int part, int first)
{
    const double share = again_share(sim);
    const int end = sim->n_ops, full = sim->s.training.recompute == TESS_SIM_RECOMPUTE_FULL;
    for (int i = first; i < end && share > 0.0; i++) {
        const tess__op *op = &sim->ops[i];
        if (op->part != part || op->pass != TESS__FORWARD || op->seconds == 0.0 ||
            !(full || op->core) || sim->n_ops == TESS__OPS_MAX)
            continue;
        tess__op *copy = &sim->ops[sim->n_ops++];
        *copy = *op;
        copy->pass = TESS__AGAIN;
        copy->kept = 0.0;
        copy->seconds *= share;
        copy->flop *= share;
        copy->bytes *= share;
    }
}

static void sum_part(tess_sim *sim, int part)
{
    tess__part *p = &sim->parts[part];
    for (int i = 0; i < sim->n_ops; i++) {
        const tess__op *op = &sim->ops[i];
        if (op->part != part)
            continue;
        p->pass[op->pass] += op->seconds;
        p->of[op->class][op->pass] += op->seconds;
        p->kept += op->kept;
        p->kept_core += op->core ? op->kept : 0.0;
    }
}

/* What a layer takes when the GPU needs one time and the host that feeds it another: near the
 * longer one, more where they are alike, because neither runs far ahead of the other. */
static double host_extra(const tess_sim *sim, double gpu, double host)
{
    const double p = sim->era[TESS__ERA_HOST_POWER], most = fmax(gpu, host);
    if (host <= 0.0)
        return 0.0;
    return most * pow(pow(gpu / most, p) + pow(host / most, p), 1.0 / p) - gpu;
}

static void floor_by_host(tess_sim *sim, int part)
{
    tess__part *p = &sim->parts[part];
    const int layer_part = part == TESS__LAYER || part == TESS__EXPERTS;
    double comms[TESS__PASSES] = {0};
    if (sim->s.training.graphs > 0 || !layer_part)
        return;
    for (int i = 0; i < sim->n_ops; i++)
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
    p->pass[TESS__FORWARD] += p->host[TESS__FORWARD];
    p->pass[TESS__BACKWARD] += p->host[TESS__BACKWARD];
}

static void build_parts(tess_sim *sim)
{
    memset(sim->parts, 0, sizeof sim->parts);
    sim->n_ops = 0;
    for (int part = TESS__LAYER; part <= TESS__EXPERTS; part++) {
        const tess_sim_model *m = &sim->s.model;
        const int first = sim->n_ops;
        if (part == TESS__EXPERTS ? !m->experts : m->experts && !m->dense_layers)
            continue;
        tess__layer_ops(sim, part == TESS__EXPERTS);
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
}

/* ---- stages and the step ----------------------------------------------------------------------
 */

/* How often a stage runs each part for a micro-batch. */
static void counts_of(const tess_sim *sim, int stage, double counts[TESS__PARTS])
{
    const int last = stage == sim->s.layout.pp - 1, more = sim->s.model.predict_layers;
    counts[TESS__LAYER] = sim->layers[stage] + (last && !sim->s.model.experts ? more : 0);
    counts[TESS__EXPERTS] = sim->experts[stage] + (last && sim->s.model.experts ? more : 0);
    counts[TESS__EMBED] = stage == 0;
    counts[TESS__HEAD] = last ? 1 + more : 0;
    counts[TESS__WHOLE] = 0;
}

static void time_stages(tess_sim *sim, double *weight)
{
    const double batch = sim->era[TESS__ERA_HOST_BATCH_MS] * 1e-3;
    *weight = 0.0;
    for (int i = 0; i < sim->s.layout.pp; i++) {
        double counts[TESS__PARTS];
        counts_of(sim, i, counts);
        sim->forward[i] = batch;
        sim->backward[i] = 0.0;
        for (int k = 0; k < TESS__PARTS; k++) {
            const double *pass = sim->parts[k].pass;
            sim->forward[i] += counts[k] * pass[TESS__FORWARD];
            sim->backward[i] +=
                counts[k] * (pass[TESS__BACKWARD] + pass[TESS__WEIGHT] + pass[TESS__AGAIN]);
            *weight += counts[k] * pass[TESS__WEIGHT] / sim->s.layout.pp;
        }
    }
}

static double hop_seconds(tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const int split = l->sequence || sim->era[TESS__ERA_PP_SPLIT] > 0.5;
    const double all = sim->element * sim->tokens * sim->s.model.hidden;
    if (l->pp < 2)
        return 0.0;
    sim->part = TESS__WHOLE;
    const double share =
        sim->s.training.overlap_pp == TESS_SIM_OFF ? 1.0 : sim->era[TESS__ERA_PP_EXPOSED];
    tess__op *op = tess__add_comm(sim, "send to next stage", TESS__STEP, TESS__PP, TESS__SEND,
                                  split ? all / l->tp : all, 2, l->tp * l->cp * l->dp, share);
    double seconds = op->seconds + op->hidden;
    if (split && !l->sequence)
        seconds += tess__comm_seconds(sim, TESS__ALL_GATHER, all, l->tp, 1);
    return seconds;
}

/* How often the slowest stage runs each operation in a step. */
static void count_times(tess_sim *sim, int stage)
{
    double counts[TESS__PARTS];
    counts_of(sim, stage, counts);
    for (int i = 0; i < sim->n_ops; i++) {
        tess__op *op = &sim->ops[i];
        op->times =
            op->part == TESS__WHOLE
                ? (op->class == TESS__PP ? 2.0 * (double)sim->batches * sim->s.layout.vpp : 1.0)
                : counts[op->part] * (double)sim->batches;
    }
}

static void break_down(const tess_sim *sim, int stage, double passes, tess_sim_result *r)
{
    const double m = (double)sim->batches;
    double counts[TESS__PARTS], sums[TESS__CLASSES] = {0}, host = 0.0;
    counts_of(sim, stage, counts);
    for (int k = 0; k < TESS__PARTS; k++)
        for (int pass = 0; pass < TESS__PASSES; pass++) {
            for (int c = 0; c < TESS__CLASSES; c++)
                sums[c] += m * counts[k] * sim->parts[k].of[c][pass];
            host += m * counts[k] * sim->parts[k].host[pass];
        }
    host += m * sim->era[TESS__ERA_HOST_BATCH_MS] * 1e-3;
    r->compute_s = sums[TESS__COMPUTE];
    r->tp_s = sums[TESS__TP];
    r->cp_s = sums[TESS__CP];
    r->ep_s = sums[TESS__EP];
    r->dp_s += sums[TESS__DP];
    r->host_s = host + sim->era[TESS__ERA_HOST_STEP_MS] * 1e-3;
    r->bubble_s = passes - m * (sim->forward[stage] + sim->backward[stage]) - r->pp_s;
}

static void finish(tess_sim *sim, tess_sim_result *r)
{
    const tess_scenario *s = &sim->s;
    const double nodes = ceil((double)s->layout.gpus / sim->cluster->node_gpus);
    const double slow =
        sim->scalar * (1.0 + sim->era[TESS__ERA_STRAGGLE] * log2(nodes > 1.0 ? nodes : 1.0));
    const double plain = r->compute_s + r->tp_s + r->cp_s + r->ep_s + r->pp_s + r->dp_s +
                         r->bubble_s + r->optimiser_s + r->host_s;
    r->scalar = sim->scalar;
    r->step_s = plain * slow;
    r->other_s = r->step_s - plain;
    const int part = s->model.experts && !s->model.dense_layers ? TESS__EXPERTS : TESS__LAYER;
    const double *pass = sim->parts[part].pass;
    r->layer_forward_s = pass[TESS__FORWARD];
    r->layer_backward_s = pass[TESS__BACKWARD] + pass[TESS__WEIGHT] + pass[TESS__AGAIN];
    r->micro_batches = sim->batches;
    r->tokens_per_s = (double)s->training.global_batch * (double)s->model.seq / r->step_s;
    r->gpu_hours = s->layout.gpus * r->step_s / 3600.0;
    tess__count_flop(sim, r);
    tess__memory_of(sim, &r->memory);
}

tess_status tess_sim_run(tess_sim *sim, const tess_cluster *cluster, const tess_scenario *scenario,
                         tess_sim_result *result)
{
    if (!sim || !cluster || !scenario || !result)
        return tess__fail(TESS_EINVAL, "tess_sim_run: %s is NULL, must not be",
                          !sim        ? "sim"
                          : !cluster  ? "cluster"
                          : !scenario ? "scenario"
                                      : "result");
    tess_sim_result r = {0};
    sim->n_ops = 0;
    TESS_TRY(tess_scenario_fill(scenario, &sim->s));
    TESS_TRY(look_up(sim, cluster));
    derive(sim);
    split_layers(sim);
    build_parts(sim);

    const tess_sim_layout *l = &sim->s.layout;
    double weight;
    int slowest;
    time_stages(sim, &weight);
    const double hop = hop_seconds(sim);
    const double waited =
        sim->s.training.overlap_pp == TESS_SIM_OFF ? hop : hop * sim->era[TESS__ERA_PP_EXPOSED];
    const tess__pipeline pipeline = {.stages = l->pp,
                                     .chunks = l->vpp,
                                     .schedule = l->schedule,
                                     .batches = sim->batches,
                                     .forward = sim->forward,
                                     .backward = sim->backward,
                                     .weight = weight,
                                     .hop = hop,
                                     .hop_waited = waited};
    const double passes = tess__pipeline_seconds(&pipeline, &slowest);
    r.pp_s = 2.0 * l->vpp * (double)sim->batches * waited * (l->pp - 1.0) / l->pp;
    r.dp_s = tess__gradient_seconds(sim, slowest);
    r.optimiser_s = tess__optimiser_seconds(sim, slowest);
    break_down(sim, slowest, passes, &r);
    count_times(sim, slowest);
    finish(sim, &r);
    *result = r;
    return TESS_OK;
}
