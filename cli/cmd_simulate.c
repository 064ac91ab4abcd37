/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_simulate.c - tessera simulate: what a step of a training job costs, and why. */
#include "commands.h"
#include "simulate.h"
#include "tessera/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1073741824.0;

typedef struct {
    common common;
    const char *scenario, *params, *measured, *density, *method;
    strings set;
    double price, steps;
    int explain;
    const char *trace, *cluster; /* of a traced rank, instead of a scenario */
    double compute_scale;
    int64_t per_node;
} values;

typedef struct {
    cli *c;
    const values *given;
    tess_scenario s; /* with every default */
    tess_sim_params *params;
    tess_cluster *cluster;
    tess_sim *sim;
    tess_sim_measured *measured;
    tess_sim_result r;
} job;

/* ---- input ------------------------------------------------------------------------------------
 */

static tess_status apply_settings(job *j)
{
    for (int i = 0; i < j->given->set.n; i++) {
        const char *text = j->given->set.items[i], *equal = strchr(text, '=');
        char key[64];
        if (!equal || equal == text || (size_t)(equal - text) >= sizeof key)
            return out_usage(j->c, "--set is \"%.80s\", must be KEY=VALUE", text);
        snprintf(key, sizeof key, "%.*s", (int)(equal - text), text);
        TRY(tess_scenario_set(j->c->ctx, &j->s, key, equal + 1));
    }
    return TESS_OK;
}

/* tess_plan_method, in its order. */
static const char *const methods[] = {"auto",  "contiguous", "snake",      "lpt",
                                      "db-sp", "refined",    "fractional", NULL};

/* The scenario's sparse attention from a density profile. */
static tess_status apply_profile(job *j)
{
    tess_profile *profile = NULL;
    int method = 0;
    if (!j->given->density)
        return TESS_OK;
    while (strcmp(methods[method], j->given->method) != 0)
        method++;
    TRY(tess_profile_open(j->c->ctx, j->given->density, NULL, &profile));
    const tess_status status =
        tess_scenario_plan(j->c->ctx, j->cluster, profile, -1, (tess_plan_method)method, &j->s);
    tess_profile_close(profile);
    return status == TESS_OK ? tess_scenario_fill(&j->s, &j->s) : status;
}

static tess_status simulate(job *j)
{
    cli *c = j->c;
    TRY(tess_scenario_load(c->ctx, j->given->scenario, &j->s));
    TRY(apply_settings(j));
    TRY(tess_scenario_fill(&j->s, &j->s));
    if (!j->s.system.cluster[0])
        return out_usage(c, "the scenario names no cluster; use --set system.cluster=NAME");
    TRY(tess_cluster_load(c->ctx, j->s.system.cluster, &j->cluster));
    TRY(apply_profile(j));
    TRY(tess_sim_params_load(c->ctx, j->given->params, &j->params));
    TRY(tess_sim_create(c->ctx, j->params, &j->sim));
    if (j->given->measured) {
        TRY(tess_sim_measured_load(c->ctx, j->given->measured, NULL, &j->measured));
        TRY(tess_sim_use_measured(j->sim, j->measured));
    }
    return tess_sim_run(j->sim, j->cluster, &j->s, &j->r);
}

/* ---- what the step is made of -----------------------------------------------------------------
 */

typedef struct {
    const char *name, *what;
    double seconds;
} part;

enum { PARTS = 10 };

static void parts_of(const tess_sim_result *r, part parts[PARTS])
{
    const part all[PARTS] = {
        {"compute", "operations of the slowest stage", r->compute_s},
        {"tensor_parallel", "communication that is waited for", r->tp_s},
        {"context_parallel", "the same", r->cp_s},
        {"expert_parallel", "the same", r->ep_s},
        {"pipeline", "the same", r->pp_s},
        {"data_parallel", "the same", r->dp_s},
        {"bubble", "the pipeline's idle time", r->bubble_s},
        {"optimiser", "", r->optimiser_s},
        {"host", "by which the host is slower than the GPU", r->host_s},
        {"other", "the scalar of (system, era), stragglers", r->other_s},
    };
    memcpy(parts, all, sizeof all);
}

