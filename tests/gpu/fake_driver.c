/* SPDX-License-Identifier: Apache-2.0 */
/* fake_driver.c - libcuda.so.1 of tests: the calls we use, and launches run in the emulation.
 *
 * It refuses what the driver refuses: shared memory beyond 48 KiB of a kernel that was not allowed
 * it, more than the device has, kernels by an unknown name, pointers that it did not allocate.
 */
#include "fake_driver.h"

#include "emulation.h"
#include "gpu/gpu_driver.h"
#include "gpu_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

enum { INVALID = 1, NO_MEMORY = 2, UNSUPPORTED_PTX = 222, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
enum { FUNCTIONS = 64 };

EXPORTED fake_driver_setup fake_driver = {
    .version = 12040, .devices = 2, .major = 8, .shared_bytes = 163 * 1024};

typedef struct piece {
    struct piece *next;
    char *memory;
    size_t bytes;
    int device;
} piece;

static piece *pieces;
static int entered, contexts;
static struct {
    const emulated_kernel *kernel;
    int allowed;
} functions[FUNCTIONS];

#define DECLARE(name, arguments) EXPORTED tess_cuda_result name arguments;
TESS_CUDA_CALLS(DECLARE)

EXPORTED void *fake_memory(size_t bytes, int device)
{
    piece *const p = malloc(sizeof *p);
    *p = (piece){pieces, aligned_alloc(256, (bytes + 255) / 256 * 256), bytes, device};
    memset(p->memory, 0xff, bytes);
    pieces = p;
    return p->memory;
}

EXPORTED void fake_free(void *memory)
{
    for (piece **p = &pieces; *p; p = &(*p)->next)
        if ((*p)->memory == memory) {
            piece *const found = *p;
            *p = found->next;
            free(found->memory);
            free(found);
            return;
        }
    abort();
}

EXPORTED long fake_allocations(void)
{
    long n = 0;
    for (const piece *p = pieces; p; p = p->next)
        n++;
    return n;
}

static const piece *find_piece(tess_cuda_memory at)
{
    const char *const c = (const char *)(uintptr_t)at;
    for (const piece *p = pieces; p; p = p->next)
        if (c >= p->memory && c < p->memory + p->bytes)
            return p;
    return NULL;
}

tess_cuda_result cuInit(unsigned flags)
{
    return flags ? INVALID : 0;
}

tess_cuda_result cuDriverGetVersion(int *version)
{
    *version = fake_driver.version;
    return 0;
}

tess_cuda_result cuDeviceGetCount(int *n)
{
    *n = fake_driver.devices;
    return 0;
}

/* What the driver calls a device: not its number, which calls must not take for it. */
enum { HANDLE = 40 };

static int is_handle(int device)
{
    return device >= HANDLE && device < HANDLE + fake_driver.devices;
}

tess_cuda_result cuDeviceGet(int *device, int number)
{
    *device = HANDLE + number;
    return number < fake_driver.devices ? 0 : INVALID;
}

tess_cuda_result cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "emulation %d", device - HANDLE);
    return is_handle(device) ? 0 : INVALID;
}

tess_cuda_result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    if (!is_handle(device))
        return INVALID;
    switch (attribute) {
    case TESS_CUDA_MAJOR: *value = fake_driver.major; return 0;
    case TESS_CUDA_MINOR: *value = fake_driver.minor; return 0;
    case TESS_CUDA_MULTIPROCESSORS: *value = 1; return 0;
    case TESS_CUDA_SHARED_OPTIN: *value = fake_driver.shared_bytes; return 0;
    default: return INVALID;
    }
}

tess_cuda_result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)1 << 30;
    return is_handle(device) ? 0 : INVALID;
}

tess_cuda_result cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &fake_driver;
    contexts += is_handle(device);
    return is_handle(device) ? 0 : INVALID;
}

tess_cuda_result cuDevicePrimaryCtxRelease_v2(int device)
{
    contexts -= is_handle(device);
    return entered ? INVALID : 0;
}

EXPORTED int fake_contexts(void)
{
    return contexts;
}

tess_cuda_result cuCtxPushCurrent_v2(void *context)
{
    entered++;
    return context == &fake_driver ? 0 : INVALID;
}

tess_cuda_result cuCtxPopCurrent_v2(void **context)
{
    entered--;
    *context = &fake_driver;
    return 0;
}

tess_cuda_result cuModuleLoadData(void **module, const void *image)
{
    *module = functions;
    return fake_driver.load_result ? fake_driver.load_result : image && entered ? 0 : INVALID;
}

tess_cuda_result cuModuleUnload(void *module)
{
    memset(functions, 0, sizeof functions);
    return module == functions ? 0 : INVALID;
}

