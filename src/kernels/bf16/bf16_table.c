/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_table.c - the products of one instruction set, gathered into its table. */
#include "bf16_entries.h"

#define MEMBER(name) .name = TESS_K(tess__bf16_##name),
extern const tess__products TESS_K(tess__products);
const tess__products TESS_K(tess__products) = {TESS_EACH_PRODUCT(MEMBER)};