typedef struct {
    const char *name;
    double bytes;
} room;

enum { ROOMS = 7 };

static void rooms_of(const tess_sim_memory *m, room rooms[ROOMS])
{
    const room all[ROOMS] = {{"weights", m->weights},     {"gradients", m->gradients},
                             {"optimiser", m->optimiser}, {"activations", m->activations},
                             {"working", m->working},     {"buffers", m->buffers},
                             {"reserved", m->reserved}};
    memcpy(rooms, all, sizeof all);
}

/* ---- text -------------------------------------------------------------------------------------
 */

static void print_step(const job *j)
{
    const tess_sim_result *r = &j->r;
    FILE *f = j->c->out;
    part parts[PARTS];
    parts_of(r, parts);
    fprintf(f, "step            %12.1f ms\n", 1e3 * r->step_s);
    for (int i = 0; i < PARTS; i++)
        if (parts[i].seconds != 0)
            fprintf(f, "  %-17s %10.1f  %5.1f %%%s%s\n", parts[i].name, 1e3 * parts[i].seconds,
                    100 * parts[i].seconds / r->step_s, *parts[i].what ? "  " : "", parts[i].what);
    fprintf(f, "throughput      %12.0f tokens/s, %.0f of each GPU\n", r->tokens_per_s,
            r->tokens_per_s / j->s.layout.gpus);
    fprintf(f,
            "utilisation     %12.1f %% MFU, %.1f %% HFU: products, and attention over all pairs\n",
            100 * r->mfu, 100 * r->hfu);
    if (r->mfu_causal != r->mfu)
        fprintf(f, "                %12.1f %% MFU with the pairs that are not masked\n",
                100 * r->mfu_causal);
    fprintf(f, "cost            %12.4g GPU-hours of a step\n", r->gpu_hours);
    if (!isnan(j->given->price))
        fprintf(f, "                %12.4g of money at %g for a GPU-hour\n",
                r->gpu_hours * j->given->price, j->given->price);
    if (!isnan(j->given->steps)) {
        fprintf(f, "run             %12.4g hours, %.6g GPU-hours",
                j->given->steps * r->step_s / 3600, j->given->steps * r->gpu_hours);
        if (!isnan(j->given->price))
            fprintf(f, ", %.6g of money", j->given->steps * r->gpu_hours * j->given->price);
        fputc('\n', f);
    }
}

static void print_memory(const job *j)
{
    const tess_sim_memory *m = &j->r.memory;
    FILE *f = j->c->out;
    room rooms[ROOMS];
    rooms_of(m, rooms);
    fprintf(f, "memory          %12.1f GiB of %.0f, stage %d\n", m->peak / GIB, m->capacity / GIB,
            m->stage);
    for (int i = 0; i < ROOMS; i++)
        if (rooms[i].bytes > 0)
            fprintf(f, "  %-17s %10.1f\n", rooms[i].name, rooms[i].bytes / GIB);
    if (m->fits)
        fprintf(f, "fits\n");
    else
        fprintf(f, "%sdoes not fit: %.0f of %.0f GB, largest part: %s%s\n",
                out_style(j->c, STYLE_BAD), m->peak / GIB, m->capacity / GIB, m->largest,
                out_style(j->c, STYLE_PLAIN));
}

static void print_scenario(const job *j)
{
    const tess_scenario *s = &j->s;
    fprintf(j->c->out,
            "%s: %.4g parameters; %d GPUs of %s: tp %d, pp %d, cp %d, ep %d, dp %d; "
            "%lld micro-batches of %d\n",
            j->given->scenario, j->r.parameters, s->layout.gpus, s->system.cluster, s->layout.tp,
            s->layout.pp, s->layout.cp, s->layout.ep, s->layout.dp, (long long)j->r.micro_batches,
            s->training.micro_batch);
}

/* ---- reasons ----------------------------------------------------------------------------------
 */

