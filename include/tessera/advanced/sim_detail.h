/* SPDX-License-Identifier: Apache-2.0 */
/* sim_detail.h - what a simulated step is made of: parameters one by one, operations, and products
 * measured elsewhere.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_SIM_DETAIL_H
#define TESSERA_SIM_DETAIL_H

#include "../scenario.h"
#include "timeline.h"

TESS_BEGIN_DECLS

/* ---- scenarios ------------------------------------------------------------------------------- */

/* The settings, in the order of the structs. */
typedef struct {
    const char *group, *name, *help; /* "layout", "tp", "tensor parallelism" */
    int given;                       /* 1: not the default */
    char value[128];                 /* as tess_scenario_set takes it */
} tess_scenario_setting;

TESS_API int tess_scenario_settings(void);
TESS_API tess_status tess_scenario_get(const tess_scenario *scenario, int index,
                                       tess_scenario_setting *setting);

/* ---- parameters ------------------------------------------------------------------------------ */

typedef struct {
    const char *group; /* "hardware", "era", "scalar" or "overlap" */
    const char *owner; /* "a100", "megatron-2022", or "selene megatron-2022" */
    const char *name;  /* "gemm_share" */
    const char *unit;
    double value;
    double low, high; /* what value may be */
    const char *origin;
} tess_sim_param;

TESS_API int tess_sim_params_count(const tess_sim_params *params); /* 0 of NULL */
TESS_API tess_status tess_sim_params_query(const tess_sim_params *params, int index,
                                           tess_sim_param *param);
/* Gives a parameter another value, which stays within its limits. */
TESS_API tess_status tess_sim_params_set(tess_sim_params *params, int index, double value);

/* ---- measured products and operations -------------------------------------------------------- */

/* A database of measured products, from a table of operations through its map: map is its path, or
 * NULL for the shipped one that knows the columns. A product that it holds, all sizes equal, takes
 * the time that was measured on this family of GPUs; all others take the formula's. */
typedef struct tess_sim_measured tess_sim_measured;
TESS_API tess_status tess_sim_measured_load(tess_ctx *ctx, const char *path, const char *map,
                                            tess_sim_measured **measured);
TESS_API void tess_sim_measured_destroy(tess_sim_measured *measured);

/* The next runs ask it first; NULL: formulas alone. It must outlive these runs. */
TESS_API tess_status tess_sim_use_measured(tess_sim *sim, const tess_sim_measured *measured);

/* The order of passes of the next runs whose layout.schedule is a file; NULL: none. It must outlive
 * these runs, whose pp, vpp and micro-batches are those of the schedule. */
TESS_API tess_status tess_sim_use_schedule(tess_sim *sim, const tess_schedule *schedule);

/* What the last run is made of. `seconds` is what one execution adds to its pass, `times` how often
 * the slowest stage executes it in a step. */
typedef struct {
    const char *part;    /* "layer", "expert layer", "embedding", "head", "step" */
    const char *pass;    /* "forward", "backward", "weight", "again" (recomputation), "step" */
    const char *name;    /* "qkv" */
    const char *kind;    /* "gemm", "flash", "memory", "comm", "host" */
    const char *formula; /* in words and symbols */
    double batch, m, n, k;
    double flop, bytes, saved; /* saved: bytes of activations for the backward pass */
    double seconds, hidden_s, times;
    int measured;  /* 1: from the profile database */
    int params[4]; /* indices for tess_sim_params_query that the formula uses; -1: none */
} tess_sim_op;

TESS_API int tess_sim_ops(const tess_sim *sim); /* 0 before the first run */
TESS_API tess_status tess_sim_op_query(const tess_sim *sim, int index, tess_sim_op *op);

TESS_END_DECLS

#endif
