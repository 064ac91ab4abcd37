/* SPDX-License-Identifier: Apache-2.0 */
/* step_layout.c - what the step of a job needs before it is built: places of parts in virtual
 * stages, neighbours in the pipeline, passes, kinds of process groups, memory for the rows. */
#include "events_internal.h"

#include <math.h>
#include <string.h>

enum { OPERATIONS_MAX = 200000000 };

/* Places of parts in their virtual stages, and of these in their ranks. */
tess_status tess__step_place_parts(tess__step *p, tess__arena *arena)
{
    const tess_schedule *s = p->s;
    const size_t stages = (size_t)s->stages;
    p->places = TESS_TAKE(arena, stages * sizeof *p->places);
    p->chunk_of = TESS_TAKE(arena, stages * sizeof *p->chunk_of);
    p->last_weight = TESS_TAKE(arena, stages * sizeof *p->last_weight);
    p->first_forward = TESS_TAKE(arena, stages * sizeof *p->first_forward);
    int32_t *used = TESS_TAKE(arena, (size_t)s->ranks * sizeof *used);
    memset(used, 0, (size_t)s->ranks * sizeof *used);
    memset(p->first_forward, 0xff, stages * sizeof *p->first_forward);
    for (int k = 0; k < s->stages; k++) {
        int counts[TESS__PARTS];
        tess__chunk_counts(p->sim, s, k, counts);
        p->places[k] = 0;
        for (int part = 0; part < TESS__PARTS; part++)
            p->places[k] += counts[part];
        p->places_max = TESS_MAX(p->places_max, p->places[k]);
        p->chunk_of[k] = used[s->rank_of[k]]++;
        p->chunks = TESS_MAX(p->chunks, used[s->rank_of[k]]);
    }
    for (int64_t i = 0; i < s->n; i++) {
        const tess__action *a = &s->actions[i];
        if (a->kind == TESS__ACT_F && p->first_forward[a->stage] < 0)
            p->first_forward[a->stage] = i;
        if (a->kind == TESS__ACT_B || a->kind == TESS__ACT_W)
            p->last_weight[a->stage] = i;
    }
    static const uint8_t order[] = {TESS__EMBED, TESS__LAYER, TESS__LATER, TESS__HEAD};
    p->parts = TESS_TAKE(arena, stages * (size_t)p->places_max + 1);
    for (int k = 0; k < s->stages; k++) {
        int counts[TESS__PARTS];
        uint8_t *at = &p->parts[(int64_t)k * p->places_max];
        tess__chunk_counts(p->sim, s, k, counts);
        for (int i = 0; i < 4; i++)
            for (int n = 0; n < counts[order[i]]; n++)
                *at++ = order[i];
    }
    return TESS_OK;
}

/* Ranks of the pipeline that exchange with each rank. */
tess_status tess__step_find_peers(tess__step *p, tess__arena *arena)
{
    const tess_schedule *s = p->s;
    const size_t all = (size_t)s->ranks * (size_t)s->ranks;
    tess__arena scratch = {.ctx = arena->ctx};
    uint8_t *near = TESS_TAKE(&scratch, all);
    memset(near, 0, all);
    for (int k = 0; k + 1 < s->stages; k++) {
        const int a = s->rank_of[k], b = s->rank_of[k + 1];
        near[(int64_t)a * s->ranks + b] = near[(int64_t)b * s->ranks + a] = a != b;
    }
    for (int a = 0; a < s->ranks; a++) {
        int n = 0;
        for (int b = 0; b < s->ranks; b++)
            n += near[(int64_t)a * s->ranks + b];
        p->n_peers = TESS_MAX(p->n_peers, n);
    }
    const size_t bytes = (size_t)(s->ranks * p->n_peers + 1) * sizeof *p->peers;
    p->peers = tess__arena_take(arena, bytes);
    if (p->peers)
        memset(p->peers, 0xff, bytes);
    for (int a = 0; p->peers && a < s->ranks; a++)
        for (int b = 0, n = 0; b < s->ranks; b++)
            if (near[(int64_t)a * s->ranks + b])
                p->peers[a * p->n_peers + n++] = b;
    tess__arena_free(&scratch);
    return p->peers ? TESS_OK : TESS_ENOMEM;
}

