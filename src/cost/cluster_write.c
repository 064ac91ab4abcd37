/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_write.c - a cluster as the JSON that cluster_read.c reads: written and read, it is the
 * same. Derived members are written too, so that a user can read and change them.
 */
#include "cost_internal.h"

#include "file/file_internal.h"

#include <string.h>

static void add_text(tess__jw *w, const char *key, const char *text)
{
    tess__jw_text(w, key, text ? text : "");
}

static void add_gpu(tess__jw *w, const tess_cluster_info *i)
{
    static const char *const names[] = {"fp32", "bf16", "fp8"};
    const double flops[] = {i->flops_fp32, i->flops_bf16, i->flops_fp8};
    tess__jw_begin(w, "gpu", '{');
    add_text(w, "name", i->gpu);
    tess__jw_begin(w, "peak_tflops", '{');
    for (int k = 0; k < 3; k++)
        if (flops[k] > 0.0)
            tess__jw_real(w, names[k], flops[k] / 1e12);
    tess__jw_end(w, '}');
    tess__jw_real(w, "memory_gib", (double)i->memory / 1073741824.0);
    tess__jw_real(w, "memory_gbytes_per_s", i->memory_bandwidth / 1e9);
    if (i->power > 0.0)
        tess__jw_real(w, "power_watts", i->power);
    add_text(w, "origin", i->gpu_origin);
    tess__jw_end(w, '}');
}

static void add_node(tess__jw *w, const tess_cluster_info *i)
{
    tess__jw_begin(w, "node", '{');
    tess__jw_int(w, "gpus", i->node_gpus);
    tess__jw_begin(w, "link", '{');
    add_text(w, "name", i->link);
    tess__jw_real(w, "gbytes_per_s", i->link_bandwidth / 1e9);
    tess__jw_real(w, "latency_us", (double)i->link_latency / 1e3);
    tess__jw_real(w, "efficiency", i->link_efficiency);
    add_text(w, "origin", i->link_origin);
    tess__jw_end(w, '}');
    tess__jw_end(w, '}');
}

static void add_network(tess__jw *w, const tess_cluster_info *i)
{
    tess__jw_begin(w, "network", '{');
    add_text(w, "name", i->network);
    tess__jw_int(w, "nics", i->nics);
    tess__jw_real(w, "gbytes_per_s", i->nic_bandwidth / 1e9);
    tess__jw_real(w, "latency_us", (double)i->network_latency / 1e3);
    tess__jw_real(w, "efficiency", i->network_efficiency);
    tess__jw_real(w, "oversubscription", i->oversubscription);
    add_text(w, "origin", i->network_origin);
    tess__jw_end(w, '}');
}

