/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_key_blocks.h - dk and dv of a block of keys, for units of 16 rows or more.
 *
 * A block owns 16 WM keys of one unit, a warp 16 of them, and walks the groups that have the unit,
 * 32 queries at a time, in ascending order: no workspace, no atomics, the same bits on every run. S
 * and dP are computed transposed, keys by queries: P^T and dS^T are then operands in registers.
 *
 *   S^T = scale k q^T   P^T = exp(S^T - lse)   dP^T = v dout^T   dS^T = P^T (dP^T - delta)
 *   dv += P^T dout   dk += scale dS^T q
 *
 * lse and delta of the queries come from gpu_delta.h. Flop: 8 D for each pair. Bytes: 4 D for each
 * query and 16 WM keys.
 */
#include "gpu_gather.h"

#define BK (16 * WM)
#define BQ 32
#define THREADS (32 * WM)
#define STAGE (2 * BQ * ROW) /* rows of q, rows of dout */
#define AT_V (BK * ROW)
#define AT_STAGES (2 * BK * ROW)
#define AT_LSE (AT_STAGES + 2 * STAGE)
#define SHARED_BYTES (AT_LSE + 2 * 2 * BQ * 4)
#define NAME JOIN(JOIN(JOIN(JOIN(JOIN(key_blocks_d, D), _k), KEYS), _), TYPE)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_KEY_BLOCKS, TYPE, D, BK, THREADS, SHARED_BYTES)
#else

