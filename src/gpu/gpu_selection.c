/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_selection.c - lists on the device: memory, and copies of the lists of a selection.
 *
 * Kernels take groups as bounds and units as powers of two. Other units become rows: the lists are
 * uploaded as they are, and the device expands them. The host keeps the offsets, by which it counts
 * the rounds of a backward pass. Copies from pageable memory have left it when the call returns.
 */
#include "gpu_internal.h"

#include <string.h>

enum { TOKENS_MAX = 1 << 30 };

static void free_memory(tess_gpu_selection *sel, tess_cuda_memory memory)
{
    if (memory)
        sel->gpu->driver.cuMemFree_v2(memory);
}

void tess_gpu_selection_destroy(tess_gpu_selection *sel)
{
    if (!sel)
        return;
    tess_gpu *const gpu = sel->gpu;
    if (tess__gpu_enter("tess_gpu_selection_destroy", gpu) == TESS_OK) {
        free_memory(sel, sel->bounds_q);
        free_memory(sel, sel->bounds_k);
        free_memory(sel, sel->keep);
        free_memory(sel, sel->device_offsets);
        free_memory(sel, sel->indices);
        free_memory(sel, sel->device_row_offsets);
        free_memory(sel, sel->rows);
        tess__gpu_leave(gpu);
    }
    tess__arena_free(&sel->arena);
    tess__free(gpu->ctx, sel);
}

static int bounds_max(const int64_t *bounds, int32_t n)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = TESS_MAX(most, bounds[i + 1] - bounds[i]);
    return (int)most;
}

/* The number of rows of every unit but the last, if it is a power of two; -1 otherwise. */
static int unit_shift(const tess_sel_shape *s)
{
    if (s->unit < 1 || (s->unit & (s->unit - 1)) != 0)
        return -1;
    return __builtin_ctz((unsigned)s->unit);
}

static tess_status copy_bounds(tess_gpu_selection *sel, tess_cuda_memory to, const int64_t *bounds,
                               int32_t n)
{
    int *const narrow = tess__arena_take(&sel->arena, sizeof(int) * (size_t)(n + 1));
    if (!narrow)
        return TESS_ENOMEM;
    for (int32_t i = 0; i <= n; i++)
        narrow[i] = (int)bounds[i];
    TESS_CUDA("tess_gpu_selection_create", sel->gpu, cuMemcpyHtoDAsync_v2, to, narrow,
              sizeof(int) * (size_t)(n + 1), NULL);
    TESS_CUDA("tess_gpu_selection_create", sel->gpu, cuStreamSynchronize, NULL);
    return TESS_OK;
}

/* At least one byte: a piece of memory has an address. */
static tess_status allocate(const char *who, tess_gpu *gpu, tess_cuda_memory *memory, size_t n,
                            size_t size)
{
    const size_t bytes = tess__bytes(n, size);
    tess_cuda_memory found = 0;
    if (gpu->driver.cuMemAlloc_v2(&found, bytes > 0 ? bytes : 1) != TESS_CUDA_OK)
        return tess__fail(TESS_ENOMEM, "%s: %s has no %zu bytes left", who, gpu->info.name, bytes);
    *memory = found;
    return TESS_OK;
}

static tess_status make_memory(tess_gpu_selection *sel, const tess_sel_shape *s)
{
    static const char who[] = "tess_gpu_selection_create";
    tess_gpu *const gpu = sel->gpu;
    const size_t lists = (size_t)sel->lists + 1, heads = (size_t)s->batch * (size_t)s->heads;
    TESS_TRY(allocate(who, gpu, &sel->bounds_q, (size_t)s->n_q + 1, sizeof(int)));
    TESS_TRY(allocate(who, gpu, &sel->bounds_k, (size_t)s->n_k + 1, sizeof(int)));
    TESS_TRY(allocate(who, gpu, &sel->keep, heads, sizeof(int)));
    TESS_TRY(allocate(who, gpu, &sel->device_offsets, lists, sizeof(int64_t)));
    TESS_TRY(allocate(who, gpu, &sel->indices, (size_t)sel->capacity, sizeof(int)));
    if (sel->expand)
        TESS_TRY(allocate(who, gpu, &sel->device_row_offsets, lists, sizeof(int64_t)));
    TESS_TRY(copy_bounds(sel, sel->bounds_q, s->bounds_q, s->n_q));
    TESS_TRY(copy_bounds(sel, sel->bounds_k, s->bounds_k, s->n_k));
    const size_t bytes = lists * sizeof(int64_t); /* every list is empty */
    TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->device_offsets, sel->offsets, bytes, NULL);
    if (sel->expand)
        TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->device_row_offsets, sel->row_offsets, bytes,
                  NULL);
    TESS_CUDA(who, gpu, cuStreamSynchronize, NULL);
    return TESS_OK;
}

