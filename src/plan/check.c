/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - whether a plan is one: its facts, its orders and cuts, and every block exactly once.
 *
 * A rank computes its shares against all keys of its group's key order, so (head, query block, key
 * block) is computed exactly once if
 *   - the orders are permutations and the key cuts ascend from 0 to the last key block,
 *   - a head's shares are on ranks of one group, hence in places of one order, and
 *   - sorted by their begin, they tile the places of the head.
 * Cost: O(shares + groups * blocks), and the sort where a head's shares do not ascend with the
 * ranks.
 */
#include "plan_internal.h"

#include <stdlib.h>
#include <string.h>

static int wrong(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int wrong(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, TESS_PLAN_WHY, format, args);
    va_end(args);
    return 1;
}

/* ---- the facts of a plan --------------------------------------------------------------------- */

/* One side of the plan: queries or keys. */
typedef struct {
    char letter;
    int32_t blocks, rows; /* rows of a block; 0 with bounds */
    const char *rows_name;
    int64_t tokens;
    const int64_t *bounds;
} side;

static int side_wrong(const side *s, char *why)
{
    if (s->blocks < 1)
        return wrong(why, "%c_blocks is %d, must be 1 or more", s->letter, s->blocks);
    if (s->tokens < s->blocks || s->tokens > INT32_MAX)
        return wrong(why, "tokens_%c is %lld, must be %d..%d, for there are %d blocks", s->letter,
                     (long long)s->tokens, s->blocks, INT32_MAX, s->blocks);
    if (!s->bounds) {
        if (s->rows < 1 || (s->tokens + s->rows - 1) / s->rows != s->blocks)
            return wrong(why, "%s is %d, which does not cut %lld tokens into %d blocks",
                         s->rows_name, s->rows, (long long)s->tokens, s->blocks);
        return 0;
    }
    if (s->bounds[0] != 0 || s->bounds[s->blocks] != s->tokens)
        return wrong(why, "bounds_%c go from %lld to %lld, must go from 0 to %lld", s->letter,
                     (long long)s->bounds[0], (long long)s->bounds[s->blocks],
                     (long long)s->tokens);
    for (int32_t b = 0; b < s->blocks; b++)
        if (s->bounds[b] >= s->bounds[b + 1])
            return wrong(why, "bounds_%c: block %d goes from %lld to %lld, must have rows",
                         s->letter, b, (long long)s->bounds[b], (long long)s->bounds[b + 1]);
    return 0;
}

int tess__plan_info_wrong(const tess_plan_info *info, char why[TESS_PLAN_WHY])
{
    const struct {
        const char *name;
        int value, most;
    } counts[] = {
        {"ranks", info->ranks, TESS_PLAN_RANKS_MAX},
        {"nodes", info->nodes, info->ranks},
        {"layers", info->layers, 65536},
        {"heads", info->heads, 65536},
        {"head_dim", info->head_dim, 65536},
        {"element_bytes", info->element_bytes, 8},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < 1 || counts[i].value > counts[i].most)
            return wrong(why, "%s is %d, must be 1..%d", counts[i].name, counts[i].value,
                         counts[i].most);
    if ((unsigned)info->pass >= TESS_PLAN_PASS_COUNT)
        return wrong(why, "pass is %d, must be TESS_PLAN_FORWARD or TESS_PLAN_TRAIN", info->pass);
    const side q = {'q', info->q_blocks, info->group, "group", info->tokens_q, info->bounds_q};
    const side k = {'k', info->k_blocks, info->unit, "unit", info->tokens_k, info->bounds_k};
    if (side_wrong(&q, why) || side_wrong(&k, why))
        return 1;
    for (int r = 0; info->speeds && r < info->ranks; r++)
        if (info->speeds[r] < 1 || info->speeds[r] > 1000000)
            return wrong(why, "the speed of rank %d is %d, must be 1..1000000", r, info->speeds[r]);
    return 0;
}

/* ---- orders and cuts of a layer -------------------------------------------------------------- */

