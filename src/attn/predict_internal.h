/* SPDX-License-Identifier: Apache-2.0 */
/* predict_internal.h - what the loss and the maps of predictors share: the object, its tasks.
 *
 * The tokens of a head are cut into parts of TESS__PART, whatever the number of threads; a task is
 * one part of one head. What tasks add up goes to a place of its own for each, and these are summed
 * in order. A part is walked in tiles of TESS__STEP tokens, which stay in the caches.
 */
#ifndef TESS_PREDICT_INTERNAL_H
#define TESS_PREDICT_INTERNAL_H

#include "attn_internal.h"
#include "tessera/advanced/predict.h"

#include <math.h>

enum {
    TESS__PART = 2048,
    TESS__STEP = 128,
};

/* One thread's memory. wide: rows rounded up to whole panels; low: rank, likewise. */
typedef struct {
    float *panels;     /* (max(wide, low), head_dim): of sampled queries, or of a map */
    float *panels_low; /* (wide, rank): of their projected vectors */
    float *rows_low;   /* (rows, low): these once more, as a panel to multiply gradients with */
    float *teacher;    /* (TESS__STEP, ld): scores by key and query */
    float *student;    /* (TESS__STEP, ld): scores, then their gradients */
    float *out;        /* (TESS__STEP, low): rows of a rank that fills no whole panel */
    float *x;          /* (TESS__STEP, head_dim): gathered rows */
} tess__predict_scratch;

/* All of it lies in the arena, the object first. */
struct tess_predict {
    tess_ctx *ctx;
    tess__arena arena;
    tess_predict_shape shape;
    int wide, low, ld;
    int64_t heads, parts, tasks; /* batch * heads; parts of a head; their product */
    tess__predict_scratch *scratch;
    float *stats;   /* (tasks, TESS_PREDICT_STATS, wide) */
    float *rows;    /* (heads, TESS_PREDICT_STATS, wide): of whole rows, see predict_loss.c */
    float *partial; /* (tasks, max(rows * low, rank * head_dim)): sums of gradients */
    float *losses;  /* (tasks, wide) */
};

static inline int tess__whole_panels(int n)
{
    return (n + TESS_PANEL - 1) / TESS_PANEL * TESS_PANEL;
}

/* Packs n rows of `dim` floats, gathered by `rows` or the first ones, as panels of whole columns.
 */
void tess__predict_pack(const tess_predict *p, float *panels, const tess_view *view, int64_t head,
                        const int64_t *rows, int n, int dim);

/* y (n, rank) = x (n, dim) times panels of dim rows by low columns. y has any stride; `out` serves
 * where a rank fills no whole panel. */
void tess__predict_multiply(const tess_predict *p, float *y, int64_t stride_y, const float *x,
                            int64_t stride_x, int n, const float *panels, int dim, float *out);

/* EINVAL unless rows (n) ascend within 0..tokens-1. */
tess_status tess__predict_check_rows(const char *who, const int64_t *rows, int64_t n,
                                     int64_t tokens);

/* Of n floats, `next` apart. */
static inline double tess__predict_sum(const float *x, int64_t next, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * next];
    return sum;
}

/* ---- predict_rows.c ------------------------------------------------------------------------ */

/* One call of a loss. */
typedef struct {
    const tess_predict *p;
    const tess_predict_in *in;
    float scale, scale_low;
    double weight;            /* of a row's loss in the mean */
    int64_t keys;             /* of all parts */
    const tess_view *dq, *dk; /* NULL: not wanted */
} tess__predict_job;

/* Checks the inputs; keys are those of p, and there are no gradients. */
tess_status tess__predict_job_make(const char *who, const tess_predict *p,
                                   const tess_predict_in *in, tess__predict_job *job);

/* The keys of a task. */
typedef struct {
    int64_t head, b, h, begin, end;
} tess__predict_range;

tess__predict_range tess__predict_range_of(const tess_predict *p, int64_t task);

static inline int tess__predict_columns(const tess__predict_job *j)
{
    return tess__whole_panels(j->in->n_rows);
}

static inline int64_t tess__predict_row(const tess_predict_in *in, int64_t i)
{
    return in->rows ? in->rows[i] : i;
}

/* Panels of the sampled queries of a task's head; and both tiles of scores, unscaled, from key t
 * on: returns their keys. */
void tess__predict_pack_rows(const tess__predict_job *j, const tess__predict_scratch *w,
                             const tess__predict_range *r);
int tess__predict_score(const tess__predict_job *j, const tess__predict_scratch *w,
                        const tess__predict_range *r, int64_t t);

/* p->stats of a task; then what a head's tasks have of one row. */
void tess__predict_gather(const tess__predict_job *j, const tess__predict_scratch *w, int64_t task);
void tess__predict_row_stats(const tess__predict_job *j, int64_t head, int row,
                             double stats[TESS_PREDICT_STATS]);

/* For fewer samples and tokens than it was made for, or as many again. */
void tess__predict_resize(tess_predict *p, int batch, int64_t tokens);

/* Bytes that tess_predict_create takes from the context. */
size_t tess__predict_bytes(const tess_predict_shape *shape, int threads);

#endif
