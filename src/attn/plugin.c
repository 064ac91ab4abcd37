/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - selectors of others: loaded, run on all threads, and checked.
 *
 * A head's groups are asked for in runs of CHUNK, whatever the number of threads. What comes back
 * is checked and sorted by the thread that asked; the first run that is wrong is asked again for
 * the sentence. Memory: 4 bytes for each key of a budget, and 12 for each group.
 */
#include "plugin_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK = 16 };

/* ---- opening --------------------------------------------------------------------------------- */

/* *elf = 1: the file begins as shared objects do. */
static tess_status read_magic(const char *path, int *elf)
{
    char magic[4] = {0};
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return tess__fail(TESS_EIO, "%s: is no file, must be a shared object or masks", path);
    FILE *f = fopen(path, "rb");
    if (!f)
        return tess__fail(TESS_EIO, "%s: cannot open: %s", path, strerror(errno));
    *elf = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "\177ELF", 4) == 0;
    fclose(f);
    return TESS_OK;
}

static tess_status load(tess_plugin *p)
{
    char *whole = realpath(p->path, NULL); /* a name without / would be sought elsewhere */
    if (!whole)
        return tess__fail(TESS_EIO, "%s: cannot open: %s", p->path, strerror(errno));
    p->handle = dlopen(whole, RTLD_NOW | RTLD_LOCAL);
    free(whole);
    if (!p->handle)
        return tess__fail(TESS_EFORMAT, "%s: cannot be loaded: %s", p->path, dlerror());
    const tess_selector_plugin *found = dlsym(p->handle, "tessera_selector");
    if (!found)
        return tess__fail(
            TESS_EFORMAT,
            "%s: has no symbol tessera_selector, must have TESS_SELECTOR(function) of "
            "tessera/selector.h",
            p->path);
    if (found->version != TESS_SELECTOR_VERSION)
        return tess__fail(TESS_EFORMAT,
                          "%s: was compiled for version %u of tessera/selector.h, must be %d",
                          p->path, found->version, TESS_SELECTOR_VERSION);
    if (!found->select)
        return tess__fail(TESS_EFORMAT, "%s: the function of tessera_selector is NULL", p->path);
    p->select = found->select;
    return TESS_OK;
}

tess_status tess_plugin_open(tess_ctx *ctx, const char *path, tess_plugin **plugin)
{
    int elf = 0;
    TESS_REQUIRE(ctx, path, plugin);
    TESS_TRY(read_magic(path, &elf));
    const size_t length = strlen(path) + 1;
    tess_plugin *p = TESS_ALLOC_ZERO(ctx, sizeof *p + length);
    p->ctx = ctx;
    p->path = memcpy(p + 1, path, length);
    const tess_status status = elf ? load(p) : tess__masks_open(p);
    if (status != TESS_OK) {
        tess_plugin_close(p);
        return status;
    }
    *plugin = p;
    return TESS_OK;
}

tess_status tess_plugin_query(const tess_plugin *plugin, tess_plugin_info *info)
{
    TESS_REQUIRE(plugin, info);
    *info = plugin->info;
    return TESS_OK;
}

