/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_simulate.c - tessera simulate: time, memory and cost of a training step, with the reasons. */
#include "cmd_simulate.h"
#include "choices.h"
#include "commands.h"

#include <math.h>
#include <string.h>

/* ---- input ----------------------------------------------------------------------------------- */

static int is_model(const char *text)
{
    return strncmp(text, "model.name=", 11) == 0 || strncmp(text, "model.config=", 13) == 0;
}

/* Of a job file's scenario the model comes apart, before the settings of the file. */
tess_status simulate_set(simulate_job *j, int model)
{
    for (int i = 0; i < j->given->set.n; i++) {
        if (j->job && is_model(j->given->set.items[i]) != model)
            continue;
        const char *text = j->given->set.items[i], *equal = strchr(text, '=');
        char key[64];
        if (!equal || equal == text || (size_t)(equal - text) >= sizeof key)
            return out_usage(j->c, "--set is \"%.80s\", must be KEY=VALUE", text);
        snprintf(key, sizeof key, "%.*s", (int)(equal - text), text);
        TRY(tess_scenario_set(j->c->ctx, &j->s, key, equal + 1));
    }
    return TESS_OK;
}

/* The scenario's sparse attention from a density profile. */
static tess_status apply_profile(simulate_job *j)
{
    tess_profile *profile = NULL;
    if (!j->given->density)
        return TESS_OK;
    const int method = choices_value(TESS_OPTIONS_PLAN, "method", j->given->method);
    TRY(tess_profile_open(j->c->ctx, j->given->density, NULL, &profile));
    const tess_status status =
        tess_scenario_plan(j->c->ctx, j->cluster, profile, -1, (tess_plan_method)method, &j->s);
    tess_profile_close(profile);
    return status;
}

tess_status simulate_scenario(simulate_job *j)
{
    if (tess_job_is_file(j->given->scenario)) {
        TRY(tess_job_load(j->c->ctx, j->given->scenario, &j->own_job));
        j->job = j->own_job;
        return simulate_job_use(j);
    }
    TRY(tess_scenario_load(j->c->ctx, j->given->scenario, &j->s));
    return simulate_set(j, 0);
}

/* The scenario, and all that is needed to run it. */
static tess_status prepare(simulate_job *j)
{
    cli *c = j->c;
    TRY(simulate_scenario(j));
    TRY(simulate_sample_use(j));
    TRY(simulate_steps(j));
    if (!j->s.system.cluster[0] && !j->given->search)
        return out_usage(c, "the scenario names no cluster; use --set system.cluster=NAME");
    if (j->given->search && j->s.layout.schedule == TESS_SIM_SCHEDULE_FILE)
        return out_usage(c, "layout.schedule is a file, which --search does not take");
    TRY(tess_sim_params_load(c->ctx, j->given->params, &j->params));
    if (j->given->measured)
        TRY(tess_sim_measured_load(c->ctx, j->given->measured, NULL, &j->measured));
    return TESS_OK;
}

static tess_status simulate(simulate_job *j)
{
    TRY(tess_cluster_load(j->c->ctx, j->s.system.cluster, &j->cluster));
    TRY(apply_profile(j));
    TRY(tess_sim_create(j->c->ctx, j->params, &j->sim));
    TRY(tess_sim_use_measured(j->sim, j->measured));
    if (j->s.layout.schedule == TESS_SIM_SCHEDULE_FILE && j->s.layout.schedule_file[0]) {
        TRY(tess_schedule_load(j->c->ctx, j->s.layout.schedule_file, &j->schedule));
        TRY(tess_sim_use_schedule(j->sim, j->schedule));
    }
    TRY(tess_sim_interval(j->sim, j->cluster, &j->s, &j->r, &j->interval));
    TRY(simulate_goodput(j));
    TRY(simulate_timeline(j));
    if (j->given->html && !simulate_timeline_wanted(j->given))
        TRY(simulate_page(j));
    return simulate_report(j);
}

/* ---- command --------------------------------------------------------------------------------- */

