/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h - the optimisers: AdamW, Muon for the blocks' matrices, clipping, moving average.
 *
 * State of the optimiser and one step of it. Input: all parameters in one array, their gradients in
 * another, and a list of slots, one per parameter. Output: updated parameters and their moving
 * average. The bits do not depend on threads: work is cut into pieces of fixed size, and sums are
 * added in the order of pieces. A step allocates nothing.
 *
 *   value        |slot 0|......|slot 1|...|      gradients have the same layout; another rank owns
 *                                                 what no slot covers
 *   first, ema   |slot 0|slot 1| ...
 *   second       |slots of AdamW alone|           Muon has no second moment.
 */
#ifndef TESS_OPTIM_H
#define TESS_OPTIM_H

#include "base/base_internal.h"

typedef struct {
    int64_t at, count;     /* place in the array, and length */
    int64_t rows, cols;    /* of a matrix that is Muon's; 0: AdamW's */
    int decay;             /* 1: weight decay applies */
    int param;             /* the caller's number of it */
    int64_t first, second; /* places in `first` and `ema`, in `second`; set by tess__optim_create */
} tess__optim_slot;

/* At most so many elements of one slot. */
enum { TESS_PIECE = 1 << 15 };
typedef struct {
    int slot;
    int64_t at; /* within the slot */
    size_t count;
} tess__optim_piece;

typedef struct {
    tess_ctx *ctx;
    tess__arena arena;
    tess__optim_slot *slots;
    int n_slots, n_matrices;
    tess__optim_piece *pieces; /* of AdamW's slots first, then of Muon's */
    int64_t n_pieces, n_adamw;
    double *sums; /* (n_pieces) */
    int *matrices;
    int64_t total, total_second; /* numbers in the slots, and in those of AdamW */
    float *first, *second;       /* moments; Muon's momentum is in `first` */
    float *ema;                  /* NULL: none */
    float *scratch;              /* Muon's: scratch_sets sets of scratch_each floats */
    int64_t scratch_each;
    int scratch_sets;
} tess__optim;

/* The values of one step. */
typedef struct {
    int64_t step; /* from 1: AdamW's bias correction and the average's start count it */
    double lr, lr_muon, beta1, beta2, eps, momentum, weight_decay;
    double ema;   /* 0..1 */
    double scale; /* of the gradients */
} tess__optim_step;

/* Sizes alone, in bytes, for tess_train_need; slot i comes times[i] times, or once if NULL. */
typedef struct {
    int64_t moments, ema, workspace;
} tess__optim_need;
void tess__optim_measure(const tess__optim_slot *slots, const int *times, int n, int ema,
                         int threads, tess__optim_need *need);

/* The slots ascend. All moments are zero; ema is a copy of value. */
tess_status tess__optim_create(tess_ctx *ctx, const tess__optim_slot *slots, int n, int ema,
                               const float *value, tess__optim *optim);
void tess__optim_destroy(tess__optim *optim); /* {0} accepted */

/* The sum of squares of all gradients; not finite if one of them is not. */
double tess__optim_squares(tess__optim *optim, const float *gradient);

/* The same for each slot by itself, at its number: each[slot.param]. */
void tess__optim_squares_each(tess__optim *optim, const float *gradient, double *each);

tess_status tess__optim_update(tess__optim *optim, const tess__optim_step *step, float *value,
                               const float *gradient);

/* value <-> ema; nothing without an average. Twice is the identity, bit for bit. */
void tess__optim_swap(const tess__optim *optim, float *value);

/* ---- adamw.c, muon.c: their part of an update ------------------------------------------------ */

void tess__adamw_update(tess__optim *optim, const tess__optim_step *step, float *value,
                        const float *gradient);
tess_status tess__muon_update(tess__optim *optim, const tess__optim_step *step, float *value,
                              const float *gradient);

/* Floats of scratch for a matrix, and whether one thread processes it alone. */
int64_t tess__muon_scratch(int64_t rows, int64_t cols);
int tess__muon_small(int64_t rows, int64_t cols);

/* The fraction of new weights in the average: 1 - min(decay, (1 + step) / (10 + step)). */
float tess__ema_rate(double decay, int64_t step);

#endif
