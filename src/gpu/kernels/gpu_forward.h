/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_forward.h - attention of a group of queries over the list of keys it shares, forward.
 *
 *   o = softmax(scale q k^T, over the list) v      lse = log of the sum of exp(scale q k^T)
 *
 * A block takes BM = 16 MT WM queries of one group. Its warps stand in WN columns of WM: each
 * column takes every WN-th chunk of BN keys, with a softmax of its own, and column 0 merges them at
 * the end. A chunk's rows of K and V are gathered by cp.async through the list, into one of two
 * stages per column, while the column computes on the other. P goes from the fragments of Q K^T to
 * those of P V in registers, rounded to TYPE.
 *
 * Flop: 4 D for each pair. Bytes: 4 D for each key and BM queries, so 1 / BM of a byte per flop.
 * Variants define D, TYPE, MT, WM, WN, BN, BLOCKS (per multiprocessor) and GROUP, which names them.
 */
#include "gpu_gather.h"

#define BM (16 * MT * WM)
#define THREADS (32 * WM * WN)
#define STAGE (2 * BN * ROW) /* rows of K, rows of V */
#define AT_INDEX (BM * ROW + 2 * WN * STAGE)
#define AT_OWN (AT_INDEX + 2 * WN * BN * 4)
#define SHARED_BYTES (AT_OWN + 16)
#define NAME JOIN(JOIN(JOIN(JOIN(JOIN(forward_d, D), _g), GROUP), _), TYPE)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_FORWARD, TYPE, D, BM, THREADS, SHARED_BYTES)
#else
#if (WN - 1) * (BM * (D + 4) * 4) > 2 * WN * STAGE
#error "what columns leave for the merge does not fit into the stages"
#endif
#if BN > 32 * WM || BN * PIECES % (32 * WM) != 0
#error "the threads of a column do not divide a chunk"
#endif

