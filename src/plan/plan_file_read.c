/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file_read.c - the plans of several steps from a file, each checked as tess_plan_load does. A
 * file of one plan (version 1) opens as one step. */
#include "plan_file_internal.h"

#include <string.h>

static const char *const file_members[] = {
    "format",      "version",  "command",  "source",   "source_hash",  "cluster",
    "first_layer", "ranks",    "nodes",    "heads",    "q_blocks",     "k_blocks",
    "tokens_q",    "tokens_k", "bounds_q", "bounds_k", "group",        "unit",
    "pass",        "head_dim", "speeds",   "steps",    "element_bytes"};
static const char *const step_members[] = {"step", "layers"};

enum { STEPS_MAX = 1 << 20 };

/* ---- the parts of a step --------------------------------------------------------------------- */

static tess_status open_steps(const tess__json_node *document, tess__json_node *root,
                              tess__json_node *steps, size_t *n)
{
    TESS_TRY(tess__json_object(*document, file_members, sizeof file_members / sizeof *file_members,
                               root));
    return tess__json_array(tess__json_member(root, "steps"), 1, STEPS_MAX, steps, n);
}

/* The layers of a step; *n 0: those of the step before. */
static tess_status open_layers(const tess__json_node *step, tess__json_node *layers, size_t *n)
{
    *n = 0;
    return tess__json_array(tess__json_optional(step, "layers"), 1, 65536, layers, n);
}

tess_status tess__plan_read_last(tess_ctx *ctx, const tess__json_node *document, tess_plan **plan)
{
    tess__json_node root, steps, step, layers;
    size_t n, count = 0;
    TESS_TRY(open_steps(document, &root, &steps, &n));
    while (n-- > 0) {
        const tess__json_node element = tess__json_element(&steps, n);
        TESS_TRY(tess__json_object(element, step_members, 2, &step));
        TESS_TRY(open_layers(&step, &layers, &count));
        if (count)
            return tess__plan_read_layers(ctx, &root, &layers, count, plan);
    }
    return tess__json_fail(steps, "no step has \"layers\"");
}

static tess_status optional_text(const tess__json_node *root, const char *key, tess__arena *arena,
                                 const char **text)
{
    const tess__json_node node = tess__json_optional(root, key);
    *text = NULL;
    return !node.value || json_is_null(node.value) ? TESS_OK : tess__json_text(node, arena, text);
}

static tess_status read_origin(const tess__json_node *root, tess_plan_file *f)
{
    const char *hash;
    TESS_TRY(optional_text(root, "command", &f->arena, &f->origin.command));
    TESS_TRY(optional_text(root, "source", &f->arena, &f->origin.source));
    TESS_TRY(optional_text(root, "cluster", &f->arena, &f->origin.cluster));
    TESS_TRY(optional_text(root, "source_hash", &f->arena, &hash));
    if (hash && strlen(hash) != 16)
        return tess__json_fail(tess__json_member(root, "source_hash"),
                               "\"source_hash\" has %zu characters, must be 16", strlen(hash));
    snprintf(f->origin.source_hash, sizeof f->origin.source_hash, "%s", hash ? hash : "");
    return tess__json_int64(tess__json_optional(root, "first_layer"), 0, INT64_MAX,
                            &f->origin.first_layer);
}

/* Loads of heads and runners-up, where layers have them. */
static tess_status read_extra(const tess__json_node *layers, tess_plan_file *f, size_t at)
{
    const size_t heads = (size_t)f->plan[at]->info.heads, n = (size_t)f->layers;
    int64_t *loads = TESS_TAKE(&f->arena, n * heads * sizeof *loads);
    size_t known = 0;
    for (size_t i = 0; i < n; i++) {
        const tess__json_node layer = tess__json_element(layers, i);
        const tess__json_node stored = tess__json_optional(&layer, "loads");
        tess__json_node row;
        size_t count = 0;
        TESS_TRY(tess__json_array(stored, heads, heads, &row, &count));
        for (size_t h = 0; h < count; h++)
            TESS_TRY(tess__json_int64(tess__json_element(&row, h), 0, (int64_t)1 << 45,
                                      &loads[i * heads + h]));
        known += count > 0;
        const char **text = &f->runner_up[at * n + i];
        TESS_TRY(tess__json_text(tess__json_optional(&layer, "runner_up"), &f->arena, text));
    }
    f->loads[at] = known == n ? loads : NULL;
    return TESS_OK;
}

