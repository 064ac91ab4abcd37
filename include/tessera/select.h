/* SPDX-License-Identifier: Apache-2.0 */
/* select.h - selectors: which keys matter, from tensors or from rules; and how good a selection is.
 *
 * A selector fills the lists of a selection. All kinds stand behind one call, and none ever holds
 * a matrix of queries by keys. docs/selection.md gives each rule as a formula, with its cost.
 *
 *   tess_selector *selector;                                  // DSV's predictor, mean proxies
 *   tess_selector_create(ctx, &(tess_selector_opts){.kind = TESS_SELECT_PREDICTOR}, &selector);
 *   tess_select_in in = {.q = &q_low, .k = &k_low, .head_dim = 16, .budget = {.density = 0.1}};
 *   tess_selector_capacity(selector, &sel_shape, &in, &capacity);
 *   tess_selection_create(ctx, &sel_shape, capacity, &sel);
 *   tess_selector_run(selector, &in, sel);                    // for tess_attn_forward
 *
 * Scores that are equal are taken from the lowest index up. NaN ranks below every number, and a
 * query whose softmax is not finite counts as nothing, so that any input gives valid lists.
 */
#ifndef TESSERA_SELECT_H
#define TESSERA_SELECT_H

#include "attn.h"

TESS_BEGIN_DECLS

/* ---- what to select ------------------------------------------------------------------------ */

typedef enum {
    TESS_SELECT_PREDICTOR, /* scores of low-rank vectors, one proxy per group (DSV) */
    TESS_SELECT_ORACLE,    /* true softmax mass of each unit over the group's queries */
    TESS_SELECT_POOLED,    /* scores of mean-pooled groups and units */
    TESS_SELECT_SEARCH,    /* the oracle's mass from a cached lse, kept for some calls (AdaSpa) */
    TESS_SELECT_WINDOW,    /* 3D window of cubes; needs no q and k (sliding tiles) */
    TESS_SELECT_EDGES,     /* local, random and global edges; needs no q and k (SViTT) */
    TESS_SELECT_RANDOM,    /* a fixed share, for controls; needs no q and k */
    TESS_SELECT_COUNT
} tess_select_kind;

/* "predictor", "oracle", ...; NULL beyond the last. */
TESS_API const char *tess_select_kind_name(tess_select_kind kind);

/* Which queries of a sparse head share their keys in a pass. */
typedef enum {
    TESS_GROUP_CUBE,    /* those of a cube of tokens */
    TESS_GROUP_CONTENT, /* as many that look for the same: by recursive bisection of the projected
                           queries, or of the queries of selectors without a predictor, along the
                           direction in which they spread most */
    TESS_GROUP_RANDOM,  /* as many random ones, as a control */
    TESS_GROUP_AUTO,    /* of a training run: CUBE or CONTENT for each layer and head, by what is
                           measured until the layer becomes sparse */
} tess_group;

/* What stands for a group of queries before the predictor. */
typedef enum {
    TESS_PROXY_MEAN,    /* the mean of its queries */
    TESS_PROXY_CENTRE,  /* query number n / 2 of its n */
    TESS_PROXY_SOFTMAX, /* no proxy: the sum of its queries' softmaxes over all keys */
} tess_proxy;

/* What a predictor projects, for each layer and head. */
typedef enum {
    TESS_PREDICT_QK,     /* q and k as attention takes them, by one matrix (rank, head_dim) each */
    TESS_PREDICT_HIDDEN, /* the block's normed and modulated input, by linear layers with bias from
                            dim to heads * rank (DSV) */
} tess_predict_input;

/* Between the rows of true scores s = scale q k^T and predicted ones r = scale_low q_low k_low^T of
 * a query over all keys, S of them. */
typedef enum {
    TESS_PREDICT_KL,     /* KL(softmax(s) || softmax(r)), in nats */
    TESS_PREDICT_COSINE, /* 0.95 (1 - cos(s, r)) + 0.05 |s/|s| - r/|r||^2 / S (DSV); 1 - cos is 1
                            where a row is all zeros */
} tess_predict_loss;

/* Fields of other kinds are ignored. Axes are frames, rows, columns. */
typedef struct {
    tess_select_kind kind;
    tess_proxy proxy; /* PREDICTOR */
    int reuse;        /* SEARCH: so many calls after a search repeat its lists; 0: none */
    /* WINDOW: the tokens are a grid in cube order, cubes in row-major order with smaller ones at
     * the far edges. A cube sees `window` cubes along each axis, (window - 1) / 2 of them before
     * it; at the edges of the grid the window is moved inside. */
    int32_t grid[3];   /* tokens along each axis; their product is tokens_q and tokens_k */
    int32_t cube[3];   /* tokens; 1 or more */
    int32_t window[3]; /* cubes; 1 or more */
    /* EDGES, in units and groups: a group sees the units that hold its own rows (scaled where
     * tokens_q and tokens_k differ), `local` more on each side, the first global_k units, and
     * `random` of the rest. The first global_q groups see everything. */
    int32_t local, random, global_k, global_q;
    int in_place; /* 1: lists of a budget in units go straight into the selection, which takes half
                     the memory; a run that is stopped leaves it empty. Not with `reuse` */
} tess_selector_opts;

