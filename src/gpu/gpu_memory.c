/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_memory.c - memory on the device for checks and benches, and copies that are waited for. */
#include "gpu_internal.h"

tess_status tess__gpu_allocate(tess_gpu_memory *m, size_t bytes, void **memory)
{
    TESS_TRY(tess__gpu_enter(m->who, m->gpu));
    const tess_cuda_result result =
        m->n < TESS_GPU_PIECES ? m->gpu->driver.cuMemAlloc_v2(&m->piece[m->n], TESS_MAX(bytes, 1u))
                               : TESS_CUDA_INVALID_VALUE;
    tess__gpu_leave(m->gpu);
    if (result != TESS_CUDA_OK)
        return tess__fail(TESS_ENOMEM, "%s: %s has no %zu bytes left", m->who, m->gpu->info.name,
                          bytes);
    *memory = (void *)(uintptr_t)m->piece[m->n++];
    return TESS_OK;
}

static tess_status copy(const tess_gpu_memory *m, void *to, const void *from, size_t bytes, int in)
{
    if (bytes == 0)
        return TESS_OK;
    if (in)
        TESS_CUDA(m->who, m->gpu, cuMemcpyHtoDAsync_v2, (tess_cuda_memory)(uintptr_t)to, from,
                  bytes, NULL);
    else
        TESS_CUDA(m->who, m->gpu, cuMemcpyDtoHAsync_v2, to, (tess_cuda_memory)(uintptr_t)from,
                  bytes, NULL);
    TESS_CUDA(m->who, m->gpu, cuStreamSynchronize, NULL);
    return TESS_OK;
}

tess_status tess__gpu_copy_in(const tess_gpu_memory *m, void *to, const void *from, size_t bytes)
{
    TESS_TRY(tess__gpu_enter(m->who, m->gpu));
    const tess_status status = copy(m, to, from, bytes, 1);
    tess__gpu_leave(m->gpu);
    return status;
}

tess_status tess__gpu_repeat(const tess_gpu_memory *m, void *to, size_t bytes, const void *from,
                             size_t each)
{
    for (size_t at = 0; at < bytes; at += each)
        TESS_TRY(tess__gpu_copy_in(m, (unsigned char *)to + at, from, TESS_MIN(each, bytes - at)));
    return TESS_OK;
}

tess_status tess__gpu_copy_out(const tess_gpu_memory *m, void *to, const void *from, size_t bytes)
{
    TESS_TRY(tess__gpu_enter(m->who, m->gpu));
    const tess_status status = copy(m, to, from, bytes, 0);
    tess__gpu_leave(m->gpu);
    return status;
}

void tess__gpu_free(tess_gpu_memory *m)
{
    if (m->n == 0 || tess__gpu_enter(m->who, m->gpu) != TESS_OK)
        return;
    while (m->n > 0)
        m->gpu->driver.cuMemFree_v2(m->piece[--m->n]);
    tess__gpu_leave(m->gpu);
}
