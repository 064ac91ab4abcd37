/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c - tessera plan: masks or densities in, a plan for every layer and step out. */
#include "cmd_plan.h"
#include "commands.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/plan_file.h"
#include "tessera/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tess_status plan_speeds(cli *c, const plan_values *v, int32_t **speeds)
{
    if (!v->speeds)
        return TESS_OK;
    int32_t *list = calloc((size_t)v->opts.ranks, sizeof *list);
    if (!list)
        return out_fail(c, TESS_ENOMEM, "no memory for %lld speeds", (long long)v->opts.ranks);
    *speeds = list;
    const char *at = v->speeds;
    for (int64_t i = 0; i < v->opts.ranks; i++) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        const int last = i == v->opts.ranks - 1;
        if (end == at || errno || value < 1 || value > 1000000 || *end != (last ? '\0' : ','))
            return out_usage(c,
                             "--speeds is \"%.80s\", must be %lld integers 1..1000000 with commas "
                             "between them",
                             v->speeds, (long long)v->opts.ranks);
        list[i] = (int32_t)value;
        at = end + 1;
    }
    return TESS_OK;
}

typedef struct {
    cli *c;
    const plan_values *given;
    plan_input input;
    tess_cluster *cluster; /* NULL: none given */
    int32_t *speeds;
    int64_t carried_ns; /* what keeping the plan in force has lost so far */
    tess_plan_opts opts;
    tess_plan *plan; /* in force */
    tess_plan_report *report;
    tess_plan_file *file;
    char *line; /* the command line */
    plan_tally tally;
} job;

int plan_default_ulysses(const tess_plan_opts *o, int heads)
{
    const tess_strategy *s = &o->strategy;
    const int named = s->method != TESS_PLAN_AUTO && s->method != TESS_PLAN_FRACTIONAL;
    return !s->ulysses && !s->ring && !s->selective && named && o->ranks <= heads ? o->ranks
                                                                                  : s->ulysses;
}

tess_status plan_cluster(cli *c, const plan_values *v, tess_cluster **cluster)
{
    tess_cluster_info info;
    TRY(out_option(c, "--cluster", tess_cluster_load(c->ctx, v->cluster, cluster)));
    if (isnan(v->rate))
        return TESS_OK;
    tess_cluster *named = *cluster;
    tess_cluster_query(named, &info);
    info.attn_flops = v->rate * 1e12;
    const tess_status status = tess_cluster_create(c->ctx, &info, cluster);
    tess_cluster_destroy(named);
    *cluster = status == TESS_OK ? *cluster : NULL;
    return status;
}

/* The product of the degrees that are given must divide the ranks. */
static tess_status check_degrees(cli *c, const tess_plan_opts *o)
{
    const char *const names[] = {"--ulysses", "--ring", "--selective"};
    const int degrees[] = {o->strategy.ulysses, o->strategy.ring, o->strategy.selective};
    int64_t product = 1;
    char text[160] = "";
    for (int i = 0; i < 3; i++) {
        const size_t used = strlen(text);
        if (degrees[i] > 0)
            snprintf(text + used, sizeof text - used, "%s%s %d", used ? " x " : "", names[i],
                     degrees[i]);
        product *= degrees[i] > 0 ? degrees[i] : 1;
    }
    if (o->ranks % product == 0)
        return TESS_OK;
    return out_usage(c, "%s makes %lld, which must divide --ranks, %d", text, (long long)product,
                     o->ranks);
}

static tess_status create_report(job *j)
{
    const char *path = j->given->density ? j->given->density : j->given->mask;
    const char *slash = strrchr(path, '/');
    const tess_plan_report_opts opts = {.first_layer = plan_input_layer(&j->input, 0),
                                        .input = slash ? slash + 1 : path,
                                        .command = j->line,
                                        .cluster = j->given->cluster};
    return tess_plan_report_create(j->c->ctx, &opts, &j->report);
}

/* The file of all plans, with what they are made from. */
static tess_status create_file(job *j)
{
    const plan_values *v = j->given;
    const tess_plan_origin origin = {.command = j->line,
                                     .source = v->density ? v->density : v->mask,
                                     .cluster = v->cluster,
                                     .first_layer = plan_input_layer(&j->input, 0)};
    return tess_plan_file_create(j->c->ctx, &origin, &j->file);
}

