/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the kernels of one instruction set, gathered into its table. */
#include "kernels.h"

int64_t TESS_K(tess__fma)(int64_t rounds, float *sink);
float TESS_K(tess__read)(const float *x, size_t n);

extern const tess__kernels TESS_K(tess__kernels);
const tess__kernels TESS_K(tess__kernels) = {
    .fma = TESS_K(tess__fma),
    .read = TESS_K(tess__read),
};