/* Each group's order is a permutation. found has room for a bit per block. */
static int order_wrong(const char *name, const int32_t *order, int groups, int32_t blocks,
                       uint64_t *found, char *why)
{
    for (int u = 0; order && u < groups; u++) {
        const int32_t *mine = order + (size_t)u * (size_t)blocks;
        memset(found, 0, ((size_t)blocks + 63) / 64 * sizeof *found);
        for (int32_t p = 0; p < blocks; p++) {
            const int32_t b = mine[p];
            if (b < 0 || b >= blocks)
                return wrong(why, "%s of group %d: block %d at place %d, must be 0..%d", name, u, b,
                             p, blocks - 1);
            if (found[b / 64] >> (b % 64) & 1)
                return wrong(why, "%s of group %d: block %d is there twice, again at place %d",
                             name, u, b, p);
            found[b / 64] |= (uint64_t)1 << (b % 64);
        }
    }
    return 0;
}

static int cuts_wrong(const char *name, const int32_t *cuts, int groups, int parts, int32_t blocks,
                      char *why)
{
    for (int u = 0; u < groups; u++) {
        const int32_t *mine = cuts + (size_t)u * ((size_t)parts + 1);
        if (mine[0] != 0 || mine[parts] != blocks)
            return wrong(why, "%s of group %d go from %d to %d, must go from 0 to %d", name, u,
                         mine[0], mine[parts], blocks);
        for (int p = 0; p < parts; p++)
            if (mine[p] > mine[p + 1])
                return wrong(why, "%s of group %d: part %d goes from %d to %d, must ascend", name,
                             u, p, mine[p], mine[p + 1]);
    }
    return 0;
}

int tess__layer_degrees_wrong(const tess_plan_info *info, const tess__layer_heads *in, int whole,
                              char why[TESS_PLAN_WHY])
{
    if ((unsigned)in->strategy.method >= TESS_PLAN_METHOD_COUNT ||
        in->strategy.method == TESS_PLAN_AUTO)
        return wrong(why, "method is %d, must be 1..%d", in->strategy.method,
                     TESS_PLAN_METHOD_COUNT - 1);
    if ((unsigned)in->strategy.placement >= TESS_PLACEMENT_COUNT)
        return wrong(why, "placement is %d, must be 0 or 1", in->strategy.placement);
    const int degrees[] = {in->strategy.ulysses, in->strategy.ring, in->strategy.selective};
    static const char *const names[] = {"ulysses", "ring", "selective"};
    for (int i = 0; i < 3; i++)
        if (degrees[i] < 1 || degrees[i] > info->ranks)
            return wrong(why, "%s is %d, must be 1..%d", names[i], degrees[i], info->ranks);
    if (in->strategy.ring > TESS_PLAN_RING_MAX)
        return wrong(why, "ring is %d, must be 1..%d", in->strategy.ring, TESS_PLAN_RING_MAX);
    if (in->strategy.ring > 1 && in->strategy.selective > 1)
        return wrong(why, "ring is %d and selective %d, must not both be above 1",
                     in->strategy.ring, in->strategy.selective);
    const int64_t product =
        (int64_t)in->strategy.ulysses * in->strategy.ring * in->strategy.selective;
    if (product != info->ranks && (whole || product != 1))
        return wrong(why, "ulysses %d x ring %d x selective %d, must be %d ranks",
                     in->strategy.ulysses, in->strategy.ring, in->strategy.selective, info->ranks);
    if (!whole && in->strategy.ring > 1 && in->strategy.method != TESS_PLAN_FRACTIONAL)
        return wrong(why, "ring is %d, must be 1 where heads are cut each in its own way",
                     in->strategy.ring);
    return 0;
}

