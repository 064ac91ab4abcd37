/* SPDX-License-Identifier: Apache-2.0 */
/* pass_sizes.c - whether a pass can have a shape, and the sizes that follow from it. */
#include "ranks.h"

#include <math.h>

static tess_status check_choices(const char *who, const tess_pass_shape *s)
{
    TESS_TRY(tess__check_range(who, "batch", s->batch, 1, 65536));
    if (s->text_len < 0 || s->text_len > 65536)
        return tess__invalid(who, "text_len is %d, must be 1..65536, or 0 for the configuration's",
                             s->text_len);
    TESS_TRY(tess__check_flag(who, "train", s->train));
    if (s->keep != TESS_KEEP_ALL && s->keep != TESS_KEEP_BLOCKS)
        return tess__invalid(who, "keep is %d, must be ALL (0) or BLOCKS (1)", (int)s->keep);
    if (s->store != TESS_DTYPE_F32 && s->store != TESS_DTYPE_BF16)
        return tess__invalid(who, "store is %s, must be F32 or BF16", tess_dtype_name(s->store));
    TESS_TRY(tess__check_enum(who, "precision", (int)s->precision, 2, "tess_precision"));
    return s->cube ? tess__check_each(who, "cube", s->cube, 3, 1) : TESS_OK;
}

static tess_status check_sparse(const char *who, const tess_pass_shape *s, int64_t tokens)
{
    const tess_sparse_opts *o = s->sparse;
    const struct {
        const char *name;
        int64_t value, most;
    } rules[] = {
        {"sparse.unit_cubes", o->unit_cubes, 1},
        {"sparse.compensate", o->compensate, TESS_CLUSTERS_MAX},
        {"sparse.dense", o->dense, 1},
        {"sparse.learn_rows", o->learn_rows, tokens < 512 ? tokens : 512},
        {"sparse.index_memory", o->index_memory, INT64_MAX / 2},
        {"sparse.searches", o->searches, s->train ? 0 : 16},
    };
    if (!s->cube)
        return tess__invalid(who, "cube is NULL, must be given with sparse");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        TESS_TRY(tess__check_range(who, rules[i].name, rules[i].value, 0, rules[i].most));
    if (o->proj_dim < 0 || o->proj_dim > 64 || o->proj_dim % 8 != 0)
        return tess__invalid(who, "sparse.proj_dim is %d, must be 0 or a multiple of 8 up to 64",
                             o->proj_dim);
    if (o->learn_rows > 0 && o->proj_dim == 0)
        return tess__invalid(who, "sparse.proj_dim is 0, must be given with learn_rows");
    TESS_TRY(tess__check_range(who, "sparse.group", (int)o->group, 0, TESS_GROUP_RANDOM));
    if (o->group != TESS_GROUP_CUBE && o->searches)
        return tess__invalid(who, "sparse.group is %d, must be CUBE (0) with searches",
                             (int)o->group);
    return tess__check_number(who, "sparse.max_density", o->max_density, 0, 1);
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
    if (s->sparse->dense)
        return;
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
            return tess__invalid(who, "%s is %d, must be a multiple of %d, the patch's",
                                 sides[i].name, sides[i].side, patch);
        grid[i] = sides[i].side / patch;
        if (grid[i] > c->rope_max)
            return tess__invalid(who, "%s is %d tokens, must be at most rope_max, which is %d",
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
        .half = shape->precision == TESS_PRECISION_BF16,
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
        return tess__invalid(who, "the batch has %.0f %s, must have at most %d",
                             rows > ROWS_MAX ? rows : text_rows,
                             rows > ROWS_MAX ? "tokens" : "vectors of text", ROWS_MAX);
    z.tokens = (int64_t)z.grid[0] * z.grid[1] * z.grid[2];
    z.local = z.tokens;
    if (shape->sparse) {
        TESS_TRY(check_sparse(who, shape, z.tokens));
        size_lists(shape, &z);
    }
    TESS_TRY(tess__check_flag(who, "exact", shape->exact));
    z.exact = shape->exact;
    if (z.exact && z.half)
        return tess__invalid(who, "precision is BF16, must be FP32 with exact");
    if (shape->context)
        TESS_TRY(tess__ranks_fit(who, shape, &z));
    tess__exact_cuts(&z);
    z.rows = z.batch * z.local;
    z.text_rows = z.batch * z.text;
    z.chunk = z.local < TESS__FFN_ROWS ? z.local : TESS__FFN_ROWS;
    const int64_t blocks = (z.text + TESS__BLOCK_ROWS - 1) / TESS__BLOCK_ROWS;
    z.parts = z.batch * TESS_MAX(z.cut_block[z.cuts], blocks);
    z.row_room = (z.dim + 15) / 16 * 32;
    set_slots(&z);
    if (shape->context)
        z.slot[SET_LSE1] = 0; /* the executor keeps them */
    *sizes = z;
    return TESS_OK;
}
