/* SPDX-License-Identifier: Apache-2.0 */
/* model.h (internal) - layers of the model, forward and backward.
 *
 * What lives here: linear layers on oneDNN's product. What comes in: matrices of the caller. What
 * goes out: matrices whose bits depend on neither threads nor runs.
 */
#ifndef TESS_MODEL_H
#define TESS_MODEL_H

#include "base/base.h"
#include "tessera/train.h"

#endif
