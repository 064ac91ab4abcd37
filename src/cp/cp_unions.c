/* SPDX-License-Identifier: Apache-2.0 */
/* cp_unions.c - which share of the others' keys selective layers would need: given, or looked
 * at in some steps.
 *
 * In the step after a plan is made, and in every LOOK_EVERY-th while it is kept, the executor
 * counts the unions of what is selected (dist_unions.c). Counts travel with the densities of the
 * next step, so that all ranks know the same shares: running means by layer and degree, begun anew
 * with each plan. Plans are priced with a copy, `unions`. It follows where a plan is made anyway;
 * and once a share is new, or has grown or shrunk by a quarter, plans are made with the new ones to
 * see whether layers should become selective or cease to be.
 */
#include "cp_internal.h"

#include "exec/dist_attn_internal.h"
#include "exec/unit_set.h"

#include <math.h>
#include <string.h>

enum { LOOK_EVERY = 16 };                  /* steps */
static const double share_changes = 1.25;  /* what makes another choice likely */
static const double memory_of_means = 0.5; /* weight of the past in running means: looks are rare */
static const double least_share = 1e-3;    /* 0 means that nothing is known */
static const double seen_least = 0.3;      /* of the heads of a part: others are cut, and unlike */

static size_t shares_of(const tess_cp *c)
{
    return (size_t)c->opts.layers * ((size_t)c->ranks + 1);
}

