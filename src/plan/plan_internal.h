/* SPDX-License-Identifier: Apache-2.0 */
/* plan_internal.h - work, imbalance, partitions, plans, exchange lists, strategy.
 *
 * What lives here: who computes what. What comes in: work of heads and blocks, degrees, a cluster.
 * What goes out: a plan, from which every rank derives alone what it computes and which rows it
 * exchanges with whom. work.h has the work, partition.h the partitions; this header the plan
 * itself.
 *
 * A layer is stored as shares (rank, head, places), orders of blocks per head group and cuts of the
 * keys per head group; pieces are derived. Every head belongs to one group, so that its places are
 * those of one order, and shares tile a head exactly if their intervals of places do.
 */
#ifndef TESS_PLAN_INTERNAL_H
#define TESS_PLAN_INTERNAL_H

#include "base/base_internal.h"
#include "file/json.h"
#include "tessera/advanced/explain.h"
#include "tessera/plan.h"
#include "tessera/strategy.h"
#include "work.h"

/* Limits that keep all products below 2^63 and the memory of a hostile file in bounds. */
enum {
    TESS_PLAN_RANKS_MAX = 65536,
    TESS_PLAN_RING_MAX = 4096,
    TESS_PLAN_SHARES_MAX = 1 << 22, /* of a layer */
    TESS_PLAN_WHY = 256,            /* bytes of a sentence about a plan */
};

/* Of plan files. */
#define TESS_PLAN_FORMAT "tessera-plan"
enum { TESS_PLAN_VERSION = 1, TESS_PLAN_VERSION_STEPS = 2 }; /* 2: of several steps */

/* Memory: one arena, in which the plan itself and all arrays of its layers lie. */
struct tess_plan {
    tess_ctx *ctx;
    tess__arena arena;
    tess_plan_info info;              /* its arrays lie in the arena */
    tess_plan_layer *layers;          /* (info.layers); zeroed by tess__plan_new */
    const tess_candidate *candidates; /* (info.layers, n_candidates): what was tried */
    int n_candidates;
};

/* ---- plan.c: the object, and layers from head groups or shares ------------------------------- */

/* A plan of empty layers. info's arrays are copied; who starts the sentence when a field is out of
 * range. Fill each plan->layers[i] by a builder, with &plan->arena. */
tess_status tess__plan_new(tess_ctx *ctx, const char *who, const tess_plan_info *info,
                           tess_plan **plan);

/* What tess__plan_new needs to know of the work: layers, heads, blocks, tokens, group, unit and
 * bounds (which lie in the work). The rest is the caller's. */
void tess__plan_info_of_work(const tess_work *work, tess_plan_info *info);

/* 1 and the sentence in why, if a field of info is out of range or contradicts another. */
int tess__plan_info_wrong(const tess_plan_info *info, char why[TESS_PLAN_WHY]);

/* EINVAL unless there is a plan that has this layer. */
tess_status tess__plan_layer_ok(const char *who, const tess_plan *plan, int layer);

/* Where part p of `parts` begins when n things are distributed evenly, the first parts taking what
 * is left over. p = parts gives n. */
static inline int32_t tess__even_cut(int32_t n, int parts, int p)
{
    const int32_t rest = n % parts;
    return p * (n / parts) + TESS_MIN(p, rest);
}

/* The first row of a block; block = blocks gives the tokens. */
static inline int64_t tess__plan_q_row(const tess_plan_info *info, int32_t block)
{
    const int64_t row = info->bounds_q ? info->bounds_q[block] : (int64_t)block * info->group;
    return row < info->tokens_q ? row : info->tokens_q;
}
static inline int64_t tess__plan_k_row(const tess_plan_info *info, int32_t block)
{
    const int64_t row = info->bounds_k ? info->bounds_k[block] : (int64_t)block * info->unit;
    return row < info->tokens_k ? row : info->tokens_k;
}

/* S: sequence parts of a layer. */
static inline int tess__layer_parts(const tess_plan_layer *layer)
{
    return layer->strategy.ring > 1 ? layer->strategy.ring : layer->strategy.selective;
}

/* Heads are cut between the ranks of a node, and the sequence between nodes: a head may be in
 * several groups, whose blocks are as they are. */