static tess_status prepare(job *j)
{
    const plan_values *v = j->given;
    cli *c = j->c;
    if (v->check)
        return out_usage(c, "--check belongs to a plan that was written before, needs PLAN.json");
    if (v->reuse && !isnan(v->replan_above))
        return out_usage(c, "--reuse and --replan-above exclude each other");
    if (v->reuse && !v->cluster)
        return out_usage(c, "--reuse compares times, needs --cluster");
    TRY(plan_clips_unused(c, v));
    TRY(check_degrees(c, &v->opts));
    TRY(plan_input_open(c, v, &j->input));
    TRY(plan_speeds(c, v, &j->speeds));
    if (v->cluster)
        TRY(plan_cluster(c, v, &j->cluster));
    j->line = out_command(c);
    if (!j->line)
        return out_fail(c, TESS_ENOMEM, "no memory for the command line");
    if (v->html)
        TRY(create_report(j));
    if (v->out)
        TRY(create_file(j));
    j->opts = v->opts;
    j->opts.strategy.ulysses = plan_default_ulysses(&v->opts, j->input.heads);
    j->opts.memory = isnan(v->memory) ? 0 : (int64_t)(v->memory * 1073741824.0);
    j->opts.whole_keys = v->whole_keys;
    j->opts.speeds = j->speeds;
    j->opts.replan_above = isnan(v->replan_above) ? 0 : v->replan_above;
    j->tally = (plan_tally){
        .c = c, .given = v, .input = &j->input, .plans = c->json ? json_array() : NULL};
    return TESS_OK;
}

/* Whether the plan in force still does for the work. */
static tess_status decide(job *j, const tess_work *work, int *keep)
{
    tess_plan_verdict answer;
    *keep = 0;
    if (!j->plan || (!j->given->reuse && isnan(j->given->replan_above)))
        return TESS_OK;
    TRY(tess_plan_keep(j->plan, work, j->cluster, &j->opts, j->carried_ns, &answer));
    *keep = answer.keep;
    j->carried_ns = answer.keep ? answer.carried_ns : 0;
    return TESS_OK;
}

static tess_status run_step(job *j, int i)
{
    cli *c = j->c;
    const int64_t step = plan_input_step(&j->input, i);
    tess_work *work = NULL;
    int keep = 0;
    tess_status status = plan_input_work(c, &j->input, i, &work);
    if (status == TESS_OK)
        status = decide(j, work, &keep);
    if (status == TESS_OK && !keep) {
        tess_plan *plan;
        const int64_t begin = tess_clock_ns();
        status = tess_plan_create(c->ctx, work, j->cluster, &j->opts, &plan);
        j->tally.plan_ns += tess_clock_ns() - begin;
        if (status == TESS_OK) {
            j->tally.replans += j->plan != NULL;
            j->tally.made += j->input.layers;
            tess_plan_destroy(j->plan);
            j->plan = plan;
        }
        if (status == TESS_OK && j->given->explain && !c->json)
            status = plan_print_reasons(c, &j->input, step, plan);
    }
    if (status == TESS_OK)
        status = plan_tally_step(&j->tally, step, !keep, j->plan, work);
    if (status == TESS_OK && j->report)
        status = tess_plan_report_add(j->report, step, j->plan, work);
    if (status == TESS_OK && j->file)
        status = tess_plan_file_add(j->file, step, keep ? NULL : j->plan, keep ? NULL : work);
    tess_work_destroy(work);
    return status;
}

static tess_status finish(job *j)
{
    const plan_values *v = j->given;
    cli *c = j->c;
    if (v->out)
        TRY(tess_plan_file_save(j->file, v->out));
    if (v->html)
        TRY(tess_plan_report_write(j->report, v->html));
    if (c->json) {
        plan_set_json(&j->tally);
        return TESS_OK;
    }
    plan_print(&j->tally);
    if (v->out && j->input.steps > 1)
        fprintf(c->out, "%s: the plans of %d steps\n", v->out, j->input.steps);
    else if (v->out)
        fprintf(c->out, "%s: the plan\n", v->out);
    if (v->html)
        fprintf(c->out, "%s: the page\n", v->html);
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    plan_values own = *(const plan_values *)given;
    int ranks[PLAN_RANKS], n;
    TRY(plan_ranks(c, own.ranks, ranks, PLAN_RANKS, &n));
    own.opts.ranks = ranks[0];
    if (n > 1)
        return plan_scaling_run(c, &own, ranks, n);
    if (own.file)
        return plan_show_run(c, &own);
    if (own.clips)
        return plan_clips_run(c, &own);
    job j = {.c = c, .given = &own};
    tess_status status = prepare(&j);
    for (int i = 0; status == TESS_OK && i < j.input.steps; i++) {
        progress_span(c, "planning steps", j.input.steps);
        progress_part(c, i, 1);
        status = run_step(&j, i);
    }
    progress_span(c, NULL, 0);
    if (status == TESS_OK)
        status = finish(&j);
    json_decref(j.tally.plans);
    tess_plan_report_destroy(j.report);
    tess_plan_file_destroy(j.file);
    free(j.line);
    tess_plan_destroy(j.plan);
    tess_cluster_destroy(j.cluster);
    free(j.speeds);
    plan_input_close(&j.input);
    return out_input(c, status);
}

