/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_collective.c - tessera collective: the time of a collective on a cluster, a sweep in the form
 * of nccl-tests, and a cluster fitted to what nccl-tests printed or tessera trace wrote. */
#include "choices.h"
#include "commands.h"
#include "tessera/advanced/cost.h"
#include "tessera/cluster.h"

#include <stdlib.h>
#include <string.h>

static const char *ops[TESS_COLLECTIVE_OPS + 1]; /* bind fills them */

typedef struct {
    common common;
    const char *op, *cluster, *out;
    int64_t bytes, gpus, per_node, begin, end, factor;
    strings calibrate;
} values;

static tess_collective_op op_of(const char *word)
{
    return (tess_collective_op)choices_find(ops, word);
}

/* ---- one call -------------------------------------------------------------------------------- */

static void set_result(cli *c, json_t *object, const tess_collective *work,
                       const tess_collective_result *r)
{
    out_set(c, object, "bytes", json_integer(work->bytes));
    out_set(c, object, "time_us", json_real((double)r->ns / 1e3));
    out_set(c, object, "algbw_gbytes_per_s", json_real(r->algbw / 1e9));
    out_set(c, object, "busbw_gbytes_per_s", json_real(r->busbw / 1e9));
    out_set(c, object, "algorithm", json_string(tess_algorithm_name(r->algorithm)));
    out_set(c, object, "protocol", json_string(tess_protocol_name(r->protocol)));
    out_set(c, object, "channels", json_integer(r->channels));
}

static void print_result(const cli *c, const tess_collective *work, const tess_collective_result *r)
{
    char size[32];
    fprintf(c->out, "%s of %s on %d GPUs\n", tess_collective_name(work->op),
            out_bytes(work->bytes, size), work->gpus);
    fprintf(c->out, "  time       %.2f us\n", (double)r->ns / 1e3);
    fprintf(c->out, "  algbw      %.2f GB/s\n", r->algbw / 1e9);
    fprintf(c->out, "  busbw      %.2f GB/s\n", r->busbw / 1e9);
    fprintf(c->out, "  algorithm  %s, %s, %d channel%s\n", tess_algorithm_name(r->algorithm),
            tess_protocol_name(r->protocol), r->channels, out_plural(r->channels));
}

static void set_head(cli *c, const values *v, const tess_cluster_info *info)
{
    out_set(c, c->json, "op", json_string(v->op));
    out_set(c, c->json, "gpus", json_integer(v->gpus));
    out_set(c, c->json, "cluster", out_text(info->name));
}

static tess_status run_one(cli *c, const values *v, const tess_cluster *cluster)
{
    const tess_collective work = {op_of(v->op), v->bytes, (int)v->gpus, (int)v->per_node, 0};
    tess_cluster_info info;
    tess_collective_result r;
    TRY(tess_cluster_query(cluster, &info));
    TRY(tess_collective_time(cluster, &work, &r));
    if (c->json) {
        set_head(c, v, &info);
        set_result(c, c->json, &work, &r);
    } else {
        print_result(c, &work, &r);
    }
    return TESS_OK;
}

/* ---- a sweep --------------------------------------------------------------------------------- */

static void print_time(FILE *f, double us)
{
    fprintf(f, us >= 1e4 ? " %7.0f" : us >= 1e2 ? " %7.1f" : " %7.2f", us);
}

