/* SPDX-License-Identifier: Apache-2.0 */
/* params.c - which parameters a configuration has: names, shapes, places, first values.
 *
 * Shapes are written in the table as letters, one for each dimension:
 *
 *   1 2 6   themselves            d  dim               f  ffn_dim           s  6 dim
 *   i  in_channels                t  text_dim          q  freq_dim          o  out_channels * patch
 *   F Y X  frames, rows and columns of the patch
 *
 * The names are those of diffusers' WanTransformer3DModel.
 */
#include "model_internal.h"

#include <string.h>

typedef struct {
    const char *name, *shape;
    tess_param_kind kind;
    tess__init init;
} row;

#define EMBEDDING TESS_PARAM_EMBEDDING
#define MATRIX TESS_PARAM_MATRIX
#define VECTOR TESS_PARAM_VECTOR

static const row outer_rows[P_OUTER] = {
    [P_PATCH_W] = {"patch_embedding.weight", "diFYX", EMBEDDING, TESS__INIT_XAVIER},
    [P_PATCH_B] = {"patch_embedding.bias", "d", VECTOR, TESS__INIT_ZERO},
    [P_TIME1_W] = {"condition_embedder.time_embedder.linear_1.weight", "dq", EMBEDDING,
                   TESS__INIT_SMALL},
    [P_TIME1_B] = {"condition_embedder.time_embedder.linear_1.bias", "d", VECTOR, TESS__INIT_ZERO},
    [P_TIME2_W] = {"condition_embedder.time_embedder.linear_2.weight", "dd", EMBEDDING,
                   TESS__INIT_SMALL},
    [P_TIME2_B] = {"condition_embedder.time_embedder.linear_2.bias", "d", VECTOR, TESS__INIT_ZERO},
    [P_PROJ_W] = {"condition_embedder.time_proj.weight", "sd", EMBEDDING, TESS__INIT_XAVIER},
    [P_PROJ_B] = {"condition_embedder.time_proj.bias", "s", VECTOR, TESS__INIT_ZERO},
    [P_TEXT1_W] = {"condition_embedder.text_embedder.linear_1.weight", "dt", EMBEDDING,
                   TESS__INIT_SMALL},
    [P_TEXT1_B] = {"condition_embedder.text_embedder.linear_1.bias", "d", VECTOR, TESS__INIT_ZERO},
    [P_TEXT2_W] = {"condition_embedder.text_embedder.linear_2.weight", "dd", EMBEDDING,
                   TESS__INIT_SMALL},
    [P_TEXT2_B] = {"condition_embedder.text_embedder.linear_2.bias", "d", VECTOR, TESS__INIT_ZERO},
    [P_TABLE] = {"scale_shift_table", "12d", VECTOR, TESS__INIT_TABLE},
    [P_OUT_W] = {"proj_out.weight", "od", EMBEDDING, TESS__INIT_ZERO},
    [P_OUT_B] = {"proj_out.bias", "o", VECTOR, TESS__INIT_ZERO},
};

