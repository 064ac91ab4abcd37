/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_kernels.c - the kernels, compiled against the emulation, and a table of them. */
#include "emulation.h"

#include "gpu/kernels/gpu_variants.h"
#include "gpu_kernels.h"

#define TESS_GPU_TABLE(name, kind, type, dim, rows, threads, bytes) ROW_(name, threads, bytes)
#define ROW_(name, threads, bytes) {#name, name, threads, bytes},

static const emulated_kernel table[] = {
#include "gpu/kernels/gpu_variants.h"
};

const emulated_kernel *find_emulated(const char *name)
{
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}
