/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_plan.c - clips of several sizes on many ranks: a plan of the mixture for each step.
 *
 * Every rank makes the same plan (tess_mix_plan_create) from the sizes of the step's clips and from
 * rates that all ranks have alike, computes the clips that are its own, and owns parameters as in
 * any run of many ranks. Which clips a step has does not depend on the plan. A plan of 100 clips
 * takes some 20 us.
 */
#include "mixture.h"

#include "dsv/control.h"

#include <string.h>

tess_status tess__mixture_ranks(tess_train *t)
{
    tess__mixture *m = t->mixture;
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    m->input = TESS_TAKE(&t->arena, (size_t)m->n * sizeof *m->input);
    if (t->opts.cluster)
        TESS_TRY(tess_cluster_load(t->ctx, t->opts.cluster, &m->cluster));
    return tess__rates_create(t);
}

/* Clips in the planner's terms, and its options: attention of both passes, weights of a block. */
static void fill(tess_train *t, tess_mix_opts *o)
{
    tess__mixture *m = t->mixture;
    const tess_model_config *c = &t->model->config;
    for (int i = 0; i < m->n; i++)
        m->input[i] = (tess_mix_clip){.tokens = m->clips[i].tokens, .density = 1.0, .drawn_by = -1};
    *o = (tess_mix_opts)TESS_MIX_OPTS_INIT;
    o->ranks = t->pg.size;
    o->width = c->heads * c->head_dim;
    o->heads = c->heads;
    o->ffn = c->ffn_dim;
    o->layers = c->layers;
    o->whole_clips = 1;
    o->speeds = m->rates.speeds;
    o->pair_ns = m->rates.pair;
    o->token_ns = m->rates.token;
    if (m->cluster) {
        tess_cluster_info info;
        if (tess_cluster_query(m->cluster, &info) == TESS_OK && info.flops_bf16 == 0.0)
            o->element_bytes = 4;
    }
}

/* Pairs and tokens of each rank in the step. */
static void count_work(tess__mixture *m, int ranks)
{
    double *pairs = m->rates.work, *tokens = pairs + ranks;
    memset(pairs, 0, 2 * (size_t)ranks * sizeof *pairs);
    for (int64_t i = 0; i < m->view.n_parts; i++) {
        const tess_mix_part *part = &m->view.parts[i];
        const double n = (double)m->clips[part->clip].tokens;
        pairs[part->rank] += n * n * m->input[part->clip].density;
        tokens[part->rank] += n;
    }
}

tess_status tess__mixture_plan(tess_train *t)
{
    tess__mixture *m = t->mixture;
    tess_mix_opts opts;
    if (!tess__pg_many(&t->pg))
        return TESS_OK;
    const int64_t begin = tess__pg_clock(&t->pg);
    tess_mix_plan_destroy(m->plan);
    m->plan = NULL;
    fill(t, &opts);
    m->timed = m->cluster || opts.token_ns > 0.0;
    TESS_TRY(tess_mix_plan_create(t->ctx, m->input, m->n, m->cluster, &opts, &m->plan));
    TESS_TRY(tess_mix_plan_query(m->plan, &m->view));
    count_work(m, t->pg.size);
    t->plan_ns += tess__pg_clock(&t->pg) - begin;
    return TESS_OK;
}

int tess__mixture_own(const tess_train *t, int i, int *n)
{
    const tess__mixture *m = t->mixture;
    if (!m->plan) {
        *n = m->n;
        return i;
    }
    const int64_t first = m->view.first[t->pg.rank];
    *n = (int)(m->view.first[t->pg.rank + 1] - first);
    return i < *n ? (int)m->view.parts[first + i].clip : 0;
}
