/* SPDX-License-Identifier: Apache-2.0 */
/* dist_create.c - the executor as an object: creation, plans, statistics, destruction.
 *
 * Memory: what does not depend on the plan is in the object's arena. The lists of a plan have their
 * own arena, which replaces the previous one when it is complete. Rows (activations, gradients,
 * messages) are in buffers as large as the largest layer of the plan, one allocation each. A new
 * plan enlarges them where it must, and shrinks those of which it needs less than three quarters,
 * so that a similar plan allocates nothing; the buffers that selective layers enlarge in their
 * calls are freed with every plan.
 */
#include "dist_attn_internal.h"

#include <math.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static const char create[] = "tess_dist_attn_create";

/* Ascending from 0 to tokens in n ranges; none is empty unless may_be_empty. */
static tess_status check_ranges(const char *name, const int64_t *ranges, int64_t n, int64_t tokens,
                                int may_be_empty)
{
    if (!may_be_empty && (n < 1 || n > tokens))
        return tess__invalid(create, "n_%s is %lld, must be 1..%lld", name, (long long)n,
                             (long long)tokens);
    if (ranges[0] != 0 || ranges[n] != tokens)
        return tess__invalid(create, "%s go from %lld to %lld, must go from 0 to %lld", name,
                             (long long)ranges[0], (long long)ranges[n], (long long)tokens);
    for (int64_t i = 1; i <= n; i++)
        if (ranges[i] < ranges[i - 1] + !may_be_empty)
            return tess__invalid(create, "%s[%lld] is %lld, must %s %lld before it", name,
                                 (long long)i, (long long)ranges[i],
                                 may_be_empty ? "not be below" : "be above",
                                 (long long)ranges[i - 1]);
    return TESS_OK;
}

static tess_status check_numbers(const tess_dist_attn_opts *o)
{
    TESS_TRY(tess__check_range(create, "batch", o->batch, 1, 65536));
    TESS_TRY(tess__check_range(create, "heads", o->heads, 1, 65536));
    TESS_TRY(tess__check_range(create, "compensate", o->compensate, 0, TESS_CLUSTERS_MAX));
    TESS_TRY(tess__check_range(create, "tokens", o->tokens, 1, INT32_MAX));
    TESS_TRY(tess__check_range(create, "proj_dim", o->proj_dim, 0, 65536));
    TESS_TRY(tess__check_range(create, "saves", o->saves, 0, 65536));
    TESS_TRY(tess__check_range(create, "n_groups", o->n_groups, 0, o->tokens));
    TESS_TRY(tess__check_range(create, "group_rows", o->group_rows, 0, 1));
    TESS_TRY(tess__check_range(create, "exact", o->exact, 0, 1));
    TESS_TRY(tess__check_eights(create, "head_dim", o->head_dim, TESS_DIM_MAX));
    if (!isfinite(o->scale) || o->scale < 0.0f)
        return tess__invalid(create, "scale is %g, must be positive, or 0 for 1/sqrt(head_dim)",
                             (double)o->scale);
    return TESS_OK;
}

/* From here on all counts of rows, pairs and bytes of a layer fit in an int64_t. */
static tess_status check_size(const tess_dist_attn_opts *o)
{
    const int64_t heads = (int64_t)o->batch * o->heads, pairs = o->tokens * o->tokens;
    const int64_t width = TESS_MAX(o->head_dim, o->proj_dim);
    int64_t all;
    if (__builtin_mul_overflow(pairs, heads, &all))
        return tess__invalid(create, "%lld x %lld tokens in %lld heads, must be below 2^63",
                             (long long)o->tokens, (long long)o->tokens, (long long)heads);
    if (__builtin_mul_overflow(o->tokens * heads, width, &all) || all >= (int64_t)1 << 55)
        return tess__invalid(create,
                             "%lld tokens in %lld heads of %lld numbers, must be below 2^55",
                             (long long)o->tokens, (long long)heads, (long long)width);
    return TESS_OK;
}

static tess_status check_options(const tess_dist_attn_opts *o, int ranks)
{
    TESS_TRY(check_numbers(o));
    TESS_TRY(check_size(o));
    if (!o->bounds || (o->n_groups > 0 && !o->groups))
        return tess__invalid(create, "%s is NULL", o->bounds ? "groups" : "bounds");
    TESS_TRY(check_ranges("bounds", o->bounds, ranks, o->tokens, 1));
    if (o->n_groups > 0)
        TESS_TRY(check_ranges("groups", o->groups, o->n_groups, o->tokens, 0));
    if (o->units)
        TESS_TRY(check_ranges("units", o->units, o->n_units, o->tokens, 0));
    const int64_t units = o->units ? o->n_units : o->tokens;
    TESS_TRY(tess__check_range(create, "units_most", o->units_most, 0, units));
    return TESS_OK;
}

/* ---- the object ------------------------------------------------------------------------------ */

