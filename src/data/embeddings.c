/* SPDX-License-Identifier: Apache-2.0 */
/* embeddings.c - text embeddings made elsewhere: (rows, text_dim) for each clip, zeros below.
 *
 * They are found by the name of the clip. In a folder: NAME.npy, NAME.safetensors or NAME.npz, with
 * one tensor. In a file: the tensor called NAME; or, where the file has one tensor of three
 * dimensions, its slice number i for clip i in the order of names. Two dimensions are needed; a
 * first one of 1 may stand before them. A clip without an embedding, or with one of another width
 * or more rows than text_len, is a broken clip.
 */
#include "data_internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows and width of a tensor; all have the width of the first. */
static tess_status check_shape(tess_data *data, tess__item *item, const char *where, int rank,
                               const int64_t *shape)
{
    tess_data_info *info = &data->info;
    if (rank == 3 && shape[0] == 1) {
        rank--;
        shape++;
    }
    if (rank != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX)
        return tess__fail(TESS_EFORMAT, "%s: an embedding must be (rows, width)", where);
    if (info->text_dim && shape[1] != info->text_dim)
        return tess__fail(TESS_EFORMAT, "%s: an embedding is %lld wide, the others are %d", where,
                          (long long)shape[1], info->text_dim);
    if (data->text_most && shape[0] > data->text_most)
        return tess__fail(TESS_EFORMAT, "%s: an embedding has %lld rows, text_len is %d", where,
                          (long long)shape[0], data->text_most);
    info->text_dim = (int)shape[1];
    info->text_len = shape[0] > info->text_len ? (int)shape[0] : info->text_len;
    item->text_rows = (int)shape[0];
    return TESS_OK;
}

/* ---- in a folder ----------------------------------------------------------------------------- */

static tess_status inspect_file(tess_data *data, tess__item *item, const char *path)
{
    tess_file *file;
    tess_file_info info;
    tess_tensor t;
    TESS_TRY(tess_file_open(data->ctx, path, &file));
    tess_status status = tess_file_query(file, &info);
    if (status == TESS_OK && info.tensors != 1)
        status = tess__fail(TESS_EFORMAT, "%s: has %d tensors, must be one", path, info.tensors);
    if (status == TESS_OK)
        status = tess_file_describe(file, 0, &t);
    if (status == TESS_OK)
        status = check_shape(data, item, path, t.rank, t.shape);
    tess_file_close(file);
    item->text = (tess__numbers){.path = path};
    return status;
}

static tess_status find_in_folder(tess_data *data, tess__item *item)
{
    static const char *const endings[] = {".npy", ".safetensors", ".npz"};
    const size_t length = strlen(data->text) + strlen(item->name) + sizeof "/.safetensors";
    char *path = TESS_TAKE(&data->arena, length);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, length, "%s/%s%s", data->text, item->name, endings[i]);
        if (access(path, F_OK) == 0)
            return inspect_file(data, item, path);
    }
    return tess__fail(TESS_EIO, "%s: has no embedding for %s", data->text, item->name);
}

/* ---- in a file ------------------------------------------------------------------------------- */

/* The one tensor of three dimensions, if there is nothing else; else rank is 0. */
static tess_status find_stack(tess_file *file, tess_tensor *stack)
{
    tess_file_info info;
    TESS_TRY(tess_file_query(file, &info));
    stack->rank = 0;
    if (info.tensors != 1)
        return TESS_OK;
    TESS_TRY(tess_file_describe(file, 0, stack));
    if (stack->rank != 3)
        stack->rank = 0;
    return TESS_OK;
}

static tess_status find_in_file(tess_data *data, tess__item *item)
{
    tess_file *file = data->items->texts;
    tess_tensor t;
    char where[256];
    TESS_TRY(find_stack(file, &t));
    if (t.rank == 3) {
        snprintf(where, sizeof where, "%.120s: clip %d", data->text, item->number);
        if (t.shape[0] <= item->number)
            return tess__fail(TESS_EFORMAT, "%s, but it has %lld embeddings", where,
                              (long long)t.shape[0]);
        TESS_TRY(tess_file_tensor(file, NULL, &t));
        TESS_TRY(check_shape(data, item, where, 2, t.shape + 1));
        const size_t bytes = (size_t)t.shape[1] * (size_t)t.shape[2] * tess_dtype_size(t.dtype);
        item->text = (tess__numbers){.data = (const char *)t.data + (size_t)item->number * bytes,
                                     .dtype = t.dtype};
        return TESS_OK;
    }
    const tess_status status = tess_file_tensor(file, item->name, &t);
    if (status == TESS_ENOMEM)
        return status;
    if (status != TESS_OK)
        return tess__fail(TESS_EIO, "%s: has no embedding for %s", data->text, item->name);
    snprintf(where, sizeof where, "%.120s: tensor \"%.80s\"", data->text, item->name);
    TESS_TRY(check_shape(data, item, where, t.rank, t.shape));
    item->text = (tess__numbers){.data = t.data, .dtype = t.dtype};
    return TESS_OK;
}

/* ---- for all clips --------------------------------------------------------------------------- */

tess_status tess__embeddings_open(tess_data *data, const tess_data_opts *opts)
{
    struct stat st;
    if (stat(opts->text, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", opts->text);
    data->text = TESS_TAKE_STRING(&data->arena, opts->text, strlen(opts->text));
    data->text_most = opts->text_len;
    data->info.text_dim = opts->text_dim; /* 0: that of the first */
    data->info.text_len = opts->text_len; /* 0: the most rows */
    const int folder = S_ISDIR(st.st_mode);
    if (!folder)
        TESS_TRY(tess_file_open(data->ctx, opts->text, &data->items->texts));
    const char *first = data->items->n > 0 ? data->items->items[0].name : "";
    TESS_TRY(
        tess__items_inspect(data, "reading embeddings", folder ? find_in_folder : find_in_file));
    if (data->items->n == 0 && data->info.skipped > 1)
        return tess__fail(TESS_EFORMAT,
                          "%s: has an embedding for none of the %lld clips of %.200s; "
                          "the first is called %.80s",
                          opts->text, (long long)data->info.skipped, opts->source, first);
    return TESS_OK;
}

tess_status tess__embeddings_read(const tess_data *data, const tess__item *item, float *text)
{
    const size_t dim = (size_t)data->info.text_dim, rows = (size_t)item->text_rows;
    const size_t all = (size_t)data->info.text_len;
    memset(text + rows * dim, 0, (all - rows) * dim * sizeof *text);
    return tess__numbers_read(data, &item->text, rows * dim, text);
}
