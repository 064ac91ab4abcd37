/* SPDX-License-Identifier: Apache-2.0 */
/* events_internal.h - the step of a scenario as a timeline of all its ranks.
 *
 * What lives here: classes of equal ranks, the operations of a pass with what they wait for, the
 * step built from them, bytes of memory over time. What comes in: a tess_sim after a run, an order
 * of passes, slow ranks, factors. What goes out: a tess_timeline that has run.
 *
 *   rank_classes.c   ranks -> rows, process groups -> rows that take part
 *   pass_ops.c, pass_order.c
 *                    operations of tess_sim -> a pass of a part: streams and dependencies
 *   step_events.c    order of passes x rows x parts -> timeline
 *   step_gradients.c gathered weights, reduced gradients, optimiser
 *   step_layout.c    what both need
 *   step_timeline.c  the public call
 *   schedule_use.c   a schedule from a file in tess_sim_run
 */
#ifndef TESS_SIM_EVENTS_INTERNAL_H
#define TESS_SIM_EVENTS_INTERNAL_H

#include "sim/sim_internal.h"
#include "tessera/advanced/sim_timeline.h"
#include "timeline/timeline_internal.h"

/* ---- schedule_use.c -------------------------------------------------------------------------- */

/* EINVAL: layout.schedule is a file that was not given, or that has other sizes. */
tess_status tess__file_check(const tess_sim *sim);
double tess__file_in_flight(const tess_sim *sim, int stage); /* micro-batches of all its layers */
/* Seconds of the passes; blocking: a stage waits for what it sends. */
double tess__file_passes(const tess_sim *sim, int blocking);

/* How often the virtual stage runs each part for a micro-batch. */
void tess__chunk_counts(const tess_sim *sim, const tess_schedule *s, int virtual_stage,
                        int counts[TESS__PARTS]);

/* ---- rank_classes.c -------------------------------------------------------------------------- */

enum { TESS__KINDS_MAX = 12 };

/* Process groups of n ranks of a stage that lie `stride` apart. */
typedef struct {
    int n, stride, class; /* class: TESS__TP .. TESS__DP, as operations have it */
} tess__group_kind;

/* Ranks with the same operations whose groups have the same classes of ranks are one row. Ranks
 * are numbered stage by stage. */
typedef struct {
    int ranks, stages, size; /* size: ranks of a stage */
    tess__group_kind kinds[TESS__KINDS_MAX];
    int n_kinds;
    int rows;
    int32_t *row_of;     /* (ranks) */
    int32_t *first_rank; /* (rows), ascending */
    double *factor;      /* (rows) by which computing takes longer */
    int32_t *set;        /* (n_kinds x rows): rows with the same number share their groups */
    int32_t *peer;       /* (rows x stages): the row at another stage of the same pipeline */
} tess__classes;

/* Fills rows and what follows from kinds, ranks, stages and size. every_rank: a row for each. */
tess_status tess__classes_find(tess__arena *arena, const tess_slow_rank *slow, int n_slow,
                               int every_rank, tess__classes *classes);

/* ---- pass_ops.c ------------------------------------------------------------------------------ */

/* Streams of a row; from TESS__STREAM_PP on two for each rank that it sends to or receives from. */
enum {
    TESS__STREAM_COMPUTE,
    TESS__STREAM_TP,
    TESS__STREAM_CP,
    TESS__STREAM_EP,
    TESS__STREAM_EP_BESIDE, /* what runs beside another micro-batch */
    TESS__STREAM_DP,
    TESS__STREAM_COPY,
    TESS__STREAM_PP
};

/* Classes of operations in a timeline. */
enum {
    TESS__TL_GEMM,
    TESS__TL_ATTENTION,
    TESS__TL_ELEMENTWISE,
    TESS__TL_OPTIMISER,
    TESS__TL_HOST,
    TESS__TL_TP,
    TESS__TL_CP,
    TESS__TL_EP,
    TESS__TL_PP,
    TESS__TL_DP,
    TESS__TL_CLASSES
};

enum { TESS__PASS_OPS = 400, TESS__PASS_WAITS = 3 };

/* An operation of a pass, with the places of others that it waits for, beside its stream. */
typedef struct {
    const char *name;
    int32_t number; /* of the name in the timeline */
    int64_t ns, bytes;
    int16_t waits[TESS__PASS_WAITS]; /* in the pass; -1: none */
    int8_t kind;                     /* of a process group; -1: none */
    uint8_t op;                      /* tess_collective_op */
    uint8_t stream, class, cat;
    uint8_t input; /* 1: it waits for the input of the pass */
    uint8_t early; /* 1: for that of the part before: it is prefetched */
} tess__pass_op;

/* What a part runs in a pass. */
typedef struct {
    tess__pass_op ops[TESS__PASS_OPS];
    int n;
    int last;        /* whose end is the end of the pass; -1: nothing runs */
    int last_weight; /* the last gradient of weights; -1: none */
    int beside;      /* the last that runs beside another micro-batch; -1: none */
} tess__pass;

enum { TESS__PASS_F, TESS__PASS_B, TESS__PASS_I, TESS__PASS_W, TESS__PASS_KINDS };

typedef struct {
    const tess_sim *sim;
    tess__classes *classes; /* whose kinds grow */
    const double *scale;    /* (TESS__TL_CLASSES) */
} tess__pass_input;

