/* SPDX-License-Identifier: Apache-2.0 */
/* dist_ring_plan.c - the ring of this rank: key parts, their units, memory.
 *
 * The blocks of a key part are in the order of the plan; their key units are runs of consecutive
 * units. Memory: 8 bytes per key unit that is not a single row.
 */
#include "dist_ring.h"

#include <assert.h>
#include <string.h>

/* The units of block b, which begins and ends where units do. */
static tess__unit_run units_of(const tess_dist_attn *d, const tess_plan_info *info, int32_t b)
{
    const int64_t begin = tess__plan_k_row(info, b), end = tess__plan_k_row(info, b + 1);
    if (!d->opts.units)
        return (tess__unit_run){begin, end - begin};
    const int32_t first = tess__range_of(d->opts.units, d->opts.n_units, begin);
    const int32_t last = tess__range_of(d->opts.units, d->opts.n_units, end - 1);
    return (tess__unit_run){first, last + 1 - first};
}

/* First row in the key part of each unit of the runs. */
static void fill_bounds(const tess_dist_attn *d, tess__ring_part *part)
{
    int64_t at = 0, row = 0;
    for (int64_t r = 0; r < part->n_runs; r++)
        for (int64_t u = part->runs[r].first; u < part->runs[r].first + part->runs[r].n; u++) {
            part->bounds[at++] = row;
            row += tess__unit_row(d, u + 1) - tess__unit_row(d, u);
        }
    part->bounds[at] = row;
}

static tess_status make_part(const tess_dist_attn *d, const tess__dist_plan *in,
                             const tess_ring_step *step, tess__ring_part *part)
{
    *part = (tess__ring_part){.rows = step->rows};
    if (d->opts.n_groups == 0)
        return TESS_OK; /* there are no lists */
    part->runs = TESS_TAKE(in->arena, (size_t)step->n_k * sizeof *part->runs);
    for (int32_t i = 0; i < step->n_k; i++) {
        const tess__unit_run run = units_of(d, &in->plan->info, step->k_ids[i]);
        tess__unit_run *last = part->n_runs ? &part->runs[part->n_runs - 1] : NULL;
        if (last && last->first + last->n == run.first)
            last->n += run.n;
        else
            part->runs[part->n_runs++] = run;
        part->n_units += (int32_t)run.n;
    }
    if (!d->opts.units)
        return TESS_OK;
    part->bounds = TESS_TAKE(in->arena, ((size_t)part->n_units + 1) * sizeof *part->bounds);
    fill_bounds(d, part);
    return TESS_OK;
}

/* What virtual keys need: the group's heads, labels of the own rows. */
static tess_status make_virtual(const tess_dist_attn *d, tess__arena *arena,
                                const tess_ring_view *view, tess__ring_exec *x)
{
    const size_t rows = d->opts.compensate > 1 ? (size_t)x->parts[x->position].rows : 0;
    const size_t heads = (size_t)view->n_heads;
    x->heads = TESS_TAKE(arena, heads * sizeof *x->heads);
    x->labels = TESS_TAKE(arena, rows);
    memcpy(x->heads, view->heads, heads * sizeof *x->heads);
    return TESS_OK;
}

static tess_status make_arrays(const tess_dist_attn *d, tess__arena *arena,
                               const tess__dist_layer *layer, tess__ring_exec *x)
{
    const size_t steps = (size_t)x->steps;
    x->ranks = TESS_TAKE(arena, steps * sizeof *x->ranks);
    x->first = TESS_TAKE(arena, steps * sizeof *x->first);
    x->last = TESS_TAKE(arena, steps * sizeof *x->last);
    x->parts = TESS_TAKE(arena, steps * sizeof *x->parts);
    x->message = TESS_TAKE(arena, 2 * steps * ((steps + 7) / 8));
    x->started = TESS_TAKE(arena, (size_t)d->opts.batch * (size_t)layer->n_shares);
    return TESS_OK;
}

/* Scratch: two key parts in flight, backward three of gradient sums, and o and lse, or dq, of a
 * share. Activations: which position needs which part, and omitted rows. */
static void raise_need(const tess_dist_attn *d, tess__dist_layer *layer, tess__ring_exec *x,
                       tess__dist_need *need)
{
    const int64_t dim = d->opts.head_dim;
    for (int p = 0; p < x->steps; p++)
        tess__raise_to(&x->max_floats, tess__ring_floats(d, x, p));
    for (int64_t i = 0; i < layer->n_shares; i++)
        tess__raise_to(&x->q_floats, layer->shares[i].q_rows * dim);
    const int parts = d->opts.saves > 0 ? 5 : 2;
    x->virtual_offset = 2 * x->max_floats * parts + 2 * x->q_floats;
    x->sums = (int64_t)d->opts.batch * x->n_heads * tess__dist_sums(d);
    tess__raise_to(&need->scratch, x->virtual_offset + tess__ring_virtual_floats(d, layer, x));
    layer->kind_bytes = (size_t)x->steps * (size_t)x->steps;
    tess__left_plan(d, layer);
}

tess_status tess__ring_plan(const tess_dist_attn *d, const tess__dist_plan *in,
                            tess__dist_layer *layer, tess__dist_need *need)
{
    tess_ring_view view;
    tess_exchange_info info;
    tess_plan_layer plan;
    TESS_TRY(tess_exchange_ring(in->exchange, &view));
    TESS_TRY(tess_exchange_query(in->exchange, &info));
    TESS_TRY(tess_plan_layer_view(in->plan, in->layer, &plan));
    assert(layer->n_shares == 0 || layer->n_shares == view.n_heads);
    tess__ring_exec *x = TESS_TAKE(in->arena, sizeof *x);
    *x = (tess__ring_exec){.steps = view.steps,
                           .n_heads = view.n_heads,
                           .position = tess__rank_part(&plan, d->rank),
                           .next = view.next,
                           .previous = view.previous};
    layer->kind_state = x;
    TESS_TRY(make_arrays(d, in->arena, layer, x));
    for (int s = 0; s < x->steps; s++)
        x->ranks[s] = tess__rank_at(&plan, tess__rank_group(&plan, d->rank), s);
    for (int t = 0; t < x->steps; t++)
        TESS_TRY(make_part(d, in, &view.step[t], &x->parts[view.step[t].part]));
    TESS_TRY(make_virtual(d, in->arena, &view, x));
    TESS_TRY(tess__row_exchange_create(d, in, TESS_ROWS_KV, info.packed_k, &layer->kv));
    TESS_TRY(tess__partial_plan(d, in, 2 * d->opts.head_dim, layer, &x->low, need));
    raise_need(d, layer, x, need);
    return TESS_OK;
}
