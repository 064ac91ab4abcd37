/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - one line per step in metrics.jsonl and metrics.csv of a run's folder. */
#include "train_internal.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"metrics.jsonl", "metrics.csv"};

static const struct {
    const char *name, *group; /* TensorBoard's tag is group/name */
    size_t offset;
} columns[] = {
    {"loss", "train", offsetof(tess_step, loss)},
    {"lr", "train", offsetof(tess_step, lr)},
    {"lr_muon", "train", offsetof(tess_step, lr_muon)},
    {"grad_norm", "train", offsetof(tess_step, grad_norm)},
    {"step_ms", "time", offsetof(tess_step, step_ms)},
    {"attention_ms", "time", offsetof(tess_step, attention_ms)},
    {"linear_ms", "time", offsetof(tess_step, linear_ms)},
    {"other_ms", "time", offsetof(tess_step, other_ms)},
    {"optimiser_ms", "time", offsetof(tess_step, optimiser_ms)},
    {"data_ms", "time", offsetof(tess_step, data_ms)},
    {"tokens_per_s", "time", offsetof(tess_step, tokens_per_s)},
    {"density", "sparse", offsetof(tess_step, density)},
    {"sparse_layers", "sparse", offsetof(tess_step, sparse_layers)},
    {"recall", "sparse", offsetof(tess_step, recall)},
    {"predictor_loss", "sparse", offsetof(tess_step, predictor_loss)},
    {"select_ms", "time", offsetof(tess_step, select_ms)},
    {"learn_ms", "time", offsetof(tess_step, learn_ms)},
    {"profile_ms", "time", offsetof(tess_step, profile_ms)},
    {"attention_gflop", "sparse", offsetof(tess_step, attention_gflop)},
    {"exchange_ms", "ranks", offsetof(tess_step, exchange_ms)},
    {"plan_ms", "ranks", offsetof(tess_step, plan_ms)},
    {"imbalance", "ranks", offsetof(tess_step, imbalance)},
    {"imbalance_measured", "ranks", offsetof(tess_step, imbalance_measured)},
    {"passes_ms", "ranks", offsetof(tess_step, passes_ms)},
    {"passes_predicted_ms", "ranks", offsetof(tess_step, passes_predicted_ms)},
    {"payload_bytes", "ranks", offsetof(tess_step, payload_bytes)},
    {"index_bytes", "ranks", offsetof(tess_step, index_bytes)},
    {"control_bytes", "ranks", offsetof(tess_step, control_bytes)},
    {"messages", "ranks", offsetof(tess_step, messages)},
    {"output_change", "sparse", offsetof(tess_step, output_change)},
    {"val_loss", "validation", offsetof(tess_step, val_loss)},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

int tess__metric(const tess_step *step, int i, const char **group, const char **name, double *value)
{
    static const char *const buckets[TESS_NOISE_BUCKETS] = {"least_noise", "second_quartile",
                                                            "third_quartile", "most_noise"};
    if (i < COLUMNS) {
        *group = columns[i].group;
        *name = columns[i].name;
        *value = *(const double *)((const char *)step + columns[i].offset);
    } else if (i < COLUMNS + TESS_NOISE_BUCKETS) {
        *group = "validation";
        *name = buckets[i - COLUMNS];
        *value = isnan(step->val_loss) ? (double)NAN : step->val_buckets[i - COLUMNS];
    }
    return i < COLUMNS + TESS_NOISE_BUCKETS;
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum { LINE_BYTES = 2048 }; /* lines have some 700 */

typedef struct {
    char text[LINE_BYTES];
    size_t used;
} line;

static void put(line *l, const char *text)
{
    const size_t n = strlen(text);
    if (l->used + n < sizeof l->text)
        memcpy(l->text + l->used, text, n + 1), l->used += n;
}

static int is_whole(double value)
{
    return fabs(value) < 0x1p53 && value == floor(value);
}

/* Bytes are written to the last one, other numbers with 9 digits. */
static void add_number(tess__jw *w, const char *key, double value)
{
    if (is_whole(value))
        tess__jw_int(w, key, (int64_t)value);
    else
        tess__jw_real(w, key, value);
}

static void json_line(const tess_step *step, line *l)
{
    tess__jw_buffer buffer = {.text = l->text, .room = sizeof l->text};
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .digits = 9};
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "step", step->step);
    for (int i = 0; i < COLUMNS; i++)
        add_number(&w, columns[i].name, *(const double *)((const char *)step + columns[i].offset));
    if (isnan(step->val_loss)) {
        tess__jw_null(&w, "val_buckets");
    } else {
        tess__jw_begin(&w, "val_buckets", '[');
        for (int i = 0; i < TESS_NOISE_BUCKETS; i++)
            add_number(&w, NULL, step->val_buckets[i]);
        tess__jw_end(&w, ']');
    }
    tess__jw_end(&w, '}');
    l->used = buffer.used;
    put(l, "\n");
}

static void put_field(line *l, double value)
{
    char text[TESS_REAL_TEXT] = "";
    if (isfinite(value))
        tess__real_text(value, is_whole(value) ? 0 : 9, text);
    put(l, ",");
    put(l, text);
}

static void csv_line(const tess_step *step, line *l)
{
    char head[32];
    snprintf(head, sizeof head, "%lld", (long long)step->step);
    put(l, head);
    for (int i = 0; i < COLUMNS; i++)
        put_field(l, *(const double *)((const char *)step + columns[i].offset));
    for (int i = 0; i < TESS_NOISE_BUCKETS; i++)
        put_field(l, step->val_buckets[i]);
    put(l, "\n");
}

static void csv_head(line *l)
{
    put(l, "step");
    for (int i = 0; i < COLUMNS; i++) {
        put(l, ",");
        put(l, columns[i].name);
    }
    put(l, ",val_bucket_1,val_bucket_2,val_bucket_3,val_bucket_4\n");
}

/* ---- files ----------------------------------------------------------------------------------- */

tess_status tess__metrics_add(const char *folder, const tess_step *step)
{
    char path[PATH_MAX];
    line json = {.used = 0}, csv = {.used = 0};
    json_line(step, &json);
    csv_line(step, &csv);
    TESS_TRY(tess__path(path, folder, names[0]));
    TESS_TRY(tess__lines_add(path, json.text, json.used));
    TESS_TRY(tess__path(path, folder, names[1]));
    return tess__lines_add(path, csv.text, csv.used);
}

tess_status tess__metrics_open(tess_ctx *ctx, const char *folder, int64_t step)
{
    char path[PATH_MAX];
    line head = {.used = 0};
    csv_head(&head);
    TESS_TRY(tess__path(path, folder, names[0]));
    TESS_TRY(tess__lines_cut(ctx, path, "", step));
    TESS_TRY(tess__path(path, folder, names[1]));
    return tess__lines_cut(ctx, path, head.text, step);
}
