/* SPDX-License-Identifier: Apache-2.0 */
/* dist_attn_internal.h - the executor of plan pieces: what its files share.
 *
 *   dist_create.c       the object: created, given plans, asked, destroyed
 *   dist_attn.c       forward and backward: what layers of all kinds have in common
 *   dist_layer.c      a layer of the plan as this rank runs it: shares, exchanges, memory
 *   dist_activations.c        what forward leaves for backward
 *   dist_rows.c            rows from their owners to the ranks that compute with them, and back
 *   dist_lists.c           keys of one share: chosen, put away as bits, brought back
 *   dist_unions.c          which keys selective layers would need, counted while somebody asks
 *   dist_whole_keys.c whole keys on each rank: Ulysses, uneven heads, fractional heads
 *   dist_tile.*       attention of a share against some of the keys: what the following share
 *   dist_ring*.*      layers whose keys go round rings
 *   dist_selective*.* layers in which only the selected keys are sent
 *
 * A call of forward, and what does it:
 *
 *   dist_attn.c   checks; takes the set; kind->forward; agree, densities; o (and lse) home
 *   kind          q, k, v to the ranks that compute (tess__rows_to_compute), keys chosen
 *                 (tess__share_select), attention of each (sample, share) into the set's o and lse
 *
 * and of backward:
 *
 *   dist_attn.c   checks; finds the set; dout to the ranks that compute; kind->backward; agree
 *   kind          gradients of each (sample, share), lists from bits (tess__share_decode);
 *                 brings dq, dk and dv home (tess__rows_to_owners)
 *
 * Failing: what a communicator's call returns goes straight up, for the group is lost. All other
 * failures are this rank's own while the others wait: the kind keeps the first of them in
 * run->status, computes nothing more, and takes part in every exchange to its end; dist_attn.c then
 * lets all ranks agree on it. Nothing that may fail lies between the agreement and the last
 * exchange, except for the backward pass of a kind, which agrees itself before it brings gradients
 * home (tess__run_agree).
 */
#ifndef TESS_DIST_ATTN_INTERNAL_H
#define TESS_DIST_ATTN_INTERNAL_H

#include "attn/select_internal.h"
#include "comm/comm_internal.h"
#include "plan/plan_internal.h"
#include "tessera/advanced/exchange.h"
#include "tessera/dist_attn.h"

/* ---- rows that travel (dist_rows.c) ---------------------------------------------------------- */

/* Rows of one head that are neighbours at home and in the packed buffer. */
typedef struct {
    int32_t peer, head; /* peer == rank: rows that stay */
    int64_t row, rows;  /* at the owner's home */
    int64_t place;      /* in the packed buffer */
    int64_t at;         /* rows of the same message before it */
    int adds;           /* home: 1: an earlier peer has written these rows */
} tess__segment;

/* The rows of one side in message order: ascending by peer, both sides of a message alike. */
typedef struct {
    tess__segment *segments;
    int64_t n;
    int64_t *rows; /* (ranks): for each peer, of one sample */
} tess__segment_list;

/* How rows of one kind of tensor travel: from home to packed buffers (out), or back. */
typedef struct {
    tess__segment_list local;  /* rows at home, by the rank that computes with them */
    tess__segment_list packed; /* rows this rank computes with, by their owner */
    int64_t packed_rows;       /* rows of the packed buffer, of one sample */
    /* What the way home needs: the segments of home by head, peers ascending. */
    int64_t *by_head; /* (home.n): segment numbers */
    int64_t *first;   /* (heads + 1): where each head's begin */
    uint8_t *clear;   /* (heads): 1: its rows begin as zeros, for not all are written */
} tess__row_exchange;

/* Fills at, adds, by_head, first and clear from the segments' other members; the arrays are there.
 * local_rows: rows of a head at home. */
void tess__row_exchange_complete(tess__row_exchange *exchange, int heads, int64_t local_rows);

/* A tensor on a exchange. */
typedef struct {
    const tess__row_exchange *exchange;
    int width;       /* floats of a row */
    tess_view local; /* batch x heads x rows at home x width */
    float *packed;   /* (batch, exchange->packed_rows, width) */
} tess__transfer;

enum { TESS__TRANSFERS_MAX = 6 }; /* q, k, v, q_low, k_low, and one to spare */

/* Brings the tensors to the ranks that compute with them, or back to their owners, in one
 * all-to-all of payload; what stays is copied once. Back: rows at home are overwritten by the sum
 * over peers, ascending. Rows go through d->send and d->recv, which the plan made large
 * enough. Allocates nothing. Times are added to seen. */
