/* SPDX-License-Identifier: Apache-2.0 */
/* cp_rates.c - what ranks and links do, agreed on and put into a cluster.
 *
 * Every rank times its own attention; the group takes the median of each number, so that one rank
 * that was disturbed decides nothing, and all plan alike. Links are measured together. Packing and
 * unpacking are no part of a link's time: the price counts them by the bytes that each rank copies.
 * With a cluster's name nothing is measured.
 */
#include "cp_internal.h"

#include "cost/cost_internal.h"
#include "tessera/advanced/predict.h"

#include <math.h>
#include <string.h>

enum { NODE = 6, MEMORY = 7, NUMBERS = 8 }; /* of a rank: its rates, its node, its memory */

/* What the executor was measured to take in terms of the probe (`tessera bench context`, Zen 4 and
 * Xeon): copies of a row that is packed or unpacked; of a selected row, which is found in bits,
 * announced and stored by itself. */
static const double packed_copies = 1.5, selected_copies = 2.5;

/* FLOP of 1e9 pairs for each element of a head: over ns of a pair they are FLOP/s, and over FLOP/s
 * they are ns. */
static const double forward_flop = TESS_FLOP_FORWARD * 1e9;
static const double backward_flop = TESS_FLOP_BACKWARD * 1e9;

/* The limits of a cluster's description. */
static const double least_flops = 1e9, least_bandwidth = 1e6, most_bandwidth = 1e15;
static const double least_packing = 1e-9; /* ns of a byte: rounds to nothing in a price */

/* The median over ranks of column i of all (ranks, NUMBERS); scratch (ranks). */
static double median(const double *all, int ranks, int i, double *scratch)
{
    for (int r = 0; r < ranks; r++)
        scratch[r] = all[(size_t)r * NUMBERS + (size_t)i];
    tess__sort(scratch, (size_t)ranks);
    return scratch[(ranks - 1) / 2];
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* ns per byte of rows of a head that are copied as messages are packed, on one thread. */
static tess_status time_copies(tess_ctx *ctx, int head_dim, double *ns)
{
    enum { ROWS = 32768, ROUNDS = 12, HEADS = 16 };
    const size_t row = (size_t)head_dim * sizeof(float);
    char *from = TESS_ALLOC(ctx, 2 * ROWS * row);
    char *to = from + ROWS * row;
    memset(from, 1, 2 * ROWS * row);
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t start = tess__cpu_ns();
        for (size_t i = 0; i < ROWS; i++) /* the rows of all heads lie between neighbours */
            memcpy(to + i * row, from + (i % HEADS * (ROWS / HEADS) + i / HEADS) * row, row);
        best = fmin(best, fmax((double)(tess__cpu_ns() - start), 1.0));
    }
    tess__free(ctx, from);
    *ns = best / (double)(ROWS * row);
    return TESS_OK;
}

/* Attention on lists of so many queries and keys at most, and copies, in about a fifth of a second.
 * K and V of a key come from memory once for each head or part of one, as many as there are rows:
 * their bytes, copied, are added to both fixed costs. */
static tess_status measure_rates(const tess_cp *c, const tess_cp_opts *o, tess__rates *rates)
{
    const int64_t queries = o->tokens < 384 ? o->tokens : 384;
    const int64_t keys = o->tokens < 2048 ? o->tokens : 2048;
    const int64_t group = o->n_groups ? (o->tokens + o->n_groups - 1) / o->n_groups : 128;
    const int64_t unit = o->n_units ? (o->tokens + o->n_units - 1) / o->n_units : 1;
    const tess_attn_rates_shape shape = {.head_dim = o->head_dim,
                                         .queries = queries,
                                         .keys = keys,
                                         .group = (int32_t)(group < queries ? group : queries),
                                         .unit = (int32_t)(unit < keys ? unit : keys),
                                         .backward = o->train != 0,
                                         .seconds = 0.2};
    tess_attn_rates pass[2] = {0};
    double copied = 0.0;
    TESS_TRY(tess_attn_measure(c->ctx, &shape, pass));
    TESS_TRY(time_copies(c->ctx, o->head_dim, &copied));
    const tess_attn_rates *f = &pass[0], *b = &pass[1];
    const double threads = c->ctx->threads;
    const double key = 2.0 * o->head_dim * sizeof(float) * copied / f->sparse;
    const double more = (double)TESS_FLOP_BACKWARD / TESS_FLOP_FORWARD;
    *rates = (tess__rates){
        .forward = f->sparse / threads,
        .backward = (o->train ? b->sparse : more * f->sparse) / threads,
        .row_keys = fmax(f->per_row / f->sparse, f->per_row_cold / f->sparse - 1.0) + key,
        .part_keys = f->per_part / f->sparse + key,
        .dense = fmin((f->dense + b->dense) / (f->sparse + b->sparse), 1.0),
        .copied = copied / threads};
    return TESS_OK;
}

