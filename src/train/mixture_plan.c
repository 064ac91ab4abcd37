/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_plan.c - clips of several sizes on many ranks: a plan of the mixture for each step.
 *
 * Every rank makes the same plan (tess_mix_plan_create) from the sizes of the step's clips, their
 * densities and rates that all ranks have alike, computes the clips that are its own, and owns
 * parameters as in any run of many ranks. Which clips a step has does not depend on the plan. A
 * plan of 100 clips takes some 20 us where none is cut, a millisecond at most.
 *
 * A clip is cut over a range of ranks where whole clips alone would be uneven, unless ranks_context
 * is 1. The ranges of a rank are those of all depths (tess_mix_range), a communicator each.
 */
#include "mixture.h"

#include "dsv/control.h"
#include "plan/strategy_internal.h"

#include <string.h>

/* ---- ranges ---------------------------------------------------------------------------------- */

/* 1: clips may be cut. A trace has one rank alone. */
static int cuts_clips(const tess_train *t, const tess_comm_info *world)
{
    return t->opts.ranks_context != 1 && strcmp(world->kind, "trace") != 0;
}

/* Collective: the ranges of this rank, and the rank alone. */
static tess_status make_ranges(tess_train *t)
{
    tess__mixture *m = t->mixture;
    tess_comm_info world = {.size = 1, .nodes = 1};
    int depths = 0, first, end, ranks;
    if (tess__pg_many(&t->pg))
        TESS_TRY(tess_comm_query(t->pg.world, &world));
    const int cuts = world.size > 1 && cuts_clips(t, &world);
    for (ranks = world.size; cuts && ranks > 1; depths++)
        for (int p = ranks = 0; p < world.size; p = end) {
            tess_mix_range(world.size, world.nodes, depths + 1, p, &first, &end);
            ranks = TESS_MAX(ranks, end - first);
        }
    m->ranges = TESS_TAKE(&t->arena, ((size_t)depths + 1) * sizeof *m->ranges);
    memset(m->ranges, 0, ((size_t)depths + 1) * sizeof *m->ranges);
    for (int i = 0; i < depths; i++) {
        tess__mixture_range *range = &m->ranges[i];
        tess_mix_range(world.size, world.nodes, i, t->pg.rank, &range->first, &range->end);
        m->n_ranges = i + 1;
        TESS_TRY(tess_comm_split(t->pg.world, range->first, 0, &range->comm));
    }
    m->ranges[depths] =
        (tess__mixture_range){.comm = t->pg.cp_comm, .first = t->pg.rank, .end = t->pg.rank + 1};
    m->n_ranges = depths + 1;
    m->range = depths;
    return TESS_OK;
}

int tess__mixture_range_of(const tess__mixture *m, const tess__step_clip *clip)
{
    int i = 0;
    while (clip->width > 1 && i < m->n_ranges - 1 &&
           (m->ranges[i].first != clip->first || m->ranges[i].end != clip->first + clip->width))
        i++;
    return clip->width > 1 ? i : m->n_ranges - 1;
}

tess_status tess__mixture_ranks(tess_train *t)
{
    tess__mixture *m = t->mixture;
    TESS_TRY(make_ranges(t));
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    m->input = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->input);
    if (t->opts.cluster)
        TESS_TRY(tess_cluster_load(t->ctx, t->opts.cluster, &m->cluster));
    return tess__rates_create(t);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* The density that is expected of a clip's attention: mean over layers and heads, at its noise
 * level. The table is that of one size, but the densities of all sizes are alike. */
static double density_of(const tess_train *t, double u)
{
    const tess__control *c = t->control;
    if (!c)
        return 1.0;
    const tess__attend_table *table = &c->table;
    const double units = tess__control_units(c, c->state.cubes[0].cube);
    double sum = 0.0;
    for (int layer = 0; layer < table->n_layers; layer++) {
        const int32_t *budgets =
            table->budgets +
            ((int64_t)layer * TESS_NOISE_BUCKETS + tess__quartile(u)) * table->heads;
        for (int h = 0; h < table->heads; h++)
            sum += budgets[h] ? budgets[h] / units : 1.0;
    }
    return sum / table->n_layers / table->heads;
}

