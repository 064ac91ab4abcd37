/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_attention.c - the forward pass with products in bf16 over all threads; which precision an
 * attention object has.
 *
 * Heads are taken some at a time: their keys are packed by all threads, then tiles are handed out
 * as in attention.c. The backward pass is gradient.c's.
 */
#include "bf16_attention.h"
#include "tessera/advanced/precision.h"

#include <math.h>
#include <omp.h>

typedef struct {
    tess_attn *attn;
    const tess_selection *sel;
    const tess_view *q, *k, *v, *o;
    float *lse;
    int by_rows;
    int64_t tiles;
} job;

/* Tile `item` of the heads from `head` on. */
static void run_tile(const job *j, int64_t head, int64_t item, int thread)
{
    const tess_attn *attn = j->attn;
    const tess_attn_shape *s = &attn->shape;
    const int64_t at = item / j->tiles, b = (head + at) / s->heads, h = (head + at) % s->heads;
    const tess__query_tile tile = tess__tile_at(attn, j->sel, item % j->tiles);
    const int64_t row = tess__tile_first(j->sel, &tile);
    tess__attn_scratch *w = &attn->scratch[thread];
    const tess__attn_fwd task = {
        .tile = tess__tile_job(attn, j->sel, j->q, j->k, j->v, b, h, &tile),
        .o = tess__view_row(j->o, b, h, row),
        .stride_o = j->o->stride_s,
        .lse = j->lse ? j->lse + (head + at) * s->tokens_q + row : NULL,
    };
    const tess__bf16_keys keys = tess__bf16_packed(attn, j->by_rows, at);
    float bias[TESS_CLUSTERS_MAX];
    tess__bf16_extra extra = {.bias = bias};
    if (task.tile.dropped > 0) {
        const int clusters = task.tile.clusters > 0 ? task.tile.clusters : 1;
        extra.n = attn->ctx->kernels->attn_means(&task.tile, bias, w);
        extra.k = w->mean;
        extra.v = w->mean + (ptrdiff_t)clusters * tess__wide(s->head_dim);
    }
    attn->bf16->products->forward(&task, &keys, &extra, &attn->bf16->scratch[thread]);
}

tess_status tess__bf16_forward(tess_attn *attn, const tess_selection *sel, const tess_view *q,
                               const tess_view *k, const tess_view *v, const tess_view *o,
                               float *lse)
{
    const int64_t heads = (int64_t)attn->shape.batch * attn->shape.heads;
    const job j = {
        attn, sel, q, k, v, o, lse, tess__bf16_by_rows(sel), tess__tile_count(attn, sel)};
    tess_status status = TESS_OK;
    for (int64_t head = 0; head < heads && status == TESS_OK; head += attn->bf16->at_once) {
        const int64_t n = TESS_MIN(heads - head, attn->bf16->at_once);
        tess__work_queue run = {.ctx = attn->ctx,
                                .what = "attention",
                                .total = n * j.tiles,
                                .before = head * j.tiles,
                                .whole = heads * j.tiles,
                                .meanwhile = attn->meanwhile,
                                .meanwhile_user = attn->meanwhile_user};
#pragma omp parallel num_threads(attn->bf16->threads)
        {
            const int thread = omp_get_thread_num();
            int64_t item;
            if (head == 0 && tess__compensates(attn, sel))
                tess__virtual_totals(attn, k, v, &attn->scratch[thread]);
            tess__bf16_pack(attn, j.by_rows, q, k, v, head, n, &attn->bf16->scratch[thread]);
            while ((item = tess__work_queue_next(&run)) >= 0)
                run_tile(&j, head, item, thread);
        }
        status = tess__work_queue_end(&run);
    }
    return status;
}

tess_status tess_attn_precision_query(const tess_attn *attn, tess_attn_precision *precision)
{
    TESS_REQUIRE(attn, precision);
    *precision = (tess_attn_precision){
        .asked = attn->shape.precision,
        .products = attn->bf16 ? TESS_PRECISION_BF16 : TESS_PRECISION_FP32,
        .isa = attn->bf16 ? attn->bf16->isa : attn->ctx->isa,
    };
    return TESS_OK;
}
