/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_key_blocks.h - dk and dv of a block of keys, for units of 16 rows or more.
 *
 * A block owns 16 WK keys of one unit and walks the groups that have the unit, in ascending order,
 * in pieces of 32 queries: no workspace, no atomics, the same bits on every run. Warps stand in WQ
 * columns of WK: a warp has 16 keys and every column its own queries of the BQ in a stage; at the
 * end the columns' sums are added, in order. Few keys so leave enough warps for a multiprocessor. S
 * and dP are computed transposed, keys by queries: P^T and dS^T are then operands in registers.
 *
 *   S^T = scale k q^T   P^T = exp(S^T - lse)   dP^T = v dout^T   dS^T = P^T (dP^T - delta)
 *   dv += P^T dout   dk += scale dS^T q
 *
 * lse and delta of the queries come from gpu_delta.h. Flop: 8 D for each pair. Bytes: 4 D for each
 * query and 16 WK keys.
 */
#include "gpu_gather.h"

#define BK (16 * WK)
#define THREADS (32 * WK * WQ)
#define TILES (BQ / 16 / WQ) /* of 16 queries, for each warp */
#define STAGE (2 * BQ * ROW) /* rows of q, rows of dout */
#define AT_V (BK * ROW)
#define AT_STAGES (2 * BK * ROW)
#define AT_LSE (AT_STAGES + 2 * STAGE)
#define LEFT (16 * (D + 4)) /* floats of a warp's dk that it leaves for column 0 */
#define SHARED_BYTES (AT_LSE + 2 * 2 * BQ * 4)
#define NAME JOIN(JOIN(JOIN(JOIN(JOIN(key_blocks_d, D), _k), KEYS), _), TYPE)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_KEY_BLOCKS, TYPE, D, BK, THREADS, SHARED_BYTES)
#else
#if BQ % (16 * WQ) != 0 || BQ > THREADS || (WQ - 1) * WK * LEFT * 2 * 4 > 2 * STAGE
#error "warps do not divide the queries of a stage, or their sums do not fit into the stages"
#endif

KERNEL(NAME, tess_gpu_keys_args, THREADS, 2)
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
/* The next queries of the walk, zeros when there are no more. */
#define GATHER(slot)                                                                               \
    FOR (piece_, BQ / 32) {                                                                        \
        if (query >= end && entry < last) {                                                        \
            const int g_ = a.group[base + entry++];                                                \
            query = a.lists.bounds_q[g_];                                                          \
            end = a.lists.bounds_q[g_ + 1];                                                        \
        }                                                                                          \
        FOR (i_, 32 * PIECES / THREADS) {                                                          \
            const int r_ = THREAD / PIECES + i_ * (THREADS / PIECES), yes_ = query + r_ < end;     \
            const i64 row_ = yes_ ? query + r_ : 0;                                                \
            u8 *const to_ =                                                                        \
                sh + AT_STAGES + (slot)*STAGE + SWIZZLE(32 * piece_ + r_, THREAD % PIECES);        \
            cp16(to_, qh + row_ * a.q.s, yes_);                                                    \
            cp16(to_ + BQ * ROW, gh + row_ * a.dout.s, yes_);                                      \
        }                                                                                          \
        if (WARP == piece_) {                                                                      \
            const int yes_ = query + LANE < end;                                                   \
            const float l_ = yes_ ? lse[query + LANE] : MINUS_INFINITY;                            \
            float *const to_ = sh_lse + (slot)*2 * BQ + 32 * piece_ + LANE;                        \
            to_[0] = l_ == MINUS_INFINITY ? 1e30f : l_ * LOG2E;                                    \
            to_[BQ] = yes_ ? delta[query + LANE] : 0.0f;                                           \
        }                                                                                          \
        query += 32;                                                                               \
    }
#define ANY_LEFT (query < end || entry < last)
    const int wk = WARP % WK, wq = WARP / WK, last = first[1];
    int entry = first[0], query = 0, end = 0, here = ANY_LEFT;
    if (here)
        GATHER(0)
    cp_commit();
    float dk[D / 8][4], dv[D / 8][4];
    FOR (j, D / 8)
        FOR (e, 4)
            dk[j][e] = dv[j][e] = 0.0f;
    CP_WAIT(0);
    SYNC();

    for (int slot = 0; here; slot = 1 - slot) {
        here = ANY_LEFT;
        if (here)
            GATHER(1 - slot)
        cp_commit();
        const u8 *const qs = sh + AT_STAGES + slot * STAGE + wq * TILES * 16 * ROW;
        const u8 *const gs = qs + BQ * ROW;
        const float *const l2 = sh_lse + slot * 2 * BQ + wq * TILES * 16;
        float p[2 * TILES][4], t[2 * TILES][4];
        FOR (j, 2 * TILES)
            FOR (e, 4)
                p[j][e] = t[j][e] = 0.0f;
        FOR (d, D / 16) {
            u32 x[4], b[4];
            LDSM4(x, sh + A_TILE(16 * wk, 2 * d));
            FOR (j, TILES) {
                LDSM4(b, qs + B_TILE(16 * j, 2 * d));
                MMA(p[2 * j], x, b[0], b[1]);
                MMA(p[2 * j + 1], x, b[2], b[3]);
            }
            LDSM4(x, sh + AT_V + A_TILE(16 * wk, 2 * d));
            FOR (j, TILES) {
                LDSM4(b, gs + B_TILE(16 * j, 2 * d));
                MMA(t[2 * j], x, b[0], b[1]);
                MMA(t[2 * j + 1], x, b[2], b[3]);
            }
        }
        FOR (j, 2 * TILES)
            FOR (e, 4) {
                const int n = 8 * j + 2 * (LANE & 3) + (e & 1);
                p[j][e] = exp2_fast(p[j][e] * (a.scale * LOG2E) - l2[n]);
                t[j][e] = p[j][e] * (t[j][e] - l2[BQ + n]);
            }
        FOR (j, TILES) {
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
#if WQ > 1
    float *const left = (float *)(sh + AT_STAGES);
    FOR (h, 2)
        FOR (j, D / 8) {
            const int at = ((LANE >> 2) + 8 * h) * (D + 4) + 8 * j + 2 * (LANE & 3);
            float *const own = left + ((wq - 1) * WK + wk) * 2 * LEFT + at;
            if (wq > 0) {
                store_pair(own, dk[j][2 * h], dk[j][2 * h + 1]);
                store_pair(own + LEFT, dv[j][2 * h], dv[j][2 * h + 1]);
            }
        }
    SYNC();
    if (wq > 0)
        return;
    for (int c = 0; c < WQ - 1; c++)
        FOR (h, 2)
            FOR (j, D / 8)
                FOR (e, 2) {
                    const int at = ((LANE >> 2) + 8 * h) * (D + 4) + 8 * j + 2 * (LANE & 3) + e;
                    const float *const other = left + (c * WK + wk) * 2 * LEFT + at;
                    dk[j][2 * h + e] += other[0];
                    dv[j][2 * h + e] += other[LEFT];
                }
#endif
    u8 *const to_k = (u8 *)head_rows(&a.dk, heads, head);
    u8 *const to_v = (u8 *)head_rows(&a.dv, heads, head);
    FOR (h, 2) {
        const int r = 16 * wk + (LANE >> 2) + 8 * h;
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
#undef ANY_LEFT
}
#endif
#undef BK
#undef THREADS
#undef STAGE
#undef AT_V
#undef AT_STAGES
#undef AT_LSE
#undef LEFT
#undef TILES
#undef SHARED_BYTES
#undef NAME
