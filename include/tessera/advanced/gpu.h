/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - attention on selections on an NVIDIA GPU. Link with libtessera_gpu.
 *
 * Advanced: functions and structs may change in any version.
 *
 * These kernels are compiled for the devices named here and executed in an emulation on a CPU. We
 * have not run them on a GPU. docs/gpu.md has their formats, limits and memory.
 *
 *   tess_gpu *gpu;
 *   tess_gpu_open(ctx, 0, &gpu);                                   // ENOTSUP, with the reason
 *   tess_gpu_selection *sel;
 *   tess_gpu_selection_create(gpu, &sel_shape, capacity, &sel);
 *   tess_gpu_selection_upload(sel, selection, stream);             // or tess_gpu_select
 *   tess_gpu_attn_forward(gpu, &shape, sel, &q, &k, &v, &o, lse, stream);
 *   tess_gpu_attn_workspace(gpu, &shape, sel, budget, &bytes);
 *   tess_gpu_attn_backward(gpu, &shape, sel, &saved, &dout, NULL, &dq, &dk, &dv, work, bytes,
 *                          stream);
 *
 * The driver is opened at run time; nothing of CUDA is linked. Views and lse are device memory:
 * pointers and strides are multiples of 16 bytes. A stream is the driver's CUstream, NULL the
 * default one. Calls enqueue their work and return; those of one tess_gpu come from one thread at a
 * time. A kernel that fails later is reported by the next call.
 */
#ifndef TESSERA_GPU_H
#define TESSERA_GPU_H

#include "../attn.h"

TESS_BEGIN_DECLS

typedef struct tess_gpu tess_gpu;
typedef struct tess_gpu_selection tess_gpu_selection;

/* "sm_80 sm_90 ... PTX": the code that the library has; "" without. */
TESS_API const char *tess_gpu_image(void);

typedef enum {
    TESS_GPU_NOT_CHECKED,
    TESS_GPU_CHECK_FAILED,
    TESS_GPU_CHECK_PASSED
} tess_gpu_outcome;

typedef struct {
    char name[128];   /* of the device */
    int device;       /* its number */
    int major, minor; /* its compute capability: 8.0 or later */
    int driver;       /* version, 12040 for 12.4 */
    int64_t memory;   /* bytes */
    int multiprocessors;
    int shared_bytes;         /* that a block may have */
    const char *image;        /* as tess_gpu_image */
    tess_gpu_outcome checked; /* of the last tess_gpu_check or tess_gpu_checked */
} tess_gpu_info;

/* ENOTSUP: the library has no image, there is no driver, no such device, the device is older than
 * compute capability 8.0, or the image has no code for it. */
TESS_API tess_status tess_gpu_open(tess_ctx *ctx, int device, tess_gpu **gpu);
TESS_API tess_status tess_gpu_query(const tess_gpu *gpu, tess_gpu_info *info);
TESS_API void tess_gpu_close(tess_gpu *gpu); /* after everything made with it is destroyed */

/* ---- selections ----------------------------------------------------------------------------- */

/* Memory on the device for lists of a shape, `capacity` indices over all. Units whose size is no
 * power of two, or that have bounds, become rows when lists are uploaded. Tokens: up to 2^30. */
TESS_API tess_status tess_gpu_selection_create(tess_gpu *gpu, const tess_sel_shape *shape,
                                               int64_t capacity, tess_gpu_selection **sel);

/* Copies the lists of a selection of the same shape. EINVAL: another shape, or more indices than
 * the capacity. */
TESS_API tess_status tess_gpu_selection_upload(tess_gpu_selection *sel, const tess_selection *from,
                                               void *stream);
TESS_API void tess_gpu_selection_destroy(tess_gpu_selection *sel);

/* q and k are F32: rows of `rank` numbers for each group, and for each unit. */
typedef struct {
    const tess_view *q, *k;
    int rank;            /* 1..64 */
    const int32_t *keep; /* (batch, heads) in host memory: units of every list, 0..n_k */
} tess_gpu_select_in;

/* Lists of exactly keep units each, of the largest scores q . k, ascending; equal scores go to the
 * lowest index, NaN ranks below every number. An infinity in q or k makes its scores NaN. ENOTSUP:
 * units that become rows. */
TESS_API tess_status tess_gpu_select(tess_gpu *gpu, const tess_gpu_select_in *in,
                                     tess_gpu_selection *sel, void *stream);

