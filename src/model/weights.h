/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h - a model's weights in files: which files, under which names, in and out. */
#ifndef TESS_MODEL_WEIGHTS_H
#define TESS_MODEL_WEIGHTS_H

#include "model_internal.h"

#include <limits.h>

/* The names that diffusers gives them. */
#define TESS_CONFIG_FILE "config.json"
#define TESS_WEIGHTS_FILE "diffusion_pytorch_model.safetensors"
#define TESS_WEIGHTS_INDEX TESS_WEIGHTS_FILE ".index.json"

/* ---- weights_find.c -------------------------------------------------------------------------- */

typedef struct {
    char config[PATH_MAX];
    char weights[PATH_MAX];
} tess__model_files;

/* The files of the model at path: a folder, a pipeline's folder whose model lies in transformer/,
 * or a file of weights with config.json beside it. */
tess_status tess__model_find(const char *path, tess__model_files *files);

/* ---- weight_names.c -------------------------------------------------------------------------- */

enum { TESS_WEIGHT_NAME_BYTES = 128 };

/* What either side calls the parameter that is called `diffusers` there. */
void tess__weight_name(tess_weight_names names, const char *diffusers,
                       char out[TESS_WEIGHT_NAME_BYTES]);

/* ---- weights_read.c, weights_write.c --------------------------------------------------------- */

/* Fills values, laid out as the model's, from a file of weights under either side's names. */
tess_status tess__weights_read(const tess_model *model, const char *path, float *values);

/* Writes values, laid out as the model's, as one file of weights. */
tess_status tess__weights_write(const tess_model *model, const float *values, const char *path,
                                tess_weight_names names);

#endif
