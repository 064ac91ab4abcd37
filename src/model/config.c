/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - the sizes of a model: presets, and the rules that every part of the model relies on.
 *
 * The limits are far beyond any model that exists, and small enough that no product of sizes
 * overflows 64 bits: the largest tensor has at most 2^50 numbers, all of them together 2^52.
 */
#include "config.h"

#include "tessera/advanced/nearest.h"
#include "tessera/advanced/pass.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define FIELD(member) #member, offsetof(tess_model_config, member)

const tess__config_field tess__config_fields[] = {
    {FIELD(heads), {"num_attention_heads", "num_heads"}, 1, 8192, 1, 0},
    {FIELD(head_dim), {"attention_head_dim", NULL}, 8, 256, 8, 0},
    {FIELD(in_channels), {"in_channels", "in_dim"}, 1, 65536, 1, 16},
    {FIELD(out_channels), {"out_channels", "out_dim"}, 1, 65536, 1, 16},
    {FIELD(text_dim), {"text_dim", "text_dim"}, 1, 65536, 1, 4096},
    {FIELD(text_len), {"_text_len", "text_len"}, 1, 65536, 1, 512},
    {FIELD(freq_dim), {"freq_dim", "freq_dim"}, 2, 65536, 2, 256},
    {FIELD(ffn_dim), {"ffn_dim", "ffn_dim"}, 1, 1048576, 1, 0},
    {FIELD(layers), {"num_layers", "num_layers"}, 1, 1024, 1, 0},
    {FIELD(rope_max), {"rope_max_seq_len", "_rope_max_seq_len"}, 1, 1048576, 1, 1024},
};
const int tess__config_field_count = sizeof tess__config_fields / sizeof tess__config_fields[0];

int *tess__config_at(tess_model_config *config, const tess__config_field *field)
{
    return (int *)((char *)config + field->offset);
}

/* ---- presets ------------------------------------------------------------------------------- */

#define WAN .patch = {1, 2, 2}, .cross_attn_norm = 1, .qk_norm = 1, .eps = 1e-6, .rope_max = 1024

static const struct {
    const char *name;
    tess_model_config config;
} presets[] = {
    /* Seconds for a test; 3 channels of 2 x 2 pixels, as small has. */
    {"tiny",
     {WAN, .heads = 2, .head_dim = 16, .in_channels = 12, .out_channels = 12, .text_dim = 16,
      .text_len = 8, .freq_dim = 32, .ffn_dim = 64, .layers = 2}},
    /* Learns moving shapes on two cores in minutes. */
    {"small",
     {WAN, .heads = 2, .head_dim = 48, .in_channels = 12, .out_channels = 12, .text_dim = 64,
      .text_len = 16, .freq_dim = 256, .ffn_dim = 384, .layers = 4}},
    /* Wan2.1's two text-to-video models. */
    {"1.3b",
     {WAN, .heads = 12, .head_dim = 128, .in_channels = 16, .out_channels = 16, .text_dim = 4096,
      .text_len = 512, .freq_dim = 256, .ffn_dim = 8960, .layers = 30}},
    {"14b",
     {WAN, .heads = 40, .head_dim = 128, .in_channels = 16, .out_channels = 16, .text_dim = 4096,
      .text_len = 512, .freq_dim = 256, .ffn_dim = 13824, .layers = 40}},
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

tess_status tess_model_preset(const char *name, tess_model_config *config)
{
    const char *names[PRESETS];
    char list[128] = "";
    TESS_REQUIRE(name, config);
    for (int i = 0; i < PRESETS; i++) {
        names[i] = presets[i].name;
        if (strcmp(name, names[i]) == 0) {
            *config = presets[i].config;
            return TESS_OK;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
    }
    const char *near = tess_nearest(name, names, PRESETS);
    return tess__invalid(__func__, "name is \"%.100s\", must be one of %s%s%s%s", name, list,
                         near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* ---- rules --------------------------------------------------------------------------------- */

static tess_status check_field(const char *who, const tess__config_field *f, int value)
{
    TESS_TRY(tess__check_range(who, f->name, value, f->min, f->max));
    if (value % f->step != 0)
        return tess__invalid(who, "%s is %d, must be %s", f->name, value,
                             f->step == 2 ? "even" : "a multiple of 8");
    return TESS_OK;
}

tess_status tess__config_check(const char *who, const tess_model_config *config)
{
    static const char *const patches[] = {"patch[0]", "patch[1]", "patch[2]"};
    if (!config)
        return tess__invalid(who, "config is NULL");
    tess_model_config c = *config;
    for (int i = 0; i < 3; i++)
        TESS_TRY(tess__check_range(who, patches[i], c.patch[i], 1, TESS_CONFIG_PATCH_MAX));
    for (int i = 0; i < tess__config_field_count; i++) {
        const tess__config_field *f = &tess__config_fields[i];
        TESS_TRY(check_field(who, f, *tess__config_at(&c, f)));
    }
    if (c.heads * c.head_dim > TESS_CONFIG_DIM_MAX)
        return tess__invalid(who, "heads x head_dim is %d, must be at most %d",
                             c.heads * c.head_dim, TESS_CONFIG_DIM_MAX);
    TESS_TRY(tess__check_range(who, "cross_attn_norm", c.cross_attn_norm, 0, 1));
    TESS_TRY(tess__check_range(who, "qk_norm", c.qk_norm, 0, 1));
    if (!(c.eps > 0.0 && c.eps <= 1.0)) /* NaN fails too */
        return tess__invalid(who, "eps is %g, must be above 0 and at most 1", c.eps);
    return TESS_OK;
}

tess_status tess_model_config_check(const tess_model_config *config)
{
    return tess__config_check("tess_model_config_check", config);
}
