/* SPDX-License-Identifier: Apache-2.0 */
/* pass_layout.c - what a pass holds: its sizes, its memory cut into buffers, and the prediction.
 *
 * One function cuts the memory; without memory it only counts, so that what is predicted is what
 * is taken. With R rows, d = dim and f = ffn a block's set is R (9 d + f) numbers, the gradients'
 * workspace R 9 d and two or three chunks of TESS__FFN_ROWS f.
 */
#include "attn/attn.h"
#include "attn/predict.h"
#include "pass.h"

#include <math.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

static tess_status check_choices(const char *who, const tess_pass_shape *s)
{
    if (s->batch < 1 || s->batch > 65536)
        return tess__fail(TESS_EINVAL, "%s: batch is %d, must be 1..65536", who, s->batch);
    if (s->text_len < 0 || s->text_len > 65536)
        return tess__fail(TESS_EINVAL,
                          "%s: text_len is %d, must be 1..65536, or 0 for the configuration's", who,
                          s->text_len);
    if (s->train != 0 && s->train != 1)
        return tess__fail(TESS_EINVAL, "%s: train is %d, must be 0 or 1", who, s->train);
    if (s->keep != TESS_KEEP_ALL && s->keep != TESS_KEEP_BLOCKS)
        return tess__fail(TESS_EINVAL, "%s: keep is %d, must be ALL (0) or BLOCKS (1)", who,
                          (int)s->keep);
    if (s->store != TESS_DTYPE_F32 && s->store != TESS_DTYPE_BF16)
        return tess__fail(TESS_EINVAL, "%s: store is %s, must be F32 or BF16", who,
                          tess_dtype_name(s->store));
    for (int i = 0; s->cube && i < 3; i++)
        if (s->cube[i] < 1)
            return tess__fail(TESS_EINVAL, "%s: cube[%d] is %d, must be 1 or more", who, i,
                              s->cube[i]);
    return TESS_OK;
}

static tess_status check_sparse(const char *who, const tess_pass_shape *s, int64_t tokens)
{
    const tess_sparse_opts *o = s->sparse;
    const struct {
        const char *name;
        int64_t value, most;
    } rules[] = {
        {"unit_cubes", o->unit_cubes, 1},
        {"compensate", o->compensate, 1},
        {"learn_rows", o->learn_rows, tokens < 512 ? tokens : 512},
        {"index_memory", o->index_memory, INT64_MAX / 2},
    };
    if (!s->cube)
        return tess__fail(TESS_EINVAL, "%s: cube is NULL, must be given with sparse", who);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].value < 0 || rules[i].value > rules[i].most)
            return tess__fail(TESS_EINVAL, "%s: sparse.%s is %lld, must be 0..%lld", who,
                              rules[i].name, (long long)rules[i].value, (long long)rules[i].most);
    if (o->rank < 0 || o->rank > 64 || o->rank % 8 != 0)
        return tess__fail(TESS_EINVAL,
                          "%s: sparse.rank is %d, must be 0 or a multiple of 8 up to 64", who,
                          o->rank);
    if (o->learn_rows > 0 && o->rank == 0)
        return tess__fail(TESS_EINVAL, "%s: sparse.rank is 0, must be given with learn_rows", who);
    if (!(o->max_density >= 0.0 && o->max_density <= 1.0))
        return tess__fail(TESS_EINVAL, "%s: sparse.max_density is %g, must be 0..1", who,
                          o->max_density);
    return TESS_OK;
}

/* Sizes of lists: groups are cubes, units are cubes or single keys. */
static void size_lists(const tess_pass_shape *s, tess__sizes *z)
{
    z->sparse = 1;
    z->n_q = 1;
    for (int i = 0; i < 3; i++) {
        z->cube[i] = s->cube[i];
        z->n_q *= (int32_t)(((int64_t)z->grid[i] + s->cube[i] - 1) / s->cube[i]);
    }
    z->n_k = s->sparse->unit_cubes ? z->n_q : (int32_t)z->tokens;
    const double share = s->sparse->max_density > 0.0 ? s->sparse->max_density : 1.0;
    z->units_most = (int32_t)ceil(share * z->n_k);
    z->head_bits = (int64_t)z->n_q * ((z->n_k + 7) / 8);
}

static tess_status check_sides(const char *who, const tess_model_config *c,
                               const tess_pass_shape *s, int grid[3])
{
    const struct {
        const char *name;
        int side;
    } sides[3] = {{"frames", s->frames}, {"height", s->height}, {"width", s->width}};
    for (int i = 0; i < 3; i++) {
        const int patch = c->patch[i];
        if (sides[i].side < 1 || sides[i].side % patch != 0)
            return tess__fail(TESS_EINVAL, "%s: %s is %d, must be a multiple of %d, the patch's",
                              who, sides[i].name, sides[i].side, patch);
        grid[i] = sides[i].side / patch;
        if (grid[i] > c->rope_max)
            return tess__fail(TESS_EINVAL,
                              "%s: %s is %d tokens, must be at most rope_max, which is %d", who,
                              sides[i].name, grid[i], c->rope_max);
    }
    return TESS_OK;
}

