/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn_internal.h - the executor of a plan: what its files share.
 *
 *   dist_create.c        the object: creation, plans, statistics, destruction
 *   dist_attn.c          forward and backward: the steps common to all kinds of layers
 *   dist_layer.c         a layer of the plan on this rank: shares, row exchanges, memory
 *   dist_activations.c   activations saved by forward for backward
 *   dist_rows.c          rows from their owner ranks to the computing ranks, and back
 *   dist_lists.c         key lists of one share: selected, encoded as a bitmask, decoded
 *   dist_groups.c        groups of a share's queries in an order of the selector's
 *   dist_unions.c        counts the keys that selective layers would need
 *   dist_whole_keys.c    all keys of a head on its ranks: Ulysses, uneven heads, fractional heads
 *   dist_partial.*       partial attention of a share over some keys: common to the following
 *   dist_ring*.*         layers whose keys circulate in rings
 *   dist_selective*.*    layers in which only the selected keys are sent
 *
 * A call of forward, and what does it:
 *
 *   dist_attn.c   checks; activation layout; kind->forward; agreement, densities; o (and lse) to
 *                 the owner ranks
 *   kind          q, k, v to the computing ranks (tess__rows_to_compute), keys selected
 *                 (tess__share_select), attention of each (sample, share) into acts->o, acts->lse
 *
 * and of backward:
 *
 *   dist_attn.c   checks; saved activations; dout to the computing ranks; kind->backward; agreement
 *   kind          gradients of each (sample, share), lists decoded from bits (tess__share_decode);
 *                 dq, dk and dv to the owner ranks (tess__rows_to_owners)
 *
 * Failures: a failure of a communicator call is returned at once, for the group is lost. All others
 * concern this rank alone, while the others wait: the kind stores the first one in run->status,
 * computes nothing more, and takes part in every exchange; dist_attn.c then lets all ranks agree on
 * it. Nothing that may fail lies between the agreement and the last exchange, except in the
 * backward pass of a kind, which agrees itself before it returns gradients (tess__run_agree).
 */
#ifndef TESS_DIST_ATTN_INTERNAL_H
#define TESS_DIST_ATTN_INTERNAL_H

#include "attn/select_internal.h"
#include "comm/comm_internal.h"
#include "plan/plan_internal.h"
#include "tessera/advanced/exchange.h"
#include "tessera/dist_attn.h"

/* ---- row exchanges (dist_rows.c) ------------------------------------------------------------- */

/* Rows of one head that are consecutive in the owner's tensor and in the packed buffer. */
typedef struct {
    int32_t peer, head; /* peer == rank: rows that are not sent */
    int64_t row, rows;  /* among the owner's local rows */
    int64_t place;      /* first row in the packed buffer */
    int64_t at;         /* rows of the same message before it */
    int adds;           /* list `local`: 1: an earlier peer has written these rows */
} tess__segment;

/* Send or receive list in message order: ascending by peer, equal on both sides of a message. */
typedef struct {
    tess__segment *segments;
    int64_t n;
    int64_t *rows; /* (ranks): rows of each peer, of one sample */
} tess__segment_list;

/* Exchange of the rows of one kind of tensor: from owner ranks to packed buffers, or back. */
typedef struct {
    tess__segment_list local;  /* local rows, by the rank that computes with them */
    tess__segment_list packed; /* rows this rank computes with, by their owner */
    int64_t packed_rows;       /* of the packed buffer, of one sample */
    /* For the way back to the owners: the segments of `local` by head, peers ascending. */
    int64_t *by_head; /* (local.n): segment numbers */
    int64_t *first;   /* (heads + 1): first element of each head */
    uint8_t *clear;   /* (heads): 1: rows start as zeros, for not all are written */
} tess__row_exchange;

/* Fills at, adds, by_head, first and clear, whose arrays are allocated, from the other members. */
void tess__row_exchange_complete(tess__row_exchange *exchange, int heads, int64_t local_rows);