/* Operations of one part, the dearest first; *used marks the parameters that they name. */
static tess_status print_ops(const job *j, char *used)
{
    FILE *f = j->c->out;
    const int n = tess_sim_ops(j->sim);
    fprintf(f, "\n%-13s %-9s %-22s %10s %8s %10s  %s\n", "part", "pass", "operation", "us", "times",
            "ms a step", "formula");
    for (int i = 0; i < n; i++) {
        tess_sim_op op;
        TRY(tess_sim_op_query(j->sim, i, &op));
        fprintf(f, "%-13s %-9s %-22s %10.2f %8.6g %10.3f  %s", op.part, op.pass, op.name,
                1e6 * op.seconds, op.times, 1e3 * op.seconds * op.times, op.formula);
        if (op.m > 0 && strcmp(op.kind, "comm") != 0)
            fprintf(f, " [%g x %g x %g x %g]", op.batch, op.m, op.n, op.k);
        else if (op.bytes > 0)
            fprintf(f, " [%.4g MB]", 1e-6 * op.bytes);
        if (op.hidden_s > 0)
            fprintf(f, ", %.2f us hidden", 1e6 * op.hidden_s);
        if (op.measured)
            fputs(", measured", f);
        fputc('\n', f);
        for (int k = 0; k < 4; k++)
            if (op.params[k] >= 0)
                used[op.params[k]] = 1;
    }
    return TESS_OK;
}

static tess_status print_reasons(const job *j)
{
    const int n = tess_sim_params_count(j->params);
    char *used = calloc((size_t)n + 1, 1);
    if (!used)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d parameters", n);
    tess_status status = print_ops(j, used);
    fprintf(j->c->out, "\n%-28s %-18s %10s  %s\n", "parameter of", "name", "value", "origin");
    for (int i = 0; status == TESS_OK && i < n; i++) {
        tess_sim_param p;
        if (!used[i])
            continue;
        status = tess_sim_params_query(j->params, i, &p);
        if (status == TESS_OK)
            fprintf(j->c->out, "%-28s %-18s %10.5g  %s\n", p.owner, p.name, p.value,
                    p.origin ? p.origin : "default");
    }
    free(used);
    return status;
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static tess_status set_ops(const job *j)
{
    json_t *list = json_array();
    for (int i = 0; i < tess_sim_ops(j->sim); i++) {
        tess_sim_op op;
        json_t *one = json_object(), *params = json_array();
        TRY(tess_sim_op_query(j->sim, i, &op));
        out_set(j->c, one, "part", out_text(op.part));
        out_set(j->c, one, "pass", out_text(op.pass));
        out_set(j->c, one, "name", out_text(op.name));
        out_set(j->c, one, "kind", out_text(op.kind));
        out_set(j->c, one, "formula", out_text(op.formula));
        out_set(j->c, one, "us", out_number(1e6 * op.seconds));
        out_set(j->c, one, "times", out_number(op.times));
        out_set(j->c, one, "flop", out_number(op.flop));
        out_set(j->c, one, "bytes", out_number(op.bytes));
        for (int k = 0; k < 4; k++) {
            tess_sim_param p;
            if (op.params[k] < 0)
                continue;
            json_t *param = json_object();
            TRY(tess_sim_params_query(j->params, op.params[k], &p));
            out_set(j->c, param, "owner", out_text(p.owner));
            out_set(j->c, param, "name", out_text(p.name));
            out_set(j->c, param, "value", out_number(p.value));
            out_set(j->c, param, "origin", out_text(p.origin ? p.origin : "default"));
            out_append(j->c, params, param);
        }
        out_set(j->c, one, "parameters", params);
        out_append(j->c, list, one);
    }
    out_set(j->c, j->c->json, "operations", list);
    return TESS_OK;
}

static json_t *scenario_json(const job *j)
{
    json_t *all = json_object();
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting s;
        char key[64];
        if (tess_scenario_get(&j->s, i, &s) != TESS_OK || !s.given)
            continue;
        snprintf(key, sizeof key, "%s.%s", s.group, s.name);
        out_set(j->c, all, key, out_text(s.value));
    }
    return all;
}

