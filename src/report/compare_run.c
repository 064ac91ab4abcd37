/* SPDX-License-Identifier: Apache-2.0 */
/* compare_run.c - the numbers of one training run by step, from the files of its folder.
 *
 *   metrics.jsonl   a line per step; time and work are added up, so that they serve as axes
 *   settings.json   optional: the seed, and what makes an arm
 *   events.jsonl    optional: when layers and heads became sparse, or dense again
 */
#include "compare_internal.h"

#include "file/json.h"
#include "jsonl.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int column;
} members[] = {
    {"loss", TESS_METRIC_LOSS},
    {"step_ms", TESS_METRIC_STEP_MS},
    {"attention_ms", TESS_METRIC_ATTENTION_MS},
    {"attention_gflop", TESS_METRIC_GFLOP},
    {"density", TESS_METRIC_DENSITY},
    {"recall", TESS_METRIC_RECALL},
    {"val_loss", TESS_METRIC_VAL},
};

static tess_status join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return tess__fail(TESS_EINVAL, "tess_compare_create: %.80s...: the path is too long",
                          folder);
    return TESS_OK;
}

/* ---- metrics.jsonl ------------------------------------------------------------------------ */

static void add_line(tess__recorded *run, const json_t *object)
{
    const int64_t i = run->lines++;
    run->steps[i] = (int64_t)json_integer_value(json_object_get(object, "step"));
    for (size_t m = 0; m < sizeof members / sizeof *members; m++)
        run->values[members[m].column][i] = tess__jsonl_number(object, members[m].name);
    const json_t *buckets = json_object_get(object, "val_buckets");
    for (int b = 0; b < TESS_COMPARE_BUCKETS; b++) {
        const json_t *loss = json_array_get(buckets, (size_t)b);
        run->values[TESS_METRIC_BUCKET + b][i] =
            json_is_number(loss) ? json_number_value(loss) : NAN;
    }
    const double seconds = run->values[TESS_METRIC_STEP_MS][i] / 1e3;
    run->values[TESS_METRIC_WALL][i] = seconds + (i ? run->values[TESS_METRIC_WALL][i - 1] : 0);
    run->values[TESS_METRIC_GFLOP][i] += i ? run->values[TESS_METRIC_GFLOP][i - 1] : 0;
}

static tess_status read_lines(tess__recorded *run, const char *path, tess__jsonl *file)
{
    for (json_t *object; file->line < file->lines;) {
        TESS_TRY(tess__jsonl_next(file, &object));
        add_line(run, object);
        json_decref(object);
        const int64_t i = run->lines - 1;
        if (run->steps[i] < 1 || (i > 0 && run->steps[i] <= run->steps[i - 1]))
            return tess__fail(TESS_EFORMAT, "%s: line %lld: step %lld, must ascend from 1", path,
                              (long long)i + 1, (long long)run->steps[i]);
    }
    if (run->lines == 0)
        return tess__fail(TESS_EFORMAT, "%s: no step was recorded", path);
    return TESS_OK;
}

static tess_status read_metrics(tess__arena *arena, tess__recorded *run)
{
    char path[PATH_MAX];
    tess__jsonl file;
    TESS_TRY(join(run->path, "metrics.jsonl", path));
    TESS_TRY(tess__jsonl_open(path, "the metrics of a step", &file));
    /* A line has a byte or more, and no mapping comes near SIZE_MAX / 8. */
    const size_t n = (size_t)file.lines;
    tess_status status = TESS_OK;
    run->steps = tess__arena_take(arena, n * sizeof *run->steps);
    if (!run->steps)
        status = TESS_ENOMEM;
    for (int c = 0; c < TESS_METRIC_COUNT && !status; c++) {
        run->values[c] = tess__arena_take(arena, n * sizeof *run->values[c]);
        if (!run->values[c])
            status = TESS_ENOMEM;
    }
    if (!status)
        status = read_lines(run, path, &file);
    tess__jsonl_close(&file);
    return status;
}

/* ---- settings.json, events.jsonl --------------------------------------------------------- */

static tess_status read_settings(tess_ctx *ctx, tess__recorded *run)
{
    char path[PATH_MAX];
    tess__json doc = {0};
    TESS_TRY(join(run->path, "settings.json", path));
    run->seed = -1;
    tess_status status = tess__json_open(ctx, path, NULL, 0, &doc);
    if (status == TESS_EIO)
        return TESS_OK; /* a run made through the library may have none */
    if (status)
        return status;
    if (!json_is_object(doc.root))
        status = tess__json_fail(tess__json_root(&doc), "must be an object of settings");
    else
        run->settings = json_incref(doc.root);
    const json_t *seed = json_object_get(run->settings, "seed");
    if (json_is_integer(seed) && json_integer_value(seed) >= 0)
        run->seed = (int64_t)json_integer_value(seed);
    tess__json_close(&doc);
    return status;
}

static tess_status read_events(tess__arena *arena, tess__recorded *run)
{
    char path[PATH_MAX];
    tess__jsonl file;
    TESS_TRY(join(run->path, "events.jsonl", path));
    const tess_status open = tess__jsonl_open(path, "an event with its step", &file);
    if (open == TESS_EIO)
        return TESS_OK; /* of dense runs there is none */
    if (open)
        return open;
    tess_status status = TESS_OK;
    run->switches = tess__arena_take(arena, (size_t)file.lines * sizeof *run->switches);
    if (!run->switches)
        status = TESS_ENOMEM;
    while (!status && file.line < file.lines) {
        json_t *object = NULL;
        status = tess__jsonl_next(&file, &object);
        const char *event = json_string_value(json_object_get(object, "event"));
        const int sparse = event && (!strcmp(event, "switch") || !strcmp(event, "again"));
        if (sparse || (event && strcmp(event, "back") == 0))
            run->switches[run->n_switches++] =
                (tess__switch){json_integer_value(json_object_get(object, "step")), sparse};
        json_decref(object);
    }
    tess__jsonl_close(&file);
    return status;
}

tess_status tess__recorded_read(tess__arena *arena, tess__recorded *run)
{
    TESS_TRY(read_metrics(arena, run));
    TESS_TRY(read_settings(arena->ctx, run));
    return read_events(arena, run);
}

/* ---- questions --------------------------------------------------------------------------- */

int64_t tess__recorded_last(const tess__recorded *run)
{
    int64_t i = run->lines - 1;
    while (i >= 0 && isnan(run->values[TESS_METRIC_VAL][i]))
        i--;
    return i;
}

double tess__recorded_at_step(const tess__recorded *run, int64_t step, int column)
{
    int64_t low = 0, high = run->lines;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (run->steps[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->lines && run->steps[low] == step ? run->values[column][low] : NAN;
}

double tess__recorded_at(const tess__recorded *run, int axis, double x, int column)
{
    const double *at = run->values[axis], *value = run->values[column];
    int64_t before = -1;
    for (int64_t i = 0; i < run->lines; i++) {
        if (isnan(run->values[TESS_METRIC_VAL][i]) || isnan(at[i]))
            continue;
        if (at[i] == x)
            return value[i];
        if (at[i] > x)
            return before < 0 ? NAN
                              : value[before] + (value[i] - value[before]) * (x - at[before]) /
                                                    (at[i] - at[before]);
        before = i;
    }
    return NAN;
}

double tess__recorded_mean(const tess__recorded *run, int column, int64_t begin, int64_t end)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++)
        if (!isnan(run->values[column][i])) {
            sum += run->values[column][i];
            n++;
        }
    return n ? sum / (double)n : NAN;
}
