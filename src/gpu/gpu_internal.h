/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_internal.h - sparse attention on a GPU: the device, lists on it, launches.
 *
 * What lives here: what the host does before and between kernels. What comes in: views of device
 * memory, selections. What goes out: kernels on the caller's stream.
 */
#ifndef TESS_GPU_INTERNAL_H
#define TESS_GPU_INTERNAL_H

#include "base/base_internal.h"
#include "gpu/gpu_driver.h"
#include "gpu/kernels/gpu_args.h"
#include "tessera/advanced/gpu.h"

/* What a kernel of the table does. */
typedef enum {
    TESS_GPU_FORWARD,
    TESS_GPU_BACKWARD,
    TESS_GPU_KEY_BLOCKS,
    TESS_GPU_DELTA,
    TESS_GPU_SUM_ROWS,
    TESS_GPU_ZERO_ROWS,
    TESS_GPU_SELECT,
    TESS_GPU_COUNT,
    TESS_GPU_SUM,
    TESS_GPU_FILL,
    TESS_GPU_EXPAND,
} tess_gpu_kind;

enum { TESS_GPU_KERNELS = 47 };

typedef struct {
    const char *name;
    tess_gpu_kind kind;
    tess_dtype dtype; /* of q; COUNT: any */
    int dim;          /* head_dim, or the largest rank; 0: any */
    int rows;         /* of a block: queries, keys */
    int threads, shared_bytes;
} tess_gpu_kernel;

struct tess_gpu {
    tess_ctx *ctx;
    tess_gpu_driver driver;
    tess_gpu_info info;
    int handle; /* CUdevice: what the driver calls the device */
    void *context, *module;
    void *functions[TESS_GPU_KERNELS]; /* found when first launched */
    const char *last;                  /* the kernel launched last; NULL: none yet */
    int warned;                        /* that this device was not checked */
};

/* Offsets are on the device and, as the host counts rounds by them, here. */
struct tess_gpu_selection {
    tess_gpu *gpu;
    tess_sel_shape shape; /* bounds are in the arena */
    tess__arena arena;
    int64_t lists, capacity;
    int shift;                                 /* of units; of rows: 0 */
    int expand;                                /* units become rows */
    int group_max;                             /* rows of the largest group */
    int64_t *offsets, *row_offsets;            /* (lists + 1); row_offsets if expand */
    tess_cuda_memory bounds_q, bounds_k;       /* int32 */
    tess_cuda_memory keep;                     /* (batch, heads) */
    tess_cuda_memory device_offsets, indices;  /* of units */
    tess_cuda_memory device_row_offsets, rows; /* if expand */
    int64_t room_rows;
};

/* ---- gpu_image.c -------------------------------------------------------------------------- */

extern const unsigned char tess__gpu_image[];
extern const int tess__gpu_image_bytes;   /* 0: none */
extern const char tess__gpu_image_code[]; /* "sm_80 sm_90 ..." */
extern const int tess__gpu_image_cuda;    /* of nvcc, 13000 for 13.0; 0: none */

/* ---- gpu_open.c --------------------------------------------------------------------------- */

/* ENOTSUP and the sentence if a call of the driver failed, with its name for the error. */
tess_status tess__gpu_failed(const char *who, const tess_gpu *gpu, const char *call,
                             tess_cuda_result result);

/* Makes the device's context that of the calling thread until leave. */
tess_status tess__gpu_enter(const char *who, const tess_gpu *gpu);
void tess__gpu_leave(const tess_gpu *gpu);

/* Driver calls between enter and leave. */
#define TESS_CUDA(who, gpu, call, ...)                                                             \
    do {                                                                                           \
        const tess_cuda_result cuda_ = (gpu)->driver.call(__VA_ARGS__);                            \
        if (cuda_ != TESS_CUDA_OK)                                                                 \
            return tess__gpu_failed(who, gpu, #call, cuda_);                                       \
    } while (0)

/* ---- gpu_launch.c ------------------------------------------------------------------------- */

/* The kernel of smallest rows that is at least `rows`, or the largest; NULL: none of this type and
 * dim. */
const tess_gpu_kernel *tess__gpu_find(tess_gpu_kind kind, tess_dtype dtype, int dim, int rows);

/* Between enter and leave; 0 blocks: nothing is launched. */
tess_status tess__gpu_launch(const char *who, tess_gpu *gpu, const tess_gpu_kernel *kernel,
                             const void *args, int64_t blocks, void *stream);

/* ---- gpu_memory.c ------------------------------------------------------------------------- */

/* Memory on the device that is freed together; {.gpu = gpu} is a valid empty one. Calls wait until
 * the device has done what came before. */
enum { TESS_GPU_PIECES = 24 };
typedef struct {
    tess_gpu *gpu;
    const char *who;
    tess_cuda_memory piece[TESS_GPU_PIECES];
    int n;
} tess_gpu_memory;
tess_status tess__gpu_allocate(tess_gpu_memory *m, size_t bytes, void **memory);
tess_status tess__gpu_copy_in(const tess_gpu_memory *m, void *to, const void *from, size_t bytes);
/* The same `each` bytes again and again. */
tess_status tess__gpu_repeat(const tess_gpu_memory *m, void *to, size_t bytes, const void *from,
                             size_t each);
tess_status tess__gpu_copy_out(const tess_gpu_memory *m, void *to, const void *from, size_t bytes);
void tess__gpu_free(tess_gpu_memory *m);

/* ---- gpu_check_attn.c, gpu_check_select.c ------------------------------------------------- */

/* Runs the cases of opts, whose defaults are filled in, and adds them to the result. */
tess_status tess__gpu_check_attn(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                                 tess_gpu_check_result *result);
tess_status tess__gpu_check_select(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                                   tess_gpu_check_result *result);
void tess__gpu_count_case(const tess_gpu_check_opts *opts, tess_gpu_check_result *result,
                          tess_gpu_case *found); /* sets found->ok */
/* n numbers of a normal distribution: Box-Muller over the context's random numbers. */
tess_status tess__gpu_random(tess__arena *arena, uint64_t stream, size_t n, float **x);

/* ---- gpu_check.c -------------------------------------------------------------------------- */

void tess__gpu_warn(tess_gpu *gpu); /* once, unless a check has passed */

/* ---- gpu_selection.c ---------------------------------------------------------------------- */

/* EINVAL unless the lists are on the device of gpu. */
tess_status tess__gpu_check_device(const char *who, const tess_gpu *gpu,
                                   const tess_gpu_selection *sel);

/* The lists as kernels take them: rows where units became rows. */
tess_gpu_lists tess__gpu_lists(const tess_gpu_selection *sel);
const int64_t *tess__gpu_offsets(const tess_gpu_selection *sel);

/* ---- gpu_view.c --------------------------------------------------------------------------- */

/* A view of device memory as kernels take it; EINVAL: its type, alignment, strides, or device. */
tess_status tess__gpu_rows(const char *who, const tess_gpu *gpu, const char *name,
                           const tess_view *view, tess_dtype dtype, tess_gpu_rows *rows);

/* EINVAL unless the pointer is memory of this device. */
tess_status tess__gpu_pointer(const char *who, const tess_gpu *gpu, const char *name,
                              const void *pointer, int align);

#endif
