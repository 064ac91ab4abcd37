/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - traces of several ranks, together on a cluster.
 *
 *   const char *files[] = {"rank0.json", "rank1.json.gz"};
 *   tess_replay *replay;
 *   tess_replay_run(ctx, files, 2, cluster, NULL, &replay);
 *
 * Files are traces of tess_comm_trace_write, of the PyTorch profiler (Kineto) and of programs that
 * tessera.torch.trace played, plain or gzip. Computing takes the recorded time, of programs without
 * times that of the operation model; a collective takes what cost.h says of the cluster and begins
 * when the last member has come. Members of a process group without a file are like the nearest
 * member with one: no rank waits for them. docs/simulator.md has the rules.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_REPLAY_H
#define TESSERA_REPLAY_H

#include "../cluster.h"
#include "activity.h"
#include "sim_detail.h"
#include "timeline.h"

TESS_BEGIN_DECLS

typedef struct tess_replay tess_replay;

typedef struct {
    double compute_scale; /* time of a kernel there over the recorded one; 0: 1 */
    int per_node;         /* ranks of a node, neighbours; 0: as many as the cluster's nodes have */
    int as_recorded;      /* 1: collectives take their own recorded time, and no rank waits */
    const tess_sim_params *params; /* slowdowns, operation model; NULL: the shipped ones */
    const char *software; /* profile for a program's operators (system.era); NULL: the default */
} tess_replay_opts;

/* cluster may be NULL with as_recorded. EINVAL: two files of one rank, a file whose rank is not
 * known, or calls that wait for ever because the files are not of the same step. */
TESS_API tess_status tess_replay_run(tess_ctx *ctx, const char *const *paths, int n,
                                     const tess_cluster *cluster, const tess_replay_opts *opts,
                                     tess_replay **replay);
TESS_API void tess_replay_destroy(tess_replay *replay); /* NULL accepted */

typedef struct {
    int files, ranks;  /* ranks: of the job, as far as the files say */
    int64_t step_ns;   /* first begin to last end, over all files */
    int64_t calls;     /* collectives of all files, those of one rank left out */
    int64_t unpriced;  /* of them, those with their recorded time: operation, bytes or process
                          group are not known */
    int64_t unmatched; /* of them, those that a member with a file does not have */
    int notes;
    const char *software; /* of programs: the profile that was used; else NULL */
    /* On the critical path by tess_kernel_class, the host last: they add up to the end. */
    int64_t critical_ns[TESS_KERNEL_CLASSES + 1];
} tess_replay_info;

TESS_API tess_status tess_replay_query(const tess_replay *replay, tess_replay_info *info);
/* What a reader should know: a sentence; NULL beyond the last. */
TESS_API const char *tess_replay_note(const tess_replay *replay, int index);

typedef struct {
    const char *path;
    int rank;
    int kineto; /* 1: of a profiler; 0: of tess_comm_trace_write */
    int64_t calls;
    int64_t recorded_ns; /* first begin to last end in the file */
    int64_t span_ns;     /* the same in the replay */
    int64_t compute_ns;  /* while it computes */
    int64_t comm_ns;     /* sum of its collectives, waiting left out */
    int64_t wait_ns;     /* sum of what they wait for the last member */
    int64_t exposed_ns;  /* while a collective runs or waits, and nothing is computed */
    int64_t class_ns[TESS_KERNEL_CLASSES]; /* sums of times by tess_kernel_class */
    int program;        /* 1: of tessera.torch.trace; only then are these known */
    int64_t flop;       /* of its operators */
    int64_t peak_bytes; /* the most memory of its tensors at a time */
    int64_t memory[5];  /* parts of it: tess_replay_memory_name */
    int largest;        /* of the parts */
} tess_replay_rank;

/* "parameters", "gradients", "optimizer", "activations", "temporaries"; NULL beyond the last. */
TESS_API const char *tess_replay_memory_name(int part);

/* In the order of the files. */
TESS_API tess_status tess_replay_rank_query(const tess_replay *replay, int index,
                                            tess_replay_rank *rank);

/* All of it as a Chrome trace, which Perfetto opens; gzip where the path ends with .gz. */
TESS_API tess_status tess_replay_write(const tess_replay *replay, const char *path);

TESS_END_DECLS

#endif
