/* SPDX-License-Identifier: Apache-2.0 */
/* select_run.c - a selector's run: memory first, then tasks on all threads.
 *
 * A run goes over batches of heads whose key panels fit in PANEL_BYTES (at least one head). For
 * each batch the threads first pack the panels and then take tasks, a few groups of one head each,
 * as they come. A finished list goes to the next free place of the staging area, whatever the
 * order; its place and length are kept by list number, so that what comes out does not depend on
 * who did what when. Where the places are known beforehand, they are in the selection itself.
 */
#include "select_internal.h"

#include <omp.h>
#include <string.h>

enum {
    PANEL_BYTES = 64 << 20, /* of the heads worked on together */
    PACK_CHUNK = 64,        /* panels packed by one task */
};

/* ---- preparing ------------------------------------------------------------------------------ */

static tess_status prepare_cubes(tess_selector *s, tess__select_job *job)
{
    if (s->opts.kind != TESS_SELECT_WINDOW)
        return TESS_OK;
    const int *grid = s->opts.grid, *cube = s->opts.cube;
    int32_t cubes;
    TESS_TRY(tess_order_cubes(grid, cube, NULL, NULL, NULL, &cubes));
    TESS_TRY(tess__buffer_grow(s->ctx, &s->cubes, (int64_t)cubes + 1, sizeof(int64_t)));
    TESS_TRY(tess_order_cubes(grid, cube, NULL, NULL, s->cubes.data, NULL));
    for (int a = 0; a < 3; a++)
        job->n_cubes[a] = (int32_t)(((int64_t)grid[a] + cube[a] - 1) / cube[a]);
    job->cubes = s->cubes.data;
    return TESS_OK;
}

tess_status tess__select_prepare(tess_selector *s, tess__select_job *job,
                                 tess__scratch_shape *shape, int64_t *batch_heads)
{
    const tess__select_rule *rule = tess__rule_of(&s->opts);
    const tess_selection *sel = job->sel;
    const int64_t heads = (int64_t)sel->batch * sel->heads;
    const int64_t columns = rule->pooled ? sel->n_k : sel->tokens_k;
    const int dim = rule->reads ? job->in->head_dim : 0;
    const int by_mass = rule->run == tess__rule_mass;

    TESS_TRY(prepare_cubes(s, job));
    *batch_heads = heads;
    if (rule->reads) {
        job->head_panels = (columns + TESS_PANEL - 1) / TESS_PANEL;
        const int64_t bytes = job->head_panels * TESS_PANEL * dim * (int64_t)sizeof(float);
        const int64_t fit = bytes > 0 ? PANEL_BYTES / bytes : heads;
        *batch_heads = fit < 1 ? 1 : fit < heads ? fit : heads;
        TESS_TRY(tess__buffer_grow(s->ctx, &s->panels, *batch_heads, (size_t)bytes));
    }
    *shape = (tess__scratch_shape){
        .row_keys = rule->reads && !by_mass ? columns : 0,
        .n_k = sel->n_k,
        .dim = dim,
        .tile = by_mass,
        .sort = job->in->budget.mass != 0.0,
    };
    TESS_TRY(tess__scratch_grow(s->ctx, &s->scratch, shape, s->ctx->threads));
    TESS_TRY(tess__buffer_grow(s->ctx, &s->starts, sel->lists, sizeof(int64_t)));
    TESS_TRY(tess__buffer_grow(s->ctx, &s->counts, sel->lists, sizeof(int32_t)));
    job->panels = s->panels.data;
    job->starts = s->starts.data;
    job->counts = s->counts.data;
    return TESS_OK;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

void tess__select_emit(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       const float *scores, int32_t k)
{
    const int64_t list = head * job->sel->n_q + g;
    const int64_t start = job->placed
                              ? job->starts[list]
                              : atomic_fetch_add_explicit(&job->used, k, memory_order_relaxed);
    job->starts[list] = start;
    job->counts[list] = k;
    if (k == 0 || !job->staged || start + k > job->room)
        return;
    job->kernels->topk(w->index, scores, job->sel->n_k, k, w->topk);
    memcpy(job->staged + start, w->index, sizeof *w->index * (size_t)k);
}

/* 1: the budget asks nothing of this head, whose lists stay empty. */
static int is_idle(const tess__select_job *job, int64_t head)
{
    return job->keys && job->keys[head] == 0;
}

static void run_groups(const tess__select_rule *rule, tess__select_job *job, const tess__scratch *w,
                       int64_t head, int32_t g, int32_t n)
{
    if (!is_idle(job, head)) {
        rule->run(job, w, head, g, n);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        tess__select_emit(job, w, head, g + i, NULL, 0);
}

/* The heads of one batch. */
static tess_status run_heads(const tess_selector *s, tess__select_job *job, int64_t heads,
                             const tess__scratch_shape *shape, int64_t *reported)
{
    const tess__select_rule *rule = tess__rule_of(&s->opts);
    const int64_t packs = rule->reads ? (job->head_panels + PACK_CHUNK - 1) / PACK_CHUNK : 0;
    const int32_t n_q = job->sel->n_q;
    const int64_t chunks = ((int64_t)n_q + rule->chunk - 1) / rule->chunk;
    tess__work_queue run = {
        .ctx = s->ctx,
        .what = "selecting keys",
        .total = heads * chunks,
        .before = job->first_head * chunks,
        .whole = (int64_t)job->sel->batch * job->sel->heads * chunks,
        .reported = *reported,
    };
#pragma omp parallel num_threads(s->ctx->threads)
    {
        const tess__scratch w = tess__scratch_of(&s->scratch, shape, omp_get_thread_num());
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < heads * packs; i++) {
            const int64_t first = i % packs * PACK_CHUNK, left = job->head_panels - first;
            const int64_t head = job->first_head + i / packs;
            if (!is_idle(job, head))
                tess__select_pack(job, &w, head, first, TESS_MIN(left, PACK_CHUNK));
        }
        int64_t i;
        while ((i = tess__work_queue_next(&run)) >= 0) {
            const int64_t head = job->first_head + i / chunks;
            const int32_t g = (int32_t)(i % chunks * rule->chunk), left = n_q - g;
            run_groups(rule, job, &w, head, g, left < rule->chunk ? left : rule->chunk);
        }
    }
    *reported = run.reported;
    return tess__work_queue_end(&run);
}

tess_status tess__select_run(const tess_selector *s, tess__select_job *job, int64_t batch_heads,
                             const tess__scratch_shape *shape)
{
    const int64_t heads = (int64_t)job->sel->batch * job->sel->heads;
    int64_t reported = 0;
    for (job->first_head = 0; job->first_head < heads; job->first_head += batch_heads) {
        const int64_t left = heads - job->first_head;
        TESS_TRY(run_heads(s, job, TESS_MIN(left, batch_heads), shape, &reported));
    }
    return TESS_OK;
}
