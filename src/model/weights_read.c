/* SPDX-License-Identifier: Apache-2.0 */
/* weights_read.c - the weights of a model from safetensors.
 *
 * The tensors of the file are listed and sorted by name; the names in use, diffusers' or the
 * original's, bare or behind "model.diffusion_model." (as some collections keep them), are those
 * under which most parameters are found. Then every parameter must be there in its shape and as a
 * float of 16, 32 or 64 bits, and every tensor must be a parameter's; only tables of the rotary
 * embedding, which are computed here, may lie there besides. All of that is decided before the
 * first number is read. Cost: n log n comparisons of names, and one pass over the data.
 */
#include "weights.h"

#include "tessera/file.h"

#include <stdlib.h>
#include <string.h>

enum { SHAPE_BYTES = 128, NAME_BYTES = TESS_WEIGHT_NAME_BYTES + 32 };

/* How a file spells the parameters. */
typedef struct {
    tess_weight_names names;
    const char *prefix;
} spelling;

static const spelling spellings[] = {
    {TESS_WEIGHTS_DIFFUSERS, ""},
    {TESS_WEIGHTS_ORIGINAL, ""},
    {TESS_WEIGHTS_DIFFUSERS, "model.diffusion_model."},
    {TESS_WEIGHTS_ORIGINAL, "model.diffusion_model."},
};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

typedef struct {
    const tess_model *model;
    const char *path;
    tess_file *file;
    tess_tensor *tensors; /* sorted by name */
    unsigned char *used;  /* 1: a parameter's */
    int n;
    spelling how;
} reading;

/* ---- the tensors of the file ----------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tess_tensor *)a)->name, ((const tess_tensor *)b)->name);
}

static tess_status list_tensors(reading *r)
{
    tess_file_info info;
    TESS_TRY(tess_file_query(r->file, &info));
    r->n = info.tensors;
    r->tensors = TESS_ALLOC(r->model->ctx, (size_t)r->n * sizeof *r->tensors);
    r->used = TESS_ALLOC_ZERO(r->model->ctx, (size_t)r->n);
    for (int i = 0; i < r->n; i++)
        TESS_TRY(tess_file_describe(r->file, i, &r->tensors[i]));
    qsort(r->tensors, (size_t)r->n, sizeof *r->tensors, by_name);
    return TESS_OK;
}

static void spell(const spelling *how, const char *diffusers, char out[NAME_BYTES])
{
    char name[TESS_WEIGHT_NAME_BYTES];
    tess__weight_name(how->names, diffusers, name);
    snprintf(out, NAME_BYTES, "%s%s", how->prefix, name);
}

/* The file's tensor for a parameter, or NULL; name is what the file would call it. */
static tess_tensor *find(const reading *r, const spelling *how, const char *diffusers,
                         char name[NAME_BYTES])
{
    spell(how, diffusers, name);
    const tess_tensor key = {.name = name};
    return bsearch(&key, r->tensors, (size_t)r->n, sizeof *r->tensors, by_name);
}

static spelling recognise(const reading *r)
{
    int best = 0, most = 0;
    for (int s = 0; s < SPELLINGS; s++) {
        int found = 0;
        for (int i = 0; i < r->model->params.params; i++) {
            char name[NAME_BYTES];
            found += find(r, &spellings[s], r->model->names[i], name) != NULL;
        }
        if (found > most) {
            most = found;
            best = s;
        }
    }
    return spellings[best];
}

/* ---- the match ------------------------------------------------------------------------------- */

/* "[2,3]" */
static const char *show_shape(int rank, const int64_t *shape, char out[SHAPE_BYTES])
{
    size_t n = 0;
    for (int d = 0; d < rank && n + 24 < SHAPE_BYTES; d++)
        n += (size_t)snprintf(out + n, SHAPE_BYTES - n, "%s%lld", d ? "," : "[",
                              (long long)shape[d]);
    snprintf(out + n, SHAPE_BYTES - n, rank ? "]" : "[]");
    return out;
}

static tess_status match_param(reading *r, const tess_param *p)
{
    char name[NAME_BYTES], want[SHAPE_BYTES], got[SHAPE_BYTES];
    tess_tensor *t = find(r, &r->how, p->name, name);
    show_shape(p->rank, p->shape, want);
    if (!t)
        return tess__fail(TESS_EFORMAT, "%s: lacks tensor \"%s\" %s", r->path, name, want);
    int same = t->rank == p->rank;
    for (int d = 0; d < p->rank && same; d++)
        same = t->shape[d] == p->shape[d];
    if (!same)
        return tess__fail(TESS_EFORMAT, "%s: tensor \"%s\" is %s, must be %s", r->path, name,
                          show_shape(t->rank, t->shape, got), want);
    if (t->dtype != TESS_DTYPE_F32 && t->dtype != TESS_DTYPE_BF16 && t->dtype != TESS_DTYPE_F16 &&
        t->dtype != TESS_DTYPE_F64)
        return tess__fail(TESS_EFORMAT, "%s: tensor \"%s\" is %s, must be F32, BF16, F16 or F64",
                          r->path, name, tess_dtype_name(t->dtype));
    r->used[t - r->tensors] = 1;
    return TESS_OK;
}

