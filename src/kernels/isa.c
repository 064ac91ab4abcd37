/* SPDX-License-Identifier: Apache-2.0 */
/* isa.c - which instruction sets this build has, and why this machine cannot run one.
 *
 * The compiler's CPU test asks the operating system as well (XGETBV), so a set that the kernel or
 * the hypervisor masks is not offered. AMX is asked for by arch_prctl; CPUID leaf 0x1D, which some
 * hypervisors hide although the tiles work, is only reported.
 */
#include "kernels.h"

#include "tess_config.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- what each set asks of the machine ---------------------------------------------------- */

static const char *missing_nothing(void)
{
    return "";
}

#if defined(__x86_64__)
static const char *missing_avx2(void)
{
    if (!__builtin_cpu_supports("avx2"))
        return "the CPU or the operating system offers no AVX2";
    if (!__builtin_cpu_supports("fma"))
        return "the CPU or the operating system offers no FMA";
    return "";
}

static const char *missing_avx512(void)
{
    if (!__builtin_cpu_supports("avx512f"))
        return "the CPU or the operating system offers no AVX-512F";
    if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return "the CPU has AVX-512F but not all of AVX-512 BW, DQ and VL";
    return missing_avx2();
}

static const char *missing_neon(void)
{
    return "an instruction set of arm64 processors";
}
#else
static const char *missing_avx2(void)
{
    return "an instruction set of x86-64 processors";
}

static const char *missing_avx512(void)
{
    return missing_avx2();
}

static const char *missing_neon(void)
{
#ifdef TESS_HAVE_ISA_NEON
    return "";
#else
    return "an instruction set of arm64 processors";
#endif
}
#endif

/* ---- the list -------------------------------------------------------------------------------- */

/* NULL for a set that was not built. */
#ifdef TESS_HAVE_ISA_AVX512
extern const tess__kernels tess__kernels_avx512;
#define KERNELS_AVX512 &tess__kernels_avx512
#else
#define KERNELS_AVX512 NULL
#endif
#ifdef TESS_HAVE_ISA_AVX2
extern const tess__kernels tess__kernels_avx2;
#define KERNELS_AVX2 &tess__kernels_avx2
#else
#define KERNELS_AVX2 NULL
#endif
#ifdef TESS_HAVE_ISA_NEON
extern const tess__kernels tess__kernels_neon;
#define KERNELS_NEON &tess__kernels_neon
#else
#define KERNELS_NEON NULL
#endif
#ifdef TESS_HAVE_ISA_WIDE
extern const tess__kernels tess__kernels_wide;
#define KERNELS_WIDE &tess__kernels_wide
#else
#define KERNELS_WIDE NULL
#endif
extern const tess__kernels tess__kernels_base;

const tess__isa tess__isas[] = {
    {"avx512", KERNELS_AVX512, 64, 0, missing_avx512},
    {"avx2", KERNELS_AVX2, 32, 0, missing_avx2},
    {"neon", KERNELS_NEON, 16, 0, missing_neon},
    {"base", &tess__kernels_base, 16, 0, missing_nothing},
    {"wide", KERNELS_WIDE, 64, 1, missing_nothing},
};
const int tess__isa_total = sizeof tess__isas / sizeof tess__isas[0];

const char *tess__isa_missing(int i)
{
    const char *why = tess__isas[i].missing();
    if (!*why && !tess__isas[i].kernels)
        return "not in this build";
    return why;
}

#if defined(__x86_64__)
tess_amx tess__amx_state(void)
{
    enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return TESS_AMX_ABSENT;
    const unsigned tile = 1u << 24, bf16 = 1u << 22;
    if ((d & tile) == 0 || (d & bf16) == 0)
        return TESS_AMX_ABSENT;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA) != 0)
        return TESS_AMX_REFUSED;
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a == 0)
        return TESS_AMX_PALETTE_HIDDEN;
    return TESS_AMX_READY;
}
#else
tess_amx tess__amx_state(void)
{
    return TESS_AMX_ABSENT;
}
#endif
