/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c - tessera bench: times a problem, compared with dense attention and the peak. */
#include "bench/bench_output.h"
#include "commands.h"

#include <stdlib.h>

typedef struct {
    common common;
    strings texts;
    const char *file, *compare, *cache;
    int64_t samples;
} values;

static tess_status measure_all(cli *c, const problems *list, const values *given, report *reports)
{
    json_t *baseline = NULL;
    tess_status status = TESS_OK;
    if (given->compare)
        status = baseline_read(c, given->compare, &baseline);
    for (int i = 0; i < list->n && status == TESS_OK; i++) {
        status = measure(c, &list->items[i], (int)given->samples, &reports[i]);
        progress_clear(c);
        if (status == TESS_OK && !c->json) {
            if (i == 0)
                workload_head(c);
            bench_print(c, &reports[i]);
        }
        if (status == TESS_OK && out_flush(c) != 0)
            status = out_fail(c, TESS_EIO, "stdout: the result cannot be written");
    }
    if (status == TESS_OK) {
        measure_break_even(reports, list->n);
        if (c->json) {
            bench_json(c, reports, list->n);
        } else {
            bench_print_all(c, reports, list->n);
        }
        if (baseline)
            bench_compare(c, baseline, reports, list->n);
    }
    json_decref(baseline);
    return status;
}

/* Where a step must know from which density on its heads are dense. */
static tess_status choose_cache(cli *c, const problems *list, const char *given)
{
    for (int i = 0; i < list->n; i++)
        if (problem_is_sparse_step(&list->items[i]) && list->items[i].break_even == 0)
            return cache_choose(c, given);
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    problems list;
    report *reports = NULL;
    tess_status status = problems_read(c, &v->texts, v->file, &list);
    if (status == TESS_OK)
        status = choose_cache(c, &list, v->cache);
    if (status == TESS_OK) {
        reports = calloc((size_t)list.n, sizeof *reports);
        status = reports ? measure_all(c, &list, v, reports)
                         : out_fail(c, TESS_ENOMEM, "no memory for %d reports", list.n);
    }
    for (int i = 0; reports && i < list.n; i++)
        measure_free(&reports[i]);
    free(reports);
    problems_free(&list);
    return status;
}

/* What the other ranks do: their part of the problems that run on all of them. */
static tess_status serve(cli *c, const void *given)
{
    const values *v = given;
    problems list;
    report part;
    tess_status status = problems_read(c, &v->texts, v->file, &list);
    for (int i = 0; i < list.n && status == TESS_OK; i++)
        if (problem_on_mpi(&list.items[i])) {
            status = measure(c, &list.items[i], (int)v->samples, &part);
            measure_free(&part);
        }
    problems_free(&list);
    return status;
}

static const opt arguments[] = {
    {"PROBLEM", 0, OPT_STRINGS, offsetof(values, texts),
     .help = "what to measure: a kind and its keys, such as attn,heads=8,density=0.1"},
};

static const opt options[] = {
    {"file", 0, OPT_PATH, offsetof(values, file), "FILE",
     .help = "also measure the problems in a file, one to a line; # begins a comment"},
    {"cache", 0, OPT_PATH, offsetof(values, cache), "DIR|none",
     .help = "folder that stores the break-even densities of sparse steps; default: tessera in "
             "XDG_CACHE_HOME or ~/.cache"},
    {"samples", 0, OPT_INT, offsetof(values, samples), "N", "7", .min = 1, .max = 10000,
     .unit = "samples",
     .help = "undisturbed samples wanted of each call; four times as many are tried"},
    {"compare", 0, OPT_PATH, offsetof(values, compare), "FILE",
     .help = "compare with an earlier result of --json; exit with 3 if a fraction of the peak is "
             "lower by more than that run's own spread"},
};

static const example examples[] = {
    {"tessera bench attn,heads=8,tokens=8192,density=0.1,unit=1 -j 1", "token lists on one core"},
    {"tessera bench context,ranks=8,heads=40,density=0.2 context,ranks=8,heads=40,density=0.2,"
     "bandwidth=0.125",
     "strategies of context parallelism on two kinds of links"},
    {"mpirun -n 4 tessera bench context,links=mpi,heads=40,density=0.2",
     "the same over the real network"},
    {"tessera bench --file bench/quick.txt --json > base.json", "a baseline"},
    {"tessera bench --file bench/quick.txt --compare base.json", "did anything become slower"},
};

const command command_bench = {
    .name = "bench",
    .summary = "measure a problem beside dense attention and the peak",
    .description =
        "Times each problem, a sparse one together with dense attention of the same shape. The "
        "FMA peak is measured around each sample, and disturbed samples are dropped. Rates and "
        "ratios are of the best sample, and work is counted as 4 pairs x dim forward and 10 "
        "backward.\n\n"
        "In the table share is the fraction of the peak, ideal the time over density x dense time, "
        "dense the speed-up over dense attention, select the same with the time of the "
        "selection, by a predictor of projection dimension 16, added. The break-even density is "
        "where "
        "sparse with its selection takes as long as dense: between measured densities if "
        "problems differ in density alone, otherwise estimated.\n\n"
        "A step is split into the time of attention, of linear layers with their epilogues (bias, "
        "GELU, gate and residual) and of the rest. With a density or a profile it is "
        "timed dense and then sparse, as in the second stage of training. The speed-up includes "
        "selection, loss, gradients and update of the predictor, and the part of a profile and "
        "of a check of recall that falls on a step; the bound is that of attention which takes "
        "as much less time as it has fewer pairs.\n\n"
        "With ranks=N a step is timed on one rank of one thread and on N of them that share the "
        "tokens, alternately and by the wall clock: N cores must be free. Times are medians and "
        "include planning and the exchange of gradients and updated weights; printed are the "
        "fractions of planning, of selecting keys and sending their indices (index), of packing "
        "and unpacking rows, and of waiting for gradients and weights.\n\n"
        "A context problem runs attention on ranks that are threads with injected links. Their "
        "clocks are virtual: eight ranks on two cores measure what eight cores with such links "
        "would take. With links=mpi its ranks are those that mpirun started, with the links "
        "they have, by the wall clock. For each strategy it shows the planned imbalance; CPU "
        "time of attention, the busiest rank's over the mean: of each rank's best sample, the "
        "median over samples, and that of the worst layer; predicted and measured milliseconds "
        "of the best sample, and of the last one the mean rank's in attention, in exchanges, "
        "and in packing and selecting keys (rest); MiB that the busiest rank sent, and that over "
        "the cost model's count (/model); and the keys that were sent over those needed. Then "
        "the strategy that the planner would choose, over the fastest one of each layer, and "
        "Spearman's "
        "correlation of predicted and measured times. Several such problems end in a table.\n\n"
        "docs/formats.md lists the members that --json prints.\n",
    TABLE(arguments),
    .tables = problem_keys,
    .n_tables = PROBLEM_KINDS,
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
    .serve = serve,
};
