/* SPDX-License-Identifier: Apache-2.0 */
/* config_write.c - writes config.json, byte for byte as diffusers' save_pretrained does.
 *
 * The other form, that of the original repository, goes with weights under its names.
 */
#include "config.h"

#include "file/json.h"
#include "tessera/advanced/pass.h"

#include <sys/stat.h>

static void add_patch(tess__jw *w, const tess_model_config *c)
{
    tess__jw_begin(w, "patch_size", '[');
    for (int i = 0; i < 3; i++)
        tess__jw_int(w, NULL, c->patch[i]);
    tess__jw_end(w, ']');
}

static void add_diffusers(tess__jw *w, const void *config)
{
    const tess_model_config *c = config;
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "_class_name", "WanTransformer3DModel");
    tess__jw_text(w, "_diffusers_version", "0.42.1");
    if (c->text_len != 512) /* our own member: other readers assume 512 */
        tess__jw_int(w, "_text_len", c->text_len);
    tess__jw_null(w, "added_kv_proj_dim");
    tess__jw_int(w, "attention_head_dim", c->head_dim);
    tess__jw_bool(w, "cross_attn_norm", c->cross_attn_norm);
    tess__jw_real(w, "eps", c->eps);
    tess__jw_int(w, "ffn_dim", c->ffn_dim);
    tess__jw_int(w, "freq_dim", c->freq_dim);
    tess__jw_null(w, "image_dim");
    tess__jw_int(w, "in_channels", c->in_channels);
    tess__jw_int(w, "num_attention_heads", c->heads);
    tess__jw_int(w, "num_layers", c->layers);
    tess__jw_int(w, "out_channels", c->out_channels);
    add_patch(w, c);
    tess__jw_null(w, "pos_embed_seq_len");
    tess__jw_text(w, "qk_norm", c->qk_norm ? "rms_norm_across_heads" : NULL);
    tess__jw_int(w, "rope_max_seq_len", c->rope_max);
    tess__jw_int(w, "text_dim", c->text_dim);
    tess__jw_end(w, '}');
}

static void add_original(tess__jw *w, const void *config)
{
    const tess_model_config *c = config;
    tess__jw_begin(w, NULL, '{');
    tess__jw_text(w, "_class_name", "WanModel");
    if (c->rope_max != 1024) /* our own member: other readers assume 1024 */
        tess__jw_int(w, "_rope_max_seq_len", c->rope_max);
    tess__jw_bool(w, "cross_attn_norm", c->cross_attn_norm);
    tess__jw_int(w, "dim", c->heads * c->head_dim);
    tess__jw_real(w, "eps", c->eps);
    tess__jw_int(w, "ffn_dim", c->ffn_dim);
    tess__jw_int(w, "freq_dim", c->freq_dim);
    tess__jw_int(w, "in_dim", c->in_channels);
    tess__jw_text(w, "model_type", "t2v");
    tess__jw_int(w, "num_heads", c->heads);
    tess__jw_int(w, "num_layers", c->layers);
    tess__jw_int(w, "out_dim", c->out_channels);
    add_patch(w, c);
    tess__jw_bool(w, "qk_norm", c->qk_norm);
    tess__jw_int(w, "text_dim", c->text_dim);
    tess__jw_int(w, "text_len", c->text_len);
    tess__jw_end(w, '}');
}

tess_status tess__config_write(tess_ctx *ctx, const char *path, const tess_model_config *config,
                               tess_weight_names names)
{
    return tess__json_save(ctx, path, names == TESS_WEIGHTS_ORIGINAL ? add_original : add_diffusers,
                           config);
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
    TESS_REQUIRE(ctx, path);
    TESS_TRY(tess__config_check("tess_model_config_write", config));
    TESS_TRY(tess__config_path(path, file));
    return tess__config_write(ctx, file, config, TESS_WEIGHTS_DIFFUSERS);
}