/* A tensor that is moved over an exchange. */
typedef struct {
    const tess__row_exchange *exchange;
    int width;       /* floats of a row */
    tess_view local; /* batch x heads x local rows x width */
    float *packed;   /* (batch, exchange->packed_rows, width) */
    int fixed;       /* 1: pairs of floats are int64_t, which are added as such */
} tess__transfer;

enum { TESS__TRANSFERS_MAX = 6 }; /* q, k, v, q_low, k_low, and one to spare */

/* Moves the tensors to the computing ranks, or back to the owner ranks, in one all-to-all of
 * payload; rows of this rank itself are copied once. Back: local rows are overwritten by the sum
 * over peers, ascending. Uses d->send and d->recv, which the plan made large enough. Allocates
 * nothing. Times are added to stats. */
tess_status tess__rows_to_compute(tess_dist_attn *d, tess_dist_stats *stats,
                                  const tess__transfer *transfers, int n);
tess_status tess__rows_to_owners(tess_dist_attn *d, tess_dist_stats *stats,
                                 const tess__transfer *transfers, int n);

/* Rows of a list that are sent or received, of one sample. */
int64_t tess__segment_list_rows(const tess__segment_list *list, int rank, int ranks);

/* ---- a layer on this rank (dist_layer.c) ----------------------------------------------------- */

/* Query rows of one head that the rank computes, ascending by head. */
typedef struct {
    int32_t head, n_groups;
    const int32_t *groups;   /* (n_groups): group numbers; NULL without groups */
    const int64_t *bounds;   /* (n_groups + 1): rows within the share */
    int64_t q_place, q_rows; /* of the packed queries of a sample */
    int64_t k_place, k_rows; /* of the packed keys: all tokens in token order; ring: the first key
                                part, in the group's order; selective: dist_selective.c */
    size_t bits;             /* offset of its lists in the bitmasks of a sample, in bytes */
    int same_head;           /* 1: the previous share has the same head */
} tess__dist_share;

typedef struct tess__dist_kind tess__dist_kind;

typedef struct {
    const tess__dist_kind *kind;
    tess__dist_share *shares;
    int64_t n_shares;
    tess__row_exchange q, kv;
    size_t bits;           /* bytes of the lists of a sample */
    size_t kind_bytes;     /* bytes of acts->kind_data */
    void *kind_state;      /* data of the kind, in the plan's arena */
    double *density;       /* (batch, heads) */
    tess_dist_stats stats; /* stats.density is the density above */
} tess__dist_layer;

/* Memory that forward and backward of a layer need; a plan reserves the maximum over its layers. */
typedef struct {
    int64_t send, recv;  /* floats of messages */
    int64_t activations; /* bytes of the activations of a layer */
    int64_t gradients;   /* floats of dout, dq, dk, dv */
    int64_t low;         /* floats of q_low, k_low; set by the kind */
    int64_t scratch;     /* floats of workspace; set by the kind */
    int64_t ordered;     /* floats of the largest share's rows, where groups have their own */
    int64_t tiles;       /* of a share's groups */
    int32_t groups;      /* of a share */
} tess__dist_need;

/* ---- saved activations (dist_activations.c) -------------------------------------------------- */

/* In a buffer that is large enough for the largest layer; pointers are those of `layer`. k and v
 * have kv.packed_rows rows each, v follows k. */
typedef struct {
    tess__buffer memory;
    int layer;            /* -1: none */
    float *q, *k, *v, *o; /* (batch, packed_rows, head_dim) */
    float *lse;           /* (batch, q.packed_rows) */
    uint8_t *dense;       /* (batch, shares): 1: no lists */
    uint8_t *bits;        /* (batch, layer->bits): lists of the shares, a bitmask per group */
    uint8_t *kind_data;   /* (layer->kind_bytes): of the kind, aligned to 64 bytes */
    int32_t *rows;        /* (batch, q.packed_rows): with opts.group_rows, of shares that are not
                             dense: the row of the share at each place of its groups */
    tess__buffer keys;    /* selective: rows of K and V, as many as the lists select */
} tess__activations;

