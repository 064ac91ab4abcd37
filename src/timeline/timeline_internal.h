/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_internal.h - operations of ranks on streams, in time order; pipeline schedules.
 *
 * What lives here: the event engine, classes of equal ranks, orders of pipeline schedules, files of
 * both. What comes in: operations with their time alone, their streams, what they wait for. What
 * goes out: begin and end of each, the critical path, a file for Perfetto. Times are int64
 * nanoseconds: the same bits everywhere.
 *
 *   tess_timeline *t;
 *   TESS_TRY(tess__timeline_create(ctx, 2, 2, &t));            two rows, two streams each
 *   const int32_t gemm = tess__timeline_name(t, "gemm"), sum = tess__timeline_name(t, "sum");
 *   const int32_t call = tess__timeline_call(t, &(tess__tl_call){.group = 0, .bytes = 4096});
 *   for (int row = 0; row < 2; row++) {
 *       const int32_t a = tess__timeline_add(t, &(tess__tl_op){.row = row, .stream = 0,
 *                             .name = gemm, .call = -1, .ns = 1000 * (row + 1)});
 *       const int32_t b = tess__timeline_add(t, &(tess__tl_op){.row = row, .stream = 1,
 *                             .cat = TESS__CAT_COMM, .name = sum, .call = call, .ns = 500});
 *       tess__timeline_depend(t, b, a);                         b begins not before a has ended
 *   }
 *   TESS_TRY(tess__timeline_run(t));                            sum: 2000 to 2500 on both rows
 */
#ifndef TESS_TIMELINE_INTERNAL_H
#define TESS_TIMELINE_INTERNAL_H

#include "base/base_internal.h"
#include "tessera/advanced/timeline.h"

/* ---- timeline_ops.c: what shall run -------------------------------------------------------- */

/* What an operation is. HOST: the GPU waits for the host. */
enum { TESS__CAT_COMPUTE, TESS__CAT_COMM, TESS__CAT_COPY, TESS__CAT_HOST, TESS__CATS };
extern const char *const tess__tl_cats[TESS__CATS]; /* their names in files */

/* An operation. A row is a rank, or a class of ranks that all do the same at the same times. */
typedef struct {
    int64_t ns;                /* alone; all members of a call have the same */
    int64_t ready, begin, end; /* results. ready: stream free and inputs there; a member of a
                                  call waits from ready to begin for the others */
    int32_t row;
    int32_t name;  /* of tess__timeline_name */
    int32_t call;  /* of tess__timeline_call; -1: none */
    int32_t tag;   /* the caller's */
    int32_t cause; /* result: the operation at whose end it began; -1: it began at 0 */
    int16_t stream;
    uint8_t cat, class; /* class: the caller's, 0..TESS__CLASS_MAX - 1 */
} tess__tl_op;

/* A communication that begins on all members together. */
typedef struct {
    int32_t group;  /* the caller's */
    int32_t number; /* the caller's: of the call in that group */
    int32_t op;     /* the caller's */
    int64_t bytes;
    int32_t members, arrived, first; /* the engine's; first: member that was added last */
} tess__tl_call;

enum { TESS__CLASS_MAX = 32, TESS__COUNTERS = 3 };

/* Values of a row from the end of an operation on, of names that the view has. */
typedef struct {
    int32_t op, row;
    int64_t value[TESS__COUNTERS];
} tess__tl_counter;

/* Parts per million by which a compute operation takes longer while communication runs on its row,
 * and communication while compute runs there. Asked once for each name and class. */
typedef int32_t (*tess__slow_fn)(const void *user, const char *name, int class);

struct tess_timeline {
    tess_ctx *ctx;
    tess__arena arena;
    tess_status status; /* of the calls below; kept until the run returns it */
    int rows, streams;

    tess__tl_op *ops;
    int32_t *next;        /* the operation that follows in the stream; -1: none */
    int32_t *next_member; /* of the call; -1: none */
    int64_t n, room, room_next, room_member;
    int32_t *last; /* of each (row, stream), while operations are added */

    tess__tl_call *calls;
    int64_t n_calls, room_calls;

    struct tess__edge {
        int32_t before, after;
    } * edges;
    int64_t n_edges, room_edges;

    const char **names;
    int64_t n_names, room_names;
    int32_t *name_slots; /* an open hash table of numbers of names; -1: free */
    int64_t n_slots;

    tess__tl_counter *counters; /* row by row, ascending */
    int64_t n_counters, room_counters;

    tess__slow_fn slow;
    const void *slow_user;

    /* What the ranks of a job are, in the timeline's arena; view NULL: rows are the ranks. */
    const struct tess__view *view; /* without ranks and rows */
    int ranks;
    const int32_t *row_of;      /* (ranks) */
    const int32_t *first_rank;  /* (rows), ascending */
    const char *const *classes; /* names of classes, ended by NULL; NULL: none */
    uint8_t *critical;          /* (n) 1: on the critical path; NULL: not marked */

    int ran;
    int64_t end;     /* of the last operation */
    int32_t last_op; /* the one that ends last */
};

tess_status tess__timeline_create(tess_ctx *ctx, int rows, int streams, tess_timeline **timeline);

/* Of the calls below a failure is stored, and tess__timeline_run returns it: their result is then
 * -1. */

