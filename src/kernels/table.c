/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the kernels of one instruction set, gathered into its table. */
#include "kernels.h"

int64_t TESS_K(tess__fma)(int64_t rounds, float *sink);
float TESS_K(tess__read)(const float *x, size_t n);
void TESS_K(tess__attn_forward)(const tess__attn_fwd *job, tess__attn_scratch *w);
void TESS_K(tess__attn_backward)(const tess__attn_bwd *job, tess__attn_scratch *w);
void TESS_K(tess__attn_total)(double *total, const tess__rows *x, int bf16, int dim, int64_t begin,
                              int64_t end, tess__attn_scratch *w);
void TESS_K(tess__attn_sums)(const tess__attn_tile *t, int64_t end, tess__key_cursor *at,
                             double *sums, tess__attn_scratch *w);
void TESS_K(tess__attn_virtual)(const tess__attn_bwd *job, const double *sums, float *dq,
                                int64_t stride_dq, float *start, tess__attn_scratch *w);
void TESS_K(tess__f32_from_bf16)(float *dst, const uint16_t *src, size_t n);
void TESS_K(tess__bf16_from_f32)(uint16_t *dst, const float *src, size_t n);
void TESS_K(tess__f32_from_f16)(float *dst, const uint16_t *src, size_t n);
void TESS_K(tess__f16_from_f32)(uint16_t *dst, const float *src, size_t n);
void TESS_K(tess__scan_f32)(const float *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_bf16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f16)(const uint16_t *x, size_t n, tess__scan *scan);
void TESS_K(tess__scan_f64)(const double *x, size_t n, tess__scan *scan);
void TESS_K(tess__panel_pack)(float *panels, const float *k, int64_t stride, int n, int dim);
void TESS_K(tess__score)(float *s, int64_t ld, const float *q, int64_t stride, int rows,
                         const float *panels, int64_t n_panels, int dim);
void TESS_K(tess__lse_step)(float *m, float *l, const float *s, int64_t ld, int rows, int n,
                            float scale2);
void TESS_K(tess__mass_step)(float *mass, const float *s, int64_t ld, int rows, int n, float scale2,
                             const float *lse2);
void TESS_K(tess__lse_columns)(float *m, float *l, const float *s, int64_t ld, int cols, int n,
                               float scale2);
void TESS_K(tess__kl_columns)(float *loss, float *student, const float *teacher, int64_t ld,
                              int cols, int n, const tess__kl *kl);
void TESS_K(tess__dot_columns)(float *tt, float *ts, float *ss, const float *student,
                               const float *teacher, int64_t ld, int cols, int n);
void TESS_K(tess__blend_columns)(float *student, const float *teacher, int64_t ld, int cols, int n,
                                 const float *x, const float *y);
void TESS_K(tess__add_products)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                int64_t ldb, int n, int rows, int cols);
void TESS_K(tess__topk)(int32_t *index, const float *x, int32_t n, int32_t k, int32_t *scratch);
void TESS_K(tess__adamw)(const tess__descent *d, const float *g, float *m, float *v, float *p,
                         float *ema, size_t n);
void TESS_K(tess__momentum)(float b, float g_scale, const float *g, float *m, float *u, size_t n);
void TESS_K(tess__follow)(const tess__descent *d, const float *u, float *p, float *ema, size_t n);
void TESS_K(tess__mix)(float a, const float *x, float b, float *y, size_t n);
double TESS_K(tess__sum_squares)(const float *x, size_t n);
int64_t TESS_K(tess__bits_row)(uint64_t *words, const void *mask, int bytes, int32_t n);
int64_t TESS_K(tess__bits_and_count)(const uint64_t *a, const uint64_t *b, size_t n);
void TESS_K(tess__bits_planes)(uint64_t *planes, const uint64_t *const *rows, int n, int words);
void TESS_K(tess__norm_forward)(float *y, const float *x, const float *scale, const float *shift,
                                int64_t rows, int64_t n, float eps);
