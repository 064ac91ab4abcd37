/* SPDX-License-Identifier: Apache-2.0 */
/* coarsen.c - a selection in other groups and units: the same pairs of rows, and the fewest more.
 *
 * A coarse list is the union of the lists whose groups share a row with it, each unit replaced by
 * the coarse units it shares a row with. The ranges need not nest. Every thread has a set of coarse
 * units: bits, and above them one bit for each word that is not 0, so that emptying the set costs
 * what is in it plus n_k / 4096.
 *
 * Cost: the lists are read twice, first to count; O(indices) in and out. Memory while it runs:
 *
 *   | offsets (lists+1) | first (n_k of sel) | last (n_k of sel) | a set of n_k bits per thread |
 */
#include "attn_internal.h"

#include "tessera/advanced/selection.h"

#include <omp.h>
#include <string.h>

/* A set of units: words, and the summary of which words are not 0. */
typedef struct {
    uint64_t *words, *summary;
    int64_t n_summary;
} unit_set;

static void set_add(unit_set *set, int32_t unit)
{
    set->words[unit / 64] |= UINT64_C(1) << unit % 64;
    set->summary[unit / 4096] |= UINT64_C(1) << unit / 64 % 64;
}

/* Takes everything out, ascending; returns how many. indices NULL: only counts. */
static int64_t set_empty(unit_set *set, int32_t *indices)
{
    int64_t n = 0;
    for (int64_t s = 0; s < set->n_summary; s++) {
        for (uint64_t full = set->summary[s]; full; full &= full - 1) {
            const int64_t w = s * 64 + __builtin_ctzll(full);
            if (!indices)
                n += __builtin_popcountll(set->words[w]);
            else
                for (uint64_t bits = set->words[w]; bits; bits &= bits - 1)
                    indices[n++] = (int32_t)(w * 64 + __builtin_ctzll(bits));
            set->words[w] = 0;
        }
        set->summary[s] = 0;
    }
    return n;
}

/* What one run of the two passes needs. */
typedef struct {
    const tess_selection *fine;
    tess_selection *coarse;
    const int32_t *first, *last; /* coarse units of each fine one */
    unit_set *sets;              /* one for each thread */
} job;

/* The union of the fine lists of a coarse one, counted or written to indices. */
static int64_t coarse_list(const job *j, int64_t list, unit_set *set, int32_t *indices)
{
    const tess_selection *fine = j->fine, *coarse = j->coarse;
    const int64_t head = list / coarse->n_q, g = list % coarse->n_q;
    const int32_t begin = tess__range_of(fine->bounds_q, fine->n_q, coarse->bounds_q[g]);
    const int32_t end = tess__range_of(fine->bounds_q, fine->n_q, coarse->bounds_q[g + 1] - 1);
    const int64_t *offsets = fine->offsets + head * fine->n_q;
    /* The lists of neighbouring groups are neighbours in memory. */
    for (int64_t i = offsets[begin]; i < offsets[end + 1]; i++) {
        const int32_t unit = fine->indices[i];
        for (int32_t u = j->first[unit]; u <= j->last[unit]; u++)
            set_add(set, u);
    }
    return set_empty(set, indices);
}

/* Sets the coarse offsets by counting every list. */
static void count_lists(const job *j)
{
    const int threads = tess__selection_team(j->coarse, j->fine->offsets[j->fine->lists]);
    const int64_t lists = j->coarse->lists;
    int64_t *offsets = j->coarse->offsets;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 16)
    for (int64_t list = 0; list < lists; list++)
        offsets[list + 1] = coarse_list(j, list, &j->sets[omp_get_thread_num()], NULL);
    for (int64_t list = 0; list < lists; list++)
        offsets[list + 1] += offsets[list];
}

/* Writes every list to where the coarse offsets say. */
static void write_lists(const job *j)
{
    const int threads = tess__selection_team(j->coarse, j->fine->offsets[j->fine->lists]);
    const int64_t lists = j->coarse->lists;
    tess_selection *coarse = j->coarse;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 16)
    for (int64_t list = 0; list < lists; list++)
        coarse_list(j, list, &j->sets[omp_get_thread_num()],
                    coarse->indices + coarse->offsets[list]);
}

/* The coarse units of each fine one, and an empty set for each thread. */
static tess_status prepare(tess__arena *scratch, int threads, job *j)
{
    const tess_selection *fine = j->fine, *coarse = j->coarse;
    const int64_t n_summary = (int64_t)coarse->n_k / 4096 + 1, n_words = n_summary * 64;
    const int64_t counts[] = {fine->n_k, fine->n_k, threads, threads * (n_words + n_summary)};
    const size_t sizes[] = {sizeof(int32_t), sizeof(int32_t), sizeof(unit_set), sizeof(uint64_t)};
    TESS_TRY(tess__arena_reserve(scratch, tess__sel_bytes(4, counts, sizes)));
    int32_t *first = tess__arena_take(scratch, (size_t)counts[0] * sizes[0]);
    int32_t *last = tess__arena_take(scratch, (size_t)counts[1] * sizes[1]);
    unit_set *sets = tess__arena_take(scratch, (size_t)counts[2] * sizes[2]);
    uint64_t *bits = tess__arena_take(scratch, (size_t)counts[3] * sizes[3]);
    for (int32_t u = 0; u < fine->n_k; u++) {
        first[u] = tess__range_of(coarse->bounds_k, coarse->n_k, fine->bounds_k[u]);
        last[u] = tess__range_of(coarse->bounds_k, coarse->n_k, fine->bounds_k[u + 1] - 1);
    }
    memset(bits, 0, (size_t)counts[3] * sizes[3]);
    for (int t = 0; t < threads; t++, bits += n_words + n_summary)
        sets[t] = (unit_set){bits, bits + n_words, n_summary};
    j->first = first;
    j->last = last;
    j->sets = sets;
    return TESS_OK;
}

tess_status tess_selection_coarsen(tess_ctx *ctx, const tess_selection *sel,
                                   const tess_sel_shape *shape, tess_selection **coarse)
{
    TESS_REQUIRE(ctx, sel, shape, coarse);
    int32_t n_q = 0, n_k = 0;
    TESS_TRY(tess__sel_shape_check(__func__, shape, &n_q, &n_k));
    TESS_TRY(tess__selection_fits(__func__, sel, shape->batch, shape->heads, shape->tokens_q,
                                  shape->tokens_k));

    /* The first selection has no room for indices: its offsets say how much the second needs. */
    tess__arena scratch = {.ctx = ctx};
    tess_selection *sizes = NULL, *made = NULL;
    tess_status status = tess_selection_create(ctx, shape, 0, &sizes);
    if (status != TESS_OK)
        goto out;
    job j = {.fine = sel, .coarse = sizes};
    status = prepare(&scratch, ctx->threads, &j);
    if (status != TESS_OK)
        goto out;
    count_lists(&j);
    status = tess_selection_create(ctx, shape, sizes->offsets[sizes->lists], &made);
    if (status != TESS_OK)
        goto out;
    memcpy(made->offsets, sizes->offsets, ((size_t)made->lists + 1) * sizeof *made->offsets);
    j.coarse = made;
    write_lists(&j);
    tess__selection_changed(made);
    *coarse = made;
out:
    tess_selection_destroy(sizes);
    tess__arena_free(&scratch);
    return status;
}