/* All that does not concern shares. */
static int frame_wrong(const tess_plan_info *info, const tess_plan_layer *layer, uint64_t *found,
                       char *why)
{
    const int whole = layer->head_group != NULL;
    const tess__layer_heads in = {.strategy = layer->strategy};
    if (tess__layer_degrees_wrong(info, &in, whole, why))
        return 1;
    if (layer->groups != layer->strategy.ulysses)
        return wrong(why, "groups is %d, must be %d", layer->groups, layer->strategy.ulysses);
    if (order_wrong("the query order", layer->q_order, layer->groups, info->q_blocks, found, why) ||
        order_wrong("the key order", layer->k_order, layer->groups, info->k_blocks, found, why) ||
        cuts_wrong("the key cuts", layer->k_cuts, layer->groups, layer->strategy.ring,
                   info->k_blocks, why))
        return 1;
    if (!whole)
        return 0;
    for (int h = 0; h < info->heads; h++)
        if (layer->head_group[h] < 0 || layer->head_group[h] >= layer->groups)
            return wrong(why, "head %d is in group %d, must be 0..%d", h, layer->head_group[h],
                         layer->groups - 1);
    return cuts_wrong("the query cuts", layer->q_cuts, layer->groups, tess__layer_parts(layer),
                      info->q_blocks, why);
}

/* ---- shares ---------------------------------------------------------------------------------- */

int tess__shares_wrong(const tess_plan_info *info, const tess_plan_layer *layer,
                       char why[TESS_PLAN_WHY])
{
    for (int64_t i = 0; i < layer->n_shares; i++) {
        const tess_share *s = &layer->shares[i], *last = i ? s - 1 : NULL;
        if (s->rank < 0 || s->rank >= info->ranks)
            return wrong(why, "share %lld: rank is %d, must be 0..%d", (long long)i, s->rank,
                         info->ranks - 1);
        if (s->head < 0 || s->head >= info->heads)
            return wrong(why, "share %lld: head is %d, must be 0..%d", (long long)i, s->head,
                         info->heads - 1);
        if (s->q_begin < 0 || s->q_begin >= s->q_end || s->q_end > info->q_blocks)
            return wrong(why, "share %lld: query places %d..%d, must ascend within 0..%d",
                         (long long)i, s->q_begin, s->q_end, info->q_blocks);
        if (!last || s->rank > last->rank || (s->rank == last->rank && s->head > last->head))
            continue;
        if (s->rank != last->rank || s->head != last->head)
            return wrong(why, "share %lld: rank %d, head %d, must not follow rank %d, head %d",
                         (long long)i, s->rank, s->head, last->rank, last->head);
        if (s->q_begin <= last->q_end)
            return wrong(why,
                         "share %lld: begins at place %d, must be behind place %d, where the "
                         "one before ends",
                         (long long)i, s->q_begin, last->q_end);
    }
    return 0;
}

/* The index of the shares by rank. */
static int index_wrong(const tess_plan_info *info, const tess_plan_layer *layer, char *why)
{
    if (layer->first[0] != 0 || layer->first[info->ranks] != layer->n_shares)
        return wrong(why, "shares of ranks go from %lld to %lld, must go from 0 to %lld",
                     (long long)layer->first[0], (long long)layer->first[info->ranks],
                     (long long)layer->n_shares);
    for (int r = 0; r < info->ranks; r++) {
        if (layer->first[r] > layer->first[r + 1])
            return wrong(why, "the shares of rank %d begin at %lld, those of the next at %lld", r,
                         (long long)layer->first[r], (long long)layer->first[r + 1]);
        for (int64_t i = layer->first[r]; i < layer->first[r + 1]; i++)
            if (layer->shares[i].rank != r)
                return wrong(why, "share %lld is of rank %d, but listed with rank %d", (long long)i,
                             layer->shares[i].rank, r);
    }
    return 0;
}

/* In a layer of whole heads: the share is its rank's part of a head of its group. */
static int part_wrong(const tess_plan_layer *layer, const tess_share *s, char *why)
{
    const int parts = tess__layer_parts(layer);
    const int u = tess__rank_group(layer, s->rank);
    const int part = parts > 1 ? tess__rank_part(layer, s->rank) : 0;
    const int32_t *cut = layer->q_cuts + (size_t)u * ((size_t)parts + 1) + part;
    if (layer->head_group[s->head] != u)
        return wrong(why, "head %d is in group %d, but rank %d of group %d has a share of it",
                     s->head, layer->head_group[s->head], s->rank, u);
    if (s->q_begin != cut[0] || s->q_end != cut[1])
        return wrong(why, "head %d: rank %d has query places %d..%d, its part is %d..%d", s->head,
                     s->rank, s->q_begin, s->q_end, cut[0], cut[1]);
    return 0;
}

