/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - what the forward and the backward pass share: the object, tiles, the work queue.
 */
#ifndef TESS_ATTENTION_H
#define TESS_ATTENTION_H

#include "attn_internal.h"

enum { TESS_RANGES_MAX = 64 }; /* parts a head's keys are cut into for the backward pass */

typedef struct tess__bf16_attn tess__bf16_attn; /* bf16_attention.h */

/* All of it lies in the arena, the object first. */
struct tess_attn {
    tess_ctx *ctx;
    tess__arena arena;
    tess_attn_shape shape;       /* with the scale resolved */
    tess__attn_scratch *scratch; /* one per thread */
    _Atomic int64_t *finished;   /* batch * heads * TESS_RANGES_MAX: tiles finished by a range */
    /* The virtual key; see virtual.c. Without it all are NULL or 0. */
    int slices;      /* parts that the rows of a head are summed in, */
    int slices_most; /* and how many totals has room for */
    double *totals;  /* (batch * heads, slices, 2, head_dim): of k and of v */
    double *slots;   /* of the backward pass: virtual.c; an allocation of its own */
    size_t slots_bytes;
    /* Virtual keys by cluster; see clusters.c. Without them all are NULL or 0. totals is then
     * (batch * heads, slices, clusters, 2, head_dim), slots what tess__cluster_slots says. */
    int clusters;       /* of a head: shape.compensate where that is above 1 */
    uint8_t *labels;    /* (batch * heads, tokens_k): in use, */
    uint8_t *own;       /* and in the arena */
    int known;          /* 1: labels are given, not found */
    const float *given; /* (batch * heads, clusters, head_dim): centroids; NULL: they are found */
    int64_t *members;   /* (batch * heads, slices, clusters): rows of each, of all in slice 0 */
    float *centroids;   /* (batch * heads, clusters, head_dim) */
    float *half;        /* (batch * heads, clusters): half of their squared lengths */
    tess__bf16_attn *bf16;        /* NULL: products are in fp32 */
    tess__meanwhile_fn meanwhile; /* NULL: none */
    void *meanwhile_user;
};

/* ---- attention.c ----------------------------------------------------------------------------- */

/* Queries begin..begin+n of a group, at most TESS_TILE of them. */
typedef struct {
    int64_t begin;
    int n;
    int32_t group; /* 0 without a selection */
} tess__query_tile;

/* The numbers of a tile's rows in a head, or NULL: begin, begin + 1, ...; and the row that views of
 * the tile start at: the head's first one where rows have numbers. */
static inline const int32_t *tess__tile_rows(const tess_selection *sel, int64_t head,
                                             const tess__query_tile *tile)
{
    return sel && sel->rows ? sel->rows + head * sel->tokens_q + tile->begin : NULL;
}

static inline int64_t tess__tile_first(const tess_selection *sel, const tess__query_tile *tile)
{
    return sel && sel->rows ? 0 : tile->begin;
}

int64_t tess__tile_count(const tess_attn *attn, const tess_selection *sel); /* of one head */
tess__query_tile tess__tile_at(const tess_attn *attn, const tess_selection *sel, int64_t index);

/* The kernel's view of a tile with all of its keys. */
tess__attn_tile tess__tile_job(const tess_attn *attn, const tess_selection *sel, const tess_view *q,
                               const tess_view *k, const tess_view *v, int64_t b, int64_t h,
                               const tess__query_tile *tile);

/* Whether keys that the selection drops are stood for by a virtual key. */
static inline int tess__compensates(const tess_attn *attn, const tess_selection *sel)
{
    return attn->shape.compensate && sel;
}

tess_status tess__attn_check_inputs(const char *who, const tess_attn *attn,
                                    const tess_selection *sel, const tess_view *q,
                                    const tess_view *k, const tess_view *v);
tess_status tess__attn_check_output(const char *who, const char *name, const tess_attn *attn,
                                    const tess_view *view, int64_t tokens);

/* ---- virtual.c: the virtual key ------------------------------------------------------------- */