/* One call. */
typedef struct {
    const tess_dist_call *call;
    tess__dist_layer *layer;
    tess__activations *acts;
    tess_status status;         /* first failure of this rank alone */
    const tess_view *q, *k, *v; /* forward */
    float *dout, *dq, *dk, *dv; /* backward, packed: dout is input, the others are output */
    const tess_view *local_dq, *local_dk, *local_dv;
} tess__dist_run;

/* Arguments of kind->plan. The exchange lives as long as the call. */
typedef struct {
    const tess_plan *plan;
    int layer;
    const tess_exchange *exchange;
    tess__arena *arena; /* of all arrays of the layer */
} tess__dist_plan;

/* Every layer is of one kind. plan: the rank's shares and layer->q exist; creates layer->kv and
 * layer->kind_state, corrects k_place and k_rows of the shares where those of the exchange do not
 * apply, and raises the need. */
struct tess__dist_kind {
    const char *name;
    tess_status (*plan)(const tess_dist_attn *d, const tess__dist_plan *in, tess__dist_layer *layer,
                        tess__dist_need *need);
    tess_status (*forward)(tess_dist_attn *d, tess__dist_run *run);
    tess_status (*backward)(tess_dist_attn *d, tess__dist_run *run);
};

extern const tess__dist_kind tess__dist_whole_keys, tess__dist_ring, tess__dist_selective;

/* ---- unions of selected keys (dist_unions.c) ------------------------------------------------- */

enum { TESS__UNION_COUNTS = 3 };

/* All arrays belong to the context-parallel group (cp_unions.c). */
struct tess_union_counts {
    int active;            /* 1: forward calls count */
    int n;                 /* degrees: the divisors of ranks above 1 */
    const int *degrees;    /* (n) */
    int64_t parts;         /* of all degrees: their sum */
    int32_t segments;      /* of groups: between consecutive cuts of all degrees */
    const int32_t *bounds; /* (segments + 1): first group of each */
    const int32_t *cuts;   /* for each degree (degree + 1): first segment of each query part */
    uint64_t *sets;        /* (segments + 1) sets of units: scratch */
    double *rows; /* (layers, parts, TESS__UNION_COUNTS), sums over heads and samples of this rank:
                     key rows that a query part needs from other ranks; key rows that other ranks
                     own; the same with the query parts that are not counted */
};

/* ---- the object ----------------------------------------------------------------------------- */

struct tess_dist_attn {
    tess_ctx *ctx;
    tess_comm *comm;
    int rank, ranks;
    tess_dist_attn_opts opts; /* arrays in the arena, with units and units_most resolved */
    int64_t local_rows;       /* rows of each sample that this rank owns */
    tess__arena arena;        /* the object and its arrays */
    /* Of the current plan: */
    tess__arena plan_arena;
    tess__dist_layer *layers;
    int n_layers;
    tess_selection *lists; /* of one head: tess__selection_reshape; NULL without groups */
    /* Reused from plan to plan: */
    tess_attn *attn; /* of one head, large enough for any share: tess__attn_resize */
    tess__buffer send, recv, gradients, low, scratch, ordered;
    tess__buffer sums;              /* selective: gradients of keys, as many as the lists select */
    tess__activations *activations; /* (saves, at least 1) */
    /* Of tess__rows_to_compute and tess__rows_to_owners: */
    int64_t *send_bytes, *recv_bytes; /* (ranks) */
    int64_t *send_base, *recv_base;   /* (TESS__TRANSFERS_MAX, ranks): first float of a transfer */
    double *pairs;                    /* (batch, heads), and one more: 1 if this rank failed */
    int lost;                         /* 1: a rank failed while attention ran */
};

/* ---- dist_layer.c ---------------------------------------------------------------------------- */

/* Checks the plan and builds every layer in the arena; *need is the memory they need. */
tess_status tess__dist_layers(const tess_dist_attn *d, const tess_plan *plan, tess__arena *arena,
                              tess__dist_layer **layers, tess__dist_need *need);