KERNEL(NAME, tess_gpu_keys_args, THREADS, 1)
{
    SHARED_MEMORY(sh);
    const int n_k = a.lists.n_k, heads = a.lists.heads, blocks = (a.lists.tokens_k + BK - 1) / BK;
    const int head = BLOCK / blocks, row0 = BLOCK % blocks * BK, unit = row0 >> a.lists.shift;
    const int keys = min_int(BK, a.lists.tokens_k - row0);
    const int *const first = a.first + (i64)head * (n_k + 1) + unit;
    const i64 base = a.lists.offsets[(i64)head * a.lists.n_q];
    const int piece = THREAD % PIECES * 16;
    const u8 *const qh = head_rows(&a.q, heads, head) + piece;
    const u8 *const gh = head_rows(&a.dout, heads, head) + piece;
    const u8 *const kh = head_rows(&a.k, heads, head) + piece;
    const u8 *const vh = head_rows(&a.v, heads, head) + piece;
    const float *const lse = a.lse + (i64)head * a.lists.tokens_q;
    const float *const delta = a.delta + (i64)head * a.lists.tokens_q;
    float *const sh_lse = (float *)(sh + AT_LSE); /* of 32 queries, then their delta; two stages */

    FOR (i, BK * PIECES / THREADS) {
        const int r = THREAD / PIECES + i * (THREADS / PIECES), yes = r < keys;
        const i64 row = row0 + (yes ? r : 0);
        cp16(sh + SWIZZLE(r, THREAD % PIECES), kh + row * a.k.s, yes);
        cp16(sh + AT_V + SWIZZLE(r, THREAD % PIECES), vh + row * a.v.s, yes);
    }
/* The next 32 queries of the walk; none when `entry` is beyond the last. */
#define GATHER(slot)                                                                               \
    if (entry < first[1]) {                                                                        \
        FOR (i_, BQ * PIECES / THREADS) {                                                          \
            const int r_ = THREAD / PIECES + i_ * (THREADS / PIECES), yes_ = query + r_ < end;     \
            const i64 row_ = query + (yes_ ? r_ : 0);                                              \
            u8 *const to_ = sh + AT_STAGES + (slot)*STAGE + SWIZZLE(r_, THREAD % PIECES);          \
            cp16(to_, qh + row_ * a.q.s, yes_);                                                    \
            cp16(to_ + BQ * ROW, gh + row_ * a.dout.s, yes_);                                      \
        }                                                                                          \
        if (THREAD < BQ) {                                                                         \
            const int yes_ = query + THREAD < end;                                                 \
            const float l_ = yes_ ? lse[query + THREAD] : MINUS_INFINITY;                          \
            sh_lse[(slot)*2 * BQ + THREAD] = l_ == MINUS_INFINITY ? 1e30f : l_ * LOG2E;            \
            sh_lse[(slot)*2 * BQ + BQ + THREAD] = yes_ ? delta[query + THREAD] : 0.0f;             \
        }                                                                                          \
    }                                                                                              \
    cp_commit()
#define FIND_GROUP()                                                                               \
    if (entry < first[1]) {                                                                        \
        const int g_ = a.group[base + entry];                                                      \
        query = a.lists.bounds_q[g_];                                                              \
        end = a.lists.bounds_q[g_ + 1];                                                            \
    }
    int entry = first[0], query = 0, end = 0;
    FIND_GROUP()
    GATHER(0);
    float dk[D / 8][4], dv[D / 8][4];
    FOR (j, D / 8)
        FOR (e, 4)
            dk[j][e] = dv[j][e] = 0.0f;
    CP_WAIT(0);
    SYNC();

    for (int slot = 0; entry < first[1]; slot = 1 - slot) {
        query += BQ;
        if (query >= end) {
            entry++;
            FIND_GROUP()
        }
        GATHER(1 - slot);
        const u8 *const qs = sh + AT_STAGES + slot * STAGE, *const gs = qs + BQ * ROW;
        const float *const l2 = sh_lse + slot * 2 * BQ;
        float p[BQ / 8][4], t[BQ / 8][4];
        FOR (j, BQ / 8)
            FOR (e, 4)
                p[j][e] = t[j][e] = 0.0f;
        FOR (d, D / 16) {
            u32 x[4], b[4];
            LDSM4(x, sh + A_TILE(16 * WARP, 2 * d));
            FOR (j, BQ / 16) {
                LDSM4(b, qs + B_TILE(16 * j, 2 * d));
                MMA(p[2 * j], x, b[0], b[1]);
                MMA(p[2 * j + 1], x, b[2], b[3]);
            }
            LDSM4(x, sh + AT_V + A_TILE(16 * WARP, 2 * d));
            FOR (j, BQ / 16) {
                LDSM4(b, gs + B_TILE(16 * j, 2 * d));
                MMA(t[2 * j], x, b[0], b[1]);
                MMA(t[2 * j + 1], x, b[2], b[3]);
            }
        }
        FOR (j, BQ / 8)
            FOR (e, 4) {
                const int n = 8 * j + 2 * (LANE & 3) + (e & 1);
                p[j][e] = exp2_fast(p[j][e] * (a.scale * LOG2E) - l2[n]);
                t[j][e] = p[j][e] * (t[j][e] - l2[BQ + n]);
            }
        FOR (j, BQ / 16) {
            u32 x[4], y[4];
            FOR (e, 4) {
                x[e] = PACK(p[2 * j + (e >> 1)][2 * (e & 1)], p[2 * j + (e >> 1)][2 * (e & 1) + 1]);
                y[e] = PACK(t[2 * j + (e >> 1)][2 * (e & 1)], t[2 * j + (e >> 1)][2 * (e & 1) + 1]);
            }
            FOR (d, D / 16) {
                u32 b[4];
                LDSM4T(b, gs + A_TILE(16 * j, 2 * d));
                MMA(dv[2 * d], x, b[0], b[1]);
                MMA(dv[2 * d + 1], x, b[2], b[3]);
                LDSM4T(b, qs + A_TILE(16 * j, 2 * d));
                MMA(dk[2 * d], y, b[0], b[1]);
                MMA(dk[2 * d + 1], y, b[2], b[3]);
            }
        }
        CP_WAIT(0);
        SYNC(); /* the next stage is there, and all have read this one */
    }
    u8 *const to_k = (u8 *)head_rows(&a.dk, heads, head);
    u8 *const to_v = (u8 *)head_rows(&a.dv, heads, head);
    FOR (h, 2) {
        const int r = 16 * WARP + (LANE >> 2) + 8 * h;
        if (r < keys)
            FOR (j, D / 8) {
                const int at = 8 * j + 2 * (LANE & 3);
                store_pair((float *)(to_k + (i64)(row0 + r) * a.dk.s) + at, dk[j][2 * h] * a.scale,
                           dk[j][2 * h + 1] * a.scale);
                store_pair((float *)(to_v + (i64)(row0 + r) * a.dv.s) + at, dv[j][2 * h],
                           dv[j][2 * h + 1]);
            }
    }
#undef GATHER
#undef FIND_GROUP
}
#endif
#undef BK
#undef BQ
#undef THREADS
#undef STAGE
#undef AT_V
#undef AT_STAGES
#undef AT_LSE
#undef SHARED_BYTES
#undef NAME
