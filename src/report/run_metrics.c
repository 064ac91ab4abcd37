/* SPDX-License-Identifier: Apache-2.0 */
/* run_metrics.c - the numbers of a training run, from its metrics.jsonl.
 *
 * One line is one step. Curves of a long run are thinned to POINTS_MAX points: each is the mean of
 * as many neighbouring steps. Validation is rare, and every one of it is kept.
 */
#include "run_page.h"

#include "jsonl.h"

#include <math.h>
#include <string.h>

enum { POINTS_MAX = 1500, DIGITS = 7 };

static const char *const columns[TESS_RUN_COLUMNS] = {
    "loss",      "lr",        "grad_norm",      "step_ms",       "attention_ms",
    "linear_ms", "other_ms",  "optimiser_ms",   "data_ms",       "tokens_per_s",
    "density",   "recall",    "predictor_loss", "sparse_layers", "select_ms",
    "learn_ms",  "profile_ms"};

/* Adds [step, loss, bucket...] if the line has a validation. */
static void add_validation(tess__run_data *run, const json_t *object, int64_t step)
{
    const double loss = tess__jsonl_number(object, "val_loss");
    const json_t *buckets = json_object_get(object, "val_buckets");
    if (!isfinite(loss))
        return;
    tess__jw w = tess__markup_json(&run->validation, DIGITS);
    tess__jw_begin(&w, NULL, '[');
    tess__jw_int(&w, NULL, step);
    tess__jw_real(&w, NULL, loss);
    for (size_t i = 0; i < json_array_size(buckets); i++)
        tess__jw_real(&w, NULL, json_number_value(json_array_get(buckets, i)));
    tess__jw_end(&w, ']');
    run->validations++;
    run->val_loss = loss;
}

typedef struct {
    int64_t every; /* steps to a point */
    int64_t lines, in_point;
    double sums[TESS_RUN_COLUMNS];
    int64_t counts[TESS_RUN_COLUMNS];
} thinning;

static void end_point(tess__run_data *run, thinning *t, int64_t step)
{
    tess__jw w = tess__markup_json(&run->points, DIGITS);
    tess__jw_begin(&w, NULL, '[');
    tess__jw_int(&w, NULL, step);
    for (int i = 0; i < TESS_RUN_COLUMNS; i++) {
        run->last[i] = t->counts[i] ? t->sums[i] / (double)t->counts[i] : NAN;
        tess__jw_real(&w, NULL, run->last[i]);
    }
    tess__jw_end(&w, ']');
    memset(t->sums, 0, sizeof t->sums);
    memset(t->counts, 0, sizeof t->counts);
    t->in_point = 0;
}

static void add_line(tess__run_data *run, thinning *t, const json_t *object, int last)
{
    run->steps = (int64_t)json_integer_value(json_object_get(object, "step"));
    t->lines++;
    t->in_point++;
    for (int i = 0; i < TESS_RUN_COLUMNS; i++) {
        const double value = tess__jsonl_number(object, columns[i]);
        if (isfinite(value)) {
            t->sums[i] += value;
            t->counts[i]++;
            run->recorded[i] |= i != TESS_RUN_DENSITY || value < 1;
        }
    }
    add_validation(run, object, run->steps);
    if (t->in_point == t->every || last)
        end_point(run, t, run->steps);
}

tess_status tess__run_read(tess__run_data *run, const char *path)
{
    tess__jsonl file;
    TESS_TRY(tess__jsonl_open(path, "the metrics of a step", &file));
    thinning t = {.every = (file.lines + POINTS_MAX - 1) / POINTS_MAX};
    tess_status status = TESS_OK;
    for (int64_t i = 0; i < file.lines && !status; i++) {
        json_t *object = NULL;
        status = tess__jsonl_next(&file, &object);
        if (!status)
            add_line(run, &t, object, i == file.lines - 1);
        json_decref(object);
    }
    if (!status && file.lines == 0)
        status = tess__fail(TESS_EFORMAT, "%s: no step was recorded", path);
    tess__jsonl_close(&file);
    return status;
}

/* ---- events --------------------------------------------------------------------------------- */

enum { EVENTS_MAX = 1000 };

static void add_index(tess__jw *w, const json_t *number)
{
    if (json_is_integer(number))
        tess__jw_int(w, NULL, json_integer_value(number));
    else
        tess__jw_null(w, NULL);
}

static void add_event(tess__markup *events, const json_t *object)
{
    const char *event = json_string_value(json_object_get(object, "event"));
    const json_t *reason = json_object_get(object, "why");
    tess__markup why = {.ctx = events->ctx};
    tess__jw inner = tess__markup_json(&why, 4), w = tess__markup_json(events, DIGITS);
    if (reason)
        tess__jw_value(&inner, NULL, reason);
    tess__jw_begin(&w, NULL, '[');
    add_index(&w, json_object_get(object, "step"));
    tess__jw_text(&w, NULL, event ? event : "");
    add_index(&w, json_object_get(object, "layer"));
    add_index(&w, json_object_get(object, "head"));
    tess__jw_text(&w, NULL, why.data ? why.data : "");
    tess__jw_end(&w, ']');
    events->status = events->status ? events->status : why.status;
    tess__markup_free(&why);
}

tess_status tess__run_events(tess__markup *events, const char *path)
{
    tess__jsonl file;
    const tess_status open = tess__jsonl_open(path, "an event with its step", &file);
    if (open == TESS_EIO)
        return TESS_OK; /* of dense runs there is none */
    if (open)
        return open;
    tess_status status = TESS_OK;
    for (int64_t i = 0; i < file.lines && i < EVENTS_MAX && !status; i++) {
        json_t *object = NULL;
        status = tess__jsonl_next(&file, &object);
        if (!status)
            add_event(events, object);
        json_decref(object);
    }
    tess__jsonl_close(&file);
    return status ? status : events->status;
}
