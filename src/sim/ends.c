/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c - the embedding before the first layer, LM head and loss after the last.
 *
 * The vocabulary is split over tensor-parallel ranks. Each looks up its rows and all add them up;
 * the head multiplies with its columns, and the loss needs the largest logit and the sum of
 * exponentials of all of them. By separate kernels the logits are converted to fp32 (6 bytes), read
 * for the maximum (4), shifted (8), raised (8), summed (4) and divided (8), and on the way back
 * scaled (8) and converted (6): 52 bytes each, about 0.7 of them forward.
 */
#include "sim_internal.h"

#include <math.h>

void tess__embed_ops(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_layout *l = &sim->s.layout;
    const double x = sim->element * sim->tokens * m->hidden;
    sim->part = TESS__EMBED;
    if (!m->vocab)
        return;
    tess__add_weights(sim, (double)m->vocab * m->hidden / l->tp +
                               (m->learned_positions ? (double)m->seq * m->hidden : 0.0));
    /* Rows are gathered, masked, added to positions and dropped out. */
    tess__add_memory(sim, "lookup", TESS__FORWARD, (4.0 + 2.0 * sim->dropout) * x)->saved =
        sim->dropout * sim->rows * m->hidden;
    if (!sim->s.training.lora)
        tess__add_memory(sim, "lookup", TESS__WEIGHT, (2.0 + 4.0 + 2.0 * sim->dropout) * x);
    if (l->tp > 1)
        tess__add_comm(sim, "reduce", TESS__FORWARD, TESS__TP,
                       l->sequence ? TESS_REDUCE_SCATTER : TESS_ALL_REDUCE, x, l->tp, 1, 1.0);
}

void tess__head_ops(tess_sim *sim)
{
    const tess_sim_model *m = &sim->s.model;
    const tess_sim_layout *l = &sim->s.layout;
    const double e = sim->element, t = sim->tokens, h = m->hidden;
    const double columns = (double)m->vocab / l->tp, logits = t * columns;
    sim->part = TESS__HEAD;
    if (!m->vocab)
        return;
    tess__model_part *part = &sim->parts[TESS__HEAD];
    tess__add_memory(sim, "norm", TESS__FORWARD, 2.0 * e * sim->rows * h)->saved =
        e * sim->rows * h;
    tess__add_memory(sim, "norm", TESS__BACKWARD, 5.0 * e * sim->rows * h);
    if (l->tp > 1 && l->sequence)
        tess__add_comm(sim, "gather", TESS__FORWARD, TESS__TP, TESS_ALL_GATHER, e * t * h, l->tp, 1,
                       1.0);
    const int precision =
        sim->s.training.precision == TESS_SIM_FP32 ? TESS_SIM_FP32 : TESS_SIM_BF16;
    const int frozen = sim->s.training.lora > 0;
    tess__add_gemm(sim, "logits", TESS__FORWARD, 1, t, columns, h, precision)->saved =
        frozen ? 0.0 : e * sim->rows * h;
    tess__add_gemm(sim, "logits", TESS__BACKWARD, 1, t, h, columns, precision);
    if (!frozen)
        tess__add_gemm(sim, "logits", TESS__WEIGHT, 1, columns, h, t, precision);
    if (!(m->tied && l->pp == 1))
        tess__add_weights(sim, columns * h);
    /* A fused loss leaves the gradient where the logits were; separate kernels keep them in fp32,
     * and need the conversion and the gradient besides. */
    const int fused = sim->era[TESS__ERA_LOSS_BYTES] < 40.0;
    const double held = sim->era[TESS__ERA_LOGIT_BYTES];
    const double saved = held > 0.0 ? fmin(held, 6.0) : fused ? e : 4.0;
    const double passes = sim->era[TESS__ERA_LOSS_BYTES] * logits;
    tess__add_memory(sim, "loss", TESS__FORWARD, 0.7 * passes)->saved = saved * logits;
    tess__add_memory(sim, "loss", TESS__BACKWARD, 0.3 * passes);
    if (l->tp > 1) {
        tess__add_comm(sim, "reduce loss", TESS__FORWARD, TESS__TP, TESS_ALL_REDUCE, 12.0 * t,
                       l->tp, 1, 1.0);
        tess__add_comm(sim, "reduce gradient", TESS__BACKWARD, TESS__TP,
                       l->sequence ? TESS_REDUCE_SCATTER : TESS_ALL_REDUCE, e * t * h, l->tp, 1,
                       1.0);
    }
    part->working = (held > 0.0 ? held - saved : fused ? e : 4.0 + e) * logits;
}
