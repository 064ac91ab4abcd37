/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the search itself: blocks of combinations, memory of all, time of those that matter.
 *
 * Combinations are taken in blocks of their order. Of each the operations, the memory and a lower
 * bound of the step are computed on all threads. What fits is then simulated, lowest bound first,
 * in small batches; between them the bounds are compared with what was found, and what cannot be
 * listed is left out. Blocks and batches do not depend on the number of threads, and the results of
 * a batch are taken in its order: the same answer, and the same counts, for any number.
 *
 * Neighbours differ in the last axes first. Where only chunks, ZeRO 0 to 2 or the batch differ,
 * layers are the same and their operations are not made again.
 */
#include "search_internal.h"

#include "sim/fields.h"
#include "tessera/advanced/machine.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 2048, BATCH = 64, GRAIN = 32 };
static const int64_t SAVE_NS = 2000000000;

/* What the first half of a run says of a combination. */
typedef struct {
    int64_t number;
    int refused, gpus;
    double bound, key; /* seconds; what it is ranked by */
    double lacking;    /* bytes above the limit */
} probe;

/* Of one thread: its simulator, and the scenario whose layers that holds. */
typedef struct {
    tess_sim *sim;
    tess_scenario last;
    int has_last;
} worker;

struct tess_search {
    tess_ctx *ctx;
    tess_search_opts opts;
    tess__space space;
    tess__ranking ranking;
    tess_search_info info;
    tess_cluster **clusters;
    const char **cluster_names;
    int64_t n_clusters;
    worker *workers;
    int n_workers;
    probe *probes;
    probe **sorted;
    tess_search_point *batch;
    int *batch_ok;
    int64_t next, saved_ns;
    char hash[20];
};

/* ---- preparation ----------------------------------------------------------------------------- */

static const tess_cluster *cluster_of(const tess_search *s, const tess_scenario *scenario)
{
    for (int64_t i = 0; i < s->n_clusters; i++)
        if (strcmp(s->cluster_names[i], scenario->system.cluster) == 0)
            return s->clusters[i];
    return s->clusters[0];
}

/* The cluster of the scenario, or all that an axis names. */
static tess_status load_clusters(tess_search *s)
{
    const char *const one = s->space.base.system.cluster;
    const char *const *names = &one;
    int64_t n = 1;
    for (int i = 0; i < s->space.n; i++)
        if (strcmp(s->space.axes[i].key, "system.cluster") == 0) {
            names = s->space.axes[i].texts;
            n = s->space.axes[i].n;
        }
    if (!*names[0])
        return tess__fail(TESS_EINVAL, "the scenario names no cluster");
    s->clusters = TESS_ALLOC_ZERO(s->ctx, (size_t)n * sizeof(void *));
    s->cluster_names = TESS_ALLOC_ZERO(s->ctx, (size_t)n * sizeof(void *));
    for (; s->n_clusters < n; s->n_clusters++) {
        s->cluster_names[s->n_clusters] = names[s->n_clusters];
        TESS_TRY(tess_cluster_load(s->ctx, names[s->n_clusters], &s->clusters[s->n_clusters]));
    }
    return TESS_OK;
}

static tess_status make_workers(tess_search *s, const tess_sim_params *params,
                                const tess_sim_measured *measured)
{
    const size_t n = (size_t)s->ctx->threads;
    s->workers = TESS_ALLOC_ZERO(s->ctx, n * sizeof *s->workers);
    s->probes = TESS_ALLOC(s->ctx, BLOCK * sizeof *s->probes);
    s->sorted = TESS_ALLOC(s->ctx, BLOCK * sizeof(void *));
    s->batch = TESS_ALLOC(s->ctx, BATCH * sizeof *s->batch);
    s->batch_ok = TESS_ALLOC(s->ctx, BATCH * sizeof *s->batch_ok);
    s->n_workers = s->ctx->threads;
    for (size_t i = 0; i < n; i++) {
        TESS_TRY(tess_sim_create(s->ctx, params, &s->workers[i].sim));
        TESS_TRY(tess_sim_use_measured(s->workers[i].sim, measured));
    }
    return TESS_OK;
}

/* ---- one combination ------------------------------------------------------------------------- */

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

static double limit_of(const tess_search *s, double capacity)
{
    return s->opts.memory_limit > 0.0 ? fmin(s->opts.memory_limit, capacity) : capacity;
}

static void inspect(const tess_search *s, worker *w, int64_t number, probe *p)
{
    tess_scenario given, full, key;
    tess_sim_memory memory;
    *p = (probe){.number = number, .refused = 1};
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
    p->lacking = fmax(memory.peak - limit_of(s, memory.capacity), 0.0);
}

