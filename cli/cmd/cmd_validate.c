/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_validate.c - tessera validate: compares a table of measured runs with the simulator's
 * predictions. */
#include "cmd_overlap.h"
#include "commands.h"
#include "tessera/advanced/validate.h"

#include <math.h>
#include <string.h>

typedef struct {
    common common;
    const char *table, *map, *params, *html;
    int rows, events;
} values;

/* ---- text ------------------------------------------------------------------------------------ */

static void print_score(cli *c, const char *name, const tess_score *s, const tess_score *plain)
{
    if (!s->scored)
        return;
    fprintf(c->out, "%-24s %6d %9.2f %9.2f %9.2f   %9.2f %+9.2f", name, s->scored, s->mean,
            s->median, s->max, plain->mean, s->bias);
    if (s->half_width > 0) /* the parameters have spreads */
        fprintf(c->out, " %9.0f %10.1f", s->coverage, s->half_width);
    fputc('\n', c->out);
}

static tess_status print_cases(cli *c, const tess_validation *v, const tess_validation_info *info)
{
    fprintf(c->out, "%5s  %-28s %-10s %12s %12s %9s %23s  %s\n", "row", "", "what", "measured",
            "predicted", "error", "80 % interval", "");
    for (int i = 0; i < info->cases; i++) {
        tess_validation_case k;
        char label[29];
        TRY(tess_validation_case_query(v, i, &k));
        out_clean(k.label, label, sizeof label);
        fprintf(c->out, "%5d  %-28s %-10s %12.5g %12.5g %+8.2f%% %10.4g ..%10.4g%s %s", k.row,
                label, tess_quantity_name(k.quantity), k.measured, k.predicted, k.error, k.low,
                k.high, k.measured >= k.low && k.measured <= k.high ? " " : "*", k.unit);
        if (k.repeats > 1)
            fprintf(c->out, "; mean of %d", k.repeats);
        fputc('\n', c->out);
    }
    for (int i = 0; i < info->skipped; i++) {
        tess_validation_skip s;
        char reason[320];
        TRY(tess_validation_skip_query(v, i, &s));
        fprintf(c->out, "%5d  skipped: %s\n", s.row,
                out_plain(out_clean(s.reason, reason, sizeof reason)));
    }
    fputc('\n', c->out);
    return TESS_OK;
}

/* Rows of quantity overlap beside communication: the parameters beside simpler predictions. */
static tess_status print_overlap(cli *c, const tess_validation *v)
{
    tess_overlap_score s;
    TRY(tess_validation_overlap(v, TESS_OVERLAP_PREDICTED, &s));
    if (s.rows == 0)
        return TESS_OK;
    overlap_print_head(c, "beside communication");
    for (int m = 0; m < TESS_OVERLAP_MODELS; m++) {
        TRY(tess_validation_overlap(v, (tess_overlap_model)m, &s));
        overlap_print(c, (tess_overlap_model)m, &s);
    }
    return TESS_OK;
}