tess_cuda_result cuModuleGetFunction(void **function, void *module, const char *name)
{
    int i = 0;
    while (i < FUNCTIONS && functions[i].kernel)
        i++;
    const emulated_kernel *const kernel = find_emulated(name);
    if (!kernel || i == FUNCTIONS || module != functions)
        return NOT_FOUND;
    functions[i].kernel = kernel;
    functions[i].allowed = 48 * 1024;
    *function = &functions[i];
    return 0;
}

static int number_of(const void *function)
{
    for (int i = 0; i < FUNCTIONS; i++)
        if (function == &functions[i])
            return i;
    abort();
}

tess_cuda_result cuFuncSetAttribute(void *function, int attribute, int value)
{
    if (attribute != TESS_CUDA_SHARED_DYNAMIC || value > fake_driver.shared_bytes)
        return INVALID;
    functions[number_of(function)].allowed = value;
    return 0;
}

tess_cuda_result cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z,
                                unsigned shared, void *stream, void **args, void **extra)
{
    const int n = number_of(function);
    (void)stream;
    if (!entered || extra || grid_x == 0 || grid_y != 1 || grid_z != 1 || block_y != 1 ||
        block_z != 1 || (int)shared > functions[n].allowed ||
        (int)block_x != functions[n].kernel->threads ||
        (int)shared != functions[n].kernel->shared_bytes)
        return INVALID;
    fake_driver.launches++;
    const char *const problem = emulation_run(&(emulation_launch){
        functions[n].kernel->run, args[0], grid_x, (int)block_x, (int)shared, fake_driver.seed});
    if (problem)
        fprintf(stderr, "%s: %s\n", functions[n].kernel->name, problem);
    return problem ? LAUNCH_FAILED : fake_driver.launch_result;
}

tess_cuda_result cuMemAlloc_v2(tess_cuda_memory *memory, size_t bytes)
{
    if (!entered || bytes == 0)
        return INVALID;
    if (bytes > (size_t)1 << 30)
        return NO_MEMORY;
    *memory = (tess_cuda_memory)(uintptr_t)fake_memory(bytes, 0);
    return 0;
}

tess_cuda_result cuMemFree_v2(tess_cuda_memory memory)
{
    fake_free((void *)(uintptr_t)memory);
    return 0;
}

tess_cuda_result cuMemcpyHtoDAsync_v2(tess_cuda_memory to, const void *from, size_t bytes,
                                      void *stream)
{
    const piece *const p = find_piece(to);
    (void)stream;
    if (!entered || !p || (char *)(uintptr_t)to + bytes > p->memory + p->bytes)
        return INVALID;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

tess_cuda_result cuMemcpyDtoHAsync_v2(void *to, tess_cuda_memory from, size_t bytes, void *stream)
{
    const piece *const p = find_piece(from);
    (void)stream;
    if (!entered || !p || (char *)(uintptr_t)from + bytes > p->memory + p->bytes)
        return INVALID;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    const int third = fake_driver.copies++ % 3 == 0;
    if (bytes > 0 && (fake_driver.spoil == 1 || (fake_driver.spoil == 3 && third)))
        ((char *)to)[bytes / 8 * 4 + 3] ^= 0x40;
    if (bytes > 0 && fake_driver.spoil == 2)
        ((char *)to)[0] ^= 0x40;
    return 0;
}

/* An event is the time at which it was recorded. */
tess_cuda_result cuEventCreate(void **event, unsigned flags)
{
    *event = calloc(1, sizeof(struct timespec));
    return flags || !entered ? INVALID : 0;
}

tess_cuda_result cuEventRecord(void *event, void *stream)
{
    (void)stream;
    return entered && clock_gettime(CLOCK_MONOTONIC, event) == 0 ? 0 : INVALID;
}

tess_cuda_result cuEventSynchronize(void *event)
{
    return event ? 0 : INVALID;
}

tess_cuda_result cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    const struct timespec *const a = from, *const b = to;
    *milliseconds =
        (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return 0;
}

tess_cuda_result cuEventDestroy_v2(void *event)
{
    free(event);
    return 0;
}

tess_cuda_result cuPointerGetAttribute(void *value, int attribute, tess_cuda_memory pointer)
{
    const piece *const p = find_piece(pointer);
    const int device = p ? p->device : 0;
    if ((!p && !fake_driver.unified) || attribute != TESS_CUDA_POINTER_DEVICE)
        return INVALID;
    memcpy(value, &device, sizeof(int));
    return 0;
}

tess_cuda_result cuStreamSynchronize(void *stream)
{
    (void)stream;
    return 0;
}

tess_cuda_result cuGetErrorName(tess_cuda_result result, const char **name)
{
    *name = result == LAUNCH_FAILED     ? "CUDA_ERROR_LAUNCH_FAILED"
            : result == UNSUPPORTED_PTX ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
                                        : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
