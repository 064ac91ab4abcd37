/* SPDX-License-Identifier: Apache-2.0 */
/* train.h - the training stack, as it comes: the model is in model.h.
 * Link with libtessera_train. */
#ifndef TESSERA_TRAIN_H
#define TESSERA_TRAIN_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif

#endif