/* ---- attention ------------------------------------------------------------------------------ */

typedef struct {
    tess_attn_shape attn; /* head_dim 64 or 128; compensate 0 */
    int atomic; /* 1: gradients of units below 16 rows are added by atomics: no workspace, but not
                   the same bits on every run */
} tess_gpu_attn_shape;

/* As tess_attn_forward. q, k, v and o are all BF16 or all F16; lse is not NULL. */
TESS_API tess_status tess_gpu_attn_forward(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                           const tess_gpu_selection *sel, const tess_view *q,
                                           const tess_view *k, const tess_view *v,
                                           const tess_view *o, float *lse, void *stream);

/* Bytes that backward takes for the lists that sel has now: at most `budget`, beyond which the
 * groups are done in several rounds, with the same result; 0: in one. EINVAL: a budget in which the
 * longest list has no room, with the bytes it needs. */
TESS_API tess_status tess_gpu_attn_workspace(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                             const tess_gpu_selection *sel, int64_t budget,
                                             int64_t *bytes);

/* As tess_attn_backward: saved and dout in the type of the forward pass, gradients F32. The same
 * bits on every run unless the shape is atomic. work: device memory, 256-byte aligned. */
TESS_API tess_status tess_gpu_attn_backward(tess_gpu *gpu, const tess_gpu_attn_shape *shape,
                                            const tess_gpu_selection *sel,
                                            const tess_attn_saved *saved, const tess_view *dout,
                                            const float *dlse, const tess_view *dq,
                                            const tess_view *dk, const tess_view *dv, void *work,
                                            int64_t work_bytes, void *stream);

/* ---- check and bench ------------------------------------------------------------------------ */

/* A case of tess_gpu_check. */
typedef struct {
    const char *name;   /* "bf16, head_dim 64, groups of 32, single keys, ordered" */
    const char *output; /* the one that is closest to, or farthest beyond what is allowed */
    double error,
        allowed; /* of it: over the largest element; of a selection: lists that are wrong */
    int same;    /* 0: two runs gave different bits */
    int guarded; /* 0: bytes before or behind an output were overwritten */
    int ok;      /* 1: all is as it must be */
} tess_gpu_case;

typedef struct {
    const char *folder; /* existing; stores the outcome. NULL: none does */
    int64_t tokens;     /* keys of each head, 64..65536; 0: 4096 */
    int repeats;        /* runs whose bits must agree, 2..1000; 0: 16 */
    void (*found)(void *user, const tess_gpu_case *found); /* after each case, or NULL */
    void *user;
} tess_gpu_check_opts;

typedef struct {
    tess_gpu_outcome outcome;
    int cases, failed;
    int64_t tokens; /* as they were checked */
    int repeats;
} tess_gpu_check_result;

/* Runs every kind of kernel on the device, against the kernels of the CPU: errors, bits over
 * repeated runs, bytes around the outputs. The outcome is stored for this device, driver and
 * library. A result that is wrong is an outcome, not a failure of the call. opts NULL: defaults. */
TESS_API tess_status tess_gpu_check(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                                    tess_gpu_check_result *result);

/* What tess_gpu_check stored in the folder for this device, driver and library. Without it, or
 * unless it passed, the first attention or selection of a tess_gpu warns in the context's log. */
TESS_API tess_status tess_gpu_checked(tess_gpu *gpu, const char *folder,
                                      tess_gpu_check_result *result);

typedef struct {
    tess_gpu_attn_shape shape; /* batch 1 */
    tess_dtype dtype;          /* BF16 or F16 */
    int32_t group, unit;       /* unit: a power of two */
    double density;            /* of each list: above 0, at most 1 */
    int rank;                  /* of the scores that select, 1..64 */
    int repeats;               /* 1..10000; 0: 20 */
} tess_gpu_bench_problem;

/* Milliseconds, medians. */
typedef struct {
    double select, forward, backward;
    double pairs; /* (query, key) pairs of the lists */
} tess_gpu_bench_result;

/* Times the selection of random keys, and attention on them, on the default stream. */
TESS_API tess_status tess_gpu_bench(tess_gpu *gpu, const tess_gpu_bench_problem *problem,
                                    tess_gpu_bench_result *result);

TESS_END_DECLS

#endif
