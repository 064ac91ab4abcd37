/* SPDX-License-Identifier: Apache-2.0 */
/* cp_unions.c - fraction of the other ranks' keys that selective layers would need: given or
 * measured.
 *
 * In the step after a plan is made, and in every MEASURE_EVERY-th step while it is reused, the
 * executor counts the unions of selected keys (exec/dist_unions.c). The counts are all-reduced with
 * the densities of the next step, so that all ranks have the same fractions: running means by layer
 * and degree, restarted with each plan. Plans are priced with a copy, priced_unions, which is
 * updated when a plan is made anyway. When a fraction is new, or has grown or shrunk by a quarter,
 * a plan is made with the new ones to determine whether layers should become selective or cease to
 * be.
 */
#include "cp_internal.h"

#include "exec/dist_attn_internal.h"
#include "exec/unit_set.h"

#include <math.h>
#include <string.h>

enum { MEASURE_EVERY = 16 };               /* steps */
static const double fraction_ratio = 1.25; /* change that makes another choice likely */
static const double mean_decay =
    0.5; /* weight of the past in running means: measurements are rare */
static const double min_fraction = 1e-3; /* 0 means not known */
static const double min_measured = 0.3;  /* fraction of the heads of a query part */

static size_t n_fractions(const tess_cp *c)
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

/* ---- creation -------------------------------------------------------------------------------- */

/* The group whose first row is nearest to a row, the earlier of two: where queries of even work are
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

/* Degrees, cuts and segments; u->rows is part of c->density. */
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

/* Allocates the counts in two reservations of their exact size. */
static tess_status make_counts(tess_cp *c)
{
    tess_union_counts *u = &c->counts;
    const int64_t units = c->opts.n_units > 0 ? c->opts.n_units : c->opts.tokens;
    u->n = tess__degrees(c->ranks, NULL, &u->parts);
    const size_t degrees = (size_t)u->n * sizeof(int);
    const size_t places = ((size_t)(u->parts + u->n) + 2 * ((size_t)c->n_q + 1)) * sizeof(int32_t);
    TESS_TRY(
        tess__arena_reserve(&c->arena, tess__arena_round(degrees) + tess__arena_round(places)));
    int *first = tess__arena_take(&c->arena, degrees); /* cannot fail: reserved */
    lay_out(c, first, tess__arena_take(&c->arena, places));
    const size_t sets =
        ((size_t)u->segments + 1) * (size_t)tess__set_words(units) * sizeof *u->sets;
    TESS_TRY(tess__arena_reserve(&c->arena, tess__arena_round(sets)));
    u->sets = tess__arena_take(&c->arena, sets);
    return TESS_OK;
}

tess_status tess__cp_unions(tess_cp *c, const tess_cp_opts *o)
{
    const size_t n = n_fractions(c);
    c->measured_unions = c->priced_unions + n;
    for (size_t i = 0; i < n; i++)
        c->priced_unions[i] = c->measured_unions[i] =
            o->union_shares ? o->union_shares[i] : o->union_share;
    c->measures_unions = c->ranks > 1 && o->n_groups > 0 && !o->whole_keys && !o->union_shares &&
                         o->union_share == 0.0 && !o->group_rows && !o->exact;
    return c->measures_unions ? make_counts(c) : TESS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int64_t counts_of(const tess_cp *c)
{
    return c->opts.layers * c->counts.parts * TESS__UNION_COUNTS;
}

int64_t tess__cp_count_values(const tess_cp *c)
{
    return c->counts.active ? counts_of(c) : 0;
}

void tess__cp_schedule_measure(tess_cp *c, int made)
{
    if (!c->measures_unions)
        return;
    c->steps_since_measure++;
    c->restart_means |= made;
    if (!c->counts.active && (made || c->steps_since_measure >= MEASURE_EVERY)) {
        memset(c->counts.rows, 0, (size_t)counts_of(c) * sizeof *c->counts.rows);
        c->counts.active = 1;
    }
}

/* Mean over the layers whose fraction is known; 0: none is. */
static double mean_fraction(const tess_cp *c, int degree)
{
    double sum = 0.0;
    int n = 0;
    for (int l = 0; l < c->opts.layers; l++) {
        const double share =
            c->measured_unions[(size_t)l * ((size_t)c->ranks + 1) + (size_t)degree];
        sum += share;
        n += share > 0.0;
    }
    return n > 0 ? sum / n : 0.0;
}

static void report_fractions(const tess_cp *c, int64_t step)
{
    char shares[TESS_EVENT_MAX / 2] = "";
    size_t used = 0;
    for (int i = 0; i < c->counts.n && used < sizeof shares; i++) {
        const int degree = c->counts.degrees[i];
        const double share = mean_fraction(c, degree);
        if (share > 0.0)
            used += (size_t)snprintf(shares + used, sizeof shares - used,
                                     used ? ", with %d %.0f %%"
                                          : "with %d parts of the sequence a rank needs %.0f %% of "
                                            "the others' keys",
                                     degree, 100.0 * share);
    }
    tess__cp_report(c, TESS_CP_RATES, step, "selected keys: %s", shares);
}

/* Updates a measured fraction; returns whether it differs much from the priced one. */
static int update_fraction(tess_cp *c, size_t at, double share)
{
    double *const known = &c->measured_unions[at];
    share = fmin(fmax(share, min_fraction), 1.0);
    *known = c->restart_means || *known == 0.0 ? share
                                               : mean_decay * *known + (1.0 - mean_decay) * share;
    return *known > c->priced_unions[at] * fraction_ratio ||
           *known * fraction_ratio < c->priced_unions[at];
}

/* The fraction of a degree from the counts of its query parts; negative: too few of them were
 * counted whole. *found = 1: there were lists. */
static double fraction_of(int degree, const double *rows, int *found)
{
    double most = -1.0;
    for (int p = 0; p < degree; p++, rows += TESS__UNION_COUNTS) {
        *found |= rows[2] > 0.0;
        if (rows[1] > min_measured * rows[2])
            most = fmax(most, rows[0] / rows[1]);
    }
    return most;
}

int tess__cp_update_unions(tess_cp *c, int64_t step)
{
    const double *rows = c->counts.rows;
    int found = 0, changed = 0;
    if (!c->counts.active)
        return 0;
    for (size_t l = 0; l < (size_t)c->opts.layers; l++)
        for (int i = 0; i < c->counts.n; i++) {
            const int degree = c->counts.degrees[i];
            const double share = fraction_of(degree, rows, &found);
            rows += TESS__UNION_COUNTS * degree;
            if (share >= 0.0)
                changed |= update_fraction(c, l * ((size_t)c->ranks + 1) + (size_t)degree, share);
        }
    if (!found) /* dense so far: the next step may have lists */
        return 0;
    c->counts.active = 0;
    c->steps_since_measure = 0;
    c->restart_means = 0;
    if (changed)
        report_fractions(c, step);
    return changed;
}

void tess__cp_price_unions(tess_cp *c)
{
    memcpy(c->priced_unions, c->measured_unions, n_fractions(c) * sizeof *c->priced_unions);
}
