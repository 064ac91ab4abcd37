/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_cluster.c - tessera cluster: the shipped clusters, one of them in full, or this machine as
 * one. */
#include "commands.h"
#include "tessera/advanced/collectives.h"
#include "tessera/advanced/cost.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/predict.h"
#include "tessera/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const actions[] = {"list", "show", "measure", NULL};

typedef struct {
    common common;
    const char *action, *name, *out;
} values;

/* ---- list and show --------------------------------------------------------------------------- */

static tess_status run_list(cli *c)
{
    json_t *list = c->json ? json_array() : NULL;
    for (int i = 0; i < tess_cluster_count(); i++) {
        tess_cluster *cluster = NULL;
        tess_cluster_info info;
        const tess_status status = tess_cluster_load(c->ctx, tess_cluster_name(i), &cluster);
        if (status != TESS_OK) {
            json_decref(list);
            return status;
        }
        tess_cluster_query(cluster, &info);
        if (list)
            out_append(c, list,
                       json_pack("{s:s,s:s,s:s,s:i}", "name", info.name, "about", info.about, "gpu",
                                 info.gpu, "node_gpus", info.node_gpus));
        else
            fprintf(c->out, "%-12s %s\n", info.name, info.about);
        tess_cluster_destroy(cluster);
    }
    if (list)
        out_set(c, c->json, "clusters", list);
    return TESS_OK;
}

static void from(const cli *c, const char *origin)
{
    fprintf(c->out, "              ");
    out_wrap(c->out, origin, 14, 14);
    fputc('\n', c->out);
}

static void print_cluster(const cli *c, const tess_cluster_info *i)
{
    const tess_collective_params *p = &i->collectives;
    char memory[32];
    fprintf(c->out, "%s: %s\n", i->name, i->about);
    fprintf(c->out, "  gpu         %s, %s at %.0f GB/s", i->gpu, out_bytes(i->memory, memory),
            i->memory_bandwidth / 1e9);
    const double flops[] = {i->flops_fp32, i->flops_bf16, i->flops_fp8};
    static const char *const names[] = {"fp32", "bf16", "fp8"};
    for (int k = 0; k < 3; k++)
        if (flops[k] > 0.0)
            fprintf(c->out, ", %s %g TFLOP/s", names[k], flops[k] / 1e12);
    fputc('\n', c->out);
    from(c, i->gpu_origin);
    fprintf(c->out, "  node        %d GPUs, %s, %g GB/s each way at %g %%, %g us\n", i->node_gpus,
            i->link, i->link_bandwidth / 1e9, 100.0 * i->link_efficiency,
            (double)i->link_latency / 1e3);
    from(c, i->link_origin);
    if (i->nics) {
        fprintf(c->out, "  network     %d x %g GB/s, %s, at %g %%, %g us\n", i->nics,
                i->nic_bandwidth / 1e9, i->network, 100.0 * i->network_efficiency,
                (double)i->network_latency / 1e3);
        from(c, i->network_origin);
    }
    fprintf(c->out, "  launch      %g us\n", (double)i->launch / 1e3);
    from(c, i->launch_origin);
    fprintf(c->out,
            "  attention   forward %g, backward %g of the peak; sparse %g of that; %g keys "
            "a row\n",
            i->attn_forward, i->attn_backward, i->attn_sparse, i->attn_row_keys);
    from(c, i->attn_origin);
    fprintf(c->out, "  collectives call %g us, ring %g GB/s", p->call / 1e3, p->ring / 1e9);
    if (i->nics)
        fprintf(c->out, ", over nodes %g GB/s", p->network / 1e9);
    if (p->nvls_bandwidth > 0.0)
        fprintf(c->out, ", NVLS %g GB/s from %d GPUs on", p->nvls_bandwidth / 1e9, p->nvls_gpus);
    fputc('\n', c->out);
    from(c, p->origin ? p->origin : "derived from the rest");
}

