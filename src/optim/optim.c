/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c - the state of the optimiser, the norm of the gradients, and one update.
 *
 * Memory: one allocation for tables and moments, one for Muon's scratch. Bytes: 8 per parameter of
 * AdamW, 4 per parameter of Muon, 4 for the running average.
 */
#include "optim.h"

#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

typedef struct {
    int64_t total, second, pieces;
    int slots, matrices;
    int64_t scratch_each; /* floats */
    int scratch_sets;
} measures;

static int64_t pieces_of(const tess__optim_slot *slot)
{
    return (slot->count + TESS_PIECE - 1) / TESS_PIECE;
}

/* Small matrices: one thread each. A large one: all threads, with scratch of its own size. */
static measures measure(const tess__optim_slot *slots, const int *times, int n, int threads)
{
    measures m = {.scratch_sets = 1};
    int64_t small = 0, large = 0;
    for (int i = 0; i < n; i++) {
        const int repeat = times ? times[i] : 1;
        m.slots += repeat;
        m.total += repeat * slots[i].count;
        m.pieces += repeat * pieces_of(&slots[i]);
        if (slots[i].rows == 0) {
            m.second += repeat * slots[i].count;
            continue;
        }
        const int64_t need = tess__muon_scratch(slots[i].rows, slots[i].cols);
        int64_t *most = tess__muon_small(slots[i].rows, slots[i].cols) ? &small : &large;
        *most = TESS_MAX(need, *most);
        m.matrices += repeat;
    }
    if (small > 0)
        m.scratch_sets = TESS_MIN(threads, m.matrices);
    const int64_t each = (large + m.scratch_sets - 1) / m.scratch_sets;
    m.scratch_each = TESS_MAX(small, each);
    m.scratch_each = (m.scratch_each + 15) / 16 * 16; /* whole cache lines */
    return m;
}

void tess__optim_measure(const tess__optim_slot *slots, const int *times, int n, int ema,
                         int threads, tess__optim_need *need)
{
    const measures m = measure(slots, times, n, threads);
    const int64_t f = (int64_t)sizeof(float);
    need->moments = (m.total + m.second) * f;
    need->ema = ema ? m.total * f : 0;
    need->workspace = m.scratch_each * m.scratch_sets * f +
                      m.pieces * (int64_t)(sizeof(tess__optim_piece) + sizeof(double)) +
                      m.slots * (int64_t)(sizeof(tess__optim_slot) + sizeof(int));
}

/* ---- making ---------------------------------------------------------------------------------- */

static void add_pieces(tess__optim *o, int muon)
{
    for (int i = 0; i < o->n_slots; i++) {
        const tess__optim_slot *slot = &o->slots[i];
        if ((slot->rows != 0) != muon)
            continue;
        for (int64_t at = 0; at < slot->count; at += TESS_PIECE) {
            const int64_t left = slot->count - at;
            o->pieces[o->n_pieces++] =
                (tess__optim_piece){i, at, (size_t)TESS_MIN(left, TESS_PIECE)};
        }
    }
}

static void fill_tables(tess__optim *o, const tess__optim_slot *slots)
{
    int64_t first = 0, second = 0;
    for (int i = 0; i < o->n_slots; i++) {
        o->slots[i] = slots[i];
        o->slots[i].first = first;
        o->slots[i].second = second;
        first += slots[i].count;
        if (slots[i].rows == 0)
            second += slots[i].count;
        else
            o->matrices[o->n_matrices++] = i;
    }
    add_pieces(o, 0);
    o->n_adamw = o->n_pieces;
    add_pieces(o, 1);
}

tess_status tess__optim_create(tess_ctx *ctx, const tess__optim_slot *slots, int n, int ema,
                               const float *value, tess__optim *optim)
{
    const measures m = measure(slots, NULL, n, ctx->threads);
    const size_t f = sizeof(float), total = (size_t)m.total;
    tess__optim o = {.ctx = ctx,
                     .arena = {.ctx = ctx},
                     .n_slots = n,
                     .total = m.total,
                     .total_second = m.second,
                     .scratch_each = m.scratch_each,
                     .scratch_sets = m.scratch_sets};
    const size_t sizes[] = {(size_t)n * sizeof *o.slots,
                            (size_t)m.pieces * sizeof *o.pieces,
                            (size_t)m.pieces * sizeof *o.sums,
                            (size_t)m.matrices * sizeof *o.matrices,
                            total * f,
                            (size_t)m.second * f,
                            ema ? total * f : 0,
                            (size_t)(m.scratch_each * m.scratch_sets) * f};
    void *parts[sizeof sizes / sizeof *sizes];
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        bytes += tess__arena_round(sizes[i]);
    TESS_TRY(tess__arena_reserve(&o.arena, bytes));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        parts[i] = tess__arena_take(&o.arena, sizes[i]); /* reserved: cannot fail */
    o.slots = parts[0];
    o.pieces = parts[1];
    o.sums = parts[2];
    o.matrices = parts[3];
    o.first = parts[4];
    o.second = parts[5];
    o.ema = ema ? parts[6] : NULL;
    o.scratch = parts[7];
    memset(o.first, 0, total * f);
    memset(o.second, 0, (size_t)m.second * f);
    fill_tables(&o, slots);
    for (int i = 0; ema && i < n; i++)
        memcpy(o.ema + o.slots[i].first, value + slots[i].at, (size_t)slots[i].count * f);
    *optim = o;
    return TESS_OK;
}

void tess__optim_destroy(tess__optim *optim)
{
    tess__arena_free(&optim->arena);
}

/* ---- a step ---------------------------------------------------------------------------------- */

double tess__optim_squares(tess__optim *optim, const float *gradient)
{
#pragma omp parallel for num_threads(optim->ctx->threads) schedule(static)
    for (int64_t i = 0; i < optim->n_pieces; i++) {
        const tess__optim_piece *p = &optim->pieces[i];
        optim->sums[i] =
            optim->ctx->kernels->sum_squares(gradient + optim->slots[p->slot].at + p->at, p->count);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < optim->n_pieces; i++)
        sum += optim->sums[i];
    return sum;
}

void tess__optim_squares_each(tess__optim *optim, const float *gradient, double *each)
{
    tess__optim_squares(optim, gradient);
    for (int i = 0; i < optim->n_slots; i++)
        each[optim->slots[i].param] = 0.0;
    for (int64_t i = 0; i < optim->n_pieces; i++)
        each[optim->slots[optim->pieces[i].slot].param] += optim->sums[i];
}

tess_status tess__optim_update(tess__optim *optim, const tess__optim_step *step, float *value,
                               const float *gradient)
{
    tess__adamw_update(optim, step, value, gradient);
    return tess__muon_update(optim, step, value, gradient);
}

float tess__ema_rate(double decay, int64_t step)
{
    const double start = (1.0 + (double)step) / (10.0 + (double)step);
    return (float)(1.0 - TESS_MIN(start, decay));
}

void tess__optim_swap(const tess__optim *optim, float *value)
{
    if (!optim->ema)
        return;
#pragma omp parallel for num_threads(optim->ctx->threads) schedule(static)
    for (int64_t i = 0; i < optim->n_pieces; i++) {
        const tess__optim_piece *p = &optim->pieces[i];
        float *v = value + optim->slots[p->slot].at + p->at;
        float *e = optim->ema + optim->slots[p->slot].first + p->at;
        for (size_t k = 0; k < p->count; k++) {
            const float saved = v[k];
            v[k] = e[k];
            e[k] = saved;
        }
    }
}
