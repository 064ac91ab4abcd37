/* SPDX-License-Identifier: Apache-2.0 */
/* key_lists.c - the keys of one (sample, head) of a layer: selected, saved as a bitmask,
 * decoded.
 *
 * A list of K of n units takes 32 K bits as indices and n as bits: bits are the smaller from a
 * density of 1/32 on, and their size does not depend on the budget, so a pass knows beforehand
 * which layers' lists it saves. Cost of encoding and decoding: one pass over both.
 *
 * SEARCH keeps what it found beyond its pass: the bits of each (set, layer, sample, head), with the
 * step and the budget they were found for. Where ranks share the groups of a head, all of them get
 * all its bits, for in a later step they may share them in another way.
 */
#include "attn/select_internal.h"
#include "model/sparse_internal.h"

#include "tessera/advanced/collectives.h"

#include <string.h>

tess_view tess__one_head(const tess_view *view, int64_t sample, int64_t head)
{
    tess_view one = *view;
    one.data = (float *)view->data + sample * view->stride_b + head * view->stride_h;
    return one;
}

/* Where a head's bits are: saved, or of the block that is recomputed; NULL: nowhere. */
static uint8_t *bits_of(const tess_pass *p, int layer, int sample, int head)
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    const int64_t at = (int64_t)sample * p->z.heads + head;
    if (layer < p->sparse.saved_lists)
        return p->sparse.bits + (layer * heads + at) * p->z.head_bits;
    return p->sparse.bits_recompute ? p->sparse.bits_recompute + at * p->z.head_bits : NULL;
}

static size_t row_bytes(const tess_pass *p)
{
    return (size_t)(p->z.n_k + 7) / 8;
}

tess_status tess__attend_random(const tess_pass *p, int layer, uint64_t index, uint32_t *out,
                                size_t n)
{
    const uint64_t stream = p->sparse.attend.step * (uint64_t)p->z.layers + (uint64_t)layer;
    return tess_random_bits(p->sparse.attend.seed, stream, index, out, n);
}

/* A seed for each list of a run: random numbers of its place in it. */
static tess_status seed_of(const tess_pass *p, int layer, int64_t at, uint64_t *seed)
{
    uint32_t words[2];
    TESS_TRY(tess__attend_random(p, layer, 2 * (uint64_t)at, words, 2));
    *seed = (uint64_t)words[0] << 32 | words[1];
    return TESS_OK;
}

/* ---- what SEARCH found ----------------------------------------------------------------------- */

void tess__lists_forget(tess_pass *p)
{
    const int64_t heads = (int64_t)p->z.layers * p->z.batch * p->z.heads;
    if (p->sparse.found)
        memset(p->sparse.found, 0, (size_t)(p->room.searches * heads) * sizeof *p->sparse.found);
}

/* One head of one sample. */
typedef struct {
    tess__found *what; /* NULL: nothing is stored */
    uint8_t *bits;
    int32_t keys; /* wanted now */
} found_head;

static found_head found_of(const tess_pass *p, int layer, int64_t at)
{
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    const int64_t place = ((int64_t)p->sparse.attend.search * p->z.layers + layer) * heads + at;
    const tess_attend_layer *how = &p->sparse.layers[layer];
    if (!how->keys || how->kind != TESS_SELECT_SEARCH || p->sparse.attend.reuse == 0)
        return (found_head){0};
    return (found_head){p->sparse.found + place, p->sparse.found_bits + place * p->z.head_bits,
                        how->keys[at]};
}

/* Whether it was found for the same budget, in an earlier step that is near. */
static int may_reuse(const tess_pass *p, const found_head *f)
{
    if (!f->what)
        return 0;
    const uint64_t steps =
        p->sparse.attend.step - f->what->step; /* of a later one: a large number */
    return f->what->keys == f->keys && steps > 0 && steps <= (uint64_t)p->sparse.attend.reuse;
}

