/* SPDX-License-Identifier: Apache-2.0 */
/* plan_page.h - what plan_page.c, plan_detail.c and page_pieces.c share. */
#ifndef TESS_PLAN_PAGE_H
#define TESS_PLAN_PAGE_H

#include "report_internal.h"

/* ---- plan_detail.c: one layer of one step ---------------------------------------------------- */

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

/* Adds the layer as a JSON object: shares, the contiguous loads of ranks, and masks of up to `maps`
 * heads. */
tess_status tess__detail_add(const tess__detail *detail, int maps, tess__markup *text);

/* ---- page_pieces.c: the steps and layers that the page draws --------------------------------- */

typedef struct {
    int64_t step; /* by the order in which steps were added, from 0 */
    int layer;    /* -1: the step itself */
    tess__markup text;
} tess__page_piece;

/* {.ctx = ctx, .each_step = 1, .each_layer = 1} is a valid empty one. */
typedef struct {
    tess_ctx *ctx;
    tess__page_piece *pieces; /* ascending by step and layer */
    int64_t n, room, bytes;
    int64_t each_step; /* of so many steps, and layers, one is there */
    int each_layer;
} tess__page_pieces;

int tess__pieces_wants(const tess__page_pieces *d, int64_t step, int layer);

/* Takes the text, a JSON object, over. */
tess_status tess__pieces_add(tess__page_pieces *d, int64_t step, int layer, tess__markup *text);
void tess__pieces_cut(tess__page_pieces *d, int64_t n);      /* the first n pieces stay */
void tess__pieces_thin(tess__page_pieces *d, int64_t bytes); /* to so many, if possible */

/* "shown":[steps],"details":[layers] */
void tess__pieces_write(const tess__page_pieces *d, tess__jw *w);
void tess__pieces_free(tess__page_pieces *d);

#endif
