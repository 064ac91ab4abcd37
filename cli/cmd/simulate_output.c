/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_output.c - the step of a scenario as text, with its reasons, and as JSON. */
#include "cmd_simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the step is made of ---------------------------------------------------------------- */

int simulate_parts(const tess_sim_result *r, simulate_part *parts)
{
    const simulate_part all[SIMULATE_CLIP_PARTS] = {
        {"compute", "operations of the slowest stage", r->compute_s},
        {"tensor_parallel", "communication that is waited for", r->tp_s},
        {"context_parallel", "the same", r->cp_s},
        {"expert_parallel", "the same", r->ep_s},
        {"pipeline", "the same", r->pp_s},
        {"data_parallel", "the same", r->dp_s},
        {"bubble", "the pipeline's idle time", r->bubble_s},
        {"optimiser", "", r->optimiser_s},
        {"host", "by which the host is slower than the GPU", r->host_s},
        {"other", "scalar of (system, era), stragglers, software never measured", r->other_s},
        {"decode", "autoencoder; the other ranks wait", r->decode_s},
        {"encode", "the text encoder", r->encode_s},
    };
    const int n = r->clips ? SIMULATE_CLIP_PARTS : SIMULATE_PARTS;
    memcpy(parts, all, (size_t)n * sizeof *parts);
    return n;
}