static void set_slots(tess__sizes *z)
{
    const int64_t wide = z->rows * z->dim;
    for (int i = 0; i < SET_SLOTS; i++)
        z->slot[i] = wide;
    z->slot[SET_QKV] = 3 * wide;
    z->slot[SET_KV2] = 2 * z->text_rows * z->dim;
    z->slot[SET_LSE1] = z->slot[SET_LSE2] = z->rows * z->heads;
    z->slot[SET_H] = z->rows * z->ffn;
}

tess_status tess__pass_sizes(const char *who, const tess_model_config *config,
                             const tess_pass_shape *shape, tess__sizes *sizes)
{
    enum { ROWS_MAX = 1 << 30 };
    const int64_t volume = (int64_t)config->patch[0] * config->patch[1] * config->patch[2];
    tess__sizes z = {
        .batch = shape->batch,
        .heads = config->heads,
        .head_dim = config->head_dim,
        .layers = config->layers,
        .text = shape->text_len ? shape->text_len : config->text_len,
        .dim = (int64_t)config->heads * config->head_dim,
        .ffn = config->ffn_dim,
        .text_dim = config->text_dim,
        .freq = config->freq_dim,
        .patch_in = volume * config->in_channels,
        .patch_out = volume * config->out_channels,
    };
    TESS_TRY(check_choices(who, shape));
    TESS_TRY(check_sides(who, config, shape, z.grid));
    const double rows = (double)z.batch * z.grid[0] * z.grid[1] * z.grid[2];
    const double text_rows = (double)z.batch * (double)z.text;
    if (rows > ROWS_MAX || text_rows > ROWS_MAX)
        return tess__fail(TESS_EINVAL, "%s: the batch has %.0f %s, must have at most %d", who,
                          rows > ROWS_MAX ? rows : text_rows,
                          rows > ROWS_MAX ? "tokens" : "vectors of text", ROWS_MAX);
    z.tokens = (int64_t)z.grid[0] * z.grid[1] * z.grid[2];
    z.rows = z.batch * z.tokens;
    z.text_rows = z.batch * z.text;
    z.chunk = z.tokens < TESS__FFN_ROWS ? z.tokens : TESS__FFN_ROWS;
    const int64_t longer = z.tokens > z.text ? z.tokens : z.text;
    z.parts = z.batch * ((longer + TESS__BLOCK_ROWS - 1) / TESS__BLOCK_ROWS);
    set_slots(&z);
    if (shape->sparse) {
        TESS_TRY(check_sparse(who, shape, z.tokens));
        size_lists(shape, &z);
    }
    *sizes = z;
    return TESS_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

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
static void *cut_slot(cutter *c, const tess_pass *p, int slot)
{
    const int whole = p->shape.store == TESS_DTYPE_F32 || slot == SET_LSE1 || slot == SET_LSE2;
    return cut(c, (size_t)p->z.slot[slot] * (whole ? sizeof(float) : sizeof(uint16_t)));
}

static void cut_conditioning(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t n = z->batch * z->dim, context = z->text_rows * z->dim;
    p->sinusoid = cut_floats(c, z->batch * z->freq);
    p->time1 = cut_floats(c, n);
    p->time1_silu = cut_floats(c, n);
    p->temb = cut_floats(c, n);
    p->temb_silu = cut_floats(c, n);
    p->six = cut_floats(c, 6 * n);
    p->context = cut_floats(c, context);
    if (p->shape.train) {
        p->text = cut_floats(c, z->text_rows * z->text_dim);
        p->text1 = cut_floats(c, context);
        p->patches = cut_floats(c, z->rows * z->patch_in);
        p->last = cut_floats(c, z->rows * z->dim);
    }
}

/* Lists of as many layers as there is memory for; cut last, for the default is a share of the rest.
 */
static void cut_lists(tess_pass *p, cutter *c)
{
    const int64_t layer = p->z.batch * p->z.heads * p->z.head_bits;
    const int64_t room = p->room.index_memory ? p->room.index_memory : (int64_t)(c->used / 32);
    p->kept_lists = room / layer < p->z.layers ? (int)(room / layer) : p->z.layers;
    p->bits = cut(c, (size_t)(p->kept_lists * layer));
}

/* What lives from the forward to the backward pass. */
static void cut_kept(tess_pass *p, cutter *c)
{
    const int last = p->shape.keep == TESS_KEEP_ALL ? SET_SLOTS : SET_X0 + 1;
    cut_conditioning(p, c);
    if (!p->shape.train)
        return;
    p->kept = cut(c, (size_t)p->z.layers * sizeof *p->kept);
    for (int layer = 0; layer < p->z.layers; layer++)
        for (int slot = 0; slot < last; slot++) {
            void *piece = cut_slot(c, p, slot);
            if (c->memory)
                p->kept[layer].at[slot] = piece;
        }
    if (p->z.sparse)
        cut_lists(p, c);
}

/* The set that blocks work in: of those that are not kept in F32 as they are. */
static void cut_work_set(tess_pass *p, cutter *c)
{
    const int kept_f32 = p->shape.train && p->shape.store == TESS_DTYPE_F32;
    const int all = p->shape.train && p->shape.keep == TESS_KEEP_ALL;
    float **at = p->work.at;
    if (kept_f32 && all)
        return;
    if (!kept_f32)
        at[SET_X0] = cut_floats(c, p->z.slot[SET_X0]);
    at[SET_X1] = cut_floats(c, p->z.slot[SET_X1]);
    at[SET_X2] = cut_floats(c, p->z.slot[SET_X2]);
    at[SET_QKV] = cut_floats(c, p->z.slot[SET_QKV]);
    at[SET_KV2] = cut_floats(c, p->z.slot[SET_KV2]);
    if (!p->shape.train) { /* each is read before the other is written */
        at[SET_O1] = at[SET_O2] = p->n;
        at[SET_Q2] = at[SET_QKV];
        p->last = at[SET_X0];
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
        z->rows * z->patch_in,
        z->rows * z->patch_out,
        train && p->room.learn_rows ? 3 * z->rows * z->dim + 2 * z->rows * z->heads * p->room.rank
                                    : 0,
    };
    return largest(steps, sizeof steps / sizeof *steps);
}

static void cut_turns(const tess_pass *p, cutter *c, int dim, float *turn[3])
{
    int dims[3];
    tess__turn_dims(dim, dims);
    for (int i = 0; i < 3; i++)
        turn[i] = cut_floats(c, (int64_t)p->z.grid[i] * 2 * dims[i]);
}

static void cut_attending(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t heads = (int64_t)z->batch * z->heads;
    p->layers = cut(c, (size_t)z->layers * sizeof *p->layers);
    p->density = cut(c, (size_t)(z->layers * heads) * sizeof *p->density);
    p->losses = cut(c, (size_t)(z->layers * heads) * sizeof *p->losses);
    if (!z->sparse)
        return;
    p->keys = cut(c, (size_t)(z->layers * heads) * sizeof *p->keys);
    p->bounds = cut(c, ((size_t)z->n_q + 1) * sizeof *p->bounds);
    if (p->shape.train && p->shape.keep == TESS_KEEP_BLOCKS && p->kept_lists < z->layers)
        p->bits_again = cut(c, (size_t)(heads * z->head_bits));
    if (p->room.rank > 0) {
        p->low = cut_floats(c, 2 * z->rows * z->heads * p->room.rank);
        cut_turns(p, c, p->room.rank, p->turn_low);
        p->learn_rows = cut(c, (size_t)p->room.learn_rows * sizeof *p->learn_rows);
        p->dq_low = cut_floats(c, heads * p->room.learn_rows * p->room.rank);
    }
}

static void cut_workspace(tess_pass *p, cutter *c)
{
    const tess__sizes *z = &p->z;
    const int64_t n = z->batch * z->dim, wide = z->rows * z->dim;
    if (p->shape.cube)
        p->perm = cut(c, (size_t)z->tokens * sizeof *p->perm);
    cut_turns(p, c, z->head_dim, p->turn);
    cut_attending(p, c);
    p->mod = cut_floats(c, MOD_ALL * n);
    p->n = cut_floats(c, wide);
    p->big = cut_floats(c, big_size(p));
    cut_work_set(p, c);
    if (!p->shape.train)
        return;
    p->dmod = cut_floats(c, MOD_ALL * n);
    p->dsix = cut_floats(c, 6 * n);
    p->dtemb = cut_floats(c, n);
    p->dcontext = cut_floats(c, z->text_rows * z->dim);
    p->g = cut_floats(c, wide);
    p->t = cut_floats(c, wide);
    p->m = cut_floats(c, z->dim * (z->ffn > z->dim ? z->ffn : z->dim));
    p->partial = cut_floats(c, z->parts * 3 * z->dim);
    p->sums = cut_floats(c, z->dim);
}

size_t tess__pass_layout(tess_pass *pass, void *memory, size_t *kept)
{
    cutter c = {.memory = memory};
    cut_kept(pass, &c);
    *kept = c.used;
    cut_workspace(pass, &c);
    return c.used;
}

/* ---- prediction ------------------------------------------------------------------------------ */

tess_attn_shape tess__pass_attention(const tess__sizes *z, int64_t keys)
{
    return (tess_attn_shape){.batch = z->batch,
                             .heads = z->heads,
                             .head_dim = z->head_dim,
                             .tokens_q = z->tokens,
                             .tokens_k = keys};
}

tess_attn_shape tess__pass_one(const tess_pass *p)
{
    return (tess_attn_shape){.batch = 1,
                             .heads = 1,
                             .head_dim = p->z.head_dim,
                             .tokens_q = p->z.tokens,
                             .tokens_k = p->z.tokens,
                             .compensate = p->room.compensate};
}

tess_sel_shape tess__pass_lists(const tess_pass *p)
{
    const tess__sizes *z = &p->z;
    return (tess_sel_shape){.batch = 1,
                            .heads = 1,
                            .tokens_q = z->tokens,
                            .tokens_k = z->tokens,
                            .unit = 1,
                            .bounds_q = p->bounds,
                            .n_q = z->n_q,
                            .bounds_k = p->room.unit_cubes ? p->bounds : NULL,
                            .n_k = z->n_k};
}

tess_predict_shape tess__pass_predict(const tess_pass *p)
{
    return (tess_predict_shape){.batch = p->z.batch,
                                .heads = p->z.heads,
                                .head_dim = p->z.head_dim,
                                .rank = p->room.rank,
                                .tokens = p->z.tokens,
                                .rows = p->room.learn_rows ? p->room.learn_rows : 1};
}

/* What attention of one head comes to hold for its virtual keys, a pair of rows for each tile. */
static size_t virtual_bytes(const tess_pass *p)
{
    const int64_t volume = (int64_t)p->z.cube[0] * p->z.cube[1] * p->z.cube[2];
    const int64_t tiles = p->z.n_q * ((volume + TESS_TILE - 1) / TESS_TILE) + 1;
    const size_t bytes = (size_t)(tiles * 2 * p->z.head_dim) * sizeof(float);
    return p->room.compensate && p->shape.train ? tess__arena_round(bytes) + TESS_ALLOC_OVERHEAD
                                                : 0;
}

/* Of the objects that sparse attention stands on, at most. */
static size_t sparse_bytes(const tess_pass *p, int threads)
{
    if (!p->z.sparse)
        return 0;
    const tess_attn_shape one = tess__pass_one(p);
    const tess_sel_shape lists = tess__pass_lists(p);
    const tess_predict_shape predict = tess__pass_predict(p);
    const int64_t capacity = (int64_t)p->z.n_q * p->z.units_most;
    const int dim = p->room.rank > p->z.head_dim ? p->room.rank : p->z.head_dim;
    return tess__attn_bytes(&one, threads) + virtual_bytes(p) +
           (p->room.rank ? tess__predict_bytes(&predict, threads) : 0) +
           tess__selection_bytes(p->z.n_q, p->z.n_k, p->z.n_q, capacity) +
           tess__selector_bytes(&lists, dim, capacity, threads);
}

tess_status tess_model_need(const tess_model_config *config, const tess_model_opts *opts,
                            const tess_pass_shape *shape, int threads, tess_model_memory *memory)
{
    static const char who[] = "tess_model_need";
    if (!config || !shape || !memory)
        return tess__fail(TESS_EINVAL, "%s: %s is NULL", who,
                          !config  ? "config"
                          : !shape ? "shape"
                                   : "memory");
    if (threads < 1 || threads > 1024)
        return tess__fail(TESS_EINVAL, "%s: threads is %d, must be 1..1024", who, threads);
    TESS_TRY(tess_model_config_check(config));
    tess_pass pass = {.shape = *shape};
    if (shape->sparse)
        pass.room = *shape->sparse;
    tess__params params;
    size_t kept;
    TESS_TRY(tess__pass_sizes(who, config, shape, &pass.z));
    tess__params_make(config, &params);
    const size_t all = tess__pass_layout(&pass, NULL, &kept);
    const tess_attn_shape self = tess__pass_attention(&pass.z, pass.z.tokens);
    const tess_attn_shape cross = tess__pass_attention(&pass.z, pass.z.text);
    tess_model_memory m = {
        .weights = (int64_t)tess__model_bytes(&params),
        .gradients = opts && opts->gradients ? (int64_t)tess__model_buffer_bytes(&params) : 0,
        .activations = (int64_t)kept,
        .workspace = (int64_t)(all - kept + tess__arena_round(sizeof pass) + TESS_ALLOC_OVERHEAD +
                               tess__attn_bytes(&self, threads) +
                               tess__attn_bytes(&cross, threads) + sparse_bytes(&pass, threads)),
    };
    m.total = m.weights + m.gradients + m.activations + m.workspace;
    *memory = m;
    return TESS_OK;
}
