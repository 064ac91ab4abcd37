/* SPDX-License-Identifier: Apache-2.0 */
/* emulation.h - kernels on a CPU: every thread of a block is a coroutine, a barrier is a yield.
 *
 * The names of src/gpu/kernels/dialect.h, for a C compiler. A collective of a warp is done when its
 * last lane comes, for all 32; lanes that come to different lines are an error. cp16 fills its
 * target with NaN patterns at once, and the 16 bytes arrive when the thread waits. Between barriers
 * the warps of a block run ahead of each other, in an order that a seed chooses, and so do blocks.
 *
 *   emulation_run(&(emulation_launch){kernel, &args, blocks, threads, shared_bytes, seed});
 *
 * What it cannot see: rounding inside a tensor core and of exp2, the memory model, speed.
 */
#ifndef TESS_EMULATION_H
#define TESS_EMULATION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef long long i64;

typedef struct {
    void (*kernel)(const void *args);
    const void *args;
    i64 blocks;
    int threads, shared_bytes;
    u32 seed; /* of the order of blocks, warps and lanes; 0 and 1: ascending and descending */
} emulation_launch;

/* Counted over all launches since emulation_reset(). */
typedef struct {
    i64 mma, ldmatrix, conflicts, copied_bytes;
    i64 stored_bytes; /* by store_pair and add_atomic, to shared memory too */
} emulation_counts;

/* NULL, or what was wrong: a thread that waits for ever, lanes that part, a copy that is never
 * waited for. */
const char *emulation_run(const emulation_launch *launch);
emulation_counts emulation_read(void);
void emulation_reset(void);
float emulation_fp16(u16 x); /* the value of a half */

extern int emulation_thread, emulation_block;
u8 *emulation_shared(void);
void emulation_sync(int barrier, int threads); /* 0: the block; 1..15: named; 16 + w: warp w */
void emulation_sync_block(void);
void emulation_copy(u8 *sh, const u8 *from, int yes);
void emulation_stored(int bytes);
void emulation_commit(void);
void emulation_wait(int groups);
void emulation_ldmatrix(u32 r[4], const u8 *row, int transposed, int line);
void emulation_mma(float c[4], const u32 a[4], u32 b0, u32 b1, int fp16, int line);
u32 emulation_shuffle(u32 x, int mask, int line);
int emulation_any(int x, int line);

#define KERNEL(name, args, threads, blocks) KERNEL_(name, args)
#define KERNEL_(name, args)                                                                        \
    static void name##_body(const args a);                                                         \
    static void name(const void *p)                                                                \
    {                                                                                              \
        args copy;                                                                                 \
        memcpy(&copy, p, sizeof copy);                                                             \
        name##_body(copy);                                                                         \
    }                                                                                              \
    static void name##_body(const args a)
#define FN static inline __attribute__((unused))
#define RESTRICT restrict
#define FOR(i, n) for (int i = 0; i < (n); i++)
#define SHARED_MEMORY(sh) u8 *const sh = emulation_shared()
#define THREAD emulation_thread
#define BLOCK emulation_block
#define SYNC() emulation_sync_block()
#define SYNC_WARP() emulation_sync(16 + (emulation_thread >> 5), 32)
#define SYNC_COLUMN(column, warps)                                                                 \
    emulation_sync((warps) == 1 ? 16 + (emulation_thread >> 5) : 1 + (column), 32 * (warps))
#define cp16 emulation_copy
#define cp_commit emulation_commit
#define CP_WAIT(n) emulation_wait(n)
#define LDSM4(r, sh) emulation_ldmatrix(r, sh, 0, __LINE__)
#define LDSM4T(r, sh) emulation_ldmatrix(r, sh, 1, __LINE__)
#define MMA_BF16(c, a, b0, b1) emulation_mma(c, a, b0, b1, 0, __LINE__)
#define MMA_FP16(c, a, b0, b1) emulation_mma(c, a, b0, b1, 1, __LINE__)
#define SHFL_XOR(x, mask) as_float(emulation_shuffle(as_bits(x), mask, __LINE__))
#define WARP_ANY(x) emulation_any(x, __LINE__)

FN float as_float(u32 x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
FN u32 as_bits(float x)
{
    u32 y;
    memcpy(&y, &x, sizeof y);
    return y;
}
FN float exp2_fast(float x)
{
    return exp2f(x);
}
FN float log2_fast(float x)
{
    return log2f(x);
}
FN float max_float(float x, float y)
{
    return fmaxf(x, y);
}
FN u32 round_bf16(float x)
{
    const u32 b = as_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u)
        return b >> 16 | 0x40u;
    return (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
/* By scaling: a half has 10 bits below its exponent, and none of 2^-24 below the normal ones. */
FN u32 round_fp16(float x)
{
    const u32 sign = as_bits(x) >> 16 & 0x8000u;
    const float size = fabsf(x);
    if (size != size)
        return sign | 0x7e00u;
    if (size >= 65520.0f)
        return sign | 0x7c00u;
    if (size < 0x1p-14f)
        return sign | (u32)lrintf(size * 0x1p24f);
    const u32 b = as_bits(size), rounded = b + 0xfffu + (b >> 13 & 1u);
    return sign | ((rounded >> 13) - (112u << 10));
}
FN u32 pack_bf16(float low, float high)
{
    return round_bf16(low) | round_bf16(high) << 16;
}
FN u32 pack_fp16(float low, float high)
{
    return round_fp16(low) | round_fp16(high) << 16;
}
FN float low_fp16(u32 x)
{
    return emulation_fp16((u16)x);
}
FN float high_fp16(u32 x)
{
    return emulation_fp16((u16)(x >> 16));
}
FN void add_atomic(float *p, float x)
{
    *p += x;
    emulation_stored(4);
}
FN u32 add_shared(u32 *p, u32 x)
{
    const u32 old = *p;
    *p = old + x;
    return old;
}
FN void store_pair(float *p, float x, float y)
{
    p[0] = x;
    p[1] = y;
    emulation_stored(8);
}

#endif
