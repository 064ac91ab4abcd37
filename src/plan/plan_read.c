/* SPDX-License-Identifier: Apache-2.0 */
/* plan_read.c - tess_plan_load: a plan from JSON (docs/formats.md), checked before it is used.
 *
 * First the file: types, ranges and lengths, with the line of what is wrong; an array's length is
 * compared before memory is taken for it. Then the layer as a whole, by the rules of
 * tess_plan_check.
 */
#include "file/json.h"
#include "options/option_check.h"
#include "plan_internal.h"

#include <math.h>
#include <string.h>

/* ---- arrays ---------------------------------------------------------------------------------- */

/* n integers of min..max into the arena. */
static tess_status read_wide(tess__json_node node, size_t n, int64_t min, int64_t max,
                             tess__arena *arena, int64_t **out)
{
    tess__json_node array;
    size_t count = 0;
    TESS_TRY(tess__json_array(node, n, n, &array, &count));
    int64_t *made = TESS_TAKE(arena, n * sizeof *made);
    for (size_t i = 0; i < n; i++)
        TESS_TRY(tess__json_int64(tess__json_element(&array, i), min, max, &made[i]));
    *out = made;
    return TESS_OK;
}

/* One row of a table, whose length is known to be n. */
static tess_status read_row(const tess__json_node *row, size_t n, int min, int max, int32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int value = 0;
        TESS_TRY(tess__json_int(tess__json_element(row, i), min, max, &value));
        out[i] = value;
    }
    return TESS_OK;
}

/* rows x n integers; *out stays NULL where an optional table is absent. */
static tess_status read_table(tess__json_node node, size_t rows, size_t n, int min, int max,
                              tess__arena *arena, const int32_t **out)
{
    tess__json_node table, row;
    size_t count = 0;
    TESS_TRY(tess__json_array(node, rows, rows, &table, &count));
    if (!table.value)
        return TESS_OK;
    for (size_t i = 0; i < rows; i++)
        TESS_TRY(tess__json_array(tess__json_element(&table, i), n, n, &row, &count));
    int32_t *made = TESS_TAKE(arena, rows * n * sizeof *made);
    for (size_t i = 0; i < rows; i++) {
        row = tess__json_element(&table, i);
        TESS_TRY(read_row(&row, n, min, max, made + i * n));
    }
    *out = made;
    return TESS_OK;
}

/* The same for one row of n. */
static tess_status read_list(tess__json_node node, size_t n, int min, int max, tess__arena *arena,
                             const int32_t **out)
{
    tess__json_node row;
    size_t count = 0;
    TESS_TRY(tess__json_array(node, n, n, &row, &count));
    if (!row.value)
        return TESS_OK;
    int32_t *made = TESS_TAKE(arena, n * sizeof *made);
    TESS_TRY(read_row(&row, n, min, max, made));
    *out = made;
    return TESS_OK;
}

/* ---- the facts of the plan ------------------------------------------------------------------- */

static const char *const plan_members[] = {
    "format",   "version",  "ranks",         "nodes",    "heads",  "q_blocks",
    "k_blocks", "tokens_q", "tokens_k",      "bounds_q", "group",  "unit",
    "pass",     "bounds_k", "element_bytes", "head_dim", "speeds", "layers"};
enum { PLAN_MEMBERS = sizeof plan_members / sizeof plan_members[0] };

/* Rows of the blocks of one side: one size, or bounds. */
static tess_status read_blocks(const tess__json_node *root, const char *size, const char *bounds,
                               int32_t blocks, int64_t tokens, tess__arena *arena, int32_t *rows,
                               const int64_t **where)
{
    const tess__json_node listed = tess__json_optional(root, bounds);
    if (listed.value && json_object_get(root->value, size))
        return tess__json_fail(listed, "\"%s\" and \"%s\", must be one of them", size, bounds);
    if (listed.value) {
        int64_t *made = NULL;
        TESS_TRY(read_wide(listed, (size_t)blocks + 1, 0, tokens, arena, &made));
        *where = made;
        return TESS_OK;
    }
    return tess__json_int(tess__json_member(root, size), 1, INT32_MAX, rows);
}

