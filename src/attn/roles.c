/* SPDX-License-Identifier: Apache-2.0 */
/* roles.c - tokens with a role: keys that every list has, queries that attend to all keys.
 *
 * Lists grow in place, from the last one back: a list's new place is never before its old one, so
 * that nothing is overwritten that is still to be read, and a list is merged with the pinned units
 * from its end. Nothing is allocated.
 *
 * Cost: one thread's pass over the lists, twice. Of a selection with rows by content also a read of
 * every query.
 */
#include "attn_internal.h"

#include "tessera/advanced/selection.h"

#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

static tess_status check_ranges(const char *name, const tess_row_range *ranges, int n,
                                int64_t tokens)
{
    static const char who[] = "tess_selection_roles";
    int64_t least = 0;
    if (n < 0 || (n > 0 && !ranges))
        return tess__invalid(who, n < 0 ? "n_%s is %d, must be 0 or more" : "%s is NULL, n is %d",
                             name, n);
    for (int i = 0; i < n; i++) {
        const tess_row_range r = ranges[i];
        if (r.first < least || r.n < 1 || r.n > tokens - r.first)
            return tess__invalid(
                who, "%s[%d] is %lld rows from %lld on, must be 1 or more of %lld..%lld", name, i,
                (long long)r.n, (long long)r.first, (long long)least, (long long)tokens - 1);
        least = r.first + r.n;
    }
    return TESS_OK;
}

/* ---- pinned units ---------------------------------------------------------------------------- */

/* Units first .. end - 1 of range i, without one that is the last of the range before it. */
typedef struct {
    int range; /* -1: none is left */
    int32_t first, at;
} unit_cursor;

static int32_t unit_of(const tess_selection *sel, int64_t row)
{
    return tess__range_of(sel->bounds_k, sel->n_k, row);
}

/* Of range number `range`, or of the last one before it that has any. */
static unit_cursor units_in(const tess_selection *sel, const tess_token_roles *roles, int range)
{
    for (; range >= 0; range--) {
        const tess_row_range *r = &roles->pinned_k[range];
        unit_cursor c = {range, unit_of(sel, r->first), unit_of(sel, r->first + r->n - 1)};
        if (range > 0 && unit_of(sel, r[-1].first + r[-1].n - 1) == c.first)
            c.first++;
        if (c.first <= c.at)
            return c;
    }
    return (unit_cursor){.range = -1};
}

/* The pinned units from the last to the first. */
static unit_cursor units_last(const tess_selection *sel, const tess_token_roles *roles)
{
    return units_in(sel, roles, roles->n_pinned_k - 1);
}

static void units_back(const tess_selection *sel, const tess_token_roles *roles, unit_cursor *c)
{
    if (c->at-- == c->first)
        *c = units_in(sel, roles, c->range - 1);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int is_dense(const tess_token_roles *roles, int64_t begin, int64_t end)
{
    for (int i = 0; i < roles->n_dense_q; i++)
        if (roles->dense_q[i].first < end && roles->dense_q[i].first + roles->dense_q[i].n > begin)
            return 1;
    return 0;
}

/* Whether a group of a head has a query that attends to all keys. */
static int group_is_dense(const tess_selection *sel, const tess_token_roles *roles, int64_t list)
{
    const int64_t *bounds = sel->bounds_q + list % sel->n_q;
    const int32_t *rows = sel->rows ? sel->rows + list / sel->n_q * sel->tokens_q : NULL;
    int dense = !rows && is_dense(roles, bounds[0], bounds[1]);
    for (int64_t i = bounds[0]; rows && !dense && i < bounds[1]; i++)
        dense = is_dense(roles, rows[i], rows[i] + 1);
    return dense;
}

/* Merges n indices with the pinned units, both from their ends, to where `to` ends; NULL: counts
 * only. Returns how many there are. */
static int64_t merge(const tess_selection *sel, const tess_token_roles *roles,
                     const int32_t *indices, int64_t n, int32_t *to)
{
    unit_cursor c = units_last(sel, roles);
    int64_t all = 0;
    for (; n > 0 || c.range >= 0; all++) {
        const int pinned = c.range >= 0 && (n == 0 || c.at >= indices[n - 1]);
        const int32_t unit = pinned ? c.at : indices[n - 1];
        n -= n > 0 && indices[n - 1] == unit;
        if (pinned)
            units_back(sel, roles, &c);
        if (to)
            *--to = unit;
    }
    return all;
}

/* Units of a list with its roles. */
static int64_t length(const tess_selection *sel, const tess_token_roles *roles, int64_t list)
{
    const int64_t begin = sel->offsets[list], n = sel->offsets[list + 1] - begin;
    return group_is_dense(sel, roles, list) ? sel->n_k
                                            : merge(sel, roles, sel->indices + begin, n, NULL);
}

tess_status tess_selection_roles(tess_selection *sel, const tess_token_roles *roles)
{
    TESS_REQUIRE(sel, roles);
    TESS_TRY(check_ranges("pinned_k", roles->pinned_k, roles->n_pinned_k, sel->tokens_k));
    TESS_TRY(check_ranges("dense_q", roles->dense_q, roles->n_dense_q, sel->tokens_q));
    int64_t end = 0;
    for (int64_t list = 0; list < sel->lists; list++)
        end += length(sel, roles, list);
    if (end > sel->capacity)
        return tess__invalid(__func__, "%lld indices, the selection has room for %lld",
                             (long long)end, (long long)sel->capacity);
    for (int64_t list = sel->lists; list-- > 0;) {
        const int64_t begin = sel->offsets[list], n = sel->offsets[list + 1] - begin;
        const int64_t all = length(sel, roles, list);
        sel->offsets[list + 1] = end;
        end -= all;
        if (all == sel->n_k)
            for (int32_t u = 0; u < sel->n_k; u++)
                sel->indices[end + u] = u;
        else
            merge(sel, roles, sel->indices + begin, n, sel->indices + end + all);
    }
    tess__selection_changed(sel);
    return TESS_OK;
}
