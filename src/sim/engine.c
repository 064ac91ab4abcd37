/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - one scenario from its values to the time of a step.
 *
 *   operations of each kind of layer -> seconds of a layer and a micro-batch, at least the host's
 *   -> stages -> pipeline -> gradients, optimiser -> step, and what it is made of
 *
 * Everything lives in the tess_sim: a run allocates nothing.
 */
#include "events/events_internal.h"
#include "sim_internal.h"

#include <math.h>
#include <string.h>

tess_status tess_sim_create(tess_ctx *ctx, const tess_sim_params *params, tess_sim **sim)
{
    TESS_REQUIRE(ctx, params, sim);
    tess_sim *s = TESS_ALLOC_ZERO(ctx, sizeof *s);
    s->ctx = ctx;
    s->params = params;
    *sim = s;
    return TESS_OK;
}

void tess_sim_destroy(tess_sim *sim)
{
    if (!sim)
        return;
    tess__free(sim->ctx, sim->replay);
    tess__free(sim->ctx, sim);
}

/* ---- preparation ----------------------------------------------------------------------------- */

tess_status tess__sim_find_params(tess_sim *sim, const tess_cluster *cluster)
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
    TESS_TRY(tess__params_hardware(p, c->gpu, (double)c->memory, &hardware));
    sim->i_hw = (int)(hardware - p->hardware);
    if (sim->s.system.era[0])
        TESS_TRY(tess__params_era(p, sim->s.system.era, &sim->i_era));
    else if (sim->s.sampling.steps)
        sim->i_era = tess__software_sampling(p);
    else
        sim->i_era = tess__software_default(p, sim->i_hw, sim->s.system.date);
    sim->hw = hardware->value;
    sim->era = p->eras[sim->i_era].value;
    sim->software_known = sim->s.system.era[0] && p->eras[sim->i_era].n_measured > 0;
    tess__interval_vary(sim);
    sim->scalar = sim->s.system.scalar == TESS_SIM_OFF
                      ? 1.0
                      : tess__params_scalar(p, sim->s.system.system, sim->i_era);
    sim->cluster = c;
    sim->clock = tess__job_clock(sim);
    return TESS_OK;
}

/* Software that splits a pipeline's batch by its own rule makes larger micro-batches of it. */
static void merge_batches(const tess_sim *sim, tess_scenario *s)
{
    const int64_t batches =
        s->training.global_batch / ((int64_t)s->layout.dp * s->training.micro_batch);
    const int64_t wanted = (int64_t)(sim->era[TESS__ERA_PP_ROUNDS] + 0.5) * s->layout.pp;
    if (s->layout.pp > 1 && wanted > 0 && batches > wanted && batches % wanted == 0)
        s->training.micro_batch *= (int)(batches / wanted);
}

void tess__sim_derive(tess_sim *sim)
{
    int passes, samples;
    merge_batches(sim, &sim->s);
    tess__sample_passes(sim, &passes, &samples);
    sim->s.training.micro_batch *= samples;
    const tess_scenario *s = &sim->s;
    sim->tokens = (double)s->training.micro_batch * (double)s->model.seq / s->layout.cp;
    sim->rows = sim->tokens / (s->layout.sequence ? s->layout.tp : 1);
    sim->element = s->training.precision == TESS_SIM_FP32 ? 4.0 : 2.0;
    sim->dropout = s->training.dropout == TESS_SIM_AUTO ? sim->era[TESS__ERA_DROPOUT]
                   : s->training.dropout == TESS_SIM_ON ? 1.0
                                                        : 0.0;
    sim->attention = s->training.attention ? (int)s->training.attention
                                           : (int)(sim->era[TESS__ERA_ATTENTION] + 0.5);
    sim->batches = s->sampling.steps ? 1
                                     : s->training.global_batch /
                                           ((int64_t)s->layout.dp * s->training.micro_batch);
}

/* ---- stages and the step --------------------------------------------------------------------- */

static void counts_of_one(const tess_sim *sim, int stage, double counts[TESS__PARTS])
{
    const int last = stage == tess__head_stage(sim), more = sim->s.model.predict_layers;
    counts[TESS__LAYER] = sim->layers[stage] + (last && !sim->s.model.experts ? more : 0);
    counts[TESS__LATER] = sim->later[stage] + (last && sim->s.model.experts ? more : 0);
    counts[TESS__EMBED] = stage == 0;
    counts[TESS__HEAD] = last ? 1 + more : 0;
    counts[TESS__WHOLE] = 0;
}

/* How often a rank runs each part for a micro-batch: the mean of its two stages, if it has two. */
static void counts_of(const tess_sim *sim, int stage, double counts[TESS__PARTS])
{
    double other[TESS__PARTS];
    counts_of_one(sim, stage, counts);
    counts_of_one(sim, tess__other_stage(sim, stage), other);
    for (int i = 0; i < TESS__PARTS; i++)
        counts[i] = (counts[i] + other[i]) / 2.0;
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
    tess__op *op =
        tess__add_comm(sim, "send to next stage", TESS__STEP, TESS__PP, TESS_SEND_RECEIVE,
                       split ? all / l->tp : all, 2, l->tp * l->cp * l->dp, share);
    double seconds = op->seconds + op->hidden;
    if (split && !l->sequence)
        seconds += tess__comm_seconds(sim, TESS_ALL_GATHER, all, l->tp, 1);
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
                : counts[op->part] * (double)sim->batches * op->share;
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
    r->host_s = host + tess__job_host_step(sim);
    r->bubble_s = passes - m * (sim->forward[stage] + sim->backward[stage]) - r->pp_s;
}