/* How much to select: exactly one of these is set, and none for WINDOW and EDGES. */
typedef struct {
    int32_t keys;               /* exactly this many units for every group, 1..n_k */
    double density;             /* ceil(density * n_k) units, at least 1; above 0, at most 1 */
    const int32_t *keys_head;   /* (heads), each 1..n_k */
    const double *density_head; /* (heads), each 0..1; 0 still selects one unit */
    const int32_t *keys_each;   /* (batch, heads), each 0..n_k; 0: empty lists, at no cost */
    double mass;                /* ORACLE, POOLED, SEARCH: the smallest set that reaches this share
                                   of the group's softmax mass; above 0, at most 1 */
} tess_budget;

typedef struct {
    const tess_view *q, *k; /* F32, batch x heads x tokens x head_dim; projected for PREDICTOR */
    int head_dim;           /* a multiple of 8 up to 256; up to 64 for PREDICTOR */
    float scale;            /* of the scores before the softmax, above 0; 0: 1 / sqrt(head_dim) */
    const float *lse;       /* ORACLE, SEARCH: (batch, heads, tokens_q) of q and k, as
                               tess_attn_forward gives it; saves a pass of two. NULL: computed */
    const float *weights;   /* ORACLE, SEARCH, PREDICTOR: (batch, heads, tokens_k), above 0: the
                               softmax mass of a key counts so many times; NULL: once */
    uint64_t seed;          /* RANDOM, EDGES: the same seed gives the same lists */
    const int32_t *groups;  /* (n_q): sel holds these of a whole's groups, and q their rows; RANDOM
                               draws by the numbers, WINDOW takes them for cubes. NULL: all, in
                               order. Not of EDGES */
    tess_budget budget;
} tess_select_in;

/* ---- selectors ------------------------------------------------------------------------------ */

typedef struct tess_selector tess_selector;

TESS_API tess_status tess_selector_create(tess_ctx *ctx, const tess_selector_opts *opts,
                                          tess_selector **selector);

/* Indices that a selection of this shape needs room for: exactly, or for a mass at most. */
TESS_API tess_status tess_selector_capacity(tess_selector *selector, const tess_sel_shape *shape,
                                            const tess_select_in *in, int64_t *capacity);

/* Replaces the lists of sel, whose groups and units are the ones chosen among. The same bits for
 * every number of threads. Runs on the threads of the selector's context.
 *
 * The workspace grows to the largest call and stays: a call no larger than an earlier one
 * allocates nothing. EINVAL if sel has too little room, with the number of indices it needs.
 * ESTOPPED if the context's progress callback asks for it. On failure sel stays as it was, but see
 * in_place. */
TESS_API tess_status tess_selector_run(tess_selector *selector, const tess_select_in *in,
                                       tess_selection *sel);

TESS_API void tess_selector_destroy(tess_selector *selector);

/* ---- measuring ------------------------------------------------------------------------------ */

typedef struct {
    double density; /* selected (query, key) pairs / all pairs, over all groups */
    double mass;    /* softmax mass of the selected keys / all mass: a share of 1 */
    double recall;  /* mass of the selected keys / mass of as many units chosen by the oracle, mean
                       over groups weighted by queries; groups that select nothing are left out */
    double overlap; /* of neighbouring queries of a group: the share of the K units of most mass
                       that both have in common, K the length of the group's list; mean */
    int64_t groups; /* measured for mass and recall */
    int64_t pairs;  /* of neighbouring queries measured for overlap */
} tess_sel_stats;

typedef struct {
    const tess_view *q, *k; /* F32, as for attention */
    int head_dim;           /* a multiple of 8 up to 256 */
    float scale;            /* above 0; 0: 1 / sqrt(head_dim) */
    int32_t every;          /* measure every n-th group of each head, from the first; 0: 1 */
    tess_sel_stats *heads;  /* (batch, heads): the same for each head; NULL: not wanted */
} tess_sel_measure_in;

/* Averages over nothing are 0. Costs about two dense passes over the measured queries, and memory
 * for one head's keys and a few rows of scores per thread. */
TESS_API tess_status tess_selection_measure(tess_ctx *ctx, const tess_selection *sel,
                                            const tess_sel_measure_in *in, tess_sel_stats *stats);

TESS_END_DECLS

#endif
