/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_tensor.c - tessera tensor: opens tensor files, picks tensors by name, and hands them to
 * tensor_list.c, tensor_convert.c and tensor_picture.c. */
#include "cmd_tensor.h"
#include "commands.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t tensor_elements(const tess_tensor *t)
{
    int64_t n = 1; /* the library has checked that the product fits */
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

int64_t tensor_bytes(const tess_tensor *t)
{
    return tensor_elements(t) * (int64_t)tess_dtype_size(t->dtype);
}

tess_status tensor_load(const tensor_set *set, int pick, tess_tensor *t)
{
    return tess_file_tensor(set->inputs[set->owners[pick]].file, set->picks[pick].name, t);
}

char *tensor_shape(const tess_tensor *t, char text[160])
{
    int used = snprintf(text, 160, "%s", t->rank ? "" : "scalar");
    for (int i = 0; i < t->rank; i++)
        used += snprintf(text + used, 160 - (size_t)used, "%s%lld", i ? "x" : "",
                         (long long)t->shape[i]);
    return text;
}

static int wanted(const strings *patterns, const char *name)
{
    for (int i = 0; i < patterns->n; i++)
        if (fnmatch(patterns->items[i], name, 0) == 0)
            return 1;
    return patterns->n == 0;
}

static tess_status open_inputs(cli *c, const tensor_values *v, tensor_set *set)
{
    set->inputs = calloc((size_t)v->files.n, sizeof *set->inputs);
    if (!set->inputs)
        return out_fail(c, TESS_ENOMEM, "no memory for %d files", v->files.n);
    for (; set->n_inputs < v->files.n; set->n_inputs++) {
        tensor_input *in = &set->inputs[set->n_inputs];
        in->path = v->files.items[set->n_inputs];
        tess_status status = tess_file_open(c->ctx, in->path, &in->file);
        if (status == TESS_OK)
            status = tess_file_query(in->file, &in->info);
        if (status != TESS_OK)
            return status;
    }
    return TESS_OK;
}

/* A pattern that matches nothing is a mistake worth a sentence. */
static tess_status check_names(cli *c, const tensor_values *v, const tensor_set *set)
{
    for (int i = 0; i < v->names.n; i++) {
        int matches = 0;
        for (int k = 0; k < set->n_picks && !matches; k++)
            matches = fnmatch(v->names.items[i], set->picks[k].name, 0) == 0;
        if (!matches)
            return out_fail(c, TESS_EINVAL, "--name is \"%.80s\", matches no tensor",
                            v->names.items[i]);
    }
    return TESS_OK;
}

/* A tensor of a type that the library does not read is reported; the others are still printed. */
static void refuse(cli *c, tensor_set *set)
{
    if (!c->common->quiet)
        out_log(c, TESS_LOG_WARN, tess_last_error());
    if (c->json && set->n_refused == 0)
        out_set(c, c->json, "refused", json_array());
    if (c->json)
        out_append(c, json_object_get(c->json, "refused"), out_sentence(tess_last_error()));
    set->n_refused++;
}

static tess_status pick(cli *c, const tensor_values *v, tensor_set *set)
{
    size_t total = 0;
    for (int i = 0; i < set->n_inputs; i++)
        total += (size_t)set->inputs[i].info.tensors;
    set->picks = calloc(total + 1, sizeof *set->picks);
    set->owners = calloc(total + 1, sizeof *set->owners);
    if (!set->picks || !set->owners)
        return out_fail(c, TESS_ENOMEM, "no memory for %zu tensors", total);
    for (int i = 0; i < set->n_inputs; i++) {
        tensor_input *in = &set->inputs[i];
        in->first = set->n_picks;
        for (int k = 0; k < in->info.tensors; k++) {
            tess_tensor *t = &set->picks[set->n_picks];
            const tess_status status = tess_file_describe(in->file, k, t);
            if (status == TESS_ENOTSUP) {
                refuse(c, set);
                continue;
            }
            if (status != TESS_OK)
                return status;
            set->owners[set->n_picks] = i;
            set->n_picks += wanted(&v->names, t->name);
        }
        in->n = set->n_picks - in->first;
    }
    return check_names(c, v, set);
}

/* Whether the end of a path says which kind of tensor file it is. */
static int has_kind(const char *path)
{
    static const char *const ends[] = {".npy", ".npz", ".safetensors", ".safetensors.index.json"};
    const size_t length = strlen(path);
    int found = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        found |= length >= n && strcmp(path + length - n, ends[i]) == 0;
    }
    return found;
}

