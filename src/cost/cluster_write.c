/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_write.c - a cluster as the JSON that cluster_read.c reads: written and read, it is the
 * same. Members that were derived are written too, so that they can be seen and changed.
 *
 * Every value goes straight into its object, which owns it: jansson drops a value that it cannot
 * set, so that nothing is left behind when memory runs out.
 */
#include "cost_internal.h"

#include <string.h>

/* The objects under way; bad is set by the first value that could not be made. */
typedef struct {
    int bad;
} maker;

static void set(maker *m, json_t *object, const char *key, json_t *value)
{
    m->bad |= json_object_set_new(object, key, value) != 0;
}

static void set_real(maker *m, json_t *object, const char *key, double value)
{
    set(m, object, key, json_real(value));
}

static void set_text(maker *m, json_t *object, const char *key, const char *text)
{
    set(m, object, key, json_string(text ? text : ""));
}

/* A new object inside another, which keeps it alive. */
static json_t *set_object(maker *m, json_t *object, const char *key)
{
    json_t *inner = json_object();
    set(m, object, key, inner);
    return m->bad ? NULL : inner;
}

static void set_gpu(maker *m, json_t *root, const tess_cluster_info *i)
{
    static const char *const names[] = {"fp32", "bf16", "fp8"};
    const double flops[] = {i->flops_fp32, i->flops_bf16, i->flops_fp8};
    json_t *gpu = set_object(m, root, "gpu");
    set_text(m, gpu, "name", i->gpu);
    json_t *peaks = set_object(m, gpu, "peak_tflops");
    for (int k = 0; k < 3; k++)
        if (flops[k] > 0.0)
            set_real(m, peaks, names[k], flops[k] / 1e12);
    set_real(m, gpu, "memory_gib", (double)i->memory / 1073741824.0);
    set_real(m, gpu, "memory_gbytes_per_s", i->memory_bandwidth / 1e9);
    set_text(m, gpu, "origin", i->gpu_origin);
}

static void set_wires(maker *m, json_t *root, const tess_cluster_info *i)
{
    json_t *node = set_object(m, root, "node");
    set(m, node, "gpus", json_integer(i->node_gpus));
    json_t *link = set_object(m, node, "link");
    set_text(m, link, "name", i->link);
    set_real(m, link, "gbytes_per_s", i->link_bandwidth / 1e9);
    set_real(m, link, "latency_us", (double)i->link_latency / 1e3);
    set_real(m, link, "efficiency", i->link_efficiency);
    set_text(m, link, "origin", i->link_origin);
    if (i->nics == 0)
        return;
    json_t *net = set_object(m, root, "network");
    set_text(m, net, "name", i->network);
    set(m, net, "nics", json_integer(i->nics));
    set_real(m, net, "gbytes_per_s", i->nic_bandwidth / 1e9);
    set_real(m, net, "latency_us", (double)i->network_latency / 1e3);
    set_real(m, net, "efficiency", i->network_efficiency);
    set_real(m, net, "oversubscription", i->oversubscription);
    set_text(m, net, "origin", i->network_origin);
}

