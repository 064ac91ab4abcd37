/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - a selector: its life, its budget, and the way of its lists into a selection.
 *
 * select_run.c leaves the lists of a run in the staging area, in any order, with their places and
 * lengths by list number; here they are copied to the selection in order. So a selection is
 * replaced whole or not at all, and a selector that repeats its lists still has them. With in_place
 * lists whose lengths are known, those of a budget in units, are written where they belong.
 *
 * Workspace: panels of a batch of heads | staging: the indices once more | places and lengths, 12
 * bytes per list | per thread: TESS__ROWS rows of scores (proxies) or one tile (mass), and lists.
 */
#include "select_internal.h"

#include "tessera/advanced/selection.h"

#include <string.h>

/* ---- life ----------------------------------------------------------------------------------- */

tess_status tess_selector_create(tess_ctx *ctx, const tess_selector_opts *opts,
                                 tess_selector **selector)
{
    TESS_REQUIRE(ctx, selector);
    const tess_selector_opts defaults = {0};
    opts = opts ? opts : &defaults;
    TESS_TRY(tess__select_check_opts(__func__, opts));
    tess_selector *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    made->opts = *opts;
    *selector = made;
    return TESS_OK;
}

void tess_selector_destroy(tess_selector *selector)
{
    if (!selector)
        return;
    tess_ctx *ctx = selector->ctx;
    tess__buffer *const all[] = {&selector->panels, &selector->staged, &selector->starts,
                                 &selector->counts, &selector->cubes,  &selector->scratch,
                                 &selector->keys};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tess__buffer_free(ctx, all[i]);
    tess__free(ctx, selector);
}

tess_status tess_selector_query(const tess_selector *selector, tess_selector_info *info)
{
    TESS_REQUIRE(selector, info);
    const tess_selector *s = selector;
    *info = (tess_selector_info){
        .kind = s->opts.kind,
        .reused = s->reused,
        .bytes = (int64_t)(s->panels.bytes + s->staged.bytes + s->starts.bytes + s->counts.bytes +
                           s->scratch.bytes + s->cubes.bytes + s->keys.bytes),
    };
    return TESS_OK;
}

static tess_status no_room(const tess_selection *sel, int64_t needed)
{
    return tess__fail(TESS_EINVAL, "tess_selector_run: sel has room for %lld indices, needs %lld",
                      (long long)sel->capacity, (long long)needed);
}

/* Indices of a budget of units. */
static int64_t count_budget(const tess_sel_shape *shape, int32_t n_q, const int32_t *keys)
{
    int64_t sum = 0;
    for (int64_t head = 0; head < (int64_t)shape->batch * shape->heads; head++)
        sum += keys[head];
    return sum * n_q;
}

/* ---- the public calls ------------------------------------------------------------------------ */

static tess_sel_shape shape_of(const tess_selection *sel)
{
    return (tess_sel_shape){.batch = sel->batch,
                            .heads = sel->heads,
                            .tokens_q = sel->tokens_q,
                            .tokens_k = sel->tokens_k};
}

/* Counts the lists of a rule that has no budget by running it without writing them. */
static tess_status count_lists(tess_selector *s, const tess_sel_shape *shape,
                               const tess_select_in *in, int64_t *count)
{
    tess_selection *sel = NULL;
    TESS_TRY(tess_selection_create(s->ctx, shape, 0, &sel));
    tess__select_job job = {.opts = &s->opts, .in = in, .sel = sel, .kernels = s->ctx->kernels};
    tess__scratch_shape scratch;
    int64_t batch_heads;
    tess_status status = tess__select_prepare(s, &job, &scratch, &batch_heads);
    if (status == TESS_OK)
        status = tess__select_run(s, &job, batch_heads, &scratch);
    tess_selection_destroy(sel);
    TESS_TRY(status);
    *count = atomic_load(&job.used);
    return TESS_OK;
}

tess_status tess_selector_capacity(tess_selector *selector, const tess_sel_shape *shape,
                                   const tess_select_in *in, int64_t *capacity)
{
    TESS_REQUIRE(selector, shape, in, capacity);
    int32_t n_q, n_k;
    TESS_TRY(tess__sel_shape_check(__func__, shape, &n_q, &n_k));
    const tess__select_rule *rule = tess__rule_of(&selector->opts);
    /* Not the selector's own: it may hold what its lists are repeated for. */
    tess__buffer keys = {0};
    const int64_t heads = (int64_t)shape->batch * shape->heads;
    TESS_TRY(tess__buffer_grow(selector->ctx, &keys, heads, sizeof(int32_t)));
    tess_status status =
        tess__select_check_size(__func__, &selector->opts, in, shape, n_q, n_k, keys.data);
    int64_t count = heads * n_q * n_k; /* of a mass, at most */
    if (status == TESS_OK && rule->budget && in->budget.mass == 0.0)
        count = count_budget(shape, n_q, keys.data);
    else if (status == TESS_OK && !rule->budget)
        status = count_lists(selector, shape, in, &count);
    tess__buffer_free(selector->ctx, &keys);
    TESS_TRY(status);
    *capacity = count;
    return TESS_OK;
}

/* Copies the staged lists to the selection, in order. */
static void publish(const tess_selector *s, tess_selection *sel)
{
    const int64_t *starts = s->starts.data;
    const int32_t *counts = s->counts.data, *staged = s->staged.data;
    sel->offsets[0] = 0;
    for (int64_t i = 0; i < sel->lists; i++)
        sel->offsets[i + 1] = sel->offsets[i] + counts[i];
#pragma omp parallel for num_threads(tess__selection_team(sel, sel->offsets[sel->lists]))
    for (int64_t i = 0; i < sel->lists; i++)
        memcpy(sel->indices + sel->offsets[i], staged + starts[i],
               sizeof *staged * (size_t)counts[i]);
    tess__selection_changed(sel);
}

