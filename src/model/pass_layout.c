/* SPDX-License-Identifier: Apache-2.0 */
/* pass_layout.c - what a pass holds: its memory cut into buffers.
 *
 * One function cuts the memory; without memory it only counts, so that what is predicted is what
 * is taken. With R rows, d = dim and f = ffn a block's set is R (9 d + f) numbers, the gradients'
 * workspace R 9 d and two or three chunks of TESS__FFN_ROWS f.
 */
#include "attn/attn_internal.h"
#include "pass_internal.h"

typedef struct {
    char *memory; /* NULL: only counts */
    size_t used;
} cutter;

static void *cut(cutter *c, size_t bytes)
{
    void *piece = c->memory ? c->memory + c->used : NULL;
    c->used += tess__arena_round(bytes);
    return piece;
}

static float *cut_floats(cutter *c, int64_t n)
{
    return cut(c, (size_t)n * sizeof(float));
}

/* Log-sums stay in F32, for attention's gradients take them as they are. */
static void *cut_slot(cutter *c, const tess_pass *p, int slot, int halves)
{
    const int whole = !halves || slot == SET_LSE1 || slot == SET_LSE2;
    return cut(c, (size_t)p->z.slot[slot] * (whole ? sizeof(float) : sizeof(uint16_t)));
}

static void cut_conditioning(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t n = z->batch * z->dim, context = z->text_rows * z->dim;
    p->cond.sinusoid = cut_floats(c, z->batch * z->freq);
    p->cond.time1 = cut_floats(c, n);
    p->cond.time1_silu = cut_floats(c, n);
    p->cond.temb = cut_floats(c, n);
    p->cond.temb_silu = cut_floats(c, n);
    p->cond.six = cut_floats(c, 6 * n);
    p->cond.text_emb = cut_floats(c, context);
    if (p->shape.train) {
        p->cond.text = cut_floats(c, z->text_rows * z->text_dim);
        p->cond.text1 = cut_floats(c, context);
        p->act.patches = cut_floats(c, z->rows * z->patch_in);
        if (!z->half)
            p->act.last = cut_floats(c, z->rows * z->dim);
    }
}

/* Lists of as many layers as there is memory for; cut last, for the default is a share of the rest,
 * less the lists of the head at hand. Those of a block that is recomputed may take as much once
 * more.
 */
static void cut_lists(tess_pass *p, cutter *c)
{
    const int64_t layer = p->z.batch * p->z.heads * p->z.head_bits;
    const int64_t lists = (int64_t)p->z.n_q * p->z.units_most * (int64_t)sizeof(int32_t);
    const int64_t share = (int64_t)(c->used / 32), rest = share > lists ? share - lists : 0;
    const int64_t room = p->room.index_memory ? p->room.index_memory : rest;
    p->sparse.saved_lists = room / layer < p->z.layers ? (int)(room / layer) : p->z.layers;
    p->sparse.bits = cut(c, (size_t)(p->sparse.saved_lists * layer));
    p->sparse.recompute_fits = layer <= room;
}

/* Centroids and labels of clusters of keys. */
static void cut_clusters(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t heads = (int64_t)z->batch * z->heads, layers = p->shape.train ? z->layers : 1;
    const int64_t rows = heads * p->room.compensate;
    if (p->room.compensate <= 1 || !z->sparse || p->room.dense)
        return;
    p->sparse.centroids = cut_floats(c, layers * rows * z->head_dim);
    p->sparse.centroid_sums = cut(c, (size_t)(rows * (z->head_dim + 1)) * sizeof(double));
    p->sparse.weights = cut_floats(c, z->tokens);
    if (!p->ranks.comm)
        p->sparse.labels = cut(c, (size_t)(layers * heads * z->tokens));
}

