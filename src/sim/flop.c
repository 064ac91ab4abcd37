/* SPDX-License-Identifier: Apache-2.0 */
/* flop.c - floating-point operations of a step, as utilisations count them.
 *
 * The forward pass of a token: 2 FLOP for each weight of its matrices (of experts: those that it
 * visits; the LM head once for each prediction) and 2 (head_dim + value_dim) seq heads in
 * attention, over all pairs, causal or not. The backward pass is twice that. Hardware FLOP add the
 * forward passes that recomputation runs again. With frozen weights (LoRA) their gradients are left
 * out; adapters, of a few thousandths of the parameters, are not counted.
 */
#include "sim_internal.h"

typedef struct {
    double weights; /* of a layer's matrices, all of them and those of one token */
    double active;
} matrices;

static double attention_weights(const tess_sim_model *m)
{
    const double h = m->hidden, heads = m->heads;
    const double out = heads * m->value_dim * h;
    if (!m->kv_rank)
        return h * m->head_dim * (heads + m->kv_heads) + h * m->value_dim * m->kv_heads + out;
    const double q = m->q_rank ? m->q_rank * (h + heads * m->head_dim) : h * heads * m->head_dim;
    return q + h * (m->kv_rank + m->rope_dim) + m->kv_rank * heads * (m->nope_dim + m->value_dim) +
           out;
}

/* Of a DiT's layer, what makes shifts and gates: of few rows, so that a token meets none of it. */
static double modulation_weights(const tess_sim_model *m, int parallel)
{
    const double streams = m->text && !m->cross ? 2.0 : 1.0;
    return m->kind == TESS_SIM_DIT
               ? (parallel ? 3.0 : 6.0 * streams) * m->hidden * (double)m->modulation
               : 0.0;
}

static matrices of_layer(const tess_sim_model *m, int later)
{
    const double h = m->hidden, in = m->gated ? 3.0 : 2.0;
    const int experts = m->experts && later, two = m->double_layers && !later;
    matrices l;
    l.weights = l.active = attention_weights(m);
    if (m->cross && m->text) { /* keys and values are of the prompt's few tokens */
        l.weights += 4.0 * h * m->heads * m->head_dim;
        l.active += 2.0 * h * m->heads * m->head_dim;
    }
    if (!experts) {
        l.weights += in * h * (double)m->ffn;
        l.active += in * h * (double)m->ffn;
        l.weights *= two ? 2.0 : 1.0; /* a token meets those of its stream */
        l.weights += modulation_weights(m, m->parallel && !two);
        return l;
    }
    const double shared = in * h * (double)m->shared_ffn + h * m->experts;
    l.weights += shared + m->experts * in * h * (double)m->expert_ffn;
    l.active += shared + m->top_k * in * h * (double)m->expert_ffn;
    return l;
}

/* Of a token's forward pass, what runs again, where `layers` are all products of the layers. */
static double again_flop(const tess_sim *sim, double plain, double with, double layers,
                         double attention)
{
    const tess_sim_model *m = &sim->s.model;
    const int modules = tess__modules_again(sim);
    const double mlp = 2.0 * (m->gated ? 3.0 : 2.0) * m->hidden, heads = m->heads;
    double flop = tess__products_again(sim) * layers;
    if (modules & TESS_SIM_AGAIN_CORE)
        flop += attention;
    if (modules & TESS_SIM_AGAIN_MLA_UP && m->kv_rank)
        flop += 2.0 * (plain + with) * heads *
                ((double)m->q_rank * m->head_dim +
                 (double)m->kv_rank * ((double)m->nope_dim + m->value_dim));
    if (modules & TESS_SIM_AGAIN_MLP)
        flop += mlp * (plain * (double)m->ffn + with * (double)m->shared_ffn);
    if (modules & TESS_SIM_AGAIN_EXPERTS)
        flop += with * (mlp * (m->top_k * (double)m->expert_ffn +
                               (modules & TESS_SIM_AGAIN_MLP ? 0.0 : (double)m->shared_ffn)) +
                        2.0 * m->hidden * m->experts);
    return flop;
}

void tess__count_flop(const tess_sim *sim, tess_sim_result *r)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_training *t = &sim->s.training;
    const double h = m->hidden, s = (double)m->seq;
    const double first = tess__first_kind(m), more = m->predict_layers;
    const double with = m->layers - first + (m->experts ? more : 0.0);
    const double plain = first + (m->experts ? 0.0 : more);
    const matrices dense = of_layer(m, 0), moe = of_layer(m, 1);
    const double head = (double)m->vocab * h * (1.0 + m->predict_layers);
    const double pairs = 2.0 * (m->head_dim + m->value_dim) * m->heads * sim->attended;
    const double layers = 2.0 * (plain * dense.active + with * moe.active);
    const double attention = (plain + with) * pairs;
    const double cross = m->cross ? (plain + with) * 4.0 * m->head_dim * m->heads * m->text : 0.0;
    const double clips = (double)r->clips;
    const double tokens = (r->clips ? clips : (double)t->global_batch) * s;
    r->parameters = plain * dense.weights + with * moe.weights +
                    (double)m->vocab * h * (m->tied ? 1.0 : 2.0) +
                    (m->learned_positions ? s * h : 0.0) + (plain + with) * 4.0 * h;
    const double forward = layers + attention + cross + 2.0 * head;
    const double runs = sim->s.sampling.guidance > TESS_SIM_GUIDANCE_NONE ? 2.0 : 1.0;
    /* Frozen weights have no gradients: a third of their products is not run. */
    r->model_flop = (r->clips ? runs * sim->s.sampling.steps * forward
                              : 3.0 * forward - (t->lora ? layers + 2.0 * head : 0.0)) *
                    tokens;
    double share = 1.0;
    if (t->recompute_layers) {
        const double each = (double)m->layers / sim->s.layout.pp;
        share = t->recompute_layers < each ? t->recompute_layers / each : 1.0;
    }
    const double again = t->recompute == TESS_SIM_RECOMPUTE_FULL
                             ? layers + attention + cross
                             : again_flop(sim, plain, with, layers, attention);
    r->hardware_flop = r->model_flop + share * again * tokens;
    const double peak =
        t->precision == TESS_SIM_FP32 ? sim->cluster->flops_fp32 : sim->cluster->flops_bf16;
    const double can = peak * sim->s.layout.gpus * r->step_s;
    r->mfu = r->model_flop / can;
    r->hfu = r->hardware_flop / can;
    r->mfu_causal = (r->model_flop - (m->full ? 0.0 : 1.5 * attention * tokens)) / can;
}
