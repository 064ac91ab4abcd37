/* SPDX-License-Identifier: Apache-2.0 */
/* search_blocks.c - blocks of combinations: memory of all, time of those that matter.
 *
 * Of each combination of a block the operations, the memory and a lower bound of the step are
 * computed on all threads. What fits is then simulated, lowest bound first, in small batches;
 * between them the bounds are compared with what was found, and what cannot be listed is left out.
 * Blocks and batches do not depend on the number of threads, and the results of a batch are taken
 * in its order: the same answer, and the same counts, for any number.
 *
 * Neighbours differ in the last axes first. Where only chunks, ZeRO 0 to 2 or the batch differ,
 * layers are the same and their operations are not made again.
 */
#include "search_internal.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 32 };

/* ---- one combination ------------------------------------------------------------------------- */

static const tess_cluster *cluster_of(const tess_search *s, const tess_scenario *scenario)
{
    for (int64_t i = 0; i < s->n_clusters; i++)
        if (strcmp(s->cluster_names[i], scenario->system.cluster) == 0)
            return s->clusters[i];
    return s->clusters[0];
}

/* What layers, embedding and LM head depend on, of a scenario whose defaults are filled in. */
static void layers_key(const tess_scenario *full, tess_scenario *key)
{
    memcpy(key, full, sizeof *key);
    tess_sim_layout *l = &key->layout;
    l->vpp = l->first_layers = l->last_layers = l->outer_layers = 0;
    l->schedule = TESS_SIM_SCHEDULE_DEFAULT;
    key->training.global_batch = 0;
    if (l->zero != 3)
        l->zero = l->gpus = l->dp = 0;
}

double tess__search_limit(const tess_search *s, double capacity)
{
    return s->opts.memory_limit > 0.0 ? fmin(s->opts.memory_limit, capacity) : capacity;
}

static void inspect(const tess_search *s, tess__search_worker *w, int64_t number, tess__probe *p)
{
    tess_scenario given, full, key;
    tess_sim_memory memory;
    *p = (tess__probe){.number = number, .refused = 1};
    tess__space_scenario(&s->space, number, &given);
    if (tess_scenario_fill(&given, &full) != TESS_OK)
        return;
    layers_key(&full, &key);
    /* Padding that differs costs time and no more: then the operations are made again. */
    const int same = !s->opts.exhaustive && w->has_last &&
                     memcmp((const char *)&key, (const char *)&w->last, sizeof key) == 0;
    w->has_last = 0;
    if (tess__sim_prepare(w->sim, cluster_of(s, &full), &full, same) != TESS_OK)
        return;
    memcpy(&w->last, &key, sizeof key);
    w->has_last = 1;
    tess__memory_of(w->sim, &memory);
    p->refused = 0;
    p->gpus = full.layout.gpus;
    p->bound = tess__sim_bound(w->sim);
    p->key = s->opts.by == TESS_SEARCH_TIME ? p->bound : p->gpus * p->bound;
    p->lacking = fmax(memory.peak - tess__search_limit(s, memory.capacity), 0.0);
}

tess_status tess__search_simulate(const tess_search *s, tess__search_worker *w, int64_t number,
                                  tess_search_point *point)
{
    tess_scenario given;
    tess_sim_result r;
    tess__space_scenario(&s->space, number, &given);
    w->has_last = 0;
    TESS_TRY(tess_sim_run(w->sim, cluster_of(s, &given), &given, &r));
    double low, high;
    const double limit = tess__search_limit(s, r.memory.capacity);
    tess__interval_memory(w->sim, &r.memory, &low, &high);
    *point = (tess_search_point){.combination = number,
                                 .cost = r.gpu_hours * (s->opts.price > 0.0 ? s->opts.price : 1.0),
                                 .lacking = fmax(r.memory.peak - limit, 0.0),
                                 .peak_low = low,
                                 .peak_high = high,
                                 .fit = tess__fit_of(low, high, limit),
                                 .result = r};
    return TESS_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int by_bound(const void *a, const void *b)
{
    const tess__probe *x = *(tess__probe *const *)a, *y = *(tess__probe *const *)b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int is_late(const tess_search *s, double step)
{
    return s->opts.deadline > 0.0 && s->opts.steps * step > s->opts.deadline;
}

/* Whether the time of a combination that fits must be known. With a deadline it must be where the
 * bound does not say that it is late: what is in time is counted. */
static int must_simulate(const tess_search *s, const tess__probe *p)
{
    const tess__ranking *r = &s->ranking;
    if (s->opts.exhaustive)
        return 1;
    if (is_late(s, p->bound))
        return r->n_top == 0 && (r->late.combination < 0 || p->bound <= r->late.result.step_s);
    return s->opts.deadline > 0.0 || tess__ranking_open(r, p->gpus, p->bound);
}

static tess_status take(tess_search *s, int n)
{
    for (int i = 0; i < n; i++) {
        if (!s->batch_ok[i])
            continue;
        s->ranking.evaluated++;
        if (is_late(s, s->batch[i].result.step_s)) {
            s->ranking.feasible--;
            tess__ranking_add_late(&s->ranking, &s->batch[i]);
        } else {
            TESS_TRY(tess__ranking_add(s->ctx, &s->ranking, &s->batch[i]));
        }
    }
    return TESS_OK;
}

/* Simulates what matters of the n combinations in `sorted`. */
static tess_status simulate_block(tess_search *s, int n)
{
    for (int at = 0; at < n;) {
        int64_t numbers[TESS__SEARCH_BATCH];
        int count = 0;
        for (; at < n && count < TESS__SEARCH_BATCH; at++) {
            const tess__probe *p = s->sorted[at];
            if (must_simulate(s, p))
                numbers[count++] = p->number;
            else if (is_late(s, p->bound))
                s->ranking.feasible--;
        }
#pragma omp parallel for num_threads(s->n_workers) schedule(dynamic)
        for (int i = 0; i < count; i++)
            s->batch_ok[i] = tess__search_simulate(s, &s->workers[omp_get_thread_num()], numbers[i],
                                                   &s->batch[i]) == TESS_OK;
        TESS_TRY(take(s, count));
    }
    return TESS_OK;
}

static void note_nearest(tess_search *s, const tess__probe *p)
{
    tess_search_point *nearest = &s->ranking.nearest;
    if (nearest->combination < 0 || p->lacking < nearest->lacking)
        *nearest = (tess_search_point){.combination = p->number, .lacking = p->lacking};
}

tess_status tess__search_block(tess_search *s, int64_t n)
{
    const int64_t *numbers = s->space.valid + s->next;
    int fitting = 0;
#pragma omp parallel for num_threads(s->n_workers) schedule(dynamic, GRAIN)
    for (int64_t i = 0; i < n; i++)
        inspect(s, &s->workers[omp_get_thread_num()], numbers[i], &s->probes[i]);
    for (int64_t i = 0; i < n; i++) {
        tess__probe *p = &s->probes[i];
        if (p->refused)
            s->ranking.refused++;
        else if (p->lacking > 0.0)
            note_nearest(s, p);
        else
            s->sorted[fitting++] = p;
    }
    qsort(s->sorted, (size_t)fitting, sizeof(void *), by_bound);
    s->ranking.feasible += fitting;
    return simulate_block(s, fitting);
}
