/* SPDX-License-Identifier: Apache-2.0 */
/* config_read.c - reads config.json in the words of diffusers or of the original repository.
 *
 * Which words a file uses is read off it: "dim" and "num_heads" are the original's. The sizes of
 * the transformer must be there; what is absent otherwise has the default of both sides' classes.
 * A key that is not known here may change the computation and is an error, unless it is null: that
 * is how diffusers writes an option that is off. Keys that begin with an underscore are notes; two
 * are ours and hold what one side's words cannot say: "_text_len" and "_rope_max_seq_len".
 */
#include "config.h"
#include "file/json.h"
#include "tessera/advanced/nearest.h"

#include <stddef.h>
#include <string.h>

/* Keys besides those of the table. */
static const char *const more_keys[2][10] = {
    {"patch_size", "cross_attn_norm", "qk_norm", "eps", "image_dim", "added_kv_proj_dim",
     "pos_embed_seq_len"},
    {"patch_size", "cross_attn_norm", "qk_norm", "eps", "dim", "model_type", "window_size"},
};
enum { KEYS_MAX = 24 };

/* The keys a file of these words may have; returns how many. */
static int list_keys(tess_weight_names names, const char *keys[KEYS_MAX])
{
    int n = 0;
    for (int i = 0; i < tess__config_field_count; i++)
        if (tess__config_fields[i].key[names])
            keys[n++] = tess__config_fields[i].key[names];
    for (int i = 0; more_keys[names][i]; i++)
        keys[n++] = more_keys[names][i];
    return n;
}

static tess_status check_keys(const tess__json_node *root, tess_weight_names names)
{
    const char *keys[KEYS_MAX], *key;
    const int n = list_keys(names, keys);
    json_t *value;
    json_object_foreach(root->value, key, value)
    {
        int known = key[0] == '_' || json_is_null(value);
        for (int i = 0; i < n && !known; i++)
            known = strcmp(key, keys[i]) == 0;
        if (!known) {
            const char *near = tess_nearest(key, keys, n);
            return tess__json_fail(tess__json_member(root, key), "unknown key \"%.60s\"%s%s%s", key,
                                   near ? "; did you mean \"" : "", near ? near : "",
                                   near ? "\"?" : "");
        }
    }
    return TESS_OK;
}

/* The class and the sort of model, where a file names them: others compute something else, so none
 * of them is a slip of the pen to be guessed. */
static tess_status check_sort(const tess__json_node *root)
{
    static const char *const of_images[] = {"image_dim", "added_kv_proj_dim"};
    const tess__json_node class_name = tess__json_optional(root, "_class_name");
    const tess__json_node type = tess__json_optional(root, "model_type");
    const char *text = "WanModel";
    TESS_TRY(tess__json_string(class_name, &text));
    if (strcmp(text, "WanModel") != 0 && strcmp(text, "WanTransformer3DModel") != 0)
        return tess__json_fail(class_name,
                               "the model is a \"%.60s\", must be a WanTransformer3DModel or a "
                               "WanModel",
                               text);
    text = "t2v";
    TESS_TRY(tess__json_string(type, &text));
    if (strcmp(text, "t2v") != 0)
        return tess__json_fail(type, "\"model_type\" is \"%.60s\", must be \"t2v\"", text);
    for (int i = 0; i < 2; i++) {
        const tess__json_node node = tess__json_member(root, of_images[i]);
        if (node.value && !json_is_null(node.value))
            return tess__json_fail(
                node, "\"%s\" must be null: models that take an image are not read", of_images[i]);
    }
    return TESS_OK;
}

/* Attention over a window of tokens: only -1, no window, is computed here. */
static tess_status check_window(const tess__json_node *root)
{
    tess__json_node window;
    size_t n;
    int side;
    TESS_TRY(tess__json_array(tess__json_optional(root, "window_size"), 2, 2, &window, &n));
    for (size_t i = 0; i < n; i++)
        TESS_TRY(tess__json_int(tess__json_element(&window, i), -1, -1, &side));
    return TESS_OK;
}

static tess_status read_field(const tess__json_node *root, const tess__config_field *f,
                              const char *key, int *value)
{
    tess__json_node node = tess__json_member(root, key);
    node.optional = f->otherwise != 0;
    *value = f->otherwise;
    TESS_TRY(tess__json_int(node, f->min, f->max, value));
    if (*value % f->step != 0)
        return tess__json_fail(node, "\"%s\" is %d, must be %s", key, *value,
                               f->step == 2 ? "even" : "a multiple of 8");
    return TESS_OK;
}

/* The original says how wide all heads are together. */
static tess_status read_dim(const tess__json_node *root, tess_model_config *c)
{
    int dim;
    const tess__json_node node = tess__json_member(root, "dim");
    TESS_TRY(tess__json_int(node, 8, TESS_CONFIG_DIM_MAX, &dim));
    c->head_dim = dim / c->heads;
    if (dim % c->heads != 0 || c->head_dim % 8 != 0 || c->head_dim < 8 || c->head_dim > 256)
        return tess__json_fail(node,
                               "\"dim\" is %d for %d heads, must give each a multiple of 8, 8..256",
                               dim, c->heads);
    return TESS_OK;
}

