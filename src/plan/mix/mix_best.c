/* SPDX-License-Identifier: Apache-2.0 */
/* mix_best.c - one step of a mixture: several layings, and the best of them.
 *
 * A step is laid within several time limits a little above the mean, each raised until every clip
 * has its place. A wider limit needs fewer cuts: with a cluster the least predicted time wins, and
 * exchanges of cut clips are part of it; without one the fewest cuts. The cuts of each laying are
 * then settled: time moves between the ranks of a cut clip until they come out alike. Where memory
 * is short, clips with many tokens for their time are laid first as well, so that they spread over
 * all ranks. Where ranks compute cut clips together, limits of a share take the place of limits of
 * time (mix_groups.c).
 */
#include "mix_plan.h"

#include "plan/plan_internal.h"

#include <math.h>

enum { LIMITS = 3, RAISES = 40, SETTLES = 3 };
static const double EVEN = 1.001; /* an imbalance that is good enough */
static const double SLACK[LIMITS] = {0.0005, 0.003, 0.006};

tess_status tess__mix_scratch_make(tess__arena *arena, const tess__mix_rules *r, int64_t most,
                                   tess__mix_scratch *s)
{
    const size_t ranks = (size_t)r->ranks, n = (size_t)most;
    const size_t parts = r->together ? (size_t)TESS__MIX_PIECES(most, r->ranks) : n + ranks;
    tess__mix_lay *lay = &s->lay;
    lay->tree.key = TESS_TAKE(arena, tess__mix_tree_bytes(r->ranks));
    lay->room = TESS_TAKE(arena, ranks * sizeof *lay->room);
    lay->node_room = TESS_TAKE(arena, (size_t)r->nodes * sizeof *lay->node_room);
    lay->node_done = TESS_TAKE(arena, (size_t)r->nodes * sizeof *lay->node_done);
    lay->memory = TESS_TAKE(arena, ranks * sizeof *lay->memory);
    lay->pieces = TESS_TAKE(arena, parts * sizeof *lay->pieces);
    s->traffic = TESS_TAKE(arena, 3 * ranks * sizeof *s->traffic);
    s->ns = TESS_TAKE(arena, ranks * sizeof *s->ns);
    s->times = TESS_TAKE(arena, ranks * sizeof *s->times);
    s->by_tokens = TESS_TAKE(arena, n * sizeof *s->by_tokens);
    s->tried.parts = TESS_TAKE(arena, parts * sizeof *s->tried.parts);
    s->best.parts = TESS_TAKE(arena, parts * sizeof *s->best.parts);
    s->tried.rank = TESS_TAKE(arena, ranks * sizeof *s->tried.rank);
    s->best.rank = TESS_TAKE(arena, ranks * sizeof *s->best.rank);
    return TESS_OK;
}

/* Lays the clips within the least limit that does, from `limit` on; 0: none does. */
static int lay_all(tess__mix_lay *lay, double limit)
{
    const double total_speed = lay->rules->total_speed;
    double growth = 0.0002;
    for (int i = 0; i < RAISES; i++) {
        const double left = tess__mix_lay_run(lay, limit);
        if (left <= 0.0)
            return 1;
        if (lay->rules->whole_clips)
            return 0;
        /* Time was short: by what is left. Memory was: by ever more. */
        const double more = left / total_speed;
        limit += TESS_MAX(more * 1.01, limit * growth);
        growth = i < 3 ? growth : i == 3 ? 0.002 : TESS_MIN(growth * (i < 8 ? 1.0 : 2.0), 1.0);
    }
    return 0;
}

/* Whether the price that was tried beats the best. */
static int is_better(const tess__mix_scratch *s, const tess__mix_rules *r)
{
    const tess__mix_price *a = &s->tried, *b = &s->best;
    if (!s->n_best)
        return 1;
    if (!r->cluster && a->cuts != b->cuts && a->time < b->time * 1.01 && b->time < a->time * 1.01)
        return a->cuts < b->cuts;
    return a->time != b->time ? a->time < b->time : a->cuts < b->cuts;
}

