/* SPDX-License-Identifier: Apache-2.0 */
/* selection_bits.c - lists of a selection as a bitmask, a row of n_k bits for each list.
 *
 * A list of K of n_k units takes 32 K bits as indices and n_k as a bitmask, whatever was selected:
 * the bitmask is the smaller from a density of 1/32 on, and its size is known beforehand.
 * tess_selection_set_mask decodes it. Cost: one pass over both.
 */
#include "attn_internal.h"

#include <string.h>

void tess__selection_encode(const tess_selection *sel, const int32_t *rows, uint8_t *bits)
{
    const size_t row = (size_t)(sel->n_k + 7) / 8;
    const int threads = tess__selection_team(sel, sel->offsets[sel->lists]);
#pragma omp parallel for num_threads(threads)
    for (int64_t g = 0; g < sel->lists; g++) {
        uint8_t *to = bits + (size_t)(rows ? rows[g] : g) * row;
        memset(to, 0, row);
        for (int64_t i = sel->offsets[g]; i < sel->offsets[g + 1]; i++)
            to[sel->indices[i] / 8] |= (uint8_t)(1u << sel->indices[i] % 8);
    }
}