static tess_status print_scores(cli *c, const tess_validation *v, const tess_validation_info *info)
{
    fprintf(c->out, "%s: %s\n", info->map, info->about);
    fprintf(c->out, "%d rows, %d configurations scored, %d rows skipped\n", info->rows, info->cases,
            info->skipped);
    if (!info->cases)
        return TESS_OK;
    fprintf(c->out, "%-24s %6s %9s %9s %9s   %9s %9s %9s %10s\n", "absolute error, %", "scored",
            "mean", "median", "max", "scalar 1", "bias", "coverage", "half-width");
    for (int q = 0, i = 0; q < TESS_QUANTITIES; q++) {
        tess_score s, plain;
        TRY(tess_validation_score(v, (tess_quantity)q, NULL, &s, &plain));
        print_score(c, tess_quantity_name((tess_quantity)q), &s, &plain);
        for (; i < info->groups; i++) {
            tess_validation_group group;
            char name[64];
            TRY(tess_validation_group_query(v, i, &group));
            if ((int)group.quantity != q)
                break;
            snprintf(name, sizeof name, "  %s", group.name);
            print_score(c, name, &group.score, &group.plain);
        }
    }
    return print_overlap(c, v);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void set_score(cli *c, json_t *object, const tess_score *s, const tess_score *plain)
{
    out_set(c, object, "scored", json_integer(s->scored));
    out_set(c, object, "mean_abs_pct", s->scored ? out_number(s->mean) : json_null());
    out_set(c, object, "median_abs_pct", s->scored ? out_number(s->median) : json_null());
    out_set(c, object, "max_abs_pct", s->scored ? out_number(s->max) : json_null());
    out_set(c, object, "mean_abs_pct_scalar_1", s->scored ? out_number(plain->mean) : json_null());
    out_set(c, object, "bias_pct", s->scored ? out_number(s->bias) : json_null());
    const int known = s->scored && s->half_width > 0; /* 0: the parameters have no spreads */
    out_set(c, object, "coverage_pct", known ? out_number(s->coverage) : json_null());
    out_set(c, object, "half_width_pct", known ? out_number(s->half_width) : json_null());
}

static tess_status set_quantities(cli *c, const tess_validation *v,
                                  const tess_validation_info *info)
{
    json_t *all = json_object();
    for (int q = 0, i = 0; q < TESS_QUANTITIES; q++) {
        tess_score s, plain;
        TRY(tess_validation_score(v, (tess_quantity)q, NULL, &s, &plain));
        if (!s.scored)
            continue;
        json_t *one = json_object(), *groups = json_object();
        set_score(c, one, &s, &plain);
        for (; i < info->groups; i++) {
            tess_validation_group group;
            TRY(tess_validation_group_query(v, i, &group));
            if ((int)group.quantity != q)
                break;
            json_t *part = json_object();
            set_score(c, part, &group.score, &group.plain);
            out_set(c, groups, group.name, part);
        }
        out_set(c, one, "groups", groups);
        out_set(c, all, tess_quantity_name((tess_quantity)q), one);
    }
    out_set(c, c->json, "quantities", all);
    return TESS_OK;
}

static tess_status set_overlap(cli *c, const tess_validation *v)
{
    tess_overlap_score s;
    json_t *all = json_object();
    for (int m = 0; m < TESS_OVERLAP_MODELS; m++) {
        TRY(tess_validation_overlap(v, (tess_overlap_model)m, &s));
        overlap_set(c, all, (tess_overlap_model)m, &s);
    }
    if (s.rows > 0)
        out_set(c, c->json, "overlap", all);
    else
        json_decref(all);
    return TESS_OK;
}

static tess_status set_json(cli *c, const tess_validation *v, const tess_validation_info *info)
{
    out_set(c, c->json, "map", out_text(info->map));
    out_set(c, c->json, "rows", json_integer(info->rows));
    out_set(c, c->json, "quantity", out_text(tess_quantity_name(info->quantity)));
    set_score(c, c->json, &info->score, &info->plain);
    TRY(set_quantities(c, v, info));
    TRY(set_overlap(c, v));
    json_t *cases = json_array(), *skipped = json_array();
    for (int i = 0; i < info->cases; i++) {
        tess_validation_case k;
        json_t *one = json_object();
        TRY(tess_validation_case_query(v, i, &k));
        out_set(c, one, "row", json_integer(k.row));
        out_set(c, one, "repeats", json_integer(k.repeats));
        out_set(c, one, "label", out_text(k.label));
        out_set(c, one, "group", out_text(k.group));
        out_set(c, one, "quantity", out_text(tess_quantity_name(k.quantity)));
        out_set(c, one, "unit", out_text(k.unit));
        out_set(c, one, "measured", out_number(k.measured));
        out_set(c, one, "predicted", out_number(k.predicted));
        out_set(c, one, "predicted_scalar_1", out_number(k.plain));
        out_set(c, one, "error_pct", out_number(k.error));
        out_set(c, one, "low", out_number(k.low));
        out_set(c, one, "high", out_number(k.high));
        out_set(c, one, "inside", json_boolean(k.measured >= k.low && k.measured <= k.high));
        out_set(c, one, "software", out_text(k.software));
        out_set(c, one, "software_measured", json_boolean(k.software_known));
        out_append(c, cases, one);
    }
    for (int i = 0; i < info->skipped; i++) {
        tess_validation_skip s;
        json_t *one = json_object();
        TRY(tess_validation_skip_query(v, i, &s));
        out_set(c, one, "row", json_integer(s.row));
        out_set(c, one, "reason", out_sentence(s.reason));
        out_append(c, skipped, one);
    }
    out_set(c, c->json, "cases", cases);
    out_set(c, c->json, "skipped", skipped);
    return TESS_OK;
}

/* ---- command --------------------------------------------------------------------------------- */

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    tess_sim_params *params = NULL;
    tess_validation *validation = NULL;
    tess_validation_info info;
    tess_status status = TESS_OK;
    if (v->params)
        status = tess_sim_params_load(c->ctx, v->params, &params);
    if (status == TESS_OK)
        status = tess_validation_run(
            c->ctx, v->table,
            &(tess_validation_opts){.map = v->map, .params = params, .events = v->events},
            &validation);
    if (status == TESS_OK)
        status = tess_validation_query(validation, &info);
    if (status == TESS_OK && c->json)
        status = set_json(c, validation, &info);
    else if (status == TESS_OK && v->rows)
        status = print_cases(c, validation, &info);
    if (status == TESS_OK && !c->json)
        status = print_scores(c, validation, &info);
    if (status == TESS_OK && v->html && info.cases > 0)
        status = validate_page(c, validation, &info, v->table, v->html);
    if (status == TESS_OK && info.cases == 0)
        c->code = EXIT_MISMATCH; /* a table of which nothing could be scored validates nothing */
    tess_validation_destroy(validation);
    tess_sim_params_destroy(params);
    return out_input(c, status);
}

