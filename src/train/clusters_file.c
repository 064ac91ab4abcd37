/* SPDX-License-Identifier: Apache-2.0 */
/* clusters_file.c - clusters of keys that all clips share, in a checkpoint: clusters.safetensors.
 *
 *   found                       (layers) int64: the step that renewed the layer last; 0: none yet
 *   blocks.N.attn1.centroids    (heads, clusters, head_dim) F32, of layers that were renewed
 */
#include "dsv/control.h"
#include "train_internal.h"

#include "tessera/file.h"

#include <string.h>
#include <unistd.h>

static const char clusters_file[] = "clusters.safetensors", steps_name[] = "found";
enum { NAME = 40 };

static int64_t layer_floats(const tess__control *c)
{
    return (int64_t)c->config.heads * c->attention.compensate * c->config.head_dim;
}

static tess_tensor centroids_of(const tess__control *c, int layer, char name[NAME])
{
    snprintf(name, NAME, "blocks.%d.attn1.centroids", layer);
    return (tess_tensor){.name = name,
                         .dtype = TESS_DTYPE_F32,
                         .rank = 3,
                         .shape = {c->config.heads, c->attention.compensate, c->config.head_dim},
                         .data = c->clusters.centroids + layer * layer_floats(c)};
}

tess_status tess__clusters_save(const tess__control *c, const char *dir)
{
    char path[PATH_MAX];
    const int layers = c->config.layers;
    if (!c->clusters.centroids)
        return TESS_OK;
    TESS_TRY(tess__path(path, dir, clusters_file));
    const size_t names = tess__arena_round(((size_t)layers + 1) * sizeof(tess_tensor));
    tess_tensor *tensors = TESS_ALLOC(c->ctx, names + (size_t)layers * NAME);
    char *name = (char *)tensors + names;
    int n = 1;
    tensors[0] = (tess_tensor){.name = steps_name,
                               .dtype = TESS_DTYPE_I64,
                               .rank = 1,
                               .shape = {layers},
                               .data = c->clusters.found};
    for (int layer = 0; layer < layers; layer++)
        if (c->clusters.found[layer] > 0)
            tensors[n++] = centroids_of(c, layer, name + (ptrdiff_t)layer * NAME);
    const tess_status status = tess_file_write(c->ctx, path, tensors, n, NULL);
    tess__free(c->ctx, tensors);
    return status;
}

static int same_shape(const tess_tensor *a, const tess_tensor *b)
{
    int same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->shape[d] == b->shape[d];
    return same;
}

static tess_status read_tensor(tess_file *file, const char *path, const tess_tensor *to)
{
    tess_tensor t;
    TESS_TRY(tess_file_tensor(file, to->name, &t));
    if (!same_shape(&t, to))
        return tess__fail(TESS_EFORMAT,
                          "%s: tensor \"%s\" is not of the %lld x %lld x %lld numbers that the "
                          "model and its clusters ask for",
                          path, to->name, (long long)to->shape[0], (long long)to->shape[1],
                          (long long)to->shape[2]);
    size_t bytes = tess_dtype_size(t.dtype);
    for (int d = 0; d < t.rank; d++)
        bytes *= (size_t)t.shape[d];
    memcpy((void *)(uintptr_t)to->data, t.data, bytes);
    return TESS_OK;
}

static tess_status read_all(tess__control *c, const char *path, tess_file *file)
{
    const tess_tensor found = {.name = steps_name,
                               .dtype = TESS_DTYPE_I64,
                               .rank = 1,
                               .shape = {c->config.layers, 1, 1},
                               .data = c->clusters.found};
    TESS_TRY(read_tensor(file, path, &found));
    for (int layer = 0; layer < c->config.layers; layer++) {
        char name[NAME];
        const tess_tensor to = centroids_of(c, layer, name);
        if (c->clusters.found[layer] > 0)
            TESS_TRY(read_tensor(file, path, &to));
    }
    return TESS_OK;
}

tess_status tess__clusters_load(tess__control *c, const char *dir)
{
    char path[PATH_MAX];
    tess_file *file = NULL;
    TESS_TRY(tess__path(path, dir, clusters_file));
    if (!c->clusters.centroids || access(path, F_OK) != 0)
        return TESS_OK;
    TESS_TRY(tess_file_open(c->ctx, path, &file));
    const tess_status status = read_all(c, path, file);
    tess_file_close(file);
    return status;
}