void TESS_K(tess__norm_backward)(float *dx, float *dscale, float *dshift, const float *dy,
                                 const float *x, const float *scale, int64_t rows, int64_t n,
                                 float eps);
void TESS_K(tess__rms_rotary)(float *y, int64_t stride_y, const float *x, const float *weight,
                              const float *turn, int heads, int dim, float eps);
void TESS_K(tess__rms_rotary_backward)(float *dx, float *dweight, const float *dy,
                                       int64_t stride_dy, const float *x, const float *weight,
                                       const float *turn, int heads, int dim, float eps);
void TESS_K(tess__gelu)(float *y, const float *x, int64_t n);
void TESS_K(tess__gelu_backward)(float *dx, float *y, const float *x, int64_t n);
void TESS_K(tess__finish)(float *y, const float *bias, const float *gate, const float *x,
                          int64_t n);
void TESS_K(tess__scale)(float *y, const float *x, const float *gate, int64_t rows, int64_t n);
double TESS_K(tess__gate_gradient)(float *dw, const float *m, const float *w, float factor,
                                   int64_t n);
void TESS_K(tess__column_sums)(double *sum, const float *x, int64_t stride, int64_t rows,
                               int64_t n);

extern const tess__kernels TESS_K(tess__kernels);
const tess__kernels TESS_K(tess__kernels) = {
    .fma = TESS_K(tess__fma),
    .read = TESS_K(tess__read),
    .attn_forward = TESS_K(tess__attn_forward),
    .attn_backward = TESS_K(tess__attn_backward),
    .attn_total = TESS_K(tess__attn_total),
    .attn_sums = TESS_K(tess__attn_sums),
    .attn_virtual = TESS_K(tess__attn_virtual),
    .f32_from_bf16 = TESS_K(tess__f32_from_bf16),
    .bf16_from_f32 = TESS_K(tess__bf16_from_f32),
    .f32_from_f16 = TESS_K(tess__f32_from_f16),
    .f16_from_f32 = TESS_K(tess__f16_from_f32),
    .scan_f32 = TESS_K(tess__scan_f32),
    .scan_bf16 = TESS_K(tess__scan_bf16),
    .scan_f16 = TESS_K(tess__scan_f16),
    .scan_f64 = TESS_K(tess__scan_f64),
    .panel_pack = TESS_K(tess__panel_pack),
    .score = TESS_K(tess__score),
    .lse_step = TESS_K(tess__lse_step),
    .mass_step = TESS_K(tess__mass_step),
    .lse_columns = TESS_K(tess__lse_columns),
    .kl_columns = TESS_K(tess__kl_columns),
    .dot_columns = TESS_K(tess__dot_columns),
    .blend_columns = TESS_K(tess__blend_columns),
    .add_products = TESS_K(tess__add_products),
    .topk = TESS_K(tess__topk),
    .adamw = TESS_K(tess__adamw),
    .momentum = TESS_K(tess__momentum),
    .follow = TESS_K(tess__follow),
    .mix = TESS_K(tess__mix),
    .sum_squares = TESS_K(tess__sum_squares),
    .bits_row = TESS_K(tess__bits_row),
    .bits_and_count = TESS_K(tess__bits_and_count),
    .bits_planes = TESS_K(tess__bits_planes),
    .norm_forward = TESS_K(tess__norm_forward),
    .norm_backward = TESS_K(tess__norm_backward),
    .rms_rotary = TESS_K(tess__rms_rotary),
    .rms_rotary_backward = TESS_K(tess__rms_rotary_backward),
    .gelu = TESS_K(tess__gelu),
    .gelu_backward = TESS_K(tess__gelu_backward),
    .finish = TESS_K(tess__finish),
    .scale = TESS_K(tess__scale),
    .gate_gradient = TESS_K(tess__gate_gradient),
    .column_sums = TESS_K(tess__column_sums),
};
