/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c - the operations of one layer of a transformer, forward and backward.
 *
 *   x -> norm -> attention -> + -> norm -> MLP or experts -> +
 *
 * Tensor parallelism splits heads and the MLP's inner columns; the two places where its ranks add
 * up are an all-reduce each way, or with sequence parallelism a reduce-scatter and the all-gather
 * after the norm, which then works on rows / tp. A DiT's layer has a third part, attention to the
 * prompt, and shifts and gates each part by the timestep. In a layer of two streams (MMDiT) the
 * tokens of the prompt meet those of the clip in attention, and weights of their own elsewhere.
 *
 * Bytes of elementwise operations count what their kernels read and write once.
 */
#include "sim_internal.h"

#include <math.h>

static void norm(tess_sim *sim, const char *name)
{
    const double x = sim->element * sim->rows * sim->s.model.hidden;
    const double gate = sim->s.model.kind == TESS_SIM_DIT ? 2.0 : 1.0;
    tess__op *op = tess__add_memory(sim, name, TESS__FORWARD, gate * 2.0 * x);
    op->saved = x;
    op->again = TESS_SIM_AGAIN_NORM;
    /* dx of x and dy, and the gradients of scale and shift in a second pass over both. */
    const double second = sim->s.training.lora ? 0.0 : 2.0;
    tess__add_memory(sim, name, TESS__BACKWARD, (3.0 + second) * gate * x);
}

/* Bias, dropout and the sum with the residual in one kernel; backward two reads and a write. */
static void residual(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const double n = sim->rows * m->hidden, e = sim->element, mask = sim->dropout;
    const double gate = m->kind == TESS_SIM_DIT ? 1.0 : 0.0;
    tess__add_memory(sim, "residual", TESS__FORWARD, n * ((3.0 + gate) * e + mask))->saved =
        n * (mask + gate * e);
    tess__add_memory(sim, "residual", TESS__BACKWARD,
                     n * ((3.0 + 2.0 * gate) * e + mask * (2.0 * e + 1.0)));
}

static double tp_share(const tess_sim *sim)
{
    const double era = sim->era[TESS__ERA_TP_EXPOSED];
    const int overlap = sim->s.training.overlap_tp;
    return overlap == TESS_SIM_OFF ? 1.0 : overlap == TESS_SIM_ON && era == 1.0 ? 0.5 : era;
}

static int keeps_gathered(const tess_sim *sim)
{
    return sim->era[TESS__ERA_TP_KEPT] > 0.5;
}

/* What tensor-parallel ranks exchange before a part. Returns the operation that sums the gradient
 * of its input, for tp_behind; below 0: none. */
static int tp_enter(tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double bytes = sim->element * sim->tokens * sim->s.model.hidden;
    if (l->tp < 2)
        return -1;
    if (l->sequence) {
        tess__op *gather = tess__add_comm(sim, "gather", TESS__FORWARD, TESS__TP, TESS_ALL_GATHER,
                                          bytes, l->tp, 1, tp_share(sim));
        if (keeps_gathered(sim))
            gather->saved = bytes * (l->tp - 1.0) / l->tp;
        if (!keeps_gathered(sim))
            tess__add_comm(sim, "gather input again", TESS__BACKWARD, TESS__TP, TESS_ALL_GATHER,
                           bytes, l->tp, 1, tp_share(sim));
        tess__add_comm(sim, "scatter gradient", TESS__BACKWARD, TESS__TP, TESS_REDUCE_SCATTER,
                       bytes, l->tp, 1, tp_share(sim));
    } else {
        tess__add_comm(sim, "reduce gradient", TESS__BACKWARD, TESS__TP, TESS_ALL_REDUCE, bytes,
                       l->tp, 1, tp_share(sim));
    }
    return sim->n_ops - 1;
}

/* Of two things at a time the longer is waited for, and both are slowed down by sharing. */
static void beside(const tess_sim *sim, tess__op *comm, double compute)
{
    const double all = comm->seconds + comm->hidden;
    const double hidden = fmin(all, compute);
    comm->seconds = all - hidden + sim->era[TESS__ERA_OVERLAP_SLOW] * hidden;
    comm->hidden = all - comm->seconds;
}

