/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tensor.h - shared by the files of `tessera tensor`: options, open files, tensors. */
#ifndef CLI_CMD_TENSOR_H
#define CLI_CMD_TENSOR_H

#include "cli.h"
#include "tessera/file.h"

typedef struct {
    common common;
    strings files, names;
    int stats, meta;
    const char *convert, *dtype;
    int64_t shard;
    int compress;
    const char *picture, *slice;
    double low, high;
} tensor_values;

typedef struct {
    const char *path;
    tess_file *file;
    tess_file_info info;
    int first, n; /* its tensors are picks[first..first + n) */
} tensor_input;

typedef struct {
    tensor_input *inputs;
    int n_inputs;
    tess_tensor *picks; /* without data */
    int *owners;        /* the input of each pick */
    int n_picks;
    int n_refused; /* tensors the library cannot read; their sentences are out */
} tensor_set;

int64_t tensor_elements(const tess_tensor *t);
int64_t tensor_bytes(const tess_tensor *t);
/* The pick with its data. */
tess_status tensor_load(const tensor_set *set, int pick, tess_tensor *t);
char *tensor_shape(const tess_tensor *t, char text[160]); /* "24x768"; "scalar" */

tess_status tensor_list(cli *c, const tensor_values *v, const tensor_set *set);
tess_status tensor_convert(cli *c, const tensor_values *v, const tensor_set *set);
tess_status tensor_picture(cli *c, const tensor_values *v, const tensor_set *set);

#endif
