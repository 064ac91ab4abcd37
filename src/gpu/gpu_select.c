/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_select.c - lists of the largest scores, made on the device. */
#include "gpu_internal.h"

static tess_status check(const tess_gpu_select_in *in, const tess_gpu_selection *sel)
{
    static const char who[] = "tess_gpu_select";
    const tess_sel_shape *const s = &sel->shape;
    int64_t need = 0;
    if (sel->expand)
        return tess__fail(TESS_ENOTSUP,
                          "%s: units become rows, must be of one size that is a power of two", who);
    TESS_TRY(tess__check_range(who, "rank", in->rank, 1, 64));
    for (int i = 0; i < s->batch * s->heads; i++) {
        if (in->keep[i] < 0 || in->keep[i] > s->n_k)
            return tess__invalid(who, "keep[%d] is %d, must be 0..%d", i, in->keep[i], s->n_k);
        need += (int64_t)in->keep[i] * s->n_q;
    }
    if (need > sel->capacity)
        return tess__invalid(who, "the lists have %lld indices, the capacity is %lld",
                             (long long)need, (long long)sel->capacity);
    return TESS_OK;
}

static tess_status enqueue(tess_gpu *gpu, const tess_gpu_select_in *in, tess_gpu_selection *sel,
                           tess_gpu_select_args *args, void *stream)
{
    static const char who[] = "tess_gpu_select";
    const tess_sel_shape *const s = &sel->shape;
    const size_t heads = (size_t)s->batch * (size_t)s->heads;
    const int64_t tiles = (s->n_q + 15) / 16;
    if (heads * (size_t)tiles == 0 || s->n_k == 0)
        return TESS_OK;
    TESS_TRY(tess__gpu_rows(who, gpu, "q", in->q, TESS_DTYPE_F32, &args->q));
    TESS_TRY(tess__gpu_rows(who, gpu, "k", in->k, TESS_DTYPE_F32, &args->k));
    int64_t n = 0;
    for (size_t h = 0; h < heads; h++)
        for (int32_t g = 0; g < s->n_q; g++, n++)
            sel->offsets[n + 1] = sel->offsets[n] + in->keep[h];
    TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->device_offsets, sel->offsets,
              sizeof(int64_t) * (size_t)(sel->lists + 1), stream);
    TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->keep, in->keep, sizeof(int) * heads, stream);
    return tess__gpu_launch(who, gpu,
                            tess__gpu_find(TESS_GPU_SELECT, TESS_DTYPE_COUNT, in->rank, 16), args,
                            (int64_t)heads * tiles, stream);
}

tess_status tess_gpu_select(tess_gpu *gpu, const tess_gpu_select_in *in, tess_gpu_selection *sel,
                            void *stream)
{
    TESS_REQUIRE(gpu, in, sel);
    TESS_REQUIRE(in->keep);
    TESS_TRY(check(in, sel));
    TESS_TRY(tess__gpu_check_device("tess_gpu_select", gpu, sel));
    tess__gpu_warn(gpu);
    tess_gpu_select_args args = {
        .keep = (const int *)(uintptr_t)sel->keep,
        .offsets = (const long long *)(uintptr_t)sel->device_offsets,
        .indices = (int *)(uintptr_t)sel->indices,
        .heads = sel->shape.heads,
        .n_q = sel->shape.n_q,
        .n_k = sel->shape.n_k,
        .rank = in->rank,
    };
    TESS_TRY(tess__gpu_enter("tess_gpu_select", gpu));
    const tess_status status = enqueue(gpu, in, sel, &args, stream);
    tess__gpu_leave(gpu);
    return status;
}