/* The sum of input gradients runs beside the weight gradient of the linear layer that follows it in
 * the list; gathering the input again, beside its input gradient. */
static void tp_behind(tess_sim *sim, int comm)
{
    double weight = 0.0, input = 0.0;
    if (comm < 0)
        return;
    for (int i = sim->n_ops - 1; i > comm; i--) {
        const tess__op *op = &sim->ops[i];
        if (op->kind == TESS__GEMM && op->pass == TESS__WEIGHT)
            weight = op->seconds;
        if (op->kind == TESS__GEMM && op->pass == TESS__BACKWARD)
            input = op->seconds;
    }
    if (sim->s.layout.sequence && !keeps_gathered(sim))
        beside(sim, &sim->ops[comm - 1], input);
    if (sim->era[TESS__ERA_TP_ASYNC] > 0.5)
        beside(sim, &sim->ops[comm], weight);
}

static void tp_leave(tess_sim *sim)
{
    const tess_sim_layout *l = &sim->s.layout;
    const double bytes = sim->element * sim->tokens * sim->s.model.hidden;
    if (l->tp < 2)
        return;
    if (l->sequence) {
        tess__add_comm(sim, "scatter", TESS__FORWARD, TESS__TP, TESS_REDUCE_SCATTER, bytes, l->tp,
                       1, tp_share(sim));
        tess__add_comm(sim, "gather gradient", TESS__BACKWARD, TESS__TP, TESS_ALL_GATHER, bytes,
                       l->tp, 1, tp_share(sim));
    } else {
        tess__add_comm(sim, "reduce", TESS__FORWARD, TESS__TP, TESS_ALL_REDUCE, bytes, l->tp, 1,
                       tp_share(sim));
    }
}

void tess__add_token_linear(tess_sim *sim, const char *name, const char *of_prompt, double n,
                            double k, double saved)
{
    const double prompt = sim->prompt, share = prompt / sim->tokens;
    tess__add_linear(sim, name, 1, sim->tokens - prompt, n, k, saved * (1.0 - share));
    if (prompt > 0.0)
        tess__add_linear(sim, of_prompt, 1, prompt, n, k, saved * share);
}

/* The embedding of time becomes a shift, a scale and a gate for each part of the layer and each
 * stream of tokens. Columns are split over tensor-parallel ranks. */
static void modulation(tess_sim *sim, int parallel)
{
    const tess_sim_model *m = &sim->s.model;
    const double streams = m->text && !m->cross ? 2.0 : 1.0;
    const double vectors = parallel ? 3.0 : 6.0 * streams;
    if (m->kind == TESS_SIM_DIT && m->modulation)
        tess__add_linear(sim, "modulation", 1, sim->s.training.micro_batch,
                         vectors * m->hidden / sim->s.layout.tp, m->modulation,
                         sim->element * sim->s.training.micro_batch * m->modulation);
}

void tess__mlp_ops(tess_sim *sim, double batch, double rows, double inner, double saved)
{
    const tess_sim_model *m = &sim->s.model;
    const double e = sim->element, n = batch * rows * inner, in = m->gated ? 2.0 : 1.0;
    const int grouped = batch > 1.0 || rows != sim->tokens;
    sim->adapted = sim->s.training.lora_on == TESS_SIM_LORA_ALL;
    sim->reads = grouped ? 0 : TESS_SIM_AGAIN_NORM;
    if (grouped)
        tess__add_linear(sim, "mlp in", batch, rows, in * inner, m->hidden, saved);
    else
        tess__add_token_linear(sim, "mlp in", "mlp in of prompt", in * inner, m->hidden, saved);
    const double kept = m->gated ? in + sim->era[TESS__ERA_GLU_KEPT] : in;
    tess__op *op = tess__add_memory(sim, "activation", TESS__FORWARD, (in + 1.0) * e * n);
    op->saved = kept * e * n;
    op->again = TESS_SIM_AGAIN_ACTIVATION;
    sim->reads = TESS_SIM_AGAIN_ACTIVATION;
    tess__add_memory(sim, "activation", TESS__BACKWARD, (2.0 * in + 1.0) * e * n);
    if (grouped)
        tess__add_linear(sim, "mlp out", batch, rows, m->hidden, inner, e * n);
    else
        tess__add_token_linear(sim, "mlp out", "mlp out of prompt", m->hidden, inner, e * n);
    sim->reads = 0;
    /* On the way back the gradients of both activations and of input and output exist at once. */
    tess__model_part *part = &sim->parts[sim->part];
    part->working = fmax(part->working, e * ((in + 1.0) * n + 2.0 * batch * rows * m->hidden));
}

