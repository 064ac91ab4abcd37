/* SPDX-License-Identifier: Apache-2.0 */
/* selection.h - selections in other units; tokens with a role; what a selector holds.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_SELECTION_H
#define TESSERA_SELECTION_H

#include "../select.h"

TESS_BEGIN_DECLS

/* The same pairs, and the fewest more, in other groups and units: a coarse pair of (group, unit)
 * is selected if any pair of rows in it is. The ranges need not nest. The shape's batch, heads and
 * tokens are those of sel. The densities of the two say what the coarsening costs. */
TESS_API tess_status tess_selection_coarsen(tess_ctx *ctx, const tess_selection *sel,
                                            const tess_sel_shape *shape, tess_selection **coarse);

/* Rows first .. first + n - 1, the same of every head. */
typedef struct {
    int64_t first, n;
} tess_row_range;

/* Tokens that attention must not lose, such as those of a text or of the first frame: ranges in
 * ascending order that do not overlap. */
typedef struct {
    const tess_row_range *pinned_k; /* (n_pinned_k): keys that every query attends to */
    int n_pinned_k;
    const tess_row_range *dense_q; /* (n_dense_q): queries that attend to all keys */
    int n_dense_q;
} tess_token_roles;

/* Adds to the lists, whatever filled them, what the roles ask for: a unit with a pinned key goes
 * into every list, and the list of a group with such a query becomes full. What the lists had they
 * keep, so that a budget in units counts the rest. EINVAL if sel has too little room, with the
 * number of indices it needs; on failure sel stays as it was. Allocates nothing. */
TESS_API tess_status tess_selection_roles(tess_selection *sel, const tess_token_roles *roles);

typedef struct {
    tess_select_kind kind;
    int reused;    /* 1: the last run repeated the lists of an earlier one */
    int64_t bytes; /* of workspace */
} tess_selector_info;

TESS_API tess_status tess_selector_query(const tess_selector *selector, tess_selector_info *info);

TESS_END_DECLS

#endif
