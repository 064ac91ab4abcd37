/* SPDX-License-Identifier: Apache-2.0 */
/* dialect.h - the names in which a kernel differs between the GPU and the emulation.
 *
 * A kernel is C that says what the threads of a block do, 32 lanes to a warp, and it is compiled
 * twice: by nvcc, for which this header has instructions, and by a C compiler, for which
 * tests/gpu/emulation.h gives the same names and must be included before.
 *
 *   KERNEL(name, args, threads, blocks)   blocks: at least so many fit on a multiprocessor
 *   SHARED_MEMORY(sh)       the block's dynamic shared memory, 128-byte aligned
 *   THREAD, BLOCK, LANE, WARP             numbers; blocks have one dimension
 *   SYNC(), SYNC_WARP(), SYNC_COLUMN(column, warps)
 *   cp16(sh, from, yes), cp_commit(), CP_WAIT(n)   16 bytes, or zeros, to shared memory; deferred
 *   LDSM4(r, sh), LDSM4T(r, sh)           ldmatrix: four 8x8 matrices of 16-bit elements
 *   MMA_BF16(c, a, b0, b1), MMA_FP16      m16n8k16, row by column, sums in float
 *   SHFL_XOR(x, mask), WARP_ANY(x)        collectives, as are the five above: all lanes come
 *   FOR(i, n)                             an unrolled loop
 *
 * Fragments of m16n8k16, lane l: A has rows l/4 and l/4 + 8 (registers 0, 1; 2, 3 for columns 8..),
 * columns 2(l%4) and + 1; B the same of its transpose; C rows l/4 (0, 1) and l/4 + 8 (2, 3).
 */
#ifndef TESS_DIALECT_H
#define TESS_DIALECT_H

#include "gpu_args.h"

#if defined(__CUDACC__)
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;

#define KERNEL(name, args, threads, blocks)                                                        \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const args a)
#define FN static __device__ __forceinline__
#define RESTRICT __restrict__
#define FOR(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
#define SHARED_MEMORY(sh) extern __shared__ __align__(128) u8 sh[]
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define SYNC() __syncthreads()
#define SYNC_WARP() __syncwarp()
/* bar.sync with a constant number: a register would make ptxas reserve all 16 barriers. */
#define SYNC_COLUMN(column, warps)                                                                 \
    do {                                                                                           \
        if ((warps) == 1)                                                                          \
            __syncwarp();                                                                          \
        else if ((column) == 0)                                                                    \
            asm volatile("bar.sync 1, %0;" ::"n"(32 * (warps)) : "memory");                        \
        else                                                                                       \
            asm volatile("bar.sync 2, %0;" ::"n"(32 * (warps)) : "memory");                        \
    } while (0)

FN u32 shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}
FN void cp16(u8 *sh, const u8 *from, int yes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(sh)),
                 "l"(from), "r"(yes ? 16 : 0)
                 : "memory");
}
FN void cp_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define CP_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

#define LDSM_(r, sh, trans)                                                                        \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];"          \
                 : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                          \
                 : "r"(shared_address(sh))                                                         \
                 : "memory")
#define LDSM4(r, sh) LDSM_(r, sh, "")
#define LDSM4T(r, sh) LDSM_(r, sh, ".trans")
#define MMA_(c, a, b0, b1, type)                                                                   \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                            \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                      \
                 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                          \
                 : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))
#define MMA_BF16(c, a, b0, b1) MMA_(c, a, b0, b1, "bf16")
#define MMA_FP16(c, a, b0, b1) MMA_(c, a, b0, b1, "f16")
#define SHFL_XOR(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
#define WARP_ANY(x) __any_sync(0xffffffffu, x)

FN float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
FN float log2_fast(float x)
{
    return __log2f(x);
}
FN float as_float(u32 x)
{
    return __uint_as_float(x);
}
FN u32 as_bits(float x)
{
    return __float_as_uint(x);
}
FN float max_float(float x, float y)
{
    return fmaxf(x, y);
}
/* Two floats, rounded to nearest, the first in the low half. */
FN u32 pack_bf16(float low, float high)
{
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
FN u32 pack_fp16(float low, float high)
{
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
FN float low_fp16(u32 x)
{
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(y) : "r"(x));
    return y;
}
FN float high_fp16(u32 x)
{
    float y;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(y) : "r"(x));
    return y;
}
FN void add_atomic(float *p, float x)
{
    atomicAdd(p, x);
}
FN u32 add_shared(u32 *p, u32 x)
{
    return atomicAdd(p, x);
}
FN void store_pair(float *p, float x, float y)
{
    *(float2 *)p = make_float2(x, y);
}
#elif !defined(TESS_EMULATION_H)
#error "a kernel is compiled by nvcc, or after tests/gpu/emulation.h"
#endif

FN float low_bf16(u32 x)
{
    return as_float(x << 16);
}
FN float high_bf16(u32 x)
{
    return as_float(x & 0xffff0000u);
}
FN int min_int(int x, int y)
{
    return x < y ? x : y;
}

#define LANE (THREAD & 31)
#define WARP (THREAD >> 5)
#define MINUS_INFINITY as_float(0xff800000u)
#define LOG2E 1.44269504088896341f
#define LN2 0.693147180559945309f

/* By the type of q, k and v, which a file of variants defines: bf16 or fp16. */
#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)
#define PACK(low, high) JOIN(pack_, TYPE)(low, high)
#define LOW(x) JOIN(low_, TYPE)(x)
#define HIGH(x) JOIN(high_, TYPE)(x)
#define MMA_bf16 MMA_BF16
#define MMA_fp16 MMA_FP16
#define MMA(c, a, b0, b1) JOIN(MMA_, TYPE)(c, a, b0, b1)

#endif