static tess_status set_cluster(cli *c, const tess_cluster_info *i)
{
    const tess_collective_params *p = &i->collectives;
    out_set(c, c->json, "name", out_text(i->name));
    out_set(c, c->json, "about", out_text(i->about));
    out_set(c, c->json, "gpu", out_text(i->gpu));
    out_set(c, c->json, "node_gpus", json_integer(i->node_gpus));
    out_set(c, c->json, "memory_bytes", json_integer(i->memory));
    out_set(c, c->json, "memory_gbytes_per_s", json_real(i->memory_bandwidth / 1e9));
    out_set(c, c->json, "flops_fp32", json_real(i->flops_fp32));
    out_set(c, c->json, "flops_bf16", json_real(i->flops_bf16));
    out_set(c, c->json, "flops_fp8", json_real(i->flops_fp8));
    out_set(c, c->json, "link_gbytes_per_s", json_real(i->link_bandwidth / 1e9));
    out_set(c, c->json, "nics", json_integer(i->nics));
    out_set(c, c->json, "nic_gbytes_per_s", json_real(i->nic_bandwidth / 1e9));
    out_set(c, c->json, "ring_gbytes_per_s", json_real(p->ring / 1e9));
    out_set(c, c->json, "network_ring_gbytes_per_s", json_real(p->network / 1e9));
    return TESS_OK;
}

static tess_status run_show(cli *c, const values *v)
{
    tess_cluster *cluster = NULL;
    tess_cluster_info info;
    if (!v->name)
        return out_usage(c, "show needs the name of a cluster, or a file");
    TRY(tess_cluster_load(c->ctx, v->name, &cluster));
    tess_cluster_query(cluster, &info);
    tess_status status = TESS_OK;
    if (v->out)
        status = tess_cluster_save(cluster, v->out);
    if (status == TESS_OK && c->json)
        status = set_cluster(c, &info);
    else if (status == TESS_OK)
        print_cluster(c, &info);
    tess_cluster_destroy(cluster);
    return status;
}

/* ---- measure --------------------------------------------------------------------------------- */

typedef struct {
    tess_machine machine;
    tess_speed speed;
    double attn_forward, attn_backward, attn_sparse, attn_row_keys; /* as of tess_cluster_info */
    int ranks;
    tess_link link; /* zeros: there is no second rank */
} facts;

static tess_status measure_link(cli *c, tess_link *link)
{
    *link = (tess_link){0};
    return c->comm ? tess_comm_measure(c->comm, link) : TESS_OK;
}

/* Of the peak of one core, for one thread measures it. */
static double fraction(double flop, double ns, const tess_speed *speed)
{
    return fmin(fmax(flop * 1e9 / ns / speed->flops_one, 0.001), 1.0);
}

/* Heads of 128 on blocks of 64 x 64, as `tessera plan` takes them by default. */
static tess_status measure_attention(cli *c, facts *f)
{
    enum { HEAD_DIM = 128, BLOCK = 64, TOKENS = 2048 };
    const tess_attn_rates_shape shape = {.head_dim = HEAD_DIM,
                                         .queries = TOKENS,
                                         .keys = TOKENS,
                                         .group = BLOCK,
                                         .unit = BLOCK,
                                         .backward = 1};
    tess_attn_rates rates[2];
    TRY(tess_attn_measure(c->ctx, &shape, rates));
    f->attn_forward = fraction((double)TESS_FLOP_FORWARD * HEAD_DIM, rates[0].dense, &f->speed);
    f->attn_backward = fraction((double)TESS_FLOP_BACKWARD * HEAD_DIM, rates[1].dense, &f->speed);
    f->attn_sparse = fmin(fmax(rates[0].dense / rates[0].sparse, 0.001), 1.0);
    f->attn_row_keys = fmin(rates[0].per_row / rates[0].sparse, 1e6);
    return TESS_OK;
}

static tess_status gather(cli *c, facts *f)
{
    /* First, because the other ranks wait for it. */
    TRY(measure_link(c, &f->link));
    TRY(tess_machine_query(c->ctx, &f->machine));
    TRY(tess_machine_measure(c->ctx, &f->speed));
    return measure_attention(c, f);
}

/* This machine as a cluster: a "GPU" is what one rank has, all the cores it may use, and a node
 * has as many as were started on one host. */