/* A copy of n numbers in the arena; NULL stays NULL. */
static tess_status copy_ranges(tess__arena *arena, const int64_t **ranges, int64_t n)
{
    if (!*ranges)
        return TESS_OK;
    int64_t *copy = TESS_TAKE(arena, (size_t)n * sizeof *copy);
    memcpy(copy, *ranges, (size_t)n * sizeof *copy);
    *ranges = copy;
    return TESS_OK;
}

static tess_status copy_options(tess_dist_attn *d)
{
    tess_dist_attn_opts *o = &d->opts;
    o->groups = o->n_groups > 0 ? o->groups : NULL;
    o->n_units = o->units ? o->n_units : (int32_t)o->tokens;
    o->units_most = o->units_most > 0 ? o->units_most : o->n_units;
    TESS_TRY(copy_ranges(&d->arena, &o->bounds, d->ranks + 1));
    TESS_TRY(copy_ranges(&d->arena, &o->groups, (int64_t)o->n_groups + 1));
    return copy_ranges(&d->arena, &o->units, (int64_t)o->n_units + 1);
}

/* Called during attention: MPI advances long messages only inside of calls. The failure of another
 * rank is returned by the next call on the communicator. */
static void progress_messages(void *user)
{
    tess_dist_attn *d = user;
    d->lost = d->lost || tess_comm_progress(d->comm) != TESS_OK;
}

/* Everything that does not depend on the plan. */
static tess_status fill(tess_dist_attn *d)
{
    const tess_dist_attn_opts *o = &d->opts;
    const size_t ranks = (size_t)d->ranks, heads = (size_t)o->batch * (size_t)o->heads;
    const size_t sets = o->saves > 0 ? (size_t)o->saves : 1, row = ranks * sizeof(int64_t);
    TESS_TRY(copy_options(d));
    d->send_bytes = TESS_TAKE(&d->arena, row);
    d->recv_bytes = TESS_TAKE(&d->arena, row);
    d->send_base = TESS_TAKE(&d->arena, TESS__TRANSFERS_MAX * row);
    d->recv_base = TESS_TAKE(&d->arena, TESS__TRANSFERS_MAX * row);
    d->pairs = TESS_TAKE(&d->arena, (heads + 1) * sizeof *d->pairs);
    tess__activations *made = TESS_TAKE(&d->arena, sets * sizeof *made);
    for (size_t i = 0; i < sets; i++)
        made[i] = (tess__activations){.layer = -1};
    d->activations = made;
    const tess_attn_shape shape = {.batch = 1,
                                   .heads = 1,
                                   .head_dim = o->head_dim,
                                   .tokens_q = o->tokens,
                                   .tokens_k = o->tokens,
                                   .scale = o->scale,
                                   .compensate = o->compensate,
                                   .precision = o->precision};
    TESS_TRY(tess_attn_create(d->ctx, &shape, &d->attn));
    tess__attn_meanwhile(d->attn, progress_messages, d);
    return TESS_OK;
}

tess_status tess_dist_attn_create(tess_ctx *ctx, tess_comm *comm, const tess_dist_attn_opts *opts,
                                  tess_dist_attn **dist_attn)
{
    if (!ctx || !comm || !opts || !dist_attn)
        return tess__invalid(create, "%s is NULL",
                             !ctx    ? "ctx"
                             : !comm ? "comm"
                             : !opts ? "opts"
                                     : "dist_attn");
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    TESS_TRY(check_options(opts, info.size));
    tess__arena arena = {.ctx = ctx};
    tess_dist_attn *made = TESS_TAKE(&arena, sizeof *made);
    *made = (tess_dist_attn){.ctx = ctx,
                             .comm = comm,
                             .rank = info.rank,
                             .ranks = info.size,
                             .opts = *opts,
                             .local_rows = opts->bounds[info.rank + 1] - opts->bounds[info.rank],
                             .arena = arena,
                             .plan_arena = {.ctx = ctx}};
    const tess_status status = fill(made);
    if (status == TESS_OK)
        *dist_attn = made;
    else
        tess_dist_attn_destroy(made);
    return status;
}

static int n_sets(const tess_dist_attn *d)
{
    return d->opts.saves > 0 ? d->opts.saves : 1;
}

void tess_dist_attn_destroy(tess_dist_attn *d)
{
    if (!d)
        return;
    tess_ctx *ctx = d->ctx;
    for (int i = 0; d->activations && i < n_sets(d); i++) {
        tess__buffer_free(ctx, &d->activations[i].memory);
        tess__buffer_free(ctx, &d->activations[i].keys);
    }
    tess__buffer *const buffers[] = {&d->send,    &d->recv, &d->gradients, &d->low,
                                     &d->scratch, &d->sums, &d->ordered};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        tess__buffer_free(ctx, buffers[i]);
    tess_selection_destroy(d->lists);
    tess_attn_destroy(d->attn);
    tess__arena_free(&d->plan_arena);
    tess__arena arena = d->arena; /* which holds the object */
    tess__arena_free(&arena);
}

