/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c - shares of one head on one rank, and the key blocks that they select together.
 *
 * A union reads each selected row of bits once, WORDS words at a time, so that the sums stay in
 * registers and the rows of a share in the first cache.
 */
#include "plan/plan_internal.h"

#include <assert.h>
#include <string.h>

enum { WORDS = 8 }; /* of a row of bits, taken at once */

/* bits |= the words [first, first + WORDS) of every step-th row of the share, or as many as there
 * are. */
static void join_rows(const tess_work *work, int at, const tess_share *s, const int32_t *order,
                      int32_t step, size_t first, size_t n, uint64_t *bits)
{
    uint64_t sum[WORDS] = {0};
    assert(work->bits);
    for (int32_t p = s->q_begin; p < s->q_end; p += step) {
        const uint64_t *row = tess__work_bits(work, at, s->head, order ? order[p] : p) + first;
        if (n == WORDS)
            for (size_t w = 0; w < WORDS; w++)
                sum[w] |= row[w];
        else
            for (size_t w = 0; w < n; w++)
                sum[w] |= row[w];
    }
    for (size_t w = 0; w < n; w++)
        bits[first + w] |= sum[w];
}

int64_t tess__shares_union(const tess_plan_info *info, const tess_plan_layer *layer,
                           const tess_work *work, int at, int64_t begin, int64_t end,
                           int32_t sampled, uint64_t *bits)
{
    const size_t words = (size_t)tess__work_words(work);
    const int u = tess__rank_group(layer, layer->shares[begin].rank);
    const int32_t *order =
        layer->q_order ? layer->q_order + (size_t)u * (size_t)info->q_blocks : NULL;
    memset(bits, 0, words * sizeof *bits);
    for (int64_t i = begin; i < end; i++) {
        const int32_t rows = layer->shares[i].q_end - layer->shares[i].q_begin;
        const int32_t step = sampled > 0 && rows > sampled ? rows / sampled : 1;
        for (size_t w = 0; w < words; w += WORDS)
            join_rows(work, at, &layer->shares[i], order, step, w, TESS_MIN(words - w, WORDS),
                      bits);
    }
    int64_t count = 0;
    for (size_t w = 0; w < words; w++)
        count += __builtin_popcountll(bits[w]);
    return count;
}

int64_t tess__shares_run(const tess_plan_layer *layer, int64_t i)
{
    const tess_share *s = &layer->shares[i];
    int64_t end = i + 1;
    while (end < layer->n_shares && layer->shares[end].rank == s->rank &&
           layer->shares[end].head == s->head)
        end++;
    return end;
}
