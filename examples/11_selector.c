/* SPDX-License-Identifier: Apache-2.0 */
/* 11_selector.c - a selector of your own, as a shared object that the command loads.
 *
 * What it shows: the one function of tessera/selector.h. For each group of queries, a cube of the
 * video, it takes the keys that score highest with the mean of the group's queries, as many as the
 * budget allows. Everything it needs is in the task; it keeps nothing, so that calls from several
 * threads do not meet.
 *
 *   cc -shared -fPIC -O3 11_selector.c $(pkg-config --cflags tessera) -o selector.so
 *   tessera train --selector ./selector.so --density 0.125 --dispatch sparse --out run
 *   tessera sample run --selector ./selector.so -o out.mp4
 *   tessera profile run --selector ./selector.so        # its recall
 */
#include <stdlib.h>
#include <tessera/selector.h>

typedef struct {
    float score;
    int32_t key;
} candidate;

/* Highest score first; of equal ones the lowest key, so that the choice is always the same. */
static int better(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->key > y->key) - (x->key < y->key);
}

static void mean_query(const tess_selector_task *task, int32_t group, float *mean)
{
    const int64_t begin = task->bounds_q[group], end = task->bounds_q[group + 1];
    for (int c = 0; c < task->head_dim; c++) {
        float sum = 0;
        for (int64_t i = begin; i < end; i++)
            sum += task->q[i * task->stride_q + c];
        mean[c] = sum / (float)(end - begin);
    }
}

static void choose(const tess_selector_task *task, const float *query, candidate *all,
                   int32_t *keys)
{
    for (int64_t j = 0; j < task->tokens_k; j++) {
        float score = 0;
        for (int c = 0; c < task->head_dim; c++)
            score += query[c] * task->k[j * task->stride_k + c];
        all[j] = (candidate){score, (int32_t)j};
    }
    qsort(all, (size_t)task->tokens_k, sizeof *all, better);
    for (int32_t i = 0; i < task->keys; i++)
        keys[i] = all[i].key;
}

static int by_mean_query(const tess_selector_task *task, int32_t *counts, int32_t *keys)
{
    float query[256]; /* head_dim is at most 256 */
    candidate *all = malloc((size_t)task->tokens_k * sizeof *all);
    if (!all)
        return 12; /* what the error message names */
    for (int32_t i = 0; i < task->groups; i++) {
        mean_query(task, task->first + i, query);
        choose(task, query, all, keys + (int64_t)i * task->keys);
        counts[i] = task->keys;
    }
    free(all);
    return 0;
}

TESS_SELECTOR(by_mean_query);