static const opt arguments[] = {
    {"TABLE.csv", 0, OPT_PATH, offsetof(values, table), .required = 1,
     .help = "measured steps, layers, memory, collectives, or kernels beside communication"},
};

static const opt options[] = {
    {"map", 0, OPT_PATH, offsetof(values, map), "MAP.json",
     .help = "what the columns mean; the shipped map that knows them unless given"},
    {"params", 0, OPT_PATH, offsetof(values, params), "FILE.json",
     .help = "parameters of the simulator; the shipped ones unless given"},
    {"events", 0, OPT_FLAG, offsetof(values, events),
     .help = "steps event by event, as `tessera simulate --timeline` counts them"},
    {"html", 0, OPT_PATH, offsetof(values, html), "OUT.html",
     .help = "a page: predicted against measured, quantity by quantity"},
    {"rows", 0, OPT_FLAG, offsetof(values, rows), .initial = "1",
     .help = "do not print every row, the scores alone"},
};

static const example examples[] = {
    {"tessera validate runs.csv", "a published table, or one with the canonical columns"},
    {"tessera validate runs.csv --map mine.json --no-rows", "a table of your own, scores alone"},
};

const command command_validate = {
    .name = "validate",
    .summary = "compare measured runs with what the simulator predicts",
    .description =
        "Every row of the table becomes a scenario, or a collective, and is predicted from its "
        "settings alone. Errors are |predicted / measured - 1|. Configurations that are there "
        "several times are scored once, against the mean of their measurements; rows that cannot "
        "be expressed are named with the reason.\n"
        "\"scalar 1\" is the mean error without the one scalar that a (system, software era) may "
        "have. docs/scenarios.md lists the canonical columns and explains maps; "
        "docs/accuracy.md has the results on published tables.\n"
        "Every prediction has an interval that should hold 80 % of what is measured; \"coverage\" "
        "is "
        "the share that it holds, \"half-width\" the median of half of its width in % of the "
        "prediction; a row with * lies outside.\n"
        "With --json the result has the members rows, scored, mean_abs_pct, median_abs_pct, "
        "max_abs_pct, bias_pct, coverage_pct and half_width_pct of the table's first quantity, "
        "quantities with all of them, cases, and "
        "skipped: [{row, reason}]. Rows are counted from 1, without the header.\n"
        "Exit code 3: no row could be scored.\n"
        "Of kernels that were measured alone and beside communication the ratio of the two times "
        "is scored, and for the rows beside communication the error of the total, the root of the "
        "mean square of the logarithm of predicted over measured, and the mean error in us, beside "
        "those of no slowdown and of the mean ratio of the class (--json: overlap, with rows, "
        "total_pct, log_rmse and mean_us of each).\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
