/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.h - what plan_page.c and plan_detail.c share. */
#ifndef TESS_PLAN_PAGE_H
#define TESS_PLAN_PAGE_H

#include "report_internal.h"

/* One layer of one step under a plan. */
typedef struct {
    tess_ctx *ctx;
    int64_t step, number; /* number: the layer's in the model */
    int index;            /* the layer's in plan and work */
    int ranks, heads;
    int32_t q_blocks, k_blocks;
    int cells; /* of a side of a mask's picture, at most */
    const tess_plan *plan;
    const tess_plan_layer *layer;
    const tess_work *work;
} tess__detail;

enum { TESS_DETAIL_CELLS = 96 }; /* the most */

/* Adds the layer as a JSON object: head loads, shares, the contiguous loads of ranks, and masks of
 * up to maps heads. */
tess_status tess__detail_add(const tess__detail *detail, int maps, tess__markup *text);

#endif