/* A traced rank or a scenario, and what belongs to it. */
static tess_status check_usage(cli *c, const simulate_values *v)
{
    const int traces = v->trace.n > 0;
    if (v->list)
        return v->scenario || traces
                   ? out_usage(c, "--list is given, which takes no scenario and no --trace")
                   : TESS_OK;
    if (!isnan(v->steps) && !isnan(v->tokens))
        return out_usage(c, "--steps and --tokens are given, must be one of them");
    if (!traces && !v->scenario)
        return out_usage(c, "SCENARIO is missing");
    if (!traces && (v->cluster || !isnan(v->compute_scale) || v->per_node || v->as_recorded))
        return out_usage(c, "--%s is given, but no --trace",
                         v->as_recorded             ? "as-recorded"
                         : v->cluster               ? "cluster"
                         : !isnan(v->compute_scale) ? "compute-scale"
                                                    : "per-node");
    TRY(simulate_search_usage(c, v));
    TRY(simulate_goodput_usage(c, v));
    TRY(simulate_timeline_usage(c, v));
    if (!traces)
        return TESS_OK;
    if (v->scenario || v->timeline_ranks || v->html || v->schedule_out || v->slow_rank.n ||
        v->scale.n || v->density || v->measured || v->explain)
        return out_usage(c, "--trace takes no scenario and none of its options");
    for (int i = 0; i < v->set.n; i++)
        if (strncmp(v->set.items[i], "system.era=", 11) != 0)
            return out_usage(c, "--set %s is given; with --trace only system.era may be set",
                             v->set.items[i]);
    return v->cluster || v->as_recorded
               ? TESS_OK
               : out_usage(c, "--cluster is missing, --trace needs one, or --as-recorded");
}

static tess_status run(cli *c, const void *given)
{
    const simulate_values *v = given;
    simulate_job j = {.c = c, .given = given, .steps = NAN};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK && v->list)
        return out_input(c, simulate_list(c, v));
    if (status == TESS_OK && v->trace.n > 0)
        status = simulate_trace(c, v);
    else if (status == TESS_OK)
        status = prepare(&j);
    if (status == TESS_OK && v->trace.n == 0)
        status = v->search ? simulate_search(&j) : simulate(&j);
    tess_job_destroy(j.own_job);
    tess_timeline_destroy(j.timeline);
    tess_sim_destroy(j.sim);
    tess_schedule_destroy(j.schedule);
    tess_sim_measured_destroy(j.measured);
    tess_sim_params_destroy(j.params);
    tess_cluster_destroy(j.cluster);
    return out_input(c, status);
}

static const opt arguments[] = {
    {"SCENARIO", 0, OPT_PATH, offsetof(simulate_values, scenario),
     .help =
         "a JSON file, torchtitan's .toml, a .sh with Megatron-LM's arguments, or the name of a "
         "shipped scenario: deepseek-v3, gpt-175b-96, gpt-175b-8192, llama3-405b, "
         "wan2.1-14b-dsv-128, wan2.1-14b-sample"},
};