static void finish(tess_sim *sim, tess_sim_result *r)
{
    const tess_scenario *s = &sim->s;
    const double slow = sim->slow = tess__job_slowness(sim);
    const double plain = r->compute_s + r->tp_s + r->cp_s + r->ep_s + r->pp_s + r->dp_s +
                         r->bubble_s + r->optimiser_s + r->host_s + r->decode_s + r->encode_s;
    r->scalar = sim->scalar;
    r->step_s = plain * slow;
    r->other_s = r->step_s - plain;
    const int part = s->model.experts && !s->model.dense_layers ? TESS__LATER : TESS__LAYER;
    int passes, samples;
    const double *pass = sim->parts[part].pass;
    r->layer_forward_s = pass[TESS__FORWARD];
    r->layer_backward_s = pass[TESS__BACKWARD] + pass[TESS__WEIGHT] + pass[TESS__AGAIN];
    r->micro_batches = sim->batches;
    r->tokens_per_s =
        (double)(r->clips ? r->clips : s->training.global_batch) * (double)s->model.seq / r->step_s;
    r->scenario = *s;
    tess__sample_passes(sim, &passes, &samples);
    r->scenario.training.micro_batch /= samples;
    r->gpu_hours = s->layout.gpus * r->step_s / 3600.0;
    tess__count_flop(sim, r);
    tess__memory_of(sim, &r->memory);
}

tess_status tess__sim_prepare(tess_sim *sim, const tess_cluster *cluster, const tess_scenario *full,
                              int same_parts)
{
    sim->s = *full;
    TESS_TRY(tess__file_check(sim));
    TESS_TRY(tess__sim_find_params(sim, cluster));
    tess__sim_derive(sim);
    tess__split_layers(sim);
    if (same_parts)
        sim->n_ops = sim->n_part_ops;
    else
        tess__build_clips(sim);
    sim->n_part_ops = sim->n_ops;
    time_stages(sim, &sim->weight);
    return TESS_OK;
}

double tess__sim_bound(const tess_sim *sim)
{
    const double rounding = 1.0 - 1e-12;
    double most = 0.0;
    for (int i = 0; i < sim->s.layout.pp; i++)
        most = fmax(most, sim->forward[i] + sim->backward[i]);
    return (double)sim->batches * most * tess__job_slowness(sim) * rounding;
}

/* Of a stage and micro-batch, the mean of the backward pass without weight gradients. */
static double mean_input(const tess_sim *sim)
{
    double sum = 0.0;
    for (int i = 0; i < sim->s.layout.pp; i++)
        sum += sim->backward[i];
    return sum / sim->s.layout.pp - sim->weight;
}

/* Pipeline, gradients and optimiser: the rest of the run. */
static void time_step(tess_sim *sim, tess_sim_result *result)
{
    tess_sim_result r = {0};
    if (sim->s.sampling.steps) {
        tess__sample_time(sim, &r);
        finish(sim, &r);
        *result = r;
        return;
    }
    const tess_sim_layout *l = &sim->s.layout;
    int slowest;
    const double hop = sim->hop = hop_seconds(sim);
    const double waited =
        sim->s.training.overlap_pp == TESS_SIM_OFF ? hop : hop * sim->era[TESS__ERA_PP_EXPOSED];
    const tess__pipeline pipeline = {.stages = l->pp,
                                     .chunks = l->vpp,
                                     .schedule = l->schedule,
                                     .batches = sim->batches,
                                     .forward = sim->forward,
                                     .backward = sim->backward,
                                     .weight = sim->weight,
                                     .input = mean_input(sim),
                                     .hop = hop,
                                     .hop_waited = waited};
    double passes = tess__pipeline_seconds(&pipeline, &slowest);
    if (l->schedule == TESS_SIM_SCHEDULE_FILE)
        passes = tess__file_passes(sim, waited > 0.0);
    r.pp_s = 2.0 * l->vpp * (double)sim->batches * waited * (l->pp - 1.0) / l->pp;
    r.dp_s = tess__gradient_seconds(sim, slowest) + tess__clip_wait(sim, passes);
    r.optimiser_s = tess__optimiser_seconds(sim, slowest);
    break_down(sim, slowest, passes, &r);
    count_times(sim, slowest);
    finish(sim, &r);
    *result = r;
}

tess_status tess_sim_run(tess_sim *sim, const tess_cluster *cluster, const tess_scenario *scenario,
                         tess_sim_result *result)
{
    TESS_REQUIRE(sim, cluster, scenario, result);
    tess_scenario full;
    sim->n_ops = 0;
    TESS_TRY(tess_scenario_fill(scenario, &full));
    TESS_TRY(tess__sim_prepare(sim, cluster, &full, 0));
    time_step(sim, result);
    return TESS_OK;
}
