/* SPDX-License-Identifier: Apache-2.0 */
/* mixture.h - training on clips of several sizes: the clips of a step, one pass each.
 *
 *   mixture.c        the clips of a step in their order, their passes, gradients and weights
 *
 * The clips of a step are samples n, n + 1, ... of the data, whoever computes them. They are
 * computed, and their gradients added, in one order: the largest size first, then by number. The
 * loss of a step is sum over clips of w_i loss_i, with w_i = tokens_i / tokens, or 1 / clips.
 */
#ifndef TESS_MIXTURE_H
#define TESS_MIXTURE_H

#include "train_internal.h"

typedef struct {
    int64_t number; /* among the clips of the step: what its noise is keyed by */
    int64_t tokens;
    int bucket;
    double weight; /* of its loss */
} tess__step_clip;

struct tess__mixture {
    int sizes;
    tess_data_info *info; /* (sizes) */
    int64_t *tokens;      /* (sizes): of a clip */
    int bucket;           /* of the pass at hand */
    int largest;
    tess_pass_times times; /* of passes that are no more */

    int n;                  /* clips of a step */
    tess__step_clip *clips; /* (n), in order */
    int64_t *samples;       /* (n): what this rank reads in the step */
};

#endif
