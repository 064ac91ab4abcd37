/* SPDX-License-Identifier: Apache-2.0 */
/* step_gradients.c - what a step has beside its passes: weights gathered, gradients reduced, the
 * optimiser.
 *
 * The collectives of a stage are those of step.c. Where the era overlaps them they are cut into one
 * call for each part, whose times add up to the whole: gradients travel when the last micro-batch
 * has made them, weights are there before the first one needs them. Otherwise one call each, before
 * the first and after the last pass.
 */
#include "events_internal.h"

#include <string.h>

/* ---- the operations of a stage --------------------------------------------------------------- */

void tess__stage_end_fill(const tess_sim *sim, int stage, tess_sim *scratch, tess__stage_end *end)
{
    const tess_sim_layout *l = &sim->s.layout;
    double experts;
    *scratch = *sim;
    scratch->n_ops = scratch->n_part_ops;
    memset(end, 0, sizeof *end);
    const double weights = tess__stage_trained(sim, stage, &experts);
    end->weights[0] = weights - experts;
    end->weights[1] = experts;
    for (int part = 0; part < TESS__PARTS; part++) {
        end->part[part][1] = sim->parts[part].expert_trained;
        end->part[part][0] = sim->parts[part].trained - end->part[part][1];
    }
    tess__gradient_seconds(scratch, stage);
    const int plain = end->weights[0] > 0.0 && l->dp * l->cp > 1;
    int n_gradient = !plain, n_gather = !plain, n_replicas = !plain;
    for (int i = scratch->n_part_ops; i < scratch->n_ops; i++) {
        const tess__op *op = &scratch->ops[i];
        if (op->n == (double)l->tp * l->cp * l->dp && op->m == 2.0 && l->pp > 1 &&
            strcmp(op->name, "reduce tied embedding") == 0)
            end->tied = *op;
        else if ((int)op->batch == TESS_ALL_GATHER && n_gather < 2)
            end->gather[n_gather++] = *op;
        else if (strcmp(op->name, "reduce over replicas") == 0 && n_replicas < 2)
            end->replicas[n_replicas++] = *op;
        else if (n_gradient < 2)
            end->gradient[n_gradient++] = *op;
    }
    tess__optimiser_seconds(scratch, stage);
    end->optimiser = scratch->ops[scratch->n_ops - 1];
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A fraction of a collective of the stage. */
static int32_t add_comm(tess__step *p, const tess__op *op, double fraction, int32_t after)
{
    const tess__pass_op new = {
        .number = tess__timeline_name(p->t, op->name),
        .ns = tess__pass_ns(&p->in, fraction * (op->seconds + op->hidden), TESS__TL_DP),
        .bytes = (int64_t)(fraction * op->bytes + 0.5),
        .kind = (int8_t)tess__pass_kind(&p->in, (int)op->m, (int)op->n, TESS__DP),
        .op = (uint8_t)op->batch,
        .stream = TESS__STREAM_DP,
        .class = TESS__TL_DP,
        .cat = TESS__CAT_COMM};
    const int32_t at = tess__step_add(p, &new);
    tess__timeline_depend(p->t, at, after);
    return at;
}

static void gather_part(tess__step *p, const tess__stage_end *end, int stage, int place)
{
    const int part = p->parts[(int64_t)stage * p->places_max + place];
    for (int i = 0; i < 2; i++)
        if (end->gather[i].seconds + end->gather[i].hidden > 0.0 && end->part[part][i] > 0.0)
            p->gathers[p->chunk_of[stage] * p->places_max + place] =
                add_comm(p, &end->gather[i], end->part[part][i] / end->weights[i], -1);
}

void tess__step_gathers(tess__step *p, const tess__stage_end *end)
{
    const int64_t slots = (int64_t)p->chunks * p->places_max;
    memset(p->gathers, 0xff, (size_t)slots * sizeof *p->gathers);
    for (int i = 0; i < 2 && !tess__overlaps_dp(p->sim, 1); i++)
        if (end->gather[i].seconds + end->gather[i].hidden > 0.0)
            p->input = add_comm(p, &end->gather[i], 1.0, -1);
    for (int k = 0; k < p->s->stages && tess__overlaps_dp(p->sim, 1); k++)
        for (int place = 0; p->s->rank_of[k] == p->stage && place < p->places[k]; place++)
            gather_part(p, end, k, place);
}

/* A fraction of the gradients, without experts (i 0) or of experts: to its ranks, and there over
 * replicas. */
static void add_gradients(tess__step *p, const tess__stage_end *end, int i, double fraction,
                          int32_t after)
{
    const tess__op *const calls[] = {&end->gradient[i], &end->replicas[i]};
    for (int k = 0; k < 2; k++)
        if (tess__pass_all(calls[k]) > 0.0)
            after = add_comm(p, calls[k], fraction, after);
}

void tess__step_reduce(tess__step *p, const tess__stage_end *end, int part, int32_t after)
{
    for (int i = 0; i < 2; i++)
        if (end->part[part][i] > 0.0)
            add_gradients(p, end, i, end->part[part][i] / end->weights[i], after);
}

/* The call of this row and the one at the other end of its pipeline. */
static int32_t tied_call(tess__step *p, const tess__stage_end *end, int first, int head)
{
    const int stages = p->c->stages;
    int32_t *call = &p->tied[p->c->peer[p->row * stages + first]];
    if (*call < 0)
        *call =
            tess__timeline_call(p->t, &(tess__tl_call){.group = TESS__KINDS_MAX + stages * stages +
                                                                first * stages + head,
                                                       .op = TESS_ALL_REDUCE,
                                                       .bytes = (int64_t)end->tied.bytes});
    return *call;
}

/* The first and the last stage hold the same embedding. */
static void reduce_tied(tess__step *p, const tess__stage_end *end)
{
    const int head = tess__head_stage(p->sim), first = p->s->rank_of[0];
    if (end->tied.seconds <= 0.0 || head == first || (p->stage != head && p->stage != first))
        return;
    p->last_dp = tess__timeline_add(
        p->t, &(tess__tl_op){.row = p->row,
                             .stream = TESS__STREAM_DP,
                             .cat = TESS__CAT_COMM,
                             .class = TESS__TL_DP,
                             .name = tess__timeline_name(p->t, end->tied.name),
                             .tag = -1,
                             .ns = tess__pass_ns(&p->in, end->tied.seconds, TESS__TL_DP),
                             .call = tied_call(p, end, first, head)});
    tess__timeline_depend(p->t, p->last_dp, p->last);
}

void tess__step_finish(tess__step *p, const tess__stage_end *end)
{
    const double host = tess__job_host_step(p->sim);
    for (int i = 0; i < 2 && !tess__overlaps_dp(p->sim, 0); i++)
        add_gradients(p, end, i, 1.0, p->last);
    reduce_tied(p, end);
    const int32_t at = tess__step_add(
        p, &(tess__pass_op){.number = tess__timeline_name(p->t, end->optimiser.name),
                            .ns = tess__pass_ns(&p->in, end->optimiser.seconds, TESS__TL_OPTIMISER),
                            .kind = -1,
                            .class = TESS__TL_OPTIMISER,
                            .cat = TESS__CAT_COMPUTE});
    tess__timeline_depend(p->t, at, p->last_dp);
    tess__timeline_depend(p->t, at, p->beside);
    if (host > 0.0)
        tess__step_add(p, &(tess__pass_op){.number = p->host,
                                           .ns = tess__pass_ns(&p->in, host, TESS__TL_HOST),
                                           .kind = -1,
                                           .class = TESS__TL_HOST,
                                           .cat = TESS__CAT_HOST});
}
