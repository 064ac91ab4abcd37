/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_masks.c - masks recorded in a tensor file, as a selector.
 *
 * A row of the mask is a group of queries, a column a key, or a cube of keys. The mask stays in the
 * file's mapping; a row is read when its group is asked for.
 */
#include "plugin_internal.h"

#include <string.h>

static tess_status find_tensor(tess_plugin *p, tess_tensor *t)
{
    tess_file_info info;
    TESS_TRY(tess_file_open(p->ctx, p->path, &p->file));
    TESS_TRY(tess_file_query(p->file, &info));
    TESS_TRY(tess_file_tensor(p->file, info.tensors == 1 ? NULL : "mask", t));
    const int good = (t->rank == 3 || t->rank == 4) &&
                     (t->dtype == TESS_DTYPE_BOOL || t->dtype == TESS_DTYPE_U8);
    if (!good)
        return tess__fail(
            TESS_EFORMAT,
            "%s: the mask is %s of %d dimensions, must be BOOL or U8 of (layers, heads, "
            "cubes, tokens or cubes)",
            p->path, tess_dtype_name(t->dtype), t->rank);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 1 || t->shape[i] > INT32_MAX)
            return tess__fail(TESS_EFORMAT, "%s: dimension %d of the mask is %lld, must be 1..%d",
                              p->path, i, (long long)t->shape[i], INT32_MAX);
    return TESS_OK;
}

tess_status tess__masks_open(tess_plugin *p)
{
    tess_tensor t;
    TESS_TRY(find_tensor(p, &t));
    const int64_t *s = t.shape + t.rank - 3;
    p->mask = t.data;
    p->info = (tess_plugin_info){.masks = 1,
                                 .layers = t.rank == 4 ? (int)t.shape[0] : 1,
                                 .heads = (int)s[0],
                                 .rows = s[1],
                                 .units = s[2]};
    const int64_t rows = (int64_t)p->info.layers * p->info.heads * p->info.rows;
    for (int64_t i = 0; i < rows; i++) {
        int64_t n = 0;
        for (int64_t c = 0; c < p->info.units; c++)
            n += p->mask[i * p->info.units + c] != 0;
        p->info.longest = n > p->info.longest ? n : p->info.longest;
    }
    return TESS_OK;
}

tess_status tess__masks_check(const tess_plugin *p, const tess_selector_task *task)
{
    const tess_plugin_info *m = &p->info;
    if ((m->layers > 1 && task->layer >= m->layers) || (m->heads > 1 && task->head >= m->heads))
        return tess__fail(TESS_EINVAL,
                          "%s: has masks of %d layers and %d heads, layer %d, head %d is asked for",
                          p->path, m->layers, m->heads, task->layer, task->head);
    if (m->rows != task->n_cubes || (m->units != task->tokens_k && m->units != task->n_cubes))
        return tess__fail(
            TESS_EINVAL,
            "%s: has masks of %lld x %lld, must be %d cubes x %lld tokens, or cubes x "
            "cubes: of the same clips, and the same cube",
            p->path, (long long)m->rows, (long long)m->units, task->n_cubes,
            (long long)task->tokens_k);
    return TESS_OK;
}

/* The keys of one row; at most task->keys are written, and all are counted. */
static int32_t read_row(const tess_plugin *p, const tess_selector_task *task, const uint8_t *row,
                        int32_t *keys)
{
    const int by_cube = p->info.units != task->tokens_k;
    int32_t n = 0;
    for (int64_t c = 0; c < p->info.units; c++) {
        const int64_t begin = by_cube ? task->cubes[c] : c,
                      end = by_cube ? task->cubes[c + 1] : c + 1;
        for (int64_t key = begin; row[c] && key < end; key++, n++)
            if (n < task->keys)
                keys[n] = (int32_t)key;
    }
    return n;
}

void tess__masks_select(const tess_plugin *p, const tess_selector_task *task, int32_t *counts,
                        int32_t *keys)
{
    const int64_t layer = p->info.layers > 1 ? task->layer : 0,
                  head = p->info.heads > 1 ? task->head : 0;
    for (int32_t i = 0; i < task->groups; i++) {
        const int32_t group = task->first + i;
        const int64_t row = task->numbers ? task->numbers[group] : group;
        const int64_t at = (layer * p->info.heads + head) * p->info.rows + row;
        counts[i] = read_row(p, task, p->mask + at * p->info.units, keys + (int64_t)i * task->keys);
    }
}