void tess_plugin_close(tess_plugin *plugin)
{
    if (!plugin)
        return;
    tess__buffer_free(plugin->ctx, &plugin->counts);
    tess__buffer_free(plugin->ctx, &plugin->keys);
    tess__buffer_free(plugin->ctx, &plugin->offsets);
    tess_file_close(plugin->file);
    if (plugin->handle)
        dlclose(plugin->handle);
    tess__free(plugin->ctx, plugin);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* What is wrong with a group. */
typedef struct {
    enum { RIGHT, RETURNED, COUNT, OUTSIDE, TWICE } what; /* RIGHT: the fault is gone */
    int32_t group;
    int value; /* returned, the count or the key */
} fault;

/* Sorts a list that does not ascend. */
static fault check_list(const tess_selector_task *task, int32_t group, int32_t count, int32_t *keys)
{
    if (count < 1 || count > task->keys)
        return (fault){COUNT, group, count};
    int sorted = 1;
    for (int32_t i = 0; i < count; i++) {
        if (keys[i] < 0 || keys[i] >= task->tokens_k)
            return (fault){OUTSIDE, group, keys[i]};
        sorted &= i == 0 || keys[i] > keys[i - 1];
    }
    if (!sorted)
        qsort(keys, (size_t)count, sizeof *keys, tess__by_int32);
    for (int32_t i = 1; i < count; i++)
        if (keys[i] == keys[i - 1])
            return (fault){TWICE, group, keys[i]};
    return (fault){RIGHT, group, 0};
}

static tess_status fail_fault(const tess_plugin *p, const tess_selector_task *task, const fault *f)
{
    const int32_t number = task->numbers ? task->numbers[f->group] : f->group;
    char what[96];
    switch (f->what) {
    case RETURNED:
        snprintf(what, sizeof what, "the function returned %d, must return 0", f->value);
        break;
    case COUNT:
        snprintf(what, sizeof what, "%d keys are chosen, must be 1..%d", f->value, task->keys);
        break;
    case OUTSIDE:
        snprintf(what, sizeof what, "key %d is chosen, must be 0..%lld", f->value,
                 (long long)task->tokens_k - 1);
        break;
    case TWICE: snprintf(what, sizeof what, "key %d is chosen twice", f->value); break;
    default:
        snprintf(what, sizeof what,
                 "other keys are chosen when it is asked again, must be the same");
        break;
    }
    return tess__fail(TESS_EINVAL, "%s: layer %d, head %d, group %d: %s", p->path, task->layer,
                      task->head, number, what);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The groups of one chunk; the first fault among them. */
static fault run_chunk(const tess_plugin *p, const tess_selector_task *whole, int32_t chunk,
                       int32_t n)
{
    const int32_t first = chunk * CHUNK, groups = n - first < CHUNK ? n - first : CHUNK;
    int32_t *counts = (int32_t *)p->counts.data + first;
    int32_t *keys = (int32_t *)p->keys.data + (int64_t)first * whole->keys;
    tess_selector_task task = *whole;
    task.first = first;
    task.groups = groups;
    const int returned = p->select ? p->select(&task, counts, keys) : 0;
    if (returned != 0)
        return (fault){RETURNED, first, returned};
    if (!p->select)
        tess__masks_select(p, &task, counts, keys);
    for (int32_t i = 0; i < groups; i++) {
        const fault f = check_list(&task, first + i, counts[i], keys + (int64_t)i * task.keys);
        if (f.what != RIGHT)
            return f;
    }
    return (fault){RIGHT, first, 0};
}

/* Brings the lists together. */
static void close_gaps(const tess_selector_task *task, int32_t n, const int32_t *counts,
                       int32_t *keys, int64_t *offsets)
{
    offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        memmove(keys + offsets[i], keys + (int64_t)i * task->keys,
                (size_t)counts[i] * sizeof *keys);
        offsets[i + 1] = offsets[i] + counts[i];
    }
}

tess_status tess_plugin_run(tess_plugin *plugin, const tess_selector_task *task,
                            tess_selection *sel)
{
    TESS_REQUIRE(plugin, task, sel);
    tess_plugin *p = plugin;
    const int32_t n = sel->n_q;
    if (sel->batch != 1 || sel->heads != 1 || sel->n_k != task->tokens_k || task->keys < 1)
        return tess__fail(TESS_EINVAL,
                          "tess_plugin_run: sel has %d samples of %d heads and %d units, keys is "
                          "%d; must be 1, 1, %lld and 1 or more",
                          sel->batch, sel->heads, sel->n_k, task->keys, (long long)task->tokens_k);
    if (p->mask)
        TESS_TRY(tess__masks_check(p, task));
    TESS_TRY(tess__buffer_grow(p->ctx, &p->counts, n, sizeof(int32_t)));
    TESS_TRY(tess__buffer_grow(p->ctx, &p->keys, (int64_t)n * task->keys, sizeof(int32_t)));
    TESS_TRY(tess__buffer_grow(p->ctx, &p->offsets, (int64_t)n + 1, sizeof(int64_t)));
    tess_selector_task whole = *task;
    whole.version = TESS_SELECTOR_VERSION;
    const int32_t chunks = (n + CHUNK - 1) / CHUNK;
    int32_t wrong = chunks; /* the first chunk with a fault */
#pragma omp parallel for num_threads(p->ctx->threads) schedule(dynamic) reduction(min : wrong)
    for (int32_t c = 0; c < chunks; c++)
        if (run_chunk(p, &whole, c, n).what != RIGHT && c < wrong)
            wrong = c;
    if (wrong < chunks) {
        const fault f = run_chunk(p, &whole, wrong, n);
        return fail_fault(p, task, &f);
    }
    close_gaps(task, n, p->counts.data, p->keys.data, p->offsets.data);
    return tess_selection_set_lists(sel, p->offsets.data, p->keys.data);
}
