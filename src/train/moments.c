/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c - the moments of the optimiser as tensors of a checkpoint, out and in.
 *
 * "first.NAME" of each parameter, "second.NAME" of AdamW's, then those of the predictors. A rank
 * reads what it owns.
 */
#include "train_internal.h"

#include "tessera/file.h"

#include <string.h>

tess__moments tess__moments_own(const tess_train *t)
{
    return (tess__moments){t->optim.slots, t->optim.n_slots, t->optim.first, t->optim.second};
}

/* One tensor for the first moment of each parameter, and one for each second there is; then those
 * of the predictors, if wanted. */
static tess_status list_moments(const tess_train *t, const tess__moments *m, int predictors,
                                tess__arena *arena, tess_tensor **tensors, int *count)
{
    const int n = m->n;
    const int more = predictors ? t->control->learner.info.params : 0;
    tess_tensor *list = TESS_TAKE(arena, (size_t)(n + more) * 2 * sizeof *list);
    *count = 0;
    for (int i = 0; i < 2 * n; i++) {
        const tess__optim_slot *slot = &m->slots[i % n];
        const int second = i >= n;
        if (second && slot->rows != 0)
            continue;
        tess_param p;
        char name[256];
        TESS_TRY(tess_model_param(t->model, slot->param, &p));
        const int length =
            snprintf(name, sizeof name, "%s.%s", second ? "second" : "first", p.name);
        tess_tensor *tensor = &list[(*count)++];
        *tensor = (tess_tensor){.name = TESS_TAKE_STRING(arena, name, (size_t)length),
                                .dtype = TESS_DTYPE_F32,
                                .rank = p.rank,
                                .data = second ? m->second + slot->second : m->first + slot->first};
        memcpy(tensor->shape, p.shape, (size_t)p.rank * sizeof *p.shape);
    }
    *tensors = list;
    return more ? tess__learner_tensors(&t->control->learner, arena, list, count) : TESS_OK;
}

static size_t bytes_of(const tess_tensor *tensor)
{
    size_t n = sizeof(float);
    for (int d = 0; d < tensor->rank; d++)
        n *= (size_t)tensor->shape[d];
    return n;
}

tess_status tess__moments_write(const tess_train *t, const tess__moments *m, const char *path)
{
    tess__arena arena = {.ctx = t->ctx};
    tess_tensor *tensors = NULL;
    int n = 0;
    const int predictors = t->control && t->control->predictor;
    tess_status status = list_moments(t, m, predictors, &arena, &tensors, &n);
    if (status == TESS_OK)
        status = tess_file_write(t->ctx, path, tensors, n, NULL);
    tess__arena_free(&arena);
    return status;
}

/* Every tensor of the list is read over the memory it describes. */
tess_status tess__moments_read(const tess_train *t, const char *path)
{
    tess__arena arena = {.ctx = t->ctx};
    tess_tensor *tensors = NULL;
    tess_file *file = NULL;
    int n = 0;
    const int predictors = t->control && t->control->loaded;
    const tess__moments own = tess__moments_own(t);
    tess_status status = list_moments(t, &own, predictors, &arena, &tensors, &n);
    if (status == TESS_OK)
        status = tess_file_open(t->ctx, path, &file);
    for (int i = 0; i < n && status == TESS_OK; i++)
        status = tess_file_read(file, tensors[i].name, TESS_DTYPE_F32, (void *)tensors[i].data,
                                bytes_of(&tensors[i]));
    tess_file_close(file);
    tess__arena_free(&arena);
    return status;
}