static const opt options[] = {
    {"set", 0, OPT_STRINGS, offsetof(simulate_values, set), "KEY=VALUE",
     .help = "change a setting: layout.tp=4, model.name=llama3-8b, system.cluster=h200"},
    {"price", 0, OPT_DOUBLE, offsetof(simulate_values, price), "MONEY", .min = 0, .max = 1e9,
     .help = "of one GPU for an hour"},
    {"steps", 0, OPT_AMOUNT, offsetof(simulate_values, steps), "N", .min = 1, .max = 1e12,
     .unit = "steps", .help = "also hours, GPU-hours and cost of that many steps: 250000, 250K"},
    {"tokens", 0, OPT_AMOUNT, offsetof(simulate_values, tokens), "N", .min = 1, .max = 1e18,
     .unit = "tokens",
     .help = "the same of as many steps as that many tokens need: 300B, 14.8T; K, M, B (or G) and "
             "T are powers of 1000"},
    {"sample", 0, OPT_FLAG, offsetof(simulate_values, sample),
     .help = "a clip that a video DiT samples, instead of a training step: seconds and cost from "
             "the prompt to the frames; --set sampling.steps=50, sampling.guidance=parallel, ..."},
    {"failures", 0, OPT_FLAG, offsetof(simulate_values, failures),
     .help =
         "also goodput: what GPUs that fail and checkpoints leave of the time; hours, GPU-hours "
         "and cost of --steps or --tokens then include it"},
    {"mtbf", 0, OPT_DOUBLE, offsetof(simulate_values, mtbf), "HOURS", .min = 1e-3, .max = 1e12,
     .help = "with --failures: mean time between failures of one GPU; default: 50677, as in the "
             "training of Llama 3"},
    {"write", 0, OPT_DOUBLE, offsetof(simulate_values, write), "SECONDS", .min = 1e-6, .max = 1e7,
     .help = "with --failures: for which a checkpoint stops training; default: 14 bytes of a "
             "parameter at 122 MB/s of each GPU"},
    {"restart", 0, OPT_DOUBLE, offsetof(simulate_values, restart), "SECONDS", .min = 1e-6,
     .max = 1e7,
     .help = "with --failures: from a failure until the job trains again; default: 600"},
    {"every", 0, OPT_DOUBLE, offsetof(simulate_values, every), "SECONDS", .min = 1e-3, .max = 1e9,
     .help = "with --failures: of training between two checkpoints; default: the best"},
    {"list", 0, OPT_CHOICE, offsetof(simulate_values, list), "WHAT", .choices = simulate_lists,
     .help = "instead of a scenario: print the names that it may use, each with what it is"},
    {"density", 0, OPT_PATH, offsetof(simulate_values, density), "PROFILE.csv",
     .help = "sparse attention of a density profile (step, layer, head, density), mean over its "
             "steps, distributed over the context-parallel ranks"},
    {"method", 0, OPT_CHOICE, offsetof(simulate_values, method), "NAME", .initial = "auto",
     .choices_of = "method", .table = TESS_OPTIONS_PLAN,
     .help = "how heads are distributed: contiguous as Ulysses does, lpt as DSV, db-sp as db-SP"},
    {"explain", 0, OPT_FLAG, offsetof(simulate_values, explain),
     .help = "print the operations that the step is made of, their formulas, and the parameters "
             "with their origin"},
    {"params", 0, OPT_PATH, offsetof(simulate_values, params), "FILE.json",
     .help = "parameters of the simulator; the shipped ones unless given"},
    {"measured", 0, OPT_PATH, offsetof(simulate_values, measured), "TABLE.csv",
     .help = "products that were measured: they come before the formulas"},
    {"search", 0, OPT_FLAG, offsetof(simulate_values, search),
     .help = "simulate all combinations of some settings, and list the best that fit"},
    {"over", 0, OPT_STRINGS, offsetof(simulate_values, over), "KEY=V1,V2,...",
     .help = "with --search: a setting and its values; default: tp, pp, vpp, cp, ep, zero, "
             "micro_batch, recompute and sequence, all values that the rules allow"},
    {"gpus", 0, OPT_STRING, offsetof(simulate_values, gpus), "A,B,...",
     .help = "with --search: numbers of GPUs; default: the scenario's"},
    {"by", 0, OPT_CHOICE, offsetof(simulate_values, by), "WHAT", .initial = "time",
     .choices = simulate_by, .help = "with --search: what ranks the combinations"},
    {"memory-limit", 0, OPT_DOUBLE, offsetof(simulate_values, memory_limit), "GIB", .min = 0.001,
     .max = 1e6,
     .help = "with --search: memory that a GPU may hold, where that is less than it has"},
    {"deadline", 0, OPT_DOUBLE, offsetof(simulate_values, deadline), "HOURS", .min = 1e-9,
     .max = 1e9,
     .help = "with --search: hours in which --steps steps, or --tokens tokens, must be done"},
    {"checkpoint", 0, OPT_PATH, offsetof(simulate_values, checkpoint), "FILE",
     .help =
         "with --search: go on from FILE if it is there, and write to it how far the search is"},
    {"exhaustive", 0, OPT_FLAG, offsetof(simulate_values, exhaustive),
     .help = "with --search: simulate to the end also what a bound rules out; the same answer"},
    {"timeline", 0, OPT_PATH, offsetof(simulate_values, timeline), "OUT.json[.gz]",
     .help = "simulate every rank event by event, and write that for Perfetto; with --trace: the "
             "ranks that were traced"},
    {"timeline-ranks", 0, OPT_STRING, offsetof(simulate_values, timeline_ranks), "all|0,17,...",
     .help = "with --timeline or --html: ranks to show; default: one of each class of equal ranks"},
    {"slow-rank", 0, OPT_STRINGS, offsetof(simulate_values, slow_rank), "RANK=X",
     .help = "event by event, with a rank that computes X times as long: 17=1.2"},
    {"scale", 0, OPT_STRINGS, offsetof(simulate_values, scale), "CLASS=X",
     .help = "event by event, with X times the time of a class: gemm, attention, elementwise, "
             "optimiser, host, tp, cp, ep, pp, dp; tp=0: free tensor-parallel communication"},
    {"schedule-out", 0, OPT_PATH, offsetof(simulate_values, schedule_out), "OUT.csv",
     .help = "write the order of the pipeline's passes in PyTorch's form"},
    {"html", 0, OPT_PATH, offsetof(simulate_values, html), "OUT.html",
     .help =
         "a page: time, memory and money by part, and what each input changes; with --timeline, "
         "--timeline-ranks, --slow-rank or --scale: timeline, breakdown and memory"},
    {"trace", 0, OPT_PATHS, offsetof(simulate_values, trace), "FILE",
     .help = "instead of a scenario: the trace of a rank, of `tessera train --trace-out`, of "
             "tessera.torch.trace or of the PyTorch profiler, plain or gzip; may be given for "
             "several ranks"},
    {"as-recorded", 0, OPT_FLAG, offsetof(simulate_values, as_recorded),
     .help = "with --trace: collectives take their recorded times, without a cluster"},
    {"cluster", 0, OPT_PATH, offsetof(simulate_values, cluster), "NAME",
     .help =
         "with --trace: the cluster that its messages are timed on; a shipped name or a JSON file"},
    {"compute-scale", 0, OPT_DOUBLE, offsetof(simulate_values, compute_scale), "X", .min = 1e-9,
     .max = 1e9, .help = "with --trace: compute time there over the recorded one; default: 1"},
    {"per-node", 0, OPT_INT, offsetof(simulate_values, per_node), "N", .max = 1048576,
     .unit = "ranks", .help = "with --trace: ranks of a node; default: the cluster's"},
};

