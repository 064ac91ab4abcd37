/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_pipeline.c - tessera pipeline: a pipeline schedule by itself, pass by pass. */
#include "commands.h"
#include "tessera/advanced/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    common common;
    const char *schedule, *forward, *input, *weight, *timeline, *out;
    int64_t stages, chunks, batches;
    double hop;
} values;

typedef struct {
    cli *c;
    const values *given;
    tess_schedule *schedule;
    tess_schedule_info info;
    int64_t *times; /* forward, input, weight: info.stages of each */
    int *in_flight;
    tess_timeline *timeline;
    tess_schedule_result result;
} job;

/* ---- input ----------------------------------------------------------------------------------- */

static int is_file(const char *name)
{
    const size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".csv") == 0);
}

/* --stages, --chunks and --batches of a file, where they are given, are what it has. */
static tess_status check_sizes(const job *j)
{
    const values *v = j->given;
    const struct {
        const char *name;
        int64_t given, has;
    } sizes[] = {{"stages", v->stages, j->info.ranks},
                 {"chunks", v->chunks, j->info.stages / j->info.ranks},
                 {"batches", v->batches, j->info.batches}};
    for (int i = 0; i < 3; i++)
        if (sizes[i].given && sizes[i].given != sizes[i].has)
            return out_usage(j->c, "--%s is %lld, but %s has %lld", sizes[i].name,
                             (long long)sizes[i].given, v->schedule, (long long)sizes[i].has);
    return TESS_OK;
}

static tess_status open_schedule(job *j)
{
    const values *v = j->given;
    cli *c = j->c;
    if (!v->schedule)
        return out_usage(c, "--schedule is missing");
    if (is_file(v->schedule)) {
        TRY(tess_schedule_load(c->ctx, v->schedule, &j->schedule));
        TRY(tess_schedule_query(j->schedule, &j->info));
        return check_sizes(j);
    }
    if (!v->stages || !v->batches)
        return out_usage(c, "--%s is missing", v->stages ? "batches" : "stages");
    TRY(out_option(c, "--schedule",
                   tess_schedule_make(c->ctx, v->schedule, (int)v->stages,
                                      v->chunks                          ? (int)v->chunks
                                      : strcmp(v->schedule, "zb-v") == 0 ? 2
                                                                         : 1,
                                      v->batches, &j->schedule)));
    return tess_schedule_query(j->schedule, &j->info);
}

static tess_status fail_list(cli *c, const char *option, const char *text, int stages)
{
    return out_usage(c,
                     "--%s is \"%.60s\", must be microseconds, one number 0..1e9 for all stages or "
                     "%d with commas between them",
                     option, text, stages);
}

/* Microseconds of every stage from a list; one value: of all. */
static tess_status read_list(const job *j, const char *option, const char *text, int64_t *ns)
{
    const int stages = j->info.stages;
    int n = 0;
    for (const char *p = text;; p++) {
        char *end;
        const double us = strtod(p, &end);
        if (end == p || !(us >= 0) || us > 1e9 || (*end && *end != ',') || n == stages)
            return fail_list(j->c, option, text, stages);
        ns[n++] = (int64_t)llround(1e3 * us);
        p = end;
        if (!*p)
            break;
    }
    if (n != 1 && n != stages)
        return fail_list(j->c, option, text, stages);
    for (; n < stages; n++)
        ns[n] = ns[0];
    return TESS_OK;
}

