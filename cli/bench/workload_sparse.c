/* SPDX-License-Identifier: Apache-2.0 */
/* workload_sparse.c - sparse attention in the training step of a problem.
 *
 * A predictor of projection dimension 16 selects single keys for groups of queries, cubes of the
 * tokens' grid, and learns from 48 queries of each head with the optimiser and the learning rate of
 * the second stage of training. Each head of each layer has its budget: the problem's density, or
 * that of a head of a profile, rounded up to 8 keys. Heads of the break-even density or more attend
 * densely.
 */
#include "workload.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/machine.h"

#include <math.h>
#include <string.h>

#ifdef CLI_TRAIN
enum { RANK = 16, LEARN_ROWS = 48, ROUND = 8, SIDE_MAX = 16 };

/* How far groups of these cubes are from what is wanted: in their mean size, in cubes cut off at
 * the edges of the grid, and a little in their shape. */
static double cube_cost(const int grid[3], const int cube[3], double group)
{
    double tokens = 1, groups = 1, volume = 1;
    int longest = 1, shortest = INT32_MAX;
    for (int i = 0; i < 3; i++) {
        const int cubes = (grid[i] + cube[i] - 1) / cube[i];
        tokens *= grid[i];
        groups *= cubes;
        volume *= cube[i];
        longest = cube[i] > longest ? cube[i] : longest;
        shortest = cube[i] < shortest ? cube[i] : shortest;
    }
    const double mean = tokens / groups;
    return fabs(log(mean / group)) + log(volume / mean) + 0.1 * log((double)longest / shortest);
}

