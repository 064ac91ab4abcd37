/* SPDX-License-Identifier: Apache-2.0 */
/* selector.h - a selector of your own: which keys each group of queries attends to, by a function
 * in a shared object that `tessera train`, `sample` and `profile` load (--selector ./mine.so).
 *
 *   #include <tessera/selector.h>
 *
 *   static int my_select(const tess_selector_task *task, int32_t *counts, int32_t *keys) { ... }
 *   TESS_SELECTOR(my_select);
 *
 *   cc -shared -fPIC -O3 mine.c -o mine.so
 *
 * The function gets q and k of one head of one sample of a layer, and chooses for some groups of
 * its queries. examples/11_selector.c is a whole one. The rules:
 *
 *  - Calls come from several threads at once, for different groups: no global state without a lock.
 *  - The same task gives the same keys, on every call, thread and rank, whichever groups are asked
 *    for together: the backward pass may ask again. Random numbers come from seed and the group's
 *    number.
 *  - Memory belongs to the caller. Nothing of the task is kept, and nothing is written but counts
 *    and keys. No exit, no longjmp, no exception leaves the function.
 *
 * What is returned is checked: a count or key out of range, or a key twice, ends the run with a
 * sentence. This header needs no library.
 */
#ifndef TESSERA_SELECTOR_H
#define TESSERA_SELECTOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of the structs below. A later version adds members at the end of the task, and loads plugins of
 * earlier ones. */
enum { TESS_SELECTOR_VERSION = 1 };

/* Tokens lie in cubes: those of a cube are neighbours, cubes follow each other in raster order of
 * the grid (frames, rows, columns), and so do the tokens in a cube. A group of queries is a cube.
 * Where ranks share the groups of a head, q has the rows of some groups alone. */
typedef struct {
    uint32_t version; /* TESS_SELECTOR_VERSION of the caller */
    int32_t layer, head;
    int64_t sample, step;     /* of the run; in sampling the clip and the evaluation */
    uint64_t seed;            /* another one for each layer, sample, head and step */
    int32_t grid[3], cube[3]; /* tokens along frames, rows, columns */
    int32_t head_dim;
    float scale;                /* of the scores: softmax(scale q k^T) */
    const float *q, *k;         /* row i at q + i * stride_q; head_dim numbers */
    int64_t stride_q, stride_k; /* in numbers */
    int64_t tokens_k;           /* rows of k: all tokens */
    int32_t n_cubes;
    const int64_t *cubes;    /* (n_cubes + 1): rows of k where each cube begins, and the end */
    int32_t first, groups;   /* chosen for: groups first .. first + groups - 1 */
    const int64_t *bounds_q; /* rows of q: group i has bounds_q[i] .. bounds_q[i + 1] - 1 */
    const int32_t *numbers;  /* the cube that group i is; NULL: i */
    int32_t keys;            /* most keys of a group: its budget */
} tess_selector_task;

/* For group first + i: counts[i], 1..task->keys, and as many different keys 0..tokens_k - 1, in any
 * order, from keys[i * task->keys] on. Returns 0, or what the error message is to name. */
typedef int (*tess_selector_fn)(const tess_selector_task *task, int32_t *counts, int32_t *keys);

typedef struct {
    uint32_t version;
    tess_selector_fn select;
} tess_selector_plugin;

/* Once in a shared object: exports the function. */
#ifdef __cplusplus
#define TESS_SELECTOR(function)                                                                    \
    extern "C" __attribute__((visibility("default"))) const tess_selector_plugin tessera_selector; \
    const tess_selector_plugin tessera_selector = {TESS_SELECTOR_VERSION, function}
#else
#define TESS_SELECTOR(function)                                                                    \
    __attribute__((visibility("default")))                                                         \
    const tess_selector_plugin tessera_selector = {TESS_SELECTOR_VERSION, function}
#endif

#ifdef __cplusplus
}
#endif

#endif