/* Groups of queries by content. */
static void cut_groups(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t heads = (int64_t)z->batch * z->heads, layers = p->shape.train ? z->layers : 1;
    const int dim = p->room.proj_dim > z->head_dim ? p->room.proj_dim : z->head_dim;
    if (p->room.group == TESS_GROUP_CUBE || !z->sparse || p->room.dense)
        return;
    if (!p->ranks.comm) /* the executor keeps them */
        p->sparse.rows = cut(c, (size_t)(layers * heads * z->tokens) * sizeof *p->sparse.rows);
    p->sparse.grouped = cut_floats(c, z->tokens * dim);
    p->sparse.group_room = cut(c, tess__content_bytes(z->tokens));
}

/* What lives from the forward to the backward pass. */
static void cut_saved(tess_pass *p, cutter *c)
{
    const int last = p->shape.keep == TESS_KEEP_ALL ? SET_SLOTS : SET_X0 + 1;
    cut_conditioning(p, c);
    if (!p->shape.train)
        return;
    p->act.saved = cut(c, (size_t)p->z.layers * sizeof *p->act.saved);
    for (int layer = 0; layer < p->z.layers; layer++)
        for (int slot = 0; slot < last; slot++) {
            void *piece = cut_slot(c, p, slot, tess__saves_halves(p));
            if (c->memory)
                p->act.saved[layer].at[slot] = piece;
        }
    cut_clusters(p, c);
    cut_groups(p, c);
    if (p->z.sparse && !p->room.dense && !p->ranks.comm)
        cut_lists(p, c);
}

/* The set that blocks of a pass in BF16 work in: halves of what is not saved. */
static void cut_half_set(tess_pass *p, cutter *c)
{
    void **at = p->act.work.at;
    if (p->shape.train && p->shape.keep == TESS_KEEP_ALL)
        return;
    for (int slot = SET_X0 + 1; slot < SET_H && p->shape.train; slot++)
        at[slot] = cut_slot(c, p, slot, 1);
    if (p->shape.train)
        return;
    /* Each is read before the next one is written. */
    at[SET_QKV] = at[SET_O1] = at[SET_Q2] = at[SET_O2] = cut_slot(c, p, SET_QKV, 1);
    at[SET_KV2] = cut_slot(c, p, SET_KV2, 1);
}

/* The set that blocks work in: of those that are not saved in F32. */
static void cut_work_set(tess_pass *p, cutter *c)
{
    const int saved_f32 = p->shape.train && p->shape.store == TESS_DTYPE_F32;
    const int all = p->shape.train && p->shape.keep == TESS_KEEP_ALL;
    void **at = p->act.work.at;
    if (p->z.half) {
        cut_half_set(p, c);
        return;
    }
    if (saved_f32 && all)
        return;
    if (!saved_f32)
        at[SET_X0] = cut_floats(c, p->z.slot[SET_X0]);
    at[SET_X1] = cut_floats(c, p->z.slot[SET_X1]);
    at[SET_X2] = cut_floats(c, p->z.slot[SET_X2]);
    at[SET_QKV] = cut_floats(c, p->z.slot[SET_QKV]);
    at[SET_KV2] = cut_floats(c, p->z.slot[SET_KV2]);
    if (!p->shape.train) { /* each is read before the other is written */
        at[SET_O1] = at[SET_O2] = p->ws.n;
        at[SET_Q2] = at[SET_QKV];
        p->act.last = at[SET_X0];
        return;
    }
    static const int rest[] = {SET_O1, SET_LSE1, SET_Q2, SET_O2, SET_LSE2};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        at[rest[i]] = cut_floats(c, p->z.slot[rest[i]]);
    if (all)
        at[SET_H] = cut_floats(c, p->z.slot[SET_H]);
}

