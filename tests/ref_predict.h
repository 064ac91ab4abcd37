/* SPDX-License-Identifier: Apache-2.0 */
/* ref_predict.h - the losses of predictors in double precision. */
#ifndef TESS_REF_PREDICT_H
#define TESS_REF_PREDICT_H

#include "tessera/advanced/predict.h"

/* loss_heads, dq_low and dk_low of tess_predict_loss_run. */
tess_status ref_predict_loss(tess_ctx *ctx, const tess_predict_shape *shape,
                             const tess_predict_in *in, double *loss_heads, double *dq, double *dk);

#endif