tess_status tess__rows_to_compute(tess_dist_attn *d, tess_dist_stats *stats,
                                  const tess__transfer *transfers, int n);
tess_status tess__rows_to_owners(tess_dist_attn *d, tess_dist_stats *stats,
                                 const tess__transfer *transfers, int n);

/* Rows of a list that leave or come, of one sample. */
int64_t tess__segment_list_rows(const tess__segment_list *list, int rank, int ranks);

/* ---- a layer as this rank runs it (dist_layer.c) -------------------------------------------- */

/* Query rows of one head that the rank computes, ascending by head. */
typedef struct {
    int32_t head, n_groups;
    const int32_t *groups;   /* (n_groups): their numbers; NULL without groups */
    const int64_t *bounds;   /* (n_groups + 1): rows within the share */
    int64_t q_place, q_rows; /* of the packed queries of a sample */
    int64_t k_place, k_rows; /* of the packed keys: all tokens in token order; ring: the part it
                                begins with, in the group's order; selective: dist_selective.c */
    size_t bits;             /* where its lists begin among a sample's bits, in bytes */
    int same_head;           /* 1: the share before has the same head */
} tess__dist_share;

typedef struct tess__dist_kind tess__dist_kind;

typedef struct {
    const tess__dist_kind *kind;
    tess__dist_share *shares;
    int64_t n_shares;
    tess__row_exchange q, kv;
    size_t bits;           /* bytes of the lists of a sample */
    size_t kind_bytes;     /* bytes that the kind keeps in a set */
    void *kind_state;      /* the kind's own, in the plan's arena */
    double *density;       /* (batch, heads) */
    tess_dist_stats stats; /* with the density above */
} tess__dist_layer;

/* Memory that forward and backward of a layer need; a plan reserves the most of its layers. */
typedef struct {
    int64_t send, recv;  /* floats of messages */
    int64_t activations; /* bytes of a set */
    int64_t gradients;   /* floats of dout, dq, dk, dv */
    int64_t low;         /* floats of q_low, k_low: the kind's to say */
    int64_t scratch;     /* floats that the kind works in: the kind's to say */
    int64_t tiles;       /* of a share's groups */
    int32_t groups;      /* of a share */
} tess__dist_need;

/* ---- sets: what the backward pass needs (dist_activations.c) --------------------------------- */

/* Lies in a buffer that holds the largest layer; pointers are those of the layer it was taken for.
 * k and v have kv.packed_rows rows, and v lies behind k. */
typedef struct {
    tess__buffer memory;
    int layer;            /* -1: void */
    float *q, *k, *v, *o; /* (batch, places, head_dim) */
    float *lse;           /* (batch, q.packed_rows) */
    uint8_t *dense;       /* (batch, shares): 1: no lists */
    uint8_t *bits;        /* (batch, layer->bits): lists of the shares, a row of bits per group */
    uint8_t *kind_data;   /* (layer->kind_bytes): the kind's, aligned to 64 bytes */
    tess__buffer keys;    /* selective: rows of K and V, as many as lists ask for */
} tess__activations;

/* One call. */
typedef struct {
    const tess_dist_call *call;
    tess__dist_layer *layer;
    tess__activations *acts;
    tess_status status;         /* the first failure of this rank alone */
    const tess_view *q, *k, *v; /* forward */
    float *dout, *dq, *dk, *dv; /* backward, packed: dout filled, the others to fill */
    const tess_view *local_dq, *local_dk, *local_dv;
} tess__dist_run;

/* What the kinds do for a plan of one of their layers. The exchange lives as long as the call. */
typedef struct {
    const tess_plan *plan;
    int layer;
    const tess_exchange *exchange;
    tess__arena *arena; /* of what the layer keeps */
} tess__dist_plan;

/* Every layer is of one kind. plan: the rank's shares and layer->q are made; makes layer->kv,
 * k_place and k_rows of the shares where the exchange's do not hold, extra, and raises the need. */
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

/* Where they are counted; everything belongs to who asks. */
typedef struct {
    int n;                 /* degrees: the divisors of ranks above 1 */
    const int *degrees;    /* (n) */
    int64_t parts;         /* of all degrees: their sum */
    int32_t segments;      /* of groups, between neighbouring cuts of all degrees */
    const int32_t *bounds; /* (segments + 1): their first groups */
    const int32_t *cuts;   /* for each degree (degree + 1): the first segments of its parts */
    uint64_t *sets;        /* (segments + 1) sets of units: scratch */
    double *rows; /* (layers, parts, TESS__UNION_COUNTS), over heads and samples, this rank's, added
                     to: keys that a part needs of others; those that others have; the same of
                     parts that are not counted, too */
} tess__union_counts;

