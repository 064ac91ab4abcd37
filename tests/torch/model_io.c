/* SPDX-License-Identifier: Apache-2.0 */
/* model_io.c - what roundtrip.py needs done on this side.
 *
 *   model_io make PRESET SEED TO                    a model of random numbers, none at 0 or 1
 *   model_io copy FROM TO diffusers|original        a model loaded and saved
 *   model_io run DIR IN.safetensors OUT.safetensors
 *
 * run reads x, timestep, text and dout, and writes out, dx and grad.NAME of every parameter.
 */
#include "tessera/advanced/pass.h"
#include "tessera/file.h"
#include "tessera/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's sentence unless the call succeeds. */
static void must(tess_status status)
{
    if (status == TESS_OK)
        return;
    fprintf(stderr, "model_io: %s\n", tess_last_error());
    exit(1);
}

static void make(tess_ctx *ctx, const char *preset, const char *seed, const char *to)
{
    tess_model_config config;
    tess_model *model;
    tess_model_info info;
    const uint64_t number = strtoull(seed, NULL, 10);
    must(tess_model_preset(preset, &config));
    must(tess_model_create(ctx, &config, &(tess_model_opts){.seed = number}, &model));
    must(tess_model_query(model, &info));
    for (int i = 0; i < info.params; i++) {
        tess_param p;
        must(tess_model_param(model, i, &p));
        float *noise = malloc((size_t)p.count * sizeof *noise);
        if (!noise)
            exit(1);
        must(tess_random_normal(number, 1000 + (uint64_t)i, 0, noise, (size_t)p.count));
        for (int64_t j = 0; j < p.count; j++)
            p.value[j] += 0.1f * noise[j];
        free(noise);
    }
    must(tess_model_save(model, to, TESS_WEIGHTS_DIFFUSERS));
    tess_model_destroy(model);
}

static void copy(tess_ctx *ctx, const char *from, const char *to, const char *names)
{
    tess_model *model;
    must(tess_model_load(ctx, from, NULL, &model));
    must(tess_model_save(model, to,
                         strcmp(names, "original") == 0 ? TESS_WEIGHTS_ORIGINAL
                                                        : TESS_WEIGHTS_DIFFUSERS));
    tess_model_destroy(model);
}

/* A tensor of the input, and room for a result like it. */
static tess_tensor input(tess_file *file, const char *name)
{
    tess_tensor t;
    must(tess_file_tensor(file, name, &t));
    if (t.dtype != TESS_DTYPE_F32) {
        fprintf(stderr, "model_io: %s is %s, must be F32\n", name, tess_dtype_name(t.dtype));
        exit(1);
    }
    return t;
}

static tess_tensor result(const char *name, const tess_tensor *like, float **data)
{
    tess_tensor t = *like;
    size_t n = 1;
    for (int d = 0; d < t.rank; d++)
        n *= (size_t)t.shape[d];
    *data = malloc(n * sizeof **data);
    if (!*data)
        exit(1);
    t.name = name;
    t.data = *data;
    return t;
}

static void write_results(tess_ctx *ctx, tess_model *model, const tess_tensor *out,
                          const tess_tensor *dx, const char *path)
{
    tess_model_info info;
    must(tess_model_query(model, &info));
    tess_tensor *tensors = calloc((size_t)info.params + 2, sizeof *tensors);
    char(*names)[160] = calloc((size_t)info.params, sizeof *names);
    if (!tensors || !names)
        exit(1);
    tensors[0] = *out;
    tensors[1] = *dx;
    for (int i = 0; i < info.params; i++) {
        tess_param p;
        must(tess_model_param(model, i, &p));
        snprintf(names[i], sizeof names[i], "grad.%s", p.name);
        tensors[i + 2] = (tess_tensor){.name = names[i], .rank = p.rank, .data = p.gradient};
        memcpy(tensors[i + 2].shape, p.shape, sizeof p.shape);
    }
    must(tess_file_write(ctx, path, tensors, info.params + 2, NULL));
    free(tensors);
    free(names);
}

static void run(tess_ctx *ctx, const char *dir, const char *in, const char *to)
{
    tess_model *model;
    tess_file *file;
    tess_pass *pass;
    float *out, *dx;
    must(tess_model_load(ctx, dir, &(tess_model_opts){.gradients = 1}, &model));
    must(tess_file_open(ctx, in, &file));
    const tess_tensor x = input(file, "x"), timestep = input(file, "timestep"),
                      text = input(file, "text"), dout = input(file, "dout");
    const tess_tensor out_tensor = result("out", &dout, &out), dx_tensor = result("dx", &x, &dx);
    const tess_pass_shape shape = {.batch = (int)x.shape[0],
                                   .frames = (int)x.shape[2],
                                   .height = (int)x.shape[3],
                                   .width = (int)x.shape[4],
                                   .text_len = (int)text.shape[1],
                                   .train = 1};
    must(tess_pass_create(model, &shape, &pass));
    must(tess_pass_forward(pass, &(tess_model_in){x.data, timestep.data, text.data}, out));
    must(tess_pass_backward(pass, dout.data, dx));
    write_results(ctx, model, &out_tensor, &dx_tensor, to);
    tess_pass_destroy(pass);
    tess_file_close(file);
    tess_model_destroy(model);
    free(out);
    free(dx);
}

int main(int argc, char **argv)
{
    tess_ctx *ctx;
    must(tess_ctx_create(NULL, &ctx));
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        make(ctx, argv[2], argv[3], argv[4]);
    else if (argc == 5 && strcmp(argv[1], "copy") == 0)
        copy(ctx, argv[2], argv[3], argv[4]);
    else if (argc == 5 && strcmp(argv[1], "run") == 0)
        run(ctx, argv[2], argv[3], argv[4]);
    else
        return fputs("usage: model_io make|copy|run, see the head of model_io.c\n", stderr), 2;
    tess_ctx_destroy(ctx);
    return 0;
}
