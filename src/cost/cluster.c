/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c - clusters by name or by path, and what they hold.
 *
 * The shipped descriptions are the files of share/clusters, compiled in, so that a name works
 * wherever the library does; the same files are installed as models for a user's own.
 */
#include "cost_internal.h"

#include "tessera/advanced/nearest.h"

#include <string.h>

enum { NAMES_MAX = 64 };

int tess_cluster_count(void)
{
    return tess__n_shipped_clusters;
}

const char *tess_cluster_name(int index)
{
    return index >= 0 && index < tess__n_shipped_clusters ? tess__shipped_clusters[index].name
                                                          : NULL;
}

static int is_path(const char *name)
{
    const size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

static tess_status fail_name(const char *name)
{
    const char *names[NAMES_MAX];
    int n = 0;
    for (; n < tess__n_shipped_clusters && n < NAMES_MAX; n++)
        names[n] = tess__shipped_clusters[n].name;
    const char *near = tess_nearest(name, names, n);
    if (near)
        return tess__fail(TESS_EINVAL,
                          "tess_cluster_load: no cluster \"%.64s\"; did you mean \"%s\"?", name,
                          near);
    return tess__fail(TESS_EINVAL,
                      "tess_cluster_load: no cluster \"%.64s\"; a file needs a '/' or .json", name);
}

tess_status tess_cluster_load(tess_ctx *ctx, const char *name, tess_cluster **cluster)
{
    TESS_REQUIRE(ctx, name, cluster);
    if (is_path(name))
        return tess__cluster_parse(ctx, name, NULL, 0, cluster);
    for (int i = 0; i < tess__n_shipped_clusters; i++) {
        const tess__shipped *shipped = &tess__shipped_clusters[i];
        if (strcmp(name, shipped->name) == 0)
            return tess__cluster_parse(ctx, shipped->name, (const char *)shipped->text,
                                       shipped->bytes, cluster);
    }
    return fail_name(name);
}

tess_status tess_cluster_query(const tess_cluster *cluster, tess_cluster_info *info)
{
    TESS_REQUIRE(cluster, info);
    *info = cluster->info;
    return TESS_OK;
}

void tess_cluster_destroy(tess_cluster *cluster)
{
    if (!cluster)
        return;
    tess_ctx *ctx = cluster->ctx;
    tess__arena_free(&cluster->arena);
    tess__free(ctx, cluster);
}