/* ---- passes and ends ------------------------------------------------------------------------- */

void tess__step_fill_passes(tess__step *p)
{
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        for (int kind = 0; kind < TESS__PASS_KINDS; kind++)
            tess__pass_fill(&p->in, part, kind, &p->passes[part][kind]);
}

tess_status tess__step_fill_ends(tess__step *p, tess__arena *arena)
{
    tess_sim *scratch = tess__alloc(p->sim->ctx, sizeof *scratch);
    p->ends = tess__arena_take(arena, (size_t)p->c->stages * sizeof *p->ends);
    for (int i = 0; scratch && p->ends && i < p->c->stages; i++) {
        tess__stage_end *e = &p->ends[i];
        tess__stage_end_fill(p->sim, i, scratch, e);
        const tess__op *const calls[] = {&e->gradient[0], &e->gather[0], &e->replicas[0],
                                         &e->gradient[1], &e->gather[1], &e->replicas[1]};
        for (int k = 0; k < 6; k++)
            if (calls[k]->m > 1.0)
                tess__pass_kind(&p->in, (int)calls[k]->m, (int)calls[k]->n, TESS__DP);
    }
    tess__free(p->sim->ctx, scratch);
    return scratch && p->ends ? TESS_OK : TESS_ENOMEM;
}

void tess__step_number_names(tess__step *p)
{
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        for (int kind = 0; kind < TESS__PASS_KINDS; kind++)
            for (int i = 0; i < p->passes[part][kind].n; i++) {
                tess__pass_op *op = &p->passes[part][kind].ops[i];
                op->number = tess__timeline_name(p->t, op->name);
            }
    p->host = tess__timeline_name(p->t, "wait for the host");
}

tess_status tess__step_check_size(const tess__step *p)
{
    double most = 0.0;
    for (int part = TESS__LAYER; part <= TESS__HEAD; part++)
        most = fmax(most, p->passes[part][TESS__PASS_F].n + p->passes[part][TESS__PASS_B].n);
    double all = 0.0;
    for (int k = 0; k < p->s->stages; k++)
        all += most * p->places[k] * (double)p->s->batches;
    all *= (double)p->c->rows / p->c->stages;
    return all <= OPERATIONS_MAX
               ? TESS_OK
               : tess__fail(TESS_EINVAL,
                            "timeline: about %.3g operations, at most %d; fewer micro-batches or "
                            "slow ranks have fewer",
                            all, OPERATIONS_MAX);
}

tess_status tess__step_reserve_rows(tess__step *p, tess__arena *arena)
{
    const size_t rows = (size_t)p->c->rows, peers = (size_t)p->n_peers + 1;
    const size_t passes =
        rows * (size_t)p->chunks * (size_t)p->s->batches * TESS__DIRECTIONS * sizeof(int32_t);
    const size_t lists = (size_t)TESS__KINDS_MAX * rows * sizeof *p->calls;
    p->begin = TESS_TAKE(arena, passes);
    p->arrive = TESS_TAKE(arena, passes);
    p->pair_calls = TESS_TAKE_ZERO(arena, rows * peers * sizeof *p->pair_calls);
    p->tied = TESS_TAKE(arena, rows * sizeof *p->tied);
    p->gathers =
        TESS_TAKE(arena, (size_t)p->chunks * ((size_t)p->places_max + 1) * sizeof *p->gathers);
    p->calls = TESS_TAKE_ZERO(arena, lists);
    memset(p->begin, 0xff, passes);
    memset(p->arrive, 0xff, passes);
    memset(p->tied, 0xff, rows * sizeof *p->tied);
    return TESS_OK;
}

void tess__step_find_hop(tess__step *p)
{
    const tess_sim *sim = p->sim;
    for (int i = sim->n_part_ops; i < sim->n_ops; i++)
        if (sim->ops[i].class == TESS__PP)
            p->hop_bytes = llround(sim->ops[i].bytes);
    p->hop_ns = tess__pass_ns(&p->in, sim->hop, TESS__TL_PP);
    p->blocking =
        sim->s.training.overlap_pp == TESS_SIM_OFF ||
        (sim->s.training.overlap_pp == TESS_SIM_AUTO && sim->era[TESS__ERA_PP_EXPOSED] > 0.5);
}
