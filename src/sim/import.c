/* SPDX-License-Identifier: Apache-2.0 */
/* import.c - models from the config.json that is published with their weights.
 *
 * Two tables: what the members of such files are called here, and what the class of a model says
 * that its members do not (which matrices, which attention). Members that no table names do not
 * concern cost. Counts that follow from others (hidden = heads x head_dim) are made at the end.
 */
#include "fields.h"

#include <string.h>

typedef struct {
    const char *member, *field;
} member;

static const member members[] = {
    {"num_hidden_layers", "layers"},
    {"num_layers", "layers"},
    {"n_layer", "layers"},
    {"n_layers", "layers"},
    {"hidden_size", "hidden"},
    {"n_embd", "hidden"},
    {"d_model", "hidden"},
    {"num_attention_heads", "heads"},
    {"n_head", "heads"},
    {"n_heads", "heads"},
    {"num_key_value_heads", "kv_heads"},
    {"head_dim", "head_dim"},
    {"attention_head_dim", "head_dim"},
    {"intermediate_size", "ffn"},
    {"ffn_dim", "ffn"},
    {"n_inner", "ffn"},
    {"vocab_size", "vocab"},
    {"tie_word_embeddings", "tied"},
    {"num_local_experts", "experts"},
    {"n_routed_experts", "experts"},
    {"num_experts", "experts"},
    {"num_experts_per_tok", "top_k"},
    {"moe_intermediate_size", "expert_ffn"},
    {"first_k_dense_replace", "dense_layers"},
    {"q_lora_rank", "q_rank"},
    {"kv_lora_rank", "kv_rank"},
    {"qk_rope_head_dim", "rope_dim"},
    {"qk_nope_head_dim", "nope_dim"},
    {"v_head_dim", "value_dim"},
    {"num_nextn_predict_layers", "predict_layers"},
    {"max_text_seq_length", "text"},
    {"time_embed_dim", "modulation"},
};

typedef struct {
    const char *pattern; /* of "_class_name" or "model_type" */
    int dit, gated, cross, learned;
    int text;
    int streams; /* 1: "num_layers" are those of two streams, "num_single_layers" of one */
} family;

/* The first that fits; the last fits all. */
static const family families[] = {
    {"WanTransformer", 1, 0, 1, 0, 512, 0},
    {"HunyuanVideo", 1, 0, 0, 0, 256, 1},
    {"FluxTransformer", 1, 0, 0, 0, 512, 1},
    {"CogVideoX", 1, 0, 0, 0, 226, 0},
    {"Transformer3D", 1, 0, 1, 0, 256, 0},
    {"gpt2", 0, 0, 0, 1, 0, 0},
    {"gpt_neox", 0, 0, 0, 0, 0, 0},
    {"opt", 0, 0, 0, 1, 0, 0},
    {"bloom", 0, 0, 0, 0, 0, 0},
    {"nemotron", 0, 0, 0, 0, 0, 0},
    {"mpt", 0, 0, 0, 1, 0, 0},
    {"", 0, 1, 0, 0, 0, 0},
};

static const family *find_family(const char *name)
{
    const family *f = families;
    while (!strstr(name, f->pattern))
        f++;
    return f;
}

/* Text of "_class_name", else "model_type", else "". */
static const char *class_of(const json_t *root)
{
    const char *name = json_string_value(json_object_get(root, "_class_name"));
    if (!name)
        name = json_string_value(json_object_get(root, "model_type"));
    return name ? name : "";
}

static tess_status read_int(const tess__json_node *root, const char *key, int64_t *value)
{
    const tess__json_node node = tess__json_optional(root, key);
    if (!node.value || json_is_null(node.value))
        return TESS_OK;
    return tess__json_int64(node, 0, 1000000000, value);
}

static tess_status read_members(const tess__json_node *root, tess_scenario *scenario)
{
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const tess__field *field = tess__field_find("model", members[i].field);
        const tess__json_node node = tess__json_optional(root, members[i].member);
        int64_t value = 0;
        int on = 0;
        char text[32];
        if (!node.value || json_is_null(node.value) || !tess__field_unset(scenario, field))
            continue;
        if (field->type == TESS__FIELD_FLAG) {
            TESS_TRY(tess__json_bool(node, &on));
            value = on;
        } else {
            TESS_TRY(tess__json_int64(node, 0, 1000000000, &value));
        }
        snprintf(text, sizeof text, "%lld", (long long)value);
        if (value != 0)
            TESS_TRY(tess__field_set(scenario, field, text));
    }
    return TESS_OK;
}

/* [t, s, s], or s with "patch_size_t" beside it. */
static tess_status read_patch(const tess__json_node *root, tess_sim_model *m)
{
    const tess__json_node node = tess__json_optional(root, "patch_size");
    int64_t t = 1, s = 2;
    if (json_is_array(node.value)) {
        tess__json_node array;
        size_t n;
        TESS_TRY(tess__json_array(node, 3, 3, &array, &n));
        TESS_TRY(tess__json_int64(tess__json_element(&array, 0), 1, 64, &t));
        TESS_TRY(tess__json_int64(tess__json_element(&array, 1), 1, 64, &s));
    } else {
        TESS_TRY(read_int(root, "patch_size", &s));
        TESS_TRY(read_int(root, "patch_size_t", &t));
    }
    m->patch_t = (int)t;
    m->patch_s = (int)s;
    return TESS_OK;
}

static tess_status derive(const tess__json_node *root, const family *f, tess_sim_model *m)
{
    int64_t more = 0, shared = 0;
    TESS_TRY(read_int(root, "num_single_layers", &more));
    TESS_TRY(read_int(root, "n_shared_experts", &shared));
    TESS_TRY(read_int(root, "shared_expert_intermediate_size", &m->shared_ffn));
    if (f->dit)
        TESS_TRY(read_patch(root, m));
    if (f->streams) {
        m->double_layers = m->layers;
        m->parallel = 1;
    }
    m->kind = f->dit ? TESS_SIM_DIT : TESS_SIM_DECODER;
    m->layers += (int)more;
    m->gated = f->gated;
    m->cross = f->cross;
    m->learned_positions = f->learned;
    if (!m->text)
        m->text = f->text;
    if (!m->hidden)
        m->hidden = m->heads * m->head_dim;
    if (f->streams)
        m->modulation = m->hidden;
    if (f->streams && m->patch_s == 1) /* channels of 2 x 2 latent pixels are packed before */
        m->patch_s = 2;
    if (m->experts && !m->expert_ffn)
        m->expert_ffn = m->ffn;
    if (shared && !m->shared_ffn)
        m->shared_ffn = shared * m->expert_ffn;
    if (m->kv_rank)
        m->head_dim = m->kv_heads = 0;
    if (m->layers < 1 || m->hidden < 1 || m->heads < 1)
        return tess__json_fail(*root, "no layers, width or heads of a transformer are here");
    return TESS_OK;
}

tess_status tess__model_import(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_scenario *scenario)
{
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    tess_scenario made = *scenario;
    made.model = (tess_sim_model){.seq = scenario->model.seq};
    const tess__json_node top = tess__json_root(&doc);
    tess__json_node root;
    tess_status status = tess__json_object(top, NULL, 0, &root);
    if (status == TESS_OK)
        status = read_members(&root, &made);
    if (status == TESS_OK)
        status = derive(&root, find_family(class_of(root.value)), &made.model);
    tess__json_close(&doc);
    if (status == TESS_OK)
        *scenario = made;
    return status;
}
