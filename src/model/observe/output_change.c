/* SPDX-License-Identifier: Apache-2.0 */
/* output_change.c - by how much sparse attention would change a layer's attention output.
 *
 * Sampled groups of queries attend densely and, for each density of the trial, to the keys that
 * the layer's selector chooses, with virtual keys for the others:
 *
 *   output   sum over queries of |o|^2                   o: dense attention of a head
 *   change   sum over queries of |o_sparse - o|^2
 *
 * change_density.c has what follows from that for the model's output. Predictors that choose badly,
 * groups whose queries want different keys and too few clusters all raise the change.
 *
 * Flop of a sample and head, with r queries (of at most TESS__CHECK_GROUPS groups), S keys, C
 * virtual keys: 4 r S D for dense attention, as much in all for the trial (1/2 + 1/4 + ...), 2 g S
 * proj_dim for each selection, and one clustering of the keys.
 */
#include "attn/attn_internal.h"
#include "model/observe.h"

#include <math.h>
#include <string.h>

enum { QUARTILES = TESS_NOISE_BUCKETS, TRIALS = TESS__TRIAL_DENSITIES };

/* What one layer's measurement works with: one head at a time. */
typedef struct {
    tess__arena arena;
    int32_t groups; /* sampled */
    int64_t rows;   /* their queries */
    int64_t *bounds, *token;
    float *q, *low, *dense, *sparse; /* (rows, head_dim or proj_dim) */
    uint8_t *labels;                 /* (tokens): clusters of the keys */
    int32_t *placed;                 /* (tokens): groups by content, or NULL */
    void *room;
    tess_attn *attn;
    tess_selection *lists;
} trial;

/* ---- memory ---------------------------------------------------------------------------------- */

static tess_attn_shape attn_shape(const tess__observer_opts *o, int64_t rows)
{
    return (tess_attn_shape){.batch = 1,
                             .heads = 1,
                             .head_dim = o->head_dim,
                             .tokens_q = rows,
                             .tokens_k = o->tokens,
                             .compensate = o->compensate};
}

static int64_t list_keys(const tess__observer_opts *o, int i)
{
    return (int64_t)ceil(ldexp((double)o->tokens, i - TRIALS));
}

static tess_status take(const tess__observer_opts *o, trial *t)
{
    const size_t rows = (size_t)t->rows, dim = (size_t)o->head_dim, tokens = (size_t)o->tokens;
    t->token = TESS_TAKE(&t->arena, rows * sizeof *t->token);
    t->q = TESS_TAKE(&t->arena, rows * dim * sizeof *t->q);
    t->low = TESS_TAKE(&t->arena, rows * (size_t)o->proj_dim * sizeof *t->low);
    t->dense = TESS_TAKE(&t->arena, rows * dim * sizeof *t->dense);
    t->sparse = TESS_TAKE(&t->arena, rows * dim * sizeof *t->sparse);
    t->labels = TESS_TAKE(&t->arena, tokens);
    if (o->group == TESS_GROUP_CUBE)
        return TESS_OK;
    t->placed = TESS_TAKE(&t->arena, tokens * sizeof *t->placed);
    t->room = TESS_TAKE(&t->arena, tess__content_bytes(o->tokens));
    return TESS_OK;
}

static tess_status make(tess__observer *o, trial *t)
{
    const tess__observer_opts *opts = &o->opts;
    const tess_attn_shape shape = attn_shape(opts, t->rows);
    const tess_sel_shape lists = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = t->rows,
                                  .tokens_k = opts->tokens,
                                  .bounds_q = t->bounds,
                                  .n_q = t->groups,
                                  .unit = 1};
    TESS_TRY(take(opts, t));
    TESS_TRY(tess_attn_create(o->ctx, &shape, &t->attn));
    return tess_selection_create(o->ctx, &lists, t->groups * list_keys(opts, TRIALS - 1),
                                 &t->lists);
}

static void destroy(trial *t)
{
    tess_attn_destroy(t->attn);
    tess_selection_destroy(t->lists);
    tess__arena_free(&t->arena);
}

int64_t tess__change_bytes(const tess__observer_opts *o, int64_t volume, int threads)
{
    const int64_t f = (int64_t)sizeof(float),
                  rows = TESS_MIN(tess__sampled_rows(o->tokens), TESS__CHECK_GROUPS * volume);
    const tess_attn_shape shape = attn_shape(o, rows);
    const int64_t grouped =
        o->group == TESS_GROUP_CUBE ? 0 : 4 * o->tokens + (int64_t)tess__content_bytes(o->tokens);
    if (o->error <= 0.0)
        return 0;
    return (int64_t)tess__attn_bytes(&shape, threads, 1) +
           (int64_t)tess__selection_bytes(TESS__CHECK_GROUPS, (int32_t)o->tokens,
                                          TESS__CHECK_GROUPS,
                                          TESS__CHECK_GROUPS * list_keys(o, TRIALS - 1)) +
           rows * (int64_t)sizeof(int64_t) + rows * (3 * o->head_dim + o->proj_dim) * f +
           o->tokens + grouped + 8 * (int64_t)tess__arena_round(1) + TESS_ALLOC_OVERHEAD;
}

/* ---- one head -------------------------------------------------------------------------------- */

