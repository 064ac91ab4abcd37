/* SPDX-License-Identifier: Apache-2.0 */
/* clip_time.c - the time of a clip that a video DiT samples.
 *
 *   clip    = encode + steps passes forward + decode
 *   forward = the layers' forward pass, as training has it, with the timestep's embedding
 *   encode  = 2 parameters tokens of the text encoder, two prompts with guidance
 *   decode  = pixels vae_mflop / (vae_tflops ranks)
 *
 * Guidance runs the model on the prompt and on an empty or negative one: two passes, one pass of
 * two samples, or two ranks at the same time. The autoencoder runs on decode_ranks of the ranks,
 * while the others wait: with 8 GPUs it may be a third of a clip. Parameters of both ends are known
 * by their sizes alone; their host time is not counted.
 */
#include "sim_internal.h"

#include <math.h>

enum { TIME_PARTS = 6, TIME_WIDTH = 256 }; /* modulations of a layer, width of the sinusoids */

void tess__sample_passes(const tess_sim *sim, int *passes, int *samples)
{
    const tess_sim_sampling *p = &sim->s.sampling;
    *passes = p->guidance == TESS_SIM_GUIDANCE_TWICE ? 2 : 1;
    *samples = p->steps && p->guidance == TESS_SIM_GUIDANCE_BATCHED ? 2 : 1;
}

static int prompts(const tess_sim *sim)
{
    return sim->s.sampling.guidance == TESS_SIM_GUIDANCE_NONE ? 1 : 2;
}

int64_t tess__sample_clips(const tess_sim *sim)
{
    const tess_scenario *s = &sim->s;
    int passes, samples;
    tess__sample_passes(sim, &passes, &samples);
    const int parallel = s->sampling.guidance == TESS_SIM_GUIDANCE_PARALLEL ? 2 : 1;
    return (int64_t)s->layout.dp / parallel * (s->training.micro_batch / samples);
}

/* The timestep of each token through two products, on all ranks of a clip. */
static void embed_time(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const double h = m->hidden, columns = TIME_WIDTH + h + TIME_PARTS * h;
    if (!m->time_tokens)
        return;
    sim->part = TESS__EMBED;
    tess__add_gemm(sim, "timestep of each token", TESS__FORWARD, 1,
                   (double)sim->s.training.micro_batch * (double)m->seq, columns, h, TESS_SIM_FP32);
    sim->parts[TESS__EMBED].pass[TESS__FORWARD] += sim->ops[sim->n_ops - 1].seconds;
    sim->parts[TESS__EMBED].of[TESS__COMPUTE][TESS__FORWARD] += sim->ops[sim->n_ops - 1].seconds;
}

void tess__sample_forward_only(tess_sim *sim)
{
    int left = 0;
    for (int i = 0; i < sim->n_ops; i++)
        if (sim->ops[i].pass == TESS__FORWARD)
            sim->ops[left++] = sim->ops[i];
    sim->n_ops = left;
    embed_time(sim);
}

/* One of both ends of a clip, as an operation of the whole. */
static tess__op *add_end(tess_sim *sim, const char *name, int kind, double flop, double seconds)
{
    sim->part = TESS__WHOLE;
    tess__op *op = tess__add_memory(sim, name, TESS__STEP, 0.0);
    op->kind = kind;
    op->flop = flop;
    op->seconds = seconds;
    return op;
}

static double decode(tess_sim *sim, double clips)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_sampling *p = &sim->s.sampling;
    const double pixels = (double)m->frames * m->height * m->width;
    const double flop = clips * 1e6 * m->vae_mflop * pixels;
    if (p->decode == TESS_SIM_OFF || flop == 0.0)
        return 0.0;
    const double rate = 1e12 * sim->hw[TESS__HW_VAE_TFLOPS] * sim->clock;
    return add_end(sim, "decode", TESS__DECODE, flop, flop / (rate * p->decode_ranks))->seconds;
}

static double encode(tess_sim *sim, double clips)
{
    const tess_sim_model *m = &sim->s.model;
    const double *hw = sim->hw, n = 1e9 * m->text_billion, t = (double)m->text * clips;
    const double flop = 2.0 * n * t * prompts(sim);
    if (sim->s.sampling.encode == TESS_SIM_OFF || flop == 0.0)
        return 0.0;
    const double compute = flop / (sim->cluster->flops_bf16 * sim->clock * hw[TESS__HW_GEMM_SHARE]);
    const double read = prompts(sim) * tess__memory_seconds(sim, 2.0 * n);
    return add_end(sim, "encode", TESS__ENCODE, flop, fmax(compute, read))->seconds;
}

void tess__sample_time(tess_sim *sim, tess_sim_result *r)
{
    int passes, samples;
    tess__sample_passes(sim, &passes, &samples);
    const double runs = (double)sim->s.sampling.steps * passes;
    const double counts[TESS__PARTS] = {
        [TESS__LAYER] = sim->layers[0], [TESS__LATER] = sim->later[0], [TESS__EMBED] = 1};
    double sums[TESS__CLASSES] = {0};
    r->clips = tess__sample_clips(sim);
    r->passes = (int)runs;
    r->host_s = runs * sim->era[TESS__ERA_HOST_BATCH_MS] * 1e-3;
    for (int k = 0; k < TESS__PARTS; k++) {
        const tess__model_part *part = &sim->parts[k];
        for (int c = 0; c < TESS__CLASSES; c++)
            sums[c] += runs * counts[k] * part->of[c][TESS__FORWARD];
        r->host_s += runs * counts[k] * part->host[TESS__FORWARD];
    }
    r->compute_s = sums[TESS__COMPUTE];
    r->tp_s = sums[TESS__TP];
    r->cp_s = sums[TESS__CP];
    r->dp_s = sums[TESS__DP];
    for (int i = 0; i < sim->n_ops; i++)
        sim->ops[i].times = runs * counts[sim->ops[i].part];
    const int each = sim->s.training.micro_batch / samples; /* clips of a rank */
    const int ends = sim->n_ops;
    r->encode_s = encode(sim, each);
    r->decode_s = decode(sim, each);
    for (int i = ends; i < sim->n_ops; i++)
        sim->ops[i].times = 1.0;
}
