/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - plans in detail: the work of heads and of rows, and why a strategy was chosen.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_EXPLAIN_H
#define TESSERA_EXPLAIN_H

#include "../strategy.h"

TESS_BEGIN_DECLS

/* ---- work ----------------------------------------------------------------------------------- */

/* Other masks of the same layers, heads and blocks; allocates nothing. */
TESS_API tess_status tess_work_set_masks(tess_work *work, const tess_mask_set *masks);

/* tess_work_from_density with blocks of their own sizes on both sides: block i has rows
 * bounds[i]..bounds[i+1]-1, from 0 to the tokens, none empty. bounds (n_blocks + 1) is copied. */
TESS_API tess_status tess_work_from_density_blocks(tess_ctx *ctx, const double *density, int layers,
                                                   int heads, const int64_t *bounds,
                                                   int32_t n_blocks, tess_work **work);

TESS_API tess_status tess_work_loads(const tess_work *work, int layer,
                                     int64_t *loads); /* (heads): units */
TESS_API tess_status tess_work_rows(const tess_work *work, int layer, int head,
                                    int64_t *loads); /* (q_blocks) */

/* The key blocks that a query block selects: bit k % 64 of word k / 64. The words belong to the
 * work; *bits is NULL without masks. */
TESS_API tess_status tess_work_mask_row(const tess_work *work, int layer, int head, int32_t q_block,
                                        const uint64_t **bits);

/* ---- plans --------------------------------------------------------------------------------- */

/* "heads-inside", "sequence-inside"; "fwd", "train". NULL beyond the last. */
TESS_API const char *tess_placement_name(tess_placement placement);
TESS_API const char *tess_plan_pass_name(tess_plan_pass pass);

/* The imbalance without a plan: contiguous heads and blocks at the layer's degrees, over all ranks
 * for fractional heads, with a barrier per iteration in each ring. -1 where the heads do not
 * divide. */
TESS_API tess_status tess_plan_imbalance_before(const tess_plan *plan, int layer,
                                                const tess_work *work, double *rho);

/* Units of work of each rank (ranks) without a plan, split as above, in the order (head group,
 * sequence part); -1 each where the heads do not divide. */
TESS_API tess_status tess_plan_loads_before(const tess_plan *plan, int layer, const tess_work *work,
                                            int64_t *loads);

/* ---- why ---------------------------------------------------------------------------------- */

typedef struct {
    tess_strategy strategy;
    int64_t ns;                  /* predicted; -1: not predictable, or not planned to the end */
    int64_t compute_ns, comm_ns; /* busiest rank's attention; the rest, which it does not hide */
    double rho;                  /* a barrier per iteration in each ring; 0 where not planned */
    double kv_copies;
    int64_t bytes;  /* sent by the rank that sends most */
    int64_t memory; /* of the rank that needs most */
    int chosen;
    const char *reason; /* "not chosen: 1.43x slower, imbalance 1.61 against 1.00" */
} tess_candidate;

typedef void (*tess_candidate_fn)(void *user, int layer, const tess_candidate *candidate);

/* One call for each candidate of each layer, in a fixed order; none for a plan from a file. The
 * reasons live as long as the plan. */
TESS_API tess_status tess_plan_explain(const tess_plan *plan, tess_candidate_fn fn, void *user);

/* The same without a callback: candidate number index of a layer. EINVAL beyond the last; a plan
 * from a file has none. */
TESS_API tess_status tess_plan_candidate(const tess_plan *plan, int layer, int index,
                                         tess_candidate *candidate);

TESS_END_DECLS

#endif