static tess_status simulate(const tess_search *s, worker *w, int64_t number,
                            tess_search_point *point)
{
    tess_scenario given;
    tess_sim_result r;
    tess__space_scenario(&s->space, number, &given);
    w->has_last = 0;
    TESS_TRY(tess_sim_run(w->sim, cluster_of(s, &given), &given, &r));
    *point =
        (tess_search_point){.combination = number,
                            .cost = r.gpu_hours * (s->opts.price > 0.0 ? s->opts.price : 1.0),
                            .lacking = fmax(r.memory.peak - limit_of(s, r.memory.capacity), 0.0),
                            .result = r};
    return TESS_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int by_bound(const void *a, const void *b)
{
    const probe *x = *(probe *const *)a, *y = *(probe *const *)b;
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
static int must_simulate(const tess_search *s, const probe *p)
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
        int64_t numbers[BATCH];
        int count = 0;
        for (; at < n && count < BATCH; at++) {
            const probe *p = s->sorted[at];
            if (must_simulate(s, p))
                numbers[count++] = p->number;
            else if (is_late(s, p->bound))
                s->ranking.feasible--;
        }
#pragma omp parallel for num_threads(s->n_workers) schedule(dynamic)
        for (int i = 0; i < count; i++)
            s->batch_ok[i] =
                simulate(s, &s->workers[omp_get_thread_num()], numbers[i], &s->batch[i]) == TESS_OK;
        TESS_TRY(take(s, count));
    }
    return TESS_OK;
}

static void note_nearest(tess_search *s, const probe *p)
{
    tess_search_point *nearest = &s->ranking.nearest;
    if (nearest->combination < 0 || p->lacking < nearest->lacking)
        *nearest = (tess_search_point){.combination = p->number, .lacking = p->lacking};
}