static tess_cluster_info describe(const facts *f, char *about, size_t about_bytes)
{
    const tess_link *link = &f->link;
    const int pinged = link->bandwidth > 0.0 || link->network_bandwidth > 0.0;
    const double rate = link->bandwidth > 0.0 ? link->bandwidth : f->speed.copy_all;
    const int64_t latency = link->bandwidth > 0.0 ? link->latency : 100;
    const int64_t slowest = latency > link->network_latency ? latency : link->network_latency;
    const double hop = pinged ? (double)slowest : 0.0;
    const char *messages = "tessera cluster measure: pings of 8 B, an all-to-all of 4 MiB";
    snprintf(about, about_bytes, "%.100s, %d cores, as measured", f->machine.cpu,
             f->machine.cores_usable);
    return (tess_cluster_info){
        .name = "measured",
        .about = about,
        .gpu = f->machine.cpu,
        .flops_fp32 = f->speed.flops_all,
        .memory = f->machine.memory_total,
        .memory_bandwidth = f->speed.read_all,
        .gpu_origin = "tessera cluster measure: multiply-adds on registers, reading memory",
        .node_gpus = link->node_ranks > 0 ? link->node_ranks : f->ranks,
        .link = link->bandwidth > 0.0 ? "MPI" : "memory",
        .link_bandwidth = rate,
        .link_latency = latency,
        .link_efficiency = 1.0,
        .link_origin = link->bandwidth > 0.0 ? messages
                                             : "memcpy on all cores; latency assumed: start two "
                                               "ranks with mpirun to measure",
        .nics = link->node_ranks,
        .network = link->node_ranks > 0 ? "MPI" : NULL,
        .nic_bandwidth = link->network_bandwidth,
        .network_latency = link->network_latency,
        .network_efficiency = 1.0,
        .oversubscription = 1.0,
        .network_origin = link->node_ranks > 0 ? messages : NULL,
        .launch = slowest,
        .launch_origin = pinged ? "the smallest message" : "assumed",
        .attn_forward = f->attn_forward,
        .attn_backward = f->attn_backward,
        .attn_sparse = f->attn_sparse,
        .attn_row_keys = f->attn_row_keys,
        .attn_origin = "tessera cluster measure: one head of 128, 2048 tokens, 64 x 64 blocks",
        .collectives = {.call = (double)slowest,
                        .channels = 1,
                        .ring = rate,
                        .network = link->network_bandwidth * link->node_ranks,
                        .share_ll = 1.0,
                        .share_ll128 = 1.0,
                        .share_tree = 1.0,
                        .hop = {{hop, hop, hop}, {hop, hop, hop}},
                        .origin = pinged ? "the same messages" : "derived from the rest"},
    };
}

static void print_link(const cli *c, const char *name, int64_t latency, double bandwidth)
{
    if (bandwidth > 0.0)
        fprintf(c->out, "  %-9s  %.2f us, %.2f GB/s each way of each rank\n", name,
                (double)latency * 1e-3, bandwidth * 1e-9);
}

static void print_facts(const cli *c, const facts *f)
{
    char a[32];
    fprintf(c->out, "%s: %d of %d cores usable, %s\n", f->machine.cpu, f->machine.cores_usable,
            f->machine.cores, out_bytes(f->machine.memory_total, a));
    fprintf(c->out, "  fp32       %.1f GFLOP/s\n", f->speed.flops_all / 1e9);
    fprintf(c->out, "  memory     %.2f GB/s read, %.2f GB/s copied\n", f->speed.read_all / 1e9,
            f->speed.copy_all / 1e9);
    fprintf(c->out, "  attention  forward %.2f, backward %.2f of the peak; sparse %.2f of that\n",
            f->attn_forward, f->attn_backward, f->attn_sparse);
    print_link(c, "messages", f->link.latency, f->link.bandwidth);
    print_link(c, "network", f->link.network_latency, f->link.network_bandwidth);
    if (f->ranks == 1)
        fprintf(c->out, "  messages   not measured: start two ranks with mpirun\n");
}