static tess_status reuse(const tess_pass *p, const found_head *f, const int32_t *groups,
                         tess_selection *lists)
{
    tess_selection_lists l;
    const size_t row = row_bytes(p);
    uint8_t *rows = p->ranks.gathered_bits;
    if (!groups)
        return tess_selection_set_mask(lists, f->bits, TESS_MASK_BITS);
    TESS_TRY(tess_selection_view(lists, &l));
    for (int64_t i = 0; i < l.lists; i++)
        memcpy(rows + (size_t)i * row, f->bits + (size_t)groups[i] * row, row);
    return tess_selection_set_mask(lists, rows, TESS_MASK_BITS);
}

static tess_status keep(const tess_pass *p, const found_head *f, const int32_t *groups,
                        const tess_selection *lists)
{
    if (!f->what)
        return TESS_OK;
    *f->what = (tess__found){p->sparse.attend.step, f->keys};
    tess__selection_encode(lists, groups, f->bits);
    return TESS_OK;
}

void tess__lists_begin(const tess_pass *p, int layer)
{
    for (int64_t at = 0; at < (int64_t)p->z.batch * p->z.heads; at++) {
        const found_head f = found_of(p, layer, at);
        if (f.keys > 0 && !may_reuse(p, &f))
            memset(f.bits, 0, (size_t)p->z.head_bits);
    }
}

/* All-gathers the bits of a head: each is set by the rank that searched for its group. */
static tess_status share_bits(const tess_pass *p, uint8_t *bits)
{
    const int64_t bytes = p->z.head_bits;
    for (int r = 0; r < p->ranks.ranks; r++)
        p->ranks.message[r] = bytes;
    TESS_TRY(tess_comm_allgatherv(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, bits, bytes,
                                  p->ranks.gathered_bits, p->ranks.message));
    for (int64_t i = 0; i < p->ranks.ranks * bytes; i++)
        bits[i % bytes] |= p->ranks.gathered_bits[i];
    return TESS_OK;
}

tess_status tess__lists_share(const tess_pass *p, int layer)
{
    for (int64_t at = 0; at < (int64_t)p->z.batch * p->z.heads; at++) {
        const found_head f = found_of(p, layer, at);
        if (f.keys == 0 || may_reuse(p, &f))
            continue;
        *f.what = (tess__found){p->sparse.attend.step, f.keys};
        TESS_TRY(share_bits(p, f.bits));
    }
    return TESS_OK;
}

/* ---- selecting ------------------------------------------------------------------------------- */

/* A selector of the caller's. */
static tess_status select_own(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                              const tess_view *k, const int32_t *groups, tess_selection *lists)
{
    const int64_t at = (int64_t)sample * p->z.heads + head;
    tess_selection_lists l;
    TESS_TRY(tess_selection_view(lists, &l));
    tess_selector_task task = {
        .layer = layer,
        .head = head,
        .sample = p->sparse.attend.sample + sample,
        .step = (int64_t)p->sparse.attend.step,
        .grid = {p->z.grid[0], p->z.grid[1], p->z.grid[2]},
        .cube = {p->z.cube[0], p->z.cube[1], p->z.cube[2]},
        .head_dim = p->z.head_dim,
        .scale = tess__select_scale(0, p->z.head_dim),
        .q = q->data,
        .k = k->data,
        .stride_q = q->stride_s,
        .stride_k = k->stride_s,
        .tokens_k = l.shape.tokens_k,
        .n_cubes = p->z.n_q,
        .cubes = p->sparse.bounds,
        .bounds_q = l.shape.bounds_q,
        .numbers = groups,
        .keys = p->sparse.layers[layer].keys[at],
    };
    TESS_TRY(seed_of(p, layer, p->sparse.attend.sample * p->z.heads + at, &task.seed));
    return tess_plugin_run(p->sparse.attend.plugin, &task, lists);
}

static int by_mass(tess_select_kind kind)
{
    return kind == TESS_SELECT_PREDICTOR || kind == TESS_SELECT_ORACLE ||
           kind == TESS_SELECT_SEARCH;
}