static tess_status own_rates(const tess_cp *c, const tess_cp_opts *o, tess__rates *rates)
{
    if (o->flops == 0.0)
        return measure_rates(c, o, rates);
    *rates = (tess__rates){.forward = forward_flop * o->head_dim / o->flops,
                           .backward = backward_flop * o->head_dim / o->flops,
                           .dense = 1.0};
    return TESS_OK;
}

/* Whether node i has the ranks [i * per_node, (i + 1) * per_node), as the planner takes it. */
static int nodes_in_order(const double *all, int ranks, int nodes)
{
    const int per_node = (ranks + nodes - 1) / nodes;
    for (int r = 0; r < ranks; r++)
        if ((int)all[(size_t)r * NUMBERS + NODE] != r / per_node)
            return 0;
    return 1;
}

/* Of the rank that has least, in whole eighths of a GiB: the ranks of a node share its memory. */
static double least_memory(const double *all, int ranks)
{
    double least = INFINITY;
    for (int r = 0; r < ranks; r++) {
        int sharers = 0;
        for (int i = 0; i < ranks; i++)
            sharers += all[(size_t)i * NUMBERS + NODE] == all[(size_t)r * NUMBERS + NODE];
        least = fmin(least, all[(size_t)r * NUMBERS + MEMORY] / sharers);
    }
    return floor(least / 134217728.0) * 134217728.0;
}

/* What the group agreed on besides c->rates. */
typedef struct {
    int nodes;
    int ordered;   /* the ranks of each node are neighbours */
    double memory; /* of the rank that has least */
} world;