/* Nanoseconds of an operation: seconds x the simulator's slowness x the factor of its class. */
int64_t tess__pass_ns(const tess__pass_input *in, double seconds, int class);
/* The number of a kind of groups, which is added where it is new. */
int tess__pass_kind(tess__pass_input *in, int n, int stride, int class);
/* A pass while it is made. */
typedef struct {
    tess__pass_input *in;
    const tess_sim *sim;
    int part, kind;
    tess__pass *p;
    int chain;     /* last of the data's way; -1: the input of the pass */
    int pending;   /* communication that the compute operation after the next one waits for; -1 */
    int last;      /* compute operation; -1: none */
    int gathered;  /* weights that the first compute operation waits for; -1 */
    int before;    /* collective beside whose end the next product begins; -1 */
    double hidden; /* seconds of it that the product hides */
} tess__builder;

/* Computes `seconds` of an operation. chain: the data's way goes through it. Returns its place. */
int tess__pass_compute(tess__builder *b, const tess__op *op, double seconds, int chain);
int tess__pass_comm(tess__builder *b, const tess__op *op, double seconds, int after);
void tess__pass_wait(tess__builder *b, int at, int before); /* before -1: the input of the pass */
double tess__pass_all(const tess__op *op);                  /* seconds, hidden or not */
/* A collective behind a product, beside whose end it runs as far as it is hidden; and before one,
 * which the product of the next call begins beside. */
void tess__pass_behind(tess__builder *b, const tess__op *op);
void tess__pass_before(tess__builder *b, const tess__op *op);
void tess__pass_product(tess__builder *b, const tess__op *gemm);
void tess__pass_close(tess__builder *b); /* no product comes */
void tess__pass_experts(tess__builder *b, const tess__op *op);

/* pass_order.c */
void tess__pass_fill(tess__pass_input *in, int part, int kind, tess__pass *pass);

/* ---- step_layout.c, in the order of the calls ------------------------------------------------ */

struct tess__step;
tess_status tess__step_place_parts(struct tess__step *p, tess__arena *arena);
tess_status tess__step_find_peers(struct tess__step *p, tess__arena *arena);
void tess__step_fill_passes(struct tess__step *p);
tess_status tess__step_fill_ends(struct tess__step *p, tess__arena *arena);
tess_status tess__step_check_size(const struct tess__step *p); /* after the classes are found */
tess_status tess__step_reserve_rows(struct tess__step *p, tess__arena *arena);
void tess__step_number_names(struct tess__step *p);
void tess__step_find_hop(struct tess__step *p);

/* ---- step_events.c --------------------------------------------------------------------------- */

/* What a stage of the pipeline does beside its passes. */
typedef struct {
    tess__op gradient[2], gather[2]; /* of weights without experts, of experts; seconds 0: none */
    tess__op replicas[2];            /* gradients among replicas */
    tess__op optimiser, tied;
    double weights[2];           /* of the stage, in the same order */
    double part[TESS__PARTS][2]; /* of one part */
} tess__stage_end;

/* The step while it is built. A part's place is its number in the virtual stage, forward. */
typedef struct tess__step {
    tess_timeline *t;
    const tess_sim *sim;
    const tess_schedule *s;
    tess__classes *c;
    tess__pass_input in;
    tess__pass (*passes)[TESS__PASS_KINDS]; /* (TESS__PARTS) */
    tess__stage_end *ends;                  /* (stages) */
    uint8_t *parts;                         /* (virtual stages x places_max) */
    int32_t *places;                        /* (virtual stages): how many */
    int places_max, chunks;                 /* chunks: the most of a rank */
    int32_t *chunk_of;                      /* (virtual stages): its place in its rank */
    int64_t *last_weight;                   /* (virtual stages): action with its last gradients */
    int64_t *first_forward;                 /* (virtual stages): action */
    int32_t host;                           /* name of the host's time */

    int32_t *peers; /* (ranks of the pipeline x n_peers): ranks that exchange with it; -1 */
    int n_peers;
    int32_t *pair_calls;     /* (rows x n_peers): calls of the pair so far */
    int32_t *tied;           /* (rows): the call of the tied embedding, by the first stage; -1 */
    int32_t *begin, *arrive; /* (rows x chunks x batches x 2): first operation of a pass, and what
                                it receives; -1: none */
    int64_t hop_ns, hop_bytes;
    int blocking; /* 1: a rank waits for what it sends */

    struct tess__call_list {
        int32_t *numbers;
        int64_t n, room;
    } * calls; /* (kinds x rows): of a set of rows */

    /* Of the row that is being built. */
    int row, stage;
    int64_t used[TESS__KINDS_MAX];      /* calls so far */
    int32_t input, before;              /* what the next part waits for, and the one before it */
    int32_t last;                       /* compute operation */
    int32_t last_dp;                    /* of the data-parallel stream */
    int32_t sent;                       /* the last message that the rank waits for; -1 */
    int32_t tag;                        /* name of the pass */
    int32_t *gathers;                   /* (chunks x places_max): weights of a part; -1 */
    int32_t beside;                     /* last of what runs beside another micro-batch */
    int32_t fetched[4], n_fetched;      /* weights of the next part, gathered already */
    double activations, working, state; /* bytes */
} tess__step;

enum { TESS__DIRECTIONS = 2 }; /* activations forward, gradients backward */

tess_status tess__step_build(tess__step *p);

/* Adds an operation to the row, without what it waits for. */
int32_t tess__step_add(tess__step *p, const tess__pass_op *op);

/* ---- step_gradients.c ------------------------------------------------------------------------ */

void tess__stage_end_fill(const tess_sim *sim, int stage, tess_sim *scratch, tess__stage_end *end);
/* The weights of all parts before their first forward pass. */
void tess__step_gathers(tess__step *p, const tess__stage_end *end);
/* Gradients of one part, when they are complete. */
void tess__step_reduce(tess__step *p, const tess__stage_end *end, int part, int32_t after);
/* What is left after the passes: gradients, optimiser, the host. */
void tess__step_finish(tess__step *p, const tess__stage_end *end);

#endif
