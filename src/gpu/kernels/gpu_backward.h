/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_backward.h - gradients of a group of queries, and of the keys it shares, in one pass.
 *
 *   S = scale q k^T   P = exp(S - lse)   dP = dout v^T   dS = P (dP - delta)
 *   delta = row sums of dout o, less dlse
 *   dq = scale dS k   rows of dv = P^T dout   rows of dk = scale dS^T q
 *
 * A block takes BM = 16 WM queries of one group, a warp 16 of them; dq stays in registers. Chunks
 * of BN keys come as in the forward pass. P and dS go through shared memory, from which the
 * transposed products take them. By the mode of the call the rows of dk and dv
 *   ordered   go to a workspace, in the order of the lists; gpu_rows.h adds and scales them,
 *   atomic    are added to dk and dv,
 *   queries   are not computed: gpu_key_blocks.h does it.
 *
 * Flop: 10 D for each pair (6 D without rows). Bytes, for each key and BM queries: 4 D of k and v
 * read, 8 D of rows written; ordered reads them once more, atomic adds them in the L2 cache.
 */
#include "gpu_gather.h"

#define BM (16 * WM)
#define THREADS (32 * WM)
#define P_ROW (2 * BN + 16) /* bytes of a row of P and of dS: padded against bank conflicts */
#define STAGE (2 * BN * ROW)
#define AT_DOUT (BM * ROW)
#define AT_STAGES (2 * BM * ROW)
#define AT_P (AT_STAGES + 2 * STAGE)
#define AT_DS (AT_P + BM * P_ROW)
#define AT_INDEX (AT_DS + BM * P_ROW)
#define SHARED_BYTES (AT_INDEX + 2 * BN * 4)
#define KEY_TILES (BN / 16)
#define PARTS (WM / KEY_TILES) /* warps that share 16 keys: each has a part of the row */
#define PART (D / 8 / PARTS)   /* eights of elements in it */
#define NAME JOIN(JOIN(JOIN(JOIN(JOIN(backward_d, D), _g), GROUP), _), TYPE)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_BACKWARD, TYPE, D, BM, THREADS, SHARED_BYTES)
#else
#if WM % KEY_TILES != 0 || D % (16 * PARTS) != 0
#error "warps do not divide a chunk's keys and a row"
#endif

