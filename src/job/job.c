/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - tess_job: a file of another framework from its text to a scenario. */
#include "job_internal.h"

#include "file/file_internal.h"

#include <string.h>

static int ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);
    return n > m && strcmp(text + n - m, with) == 0;
}

int tess_job_is_file(const char *path)
{
    return path && (ends(path, ".toml") || ends(path, ".sh"));
}

const char *tess_job_kind_name(tess_job_kind kind)
{
    static const char *const names[] = {"read", "assumed", "unmodelled", "ignored", "unknown"};
    return (int)kind >= 0 && kind < TESS_JOB_KINDS ? names[kind] : NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static tess_status read_text(tess_job *job, const char *text, size_t bytes)
{
    const int script = ends(job->name, ".sh");
    if (bytes > TESS__JOB_TEXT)
        return tess__fail(TESS_EFORMAT, "%s: %zu bytes, must be at most %d", job->name, bytes,
                          TESS__JOB_TEXT);
    if (memchr(text, 0, bytes))
        return tess__fail(TESS_EFORMAT, "%s: has a byte 0, must be text", job->name);
    TESS_TRY(script ? tess__script_read(job, text, bytes) : tess__toml_read(job, text, bytes));
    return script ? tess__megatron_map(job) : tess__torchtitan_map(job);
}

tess_status tess__job_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                            tess_job **job)
{
    tess__source source = {0};
    if (!text)
        TESS_TRY(tess__source_open(name, &source));
    tess_job *j = tess__alloc_zero(ctx, sizeof *j);
    tess_status status = j ? TESS_OK : TESS_ENOMEM;
    if (j) {
        j->ctx = j->arena.ctx = ctx;
        j->name = tess__arena_string(&j->arena, name, strlen(name));
        status = j->name ? TESS_OK : TESS_ENOMEM;
    }
    if (status == TESS_OK)
        status = read_text(j, text ? text : (const char *)source.data, text ? bytes : source.bytes);
    if (!text)
        tess__source_close(&source);
    if (status == TESS_OK)
        *job = j;
    else
        tess_job_destroy(j);
    return status;
}

tess_status tess_job_load(tess_ctx *ctx, const char *path, tess_job **job)
{
    TESS_REQUIRE(ctx, path, job);
    if (!tess_job_is_file(path))
        return tess__invalid(__func__, "path is \"%.200s\", must end in .toml or .sh", path);
    return tess__job_parse(ctx, path, NULL, 0, job);
}

void tess_job_destroy(tess_job *job)
{
    if (!job)
        return;
    tess_ctx *ctx = job->ctx;
    tess__free(ctx, job->pairs);
    tess__free(ctx, job->entries);
    tess__arena_free(&job->arena);
    tess__free(ctx, job);
}

/* ---- results --------------------------------------------------------------------------------- */

tess_status tess_job_query(const tess_job *job, tess_job_info *info)
{
    TESS_REQUIRE(job, info);
    *info = (tess_job_info){.framework = job->framework, .entries = job->n, .steps = job->steps};
    return TESS_OK;
}

tess_status tess_job_entry_query(const tess_job *job, int index, tess_job_entry *entry)
{
    TESS_REQUIRE(job, entry);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, job->n - 1));
    *entry = job->entries[index];
    return TESS_OK;
}

static tess_status apply_one(tess_ctx *ctx, const tess_job *job, const tess_job_entry *e,
                             tess_scenario *scenario)
{
    char sentence[512];
    const tess_status status = tess_scenario_set(ctx, scenario, e->setting, e->value);
    if (status != TESS_EINVAL)
        return status;
    snprintf(sentence, sizeof sentence, "%s", tess_last_error());
    if (e->line)
        return tess__fail(TESS_EFORMAT, "%s: line %d: %.60s: %s", job->name, e->line, e->key,
                          sentence);
    return tess__fail(TESS_EFORMAT, "%s: %s", job->name, sentence);
}

/* The model by name comes first: other settings change what it gives. */
tess_status tess_job_apply(tess_ctx *ctx, const tess_job *job, int keep_model,
                           tess_scenario *scenario)
{
    TESS_REQUIRE(ctx, job, scenario);
    tess_scenario made = *scenario;
    for (int name = 1; name >= 0; name--)
        for (int i = 0; i < job->n; i++) {
            const tess_job_entry *e = &job->entries[i];
            const int model = strncmp(e->setting, "model.", 6) == 0;
            if (!*e->setting || (strcmp(e->setting, "model.name") == 0) != name ||
                (keep_model && model && strcmp(e->setting, "model.seq") != 0))
                continue;
            TESS_TRY(apply_one(ctx, job, e, &made));
        }
    *scenario = made;
    return TESS_OK;
}

tess_status tess_job_complete(const tess_job *job, tess_scenario *scenario)
{
    TESS_REQUIRE(job, scenario);
    tess_scenario full;
    if (job->local_batch < 1 || job->local_batch > 1 << 30 || scenario->training.global_batch)
        return TESS_OK;
    TESS_TRY(tess_scenario_fill(scenario, &full));
    scenario->training.global_batch = job->local_batch * full.layout.dp;
    return TESS_OK;
}
