/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h - the small vector layer: vf is VL floats, and the few operations the kernels need.
 *
 * GNU vector extensions, so that one source serves every width: TESS_VEC bytes, set by the build.
 * A product followed by a sum becomes a fused multiply-add where the instruction set has one
 * (-ffp-contract=fast). Everything is static inline: no copy made for one instruction set can be
 * picked by the linker for another.
 */
#ifndef TESS_VEC_H
#define TESS_VEC_H

#include <stdint.h>
#include <string.h>

enum { VL = TESS_VEC / (int)sizeof(float) };

typedef float vf __attribute__((vector_size(TESS_VEC)));
typedef int32_t vi __attribute__((vector_size(TESS_VEC)));

static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf vf_set1(float x)
{
    return x - (vf){0};
}

static inline float vf_sum(vf v)
{
    float s = 0.0f;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

#endif
