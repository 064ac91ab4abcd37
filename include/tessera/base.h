/* SPDX-License-Identifier: Apache-2.0 */
/* base.h - what every other header uses: status, types, context, random numbers, conversion.
 *
 * The rules that hold in all of Tessera:
 *
 *  - A function that can fail returns tess_status. On failure it writes no output argument, and
 *    tess_last_error() says in one sentence what was wrong: the value and the rule.
 *  - *_create and *_open make an object, *_destroy and *_close free it and accept NULL.
 *  - Buffers belong to the caller. No function keeps a pointer to one after it returns, and none
 *    reads or writes outside it.
 *  - One object is used by one thread at a time. A context may be shared by objects on different
 *    threads; objects never interact otherwise.
 *  - Option structs: NULL means all defaults, a field left at zero means that field's default.
 *  - The same input gives the same bits for every number of threads.
 */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include <stddef.h>
#include <stdint.h>

/* Around the declarations of every header: C linkage for C++. */
#ifdef __cplusplus
#define TESS_BEGIN_DECLS extern "C" {
#define TESS_END_DECLS }
#else
#define TESS_BEGIN_DECLS
#define TESS_END_DECLS
#endif

TESS_BEGIN_DECLS

#define TESS_API __attribute__((visibility("default")))

/* ---- status ------------------------------------------------------------------------------ */

typedef enum {
    TESS_OK = 0,
    TESS_EINVAL = -1,   /* an argument is out of its documented range */
    TESS_ENOMEM = -2,   /* an allocation failed; the objects passed in are unchanged */
    TESS_ENOTSUP = -3,  /* valid, but not on this machine or in this build */
    TESS_EIO = -4,      /* a file or the network failed */
    TESS_EFORMAT = -5,  /* a file or message is not what it claims to be */
    TESS_ESTOPPED = -6, /* a callback of the caller asked to stop; finished work is kept */
} tess_status;

TESS_API const char *tess_version(void); /* "0.1.0" */

/* A hash of the declarations of all public headers that the library was built with, 16 hexadecimal
 * digits: a binding made from other headers must not use the library. */
TESS_API const char *tess_abi(void);
TESS_API const char *tess_last_error(void); /* of this thread's last failed call; "" before one */

/* Sets what tess_last_error returns on this thread, and returns status: for callbacks that fail. */
TESS_API tess_status tess_error_set(tess_status status, const char *text);
TESS_API const char *tess_status_name(tess_status status); /* "EINVAL"; "unknown" for others */

/* ---- types every room shares ------------------------------------------------------------- */

typedef enum {
    TESS_DTYPE_F32,
    TESS_DTYPE_BF16,
    TESS_DTYPE_F16,
    TESS_DTYPE_F64,
    TESS_DTYPE_I32,
    TESS_DTYPE_I64,
    TESS_DTYPE_U8,
    TESS_DTYPE_BOOL, /* one byte, 0 or 1 */
    TESS_DTYPE_COUNT
} tess_dtype;

typedef enum { TESS_PRECISION_FP32, TESS_PRECISION_BF16 } tess_precision; /* of products */

/* Rows of head_dim contiguous elements for each (batch, head, token). Strides are in elements, so
 * [B,H,S,D] and [B,S,H,D] are both views of the caller's buffer without a copy. */
typedef struct {
    void *data;
    tess_dtype dtype;
    int64_t stride_b, stride_h, stride_s;
} tess_view;

enum { TESS_RANK_MAX = 8 }; /* dimensions of a tensor */

/* A named, row-major, contiguous array. rank 0 is a scalar: one element. */
typedef struct {
    const char *name;
    tess_dtype dtype;
    int rank;
    int64_t shape[TESS_RANK_MAX];
    const void *data; /* aligned to its element */
} tess_tensor;

TESS_API size_t tess_dtype_size(tess_dtype dtype);      /* bytes of an element; 0 if unknown */
TESS_API const char *tess_dtype_name(tess_dtype dtype); /* "F32", as safetensors spells it */

/* ---- context ----------------------------------------------------------------------------- */

typedef struct tess_ctx tess_ctx;

typedef enum {
    TESS_LOG_OFF,
    TESS_LOG_ERROR,
    TESS_LOG_WARN,
    TESS_LOG_INFO,
    TESS_LOG_DEBUG
} tess_log_level;
/* Calls may come from several threads. */
typedef void (*tess_log_fn)(void *user, tess_log_level level, const char *message);

/* Called now and then by everything that can take long, from the thread that made the call.
 * done and total count what `what` names; total is 0 when it is not known. A result other than 0
 * asks to stop: the call then returns TESS_ESTOPPED. */
typedef int (*tess_progress_fn)(void *user, const char *what, int64_t done, int64_t total);

/* alloc returns 64-byte aligned memory or NULL. Both may be called from several threads. */
typedef struct {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *memory);
    void *user;
} tess_allocator;

typedef struct {
    const char *isa;          /* NULL: $TESS_ISA, else the best this machine runs */
    int threads;              /* 0: $TESS_THREADS, else the cores this process may use; 1..1024 */
    tess_allocator allocator; /* all NULL: the C library's */
    tess_log_fn log;          /* NULL: silent */
    void *log_user;
    tess_log_level log_level; /* 0 with a log callback: TESS_LOG_WARN */
    tess_progress_fn progress;
    void *progress_user;
} tess_ctx_opts;

typedef struct {
    const char *isa;
    int threads;
    int64_t bytes_now, bytes_peak; /* allocated through this context */
    int64_t allocations;           /* how many, ever: a steady state keeps it constant */
} tess_ctx_info;

/* ENOTSUP: this machine or build cannot run the ISA that was asked for.
 *
 * After fork() the contexts of the child have one thread each, and so has every context that the
 * child makes: threads of the parent are not there, and the OpenMP runtime would wait for them.
 * Objects made before can be used in the child, with the same bits, unless another thread of the
 * parent was in a call with them. */
TESS_API tess_status tess_ctx_create(const tess_ctx_opts *opts, tess_ctx **ctx);
TESS_API tess_status tess_ctx_query(const tess_ctx *ctx, tess_ctx_info *info);

/* Objects made with the context may outlive this call: the last of them to be destroyed frees the
 * context. Until then its allocator and callbacks are used. */
TESS_API void tess_ctx_destroy(tess_ctx *ctx);

/* ---- random numbers ---------------------------------------------------------------------- */

/* Philox4x32-10. out[i] is number (index + i) of the stream (seed, stream): it depends on these
 * three alone, never on threads, ranks, calls, compiler or instruction set. */
TESS_API tess_status tess_random_bits(uint64_t seed, uint64_t stream, uint64_t index, uint32_t *out,
                                      size_t n);
TESS_API tess_status tess_random_uniform(uint64_t seed, uint64_t stream, uint64_t index, float *out,
                                         size_t n); /* [0, 1), multiples of 2^-24 */
TESS_API tess_status tess_random_normal(uint64_t seed, uint64_t stream, uint64_t index, float *out,
                                        size_t n); /* mean 0, variance 1 */

/* ---- numbers in tensors ------------------------------------------------------------------ */

/* dst[i] = src[i] for n elements. To a float type: rounded to nearest, ties to even, overflow to
 * infinity, NaN kept. To an integer: truncated toward zero and clamped to its range, NaN gives 0.
 * To BOOL: 1 if not zero. src and dst do not overlap and are aligned to their elements. */
TESS_API tess_status tess_convert(const tess_ctx *ctx, tess_dtype from, const void *src,
                                  tess_dtype to, void *dst, int64_t n);

TESS_END_DECLS

#endif