KERNEL(NAME, tess_gpu_backward_args, THREADS, 1)
{
    SHARED_MEMORY(sh);
    const int number = a.list0 + BLOCK / a.tiles, tile = BLOCK % a.tiles;
    const int head = number / a.lists.n_q, group = number % a.lists.n_q;
    const int row0 = a.lists.bounds_q[group] + tile * BM;
    const int rows = min_int(BM, a.lists.bounds_q[group + 1] - row0);
    if (rows <= 0)
        return;
    const key_list list = find_list(&a.lists, number);
    const int heads = a.lists.heads, piece = THREAD % PIECES * 16;
    const u8 *const qh = head_rows(&a.q, heads, head), *const oh = head_rows(&a.o, heads, head);
    const u8 *const gh = head_rows(&a.dout, heads, head); /* the gradient of o */
    const u8 *const kh = head_rows(&a.k, heads, head) + piece;
    const u8 *const vh = head_rows(&a.v, heads, head) + piece;
    int *const index = (int *)(sh + AT_INDEX);
    const int chunks = (list.rows + BN - 1) / BN;

    FOR (i, BM * PIECES / THREADS) {
        const int r = THREAD / PIECES + i * (THREADS / PIECES), yes = r < rows;
        const i64 row = row0 + (yes ? r : 0);
        cp16(sh + SWIZZLE(r, THREAD % PIECES), qh + row * a.q.s + piece, yes);
        cp16(sh + AT_DOUT + SWIZZLE(r, THREAD % PIECES), gh + row * a.dout.s + piece, yes);
    }
#define PUT_INDEX(slot, chunk)                                                                     \
    if (THREAD < BN)                                                                               \
    index[(slot)*BN + THREAD] = list_row(&a.lists, list, (chunk)*BN + THREAD)
#define GATHER(slot)                                                                               \
    FOR (i_, BN * PIECES / THREADS) {                                                              \
        const int r_ = THREAD / PIECES + i_ * (THREADS / PIECES);                                  \
        const int row_ = index[(slot)*BN + r_], from_ = row_ < 0 ? 0 : row_;                       \
        u8 *const to_ = sh + AT_STAGES + (slot)*STAGE + SWIZZLE(r_, THREAD % PIECES);              \
        cp16(to_, kh + (i64)from_ * a.k.s, row_ >= 0);                                             \
        cp16(to_ + BN * ROW, vh + (i64)from_ * a.v.s, row_ >= 0);                                  \
    }
    PUT_INDEX(0, 0);
    SYNC();
    if (chunks > 0)
        GATHER(0)
    cp_commit();
    PUT_INDEX(1, 1);

    /* Of the two rows of this lane: lse in base 2, and delta. */
    float lse2[2], delta[2];
    FOR (h, 2) {
        const int r = 16 * WARP + (LANE >> 2) + 8 * h;
        const i64 row = row0 + (r < rows ? r : 0), at = (i64)head * a.lists.tokens_q + row;
        const u32 *const x = (const u32 *)(oh + row * a.o.s);
        const u32 *const y = (const u32 *)(gh + row * a.dout.s);
        float sum = 0.0f;
        for (int i = LANE & 3; i < D / 2; i += 4)
            sum += LOW(x[i]) * LOW(y[i]) + HIGH(x[i]) * HIGH(y[i]);
        sum += SHFL_XOR(sum, 1);
        sum += SHFL_XOR(sum, 2);
        delta[h] = r < rows ? sum - (a.dlse ? a.dlse[at] : 0.0f) : 0.0f;
        lse2[h] = r < rows ? a.lse[at] * LOG2E : 0.0f;
        if (r >= rows || lse2[h] == MINUS_INFINITY)
            lse2[h] = 1e30f; /* every exponential is then 0 */
    }
    float acc[D / 8][4];
    FOR (j, D / 8)
        FOR (e, 4)
            acc[j][e] = 0.0f;
    const int key_tile = WARP % KEY_TILES, part = WARP / KEY_TILES;
    const int at_own = (16 * WARP + (LANE >> 2)) * P_ROW + 4 * (LANE & 3);
    const float scale2 = a.scale * LOG2E;
    /* Where this lane's first key is in the workspace, of the next chunk; 8 keys further are always
     * as far, as units of ordered lists have 1, 2, 4 or 8 rows. */
    const i64 rows_8 = (i64)a.tiles * 8 * D;
    const int n0 = 16 * key_tile + (LANE >> 2), in_unit = n0 & ((1 << a.lists.shift) - 1);
    const i64 entry = list.first - a.entry0 + (n0 >> a.lists.shift);
    i64 at_rows = ((entry * a.tiles + tile) << a.lists.shift | in_unit) * D + 8 * PART * part +
                  2 * (LANE & 3);
    CP_WAIT(0);
    SYNC();

    for (int s = 0; s < chunks; s++) {
        const int slot = s & 1, left = list.rows - s * BN;
        if (s + 1 < chunks)
            GATHER(1 - slot)
        cp_commit();
        const u8 *const ks = sh + AT_STAGES + slot * STAGE, *const vs = ks + BN * ROW;
        float p[BN / 8][4], t[BN / 8][4];
        FOR (j, BN / 8)
            FOR (e, 4)
                p[j][e] = t[j][e] = 0.0f;
        FOR (d, D / 16) {
            u32 x[4], b[4];
            LDSM4(x, sh + A_TILE(16 * WARP, 2 * d));
            FOR (j, KEY_TILES) {
                LDSM4(b, ks + B_TILE(16 * j, 2 * d));
                MMA(p[2 * j], x, b[0], b[1]);
                MMA(p[2 * j + 1], x, b[2], b[3]);
            }
            LDSM4(x, sh + AT_DOUT + A_TILE(16 * WARP, 2 * d));
            FOR (j, KEY_TILES) {
                LDSM4(b, vs + B_TILE(16 * j, 2 * d));
                MMA(t[2 * j], x, b[0], b[1]);
                MMA(t[2 * j + 1], x, b[2], b[3]);
            }
        }
        if (left < BN) /* the last chunk */
            FOR (j, BN / 8)
                FOR (e, 4)
                    if (8 * j + 2 * (LANE & 3) + (e & 1) >= left)
                        p[j][e] = MINUS_INFINITY;
        u32 ds[BN / 8][2];
        FOR (j, BN / 8) {
            FOR (e, 4) {
                p[j][e] = exp2_fast(p[j][e] * scale2 - lse2[e >> 1]);
                t[j][e] = p[j][e] * (t[j][e] - delta[e >> 1]);
            }
            FOR (h, 2)
                ds[j][h] = PACK(t[j][2 * h], t[j][2 * h + 1]);
        }
        if (a.mode != TESS_GPU_QUERIES)
            FOR (j, BN / 8)
                FOR (h, 2) {
                    const int at = at_own + 8 * h * P_ROW + 16 * j;
                    *(u32 *)(sh + AT_P + at) = PACK(p[j][2 * h], p[j][2 * h + 1]);
                    *(u32 *)(sh + AT_DS + at) = ds[j][h];
                }
        FOR (j, KEY_TILES) {
            const u32 x[4] = {ds[2 * j][0], ds[2 * j][1], ds[2 * j + 1][0], ds[2 * j + 1][1]};
            FOR (d, D / 16) {
                u32 b[4];
                LDSM4T(b, ks + A_TILE(16 * j, 2 * d));
                MMA(acc[2 * d], x, b[0], b[1]);
                MMA(acc[2 * d + 1], x, b[2], b[3]);
            }
        }
        SYNC();
        /* dv = P^T dout, then dk = dS^T q: 16 keys and a part of their rows. */
        if (a.mode != TESS_GPU_QUERIES)
            FOR (which, 2) {
                const u8 *const from = sh + (which ? AT_DS : AT_P);
                const u8 *const with = sh + (which ? 0 : AT_DOUT);
                float c[PART][4];
                FOR (j, PART)
                    FOR (e, 4)
                        c[j][e] = 0.0f;
                FOR (i, WM) { /* 16 queries */
                    u32 x[4];
                    LDSM4T(x, from + (16 * i + (LANE & 7) + ((LANE >> 4) << 3)) * P_ROW +
                                  32 * key_tile + 16 * ((LANE >> 3) & 1));
                    FOR (d, PART / 2) {
                        u32 b[4];
                        LDSM4T(b, with + A_TILE(16 * i, part * PART + 2 * d));
                        MMA(c[2 * d], x, b[0], b[1]);
                        MMA(c[2 * d + 1], x, b[2], b[3]);
                    }
                }
                FOR (h, 2) {
                    const int key = 16 * key_tile + (LANE >> 2) + 8 * h;
                    if (key < left && a.mode == TESS_GPU_ORDERED) {
                        float *const to = (which ? a.row_dk : a.row_dv) + at_rows + h * rows_8;
                        FOR (j, PART)
                            store_pair(to + 8 * j, c[j][2 * h], c[j][2 * h + 1]);
                    } else if (key < left) {
                        const tess_gpu_rows *const g = which ? &a.dk : &a.dv;
                        float *const to = (float *)(head_rows(g, heads, head) +
                                                    (i64)index[slot * BN + key] * g->s) +
                                          8 * PART * part;
                        FOR (j, PART)
                            FOR (e, 2)
                                add_atomic(to + 8 * j + 2 * (LANE & 3) + e,
                                           c[j][2 * h + e] * (which ? a.scale : 1.0f));
                    }
                }
            }
        at_rows += BN / 8 * rows_8;
        SYNC(); /* all have read this stage, its index, P and dS */
        PUT_INDEX(slot, s + 2);
        CP_WAIT(0);
        SYNC();
    }
    u8 *const to = (u8 *)head_rows(&a.dq, heads, head);
    FOR (h, 2) {
        const int r = 16 * WARP + (LANE >> 2) + 8 * h;
        if (r < rows)
            FOR (j, D / 8)
                store_pair((float *)(to + (i64)(row0 + r) * a.dq.s) + 8 * j + 2 * (LANE & 3),
                           acc[j][2 * h] * a.scale, acc[j][2 * h + 1] * a.scale);
    }
#undef PUT_INDEX
#undef GATHER
}
#endif
#undef BM
#undef THREADS
#undef P_ROW
#undef STAGE
#undef AT_DOUT
#undef AT_STAGES
#undef AT_P
#undef AT_DS
#undef AT_INDEX
#undef SHARED_BYTES
#undef KEY_TILES
#undef PARTS
#undef PART
#undef NAME
