/* SPDX-License-Identifier: Apache-2.0 */
/* predictor_file.c - a predictor as a safetensors file, out and in.
 *
 * Metadata: "format" (1), "input" (qk or hidden), "rank", "rotary" (0 or 1). A reader goes by them
 * and by the sizes of the model; every tensor must be there in its shape, and no other.
 */
#include "sparse_internal.h"

#include "tessera/file.h"

#include <stdlib.h>
#include <string.h>

static const char *const inputs[] = {"qk", "hidden"};
static const char suffix[] = ".safetensors";

/* ---- out ------------------------------------------------------------------------------------- */

tess_status tess_predictor_save(const tess_predictor *predictor, const char *path)
{
    TESS_REQUIRE(predictor, path);
    const size_t length = strlen(path), end = strlen(suffix);
    if (length < end || strcmp(path + length - end, suffix) != 0)
        return tess__invalid(__func__, "path is \"%.300s\", must end in %s", path, suffix);
    const tess_predictor *p = predictor;
    const int n = p->config.layers * p->layer_params;
    char rank[16];
    snprintf(rank, sizeof rank, "%d", p->opts.proj_dim);
    const tess_meta metas[] = {{"format", "1"},
                               {"input", inputs[p->opts.input]},
                               {"rank", rank},
                               {"rotary", p->opts.rotary ? "1" : "0"}};
    tess_tensor *tensors = TESS_ALLOC(p->ctx, (size_t)n * sizeof *tensors);
    for (int i = 0; i < n; i++) {
        tess_param param;
        tess_predictor_param(p, i, &param);
        tensors[i] = (tess_tensor){
            .name = param.name, .dtype = TESS_DTYPE_F32, .rank = param.rank, .data = param.value};
        memcpy(tensors[i].shape, param.shape, sizeof param.shape);
    }
    const tess_status status =
        tess_file_write(p->ctx, path, tensors, n, &(tess_file_opts){.metas = metas, .n_metas = 4});
    tess__free(p->ctx, tensors);
    return status;
}

/* ---- in -------------------------------------------------------------------------------------- */

static tess_status meta_of(const tess_file *file, const char *path, const char *key,
                           const char **value)
{
    tess_file_info info;
    tess_meta meta;
    TESS_TRY(tess_file_query(file, &info));
    for (int i = 0; i < info.metas; i++) {
        TESS_TRY(tess_file_meta(file, i, &meta));
        if (strcmp(meta.key, key) == 0) {
            *value = meta.value;
            return TESS_OK;
        }
    }
    return tess__fail(TESS_EFORMAT, "%s: lacks the metadata \"%s\" of a predictor", path, key);
}

static tess_status wrong(const char *path, const char *key, const char *value, const char *rule)
{
    return tess__fail(TESS_EFORMAT, "%s: metadata \"%s\" is \"%.40s\", must be %s", path, key,
                      value, rule);
}

static tess_status read_opts(const tess_file *file, const char *path, tess_predictor_opts *opts)
{
    const char *format = "", *input = "", *rank = "", *rotary = "";
    char *end;
    TESS_TRY(meta_of(file, path, "format", &format));
    TESS_TRY(meta_of(file, path, "input", &input));
    TESS_TRY(meta_of(file, path, "rank", &rank));
    TESS_TRY(meta_of(file, path, "rotary", &rotary));
    if (strcmp(format, "1") != 0)
        return wrong(path, "format", format, "1");
    const int hidden = strcmp(input, inputs[1]) == 0;
    if (!hidden && strcmp(input, inputs[0]) != 0)
        return wrong(path, "input", input, "qk or hidden");
    const long number = strtol(rank, &end, 10);
    if (*end || end == rank || number < 8 || number > 64 || number % 8 != 0)
        return wrong(path, "rank", rank, "a multiple of 8 up to 64");
    if (strcmp(rotary, "0") != 0 && !(hidden && strcmp(rotary, "1") == 0))
        return wrong(path, "rotary", rotary, hidden ? "0 or 1" : "0 for qk");
    *opts = (tess_predictor_opts){.input = hidden ? TESS_PREDICT_HIDDEN : TESS_PREDICT_QK,
                                  .proj_dim = (int)number,
                                  .rotary = rotary[0] == '1'};
    return TESS_OK;
}

static tess_status read_param(tess_file *file, const char *path, const tess_param *p)
{
    tess_tensor t;
    const tess_status status = tess_file_tensor(file, p->name, &t);
    if (status != TESS_OK)
        return status;
    int same = t.rank == p->rank && t.dtype == TESS_DTYPE_F32;
    for (int d = 0; d < p->rank && same; d++)
        same = t.shape[d] == p->shape[d];
    if (!same)
        return tess__fail(TESS_EFORMAT,
                          "%s: tensor \"%s\" is no F32 of the %lld numbers that the model asks for",
                          path, p->name, (long long)p->count);
    memcpy(p->value, t.data, (size_t)p->count * sizeof *p->value);
    return TESS_OK;
}

static tess_status read_values(tess_file *file, const char *path, const tess_predictor *p)
{
    const int n = p->config.layers * p->layer_params;
    tess_file_info info;
    TESS_TRY(tess_file_query(file, &info));
    if (info.tensors != n)
        return tess__fail(TESS_EFORMAT, "%s: has %d tensors, must have %d for a model of %d layers",
                          path, info.tensors, n, p->config.layers);
    for (int i = 0; i < n; i++) {
        tess_param param;
        tess_predictor_param(p, i, &param);
        TESS_TRY(read_param(file, path, &param));
    }
    return TESS_OK;
}

static tess_status read_file(tess_ctx *ctx, const tess_model_config *config, const char *path,
                             tess_file *file, tess_predictor **predictor)
{
    tess_predictor_opts opts;
    tess_predictor *made = NULL;
    TESS_TRY(read_opts(file, path, &opts));
    TESS_TRY(tess__predictor_make(ctx, config, &opts, &made));
    const tess_status status = read_values(file, path, made);
    if (status == TESS_OK)
        *predictor = made;
    else
        tess_predictor_destroy(made);
    return status;
}

tess_status tess_predictor_load(tess_ctx *ctx, const tess_model_config *config, const char *path,
                                tess_predictor **predictor)
{
    TESS_REQUIRE(ctx, config, path, predictor);
    tess_file *file = NULL;
    TESS_TRY(tess_model_config_check(config));
    TESS_TRY(tess_file_open(ctx, path, &file));
    const tess_status status = read_file(ctx, config, path, file, predictor);
    tess_file_close(file);
    return status;
}
