/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_plan.c - a density profile as a scenario's sparse attention, balanced by the planner.
 *
 * Of the profile's step (or of the mean over its steps) the work of every layer and head goes to
 * tess_plan_create on the scenario's context-parallel ranks. What the simulator needs of the plan:
 *
 *   density     mean over layers and heads
 *   imbalance   sum over layers of the busiest rank's load, over the mean load: slow layers add up
 *   cp_kind     a ring where most layers' plans have one, else heads change hands
 *
 * The methods of others are plans as well: contiguous heads are Ulysses as it is, lpt DSV's sparse
 * HCP, db-sp that of its paper, auto this project's.
 */
#include "plan/plan_internal.h"
#include "sim_internal.h"
#include "tessera/strategy.h"

#include <string.h>

enum { BLOCK = 64 };

/* Densities (layers, heads) of a step, or their mean over steps. */
static tess_status densities(const tess_profile_view *v, int64_t step, double *density)
{
    const size_t n = (size_t)v->layers * (size_t)v->heads;
    if (step >= 0) {
        for (int i = 0; i < v->steps; i++)
            if (v->step[i] == step) {
                memcpy(density, v->density + (size_t)i * n, n * sizeof *density);
                return TESS_OK;
            }
        return tess__fail(TESS_EINVAL, "tess_scenario_plan: the profile has no step %lld",
                          (long long)step);
    }
    memset(density, 0, n * sizeof *density);
    for (int i = 0; i < v->steps; i++)
        for (size_t k = 0; k < n; k++)
            density[k] += v->density[(size_t)i * n + k] / v->steps;
    for (size_t k = 0; k < n; k++) /* the sum of shares may have rounded above 1 */
        density[k] = density[k] > 1.0 ? 1.0 : density[k];
    return TESS_OK;
}

static tess_status read_plan(const tess_plan *plan, int layers, int ranks, tess_scenario *s)
{
    double busiest = 0.0, all = 0.0;
    int rings = 0;
    for (int i = 0; i < layers; i++) {
        tess_plan_layer layer;
        TESS_TRY(tess_plan_layer_view(plan, i, &layer));
        busiest += (double)layer.load_max;
        all += (double)layer.load_total;
        rings += layer.strategy.ring > 1 || layer.strategy.selective > 1;
    }
    s->model.imbalance = all > 0.0 ? busiest * ranks / all : 1.0;
    if (s->model.imbalance < 1.0)
        s->model.imbalance = 1.0;
    s->layout.cp_kind = 2 * rings > layers ? TESS_SIM_CP_RING : TESS_SIM_CP_ULYSSES;
    return TESS_OK;
}

static tess_status make_plan(tess_ctx *ctx, const tess_cluster *cluster, const double *density,
                             const tess_profile_view *v, const tess_scenario *full,
                             tess_plan_method method, tess_scenario *s)
{
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    const int cp = full->layout.cp;
    const int whole = method != TESS_PLAN_AUTO && method != TESS_PLAN_FRACTIONAL;
    tess_plan_opts opts = TESS_PLAN_OPTS_INIT;
    opts.ranks = cp;
    opts.strategy = (tess_strategy){.method = method, .ulysses = whole ? cp : 0};
    opts.pass = full->sampling.steps ? TESS_PLAN_FORWARD : TESS_PLAN_TRAIN;
    opts.head_dim = full->model.head_dim;
    tess_status status =
        tess_work_from_density(ctx, density, v->layers, v->heads, full->model.seq, BLOCK, &work);
    if (status == TESS_OK)
        status = tess_plan_create(ctx, work, cluster, &opts, &plan);
    if (status == TESS_OK)
        status = read_plan(plan, v->layers, cp, s);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    return status;
}

tess_status tess_scenario_plan(tess_ctx *ctx, const tess_cluster *cluster,
                               const tess_profile *profile, int64_t step, tess_plan_method method,
                               tess_scenario *scenario)
{
    TESS_REQUIRE(ctx, cluster, profile, scenario);
    tess_profile_view v;
    tess_scenario full, made = *scenario;
    made.layout.cp_kind =
        TESS_SIM_CP_RING; /* any number of heads; what the plan says comes later */
    TESS_TRY(tess_scenario_fill(&made, &full));
    TESS_TRY(tess_profile_query(profile, &v));
    if (v.heads != full.model.heads || v.layers != full.model.layers)
        return tess__invalid(__func__, "the profile has %d layers of %d heads, the model %d of %d",
                             v.layers, v.heads, full.model.layers, full.model.heads);
    const size_t n = (size_t)v.layers * (size_t)v.heads;
    double *density = TESS_ALLOC(ctx, n * sizeof *density);
    tess_status status = densities(&v, step, density);
    if (status == TESS_OK)
        status = make_plan(ctx, cluster, density, &v, &full, method, &made);
    double sum = 0.0;
    for (size_t k = 0; status == TESS_OK && k < n; k++)
        sum += density[k];
    tess__free(ctx, density);
    if (status != TESS_OK)
        return status;
    made.model.density = sum / (double)n;
    made.model.sparse_layers = 0; /* dense ones are in the profile, too */
    if (made.layout.cp_kind == TESS_SIM_CP_ULYSSES &&
        full.model.heads / full.layout.tp % full.layout.cp)
        made.layout.cp_kind = TESS_SIM_CP_RING; /* heads that are cut travel as a ring's keys do */
    *scenario = made;
    return TESS_OK;
}
