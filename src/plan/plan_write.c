/* SPDX-License-Identifier: Apache-2.0 */
/* plan_write.c - tess_plan_save: a plan as JSON, an array to a line (docs/formats.md).
 *
 * The text is made here and not by jansson, so that the same plan gives the same bytes whatever
 * version of it is there and whatever the locale: integers, and reals with the fewest digits that
 * give back the same double.
 */
#include "plan_internal.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* Text on its way to a file; after a failure nothing more happens. */
typedef struct {
    tess__out *out;
    tess_status status;
    const char *point; /* of reals in this locale */
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *w, const char *format, ...)
{
    char text[256]; /* names are ours, and numbers short */
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->status == TESS_OK)
        w->status = tess__out_write(w->out, text, (size_t)n);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void put_int(writer *w, const char *indent, const char *name, int64_t value)
{
    put(w, "%s\"%s\": %lld,\n", indent, name, (long long)value);
}

static void put_text(writer *w, const char *indent, const char *name, const char *value)
{
    put(w, "%s\"%s\": \"%s\",\n", indent, name, value);
}

/* A real as JSON has it; negative: null. */
static void put_real(writer *w, const char *indent, const char *name, double value)
{
    if (value < 0.0) {
        put(w, "%s\"%s\": null,\n", indent, name);
        return;
    }
    char text[64];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    const size_t point = strlen(w->point);
    const char *at = strstr(text, w->point);
    if (at)
        put(w, "%s\"%s\": %.*s.%s,\n", indent, name, (int)(at - text), text, at + point);
    else
        put(w, "%s\"%s\": %s%s,\n", indent, name, text, strchr(text, 'e') ? "" : ".0");
}

static void put_ints(writer *w, const int32_t *values, size_t n)
{
    put(w, "[");
    for (size_t i = 0; i < n; i++)
        put(w, i ? ", %d" : "%d", values[i]);
    put(w, "]");
}

static void put_wide(writer *w, const char *name, const int64_t *values, size_t n)
{
    put(w, "  \"%s\": [", name);
    for (size_t i = 0; i < n; i++)
        put(w, i ? ", %lld" : "%lld", (long long)values[i]);
    put(w, "],\n");
}

/* Rows of one length, a line each. */
static void put_table(writer *w, const char *name, const int32_t *values, size_t rows, size_t n)
{
    put(w, ",\n      \"%s\": [\n", name);
    for (size_t i = 0; i < rows; i++) {
        put(w, "        ");
        put_ints(w, values + i * n, n);
        put(w, i + 1 < rows ? ",\n" : "\n");
    }
    put(w, "      ]");
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void put_info(writer *w, const tess_plan_info *info)
{
    put(w, "{\n");
    put_text(w, "  ", "format", TESS_PLAN_FORMAT);
    put_int(w, "  ", "version", TESS_PLAN_VERSION);
    put_int(w, "  ", "ranks", info->ranks);
    put_int(w, "  ", "nodes", info->nodes);
    put_int(w, "  ", "heads", info->heads);
    put_int(w, "  ", "q_blocks", info->q_blocks);
    put_int(w, "  ", "k_blocks", info->k_blocks);
    put_int(w, "  ", "tokens_q", info->tokens_q);
    put_int(w, "  ", "tokens_k", info->tokens_k);
    if (info->bounds_q)
        put_wide(w, "bounds_q", info->bounds_q, (size_t)info->q_blocks + 1);
    else
        put_int(w, "  ", "group", info->group);
    if (info->bounds_k)
        put_wide(w, "bounds_k", info->bounds_k, (size_t)info->k_blocks + 1);
    else
        put_int(w, "  ", "unit", info->unit);
    put_text(w, "  ", "pass", tess_plan_pass_name(info->pass));
    put_int(w, "  ", "head_dim", info->head_dim);
    put_int(w, "  ", "element_bytes", info->element_bytes);
    if (info->speeds) {
        put(w, "  \"speeds\": ");
        put_ints(w, info->speeds, (size_t)info->ranks);
        put(w, ",\n");
    }
}

static void put_shares(writer *w, const tess_plan_layer *layer)
{
    put(w, "      \"shares\": [\n");
    for (int64_t i = 0; i < layer->n_shares; i++) {
        const tess_share *s = &layer->shares[i];
        put(w, "        [%d, %d, %d, %d]%s\n", s->rank, s->head, s->q_begin, s->q_end,
            i + 1 < layer->n_shares ? "," : "");
    }
    put(w, "      ]");
}

static void put_layer(writer *w, const tess_plan_info *info, const tess_plan_layer *layer)
{
    static const char in[] = "      ";
    const size_t groups = (size_t)layer->groups, parts = (size_t)tess__layer_parts(layer);
    put(w, "    {\n");
    put_text(w, in, "method", tess_plan_method_name(layer->method));
    put_int(w, in, "ulysses", layer->ulysses);
    put_int(w, in, "ring", layer->ring);
    put_int(w, in, "selective", layer->selective);
    put_text(w, in, "placement", tess_placement_name(layer->placement));
    put_int(w, in, "load_max", layer->load_max);
    put_int(w, in, "load_bound", layer->load_bound);
    put_int(w, in, "load_total", layer->load_total);
    put_real(w, in, "rho_global", layer->rho[TESS_RHO_GLOBAL]);
    put_real(w, in, "rho_ring", layer->rho[TESS_RHO_RING]);
    put_real(w, in, "rho_free", layer->rho[TESS_RHO_FREE]);
    put_real(w, in, "rho_before", layer->rho_before);
    put_real(w, in, "kv_copies", layer->kv_copies);
    put_int(w, in, "moved_q", layer->moved_q);
    put_int(w, in, "moved_k", layer->moved_k);
    if (layer->predicted_ns < 0)
        put(w, "%s\"predicted_ns\": null,\n", in);
    else
        put_int(w, in, "predicted_ns", layer->predicted_ns);
    if (layer->head_group) {
        put(w, "      \"head_group\": ");
        put_ints(w, layer->head_group, (size_t)info->heads);
        if (parts > 1)
            put_table(w, "q_cuts", layer->q_cuts, groups, parts + 1);
        if (layer->ring > 1)
            put_table(w, "k_cuts", layer->k_cuts, groups, parts + 1);
        if (layer->q_order)
            put_table(w, "q_order", layer->q_order, groups, (size_t)info->q_blocks);
        if (layer->k_order)
            put_table(w, "k_order", layer->k_order, groups, (size_t)info->k_blocks);
    } else {
        put_shares(w, layer);
    }
    put(w, "\n    }");
}

tess_status tess_plan_save(const tess_plan *plan, const char *path)
{
    if (!plan || !path)
        return tess__fail(TESS_EINVAL, "tess_plan_save: %s is NULL", plan ? "path" : "plan");
    writer w = {.status = TESS_OK, .point = localeconv()->decimal_point};
    TESS_TRY(tess__out_open(plan->ctx, path, &w.out));
    put_info(&w, &plan->info);
    put(&w, "  \"layers\": [\n");
    for (int i = 0; i < plan->info.layers; i++) {
        put_layer(&w, &plan->info, &plan->layers[i]);
        put(&w, i + 1 < plan->info.layers ? ",\n" : "\n");
    }
    put(&w, "  ]\n}\n");
    if (w.status == TESS_OK)
        return tess__out_commit(w.out);
    tess__out_abort(w.out);
    return w.status;
}
