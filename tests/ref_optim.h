/* SPDX-License-Identifier: Apache-2.0 */
/* ref_optim.h - one step of the optimisers in double precision. */
#ifndef TESS_REF_OPTIM_H
#define TESS_REF_OPTIM_H

#include "tessera/base.h"

/* One step of an optimiser on n parameters p with gradient g and state m, v, all changed in place.
 */
typedef struct {
    int64_t step; /* from 1 */
    double lr, beta1, beta2, eps, momentum;
} ref_optim;
void ref_adamw(int64_t n, const ref_optim *o, double decay, const double *g, double *m, double *v,
               double *p);
tess_status ref_muon(int64_t rows, int64_t cols, const ref_optim *o, double decay, const double *g,
                     double *m, double *p);

#endif
