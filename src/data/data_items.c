/* SPDX-License-Identifier: Apache-2.0 */
/* data_items.c - clips and latents in files: list, broken files, splits, prompts.
 *
 * Every item is inspected once when the data are opened. Those that fail are dropped with a warning
 * and counted, so that the list never changes later and a sample remains a function of its index.
 *
 * Validation gets one in twenty, at least one of two or more: those whose names have the smallest
 * hashes, so that the same clips are held out whatever the seed, and a clip more or less moves few
 * others. One clip alone is in both. Training has a new order of its items in every epoch,
 * validation always the same.
 */
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ONE_IN = 20, PROMPT_MAX = 1 << 16 };

/* ---- the list -------------------------------------------------------------------------------- */

tess_status tess__items_make(tess_data *data, int n)
{
    const size_t room = (size_t)(n > 0 ? n : 1);
    data->items = TESS_TAKE(&data->arena, sizeof *data->items);
    *data->items = (tess__items){0};
    data->items->items = TESS_TAKE(&data->arena, room * sizeof *data->items->items);
    data->items->order = TESS_TAKE(&data->arena, room * sizeof *data->items->order);
    return TESS_OK;
}

void tess__items_close(tess_data *data)
{
    tess__items *list = data->items;
    if (!list)
        return;
    for (int i = 0; list->items && i < list->n; i++) {
        tess_clip_close(list->items[i].clip);
        tess__free(data->ctx, list->items[i].pixels);
    }
    tess_file_close(list->latents);
    tess_file_close(list->texts);
}

