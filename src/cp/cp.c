/* SPDX-License-Identifier: Apache-2.0 */
/* cp.c - a context-parallel group: options, local rows, queries.
 *
 * Memory is one arena:
 *
 *   | tess_cp | bounds (ranks + 1) | blocks_q (n_q + 1) | blocks_k (n_k + 1) |
 *   | groups (n_groups + 1) |
 *   | density (layers, heads) + 1 + (layers, parts, 3) | head_work (layers, heads) |
 *   | step_stats (layers, 2) | layers | projects (2, layers) |
 *   | priced_unions, measured_unions (layers, ranks + 1) | counts (cp_unions.c) |
 *
 * beside the executor, the plan and two clusters, which are separate objects.
 */
#include "cp_internal.h"

#include "plan/strategy_internal.h"

#include <math.h>
#include <string.h>

enum { COUNT_MAX = 65536, BLOCK_ROWS = 64, BLOCKS_PER_RANK = 8 };

/* ---- options --------------------------------------------------------------------------------- */

/* Numbers that the executor does not check. */
static tess_status check_numbers(const char *who, const tess_cp_opts *o, int ranks)
{
    TESS_TRY(tess__check_range(who, "layers", o->layers, 1, COUNT_MAX));
    TESS_TRY(tess__check_range(who, "heads", o->heads, 1, COUNT_MAX));
    TESS_TRY(tess__check_range(who, "batch", o->batch, 1, COUNT_MAX));
    TESS_TRY(tess__check_range(who, "tokens", o->tokens, ranks, INT32_MAX));
    TESS_TRY(tess__check_range(who, "n_groups", o->n_groups, 0, INT32_MAX));
    TESS_TRY(tess__check_range(who, "n_units", o->n_units, 0, INT32_MAX));
    TESS_TRY(tess__check_range(who, "lse", o->lse, 0, 1));
    TESS_TRY(tess__check_range(who, "train", o->train, 0, 1));
    TESS_TRY(tess__check_range(who, "group_rows", o->group_rows, 0, 1));
    TESS_TRY(tess__check_range(who, "whole_keys", o->whole_keys, 0, 1));
    TESS_TRY(tess__check_range(who, "exact", o->exact, 0, 1));
    TESS_TRY(tess__check_enum(who, "precision", (int)o->precision, 2, "tess_precision"));
    if (o->exact && o->precision != TESS_PRECISION_FP32)
        return tess__invalid(who, "precision is BF16, must be FP32 with exact");
    if (o->exact && ranks > TESS__EXACT_RANKS)
        return tess__invalid(who, "%d ranks share the tokens, must be at most %d with exact", ranks,
                             TESS__EXACT_RANKS);
    TESS_TRY(tess__check_range(who, "replan_always", o->replan_always, 0, 1));
    TESS_TRY(tess__check_eights(who, "head_dim", o->head_dim, TESS_DIM_MAX));
    if ((o->n_groups > 0 && !o->groups) || (o->n_units > 0 && !o->units))
        return tess__invalid(who, "%s is NULL", o->n_groups > 0 && !o->groups ? "groups" : "units");
    if (!(o->flops == 0.0 || (o->flops >= 1e3 && o->flops <= 1e21)))
        return tess__invalid(who, "flops is %g, must be 0 or 1e3..1e21", o->flops);
    TESS_TRY(tess__check_number(who, "union_share", o->union_share, 0, 1));
    for (int64_t i = 0; o->union_shares && i < o->layers * ((int64_t)ranks + 1); i++)
        if (!(o->union_shares[i] >= 0.0 && o->union_shares[i] <= 1.0))
            return tess__invalid(who, "union_shares[%lld] is %g, must be 0..1", (long long)i,
                                 o->union_shares[i]);
    if (o->rates_from &&
        (o->rates_from->ranks != ranks || o->rates_from->opts.head_dim != o->head_dim))
        return tess__invalid(who, "like has %d ranks and head_dim %d, must have %d and %d",
                             o->rates_from->ranks, o->rates_from->opts.head_dim, ranks,
                             o->head_dim);
    if (!(o->replan_above >= 0.0 && o->replan_above <= 1e9))
        return tess__invalid(who, "replan_above is %g, must be 0..1e9", o->replan_above);
    return TESS_OK;
}

