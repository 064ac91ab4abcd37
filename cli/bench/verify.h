/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - a workload against the same computation in double precision. */
#ifndef TESS_VERIFY_H
#define TESS_VERIFY_H

#include "workload.h"

enum { VERIFY_OUTPUTS = 5 };

typedef struct {
    const char *name; /* "o", "lse", "dq", ... */
    double error;     /* max |got - want| / max |want|; infinite where got is not finite */
    double tolerance;
} comparison;

typedef struct {
    comparison outputs[VERIFY_OUTPUTS];
    int n;
    int64_t checked, total; /* rows: queries, groups of queries, or rows of a matrix */
    workload_products products;
} verdict;

/* Runs the workload and compares its outputs. The reference costs flop one by one: a problem with
 * more than some 10^9 of them has rows sampled, the first and the last among them, unless all is
 * set. The gradients that sum over queries stay comparable, because dout is set to 0 elsewhere. */
tess_status verify_attn(workload *w, int all, verdict *v);
tess_status verify_select(workload *w, int all, verdict *v);
tess_status verify_linear(workload *w, int all, verdict *v);
tess_status verify_step(workload *w, int all, verdict *v);

/* verify_sparse.c: runs a sparse step; sees (layers, batch, heads, tokens, tokens) = 1 where a
 * query attends to a key, by raster index, until workload_free; labels (layers, batch, heads,
 * tokens): clusters of keys, NULL where they have none. */
tess_status verify_sparse_step(workload *w, const uint8_t **sees, const uint8_t **labels);

/* ---- what they share ---------------------------------------------------------------------- */

/* How many of `total` rows of this flop each to compare. */
int64_t verify_count(int64_t total, double flop_row, int all);

/* `count` ascending rows of 0..total-1, at random in ranges of equal size. */
tess_status verify_sample(const workload *w, uint64_t stream, int64_t count, int64_t total,
                          int64_t *rows);

/* Rows of a matrix or of one head: got's row number rows[i] (NULL: i) against want's row i. */
typedef struct {
    const float *got;
    int64_t stride; /* of got's rows */
    const double *want;
    const int64_t *rows;
    int64_t count, width;
} verify_rows;

/* Updates the largest difference and the largest wanted value so far. */
void verify_widen(const verify_rows *r, double *difference, double *largest);
void verify_add(verdict *v, const char *name, double difference, double largest, double tolerance);

#endif