static const plan_values defaults = {.opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 8}};

#define PLAN(name, metavar, of) OPT_OF(PLAN, offsetof(plan_values, opts), name, 0, metavar, of)

static const opt arguments[] = {
    {"PLAN.json", 0, OPT_PATH, offsetof(plan_values, file),
     .help = "a plan that was written with --out: it is printed instead of a new one"},
};

static opt options[] = {
    {"check", 0, OPT_PATH, offsetof(plan_values, check), "FILE",
     .help = "with PLAN.json: check it with these masks, or this profile (.csv, or .json with "
             "--tiles), and print the imbalance they have under the plan"},
    {"density", 0, OPT_PATH, offsetof(plan_values, density), "FILE.csv",
     .help = "a density profile: columns step, layer, head, density; or, with --tiles, windows of "
             "sliding tile attention: {\"step_layer_head\": [3, 3, 5], ...}"},
    {"mask", 0, OPT_PATH, offsetof(plan_values, mask), "FILE.npy",
     .help = "block masks instead, bool or uint8: [layers,] heads, query blocks, key blocks; or an "
             ".npz of two integer tensors, counts of key blocks and their indices"},
    {"clips", 0, OPT_STRING, offsetof(plan_values, clips), "MIX.csv|CODE",
     .help =
         "clips of a training step instead, of several sizes: a file with the column tokens, or "
         "frames, height and width, and count, density, noise; or KnapFormer's codes"},
    {"tiles", 0, OPT_STRING, offsetof(plan_values, tiles), "TxHxW",
     .help = "tiles of a clip, frames x rows x columns, for windows in --density FILE.json"},
    {"column", 0, OPT_STRING, offsetof(plan_values, column), "NAME",
     .help = "the profile's column that holds the kept fraction; density unless given"},
    {"kept", 0, OPT_FLAG, offsetof(plan_values, kept),
     .help = "the column is the kept fraction, whatever its name says"},
    {"dropped", 0, OPT_FLAG, offsetof(plan_values, dropped),
     .help = "the column is the dropped fraction: density is 1 minus it"},
    {"ranks", 0, OPT_STRING, offsetof(plan_values, ranks), "P[,P...]", .initial = "8",
     .help = "ranks, 1..65536; several numbers print a table of predicted time, imbalance, bytes "
             "and memory over them, and where more ranks stop paying"},
    PLAN("nodes", "N", nodes),
    {"cluster", 0, OPT_STRING, offsetof(plan_values, cluster), "NAME|FILE",
     .help = "machine to predict times on: a shipped name or a JSON file; without it plans are "
             "compared by imbalance and bytes"},
    {"tokens", 0, OPT_INT, offsetof(plan_values, tokens), "S", .min = 1, .max = 2147483647,
     .unit = "tokens",
     .help = "tokens of the sequence; 32760 for a profile, the mask's blocks times --group for a "
             "mask unless given"},
    {"group", 0, OPT_INT, offsetof(plan_values, group), "G", .initial = "64", .min = 1,
     .max = 1048576, .unit = "rows", .help = "rows of a block"},
    PLAN("head-dim", "D", head_dim),
    PLAN("method", "NAME", method),
    PLAN("ulysses", "U", ulysses),
    PLAN("ring", "R", ring),
    PLAN("selective", "C", selective),
    PLAN("pass", "PASS", pass),
    {"memory", 0, OPT_DOUBLE, offsetof(plan_values, memory), "GIB", .min = 1e-6, .max = 1e6,
     .unit = "GiB",
     .help = "memory for the attention of one layer on a rank, the cluster's unless given; of "
             "clips, for all that a rank holds of them, no limit unless given"},
    PLAN("union", "F", union_share),
    {"rate", 0, OPT_DOUBLE, offsetof(plan_values, rate), "TFLOPS", .min = 1e-6, .max = 1e6,
     .unit = "TFLOP/s",
     .help = "measured rate of the attention kernel on a rank, instead of the cluster's"},
    {"speeds", 0, OPT_STRING, offsetof(plan_values, speeds), "A,B,...",
     .help = "relative speed of each rank; equal unless given"},
    PLAN("equal-heads", NULL, equal_heads),
    {"whole-keys", 0, OPT_FLAG, offsetof(plan_values, whole_keys),
     .help = "never split the keys of a query: for kernels that give no log-sum-exp"},
    PLAN("whole-heads", NULL, whole_heads),
    {"replan-above", 0, OPT_DOUBLE, offsetof(plan_values, replan_above), "X", .max = 1e6,
     .help = "keep a plan over steps until its mean imbalance is above this; 1.1 is db-SP's"},
    {"reuse", 0, OPT_FLAG, offsetof(plan_values, reuse),
     .help = "keep a plan over steps while a new one would cost more than it saves"},
    {"layer", 0, OPT_INT, offsetof(plan_values, layer), "L", .initial = "-1", .min = -1,
     .max = 2147483647, .help = "plan this layer alone; -1: all"},
    {"step", 0, OPT_INT, offsetof(plan_values, step), "T", .initial = "-1", .min = -1, .max = 9e15,
     .help = "plan this step alone; -1: all"},
    {"steps", 0, OPT_INT, offsetof(plan_values, steps), "N", .min = 1, .max = 4096, .unit = "steps",
     .help = "with --clips: the clips are those of so many steps, which come out even; of a code, "
             "each rank draws so many batches; 1 unless given"},
    {"width", 0, OPT_INT, offsetof(plan_values, width), "W", .min = 1, .max = 1048576,
     .help = "with --clips: width of the model; 4096 unless given"},
    {"heads", 0, OPT_INT, offsetof(plan_values, heads), "H", .min = 1, .max = 65536,
     .help = "with --clips: heads of the model; width / 128 unless given"},
    {"ffn", 0, OPT_INT, offsetof(plan_values, ffn), "F", .min = 1, .max = 4194304,
     .help = "with --clips: hidden width of the feed-forward layers; 4 x width unless given"},
    {"layers", 0, OPT_INT, offsetof(plan_values, layers), "L", .min = 1, .max = 65536,
     .unit = "layers", .help = "with --clips: layers of the model; 1 unless given"},
    {"whole-clips", 0, OPT_FLAG, offsetof(plan_values, whole_clips),
     .help = "with --clips: cut no clip over several ranks"},
    {"explain", 0, OPT_FLAG, offsetof(plan_values, explain),
     .help = "print the candidates, and why each was not chosen; of clips, what each rank has"},
    {"out", 'o', OPT_PATH, offsetof(plan_values, out), "PLAN.json",
     .help = "write the plans of all steps and layers, with the command and a hash of the input"},
    {"html", 0, OPT_PATH, offsetof(plan_values, html), "FILE",
     .help =
         "write a page with the loads, the shares and the masks; with --clips, of the clips that "
         "each rank has"},
};

