/* SPDX-License-Identifier: Apache-2.0 */
/* work_model.h - random masks for the tests of the planner, and the work of each pair of blocks
 * counted one by one. */
#ifndef TESS_WORK_MODEL_H
#define TESS_WORK_MODEL_H

#include "draw.h"

#include "tessera/plan.h"

#include <stdlib.h>

/* ---- random cases --------------------------------------------------------------------------- */

/* A mask as bytes, and what each pair of blocks counts. */
enum { SIDE_MAX = 200, HEADS_MAX = 6, LAYERS_MAX = 2 };
typedef struct {
    int layers, heads, q, k;
    uint8_t *mask;                                      /* (layers, heads, q, k) */
    int by_rows;                                        /* 1: a pair of blocks counts its rows */
    int64_t rows_q[SIDE_MAX + 1], rows_k[SIDE_MAX + 1]; /* where blocks begin */
} model;

static inline int64_t model_pair(const model *m, int layer, int head, int q, int k)
{
    const size_t at =
        (((size_t)layer * (size_t)m->heads + (size_t)head) * (size_t)m->q + (size_t)q) *
            (size_t)m->k +
        (size_t)k;
    if (!m->mask[at])
        return 0;
    return m->by_rows ? (m->rows_q[q + 1] - m->rows_q[q]) * (m->rows_k[k + 1] - m->rows_k[k]) : 1;
}

static inline size_t model_size(const model *m)
{
    return (size_t)m->layers * (size_t)m->heads * (size_t)m->q * (size_t)m->k;
}

/* Densities differ by head, and may be 0 and 1; bytes that select are any but 0. */
static inline model draw_model(int side)
{
    model m = {.layers = between(1, LAYERS_MAX),
               .heads = between(1, HEADS_MAX),
               .q = between(1, side),
               .k = between(1, side)};
    m.mask = malloc(model_size(&m));
    assert_non_null(m.mask);
    const size_t n = (size_t)m.q * (size_t)m.k;
    for (size_t h = 0; h < (size_t)(m.layers * m.heads); h++) {
        const uint32_t density = draw(11) * 100;
        for (size_t i = 0; i < n; i++)
            m.mask[h * n + i] = draw(1000) < density ? (uint8_t)between(1, 255) : 0;
    }
    return m;
}

static inline uint8_t *packed(const model *m)
{
    const size_t row = ((size_t)m->k + 7) / 8, rows = model_size(m) / (size_t)m->k;
    uint8_t *bits = malloc(rows * row);
    assert_non_null(bits);
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < row; b++) {
            uint8_t byte = 0;
            for (size_t i = 0; i < 8; i++) {
                /* What lies past the end of a row is not read: ones. */
                const size_t k = 8 * b + i;
                const int set = k >= (size_t)m->k || m->mask[r * (size_t)m->k + k];
                byte |= (uint8_t)(set << i);
            }
            bits[r * row + b] = byte;
        }
    return bits;
}

static inline tess_mask_set mask_set(const model *m, const void *data, tess_mask_kind kind)
{
    return (tess_mask_set){.layers = m->layers,
                           .heads = m->heads,
                           .q_blocks = m->q,
                           .k_blocks = m->k,
                           .data = data,
                           .kind = kind};
}

static inline tess_work *work_of(const model *m)
{
    tess_work *work = NULL;
    const tess_mask_set set = mask_set(m, m->mask, TESS_MASK_BYTES);
    CHECK_OK(tess_work_from_masks(context(), &set, &work));
    return work;
}

#endif
