/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_data.h - a small model for tests of passes that attend sparsely or learn to: 3 x 5 x 5
 * tokens in 2 x 3 x 2 cubes, of which those at the edges are smaller. */
#ifndef TESS_SPARSE_DATA_H
#define TESS_SPARSE_DATA_H

#include "model_data.h"

#include "tessera/advanced/sparse.h"

static const tess_model_config config = {.patch = {1, 1, 1},
                                         .heads = 3,
                                         .head_dim = 16,
                                         .in_channels = 2,
                                         .out_channels = 2,
                                         .text_dim = 5,
                                         .text_len = 3,
                                         .freq_dim = 8,
                                         .ffn_dim = 20,
                                         .layers = 2,
                                         .cross_attn_norm = 1,
                                         .qk_norm = 1,
                                         .eps = 1e-6,
                                         .rope_max = 16};
static const int cube[3] = {2, 2, 3};
enum { TOKENS = 3 * 5 * 5, GROUPS = 2 * 3 * 2, BATCH = 2, HEADS = 3, LAYERS = 2 };

static inline tess_pass_shape shape_with(const tess_sparse_opts *sparse)
{
    return (tess_pass_shape){.batch = BATCH,
                             .frames = 3,
                             .height = 5,
                             .width = 5,
                             .train = 1,
                             .cube = cube,
                             .sparse = sparse};
}

#endif
