/* SPDX-License-Identifier: Apache-2.0 */
/* log_job.c - the job that a log prints, as pairs of the file that it was started with.
 *
 *   torchtitan   Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]
 *                Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, tp=1, ...
 *                Model llama3 8B size: 8,030,261,248 total parameters
 *                Trainer is initialized with local batch size 1, global batch size 8, ..., sequence
 *                length 8192, ...
 *                Applied selective activation checkpointing to the model
 *   Megatron-LM  ---- arguments ----, lines "name ..... value", ---- end of arguments ----
 */
#include "log_internal.h"

#include <inttypes.h>
#include <string.h>

static int has_pair(const tess_job *job, const char *key)
{
    for (int i = 0; i < job->n_pairs; i++)
        if (strcmp(job->pairs[i].key, key) == 0)
            return 1;
    return 0;
}

/* The first of several ranks. */
static tess_status add(tess_run_log *log, const char *key, const char *value, int number)
{
    return has_pair(log->job, key) || log->job->n_pairs == TESS__JOB_PAIRS
               ? TESS_OK
               : tess__job_pair_add(log->job, key, value, number);
}

static tess_status add_number(tess_run_log *log, const char *key, const char *line,
                              const char *after, int number)
{
    char text[32];
    double value;
    if (!tess__log_number(line, after, &value) || !(value >= 1 && value < 1e12))
        return TESS_OK;
    snprintf(text, sizeof text, "%" PRId64, (int64_t)value);
    return add(log, key, text, number);
}

/* ---- torchtitan ------------------------------------------------------------------------------ */

static const struct {
    const char *name, *key;
} axes[] = {{"pp", "parallelism.pipeline_parallel_degree"},
            {"dp_replicate", "parallelism.data_parallel_replicate_degree"},
            {"dp_shard", "parallelism.data_parallel_shard_degree"},
            {"dp", "parallelism.data_parallel_shard_degree"},
            {"cp", "parallelism.context_parallel_degree"},
            {"tp", "parallelism.tensor_parallel_degree"},
            {"ep", "parallelism.expert_parallel_degree"},
            {"etp", "parallelism.expert_tensor_parallel_degree"}};

static tess_status add_axis(tess_run_log *log, const char *name, size_t length, const char *value,
                            int number)
{
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)strspn(value, "0123456789"), value);
    for (size_t i = 0; *text && i < sizeof axes / sizeof *axes; i++)
        if (strlen(axes[i].name) == length && memcmp(axes[i].name, name, length) == 0)
            return add(log, axes[i].key, text, number);
    return TESS_OK;
}

/* "['dp_shard', 'tp'], [4, 2]", or "(...)" as of old: names and numbers in the same order. */
static tess_status read_lists(tess_run_log *log, const char *names, int number)
{
    const char *values = strpbrk(names, "])");
    values = values ? strchr(values, '[') : NULL;
    const char *stop = values ? strpbrk(names, "])") : NULL;
    if (!stop)
        return TESS_OK;
    for (const char *name = strpbrk(names, "'\""); name && name < stop;) {
        const size_t length = strcspn(++name, "'\"");
        values += strcspn(values, "0123456789");
        TESS_TRY(add_axis(log, name, length, values, number));
        values += strspn(values, "0123456789");
        name += length;
        name = *name ? strpbrk(name + 1, "'\"") : NULL;
    }
    /* what a list does not name has 1 */
    TESS_TRY(add(log, "parallelism.data_parallel_shard_degree", "1", number));
    return TESS_OK;
}

static tess_status read_words(tess_run_log *log, const char *text, int number)
{
    for (const char *at = text; *at;) {
        at += strspn(at, " ,");
        const size_t n = strcspn(at, "=, ");
        if (at[n] == '=')
            TESS_TRY(add_axis(log, at, n, at + n + 1, number));
        at += n;
        at += strcspn(at, ", ");
    }
    return TESS_OK;
}

static tess_status read_model(tess_run_log *log, const char *at, int number)
{
    char name[64], flavor[64];
    const size_t n = strcspn(at, " "), m = at[n] ? strcspn(at + n + 1, " ") : 0;
    if (m == 0 || strncmp(at + n + 1 + m, " size:", 6) != 0)
        return TESS_OK;
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    snprintf(flavor, sizeof flavor, "%.*s", (int)m, at + n + 1);
    TESS_TRY(add(log, "model.name", name, number));
    return add(log, "model.flavor", flavor, number);
}

static const char *behind(const char *line, const char *text)
{
    const char *at = strstr(line, text);
    return at ? at + strlen(text) : NULL;
}

tess_status tess__log_torchtitan(tess_run_log *log, const char *line, int number)
{
    const char *at;
    if ((at = behind(line, "device mesh with parallelism:")))
        return read_words(log, at, number);
    if ((at = behind(line, "device mesh with ")))
        return read_lists(log, at, number);
    if ((at = behind(line, " - Model ")))
        return read_model(log, at, number);
    if (strstr(line, "activation checkpointing to the model"))
        return add(log, "activation_checkpoint.mode",
                   strstr(line, "full")        ? "full"
                   : strstr(line, "selective") ? "selective"
                                               : "none",
                   number);
    if ((at = behind(line, "Trainer is initialized with "))) {
        TESS_TRY(add_number(log, "training.local_batch_size", at, "local batch size", number));
        TESS_TRY(add_number(log, "training.global_batch_size", at, "global batch size", number));
        TESS_TRY(add_number(log, "training.seq_len", at, "sequence length", number));
        return add_number(log, "training.steps", at, "total steps", number);
    }
    return TESS_OK;
}

/* ---- Megatron-LM ----------------------------------------------------------------------------- */

tess_status tess__log_megatron(tess_run_log *log, const char *line, int number)
{
    char key[128] = "--";
    if (strstr(line, "- end of arguments -"))
        log->arguments = 0;
    else if (strstr(line, "- arguments -"))
        log->arguments = 1;
    const char *dots = log->arguments ? strstr(line, " ...") : NULL;
    if (!dots)
        return TESS_OK;
    const char *name = dots;
    while (name > line && name[-1] != ' ')
        name--;
    const size_t n = (size_t)(dots - name);
    const char *value = dots + 1 + strspn(dots + 1, ".");
    value += strspn(value, " ");
    if (n == 0 || n > 100 || strcmp(value, "None") == 0 || strcmp(value, "False") == 0)
        return TESS_OK;
    for (size_t i = 0; i < n; i++)
        key[2 + i] = (char)(name[i] == '_' ? '-' : name[i]);
    key[2 + n] = '\0';
    if (strcmp(key, "--fp8") == 0) /* the name that the format is stored under */
        return add(log, "--fp8-format", value, number);
    return add(log, key, strcmp(value, "True") == 0 ? "" : value, number);
}