static tess_status fill(tess_gpu_selection *sel, const tess_sel_shape *s)
{
    const size_t lists = (size_t)s->batch * (size_t)s->heads * (size_t)s->n_q + 1;
    sel->shape = *s;
    int64_t *const bounds_q = TESS_TAKE(&sel->arena, sizeof(int64_t) * (size_t)(s->n_q + 1));
    int64_t *const bounds_k = TESS_TAKE(&sel->arena, sizeof(int64_t) * (size_t)(s->n_k + 1));
    sel->shape.bounds_q = memcpy(bounds_q, s->bounds_q, sizeof(int64_t) * (size_t)(s->n_q + 1));
    sel->shape.bounds_k = memcpy(bounds_k, s->bounds_k, sizeof(int64_t) * (size_t)(s->n_k + 1));
    sel->lists = (int64_t)lists - 1;
    sel->group_max = bounds_max(s->bounds_q, s->n_q);
    sel->shift = unit_shift(s);
    sel->expand = sel->shift < 0;
    sel->shift = TESS_MAX(sel->shift, 0);
    sel->offsets = TESS_TAKE_ZERO(&sel->arena, lists * sizeof(int64_t));
    if (sel->expand)
        sel->row_offsets = TESS_TAKE_ZERO(&sel->arena, lists * sizeof(int64_t));
    TESS_TRY(tess__gpu_enter("tess_gpu_selection_create", sel->gpu));
    const tess_status status = make_memory(sel, &sel->shape);
    tess__gpu_leave(sel->gpu);
    return status;
}

tess_status tess_gpu_selection_create(tess_gpu *gpu, const tess_sel_shape *shape, int64_t capacity,
                                      tess_gpu_selection **sel)
{
    TESS_REQUIRE(gpu, shape, sel);
    TESS_TRY(tess__check_least("tess_gpu_selection_create", "capacity", capacity, 0));
    if (shape->tokens_q > TOKENS_MAX || shape->tokens_k > TOKENS_MAX)
        return tess__invalid("tess_gpu_selection_create", "tokens_%c is %lld, must be at most %d",
                             shape->tokens_q > TOKENS_MAX ? 'q' : 'k',
                             (long long)TESS_MAX(shape->tokens_q, shape->tokens_k), TOKENS_MAX);
    tess_selection *empty = NULL; /* checks the shape, and knows its bounds */
    TESS_TRY(tess_selection_create(gpu->ctx, shape, 0, &empty));
    tess_selection_lists lists;
    tess_status status = tess_selection_view(empty, &lists);
    tess_gpu_selection *s = status == TESS_OK ? tess__alloc_zero(gpu->ctx, sizeof *s) : NULL;
    if (s) {
        s->gpu = gpu;
        s->arena.ctx = gpu->ctx;
        s->capacity = capacity;
        status = fill(s, &lists.shape);
    } else if (status == TESS_OK) {
        status = TESS_ENOMEM;
    }
    tess_selection_destroy(empty);
    if (status != TESS_OK) {
        tess_gpu_selection_destroy(s);
        return status;
    }
    *sel = s;
    return TESS_OK;
}

/* ---- uploading ------------------------------------------------------------------------------- */

static int same_shape(const tess_sel_shape *a, const tess_sel_shape *b)
{
    return a->batch == b->batch && a->heads == b->heads && a->tokens_q == b->tokens_q &&
           a->tokens_k == b->tokens_k && a->n_q == b->n_q && a->n_k == b->n_k &&
           memcmp(a->bounds_q, b->bounds_q, sizeof(int64_t) * (size_t)(a->n_q + 1)) == 0 &&
           memcmp(a->bounds_k, b->bounds_k, sizeof(int64_t) * (size_t)(a->n_k + 1)) == 0;
}

