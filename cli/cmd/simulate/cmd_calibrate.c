/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_calibrate.c - tessera calibrate: parameters of the simulator fitted to measured runs. */
#include "calibrate_log.h"
#include "choices.h"
#include "cmd/cmd_overlap.h"
#include "commands.h"
#include "tessera/advanced/sim_detail.h"
#include "tessera/advanced/validate.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64 };

typedef struct {
    common common;
    strings tables;
    const char *from, *names, *quantity, *out;
    int leave;
    strings logs, set; /* of runs, instead of tables */
    const char *software, *system, *scenario;
    int64_t warmup;
} values;

static const char *quantities[TESS_QUANTITIES + 1]; /* bind fills them */

/* ---- overlap --------------------------------------------------------------------------------- */

static tess_status print_overlap(cli *c, const tess_calibration *k)
{
    static const char *const heads[] = {"fitted", "kernel left out"};
    for (int left = 0; left < 2; left++)
        for (int m = 0; m < TESS_OVERLAP_MODELS; m++) {
            tess_overlap_score s;
            TRY(tess_calibration_overlap(k, left, (tess_overlap_model)m, &s));
            if (s.rows > 0 && m == 0)
                overlap_print_head(c, heads[left]);
            if (s.rows > 0)
                overlap_print(c, (tess_overlap_model)m, &s);
        }
    return TESS_OK;
}

static tess_status set_overlap(cli *c, const tess_calibration *k)
{
    static const char *const members[] = {"overlap", "left_out_overlap"};
    for (int left = 0; left < 2; left++) {
        json_t *all = json_object();
        for (int m = 0; m < TESS_OVERLAP_MODELS; m++) {
            tess_overlap_score s;
            TRY(tess_calibration_overlap(k, left, (tess_overlap_model)m, &s));
            if (s.rows > 0)
                overlap_set(c, all, (tess_overlap_model)m, &s);
        }
        if (json_object_size(all) > 0)
            out_set(c, c->json, members[left], all);
        else
            json_decref(all);
    }
    return TESS_OK;
}

/* ---- result ---------------------------------------------------------------------------------- */

static tess_status print(cli *c, const tess_calibration *k, const tess_calibration_info *info)
{
    fprintf(c->out, "%d configurations, %d parameters\n", info->cases, info->parameters);
    fprintf(c->out, "mean absolute error: %.3f %% before, %.3f %% after\n", info->before,
            info->after);
    if (info->models)
        fprintf(c->out, "fitted without the model or kernel it predicts (%d of them): %.3f %%\n",
                info->models, info->left_out);
    TRY(print_overlap(c, k));
    for (int i = 0; i < info->parameters; i++) {
        tess_sim_param p;
        double before;
        TRY(tess_calibration_value(k, i, &p, &before));
        fprintf(c->out, "  %-10s %-28s %-18s %12.6g -> %.6g%s%s\n", p.group, p.owner, p.name,
                before, p.value, strcmp(p.group, "overlap") == 0 ? "; " : "",
                strcmp(p.group, "overlap") == 0 ? p.origin : "");
    }
    return TESS_OK;
}

static tess_status set_json(cli *c, const tess_calibration *k, const tess_calibration_info *info)
{
    json_t *list = json_array();
    out_set(c, c->json, "scored", json_integer(info->cases));
    out_set(c, c->json, "before_mean_abs_pct", out_number(info->before));
    out_set(c, c->json, "after_mean_abs_pct", out_number(info->after));
    out_set(c, c->json, "left_out_mean_abs_pct",
            info->models ? out_number(info->left_out) : json_null());
    TRY(set_overlap(c, k));
    for (int i = 0; i < info->parameters; i++) {
        tess_sim_param p;
        double before;
        json_t *one = json_object();
        TRY(tess_calibration_value(k, i, &p, &before));
        out_set(c, one, "group", out_text(p.group));
        out_set(c, one, "owner", out_text(p.owner));
        out_set(c, one, "name", out_text(p.name));
        out_set(c, one, "before", out_number(before));
        out_set(c, one, "after", out_number(p.value));
        out_append(c, list, one);
    }
    out_set(c, c->json, "parameters", list);
    return TESS_OK;
}

/* ---- command --------------------------------------------------------------------------------- */

/* "a,b,c" in place. */
static int split(char *text, const char **names)
{
    int n = 0;
    for (char *at = text; at && n < NAMES_MAX; n++) {
        names[n] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = '\0';
    }
    return n;
}

static tess_status run_with(cli *c, const values *v, char *text)
{
    const char *names[NAMES_MAX];
    tess_calibration *k = NULL;
    tess_calibration_info info;
    const int quantity = choices_find(quantities, v->quantity);
    tess_status status =
        tess_calibration_run(c->ctx,
                             &(tess_calibration_opts){.tables = v->tables.items,
                                                      .n_tables = v->tables.n,
                                                      .names = names,
                                                      .n_names = text ? split(text, names) : 0,
                                                      .quantity = (tess_quantity)quantity,
                                                      .params = v->from,
                                                      .leave_one_out = v->leave},
                             &k);
    if (status == TESS_OK)
        status = tess_calibration_query(k, &info);
    if (status == TESS_OK && v->out)
        status = tess_calibration_write(k, v->out);
    if (status == TESS_OK)
        status = c->json ? set_json(c, k, &info) : print(c, k, &info);
    tess_calibration_destroy(k);
    return status;
}