/* The exchange of the given rows of a layer, with a packed buffer of packed_rows rows. */
tess_status tess__row_exchange_create(const tess_dist_attn *d, const tess__dist_plan *in,
                                      tess_rows rows, int64_t packed_rows,
                                      tess__row_exchange *exchange);

/* Floats that an element of the gradients of keys takes on its way to the owner rank. */
static inline int tess__sum_words(const tess_dist_attn *d)
{
    return d->opts.exact ? (int)(sizeof(int64_t) / sizeof(float)) : 1;
}

static inline void tess__raise_to(int64_t *most, int64_t n)
{
    *most = TESS_MAX(n, *most);
}

/* Raises the need to one move of so many floats per row of q's exchange and of the keys'. */
void tess__need_move(const tess_dist_attn *d, const tess__dist_layer *layer, int q_floats,
                     int kv_floats, tess__dist_need *need);

/* ---- dist_attn.c ----------------------------------------------------------------------------- */

/* Collective: returns the failure of any rank on all ranks. */
tess_status tess__run_agree(tess_dist_attn *d, const tess__dist_run *run);

/* ---- dist_activations.c ---------------------------------------------------------------------- */

size_t tess__activation_bytes(const tess_dist_attn *d, const tess__dist_layer *layer);

/* Sets the pointers for a layer; the content is undefined. */
void tess__activation_layout(const tess_dist_attn *d, const tess__dist_layer *layer,
                             tess__activations *acts);

/* Rows of one share of one sample in a packed buffer of rows of `width` floats, of q's exchange or
 * of the keys'. */
tess_view tess__share_q(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width);
tess_view tess__share_k(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width);

/* Clusters of the keys of one sample and head in the calls that follow, by the call's centroids; of
 * no effect where there are none. */
void tess__use_clusters(const tess_dist_attn *d, const tess_dist_call *call, int sample,
                        int32_t head);

/* Virtual keys of a group, 1 or more, for sizes of their sums. */
static inline int tess__virtual_keys(const tess_dist_attn *d)
{
    return TESS_MAX(d->opts.compensate, 1);
}

/* ---- dist_lists.c ---------------------------------------------------------------------------- */

/* Calls the callback for the keys of a share; k, q_low and k_low may be NULL. Adds the pairs to
 * d->pairs and the time to the layer's stats, sets acts->dense, and leaves the lists in d->lists;
 * encode 1: stores them as bitmasks, too. Without a callback: dense. */
tess_status tess__share_select(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                               const tess_view *k, const tess_view *q_low, const tess_view *k_low,
                               int encode);

/* Decodes the lists of a share: *lists = d->lists, or NULL for dense. */
tess_status tess__share_decode(tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i,
                               const tess_selection **lists);

/* ---- dist_groups.c: with opts.group_rows, else without effect -------------------------------- */

/* Where the selector of a share says which row is at each place, NULL: nowhere; all in order; and
 * after the selection: checks it, and puts q in the order of the groups. */
int32_t *tess__rows_of(const tess_dist_attn *d, const tess__dist_run *run, int sample,
                       const tess__dist_share *share);
void tess__rows_begin(const tess__dist_share *share, int32_t *rows);
tess_status tess__rows_group(tess_dist_attn *d, tess__dist_run *run, int sample,
                             const tess__dist_share *share);

/* Packed rows (batch, q.packed_rows, width) of shares with lists: from the order of tokens to that
 * of the groups, and back. */
void tess__to_groups(const tess_dist_attn *d, tess__dist_run *run, int width, float *packed);
void tess__to_tokens(const tess_dist_attn *d, tess__dist_run *run, int width, float *packed);

/* ---- dist_unions.c --------------------------------------------------------------------------- */

/* Adds the keys that the query parts of a share need to u->rows; lists NULL: all keys. */
void tess__count_unions(const tess_dist_attn *d, const tess_union_counts *u, int layer,
                        const tess__dist_share *share, const tess_selection *lists);

/* Bytes of the bitmask of a group. */
static inline size_t tess__group_bytes(const tess_dist_attn *d)
{
    return ((size_t)d->opts.n_units + 7) / 8;
}

#endif
