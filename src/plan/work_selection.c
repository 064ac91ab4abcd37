/* SPDX-License-Identifier: Apache-2.0 */
/* work_selection.c - work from selections: a unit is a pair of tokens.
 *
 * The lists become bits, which take less memory than lists from a density of 1 / 32 on, and the
 * load of a query block is its rows times the rows of the key units in its list.
 */
#include "work.h"

#include "attn/attn_internal.h"

#include <string.h>

enum { LAYERS_MAX = 65536 };

/* Whether both have the same ranges: shapes of batch 1 that agree in heads and tokens. */
static int same_ranges(const tess_selection *a, const tess_selection *b)
{
    return a->n_q == b->n_q && a->n_k == b->n_k &&
           memcmp(a->bounds_q, b->bounds_q, ((size_t)a->n_q + 1) * sizeof *a->bounds_q) == 0 &&
           memcmp(a->bounds_k, b->bounds_k, ((size_t)a->n_k + 1) * sizeof *a->bounds_k) == 0;
}

static tess_status check(const char *who, const tess_selection *const *layers, int n)
{
    TESS_TRY(tess__check_range(who, "n", n, 1, LAYERS_MAX));
    for (int i = 0; i < n; i++) {
        const tess_selection *sel = layers[i], *first = layers[0];
        if (!sel)
            return tess__invalid(who, "layers[%d] is NULL", i);
        if (sel->batch != 1)
            return tess__invalid(who, "layers[%d] has batch %d, must be 1", i, sel->batch);
        if (sel->tokens_q < 1 || sel->tokens_k < 1)
            return tess__invalid(who, "layers[%d] has no tokens", i);
        TESS_TRY(tess__selection_fits(who, sel, 1, first->heads, first->tokens_q, first->tokens_k));
        if (!same_ranges(sel, first))
            return tess__invalid(who, "layers[%d] has other groups or units than layers[0]", i);
    }
    return TESS_OK;
}

/* Takes the lists of one head of a layer. */
static void set_head(tess_work *work, size_t at, const tess_selection *sel, int head)
{
    const int32_t n_q = sel->n_q;
    uint64_t *bits = work->bits + at * (size_t)n_q * (size_t)work->words;
    int64_t *prefix = work->prefix + at * ((size_t)n_q + 1), sum = 0;
    memset(bits, 0, (size_t)n_q * (size_t)work->words * sizeof *bits);
    for (int32_t q = 0; q < n_q; q++) {
        const int64_t *offset = sel->offsets + (int64_t)head * n_q + q;
        int64_t keys = 0;
        for (int64_t i = offset[0]; i < offset[1]; i++) {
            const int32_t k = sel->indices[i];
            bits[k / 64] |= UINT64_C(1) << (k % 64);
            keys += sel->bounds_k[k + 1] - sel->bounds_k[k];
        }
        prefix[q] = sum;
        sum += (sel->bounds_q[q + 1] - sel->bounds_q[q]) * keys;
        bits += work->words;
    }
    prefix[n_q] = sum;
    work->loads[at] = sum;
}

tess_status tess_work_from_selection(tess_ctx *ctx, const tess_selection *const *layers, int n,
                                     tess_work **work)
{
    TESS_REQUIRE(ctx, layers, work);
    TESS_TRY(check(__func__, layers, n));
    const tess_selection *first = layers[0];
    const tess_work_info info = {.layers = n,
                                 .heads = first->heads,
                                 .q_blocks = first->n_q,
                                 .k_blocks = first->n_k,
                                 .tokens_q = first->tokens_q,
                                 .tokens_k = first->tokens_k,
                                 .group = first->group,
                                 .unit = first->unit,
                                 .masks = 1,
                                 .unit_pairs = 1.0};
    tess_work *made = NULL;
    TESS_TRY(tess__work_make(ctx, &info, first->group ? NULL : first->bounds_q,
                             first->unit ? NULL : first->bounds_k, 1, &made));
    for (int layer = 0; layer < n; layer++)
        for (int head = 0; head < first->heads; head++)
            set_head(made, tess__work_place(made, layer, head), layers[layer], head);
    const tess_status status = tess__work_finish(__func__, made);
    if (status == TESS_OK)
        *work = made;
    else
        tess_work_destroy(made);
    return status;
}
