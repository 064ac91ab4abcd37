/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.h - what every rank of a job does when, event by event, and why the step is that long.
 *
 * A timeline has the operations of ranks on streams: compute, one for each class of communication,
 * copies. An operation begins when its stream is free, its inputs are there and, of a collective,
 * the last member has come. Times are nanoseconds, and the same on every machine.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_TIMELINE_H
#define TESSERA_TIMELINE_H

#include "../base.h"

TESS_BEGIN_DECLS

typedef struct tess_timeline tess_timeline;

TESS_API void tess_timeline_destroy(tess_timeline *timeline); /* NULL accepted */

typedef struct {
    int64_t ns;         /* from the first begin to the last end */
    int ranks;          /* of the job */
    int classes;        /* ranks that do the same at the same times are one */
    int64_t operations; /* of one rank of each class */
    int streams;        /* of a rank */
    int64_t counters;   /* values of memory, of one rank of each class */
} tess_timeline_info;

TESS_API tess_status tess_timeline_query(const tess_timeline *timeline, tess_timeline_info *info);

/* Writes a Chrome trace, which Perfetto opens; gzip where the path ends with .gz. One rank of each
 * class, or the ranks that are listed. *events: how many were written; NULL: not wanted. */
TESS_API tess_status tess_timeline_write(const tess_timeline *timeline, const char *path);
TESS_API tess_status tess_timeline_write_ranks(const tess_timeline *timeline, const int *ranks,
                                               int n, const char *path, int64_t *events);

/* ns of each class of operations on the critical path: the chain of operations from the last end
 * back to 0, each of which began when the one before it ended. They add up to the whole. EINVAL:
 * an index beyond the classes; *name is then NULL. */
TESS_API tess_status tess_timeline_critical(const tess_timeline *timeline, int index,
                                            const char **name, int64_t *ns);

/* One operation, in the order of the ranks of classes and of each stream. */
typedef struct {
    int rank; /* the lowest of its class */
    int stream;
    const char *name;
    const char *cat;           /* "compute", "communication", "copy" or "wait" */
    const char *kind;          /* its class: "gemm"; "": none */
    const char *pass;          /* "3F2": virtual stage 3, forward, micro-batch 2; "": none */
    int64_t ready, begin, end; /* ns; ready: a member of a collective waits from here to begin */
    int64_t bytes;             /* of communication; 0: none */
    int critical;              /* 1: on the critical path */
} tess_timeline_op;

/* index from 0 to info.operations - 1. */
TESS_API tess_status tess_timeline_op_query(const tess_timeline *timeline, int64_t index,
                                            tess_timeline_op *op);

/* Bytes of a rank from `ns` on. */
typedef struct {
    int rank;
    int64_t ns, state, activations, working;
} tess_timeline_memory;

TESS_API tess_status tess_timeline_memory_query(const tess_timeline *timeline, int64_t index,
                                                tess_timeline_memory *memory);

/* The lowest rank of the class of a rank. */
TESS_API tess_status tess_timeline_class_of(const tess_timeline *timeline, int rank, int *first);

/* The name of a rank's stream; "": the rank has none. */
TESS_API tess_status tess_timeline_stream(const tess_timeline *timeline, int rank, int stream,
                                          char text[64]);

/* ---- pipeline schedules ---------------------------------------------------------------------- */

/* The order of passes on each rank of a pipeline: forward, backward, or backward in two parts
 * (input and weights). Stages are virtual ones: with 2 chunks a rank has two. */
typedef struct tess_schedule tess_schedule;

/* Names of the schedules; NULL beyond the last. */
TESS_API const char *tess_schedule_name(int index);

/* By name, with the orders of torch.distributed.pipelining. ranks: of the pipeline; chunks: virtual
 * stages of a rank. EINVAL: an unknown name, or sizes that the schedule does not have. */
TESS_API tess_status tess_schedule_make(tess_ctx *ctx, const char *name, int ranks, int chunks,
                                        int64_t batches, tess_schedule **schedule);
/* From the CSV that torch.distributed.pipelining dumps (docs/formats.md). EINVAL: an action that is
 * missing, runs twice, or waits for ever; the sentence has its rank. */
TESS_API tess_status tess_schedule_load(tess_ctx *ctx, const char *path, tess_schedule **schedule);
TESS_API tess_status tess_schedule_write(const tess_schedule *schedule, const char *path);
TESS_API void tess_schedule_destroy(tess_schedule *schedule); /* NULL accepted */

typedef struct {
    int ranks, stages; /* stages: of all ranks */
    int64_t batches, actions;
} tess_schedule_info;

TESS_API tess_status tess_schedule_query(const tess_schedule *schedule, tess_schedule_info *info);

/* Nanoseconds of each virtual stage and a micro-batch; a whole backward pass takes input + weight.
 * hop: from a stage to its neighbour on another rank, while both compute. */
typedef struct {
    const int64_t *forward_ns, *input_ns, *weight_ns;
    int64_t hop_ns;
} tess_schedule_times;

typedef struct {
    int64_t ns;    /* from the first begin to the last end */
    double bubble; /* idle time of all ranks over ranks x ns */
} tess_schedule_result;

/* in_flight: of each rank, the most forward passes whose gradient of the input was still to come;
 * NULL: not wanted. timeline: of the passes, a stream a rank; NULL: not wanted. EINVAL: a pass
 * waits for ever. */
TESS_API tess_status tess_schedule_replay(const tess_schedule *schedule,
                                          const tess_schedule_times *times,
                                          tess_schedule_result *result, int *in_flight,
                                          tess_timeline **timeline);

TESS_END_DECLS

#endif
