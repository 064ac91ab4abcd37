/* SPDX-License-Identifier: Apache-2.0 */
/* tile_shapes.h - sizes of attention's blocks and tiles for each kind of vectors.
 *
 *   MR          rows of a register block, by NR = 2 VL columns: MR * 2 sums, 2 of B, 1 broadcast
 *   TILE_DENSE  queries of a tile of dense attention: a multiple of NR and of MR
 *
 * Chosen by measurement (docs/performance.md, Tile shapes). A tile's queries, output and weights
 * are in the second-level cache beside a chunk of keys: 256 KiB of it at head_dim 128 with 96
 * queries, 512 KiB with 192, and machines with 64-byte vectors have 1 MiB or more.
 */
#ifndef TESS_TILE_SHAPES_H
#define TESS_TILE_SHAPES_H

#include "attn_tile.h"
#include "vec.h"

enum {
    NR = 2 * VL,
    MR = VREGS == 32 ? 8 : 6,
    TILE_DENSE = VL == 16 ? TESS_TILE_DENSE_MOST : 96,
};
_Static_assert(TILE_DENSE % NR == 0 && TESS_TILE % NR == 0, "a tile is whole panels");
_Static_assert(TILE_DENSE % MR == 0 && TESS_CHUNK % MR == 0, "inner chunks have no tails");

#endif