static tess_status run_block(tess_search *s, int64_t n)
{
    const int64_t *numbers = s->space.valid + s->next;
    int fitting = 0;
#pragma omp parallel for num_threads(s->n_workers) schedule(dynamic, GRAIN)
    for (int64_t i = 0; i < n; i++)
        inspect(s, &s->workers[omp_get_thread_num()], numbers[i], &s->probes[i]);
    for (int64_t i = 0; i < n; i++) {
        probe *p = &s->probes[i];
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

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Everything that decides the answer: settings, axes, options, and what the simulator says of three
 * combinations, which parameters, clusters and versions change. */
static void name_search(tess_search *s)
{
    uint64_t h = 18;
    char text[128];
    for (int i = 0; i < tess__n_fields; i++) {
        const char *value = tess__field_text(&s->space.base, &tess__fields[i], text, sizeof text);
        h = tess__hash(h, value, strlen(value));
    }
    for (int i = 0; i < s->space.n; i++) {
        const tess__axis *axis = &s->space.axes[i];
        h = tess__hash(h, axis->key, strlen(axis->key));
        for (int64_t k = 0; k < axis->n; k++)
            h = tess__hash(h, axis->texts[k], strlen(axis->texts[k]));
    }
    const double numbers[] = {(double)s->opts.by, s->opts.memory_limit, s->opts.deadline,
                              s->opts.steps,      s->opts.price,        s->opts.exhaustive};
    h = tess__hash(h, numbers, sizeof numbers);
    for (int64_t i = 0; i < 3; i++) {
        tess_search_point point;
        const int64_t at = i * (s->space.n_valid - 1) / 2;
        if (simulate(s, &s->workers[0], s->space.valid[at], &point) == TESS_OK) {
            const double found[] = {point.result.step_s, point.result.memory.peak};
            h = tess__hash(h, found, sizeof found);
        }
    }
    snprintf(s->hash, sizeof s->hash, "%016llx", (unsigned long long)h);
}

static tess_status save(tess_search *s, int64_t now)
{
    const tess__ranking *r = &s->ranking;
    tess__search_state state = {.next = s->next,
                                .evaluated = r->evaluated,
                                .feasible = r->feasible,
                                .refused = r->refused,
                                .nearest = r->nearest.combination,
                                .late = r->late.combination};
    memcpy(state.search, s->hash, sizeof s->hash);
    state.kept = TESS_ALLOC(s->ctx, ((size_t)r->n_groups + TESS__TOP) * sizeof *state.kept);
    for (int i = 0; i < r->n_top; i++)
        state.kept[state.n_kept++] = r->top[i].combination;
    for (int64_t i = 0; i < r->n_groups; i++)
        state.kept[state.n_kept++] = r->groups[i].combination;
    qsort(state.kept, (size_t)state.n_kept, sizeof *state.kept, tess__by_int64);
    int64_t n = 0;
    for (int64_t i = 0; i < state.n_kept; i++)
        if (i == 0 || state.kept[i] != state.kept[i - 1])
            state.kept[n++] = state.kept[i];
    state.n_kept = n;
    s->saved_ns = now;
    const tess_status status = tess__search_save(s->ctx, s->opts.checkpoint, &state);
    tess__search_state_free(s->ctx, &state);
    return status;
}

static tess_status not_ours(const tess_search *s, const char *why)
{
    return tess__fail(TESS_EINVAL, "%s: %s; remove it to begin anew", s->opts.checkpoint, why);
}

/* Simulates again what the checkpoint names. */
static tess_status restore(tess_search *s, const tess__search_state *state)
{
    tess__ranking *r = &s->ranking;
    tess_search_point point;
    if (strcmp(state->search, s->hash) != 0)
        return not_ours(s, "a checkpoint of another search");
    if (state->next > s->space.n_valid)
        return not_ours(s, "its \"next\" is above the combinations of the search");
    for (int64_t i = -2; i < state->n_kept; i++) {
        const int64_t number = i == -2 ? state->nearest : i == -1 ? state->late : state->kept[i];
        if (i < 0 && number < 0)
            continue;
        if (!tess__space_has(&s->space, number) ||
            simulate(s, &s->workers[0], number, &point) != TESS_OK)
            return not_ours(s, "it names a combination that breaks the rules");
        if (i == -2)
            r->nearest = point;
        else if (i == -1)
            r->late = point;
        else
            TESS_TRY(tess__ranking_add(s->ctx, r, &point));
    }
    r->evaluated = state->evaluated;
    r->feasible = state->feasible;
    r->refused = state->refused;
    s->next = s->info.resumed = state->next;
    return TESS_OK;
}

static tess_status resume(tess_search *s)
{
    tess__search_state state;
    name_search(s);
    if (access(s->opts.checkpoint, F_OK) != 0 && errno == ENOENT)
        return TESS_OK;
    TESS_TRY(tess__search_parse(s->ctx, s->opts.checkpoint, NULL, 0, &state));
    const tess_status status = restore(s, &state);
    tess__search_state_free(s->ctx, &state);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static tess_status run_blocks(tess_search *s)
{
    const int64_t total = s->space.n_valid;
    if (s->opts.checkpoint)
        TESS_TRY(resume(s));
    s->saved_ns = tess_clock_ns();
    /* An exhaustive search simulates the whole of a block, and stops between two. */
    const int64_t most = s->opts.exhaustive ? BLOCK / 8 : BLOCK;
    while (s->next < total && !s->info.stopped) {
        const int64_t n = TESS_MIN(total - s->next, most);
        TESS_TRY(run_block(s, n));
        s->next += n;
        s->info.stopped =
            tess__progress(s->ctx, "simulating combinations", s->next, total) != TESS_OK &&
            s->next < total;
        const int64_t now = tess_clock_ns();
        if (s->opts.checkpoint &&
            (s->info.stopped || s->next == total || now - s->saved_ns > SAVE_NS))
            TESS_TRY(save(s, now));
    }
    return TESS_OK;
}

/* All refused: the simulator's own sentence about the first one. */
static tess_status finish(tess_search *s)
{
    tess__ranking *r = &s->ranking;
    tess_search_point point;
    if (r->refused == s->next && s->next > 0)
        return simulate(s, &s->workers[0], s->space.valid[0], &point);
    if (r->nearest.combination >= 0)
        TESS_TRY(simulate(s, &s->workers[0], r->nearest.combination, &r->nearest));
    TESS_TRY(tess__ranking_fronts(s->ctx, r));
    s->info.combinations = s->space.combinations;
    s->info.valid = s->space.n_valid - r->refused;
    s->info.evaluated = r->evaluated;
    s->info.feasible = r->feasible;
    s->info.axes = s->space.n;
    TESS_TRY(
        simulate(s, &s->workers[0], r->n_top ? r->top[0].combination : s->space.valid[0], &point));
    s->info.limit = limit_of(s, point.result.memory.capacity);
    return TESS_OK;
}

static tess_status check_opts(const tess_search_opts *opts)
{
    const char *who = "tess_search_run";
    TESS_TRY(tess__check_range(who, "by", opts->by, 0, TESS_SEARCH_GPU_HOURS));
    TESS_TRY(tess__check_number_or_0(who, "memory_limit", opts->memory_limit, 1.0, 1e18));
    TESS_TRY(tess__check_number_or_0(who, "deadline", opts->deadline, 1e-9, 1e18));
    TESS_TRY(tess__check_number_or_0(who, "steps", opts->steps, 1.0, 1e18));
    TESS_TRY(tess__check_number_or_0(who, "price", opts->price, 1e-12, 1e12));
    if (opts->deadline > 0.0 && opts->steps == 0.0)
        return tess__invalid(who, "a deadline needs steps");
    return TESS_OK;
}

tess_status tess_search_run(tess_ctx *ctx, const tess_sim_params *params,
                            const tess_sim_measured *measured, const tess_scenario *scenario,
                            const tess_search_opts *opts, tess_search **search)
{
    static const tess_search_opts usual;
    TESS_REQUIRE(ctx, params, scenario, search);
    TESS_TRY(check_opts(opts ? opts : &usual));
    tess_search *s = TESS_ALLOC_ZERO(ctx, sizeof *s);
    s->ctx = s->space.ctx = s->space.arena.ctx = ctx;
    s->opts = opts ? *opts : usual;
    s->ranking.by = s->opts.by;
    s->ranking.nearest.combination = s->ranking.late.combination = -1;
    tess_status status = tess__axes_make(scenario, &s->opts, &s->space);
    if (status == TESS_OK)
        status = tess__space_list(&s->space);
    if (status == TESS_OK)
        status = load_clusters(s);
    if (status == TESS_OK)
        status = make_workers(s, params, measured);
    if (status == TESS_OK)
        status = run_blocks(s);
    if (status == TESS_OK)
        status = finish(s);
    if (status == TESS_OK)
        *search = s;
    else
        tess_search_destroy(s);
    return status;
}

void tess_search_destroy(tess_search *search)
{
    if (!search)
        return;
    tess_ctx *ctx = search->ctx;
    for (int i = 0; i < search->n_workers; i++)
        tess_sim_destroy(search->workers[i].sim);
    for (int64_t i = 0; i < search->n_clusters; i++)
        tess_cluster_destroy(search->clusters[i]);
    tess__free(ctx, search->clusters);
    tess__free(ctx, search->cluster_names);
    tess__free(ctx, search->workers);
    tess__free(ctx, search->probes);
    tess__free(ctx, search->sorted);
    tess__free(ctx, search->batch);
    tess__free(ctx, search->batch_ok);
    tess__ranking_free(ctx, &search->ranking);
    tess__space_free(&search->space);
    tess__free(ctx, search);
}

/* ---- results --------------------------------------------------------------------------------- */

tess_status tess_search_query(const tess_search *search, tess_search_info *info)
{
    TESS_REQUIRE(search, info);
    *info = search->info;
    return TESS_OK;
}

static const tess_search_point *point_at(const tess_search *s, tess_search_list list, int index)
{
    const tess__ranking *r = &s->ranking;
    switch (list) {
    case TESS_SEARCH_TOP: return &r->top[index];
    case TESS_SEARCH_FRONT_GPUS: return &r->groups[r->front_gpus[index]];
    case TESS_SEARCH_FRONT_COST: return &r->groups[r->front_cost[index]];
    case TESS_SEARCH_NEAREST: return &r->nearest;
    default: return &r->late;
    }
}

int tess_search_count(const tess_search *search, tess_search_list list)
{
    if (!search)
        return 0;
    const tess__ranking *r = &search->ranking;
    switch (list) {
    case TESS_SEARCH_TOP: return r->n_top;
    case TESS_SEARCH_FRONT_GPUS: return r->n_front_gpus;
    case TESS_SEARCH_FRONT_COST: return r->n_front_cost;
    case TESS_SEARCH_NEAREST: return r->nearest.combination >= 0;
    case TESS_SEARCH_LATE: return r->n_top == 0 && r->late.combination >= 0;
    default: return 0;
    }
}

tess_status tess_search_get(const tess_search *search, tess_search_list list, int index,
                            tess_search_point *point)
{
    TESS_REQUIRE(search, point);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, tess_search_count(search, list) - 1));
    *point = *point_at(search, list, index);
    return TESS_OK;
}

const char *tess_search_key(const tess_search *search, int axis)
{
    return search && axis >= 0 && axis < search->space.n ? search->space.axes[axis].key : NULL;
}

const char *tess_search_value(const tess_search *search, int axis, int64_t combination)
{
    if (!search || axis < 0 || axis >= search->space.n || combination < 0)
        return NULL;
    return search->space.axes[axis].texts[tess__space_place(&search->space, axis, combination)];
}