static void set_software(maker *m, json_t *root, const tess_cluster_info *i)
{
    json_t *launch = set_object(m, root, "launch");
    set_real(m, launch, "us", (double)i->launch / 1e3);
    set_text(m, launch, "origin", i->launch_origin);
    json_t *attn = set_object(m, root, "attention");
    set_real(m, attn, "forward", i->attn_forward);
    set_real(m, attn, "backward", i->attn_backward);
    set_real(m, attn, "sparse", i->attn_sparse);
    set_real(m, attn, "row_keys", i->attn_row_keys);
    set_text(m, attn, "origin", i->attn_origin);
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void set_hops(maker *m, json_t *object, const char *key, const double *ns)
{
    json_t *hops = set_object(m, object, key);
    set_real(m, hops, "ll", ns[TESS_PROTOCOL_LL] / 1e3);
    set_real(m, hops, "ll128", ns[TESS_PROTOCOL_LL128] / 1e3);
    set_real(m, hops, "simple", ns[TESS_PROTOCOL_SIMPLE] / 1e3);
}

static void set_by_gpus(maker *m, json_t *link, const tess_collective_params *p)
{
    json_t *list = json_array();
    for (int n = 2; n <= TESS_COLLECTIVE_GPUS_MAX; n++) {
        if (p->ring_by_gpus[n] <= 0.0)
            continue;
        json_t *pair = json_array();
        m->bad |= json_array_append_new(pair, json_integer(n)) != 0;
        m->bad |= json_array_append_new(pair, json_real(p->ring_by_gpus[n] / 1e9)) != 0;
        m->bad |= json_array_append_new(list, pair) != 0;
    }
    if (json_array_size(list))
        set(m, link, "by_gpus", list);
    else
        json_decref(list);
}

static void set_collectives(maker *m, json_t *root, const tess_cluster_info *i)
{
    const tess_collective_params *p = &i->collectives;
    json_t *c = set_object(m, root, "collectives");
    set_real(m, c, "call_us", p->call / 1e3);
    set(m, c, "channels", json_integer(p->channels));
    set_real(m, c, "channel_us", p->channel / 1e3);
    set_real(m, c, "loop_us", p->loop / 1e3);
    set_hops(m, c, "extra_us", p->extra);
    json_t *share = set_object(m, c, "share");
    set_real(m, share, "ll", p->share_ll);
    set_real(m, share, "ll128", p->share_ll128);
    set_real(m, share, "tree", p->share_tree);
    json_t *link = set_object(m, c, "link");
    set_real(m, link, "gbytes_per_s", p->ring / 1e9);
    set_by_gpus(m, link, p);
    set_hops(m, link, "ring_us", p->hop[TESS_ALGORITHM_RING]);
    set_hops(m, link, "tree_us", p->hop[TESS_ALGORITHM_TREE]);
    if (i->nics > 0) {
        json_t *net = set_object(m, c, "network");
        set_real(m, net, "gbytes_per_s", p->network / 1e9);
        set_hops(m, net, "ring_us", p->net_hop[TESS_ALGORITHM_RING]);
        set_hops(m, net, "tree_us", p->net_hop[TESS_ALGORITHM_TREE]);
    }
    if (p->nvls_bandwidth > 0.0) {
        json_t *nvls = set_object(m, c, "nvls");
        set_real(m, nvls, "gbytes_per_s", p->nvls_bandwidth / 1e9);
        set_real(m, nvls, "us", p->nvls / 1e3);
        set(m, nvls, "gpus", json_integer(p->nvls_gpus));
    }
    set_text(m, c, "origin", p->origin ? p->origin : "derived from the rest");
}

/* ---- the whole ------------------------------------------------------------------------------- */

json_t *tess__cluster_json(const tess_cluster_info *i)
{
    maker m = {0};
    json_t *root = json_object();
    set(&m, root, "schema", json_integer(1));
    set_text(&m, root, "about", i->about);
    set_gpu(&m, root, i);
    set_wires(&m, root, i);
    set_software(&m, root, i);
    if (i->collectives.channels > 0) /* else nobody has filled them, and they are derived */
        set_collectives(&m, root, i);
    if (m.bad) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* Why there is no JSON: a text that is not UTF-8, or no memory. */
static tess_status fail_text(const tess_cluster_info *i)
{
    const char *const texts[] = {i->about,          i->gpu,
                                 i->gpu_origin,     i->link,
                                 i->link_origin,    i->network,
                                 i->network_origin, i->launch_origin,
                                 i->attn_origin,    i->collectives.origin};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        json_t *any = texts[k] ? json_string_nocheck(texts[k]) : NULL;
        json_t *good = any ? json_string(texts[k]) : NULL;
        const int bad = any && !good;
        json_decref(any);
        json_decref(good);
        if (bad)
            return tess__fail(TESS_EINVAL, "tess_cluster_create: a text is not UTF-8");
    }
    return tess__fail(TESS_ENOMEM, "no memory for a cluster's description");
}

tess_status tess_cluster_create(tess_ctx *ctx, const tess_cluster_info *info,
                                tess_cluster **cluster)
{
    if (!ctx || !info || !cluster)
        return tess__fail(TESS_EINVAL, "tess_cluster_create: %s is NULL, must not be",
                          !ctx    ? "ctx"
                          : !info ? "info"
                                  : "cluster");
    json_t *root = tess__cluster_json(info);
    if (!root)
        return fail_text(info);
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!text)
        return tess__fail(TESS_ENOMEM, "no memory for a cluster's description");
    const tess_status status =
        tess__cluster_parse(ctx, info->name ? info->name : "cluster", text, strlen(text), cluster);
    json_free_t release; /* what jansson allocates, it may have been told to free otherwise */
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return status;
}

tess_status tess_cluster_save(const tess_cluster *cluster, const char *path)
{
    if (!cluster || !path)
        return tess__fail(TESS_EINVAL, "tess_cluster_save: %s is NULL, must not be",
                          !cluster ? "cluster" : "path");
    json_t *root = tess__cluster_json(&cluster->info);
    const tess_status status = tess__json_write(cluster->ctx, path, root);
    json_decref(root);
    return status;
}