KERNEL(NAME, tess_gpu_forward_args, THREADS, BLOCKS)
{
    SHARED_MEMORY(sh);
    const int number = BLOCK / a.tiles, head = number / a.lists.n_q, group = number % a.lists.n_q;
    const int row0 = a.lists.bounds_q[group] + BLOCK % a.tiles * BM;
    const int rows = min_int(BM, a.lists.bounds_q[group + 1] - row0);
    if (rows <= 0)
        return;
    const key_list list = find_list(&a.lists, number);
    const u8 *const qh = head_rows(&a.q, a.lists.heads, head);

    const int column = WARP / WM, wm = WARP % WM;
    const int thread = THREAD - column * 32 * WM; /* of the column */
    const u8 *const kh = head_rows(&a.k, a.lists.heads, head) + thread % PIECES * 16;
    const u8 *const vh = head_rows(&a.v, a.lists.heads, head) + thread % PIECES * 16;
    u8 *const stages = sh + BM * ROW + column * 2 * STAGE;
    int *const index = (int *)(sh + AT_INDEX) + column * 2 * BN;
    const int chunks = (list.rows + BN - 1) / BN, steps = (chunks + WN - 1) / WN;

    FOR (i, (BM * PIECES + THREADS - 1) / THREADS) {
        const int n = THREAD + i * THREADS, r = n / PIECES, p = n % PIECES, yes = r < rows;
        if (BM * PIECES % THREADS == 0 || r < BM)
            cp16(sh + SWIZZLE(r, p), qh + (i64)(row0 + (yes ? r : 0)) * a.q.s + p * 16, yes);
    }

#define PUT_INDEX(slot, chunk)                                                                     \
    if (thread < BN)                                                                               \
    index[(slot)*BN + thread] = list_row(&a.lists, list, (chunk)*BN + thread)
/* Each thread copies one piece of every (32 WM / PIECES)-th row. */
#define GATHER(slot)                                                                               \
    FOR (i_, BN * PIECES / (32 * WM)) {                                                            \
        const int r_ = thread / PIECES + i_ * (32 * WM / PIECES);                                  \
        const int row_ = index[(slot)*BN + r_], from_ = row_ < 0 ? 0 : row_;                       \
        u8 *const to_ = stages + (slot)*STAGE + SWIZZLE(r_, thread % PIECES);                      \
        cp16(to_, kh + (i64)from_ * a.k.s, row_ >= 0);                                             \
        cp16(to_ + BN * ROW, vh + (i64)from_ * a.v.s, row_ >= 0);                                  \
    }

    /* What is used again at the end waits in shared memory: registers are scarce in the loop. */
    int *const own = (int *)(sh + AT_OWN);
    if (THREAD == 0) {
        own[0] = head;
        own[1] = row0;
        own[2] = rows;
    }
    float acc[MT][D / 8][4], m[MT][2], l[MT][2];
    FOR (i, MT) {
        FOR (j, D / 8)
            FOR (e, 4)
                acc[i][j][e] = 0.0f;
        m[i][0] = m[i][1] = -1e30f;
        l[i][0] = l[i][1] = 0.0f;
    }
    PUT_INDEX(0, column);
    SYNC_COLUMN(column, WM);
    if (steps > 0)
        GATHER(0)
    cp_commit();
    PUT_INDEX(1, column + WN);
    CP_WAIT(0);
    SYNC();

    for (int s = 0; s < steps; s++) {
        const int slot = s & 1;
        if (s + 1 < steps)
            GATHER(1 - slot)
        cp_commit();
        const u8 *const ks = stages + slot * STAGE, *const vs = ks + BN * ROW;

        float p[MT][BN / 8][4];
        FOR (i, MT)
            FOR (j, BN / 8)
                FOR (e, 4)
                    p[i][j][e] = 0.0f;
        FOR (d, D / 16) {
            u32 x[MT][4];
            FOR (i, MT)
                LDSM4(x[i], sh + A_TILE((wm * MT + i) * 16, 2 * d));
            FOR (j, BN / 16) {
                u32 b[4];
                LDSM4(b, ks + B_TILE(j * 16, 2 * d));
                FOR (i, MT) {
                    MMA(p[i][2 * j], x[i], b[0], b[1]);
                    MMA(p[i][2 * j + 1], x[i], b[2], b[3]);
                }
            }
        }
        const int left = list.rows - (s * WN + column) * BN;
        if (left < BN)
            FOR (j, BN / 8)
                FOR (e, 4)
                    if (8 * j + 2 * (LANE & 3) + (e & 1) >= left)
                        FOR (i, MT)
                            p[i][j][e] = MINUS_INFINITY;
        float fall[MT][2];
        int moved = 0;
        FOR (i, MT)
            FOR (h, 2) {
                float top = p[i][0][2 * h];
                FOR (j, BN / 8)
                    top = max_float(top, max_float(p[i][j][2 * h], p[i][j][2 * h + 1]));
                top = max_float(top, SHFL_XOR(top, 1));
                top = max_float(top, SHFL_XOR(top, 2));
                const float now = max_float(m[i][h], top * a.scale2);
                const float factor = exp2_fast(m[i][h] - now);
                float sum = 0.0f;
                FOR (j, BN / 8)
                    FOR (e, 2) {
                        const float x = exp2_fast(p[i][j][2 * h + e] * a.scale2 - now);
                        p[i][j][2 * h + e] = x;
                        sum += x;
                    }
                m[i][h] = now;
                l[i][h] = l[i][h] * factor + sum;
                fall[i][h] = factor;
                moved |= factor != 1.0f;
            }
        if (WARP_ANY(moved)) /* seldom, once the maxima have settled */
            FOR (i, MT)
                FOR (j, D / 8)
                    FOR (e, 4)
                        acc[i][j][e] *= fall[i][e >> 1];
        FOR (j, BN / 16) {
            u32 x[MT][4];
            FOR (i, MT)
                FOR (e, 4)
                    x[i][e] = PACK(p[i][2 * j + (e >> 1)][2 * (e & 1)],
                                   p[i][2 * j + (e >> 1)][2 * (e & 1) + 1]);
            FOR (d, D / 16) {
                u32 b[4];
                LDSM4T(b, vs + A_TILE(j * 16, 2 * d));
                FOR (i, MT) {
                    MMA(acc[i][2 * d], x[i], b[0], b[1]);
                    MMA(acc[i][2 * d + 1], x[i], b[2], b[3]);
                }
            }
        }
        PUT_INDEX(slot, (s + 2) * WN + column);
        CP_WAIT(0);
        SYNC_COLUMN(column, WM); /* the next stage is there, and all have read this one */
    }

    FOR (i, MT)
        FOR (h, 2) {
            l[i][h] += SHFL_XOR(l[i][h], 1);
            l[i][h] += SHFL_XOR(l[i][h], 2);
        }
#if WN > 1
    SYNC();
    FOR (i, MT)
        FOR (h, 2) {
            const int r = (wm * MT + i) * 16 + (LANE >> 2) + 8 * h;
            float *const area = (float *)(sh + BM * ROW) + ((column - 1) * BM + r) * (D + 4);
            if (column > 0) {
                if ((LANE & 3) == 0) {
                    area[D] = m[i][h];
                    area[D + 1] = l[i][h];
                }
                FOR (j, D / 8)
                    store_pair(area + 8 * j + 2 * (LANE & 3), acc[i][j][2 * h],
                               acc[i][j][2 * h + 1]);
            }
        }
    SYNC();
    if (column > 0)
        return;
    for (int c = 1; c < WN; c++)
        FOR (i, MT)
            FOR (h, 2) {
                const int r = (wm * MT + i) * 16 + (LANE >> 2) + 8 * h;
                const float *const area =
                    (const float *)(sh + BM * ROW) + ((c - 1) * BM + r) * (D + 4);
                const float now = max_float(m[i][h], area[D]);
                const float f0 = exp2_fast(m[i][h] - now), f1 = exp2_fast(area[D] - now);
                m[i][h] = now;
                l[i][h] = l[i][h] * f0 + area[D + 1] * f1;
                FOR (j, D / 8)
                    FOR (e, 2)
                        acc[i][j][2 * h + e] =
                            acc[i][j][2 * h + e] * f0 + area[8 * j + 2 * (LANE & 3) + e] * f1;
            }
#endif
    u8 *const oh = (u8 *)head_rows(&a.o, a.lists.heads, own[0]);
    FOR (i, MT)
        FOR (h, 2) {
            const int r = (wm * MT + i) * 16 + (LANE >> 2) + 8 * h;
            if (r < own[2]) {
                const float inverse = l[i][h] != 0.0f ? 1.0f / l[i][h] : 0.0f;
                u8 *const to = oh + (i64)(own[1] + r) * a.o.s + 4 * (LANE & 3);
                FOR (j, D / 8)
                    *(u32 *)(to + 16 * j) =
                        PACK(acc[i][j][2 * h] * inverse, acc[i][j][2 * h + 1] * inverse);
                if ((LANE & 3) == 0)
                    a.lse[(i64)own[0] * a.lists.tokens_q + own[1] + r] =
                        l[i][h] != 0.0f ? (m[i][h] + log2_fast(l[i][h])) * LN2 : MINUS_INFINITY;
            }
        }
#undef PUT_INDEX
#undef GATHER
}
#endif
#undef BM
#undef THREADS
#undef STAGE
#undef AT_INDEX
#undef AT_OWN
#undef SHARED_BYTES
#undef NAME
