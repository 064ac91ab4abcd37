/* SPDX-License-Identifier: Apache-2.0 */
/* isa.c - which instruction sets this build has, and why this machine cannot run one.
 *
 * The compiler's CPU test asks the operating system as well (XGETBV), so a set that the kernel or
 * the hypervisor masks is not offered. AMX is asked for by arch_prctl; CPUID leaf 0x1D, which some
 * hypervisors hide although the tiles work, is only reported.
 */
#include "kernels.h"

#include "tess_config.h"

#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- what each set asks of the machine --------------------------------------------------- */

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
    /* Some compilers' CPU test does not know F16C by name. */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_F16C) == 0)
        return "the CPU offers no F16C";
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

static const char *missing_avx512_bf16(void)
{
    unsigned a, b, c, d;
    if (*missing_avx512())
        return missing_avx512();
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5))
        return "the CPU offers no AVX512-BF16";
    return "";
}

static const char *missing_amx(void)
{
    const tess_amx state = tess__amx_state();
    if (state == TESS_AMX_ABSENT)
        return "the CPU or the hypervisor offers no AMX with bf16";
    if (state == TESS_AMX_REFUSED)
        return "the operating system does not grant the state of AMX tiles";
    return missing_avx512_bf16();
}

static const char *missing_neon(void)
{
    return "an instruction set of arm64 processors";
}

static const char *missing_neon_bf16(void)
{
    return missing_neon();
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

static const char *missing_avx512_bf16(void)
{
    return missing_avx2();
}

static const char *missing_amx(void)
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

static const char *missing_neon_bf16(void)
{
#ifdef __aarch64__
    if (!(getauxval(AT_HWCAP2) & HWCAP2_BF16))
        return "the CPU or the operating system offers no BF16";
#endif
    return missing_neon();
}
#endif

/* ---- the list ---------------------------------------------------------------------------- */

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
extern const tess__products tess__products_wide_tiles, tess__products_wide_pairs;
#define PRODUCTS_WIDE_TILES &tess__products_wide_tiles
#define PRODUCTS_WIDE_PAIRS &tess__products_wide_pairs
#else
#define KERNELS_WIDE NULL
#define PRODUCTS_WIDE_TILES NULL
#define PRODUCTS_WIDE_PAIRS NULL
#endif
#ifdef TESS_HAVE_ISA_AMX
extern const tess__products tess__products_amx;
#define KERNELS_AMX &tess__kernels_avx512
#define PRODUCTS_AMX &tess__products_amx
#else
#define KERNELS_AMX NULL
#define PRODUCTS_AMX NULL
#endif
#ifdef TESS_HAVE_ISA_AVX512_BF16
extern const tess__products tess__products_avx512_bf16;
#define KERNELS_AVX512_BF16 &tess__kernels_avx512
#define PRODUCTS_AVX512_BF16 &tess__products_avx512_bf16
#else
#define KERNELS_AVX512_BF16 NULL
#define PRODUCTS_AVX512_BF16 NULL
#endif
#ifdef TESS_HAVE_ISA_NEON_BF16
extern const tess__products tess__products_neon_bf16;
#define KERNELS_NEON_BF16 &tess__kernels_neon
#define PRODUCTS_NEON_BF16 &tess__products_neon_bf16
#else
#define KERNELS_NEON_BF16 NULL
#define PRODUCTS_NEON_BF16 NULL
#endif
extern const tess__kernels tess__kernels_base;

const tess__isa tess__isas[] = {
    {"avx512", KERNELS_AVX512, NULL, 64, 0, missing_avx512},
    {"avx2", KERNELS_AVX2, NULL, 32, 0, missing_avx2},
    {"neon", KERNELS_NEON, NULL, 16, 0, missing_neon},
    {"base", &tess__kernels_base, NULL, 16, 0, missing_nothing},
    {"wide", KERNELS_WIDE, NULL, 64, 1, missing_nothing},
    {"amx", KERNELS_AMX, PRODUCTS_AMX, 64, 0, missing_amx},
    {"avx512-bf16", KERNELS_AVX512_BF16, PRODUCTS_AVX512_BF16, 64, 0, missing_avx512_bf16},
    {"neon-bf16", KERNELS_NEON_BF16, PRODUCTS_NEON_BF16, 16, 0, missing_neon_bf16},
    {"wide-tiles", KERNELS_WIDE, PRODUCTS_WIDE_TILES, 64, 1, missing_nothing},
    {"wide-pairs", KERNELS_WIDE, PRODUCTS_WIDE_PAIRS, 64, 1, missing_nothing},
};
const int tess__isa_total = sizeof tess__isas / sizeof tess__isas[0];

const char *tess__isa_missing(int i)
{
    const char *why = tess__isas[i].missing();
    if (!*why && !tess__isas[i].kernels)
        return "not in this build";
    return why;
}

/* ---- features ---------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *word)
{
    const size_t used = strlen(text);
    if (used + strlen(word) + 2 <= size)
        snprintf(text + used, size - used, "%s%s", used ? " " : "", word);
}

#if defined(__x86_64__)
void tess__cpu_features(char *text, size_t size)
{
    /* The builtin takes literals only. */
    const struct {
        const char *name;
        int has;
    } features[] = {
        {"sse4.2", __builtin_cpu_supports("sse4.2")},
        {"avx", __builtin_cpu_supports("avx")},
        {"avx2", __builtin_cpu_supports("avx2")},
        {"fma", __builtin_cpu_supports("fma")},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512dq", __builtin_cpu_supports("avx512dq")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
        {"avx512bf16", __builtin_cpu_supports("avx512bf16")},
        {"amx", tess__amx_state() >= TESS_AMX_PALETTE_HIDDEN},
    };
    text[0] = '\0';
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].has)
            append(text, size, features[i].name);
}

tess_amx tess__amx_state(void)
{
    enum { REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */, XTILEDATA = 18 };
    const unsigned tile = 1u << 24, bf16 = 1u << 22;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & tile) || !(d & bf16))
        return TESS_AMX_ABSENT;
    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, XTILEDATA) != 0)
        return TESS_AMX_REFUSED;
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a == 0)
        return TESS_AMX_PALETTE_HIDDEN;
    return TESS_AMX_READY;
}
#else
void tess__cpu_features(char *text, size_t size)
{
    text[0] = '\0';
#if defined(__aarch64__)
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    const struct {
        const char *name;
        int has;
    } features[] = {
        {"asimd", (hwcap & HWCAP_ASIMD) != 0},
        {"asimdhp", (hwcap & HWCAP_ASIMDHP) != 0},
        {"sve", (hwcap & HWCAP_SVE) != 0},
        {"bf16", (hwcap2 & HWCAP2_BF16) != 0},
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].has)
            append(text, size, features[i].name);
#endif
}

tess_amx tess__amx_state(void)
{
    return TESS_AMX_ABSENT;
}
#endif