static tess_status read_info(const tess__json_node *root, tess__arena *arena, tess_plan_info *info)
{
    int pass = 0;
    TESS_TRY(
        tess__json_int(tess__json_member(root, "ranks"), 1, TESS_PLAN_RANKS_MAX, &info->ranks));
    TESS_TRY(tess__json_int(tess__json_member(root, "nodes"), 1, info->ranks, &info->nodes));
    TESS_TRY(tess__json_int(tess__json_member(root, "heads"), 1, 65536, &info->heads));
    TESS_TRY(tess__json_int(tess__json_member(root, "q_blocks"), 1, INT32_MAX, &info->q_blocks));
    TESS_TRY(tess__json_int(tess__json_member(root, "k_blocks"), 1, INT32_MAX, &info->k_blocks));
    TESS_TRY(tess__json_int64(tess__json_member(root, "tokens_q"), 1, INT32_MAX, &info->tokens_q));
    TESS_TRY(tess__json_int64(tess__json_member(root, "tokens_k"), 1, INT32_MAX, &info->tokens_k));
    TESS_TRY(read_blocks(root, "group", "bounds_q", info->q_blocks, info->tokens_q, arena,
                         &info->group, &info->bounds_q));
    TESS_TRY(read_blocks(root, "unit", "bounds_k", info->k_blocks, info->tokens_k, arena,
                         &info->unit, &info->bounds_k));
    TESS_TRY(tess__json_enum(tess__json_member(root, "pass"),
                             tess__option_words(TESS_OPTIONS_PLAN, "pass"), 2, &pass));
    info->pass = (tess_plan_pass)pass;
    TESS_TRY(tess__json_int(tess__json_member(root, "head_dim"), 1, 65536, &info->head_dim));
    TESS_TRY(tess__json_int(tess__json_member(root, "element_bytes"), 1, 8, &info->element_bytes));
    TESS_TRY(read_list(tess__json_optional(root, "speeds"), (size_t)info->ranks, 1, 1000000, arena,
                       &info->speeds));
    char why[TESS_PLAN_WHY];
    if (tess__plan_info_wrong(info, why))
        return tess__json_fail(*root, "%s", why);
    return TESS_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static const char *const layer_members[] = {
    "method",       "ulysses",  "ring",     "selective",  "placement",  "load_max",   "load_bound",
    "load_total",   "rho_ring", "rho_free", "rho_global", "rho_before", "kv_copies",  "moved_q",
    "moved_k",      "q_cuts",   "k_cuts",   "q_order",    "k_order",    "head_group", "shares",
    "predicted_ns", "bytes",    "loads",    "runner_up"};
enum { LAYER_MEMBERS = sizeof layer_members / sizeof layer_members[0] };

static tess_status read_degrees(const tess__json_node *node, const tess_plan_info *info, int whole,
                                tess__layer_heads *in)
{
    const char *methods[TESS_PLAN_METHOD_COUNT], *placements[TESS_PLACEMENT_COUNT];
    for (int i = 0; i < TESS_PLAN_METHOD_COUNT; i++)
        methods[i] = tess_plan_method_name((tess_plan_method)i);
    for (int i = 0; i < TESS_PLACEMENT_COUNT; i++)
        placements[i] = tess_placement_name((tess_placement)i);
    int method = 0, placement = 0;
    /* A plan says which method was taken: never auto, the first. */
    TESS_TRY(tess__json_enum(tess__json_member(node, "method"), methods + 1,
                             TESS_PLAN_METHOD_COUNT - 1, &method));
    TESS_TRY(tess__json_enum(tess__json_member(node, "placement"), placements, TESS_PLACEMENT_COUNT,
                             &placement));
    in->strategy.method = (tess_plan_method)(method + 1);
    in->strategy.placement = (tess_placement)placement;
    const int most = info->ranks;
    TESS_TRY(tess__json_int(tess__json_member(node, "ulysses"), 1, most, &in->strategy.ulysses));
    TESS_TRY(tess__json_int(tess__json_member(node, "ring"), 1, most, &in->strategy.ring));
    TESS_TRY(
        tess__json_int(tess__json_member(node, "selective"), 1, most, &in->strategy.selective));
    char why[TESS_PLAN_WHY];
    if (tess__layer_degrees_wrong(info, in, whole, why))
        return tess__json_fail(*node, "%s", why);
    return TESS_OK;
}

/* null is -1. */
static tess_status read_real(tess__json_node node, double *out)
{
    if (json_is_null(node.value)) {
        *out = -1.0;
        return TESS_OK;
    }
    return tess__json_double(node, 0.0, INFINITY, out);
}

static tess_status read_measures(const tess__json_node *node, tess_plan_layer *layer)
{
    TESS_TRY(
        tess__json_int64(tess__json_member(node, "load_total"), 0, INT64_MAX, &layer->load_total));
    TESS_TRY(tess__json_int64(tess__json_member(node, "load_max"), 0, layer->load_total,
                              &layer->load_max));
    TESS_TRY(
        tess__json_int64(tess__json_member(node, "load_bound"), 0, INT64_MAX, &layer->load_bound));
    TESS_TRY(tess__json_double(tess__json_member(node, "rho_global"), 0.0, INFINITY,
                               &layer->rho[TESS_RHO_GLOBAL]));
    TESS_TRY(tess__json_double(tess__json_member(node, "rho_ring"), 0.0, INFINITY,
                               &layer->rho[TESS_RHO_RING]));
    TESS_TRY(tess__json_double(tess__json_member(node, "rho_free"), 0.0, INFINITY,
                               &layer->rho[TESS_RHO_FREE]));
    TESS_TRY(read_real(tess__json_member(node, "rho_before"), &layer->rho_before));
    TESS_TRY(
        tess__json_double(tess__json_member(node, "kv_copies"), 0.0, INFINITY, &layer->kv_copies));
    TESS_TRY(tess__json_int64(tess__json_member(node, "moved_q"), 0, INT64_MAX, &layer->moved_q));
    TESS_TRY(tess__json_int64(tess__json_member(node, "moved_k"), 0, INT64_MAX, &layer->moved_k));
    const tess__json_node predicted = tess__json_member(node, "predicted_ns");
    const tess__json_node bytes = tess__json_optional(node, "bytes");
    layer->predicted_ns = layer->bytes = -1;
    if (bytes.value)
        TESS_TRY(tess__json_int64(bytes, 0, INT64_MAX, &layer->bytes));
    return json_is_null(predicted.value)
               ? TESS_OK
               : tess__json_int64(predicted, 0, INT64_MAX, &layer->predicted_ns);
}

/* EFORMAT where a member is there that a layer of this kind does not have. */
static tess_status refuse(const tess__json_node *node, const char *name, const char *why)
{
    const tess__json_node member = tess__json_member(node, name);
    return member.value ? tess__json_fail(member, "\"%s\" %s", name, why) : TESS_OK;
}

static tess_status read_heads(const tess__json_node *node, tess_plan *plan, tess__arena *scratch,
                              tess__layer_heads *in, tess_plan_layer *layer)
{
    const tess_plan_info *info = &plan->info;
    const size_t groups = (size_t)in->strategy.ulysses;
    const size_t parts =
        (size_t)(in->strategy.ring > 1 ? in->strategy.ring : in->strategy.selective);
    TESS_TRY(refuse(node, "shares", "and \"head_group\", must be one of them"));
    if ((int64_t)info->heads * (int64_t)parts > TESS_PLAN_SHARES_MAX)
        return tess__json_fail(*node, "%d heads in %zu parts, must be at most %d shares",
                               info->heads, parts, TESS_PLAN_SHARES_MAX);
    TESS_TRY(read_list(tess__json_member(node, "head_group"), (size_t)info->heads, 0,
                       in->strategy.ulysses - 1, scratch, &in->head_group));
    if (parts > 1)
        TESS_TRY(read_table(tess__json_member(node, "q_cuts"), groups, parts + 1, 0, info->q_blocks,
                            scratch, &in->q_cuts));
    else
        TESS_TRY(refuse(node, "q_cuts", "in a layer of one sequence part"));
    if (in->strategy.ring > 1)
        TESS_TRY(read_table(tess__json_member(node, "k_cuts"), groups, parts + 1, 0, info->k_blocks,
                            scratch, &in->k_cuts));
    else
        TESS_TRY(refuse(node, "k_cuts", "in a layer without a ring"));
    TESS_TRY(read_table(tess__json_optional(node, "q_order"), groups, (size_t)info->q_blocks, 0,
                        info->q_blocks - 1, scratch, &in->q_order));
    TESS_TRY(read_table(tess__json_optional(node, "k_order"), groups, (size_t)info->k_blocks, 0,
                        info->k_blocks - 1, scratch, &in->k_order));
    return tess__layer_from_heads(&plan->arena, info, in, layer);
}

static tess_status read_shares(const tess__json_node *node, tess_plan *plan, tess__arena *scratch,
                               const tess__layer_heads *in, tess_plan_layer *layer)
{
    static const char *const others[] = {"q_cuts", "k_cuts", "q_order", "k_order"};
    const tess_plan_info *info = &plan->info;
    for (int i = 0; i < 4; i++)
        TESS_TRY(refuse(node, others[i], "in a layer of shares"));
    tess__json_node list;
    size_t n = 0;
    TESS_TRY(
        tess__json_array(tess__json_member(node, "shares"), 1, TESS_PLAN_SHARES_MAX, &list, &n));
    tess_share *shares = TESS_TAKE(scratch, n * sizeof *shares);
    for (size_t i = 0; i < n; i++) {
        tess__json_node row;
        size_t four = 0;
        int32_t v[4] = {0};
        TESS_TRY(tess__json_array(tess__json_element(&list, i), 4, 4, &row, &four));
        TESS_TRY(read_row(&row, 4, 0, INT32_MAX, v));
        shares[i] = (tess_share){v[0], v[1], v[2], v[3]};
    }
    /* Unsorted or touching shares would come out sorted and joined: another plan than the file's.
     */
    const tess_plan_layer raw = {.shares = shares, .n_shares = (int64_t)n};
    char why[TESS_PLAN_WHY];
    if (tess__shares_wrong(info, &raw, why))
        return tess__json_fail(list, "%s", why);
    return tess__layer_from_shares(&plan->arena, info, in, shares, (int64_t)n, layer);
}

static tess_status read_layer(const tess__json_node *node, tess_plan *plan, tess__arena *scratch,
                              int i)
{
    tess_plan_layer layer, measured = {.predicted_ns = -1};
    tess__layer_heads in = {0};
    tess__json_node object;
    TESS_TRY(tess__json_object(*node, layer_members, LAYER_MEMBERS, &object));
    const int whole = json_object_get(object.value, "shares") == NULL ||
                      json_object_get(object.value, "head_group") != NULL;
    TESS_TRY(read_degrees(&object, &plan->info, whole, &in));
    TESS_TRY(read_measures(&object, &measured));
    TESS_TRY(whole ? read_heads(&object, plan, scratch, &in, &layer)
                   : read_shares(&object, plan, scratch, &in, &layer));
    layer.load_max = measured.load_max;
    layer.load_bound = measured.load_bound;
    layer.load_total = measured.load_total;
    memcpy(layer.rho, measured.rho, sizeof layer.rho);
    layer.rho_before = measured.rho_before;
    layer.kv_copies = measured.kv_copies;
    layer.moved_q = measured.moved_q;
    layer.moved_k = measured.moved_k;
    layer.predicted_ns = measured.predicted_ns;
    layer.bytes = measured.bytes;
    char why[TESS_PLAN_WHY];
    TESS_TRY(tess__layer_check(plan->ctx, &plan->info, &layer, why));
    if (why[0])
        return tess__json_fail(object, "layer %d: %s", i, why);
    plan->layers[i] = layer;
    return TESS_OK;
}

/* tess__plan_read_layers of a plan that is there. */
static tess_status read_layers(const tess__json_node *layers, tess_plan *plan)
{
    tess_status status = TESS_OK;
    for (int i = 0; status == TESS_OK && i < plan->info.layers; i++) {
        tess__arena scratch = {.ctx = plan->ctx};
        const tess__json_node node = tess__json_element(layers, (size_t)i);
        status = read_layer(&node, plan, &scratch, i);
        tess__arena_free(&scratch);
    }
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

tess_status tess__plan_read(tess_ctx *ctx, const tess__json *doc, tess_plan **plan)
{
    static const char *const formats[] = {TESS_PLAN_FORMAT};
    const tess__json_node document = tess__json_root(doc);
    tess__json_node root, layers;
    int ignored = 0, version = 0;
    size_t n = 0;
    TESS_TRY(tess__json_object(document, NULL, 0, &root));
    TESS_TRY(tess__json_enum(tess__json_member(&root, "format"), formats, 1, &ignored));
    TESS_TRY(tess__json_int(tess__json_member(&root, "version"), TESS_PLAN_VERSION,
                            TESS_PLAN_VERSION_STEPS, &version));
    if (version == TESS_PLAN_VERSION_STEPS)
        return tess__plan_read_last(ctx, &document, plan);
    TESS_TRY(tess__json_object(document, plan_members, PLAN_MEMBERS, &root));
    TESS_TRY(tess__json_array(tess__json_member(&root, "layers"), 1, 65536, &layers, &n));
    return tess__plan_read_layers(ctx, &root, &layers, n, plan);
}

tess_status tess__plan_read_layers(tess_ctx *ctx, const tess__json_node *root,
                                   const tess__json_node *layers, size_t n, tess_plan **plan)
{
    tess__arena scratch = {.ctx = ctx};
    tess_plan_info info = {.layers = (int)n};
    tess_plan *made = NULL;
    tess_status status = read_info(root, &scratch, &info);
    if (status == TESS_OK)
        status = tess__plan_new(ctx, root->doc->name, &info, &made);
    tess__arena_free(&scratch);
    if (status == TESS_OK)
        status = read_layers(layers, made);
    if (status == TESS_OK)
        *plan = made;
    else
        tess_plan_destroy(made);
    return status;
}

tess_status tess_plan_load(tess_ctx *ctx, const char *path, tess_plan **plan)
{
    TESS_REQUIRE(ctx, path, plan);
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, path, NULL, 0, &doc));
    const tess_status status = tess__plan_read(ctx, &doc, plan);
    tess__json_close(&doc);
    return status;
}
