/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_rows.h - rows of dk and dv from the workspace, added up in ascending order of the groups.
 *
 * A block has one row of a key: a thread for each element. It goes through the entries of the row's
 * unit that are in this round of lists, and adds to what earlier rounds left: the same sums, in the
 * same order, for any number of rounds. The last round multiplies dk by the scale. Bytes: 8 D for
 * each row of the workspace.
 */
#include "gpu_gather.h"

#define NAME JOIN(sum_rows_d, D)
#define ZERO_NAME JOIN(zero_rows_d, D)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_SUM_ROWS, any, D, 1, D, 0)
TESS_GPU_TABLE(ZERO_NAME, TESS_GPU_ZERO_ROWS, any, D, 1, D, 0)
#else
KERNEL(NAME, tess_gpu_sum_args, D, 8)
{
    const int n_k = a.lists.n_k, shift = a.lists.shift;
    const int head = BLOCK / a.lists.tokens_k, row = BLOCK % a.lists.tokens_k, unit = row >> shift;
    const int *const first = a.first + (i64)head * (n_k + 1) + unit;
    const i64 base = a.lists.offsets[(i64)head * a.lists.n_q];
    float *const dk = (float *)(head_rows(&a.dk, a.lists.heads, head) + (i64)row * a.dk.s) + THREAD;
    float *const dv = (float *)(head_rows(&a.dv, a.lists.heads, head) + (i64)row * a.dv.s) + THREAD;
    float k = a.begin ? 0.0f : *dk, v = a.begin ? 0.0f : *dv;
    const i64 least = a.entry0 < base ? 0 : a.entry0 - base; /* a place is below 2^31 */
    int i = least > 0x7fffffff ? first[1]
                               : (int)lower_bound(a.place + base, first[0], first[1], (int)least);
    for (; i < first[1] && base + a.place[base + i] < a.entry1; i++) {
        const i64 entry = base + a.place[base + i];
        const int g = a.group[base + i], queries = a.lists.bounds_q[g + 1] - a.lists.bounds_q[g];
        for (int t = 0; t * a.rows < queries; t++) {
            const i64 from = ((entry - a.entry0) * a.tiles + t) << shift;
            const i64 at = (from | (row & ((1 << shift) - 1))) * D + THREAD;
            k += a.row_dk[at];
            v += a.row_dv[at];
        }
    }
    *dk = k * a.scale;
    *dv = v;
}

/* The same rows become 0: atomics add to them. */
KERNEL(ZERO_NAME, tess_gpu_sum_args, D, 8)
{
    const int head = BLOCK / a.lists.tokens_k, row = BLOCK % a.lists.tokens_k;
    ((float *)(head_rows(&a.dk, a.lists.heads, head) + (i64)row * a.dk.s))[THREAD] = 0.0f;
    ((float *)(head_rows(&a.dv, a.lists.heads, head) + (i64)row * a.dv.s))[THREAD] = 0.0f;
}
#endif
#undef NAME
#undef ZERO_NAME