int tess__virtual_slices(const tess_attn_shape *shape);

/* Sums the rows of k and v of every head. Called by all threads of a region; ends with a barrier.
 */
void tess__virtual_totals(tess_attn *attn, const tess_view *k, const tess_view *v,
                          tess__attn_scratch *w);
const double *tess__virtual_total(const tess_attn *attn, int64_t head); /* (2, head_dim) */

/* gradient.c: rows of the longest range of a head's keys, dense, where products are in bf16. */
int64_t tess__backward_rows(const tess_attn_shape *shape);

/* gradient.c: a head's tiles are cut into items of work, of so many tiles; and their number. */
int64_t tess__virtual_tiles(const tess_attn_shape *shape, int64_t tiles);
int64_t tess__virtual_parts(const tess_attn_shape *shape, int64_t tiles);

/* Sums of k's and v's rows of the tiles of an item, a (2, head_dim) each, on the thread that runs
 * it; and what a tile takes back from the rows it lists, in the last one what all rows are given:
 * tess__attn_reserve made room for a (2, head_dim) of each tile of each head, and one more. */
double *tess__virtual_sums(const tess_attn *attn, int64_t tiles, int thread);
float *tess__virtual_start(const tess_attn *attn, int64_t tiles, int64_t head, int64_t tile);

/* Sums the starts of each head, with the sign turned. Called as tess__virtual_totals is. */
void tess__virtual_spread(tess_attn *attn, int64_t tiles);

/* ---- clusters.c: virtual keys by cluster ---------------------------------------------------- */

/* Bytes of what an attention object holds for clusters. */
size_t tess__cluster_bytes(const tess_attn_shape *shape);
void tess__cluster_take(tess_attn *attn); /* from the arena, which has room */

/* Finds the clusters of every head, and sums of k and v of each. Called by all threads of a region;
 * ends with a barrier. */
void tess__clusters(tess_attn *attn, const tess_view *k, const tess_view *v, tess__attn_scratch *w);

/* Fills in what a tile of a head needs of its clusters. */
void tess__cluster_tile(const tess_attn *attn, int64_t head, tess__attn_tile *tile);

/* Bytes for the weights of every query, and for what parts of the tiles give to clusters. */
size_t tess__cluster_slots(const tess_attn_shape *shape, int64_t parts);
float *tess__cluster_weights(const tess_attn *attn, int64_t head, int64_t query);
/* (clusters, 2, head_dim); part 0 is the sum of all once tess__cluster_spread has run, as
 * tess__clusters does. */
float *tess__cluster_given(const tess_attn *attn, int64_t parts, int64_t head, int64_t part);
void tess__cluster_spread(tess_attn *attn, int64_t parts);

/* ---- work_queue.c: work items in ascending order, until the caller asks to stop -------------- */

typedef struct {
    tess_ctx *ctx;
    const char *what;
    int64_t total;
    _Atomic int64_t next;
    _Atomic int stopped;
    int64_t reported; /* when progress was last reported; the calling thread's own */
    /* Where this is one of several runs that make up a whole: items of the runs before it, and of
     * all. Progress is reported for the whole. */
    int64_t before, whole;        /* whole 0: this run is all */
    tess__meanwhile_fn meanwhile; /* as of tess__attn_meanwhile */
    void *meanwhile_user;
} tess__work_queue;

/* The next item in ascending order, or -1 when there is none or the caller asked to stop. Called by
 * every thread of the region; the thread that made the call also reports progress and calls
 * meanwhile. */
int64_t tess__work_queue_next(tess__work_queue *run);

/* Calls meanwhile alone, within an item that takes long. */
void tess__work_queue_meanwhile(const tess__work_queue *run);

/* Waits until *finished exceeds `value`; 0 if the run was stopped meanwhile. */
int tess__work_queue_wait(const tess__work_queue *run, const _Atomic int64_t *finished,
                          int64_t value);

/* TESS_OK, or TESS_ESTOPPED with its sentence; after the region. */
tess_status tess__work_queue_end(const tess__work_queue *run);

#endif