static void set_json(const job *j)
{
    cli *c = j->c;
    const tess_sim_result *r = &j->r;
    part parts[PARTS];
    room rooms[ROOMS];
    json_t *breakdown = json_object(), *memory = json_object();
    parts_of(r, parts);
    rooms_of(&r->memory, rooms);
    for (int i = 0; i < PARTS; i++)
        out_set(c, breakdown, parts[i].name, out_number(1e3 * parts[i].seconds));
    for (int i = 0; i < ROOMS; i++)
        out_set(c, memory, rooms[i].name, out_number(rooms[i].bytes / GIB));
    out_set(c, c->json, "scenario", scenario_json(j));
    out_set(c, c->json, "step_ms", out_number(1e3 * r->step_s));
    out_set(c, c->json, "tokens_per_s", out_number(r->tokens_per_s));
    out_set(c, c->json, "mfu", out_number(r->mfu));
    out_set(c, c->json, "hfu", out_number(r->hfu));
    out_set(c, c->json, "mfu_causal", out_number(r->mfu_causal));
    out_set(c, c->json, "parameters", out_number(r->parameters));
    out_set(c, c->json, "gpu_hours", out_number(r->gpu_hours));
    out_set(c, c->json, "price",
            isnan(j->given->price) ? json_null() : out_number(r->gpu_hours * j->given->price));
    out_set(c, c->json, "memory_gib", out_number(r->memory.peak / GIB));
    out_set(c, c->json, "capacity_gib", out_number(r->memory.capacity / GIB));
    out_set(c, c->json, "fits", json_boolean(r->memory.fits));
    out_set(c, c->json, "largest", out_text(r->memory.largest ? r->memory.largest : ""));
    out_set(c, c->json, "memory_parts_gib", memory);
    out_set(c, c->json, "breakdown", breakdown);
}

/* ---- command ----------------------------------------------------------------------------------
 */

static tess_status report(const job *j)
{
    if (j->c->json) {
        set_json(j);
        return j->given->explain ? set_ops(j) : TESS_OK;
    }
    print_scenario(j);
    print_step(j);
    print_memory(j);
    return j->given->explain ? print_reasons(j) : TESS_OK;
}

/* A traced rank or a scenario, and what belongs to it. */
static tess_status check_usage(cli *c, const values *v)
{
    if (!v->trace && !v->scenario)
        return out_usage(c, "SCENARIO is missing");
    if (!v->trace && (v->cluster || !isnan(v->compute_scale) || v->per_node))
        return out_usage(c, "--%s is given, but no --trace",
                         v->cluster                 ? "cluster"
                         : !isnan(v->compute_scale) ? "compute-scale"
                                                    : "per-node");
    if (!v->trace)
        return TESS_OK;
    if (v->scenario || v->set.n || v->density || v->params || v->measured || v->explain)
        return out_usage(c, "--trace takes no scenario and none of its options");
    return v->cluster ? TESS_OK : out_usage(c, "--cluster is missing, --trace needs one");
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    job j = {.c = c, .given = given};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK && v->trace)
        status = simulate_trace(c, v->trace, v->cluster, v->compute_scale, v->per_node);
    else if (status == TESS_OK)
        status = simulate(&j);
    if (status == TESS_OK && !v->trace)
        status = report(&j);
    if ((status == TESS_EINVAL || status == TESS_EFORMAT) && !c->code)
        c->code = EXIT_USAGE;
    tess_sim_destroy(j.sim);
    tess_sim_measured_destroy(j.measured);
    tess_sim_params_destroy(j.params);
    tess_cluster_destroy(j.cluster);
    return status;
}

static const opt arguments[] = {
    {"SCENARIO", 0, OPT_PATH, offsetof(values, scenario),
     .help = "a JSON file, or the name of a shipped scenario: deepseek-v3, gpt-175b-96, "
             "gpt-175b-8192, llama3-405b, wan2.1-14b-dsv-128"},
};

