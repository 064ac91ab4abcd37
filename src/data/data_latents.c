/* SPDX-License-Identifier: Apache-2.0 */
/* data_latents.c - latents made elsewhere: tensors (channels, frames, height, width) in
 * files.
 *
 * A folder holds one clip per file, which has one tensor or one called "latent". A file holds one
 * clip per tensor of four dimensions, or clips along the first of five; it stays open, and its data
 * stay in the mapping. All latents have the shape of the first; others are broken clips. Beside the
 * file of a clip a .txt has its prompt, beside a file of clips one per line.
 */
#include "data_internal.h"

#include <string.h>
#include <sys/stat.h>

enum { RANK = 4 };

/* Whether dims (channels, frames, height, width) are those of all latents; the first sets them. */
static tess_status check_shape(tess_data *data, const char *name, const int64_t *dims)
{
    tess_data_info *info = &data->info;
    const int64_t have[RANK] = {info->channels, info->frames, info->height, info->width};
    for (int i = 0; i < RANK; i++)
        if (dims[i] < 1 || dims[i] > INT32_MAX)
            return tess__fail(TESS_EFORMAT, "%s: is %lld x %lld x %lld x %lld, sides must be 1..%d",
                              name, (long long)dims[0], (long long)dims[1], (long long)dims[2],
                              (long long)dims[3], INT32_MAX);
    if (info->channels == 0) {
        info->channels = (int)dims[0];
        info->frames = (int)dims[1];
        info->height = (int)dims[2];
        info->width = (int)dims[3];
        return TESS_OK;
    }
    if (memcmp(have, dims, sizeof have) != 0)
        return tess__fail(
            TESS_EFORMAT,
            "%s: is %lld x %lld x %lld x %lld, the first latent is %lld x %lld x %lld x "
            "%lld",
            name, (long long)dims[0], (long long)dims[1], (long long)dims[2], (long long)dims[3],
            (long long)have[0], (long long)have[1], (long long)have[2], (long long)have[3]);
    return TESS_OK;
}

/* ---- a folder -------------------------------------------------------------------------------- */

/* The tensor of a file with one, or the one called "latent"; its name is NULL in the first case. */
static tess_status describe(tess_data *data, tess__item *item, tess_file *file)
{
    tess_file_info info;
    tess_tensor t = {.rank = -1};
    TESS_TRY(tess_file_query(file, &info));
    for (int i = 0; i < info.tensors; i++) {
        TESS_TRY(tess_file_describe(file, i, &t));
        if (info.tensors == 1)
            break;
        if (strcmp(t.name, "latent") == 0) {
            item->latent.tensor = "latent";
            break;
        }
        t.rank = -1;
    }
    if (t.rank < 0)
        return tess__fail(TESS_EFORMAT, "%s: has %d tensors, must be one or one called latent",
                          item->path, info.tensors);
    if (t.rank != RANK)
        return tess__fail(TESS_EFORMAT,
                          "%s: has %d dimensions, must be (channels, frames, height, width)",
                          item->path, t.rank);
    item->latent.path = item->path;
    return check_shape(data, item->path, t.shape);
}

static tess_status inspect_file(tess_data *data, tess__item *item)
{
    tess_file *file;
    TESS_TRY(tess__items_prompt(data, item, -1));
    TESS_TRY(tess_file_open(data->ctx, item->path, &file));
    const tess_status status = describe(data, item, file);
    tess_file_close(file);
    return status;
}

static tess_status list_folder(tess_data *data, const char *path)
{
    char **paths = NULL;
    int n = 0;
    TESS_TRY(tess__folder_list(&data->arena, path, tess__is_tensors, &paths, &n));
    TESS_TRY(tess__items_make(data, n));
    for (int i = 0; i < n; i++)
        TESS_TRY(tess__items_add(data, paths[i], NULL));
    return TESS_OK;
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Adds the clips of a tensor: itself, or slices of its first dimension, called by their number. */
static tess_status add_clips(tess_data *data, const char *path, const tess_tensor *t)
{
    const int64_t n = t->rank == RANK + 1 ? t->shape[0] : 1;
    const int64_t *dims = t->shape + (t->rank - RANK);
    const size_t bytes = tess_dtype_size(t->dtype) * (size_t)dims[0] * (size_t)dims[1] *
                         (size_t)dims[2] * (size_t)dims[3];
    for (int64_t k = 0; k < n; k++) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)k);
        TESS_TRY(tess__items_add(data, path, t->rank == RANK ? t->name : number));
        tess__item *item = &data->items->items[data->items->n - 1];
        item->latent =
            (tess__numbers){.data = (const char *)t->data + (size_t)k * bytes, .dtype = t->dtype};
    }
    return TESS_OK;
}