/* Logs take the place of tables, and have options of their own. */
static tess_status check_usage(cli *c, const values *v)
{
    if (v->logs.n == 0 && (v->software || v->system || v->scenario || v->set.n))
        return out_usage(c, "--%s is given, but no --log",
                         v->software   ? "software"
                         : v->system   ? "system"
                         : v->scenario ? "scenario"
                                       : "set");
    if (v->logs.n == 0)
        return v->tables.n ? TESS_OK : out_usage(c, "TABLE.csv is missing, or --log FILE");
    if (v->tables.n || v->names || v->leave)
        return out_usage(c, "--log takes no table, no --params and no --leave-one-out");
    return v->software ? TESS_OK
                       : out_usage(c, "--software is missing, which --log needs; see tessera "
                                      "simulate --list software");
}

static tess_status run_logs(cli *c, const values *v)
{
    return calibrate_log(c, &(calibrate_log_values){.logs = v->logs,
                                                    .set = v->set,
                                                    .software = v->software,
                                                    .system = v->system,
                                                    .scenario = v->scenario,
                                                    .from = v->from,
                                                    .out = v->out,
                                                    .warmup = v->warmup});
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    TRY(check_usage(c, v));
    if (v->logs.n)
        return out_input(c, run_logs(c, v));
    const int overlap = strcmp(v->quantity, "overlap") == 0;
    if (!v->names && !overlap)
        return out_usage(
            c, "--params is missing, must name parameters to fit, such as h100.gemm_share");
    if (v->names && overlap)
        return out_usage(c, "--params is given, but of --quantity overlap all are fitted");
    char *text = overlap ? NULL : strdup(v->names);
    if (!text && !overlap)
        return out_fail(c, TESS_ENOMEM, "no memory for the names");
    const tess_status status = run_with(c, v, text);
    free(text);
    return out_input(c, status);
}

static const opt arguments[] = {
    {"TABLE.csv", 0, OPT_PATHS, offsetof(values, tables),
     .help = "measured runs, as validate takes them"},
};

static const opt options[] = {
    {"params", 0, OPT_STRING, offsetof(values, names), "NAMES",
     .help = "parameters with commas between them: h100.gemm_share, nemo-2024.tp_exposed, "
             "\"scalar.SYSTEM ERA\""},
    {"from", 0, OPT_PATH, offsetof(values, from), "FILE.json",
     .help = "parameters to start from; the shipped ones unless given"},
    {"quantity", 0, OPT_CHOICE, offsetof(values, quantity), "NAME", .initial = "step",
     .choices = quantities, .help = "what is fitted"},
    {"leave-one-out", 0, OPT_FLAG, offsetof(values, leave),
     .help = "also fit once without each model (of overlap: kernel), and predict that one"},
    {"log", 0, OPT_PATHS, offsetof(values, logs), "FILE",
     .help =
         "instead of a table: the log of a run of torchtitan, Megatron-LM or NeMo; may be given "
         "several times"},
    {"software", 0, OPT_STRING, offsetof(values, software), "NAME",
     .help = "with --log: software of the parameters that the run used"},
    {"system", 0, OPT_STRING, offsetof(values, system), "NAME",
     .help = "with --log: whose scalar is fitted; default: the cluster's name"},
    {"scenario", 0, OPT_PATH, offsetof(values, scenario), "FILE",
     .help = "with --log: the scenario or job file of the run, where the log prints no layout"},
    {"set", 0, OPT_STRINGS, offsetof(values, set), "KEY=VALUE",
     .help = "with --log: change a setting of the scenario: system.cluster=h200"},
    {"warmup", 0, OPT_INT, offsetof(values, warmup), "N", "10", .max = 1e9, .unit = "steps",
     .help = "with --log: steps at the beginning of the log that do not count"},
    {"out", 'o', OPT_PATH, offsetof(values, out), "FILE.json",
     .help = "write the parameters with the fitted values"},
};

static void bind(void)
{
    for (int i = 0; i < TESS_QUANTITIES; i++)
        quantities[i] = tess_quantity_name((tess_quantity)i);
}

static const example examples[] = {
    {"tessera calibrate runs.csv --params h100.gemm_share,nemo-2024.tp_exposed --leave-one-out",
     "fit two parameters, and check whether they carry over"},
    {"tessera calibrate --software megatron-core-2024 --log train.log -o mine.json",
     "one scalar from the log of a run"},
    {"tessera calibrate kernels.csv --quantity overlap --leave-one-out -o mine.json",
     "the slowdown of kernels beside communication"},
};

const command command_calibrate = {
    .name = "calibrate",
    .summary = "fit parameters of the simulator to measured runs",
    .description =
        "Moves the listed parameters, one after the other, until the mean absolute error of the "
        "tables' rows falls no further, within the limits of each parameter. The same rows give "
        "the same values.\n"
        "With --leave-one-out every model is also predicted by parameters that were fitted without "
        "it: the error to expect for a model that was not measured.\n"
        "With --log the medians of a run's log are compared with the scenario that the log prints "
        "(Megatron-LM's arguments, torchtitan's mesh and batch) or that --scenario gives, and the "
        "one scalar of (system, software) that fits the steps is found; simulate uses it with "
        "--params FILE and system.system. With --json: scalar, before_mean_abs_pct, "
        "after_mean_abs_pct, and of each of logs framework, lines, used, step_ms, predicted_ms, "
        "tokens_per_s_per_gpu, tflops_per_gpu, allocated_gib and reserved_gib.\n"
        "With --quantity overlap the slowdown beside communication of each kernel, each class of "
        "kernels, and one constant follow from the totals of their rows: no --params. What "
        "--leave-one-out then leaves out is a kernel name.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .bind = bind,
    .run = run,
};