static const row block_rows[B_BLOCK] = {
    [B_TABLE] = {"scale_shift_table", "16d", VECTOR, TESS__INIT_TABLE},
    [B_Q1_W] = {"attn1.to_q.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_K1_W] = {"attn1.to_k.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_V1_W] = {"attn1.to_v.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_Q1_B] = {"attn1.to_q.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_K1_B] = {"attn1.to_k.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_V1_B] = {"attn1.to_v.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_NORM_Q1] = {"attn1.norm_q.weight", "d", VECTOR, TESS__INIT_ONE},
    [B_NORM_K1] = {"attn1.norm_k.weight", "d", VECTOR, TESS__INIT_ONE},
    [B_O1_W] = {"attn1.to_out.0.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_O1_B] = {"attn1.to_out.0.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_Q2_W] = {"attn2.to_q.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_Q2_B] = {"attn2.to_q.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_K2_W] = {"attn2.to_k.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_V2_W] = {"attn2.to_v.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_K2_B] = {"attn2.to_k.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_V2_B] = {"attn2.to_v.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_NORM_Q2] = {"attn2.norm_q.weight", "d", VECTOR, TESS__INIT_ONE},
    [B_NORM_K2] = {"attn2.norm_k.weight", "d", VECTOR, TESS__INIT_ONE},
    [B_O2_W] = {"attn2.to_out.0.weight", "dd", MATRIX, TESS__INIT_XAVIER},
    [B_O2_B] = {"attn2.to_out.0.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_NORM2_W] = {"norm2.weight", "d", VECTOR, TESS__INIT_ONE},
    [B_NORM2_B] = {"norm2.bias", "d", VECTOR, TESS__INIT_ZERO},
    [B_FFN1_W] = {"ffn.net.0.proj.weight", "fd", MATRIX, TESS__INIT_XAVIER},
    [B_FFN1_B] = {"ffn.net.0.proj.bias", "f", VECTOR, TESS__INIT_ZERO},
    [B_FFN2_W] = {"ffn.net.2.weight", "df", MATRIX, TESS__INIT_XAVIER},
    [B_FFN2_B] = {"ffn.net.2.bias", "d", VECTOR, TESS__INIT_ZERO},
};

static int64_t side_of(const tess_model_config *c, char letter)
{
    const int64_t dim = (int64_t)c->heads * c->head_dim;
    switch (letter) {
    case 'd': return dim;
    case 's': return 6 * dim;
    case 'f': return c->ffn_dim;
    case 'i': return c->in_channels;
    case 't': return c->text_dim;
    case 'q': return c->freq_dim;
    case 'o': return (int64_t)c->out_channels * c->patch[0] * c->patch[1] * c->patch[2];
    case 'F': return c->patch[0];
    case 'Y': return c->patch[1];
    case 'X': return c->patch[2];
    default: return letter - '0';
    }
}

static int is_absent(const tess_model_config *c, tess__block_param id)
{
    switch (id) {
    case B_NORM_Q1:
    case B_NORM_K1:
    case B_NORM_Q2:
    case B_NORM_K2: return !c->qk_norm;
    case B_NORM2_W:
    case B_NORM2_B: return !c->cross_attn_norm;
    default: return 0;
    }
}

/* Places the parameter at *offset and *index, and moves both behind it. */
static tess__param place(const tess_model_config *c, const row *r, int64_t *offset, int *index)
{
    tess__param p = {.name = r->name,
                     .kind = r->kind,
                     .init = r->init,
                     .rank = (int)strlen(r->shape),
                     .count = 1,
                     .offset = *offset,
                     .index = *index};
    for (int i = 0; i < p.rank; i++)
        p.count *= p.shape[i] = side_of(c, r->shape[i]);
    *offset += p.count;
    (*index)++;
    return p;
}

void tess__params_make(const tess_model_config *config, tess__params *params)
{
    *params = (tess__params){0};
    for (int id = 0; id < P_TABLE; id++)
        params->outer[id] = place(config, &outer_rows[id], &params->count, &params->params);
    params->block_begin = params->count;
    params->block_index = params->params;
    for (int id = 0; id < B_BLOCK; id++)
        if (!is_absent(config, (tess__block_param)id))
            params->block[id] =
                place(config, &block_rows[id], &params->block_count, &params->block_params);
    params->count += config->layers * params->block_count;
    params->params += config->layers * params->block_params;
    for (int id = P_TABLE; id < P_OUTER; id++)
        params->outer[id] = place(config, &outer_rows[id], &params->count, &params->params);
}

static const tess__param *find(const tess__param *table, int n, int index)
{
    for (int i = 0; i < n; i++)
        if (table[i].rank > 0 && table[i].index == index)
            return &table[i];
    return NULL;
}

const tess__param *tess__params_at(const tess__params *params, int index, int *layer)
{
    const int inside = index - params->block_index;
    const int last = params->outer[P_TABLE].index;
    *layer = -1;
    if (inside < 0 || index >= last)
        return find(params->outer, P_OUTER, index);
    *layer = inside / params->block_params;
    return find(params->block, B_BLOCK, inside % params->block_params);
}
