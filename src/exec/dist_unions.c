/* SPDX-License-Identifier: Apache-2.0 */
/* dist_unions.c - fraction of the other ranks' keys that the ranks of a selective layer would need.
 *
 * A selective layer of degree C cuts the queries of a head into C parts. The rank of a query part
 * needs the union of the keys in its lists, except its local ones. While the context-parallel group
 * measures, this is counted for all degrees at once whenever lists are selected, for any strategy
 * of the layer:
 *
 *   fraction(C) = max over parts of  sum of (remote rows of the union) / sum of (remote rows)
 *
 * over heads and samples: exchanges wait for the rank that needs most. Query part p is computed by
 * one of the ranks p U .. p U + U - 1, U = ranks / C, depending on the group of its head: the mean
 * of their local rows is subtracted. A rank has the lists of its own shares. Of a query part that
 * is cut between ranks, each rank counts its piece, weighted by its groups, if that determines the
 * fraction within an eighth: it has 7/8 of the part's groups, or needs 7/8 of the keys. So layers
 * of whole heads measure all degrees, and a ring or selective layer of R parts the multiples of R.
 *
 * The lists between consecutive cuts of any degree, a segment, are joined once, and parts are
 * joined from segments. Cost: one bit operation per entry of each list.
 */
#include "dist_selective.h"

#include <string.h>

static const double representative = 0.875; /* of the groups of a query part, or of all keys */

/* ---- segments -------------------------------------------------------------------------------- */

/* The groups of segments or query parts [a, b) that a share with groups [begin, end) has. */
typedef struct {
    int32_t begin, end;
} span;

static span overlap(const tess_union_counts *u, int32_t a, int32_t b, span share)
{
    const int32_t begin = u->bounds[a], end = u->bounds[b];
    return (span){TESS_MAX(begin, share.begin), TESS_MIN(end, share.end)};
}

/* The groups of a share; empty if they are not consecutive. */
static span groups_of(const tess__dist_share *share)
{
    const int32_t first = share->groups[0];
    for (int32_t g = 1; g < share->n_groups; g++)
        if (share->groups[g] != first + g)
            return (span){0, 0};
    return (span){first, first + share->n_groups};
}

static void join_lists(const tess_dist_attn *d, const tess_union_counts *u,
                       const tess_selection *lists, span share)
{
    const int64_t words = tess__set_words(d->opts.n_units);
    const int threads = tess__selection_team(lists, lists->offsets[lists->lists]);
#pragma omp parallel for num_threads(threads)
    for (int32_t s = 0; s < u->segments; s++) {
        uint64_t *set = u->sets + s * words;
        const span own = overlap(u, s, s + 1, share);
        if (own.end > own.begin)
            memset(set, 0, (size_t)words * sizeof *set);
        for (int32_t g = own.begin; g < own.end; g++)
            for (int64_t i = lists->offsets[g - share.begin];
                 i < lists->offsets[g - share.begin + 1]; i++)
                set[lists->indices[i] / 64] |= UINT64_C(1) << lists->indices[i] % 64;
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Rows of the first `rows` tokens that are in the set. */
static int64_t rows_before(const tess_dist_attn *d, const uint64_t *set, int64_t rows)
{
    return d->opts.units ? tess__count_rows(d, set, 0, 0, d->opts.n_units, 0, rows)
                         : tess__set_count(set, 0, rows);
}

/* set = the union of the segments [a, b) within a share. */
static void join_segments(const tess_union_counts *u, int32_t a, int32_t b, span share,
                          int64_t words, uint64_t *set)
{
    memset(set, 0, (size_t)words * sizeof *set);
    for (int32_t s = a; s < b; s++) {
        const span own = overlap(u, s, s + 1, share);
        for (int64_t w = 0; own.end > own.begin && w < words; w++)
            set[w] |= u->sets[s * words + w];
    }
}

/* Adds the counts of query part p of a degree, segments [a, b), to rows; dense: it needs all keys.
 * */
static void add_part(const tess_dist_attn *d, const tess_union_counts *u, int degree, int p,
                     int32_t a, int32_t b, span share, int dense, double *rows)
{
    const span part = overlap(u, a, b, share);
    const int64_t words = tess__set_words(d->opts.n_units), tokens = d->opts.tokens;
    const int n_owners = d->ranks / degree;
    const int64_t low = d->opts.bounds[p * n_owners], high = d->opts.bounds[(p + 1) * n_owners];
    const double remote = (double)tokens - (double)(high - low) / n_owners;
    double needed = remote;
    if (part.end <= part.begin)
        return;
    if (!dense) {
        uint64_t *const set = u->sets + u->segments * words;
        join_segments(u, a, b, share, words, set);
        const int64_t local = rows_before(d, set, high) - rows_before(d, set, low);
        needed = (double)rows_before(d, set, tokens) - (double)local / n_owners;
    }
    const double has = (double)(part.end - part.begin) / (double)(u->bounds[b] - u->bounds[a]);
    rows[2] += has * remote;
    if (has >= representative || needed >= representative * remote) {
        rows[0] += has * needed;
        rows[1] += has * remote;
    }
}

void tess__count_unions(const tess_dist_attn *d, const tess_union_counts *u, int layer,
                        const tess__dist_share *share, const tess_selection *lists)
{
    const span own = groups_of(share);
    double *rows = u->rows + layer * u->parts * TESS__UNION_COUNTS;
    const int32_t *cuts = u->cuts;
    if (lists)
        join_lists(d, u, lists, own);
    for (int i = 0; i < u->n; cuts += u->degrees[i] + 1, i++)
        for (int p = 0; p < u->degrees[i]; p++, rows += TESS__UNION_COUNTS)
            add_part(d, u, u->degrees[i], p, cuts[p], cuts[p + 1], own, !lists, rows);
}
