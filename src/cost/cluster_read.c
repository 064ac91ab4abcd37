/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_read.c - a cluster from its JSON description, every value with its rule.
 *
 *   {"schema": 1, "about": text,
 *    "gpu": {"name", "peak_tflops": {"fp32", "bf16", "fp8"}, "memory_gib", "memory_gbytes_per_s",
 *            "power_watts" (optional), "origin"},
 *    "node": {"gpus", "link": {"name", "gbytes_per_s", "latency_us", "efficiency", "origin"}},
 *    "network": {"name", "nics", "gbytes_per_s", "latency_us", "efficiency", "oversubscription",
 *                "origin"},
 *    "launch": {"us", "origin"},
 *    "attention": {"forward", "backward", "sparse", "row_keys", "origin", and where measured
 *                  "part_keys", "flops", "pack_ns_per_byte", "select_ns_per_byte",
 *                  "load_ns_per_byte"},
 *    "collectives": cluster_collectives.c}
 *
 * A peak that is not known is left out, and so is the network of a single node. Decimal units:
 * 1 gbyte is 10^9 bytes; memory is binary, as GPUs are sold.
 */
#include "cost_internal.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* A number in [min, max] of the document's unit, times what that unit is here. */
static tess_status read_scaled(tess__json_node node, double min, double max, double unit,
                               double *out)
{
    double x = *out / unit;
    TESS_TRY(tess__json_double(node, min, max, &x));
    *out = x * unit;
    return TESS_OK;
}

static tess_status read_time(tess__json_node node, int64_t *ns)
{
    double us = 0.0;
    TESS_TRY(tess__json_double(node, 0.0, 1e6, &us));
    *ns = tess__ns(us * 1e3);
    return TESS_OK;
}

static tess_status read_gpu(tess_cluster *c, const tess__json_node *root)
{
    static const char *const names[] = {
        "name", "peak_tflops", "memory_gib", "memory_gbytes_per_s", "power_watts", "origin"};
    static const char *const peaks[] = {"fp32", "bf16", "fp8"};
    tess_cluster_info *info = &c->info;
    tess__json_node gpu, peak;
    double memory = 0.0;
    TESS_TRY(tess__json_object(tess__json_member(root, "gpu"), names, COUNT(names), &gpu));
    TESS_TRY(tess__json_text(tess__json_member(&gpu, "name"), &c->arena, &info->gpu));
    TESS_TRY(tess__json_object(tess__json_member(&gpu, "peak_tflops"), peaks, COUNT(peaks), &peak));
    double *const flops[] = {&info->flops_fp32, &info->flops_bf16, &info->flops_fp8};
    for (int i = 0; i < COUNT(peaks); i++)
        TESS_TRY(read_scaled(tess__json_optional(&peak, peaks[i]), 1e-3, 1e6, 1e12, flops[i]));
    TESS_TRY(read_scaled(tess__json_member(&gpu, "memory_gib"), 0.125, 1e6, 1073741824.0, &memory));
    info->memory = (int64_t)memory;
    TESS_TRY(read_scaled(tess__json_member(&gpu, "memory_gbytes_per_s"), 1e-3, 1e6, 1e9,
                         &info->memory_bandwidth));
    TESS_TRY(tess__json_double(tess__json_optional(&gpu, "power_watts"), 1.0, 1e5, &info->power));
    return tess__json_text(tess__json_member(&gpu, "origin"), &c->arena, &info->gpu_origin);
}

/* What the link inside a node and the network have in common. */
static tess_status read_link(tess_cluster *c, const tess__json_node *link, const char **name,
                             double *bandwidth, int64_t *latency, double *efficiency,
                             const char **origin)
{
    TESS_TRY(tess__json_text(tess__json_member(link, "name"), &c->arena, name));
    TESS_TRY(read_scaled(tess__json_member(link, "gbytes_per_s"), 1e-3, 1e6, 1e9, bandwidth));
    TESS_TRY(read_time(tess__json_member(link, "latency_us"), latency));
    TESS_TRY(tess__json_double(tess__json_member(link, "efficiency"), 0.01, 1.0, efficiency));
    return tess__json_text(tess__json_member(link, "origin"), &c->arena, origin);
}

static tess_status read_node(tess_cluster *c, const tess__json_node *root)
{
    static const char *const names[] = {"gpus", "link"};
    static const char *const links[] = {"name", "gbytes_per_s", "latency_us", "efficiency",
                                        "origin"};
    tess_cluster_info *info = &c->info;
    tess__json_node node, link;
    TESS_TRY(tess__json_object(tess__json_member(root, "node"), names, COUNT(names), &node));
    TESS_TRY(tess__json_int(tess__json_member(&node, "gpus"), 1, 4096, &info->node_gpus));
    TESS_TRY(tess__json_object(tess__json_member(&node, "link"), links, COUNT(links), &link));
    return read_link(c, &link, &info->link, &info->link_bandwidth, &info->link_latency,
                     &info->link_efficiency, &info->link_origin);
}