static const example examples[] = {
    {"tessera simulate gpt-175b-96", "a shipped scenario: time, memory, utilisation"},
    {"tessera simulate gpt-175b-96 --set layout.pp=6 --set layout.gpus=48 --price 2.5",
     "half of the GPUs, with the cost"},
    {"tessera simulate wan2.1-14b-dsv-128 --density profile.csv --method db-sp",
     "a video model with sparse attention as a profile has it"},
    {"tessera simulate deepseek-v3 --tokens 14.8T --price 2",
     "hours, GPU-hours and cost of the whole run"},
    {"tessera simulate wan2.1-14b-sample --sample --price 2.5",
     "seconds and cost of a clip of Wan2.1-14B on 8 H100"},
    {"tessera simulate wan2.1-14b-sample --sample --set layout.gpus=1 --set layout.cp=1 "
     "--set layout.zero=0",
     "the same on one GPU"},
    {"tessera simulate llama3-405b --failures --tokens 15.6T --price 2",
     "the whole run with GPUs that fail, and the best interval of checkpoints"},
    {"tessera simulate --list software", "names for system.era, and what each one is"},
    {"tessera simulate gpt-175b-96 --search", "the best layout on the same GPUs"},
    {"tessera simulate gpt-175b-96 --search --over layout.tp=2,4,8 --over layout.pp=6,12 "
     "--gpus 48,96 --price 2.5 --by cost",
     "the cheapest of these combinations"},
    {"tessera simulate gpt-175b-8192 --timeline step.json.gz --slow-rank 17=1.2",
     "what every rank does when, and what one slow rank costs"},
    {"tessera simulate gpt-175b-96 --scale tp=0", "what the step would be without a class of time"},
    {"tessera simulate job.toml --set system.cluster=h100 --set layout.gpus=64",
     "a job of torchtitan, with what its file does not say"},
    {"tessera simulate train.sh", "a script with Megatron-LM's arguments"},
    {"tessera simulate mine.json --explain", "every operation, and where its numbers come from"},
    {"tessera simulate --trace rank0.json --cluster h100 --compute-scale 0.004",
     "the step of a rank that was traced here, on another machine"},
    {"tessera simulate --trace rank0.json.gz --trace rank1.json.gz --cluster h200",
     "ranks of a PyTorch job on other links"},
    {"tessera simulate --trace rank0.json --cluster h100 --set system.era=torchtitan-2024",
     "a PyTorch program that tessera.torch.trace played, with the host's floor of a software"},
};