static const opt options[] = {
    {"set", 0, OPT_STRINGS, offsetof(values, set), "KEY=VALUE",
     .help = "change a setting: layout.tp=4, model.name=llama3-8b, system.cluster=h200"},
    {"price", 0, OPT_DOUBLE, offsetof(values, price), "MONEY", .min = 0, .max = 1e9,
     .help = "of one GPU for an hour"},
    {"steps", 0, OPT_DOUBLE, offsetof(values, steps), "N", .min = 1, .max = 1e12,
     .help = "also the time and cost of that many steps"},
    {"density", 0, OPT_PATH, offsetof(values, density), "PROFILE.csv",
     .help = "sparse attention of a density profile (step, layer, head, density), mean over its "
             "steps, dealt out to the context-parallel ranks"},
    {"method", 0, OPT_CHOICE, offsetof(values, method), "NAME", .initial = "auto",
     .choices = methods,
     .help = "how heads are dealt out: contiguous as Ulysses does, lpt as DSV, db-sp as db-SP"},
    {"explain", 0, OPT_FLAG, offsetof(values, explain),
     .help = "print the operations that the step is made of, their formulas, and the parameters "
             "with their origin"},
    {"params", 0, OPT_PATH, offsetof(values, params), "FILE.json",
     .help = "parameters of the simulator; the shipped ones unless given"},
    {"measured", 0, OPT_PATH, offsetof(values, measured), "TABLE.csv",
     .help = "products that were measured: they come before the formulas"},
    {"trace", 0, OPT_PATH, offsetof(values, trace), "FILE.json",
     .help = "instead of a scenario: a rank that was played alone, its computing as recorded"},
    {"cluster", 0, OPT_PATH, offsetof(values, cluster), "NAME",
     .help = "with --trace: where its messages travel; a shipped name or a JSON file"},
    {"compute-scale", 0, OPT_DOUBLE, offsetof(values, compute_scale), "X", .min = 1e-9, .max = 1e9,
     .help = "with --trace: time of computing there over the recorded one; default: 1"},
    {"per-node", 0, OPT_INT, offsetof(values, per_node), "N", .max = 1048576,
     .help = "with --trace: ranks of a node; default: the cluster's"},
};

static const example examples[] = {
    {"tessera simulate gpt-175b-96", "a shipped scenario: time, memory, utilisation"},
    {"tessera simulate gpt-175b-96 --set layout.pp=6 --set layout.gpus=48 --price 2.5",
     "half of the GPUs, and what it costs"},
    {"tessera simulate wan2.1-14b-dsv-128 --density profile.csv --method db-sp",
     "a video model with sparse attention as a profile has it"},
    {"tessera simulate mine.json --explain", "every operation, and where its numbers come from"},
    {"tessera simulate --trace rank0.json --cluster h100 --compute-scale 0.004",
     "the step of a rank that was traced here, on another machine"},
};

const command command_simulate = {
    .name = "simulate",
    .summary = "predict time, memory and cost of a training step",
    .description =
        "A scenario is a model, its layout over GPUs, how it is trained, and the machine; "
        "docs/formats.md lists the settings and docs/simulator.md tells the model behind the "
        "numbers. docs/accuracy.md says how far published runs are from what is predicted here.\n"
        "MFU counts the products of forward and backward pass once, with attention over all pairs, "
        "over the dense bf16 peak; HFU also what is computed again.\n"
        "With --json the result has the members step_ms, tokens_per_s, memory_gib, fits, breakdown "
        "in ms, memory_parts_gib, and with --explain operations.\n"
        "With --trace the step is that of one rank, as `tessera train --trace-out` wrote it: what "
        "it computed takes as long as recorded, times --compute-scale, and what it sent takes what "
        "the cluster's links take. With --json the result has step_ms, compute_ms, wait_ms, "
        "hidden_ms and, for each kind of call, calls, bytes, message_ms and wait_ms.\n",
    .arguments = arguments,
    .n_arguments = sizeof arguments / sizeof *arguments,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .examples = examples,
    .n_examples = sizeof examples / sizeof *examples,
    .size = sizeof(values),
    .run = run,
};