/* A tensor that is no latent is a broken clip: logged, counted, skipped. */
static tess_status check_tensor(tess_data *data, const char *path, tess_file *file, int index,
                                tess_tensor *t)
{
    char name[256];
    TESS_TRY(tess_file_describe(file, index, t));
    snprintf(name, sizeof name, "%.120s: tensor \"%.80s\"", path, t->name);
    if (t->rank != RANK && t->rank != RANK + 1)
        return tess__fail(TESS_EFORMAT, "%s: has %d dimensions, must be 4 or 5", name, t->rank);
    if (t->rank == RANK + 1 && (t->shape[0] < 1 || t->shape[0] > INT32_MAX / 2))
        return tess__fail(TESS_EFORMAT, "%s: has %lld clips, must be 1..%d", name,
                          (long long)t->shape[0], INT32_MAX / 2);
    return check_shape(data, name, t->shape + (t->rank - RANK));
}

static tess_status take_file(tess_data *data, const char *path, tess_file *file)
{
    tess_file_info info;
    TESS_TRY(tess_file_query(file, &info));
    int64_t n = 0;
    tess_tensor t;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            if (n > INT32_MAX / 2)
                return tess__fail(TESS_ENOTSUP, "%s: has more than %d clips", path, INT32_MAX / 2);
            TESS_TRY(tess__items_make(data, (int)n));
            data->items->latents = file; /* closed with the data from here on */
        }
        for (int i = 0; i < info.tensors; i++) {
            tess_status status = check_tensor(data, path, file, i, &t);
            if (status == TESS_OK && pass == 0)
                n += t.rank == RANK ? 1 : t.shape[0];
            if (status == TESS_OK && pass == 1) {
                status = tess_file_tensor(file, t.name, &t);
                if (status == TESS_OK)
                    status = add_clips(data, path, &t);
            }
            if (status == TESS_ENOMEM || status == TESS_ESTOPPED)
                return status;
            if (status != TESS_OK && pass == 1)
                TESS_TRY(tess__items_skip(data, -1));
        }
    }
    return TESS_OK;
}

static tess_status list_file(tess_data *data, const char *path)
{
    tess_file *file;
    TESS_TRY(tess_file_open(data->ctx, path, &file));
    const tess_status status = take_file(data, path, file);
    if (!data->items || !data->items->latents)
        tess_file_close(file);
    return status;
}

static tess_status inspect_tensor(tess_data *data, tess__item *item)
{
    const int line = data->items->n_listed > 1 ? item->number : -1;
    return tess__items_prompt(data, item, line);
}

/* ---- the source ------------------------------------------------------------------------------ */

/* Sides that the options name must be those of the latents. */
static tess_status check_sides(const tess_data *data, const tess_data_opts *o)
{
    const tess_data_info *info = &data->info;
    const struct {
        const char *name;
        int wanted, have;
    } sides[] = {{"frames", o->frames, info->frames},
                 {"height", o->height, info->height},
                 {"width", o->width, info->width}};
    for (int i = 0; i < 3; i++)
        if (sides[i].wanted && sides[i].wanted != sides[i].have)
            return tess__fail(
                TESS_EINVAL,
                "tess_data_open: %s is %d, the latents of %.200s have %d: leave it out",
                sides[i].name, sides[i].wanted, o->source, sides[i].have);
    return TESS_OK;
}

static tess_status latents_open(tess_data *data, const tess_data_opts *opts)
{
    struct stat st;
    if (opts->pack > 1)
        return tess__fail(TESS_EINVAL, "tess_data_open: pack is %d, latents are not packed",
                          opts->pack);
    data->seed = tess__data_seed(opts->seed, "latents");
    data->info.channels = 0; /* until the first latent is read */
    if (stat(opts->source, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", opts->source);
    const int folder = S_ISDIR(st.st_mode);
    TESS_TRY(folder ? list_folder(data, opts->source) : list_file(data, opts->source));
    TESS_TRY(tess__records_make(data));
    if (opts->text)
        TESS_TRY(tess__embeddings_open(data, opts));
    TESS_TRY(tess__items_inspect(data, "reading latents", folder ? inspect_file : inspect_tensor));
    TESS_TRY(tess__items_split(data, opts->source));
    for (int i = 0; i < data->items->n; i++) {
        const tess__item *item = &data->items->items[i];
        tess_data_clip *record = &data->items->records[item->number];
        record->prompt = item->prompt;
        record->frames = data->info.frames;
        record->height = data->info.height;
        record->width = data->info.width;
    }
    return check_sides(data, opts);
}

static tess_status latents_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                  tess__sample_meta *meta)
{
    const tess_data_info *info = &data->info;
    const tess__item *item = tess__items_pick(data, split, index);
    meta->item = item;
    meta->prompt = item->prompt;
    if (!x)
        return TESS_OK;
    const size_t n =
        (size_t)info->channels * (size_t)info->frames * (size_t)info->height * (size_t)info->width;
    return tess__numbers_read(data, &item->latent, n, x);
}

const tess__data_source tess__data_latents = {"latents", latents_open, latents_sample,
                                              tess__items_close};
