/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_convert.c - writes picked tensors to one file of another kind or element type.
 *
 * Tensors that keep their type are written from where the file is mapped; the others are converted
 * in memory first. Metadata comes along if OUT is safetensors; of equal keys the first file's.
 */
#include "cmd_tensor.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tess_tensor *tensors;
    void **converted; /* the memory of the tensors that changed their type, else NULL */
    tess_meta *metas;
    int n, n_metas;
} output;

static tess_dtype find_dtype(const char *name)
{
    int d = 0;
    while (d < TESS_DTYPE_COUNT && strcmp(tess_dtype_name((tess_dtype)d), name) != 0)
        d++;
    return (tess_dtype)d;
}

/* Makes t a tensor of another type, in memory that the caller frees. */
static tess_status convert(cli *c, tess_tensor *t, tess_dtype to, void **memory)
{
    const int64_t n = tensor_elements(t);
    size_t bytes = 0;
    void *made = NULL;
    if (!__builtin_mul_overflow((size_t)n, tess_dtype_size(to), &bytes))
        made = malloc(bytes ? bytes : 1);
    if (!made)
        return out_fail(c, TESS_ENOMEM, "no memory for %s as %s", t->name, tess_dtype_name(to));
    const tess_status status = tess_convert(c->ctx, t->dtype, t->data, to, made, n);
    *memory = made;
    t->dtype = to;
    t->data = made;
    return status;
}

static tess_status gather_tensors(cli *c, const tensor_values *v, const tensor_set *set, output *o)
{
    int64_t total = 0, done = 0;
    for (int i = 0; i < set->n_picks; i++)
        total += tensor_bytes(&set->picks[i]);
    progress_span(c, "converting", total);
    for (o->n = 0; o->n < set->n_picks; o->n++) {
        tess_tensor *t = &o->tensors[o->n];
        tess_status status = tensor_load(set, o->n, t);
        progress_part(c, done, tensor_bytes(&set->picks[o->n]));
        done += tensor_bytes(&set->picks[o->n]);
        if (status == TESS_OK && v->dtype && find_dtype(v->dtype) != t->dtype)
            status = convert(c, t, find_dtype(v->dtype), &o->converted[o->n]);
        if (status != TESS_OK)
            return status;
    }
    progress_span(c, NULL, 0);
    return TESS_OK;
}

static tess_status gather_metas(cli *c, const tensor_set *set, output *o)
{
    size_t total = 0;
    for (int i = 0; i < set->n_inputs; i++)
        total += (size_t)set->inputs[i].info.metas;
    o->metas = calloc(total + 1, sizeof *o->metas);
    if (!o->metas)
        return out_fail(c, TESS_ENOMEM, "no memory for %zu pairs of metadata", total);
    for (int i = 0; i < set->n_inputs; i++)
        for (int k = 0; k < set->inputs[i].info.metas; k++) {
            tess_meta *meta = &o->metas[o->n_metas];
            const tess_status status = tess_file_meta(set->inputs[i].file, k, meta);
            if (status != TESS_OK)
                return status;
            int known = 0;
            for (int j = 0; j < o->n_metas && !known; j++)
                known = strcmp(o->metas[j].key, meta->key) == 0;
            o->n_metas += !known;
        }
    return TESS_OK;
}

/* The header of the written file, read back. */
static tess_status report(cli *c, const char *path)
{
    tess_file *file = NULL;
    tess_file_info info;
    tess_status status = tess_file_open(c->ctx, path, &file);
    if (status == TESS_OK)
        status = tess_file_query(file, &info);
    if (status == TESS_OK && c->json) {
        json_t *o = json_object();
        out_set(c, o, "path", out_text(path));
        out_set(c, o, "kind", json_string(info.kind_name));
        out_set(c, o, "bytes", json_integer(info.bytes));
        out_set(c, o, "shards", json_integer(info.shards));
        out_set(c, o, "tensors", json_integer(info.tensors));
        out_set(c, c->json, "written", o);
    } else if (status == TESS_OK) {
        char text[32], clean[4096];
        fprintf(c->out, "%s: written, %s, %d tensor%s, %s\n", out_clean(path, clean, sizeof clean),
                info.kind_name, info.tensors, out_plural(info.tensors),
                out_bytes(info.bytes, text));
    }
    tess_file_close(file);
    return status;
}

tess_status tensor_convert(cli *c, const tensor_values *v, const tensor_set *set)
{
    output o = {0};
    tess_status status = TESS_OK;
    if (set->n_refused && !v->names.n)
        return out_fail(c, TESS_ENOTSUP, "%d tensor%s cannot be read, must be left out by --name",
                        set->n_refused, out_plural(set->n_refused));
    o.tensors = calloc((size_t)set->n_picks + 1, sizeof *o.tensors);
    o.converted = calloc((size_t)set->n_picks + 1, sizeof *o.converted);
    if (!o.tensors || !o.converted)
        status = out_fail(c, TESS_ENOMEM, "no memory for %d tensors", set->n_picks);
    if (status == TESS_OK)
        status = gather_tensors(c, v, set, &o);
    if (status == TESS_OK && strstr(v->convert, ".safetensors"))
        status = gather_metas(c, set, &o);
    if (status == TESS_OK) {
        const tess_file_opts opts = {o.metas, o.n_metas, v->shard, v->compress};
        status = tess_file_write(c->ctx, v->convert, o.tensors, o.n, &opts);
    }
    if (status == TESS_OK)
        status = report(c, v->convert);
    for (int i = 0; o.converted && i < set->n_picks; i++)
        free(o.converted[i]);
    free(o.tensors);
    free(o.converted);
    free(o.metas);
    return status;
}
