/* SPDX-License-Identifier: Apache-2.0 */
/* dist_activations.c - activations saved by forward for backward, and a share's rows in them.
 *
 *   | q | k, v | o | lse | dense | bits | kind_data | rows |      each aligned to 64 bytes
 *
 * q and o have (batch, q.packed_rows, head_dim) floats, k and v (batch, kv.packed_rows, head_dim),
 * with the packed rows of the layer, so that a buffer for the largest layer is sufficient for all.
 */
#include "dist_attn_internal.h"

enum { ARRAYS = 8 };

static void list_arrays(const tess_dist_attn *d, const tess__dist_layer *layer,
                        size_t bytes[ARRAYS])
{
    const size_t batch = (size_t)d->opts.batch, dim = (size_t)d->opts.head_dim;
    const size_t q = batch * (size_t)layer->q.packed_rows,
                 k = batch * (size_t)layer->kv.packed_rows;
    bytes[0] = bytes[2] = q * dim * sizeof(float);
    bytes[1] = 2 * k * dim * sizeof(float);
    bytes[3] = q * sizeof(float);
    bytes[4] = batch * (size_t)layer->n_shares;
    bytes[5] = batch * layer->bits;
    bytes[6] = layer->kind_bytes;
    bytes[7] = d->opts.group_rows ? q * sizeof(int32_t) : 0;
}

size_t tess__activation_bytes(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    size_t bytes[ARRAYS], all = 0;
    list_arrays(d, layer, bytes);
    for (int i = 0; i < ARRAYS; i++)
        all += tess__arena_round(bytes[i]);
    return all;
}

void tess__activation_layout(const tess_dist_attn *d, const tess__dist_layer *layer,
                             tess__activations *acts)
{
    size_t bytes[ARRAYS];
    void *array[ARRAYS];
    char *at = acts->memory.data;
    list_arrays(d, layer, bytes);
    for (int i = 0; i < ARRAYS; i++) {
        array[i] = at;
        at += tess__arena_round(bytes[i]);
    }
    acts->layer = -1;
    acts->q = array[0];
    acts->k = array[1];
    acts->v = acts->k + d->opts.batch * layer->kv.packed_rows * d->opts.head_dim;
    acts->o = array[2];
    acts->lse = array[3];
    acts->dense = array[4];
    acts->bits = array[5];
    acts->kind_data = array[6];
    acts->rows = array[7];
}

static tess_view rows_at(float *packed, int64_t place, int width)
{
    return (tess_view){.data = packed + place * width, .dtype = TESS_DTYPE_F32, .stride_s = width};
}

tess_view tess__share_q(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width)
{
    return rows_at(packed, sample * layer->q.packed_rows + share->q_place, width);
}

tess_view tess__share_k(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width)
{
    return rows_at(packed, sample * layer->kv.packed_rows + share->k_place, width);
}

void tess__use_clusters(const tess_dist_attn *d, const tess_dist_call *call, int sample,
                        int32_t head)
{
    const int64_t set = (int64_t)d->opts.compensate * d->opts.head_dim;
    if (d->opts.compensate > 1 && call->centroids)
        tess__attn_use_centroids(d->attn,
                                 call->centroids + sample * call->centroids_between + head * set);
}
