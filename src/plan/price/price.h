/* SPDX-License-Identifier: Apache-2.0 */
/* price.h - what the files that price a layer share: the pricing state of one layer. */
#ifndef TESS_PRICE_H
#define TESS_PRICE_H

#include "plan/strategy_internal.h"

enum { TESS_GRADIENT_BYTES = 4 }; /* of an element of dK and dV while they travel a ring */

static inline int64_t tess__larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The pricing state of one layer. */
typedef struct {
    const tess__pricing *pricing;
    const tess_plan_info *info;
    const tess_plan_layer *layer;
    const int64_t *tiles;
    tess__layer_flow flow;
    tess_traffic *traffic; /* (ranks) */
    int64_t *ns, *loads;   /* (ranks) */
    int *first, *last;     /* (groups, ring): scratch of price_ring.c */
    int64_t *sent;         /* (ranks): bytes, over all exchanges and hops */
    int proj_dim;          /* elements of the layer's projected vectors */
    int32_t fastest;       /* speed */
} tess__layer_cost;

/* ---- price.c --------------------------------------------------------------------------------- */

/* Prices d->traffic, in bytes, and adds it to d->sent; returns the slowest rank's time, 0 without a
 * cluster. */
int64_t tess__price_exchange(tess__layer_cost *d);

/* Time of a rank for units of work whose query rows are opened `times` times. */
int64_t tess__attend(const tess__layer_cost *d, int backward, int p, int64_t units, int times);

/* ---- price_ring.c ---------------------------------------------------------------------------- */

/* Adds `bytes` from each rank of ring u to the next. */
void tess__hop_traffic(const tess_plan_layer *layer, int u, int per_node, int64_t bytes,
                       tess_traffic *traffic);

/* Ranks announce to their ring which key parts they have work with: the time that takes. */
int64_t tess__ring_announce(tess__layer_cost *d);

/* Time from the first tile to the last, 0 without a cluster; d->sent gets the hops. start and next
 * (ring) are scratch. */
int64_t tess__ring_phase(tess__layer_cost *d, int backward, int64_t *start, int64_t *next);

#endif