static tess_status read_network(tess_cluster *c, const tess__json_node *root)
{
    static const char *const names[] = {
        "name", "nics", "gbytes_per_s", "latency_us", "efficiency", "oversubscription", "origin"};
    tess_cluster_info *info = &c->info;
    tess__json_node net;
    TESS_TRY(tess__json_object(tess__json_optional(root, "network"), names, COUNT(names), &net));
    TESS_TRY(tess__json_int(tess__json_member(&net, "nics"), 1, 4096, &info->nics));
    TESS_TRY(tess__json_double(tess__json_member(&net, "oversubscription"), 1.0, 64.0,
                               &info->oversubscription));
    return read_link(c, &net, &info->network, &info->nic_bandwidth, &info->network_latency,
                     &info->network_efficiency, &info->network_origin);
}

static tess_status read_software(tess_cluster *c, const tess__json_node *root)
{
    static const char *const launches[] = {"us", "origin"};
    static const char *const names[] = {
        "forward",          "backward", "sparse",           "row_keys",
        "part_keys",        "flops",    "pack_ns_per_byte", "select_ns_per_byte",
        "load_ns_per_byte", "origin"};
    tess_cluster_info *info = &c->info;
    double *const copies[] = {&info->pack_ns, &info->select_ns, &info->load_ns};
    tess__json_node launch, attn;
    TESS_TRY(
        tess__json_object(tess__json_member(root, "launch"), launches, COUNT(launches), &launch));
    TESS_TRY(read_time(tess__json_member(&launch, "us"), &info->launch));
    TESS_TRY(
        tess__json_text(tess__json_member(&launch, "origin"), &c->arena, &info->launch_origin));
    TESS_TRY(tess__json_object(tess__json_member(root, "attention"), names, COUNT(names), &attn));
    TESS_TRY(
        tess__json_double(tess__json_member(&attn, "forward"), 0.001, 1.0, &info->attn_forward));
    TESS_TRY(
        tess__json_double(tess__json_member(&attn, "backward"), 0.001, 1.0, &info->attn_backward));
    TESS_TRY(tess__json_double(tess__json_member(&attn, "sparse"), 0.001, 1.0, &info->attn_sparse));
    TESS_TRY(
        tess__json_double(tess__json_member(&attn, "row_keys"), 0.0, 1e6, &info->attn_row_keys));
    info->attn_part_keys = info->attn_row_keys;
    TESS_TRY(tess__json_double(tess__json_optional(&attn, "part_keys"), 0.0, 1e6,
                               &info->attn_part_keys));
    TESS_TRY(tess__json_double(tess__json_optional(&attn, "flops"), 1e3, 1e21, &info->attn_flops));
    for (int i = 0; i < COUNT(copies); i++)
        TESS_TRY(tess__json_double(tess__json_optional(&attn, names[6 + i]), 0.0, 1e6, copies[i]));
    return tess__json_text(tess__json_member(&attn, "origin"), &c->arena, &info->attn_origin);
}

static tess_status read_cluster(tess_cluster *c, const tess__json *doc)
{
    static const char *const names[] = {"schema",  "about",  "gpu",       "node",
                                        "network", "launch", "attention", "collectives"};
    int schema;
    tess__json_node root;
    TESS_TRY(tess__json_object(tess__json_root(doc), names, COUNT(names), &root));
    TESS_TRY(tess__json_int(tess__json_member(&root, "schema"), 1, 1, &schema));
    TESS_TRY(tess__json_text(tess__json_member(&root, "about"), &c->arena, &c->info.about));
    TESS_TRY(read_gpu(c, &root));
    TESS_TRY(read_node(c, &root));
    TESS_TRY(read_network(c, &root));
    TESS_TRY(read_software(c, &root));
    TESS_TRY(tess__cluster_read_collectives(c, &root));
    char *name = tess__arena_string(&c->arena, doc->name, strlen(doc->name));
    c->info.name = name;
    return name ? TESS_OK : TESS_ENOMEM;
}

tess_status tess__cluster_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                tess_cluster **cluster)
{
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    tess_cluster *c = tess__alloc(ctx, sizeof *c);
    tess_status status = c ? TESS_OK : TESS_ENOMEM;
    if (c) {
        *c = (tess_cluster){.ctx = ctx,
                            .arena = {.ctx = ctx},
                            .info = {.network = "", .network_origin = "", .oversubscription = 1.0}};
        status = read_cluster(c, &doc);
    }
    tess__json_close(&doc);
    if (status == TESS_OK)
        *cluster = c;
    else
        tess_cluster_destroy(c);
    return status;
}
