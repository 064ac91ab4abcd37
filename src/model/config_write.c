/* SPDX-License-Identifier: Apache-2.0 */
/* config_write.c - writes config.json, byte for byte as diffusers' save_pretrained does.
 *
 * The other form, that of the original repository, goes with weights under its names.
 */
#include "config.h"

#include <sys/stat.h>

enum { TEXT_BYTES = 2048, NUMBER_BYTES = 32 };

/* The fewest digits that give back the same number, as Python writes it. */
static const char *shortest(double x, char out[NUMBER_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) {
        double back;
        snprintf(out, NUMBER_BYTES, "%.*g", digits, x);
        if (sscanf(out, "%lf", &back) == 1 && back == x)
            break;
    }
    return out;
}

/* A line for what only we know, "" when it has the value that everyone else assumes. */
static const char *own_line(const char *key, int value, int usual, char out[64])
{
    out[0] = '\0';
    if (value != usual)
        snprintf(out, 64, "  \"%s\": %d,\n", key, value);
    return out;
}

static int print_diffusers(const tess_model_config *c, char text[TEXT_BYTES])
{
    char eps[NUMBER_BYTES], own[64];
    return snprintf(text, TEXT_BYTES,
                    "{\n"
                    "  \"_class_name\": \"WanTransformer3DModel\",\n"
                    "  \"_diffusers_version\": \"0.42.1\",\n"
                    "%s"
                    "  \"added_kv_proj_dim\": null,\n"
                    "  \"attention_head_dim\": %d,\n"
                    "  \"cross_attn_norm\": %s,\n"
                    "  \"eps\": %s,\n"
                    "  \"ffn_dim\": %d,\n"
                    "  \"freq_dim\": %d,\n"
                    "  \"image_dim\": null,\n"
                    "  \"in_channels\": %d,\n"
                    "  \"num_attention_heads\": %d,\n"
                    "  \"num_layers\": %d,\n"
                    "  \"out_channels\": %d,\n"
                    "  \"patch_size\": [\n    %d,\n    %d,\n    %d\n  ],\n"
                    "  \"pos_embed_seq_len\": null,\n"
                    "  \"qk_norm\": %s,\n"
                    "  \"rope_max_seq_len\": %d,\n"
                    "  \"text_dim\": %d\n"
                    "}\n",
                    own_line("_text_len", c->text_len, 512, own), c->head_dim,
                    c->cross_attn_norm ? "true" : "false", shortest(c->eps, eps), c->ffn_dim,
                    c->freq_dim, c->in_channels, c->heads, c->layers, c->out_channels, c->patch[0],
                    c->patch[1], c->patch[2], c->qk_norm ? "\"rms_norm_across_heads\"" : "null",
                    c->rope_max, c->text_dim);
}

static int print_original(const tess_model_config *c, char text[TEXT_BYTES])
{
    char eps[NUMBER_BYTES], own[64];
    return snprintf(text, TEXT_BYTES,
                    "{\n"
                    "  \"_class_name\": \"WanModel\",\n"
                    "%s"
                    "  \"cross_attn_norm\": %s,\n"
                    "  \"dim\": %d,\n"
                    "  \"eps\": %s,\n"
                    "  \"ffn_dim\": %d,\n"
                    "  \"freq_dim\": %d,\n"
                    "  \"in_dim\": %d,\n"
                    "  \"model_type\": \"t2v\",\n"
                    "  \"num_heads\": %d,\n"
                    "  \"num_layers\": %d,\n"
                    "  \"out_dim\": %d,\n"
                    "  \"patch_size\": [\n    %d,\n    %d,\n    %d\n  ],\n"
                    "  \"qk_norm\": %s,\n"
                    "  \"text_dim\": %d,\n"
                    "  \"text_len\": %d\n"
                    "}\n",
                    own_line("_rope_max_seq_len", c->rope_max, 1024, own),
                    c->cross_attn_norm ? "true" : "false", c->heads * c->head_dim,
                    shortest(c->eps, eps), c->ffn_dim, c->freq_dim, c->in_channels, c->heads,
                    c->layers, c->out_channels, c->patch[0], c->patch[1], c->patch[2],
                    c->qk_norm ? "true" : "false", c->text_dim, c->text_len);
}

tess_status tess__config_write(tess_ctx *ctx, const char *path, const tess_model_config *config,
                               tess_weight_names names)
{
    char text[TEXT_BYTES];
    const int n = names == TESS_WEIGHTS_ORIGINAL ? print_original(config, text)
                                                 : print_diffusers(config, text);
    tess__out *out;
    TESS_TRY(tess__out_open(ctx, path, &out));
    const tess_status status = tess__out_write(out, text, (size_t)n);
    if (status == TESS_OK)
        return tess__out_commit(out);
    tess__out_abort(out);
    return status;
}

tess_status tess__config_path(const char *path, char file[PATH_MAX])
{
    struct stat st;
    const int folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (snprintf(file, PATH_MAX, "%s%s", path, folder ? "/config.json" : "") >= PATH_MAX)
        return tess__fail(TESS_EIO, "%.200s: longer than %d bytes", path, PATH_MAX - 1);
    return TESS_OK;
}

tess_status tess_model_config_write(tess_ctx *ctx, const char *path,
                                    const tess_model_config *config)
{
    char file[PATH_MAX];
    if (!ctx || !path)
        return tess__fail(TESS_EINVAL, "tess_model_config_write: %s is NULL", ctx ? "path" : "ctx");
    TESS_TRY(tess__config_check("tess_model_config_write", config));
    TESS_TRY(tess__config_path(path, file));
    return tess__config_write(ctx, file, config, TESS_WEIGHTS_DIFFUSERS);
}
