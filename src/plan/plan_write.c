/* SPDX-License-Identifier: Apache-2.0 */
/* plan_write.c - tess_plan_save: a plan as JSON, an array to a line (docs/formats.md). The same
 * plan gives the same bytes. */
#include "plan_internal.h"

#include "file/json_write.h"

#include <math.h>

/* A ratio; negative: it is not known. */
static void add_ratio(tess__jw *w, const char *key, double value)
{
    tess__jw_real(w, key, value < 0.0 ? (double)NAN : value);
}

/* Rows of one length, a line each. */
static void add_table(tess__jw *w, const char *key, const int32_t *values, size_t rows, size_t n)
{
    tess__jw_begin(w, key, '[');
    for (size_t i = 0; i < rows; i++)
        tess__jw_row_i32(w, NULL, values + i * n, n);
    tess__jw_end(w, ']');
}

void tess__plan_add_info(tess__jw *w, const tess_plan_info *info)
{
    tess__jw_int(w, "ranks", info->ranks);
    tess__jw_int(w, "nodes", info->nodes);
    tess__jw_int(w, "heads", info->heads);
    tess__jw_int(w, "q_blocks", info->q_blocks);
    tess__jw_int(w, "k_blocks", info->k_blocks);
    tess__jw_int(w, "tokens_q", info->tokens_q);
    tess__jw_int(w, "tokens_k", info->tokens_k);
    if (info->bounds_q)
        tess__jw_row_i64(w, "bounds_q", info->bounds_q, (size_t)info->q_blocks + 1);
    else
        tess__jw_int(w, "group", info->group);
    if (info->bounds_k)
        tess__jw_row_i64(w, "bounds_k", info->bounds_k, (size_t)info->k_blocks + 1);
    else
        tess__jw_int(w, "unit", info->unit);
    tess__jw_text(w, "pass", tess_plan_pass_name(info->pass));
    tess__jw_int(w, "head_dim", info->head_dim);
    tess__jw_int(w, "element_bytes", info->element_bytes);
    if (info->speeds)
        tess__jw_row_i32(w, "speeds", info->speeds, (size_t)info->ranks);
}

static void add_shares(tess__jw *w, const tess_plan_layer *layer)
{
    tess__jw_begin(w, "shares", '[');
    for (int64_t i = 0; i < layer->n_shares; i++) {
        const tess_share *s = &layer->shares[i];
        tess__jw_row_i32(w, NULL, (int32_t[]){s->rank, s->head, s->q_begin, s->q_end}, 4);
    }
    tess__jw_end(w, ']');
}

static void add_head_groups(tess__jw *w, const tess_plan_info *info, const tess_plan_layer *layer)
{
    const size_t groups = (size_t)layer->groups, parts = (size_t)tess__layer_parts(layer);
    tess__jw_row_i32(w, "head_group", layer->head_group, (size_t)info->heads);
    if (parts > 1)
        add_table(w, "q_cuts", layer->q_cuts, groups, parts + 1);
    if (layer->strategy.ring > 1)
        add_table(w, "k_cuts", layer->k_cuts, groups, parts + 1);
    if (layer->q_order)
        add_table(w, "q_order", layer->q_order, groups, (size_t)info->q_blocks);
    if (layer->k_order)
        add_table(w, "k_order", layer->k_order, groups, (size_t)info->k_blocks);
}

void tess__plan_add_layer(tess__jw *w, const tess_plan_info *info, const tess_plan_layer *layer,
                          const int64_t *loads, const char *runner_up)
{
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "method", tess_plan_method_name(layer->strategy.method));
    tess__jw_int(w, "ulysses", layer->strategy.ulysses);
    tess__jw_int(w, "ring", layer->strategy.ring);
    tess__jw_int(w, "selective", layer->strategy.selective);
    tess__jw_text(w, "placement", tess_placement_name(layer->strategy.placement));
    tess__jw_int(w, "load_max", layer->load_max);
    tess__jw_int(w, "load_bound", layer->load_bound);
    tess__jw_int(w, "load_total", layer->load_total);
    add_ratio(w, "rho_global", layer->rho[TESS_RHO_GLOBAL]);
    add_ratio(w, "rho_ring", layer->rho[TESS_RHO_RING]);
    add_ratio(w, "rho_free", layer->rho[TESS_RHO_FREE]);
    add_ratio(w, "rho_before", layer->rho_before);
    add_ratio(w, "kv_copies", layer->kv_copies);
    tess__jw_int(w, "moved_q", layer->moved_q);
    tess__jw_int(w, "moved_k", layer->moved_k);
    if (layer->predicted_ns < 0)
        tess__jw_null(w, "predicted_ns");
    else
        tess__jw_int(w, "predicted_ns", layer->predicted_ns);
    if (layer->bytes >= 0)
        tess__jw_int(w, "bytes", layer->bytes);
    if (loads)
        tess__jw_row_i64(w, "loads", loads, (size_t)info->heads);
    if (runner_up)
        tess__jw_text(w, "runner_up", runner_up);
    if (layer->head_group)
        add_head_groups(w, info, layer);
    else
        add_shares(w, layer);
    tess__jw_end(w, '}');
}

static void add_plan(tess__jw *w, const void *user)
{
    const tess_plan *plan = user;
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "format", TESS_PLAN_FORMAT);
    tess__jw_int(w, "version", TESS_PLAN_VERSION);
    tess__plan_add_info(w, &plan->info);
    tess__jw_begin(w, "layers", '[');
    for (int i = 0; i < plan->info.layers; i++)
        tess__plan_add_layer(w, &plan->info, &plan->layers[i], NULL, NULL);
    tess__jw_end(w, ']');
    tess__jw_end(w, '}');
}

tess_status tess_plan_save(const tess_plan *plan, const char *path)
{
    TESS_REQUIRE(plan, path);
    return tess__json_save(plan->ctx, path, add_plan, plan);
}
