/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the loops that carry the work, one source for every instruction set.
 *
 * What lives here: single-threaded loops over plain pointers and sizes. They cannot fail, allocate
 * nothing and know nothing of the rooms above, which is why this is the lowest room: even base
 * stands on it (conversions, the FMA probe). What comes in: pointers the caller has checked. What
 * goes out: numbers in the caller's buffers.
 *
 * Every file but isa.c is compiled once per instruction set with -DTESS_ISA=<name>; TESS_K(f) is
 * then f_<name>, and table.c gathers them into one tess__kernels. To add a kernel: one file, one
 * member here, one line in table.c. To add an instruction set: one line in CMakeLists.txt and one
 * in isa.c.
 */
#ifndef TESS_KERNELS_H
#define TESS_KERNELS_H

#include "tessera/base.h"

#define TESS_PASTE_(a, b) a##_##b
#define TESS_PASTE(a, b) TESS_PASTE_(a, b)
#define TESS_K(name) TESS_PASTE(name, TESS_ISA)

/* What scan.c finds in a chunk. m2 is the sum of squared deviations from the mean. */
enum { TESS_SCAN_CHUNK = 8192 }; /* elements, at most */
typedef struct {
    int64_t nan, inf, zero, finite;
    double min, max; /* of what is not NaN; infinity and -infinity if all is */
    double mean, m2; /* of what is finite; 0 if nothing is */
} tess__scan;

typedef struct {
    /* peak.c */
    int64_t (*fma)(int64_t rounds, float *sink); /* returns the flop done */
    float (*read)(const float *x, size_t n);     /* sum of x, for its memory traffic */
    /* half.c; n elements, no overlap */
    void (*f32_from_bf16)(float *dst, const uint16_t *src, size_t n);
    void (*bf16_from_f32)(uint16_t *dst, const float *src, size_t n);
    void (*f32_from_f16)(float *dst, const uint16_t *src, size_t n);
    void (*f16_from_f32)(uint16_t *dst, const float *src, size_t n);
    /* scan.c; n is 0..TESS_SCAN_CHUNK */
    void (*scan_f32)(const float *x, size_t n, tess__scan *scan);
    void (*scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan);
    void (*scan_f16)(const uint16_t *x, size_t n, tess__scan *scan);
    void (*scan_f64)(const double *x, size_t n, tess__scan *scan);
} tess__kernels;

typedef struct {
    const char *name;
    const tess__kernels *kernels; /* NULL: not in this build */
    int bytes;                    /* of a vector */
    int test_only;
    const char *(*missing)(void); /* why this machine cannot run it; "" if it can */
} tess__isa;

/* The instruction sets, best first. */
extern const tess__isa tess__isas[];
extern const int tess__isa_total;

/* Why isas[i] cannot be chosen; "" if it can. */
const char *tess__isa_missing(int i);

/* The instruction set extensions that matter here and may be used, space-separated. */
void tess__cpu_features(char *text, size_t size);

/* What the operating system lets this process do with AMX; asks for permission once. */
tess_amx tess__amx_state(void);

#endif