static void add_software(tess__jw *w, const tess_cluster_info *i)
{
    tess__jw_begin(w, "launch", '{');
    tess__jw_real(w, "us", (double)i->launch / 1e3);
    add_text(w, "origin", i->launch_origin);
    tess__jw_end(w, '}');
    tess__jw_begin(w, "attention", '{');
    tess__jw_real(w, "forward", i->attn_forward);
    tess__jw_real(w, "backward", i->attn_backward);
    tess__jw_real(w, "sparse", i->attn_sparse);
    tess__jw_real(w, "row_keys", i->attn_row_keys);
    if (i->attn_part_keys > 0.0 && i->attn_part_keys != i->attn_row_keys)
        tess__jw_real(w, "part_keys", i->attn_part_keys);
    const struct {
        const char *name;
        double value;
    } measured[] = {{"flops", i->attn_flops},
                    {"pack_ns_per_byte", i->pack_ns},
                    {"select_ns_per_byte", i->select_ns},
                    {"load_ns_per_byte", i->load_ns}};
    for (int k = 0; k < 4; k++)
        if (measured[k].value != 0.0)
            tess__jw_real(w, measured[k].name, measured[k].value);
    add_text(w, "origin", i->attn_origin);
    tess__jw_end(w, '}');
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void add_hops(tess__jw *w, const char *key, const double *ns)
{
    tess__jw_begin(w, key, '{');
    tess__jw_real(w, "ll", ns[TESS_PROTOCOL_LL] / 1e3);
    tess__jw_real(w, "ll128", ns[TESS_PROTOCOL_LL128] / 1e3);
    tess__jw_real(w, "simple", ns[TESS_PROTOCOL_SIMPLE] / 1e3);
    tess__jw_end(w, '}');
}

static void add_link(tess__jw *w, const tess_collective_params *p)
{
    int n = 2;
    tess__jw_begin(w, "link", '{');
    tess__jw_real(w, "gbytes_per_s", p->ring / 1e9);
    while (n <= TESS_COLLECTIVE_GPUS_MAX && p->ring_by_gpus[n] <= 0.0)
        n++;
    if (n <= TESS_COLLECTIVE_GPUS_MAX) {
        tess__jw_begin(w, "by_gpus", '[');
        for (; n <= TESS_COLLECTIVE_GPUS_MAX; n++)
            if (p->ring_by_gpus[n] > 0.0) {
                tess__jw_row(w, NULL, '[');
                tess__jw_int(w, NULL, n);
                tess__jw_real(w, NULL, p->ring_by_gpus[n] / 1e9);
                tess__jw_end(w, ']');
            }
        tess__jw_end(w, ']');
    }
    add_hops(w, "ring_us", p->hop[TESS_ALGORITHM_RING]);
    add_hops(w, "tree_us", p->hop[TESS_ALGORITHM_TREE]);
    tess__jw_end(w, '}');
}

static void add_collectives(tess__jw *w, const tess_cluster_info *i)
{
    const tess_collective_params *p = &i->collectives;
    tess__jw_begin(w, "collectives", '{');
    tess__jw_real(w, "call_us", p->call / 1e3);
    tess__jw_int(w, "channels", p->channels);
    tess__jw_real(w, "channel_us", p->channel / 1e3);
    tess__jw_real(w, "loop_us", p->loop / 1e3);
    add_hops(w, "extra_us", p->extra);
    tess__jw_begin(w, "share", '{');
    tess__jw_real(w, "ll", p->share_ll);
    tess__jw_real(w, "ll128", p->share_ll128);
    tess__jw_real(w, "tree", p->share_tree);
    tess__jw_end(w, '}');
    add_link(w, p);
    if (i->nics > 0) {
        tess__jw_begin(w, "network", '{');
        tess__jw_real(w, "gbytes_per_s", p->network / 1e9);
        add_hops(w, "ring_us", p->net_hop[TESS_ALGORITHM_RING]);
        add_hops(w, "tree_us", p->net_hop[TESS_ALGORITHM_TREE]);
        tess__jw_end(w, '}');
    }
    if (p->nvls_bandwidth > 0.0) {
        tess__jw_begin(w, "nvls", '{');
        tess__jw_real(w, "gbytes_per_s", p->nvls_bandwidth / 1e9);
        tess__jw_real(w, "us", p->nvls / 1e3);
        tess__jw_int(w, "gpus", p->nvls_gpus);
        tess__jw_end(w, '}');
    }
    add_text(w, "origin", p->origin ? p->origin : "derived from the rest");
    tess__jw_end(w, '}');
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void add_cluster(tess__jw *w, const void *info)
{
    const tess_cluster_info *i = info;
    tess__jw_begin(w, NULL, '{');
    tess__jw_int(w, "schema", 1);
    add_text(w, "about", i->about);
    add_gpu(w, i);
    add_node(w, i);
    if (i->nics > 0)
        add_network(w, i);
    add_software(w, i);
    if (i->collectives.channels > 0) /* else they are not set, and the reader derives them */
        add_collectives(w, i);
    tess__jw_end(w, '}');
}

static tess_status check_texts(const tess_cluster_info *i)
{
    const char *const texts[] = {i->about,          i->gpu,
                                 i->gpu_origin,     i->link,
                                 i->link_origin,    i->network,
                                 i->network_origin, i->launch_origin,
                                 i->attn_origin,    i->collectives.origin};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        if (texts[k] && !tess__is_utf8(texts[k], strlen(texts[k])))
            return tess__fail(TESS_EINVAL, "tess_cluster_create: a text is not UTF-8");
    return TESS_OK;
}

tess_status tess_cluster_create(tess_ctx *ctx, const tess_cluster_info *info,
                                tess_cluster **cluster)
{
    TESS_REQUIRE(ctx, info, cluster);
    TESS_TRY(check_texts(info));
    tess__jw count = {.indent = 2};
    add_cluster(&count, info);
    tess__jw_buffer buffer = {.text = TESS_ALLOC(ctx, count.bytes + 1), .room = count.bytes + 1};
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .indent = 2};
    add_cluster(&w, info);
    const tess_status status = tess__cluster_parse(ctx, info->name ? info->name : "cluster",
                                                   buffer.text, buffer.used, cluster);
    tess__free(ctx, buffer.text);
    return status;
}

tess_status tess_cluster_save(const tess_cluster *cluster, const char *path)
{
    TESS_REQUIRE(cluster, path);
    return tess__json_save(cluster->ctx, path, add_cluster, &cluster->info);
}
