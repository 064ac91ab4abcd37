/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_select.h - exactly the K units of largest projected scores, ascending, 16 groups at a time.
 *
 * Equal scores go to the lowest index, NaN ranks below everything, -0 equals +0. A score is a float
 * product of up to 16 PARTS dims: both sides are cut into three bf16 parts of 8 bits each, and the
 * six products of parts that matter are m16n8k16 over 8 units. No score is stored: each pass
 * computes them again, by the same instructions, so to the same bits. As ordered integers:
 *
 *   1. Scores of 512 units give each group a range that holds the K-th largest score with near
 *      certainty: quantiles of the sample, four standard deviations to both sides.
 *   2. A pass counts what is above the range, and in 256 intervals of it. The K-th is in one of
 *      them. If it holds more than 128 scores, or the sample was unlucky, the range is set anew and
 *      the pass done again.
 *   3. A pass collects the scores of that interval in shared memory, and finds the K-th.
 *   4. A pass writes the indices.
 *
 * A block: 16 groups of a head; each of its warps has a contiguous share of the units. Cost: three
 * passes and 512 / n_k of one; if all scores of a group are equal, five passes.
 */
#include "gpu_gather.h"

#ifndef TESS_GPU_SELECT_H
#define TESS_GPU_SELECT_H

#define SELECT_THREADS 128
#define SELECT_BYTES 33728 /* of a select_state */

#if !defined(TESS_GPU_TABLE)
enum { SELECT_WARPS = 4, SELECT_SAMPLE = 512, SELECT_MEMBERS = 128 };

/* Of the 16 groups of a block, in shared memory. */
typedef struct {
    union {
        u32 sample[16][SELECT_SAMPLE];
        struct {
            u32 bins[16][256];
            u32 value[16][SELECT_MEMBERS];
            int unit[16][SELECT_MEMBERS];
        } pass;
    } u;
    u32 low[16], high[16];         /* the range, both ends in it */
    u32 above[16], members[16];    /* scores above the range; collected from it */
    u32 limit[16];                 /* the K-th score */
    int equals[16];                /* how many scores equal to it are selected */
    u32 greater[SELECT_WARPS][16]; /* scores above the range, then above the limit */
    u32 same[SELECT_WARPS][16];    /* scores in the range, then equal to the limit */
    int found[16];                 /* the range is small enough */
} select_state;

typedef char select_bytes[sizeof(select_state) == SELECT_BYTES ? 1 : -1];

