/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h - what one rank does to run a layer of a plan: which rows it sends, gets and returns.
 *
 * Before attention, rank p owns rows bounds[p]..bounds[p+1]-1 of all heads: its shard. It computes
 * in packed buffers: the query rows of its shares one after the other, and the key rows of each
 * head it needs once. Every rank derives its lists alone, from the plan and the bounds, and both
 * sides of a message list the same rows in the same order: ascending place in the packed buffer of
 * the rank that computes.
 *
 *   tess_exchange *x;
 *   tess_plan_exchange(plan, NULL, layer, rank, bounds, NULL, &x);
 *   tess_exchange_view(x, TESS_ROWS_Q, &rows);     // sends, receives and counts of Q
 *   ...                                            // all-to-all of Q, K and V; attention by slots
 *   tess_exchange_view(x, TESS_ROWS_O, &rows);     // the way back
 *
 * docs/executor.md shows the loop of an executor, in C and in PyTorch's terms.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_EXCHANGE_H
#define TESSERA_EXCHANGE_H

#include "../plan.h"

TESS_BEGIN_DECLS

typedef struct tess_exchange tess_exchange;

/* bounds_q and bounds_k: (ranks + 1) rows, from 0 to the plan's tokens, not falling; shards may cut
 * blocks and may be empty. bounds_k NULL: those of the queries. work: which key rows a selective
 * layer needs, and which tiles of a ring are empty; all ranks give the same. NULL where this is not
 * known in advance: a ring then passes all keys on, and the KV lists of a selective layer are
 * empty, for its executor asks the owners itself when it knows. */
TESS_API tess_status tess_plan_exchange(const tess_plan *plan, const tess_work *work, int layer,
                                        int rank, const int64_t *bounds_q, const int64_t *bounds_k,
                                        tess_exchange **exchange);
TESS_API void tess_exchange_destroy(tess_exchange *exchange);

typedef struct {
    int rank, ranks, heads;
    int64_t shard_q, shard_k;   /* rows of each head in the rank's shard */
    int64_t packed_q, packed_k; /* rows of its packed buffers, over heads */
    int64_t packed_low;         /* rows of that of TESS_ROWS_LOW */
} tess_exchange_info;

TESS_API tess_status tess_exchange_query(const tess_exchange *exchange, tess_exchange_info *info);

/* ---- rows that travel ------------------------------------------------------------------------ */

typedef enum {
    TESS_ROWS_Q,   /* owner to computing rank */
    TESS_ROWS_KV,  /* the same for K, and for V */
    TESS_ROWS_O,   /* back to the owner, as Q came */
    TESS_ROWS_DO,  /* gradients of O, as Q */
    TESS_ROWS_DQ,  /* as O */
    TESS_ROWS_DKV, /* as K came, back; the owner adds what it gets */
    TESS_ROWS_LOW, /* of all keys, owner to computing rank: what a selector reads. All tokens of
                      each head that the rank has a share of, in their order */
    TESS_ROWS_COUNT
} tess_rows;

/* Rows that are neighbours on both sides. */
typedef struct {
    int32_t peer, head; /* peer == rank: rows that stay */
    int64_t row;        /* in the owner's shard of the head */
    int64_t rows;
    int64_t place; /* in the computing rank's packed buffer */
} tess_run;

/* Runs are in message order: ascending by peer, then by place. They belong to the exchange. */
typedef struct {
    const tess_run *sends, *recvs;
    int64_t n_sends, n_recvs;
    const int64_t *send_rows, *recv_rows; /* (ranks): rows for and from each peer */
    int64_t send_total, recv_total;       /* their sums */
    int adds; /* 1: a row may arrive from several peers; sum them, peers in ascending order */
} tess_rows_view;

TESS_API tess_status tess_exchange_view(const tess_exchange *exchange, tess_rows rows,
                                        tess_rows_view *view);

/* How the caller's shard numbers its rows. */
typedef enum {
    TESS_LAYOUT_HEADS,  /* (heads, rows): head * shard_rows + row */
    TESS_LAYOUT_TOKENS, /* (rows, heads): row * heads + head */
    TESS_LAYOUT_COUNT
} tess_layout;

/* The same row by row, for gather and scatter: row i of the messages, laid one after the other by
 * peer, is taken from row send_index[i] of its source (send_total), and put to row recv_index[i] of
 * its destination (recv_total). Sources and destinations are the shard and the packed buffer.
 * Either array may be NULL. */
TESS_API tess_status tess_exchange_index(const tess_exchange *exchange, tess_rows rows,
                                         tess_layout layout, int64_t *send_index,
                                         int64_t *recv_index);

/* ---- what is computed ------------------------------------------------------------------------ */

/* One share: packed query rows against packed key rows. Shares of one head have the same keys. In a
 * ring the keys are those the rank begins with. Blocks in packed order: their rows follow each
 * other, and the block with the last tokens, which may be shorter, is anywhere. A selective layer
 * without work has no keys here. */
typedef struct {
    int32_t head;
    int32_t n_q, n_k;             /* blocks */
    const int32_t *q_ids, *k_ids; /* (n_q), (n_k): which ones */
    int64_t q_place, q_rows;      /* rows of the packed buffers */
    int64_t k_place, k_rows;
    int64_t low_place; /* of TESS_ROWS_LOW: all tokens of the head */
} tess_slot;

TESS_API tess_status tess_exchange_slots(const tess_exchange *exchange, const tess_slot **slots,
                                         int64_t *n);

/* The keys a rank holds at one step of a ring: n_heads x rows packed rows, heads one after the
 * other. */
typedef struct {
    int32_t part;         /* the key part: (s - step) mod steps */
    int32_t n_k;          /* its blocks */
    const int32_t *k_ids; /* (n_k), in packed order */
    int64_t rows;         /* of each head */
    int needed;           /* 1: the rank has work with these keys */
    int passes; /* 1: they go on to `next` after this step, for some rank still needs them */
} tess_ring_step;

/* Before step t > 0 keys come from `previous` if needed or passes of step[t] is 1, and only then:
 * the previous rank sends exactly what passes of its step t - 1 says. */
typedef struct {
    int steps;                  /* the ring degree; 1: nothing circulates, the slots say it all */
    int next, previous;         /* ranks that keys go to and come from */
    const tess_ring_step *step; /* (steps) */
    const int32_t *heads;       /* (n_heads): of the group, ascending */
    int n_heads;
} tess_ring_view;

TESS_API tess_status tess_exchange_ring(const tess_exchange *exchange, tess_ring_view *view);

/* The part of a selection that a slot computes, for tess_attn_forward over its packed rows: one
 * head, sel's batch, q_rows queries and the keys of the slot (of the ring's step; 0 without a ring)
 * in packed order. Groups and units of any size, also others than the plan's blocks: they are cut
 * where blocks end, and the part has bounds. sel has the plan's heads and tokens. No mask is made:
 * memory and time go with the lists. EINVAL where a slot without a ring does not hold a selected
 * key: a selective layer whose exchange was made without work, or with that of other masks. */
TESS_API tess_status tess_exchange_selection(tess_ctx *ctx, const tess_exchange *exchange,
                                             const tess_selection *sel, int64_t slot, int step,
                                             tess_selection **part);

TESS_END_DECLS

#endif