/* Cubes of about `group` tokens for a grid. */
static void cube_of(const int grid[3], int64_t group, int cube[3])
{
    double least = INFINITY;
    int c[3];
    for (c[0] = 1; c[0] <= grid[0] && c[0] <= SIDE_MAX; c[0]++)
        for (c[1] = 1; c[1] <= grid[1] && c[1] <= SIDE_MAX; c[1]++)
            for (c[2] = 1; c[2] <= grid[2] && c[2] <= SIDE_MAX; c[2]++) {
                const double cost = cube_cost(grid, c, (double)group);
                if (cost < least) {
                    least = cost;
                    memcpy(cube, c, sizeof c);
                }
            }
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* As given, or measured where times are what is asked for; otherwise any head may be sparse. */
static tess_status set_break_even(workload *w)
{
    const problem *p = &w->p;
    const tess_attn_rates_shape shape = {
        .head_dim = (int)p->dim,
        .queries = p->tokens,
        .keys = p->tokens,
        .group = w->sparse.cube[0] * w->sparse.cube[1] * w->sparse.cube[2],
        .unit = 1,
        .compensate = (int)p->compensate,
        .proj_dim = RANK,
        .backward = p->backward,
        .precision = problem_in_bf16(p) ? TESS_PRECISION_BF16 : TESS_PRECISION_FP32};
    tess_break_even_result result = {.density = p->break_even > 0 ? p->break_even : 1};
    if (p->break_even == 0 && w->timed) {
        TRY(tess_break_even(w->c->ctx, &shape, cache_folder(w->c), &result));
        w->sparse.break_even_from = result.cached ? BREAK_EVEN_CACHED : BREAK_EVEN_MEASURED;
    }
    w->sparse.break_even = result.density;
    return TESS_OK;
}

static int32_t keys_of(const workload *w, double density)
{
    const double tokens = (double)w->p.tokens, keys = ceil(density * tokens / ROUND) * ROUND;
    return (int32_t)fmin(fmax(keys, ROUND), tokens);
}

/* Budgets (layers, batch, heads) of the densities, and what they amount to. */
static tess_status set_budgets(workload *w)
{
    const problem *p = &w->p;
    sparse_step *s = &w->sparse;
    const int64_t heads = p->batch * p->heads, n = p->layers * heads;
    void *data;
    TRY(workload_take(w, n, TESS_DTYPE_I32, &data));
    s->budgets = data;
    TRY(workload_take(w, n, TESS_DTYPE_I32, &data));
    s->checked = data;
    for (int64_t i = 0; i < n; i++) {
        const double density = s->densities[i / heads * p->heads + i % p->heads];
        s->checked[i] = keys_of(w, density);
        const int32_t keys = density >= s->break_even ? 0 : s->checked[i];
        const double share = keys ? (double)keys / (double)p->tokens : 1;
        s->budgets[i] = keys;
        s->dense_heads += keys == 0;
        s->asked += density / (double)n;
        s->ran += share / (double)n;
        s->room.max_density = fmax(s->room.max_density, keys ? share : 0);
    }
    return TESS_OK;
}

tess_status workload_plan_sparse(workload *w, tess_pass_shape *shape)
{
    const problem *p = &w->p;
    sparse_step *s = &w->sparse;
    s->grid[0] = shape->frames;
    s->grid[1] = shape->height / 2;
    s->grid[2] = shape->width / 2;
    cube_of(s->grid, p->group, s->cube);
    TRY(workload_densities(w));
    TRY(set_break_even(w));
    TRY(set_budgets(w));
    s->room.proj_dim = RANK;
    s->room.compensate = (int)p->compensate;
    if (p->backward)
        s->room.learn_rows = p->tokens < LEARN_ROWS ? (int)p->tokens : LEARN_ROWS;
    shape->cube = s->cube;
    shape->sparse = &s->room;
    return TESS_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

tess_status workload_groups(workload *w)
{
    sparse_step *s = &w->sparse;
    void *data;
    TRY(tess_order_cubes(s->grid, s->cube, NULL, NULL, NULL, &s->groups));
    TRY(workload_take(w, s->groups + 1, TESS_DTYPE_I64, &data));
    s->bounds = data;
    return tess_order_cubes(s->grid, s->cube, NULL, NULL, s->bounds, NULL);
}

static tess_status make_learner(workload *w, const tess_model_config *config)
{
    sparse_step *s = &w->sparse;
    tess_attention_opts opts = TESS_ATTENTION_OPTS_INIT;
    opts.kind = TESS_ATTENTION_DSV;
    opts.proj_dim = RANK;
    TRY(tess_stage_query(&opts, 1, w->p.tokens, &s->stage));
    return w->p.backward
               ? tess_learner_create(w->c->ctx, s->attend.predictor, config->layers, &s->learner)
               : TESS_OK;
}

tess_status workload_make_sparse(workload *w, const tess_model_config *config)
{
    const problem *p = &w->p;
    sparse_step *s = &w->sparse;
    const int64_t heads = p->batch * p->heads;
    void *data;
    if (!s->bounds)
        TRY(workload_groups(w));
    TRY(workload_take(w, p->layers * (int64_t)sizeof *s->layers, TESS_DTYPE_U8, &data));
    s->layers = data;
    for (int64_t i = 0; i < p->layers; i++)
        s->layers[i] = (tess_attend_layer){
            .kind = TESS_SELECT_PREDICTOR, .keys = s->budgets + i * heads, .learn = p->backward};
    const tess_predictor_opts opts = {.proj_dim = RANK, .seed = (uint64_t)p->seed};
    TRY(tess_predictor_create(w->c->ctx, config, &opts, &s->attend.predictor));
    TRY(make_learner(w, config));
    s->attend.layers = s->layers;
    s->attend.seed = (uint64_t)p->seed;
    s->attend.hook = workload_hook;
    s->attend.user = w;
    return w->comm ? TESS_OK : workload_make_probe(w);
}

void workload_free_sparse(workload *w)
{
    tess_selector_destroy(w->sparse.probe.selector);
    tess_learner_destroy(w->sparse.learner);
    tess_predictor_destroy(w->sparse.attend.predictor);
}

tess_status workload_step_sparse(workload *w)
{
    w->sparse.attend.step++;
    TRY(tess_pass_attend(w->pass, &w->sparse.attend));
    return workload_step(w);
}

/* Gradients of ranks are parts of the predictor's. */
static tess_status update(workload *w)
{
    sparse_step *s = &w->sparse;
    tess_predictor_info info;
    int updated = 0;
    TRY(tess_predictor_query(s->attend.predictor, &info));
    if (w->comm)
        TRY(tess_comm_allreduce(w->comm, TESS_TRAFFIC_PAYLOAD, info.gradients, info.count,
                                TESS_DTYPE_F32, TESS_REDUCE_SUM));
    TRY(tess_learner_update(s->learner, s->stage.lr, &updated));
    return updated ? TESS_OK
                   : out_fail(w->c, TESS_EINVAL, "step: a gradient of the predictor is not finite");
}

tess_status workload_step_learned(workload *w)
{
    sparse_step *s = &w->sparse;
    if (!s->learner)
        return workload_step_sparse(w);
    const int64_t start = tess_clock_ns();
    TRY(tess_predictor_zero_gradients(s->attend.predictor));
    const int64_t begin = tess_clock_ns();
    TRY(workload_step_sparse(w));
    const int64_t end = tess_clock_ns();
    TRY(update(w));
    s->update_ns += begin - start + tess_clock_ns() - end;
    return TESS_OK;
}
#endif
