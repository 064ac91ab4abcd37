/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_collectives.c - the part of a cluster's description that collectives need.
 *
 *   "collectives": {
 *     "call_us", "channels", "channel_us", "loop_us",
 *     "extra_us": hops, "share": {"ll", "ll128", "tree"},
 *     "link": {"gbytes_per_s", "by_gpus": [[gpus, gbytes_per_s], ...], "ring_us", "tree_us"},
 *     "network": {"gbytes_per_s", "ring_us", "tree_us"},
 *     "nvls": {"gbytes_per_s", "us", "gpus"}, "origin"}
 *
 * where extra_us, ring_us and tree_us are {"ll", "ll128", "simple"}. All of it is optional but
 * origin. What is left out comes from the nominal bandwidths with their efficiencies and from the
 * latencies that NCCL 2.22 itself counts with; call_us is then the cluster's launch.
 */
#include "cost_internal.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const char *const protocols[TESS_PROTOCOLS] = {"ll", "ll128", "simple"};

/* hwLat of NCCL 2.22, in ns; LL's hops inside a node as nccl-tests show them on A100, where they
 * take three times as long. */
static tess_collective_params derive(const tess_cluster_info *info)
{
    tess_collective_params p = {.call = (double)info->launch,
                                .channel = 1500.0,
                                .channels = 24,
                                .ring = info->link_bandwidth * info->link_efficiency,
                                .share_ll = 0.5,
                                .share_ll128 = 0.85,
                                .share_tree = 0.97,
                                .extra = {0.0, 8700.0, 32000.0},
                                .loop = 36000.0,
                                .hop = {{1850.0, 1900.0, 3400.0}, {1420.0, 1250.0, 4000.0}},
                                .net_hop = {{2700.0, 4000.0, 14000.0}, {5000.0, 8500.0, 14000.0}},
                                .nvls_gpus = 2};
    p.network = info->nics * info->nic_bandwidth * info->network_efficiency /
                (info->nics ? info->oversubscription : 1.0);
    return p;
}

/* Microseconds of the document are ns here. */
static tess_status read_us(tess__json_node node, double *ns)
{
    double us = *ns / 1e3;
    TESS_TRY(tess__json_double(node, 0.0, 1e6, &us));
    *ns = us * 1e3;
    return TESS_OK;
}

static tess_status read_rate(tess__json_node node, double *bytes_per_s)
{
    double rate = *bytes_per_s / 1e9;
    TESS_TRY(tess__json_double(node, 1e-3, 1e6, &rate));
    *bytes_per_s = rate * 1e9;
    return TESS_OK;
}

static tess_status read_hops(const tess__json_node *object, const char *key, double *ns)
{
    tess__json_node hops;
    TESS_TRY(tess__json_object(tess__json_optional(object, key), protocols, TESS_PROTOCOLS, &hops));
    for (int i = 0; i < TESS_PROTOCOLS; i++)
        TESS_TRY(read_us(tess__json_optional(&hops, protocols[i]), &ns[i]));
    return TESS_OK;
}

static tess_status read_by_gpus(const tess__json_node *link, tess_collective_params *p)
{
    tess__json_node list, pair;
    size_t n, two;
    TESS_TRY(tess__json_array(tess__json_optional(link, "by_gpus"), 0, TESS_COLLECTIVE_GPUS_MAX,
                              &list, &n));
    for (size_t i = 0; i < n; i++) {
        int gpus = 0;
        TESS_TRY(tess__json_array(tess__json_element(&list, i), 2, 2, &pair, &two));
        TESS_TRY(tess__json_int(tess__json_element(&pair, 0), 2, TESS_COLLECTIVE_GPUS_MAX, &gpus));
        TESS_TRY(read_rate(tess__json_element(&pair, 1), &p->ring_by_gpus[gpus]));
    }
    return TESS_OK;
}

static tess_status read_wires(const tess__json_node *object, tess_collective_params *p)
{
    static const char *const links[] = {"gbytes_per_s", "by_gpus", "ring_us", "tree_us"};
    static const char *const nets[] = {"gbytes_per_s", "ring_us", "tree_us"};
    static const char *const switches[] = {"gbytes_per_s", "us", "gpus"};
    tess__json_node link, net, nvls;
    TESS_TRY(tess__json_object(tess__json_optional(object, "link"), links, COUNT(links), &link));
    TESS_TRY(read_rate(tess__json_optional(&link, "gbytes_per_s"), &p->ring));
    TESS_TRY(read_by_gpus(&link, p));
    TESS_TRY(read_hops(&link, "ring_us", p->hop[TESS_ALGORITHM_RING]));
    TESS_TRY(read_hops(&link, "tree_us", p->hop[TESS_ALGORITHM_TREE]));
    TESS_TRY(tess__json_object(tess__json_optional(object, "network"), nets, COUNT(nets), &net));
    TESS_TRY(read_rate(tess__json_optional(&net, "gbytes_per_s"), &p->network));
    TESS_TRY(read_hops(&net, "ring_us", p->net_hop[TESS_ALGORITHM_RING]));
    TESS_TRY(read_hops(&net, "tree_us", p->net_hop[TESS_ALGORITHM_TREE]));
    TESS_TRY(
        tess__json_object(tess__json_optional(object, "nvls"), switches, COUNT(switches), &nvls));
    TESS_TRY(read_rate(tess__json_member(&nvls, "gbytes_per_s"), &p->nvls_bandwidth));
    TESS_TRY(read_us(tess__json_member(&nvls, "us"), &p->nvls));
    return tess__json_int(tess__json_member(&nvls, "gpus"), 2, 4096, &p->nvls_gpus);
}

tess_status tess__cluster_read_collectives(tess_cluster *cluster, const tess__json_node *root)
{
    static const char *const names[] = {"call_us", "channels", "channel_us", "loop_us", "extra_us",
                                        "share",   "link",     "network",    "nvls",    "origin"};
    static const char *const shares[] = {"ll", "ll128", "tree"};
    tess_collective_params *p = &cluster->info.collectives;
    tess__json_node object, share;
    *p = derive(&cluster->info);
    TESS_TRY(
        tess__json_object(tess__json_optional(root, "collectives"), names, COUNT(names), &object));
    TESS_TRY(read_us(tess__json_optional(&object, "call_us"), &p->call));
    TESS_TRY(tess__json_int(tess__json_optional(&object, "channels"), 1, 1024, &p->channels));
    TESS_TRY(read_us(tess__json_optional(&object, "channel_us"), &p->channel));
    TESS_TRY(read_us(tess__json_optional(&object, "loop_us"), &p->loop));
    TESS_TRY(read_hops(&object, "extra_us", p->extra));
    TESS_TRY(
        tess__json_object(tess__json_optional(&object, "share"), shares, COUNT(shares), &share));
    double *const values[] = {&p->share_ll, &p->share_ll128, &p->share_tree};
    for (int i = 0; i < COUNT(shares); i++)
        TESS_TRY(tess__json_double(tess__json_optional(&share, shares[i]), 0.01, 1.0, values[i]));
    TESS_TRY(read_wires(&object, p));
    return tess__json_text(tess__json_member(&object, "origin"), &cluster->arena, &p->origin);
}
