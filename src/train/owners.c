/* SPDX-License-Identifier: Apache-2.0 */
/* owners.c - which rank owns which parameters: the longest updates first, each to the rank with
 * the least work so far.
 *
 * A parameter is owned whole, for Muon's step needs the whole matrix. What its update costs is
 * counted in flop: Muon's products, and for the passes over memory that both optimisers make about
 * 100 per number, which is what a core computes while it moves seven floats. The rule (longest
 * processing time first) is at most 4/3 - 1/(3 P) times the best; equal costs go by number and by
 * rank, so every rank finds the same owners.
 */
#include "optim/process_group.h"

#include "train_internal.h"

#include <stdlib.h>

typedef struct {
    int64_t cost;
    int slot;
} task;

static int64_t cost_of(const tess__optim_slot *slot)
{
    enum { MOVED = 100, NEWTON = 5 };
    const int64_t k = TESS_MIN(slot->rows, slot->cols);
    return slot->count * MOVED + NEWTON * (4 * k * slot->count + 2 * k * k * k);
}

static int by_cost(const void *a, const void *b)
{
    const task *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? 1 : -1;
    return x->slot - y->slot;
}

/* loads: (ranks), zeros. */
static void assign(tess__owners *o, task *tasks, int64_t *loads)
{
    for (int i = 0; i < o->n_slots; i++)
        tasks[i] = (task){cost_of(&o->slots[i]), i};
    qsort(tasks, (size_t)o->n_slots, sizeof *tasks, by_cost);
    for (int i = 0; i < o->n_slots; i++) {
        int least = 0;
        for (int r = 1; r < o->ranks; r++)
            if (loads[r] < loads[least])
                least = r;
        loads[least] += tasks[i].cost;
        o->owner[tasks[i].slot] = least;
    }
}

/* Places of the slots in the state of an optimiser that has all of them. */
static void place_slots(tess__owners *o)
{
    for (int i = 0; i < o->n_slots; i++) {
        tess__optim_slot *slot = &o->slots[i];
        slot->first = slot->at;
        slot->second = o->total_second;
        o->total += slot->count;
        o->total_second += slot->rows == 0 ? slot->count : 0;
    }
}

static void cut_parts(tess__owners *o, const tess__params *params)
{
    o->begin[0] = 0;
    for (int part = 1; part < o->parts; part++)
        o->begin[part] = params->block_index + (part - 1) * params->block_params;
    o->begin[o->parts] = params->params;
    for (int part = 0, n = 0; part < o->parts; part++)
        for (int rank = 0; rank < o->ranks; rank++) {
            int64_t *bytes = &o->bytes[(int64_t)part * o->ranks + rank];
            *bytes = 0;
            for (int i = o->begin[part]; i < o->begin[part + 1]; i++)
                if (o->owner[i] == rank) {
                    o->order[n++] = i;
                    *bytes += o->slots[i].count * (int64_t)sizeof(float);
                }
        }
}

static tess_status take_tables(tess__owners *o)
{
    const size_t n = (size_t)o->n_slots, parts = (size_t)o->parts, ranks = (size_t)o->ranks;
    o->slots = TESS_TAKE(&o->arena, n * sizeof *o->slots);
    o->owner = TESS_TAKE(&o->arena, n * sizeof *o->owner);
    o->order = TESS_TAKE(&o->arena, n * sizeof *o->order);
    o->begin = TESS_TAKE(&o->arena, (parts + 1) * sizeof *o->begin);
    o->bytes = TESS_TAKE(&o->arena, parts * ranks * sizeof *o->bytes);
    return TESS_OK;
}

tess_status tess__owners_create(tess_ctx *ctx, const tess__params *params, tess_optim optim,
                                int ranks, tess__owners *owners)
{
    const int blocks = (params->outer[P_TABLE].index - params->block_index) / params->block_params;
    tess__owners o = {
        .arena = {.ctx = ctx}, .n_slots = params->params, .parts = blocks + 2, .ranks = ranks};
    task *tasks = tess__alloc(ctx, (size_t)o.n_slots * sizeof *tasks);
    int64_t *loads = tess__alloc_zero(ctx, (size_t)ranks * sizeof *loads);
    const tess_status status = tasks && loads ? take_tables(&o) : TESS_ENOMEM;
    if (status == TESS_OK) {
        tess__train_slots(params, optim, o.slots);
        place_slots(&o);
        assign(&o, tasks, loads);
        cut_parts(&o, params);
        *owners = o;
    } else {
        tess__arena_free(&o.arena);
    }
    tess__free(ctx, tasks);
    tess__free(ctx, loads);
    return status;
}

void tess__owners_destroy(tess__owners *owners)
{
    tess__arena_free(&owners->arena);
}

int tess__owners_own(const tess__owners *owners, int rank, tess__optim_slot *slots)
{
    int n = 0;
    for (int i = 0; i < owners->n_slots; i++) {
        if (owners->owner[i] != rank)
            continue;
        if (slots)
            slots[n] = owners->slots[i];
        n++;
    }
    return n;
}

int64_t tess__owners_part(const tess__owners *owners)
{
    int64_t most = 0;
    for (int part = 0; part < owners->parts; part++) {
        int64_t bytes = 0;
        for (int rank = 0; rank < owners->ranks; rank++)
            bytes += owners->bytes[(int64_t)part * owners->ranks + rank];
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t tess__owners_share(const tess__owners *owners, int rank)
{
    int64_t most = 0;
    for (int part = 0; part < owners->parts; part++) {
        const int64_t bytes = owners->bytes[(int64_t)part * owners->ranks + rank];
        most = bytes > most ? bytes : most;
    }
    return most;
}