static tess_status read_step(const tess__json_node *root, const tess__json_node *steps, size_t i,
                             tess_plan_file *f)
{
    const tess__json_node element = tess__json_element(steps, i);
    tess__json_node step, layers;
    size_t n;
    TESS_TRY(tess__json_object(element, step_members, 2, &step));
    const int64_t least = i ? f->step[i - 1] + 1 : 0;
    TESS_TRY(tess__json_int64(tess__json_member(&step, "step"), least, INT64_MAX - 1, &f->step[i]));
    TESS_TRY(open_layers(&step, &layers, &n));
    if (!n && !i)
        return tess__json_fail(step, "the first step lacks \"layers\"");
    if (n) {
        TESS_TRY(tess__plan_read_layers(f->ctx, root, &layers, n, &f->plan[i]));
        f->steps = (int64_t)i + 1; /* destroy frees it */
        if (f->layers && (int)n != f->layers)
            return tess__json_fail(layers, "%zu layers, the first step has %d", n, f->layers);
        return TESS_OK;
    }
    f->plan[i] = f->plan[i - 1];
    f->loads[i] = NULL;
    f->steps = (int64_t)i + 1;
    return TESS_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static tess_status make_room(tess_plan_file *f, size_t steps, size_t layers)
{
    f->step = TESS_TAKE(&f->arena, steps * sizeof *f->step);
    tess_plan **plans = TESS_TAKE(&f->arena, steps * sizeof *plans);
    f->loads = TESS_TAKE(&f->arena, steps * sizeof *f->loads);
    f->runner_up = TESS_TAKE(&f->arena, steps * layers * sizeof *f->runner_up);
    memset(plans, 0, steps * sizeof *plans);
    for (size_t i = 0; i < steps * layers; i++)
        f->runner_up[i] = "";
    f->plan = plans;
    return TESS_OK;
}

static tess_status read_one(const tess__json *doc, tess_plan_file *f)
{
    TESS_TRY(make_room(f, 1, 1));
    TESS_TRY(tess__plan_read(f->ctx, doc, &f->plan[0]));
    f->steps = 1;
    f->step[0] = 0;
    f->loads[0] = NULL;
    f->layers = f->plan[0]->info.layers;
    f->runner_up = TESS_TAKE(&f->arena, (size_t)f->layers * sizeof *f->runner_up);
    for (int i = 0; i < f->layers; i++)
        f->runner_up[i] = "";
    return TESS_OK;
}

static tess_status read_file(const tess__json *doc, tess_plan_file *f)
{
    const tess__json_node document = tess__json_root(doc);
    tess__json_node root, steps, layers;
    size_t n, count = 0;
    if (json_integer_value(json_object_get(document.value, "version")) != TESS_PLAN_VERSION_STEPS)
        return read_one(doc, f);
    static const char *const formats[] = {TESS_PLAN_FORMAT};
    int ignored;
    TESS_TRY(open_steps(&document, &root, &steps, &n));
    TESS_TRY(tess__json_enum(tess__json_member(&root, "format"), formats, 1, &ignored));
    TESS_TRY(read_origin(&root, f));
    const tess__json_node first = tess__json_element(&steps, 0);
    if (json_is_object(first.value))
        TESS_TRY(open_layers(&first, &layers, &count));
    if (n * (count ? count : 1) > STEPS_MAX)
        return tess__json_fail(steps, "%zu steps of %zu layers, must be at most %d together", n,
                               count, (int)STEPS_MAX);
    TESS_TRY(make_room(f, n, count ? count : 1));
    f->layers = (int)count;
    for (size_t i = 0; i < n; i++) {
        TESS_TRY(read_step(&root, &steps, i, f));
        const tess__json_node element = tess__json_element(&steps, i);
        TESS_TRY(open_layers(&element, &layers, &count));
        if (count)
            TESS_TRY(read_extra(&layers, f, i));
    }
    return TESS_OK;
}

tess_status tess__plan_file_read(tess_ctx *ctx, const tess__json *doc, tess_plan_file **file)
{
    tess_plan_file *made;
    TESS_TRY(tess_plan_file_create(ctx, NULL, &made));
    const tess_status status = read_file(doc, made);
    if (status == TESS_OK)
        *file = made;
    else
        tess_plan_file_destroy(made);
    return status;
}

tess_status tess_plan_file_open(tess_ctx *ctx, const char *path, tess_plan_file **file)
{
    TESS_REQUIRE(ctx, path, file);
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, path, NULL, 0, &doc));
    const tess_status status = tess__plan_file_read(ctx, &doc, file);
    tess__json_close(&doc);
    return status;
}

tess_status tess_plan_file_query(const tess_plan_file *file, tess_plan_file_view *view)
{
    TESS_REQUIRE(file, view);
    if (!file->plan)
        return tess__invalid(__func__, "the file was created, not opened");
    *view = (tess_plan_file_view){.origin = file->origin,
                                  .steps = (int)file->steps,
                                  .step = file->step,
                                  .plan = (const tess_plan *const *)file->plan,
                                  .runner_up = file->runner_up};
    return TESS_OK;
}

tess_status tess_plan_file_work(const tess_plan_file *file, int step, tess_work **work)
{
    TESS_REQUIRE(file, work);
    if (!file->plan)
        return tess__invalid(__func__, "the file was created, not opened");
    TESS_TRY(tess__check_range(__func__, "step", step, 0, file->steps - 1));
    int at = step; /* a step that goes on with a plan has the work it was made for */
    while (at > 0 && file->plan[at] == file->plan[at - 1])
        at--;
    if (!file->loads[at])
        return tess__invalid(__func__, "the file has no loads of heads");
    const tess_plan_info *p = &file->plan[at]->info;
    const tess_work_info info = {.layers = p->layers,
                                 .heads = p->heads,
                                 .q_blocks = p->q_blocks,
                                 .k_blocks = p->k_blocks,
                                 .tokens_q = p->tokens_q,
                                 .tokens_k = p->tokens_k,
                                 .group = p->group,
                                 .unit = p->unit};
    tess_work *made;
    TESS_TRY(tess__work_make(file->ctx, &info, p->bounds_q, p->bounds_k, 0, &made));
    memcpy(made->loads, file->loads[at],
           (size_t)p->layers * (size_t)p->heads * sizeof *made->loads);
    const tess_status status = tess__work_finish(__func__, made);
    if (status == TESS_OK)
        *work = made;
    else
        tess_work_destroy(made);
    return status;
}