static tess_status check(const char *who, const tess_cp_opts *o, tess_cp **context, int ranks,
                         tess_strategy *strategy)
{
    if (!o || !context)
        return tess__invalid(who, "%s is NULL", o ? "context" : "opts");
    TESS_TRY(check_numbers(who, o, ranks));
    TESS_TRY(tess__strategy_parse(who, o->strategy, ranks, strategy));
    if (o->exact && (strategy->ring > 1 || strategy->selective > 1))
        return tess__invalid(
            who,
            "strategy is \"%.40s\", must leave keys whole with exact, as auto, "
            "refined and fractional do: rings and selective layers add in an order "
            "of their own",
            o->strategy);
    if (o->whole_keys && (strategy->ring > 1 || strategy->selective > 1))
        return tess__invalid(who,
                             "strategy is \"%.40s\", must leave keys whole: their selector needs "
                             "all keys of a head on one rank",
                             o->strategy);
    return TESS_OK;
}

/* A hash of everything that plans depend on. */
static uint64_t fingerprint(const tess_cp_opts *o, int ranks)
{
    const int64_t counts[] = {
        o->layers,   o->heads,      o->head_dim,   o->batch,         o->tokens,
        o->n_groups, o->n_units,    o->units_most, o->proj_dim,      o->compensate,
        o->saves,    o->train,      o->whole_keys, o->replan_always, o->rates_from != NULL,
        o->lse,      o->group_rows, o->exact,      (int)o->precision};
    const double numbers[] = {o->scale, o->flops, o->union_share, o->replan_above};
    const char *const texts[] = {o->strategy ? o->strategy : "auto", o->cluster ? o->cluster : ""};
    uint64_t hash = tess__hash(0, counts, sizeof counts);
    hash = tess__hash(hash, numbers, sizeof numbers);
    for (int i = 0; i < 2; i++)
        hash = tess__hash(hash, texts[i], strlen(texts[i]) + 1);
    if (o->n_groups > 0)
        hash = tess__hash(hash, o->groups, ((size_t)o->n_groups + 1) * sizeof *o->groups);
    if (o->n_units > 0)
        hash = tess__hash(hash, o->units, ((size_t)o->n_units + 1) * sizeof *o->units);
    if (o->union_shares)
        hash = tess__hash(hash, o->union_shares,
                          (size_t)o->layers * ((size_t)ranks + 1) * sizeof *o->union_shares);
    return hash;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Blocks of plans: the groups, and units or groups for the keys. Dense attention may be cut
 * anywhere: even blocks, several for each rank. With exact the number of ranks plays no part, and
 * blocks are few, because each costs an addition to the gradients of all keys. */
static int32_t count_blocks(const tess_cp_opts *o, int ranks)
{
    enum { EXACT_BLOCKS = 64 };
    if (o->exact)
        return (int32_t)TESS_MIN(o->n_groups > 0 ? o->n_groups : o->tokens, EXACT_BLOCKS);
    if (o->n_groups > 0)
        return o->n_groups;
    const int64_t most = (int64_t)ranks * BLOCKS_PER_RANK;
    const int64_t blocks = (o->tokens + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int64_t n = TESS_MAX(blocks, most);
    return (int32_t)TESS_MIN(n, o->tokens);
}

static void fill_blocks(const tess_cp_opts *o, int32_t n, int64_t *bounds)
{
    for (int64_t i = 0; i <= n; i++)
        bounds[i] = o->n_groups > 0 ? o->groups[o->n_groups * i / n] : o->tokens * i / n;
}

/* Densities and the values that are all-reduced with them. */
static size_t density_bytes(const tess_cp_opts *o, int ranks)
{
    int64_t parts;
    tess__degrees(ranks, NULL, &parts);
    return ((size_t)o->layers * ((size_t)o->heads + TESS__UNION_COUNTS * (size_t)parts) + 1) *
           sizeof(double);
}

static size_t total_bytes(const tess_cp_opts *o, int ranks, int32_t n_q, int32_t n_k)
{
    const size_t heads = (size_t)o->layers * (size_t)o->heads, layers = (size_t)o->layers;
    return tess__arena_round(sizeof(tess_cp)) +
           tess__arena_round(((size_t)ranks + 1) * sizeof(int64_t)) +
           tess__arena_round(((size_t)n_q + 1) * sizeof(int64_t)) +
           tess__arena_round(((size_t)n_k + 1) * sizeof(int64_t)) +
           tess__arena_round(((size_t)o->n_groups + 1) * sizeof(int64_t)) +
           tess__arena_round(density_bytes(o, ranks)) + tess__arena_round(heads * sizeof(double)) +
           tess__arena_round(2 * layers * sizeof(double)) +
           tess__arena_round(layers * sizeof(tess__cp_layer)) + tess__arena_round(2 * layers) +
           tess__arena_round(2 * layers * ((size_t)ranks + 1) * sizeof(double));
}

/* The object with its arrays, of which only bounds and blocks are filled. */
static tess_status lay_out(tess_ctx *ctx, const tess_cp_opts *o, int ranks, tess_cp **context)
{
    const int32_t n_q = count_blocks(o, ranks), n_k = o->n_units > 0 ? o->n_units : n_q;
    const size_t heads = (size_t)o->layers * (size_t)o->heads, layers = (size_t)o->layers;
    tess__arena arena = {.ctx = ctx};
    TESS_TRY(tess__arena_reserve(&arena, total_bytes(o, ranks, n_q, n_k)));
    tess_cp *c = tess__arena_take(&arena, sizeof *c); /* cannot fail: reserved */
    memset(c, 0, sizeof *c);
    c->bounds = tess__arena_take(&arena, ((size_t)ranks + 1) * sizeof *c->bounds);
    c->blocks_q = tess__arena_take(&arena, ((size_t)n_q + 1) * sizeof *c->blocks_q);
    c->blocks_k = tess__arena_take(&arena, ((size_t)n_k + 1) * sizeof *c->blocks_k);
    c->groups = tess__arena_take(&arena, ((size_t)o->n_groups + 1) * sizeof *c->groups);
    c->density = tess__arena_take(&arena, density_bytes(o, ranks));
    c->head_work = tess__arena_take(&arena, heads * sizeof *c->head_work);
    c->step_stats = tess__arena_take(&arena, 2 * layers * sizeof *c->step_stats);
    c->layers = tess__arena_take(&arena, layers * sizeof *c->layers);
    c->projects = memset(tess__arena_take(&arena, 2 * layers), 0, 2 * layers);
    c->priced_unions =
        tess__arena_take(&arena, 2 * layers * ((size_t)ranks + 1) * sizeof *c->priced_unions);
    for (int p = 0; p <= ranks; p++)
        c->bounds[p] = tess__shard(o->tokens, ranks, p);
    fill_blocks(o, n_q, c->blocks_q);
    if (o->n_groups > 0)
        memcpy(c->groups, o->groups, ((size_t)o->n_groups + 1) * sizeof *c->groups);
    if (o->n_units > 0)
        memcpy(c->blocks_k, o->units, ((size_t)n_k + 1) * sizeof *c->blocks_k);
    else
        memcpy(c->blocks_k, c->blocks_q, ((size_t)n_k + 1) * sizeof *c->blocks_k);
    c->n_q = n_q;
    c->n_k = n_k;
    c->ctx = ctx;
    c->arena = arena;
    *context = c;
    return TESS_OK;
}

static tess_status make_executor(tess_cp *c, const tess_cp_opts *o)
{
    const tess_dist_attn_opts opts = {.batch = o->batch,
                                      .heads = o->heads,
                                      .head_dim = o->head_dim,
                                      .scale = o->scale,
                                      .compensate = o->compensate,
                                      .tokens = o->tokens,
                                      .bounds = c->bounds,
                                      .n_groups = o->n_groups,
                                      .groups = o->n_groups > 0 ? o->groups : NULL,
                                      .n_units = o->n_units,
                                      .units = o->n_units > 0 ? o->units : NULL,
                                      .units_most = o->units_most,
                                      .proj_dim = o->proj_dim,
                                      .saves = o->saves,
                                      .group_rows = o->group_rows,
                                      .exact = o->exact,
                                      .precision = o->precision};
    return tess_dist_attn_create(c->ctx, c->comm, &opts, &c->attn);
}

/* The part of the creation that needs no other rank. */
static tess_status make_alone(tess_ctx *ctx, tess_comm *comm, const tess_comm_info *group,
                              const tess_cp_opts *o, const tess_strategy *strategy,
                              tess_cp **context)
{
    tess_cp *c = NULL;
    TESS_TRY(lay_out(ctx, o, group->size, &c));
    c->comm = comm;
    c->rank = group->rank;
    c->ranks = group->size;
    c->opts = *o;
    c->opts.groups = o->n_groups > 0 ? c->groups : NULL;
    c->opts.units = o->n_units > 0 ? c->blocks_k : NULL;
    c->opts.strategy = c->opts.cluster = NULL;
    c->opts.rates_from = NULL;
    *context = c;
    TESS_TRY(tess__cp_unions(c, o));
    c->opts.union_shares = o->union_shares ? c->priced_unions : NULL;
    c->how = (tess_plan_opts)TESS_PLAN_OPTS_INIT;
    c->how.ranks = c->ranks;
    c->how.strategy = *strategy;
    c->how.pass = o->train ? TESS_PLAN_TRAIN : TESS_PLAN_FORWARD;
    c->how.head_dim = o->head_dim;
    c->how.element_bytes = sizeof(float);
    c->how.proj_dim = o->proj_dim;
    c->how.proj_layers = c->projects;
    c->how.lse = o->lse;
    c->how.union_shares = c->priced_unions;
    c->how.whole_keys = o->whole_keys || o->exact ? 2 : 0;
    c->how.replan_above = o->replan_above;
    return make_executor(c, o);
}

tess_status tess_cp_create(tess_ctx *ctx, tess_comm *comm, const tess_cp_opts *opts,
                           tess_cp **context)
{
    tess_comm_info group;
    tess_strategy strategy;
    TESS_REQUIRE(ctx, comm);
    TESS_TRY(tess_comm_query(comm, &group));
    TESS_TRY(tess_comm_agree(comm, check(__func__, opts, context, group.size, &strategy)));
    const uint64_t own = fingerprint(opts, group.size);
    TESS_TRY(tess_comm_check_equal(comm, "shape or strategy", &own, sizeof own));
    tess_cp *made = NULL;
    tess_status status =
        tess_comm_agree(comm, make_alone(ctx, comm, &group, opts, &strategy, &made));
    if (status == TESS_OK)
        status = tess__cp_rates(made, opts);
    if (status == TESS_OK)
        *context = made;
    else
        tess_cp_destroy(made);
    return status;
}

void tess_cp_destroy(tess_cp *context)
{
    if (!context)
        return;
    tess_plan_destroy(context->plan);
    tess_dist_attn_destroy(context->attn);
    tess_cluster_destroy(context->priced);
    tess_cluster_destroy(context->cluster);
    tess__arena arena = context->arena; /* which holds the object */
    tess__arena_free(&arena);
}

/* ---- events and queries ---------------------------------------------------------------------- */

void tess__cp_report(const tess_cp *c, tess_cp_event_kind kind, int64_t step, const char *format,
                     ...)
{
    char sentence[TESS_EVENT_MAX];
    va_list args;
    if (!c->opts.on_event)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const tess_cp_event event = {kind, step, sentence};
    c->opts.on_event(c->opts.user, &event);
}

/* Rounds a measured value; keeps -1. */
static int64_t whole(double x)
{
    return x < 0.0 ? -1 : (int64_t)(x + 0.5);
}

int64_t tess__cp_predicted(const tess_cp *c)
{
    int64_t sum = 0;
    for (int l = 0; l < c->opts.layers; l++) {
        tess_plan_layer layer;
        if (!c->plan || tess_plan_layer_view(c->plan, l, &layer) != TESS_OK ||
            layer.predicted_ns < 0)
            return -1;
        sum += layer.predicted_ns;
    }
    return sum;
}

int64_t tess__cp_measured(const tess_cp *c)
{
    double sum = 0.0;
    for (int l = 0; l < c->opts.layers; l++) {
        if (!c->plan || c->layers[l].measured_ns < 0.0)
            return -1;
        sum += c->layers[l].measured_ns;
    }
    return whole(sum);
}

tess_status tess_cp_view(const tess_cp *c, tess_cp_info *info)
{
    if (!c || !info)
        return tess__invalid(__func__, "%s is NULL", c ? "info" : "context");
    *info = (tess_cp_info){.opts = &c->opts,
                           .comm = c->comm,
                           .rank = c->rank,
                           .ranks = c->ranks,
                           .first = c->bounds[c->rank],
                           .rows = c->bounds[c->rank + 1] - c->bounds[c->rank],
                           .bounds = c->bounds,
                           .attn = c->attn,
                           .unions = &c->counts,
                           .plan = c->plan,
                           .cluster = c->cluster,
                           .union_shares = c->measured_unions,
                           .predicted_ns = tess__cp_predicted(c),
                           .measured_ns = tess__cp_measured(c),
                           .plans = c->plans,
                           .reused = c->reused};
    return TESS_OK;
}

tess_status tess_cp_layer(const tess_cp *c, int layer, tess_cp_layer_info *info)
{
    tess_plan_layer view;
    if (!c || !info)
        return tess__invalid(__func__, "%s is NULL", c ? "info" : "context");
    TESS_TRY(tess__check_range(__func__, "layer", layer, 0, c->opts.layers - 1));
    if (!c->plan)
        return tess__invalid(__func__, "there is no plan yet");
    TESS_TRY(tess_plan_layer_view(c->plan, layer, &view));
    const tess__cp_layer *own = &c->layers[layer];
    *info = (tess_cp_layer_info){.words = own->words,
                                 .imbalance = view.rho[TESS_RHO_RING],
                                 .predicted_ns = view.predicted_ns,
                                 .measured_ns = whole(own->measured_ns),
                                 .bytes_predicted = own->bytes,
                                 .bytes_sent = whole(own->measured_bytes)};
    return TESS_OK;
}