static tess_status agree_rates(tess_cp *c, const tess_cp_opts *o, int node, world *w)
{
    tess_machine machine = {0};
    const size_t n = (size_t)c->ranks;
    tess__rates own = {0};
    tess__arena arena = {.ctx = c->ctx};
    double *all = tess__arena_take(&arena, n * NUMBERS * sizeof *all);
    double *scratch = tess__arena_take(&arena, n * sizeof *scratch);
    int64_t *sizes = tess__arena_take(&arena, n * sizeof *sizes);
    tess_status status = all && scratch && sizes ? own_rates(c, o, &own) : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess_machine_query(c->ctx, &machine);
    status = tess_comm_agree(c->comm, status);
    if (status == TESS_OK) {
        const double mine[NUMBERS] = {
            own.forward, own.backward, own.row_keys, own.part_keys,
            own.dense,   own.copied,   node,         (double)machine.memory_total};
        for (size_t r = 0; r < n; r++)
            sizes[r] = sizeof mine;
        status = tess_comm_allgatherv(c->comm, TESS_TRAFFIC_CONTROL, mine, sizeof mine, all, sizes);
    }
    if (status == TESS_OK) {
        double *const rates[NODE] = {&c->rates.forward,   &c->rates.backward, &c->rates.row_keys,
                                     &c->rates.part_keys, &c->rates.dense,    &c->rates.copied};
        for (int i = 0; i < NODE; i++)
            *rates[i] = median(all, c->ranks, i, scratch);
        w->ordered = nodes_in_order(all, c->ranks, w->nodes);
        w->memory = least_memory(all, c->ranks);
    }
    tess__arena_free(&arena);
    return status;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

/* Within what a cluster's description may have; 0 is not limited. */
static double described(double bandwidth)
{
    return bandwidth == 0.0 || bandwidth > most_bandwidth ? most_bandwidth
           : bandwidth > least_bandwidth                  ? bandwidth
                                                          : least_bandwidth;
}

/* How many wires the ranks of a node have between them: as many as one alone would need to get what
 * they get together. */
static int adapters(const tess_link *link, int per_node)
{
    const double wires = link->network_alone > 0.0
                             ? link->network_bandwidth * per_node / link->network_alone
                             : per_node;
    return wires < 1.5 ? 1 : wires > per_node - 0.5 ? per_node : (int)(wires + 0.5);
}

static tess_status describe(const tess_cp *c, const tess_link *link, const world *w,
                            tess_cluster **cluster)
{
    const double forward = forward_flop * c->opts.head_dim / c->rates.forward;
    const double backward = backward_flop * c->opts.head_dim / c->rates.backward;
    const double faster = TESS_MAX(forward, backward);
    const double peak = TESS_MAX(faster, least_flops);
    const int per_node = (c->ranks + w->nodes - 1) / w->nodes;
    const char *origin = "measured by these ranks";
    tess_cluster_info info = {.name = "measured",
                              .about = "the ranks of this job",
                              .gpu = "rank",
                              .flops_fp32 = peak,
                              .memory = (int64_t)w->memory,
                              .memory_bandwidth = 1e9,
                              .gpu_origin = origin,
                              .node_gpus = per_node,
                              .link = "ranks of a node",
                              .link_bandwidth = described(link->bandwidth),
                              .link_latency = link->latency,
                              .link_efficiency = 1.0,
                              .link_origin = origin,
                              .network = "",
                              .oversubscription = 1.0,
                              .network_origin = origin,
                              .launch_origin = "part of the latency",
                              .attn_forward = forward / peak,
                              .attn_backward = backward / peak,
                              .attn_sparse = 1.0,
                              .attn_row_keys = c->rates.row_keys,
                              .attn_part_keys = c->rates.part_keys,
                              .pack_ns = packed_copies * c->rates.copied,
                              .select_ns = selected_copies * c->rates.copied,
                              .load_ns = c->rates.copied,
                              .attn_origin = origin};
    if (w->nodes > 1) {
        info.network = "between nodes";
        info.nics = adapters(link, per_node);
        info.nic_bandwidth = described(link->network_bandwidth * per_node / info.nics);
        info.network_latency = link->network_latency;
        info.network_efficiency = 1.0;
    }
    return tess_cluster_create(c->ctx, &info, cluster);
}

/* Bandwidth that several samples share. */
static double shared(double bandwidth, int batch)
{
    const double each = bandwidth / batch;
    return bandwidth == 0.0 || each > least_bandwidth ? each : least_bandwidth;
}

/* The cluster for a pass of several samples at once. Work counts a pair of tokens in each of them,
 * so that attention's rate stays. Where rates were measured the work includes the fixed cost of
 * rows, but for that of each further key part. */
static tess_status divide(tess_cp *c, tess_cluster **priced)
{
    tess_cluster_info info;
    TESS_TRY(tess_cluster_query(c->cluster, &info));
    c->how.memory = info.memory / c->opts.batch;
    info.attn_row_keys = c->measured ? 0.0 : info.attn_row_keys * c->opts.batch;
    info.attn_part_keys *= c->opts.batch;
    /* The executor packs rows on every cluster: where the price is unknown, the least one makes the
     * planner try equal head counts too. */
    info.pack_ns = info.pack_ns > 0 ? info.pack_ns * c->opts.batch : least_packing;
    info.select_ns *= c->opts.batch;
    info.load_ns *= c->opts.batch;
    info.collectives = (tess_collective_params){0}; /* not used here */
    info.link_bandwidth = shared(info.link_bandwidth, c->opts.batch);
    info.nic_bandwidth = shared(info.nic_bandwidth, c->opts.batch);
    return tess_cluster_create(c->ctx, &info, priced);
}

static void report_rates(const tess_cp *c, const tess_cp_opts *o, const tess_link *link, int nodes)
{
    const tess__rates *r = &c->rates;
    char wires[160] = "", rows[160] = "";
    if (o->train)
        snprintf(rows, sizeof rows, " forward, %.1f backward",
                 TESS_FLOP_BACKWARD * (double)c->opts.head_dim / r->backward);
    if (o->flops == 0.0)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows),
                 " on lists, a row as %.0f keys and %.0f for each part of them, dense %.2fx as "
                 "fast; copies %.1f GB/s",
                 r->row_keys, r->part_keys, 1.0 / r->dense, 1.0 / r->copied);
    if (c->ranks > nodes)
        snprintf(wires, sizeof wires, "; links %.1f us, %.2f GB/s", (double)link->latency * 1e-3,
                 link->bandwidth * 1e-9);
    if (nodes > 1)
        snprintf(wires + strlen(wires), sizeof wires - strlen(wires),
                 "; between %d nodes %.1f us, %.2f GB/s", nodes,
                 (double)link->network_latency * 1e-3, link->network_bandwidth * 1e-9);
    tess__cp_report(c, TESS_CP_RATES, -1, "rates %s: attention %.1f GFLOP/s%s%s",
                    o->flops > 0.0 ? "given" : "measured",
                    TESS_FLOP_FORWARD * (double)c->opts.head_dim / r->forward, rows, wires);
}

