/* SPDX-License-Identifier: Apache-2.0 */
/* compare_output.c - a comparison as text and as JSON. */
#include "cmd_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 64, LABEL = 18 }; /* tables have at most 80 columns */

/* ---- text --------------------------------------------------------------------------------- */

/* "0.1031 -+ 0.0021"; without an interval "0.1031"; "-" of nothing. */
static char *mean_text(const tess_estimate *e, char text[CELL])
{
    if (e->n == 0)
        snprintf(text, CELL, "-");
    else if (isnan(e->low))
        snprintf(text, CELL, "%.4g", e->mean);
    else
        snprintf(text, CELL, "%.4g +- %.2g", e->mean, (e->high - e->low) / 2);
    return text;
}

/* "+0.29 % (-0.40 .. +0.98)". */
static char *change_text(const tess_estimate *e, char text[CELL])
{
    if (e->n == 0)
        snprintf(text, CELL, "-");
    else if (isnan(e->low))
        snprintf(text, CELL, "%+.2f %%", 100 * e->mean);
    else
        snprintf(text, CELL, "%+.2f %% (%+.2f .. %+.2f)", 100 * e->mean, 100 * e->low,
                 100 * e->high);
    return text;
}

typedef struct {
    cli *c;
    const tess_compare *compare;
    tess_compare_info info;
    tess_compare_arm *arms;
    int width; /* of the column of labels, at most LABEL */
} job;

static const char *label(const job *j, int i, char text[CELL])
{
    return out_clean(j->arms[i].label, text, CELL);
}

/* The label of a row in its column; one that is wider has a line of its own. */
static void show_label(const job *j, int i)
{
    char name[CELL];
    fprintf(j->c->out, "  %-*s", j->width, label(j, i, name));
    if ((int)strlen(name) > j->width)
        fprintf(j->c->out, "\n  %*s", j->width, "");
}

static void show_row(const job *j, int i, const tess_estimate *loss, const tess_estimate *change,
                     const char *verdict)
{
    char text[CELL];
    show_label(j, i);
    fprintf(j->c->out, "  %-16s", mean_text(loss, text));
    if (i == j->info.baseline)
        fprintf(j->c->out, "  baseline\n");
    else
        fprintf(j->c->out, "  %-*s%s%s\n", *verdict ? 27 : 0, change_text(change, text),
                *verdict ? "  " : "", verdict);
}

static void show_place(const job *j, const char *title, size_t offset)
{
    fprintf(j->c->out, "\n%s\n", title);
    for (int i = 0; i < j->info.arms; i++) {
        const tess_compare_at *at = (const tess_compare_at *)((const char *)&j->arms[i] + offset);
        show_row(j, i, &at->loss, &at->change,
                 at->verdict ? tess_verdict_name(at->verdict) : "no interval");
    }
}

static void show_buckets(const job *j)
{
    static const char *const quartiles[] = {"least noise", "second quartile", "third quartile",
                                            "most noise"};
    for (int b = 0; b < TESS_COMPARE_BUCKETS; b++) {
        fprintf(j->c->out, "\n%s, at step %lld\n", quartiles[b], (long long)j->info.step);
        for (int i = 0; i < j->info.arms; i++)
            show_row(j, i, &j->arms[i].at_step.buckets[b], &j->arms[i].at_step.bucket_changes[b],
                     "");
    }
}

/* A table of three estimates for each arm. */
static void show_columns(const job *j, const char *const titles[3], const size_t offsets[3])
{
    char text[CELL];
    FILE *f = j->c->out;
    fprintf(f, "\n  %-*s  %-16s  %-16s  %s\n", j->width, "", titles[0], titles[1], titles[2]);
    for (int i = 0; i < j->info.arms; i++) {
        show_label(j, i);
        for (int k = 0; k < 3; k++)
            fprintf(
                f, "  %-*s", k < 2 ? 16 : 0,
                mean_text((const tess_estimate *)((const char *)&j->arms[i] + offsets[k]), text));
        fprintf(f, "\n");
    }
}

static void show_sparsity(const job *j)
{
    char text[CELL];
    FILE *f = j->c->out;
    fprintf(f, "\n  %-*s  %4s  %7s  %-16s  %s\n", j->width, "", "runs", "steps", "density",
            "recall");
    for (int i = 0; i < j->info.arms; i++) {
        const tess_compare_arm *a = &j->arms[i];
        show_label(j, i);
        fprintf(f, "  %4d  %7lld", a->runs, (long long)a->steps);
        fprintf(f, "  %-16s", mean_text(&a->density, text));
        fprintf(f, "  %s\n", mean_text(&a->recall, text));
        if (a->switches)
            fprintf(f, "  %-*s  %d switch%s to sparse, steps %lld..%lld; %d back\n", j->width, "",
                    a->switches, a->switches == 1 ? "" : "es", (long long)a->first_switch,
                    (long long)a->last_switch, a->returns);
    }
}

static void show_numbers(const job *j)
{
    static const char *const titles[] = {"training loss", "ms a step", "ms of attention"};
    static const size_t offsets[] = {offsetof(tess_compare_arm, train_loss),
                                     offsetof(tess_compare_arm, step_ms),
                                     offsetof(tess_compare_arm, attention_ms)};
    show_columns(j, titles, offsets);
    show_sparsity(j);
}

