/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_view.c - views and pointers of device memory, checked before anything is launched. */
#include "gpu_internal.h"

#include <limits.h>

tess_status tess__gpu_pointer(const char *who, const tess_gpu *gpu, const char *name,
                              const void *pointer, int align)
{
    int device = -1;
    const tess_cuda_memory at = (tess_cuda_memory)(uintptr_t)pointer;
    if (!pointer)
        return tess__invalid(who, "%s is NULL", name);
    if (at % (unsigned)align != 0)
        return tess__invalid(who, "%s is %p, must be a multiple of %d bytes", name, pointer, align);
    if (gpu->driver.cuPointerGetAttribute(&device, TESS_CUDA_POINTER_DEVICE, at) != TESS_CUDA_OK)
        return tess__invalid(who, "%s is %p, must be memory of device %d", name, pointer,
                             gpu->info.device);
    if (device != gpu->info.device)
        return tess__invalid(who, "%s is memory of device %d, must be of device %d", name, device,
                             gpu->info.device);
    return TESS_OK;
}

tess_status tess__gpu_rows(const char *who, const tess_gpu *gpu, const char *name,
                           const tess_view *view, tess_dtype dtype, tess_gpu_rows *rows)
{
    char data[40];
    if (!view)
        return tess__invalid(who, "%s is NULL", name);
    if (view->dtype != dtype)
        return tess__invalid(who, "%s.dtype is %s, must be %s", name, tess_dtype_name(view->dtype),
                             tess_dtype_name(dtype));
    const int64_t size = (int64_t)tess_dtype_size(dtype), even = 16 / size;
    const int64_t strides[] = {view->stride_b, view->stride_h, view->stride_s};
    static const char *const names[] = {"stride_b", "stride_h", "stride_s"};
    for (int i = 0; i < 3; i++)
        if (strides[i] % even != 0 || strides[i] > INT64_MAX / size || strides[i] < 0)
            return tess__invalid(who, "%s.%s is %lld, must be a multiple of %lld from 0", name,
                                 names[i], (long long)strides[i], (long long)even);
    if (view->stride_s * size > INT_MAX)
        return tess__invalid(who, "%s.stride_s is %lld, must be at most %lld", name,
                             (long long)view->stride_s, (long long)(INT_MAX / size / even * even));
    snprintf(data, sizeof data, "%s.data", name);
    TESS_TRY(tess__gpu_pointer(who, gpu, data, view->data, 16));
    *rows = (tess_gpu_rows){view->data, view->stride_b * size, view->stride_h * size,
                            (int)(view->stride_s * size), 0};
    return TESS_OK;
}
