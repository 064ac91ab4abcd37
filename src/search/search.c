/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - the search itself: blocks of combinations in their order, until none is left.
 *
 * A block is the unit of work (search_blocks.c), and what was kept of the blocks that are done is
 * the checkpoint (search_resume.c).
 */
#include "search_internal.h"

#include "tessera/advanced/machine.h"

#include <string.h>

static const int64_t SAVE_NS = 2000000000;

/* ---- preparation ----------------------------------------------------------------------------- */

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
    s->probes = TESS_ALLOC(s->ctx, TESS__SEARCH_BLOCK * sizeof *s->probes);
    s->sorted = TESS_ALLOC(s->ctx, TESS__SEARCH_BLOCK * sizeof(void *));
    s->batch = TESS_ALLOC(s->ctx, TESS__SEARCH_BATCH * sizeof *s->batch);
    s->batch_ok = TESS_ALLOC(s->ctx, TESS__SEARCH_BATCH * sizeof *s->batch_ok);
    s->n_workers = s->ctx->threads;
    for (size_t i = 0; i < n; i++) {
        TESS_TRY(tess_sim_create(s->ctx, params, &s->workers[i].sim));
        TESS_TRY(tess_sim_use_measured(s->workers[i].sim, measured));
    }
    return TESS_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static tess_status run_blocks(tess_search *s)
{
    const int64_t total = s->space.n_valid;
    if (s->opts.checkpoint)
        TESS_TRY(tess__search_resume(s));
    s->saved_ns = tess_clock_ns();
    /* An exhaustive search simulates the whole of a block, and stops between two. */
    const int64_t most = s->opts.exhaustive ? TESS__SEARCH_BLOCK / 8 : TESS__SEARCH_BLOCK;
    while (s->next < total && !s->info.stopped) {
        const int64_t n = TESS_MIN(total - s->next, most);
        TESS_TRY(tess__search_block(s, n));
        s->next += n;
        s->info.stopped =
            tess__progress(s->ctx, "simulating combinations", s->next, total) != TESS_OK &&
            s->next < total;
        const int64_t now = tess_clock_ns();
        if (s->opts.checkpoint &&
            (s->info.stopped || s->next == total || now - s->saved_ns > SAVE_NS))
            TESS_TRY(tess__search_keep(s, now));
    }
    return TESS_OK;
}

/* All refused: the simulator's own sentence about the first one. */
static tess_status finish(tess_search *s)
{
    tess__ranking *r = &s->ranking;
    tess_search_point point;
    if (r->refused == s->next && s->next > 0)
        return tess__search_simulate(s, &s->workers[0], s->space.valid[0], &point);
    if (r->nearest.combination >= 0)
        TESS_TRY(tess__search_simulate(s, &s->workers[0], r->nearest.combination, &r->nearest));
    TESS_TRY(tess__ranking_fronts(s->ctx, r));
    s->info.combinations = s->space.combinations;
    s->info.valid = s->space.n_valid - r->refused;
    s->info.evaluated = r->evaluated;
    s->info.feasible = r->feasible;
    s->info.axes = s->space.n;
    TESS_TRY(tess__search_simulate(s, &s->workers[0],
                                   r->n_top ? r->top[0].combination : s->space.valid[0], &point));
    s->info.limit = tess__search_limit(s, point.result.memory.capacity);
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
