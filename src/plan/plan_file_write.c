/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file_write.c - the plans of several steps in one file (docs/formats.md).
 *
 * A step becomes text when it is added, so that plans need not live until the file is written; a
 * step that goes on with the plan of the one before is one line.
 */
#include "plan_file_internal.h"

#include "file/file_internal.h"

#include <string.h>

/* The hash of a file's bytes as 16 digits. */
static tess_status hash_file(const char *path, char text[17])
{
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    snprintf(text, 17, "%016llx", (unsigned long long)tess__hash(0, source.data, source.bytes));
    tess__source_close(&source);
    return TESS_OK;
}

static tess_status keep_text(tess__arena *arena, const char **text)
{
    if (!*text)
        return TESS_OK;
    *text = TESS_TAKE_STRING(arena, *text, strlen(*text));
    return TESS_OK;
}

tess_status tess_plan_file_create(tess_ctx *ctx, const tess_plan_origin *origin,
                                  tess_plan_file **file)
{
    TESS_REQUIRE(ctx, file);
    tess_plan_origin from = origin ? *origin : (tess_plan_origin){0};
    from.source_hash[0] = '\0';
    if (from.source)
        TESS_TRY(hash_file(from.source, from.source_hash));
    tess__arena arena = {.ctx = ctx};
    tess_plan_file *made = tess__arena_take(&arena, sizeof *made);
    tess_status status = made ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = keep_text(&arena, &from.command);
    if (status == TESS_OK)
        status = keep_text(&arena, &from.source);
    if (status == TESS_OK)
        status = keep_text(&arena, &from.cluster);
    if (status != TESS_OK) {
        tess__arena_free(&arena);
        return status;
    }
    *made = (tess_plan_file){.ctx = ctx, .arena = arena, .origin = from};
    *file = made;
    return TESS_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static tess_status to_text(void *to, const char *bytes, size_t n)
{
    tess_plan_file *f = to;
    TESS_TRY(tess__grow(f->ctx, &f->text, 1, (int64_t)f->bytes, (int64_t)(f->bytes + n), &f->room));
    memcpy(f->text + f->bytes, bytes, n);
    f->bytes += n;
    return TESS_OK;
}

/* The best candidate of a layer that was not chosen, with its reason; "" where there is none. */
static void runner_up(const tess_plan *plan, int layer, char *text, size_t bytes)
{
    const tess_candidate *best = NULL;
    text[0] = '\0';
    for (int i = 0; i < plan->n_candidates; i++) {
        const tess_candidate *c =
            &plan->candidates[(size_t)layer * (size_t)plan->n_candidates + (size_t)i];
        const int known = c->ns >= 0 || (plan->layers[layer].predicted_ns < 0 && c->rho > 0.0);
        if (c->chosen || !known || strncmp(c->reason, "not chosen: ", 12) != 0)
            continue;
        if (!best || (c->ns >= 0 ? c->ns < best->ns : c->rho < best->rho))
            best = c;
    }
    if (!best)
        return;
    char strategy[TESS_STRATEGY_TEXT];
    tess_strategy_format(&best->strategy, strategy);
    snprintf(text, bytes, "%s: %s", strategy, best->reason + 12);
}

static tess_status add_layers(tess_plan_file *f, const tess_plan *plan, const tess_work *work,
                              tess__jw *w)
{
    int64_t *loads = TESS_ALLOC(f->ctx, (size_t)plan->info.heads * sizeof *loads);
    tess__jw_begin(w, "layers", '[');
    for (int i = 0; i < plan->info.layers; i++) {
        char second[TESS_STRATEGY_TEXT + 256];
        runner_up(plan, i, second, sizeof second);
        for (int h = 0; work && h < plan->info.heads; h++)
            loads[h] = tess__work_head(work, i, h);
        tess__plan_add_layer(w, &plan->info, &plan->layers[i], work ? loads : NULL,
                             second[0] ? second : NULL);
    }
    tess__jw_end(w, ']');
    tess__free(f->ctx, loads);
    return TESS_OK;
}

/* The facts of the first plan, whose arrays may be gone when the file is written. */
static tess_status keep_info(tess_plan_file *f, const tess_plan_info *info)
{
    f->info = *info;
    const struct {
        const void *from;
        size_t bytes;
        const void **to;
    } arrays[] = {
        {info->bounds_q, ((size_t)info->q_blocks + 1) * 8, (const void **)&f->info.bounds_q},
        {info->bounds_k, ((size_t)info->k_blocks + 1) * 8, (const void **)&f->info.bounds_k},
        {info->speeds, (size_t)info->ranks * 4, (const void **)&f->info.speeds}};
    for (int i = 0; i < 3; i++) {
        if (!arrays[i].from)
            continue;
        void *copy = TESS_TAKE(&f->arena, arrays[i].bytes);
        memcpy(copy, arrays[i].from, arrays[i].bytes);
        *arrays[i].to = copy;
    }
    return TESS_OK;
}

static tess_status check_add(const char *who, const tess_plan_file *f, int64_t step,
                             const tess_plan *plan, const tess_work *work)
{
    if (f->plan)
        return tess__invalid(who, "the file was opened, not created");
    if (!plan && !f->steps)
        return tess__invalid(who, "the first step needs a plan");
    const tess_plan_info *a = &f->info, *b = plan ? &plan->info : a;
    if (work)
        TESS_TRY(tess__plan_fits(who, b, work));
    if (work && work->info.layers != b->layers)
        return tess__invalid(who, "the work has %d layers, the plan %d", work->info.layers,
                             b->layers);
    if (step < 0 || (f->steps && step <= f->last_step))
        return tess__invalid(who, "step is %lld, must be 0 or more, and above the one before",
                             (long long)step);
    if (f->steps && (a->ranks != b->ranks || a->heads != b->heads || a->layers != b->layers ||
                     a->q_blocks != b->q_blocks || a->k_blocks != b->k_blocks))
        return tess__invalid(who,
                             "a plan for %d ranks, %d layers, %d heads and %d x %d blocks after "
                             "one for %d, %d, %d and %d x %d",
                             b->ranks, b->layers, b->heads, b->q_blocks, b->k_blocks, a->ranks,
                             a->layers, a->heads, a->q_blocks, a->k_blocks);
    return TESS_OK;
}

tess_status tess_plan_file_add(tess_plan_file *file, int64_t step, const tess_plan *plan,
                               const tess_work *work)
{
    TESS_REQUIRE(file);
    TESS_TRY(check_add(__func__, file, step, plan, work));
    const size_t before = file->bytes;
    tess__jw w = {.write = to_text, .to = file};
    tess_status status = file->steps ? to_text(file, ",\n", 2) : keep_info(file, &plan->info);
    if (status == TESS_OK) {
        tess__jw_begin(&w, NULL, '{');
        tess__jw_int(&w, "step", step);
        if (plan)
            status = add_layers(file, plan, work, &w);
        tess__jw_end(&w, '}');
    }
    if (status == TESS_OK)
        status = tess__jw_finish(&w);
    if (status != TESS_OK) {
        file->bytes = before;
        return status;
    }
    file->last_step = step;
    file->steps++;
    return TESS_OK;
}

static void add_file(tess__jw *w, const void *user)
{
    const tess_plan_file *f = user;
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "format", TESS_PLAN_FORMAT);
    tess__jw_int(w, "version", TESS_PLAN_VERSION_STEPS);
    tess__jw_text(w, "command", f->origin.command);
    tess__jw_text(w, "source", f->origin.source);
    tess__jw_text(w, "source_hash", f->origin.source_hash[0] ? f->origin.source_hash : NULL);
    tess__jw_text(w, "cluster", f->origin.cluster);
    tess__jw_int(w, "first_layer", f->origin.first_layer);
    tess__plan_add_info(w, &f->info);
    tess__jw_elements(w, "steps", f->text, f->bytes);
    tess__jw_end(w, '}');
}

tess_status tess_plan_file_save(const tess_plan_file *file, const char *path)
{
    TESS_REQUIRE(file, path);
    if (file->plan || !file->steps)
        return tess__invalid(__func__,
                             file->plan ? "the file was opened, not created" : "no step was added");
    return tess__json_save(file->ctx, path, add_file, file);
}

void tess_plan_file_destroy(tess_plan_file *file)
{
    if (!file)
        return;
    for (int64_t i = 0; file->plan && i < file->steps; i++)
        if (i == 0 || file->plan[i] != file->plan[i - 1])
            tess_plan_destroy(file->plan[i]);
    tess__free(file->ctx, file->text);
    tess__arena arena = file->arena;
    tess__arena_free(&arena);
}