static int fits_memory(const tess__mix_rules *r, const tess__mix_price *price)
{
    for (int p = 0; r->memory && p < r->ranks; p++)
        if (price->rank[p].memory > r->memory)
            return 0;
    return 1;
}

/* Moves time between the parts of each cut clip, so that its ranks come out alike; times (ranks)
 * are those that ranks take now, exchanges among them. */
static void settle(tess__mix_lay *lay, double *times)
{
    const double *speed = lay->rules->speed;
    for (int64_t i = 0, end; i < lay->n_pieces; i = end) {
        tess__mix_piece *const pieces = lay->pieces;
        double time = 0.0, speeds = 0.0;
        for (end = i; end < lay->n_pieces && pieces[end].clip == pieces[i].clip; end++) {
            time += times[pieces[end].rank] * speed[pieces[end].rank];
            speeds += speed[pieces[end].rank];
        }
        if (end == i + 1)
            continue;
        double sum = 0.0;
        for (int64_t k = i; k < end; k++) {
            const double more = (time / speeds - times[pieces[k].rank]) * speed[pieces[k].rank];
            pieces[k].time = TESS_MAX(pieces[k].time + more, pieces[k].time * 0.1);
            sum += pieces[k].time;
        }
        for (int64_t k = i; k < end; k++) {
            pieces[k].time *= lay->work[pieces[k].clip].total / sum;
            times[pieces[k].rank] = time / speeds;
        }
    }
}

/* The laying that was priced becomes the best one. */
static void keep_tried(tess__mix_scratch *s)
{
    const tess__mix_price before = s->best;
    s->best = s->tried;
    s->tried = before;
    s->n_best = s->lay.n_pieces;
}

/* Prices the laying, and keeps it if it is the best so far; then the same with settled cuts. */
static void consider(tess__mix_scratch *s, int step)
{
    const tess__mix_rules *r = s->lay.rules;
    for (int round = 0; round < SETTLES; round++) {
        tess__mix_price_of(&s->lay, step, s->traffic, s->ns, &s->tried);
        for (int p = 0; p < r->ranks; p++)
            s->times[p] = s->tried.rank[p].compute + (double)s->tried.rank[p].exchange;
        const int even = !s->tried.cuts || s->tried.time <= s->tried.mean * EVEN;
        if (fits_memory(r, &s->tried) && is_better(s, r))
            keep_tried(s);
        if (even)
            return;
        settle(&s->lay, s->times);
    }
}

/* The part of all work that is in cut clips. */
static double cut_share(const tess__mix_lay *lay)
{
    double cut = 0.0, all = 0.0;
    for (int64_t i = 0; i < lay->n_pieces; i++) {
        const tess__mix_piece *piece = &lay->pieces[i];
        all += piece->time;
        cut += piece->time < lay->work[piece->clip].total ? piece->time : 0.0;
    }
    return all > 0.0 ? cut / all : 0.0;
}

/* Lays the clips as a plan of whole clips does; 0: they do not go. */
static int lay_whole_clips(tess__mix_lay *lay, double limit)
{
    const tess__mix_rules *rules = lay->rules;
    tess__mix_rules whole = *rules;
    whole.whole_clips = 1;
    whole.together = 0;
    lay->rules = &whole;
    const int laid = lay_all(lay, limit);
    lay->rules = rules;
    return laid;
}

/* Keeps the laying that was priced if it costs less than `least`; 1: it is even enough. What
 * exchanges cost is not known without a cluster: CUT_COST of the cut clips. */
static int keep_cheaper(tess__mix_scratch *s, double *least)
{
    static const double EVEN_GROUPS = 1.01, CUT_COST = 0.03;
    const double cost = s->lay.rules->cluster ? 0.0 : CUT_COST * cut_share(&s->lay);
    const double time = s->tried.time * (1.0 + cost);
    const int even = s->tried.time <= s->tried.mean * EVEN_GROUPS;
    if (time < *least) {
        keep_tried(s);
        *least = time;
    }
    return even;
}

/* The best of whole clips and of several limits of a share: down to clips of a two hundredth of the
 * mean that are cut. Whole clips come first as a plan of whole clips lays them, so that clips that
 * may be cut never take longer. */