/* The shares of one head, sorted by begin, tile its places within one group. */
static int head_wrong(const tess_plan_info *info, const tess_plan_layer *layer, int head,
                      const tess_share *shares, int64_t n, char *why)
{
    const int u = n ? tess__rank_group(layer, shares[0].rank) : 0;
    const int32_t *order =
        layer->q_order ? layer->q_order + (size_t)u * (size_t)info->q_blocks : NULL;
    int32_t next = 0;
    for (int64_t i = 0; i < n; i++) {
        const tess_share *s = &shares[i];
        const int mine = tess__rank_group(layer, s->rank);
        if (mine != u && !tess__cuts_inside(&layer->strategy))
            return wrong(why, "head %d is in group %d on rank %d and in group %d on rank %d", head,
                         u, shares[0].rank, mine, s->rank);
        if (layer->head_group && part_wrong(layer, s, why))
            return 1;
        if (s->q_begin < next)
            return wrong(why, "head %d: query block %d is in two shares, of ranks %d and %d", head,
                         order ? order[s->q_begin] : s->q_begin, shares[i - 1].rank, s->rank);
        if (s->q_begin > next)
            break;
        next = s->q_end;
    }
    if (next < info->q_blocks)
        return wrong(why, "head %d: query block %d is in no share", head,
                     order ? order[next] : next);
    return 0;
}

/* Where heads are cut inside of nodes the ranks of a ring have one share of each of the same heads,
 * whose keys go round. */