void simulate_rooms(const tess_sim_memory *m, simulate_room rooms[SIMULATE_ROOMS])
{
    const simulate_room all[SIMULATE_ROOMS] = {
        {"weights", m->weights},         {"gradients", m->gradients}, {"optimiser", m->optimiser},
        {"activations", m->activations}, {"working", m->working},     {"buffers", m->buffers},
        {"reserved", m->reserved}};
    memcpy(rooms, all, sizeof all);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_step(const simulate_job *j)
{
    const tess_sim_result *r = &j->r;
    FILE *f = j->c->out;
    simulate_part parts[SIMULATE_CLIP_PARTS];
    const int n = simulate_parts(r, parts);
    const double unit = r->clips ? 1 : 1e3;
    fprintf(f, "%-15s %12.1f %s", r->clips ? "clip" : "step", unit * r->step_s,
            r->clips ? "s" : "ms");
    if (j->interval.known)
        fprintf(f, ", %.1f to %.1f in %d %% of runs", unit * j->interval.step_low_s,
                unit * j->interval.step_high_s, TESS_INTERVAL_PCT);
    fputc('\n', f);
    for (int i = 0; i < n; i++)
        if (parts[i].seconds != 0)
            fprintf(f, "  %-17s %10.1f  %5.1f %%%s%s\n", parts[i].name, unit * parts[i].seconds,
                    100 * parts[i].seconds / r->step_s, *parts[i].what ? "  " : "", parts[i].what);
    if (r->clips) {
        simulate_sample_print(j);
        return;
    }
    fprintf(f, "throughput      %12.0f tokens/s, %.0f of each GPU\n", r->tokens_per_s,
            r->tokens_per_s / r->scenario.layout.gpus);
    fprintf(f, "utilisation     %12.1f %% MFU, %.1f %% HFU: over all pairs of attention\n",
            100 * r->mfu, 100 * r->hfu);
    if (r->mfu_causal != r->mfu)
        fprintf(f, "                %12.1f %% MFU with the pairs that are not masked\n",
                100 * r->mfu_causal);
    fprintf(f, "GPU-hours       %12.4g per step\n", r->gpu_hours);
    if (!isnan(j->given->price))
        fprintf(f, "cost            %12.4g per step (at %g per GPU-hour)\n",
                r->gpu_hours * j->given->price, j->given->price);
    simulate_goodput_print(j);
    simulate_run_print(j);
}

static void print_memory(const simulate_job *j)
{
    const tess_sim_memory *m = &j->r.memory;
    FILE *f = j->c->out;
    simulate_room rooms[SIMULATE_ROOMS];
    simulate_rooms(m, rooms);
    fprintf(f, "memory          %12.1f GiB of %.0f, stage %d\n", m->peak / SIMULATE_GIB,
            m->capacity / SIMULATE_GIB, m->stage);
    for (int i = 0; i < SIMULATE_ROOMS; i++)
        if (rooms[i].bytes > 0)
            fprintf(f, "  %-17s %10.1f\n", rooms[i].name, rooms[i].bytes / SIMULATE_GIB);
    simulate_fit_print(j);
}

static void print_scenario(const simulate_job *j)
{
    const tess_scenario *s = &j->r.scenario;
    char what[48];
    snprintf(what, sizeof what, "micro-batches of %d", s->training.micro_batch);
    fprintf(j->c->out,
            "%s: %.4g parameters\n"
            "%d GPUs of %s: tp %d, pp %d, cp %d, ep %d, dp %d; %lld %s\n",
            j->given->scenario, j->r.parameters, s->layout.gpus, s->system.cluster, s->layout.tp,
            s->layout.pp, s->layout.cp, s->layout.ep, s->layout.dp,
            (long long)(j->r.clips ? j->r.clips : j->r.micro_batches),
            j->r.clips ? "clips at a time" : what);
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* Operations of one part, the dearest first; *used marks the parameters that they name. */
static tess_status print_ops(const simulate_job *j, char *used)
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

static tess_status print_reasons(const simulate_job *j)
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

/* ---- JSON ------------------------------------------------------------------------------------ */

static tess_status set_ops(const simulate_job *j)
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

static json_t *scenario_json(const simulate_job *j)
{
    json_t *all = json_object();
    for (int i = 0; i < tess_scenario_settings(); i++) {
        tess_scenario_setting s;
        char key[64];
        if (tess_scenario_get(&j->r.scenario, i, &s) != TESS_OK || !s.given)
            continue;
        snprintf(key, sizeof key, "%s.%s", s.group, s.name);
        out_set(j->c, all, key, out_text(s.value));
    }
    return all;
}

static void set_json(const simulate_job *j)
{
    cli *c = j->c;
    const tess_sim_result *r = &j->r;
    simulate_part parts[SIMULATE_CLIP_PARTS];
    simulate_room rooms[SIMULATE_ROOMS];
    json_t *breakdown = json_object(), *memory = json_object();
    const int n = simulate_parts(r, parts);
    simulate_rooms(&r->memory, rooms);
    for (int i = 0; i < n; i++)
        out_set(c, breakdown, parts[i].name, out_number(1e3 * parts[i].seconds));
    for (int i = 0; i < SIMULATE_ROOMS; i++)
        out_set(c, memory, rooms[i].name, out_number(rooms[i].bytes / SIMULATE_GIB));
    out_set(c, c->json, "scenario", scenario_json(j));
    if (r->clips)
        simulate_sample_json(j);
    else
        out_set(c, c->json, "step_ms", out_number(1e3 * r->step_s));
    out_set(c, c->json, "tokens_per_s", out_number(r->tokens_per_s));
    out_set(c, c->json, "mfu", out_number(r->mfu));
    out_set(c, c->json, "hfu", out_number(r->hfu));
    out_set(c, c->json, "mfu_causal", out_number(r->mfu_causal));
    out_set(c, c->json, "parameters", out_number(r->parameters));
    out_set(c, c->json, "gpu_hours", out_number(r->gpu_hours));
    out_set(
        c, c->json, "price",
        isnan(j->given->price)
            ? json_null()
            : out_number((r->clips ? simulate_sample_hours(r) : r->gpu_hours) * j->given->price));
    out_set(c, c->json, "memory_gib", out_number(r->memory.peak / SIMULATE_GIB));
    out_set(c, c->json, "capacity_gib", out_number(r->memory.capacity / SIMULATE_GIB));
    out_set(c, c->json, "fits", json_boolean(r->memory.fits));
    simulate_interval_json(j);
    out_set(c, c->json, "largest", out_text(r->memory.largest ? r->memory.largest : ""));
    out_set(c, c->json, "memory_parts_gib", memory);
    out_set(c, c->json, "breakdown", breakdown);
    simulate_goodput_json(j);
    simulate_run_json(j);
    simulate_job_json(j);
}

tess_status simulate_report(const simulate_job *j)
{
    if (j->c->json) {
        set_json(j);
        simulate_timeline_json(j);
        return j->given->explain ? set_ops(j) : TESS_OK;
    }
    print_scenario(j);
    simulate_job_print(j);
    print_step(j);
    print_memory(j);
    simulate_timeline_print(j);
    if (j->given->explain)
        simulate_interval_print(j);
    return j->given->explain ? print_reasons(j) : TESS_OK;
}