static tess_status replay(job *j)
{
    const values *v = j->given;
    const size_t stages = (size_t)j->info.stages;
    j->times = calloc(3 * stages, sizeof *j->times);
    j->in_flight = calloc((size_t)j->info.ranks, sizeof *j->in_flight);
    if (!j->times || !j->in_flight)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d stages", j->info.stages);
    TRY(read_list(j, "forward-us", v->forward, j->times));
    TRY(read_list(j, "input-us", v->input, j->times + stages));
    TRY(read_list(j, "weight-us", v->weight, j->times + 2 * stages));
    const tess_schedule_times times = {j->times, j->times + stages, j->times + 2 * stages,
                                       (int64_t)llround(1e3 * v->hop)};
    TRY(tess_schedule_replay(j->schedule, &times, &j->result, j->in_flight,
                             v->timeline ? &j->timeline : NULL));
    if (v->timeline)
        TRY(tess_timeline_write(j->timeline, v->timeline));
    return v->out ? tess_schedule_write(j->schedule, v->out) : TESS_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void report(const job *j)
{
    cli *c = j->c;
    if (c->json) {
        json_t *list = json_array();
        for (int i = 0; i < j->info.ranks; i++)
            out_append(c, list, json_integer(j->in_flight[i]));
        out_set(c, c->json, "schedule", out_text(j->given->schedule));
        out_set(c, c->json, "stages", json_integer(j->info.ranks));
        out_set(c, c->json, "chunks", json_integer(j->info.stages / j->info.ranks));
        out_set(c, c->json, "batches", json_integer(j->info.batches));
        out_set(c, c->json, "actions", json_integer(j->info.actions));
        out_set(c, c->json, "ms", out_number((double)j->result.ns / 1e6));
        out_set(c, c->json, "ns", json_integer(j->result.ns));
        out_set(c, c->json, "bubble", out_number(j->result.bubble));
        out_set(c, c->json, "in_flight", list);
        return;
    }
    fprintf(c->out, "%s: %d ranks, %d stages, %lld micro-batches, %lld passes\n",
            j->given->schedule, j->info.ranks, j->info.stages, (long long)j->info.batches,
            (long long)j->info.actions);
    fprintf(c->out, "length          %14.6f ms\n", (double)j->result.ns / 1e6);
    fprintf(c->out, "bubble          %14.2f %% of the ranks' time\n", 100 * j->result.bubble);
    fprintf(c->out, "in flight       micro-batches, rank by rank:");
    for (int i = 0, column = 44; i < j->info.ranks; i++) {
        char number[16];
        const int wide = snprintf(number, sizeof number, "%d", j->in_flight[i]);
        if (column + 1 + wide > 79)
            column = fprintf(c->out, "\n%15s", "") - 1;
        column += fprintf(c->out, " %s", number);
    }
    fputc('\n', c->out);
}

/* ---- command --------------------------------------------------------------------------------- */

static tess_status run(cli *c, const void *given)
{
    job j = {.c = c, .given = given};
    tess_status status = open_schedule(&j);
    if (status == TESS_OK)
        status = replay(&j);
    if (status == TESS_OK)
        report(&j);
    tess_timeline_destroy(j.timeline);
    tess_schedule_destroy(j.schedule);
    free(j.times);
    free(j.in_flight);
    return out_input(c, status);
}

static const opt options[] = {
    {"schedule", 0, OPT_PATH, offsetof(values, schedule), "NAME|FILE.csv",
     .help = "gpipe, gpipe-looped, 1f1b, interleaved, zero-bubble, interleaved-zb, zb-v, or a file "
             "as torch.distributed.pipelining dumps it"},
    {"stages", 0, OPT_INT, offsetof(values, stages), "P", .min = 1, .max = 65536,
     .help = "ranks of the pipeline; of a file: its rows"},
    {"chunks", 0, OPT_INT, offsetof(values, chunks), "V", .min = 1, .max = 4096,
     .help = "virtual stages of a rank; default: 1, of zb-v 2, of a file what it has"},
    {"batches", 0, OPT_INT, offsetof(values, batches), "M", .min = 1, .max = 16777216,
     .help = "micro-batches; of a file: those it has"},
    {"forward-us", 0, OPT_STRING, offsetof(values, forward), "LIST", .initial = "1000",
     .help = "microseconds of a forward pass: one number, or one for each of the P x V virtual "
             "stages"},
    {"input-us", 0, OPT_STRING, offsetof(values, input), "LIST", .initial = "1000",
     .help = "the same of the gradient of the input"},
    {"weight-us", 0, OPT_STRING, offsetof(values, weight), "LIST", .initial = "1000",
     .help =
         "the same of the gradients of the weights; a whole backward pass takes input + weight"},
    {"hop-us", 0, OPT_DOUBLE, offsetof(values, hop), "X", .initial = "0", .min = 0, .max = 1e9,
     .help = "from a stage to its neighbour on another rank, while both compute"},
    {"timeline", 0, OPT_PATH, offsetof(values, timeline), "OUT.json[.gz]",
     .help = "write every pass for Perfetto"},
    {"schedule-out", 0, OPT_PATH, offsetof(values, out), "OUT.csv",
     .help = "write the schedule in PyTorch's form"},
};

static const example examples[] = {
    {"tessera pipeline --schedule 1f1b --stages 4 --batches 16", "length, bubble, in flight"},
    {"tessera pipeline --schedule zb-v --stages 4 --batches 16 --forward-us 900 --hop-us 20",
     "backward passes in two parts, with sends"},
    {"tessera pipeline --schedule dump.csv --forward-us 900,1000,1000,1300",
     "a schedule that PyTorch dumped, stages that differ"},
};

const command command_pipeline = {
    .name = "pipeline",
    .summary = "time of a pipeline schedule, pass by pass",
    .description =
        "A pass begins when its rank is free and its inputs are there: forward needs the stage "
        "before, backward the stage behind and the own forward pass, the gradients of the weights "
        "(W) that of the input (I). Orders are those of torch.distributed.pipelining; a file may "
        "have any other (docs/formats.md). Micro-batches in flight have run forward, and the "
        "gradient of their input is still to come.\n"
        "With --json the result has the members ms, ns, bubble, in_flight, schedule, stages, "
        "chunks, batches and actions.\n",
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
