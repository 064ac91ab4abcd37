/* SPDX-License-Identifier: Apache-2.0 */
/* base.h - what every other header stands on: status, types, context, numbers, files, machine.
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

#ifdef __cplusplus
extern "C" {
#endif

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

TESS_API const char *tess_version(void);    /* "0.1.0" */
TESS_API const char *tess_last_error(void); /* of this thread's last failed call; "" before one */
TESS_API const char *tess_status_name(tess_status status); /* "EINVAL"; "unknown" for others */

/* The candidate that word was probably meant to be: fewest edits, at most a third of the longer one
 * (ASCII case apart), the first of equals. NULL if none is near. For "did you mean" sentences. */
TESS_API const char *tess_nearest(const char *word, const char *const *candidates, int n);

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

/* ENOTSUP: this machine or build cannot run the ISA that was asked for. */
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

typedef struct {
    int64_t count, nan, inf, zero; /* elements, and how many are NaN, +-infinity, +-0 */
    double min, max;               /* of the elements that are not NaN; NaN if there is none */
    double mean, deviation;        /* of the finite elements (population); NaN if there is none */
} tess_stats;

TESS_API tess_status tess_tensor_stats(const tess_ctx *ctx, const tess_tensor *tensor,
                                       tess_stats *stats);

/* ---- tensor files: .npy, .npz, .safetensors, sharded safetensors ------------------------- */

typedef struct tess_file tess_file;

typedef enum {
    TESS_FILE_NPY,
    TESS_FILE_NPZ,
    TESS_FILE_SAFETENSORS,
    TESS_FILE_SAFETENSORS_INDEX, /* model.safetensors.index.json and the shards beside it */
} tess_file_kind;

typedef struct {
    tess_file_kind kind;
    const char *kind_name; /* "npy", "npz", "safetensors", "safetensors index" */
    int64_t bytes;         /* of all files together */
    int shards;            /* files that hold tensors */
    int tensors;
    int metas; /* pairs of safetensors metadata; of an index, those of its first shard */
} tess_file_info;

typedef struct {
    const char *key, *value;
} tess_meta;

typedef struct {
    const tess_meta *metas; /* safetensors only */
    int n_metas;
    int64_t shard_bytes; /* for *.safetensors.index.json: start a new shard beyond this; 0: 5e9 */
    int compress;        /* .npz: 1 deflates, 0 stores */
} tess_file_opts;

/* Recognises the kind by its content. Tensors are mapped, so that opening takes the time of the
 * header, not of the data. The file must not shrink while it is open. */
TESS_API tess_status tess_file_open(tess_ctx *ctx, const char *path, tess_file **file);

/* The same for a file already in memory, which must stay there until the close. `name` is what
 * errors call it. An index finds its shards in the current folder. */
TESS_API tess_status tess_file_open_memory(tess_ctx *ctx, const char *name, const void *data,
                                           size_t bytes, tess_file **file);

TESS_API tess_status tess_file_query(const tess_file *file, tess_file_info *info);
TESS_API tess_status tess_file_meta(const tess_file *file, int index, tess_meta *meta);

/* Tensor number index, in the order of the data, described without touching it (data is NULL).
 * ENOTSUP: a dtype or rank this library does not read; the file's other tensors can be had. */
TESS_API tess_status tess_file_describe(const tess_file *file, int index, tess_tensor *tensor);

/* The tensor with its data: in the mapping where its place is aligned, else a copy that the file
 * owns until it is closed. name NULL takes the only tensor of a file that has one. */
TESS_API tess_status tess_file_tensor(tess_file *file, const char *name, tess_tensor *tensor);

/* Copies a tensor's elements to dst as `dtype` (converted as by tess_convert). bytes must be
 * exactly the number of elements times the size of dtype, and dst aligned to it. After a failure
 * dst holds any part of them. */
TESS_API tess_status tess_file_read(tess_file *file, const char *name, tess_dtype dtype, void *dst,
                                    size_t bytes);
TESS_API void tess_file_close(tess_file *file);

/* Writes n tensors; the end of the path chooses the kind (.npy takes exactly one). The file appears
 * under its name only when it is complete and on disk; on failure what was there before remains.
 * .npy and .npz know no BF16: EINVAL. */
TESS_API tess_status tess_file_write(tess_ctx *ctx, const char *path, const tess_tensor *tensors,
                                     int n, const tess_file_opts *opts);

/* ---- the machine ------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* "base", "avx2", "avx512", "neon", "wide" */
    int bytes;        /* of a vector */
    int available;    /* 1: can be chosen here */
    int test_only;    /* 1: never chosen unless asked for */
    const char *why;  /* why it is not available; "" if it is */
} tess_isa;