static inline int tess__cuts_inside(const tess_strategy *strategy)
{
    return strategy->method == TESS_PLAN_FRACTIONAL && strategy->ring * strategy->selective > 1;
}

/* The place of a rank in the mesh of a layer, and back. Fractional layers have one group and no
 * parts: u = 0, s = rank. */
static inline int tess__rank_group(const tess_plan_layer *layer, int rank)
{
    if (layer->groups == 1)
        return 0;
    return layer->strategy.placement == TESS_PLACE_HEADS_INSIDE ? rank % layer->groups
                                                                : rank / tess__layer_parts(layer);
}
static inline int tess__rank_part(const tess_plan_layer *layer, int rank)
{
    if (layer->groups == 1)
        return rank;
    return layer->strategy.placement == TESS_PLACE_HEADS_INSIDE ? rank / layer->groups
                                                                : rank % tess__layer_parts(layer);
}
static inline int tess__rank_at(const tess_plan_layer *layer, int u, int s)
{
    return layer->strategy.placement == TESS_PLACE_HEADS_INSIDE ? s * layer->groups + u
                                                                : u * tess__layer_parts(layer) + s;
}

/* The key part that a rank holds at a step of the ring: it began at part s - step. Layers without a
 * ring have one part. */
static inline int tess__key_part(const tess_plan_layer *layer, int rank, int step)
{
    if (layer->strategy.ring == 1)
        return 0;
    return (tess__rank_part(layer, rank) + layer->strategy.ring - step) % layer->strategy.ring;
}

/* A layer whose groups hold whole heads: Ulysses (ring 1, selective 1), ring or selective. ulysses
 * x ring x selective is info->ranks; ring and selective are not both above 1; groups may be
 * empty. All arrays are copied into the arena. Writes *layer only on success; measures are zero,
 * rho_before and predicted_ns -1. */
typedef struct {
    tess_strategy strategy;
    const int32_t *head_group; /* (heads): 0..ulysses-1 */
    const int32_t *q_cuts;     /* (ulysses, S + 1), ascending from 0 to q_blocks; NULL: even */
    const int32_t *k_cuts;     /* (ulysses, ring + 1); NULL: even */
    const int32_t *q_order, *k_order; /* (ulysses, blocks) permutations; NULL: as they are */
} tess__layer_heads;
tess_status tess__layer_from_heads(tess__arena *arena, const tess_plan_info *info,
                                   const tess__layer_heads *in, tess_plan_layer *layer);

/* A layer of shares in any order, which must tile every head: fractional (all degrees 1, or heads
 * cut inside of nodes: U x R or U x C), or selective with heads each cut in its own way (degrees
 * given, ring 1; a head's ranks in one group). The ranks of a ring have shares of the same heads,
 * and even parts of the keys. Neighbouring shares of one head on one rank become one. `in` gives
 * method, degrees and placement; its arrays are not read. */
tess_status tess__layer_from_shares(tess__arena *arena, const tess_plan_info *info,
                                    const tess__layer_heads *in, const tess_share *shares,
                                    int64_t n, tess_plan_layer *layer);

/* The heads of each group, ascending: list[start[u] .. start[u + 1]). list (heads), start
 * (groups + 1). */
void tess__bucket_heads(const int32_t *head_group, int heads, int groups, int32_t *start,
                        int32_t *list);

/* ---- check.c --------------------------------------------------------------------------------- */

/* 1 and the sentence in why, if method, degrees and placement do not make a layer of the plan's
 * ranks; whole: of whole heads. */
int tess__layer_degrees_wrong(const tess_plan_info *info, const tess__layer_heads *in, int whole,
                              char why[TESS_PLAN_WHY]);

/* 1 and the sentence in why, if the shares of a layer are out of range, out of order, or touch. */
int tess__shares_wrong(const tess_plan_info *info, const tess_plan_layer *layer,
                       char why[TESS_PLAN_WHY]);

/* Whether the layer computes every (head, query block, key block) exactly once. why is "" if it
 * does, else what is wrong and where ("head 3: query block 17 is in two shares"). Only ENOMEM
 * fails. */
tess_status tess__layer_check(tess_ctx *ctx, const tess_plan_info *info,
                              const tess_plan_layer *layer, char why[TESS_PLAN_WHY]);

