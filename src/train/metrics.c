/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - one line per step in metrics.jsonl and metrics.csv of a run's folder.
 *
 * A line is appended by one write, so that a killed process leaves at most the last one cut short.
 * A run that resumes at step n first cuts both files behind the line of step n, by writing them
 * again: later lines are of steps that will be done once more. Numbers have a point whatever the
 * host program's locale says, and nothing is allocated.
 */
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"metrics.jsonl", "metrics.csv"};

static const struct {
    const char *name;
    size_t offset;
} columns[] = {
    {"loss", offsetof(tess_step, loss)},
    {"lr", offsetof(tess_step, lr)},
    {"lr_muon", offsetof(tess_step, lr_muon)},
    {"grad_norm", offsetof(tess_step, grad_norm)},
    {"step_ms", offsetof(tess_step, step_ms)},
    {"attention_ms", offsetof(tess_step, attention_ms)},
    {"linear_ms", offsetof(tess_step, linear_ms)},
    {"other_ms", offsetof(tess_step, other_ms)},
    {"optimiser_ms", offsetof(tess_step, optimiser_ms)},
    {"data_ms", offsetof(tess_step, data_ms)},
    {"tokens_per_s", offsetof(tess_step, tokens_per_s)},
    {"val_loss", offsetof(tess_step, val_loss)},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* ---- lines ------------------------------------------------------------------------------------
 */

typedef struct {
    char text[1024];
    size_t used;
} line;

static void put(line *l, const char *text)
{
    const size_t n = strlen(text);
    if (l->used + n < sizeof l->text) /* lines are some 400 bytes */
        memcpy(l->text + l->used, text, n + 1), l->used += n;
}

/* NaN and infinities are `none`, for JSON has no word for them. */
static void put_number(line *l, double value, const char *none)
{
    char digits[40];
    if (!isfinite(value)) {
        put(l, none);
        return;
    }
    snprintf(digits, sizeof digits, "%.9g", value);
    for (char *p = digits; *p; p++)
        if (!strchr("0123456789+-e", *p))
            *p = '.';
    put(l, digits);
}

static void json_line(const tess_step *step, line *l)
{
    char head[48];
    snprintf(head, sizeof head, "{\"step\": %lld", (long long)step->step);
    put(l, head);
    for (int i = 0; i < COLUMNS; i++) {
        put(l, ", \"");
        put(l, columns[i].name);
        put(l, "\": ");
        put_number(l, *(const double *)((const char *)step + columns[i].offset), "null");
    }
    put(l, ", \"val_buckets\": ");
    for (int i = 0; i < TESS_NOISE_BUCKETS && !isnan(step->val_loss); i++) {
        put(l, i ? ", " : "[");
        put_number(l, step->val_buckets[i], "null");
    }
    put(l, isnan(step->val_loss) ? "null}\n" : "]}\n");
}

static void csv_line(const tess_step *step, line *l)
{
    char head[32];
    snprintf(head, sizeof head, "%lld", (long long)step->step);
    put(l, head);
    for (int i = 0; i < COLUMNS; i++) {
        put(l, ",");
        put_number(l, *(const double *)((const char *)step + columns[i].offset), "");
    }
    for (int i = 0; i < TESS_NOISE_BUCKETS; i++) {
        put(l, ",");
        put_number(l, step->val_buckets[i], "");
    }
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

/* ---- files ------------------------------------------------------------------------------------
 */

static tess_status append(const char *path, const line *l)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    ssize_t done;
    do
        done = write(fd, l->text, l->used);
    while (done < 0 && errno == EINTR);
    if (done >= 0 && (size_t)done < l->used)
        errno = ENOSPC;
    const int failed = done < 0 || (size_t)done < l->used, why = errno;
    if (close(fd) != 0 && !failed)
        return tess__fail(TESS_EIO, "%s: cannot write: %m", path);
    errno = why;
    return failed ? tess__fail(TESS_EIO, "%s: cannot write: %m", path) : TESS_OK;
}

tess_status tess__metrics_add(const char *folder, const tess_step *step)
{
    char path[PATH_MAX];
    line json = {.used = 0}, csv = {.used = 0};
    json_line(step, &json);
    csv_line(step, &csv);
    TESS_TRY(tess__path(path, folder, names[0]));
    TESS_TRY(append(path, &json));
    TESS_TRY(tess__path(path, folder, names[1]));
    return append(path, &csv);
}

/* The step of a line of either file; 0: it has none. */
static int64_t step_of(const char *text)
{
    static const char head[] = "{\"step\": ";
    if (strncmp(text, head, sizeof head - 1) == 0)
        text += sizeof head - 1;
    return strtoll(text, NULL, 10);
}

/* Copies the whole lines of steps 1 .. last. */
static tess_status copy_lines(FILE *in, int64_t last, tess__out *out)
{
    line l;
    while (fgets(l.text, sizeof l.text, in)) {
        const size_t n = strlen(l.text);
        const int64_t step = step_of(l.text);
        if (n > 0 && l.text[n - 1] == '\n' && step > 0 && step <= last)
            TESS_TRY(tess__out_write(out, l.text, n));
    }
    return TESS_OK;
}

static tess_status rewrite(tess_ctx *ctx, const char *path, const line *head, int64_t last)
{
    tess__out *out = NULL;
    TESS_TRY(tess__out_open(ctx, path, &out));
    tess_status status = tess__out_write(out, head->text, head->used);
    FILE *in = fopen(path, "re");
    if (in && status == TESS_OK)
        status = copy_lines(in, last, out);
    if (in)
        fclose(in);
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}

tess_status tess__metrics_open(tess_ctx *ctx, const char *folder, int64_t step)
{
    char path[PATH_MAX];
    line none = {.used = 0}, head = {.used = 0};
    csv_head(&head);
    TESS_TRY(tess__path(path, folder, names[0]));
    TESS_TRY(rewrite(ctx, path, &none, step));
    TESS_TRY(tess__path(path, folder, names[1]));
    return rewrite(ctx, path, &head, step);
}