static void consider_groups(tess__mix_scratch *s, int step, double mean)
{
    double least = INFINITY;
    if (lay_whole_clips(&s->lay, mean * (1.0 + SLACK[0]))) {
        tess__mix_price_of(&s->lay, step, s->traffic, s->ns, &s->tried);
        if (keep_cheaper(s, &least))
            return;
    }
    for (double share = INFINITY; share > 0.005 * mean;
         share = share == INFINITY ? 2.0 * mean : share * 0.84) {
        if (!tess__mix_lay_groups(&s->lay, share))
            return;
        tess__mix_price_of(&s->lay, step, s->traffic, s->ns, &s->tried);
        s->tried.time = tess__mix_groups_time(&s->lay, &s->tried);
        if (keep_cheaper(s, &least))
            return;
    }
}

static tess_status does_not_fit(const char *who, const tess__mix_rules *r, double bytes)
{
    const double gib = 1073741824.0, has = (double)r->memory * r->ranks;
    if (bytes > has)
        return tess__invalid(who,
                             "the clips of a step need %.4g GiB, and %d ranks of %.4g GiB have "
                             "%.4g: %.4g GiB too little",
                             bytes / gib, r->ranks, (double)r->memory / gib, has / gib,
                             (bytes - has) / gib);
    return tess__invalid(who,
                         "the clips of a step need %.4g GiB of the %.4g GiB of %d ranks, but %s "
                         "within %.4g GiB a rank",
                         bytes / gib, has / gib, r->ranks,
                         r->whole_clips ? "whole clips do not go" : "keys of cut clips do not go",
                         (double)r->memory / gib);
}

/* EINVAL where a clip, or all clips of the step together, are larger than the memory there is. */
static tess_status check_memory(const char *who, const tess__mix_lay *lay)
{
    const tess__mix_rules *r = lay->rules;
    double bytes = 0.0;
    if (!r->memory)
        return TESS_OK;
    for (int64_t i = 0; i < lay->n; i++) {
        const double clip = (double)lay->work[lay->order[i]].tokens * (double)r->token_bytes;
        if (r->whole_clips && clip > (double)r->memory)
            return tess__invalid(who,
                                 "clip %lld of %lld tokens needs %.4g GiB in one piece, a rank "
                                 "has %.4g",
                                 (long long)lay->order[i],
                                 (long long)lay->work[lay->order[i]].tokens, clip / 1073741824.0,
                                 (double)r->memory / 1073741824.0);
        bytes += clip;
    }
    return bytes > (double)r->memory * r->ranks ? does_not_fit(who, r, bytes) : TESS_OK;
}

tess_status tess__mix_step_plan(const char *who, tess_ctx *ctx, tess__mix_scratch *s, int step)
{
    tess__mix_lay *lay = &s->lay;
    const tess__mix_rules *r = lay->rules;
    const int64_t *order = lay->order;
    double total = 0.0, bytes = 0.0;
    int short_of_memory = 0;
    TESS_TRY(check_memory(who, lay));
    for (int64_t i = 0; i < lay->n; i++) {
        total += lay->work[order[i]].total;
        bytes += (double)lay->work[order[i]].tokens * (double)r->token_bytes;
    }
    s->n_best = 0;
    if (r->together) {
        consider_groups(s, step, total / r->total_speed);
        return TESS_OK;
    }
    for (int i = 0; i < (r->whole_clips ? 1 : LIMITS); i++) {
        if (lay_all(lay, total / r->total_speed * (1.0 + SLACK[i])))
            consider(s, step);
        short_of_memory |= lay->short_of_memory;
        if (s->n_best && s->best.cuts == 0 && s->best.time <= s->best.mean * EVEN)
            break;
    }
    if (short_of_memory) {
        TESS_TRY(tess__mix_by_tokens(ctx, lay->work, order, lay->n, s->by_tokens));
        lay->order = s->by_tokens;
        if (lay_all(lay, total / r->total_speed * (1.0 + SLACK[1])))
            consider(s, step);
        lay->order = order;
    }
    return s->n_best || !lay->n ? TESS_OK : does_not_fit(who, r, bytes);
}
