/* SPDX-License-Identifier: Apache-2.0 */
/* activity.h - what a GPU did, from the trace of a profiler: kernels, copies, collectives.
 *
 *   tess_activity *file;
 *   tess_activity_info info;
 *   tess_activity_load(ctx, "rank0.json.gz", NULL, &file);
 *   tess_activity_query(file, &info);           // span = compute + exposed + copy + idle
 *
 * Traces are those of the PyTorch profiler (Kineto), plain or gzip, and those of
 * tess_comm_trace_write. Times are int64 nanoseconds made from the decimal text. docs/traces.md has
 * the rules.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_ACTIVITY_H
#define TESSERA_ACTIVITY_H

#include "../base.h"

TESS_BEGIN_DECLS

/* ---- one file -------------------------------------------------------------------------------- */

typedef struct tess_activity tess_activity;

typedef struct {
    int rank_given, rank; /* rank_given 0: what the file or its name says */
    int step_given;       /* 1: only what was launched during ProfilerStep#step */
    int64_t step;
} tess_activity_opts;

/* EFORMAT names the byte that breaks a rule; EINVAL: no such step. A file that ends too early gives
 * what could be read, and a note. */
TESS_API tess_status tess_activity_load(tess_ctx *ctx, const char *path,
                                        const tess_activity_opts *opts, tess_activity **file);
TESS_API void tess_activity_destroy(tess_activity *file); /* NULL accepted */

typedef enum {
    TESS_KERNEL_GEMM,
    TESS_KERNEL_ATTENTION,
    TESS_KERNEL_NORM,
    TESS_KERNEL_ELEMENTWISE,
    TESS_KERNEL_REDUCTION,
    TESS_KERNEL_COMMUNICATION,
    TESS_KERNEL_COPY, /* copies and fills of memory */
    TESS_KERNEL_OTHER,
    TESS_KERNEL_CLASSES
} tess_kernel_class;

TESS_API const char *tess_kernel_class_name(tess_kernel_class kernel_class); /* "gemm"; or NULL */

typedef struct {
    int64_t kernels, ns; /* ns: sum of durations */
} tess_activity_class;

typedef struct {
    const char *path;
    int rank, ranks; /* -1, 0: not known */
    int64_t events, kernels, json_bytes;
    int64_t begin_ns;            /* of the first activity: the stamp of the file */
    int64_t span_ns;             /* first begin to last end */
    int64_t compute_ns, comm_ns; /* while a compute kernel runs; while a collective runs */
    int64_t exposed_ns;          /* of comm_ns, while no compute kernel runs */
    int64_t hidden_ns;           /* comm_ns - exposed_ns */
    int64_t copy_ns;             /* while nothing but copies runs */
    int64_t idle_ns;
    tess_activity_class classes[TESS_KERNEL_CLASSES];
    int64_t calls; /* collectives */
    int notes;
} tess_activity_info;

TESS_API tess_status tess_activity_query(const tess_activity *file, tess_activity_info *info);

/* What a reader should know about the file: a sentence; NULL beyond the last. */
TESS_API const char *tess_activity_note(const tess_activity *file, int index);

/* Kernels and copies of one name. */
typedef struct {
    const char *name;
    tess_kernel_class kernel_class;
    int64_t kernels, ns; /* ns: sum of durations */
} tess_activity_kernel;

/* The names on which most time is spent, descending: room of them at most, *n of all. */
TESS_API tess_status tess_activity_kernels(const tess_activity *file, tess_activity_kernel *kernels,
                                           int64_t room, int64_t *n);

/* The span in n equal parts: the fraction of each in which a compute kernel, a collective, and
 * nothing but copies runs. */
TESS_API tess_status tess_activity_busy(const tess_activity *file, int n, double *compute,
                                        double *comm, double *copy);

/* ---- collectives ----------------------------------------------------------------------------- */

/* The first six as in tess_collective_op. */
typedef enum {
    TESS_CALL_ALL_REDUCE,
    TESS_CALL_ALL_GATHER,
    TESS_CALL_REDUCE_SCATTER,
    TESS_CALL_ALL_TO_ALL,
    TESS_CALL_BROADCAST,
    TESS_CALL_SEND_RECEIVE,
    TESS_CALL_REDUCE,
    TESS_CALL_GATHER,
    TESS_CALL_SCATTER,
    TESS_CALL_UNKNOWN,
    TESS_CALL_OPS
} tess_call_op;

TESS_API const char *tess_call_op_name(tess_call_op op); /* "all_reduce"; "" of UNKNOWN; or NULL */

/* Where operation, bytes and process group come from. */
typedef enum {
    TESS_CALL_FROM_KERNEL,     /* the kernel's own arguments */
    TESS_CALL_FROM_ANNOTATION, /* the annotation around its launch */
    TESS_CALL_FROM_NAME,       /* the kernel's name */
} tess_call_source;

TESS_API const char *tess_call_source_name(tess_call_source source); /* "kernel"; or NULL */

typedef struct {
    tess_call_op op;
    tess_call_source source;
    const int32_t *ranks; /* the process group; NULL: not known */
    int n_ranks;
    int stream;
    int64_t call;                /* its number among the calls of the process group, from 0 */
    int64_t in_bytes, out_bytes; /* -1: not known */
    const char *dtype;           /* "float"; "": not known */
    int64_t begin_ns, ns;        /* begin: the stamp of the file */
} tess_activity_call;

/* In order of begin; they live as long as the file. */
TESS_API tess_status tess_activity_calls(const tess_activity *file,
                                         const tess_activity_call **calls, int64_t *n);

/* Collectives of files as CSV (docs/formats.md). */
TESS_API tess_status tess_activity_write(const tess_activity *const *files, int n,
                                         const char *path);

/* ---- several files: ranks side by side ------------------------------------------------------- */

typedef struct tess_activity_ranks tess_activity_ranks;

/* The n-th call of a process group is the same call on all members. What a member's call takes
 * longer than the shortest one's is waiting for the last member. The files must outlive it. */
TESS_API tess_status tess_activity_compare(tess_ctx *ctx, const tess_activity *const *files, int n,
                                           tess_activity_ranks **ranks);
TESS_API void tess_activity_ranks_destroy(tess_activity_ranks *ranks); /* NULL accepted */

typedef struct {
    int slowest;      /* the file with the longest compute_ns */
    double imbalance; /* its compute_ns over the mean of all; 1 without computing */
    int64_t matched;  /* calls that two files or more have */
    int notes;
} tess_activity_ranks_info;

TESS_API tess_status tess_activity_ranks_query(const tess_activity_ranks *ranks,
                                               tess_activity_ranks_info *info);
TESS_API const char *tess_activity_ranks_note(const tess_activity_ranks *ranks, int index);

/* What a file waits for the others in calls of an operation, and of how many calls that is. */
TESS_API tess_status tess_activity_wait(const tess_activity_ranks *ranks, int file, tess_call_op op,
                                        int64_t *wait_ns, int64_t *calls);

TESS_END_DECLS

#endif
