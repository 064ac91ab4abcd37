/* SPDX-License-Identifier: Apache-2.0 */
/* activity_internal.h - traces of profilers: from events to what a GPU did.
 *
 * In: a file of the PyTorch profiler (Kineto) or of tess_comm_trace_write, event by event through
 * file/json_stream.h; an event is read once and is gone. Out: a tess_activity, arrays of
 *
 *   acts    kernels, copies and fills, ascending by begin, each with its class, its stream and the
 *           call on the host that launched it
 *   syncs   calls on the host that wait for the GPU
 *   calls   collectives among them: operation, process group, bytes, element type, source
 *
 *   activity_read.c -> activity_event.c -> activity_link.c -> activity_calls.c -> activity_time.c
 *   members of the     an event as a       sorts, joins       collectives from     unions of
 *   document           record              kernel and launch  the best source      intervals
 *
 * Memory: 72 bytes for each kernel or copy and 32 for each launch, about 0.05 of the JSON; arrays
 * double, so that twice that may be in use while they grow.
 */
#ifndef TESS_ACTIVITY_INTERNAL_H
#define TESS_ACTIVITY_INTERNAL_H

#include "file/json_stream.h"
#include "tessera/advanced/activity.h"

/* ---- records -------------------------------------------------------------------------------- */

typedef enum { TESS__ACT_KERNEL, TESS__ACT_COPY, TESS__ACT_FILL } tess__act_kind;

static const int64_t TESS__NO_LAUNCH = INT64_MIN;

/* Something that ran on the GPU. Stamps are those of the file, in nanoseconds. */
typedef struct {
    int64_t begin, ns;
    int64_t correlation;       /* -1: none */
    int64_t launch, launch_ns; /* the call on the host; launch: TESS__NO_LAUNCH: not known */
    uint64_t thread;           /* of the host, that launched it; 0: not known */
    int32_t name;              /* of file->names */
    int32_t call;              /* of file->calls; -1: no collective */
    int32_t stream, device;
    int32_t order;              /* in the file */
    uint8_t kind, kernel_class; /* tess__act_kind, tess_kernel_class */
} tess__act;

typedef struct {
    int64_t correlation, begin, ns;
    uint64_t thread;
} tess__launch;

/* A call on the host that waits for the GPU: cudaStreamSynchronize and its like. */
typedef struct {
    int64_t begin, end;
    uint64_t thread;
    int device; /* 1: for all of it, 0: for a stream or an event, which the call does not name */
} tess__host_sync;

/* What arguments of an event say about a collective. -1, 0 and NULL: nothing. */
typedef struct {
    int op; /* tess_call_op; -1: the event is about no call */
    int64_t in_bytes, out_bytes;
    int32_t dtype; /* as tess__dtype_find numbers them; -1 */
    int32_t group; /* of file->groups; -1 */
    int32_t label; /* of file->labels: the name of the process group; -1 */
} tess__call_args;

typedef enum {
    TESS__HOST_ANNOTATION, /* nccl:all_reduce */
    TESS__HOST_COALESCED,  /* nccl:coalesced */
    TESS__HOST_PARAMS,     /* record_param_comms */
    TESS__HOST_OPERATOR,   /* c10d::_allgather_base_ and its like: output and input */
} tess__host_kind;

/* An event of the host that knows about collectives. */
typedef struct {
    int64_t begin, end;
    uint64_t thread;
    tess__call_args args;
    tess__host_kind kind;
    int sends, receives; /* of PARAMS: "send", "recv" */
} tess__host_op;

typedef struct {
    const int32_t *ranks;
    int n;
    int64_t calls; /* of the file so far */
} tess__ranks_list;

/* A process group as the file calls it, and its number once some event has listed the ranks. */
typedef struct {
    const char *raw;
    size_t bytes;
    int32_t group; /* of file->groups; -1 */
} tess__group_label;

typedef struct {
    int64_t step, begin, end;
} tess__step_span;

/* Names, each once. */
typedef struct {
    const char *raw, *text; /* as it stands in the file; without escapes */
    size_t raw_bytes;
    uint64_t hash;
    uint8_t kernel_class;
} tess__act_name;

typedef struct {
    tess__act_name *items;
    int32_t *table; /* (slots): numbers of items + 1, 0: free */
    int64_t n, room, slots;
} tess__act_names;

/* What was met and left out, or cannot be known; each becomes a note. */
typedef struct {
    int64_t negative, range, no_duration, unpaired, no_launch;
    int64_t no_op, no_bytes, no_group;
    int64_t not_objects;
} tess__act_counts;

