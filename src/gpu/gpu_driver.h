/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_driver.h - the calls of NVIDIA's driver that we use, found in libcuda.so.1 at run time.
 *
 * Declared here after the driver API's manual, so that no header of CUDA is needed. Names are those
 * of the symbols: cuda.h renames some calls, cuMemAlloc to cuMemAlloc_v2.
 */
#ifndef TESS_GPU_DRIVER_H
#define TESS_GPU_DRIVER_H

#include <stddef.h>

typedef int tess_cuda_result;
typedef unsigned long long tess_cuda_memory;

enum {
    TESS_CUDA_OK = 0,
    TESS_CUDA_INVALID_VALUE = 1,
    TESS_CUDA_NO_BINARY = 209,
    /* CUdevice_attribute */
    TESS_CUDA_MULTIPROCESSORS = 16,
    TESS_CUDA_MAJOR = 75,
    TESS_CUDA_MINOR = 76,
    TESS_CUDA_SHARED_OPTIN = 97,
    /* CUfunction_attribute */
    TESS_CUDA_SHARED_DYNAMIC = 8,
    /* CUpointer_attribute */
    TESS_CUDA_POINTER_DEVICE = 9,
    TESS_CUDA_DRIVER_LEAST = 11000, /* cp.async, mma of bf16 */
};

/* X(result, name, arguments) */
#define TESS_CUDA_CALLS(X)                                                                         \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuDeviceGetCount, (int *n))                                                                  \
    X(cuDeviceGet, (int *device, int number))                                                      \
    X(cuDeviceGetName, (char *name, int bytes, int device))                                        \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                               \
    X(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                           \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                                  \
    X(cuCtxPushCurrent_v2, (void *context))                                                        \
    X(cuCtxPopCurrent_v2, (void **context))                                                        \
    X(cuModuleLoadData, (void **module, const void *image))                                        \
    X(cuModuleUnload, (void *module))                                                              \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                      \
    X(cuFuncSetAttribute, (void *function, int attribute, int value))                              \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,      \
                       void *stream, void **args, void **extra))                                   \
    X(cuMemAlloc_v2, (tess_cuda_memory * memory, size_t bytes))                                    \
    X(cuMemFree_v2, (tess_cuda_memory memory))                                                     \
    X(cuMemcpyHtoDAsync_v2, (tess_cuda_memory to, const void *from, size_t bytes, void *stream))   \
    X(cuMemcpyDtoHAsync_v2, (void *to, tess_cuda_memory from, size_t bytes, void *stream))         \
    X(cuEventCreate, (void **event, unsigned flags))                                               \
    X(cuEventRecord, (void *event, void *stream))                                                  \
    X(cuEventSynchronize, (void *event))                                                           \
    X(cuEventElapsedTime, (float *milliseconds, void *from, void *to))                             \
    X(cuEventDestroy_v2, (void *event))                                                            \
    X(cuPointerGetAttribute, (void *value, int attribute, tess_cuda_memory pointer))               \
    X(cuStreamSynchronize, (void *stream))                                                         \
    X(cuGetErrorName, (tess_cuda_result result, const char **name))

typedef struct {
    void *library;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): name and arguments are those of a declaration */
#define TESS_CUDA_POINTER(name, arguments) tess_cuda_result(*name) arguments;
    TESS_CUDA_CALLS(TESS_CUDA_POINTER)
#undef TESS_CUDA_POINTER
} tess_gpu_driver;

#endif