static void bind(void)
{
    opt_bind(options, (int)(sizeof options / sizeof *options), &defaults);
}

static const example examples[] = {
    {"tessera plan --density profile.csv --ranks 8", "the best plan for each layer and step"},
    {"tessera plan --mask masks.npy --ranks 16 --cluster h100 --explain", "times, and why"},
    {"tessera plan --density profile.csv --ranks 7 --method fractional --html plan.html",
     "any number of ranks, and a page"},
    {"tessera plan --density profile.csv --cluster h100 --ranks 8,16,32,64", "how it scales"},
    {"tessera plan run.plan.json --check masks.npy", "a plan of before, under other masks"},
    {"tessera plan --density profile.csv --replan-above 1.1 --method db-sp", "as db-SP does it"},
    {"tessera plan --clips mix.csv --ranks 32 --cluster h100 --layers 40 --pass train",
     "clips of several sizes in one step"},
};

const command command_plan = {
    .name = "plan",
    .summary = "balance sparse attention over ranks",
    .description =
        "Reads the work of each layer from block masks or a density profile, and distributes it: "
        "which rank computes which query blocks of which heads. Every step gets a new plan unless "
        "--replan-above or --reuse allows an older one.\n"
        "The imbalance is the work of the slowest rank over the mean, 1 at best. Before is the "
        "contiguous assignment at the same degrees; there is none where heads do not divide.\n"
        "With --json the result has the members summary, with the numbers over all layers and "
        "steps, and plans: for each step its layers with their shares [rank, head, first query "
        "block, last + 1].\n"
        "With --clips whole clips go to ranks, and a clip is cut over several only where none has "
        "room for it. --json then has the assignment: [step, rank, clip, first token, last + 1, "
        "first place, last + 1], where place = head x query blocks + query block.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(plan_values),
    .defaults = &defaults,
    .bind = bind,
    .run = run,
};
