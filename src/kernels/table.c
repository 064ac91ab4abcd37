/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the kernels of one instruction set, gathered into its table. */
#include "entries.h"
#include "tile_shapes.h"

#define MEMBER(name) .name = TESS_K(tess__##name),
extern const tess__kernels TESS_K(tess__kernels);
const tess__kernels TESS_K(tess__kernels) = {TESS_EACH_KERNEL(MEMBER).tile_dense = TILE_DENSE};