static tess_status check_dim(const tess__json_node *root, const tess_model_config *c)
{
    if (c->heads * c->head_dim > TESS_CONFIG_DIM_MAX)
        return tess__json_fail(tess__json_member(root, "num_attention_heads"),
                               "\"num_attention_heads\" is %d for heads of %d, must give at most "
                               "%d together",
                               c->heads, c->head_dim, TESS_CONFIG_DIM_MAX);
    return TESS_OK;
}

static tess_status read_patch(const tess__json_node *root, int patch[3])
{
    tess__json_node array;
    size_t n;
    TESS_TRY(tess__json_array(tess__json_optional(root, "patch_size"), 3, 3, &array, &n));
    for (size_t i = 0; i < n; i++)
        TESS_TRY(
            tess__json_int(tess__json_element(&array, i), 1, TESS_CONFIG_PATCH_MAX, &patch[i]));
    return TESS_OK;
}

/* diffusers names the kind of norm or has null, the original true or false. diffusers' models have
 * the same norms whatever it says, so a word that is not its default is no error. */
static tess_status read_qk_norm(tess_ctx *ctx, const char *name, tess_weight_names names,
                                const tess__json_node *root, int *norm)
{
    static const char *const kinds[] = {"rms_norm_across_heads"};
    const tess__json_node node = tess__json_optional(root, "qk_norm");
    int kind;
    *norm = 1;
    if (!node.value)
        return TESS_OK;
    if (json_is_null(node.value)) {
        *norm = 0;
        return TESS_OK;
    }
    if (json_is_boolean(node.value))
        return tess__json_bool(node, norm);
    if (names == TESS_WEIGHTS_ORIGINAL || !json_is_string(node.value))
        return tess__json_enum(node, kinds, 1, &kind);
    if (strcmp(json_string_value(node.value), kinds[0]) != 0)
        tess__log(ctx, TESS_LOG_WARN,
                  "%s: \"qk_norm\" is \"%.60s\", which diffusers does not read: taken as %s", name,
                  json_string_value(node.value), kinds[0]);
    return TESS_OK;
}

static tess_status read_eps(const tess__json_node *root, double *eps)
{
    const tess__json_node node = tess__json_optional(root, "eps");
    TESS_TRY(tess__json_double(node, 0.0, 1.0, eps));
    return *eps > 0.0 ? TESS_OK : tess__json_fail(node, "\"eps\" is 0, must be above 0");
}

static tess_status read_config(tess_ctx *ctx, const char *name, const tess__json *doc,
                               tess_model_config *config)
{
    tess_model_config c = {.patch = {1, 2, 2}, .cross_attn_norm = 1, .eps = 1e-6};
    const tess__json_node at = tess__json_root(doc);
    tess__json_node root;
    TESS_TRY(tess__json_object(at, NULL, 0, &root));
    TESS_TRY(check_sort(&root));
    const tess_weight_names names =
        json_object_get(root.value, "dim") || json_object_get(root.value, "num_heads")
            ? TESS_WEIGHTS_ORIGINAL
            : TESS_WEIGHTS_DIFFUSERS;
    TESS_TRY(check_keys(&root, names));
    for (int i = 0; i < tess__config_field_count; i++) {
        const tess__config_field *f = &tess__config_fields[i];
        const char *key = f->key[names];
        /* null is diffusers' word for as many as come in. */
        if (f->offset == offsetof(tess_model_config, out_channels) &&
            json_is_null(json_object_get(root.value, key)))
            c.out_channels = c.in_channels;
        else if (key)
            TESS_TRY(read_field(&root, f, key, tess__config_at(&c, f)));
    }
    if (names == TESS_WEIGHTS_ORIGINAL)
        TESS_TRY(read_dim(&root, &c));
    else
        TESS_TRY(check_dim(&root, &c));
    TESS_TRY(read_patch(&root, c.patch));
    TESS_TRY(read_qk_norm(ctx, name, names, &root, &c.qk_norm));
    TESS_TRY(check_window(&root));
    TESS_TRY(tess__json_bool(tess__json_optional(&root, "cross_attn_norm"), &c.cross_attn_norm));
    TESS_TRY(read_eps(&root, &c.eps));
    *config = c;
    return TESS_OK;
}

tess_status tess__config_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_model_config *config)
{
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_config(ctx, name, &doc, config);
    tess__json_close(&doc);
    return status;
}

tess_status tess_model_config_read(tess_ctx *ctx, const char *path, tess_model_config *config)
{
    char file[PATH_MAX];
    TESS_REQUIRE(ctx, path, config);
    TESS_TRY(tess__config_find(path, file));
    return tess__config_parse(ctx, file, NULL, 0, config);
}
