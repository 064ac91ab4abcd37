/* SPDX-License-Identifier: Apache-2.0 */
/* replay_program.h - what one rank of a program computes and sends: a trace of version 2.
 *
 *   program_read.c -> program_event.c     the file: head, then an event at a time
 *   program_work.c                        what an operator computes: product, attention, bytes
 *   program_streams.c, replay_program.c   the row of the rank in the event engine
 */
#ifndef TESS_REPLAY_PROGRAM_H
#define TESS_REPLAY_PROGRAM_H

#include "base/base_internal.h"
#include "file/json_stream.h"
#include "tessera/advanced/activity.h"

enum { TESS__PROGRAM_OPERATOR, TESS__PROGRAM_CALL, TESS__PROGRAM_WAIT };
enum { TESS__PROGRAM_FORWARD, TESS__PROGRAM_BACKWARD, TESS__PROGRAM_OPTIMIZER };
enum { TESS__WORK_BYTES, TESS__WORK_PRODUCT, TESS__WORK_ATTENTION };

/* What the operation model needs of an operator. */
typedef struct {
    int kind, precision; /* tess_sim_precision, of products */
    int backward;        /* 1: backward pass of attention */
    int times;           /* kernels of this shape */
    double d[5];         /* product: batch, m, n, k; attention: heads, queries, keys, head_dim,
                            width of a value */
} tess__program_work;

typedef struct {
    const char *name, *module; /* module: "" where not known */
    tess__program_work work;
    int64_t bytes, flop, ns; /* of an operator; ns -1: not measured */
    int64_t in_bytes, out_bytes;
    int64_t stores; /* in program->stores: those read, then those written */
    int32_t n_reads, n_writes;
    int32_t group;                 /* of a call */
    int32_t peer;                  /* of a send or a receive; -1: a collective */
    uint8_t kind, pass, op, class; /* op: tess_call_op; class: tess_kernel_class */
    uint8_t receives;
} tess__program_event;

typedef struct {
    const int32_t *ranks; /* ascending */
    int32_t n;
    int32_t first, stride; /* as the file has it; stride -1: a list */
} tess__program_group;

enum { TESS__PROGRAM_PARTS = 5 };
extern const char *const tess__program_parts[TESS__PROGRAM_PARTS];

typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    const char *path;
    int rank, ranks;
    int64_t peak_bytes, parts[TESS__PROGRAM_PARTS];
    const char **warnings;
    int n_warnings;
    tess__program_event *events;
    int64_t n, room;
    int32_t *stores; /* numbers of storages */
    int64_t n_stores, room_stores;
    int32_t storages; /* numbers are below it */
    tess__program_group *groups;
    int64_t n_groups, room_groups, group_ranks;
    int64_t layers, layer_ops[2]; /* repeated modules; their operators, forward and backward */
} tess__program;

/* program_read.c: takes bytes over. EFORMAT with the path, the event and the rule. */
tess_status tess__program_read(tess_ctx *ctx, const char *path, tess__byte_stream *bytes,
                               tess__program **program);
void tess__program_destroy(tess__program *program);

/* program_event.c: an element of traceEvents, of which those with another phase are passed over. */
tess_status tess__program_event_read(tess__program *p, const tess__json_item *item);

enum { TESS__PROGRAM_SHAPES = 16, TESS__PROGRAM_DIMS = 6 };

/* The shapes of an operator: of its inputs, or of what it gives. */
typedef struct {
    int n; /* of all; those beyond TESS__PROGRAM_SHAPES are not kept */
    int dims[TESS__PROGRAM_SHAPES];
    int64_t size[TESS__PROGRAM_SHAPES][TESS__PROGRAM_DIMS];
} tess__program_shapes;

/* program_work.c: fills work and class from name, shapes and element type. */
void tess__program_work_of(tess__program_event *event, const tess__program_shapes *in,
                           const tess__program_shapes *out, const char *dtype, int causal);

#endif