/* Keeps what the staged lists were made for. */
static void keep(tess_selector *s, const tess__list_key *key)
{
    const size_t heads = (size_t)key->batch * (size_t)key->heads;
    int32_t *keys = s->keys.data;
    memcpy(keys + heads, keys, sizeof *keys * heads);
    s->key = *key;
    s->left = s->opts.kind == TESS_SELECT_SEARCH ? s->opts.reuse : 0;
}

static int may_reuse(const tess_selector *s, const tess__list_key *key)
{
    const size_t heads = (size_t)key->batch * (size_t)key->heads;
    const int32_t *keys = s->keys.data;
    const tess__list_key *k = &s->key;
    return s->left > 0 && k->batch == key->batch && k->heads == key->heads &&
           k->tokens_q == key->tokens_q && k->tokens_k == key->tokens_k && k->n_q == key->n_q &&
           k->n_k == key->n_k && k->group == key->group && k->unit == key->unit &&
           k->mass == key->mass &&
           (key->mass != 0.0 || memcmp(keys, keys + heads, sizeof *keys * heads) == 0);
}

/* The places of lists as long as the budget says; returns their sum. */
static int64_t place_lists(const tess_selection *sel, const int32_t *keys, int64_t *starts)
{
    int64_t at = 0;
    for (int64_t i = 0; i < sel->lists; i++) {
        starts[i] = at;
        at += keys[i / sel->n_q];
    }
    return at;
}

/* Makes the lists where they belong. */
static tess_status search_in_place(tess_selector *s, tess__select_job *job, tess_selection *sel,
                                   const tess__scratch_shape *scratch, int64_t batch_heads)
{
    job->placed = 1;
    job->room = place_lists(sel, job->keys, job->starts);
    job->staged = sel->indices;
    memset(sel->offsets, 0, ((size_t)sel->lists + 1) * sizeof *sel->offsets);
    TESS_TRY(tess__select_run(s, job, batch_heads, scratch));
    memcpy(sel->offsets, job->starts, (size_t)sel->lists * sizeof *sel->offsets);
    sel->offsets[sel->lists] = job->room;
    tess__selection_changed(sel);
    return TESS_OK;
}

/* Makes the lists in staging, or in the selection itself: *placed. */
static tess_status search(tess_selector *s, const tess_select_in *in, tess_selection *sel,
                          int *placed)
{
    const tess__select_rule *rule = tess__rule_of(&s->opts);
    const int counted = rule->budget && in->budget.mass == 0.0;
    const tess_sel_shape size = shape_of(sel);
    const int64_t needed = counted ? count_budget(&size, sel->n_q, s->keys.data) : 0;
    if (needed > sel->capacity)
        return no_room(sel, needed);
    tess__select_job job = {
        .opts = &s->opts,
        .in = in,
        .sel = sel,
        .kernels = s->ctx->kernels,
        .keys = counted ? s->keys.data : NULL,
    };
    if (rule->reads)
        job.scale = tess__select_scale(in->scale, in->head_dim);
    tess__scratch_shape scratch;
    int64_t batch_heads;
    s->left = 0; /* from here on the staged lists are not those of s->key */
    TESS_TRY(tess__select_prepare(s, &job, &scratch, &batch_heads));
    const int repeats = s->opts.kind == TESS_SELECT_SEARCH && s->opts.reuse > 0;
    *placed = counted && s->opts.in_place && !repeats;
    if (*placed)
        return search_in_place(s, &job, sel, &scratch, batch_heads);
    const int64_t most = sel->lists * sel->n_k;
    job.room = counted ? needed : sel->capacity < most ? sel->capacity : most;
    TESS_TRY(tess__buffer_grow(s->ctx, &s->staged, job.room, sizeof(int32_t)));
    job.staged = s->staged.data;
    TESS_TRY(tess__select_run(s, &job, batch_heads, &scratch));
    s->used = atomic_load(&job.used);
    return s->used > sel->capacity ? no_room(sel, s->used) : TESS_OK;
}

tess_status tess_selector_run(tess_selector *selector, const tess_select_in *in,
                              tess_selection *sel)
{
    TESS_REQUIRE(selector, in, sel);
    tess_selector *s = selector;
    const tess__select_rule *rule = tess__rule_of(&s->opts);
    const tess_sel_shape shape = shape_of(sel);
    if (s->left > 0 && (sel->batch != s->key.batch || sel->heads != s->key.heads))
        s->left = 0; /* growing keys would lose what the lists were made for */
    TESS_TRY(
        tess__buffer_grow(s->ctx, &s->keys, 2 * (int64_t)sel->batch * sel->heads, sizeof(int32_t)));
    TESS_TRY(
        tess__select_check_size(__func__, &s->opts, in, &shape, sel->n_q, sel->n_k, s->keys.data));
    if (rule->reads)
        TESS_TRY(tess__select_check_qk(__func__, in->q, in->k, in->head_dim, rule->dim_max,
                                       in->scale, sel->tokens_q, sel->tokens_k));
    const tess__list_key key = {sel->batch, sel->heads, sel->tokens_q, sel->tokens_k,  sel->n_q,
                                sel->n_k,   sel->group, sel->unit,     in->budget.mass};
    const int reused = may_reuse(s, &key);
    int placed = 0;
    if (reused) {
        if (s->used > sel->capacity)
            return no_room(sel, s->used);
        s->left--;
    } else {
        TESS_TRY(search(s, in, sel, &placed));
        keep(s, &key);
    }
    if (!placed)
        publish(s, sel);
    s->reused = reused;
    return TESS_OK;
}
