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
 * member here, its name in entries.h. To add an instruction set: one line in CMakeLists.txt and one
 * in isa.c.
 */
#ifndef TESS_KERNELS_H
#define TESS_KERNELS_H

#include "attn_tile.h"
#include "tessera/advanced/machine.h"
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

/* One update of parameters by param_update.c. */
typedef struct {
    float g_scale;        /* of the gradient: clipping */
    float beta1, beta2;   /* of AdamW's moments */
    float step_size;      /* learning rate, with AdamW's bias correction of m */
    float inv_sqrt_bias2; /* 1 / sqrt(bias correction of v) */
    float eps;            /* of AdamW's denominator */
    float decay;          /* 1 - learning rate * weight decay */
    float ema_rate;       /* fraction of the new weights in the running average */
} tess__param_update;

/* What predict.c's divergence needs of the rows of two tiles of scores. */
typedef struct {
    float scale2, scale2_low;     /* of the scores, times log2(e) */
    float weight;                 /* of the gradient */
    const float *lse2, *lse2_low; /* (cols), base 2 */
} tess__kl;

enum {
    TESS_PANEL = 16,       /* keys side by side in a panel, see score.c */
    TESS_TOPK_PAD = 64,    /* elements topk may write beyond what it returns */
    TESS_PLANES = 8,       /* of bits_planes */
    TESS_PLANE_ROWS = 240, /* most rows of it: a multiple of 16 below 2^TESS_PLANES */
};

