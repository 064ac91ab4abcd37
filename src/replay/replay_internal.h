/* SPDX-License-Identifier: Apache-2.0 */
/* replay_internal.h - ranks from their traces, side by side in the event engine.
 *
 *   replay_load.c -> replay_meets.c -> replay_ours.c, replay_kineto.c -> timeline -> replay_ranks.c
 *   files            which calls are   operations of a rank, and what                results
 *                    the same call     each waits for (replay_host.c;
 *                                      replay_program.c)
 *
 * A row of the timeline is a file. The n-th call of a process group is the same call, a "meet", on
 * all members that have a file.
 */
#ifndef TESS_REPLAY_INTERNAL_H
#define TESS_REPLAY_INTERNAL_H

#include "replay_calls.h"
#include "replay_program.h"
#include "sim/sim_internal.h"
#include "tessera/advanced/replay.h"
#include "timeline/timeline_internal.h"
#include "trace/activity_internal.h"

/* A call that several rows have together. */
typedef struct {
    int32_t group, number;
    int op;           /* tess_call_op */
    int64_t bytes;    /* of the collective's larger buffer; 0: not known */
    int64_t priced;   /* the longest of its members, ns; -1: no member knows enough */
    int64_t recorded; /* the shortest of its members */
    int32_t members;  /* with a file */
    int32_t call;     /* of the timeline; -1: not yet */
} tess__meet;

typedef struct {
    const int32_t *ranks; /* ascending */
    int n;
    int kind;       /* 0: of collectives; of messages between two ranks 1 upward, 2 downward */
    int32_t *meets; /* (n_meets): by number */
    int64_t n_meets, room;
    int rows;   /* with a file */
    int uneven; /* 1: its rows have different numbers of calls */
} tess__meet_group;

/* A file. */
typedef struct {
    const char *path;
    int rank, ranks;
    tess_trace *ours; /* one of the three */
    tess_activity *kineto;
    tess__program *program;
    int32_t *counts; /* calls so far of each group */
    int64_t n_counts;
    int32_t *meets; /* (n_meets): of each collective of the file in its order; -1: of one rank, or
                       not known whose */
    int64_t n_meets, room_meets;
    int64_t first_op, end_op; /* in the timeline */
    tess_replay_rank result;
} tess__replay_row;

struct tess_replay {
    tess_ctx *ctx;
    tess__arena arena;
    const tess_cluster *cluster; /* NULL: as recorded */
    double scale;
    int per_node, as_recorded;
    tess_sim_params *own_params;
    const tess_sim_params *params;
    int hardware;  /* of the cluster's GPU in params; -1: none */
    tess_sim *sim; /* times of operators; NULL: no file is a program, or as recorded */
    tess__replay_row *rows;
    int n;
    tess__meet_group *groups;
    int64_t n_groups, room_groups;
    tess__meet *meets;
    int64_t n_meets, room_meets;
    tess_timeline *timeline;
    int streams; /* of a row, at most */
    tess_replay_info info;
    int64_t like_broadcast;
    const char **notes;
    int64_t room_notes;
};

/* Classes of operations beside tess_kernel_class. */
enum { TESS__REPLAY_HOST = TESS_KERNEL_CLASSES };

/* replay_load.c: fills rows. */
tess_status tess__replay_load(tess_replay *replay, const char *const *paths, int n);
void tess__replay_unload(tess_replay *replay);

/* replay_meets.c: finds the meets of all rows, and their prices. */
tess_status tess__replay_find_meets(tess_replay *replay);
/* The member of a row in a meet, or a collective of one row alone: fills call, ns and class. */
void tess__replay_join(tess_replay *replay, int32_t meet, int64_t recorded, tess__tl_op *op);

/* replay_ours.c, replay_kineto.c, replay_program.c: the streams that a row needs; its operations.
 */
enum { TESS__OURS_STREAMS = 2 };
tess_status tess__replay_ours(tess_replay *replay, int row);
int tess__replay_kineto_streams(const tess_activity *file);
tess_status tess__replay_kineto(tess_replay *replay, int row);
int tess__program_streams(const tess__program *p);
tess_status tess__replay_program(tess_replay *replay, int row);

/* ---- a rank of a profiler: replay_kineto.c, replay_host.c ------------------------------------ */

/* What begins so soon after an end is taken to have waited for it. */
static const int64_t TESS__REPLAY_NEAR_NS = 10000;

/* A stream of the GPU: its last two acts, by number; -1: none. */
typedef struct {
    int32_t device, stream;
    int64_t last, before;
} tess__gpu_stream;

/* An act in the order of its thread. */
typedef struct {
    uint64_t thread;
    int64_t at, act;
} tess__host_launch;

/* A time with a collective. */
typedef struct {
    int64_t begin, end;
} tess__comm_time;

/* Acts of stream k, in order of time: acts[first[k]] .. acts[first[k + 1]]. */
typedef struct {
    int64_t *acts, *first;
    int64_t *latest; /* (acts of the file): the last launch of this act and all that began before */
} tess__stream_acts;

typedef struct {
    tess_replay *r;
    const tess_activity *file;
    int row;
    tess__gpu_stream *streams;
    uint64_t *threads;
    int n_streams, n_threads;
    int32_t *place;           /* (acts): number of its stream */
    tess__host_launch *order; /* (acts): by thread and launch */
    int64_t *marks;           /* (acts): when the host lets it begin, stamp of the file */
    int32_t *host;            /* (acts): operation that ends at the mark; -1: launch not known */
    int32_t *ops;             /* (acts) */
    int32_t *waiter;          /* (acts): operation of the host that waits for its end; -1: none */
    int32_t *waits;           /* (n_waits, 2): an operation of the host, an act that it waits for */
    int64_t n_waits, room_waits;
    tess__stream_acts by_stream;
    int64_t *waited;        /* (streams): acts of one synchronisation */
    int64_t *beside;        /* (acts): ns with communication beside it */
    tess__comm_time *comms; /* (acts): disjoint, ascending */
    int64_t origin;
} tess__player;

static inline int64_t tess__act_end(const tess__act *a)
{
    return a->begin + a->ns;
}

/* The number of a thread of the host. */
int tess__player_thread(tess__player *player, uint64_t thread);
/* Fills by_stream. */
tess_status tess__player_sort_acts(tess__player *player, tess__arena *arena);
/* The operations of the host; fills marks, host, waiter and waits. */
tess_status tess__player_add_host(tess__player *player);

/* Time of a kernel without what communication beside it cost in the recording. */
int64_t tess__replay_alone(const tess_replay *replay, const char *name, int kernel_class,
                           int64_t ns, int64_t beside);

#endif