/* The head nccl-tests print, so that programs which read theirs read this. */
static void print_head(const cli *c, const values *v, const tess_cluster_info *info)
{
    const int64_t k = v->per_node ? v->per_node : info->node_gpus;
    fprintf(c->out,
            "# Predicted by tessera %s for cluster %s\n"
            "# Collective test starting: %s\n"
            "# nThread 1 nGpus 1 minBytes %lld maxBytes %lld step: %lld(factor) warmup iters: 0 "
            "iters: 0 agg iters: 1 validation: 0 graph: 0\n#\n# Using devices\n",
            tess_version(), info->name, tess_nccl_test_name(op_of(v->op)), (long long)v->begin,
            (long long)v->end, (long long)v->factor);
    for (int64_t i = 0; i < v->gpus; i++)
        fprintf(c->out, "#  Rank %2lld Group  0 Pid %6lld on node-%lld device %2lld [0x00] %s\n",
                (long long)i, (long long)i, (long long)(i / k), (long long)(i % k), info->gpu);
    fprintf(c->out,
            "#\n#%61s %34s\n#%11s %13s %9s %7s %7s %8s %7s %7s %6s %8s %7s %7s %6s\n"
            "#%11s %13s %9s %7s %7s %8s %7s %7s %6s %8s %7s %7s %6s\n",
            "out-of-place", "in-place", "size", "count", "type", "redop", "root", "time", "algbw",
            "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "(B)", "(elements)", "", "", "",
            "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static void print_row(const cli *c, const tess_collective *work, const tess_collective_result *r)
{
    const int reduces = work->op == TESS_ALL_REDUCE || work->op == TESS_REDUCE_SCATTER;
    const int divided =
        work->op != TESS_ALL_REDUCE && work->op != TESS_BROADCAST && work->op != TESS_SEND_RECEIVE;
    fprintf(c->out, "%12lld %13lld %9s %7s %7d ", (long long)work->bytes,
            (long long)(work->bytes / 4 / (divided ? work->gpus : 1)), "float",
            reduces ? "sum" : "none", work->op == TESS_BROADCAST ? 0 : -1);
    for (int i = 0; i < 2; i++) {
        print_time(c->out, (double)r->ns / 1e3);
        fprintf(c->out, " %7.2f %7.2f %6s%s", r->algbw / 1e9, r->busbw / 1e9, "N/A",
                i ? "\n" : " ");
    }
}

static tess_status run_sweep(cli *c, const values *v, const tess_cluster *cluster)
{
    tess_cluster_info info;
    json_t *rows = c->json ? json_array() : NULL;
    double sum = 0.0;
    int n = 0;
    TRY(tess_cluster_query(cluster, &info));
    if (v->end < v->begin)
        return out_usage(c, "--end is %lld, must be at least --begin, %lld", (long long)v->end,
                         (long long)v->begin);
    for (int64_t bytes = v->begin; bytes <= v->end; bytes *= v->factor) {
        const tess_collective work = {op_of(v->op), bytes, (int)v->gpus, (int)v->per_node, 0};
        tess_collective_result r;
        const tess_status status = tess_collective_time(cluster, &work, &r);
        if (status != TESS_OK) {
            json_decref(rows);
            return status;
        }
        if (n++ == 0 && !rows)
            print_head(c, v, &info);
        sum += r.busbw / 1e9;
        if (rows) {
            json_t *row = json_object();
            set_result(c, row, &work, &r);
            out_append(c, rows, row);
        } else {
            print_row(c, &work, &r);
        }
    }
    if (rows) {
        set_head(c, v, &info);
        out_set(c, c->json, "rows", rows);
    } else {
        fprintf(c->out, "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : %g\n#\n", sum / n);
    }
    return TESS_OK;
}

/* ---- a fit ----------------------------------------------------------------------------------- */

static tess_status gather(cli *c, const values *v, int node_gpus, tess_nccl_log **logs,
                          tess_collective_row **rows, int64_t *n)
{
    int64_t total = 0;
    for (int i = 0; i < v->calibrate.n; i++) {
        const tess_collective_row *list;
        int64_t count;
        TRY(tess_collective_rows_open(c->ctx, v->calibrate.items[i], op_of(v->op), node_gpus,
                                      &logs[i]));
        TRY(tess_nccl_log_rows(logs[i], &list, &count));
        total += count;
    }
    *rows = malloc((size_t)total * sizeof **rows);
    if (!*rows)
        return out_fail(c, TESS_ENOMEM, "no memory for %lld rows", (long long)total);
    for (int i = 0; i < v->calibrate.n; i++) {
        const tess_collective_row *list;
        int64_t count;
        TRY(tess_nccl_log_rows(logs[i], &list, &count));
        memcpy(*rows + *n, list, (size_t)count * sizeof *list);
        *n += count;
    }
    return TESS_OK;
}

static tess_status print_fit(cli *c, const values *v, const tess_collective_fit *r)
{
    if (c->json) {
        out_set(c, c->json, "cluster", out_text(v->out));
        out_set(c, c->json, "rows", json_integer(r->rows));
        out_set(c, c->json, "mean_abs_pct_before", json_real(100.0 * r->before));
        out_set(c, c->json, "mean_abs_pct", json_real(100.0 * r->after));
        out_set(c, c->json, "rows_16mib", json_integer(r->rows_large));
        out_set(c, c->json, "mean_abs_pct_16mib", json_real(100.0 * r->after_large));
        return TESS_OK;
    }
    fprintf(c->out, "%s: fitted to %lld rows\n", v->out, (long long)r->rows);
    fprintf(c->out, "  mean error, all sizes      %5.1f %%, was %.1f %%\n", 100.0 * r->after,
            100.0 * r->before);
    fprintf(c->out, "  from 16 MiB on, %4lld rows  %5.1f %%, was %.1f %%\n",
            (long long)r->rows_large, 100.0 * r->after_large, 100.0 * r->before_large);
    return TESS_OK;
}

static tess_status run_fit(cli *c, const values *v, const tess_cluster *cluster)
{
    tess_nccl_log **logs = calloc((size_t)v->calibrate.n, sizeof(tess_nccl_log *));
    tess_collective_row *rows = NULL;
    tess_cluster *fitted = NULL;
    tess_collective_fit report;
    tess_cluster_info info;
    int64_t n = 0;
    char origin[512];
    if (!logs)
        return out_fail(c, TESS_ENOMEM, "no memory for %d logs", v->calibrate.n);
    tess_status status = tess_cluster_query(cluster, &info);
    if (status == TESS_OK)
        status = gather(c, v, v->per_node ? (int)v->per_node : info.node_gpus, logs, &rows, &n);
    if (status == TESS_OK) {
        char name[400];
        snprintf(origin, sizeof origin, "fitted to %lld measured collectives: %s%s", (long long)n,
                 out_clean(v->calibrate.items[0], name, sizeof name),
                 v->calibrate.n > 1 ? " and others" : "");
        status = tess_cluster_calibrate(c->ctx, cluster, rows, n, origin, &fitted, &report);
    }
    if (status == TESS_OK)
        status = tess_cluster_save(fitted, v->out);
    if (status == TESS_OK)
        status = print_fit(c, v, &report);
    tess_cluster_destroy(fitted);
    for (int i = 0; i < v->calibrate.n; i++)
        tess_nccl_log_close(logs[i]);
    free(rows);
    free(logs);
    return status;
}

static tess_status check(cli *c, const values *v)
{
    const int sweep = v->begin || v->end;
    if (v->calibrate.n && (sweep || v->bytes))
        return out_usage(c, "--calibrate fits a cluster and prices nothing: leave out --bytes, "
                            "--begin and --end");
    if (v->calibrate.n && !v->out)
        return out_usage(c, "--calibrate needs --out, the cluster it writes");
    if (!v->calibrate.n && v->out)
        return out_usage(c, "--out belongs to --calibrate");
    if (!v->calibrate.n && !sweep && !v->bytes)
        return out_usage(c, "needs --bytes, or --begin and --end, or --calibrate");
    if (sweep && (v->bytes || !v->begin || !v->end))
        return out_usage(c, "a sweep needs --begin and --end, and no --bytes");
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    tess_cluster *cluster = NULL;
    tess_status status = check(c, v);
    if (status == TESS_OK)
        status = out_option(c, "--cluster", tess_cluster_load(c->ctx, v->cluster, &cluster));
    if (status == TESS_OK)
        status = v->calibrate.n ? run_fit(c, v, cluster)
                 : v->begin     ? run_sweep(c, v, cluster)
                                : run_one(c, v, cluster);
    tess_cluster_destroy(cluster);
    return out_input(c, status);
}

static const opt options[] = {
    {"op", 0, OPT_CHOICE, offsetof(values, op), "OP", .initial = "all_reduce", .choices = ops,
     .help = "the collective; with --calibrate that of logs which do not name theirs"},
    {"bytes", 0, OPT_SIZE, offsetof(values, bytes), "SIZE", .min = 1, .max = 9007199254740992.0,
     .help = "as nccl-tests count: of a rank's larger buffer"},
    {"gpus", 0, OPT_INT, offsetof(values, gpus), "N", .initial = "8", .min = 1, .max = 1048576,
     .unit = "GPUs", .help = "GPUs that take part"},
    {"per-node", 0, OPT_INT, offsetof(values, per_node), "K", .min = 1, .max = 4096, .unit = "GPUs",
     .help = "of them in a node; as many as a node has unless given"},
    {"cluster", 0, OPT_STRING, offsetof(values, cluster), "NAME|FILE", .initial = "h100",
     .help = "the machine; with --calibrate the one to start from"},
    {"begin", 0, OPT_SIZE, offsetof(values, begin), "SIZE", .min = 1, .max = 9007199254740992.0,
     .help = "first size of a sweep"},
    {"end", 0, OPT_SIZE, offsetof(values, end), "SIZE", .min = 1, .max = 9007199254740992.0,
     .help = "last size of a sweep"},
    {"factor", 0, OPT_INT, offsetof(values, factor), "F", .initial = "2", .min = 2, .max = 1024,
     .help = "from one size of a sweep to the next"},
    {"calibrate", 0, OPT_PATHS, offsetof(values, calibrate), "LOG",
     .help = "fit the cluster's collectives to what nccl-tests printed, or to the CSV of tessera "
             "trace --collectives"},
    {"out", 'o', OPT_PATH, offsetof(values, out), "CLUSTER.json",
     .help = "where --calibrate writes the cluster"},
};

static void bind(void)
{
    for (int i = 0; i < TESS_COLLECTIVE_OPS; i++)
        ops[i] = tess_collective_name((tess_collective_op)i);
}

static const example examples[] = {
    {"tessera collective --bytes 64M --gpus 16 --cluster azure-ndv4",
     "time, bandwidths, algorithm and protocol"},
    {"tessera collective --begin 8 --end 1G --gpus 8 --cluster h100",
     "a sweep, as nccl-tests print it"},
    {"tessera collective --calibrate nccl.log --cluster a100-80 --out mine.json",
     "describe your own cluster"},
};

const command command_collective = {
    .name = "collective",
    .summary = "predict the time of all-reduce and its kin",
    .description =
        "Predicts a collective of NCCL on a cluster: its time, algorithm and bus bandwidth as "
        "nccl-tests define them, and which algorithm and protocol NCCL is believed to pick.\n"
        "With --begin and --end it prints a whole sweep in nccl-tests' own form. With --calibrate "
        "it reads that form, from one or several logs, fits what the model needs and writes a "
        "cluster that all commands take: rows of one GPU are passed over, times are those out of "
        "place. It also reads what tessera trace --collectives wrote: of each call the time of the "
        "shortest member counts, and ranks are counted node by node, --per-node of them or as many "
        "as a node has.\n",
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .bind = bind,
    .run = run,
};
