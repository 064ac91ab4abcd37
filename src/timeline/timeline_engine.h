/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_engine.h - the event engine while it runs: what is queued, what runs, what it is slowed
 * by. timeline_run.c has the events, timeline_slow.c compute beside communication. */
#ifndef TESS_TIMELINE_ENGINE_H
#define TESS_TIMELINE_ENGINE_H

#include "timeline_internal.h"

typedef struct {
    int64_t at;
    int32_t event; /* of a call: its first member */
} tess__end;

/* What slows each other down. */
enum { TESS__SIDE_COMPUTE, TESS__SIDE_COMM, TESS__SIDES };

/* Work of a running operation or call: `left` at the time `since`. */
typedef struct {
    int64_t left, since;
    int32_t busy; /* of a call: its members on whose rows compute runs */
} tess__work_left;

typedef struct {
    tess_timeline *t;
    int32_t *pending; /* what each operation still waits for */
    int64_t *offsets; /* into after, of each operation */
    int32_t *after;
    tess__end *queue; /* a binary heap */
    int64_t queued, room;
    int64_t done;
    /* Of timeline_slow.c; NULL where nothing slows down. */
    int32_t *slow;                /* ppm of each name and class */
    int32_t *running;             /* of each (row, stream): the operation; -1: none */
    int32_t *counts[TESS__SIDES]; /* of each row: operations of that side that run */
    tess__work_left *works;       /* of each (row, stream) */
    tess__work_left *call_works;  /* of each call */
} tess__engine;

/* timeline_run.c: an end of an operation or call. */
tess_status tess__engine_push(tess__engine *e, int64_t at, int32_t event);

/* ---- timeline_slow.c ------------------------------------------------------------------------- */

tess_status tess__slow_reserve(tess__engine *e, tess__arena *arena);

/* An operation without a call, all members of a call: they have begun at `now`, and their end is
 * set. Then what they slow down gets another end. */
tess_status tess__slow_begin(tess__engine *e, int32_t op, int64_t now);
tess_status tess__slow_begin_call(tess__engine *e, const tess__tl_call *call, int64_t now);
/* An operation, member of a call or not, has ended. */
tess_status tess__slow_end(tess__engine *e, int32_t op, int64_t now);

#endif