static tess_status check_usage(cli *c, const tensor_values *v)
{
    if (!v->convert && (v->dtype || v->shard || v->compress))
        return out_usage(c, "%s changes what is written, needs --convert",
                         v->dtype   ? "--dtype"
                         : v->shard ? "--shard"
                                    : "--compress");
    if (v->convert && !has_kind(v->convert))
        return out_usage(c,
                         "--convert is \"%s\", must end in .npy, .npz, .safetensors or "
                         ".safetensors.index.json",
                         v->convert);
    if (!v->picture && (v->slice || !isnan(v->low) || !isnan(v->high)))
        return out_usage(c, "%s belongs to a picture, needs --picture",
                         v->slice         ? "--slice"
                         : !isnan(v->low) ? "--low"
                                          : "--high");
    if (v->low >= v->high)
        return out_usage(c, "--low is %g, must be below --high, which is %g", v->low, v->high);
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const tensor_values *v = given;
    tensor_set set = {0};
    tess_status status = check_usage(c, v);
    if (status == TESS_OK)
        status = open_inputs(c, v, &set);
    if (status == TESS_OK)
        status = pick(c, v, &set);
    if (status == TESS_OK && !v->convert && !v->picture)
        status = tensor_list(c, v, &set);
    if (status == TESS_OK && v->convert)
        status = tensor_convert(c, v, &set);
    if (status == TESS_OK && v->picture)
        status = tensor_picture(c, v, &set);
    for (int i = 0; set.inputs && i < v->files.n; i++)
        tess_file_close(set.inputs[i].file);
    free(set.inputs);
    free(set.picks);
    free(set.owners);
    return status;
}

static const char *dtypes[TESS_DTYPE_COUNT + 1]; /* bind fills them */

static const opt arguments[] = {
    {"FILE", 0, OPT_PATHS, offsetof(tensor_values, files), .required = 1,
     .help = ".npy, .npz, .safetensors, the .safetensors.index.json of shards, or the folder of a "
             "model"},
};

static const opt options[] = {
    {"name", 0, OPT_STRINGS, offsetof(tensor_values, names), "PATTERN",
     .help = "only tensors whose name matches, with * and ? and [a-z]; may be given several times"},
    {"stats", 0, OPT_FLAG, offsetof(tensor_values, stats), .initial = "1",
     .help = "read headers only: instant on files of any size"},
    {"meta", 0, OPT_FLAG, offsetof(tensor_values, meta), .help = "also print the metadata"},
    {"convert", 'o', OPT_PATH, offsetof(tensor_values, convert), "OUT",
     .help = "write the tensors to OUT instead, whose ending chooses the kind of file; OUT appears "
             "when it is complete"},
    {"dtype", 0, OPT_CHOICE, offsetof(tensor_values, dtype), "TYPE", .choices = dtypes,
     .help = "element type in OUT"},
    {"shard", 0, OPT_SIZE, offsetof(tensor_values, shard), "SIZE", .min = 1, .max = INFINITY,
     .help = "largest shard of an OUT that is a .safetensors.index.json; 5GB unless given"},
    {"compress", 0, OPT_FLAG, offsetof(tensor_values, compress),
     .help = "deflate an OUT that is a .npz"},
    {"picture", 0, OPT_PATH, offsetof(tensor_values, picture), "OUT.png",
     .help = "draw the one tensor that --name selects as a heat map, NaN in red"},
    {"slice", 0, OPT_STRING, offsetof(tensor_values, slice), "I,J,...",
     .help =
         "the leading indices of a tensor that has more than two dimensions; zeros unless given"},
    {"low", 0, OPT_DOUBLE, offsetof(tensor_values, low), "X",
     .help = "value of the darkest colour; the smallest unless given"},
    {"high", 0, OPT_DOUBLE, offsetof(tensor_values, high), "X",
     .help = "value of the brightest colour; the largest unless given"},
};

static void bind(void)
{
    for (int i = 0; i < TESS_DTYPE_COUNT; i++)
        dtypes[i] = tess_dtype_name((tess_dtype)i);
}

static const example examples[] = {
    {"tessera tensor model.safetensors --name 'blocks.0.*'", "ranges and NaN of one block"},
    {"tessera tensor model.safetensors.index.json --no-stats", "names, shapes and types at once"},
    {"tessera tensor model.safetensors -o half.safetensors --dtype BF16", "half the size"},
    {"tessera tensor masks.npy --slice 3,0 --picture mask.png", "draw layer 3, head 0"},
};

const command command_tensor = {
    .name = "tensor",
    .summary = "inspect tensor files, convert them, draw them",
    .description = "Prints type, shape, range, mean and deviation of each tensor, and how many of "
                   "its elements are NaN or infinite. The range is that of the elements which are "
                   "not NaN, mean and deviation those of the finite ones. The kind of a file is "
                   "recognised by its content.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(tensor_values),
    .bind = bind,
    .run = run,
};
