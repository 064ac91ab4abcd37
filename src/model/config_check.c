/* SPDX-License-Identifier: Apache-2.0 */
/* config_check.c - what the sizes of a model must be.
 *
 * The limits keep every count below 2^62: the largest parameter, ffn_dim x dim, has 2^36 numbers,
 * and there are at most 2^10 layers of a dozen.
 */
#include "model.h"

#include <math.h>

static const char who[] = "tess_model_config_check";

tess_status tess_model_config_check(const tess_model_config *config)
{
    if (!config)
        return tess__fail(TESS_EINVAL, "%s: config is NULL", who);
    const struct {
        const char *name;
        int value, least, most;
    } rules[] = {
        {"patch[0]", config->patch[0], 1, 64},
        {"patch[1]", config->patch[1], 1, 64},
        {"patch[2]", config->patch[2], 1, 64},
        {"heads", config->heads, 1, 8192},
        {"head_dim", config->head_dim, 8, 256},
        {"in_channels", config->in_channels, 1, 65536},
        {"out_channels", config->out_channels, 1, 65536},
        {"text_dim", config->text_dim, 1, 65536},
        {"text_len", config->text_len, 1, 65536},
        {"freq_dim", config->freq_dim, 2, 65536},
        {"ffn_dim", config->ffn_dim, 1, 1048576},
        {"layers", config->layers, 1, 1024},
        {"cross_attn_norm", config->cross_attn_norm, 0, 1},
        {"qk_norm", config->qk_norm, 0, 1},
        {"rope_max", config->rope_max, 1, 1048576},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].value < rules[i].least || rules[i].value > rules[i].most)
            return tess__fail(TESS_EINVAL, "%s: %s is %d, must be %d..%d", who, rules[i].name,
                              rules[i].value, rules[i].least, rules[i].most);
    if (config->head_dim % 8 != 0)
        return tess__fail(TESS_EINVAL, "%s: head_dim is %d, must be a multiple of 8", who,
                          config->head_dim);
    if (config->heads * config->head_dim > 65536)
        return tess__fail(TESS_EINVAL, "%s: heads x head_dim is %d, must be at most 65536", who,
                          config->heads * config->head_dim);
    if (config->freq_dim % 2 != 0)
        return tess__fail(TESS_EINVAL, "%s: freq_dim is %d, must be even", who, config->freq_dim);
    if (!(config->eps > 0.0 && config->eps <= 1.0))
        return tess__fail(TESS_EINVAL, "%s: eps is %g, must be above 0 and at most 1", who,
                          config->eps);
    return TESS_OK;
}
