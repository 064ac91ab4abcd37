/* SPDX-License-Identifier: Apache-2.0 */
/* select_fixed.c - selectors that read no tensor: 3D window, edges, random.
 *
 * Each gives a unit a score and says how many to take, so that lists come out of the same top-K as
 * everywhere: CHOSEN for units that a rule names, a random number in [0, 1) or 0 for the rest.
 * Random numbers are words of the Philox stream (seed, head * 2^32 + group): they depend on nothing
 * else. Cost: n_k per group.
 */
#include "select_internal.h"

#include <string.h>

static const float CHOSEN = 2.0f; /* above every random number */

/* Chooses units first .. last; returns how many of them were not chosen before. */
static int32_t choose(float *scores, int32_t first, int32_t last)
{
    int32_t added = 0;
    for (int32_t u = first; u <= last; u++) {
        added += scores[u] != CHOSEN;
        scores[u] = CHOSEN;
    }
    return added;
}

/* ---- window --------------------------------------------------------------------------------- */

/* The first of `window` cubes around cube c of n, moved inside; *end = one past the last. */
static int32_t window_begin(int32_t c, int32_t n, int32_t window, int32_t *end)
{
    if (window >= n) {
        *end = n;
        return 0;
    }
    int32_t begin = c - (window - 1) / 2;
    begin = begin < 0 ? 0 : begin > n - window ? n - window : begin;
    *end = begin + window;
    return begin;
}

/* Chooses the units of the cubes in the window around one cube. Cubes that differ in the last axis
 * alone are neighbours in the row order. */
static int32_t choose_window(const tess__select_job *job, float *scores, int32_t cube)
{
    const int32_t *n = job->n_cubes, *window = job->opts->window;
    const int32_t at[3] = {cube / (n[1] * n[2]), cube / n[2] % n[1], cube % n[2]};
    int32_t begin[3] = {0}, end[3] = {0}, added = 0;
    for (int a = 0; a < 3; a++)
        begin[a] = window_begin(at[a], n[a], window[a], &end[a]);
    for (int32_t f = begin[0]; f < end[0]; f++)
        for (int32_t y = begin[1]; y < end[1]; y++) {
            const int32_t line = (f * n[1] + y) * n[2];
            const int64_t row = job->cubes[line + begin[2]], stop = job->cubes[line + end[2]];
            added += choose(scores, tess__range_of(job->sel->bounds_k, job->sel->n_k, row),
                            tess__range_of(job->sel->bounds_k, job->sel->n_k, stop - 1));
        }
    return added;
}

void tess__rule_window(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n)
{
    const tess_selection *sel = job->sel;
    const int32_t cubes = job->n_cubes[0] * job->n_cubes[1] * job->n_cubes[2];
    for (int32_t i = 0; i < n; i++) {
        const int32_t *given = job->in->groups;
        const int64_t row = sel->bounds_q[g + i], stop = sel->bounds_q[g + i + 1];
        int32_t k = 0;
        memset(w->scores, 0, sizeof *w->scores * (size_t)sel->n_k);
        if (given)
            k = choose_window(job, w->scores, given[g + i]);
        for (int32_t c = tess__range_of(job->cubes, cubes, row);
             !given && c < cubes && job->cubes[c] < stop; c++)
            k += choose_window(job, w->scores, c);
        tess__select_emit(job, w, head, g + i, w->scores, k);
    }
}

/* ---- edges and random ------------------------------------------------------------------------ */

static void draw(const tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g)
{
    const int32_t group = job->in->groups ? job->in->groups[g] : g;
    const uint64_t stream = (uint64_t)head << 32 | (uint32_t)group;
    /* Fails only for a missing buffer or a stream's end, and neither can be. */
    (void)tess_random_uniform(job->in->seed, stream, 0, w->scores, (size_t)job->sel->n_k);
}

/* Chooses the units of a group's own rows and `local` more on each side. */
static int32_t choose_local(const tess__select_job *job, float *scores, int32_t g)
{
    const tess_selection *sel = job->sel;
    const int64_t row = sel->bounds_q[g] * sel->tokens_k / sel->tokens_q;
    const int64_t stop = (sel->bounds_q[g + 1] * sel->tokens_k + sel->tokens_q - 1) / sel->tokens_q;
    const int64_t first = (int64_t)tess__range_of(sel->bounds_k, sel->n_k, row) - job->opts->local;
    const int64_t last =
        (int64_t)tess__range_of(sel->bounds_k, sel->n_k, stop - 1) + job->opts->local;
    return choose(scores, first < 0 ? 0 : (int32_t)first,
                  last >= sel->n_k ? sel->n_k - 1 : (int32_t)last);
}

void tess__rule_edges(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                      int32_t n)
{
    const tess_selector_opts *o = job->opts;
    const int32_t n_k = job->sel->n_k;
    for (; n > 0; n--, g++) {
        if (g < o->global_q) {
            tess__select_emit(job, w, head, g, w->scores, n_k);
            continue;
        }
        draw(job, w, head, g);
        int32_t k = choose(w->scores, 0, TESS_MIN(o->global_k, n_k) - 1);
        k += choose_local(job, w->scores, g);
        k += TESS_MIN(o->random, n_k - k);
        tess__select_emit(job, w, head, g, w->scores, k);
    }
}

void tess__rule_random(tess__select_job *job, const tess__scratch *w, int64_t head, int32_t g,
                       int32_t n)
{
    for (; n > 0; n--, g++) {
        draw(job, w, head, g);
        tess__select_emit(job, w, head, g, w->scores, job->keys[head]);
    }
}