static tess_status expand(tess_gpu_selection *sel, const tess_selection_lists *from, void *stream)
{
    static const char who[] = "tess_gpu_selection_upload";
    tess_gpu *const gpu = sel->gpu;
    const int64_t *const bounds = sel->shape.bounds_k;
    int64_t rows = 0;
    for (int64_t i = 0; i < sel->lists; i++) {
        for (int64_t j = from->offsets[i]; j < from->offsets[i + 1]; j++)
            rows += bounds[from->indices[j] + 1] - bounds[from->indices[j]];
        sel->row_offsets[i + 1] = rows;
    }
    if (rows > sel->room_rows) { /* kernels that read the old ones may be on their way */
        tess_cuda_memory more = 0;
        TESS_TRY(allocate(who, gpu, &more, (size_t)rows, sizeof(int)));
        TESS_CUDA(who, gpu, cuStreamSynchronize, stream);
        free_memory(sel, sel->rows);
        sel->rows = more;
        sel->room_rows = rows;
    }
    TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->device_row_offsets, sel->row_offsets,
              sizeof(int64_t) * (size_t)(sel->lists + 1), stream);
    const tess_gpu_expand_args args = {
        (const long long *)(uintptr_t)sel->device_offsets, (const int *)(uintptr_t)sel->indices,
        (const int *)(uintptr_t)sel->bounds_k,
        (const long long *)(uintptr_t)sel->device_row_offsets, (int *)(uintptr_t)sel->rows};
    return tess__gpu_launch(who, gpu, tess__gpu_find(TESS_GPU_EXPAND, TESS_DTYPE_COUNT, 0, 0),
                            &args, sel->lists, stream);
}

static tess_status upload(tess_gpu_selection *sel, const tess_selection_lists *from, void *stream)
{
    static const char who[] = "tess_gpu_selection_upload";
    tess_gpu *const gpu = sel->gpu;
    const size_t n = (size_t)from->offsets[from->lists];
    memcpy(sel->offsets, from->offsets, sizeof(int64_t) * (size_t)(sel->lists + 1));
    TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->device_offsets, sel->offsets,
              sizeof(int64_t) * (size_t)(sel->lists + 1), stream);
    if (n > 0)
        TESS_CUDA(who, gpu, cuMemcpyHtoDAsync_v2, sel->indices, from->indices, n * sizeof(int),
                  stream);
    return sel->expand ? expand(sel, from, stream) : TESS_OK;
}

tess_status tess_gpu_selection_upload(tess_gpu_selection *sel, const tess_selection *from,
                                      void *stream)
{
    static const char who[] = "tess_gpu_selection_upload";
    tess_selection_lists lists;
    TESS_REQUIRE(sel, from);
    TESS_TRY(tess_selection_view(from, &lists));
    if (!same_shape(&sel->shape, &lists.shape))
        return tess__invalid(who, "the selection has another shape than the one on the device");
    if (lists.offsets[lists.lists] > sel->capacity)
        return tess__invalid(who, "the selection has %lld indices, the capacity is %lld",
                             (long long)lists.offsets[lists.lists], (long long)sel->capacity);
    TESS_TRY(tess__gpu_enter(who, sel->gpu));
    const tess_status status = upload(sel, &lists, stream);
    tess__gpu_leave(sel->gpu);
    return status;
}

tess_status tess__gpu_check_device(const char *who, const tess_gpu *gpu,
                                   const tess_gpu_selection *sel)
{
    const int device = sel->gpu->info.device;
    if (device != gpu->info.device)
        return tess__invalid(who, "the selection is on device %d, must be on device %d", device,
                             gpu->info.device);
    return TESS_OK;
}

const int64_t *tess__gpu_offsets(const tess_gpu_selection *sel)
{
    return sel->expand ? sel->row_offsets : sel->offsets;
}

tess_gpu_lists tess__gpu_lists(const tess_gpu_selection *sel)
{
    const tess_sel_shape *const s = &sel->shape;
    return (tess_gpu_lists){
        .offsets = (const long long *)(uintptr_t)(sel->expand ? sel->device_row_offsets
                                                              : sel->device_offsets),
        .indices = (const int *)(uintptr_t)(sel->expand ? sel->rows : sel->indices),
        .bounds_q = (const int *)(uintptr_t)sel->bounds_q,
        .heads = s->heads,
        .tokens_q = (int)s->tokens_q,
        .tokens_k = (int)s->tokens_k,
        .n_q = s->n_q,
        .n_k = sel->expand ? (int)s->tokens_k : s->n_k,
        .shift = sel->shift,
    };
}
