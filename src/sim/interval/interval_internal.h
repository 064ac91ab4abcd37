/* SPDX-License-Identifier: Apache-2.0 */
/* interval_internal.h - what the predictions of the simulator may be besides their values.
 *
 * What lives here: spreads (standard deviations of logarithms) of inputs and of predictions, how
 * they are read, and the intervals that they make. What comes in: the member "interval" of the
 * parameters, and a scenario. What goes out: low and high of step and memory, log-normal:
 *
 *   value exp(-+1.2816 s),  s^2 = residual^2 + sum over inputs (spread x change)^2
 *
 * Every spread has two values: for software that was measured (a profile with "measured"), and for
 * other software, or software that the scenario does not name.
 */
#ifndef TESS_INTERVAL_INTERNAL_H
#define TESS_INTERVAL_INTERNAL_H

#include "base/base_internal.h"
#include "file/json.h"

/* What a step depends on. */
enum {
    TESS__IN_PRODUCTS,
    TESS__IN_ATTENTION,
    TESS__IN_MEMORY,
    TESS__IN_HOST,
    TESS__IN_TP,
    TESS__IN_DP,
    TESS__IN_EP,
    TESS__IN_PP,
    TESS__IN_NETWORK,
    TESS__IN_OPTIMISER,
    TESS__IN_LOSS,
    TESS__IN_CASTS,
    TESS__IN_NODES,
    TESS__IN_POWER,
    TESS__INPUTS
};

/* What memory is made of. */
enum {
    TESS__ROOM_STATE,
    TESS__ROOM_ACTIVATIONS,
    TESS__ROOM_WORKING,
    TESS__ROOM_BUFFERS,
    TESS__ROOM_RESERVED,
    TESS__ROOMS
};

/* Predictions without inputs of their own. */
enum {
    TESS__OTHER_LAYER,
    TESS__OTHER_COLLECTIVE,
    TESS__OTHER_PRODUCT,
    TESS__OTHER_OVERLAP,
    TESS__OTHERS
};

typedef struct {
    double value[2]; /* of software that was not measured, and that was */
    const char *origin;
} tess__spread;

typedef struct {
    int given;                   /* 0: the file has none */
    tess__spread loss, residual; /* of steps; loss: logarithm of what a step takes longer */
    tess__spread inputs[TESS__INPUTS];
    tess__spread experts; /* of steps of mixtures of experts */
    tess__spread memory_residual;
    tess__spread rooms[TESS__ROOMS];
    tess__spread others[TESS__OTHERS];
} tess__interval_params;

/* ---- interval_read.c ------------------------------------------------------------------------- */

typedef struct {
    const char *name, *about;
} tess__input_def;

extern const tess__input_def tess__input_defs[TESS__INPUTS];
extern const tess__input_def tess__room_defs[TESS__ROOMS];
extern const tess__input_def tess__residual_def, tess__experts_def;

/* The member "interval"; a node without a value: none. */
tess_status tess__interval_read(tess__interval_params *params, tess__arena *arena,
                                tess__json_node node);

/* ---- interval_bounds.c ----------------------------------------------------------------------- */

/* low and high of a value whose logarithm has this standard deviation. */
void tess__interval_bounds(double value, double deviation, double *low, double *high);

#endif
