/* SPDX-License-Identifier: Apache-2.0 */
/* selection.h - selections in other units; what a selector holds.
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

typedef struct {
    tess_select_kind kind;
    int reused;    /* 1: the last run repeated the lists of an earlier one */
    int64_t bytes; /* of workspace */
} tess_selector_info;

TESS_API tess_status tess_selector_query(const tess_selector *selector, tess_selector_info *info);

TESS_END_DECLS

#endif
