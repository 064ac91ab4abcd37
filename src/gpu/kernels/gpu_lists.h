/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_lists.h - lists by key, and lists of units as lists of rows.
 *
 * Lists by key are made without atomics: a warp has 256 units of a head, goes through the groups in
 * order, and takes of each list what falls on its units, found by bisection. A list has a unit
 * once, so no two lanes meet; groups ascend. Three kernels: counts, their sums, entries. Cost: each
 * index is read twice and written twice, and each head makes n_q n_k / 256 bisections of a list.
 */
#include "gpu_gather.h"

#define STRIP 256
#define LIST_THREADS 32

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(count_entries, TESS_GPU_COUNT, any, 0, STRIP, LIST_THREADS, (STRIP + 64) * 4)
TESS_GPU_TABLE(sum_entries, TESS_GPU_SUM, any, 0, 0, STRIP, STRIP * 4)
TESS_GPU_TABLE(fill_entries, TESS_GPU_FILL, any, 0, STRIP, LIST_THREADS, (STRIP + 64) * 4)
TESS_GPU_TABLE(expand_units, TESS_GPU_EXPAND, any, 0, 1, LIST_THREADS, 0)
#else

/* at[u] entries of unit unit0 + u come before: counts them all, and with `fill` writes them. */
FN void walk_lists(const tess_gpu_transpose_args *a, int *at, int head, int unit0, int fill)
{
    int *const begin = at + STRIP, *const end = begin + 32; /* of 32 groups, within the head */
    const i64 base = a->lists.offsets[(i64)head * a->lists.n_q];
    const int *const indices = a->lists.indices + base;
    for (int group0 = 0; group0 < a->lists.n_q; group0 += 32) {
        const int g = min_int(group0 + LANE, a->lists.n_q - 1);
        const i64 *const offsets = a->lists.offsets + (i64)head * a->lists.n_q + g;
        const i64 first = lower_bound(indices, offsets[0] - base, offsets[1] - base, unit0);
        begin[LANE] = (int)first;
        end[LANE] = (int)lower_bound(indices, first, offsets[1] - base, unit0 + STRIP);
        SYNC_WARP();
        for (int j = 0; j < min_int(32, a->lists.n_q - group0); j++) {
            for (int p = begin[j] + LANE; p < end[j]; p += 32) {
                const int u = indices[p] - unit0, slot = at[u];
                at[u] = slot + 1;
                if (fill) {
                    a->group[base + slot] = group0 + j;
                    a->place[base + slot] = p;
                }
            }
            SYNC_WARP();
        }
    }
}

KERNEL(count_entries, tess_gpu_transpose_args, LIST_THREADS, 16)
{
    SHARED_MEMORY(sh);
    int *const at = (int *)sh;
    const int n_k = a.lists.n_k, strips = (n_k + STRIP - 1) / STRIP;
    const int head = BLOCK / strips, unit0 = BLOCK % strips * STRIP;
    for (int i = LANE; i < STRIP; i += 32)
        at[i] = 0;
    SYNC_WARP();
    walk_lists(&a, at, head, unit0, 0);
    for (int i = LANE; i < min_int(STRIP, n_k - unit0); i += 32)
        a.first[(i64)head * (n_k + 1) + unit0 + i] = at[i];
}

/* Counts become sums of those before, in place; the last one is all. A block for each head. */
KERNEL(sum_entries, tess_gpu_transpose_args, STRIP, 1)
{
    SHARED_MEMORY(sh);
    int *const sum = (int *)sh;
    const int n = a.lists.n_k + 1;
    int *const first = a.first + (i64)BLOCK * n;
    int before = 0;
    for (int u = 0; u < n; u += STRIP) {
        const int own = u + THREAD < n - 1 ? first[u + THREAD] : 0;
        sum[THREAD] = own;
        SYNC();
        for (int d = 1; d < STRIP; d *= 2) {
            const int x = THREAD >= d ? sum[THREAD - d] : 0;
            SYNC();
            sum[THREAD] += x;
            SYNC();
        }
        if (u + THREAD < n)
            first[u + THREAD] = before + sum[THREAD] - own;
        before += sum[STRIP - 1];
        SYNC();
    }
}

KERNEL(fill_entries, tess_gpu_transpose_args, LIST_THREADS, 16)
{
    SHARED_MEMORY(sh);
    int *const at = (int *)sh;
    const int n_k = a.lists.n_k, strips = (n_k + STRIP - 1) / STRIP;
    const int head = BLOCK / strips, unit0 = BLOCK % strips * STRIP;
    for (int i = LANE; i < min_int(STRIP, n_k - unit0); i += 32)
        at[i] = a.first[(i64)head * (n_k + 1) + unit0 + i];
    SYNC_WARP();
    walk_lists(&a, at, head, unit0, 1);
}

/* A warp for each list. */
KERNEL(expand_units, tess_gpu_expand_args, LIST_THREADS, 16)
{
    int *to = a.rows + a.row_offsets[BLOCK];
    for (i64 i = a.offsets[BLOCK]; i < a.offsets[BLOCK + 1]; i++) {
        const int begin = a.bounds_k[a.indices[i]], n = a.bounds_k[a.indices[i] + 1] - begin;
        for (int r = LANE; r < n; r += 32)
            to[r] = begin + r;
        to += n;
    }
}
#endif