struct tess_activity {
    tess_ctx *ctx;
    tess__arena arena;
    const char *path;
    tess_activity_info info;
    int64_t base_ns; /* added to stamps before those of two files are compared */
    tess__act *acts;
    tess__launch *launches;
    tess__host_sync *syncs; /* by thread and begin */
    tess__host_op *host;
    tess__step_span *steps;
    tess_activity_call *calls;
    tess__ranks_list *groups; /* process groups */
    tess__group_label *labels;
    tess__call_args *drafts; /* while reading: arguments of the communication kernels */
    const char **notes;
    int64_t n_acts, room_acts, n_launches, room_launches, n_host, room_host, n_steps, room_steps;
    int64_t n_syncs, room_syncs;
    int64_t room_calls, n_groups, room_groups, n_labels, room_labels, n_drafts, room_drafts;
    int64_t room_notes, unnamed_calls;
    tess__act_names names;
    tess__act_counts counts;
};

/* ---- activity_read.c ------------------------------------------------------------------------ */

/* Reads all of a stream, which it takes over. */
tess_status tess__activity_parse(tess_ctx *ctx, const char *path, tess__byte_stream *bytes,
                                 const tess_activity_opts *opts, tess_activity **file);

/* ---- activity_event.c ----------------------------------------------------------------------- */

enum { TESS__CATEGORIES = 32, TESS__THREADS = 256 };

typedef struct {
    char name[48];
    size_t bytes;
    int role; /* of activity_event.c */
    int64_t events;
} tess__category;

/* Counters of the reading that the result does not need. */
typedef struct {
    tess_activity *file;
    int ours; /* a trace of tess_comm_trace_write */
    tess__category categories[TESS__CATEGORIES];
    int n_categories, last_category;
    uint64_t threads[TESS__THREADS]; /* with events of phases B and E, and how deep they are */
    int64_t depth[TESS__THREADS];
    int n_threads;
    tess__json_field fields[TESS__SCAN_FIELDS];
} tess__event_reader;

tess_status tess__event_read(tess__event_reader *reader, const tess__json_item *item);

/* ---- activity_ours.c: events of tess_comm_trace_write --------------------------------------- */

tess_status tess__event_ours(tess__event_reader *reader, tess__json_slice args, int64_t begin,
                             int64_t ns);

/* Adds an act; order is its place in the file. */
tess_status tess__act_add(tess_activity *file, const tess__act *act);

/* ---- call_args.c, call_names.c: what arguments and names say of a collective ---------------- */

/* The arguments of a kernel or of record_param_comms; op -1 if they have no "Collective name", or
 * one that is no call. direction: 1 send, 2 receive. */
tess_status tess__call_args_read(tess_activity *file, const tess__json_field *fields, int n,
                                 tess__call_args *args, int *direction);

/* The first (which 0) or the second tensor of "Input Dims" and "Input type": its bytes, -1: not
 * known. */
int64_t tess__call_tensor_bytes(const tess__json_field *fields, int n, int which, int32_t *dtype);

tess_call_op tess__call_op_of(const char *name, size_t bytes); /* "_allgather_base", "nccl:..." */
int32_t tess__dtype_find(const char *name, size_t bytes);      /* -1: unknown */
const char *tess__dtype_text(int32_t dtype);                   /* "" of -1 */
int tess__dtype_bytes(int32_t dtype);

/* ---- kernel_classes.c, activity_names.c ----------------------------------------------------- */

tess_kernel_class tess__kernel_class_of(const char *name);
tess_status tess__act_name_add(tess_activity *file, tess__json_slice name, int32_t *number);

/* ---- process_groups.c ----------------------------------------------------------------------- */

/* "[0, 1, 2]"; *group -1 where it is empty, cut by "..." or broken. */
tess_status tess__group_text(tess_activity *file, tess__json_slice text, int32_t *group);
/* first, first + stride, ...; -1 where that is no set of ranks. */
tess_status tess__group_stride(tess_activity *file, int64_t first, int64_t stride, int64_t n,
                               int32_t *group);
/* The number of a name; group, if not -1, are its ranks. */
tess_status tess__group_label_add(tess_activity *file, tess__json_slice name, int32_t group,
                                  int32_t *label);

/* ---- activity_link.c, activity_calls.c, activity_time.c ------------------------------------- */

/* Sorts acts, launches and host operations, and finds the launch of each act. */
tess_status tess__activity_link(tess_activity *file);
/* Keeps what belongs to a ProfilerStep. */
tess_status tess__activity_step(tess_activity *file, int64_t step);
/* One call for each communication kernel. */
tess_status tess__activity_find_calls(tess_activity *file);
/* Fills the times of info. */
void tess__activity_times(tess_activity *file);

#endif
