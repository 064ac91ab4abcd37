/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_open.c - the driver and the device: found at run time, or the reason why not. */
#include "gpu_internal.h"

#include <dlfcn.h>
#include <string.h>

static const char *error_name(const tess_gpu *gpu, tess_cuda_result result)
{
    const char *name = NULL;
    if (gpu->driver.cuGetErrorName(result, &name) != TESS_CUDA_OK || !name)
        return "an unknown error";
    return name;
}

tess_status tess__gpu_failed(const char *who, const tess_gpu *gpu, const char *call,
                             tess_cuda_result result)
{
    return tess__fail(TESS_ENOTSUP, "%s: %s of the driver: %s (%d)%s%s", who, call,
                      error_name(gpu, result), result, gpu->last ? ", after the kernel " : "",
                      gpu->last ? gpu->last : "");
}

tess_status tess__gpu_enter(const char *who, const tess_gpu *gpu)
{
    TESS_CUDA(who, gpu, cuCtxPushCurrent_v2, gpu->context);
    return TESS_OK;
}

void tess__gpu_leave(const tess_gpu *gpu)
{
    void *context;
    gpu->driver.cuCtxPopCurrent_v2(&context);
}

static tess_status open_driver(tess_gpu_driver *d)
{
    d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->library)
        return tess__fail(TESS_ENOTSUP, "tess_gpu_open: no driver: %s", dlerror());
#define FIND(name, arguments)                                                                      \
    *(void **)&d->name = dlsym(d->library, #name);                                                 \
    if (!d->name)                                                                                  \
        return tess__fail(TESS_ENOTSUP, "tess_gpu_open: the driver has no " #name                  \
                                        ", must be one of CUDA 11.0 or later");
    TESS_CUDA_CALLS(FIND)
#undef FIND
    return TESS_OK;
}

static tess_status read_device(tess_gpu *gpu, int device)
{
    static const char who[] = "tess_gpu_open";
    tess_gpu_info *const info = &gpu->info;
    int n = 0;
    size_t memory = 0;
    TESS_CUDA(who, gpu, cuInit, 0);
    TESS_CUDA(who, gpu, cuDriverGetVersion, &info->driver);
    if (info->driver < TESS_CUDA_DRIVER_LEAST)
        return tess__fail(TESS_ENOTSUP, "%s: the driver is of CUDA %d.%d, must be 11.0 or later",
                          who, info->driver / 1000, info->driver % 1000 / 10);
    TESS_CUDA(who, gpu, cuDeviceGetCount, &n);
    if (device >= n)
        return tess__fail(TESS_ENOTSUP, "%s: device is %d, the driver has %d", who, device, n);
    TESS_CUDA(who, gpu, cuDeviceGet, &gpu->handle, device);
    TESS_CUDA(who, gpu, cuDeviceGetName, info->name, sizeof info->name, gpu->handle);
    const struct {
        int *value, attribute;
    } attributes[] = {{&info->major, TESS_CUDA_MAJOR},
                      {&info->minor, TESS_CUDA_MINOR},
                      {&info->multiprocessors, TESS_CUDA_MULTIPROCESSORS},
                      {&info->shared_bytes, TESS_CUDA_SHARED_OPTIN}};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        TESS_CUDA(who, gpu, cuDeviceGetAttribute, attributes[i].value, attributes[i].attribute,
                  gpu->handle);
    TESS_CUDA(who, gpu, cuDeviceTotalMem_v2, &memory, gpu->handle);
    info->memory = (int64_t)memory;
    info->device = device;
    info->image = tess__gpu_image_code;
    if (info->major < 8)
        return tess__fail(TESS_ENOTSUP, "%s: %s has compute capability %d.%d, must be 8.0 or later",
                          who, info->name, info->major, info->minor);
    TESS_CUDA(who, gpu, cuDevicePrimaryCtxRetain, &gpu->context, gpu->handle);
    return TESS_OK;
}

static tess_status load_image(tess_gpu *gpu)
{
    static const char who[] = "tess_gpu_open";
    const tess_gpu_info *const info = &gpu->info;
    char older[160] = "";
    TESS_TRY(tess__gpu_enter(who, gpu));
    const tess_cuda_result result = gpu->driver.cuModuleLoadData(&gpu->module, tess__gpu_image);
    tess__gpu_leave(gpu);
    if (info->driver < tess__gpu_image_cuda) /* it need not know what such an nvcc writes */
        snprintf(older, sizeof older,
                 "; the driver is of CUDA %d.%d, the image was made by nvcc of %d.%d: take a newer "
                 "driver, or an older nvcc",
                 info->driver / 1000, info->driver % 1000 / 10, tess__gpu_image_cuda / 1000,
                 tess__gpu_image_cuda % 1000 / 10);
    if (result == TESS_CUDA_NO_BINARY)
        return tess__fail(TESS_ENOTSUP,
                          "%s: the image has no code for compute capability %d.%d: %s%s", who,
                          info->major, info->minor, tess__gpu_image_code, older);
    if (result != TESS_CUDA_OK)
        return tess__fail(TESS_ENOTSUP, "%s: cuModuleLoadData of the driver: %s (%d)%s", who,
                          error_name(gpu, result), result, older);
    return TESS_OK;
}

const char *tess_gpu_image(void)
{
    return tess__gpu_image_code;
}

tess_status tess_gpu_open(tess_ctx *ctx, int device, tess_gpu **gpu)
{
    TESS_REQUIRE(ctx, gpu);
    TESS_TRY(tess__check_least("tess_gpu_open", "device", device, 0));
    if (tess__gpu_image_bytes == 0)
        return tess__fail(TESS_ENOTSUP,
                          "tess_gpu_open: the library has no kernels, must be built with "
                          "TESS_GPU_IMAGE=ON and nvcc");
    tess_gpu *g = TESS_ALLOC_ZERO(ctx, sizeof *g);
    g->ctx = ctx;
    tess_status status = open_driver(&g->driver);
    if (status == TESS_OK)
        status = read_device(g, device);
    if (status == TESS_OK)
        status = load_image(g);
    if (status != TESS_OK) {
        tess_gpu_close(g);
        return status;
    }
    *gpu = g;
    return TESS_OK;
}

tess_status tess_gpu_query(const tess_gpu *gpu, tess_gpu_info *info)
{
    TESS_REQUIRE(gpu, info);
    *info = gpu->info;
    return TESS_OK;
}

void tess_gpu_close(tess_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->context && tess__gpu_enter("tess_gpu_close", gpu) == TESS_OK) {
        if (gpu->module)
            gpu->driver.cuModuleUnload(gpu->module);
        tess__gpu_leave(gpu);
    }
    if (gpu->context)
        gpu->driver.cuDevicePrimaryCtxRelease_v2(gpu->handle);
    if (gpu->driver.library)
        dlclose(gpu->driver.library);
    tess__free(gpu->ctx, gpu);
}
