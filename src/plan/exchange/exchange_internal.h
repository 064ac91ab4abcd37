/* SPDX-License-Identifier: Apache-2.0 */
/* exchange_internal.h - exchange lists: the object, and the steps that fill it.
 *
 * Rows of a computing rank's packed buffer are described by *uses*: one per share on the query
 * side, one per head on the key side. A use is a head, where its rows begin, and a *pattern*: which
 * token ranges follow each other there. Heads of a group are cut alike, so a rank has few patterns
 * and many uses, and a pattern is cut by an owner's bounds once for all its uses.
 */
#ifndef TESS_EXCHANGE_INTERNAL_H
#define TESS_EXCHANGE_INTERNAL_H

#include "plan/plan_internal.h"
#include "tessera/advanced/exchange.h"

/* SIDE_LOW: all keys, in token order. */
typedef enum { TESS__SIDE_Q, TESS__SIDE_K, TESS__SIDE_LOW, TESS__SIDES } tess__side;

/* Runs that grow; rows counts them per peer. */
typedef struct {
    tess_run *runs;
    int64_t n, room;
    int64_t *rows; /* (ranks) */
    int64_t total;
} tess__run_list;

/* Memory: the arena, in which the exchange itself lies, and the runs. */
struct tess_exchange {
    tess_ctx *ctx;
    tess__arena arena;
    tess_exchange_info info;
    tess__run_list to_compute[TESS__SIDES]; /* rows this rank owns, for each computing rank */
    tess__run_list computed[TESS__SIDES];   /* rows this rank computes with, from each owner */
    tess_slot *slots;
    int64_t n_slots;
    tess_ring_view ring;
    int32_t *ids_q, *ids_k; /* block at each place of the rank's group */
    int64_t tokens_q, tokens_k;
    int64_t *rows_q, *rows_k; /* (blocks + 1): where the plan's blocks begin */
};

/* What all steps read. */
typedef struct {
    tess_ctx *ctx;
    const tess_plan_info *info;
    const tess_plan_layer *layer;
    const tess_work *work; /* NULL: not given */
    int at;                /* layer of the work */
    int rank;
    const int64_t *bounds[TESS__SIDES];
    const int32_t *heads;    /* (heads): of each group, ascending; layers of whole heads */
    const int32_t *heads_at; /* (groups + 1) */
} tess__job;

/* A range of tokens, and its place within its pattern. */
typedef struct {
    int64_t begin, end, place;
} tess__pattern_range;

typedef struct {
    int64_t first, last; /* its spans */
    int64_t rows;
} tess__pattern;

typedef struct {
    int32_t head, pattern;
    int64_t place; /* where its rows begin in the packed buffer */
    int64_t ids;   /* selective keys of the job's own rank: its blocks in tess__uses.ids */
    int32_t n_ids;
} tess__use;

/* The packed buffer of one computing rank on one side. */
typedef struct {
    tess_ctx *ctx;
    tess__use *uses;
    tess__pattern *patterns;
    tess__pattern_range *spans, *cut; /* cut: the spans of a pattern within one owner's bounds */
    int32_t *ids;
    uint64_t *bits;
    int64_t n_uses, n_patterns, n_spans, n_cut, n_ids;
    int64_t room_uses, room_spans, room_ids;
    int64_t rows; /* of the buffer */
} tess__uses;

/* ---- exchange_rows.c ---- */

/* The packed buffer of a rank. The memory of uses is kept from call to call. */
tess_status tess__uses_make(const tess__job *job, tess__side side, int rank, tess__uses *uses);
void tess__uses_free(tess__uses *uses); /* {0} accepted */

/* Runs that all messages to the rank of these uses have together, at most. */
int64_t tess__uses_runs(const tess__uses *uses, int ranks);

/* Makes room for `need` runs. */
tess_status tess__run_room(tess_ctx *ctx, tess__run_list *list, int64_t need);

/* Appends what an owner sends to the rank of these uses, as runs with this peer. */
tess_status tess__uses_message(const tess__job *job, tess__side side, tess__uses *uses, int owner,
                               int peer, tess__run_list *list);

/* ---- exchange_slots.c ---- */

/* uses: those of the job's own rank, by side. */
tess_status tess__exchange_slots(const tess__job *job, const tess__uses *uses, tess_exchange *x);
tess_status tess__exchange_ring(const tess__job *job, tess_exchange *x);
tess_status tess__exchange_blocks(const tess__job *job, tess_exchange *x); /* rows_q, rows_k */

#endif
