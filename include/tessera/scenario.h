/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h - scenarios in files, and their settings by name.
 *
 * A scenario (sim.h) is a struct of plain values; every value also has a name, "layout.tp", under
 * which JSON files, `tessera simulate --set`, the catalogue of models and tables of measurements
 * speak of it. docs/scenarios.md lists the names.
 */
#ifndef TESSERA_SCENARIO_H
#define TESSERA_SCENARIO_H

#include "sim.h"

TESS_BEGIN_DECLS

/* A shipped name, or a path: what contains '/' or ends in ".json". An unknown name is EINVAL with
 * the nearest one; a file that breaks a rule is EFORMAT with its line. */
TESS_API tess_status tess_scenario_load(tess_ctx *ctx, const char *name, tess_scenario *scenario);

/* Gives one setting a value: ("layout.tp", "8"). ("model.name", "gpt-175b") gives the whole model
 * the values of the catalogue, ("model.config", "config.json") those of a published model's file.
 * EINVAL: no such setting, with the nearest one, or a value that breaks its rule. */
TESS_API tess_status tess_scenario_set(tess_ctx *ctx, tess_scenario *scenario, const char *key,
                                       const char *value);

TESS_END_DECLS

#endif