/* The queries of the sampled groups: those of the cubes, or of this head's own groups. */
static tess_status find_queries(tess__observer *o, const tess__order *order, const tess_view *by,
                                int dim, uint64_t seed, tess_group group, trial *t)
{
    const tess__sampled *s = &o->sampled;
    if (group == TESS_GROUP_CUBE) {
        memcpy(t->token, s->token, (size_t)t->rows * sizeof *t->token);
        return TESS_OK;
    }
    if (group == TESS_GROUP_CONTENT)
        tess__content_groups(o->ctx, by, dim, order->groups, order->bounds, t->room, t->placed);
    else
        TESS_TRY(tess__random_groups(seed, order->groups, order->bounds, t->placed));
    for (int32_t g = 0; g < t->groups; g++)
        for (int64_t i = t->bounds[g]; i < t->bounds[g + 1]; i++)
            t->token[i] = t->placed[order->bounds[s->group[g]] + i - t->bounds[g]];
    return TESS_OK;
}

static void gather(const trial *t, const tess_view *from, int64_t dim, float *to)
{
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(to + i * dim, (const float *)from->data + t->token[i] * from->stride_s,
               (size_t)dim * sizeof *to);
}

static tess_view rows_view(const trial *t, float *data, int64_t dim)
{
    return (tess_view){data, TESS_DTYPE_F32, t->rows * dim, t->rows * dim, dim};
}

/* sum of |a - b|^2, b NULL: of |a|^2; in the order of the rows. */
static double squares(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (b ? (double)b[i] : 0.0);
        sum += d * d;
    }
    return sum;
}

/* q, k, v, q_low, k_low: of one head. */
static tess_status measure_head(tess__observer *o, trial *t, const tess_view views[5],
                                double *output, double *change)
{
    const tess__observer_opts *opts = &o->opts;
    const int dim = opts->head_dim, low = opts->proj_dim;
    const tess_view q = rows_view(t, t->q, dim), q_low = rows_view(t, t->low, low);
    const tess_view dense = rows_view(t, t->dense, dim), sparse = rows_view(t, t->sparse, dim);
    gather(t, &views[0], dim, t->q);
    if (low)
        gather(t, &views[3], low, t->low);
    TESS_TRY(tess_attn_forward(t->attn, NULL, &q, &views[1], &views[2], &dense, NULL));
    *output += squares(t->dense, NULL, t->rows * dim);
    for (int i = 0; i < TRIALS; i++) {
        const tess_select_in in = {.q = low ? &q_low : &q,
                                   .k = low ? &views[4] : &views[1],
                                   .head_dim = low ? low : dim,
                                   .budget = {.keys = (int32_t)list_keys(opts, i)}};
        TESS_TRY(tess_selector_run(o->selector, &in, t->lists));
        if (opts->compensate > 1)
            tess__attn_use_labels(t->attn, t->labels, i > 0);
        TESS_TRY(tess_attn_forward(t->attn, t->lists, &q, &views[1], &views[2], &sparse, NULL));
        change[i] += squares(t->sparse, t->dense, t->rows * dim);
    }
    return TESS_OK;
}

static tess_view head_of(const tess_view *all, int b, int h)
{
    tess_view one = *all;
    one.data = (float *)all->data + b * all->stride_b + h * all->stride_h;
    return one;
}

/* Groups of a head in a trial: those of the options; of those that are compared the first ones or
 * the second ones, or in a sparse layer what was decided. */
static tess_group group_of(const tess__observer *o, int layer, int head, int second)
{
    if (o->opts.group != TESS_GROUP_AUTO)
        return o->opts.group;
    const int content =
        o->layers[layer].dense ? second : o->content[(int64_t)layer * o->opts.heads + head];
    return content ? TESS_GROUP_CONTENT : TESS_GROUP_CUBE;
}

static tess_status measure(tess__observer *o, int order, const tess_hook_in *in, int second,
                           trial *t)
{
    tess__cube_sums *sums = &o->sums.cubes[order];
    double *output = second ? sums->output2 : sums->output;
    double *change = second ? sums->change2 : sums->change;
    const tess_view *all[5] = {in->q, in->k, in->v, in->q_low, in->k_low};
    const int low = o->opts.proj_dim;
    for (int b = 0; b < o->opts.batch && in->head == 0 && !second; b++)
        sums->queries[in->layer * QUARTILES + o->quartiles[b]] += (double)t->rows;
    for (int i = 0; i < o->opts.batch * in->heads; i++) {
        const int b = i / in->heads, h = i % in->heads, head = in->head + h;
        const int64_t place =
            ((int64_t)in->layer * QUARTILES + o->quartiles[b]) * o->opts.heads + head;
        const uint64_t seed = ((uint64_t)o->step << 20) + (uint64_t)place;
        tess_view views[5] = {{0}};
        for (int v = 0; v < (low ? 5 : 3); v++)
            views[v] = head_of(all[v], b, h);
        TESS_TRY(find_queries(o, &o->orders[order], &views[low ? 3 : 0],
                              low ? low : o->opts.head_dim, seed,
                              group_of(o, in->layer, head, second), t));
        TESS_TRY(measure_head(o, t, views, output + place, change + place * TRIALS));
    }
    return TESS_OK;
}

tess_status tess__observe_change(tess__observer *o, int order, const tess_hook_in *in)
{
    const tess__sampled *s = &o->sampled;
    const int32_t groups = TESS_MIN(s->groups, TESS__CHECK_GROUPS);
    trial t = {
        .arena = {.ctx = o->ctx}, .groups = groups, .rows = s->bounds[groups], .bounds = s->bounds};
    const int both = o->opts.group == TESS_GROUP_AUTO && o->layers[in->layer].dense;
    tess_status status = make(o, &t);
    for (int second = 0; status == TESS_OK && second <= both; second++)
        status = measure(o, order, in, second, &t);
    destroy(&t);
    return status;
}