/* EINVAL unless the work has the plan's heads, blocks and tokens. */
tess_status tess__plan_fits(const char *who, const tess_plan_info *info, const tess_work *work);

/* ---- layer_loads.c: loads and imbalance of a layer under some work --------------------------- */

/* The tiles of one ring group, (ring, ring). heads (n): its heads; not read where heads are cut. */
tess_status tess__group_tiles(const tess_plan_info *info, const tess_plan_layer *layer,
                              const tess_work *work, int at, int u, const int32_t *heads, int n,
                              int64_t *tiles);

/* Fills load_max, load_total, rho, rho_before, kv_copies, moved_q and moved_k from layer `at` of
 * the work. load_bound and predicted_ns stay. Cost: O(shares), the tiles of a ring (see
 * tess__work_tiles), and the unions of a selective layer where masks are known. */
tess_status tess__layer_measure(tess_ctx *ctx, const tess_plan_info *info, const tess_work *work,
                                int at, tess_plan_layer *layer);

/* loads[ranks] = units of work of each rank. */
void tess__layer_loads(const tess_plan_info *info, const tess_plan_layer *layer,
                       const tess_work *work, int at, int64_t *loads);

/* The tiles of rings, (groups, ring, ring) by group, query part and key part, in the arena; they do
 * not depend on the placement. NULL for layers without a ring and without masks, where all tiles of
 * a rank are alike. */
tess_status tess__layer_tiles(tess__arena *arena, const tess_plan_info *info,
                              const tess_plan_layer *layer, const tess_work *work, int at,
                              int64_t **tiles);

/* The tile of a rank in a ring iteration. */
static inline int64_t tess__tile(const tess_plan_layer *layer, const int64_t *tiles, int rank,
                                 int step)
{
    const size_t ring = (size_t)layer->strategy.ring, u = (size_t)tess__rank_group(layer, rank),
                 s = (size_t)tess__rank_part(layer, rank);
    return tiles[(u * ring + s) * ring + (size_t)tess__key_part(layer, rank, step)];
}

/* rho[3] by tess_rho_form, from loads and tiles as they come from the calls above. */
void tess__layer_rho_of(const tess_plan_info *info, const tess_plan_layer *layer,
                        const int64_t *loads, const int64_t *tiles, double rho[3]);

/* ---- shares.c -------------------------------------------------------------------------------- */

/* Where the run of shares of one head and rank that begins at share i ends. */
int64_t tess__shares_run(const tess_plan_layer *layer, int64_t i);

/* Key blocks that the shares [begin, end), all of one head and rank, select together: their number
 * and their bitmap of tess__work_words words. sampled > 0: what at least so many rows of each
 * share select, evenly spaced, which is a part of it. For work with masks. */
int64_t tess__shares_union(const tess_plan_info *info, const tess_plan_layer *layer,
                           const tess_work *work, int at, int64_t begin, int64_t end,
                           int32_t sampled, uint64_t *bits);

/* ---- plan_read.c ----------------------------------------------------------------------------- */

/* tess_plan_load of a document that is open. */
tess_status tess__plan_read(tess_ctx *ctx, const tess__json *doc, tess_plan **plan);

/* A plan of n layers, whose other facts are members of root. */
tess_status tess__plan_read_layers(tess_ctx *ctx, const tess__json_node *root,
                                   const tess__json_node *layers, size_t n, tess_plan **plan);

/* ---- plan_write.c ---------------------------------------------------------------------------- */

/* Members of a plan but for format, version and layers. */
void tess__plan_add_info(tess__jw *w, const tess_plan_info *info);

/* A layer as an object; loads (heads) and runner_up where they are not NULL. */
void tess__plan_add_layer(tess__jw *w, const tess_plan_info *info, const tess_plan_layer *layer,
                          const int64_t *loads, const char *runner_up);

/* ---- plan_file_read.c ------------------------------------------------------------------------ */

/* The plan of the last step of a file of several. */
tess_status tess__plan_read_last(tess_ctx *ctx, const tess__json_node *document, tess_plan **plan);

/* tess_plan_file_open of a document that is open. */
struct tess_plan_file;
tess_status tess__plan_file_read(tess_ctx *ctx, const tess__json *doc,
                                 struct tess_plan_file **file);

#endif