/* Tables of the rotary embedding, as some programs save them. */
static int is_harmless(const char *name)
{
    return strcmp(name, "freqs") == 0 || strncmp(name, "rope.", 5) == 0;
}

static tess_status check_rest(const reading *r)
{
    const size_t prefix = strlen(r->how.prefix);
    for (int i = 0; i < r->n; i++) {
        const tess_tensor *t = &r->tensors[i];
        const int ours = strncmp(t->name, r->how.prefix, prefix) == 0;
        char shape[SHAPE_BYTES];
        if (r->used[i])
            continue;
        if (!is_harmless(t->name + (ours ? prefix : 0)))
            return tess__fail(TESS_EFORMAT,
                              "%s: tensor \"%.300s\" %s has no place in a model of these sizes",
                              r->path, t->name, show_shape(t->rank, t->shape, shape));
        tess__log(r->model->ctx, TESS_LOG_WARN, "%s: tensor \"%.300s\" is passed over", r->path,
                  t->name);
    }
    return TESS_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static tess_status run(reading *r, float *values)
{
    const int n = r->model->params.params;
    tess_param p;
    char name[NAME_BYTES];
    TESS_TRY(list_tensors(r));
    r->how = recognise(r);
    for (int i = 0; i < n; i++) {
        TESS_TRY(tess_model_param(r->model, i, &p));
        TESS_TRY(match_param(r, &p));
    }
    TESS_TRY(check_rest(r));
    for (int i = 0; i < n; i++) {
        TESS_TRY(tess_model_param(r->model, i, &p));
        spell(&r->how, p.name, name);
        TESS_TRY(tess_file_read(r->file, name, TESS_DTYPE_F32,
                                values + (p.value - r->model->values),
                                (size_t)p.count * sizeof *values));
    }
    return TESS_OK;
}

tess_status tess__weights_read(const tess_model *model, const char *path, float *values)
{
    reading r = {.model = model, .path = path};
    TESS_TRY(tess_file_open(model->ctx, path, &r.file));
    const tess_status status = run(&r, values);
    tess__free(model->ctx, r.tensors);
    tess__free(model->ctx, r.used);
    tess_file_close(r.file);
    return status;
}

/* "qk_norm": null in a config of diffusers, whose models have the norms all the same: the tensors
 * decide. */
static tess_status find_norms(tess_ctx *ctx, const tess__model_files *files,
                              tess_model_config *config)
{
    static const char *const ends[] = {"blocks.0.attn1.norm_q.weight",
                                       "blocks.0.self_attn.norm_q.weight"};
    tess_file *file;
    tess_tensor t;
    tess_file_info info;
    if (config->qk_norm)
        return TESS_OK;
    TESS_TRY(tess_file_open(ctx, files->weights, &file));
    tess_status status = tess_file_query(file, &info);
    for (int i = 0; status == TESS_OK && i < info.tensors && !config->qk_norm; i++) {
        if (tess_file_describe(file, i, &t) != TESS_OK)
            continue; /* the match says what is wrong with it */
        const size_t n = strlen(t.name);
        for (int e = 0; e < 2; e++)
            config->qk_norm |=
                n >= strlen(ends[e]) && strcmp(t.name + n - strlen(ends[e]), ends[e]) == 0;
    }
    tess_file_close(file);
    if (status == TESS_OK && config->qk_norm)
        tess__log(ctx, TESS_LOG_WARN,
                  "%s: \"qk_norm\" says that q and k have no norms, but %s has their weights: "
                  "they are applied",
                  files->config, files->weights);
    return status;
}

tess_status tess_model_load(tess_ctx *ctx, const char *path, const tess_model_opts *opts,
                            tess_model **model)
{
    TESS_REQUIRE(ctx, path, model);
    tess__model_files files;
    tess_model_config config;
    tess_model *made = NULL;
    TESS_TRY(tess__model_find(path, &files));
    TESS_TRY(tess_model_config_read(ctx, files.config, &config));
    TESS_TRY(find_norms(ctx, &files, &config));
    TESS_TRY(tess__model_make(ctx, &config, opts && opts->gradients, &made));
    const tess_status status = tess__weights_read(made, files.weights, made->values);
    if (status == TESS_OK)
        *model = made;
    else
        tess_model_destroy(made);
    return status;
}