/* Clips in the planner's terms, and its options: attention of both passes, weights of a block. */
static void fill(tess_train *t, tess_mix_opts *o)
{
    tess__mixture *m = t->mixture;
    const tess_model_config *c = &t->model->config;
    tess_comm_info world = {.nodes = 1};
    for (int i = 0; i < m->n; i++)
        m->input[i] = (tess_mix_clip){
            .tokens = m->clips[i].tokens, .density = density_of(t, m->clips[i].u), .drawn_by = -1};
    tess_comm_query(t->pg.world, &world); /* cannot fail: there are many ranks */
    *o = (tess_mix_opts)TESS_MIX_OPTS_INIT;
    o->ranks = t->pg.size;
    o->nodes = m->cluster ? 0 : world.nodes;
    o->width = c->heads * c->head_dim;
    o->heads = c->heads;
    o->ffn = c->ffn_dim;
    o->layers = c->layers;
    o->whole_clips = m->n_ranges == 1;
    o->together = t->opts.exact_ranks ? TESS_MIN(t->pg.size, TESS__EXACT_RANKS) : t->pg.size;
    o->speeds = m->rates.speeds;
    o->pair_ns = m->rates.pair;
    o->token_ns = m->rates.token;
    if (m->cluster) {
        tess_cluster_info info;
        if (tess_cluster_query(m->cluster, &info) == TESS_OK && info.flops_bf16 == 0.0)
            o->element_bytes = 4;
    }
}

/* The ranks of every clip, and the clips of this one: those that it shares with most ranks first,
 * then in the order of the step. */
static void assign(tess_train *t)
{
    tess__mixture *m = t->mixture;
    for (int i = 0; i < m->n; i++)
        m->clips[i].width = 0;
    for (int64_t i = 0; i < m->view.n_parts; i++) { /* ascending by rank */
        tess__step_clip *clip = &m->clips[m->view.parts[i].clip];
        clip->first = clip->width++ ? clip->first : m->view.parts[i].rank;
    }
    m->n_own = 0;
    for (int width = t->pg.size; width > 0; width--)
        for (int i = 0; i < m->n; i++) {
            const tess__step_clip *clip = &m->clips[i];
            if (clip->width == width && t->pg.rank >= clip->first &&
                t->pg.rank < clip->first + width)
                m->own[m->n_own++] = i;
        }
}

/* Pairs and tokens of each rank in the step. */
static void count_work(tess__mixture *m, int ranks)
{
    double *pairs = m->rates.work, *tokens = pairs + ranks;
    memset(pairs, 0, 2 * (size_t)ranks * sizeof *pairs);
    for (int64_t i = 0; i < m->view.n_parts; i++) {
        const tess_mix_part *part = &m->view.parts[i];
        const tess__step_clip *clip = &m->clips[part->clip];
        const double n = (double)clip->tokens;
        pairs[part->rank] += n * n * m->input[part->clip].density / clip->width;
        tokens[part->rank] += n / clip->width;
    }
}

static void report_cuts(tess_train *t)
{
    tess__mixture *m = t->mixture;
    char text[160];
    if (m->reported || m->view.cut_clips == 0)
        return;
    m->reported = 1;
    snprintf(text, sizeof text,
             "step %lld cuts %lld of %d clips over ranks that compute them together: imbalance "
             "%.2f planned",
             (long long)t->step + 1, (long long)m->view.cut_clips, m->n, m->view.step[0].rho);
    tess__mixture_say(t, text);
}

tess_status tess__mixture_plan(tess_train *t)
{
    tess__mixture *m = t->mixture;
    tess_mix_opts opts;
    if (!tess__pg_many(&t->pg)) {
        for (m->n_own = 0; m->n_own < m->n; m->n_own++)
            m->own[m->n_own] = m->n_own;
        return TESS_OK;
    }
    const int64_t begin = tess__pg_clock(&t->pg);
    tess_mix_plan_destroy(m->plan);
    m->plan = NULL;
    fill(t, &opts);
    m->timed = m->cluster || opts.token_ns > 0.0;
    TESS_TRY(tess_mix_plan_create(t->ctx, m->input, m->n, m->cluster, &opts, &m->plan));
    TESS_TRY(tess_mix_plan_query(m->plan, &m->view));
    assign(t);
    count_work(m, t->pg.size);
    report_cuts(t);
    t->plan_ns += tess__pg_clock(&t->pg) - begin;
    return TESS_OK;
}
