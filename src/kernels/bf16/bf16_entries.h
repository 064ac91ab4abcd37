/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_entries.h - the functions of one instruction set's table of products. */
#ifndef TESS_BF16_ENTRIES_H
#define TESS_BF16_ENTRIES_H

#include "bf16.h"

#include <math.h>

/* clang-format off */
#define TESS_EACH_PRODUCT(X) X(rate) X(pack) X(norm) X(forward) X(backward) X(matrix_multiply)
/* clang-format on */

#define TESS_DECLARE_PRODUCT(name)                                                                 \
    __typeof__(*((tess__products *)NULL)->name) TESS_K(tess__bf16_##name);
TESS_EACH_PRODUCT(TESS_DECLARE_PRODUCT)

#endif