static tess_status measured_cluster(tess_cp *c, const tess_cp_opts *o)
{
    tess_comm_info comm;
    tess_link link = {0};
    TESS_TRY(tess_comm_query(c->comm, &comm));
    world w = {.nodes = comm.nodes};
    TESS_TRY(agree_rates(c, o, comm.node, &w));
    if (c->ranks > 1)
        TESS_TRY(tess_comm_measure(c->comm, &link));
    if (!w.ordered) {
        tess__cp_report(c, TESS_CP_FALLBACK, -1,
                        "the ranks of a node are not neighbours: planned as one node with the "
                        "links between nodes");
        link.bandwidth = link.network_bandwidth;
        link.latency = link.network_latency;
        w.nodes = 1;
    }
    c->how.nodes = w.nodes;
    c->measured = 1;
    report_rates(c, o, &link, w.nodes);
    return describe(c, &link, &w, &c->cluster);
}

static tess_status named_cluster(tess_cp *c, const tess_cp_opts *o)
{
    tess_cluster_info info;
    TESS_TRY(tess_cluster_load(c->ctx, o->cluster, &c->cluster));
    TESS_TRY(tess_cluster_query(c->cluster, &info));
    if (o->flops > 0.0) {
        tess_cluster *named = c->cluster;
        c->cluster = NULL;
        info.attn_flops = o->flops;
        const tess_status status = tess_cluster_create(c->ctx, &info, &c->cluster);
        tess_cluster_query(c->cluster, &info);
        tess_cluster_destroy(named);
        TESS_TRY(status);
    }
    c->rates.dense = 1.0;
    tess__cp_report(c, TESS_CP_RATES, -1, "rates of cluster %s%s", info.name,
                    o->flops > 0.0 ? ", attention's given" : "");
    return TESS_OK;
}

/* The rates of another context. */
static tess_status same_cluster(tess_cp *c, const tess_cp *like)
{
    tess_cluster_info info;
    c->rates = like->rates;
    c->measured = like->measured;
    c->how.nodes = like->how.nodes;
    TESS_TRY(tess_cluster_query(like->cluster, &info));
    return tess_cluster_create(c->ctx, &info, &c->cluster);
}

tess_status tess__cp_rates(tess_cp *c, const tess_cp_opts *o)
{
    tess_status status = o->rates_from ? same_cluster(c, o->rates_from)
                         : o->cluster  ? named_cluster(c, o)
                                       : measured_cluster(c, o);
    if (status == TESS_OK)
        status = divide(c, &c->priced);
    return tess_comm_agree(c->comm, status);
}
