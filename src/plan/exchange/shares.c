/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c - shares of one head on one rank, and the key blocks that they select together.
 *
 * A union reads each selected row of bits, WORDS words at a time, so that the sums stay in
 * registers and the rows of a share in the first cache.
 */
#include "plan/plan_internal.h"

#include <assert.h>
#include <string.h>

enum { WORDS = 8 }; /* of a row of bits, taken at once */

/* bits |= the words [first, first + n), n <= WORDS, of every step-th row of the share. A constant n
 * keeps the sums in registers. */
static inline void join_rows(const tess_work *work, int at, const tess_share *s,
                             const int32_t *order, int32_t step, size_t first, size_t n,
                             uint64_t *bits)
{
    uint64_t sum[WORDS] = {0};
    assert(work->bits);
    const uint64_t *rows = tess__work_bits(work, at, s->head, 0) + first;
    for (int32_t p = s->q_begin; p < s->q_end; p += step) {
        const uint64_t *row = rows + (size_t)(order ? order[p] : p) * (size_t)work->words;
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
        const tess_share *share = &layer->shares[i];
        if (words < WORDS)
            join_rows(work, at, share, order, step, 0, words, bits);
        else /* the last words overlap those before them */
            for (size_t w = 0; w < words; w += WORDS)
                join_rows(work, at, share, order, step, TESS_MIN(w, words - WORDS), WORDS, bits);
    }
    return work->ctx->kernels->bits_and_count(bits, bits, words);
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