/* Queries of the clip over the keys of the prompt, whose projections are of few rows. */
static void cross_attention(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const double t = sim->tokens, e = sim->element, heads = (double)m->heads / sim->s.layout.tp;
    const double q = heads * m->head_dim, text = (double)m->text * sim->s.training.micro_batch;
    norm(sim, "norm of cross attention");
    const int comm = tp_enter(sim);
    tess__add_linear(sim, "cross q", 1, t, q, m->hidden, e * sim->rows * m->hidden);
    tess__add_linear(sim, "cross kv", 1, text, 2.0 * q, m->hidden, e * text * m->hidden);
    tess__add_flash(sim, "cross attention", TESS__FORWARD, heads, t, m->text, m->head_dim,
                    m->head_dim)
        ->saved = e * (t * q + 2.0 * text * q);
    tess__add_flash(sim, "cross attention", TESS__BACKWARD, heads, t, m->text, m->head_dim,
                    m->head_dim);
    tess__add_linear(sim, "cross projection", 1, t, m->hidden, q, e * t * q);
    tp_behind(sim, comm);
    tp_leave(sim);
    residual(sim);
}

/* Kernels of eager code that read and write more than once what the operations above count once:
 * casts to fp32, scale and shift apart, rotation in fp64. */
static void eager(tess_sim *sim)
{
    const double bytes = sim->era[TESS__ERA_DIT_BYTES] * sim->rows * sim->s.model.hidden;
    if (sim->s.model.kind != TESS_SIM_DIT || bytes == 0.0)
        return;
    tess__add_memory(sim, "eager elementwise", TESS__FORWARD, bytes);
    tess__add_memory(sim, "eager elementwise", TESS__BACKWARD, 2.0 * bytes);
}

void tess__layer_ops(tess_sim *sim, int which)
{
    const tess_sim_model *m = &sim->s.model;
    const double input = sim->element * sim->rows * m->hidden;
    const int two = m->double_layers && which == TESS__LAYER;
    const int parallel = m->parallel && !two;
    sim->part = which;
    sim->prompt = two ? sim->tokens * m->text / (double)m->seq : 0.0;
    tess__model_part *part = &sim->parts[sim->part];
    part->saved_input = input;
    sim->adapted = 0;
    modulation(sim, parallel);
    sim->adapted = 1;
    norm(sim, "norm of attention");
    int comm = tp_enter(sim);
    tess__attention_ops(sim);
    if (!parallel) {
        tp_behind(sim, comm);
        tp_leave(sim);
        residual(sim);
        if (m->kind == TESS_SIM_DIT && m->cross && m->text)
            cross_attention(sim);
        norm(sim, "norm of mlp");
    }
    const int first = sim->n_ops;
    if (!parallel)
        comm = tp_enter(sim);
    if (m->experts && which == TESS__LATER)
        tess__expert_ops(sim);
    else
        tess__mlp_ops(sim, 1.0, sim->tokens, (double)m->ffn / sim->s.layout.tp,
                      parallel ? 0.0 : input);
    tp_behind(sim, comm);
    tp_leave(sim);
    tess__mark_again(
        sim, first,
        m->experts && which == TESS__LATER ? TESS_SIM_AGAIN_EXPERTS : TESS_SIM_AGAIN_MLP, 1);
    residual(sim);
    eager(sim);
    tess__add_weights(sim, 4.0 * m->hidden); /* scales and shifts, held by every rank */
}