/* ---- the object ----------------------------------------------------------------------------- */

struct tess_dist_attn {
    tess_ctx *ctx;
    tess_comm *comm;
    int rank, ranks;
    tess_dist_attn_opts opts; /* arrays in the arena, with units and units_most resolved */
    int64_t local_rows;       /* rows of each sample that this rank owns */
    tess__arena arena;        /* the object and its arrays */
    /* Of the plan, made anew by each: */
    tess__arena plan_arena;
    tess__dist_layer *layers;
    int n_layers;
    tess_selection *lists; /* of one head: tess__selection_reshape; NULL without groups */
    /* Kept from plan to plan, growing: */
    tess_attn *attn; /* of one head, large enough for any share: tess__attn_resize */
    tess__buffer send, recv, gradients, low, scratch;
    tess__buffer sums;              /* selective: gradients of keys, as many as lists ask for */
    tess__activations *activations; /* (saves, at least 1) */
    /* Of a exchange_rows: */
    int64_t *send_bytes, *recv_bytes; /* (ranks) */
    int64_t *send_base,
        *recv_base; /* (TESS__TRANSFERS_MAX, ranks): floats before a transfers's rows */
    double *pairs;  /* (batch, heads), and one more: this rank's failures */
    const tess__union_counts *unions; /* what is chosen is counted there; NULL: nobody asks */
    int lost;                         /* 1: a rank failed while attention ran */
};

/* ---- dist_layer.c ---------------------------------------------------------------------------- */

/* Checks the plan and builds every layer into the arena, and what they need. */
tess_status tess__dist_layers(const tess_dist_attn *d, const tess_plan *plan, tess__arena *arena,
                              tess__dist_layer **layers, tess__dist_need *need);

/* A exchange of the rows of an exchange, with sized_buffer for `places` packed rows. */
tess_status tess__row_exchange_create(const tess_dist_attn *d, const tess__dist_plan *in,
                                      tess_rows rows, int64_t packed_rows,
                                      tess__row_exchange *exchange);

static inline void tess__raise_to(int64_t *most, int64_t n)
{
    *most = TESS_MAX(n, *most);
}

/* Raises the need to what one exchange_rows takes, out or back, of so many floats of each row of
 * q's and of the keys' exchange. */
void tess__need_move(const tess_dist_attn *d, const tess__dist_layer *layer, int q_floats,
                     int kv_floats, tess__dist_need *need);

/* ---- dist_attn.c ----------------------------------------------------------------------------- */

/* Collective: the failure of any rank on all. */
tess_status tess__run_agree(tess_dist_attn *d, const tess__dist_run *run);

/* ---- dist_activations.c ---------------------------------------------------------------------- */

size_t tess__activation_bytes(const tess_dist_attn *d, const tess__dist_layer *layer);

/* Lays a set out for a layer; its content is void. */
void tess__activation_layout(const tess_dist_attn *d, const tess__dist_layer *layer,
                             tess__activations *acts);

/* Rows of one share of one sample in a packed buffer of rows of `width` floats, on q's exchange or
 * on that of the keys. */
tess_view tess__share_q(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width);
tess_view tess__share_k(const tess__dist_layer *layer, int sample, const tess__dist_share *share,
                        float *packed, int width);

/* ---- dist_lists.c ---------------------------------------------------------------------------- */

/* Lets the caller choose the keys of a share; k, q_low and k_low may be NULL. Counts the pairs into
 * d->pairs and the time into the layer's seen, sets acts->dense, and leaves the lists in d->lists;
 * puts them away as bits if asked. Without a callback: dense. */
tess_status tess__share_select(tess_dist_attn *d, tess__dist_run *run, int sample, int64_t i,
                               const tess_view *k, const tess_view *q_low, const tess_view *k_low,
                               int keep);

/* The lists of a share from its bits: *lists = d->lists, or NULL for dense. */
tess_status tess__share_decode(tess_dist_attn *d, const tess__dist_run *run, int sample, int64_t i,
                               const tess_selection **lists);

/* ---- dist_unions.c --------------------------------------------------------------------------- */

/* Adds what the parts of a share need to d->unions; lists NULL: all keys. */
void tess__count_unions(const tess_dist_attn *d, int layer, const tess__dist_share *share,
                        const tess_selection *lists);

/* Bytes of the bits of a group. */
static inline size_t tess__group_bytes(const tess_dist_attn *d)
{
    return ((size_t)d->opts.n_units + 7) / 8;
}

#endif