/* The number of a name; names with the same text have the same. */
int32_t tess__timeline_name(tess_timeline *t, const char *name);

/* Adds a call, whose members are then added with its number. */
int32_t tess__timeline_call(tess_timeline *t, const tess__tl_call *call);

/* Adds an operation to the end of its stream. */
int32_t tess__timeline_add(tess_timeline *t, const tess__tl_op *event);

/* `after` begins not before `before` has ended; -1 for either: nothing. */
void tess__timeline_depend(tess_timeline *t, int32_t after, int32_t before);

/* Adds values of a row; in the order of its time. */
void tess__timeline_count(tess_timeline *t, const tess__tl_counter *counter);

/* From the next run on; NULL: nothing slows down. */
void tess__timeline_slow(tess_timeline *t, tess__slow_fn slow, const void *user);

/* ---- timeline_run.c ------------------------------------------------------------------------- */

/* Fills begin and end of all operations. EINVAL: an operation waits for ever; the sentence has its
 * row, stream and name. May be called again after operations were added. */
tess_status tess__timeline_run(tess_timeline *t);

/* ---- timeline_critical.c -------------------------------------------------------------------- */

/* ns of each class on the chain from the last end back to 0: they add up to t->end. */
void tess__timeline_critical(const tess_timeline *t, int64_t ns[TESS__CLASS_MAX]);
/* Fills t->critical. */
tess_status tess__timeline_mark_critical(tess_timeline *t);

/* ---- timeline_file.c ------------------------------------------------------------------------ */

/* What the caller knows of rows and streams. A rank is written with the operations of its row. */
typedef struct tess__view {
    const char *const *streams; /* names; with the function `stream` those below `named` */
    int named;
    const char *const *ops; /* of calls */
    const int32_t *ranks, *rows;
    int n;
    int tags;                    /* 1: tags of operations are names, -1: none */
    const char *const *counters; /* TESS__COUNTERS names; NULL: none */
    /* The process group of a call as one word, of which `rank` is a member; NULL: no calls. */
    void (*group)(const void *user, int rank, const tess__tl_call *call, char text[64]);
    void (*stream)(const void *user, int rank, int stream, char text[64]);
    const void *user;
} tess__view;

/* A Chrome trace that Perfetto opens; gzip where the path ends with .gz. *events: how many. */
tess_status tess__timeline_write(const tess_timeline *t, const tess__view *view, const char *path,
                                 int64_t *events);

/* ---- pipeline schedules: lists of actions for each rank -------------------------------------- */

enum { TESS__ACT_F = 'F', TESS__ACT_B = 'B', TESS__ACT_I = 'I', TESS__ACT_W = 'W' };

/* A pass of a virtual stage and a micro-batch: forward, backward, or backward in two parts, the
 * gradient of its input (I) and of its weights (W). */
typedef struct {
    int32_t stage, batch;
    uint8_t kind;
    uint8_t joined; /* 1: with the next action in a cell (..;..)OVERLAP_F_B */
} tess__action;

struct tess_schedule {
    tess_ctx *ctx;
    int ranks, stages; /* stages: virtual ones, of all ranks */
    int64_t batches;
    tess__action *actions; /* of rank 0, of rank 1, ... */
    int64_t n, room;
    int64_t *first;   /* of each rank, and the number of all */
    int32_t *rank_of; /* of each virtual stage */
};

/* schedule_list.c: an empty schedule of `ranks`; tess__schedule_check finds stages and batches. */
tess_status tess__schedule_create(tess_ctx *ctx, int ranks, tess_schedule **schedule);
tess_status tess__schedule_copy(const tess_schedule *from, tess_schedule **schedule);
tess_status tess__schedule_put(tess_schedule *s, int kind, int stage, int64_t batch);
const char *tess__action_text(const tess__action *a, char text[40]); /* "3F12" */

/* Fills stages, batches and rank_of from the actions. EINVAL, with `name` in front of the sentence,
 * where an action is missing or runs twice, or a stage has two ranks. */
tess_status tess__schedule_check(tess_schedule *s, const char *name);

/* schedule_orders.c: appends the actions of all ranks in turn, and fills first. */
tess_status tess__schedule_order(tess_schedule *s, int kind, int chunks, int64_t batches);

/* schedule_csv.c */
tess_status tess__schedule_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                 tess_schedule **schedule);

/* schedule_replay.c: begins and ends of all actions, in the order of the list; either may be NULL.
 */
tess_status tess__schedule_run(const tess_schedule *s, const tess_schedule_times *times,
                               int64_t *begins, int64_t *ends, int64_t *length);
/* The same in memory of tess__schedule_replay_bytes(s), without an allocation. */
size_t tess__schedule_replay_bytes(const tess_schedule *s);
tess_status tess__schedule_run_in(const tess_schedule *s, const tess_schedule_times *times,
                                  void *memory, int64_t *begins, int64_t *ends, int64_t *length);
void tess__schedule_in_flight(const tess_schedule *s, int *in_flight); /* of each rank, the most */

/* schedule_timeline.c: the passes on one stream of each rank, at their times. */
tess_status tess__schedule_timeline(const tess_schedule *s, const tess_schedule_times *times,
                                    tess_timeline **timeline);

#endif
