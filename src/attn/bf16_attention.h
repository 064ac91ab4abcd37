/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_attention.h - attention with products in bf16: its memory, packed keys, the forward pass. */
#ifndef TESS_BF16_ATTENTION_H
#define TESS_BF16_ATTENTION_H

#include "attention.h"
#include "kernels/bf16/bf16.h"

/* All but ranges lies in the arena, the object first. */
struct tess__bf16_attn {
    const tess__products *products;
    const char *isa; /* that multiplies */
    tess__arena arena;
    int threads;
    tess__bf16_scratch *scratch; /* one per thread */
    int64_t at_once;             /* heads whose keys are packed at a time, */
    uint16_t *keys;              /* and these: (at_once), each a head_size */
    float *norms;                /* (at_once, parts of k and of q): largest squared lengths */
    int *bounded;                /* (at_once) */
    uint16_t *ranges;            /* (threads, 3, range_size): keys of ranges, backward */
    size_t range_size;
};

/* Bytes that attention of a shape takes for products in bf16, where these are used. */
size_t tess__bf16_bytes(const tess_attn_shape *shape, int threads);

/* Sets attn->bf16, or leaves it NULL where fp32 computes. */
tess_status tess__bf16_create(tess_attn *attn);
void tess__bf16_destroy(tess_attn *attn);

/* 1: lists name rows that are no whole blocks. */
int tess__bf16_by_rows(const tess_selection *sel);

/* Packs the keys of n heads from `head` on. Called by all threads of a region; ends with a barrier.
 */
void tess__bf16_pack(const tess_attn *attn, int by_rows, const tess_view *q, const tess_view *k,
                     const tess_view *v, int64_t head, int64_t n, tess__bf16_scratch *w);

/* Those of head number `at` of them. */
tess__bf16_keys tess__bf16_packed(const tess_attn *attn, int by_rows, int64_t at);

/* Makes room for ranges of so many rows. */
tess_status tess__bf16_reserve(tess_attn *attn, int64_t rows);

/* Packs rows first..last - 1 of a head for a thread, until its next range. */
tess__bf16_keys tess__bf16_range(const tess_attn *attn, int by_rows, const tess_view *k,
                                 const tess_view *v, int64_t head, int64_t first, int64_t last,
                                 int thread);

/* ---- bf16_attention.c ------------------------------------------------------------------------ */

/* tess_attn_forward, of arguments that are known to be right. */
tess_status tess__bf16_forward(tess_attn *attn, const tess_selection *sel, const tess_view *q,
                               const tess_view *k, const tess_view *v, const tess_view *o,
                               float *lse);

#endif
