/* SPDX-License-Identifier: Apache-2.0 */
/* dist_activations.c - what forward leaves for backward, and where a share's rows lie in it.
 *
 *   | q | k, v | o | lse | dense | bits | own |      each aligned to 64 bytes
 *
 * q and o have (batch, q.packed_rows, head_dim) floats, k and v (batch, kv.packed_rows, head_dim),
 * where the places are those of the layer, so that a set that is large enough for the largest layer
 * holds any.
 */
#include "dist_attn_internal.h"

enum { PIECES = 7 };

static void list_pieces(const tess_dist_attn *d, const tess__dist_layer *layer,
                        size_t bytes[PIECES])
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
}

size_t tess__activation_bytes(const tess_dist_attn *d, const tess__dist_layer *layer)
{
    size_t bytes[PIECES], all = 0;
    list_pieces(d, layer, bytes);
    for (int i = 0; i < PIECES; i++)
        all += tess__arena_round(bytes[i]);
    return all;
}

void tess__activation_layout(const tess_dist_attn *d, const tess__dist_layer *layer,
                             tess__activations *acts)
{
    size_t bytes[PIECES];
    void *piece[PIECES];
    char *at = acts->memory.data;
    list_pieces(d, layer, bytes);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = at;
        at += tess__arena_round(bytes[i]);
    }
    acts->layer = -1;
    acts->q = piece[0];
    acts->k = piece[1];
    acts->v = acts->k + d->opts.batch * layer->kv.packed_rows * d->opts.head_dim;
    acts->o = piece[2];
    acts->lse = piece[3];
    acts->dense = piece[4];
    acts->bits = piece[5];
    acts->kind_data = piece[6];
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