/* null where there is none. */
static void set_link(cli *c, const char *time, int64_t latency, const char *rate, double bandwidth)
{
    const int there = bandwidth > 0.0;
    out_set(c, c->json, time, there ? json_real((double)latency * 1e-3) : json_null());
    out_set(c, c->json, rate, there ? json_real(bandwidth * 1e-9) : json_null());
}

static void set_facts(cli *c, const facts *f)
{
    out_set(c, c->json, "cpu", out_text(f->machine.cpu));
    out_set(c, c->json, "cores", json_integer(f->machine.cores_usable));
    out_set(c, c->json, "memory_bytes", json_integer(f->machine.memory_total));
    out_set(c, c->json, "flops_fp32", json_real(f->speed.flops_all));
    out_set(c, c->json, "read_gbytes_per_s", json_real(f->speed.read_all / 1e9));
    out_set(c, c->json, "copy_gbytes_per_s", json_real(f->speed.copy_all / 1e9));
    out_set(c, c->json, "attn_forward", json_real(f->attn_forward));
    out_set(c, c->json, "attn_backward", json_real(f->attn_backward));
    out_set(c, c->json, "attn_sparse", json_real(f->attn_sparse));
    out_set(c, c->json, "attn_row_keys", json_real(f->attn_row_keys));
    set_link(c, "message_us", f->link.latency, "message_gbytes_per_s", f->link.bandwidth);
    set_link(c, "network_us", f->link.network_latency, "network_gbytes_per_s",
             f->link.network_bandwidth);
}

static tess_status run_measure(cli *c, const values *v)
{
    facts f = {.ranks = c->ranks > 1 ? c->ranks : 1};
    char about[256];
    if (v->name)
        return out_usage(c, "measure takes no name: \"%.80s\"", v->name);
    TRY(gather(c, &f));
    if (v->out) {
        tess_cluster *cluster = NULL;
        const tess_cluster_info info = describe(&f, about, sizeof about);
        TRY(tess_cluster_create(c->ctx, &info, &cluster));
        const tess_status status = tess_cluster_save(cluster, v->out);
        tess_cluster_destroy(cluster);
        TRY(status);
    }
    if (c->json)
        set_facts(c, &f);
    else
        print_facts(c, &f);
    if (v->out && !c->json)
        fprintf(c->out, "%s: this machine as a cluster\n", v->out);
    return TESS_OK;
}

/* The other ranks take part in the measurement of messages. */
static tess_status serve(cli *c, const void *given)
{
    const values *v = given;
    tess_link link;
    if (strcmp(v->action, "measure") != 0 || v->name)
        return TESS_OK;
    return measure_link(c, &link);
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    tess_status status;
    if (strcmp(v->action, "list") == 0)
        status = v->name || v->out ? out_usage(c, "list takes no name and no --out") : run_list(c);
    else
        status = strcmp(v->action, "show") == 0 ? run_show(c, v) : run_measure(c, v);
    return out_input(c, status);
}

static const opt arguments[] = {
    {"ACTION", 0, OPT_CHOICE, offsetof(values, action), .choices = actions, .required = 1,
     .help = "what to do"},
    {"NAME", 0, OPT_PATH, offsetof(values, name),
     .help = "with show: a shipped name or a JSON file"},
};

static const opt options[] = {
    {"out", 'o', OPT_PATH, offsetof(values, out), "FILE.json",
     .help = "write the cluster: the one shown, or this machine"},
};

static const example examples[] = {
    {"tessera cluster list", "the clusters that are shipped"},
    {"tessera cluster show azure-ndv4", "its numbers, and where they come from"},
    {"mpirun -n 2 tessera cluster measure --out here.json", "this machine as a cluster"},
};

const command command_cluster = {
    .name = "cluster",
    .summary = "the machines that times are predicted for",
    .description = "Lists the shipped clusters, shows one with the origin of its numbers, or "
                   "measures this machine: cores, memory, and under mpirun with two ranks or more "
                   "messages between them, inside hosts and between hosts.\n"
                   "--out writes a cluster that all commands take, to be changed by hand or fitted "
                   "with tessera collective --calibrate.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
    .serve = serve,
};
