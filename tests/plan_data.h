/* SPDX-License-Identifier: Apache-2.0 */
/* plan_data.h - random masks, and random plans of every kind for them. */
#ifndef TESS_PLAN_DATA_H
#define TESS_PLAN_DATA_H

#include "draw.h"

#include "plan/plan_internal.h"

#include <stdlib.h>

static inline void *memory_of(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* ---- cases ---------------------------------------------------------------------------------- */

typedef enum { KIND_HEADS, KIND_RING, KIND_SELECTIVE, KIND_OWN_CUTS, KIND_FRACTIONAL, KINDS } kind;

typedef struct {
    kind kind;
    tess_work *work;
    tess_plan *plan; /* of one layer */
    uint8_t *mask;   /* (heads, q_blocks, k_blocks) */
    int64_t bounds[2][64];
} plan_case;

static inline int case_mask(const plan_case *c, int head, int q, int k)
{
    const tess_plan_info *info = &c->plan->info;
    return c->mask[((size_t)head * (size_t)info->q_blocks + (size_t)q) * (size_t)info->k_blocks +
                   (size_t)k];
}

static inline void draw_order(int32_t *order, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = (int32_t)draw((uint32_t)i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* n + 1 ascending numbers from 0 to all; parts may be empty. */
static inline void draw_cuts(int32_t *cuts, int n, int32_t all)
{
    cuts[0] = 0;
    cuts[n] = all;
    for (int i = 1; i < n; i++) {
        const int32_t cut = between(0, all);
        int at = i;
        for (; at > 1 && cuts[at - 1] > cut; at--)
            cuts[at] = cuts[at - 1];
        cuts[at] = cut;
    }
}

/* Work of a random mask, of blocks whose last one may be shorter; empty heads and rows occur. */
static inline void draw_work(plan_case *c, int heads, int q, int k)
{
    const size_t n = (size_t)heads * (size_t)q * (size_t)k;
    c->mask = memory_of(n, 1);
    for (int h = 0; h < heads; h++) {
        const int percent = between(0, 3) == 0 ? 0 : between(1, 100);
        for (size_t i = 0; i < n / (size_t)heads; i++)
            c->mask[(size_t)h * (n / (size_t)heads) + i] = between(1, 100) <= percent;
    }
    const int group = between(1, 4), unit = between(1, 4);
    const int known = between(0, 4) > 0;
    const tess_mask_set set = {
        .layers = 1,
        .heads = heads,
        .q_blocks = q,
        .k_blocks = k,
        .data = c->mask,
        .kind = TESS_MASK_BYTES,
        .tokens_q = known ? q * group - between(0, group - 1) : 0,
        .tokens_k = known ? k * unit - between(0, unit - 1) : 0,
        .group = known ? group : 0,
        .unit = known ? unit : 0,
    };
    CHECK_OK(tess_work_from_masks(context(), &set, &c->work));
}

/* Groups of whole heads, orders and cuts drawn where the kind has them. */
static inline void draw_heads(plan_case *c, const tess__layer_heads *degrees)
{
    tess_plan *plan = c->plan;
    const tess_plan_info *info = &plan->info;
    tess__layer_heads in = *degrees;
    const int parts = in.strategy.ring > 1 ? in.strategy.ring : in.strategy.selective;
    const size_t groups = (size_t)in.strategy.ulysses, q = (size_t)info->q_blocks,
                 k = (size_t)info->k_blocks;
    int32_t *group = memory_of((size_t)info->heads, 4);
    int32_t *q_cuts = memory_of(groups * ((size_t)parts + 1), 4);
    int32_t *k_cuts = memory_of(groups * ((size_t)in.strategy.ring + 1), 4);
    int32_t *q_order = memory_of(groups * q, 4), *k_order = memory_of(groups * k, 4);
    for (int h = 0; h < info->heads; h++)
        group[h] = between(0, in.strategy.ulysses - 1);
    for (size_t u = 0; u < groups; u++) {
        draw_cuts(q_cuts + u * ((size_t)parts + 1), parts, info->q_blocks);
        draw_cuts(k_cuts + u * ((size_t)in.strategy.ring + 1), in.strategy.ring, info->k_blocks);
        draw_order(q_order + u * q, info->q_blocks);
        draw_order(k_order + u * k, info->k_blocks);
    }
    in.head_group = group;
    in.q_cuts = between(0, 3) ? q_cuts : NULL;
    in.k_cuts = between(0, 3) ? k_cuts : NULL;
    in.q_order = between(0, 3) ? q_order : NULL;
    in.k_order = between(0, 3) ? k_order : NULL;
    CHECK_OK(tess__layer_from_heads(&plan->arena, info, &in, &plan->layers[0]));
    free(group);
    free(q_cuts);
    free(k_cuts);
    free(q_order);
    free(k_order);
}

/* Heads each cut in its own way: over all ranks, or over those of one group. */
static inline void draw_shares(plan_case *c, const tess__layer_heads *degrees)
{
    tess_plan *plan = c->plan;
    const tess_plan_info *info = &plan->info;
    tess_share *shares = memory_of((size_t)info->heads * (size_t)info->q_blocks, sizeof *shares);
    int64_t n = 0;
    const tess_plan_layer mesh = {.groups = degrees->strategy.ulysses,
                                  .strategy = {.ulysses = degrees->strategy.ulysses,
                                               .ring = 1,
                                               .selective = degrees->strategy.selective,
                                               .placement = degrees->strategy.placement}};
    for (int h = 0; h < info->heads; h++) {
        const int u = between(0, degrees->strategy.ulysses - 1);
        for (int32_t q = 0; q < info->q_blocks;) {
            const int32_t end = between(q + 1, info->q_blocks);
            const int rank =
                degrees->strategy.selective > 1
                    ? tess__rank_at(&mesh, u, between(0, degrees->strategy.selective - 1))
                    : between(0, info->ranks - 1);
            shares[n++] = (tess_share){rank, h, q, end};
            q = end;
        }
    }
    CHECK_OK(tess__layer_from_shares(&plan->arena, info, degrees, shares, n, &plan->layers[0]));
    free(shares);
}

/* A case of the kind with up to `ranks` ranks, and random shards. */
static inline plan_case draw_case(kind which, int most_ranks, int most_heads, int most_blocks)
{
    plan_case c = {.kind = which};
    const int heads = between(1, most_heads);
    draw_work(&c, heads, between(1, most_blocks), between(1, most_blocks));
    tess_plan_info info;
    tess__plan_info_of_work(c.work, &info);
    tess__layer_heads in = {
        .strategy = {.method = TESS_PLAN_REFINED, .ulysses = 1, .ring = 1, .selective = 1}};
    in.strategy.placement = (tess_placement)between(0, 1);
    const int ranks = between(1, most_ranks);
    int parts = between(1, ranks);
    while (ranks % parts)
        parts--;
    if (which == KIND_HEADS)
        in.strategy.ulysses = ranks;
    if (which == KIND_RING)
        in.strategy.ulysses = ranks / parts, in.strategy.ring = parts;
    if (which == KIND_SELECTIVE || which == KIND_OWN_CUTS)
        in.strategy.ulysses = ranks / parts, in.strategy.selective = parts;
    if (which == KIND_OWN_CUTS && in.strategy.selective == 1)
        in.strategy.ulysses = 1; /* cut over all ranks */
    if (which == KIND_FRACTIONAL)
        in.strategy.method = TESS_PLAN_FRACTIONAL;
    int32_t speeds[64];
    for (int r = 0; r < ranks; r++)
        speeds[r] = between(1, 5);
    info.ranks = ranks;
    info.nodes = 1;
    info.head_dim = 128;
    info.element_bytes = 2;
    info.speeds = between(0, 1) ? speeds : NULL;
    CHECK_OK(tess__plan_new(context(), "test", &info, &c.plan));
    if (which == KIND_OWN_CUTS || which == KIND_FRACTIONAL)
        draw_shares(&c, &in);
    else
        draw_heads(&c, &in);
    const int64_t tokens[2] = {info.tokens_q, info.tokens_k};
    for (int side = 0; side < 2; side++) {
        int32_t cuts[64];
        draw_cuts(cuts, ranks, (int32_t)tokens[side]);
        for (int r = 0; r <= ranks; r++)
            c.bounds[side][r] = cuts[r];
    }
    return c;
}

static inline void drop_case(plan_case *c)
{
    tess_plan_destroy(c->plan);
    tess_work_destroy(c->work);
    free(c->mask);
}

#endif