static int64_t largest(const int64_t *values, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

/* Numbers of the predictor's vectors, and where big has them: behind q, k and v and their own
 * gradients, where the gradients of q, k and v will be. */
static int64_t proj_size(const tess_pass *p)
{
    return 2 * p->z.rows * p->z.heads * p->room.proj_dim;
}

static int64_t proj_place(const tess_pass *p)
{
    return 3 * p->z.rows * p->z.dim + proj_size(p);
}

/* Whether they can be there: where a backward pass that selects again has another place for them.
 */
static int proj_in_big(const tess_pass *p)
{
    return p->shape.train && !p->z.half && p->room.proj_dim > 0 &&
           proj_size(p) <= p->z.slot[SET_X2];
}

/* Numbers in big, for each step that uses it. */
static int64_t big_size(const tess_pass *p)
{
    const tess__sizes *z = &p->z;
    const int train = p->shape.train, both = train ? 2 : 1;
    const int chunks = !train ? 1 : p->shape.keep == TESS_KEEP_ALL ? 2 : 3;
    const int64_t steps[] = {
        both * 3 * z->rows * z->dim,
        both * (z->rows + 2 * z->text_rows) * z->dim,
        chunks * z->chunk * z->ffn,
        both * z->text_rows * z->dim,
        z->batch * z->tokens * z->patch_in,
        z->batch * z->tokens * z->patch_out,
        train && p->room.learn_rows ? proj_place(p) : 0,
        proj_in_big(p) ? proj_place(p) + proj_size(p) : 0,
    };
    return largest(steps, sizeof steps / sizeof *steps);
}

static void cut_rope(const tess_pass *p, cutter *c, int dim, float *rope[3])
{
    int dims[3];
    tess__rope_dims(dim, dims);
    for (int i = 0; i < 3; i++)
        rope[i] = cut_floats(c, (int64_t)p->z.grid[i] * 2 * dims[i]);
}

/* Lists that SEARCH found, for later passes. */
static void cut_found(tess_pass *p, cutter *c)
{
    const size_t heads =
        (size_t)p->room.searches * (size_t)p->z.layers * (size_t)p->z.batch * (size_t)p->z.heads;
    if (p->room.searches == 0)
        return;
    p->sparse.found = cut(c, heads * sizeof *p->sparse.found);
    p->sparse.found_bits = cut(c, heads * (size_t)p->z.head_bits);
    if (p->ranks.comm)
        p->ranks.gathered_bits = cut(c, (size_t)p->ranks.ranks * (size_t)p->z.head_bits);
}

static void cut_attending(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t heads = (int64_t)z->batch * z->heads;
    p->sparse.layers = cut(c, (size_t)z->layers * sizeof *p->sparse.layers);
    p->sparse.density = cut(c, (size_t)(z->layers * heads) * sizeof *p->sparse.density);
    p->sparse.losses = cut(c, (size_t)(z->layers * heads) * sizeof *p->sparse.losses);
    if (!z->sparse)
        return;
    p->sparse.keys = cut(c, (size_t)(z->layers * heads) * sizeof *p->sparse.keys);
    p->sparse.by_cube = cut(c, (size_t)z->layers * (size_t)z->heads);
    p->sparse.bounds = cut(c, ((size_t)z->n_q + 1) * sizeof *p->sparse.bounds);
    cut_found(p, c);
    if (!p->shape.train) {
        cut_clusters(p, c);
        cut_groups(p, c);
    }
    if (p->shape.train && p->shape.keep == TESS_KEEP_BLOCKS && p->sparse.saved_lists < z->layers &&
        p->sparse.recompute_fits)
        p->sparse.bits_recompute = cut(c, (size_t)(heads * z->head_bits));
    if (p->room.proj_dim > 0) {
        if (!proj_in_big(p))
            p->learn.proj = cut_floats(c, proj_size(p));
        cut_rope(p, c, p->room.proj_dim, p->learn.rope);
        p->learn.rows = cut(c, 2 * (size_t)p->room.learn_rows * sizeof *p->learn.rows);
        p->learn.dq = cut_floats(c, heads * p->room.learn_rows * p->room.proj_dim);
    }
}

/* What ranks that share the tokens send to each other. */
static void cut_ranks(tess_pass *p, cutter *c)
{
    const int64_t ranks = p->ranks.ranks, heads = (int64_t)p->z.batch * p->z.heads;
    const int64_t rows = heads * p->room.learn_rows;
    if (!p->ranks.comm)
        return;
    p->ranks.message = cut(c, 2 * (size_t)ranks * sizeof *p->ranks.message);
    p->learn.q = cut_floats(c, rows * (p->z.head_dim + p->room.proj_dim));
    const int64_t parts = p->z.exact ? TESS__CUTS_MAX : ranks;
    p->learn.stats = cut(c, (size_t)(parts * rows * TESS_PREDICT_STATS) * sizeof *p->learn.stats);
    if (!p->z.exact || rows == 0)
        return;
    const int64_t low = rows * p->room.proj_dim, inputs = TESS_MAX(p->z.dim, p->z.head_dim);
    p->exact.dq = cut(c, (size_t)low * sizeof *p->exact.dq);
    p->exact.losses = cut(c, (size_t)p->z.heads * sizeof *p->exact.losses);
    p->exact.learn = cut_floats(c, TESS_MAX(low, 2 * p->z.heads * p->room.proj_dim * (inputs + 1)));
}

static void cut_exact(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t text = 2 * z->text * z->dim;
    if (!z->exact)
        return;
    p->exact.mod = cut(c, (size_t)(z->batch * MOD_ALL * z->dim) * sizeof *p->exact.mod);
    p->exact.text = cut(c, (size_t)(z->batch * text) * sizeof *p->exact.text);
    p->exact.text_part = cut_floats(c, text);
    p->exact.lse = cut_floats(c, z->heads * z->local);
    p->exact.columns =
        cut_floats(c, largest((const int64_t[]){6 * z->dim, z->ffn, z->patch_out}, 3));
}

/* What a pass in BF16 has besides. Weights are those of the largest layer and the one beside it. */
static void cut_half(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t wide = TESS_MAX(z->ffn, 3 * z->dim);
    if (!z->half)
        return;
    p->act.stream = p->act.last = cut_floats(c, z->rows * z->dim);
    p->ws.room = cut_floats(c, p->threads * z->row_room);
    for (int i = 0; i < 2; i++)
        p->ws.packed[i] = cut(c, TESS_MAX(tess__bf16_weights_size(z->dim, wide),
                                          tess__bf16_weights_size(z->ffn, z->dim)));
}

static void cut_workspace(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t n = z->batch * z->dim, wide = z->rows * z->dim;
    if (p->shape.cube)
        p->perm = cut(c, (size_t)z->tokens * sizeof *p->perm);
    cut_rope(p, c, z->head_dim, p->rope);
    cut_attending(p, c);
    cut_ranks(p, c);
    p->ws.mod = cut_floats(c, MOD_ALL * n);
    p->ws.n = cut_floats(c, wide);
    p->ws.big = cut_floats(c, big_size(p));
    p->learn.in_big = proj_in_big(p);
    if (p->learn.in_big)
        p->learn.proj = c->memory ? p->ws.big + proj_place(p) : NULL;
    cut_half(p, c);
    cut_work_set(p, c);
    if (p->shape.train || z->half)
        p->ws.t = cut_floats(c, wide);
    if (!p->shape.train)
        return;
    cut_exact(p, c);
    p->ws.dmod = cut_floats(c, MOD_ALL * n);
    p->cond.dsix = cut_floats(c, 6 * n);
    p->cond.dtemb = cut_floats(c, n);
    p->cond.dtext_emb = cut_floats(c, z->text_rows * z->dim);
    p->ws.g = cut_floats(c, wide);
    p->ws.m = cut_floats(c, z->dim * (z->ffn > z->dim ? z->ffn : z->dim));
    p->ws.partial = cut_floats(c, z->parts * 3 * z->dim);
    p->ws.sums = cut_floats(c, z->dim);
}

size_t tess__pass_layout(tess_pass *pass, void *memory, size_t *saved)
{
    cutter c = {.memory = memory};
    cut_saved(pass, &c);
    *saved = c.used;
    cut_workspace(pass, &c);
    return c.used;
}