/* ---- plans ----------------------------------------------------------------------------------- */

enum { SIZED_BUFFERS = 6 };

typedef struct {
    tess__buffer *buffer;
    int64_t floats;
} sized_buffer;

static void list_buffers(tess_dist_attn *d, const tess__dist_need *need,
                         sized_buffer sized_buffers[SIZED_BUFFERS])
{
    sized_buffers[0] = (sized_buffer){&d->send, need->send};
    sized_buffers[1] = (sized_buffer){&d->recv, need->recv};
    sized_buffers[2] = (sized_buffer){&d->gradients, need->gradients};
    sized_buffers[3] = (sized_buffer){&d->low, need->low};
    sized_buffers[4] = (sized_buffer){&d->scratch, need->scratch};
    sized_buffers[5] = (sized_buffer){&d->ordered, need->ordered};
}

static tess_status reserve(tess_dist_attn *d, const tess__dist_need *need)
{
    sized_buffer sized_buffers[SIZED_BUFFERS];
    list_buffers(d, need, sized_buffers);
    for (int i = 0; i < SIZED_BUFFERS; i++)
        TESS_TRY(tess__buffer_grow(d->ctx, sized_buffers[i].buffer, sized_buffers[i].floats,
                                   sizeof(float)));
    for (int i = 0; i < n_sets(d); i++) {
        d->activations[i].layer = -1;
        TESS_TRY(tess__buffer_grow(d->ctx, &d->activations[i].memory, need->activations, 1));
    }
    return tess__attn_reserve(d->attn, need->tiles);
}

/* Shrinks a buffer of which the plan needs less than three quarters, if there is memory for both.
 * */
static void shrink(tess_dist_attn *d, tess__buffer *buffer, int64_t n, size_t size)
{
    tess__buffer smaller = {0};
    if (buffer->bytes / 4 * 3 <= (size_t)n * size ||
        tess__buffer_grow(d->ctx, &smaller, n, size) != TESS_OK)
        return;
    tess__buffer_free(d->ctx, buffer);
    *buffer = smaller;
}

/* Frees memory that the plan does not need: when layers become selective, they need less for each
 * set of saved activations. */
static void shrink_buffers(tess_dist_attn *d, const tess__dist_need *need)
{
    sized_buffer sized_buffers[SIZED_BUFFERS];
    list_buffers(d, need, sized_buffers);
    for (int i = 0; i < SIZED_BUFFERS; i++)
        shrink(d, sized_buffers[i].buffer, sized_buffers[i].floats, sizeof(float));
    for (int i = 0; i < n_sets(d); i++) {
        shrink(d, &d->activations[i].memory, need->activations, 1);
        tess__buffer_free(d->ctx, &d->activations[i].keys);
    }
    tess__buffer_free(d->ctx, &d->sums);
}

/* A selection with room for the lists of any share; NULL if no layer has groups. */
static tess_status make_lists(tess_dist_attn *d, int32_t groups, tess_selection **lists)
{
    *lists = NULL;
    if (groups == 0)
        return TESS_OK;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = groups,
                                  .tokens_k = d->opts.tokens,
                                  .group = 1,
                                  .unit = 1,
                                  .bounds_k = d->opts.units,
                                  .n_k = d->opts.n_units};
    return tess_selection_create(d->ctx, &shape, (int64_t)groups * d->opts.units_most, lists);
}

tess_status tess_dist_attn_plan(tess_dist_attn *d, const tess_plan *plan)
{
    if (!d || !plan)
        return tess__invalid(__func__, "%s is NULL", d ? "plan" : "dist_attn");
    tess__arena arena = {.ctx = d->ctx};
    tess__dist_layer *layers = NULL;
    tess__dist_need need = {0};
    tess_selection *lists = NULL;
    tess_status status = tess__dist_layers(d, plan, &arena, &layers, &need);
    if (status == TESS_OK)
        status = make_lists(d, need.groups, &lists);
    if (status == TESS_OK)
        status = reserve(d, &need);
    if (status != TESS_OK) {
        tess_selection_destroy(lists);
        tess__arena_free(&arena);
        return status;
    }
    tess_selection_destroy(d->lists);
    tess__arena_free(&d->plan_arena);
    shrink_buffers(d, &need);
    d->lists = lists;
    d->plan_arena = arena;
    d->layers = layers;
    d->n_layers = plan->info.layers;
    return TESS_OK;
}

/* ---- statistics ------------------------------------------------------------------------------ */

tess_status tess_dist_attn_stats(const tess_dist_attn *d, int layer, tess_dist_stats *stats)
{
    if (!d || !stats)
        return tess__invalid(__func__, "%s is NULL", d ? "stats" : "dist_attn");
    if (!d->layers)
        return tess__invalid(__func__, "no plan (tess_dist_attn_plan comes first)");
    TESS_TRY(tess__check_range(__func__, "layer", layer, 0, d->n_layers - 1));
    *stats = d->layers[layer].stats;
    return TESS_OK;
}
