/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - what a source of training data has, beyond its samples.
 * Link with libtessera_train.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_DATASET_H
#define TESSERA_DATASET_H

#include "../data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tess_data_open would take `source` for: "shapes", "recall", "recall-aligned", "clips" or
 * "latents". Decided by names alone: no file is opened. */
TESS_API tess_status tess_data_kind(const char *source, const char **kind);

#ifdef __cplusplus
}
#endif

#endif
