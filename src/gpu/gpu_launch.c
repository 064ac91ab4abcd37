/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_launch.c - the table of kernels, and their launches. */
#include "gpu_internal.h"

#include <limits.h>

enum { SHARED_PLAIN = 48 * 1024 }; /* beyond, a kernel must be allowed to have it */

#define DTYPE_bf16 TESS_DTYPE_BF16
#define DTYPE_fp16 TESS_DTYPE_F16
#define DTYPE_any TESS_DTYPE_COUNT
#define TESS_GPU_TABLE(name, kind, type, dim, rows, threads, bytes)                                \
    KERNEL_ROW(name, kind, type, dim, rows, threads, bytes)
#define KERNEL_ROW(name, kind, type, dim, rows, threads, bytes)                                    \
    {#name, kind, DTYPE_##type, dim, rows, threads, bytes},

static const tess_gpu_kernel kernels[] = {
#include "gpu/kernels/gpu_variants.h"
};
_Static_assert(sizeof kernels / sizeof *kernels == TESS_GPU_KERNELS, "functions of a tess_gpu");

const tess_gpu_kernel *tess__gpu_find(tess_gpu_kind kind, tess_dtype dtype, int dim, int rows)
{
    const tess_gpu_kernel *best = NULL;
    for (int i = 0; i < TESS_GPU_KERNELS; i++) {
        const tess_gpu_kernel *const k = &kernels[i];
        if (k->kind != kind || (k->dtype != TESS_DTYPE_COUNT && k->dtype != dtype) ||
            (kind == TESS_GPU_SELECT ? k->dim < dim : k->dim != 0 && k->dim != dim))
            continue;
        const int enough = k->rows >= rows;
        if (!best || (kind == TESS_GPU_SELECT ? k->dim < best->dim
                      : best->rows >= rows    ? enough && k->rows < best->rows
                                              : k->rows > best->rows))
            best = k;
    }
    return best;
}

tess_status tess__gpu_launch(const char *who, tess_gpu *gpu, const tess_gpu_kernel *kernel,
                             const void *args, int64_t blocks, void *stream)
{
    void **const function = &gpu->functions[kernel - kernels];
    void *const pointers[] = {(void *)(uintptr_t)args};
    if (blocks == 0)
        return TESS_OK;
    if (blocks > INT_MAX)
        return tess__invalid(who, "the kernel %s would take %lld blocks, at most %d", kernel->name,
                             (long long)blocks, INT_MAX);
    if (kernel->shared_bytes > gpu->info.shared_bytes)
        return tess__fail(
            TESS_ENOTSUP, "%s: the kernel %s takes %d bytes of shared memory, %s has %d", who,
            kernel->name, kernel->shared_bytes, gpu->info.name, gpu->info.shared_bytes);
    if (!*function) {
        void *found = NULL;
        TESS_CUDA(who, gpu, cuModuleGetFunction, &found, gpu->module, kernel->name);
        if (kernel->shared_bytes > SHARED_PLAIN)
            TESS_CUDA(who, gpu, cuFuncSetAttribute, found, TESS_CUDA_SHARED_DYNAMIC,
                      kernel->shared_bytes);
        *function = found;
    }
    TESS_CUDA(who, gpu, cuLaunchKernel, *function, (unsigned)blocks, 1, 1,
              (unsigned)kernel->threads, 1, 1, (unsigned)kernel->shared_bytes, stream,
              (void **)(uintptr_t)pointers, NULL);
    gpu->last = kernel->name;
    return TESS_OK;
}