tess_status tess__lists_select(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                               const tess_view *k, const tess_view *keys, const int32_t *groups,
                               tess_selection *lists)
{
    const tess_attend_layer *how = &p->sparse.layers[layer];
    const int64_t at = (int64_t)sample * p->z.heads + head;
    const int low = how->kind == TESS_SELECT_PREDICTOR;
    if (p->sparse.attend.plugin)
        return select_own(p, layer, sample, head, q, k, groups, lists);
    const found_head found = found_of(p, layer, at);
    if (may_reuse(p, &found))
        return reuse(p, &found, groups, lists);
    tess_select_in in = {
        .q = q, .k = k, .head_dim = low ? p->room.proj_dim : p->z.head_dim, .groups = groups};
    if (how->kind != TESS_SELECT_WINDOW)
        in.budget.keys = how->keys[at];
    if (p->sparse.attend.by_error && by_mass(how->kind)) {
        tess__clusters_weigh(p, layer, sample, head, keys);
        in.weights = p->sparse.weights;
    }
    TESS_TRY(seed_of(p, layer, p->sparse.attend.sample * p->z.heads + at, &in.seed));
    TESS_TRY(tess_selector_run(p->sparse.selectors[how->kind], &in, lists));
    return keep(p, &found, groups, lists);
}

/* The lists of all groups, in p->sparse.lists. known: the groups are those of the forward pass. */
static tess_status select_keys(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                               const tess_view *k, int known)
{
    tess_view low[2];
    const tess_view keys = tess__one_head(k, sample, head);
    const int by_low = p->sparse.layers[layer].kind == TESS_SELECT_PREDICTOR;
    if (by_low) {
        tess__proj_views(p, &low[0], &low[1]);
        q = &low[0];
        k = &low[1];
    }
    tess_view one_q = tess__one_head(q, sample, head);
    const tess_view one_k = tess__one_head(k, sample, head);
    TESS_TRY(tess__groups_make(p, layer, sample, head, by_low ? p->room.proj_dim : p->z.head_dim,
                               known, &one_q));
    return tess__lists_select(p, layer, sample, head, &one_q, &one_k, &keys, NULL, p->sparse.lists);
}

static tess_status forward(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                           const tess_view *k)
{
    uint8_t *bits = bits_of(p, layer, sample, head);
    tess__selection_rows(p->sparse.lists, tess__groups_of(p, layer, sample, head));
    if (p->recomputing && layer < p->sparse.saved_lists)
        return tess_selection_set_mask(p->sparse.lists, bits, TESS_MASK_BITS);
    TESS_TRY(select_keys(p, layer, sample, head, q, k, p->recomputing));
    /* The forward pass leaves alone what belongs to the block that is recomputed. */
    if (bits && (p->recomputing || layer < p->sparse.saved_lists))
        tess__selection_encode(p->sparse.lists, NULL, bits);
    if (p->recomputing)
        return TESS_OK;
    tess_selection_lists l;
    TESS_TRY(tess_selection_view(p->sparse.lists, &l));
    const int64_t heads = (int64_t)p->z.batch * p->z.heads;
    p->sparse.density[layer * heads + (int64_t)sample * p->z.heads + head] = l.density;
    return TESS_OK;
}

tess_status tess__lists_forward(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                                const tess_view *k)
{
    const tess__lap lap = tess__lap_begin(p);
    const tess_status status = forward(p, layer, sample, head, q, k);
    p->times.select_ns += tess__lap_end(p, lap);
    return status;
}

tess_status tess__lists_backward(tess_pass *p, int layer, int sample, int head, const tess_view *q,
                                 const tess_view *k, int *again)
{
    const tess__lap lap = tess__lap_begin(p);
    const uint8_t *bits = bits_of(p, layer, sample, head);
    tess__selection_rows(p->sparse.lists, tess__groups_of(p, layer, sample, head));
    const tess_status status = bits ? tess_selection_set_mask(p->sparse.lists, bits, TESS_MASK_BITS)
                                    : select_keys(p, layer, sample, head, q, k, 1);
    p->times.select_ns += tess__lap_end(p, lap);
    *again = !bits && p->shape.store == TESS_DTYPE_BF16 && p->shape.keep == TESS_KEEP_ALL;
    return status;
}