int tess__degrees(int ranks, int *degrees, int64_t *parts)
{
    int n = 0;
    *parts = 0;
    for (int d = 2; d <= ranks; d++)
        if (ranks % d == 0) {
            if (degrees)
                degrees[n] = d;
            *parts += d;
            n++;
        }
    return n;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The group that begins nearest to a row, the earlier of equals: where queries of even work are
 * cut. */
static int32_t cut_at(const tess_cp *c, int64_t row)
{
    const int64_t *b = c->blocks_q;
    const int32_t g = row < c->opts.tokens ? tess__range_of(b, c->n_q, row) : c->n_q;
    return g < c->n_q && b[g + 1] - row < row - b[g] ? g + 1 : g;
}

/* Cuts of all degrees, and the segments between them; scratch (n_q + 1) zeros. */
static void cut_queries(tess_cp *c, int32_t *cuts, int32_t *bounds, int32_t *scratch)
{
    tess_union_counts *u = &c->counts;
    int64_t all = 0;
    int32_t n = 0;
    for (int i = 0; i < u->n; i++)
        for (int p = 0; p <= u->degrees[i]; p++) {
            cuts[all] = cut_at(c, c->opts.tokens * p / u->degrees[i]);
            scratch[cuts[all++]] = 1;
        }
    for (int32_t g = 0; g <= c->n_q; g++)
        if (scratch[g]) {
            bounds[n] = g;
            scratch[g] = n++;
        }
    for (int64_t i = 0; i < all; i++)
        cuts[i] = scratch[cuts[i]];
    u->segments = n - 1;
    u->bounds = bounds;
    u->cuts = cuts;
}

/* Degrees, cuts and segments; u->rows are the context's. */
static void lay_out(tess_cp *c, int *degrees, int32_t *places)
{
    tess_union_counts *u = &c->counts;
    const size_t cuts = (size_t)(u->parts + u->n), groups = (size_t)c->n_q + 1;
    tess__degrees(c->ranks, degrees, &u->parts);
    u->degrees = degrees;
    memset(places, 0, (cuts + 2 * groups) * sizeof *places);
    cut_queries(c, places, places + cuts, places + cuts + groups);
    u->rows = c->density + (size_t)c->opts.layers * (size_t)c->opts.heads + 1;
}

/* What counting needs, in two pieces of memory of its size: contexts may be small. */
static tess_status make_counts(tess_cp *c)
{
    tess_union_counts *u = &c->counts;
    const int64_t units = c->opts.n_units > 0 ? c->opts.n_units : c->opts.tokens;
    u->n = tess__degrees(c->ranks, NULL, &u->parts);
    const size_t degrees = (size_t)u->n * sizeof(int);
    const size_t places = ((size_t)(u->parts + u->n) + 2 * ((size_t)c->n_q + 1)) * sizeof(int32_t);
    TESS_TRY(
        tess__arena_reserve(&c->arena, tess__arena_round(degrees) + tess__arena_round(places)));
    int *first = tess__arena_take(&c->arena, degrees); /* the reserve holds both */
    lay_out(c, first, tess__arena_take(&c->arena, places));
    const size_t sets =
        ((size_t)u->segments + 1) * (size_t)tess__set_words(units) * sizeof *u->sets;
    TESS_TRY(tess__arena_reserve(&c->arena, tess__arena_round(sets)));
    u->sets = tess__arena_take(&c->arena, sets);
    return TESS_OK;
}

tess_status tess__cp_unions(tess_cp *c, const tess_cp_opts *o)
{
    const size_t n = shares_of(c);
    c->looked = c->unions + n;
    for (size_t i = 0; i < n; i++)
        c->unions[i] = c->looked[i] = o->union_shares ? o->union_shares[i] : o->union_share;
    c->looks = c->ranks > 1 && o->n_groups > 0 && !o->whole_keys && !o->union_shares &&
               o->union_share == 0.0;
    return c->looks ? make_counts(c) : TESS_OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

static int64_t counts_of(const tess_cp *c)
{
    return c->opts.layers * c->counts.parts * TESS__UNION_COUNTS;
}

int64_t tess__cp_counts(const tess_cp *c)
{
    return c->counts.active ? counts_of(c) : 0;
}

void tess__cp_look(tess_cp *c, int made)
{
    if (!c->looks)
        return;
    c->unlooked++;
    c->begins |= made;
    if (!c->counts.active && (made || c->unlooked >= LOOK_EVERY)) {
        memset(c->counts.rows, 0, (size_t)counts_of(c) * sizeof *c->counts.rows);
        c->counts.active = 1;
    }
}

/* The mean over the layers whose share is known; 0: none is. */
static double mean_share(const tess_cp *c, int degree)
{
    double sum = 0.0;
    int n = 0;
    for (int l = 0; l < c->opts.layers; l++) {
        const double share = c->looked[(size_t)l * ((size_t)c->ranks + 1) + (size_t)degree];
        sum += share;
        n += share > 0.0;
    }
    return n > 0 ? sum / n : 0.0;
}

static void tell_shares(const tess_cp *c, int64_t step)
{
    char shares[TESS_TOLD / 2] = "";
    size_t used = 0;
    for (int i = 0; i < c->counts.n && used < sizeof shares; i++) {
        const int degree = c->counts.degrees[i];
        const double share = mean_share(c, degree);
        if (share > 0.0)
            used += (size_t)snprintf(shares + used, sizeof shares - used,
                                     used ? ", with %d %.0f %%"
                                          : "with %d parts of the sequence a rank needs %.0f %% of "
                                            "the others' keys",
                                     degree, 100.0 * share);
    }
    tess__cp_tell(c, TESS_CP_RATES, step, "selected keys: %s", shares);
}

/* Enters a share that was seen; returns whether it is far from what plans are priced with. */
static int enter(tess_cp *c, size_t at, double share)
{
    double *const known = &c->looked[at];
    share = fmin(fmax(share, least_share), 1.0);
    *known = c->begins || *known == 0.0
                 ? share
                 : memory_of_means * *known + (1.0 - memory_of_means) * share;
    return *known > c->unions[at] * share_changes || *known * share_changes < c->unions[at];
}

/* The share of a degree by the counts of its parts; negative: too few of them were seen whole.
 * *seen = 1: there were lists. */
static double share_of(int degree, const double *rows, int *seen)
{
    double most = -1.0;
    for (int p = 0; p < degree; p++, rows += TESS__UNION_COUNTS) {
        *seen |= rows[2] > 0.0;
        if (rows[1] > seen_least * rows[2])
            most = fmax(most, rows[0] / rows[1]);
    }
    return most;
}

int tess__cp_learn(tess_cp *c, int64_t step)
{
    const double *rows = c->counts.rows;
    int seen = 0, far = 0;
    if (!c->counts.active)
        return 0;
    for (size_t l = 0; l < (size_t)c->opts.layers; l++)
        for (int i = 0; i < c->counts.n; i++) {
            const int degree = c->counts.degrees[i];
            const double share = share_of(degree, rows, &seen);
            rows += TESS__UNION_COUNTS * degree;
            if (share >= 0.0)
                far |= enter(c, l * ((size_t)c->ranks + 1) + (size_t)degree, share);
        }
    if (!seen) /* dense so far: the next step may tell */
        return 0;
    c->counts.active = 0;
    c->unlooked = 0;
    c->begins = 0;
    if (far)
        tell_shares(c, step);
    return far;
}

void tess__cp_price_unions(tess_cp *c)
{
    memcpy(c->unions, c->looked, shares_of(c) * sizeof *c->unions);
}
