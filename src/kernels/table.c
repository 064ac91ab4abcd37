/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the kernels of one instruction set, gathered into its table. */
#include "kernels.h"

int64_t TESS_K(tess__fma)(int64_t rounds, float *sink);
float TESS_K(tess__read)(const float *x, size_t n);
void TESS_K(tess__f32_from_bf16)(float *dst, const uint16_t *src, size_t n);
void TESS_K(tess__bf16_from_f32)(uint16_t *dst, const float *src, size_t n);
void TESS_K(tess__f32_from_f16)(float *dst, const uint16_t *src, size_t n);
void TESS_K(tess__f16_from_f32)(uint16_t *dst, const float *src, size_t n);
void TESS_K(tess__scan_f32)(const float *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f64)(const double *x, size_t n, tess__scan *scan);

extern const tess__kernels TESS_K(tess__kernels);
const tess__kernels TESS_K(tess__kernels) = {
    .fma = TESS_K(tess__fma),
    .read = TESS_K(tess__read),
    .f32_from_bf16 = TESS_K(tess__f32_from_bf16),
    .bf16_from_f32 = TESS_K(tess__bf16_from_f32),
    .f32_from_f16 = TESS_K(tess__f32_from_f16),
    .f16_from_f32 = TESS_K(tess__f16_from_f32),
    .scan_f32 = TESS_K(tess__scan_f32),
    .scan_bf16 = TESS_K(tess__scan_bf16),
    .scan_f16 = TESS_K(tess__scan_f16),
    .scan_f64 = TESS_K(tess__scan_f64),
};