static int ring_heads_wrong(const tess_plan_layer *layer, char *why)
{
    for (int u = 0; layer->strategy.ring > 1 && !layer->head_group && u < layer->groups; u++) {
        const int first = tess__rank_at(layer, u, 0);
        const tess_share *one = layer->shares + layer->first[first];
        const int64_t n = layer->first[first + 1] - layer->first[first];
        for (int s = 0; s < layer->strategy.ring; s++) {
            const int rank = tess__rank_at(layer, u, s);
            const tess_share *shares = layer->shares + layer->first[rank];
            if (layer->first[rank + 1] - layer->first[rank] != n)
                return wrong(why, "ring %d: rank %d has %lld shares and rank %d %lld", u, first,
                             (long long)n, rank,
                             (long long)(layer->first[rank + 1] - layer->first[rank]));
            for (int64_t i = 0; i < n; i++)
                if (shares[i].head != one[i].head || (i > 0 && shares[i].head == one[i - 1].head))
                    return wrong(why, "ring %d: rank %d has a share of head %d, rank %d of head %d",
                                 u, first, one[i].head, rank, shares[i].head);
        }
    }
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const tess_share *x = a, *y = b;
    if (x->q_begin != y->q_begin)
        return x->q_begin < y->q_begin ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Every head; start has room for heads + 2, sorted for all shares. */
static int heads_wrong(const tess_plan_info *info, const tess_plan_layer *layer, int64_t *start,
                       tess_share *sorted, char *why)
{
    memset(start, 0, ((size_t)info->heads + 2) * sizeof *start);
    for (int64_t i = 0; i < layer->n_shares; i++)
        start[layer->shares[i].head + 2]++;
    for (int h = 0; h < info->heads; h++)
        start[h + 2] += start[h + 1];
    for (int64_t i = 0; i < layer->n_shares; i++)
        sorted[start[layer->shares[i].head + 1]++] = layer->shares[i];
    for (int h = 0; h < info->heads; h++) {
        tess_share *mine = sorted + start[h];
        const int64_t n = start[h + 1] - start[h];
        int ascends = 1;
        for (int64_t i = 1; i < n; i++)
            ascends &= mine[i - 1].q_begin <= mine[i].q_begin;
        if (!ascends)
            qsort(mine, (size_t)n, sizeof *mine, by_begin);
        if (head_wrong(info, layer, h, mine, n, why))
            return 1;
    }
    return 0;
}

tess_status tess__layer_check(tess_ctx *ctx, const tess_plan_info *info,
                              const tess_plan_layer *layer, char why[TESS_PLAN_WHY])
{
    tess__arena arena = {.ctx = ctx};
    const int32_t blocks = info->q_blocks > info->k_blocks ? info->q_blocks : info->k_blocks;
    const int ordered = layer->q_order || layer->k_order;
    const size_t words = ordered ? ((size_t)blocks + 63) / 64 : 1;
    uint64_t *found = tess__arena_take(&arena, words * sizeof *found);
    int64_t *start = tess__arena_take(&arena, ((size_t)info->heads + 2) * sizeof *start);
    tess_share *sorted = tess__arena_take(&arena, (size_t)layer->n_shares * sizeof *sorted);
    const int room = found && start && sorted;
    why[0] = '\0';
    if (room && !frame_wrong(info, layer, found, why) && !tess__shares_wrong(info, layer, why) &&
        !index_wrong(info, layer, why) && !ring_heads_wrong(layer, why))
        heads_wrong(info, layer, start, sorted, why);
    tess__arena_free(&arena);
    return room ? TESS_OK : TESS_ENOMEM;
}

/* ---- against work ---------------------------------------------------------------------------- */

tess_status tess__plan_fits(const char *who, const tess_plan_info *info, const tess_work *work)
{
    tess_plan_info other;
    tess__plan_info_of_work(work, &other);
    const struct {
        const char *name;
        int64_t plan, work;
    } facts[] = {
        {"heads", info->heads, other.heads},
        {"query blocks", info->q_blocks, other.q_blocks},
        {"key blocks", info->k_blocks, other.k_blocks},
        {"query tokens", info->tokens_q, other.tokens_q},
        {"key tokens", info->tokens_k, other.tokens_k},
        {"rows per query block", info->group, other.group},
        {"rows per key block", info->unit, other.unit},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (facts[i].plan != facts[i].work)
            return tess__invalid(who, "the plan has %lld %s, the work %lld",
                                 (long long)facts[i].plan, facts[i].name, (long long)facts[i].work);
    for (int32_t b = 0; b < info->q_blocks; b++)
        if (tess__plan_q_row(info, b) != tess__work_q_row(work, b))
            return tess__invalid(who,
                                 "query block %d begins at row %lld in the plan, at %lld in the "
                                 "work",
                                 b, (long long)tess__plan_q_row(info, b),
                                 (long long)tess__work_q_row(work, b));
    for (int32_t b = 0; b < info->k_blocks; b++)
        if (tess__plan_k_row(info, b) != tess__work_k_row(work, b))
            return tess__fail(
                TESS_EINVAL, "%s: key block %d begins at row %lld in the plan, at %lld in the work",
                who, b, (long long)tess__plan_k_row(info, b), (long long)tess__work_k_row(work, b));
    return TESS_OK;
}

tess_status tess_plan_check(const tess_plan *plan, const tess_work *work)
{
    TESS_REQUIRE(plan);
    char why[TESS_PLAN_WHY];
    if (tess__plan_info_wrong(&plan->info, why))
        return tess__invalid(__func__, "%s", why);
    if (work) {
        TESS_TRY(tess__plan_fits(__func__, &plan->info, work));
        if (plan->info.layers != work->info.layers)
            return tess__invalid(__func__, "the plan has %d layers, the work %d", plan->info.layers,
                                 work->info.layers);
    }
    for (int i = 0; i < plan->info.layers; i++) {
        TESS_TRY(tess__layer_check(plan->ctx, &plan->info, &plan->layers[i], why));
        if (why[0])
            return tess__invalid(__func__, "layer %d: %s", i, why);
    }
    return TESS_OK;
}