/* The path without slashes at its end, and, of a file, without what follows its last dot. */
static char *stem_of(tess_data *data, const char *path)
{
    struct stat st;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t dot = length;
    while (dot > 0 && path[dot - 1] != '.' && path[dot - 1] != '/')
        dot--;
    const int has = dot > 1 && path[dot - 1] == '.' && path[dot - 2] != '/';
    if (has && !(stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        length = dot - 1;
    return tess__arena_string(&data->arena, path, length);
}

tess_status tess__items_add(tess_data *data, const char *path, const char *name)
{
    tess__items *list = data->items;
    const char *stem = TESS_MEMORY(stem_of(data, path));
    const char *kept = TESS_TAKE_STRING(&data->arena, path, strlen(path));
    const char *slash = strrchr(stem, '/');
    const char *called = slash && slash[1] ? slash + 1 : stem;
    if (name)
        called = TESS_TAKE_STRING(&data->arena, name, strlen(name));
    list->items[list->n] =
        (tess__item){.name = called, .path = kept, .stem = stem, .prompt = "", .number = list->n};
    list->n++;
    return TESS_OK;
}

int tess__is_tensors(const char *folder, const char *name)
{
    (void)folder;
    return tess__ends_in(name, ".npy") || tess__ends_in(name, ".npz") ||
           tess__ends_in(name, ".safetensors") || tess__ends_in(name, ".safetensors.index.json");
}

/* ---- broken files ---------------------------------------------------------------------------- */

tess_status tess__items_inspect(tess_data *data, const char *what,
                                tess_status (*inspect)(tess_data *data, tess__item *item))
{
    tess__items *list = data->items;
    const int n = list->n;
    tess_status status = TESS_OK;
    int kept = 0, at = 0;
    for (; at < n && status == TESS_OK; at++) {
        tess__item item = list->items[at];
        if (data->bucket_of && data->bucket_of[item.number] != data->bucket)
            continue;
        status = tess__progress(data->ctx, what, at, n);
        if (status == TESS_OK)
            status = inspect(data, &item);
        if (status == TESS_EIO || status == TESS_EFORMAT || status == TESS_ENOTSUP)
            status = tess__items_skip(data, item.number);
        else
            list->items[kept++] = item;
    }
    for (; at < n; at++)
        list->items[kept++] = list->items[at];
    list->n = kept;
    return status;
}

/* ---- the splits ------------------------------------------------------------------------------ */

typedef struct {
    uint64_t hash;
    int item;
} ticket;

static int by_hash(const void *x, const void *y)
{
    const ticket *a = x, *b = y;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

tess_status tess__items_split(tess_data *data, const char *source)
{
    tess__items *list = data->items;
    if (list->n == 0)
        return tess__items_none_left(data, source);
    tess__items_warn(data);
    ticket *tickets = TESS_ALLOC(data->ctx, (size_t)list->n * sizeof *tickets);
    for (int i = 0; i < list->n; i++)
        tickets[i] = (ticket){tess__data_seed(0, list->items[i].name), i};
    qsort(tickets, (size_t)list->n, sizeof *tickets, by_hash);
    for (int i = 0; i < list->n; i++)
        list->order[i] = tickets[i].item;
    tess__free(data->ctx, tickets);
    const int share = list->n / ONE_IN;
    list->n_validation = list->n < 2 ? 0 : share > 0 ? share : 1;
    data->info.clips = list->n - list->n_validation;
    data->info.clips_validation = list->n_validation ? list->n_validation : list->n;
    for (int i = 0; list->records && i < list->n; i++) { /* one sample each; windows count more */
        tess_data_clip *record = &list->records[list->items[list->order[i]].number];
        record->windows = i >= list->n_validation;
        record->windows_validation = i < list->n_validation || list->n_validation == 0;
    }
    data->info.windows = data->info.clips;
    data->info.windows_validation = data->info.clips_validation;
    return TESS_OK;
}

const tess__item *tess__items_pick(const tess_data *data, tess_split split, int64_t index)
{
    const tess__items *list = data->items;
    if (split == TESS_SPLIT_VALIDATION)
        return &list->items[list->order[index % data->info.clips_validation]];
    const int64_t n = data->info.clips;
    const int64_t at = tess__shuffle(data->seed, index / n, n, index % n);
    return &list->items[list->order[list->n_validation + at]];
}

/* ---- prompts --------------------------------------------------------------------------------- */

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

/* The line's first and last place; an empty range if there is no such line. */
static void find_line(const char *text, size_t n, int line, size_t *begin, size_t *end)
{
    *begin = 0;
    *end = n;
    if (line < 0)
        return;
    for (int k = 0;; k++) {
        const char *stop = memchr(text + *begin, '\n', n - *begin);
        *end = stop ? (size_t)(stop - text) : n;
        if (k == line)
            return;
        *begin = stop ? *end + 1 : n;
        if (!stop)
            return;
    }
}

static tess_status read_prompt(tess_data *data, const tess__source *source, int line,
                               const char **prompt)
{
    const char *text = (const char *)source->data;
    size_t begin, end;
    if (source->bytes == 0)
        return TESS_OK;
    find_line(text, source->bytes, line, &begin, &end);
    while (begin < end && is_space(text[begin]))
        begin++;
    while (end > begin && is_space(text[end - 1]))
        end--;
    if (end - begin > PROMPT_MAX)
        return tess__fail(TESS_EFORMAT, "%s: a prompt of %zu bytes, must be at most %d",
                          source->name, end - begin, PROMPT_MAX);
    char *copy = TESS_TAKE_STRING(&data->arena, text + begin, end - begin);
    for (size_t i = 0; i < end - begin; i++)
        copy[i] = is_space(copy[i]) ? ' ' : copy[i];
    *prompt = copy;
    return TESS_OK;
}

tess_status tess__items_prompt(tess_data *data, tess__item *item, int line)
{
    const size_t length = strlen(item->stem) + sizeof ".txt";
    char *name = TESS_ALLOC(data->ctx, length);
    snprintf(name, length, "%s.txt", item->stem);
    tess_status status = TESS_OK;
    if (access(name, F_OK) == 0) {
        tess__source source;
        status = tess__source_open(name, &source);
        if (status == TESS_OK) {
            status = read_prompt(data, &source, line, &item->prompt);
            tess__source_close(&source);
        }
    }
    tess__free(data->ctx, name);
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

tess_status tess__numbers_read(const tess_data *data, const tess__numbers *numbers, size_t n,
                               float *out)
{
    if (numbers->data) {
        tess__convert_chunk(data->ctx->kernels, numbers->dtype, numbers->data, TESS_DTYPE_F32, out,
                            n);
        return TESS_OK;
    }
    tess_file *file;
    TESS_TRY(tess_file_open(data->ctx, numbers->path, &file));
    const tess_status status =
        tess_file_read(file, numbers->tensor, TESS_DTYPE_F32, out, n * sizeof *out);
    tess_file_close(file);
    return status;
}