TESS_API int tess_isa_count(void);
TESS_API tess_status tess_isa_query(int index, tess_isa *isa); /* best first */

typedef enum {
    TESS_AMX_ABSENT,         /* the CPU or the hypervisor offers none */
    TESS_AMX_REFUSED,        /* the operating system does not grant the tile state */
    TESS_AMX_PALETTE_HIDDEN, /* works, but CPUID leaf 0x1D reads zero: oneDNN and PyTorch crash */
    TESS_AMX_READY,
} tess_amx;

typedef struct {
    char cpu[64], arch[16];
    char topology[16];   /* where it was read: "hwloc" or "sysfs" */
    char features[192];  /* space-separated, as the operating system allows them */
    char huge_pages[16]; /* "always", "madvise", "never", "unknown" */
    int sockets, numa_nodes;
    int cores, cores_usable; /* in the machine; by affinity and container quota */
    int hardware_threads;
    int64_t cache_l1d, cache_l2, cache_l3;  /* bytes of one instance; 0 unknown */
    int64_t memory_total, memory_available; /* bytes, the tighter of machine and container */
    tess_amx amx;
} tess_machine;

TESS_API tess_status tess_machine_query(const tess_ctx *ctx, tess_machine *machine);

/* Peaks measured with this context's ISA, on one thread and on all of its threads; disturbed
 * samples are dropped. Takes a second or two. */
typedef struct {
    double flops_one, flops_all; /* fused multiply-adds on registers, FLOP/s */
    double read_one, read_all;   /* bytes/s read from memory, beyond the caches */
    double copy_one, copy_all;   /* bytes/s copied by memcpy (each byte counted once) */
    int kept, dropped;           /* samples */
} tess_speed;

TESS_API tess_status tess_machine_measure(tess_ctx *ctx, tess_speed *speed);

typedef struct {
    const char *name;    /* "hwloc" */
    const char *version; /* as linked; "" when it was not found */
    const char *effect;  /* what it gives, or what is lost without it */
    int found;
} tess_component;

TESS_API int tess_component_count(void);
TESS_API tess_status tess_component_query(int index, tess_component *component);

/* What would go wrong. Each finding is one call of fn, worst first; the strings live during it. */
typedef enum {
    TESS_FINDING_PROBLEM,
    TESS_FINDING_WARNING,
    TESS_FINDING_NOTE,
    TESS_FINDING_FINE
} tess_finding_level;

typedef struct {
    tess_finding_level level;
    const char *topic;    /* "threads", "openmp", "mpi", "isa", "amx", "memory", "disk", ... */
    const char *sentence; /* what was found, with its numbers */
    const char *advice;   /* what to do about it; "" if nothing */
} tess_finding;

typedef void (*tess_finding_fn)(void *user, const tess_finding *finding);

typedef struct {
    const char *dir;    /* where results will be written; NULL: the current folder */
    int mpi_ranks;      /* ranks of the MPI world this process runs in; 0: no MPI in use */
    int64_t disk_bytes; /* warn below this much free space; 0: 1 GiB */
} tess_doctor_opts;

TESS_API tess_status tess_doctor_run(const tess_ctx *ctx, const tess_doctor_opts *opts,
                                     tess_finding_fn fn, void *user);

/* ---- time -------------------------------------------------------------------------------- */

TESS_API int64_t tess_clock_ns(void); /* monotonic, from an arbitrary start */

typedef struct {
    int samples;     /* undisturbed ones wanted; 0: 7 */
    int samples_max; /* give up after this many; 0: 4 * samples */
    double quiet;    /* a sample counts if the FMA rate before and after it is at least this share
                        of the run's best, and nobody pushed the process aside in it; 0: 0.93 */
} tess_timing_opts;

typedef struct {
    double best, median; /* seconds of one call */
    double low, high;    /* quartiles */
    int kept, dropped;   /* samples; the numbers above are over the kept ones */
    int disturbed;       /* 1: fewer than the samples wanted were quiet. With kept 0 the numbers
                            are over all samples */
    double flops;        /* best FMA rate seen by the probes, all threads of the context */
} tess_timing;

typedef tess_status (*tess_timed_fn)(void *user);

/* Calls fn once to warm up and then until enough samples are undisturbed, probing the FMA peak on
 * the context's threads before and after each. Fails as soon as fn does. */
TESS_API tess_status tess_timing_run(tess_ctx *ctx, const tess_timing_opts *opts, tess_timed_fn fn,
                                     void *user, tess_timing *timing);

#ifdef __cplusplus
}
#endif

#endif
