/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_kernels.h - the kernels of src/gpu/kernels as functions of the emulation, by name. */
#ifndef TESS_GPU_KERNELS_H
#define TESS_GPU_KERNELS_H

typedef struct {
    const char *name;
    void (*run)(const void *args);
    int threads, shared_bytes;
} emulated_kernel;

/* NULL: there is none of this name. */
const emulated_kernel *find_emulated(const char *name);

#endif