static void show_text(const job *j)
{
    char title[96], clean[600];
    FILE *f = j->c->out;
    fprintf(f,
            "%d run%s in %d arm%s; validation loss, intervals of %g %% over seeds, margin %g %%\n",
            j->info.runs, out_plural(j->info.runs), j->info.arms, out_plural(j->info.arms),
            100 * j->info.confidence, 100 * j->info.margin);
    for (int i = 0; i < j->info.notes; i++) {
        fprintf(f, "note: ");
        out_wrap(f, out_clean(tess_compare_note(j->compare, i), clean, sizeof clean), 6, 6);
        fprintf(f, "\n");
    }
    if (j->info.step) {
        snprintf(title, sizeof title, "at step %lld", (long long)j->info.step);
        show_place(j, title, offsetof(tess_compare_arm, at_step));
    }
    if (!isnan(j->info.wall_s)) {
        snprintf(title, sizeof title, "at equal time, %.4g s of steps", j->info.wall_s);
        show_place(j, title, offsetof(tess_compare_arm, at_wall));
    }
    if (!isnan(j->info.gflop)) {
        snprintf(title, sizeof title, "at equal work of attention, %.4g GFLOP", j->info.gflop);
        show_place(j, title, offsetof(tess_compare_arm, at_gflop));
    }
    if (j->info.step)
        show_buckets(j);
    show_numbers(j);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static json_t *json_estimate(cli *c, const tess_estimate *e)
{
    json_t *o = json_object();
    out_set(c, o, "n", json_integer(e->n));
    out_set(c, o, "mean", out_number(e->mean));
    out_set(c, o, "low", out_number(e->low));
    out_set(c, o, "high", out_number(e->high));
    return o;
}

static json_t *json_at(cli *c, const tess_compare_at *at)
{
    json_t *o = json_object(), *buckets = json_array(), *changes = json_array();
    out_set(c, o, "loss", json_estimate(c, &at->loss));
    out_set(c, o, "change", json_estimate(c, &at->change));
    out_set(c, o, "verdict", json_string(tess_verdict_name(at->verdict)));
    for (int b = 0; b < TESS_COMPARE_BUCKETS; b++) {
        out_append(c, buckets, json_estimate(c, &at->buckets[b]));
        out_append(c, changes, json_estimate(c, &at->bucket_changes[b]));
    }
    out_set(c, o, "buckets", buckets);
    out_set(c, o, "bucket_changes", changes);
    return o;
}

static json_t *json_arm(cli *c, const tess_compare_arm *a)
{
    json_t *o = json_object();
    out_set(c, o, "label", out_text(a->label));
    out_set(c, o, "runs", json_integer(a->runs));
    out_set(c, o, "steps", json_integer(a->steps));
    out_set(c, o, "at_step", json_at(c, &a->at_step));
    out_set(c, o, "at_wall", json_at(c, &a->at_wall));
    out_set(c, o, "at_gflop", json_at(c, &a->at_gflop));
    out_set(c, o, "train_loss", json_estimate(c, &a->train_loss));
    out_set(c, o, "step_ms", json_estimate(c, &a->step_ms));
    out_set(c, o, "attention_ms", json_estimate(c, &a->attention_ms));
    out_set(c, o, "wall_s", json_estimate(c, &a->wall_s));
    out_set(c, o, "attention_gflop", json_estimate(c, &a->gflop));
    out_set(c, o, "density", json_estimate(c, &a->density));
    out_set(c, o, "recall", json_estimate(c, &a->recall));
    out_set(c, o, "switches", json_integer(a->switches));
    out_set(c, o, "returns", json_integer(a->returns));
    out_set(c, o, "first_switch", json_integer(a->first_switch));
    out_set(c, o, "last_switch", json_integer(a->last_switch));
    return o;
}

static void show_json(const job *j)
{
    cli *c = j->c;
    json_t *notes = json_array(), *arms = json_array();
    out_set(c, c->json, "runs", json_integer(j->info.runs));
    out_set(c, c->json, "baseline", json_integer(j->info.baseline));
    out_set(c, c->json, "margin", out_number(j->info.margin));
    out_set(c, c->json, "confidence", out_number(j->info.confidence));
    out_set(c, c->json, "step", json_integer(j->info.step));
    out_set(c, c->json, "wall_s", out_number(j->info.wall_s));
    out_set(c, c->json, "attention_gflop", out_number(j->info.gflop));
    for (int i = 0; i < j->info.notes; i++)
        out_append(c, notes, out_text(tess_compare_note(j->compare, i)));
    out_set(c, c->json, "notes", notes);
    for (int i = 0; i < j->info.arms; i++)
        out_append(c, arms, json_arm(c, &j->arms[i]));
    out_set(c, c->json, "arms", arms);
}

tess_status compare_show(cli *c, const tess_compare *compare)
{
    char text[CELL];
    job j = {.c = c, .compare = compare};
    TRY(tess_compare_query(compare, &j.info));
    j.arms = calloc((size_t)j.info.arms, sizeof *j.arms);
    if (!j.arms)
        return out_fail(c, TESS_ENOMEM, "no memory for %d arms", j.info.arms);
    tess_status status = TESS_OK;
    for (int i = 0; i < j.info.arms && status == TESS_OK; i++) {
        status = tess_compare_arm_view(compare, i, &j.arms[i]);
        const int n = status ? 0 : (int)strlen(label(&j, i, text));
        if (n > j.width)
            j.width = n < LABEL ? n : LABEL;
    }
    if (status == TESS_OK && c->json)
        show_json(&j);
    else if (status == TESS_OK)
        show_text(&j);
    free(j.arms);
    return status;
}