const command command_simulate = {
    .name = "simulate",
    .summary = "predict time, memory and cost of a training step",
    .description =
        "A scenario is a model, its layout over GPUs, how it is trained, and the machine; "
        "docs/scenarios.md lists the settings, docs/simulator.md explains the model behind the "
        "numbers, and docs/accuracy.md compares predictions with published runs.\n"
        "MFU counts the products of forward and backward pass once, with attention over all pairs, "
        "over the dense bf16 peak; HFU also recomputation.\n"
        "80 % of what is measured should lie between the two numbers beside a time or memory; "
        "--explain names the three inputs that widen this interval most. Whether it fits is yes or "
        "no where all of the interval of memory does or does not, otherwise maybe.\n"
        "With --json the result has the members step_ms, step_ms_low, step_ms_high, tokens_per_s, "
        "memory_gib, memory_gib_low, memory_gib_high, fits (of memory_gib), fit (yes, no, maybe), "
        "interval_pct, widest: step and memory with name, about, pct and origin, software and "
        "software_measured (a run of it was), breakdown in ms, memory_parts_gib, and with "
        "--explain operations; with --steps or --tokens run: "
        "steps, tokens, hours, gpu_hours and price, null without --price.\n"
        "With --sample, or a scenario that has sampling.steps, it is the time of a clip: text "
        "encoder, denoising steps with guidance, autoencoder. With --json the result has clip_s, "
        "clip_s_low, clip_s_high, clips (made at the same time), denoising_steps, passes, "
        "gpu_seconds and price (of a clip), and left_out (what the model does not say the cost "
        "of) instead of step_ms.\n"
        "With --failures the output also has goodput. With --json it is an object: goodput, "
        "failure_hours (between two of the job), mtbf_hours, checkpoint_s, interval_s, "
        "best_interval_s, restart_s, lost_to_checkpoints, lost_to_restarts and "
        "lost_to_repeated_steps.\n"
        "With --list and --json the result has entries: name, about, default, and of models "
        "family.\n"
        "A job file of torchtitan or Megatron-LM is read as a scenario: the output names what the "
        "file does not say and where that was taken from, keys that the simulator has no setting "
        "for, and keys that are not known. With --json the result has job: framework, read, "
        "assumed, unmodelled, ignored and unknown.\n"
        "With --search the settings named by --over take all combinations of their values. What "
        "breaks a rule or does not fit is left out; the others are ranked. Ctrl-C prints the best "
        "so far. With --json the result has combinations, valid, evaluated, feasible, best with "
        "settings, step_ms, memory_gib and breakdown, top (ten at most), pareto (of time against "
        "GPUs, and of cost against time), and why: what the second lost by, and what the nearest "
        "one that does not fit lacks.\n"
        "With --timeline, --slow-rank or --scale the same operations also run event by "
        "event: a stream of a rank runs in order, an operation begins when its inputs are there, a "
        "collective when its last member has come. Ranks that do the same at the same times are "
        "simulated once. With --json the result has timeline: path, ranks and events written, "
        "classes of equal ranks, step_ms, and critical: the ms of each class of operations on the "
        "critical path, which add up to step_ms.\n"
        "With --trace the step is that of one rank, as `tessera train --trace-out` wrote it: "
        "computing takes the recorded time, times --compute-scale, and messages take the time of "
        "the cluster's links. With --json the result has step_ms, compute_ms, wait_ms, "
        "hidden_ms and, for each kind of call, calls, bytes, message_ms and wait_ms.\n"
        "With several --trace, or files of the PyTorch profiler, ranks run side by side: the n-th "
        "call of a process group is the same call on all members and begins when the last one has "
        "come. Members without a file are like the nearest one with a file. With --json the result "
        "has step_ms, and for each of files recorded_ms, step_ms, compute_ms, comm_ms, wait_ms and "
        "exposed_ms. docs/simulator.md has the rules.\n"
        "Operators of programs that tessera.torch.trace played have no times: they take those of "
        "the "
        "operation model, with the software profile of --set system.era. With --json such files "
        "have "
        "flop, classes_ms, peak_bytes, memory_bytes, fits and largest_part, too, and the result "
        "software and critical_ms.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(simulate_values),
    .run = run,
};