/* Integers in the order of the floats; NaN is 0, below -infinity. */
FN u32 ordered_bits(float x)
{
    if (!(x == x))
        return 0u;
    const u32 b = as_bits(x + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

/* x and y as three pairs of bf16, whose sum is theirs. */
FN void cut_pair(u32 part[3], float x, float y)
{
    FOR (i, 3) {
        part[i] = pack_bf16(x, y);
        x -= low_bf16(part[i]);
        y -= high_bf16(part[i]);
    }
}

FN void load_pair(u32 part[3], const u8 *row, int at, int rank, int exists)
{
    const float *const x = (const float *)row + at;
    cut_pair(part, exists && at < rank ? x[0] : 0.0f, exists && at + 1 < rank ? x[1] : 0.0f);
}

/* The interval of the range that holds the K-th score: by one thread for each group. */
FN void narrow_range(select_state *st, int g, int wanted)
{
    const u32 low = st->low[g], high = st->high[g];
    int shift = 0, left = wanted - (int)st->above[g], d = 255;
    while ((high - low) >> shift > 255u)
        shift++;
    if (left <= 0) { /* the range is too low */
        st->low[g] = high + 1u;
        st->high[g] = 0xffffffffu;
        return;
    }
    for (; d >= 0 && (int)st->u.pass.bins[g][d] < left; d--)
        left -= (int)st->u.pass.bins[g][d];
    if (d < 0) { /* too high */
        st->low[g] = 0u;
        st->high[g] = low - 1u;
        return;
    }
    const u32 from = low + ((u32)d << shift), to = from + ((1u << shift) - 1u);
    st->low[g] = from;
    st->high[g] = to < from || to > high ? high : to;
    st->found[g] = (int)st->u.pass.bins[g][d] <= SELECT_MEMBERS || st->low[g] == st->high[g];
}

/* The K-th score from what was collected, and the counts of each warp against it. */
FN void find_limit(select_state *st, int g, int wanted, int share)
{
    const int m = (int)st->members[g];
    int above = 0;
    for (int w = 0; w < SELECT_WARPS; w++)
        above += (int)st->greater[w][g];
    st->limit[g] = st->low[g];
    st->equals[g] = wanted - above;
    if (st->low[g] == st->high[g])
        return;
    for (int i = 0; i < m; i++) {
        const u32 x = st->u.pass.value[g][i];
        int more = 0, equal = 0;
        for (int j = 0; j < m; j++) {
            more += st->u.pass.value[g][j] > x;
            equal += st->u.pass.value[g][j] == x;
        }
        if (above + more < wanted && wanted <= above + more + equal) {
            st->limit[g] = x;
            st->equals[g] = wanted - above - more;
            break;
        }
    }
    for (int w = 0; w < SELECT_WARPS; w++)
        st->same[w][g] = 0u;
    for (int i = 0; i < m; i++) {
        const int w = (st->u.pass.unit[g][i] >> 3) / share;
        st->greater[w][g] += st->u.pass.value[g][i] > st->limit[g];
        st->same[w][g] += st->u.pass.value[g][i] == st->limit[g];
    }
}
#endif
#endif

#define NAME JOIN(select_r, RANK)

#if defined(TESS_GPU_TABLE)
TESS_GPU_TABLE(NAME, TESS_GPU_SELECT, any, RANK, 16, SELECT_THREADS, SELECT_BYTES)
#else
KERNEL(NAME, tess_gpu_select_args, SELECT_THREADS, 3)
{
    SHARED_MEMORY(sh);
    select_state *const st = (select_state *)sh;
    const int tiles = (a.n_q + 15) / 16, head = BLOCK / tiles, group0 = BLOCK % tiles * 16;
    const int quad = LANE >> 2, t = LANE & 3, wanted = a.keep[head];
    if (wanted <= 0)
        return;
    const u8 *const kh = head_rows(&a.k, a.heads, head), *const qh = head_rows(&a.q, a.heads, head);
    u32 x[PARTS][4][3];
    FOR (c, PARTS)
        FOR (i, 4) {
            const int r = group0 + quad + 8 * (i & 1), exists = r < a.n_q;
            load_pair(x[c][i], qh + (i64)(exists ? r : 0) * a.q.s, 16 * c + 2 * t + 8 * (i >> 1),
                      a.rank, exists);
        }
    const int all = (a.n_k + 7) / 8, share = (all + SELECT_WARPS - 1) / SELECT_WARPS;
    const int tile0 = WARP * share, tile1 = min_int(all, tile0 + share);

#define MULTIPLY_PARTS(u, v)                                                                       \
    {                                                                                              \
        const u32 a_[4] = {x[p_][0][u], x[p_][1][u], x[p_][2][u], x[p_][3][u]};                    \
        MMA_BF16(c_, a_, b_[0][v], b_[1][v]);                                                      \
    }
/* Ordered scores of 8 units: s[2 h + e] is of group quad + 8 h and unit 8 tile + 2 t + e, which is
 * there if has[e]. Small products first. */
#define SCORES(tile)                                                                               \
    u32 s[4];                                                                                      \
    int has[2];                                                                                    \
    {                                                                                              \
        const int unit_ = 8 * (tile) + quad, exists_ = unit_ < a.n_k;                              \
        const u8 *const row_ = kh + (i64)(exists_ ? unit_ : 0) * a.k.s;                            \
        float c_[4] = {0.0f, 0.0f, 0.0f, 0.0f};                                                    \
        FOR (p_, PARTS) {                                                                          \
            u32 b_[2][3];                                                                          \
            FOR (i_, 2)                                                                            \
                load_pair(b_[i_], row_, 16 * p_ + 2 * t + 8 * i_, a.rank, exists_);                \
            MULTIPLY_PARTS(1, 1)                                                                   \
            MULTIPLY_PARTS(2, 0)                                                                   \
            MULTIPLY_PARTS(0, 2)                                                                   \
            MULTIPLY_PARTS(1, 0)                                                                   \
            MULTIPLY_PARTS(0, 1)                                                                   \
            MULTIPLY_PARTS(0, 0)                                                                   \
        }                                                                                          \
        FOR (e_, 4)                                                                                \
            s[e_] = ordered_bits(c_[e_]);                                                          \
        FOR (e_, 2)                                                                                \
            has[e_] = 8 * (tile) + 2 * t + e_ < a.n_k;                                             \
    }

    if (THREAD < 16) {
        st->low[THREAD] = 0u;
        st->high[THREAD] = 0xffffffffu;
        st->found[THREAD] = 0;
    }
    if (a.n_k >= 4 * SELECT_SAMPLE) { /* every n-th 8 units, at an offset that wanders */
        const int step = all / (SELECT_SAMPLE / 8);
        for (int n = WARP; n < SELECT_SAMPLE / 8; n += SELECT_WARPS) {
            SCORES(n * step + n * 7 % step)
            FOR (e, 4)
                st->u.sample[quad + 8 * (e >> 1)][8 * n + 2 * t + (e & 1)] = has[e & 1] ? s[e] : 0u;
        }
        SYNC();
        const int g = THREAD >> 3;
        const float p = (float)wanted / (float)a.n_k, mean = SELECT_SAMPLE * p;
        const float apart = 4.0f * sqrtf(mean * (1.0f - p)) + 3.0f;
        FOR (end,
             2) { /* the largest value that `rank` of the sample reach: both ends by bisection */
            const int rank = (int)(end == 0 ? mean + apart : mean - apart);
            u32 value = 0u;
            for (int bit = 31; bit >= 0; bit--) {
                const u32 trial = value | 1u << bit;
                float n = 0.0f;
                for (int i = THREAD & 7; i < SELECT_SAMPLE; i += 8)
                    n += st->u.sample[g][i] >= trial ? 1.0f : 0.0f;
                n += SHFL_XOR(n, 1);
                n += SHFL_XOR(n, 2);
                n += SHFL_XOR(n, 4);
                if ((int)n >= rank)
                    value = trial;
            }
            if ((THREAD & 7) == 0 && end == 0)
                st->low[g] = rank < SELECT_SAMPLE ? value : 0u;
            if ((THREAD & 7) == 0 && end == 1)
                st->high[g] = rank > 0 ? value : 0xffffffffu;
        }
    }
    for (int more = 1; more;) {
        SYNC();
        for (int i = THREAD; i < 16 * 256; i += SELECT_THREADS)
            st->u.pass.bins[i >> 8][i & 255] = 0u;
        if (THREAD < 16)
            st->above[THREAD] = 0u;
        SYNC();
        u32 low[2], size[2], above[2] = {0u, 0u};
        int shift[2] = {0, 0}, open[2];
        FOR (h, 2) {
            low[h] = st->low[quad + 8 * h];
            size[h] = st->high[quad + 8 * h] - low[h];
            open[h] = !st->found[quad + 8 * h];
            while (size[h] >> shift[h] > 255u)
                shift[h]++;
        }
        for (int n = tile0; n < tile1; n++) {
            SCORES(n)
            FOR (e, 4) {
                const int h = e >> 1;
                const u32 d = s[e] - low[h];
                if (has[e & 1] && open[h] && s[e] >= low[h]) {
                    if (d > size[h])
                        above[h]++;
                    else
                        add_shared(&st->u.pass.bins[quad + 8 * h][d >> shift[h]], 1u);
                }
            }
        }
        FOR (h, 2)
            add_shared(&st->above[quad + 8 * h], above[h]);
        SYNC();
        if (THREAD < 16 && !st->found[THREAD])
            narrow_range(st, THREAD, wanted);
        SYNC();
        more = 0;
        FOR (g, 16)
            more |= !st->found[g];
    }
    if (THREAD < 16)
        st->members[THREAD] = 0u;
    if (THREAD < 16 * SELECT_WARPS)
        st->greater[THREAD >> 4][THREAD & 15] = st->same[THREAD >> 4][THREAD & 15] = 0u;
    SYNC();
    {
        u32 above[2] = {0u, 0u}, inside[2] = {0u, 0u};
        for (int n = tile0; n < tile1; n++) {
            SCORES(n)
            FOR (e, 4) {
                const int g = quad + 8 * (e >> 1);
                const u32 low = st->low[g], high = st->high[g];
                above[e >> 1] += has[e & 1] && s[e] > high;
                if (has[e & 1] && s[e] >= low && s[e] <= high) {
                    inside[e >> 1]++;
                    const u32 at = low == high ? 0u : add_shared(&st->members[g], 1u);
                    if (low != high && at < SELECT_MEMBERS) {
                        st->u.pass.value[g][at] = s[e];
                        st->u.pass.unit[g][at] = 8 * n + 2 * t + (e & 1);
                    }
                }
            }
        }
        FOR (h, 2) {
            add_shared(&st->greater[WARP][quad + 8 * h], above[h]);
            add_shared(&st->same[WARP][quad + 8 * h], inside[h]);
        }
    }
    SYNC();
    if (THREAD < 16)
        find_limit(st, THREAD, wanted, share);
    SYNC();
    u32 limit[2];
    int greater[2] = {0, 0}, same[2] = {0, 0}, take[2];
    FOR (h, 2) {
        const int g = quad + 8 * h;
        limit[h] = st->limit[g];
        take[h] = st->equals[g];
        for (int w = 0; w < WARP; w++) {
            greater[h] += (int)st->greater[w][g];
            same[h] += (int)st->same[w][g];
        }
    }
    for (int n = tile0; n < tile1; n++) {
        SCORES(n)
        FOR (h, 2) {
            const int g = group0 + quad + 8 * h;
            const int g0 = has[0] && s[2 * h] > limit[h], g1 = has[1] && s[2 * h + 1] > limit[h];
            const int e0 = has[0] && s[2 * h] == limit[h], e1 = has[1] && s[2 * h + 1] == limit[h];
            /* Both counts in one number, summed over the four lanes of the group. */
            const float own = (float)(g0 + g1) + 64.0f * (float)(e0 + e1);
            const float next = SHFL_XOR(own, 1), pair = own + next, other = SHFL_XOR(pair, 2);
            const int before = (int)((t & 1 ? next : 0.0f) + (t & 2 ? other : 0.0f));
            const int sum = (int)(pair + other);
            int at = greater[h] + (before & 63), equal = same[h] + (before >> 6);
            if (g < a.n_q) {
                int *const to = a.indices + a.offsets[(i64)head * a.n_q + g];
                if (g0 || (e0 && equal < take[h]))
                    to[at + min_int(equal, take[h])] = 8 * n + 2 * t;
                at += g0;
                equal += e0;
                if (g1 || (e1 && equal < take[h]))
                    to[at + min_int(equal, take[h])] = 8 * n + 2 * t + 1;
            }
            greater[h] += sum & 63;
            same[h] += sum >> 6;
        }
    }
#undef SCORES
#undef MULTIPLY_PARTS
}
#endif
#undef NAME