typedef struct {
    /* peak.c */
    int64_t (*fma)(int64_t rounds, float *sink); /* returns the flop done */
    float (*read)(const float *x, size_t n);     /* sum of x, for its memory traffic */
    int tile_dense; /* queries of a tile of dense attention, where they are many */
    /* attn_forward.c, attn_backward.c */
    void (*attn_forward)(const tess__attn_fwd *job, tess__attn_scratch *w);
    void (*attn_backward)(const tess__attn_bwd *job, tess__attn_scratch *w);
    /* attn_virtual.c */
    void (*attn_total)(double *total, const tess__rows *x, int bf16, int dim, int64_t begin,
                       int64_t end, tess__attn_scratch *w);
    int (*attn_means)(const tess__attn_tile *t, float *bias, tess__attn_scratch *w);
    void (*attn_sums)(const tess__attn_tile *t, int64_t end, tess__key_cursor *at, double *sums,
                      tess__attn_scratch *w);
    void (*attn_virtual)(const tess__attn_bwd *job, const double *sums, float *dq,
                         int64_t stride_dq, float *start, tess__attn_scratch *w);
    /* attn_clusters.c; attn_cluster_keys: attn_backward.c */
    void (*attn_nearest)(const tess__nearest *n, int64_t begin, int64_t end, uint8_t *labels,
                         tess__attn_scratch *w);
    void (*attn_cluster_sums)(const tess__attn_tile *t, double *sums, int64_t *count,
                              tess__attn_scratch *w);
    void (*attn_cluster_keys)(const tess__attn_bwd *job, float *dq, int64_t stride_dq,
                              float *weights, float *given, tess__attn_scratch *w);
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
    /* score.c: strides and ld in floats; panels of TESS_PANEL keys */
    void (*panel_pack)(float *panels, const float *k, int64_t stride, int n, int dim);
    void (*score)(float *s, int64_t ld, const float *q, int64_t stride, int rows,
                  const float *panels, int64_t n_panels, int dim);
    void (*lse_step)(float *m, float *l, const float *s, int64_t ld, int rows, int n, float scale2);
    void (*mass_step)(float *mass, const float *s, int64_t ld, int rows, int n, float scale2,
                      const float *lse2);
    /* predict.c: tiles of n rows by cols columns, a multiple of TESS_PANEL */
    void (*lse_columns)(float *m, float *l, const float *s, int64_t ld, int cols, int n,
                        float scale2);
    void (*kl_columns)(float *loss, float *student, const float *teacher, int64_t ld, int cols,
                       int n, const tess__kl *kl);
    void (*dot_columns)(float *tt, float *ts, float *ss, const float *student, const float *teacher,
                        int64_t ld, int cols, int n);
    void (*blend_columns)(float *student, const float *teacher, int64_t ld, int cols, int n,
                          const float *x, const float *y);
    void (*add_products)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                         int64_t ldb, int n, int rows, int cols);
    /* topk.c: 1 <= k <= n; index has room for k + TESS_TOPK_PAD, scratch for twice n + that */
    void (*topk)(int32_t *index, const float *x, int32_t n, int32_t k, int32_t *scratch);
    /* param_update.c: arrays of n, which do not overlap; ema may be NULL */
    void (*adamw)(const tess__param_update *d, const float *g, float *m, float *v, float *p,
                  float *ema, size_t n);
    void (*momentum)(float b, float g_scale, const float *g, float *m, float *u, size_t n);
    void (*apply_update)(const tess__param_update *d, const float *u, float *p, float *ema,
                         size_t n);
    void (*mix)(float a, const float *x, float b, float *y, size_t n); /* y = a x + b y */
    double (*sum_squares)(const float *x, size_t n);
    /* bits.c: words (n / 64, rounded up) = n elements of a mask, bits past the end 0; returns how
     * many are set. bytes 1: a byte each, not 0 is set; 0: a bit each */
    int64_t (*bits_row)(uint64_t *words, const void *mask, int bytes, int32_t n);
    int64_t (*bits_and_count)(const uint64_t *a, const uint64_t *b, size_t n);
    /* planes (TESS_PLANES, words) = the sum of n rows of words by column, in binary digits */
    void (*bits_planes)(uint64_t *planes, const uint64_t *const *rows, int n, int words);
    /* norm.c: contiguous rows of n */
    void (*norm_forward)(float *y, const float *x, const float *scale, const float *shift,
                         int64_t rows, int64_t n, float eps);
    void (*norm_backward)(float *dx, float *dscale, float *dshift, const float *dy, const float *x,
                          const float *scale, int64_t rows, int64_t n, float eps);
    /* rotary.c: one token */
    void (*rms_rotary)(float *y, int64_t stride_y, const float *x, const float *weight,
                       const float *rope, int heads, int dim, float eps);
    void (*rms_rotary_backward)(float *dx, float *dweight, const float *dy, int64_t stride_dy,
                                const float *x, const float *weight, const float *rope, int heads,
                                int dim, float eps);
    /* gelu.c */
    void (*gelu)(float *y, const float *x, int64_t n);
    void (*gelu_backward)(float *dx, float *y, const float *x, int64_t n);
    /* columns.c */
    void (*epilogue)(float *y, const float *bias, const float *gate, const float *x, int64_t n);
    void (*scale)(float *y, const float *x, const float *gate, int64_t rows, int64_t n);
    double (*gate_gradient)(float *dw, const float *m, const float *w, float factor, int64_t n);
    void (*column_sums)(double *sum, const float *x, int64_t stride, int64_t rows, int64_t n);
    /* fixed.c */
    int (*fixed_add)(int64_t *sum, const float *x, float factor, int64_t n);
    void (*fixed_read)(float *y, const int64_t *sum, int64_t n);
} tess__kernels;

/* Products in bf16: bf16/bf16.h. */
typedef struct tess__products tess__products;

typedef struct {
    const char *name;
    const tess__kernels *kernels;   /* NULL: not in this build */
    const tess__products *products; /* in bf16; NULL: it has none */
    int bytes;                      /* of a vector */
    int test_only;
    const char *(*missing)(void); /* why this machine cannot run it; "" if it can */
} tess__isa;

/* The instruction sets, best first; behind them those that have products in bf16, whose other
 * kernels are those of one before. */
extern const tess__isa tess__isas[];
extern const int tess__isa_total;

/* Why isas[i] cannot be chosen; "" if it can. */
const char *tess__isa_missing(int i);

/* The instruction set extensions that matter here and may be used, space-separated. */
void tess__cpu_features(char *text, size_t size);

/* What the operating system lets this process do with AMX; asks for permission once. */
tess_amx tess__amx_state(void);

#endif
