/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - the sizes of a model: one table of their rules and of their names in config.json. */
#ifndef TESS_MODEL_CONFIG_H
#define TESS_MODEL_CONFIG_H

#include "base/base_internal.h"
#include "tessera/model.h"

#include <limits.h>

enum {
    TESS_CONFIG_PATCH_MAX = 64,
    TESS_CONFIG_DIM_MAX = 65536, /* heads x head_dim */
};

/* A whole number of tess_model_config. Its keys are those of diffusers and of the original
 * repository; one that begins with an underscore is ours, which both pass over. */
typedef struct {
    const char *name; /* of the member */
    size_t offset;
    const char *key[2]; /* by tess_weight_names; NULL: the file does not say it directly */
    int min, max, step; /* a multiple of step, which is 1, 2 or 8 */
    int otherwise;      /* its value when the key is absent; 0: the key must be there */
} tess__config_field;

extern const tess__config_field tess__config_fields[];
extern const int tess__config_field_count;

int *tess__config_at(tess_model_config *config, const tess__config_field *field);

/* The rules of tess_model_config_check; who is the function that the sentence names. */
tess_status tess__config_check(const char *who, const tess_model_config *config);

/* tess_model_config_read of a text in memory that errors call name. */
tess_status tess__config_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_model_config *config);

/* path itself, or config.json in the folder it names. */
tess_status tess__config_path(const char *path, char file[PATH_MAX]);

/* The config.json that a path to a model means, weights_find.c: path itself, that of a folder or of
 * a pipeline's transformer/, or the one beside a file of weights. */
tess_status tess__config_find(const char *path, char config[PATH_MAX]);

/* tess_model_config_write in the form of either side, to a file. */
tess_status tess__config_write(tess_ctx *ctx, const char *path, const tess_model_config *config,
                               tess_weight_names names);

#endif
