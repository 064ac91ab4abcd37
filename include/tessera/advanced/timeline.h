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

/* Writes the passes of tess_schedule_replay as a Chrome trace, which Perfetto opens; gzip where the
 * path ends with .gz. */
TESS_API tess_status tess_timeline_write(const tess_timeline *timeline, const char *path);

/* ---- pipeline schedules ---------------------------------------------------------------------- */

/* The order of passes on each rank of a pipeline: forward, backward, or backward in two parts
 * (input and weights). Stages are virtual ones: with 2 chunks a rank has two. */
typedef struct tess_schedule tess_schedule;

/* Names of the schedules, and what each is; NULL beyond the last. */
TESS_API const char *tess_schedule_name(int index);
TESS_API const char *tess_schedule_about(int index);

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
