/* SPDX-License-Identifier: Apache-2.0 */
/* exact.c - gradients whose bits do not depend on which rank computes what.
 *
 * Sums over rows are made cut by cut, and what a cut gives is rounded to units of 2^-46 and added
 * as an integer (kernels/fixed.c): addition is then exact, so that samples, cuts and ranks may come
 * in any order. The cuts of a sample lie between all places where 1 to TESS__EXACT_RANKS ranks
 * would cut its tokens, so that the rows of a rank are whole cuts, and a product over the rows of a
 * cut is the same call wherever it is made.
 *
 *   ranks   2  |                    :                    |
 *           3  |             :             :             |
 *   cuts       |             :      :      :             |    of 2 and 3 ranks alone
 *
 * What all ranks have alike (time, text) is computed by each and counted on the first. Before that
 * the gradients that flow there from the tokens are summed over the ranks of the context: of the
 * modulation, and of the keys and values of the text, 12 dim + 2 text dim integers for each sample
 * and layer.
 */
#include "attn/attn_internal.h"
#include "pass_internal.h"
#include "plan/strategy_internal.h"
#include "tessera/advanced/collectives.h"

#include <string.h>

/* ---- cuts ------------------------------------------------------------------------------------ */

/* The places inside of the local rows, ascending, each once. */
static void add_place(tess__sizes *z, int64_t place)
{
    int i = 0;
    if (place <= z->first || place >= z->first + z->local)
        return;
    while (i < z->cuts && z->cut_at[i] < place - z->first)
        i++;
    if (z->cut_at[i] == place - z->first)
        return;
    memmove(z->cut_at + i + 1, z->cut_at + i, (size_t)(z->cuts - i + 1) * sizeof *z->cut_at);
    z->cut_at[i] = place - z->first;
    z->cuts++;
}

void tess__exact_cuts(tess__sizes *z)
{
    z->cuts = 1;
    z->cut_at[0] = 0;
    z->cut_at[1] = z->local;
    for (int ranks = 2; z->exact && ranks <= TESS__EXACT_RANKS; ranks++)
        for (int p = 1; p < ranks; p++)
            add_place(z, tess__shard(z->tokens, ranks, p));
    z->cut_block[0] = 0;
    for (int i = 0; i < z->cuts; i++)
        z->cut_block[i + 1] =
            z->cut_block[i] +
            (z->cut_at[i + 1] - z->cut_at[i] + TESS__BLOCK_ROWS - 1) / TESS__BLOCK_ROWS;
}

tess__row_cut tess__cut_of(const tess_pass *p, int64_t row)
{
    const int64_t sample = row / p->z.local * p->z.local;
    int cut = 0;
    while (p->z.cut_at[cut + 1] <= row - sample)
        cut++;
    return (tess__row_cut){sample + p->z.cut_at[cut], sample + p->z.cut_at[cut + 1]};
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void note(tess_pass *p, int beyond)
{
    if (beyond) {
#pragma omp atomic write
        p->exact.beyond = 1;
    }
}

void tess__exact_add(tess_pass *p, const float *gradient, const float *x, float factor, int64_t n)
{
    const tess_model *m = p->model;
    const int is_mod =
        gradient >= p->ws.dmod && gradient < p->ws.dmod + p->z.batch * (int64_t)MOD_ALL * p->z.dim;
    int64_t *to =
        is_mod ? p->exact.mod + (gradient - p->ws.dmod) : m->sums + (gradient - m->gradients);
    note(p, p->ctx->kernels->fixed_add(to, x, factor, n));
}

int tess__exact_first(const tess_pass *p)
{
    return p->ranks.rank == 0;
}

static tess_status sum_ranks(tess_pass *p, int64_t *sums, int64_t n)
{
    return p->ranks.ranks > 1 ? tess_comm_allreduce(p->ranks.comm, TESS_TRAFFIC_PAYLOAD, sums, n,
                                                    TESS_DTYPE_I64, TESS_REDUCE_SUM)
                              : TESS_OK;
}

tess_status tess__exact_mod(tess_pass *p)
{
    const int64_t n = p->z.batch * (int64_t)MOD_ALL * p->z.dim;
    if (!p->z.exact)
        return TESS_OK;
    TESS_TRY(sum_ranks(p, p->exact.mod, n));
    p->ctx->kernels->fixed_read(p->ws.dmod, p->exact.mod, n);
    memset(p->exact.mod, 0, (size_t)n * sizeof *p->exact.mod);
    return TESS_OK;
}

/* ---- attention to the text ------------------------------------------------------------------- */

/* The rows of one sample from a row on, of all heads. */
static tess_view rows_from(const tess_view *all, int64_t sample, int64_t row)
{
    tess_view view = *all;
    view.data = tess__view_row(all, sample, 0, row);
    return view;
}

/* A cut of one sample: dq, and its part of dk and dv. */
static tess_status cross_cut(tess_pass *p, const tess_view in[3], const tess__set *s,
                             const tess_view d[3], int64_t sample, int64_t row, int64_t rows)
{
    const tess__sizes *z = &p->z;
    const int64_t part = z->text * z->dim;
    const tess_view all_o = tess__rows_view(p, p->ws.o);
    const tess_view all_dout = tess__rows_view(p, p->ws.t);
    const tess_view q = rows_from(&in[0], sample, row), k = rows_from(&in[1], sample, 0);
    const tess_view v = rows_from(&in[2], sample, 0), o = rows_from(&all_o, sample, row);
    const tess_view dout = rows_from(&all_dout, sample, row), dq = rows_from(&d[0], sample, row);
    const tess_view dk = tess__heads_view(p, p->exact.text_part, z->text);
    const tess_view dv = tess__heads_view(p, p->exact.text_part + part, z->text);
    for (int h = 0; h < z->heads; h++)
        memcpy(p->exact.lse + h * rows,
               (const float *)s->at[SET_LSE2] + (sample * z->heads + h) * z->local + row,
               (size_t)rows * sizeof(float));
    tess__attn_resize(p->exact.cross, rows, z->text);
    const tess_attn_saved saved = {&q, &k, &v, &o, p->exact.lse};
    TESS_TRY(tess_attn_backward(p->exact.cross, NULL, &saved, &dout, NULL, &dq, &dk, &dv));
    for (int i = 0; i < 2; i++)
        note(p, p->ctx->kernels->fixed_add(p->exact.text + (i * z->batch + sample) * part,
                                           p->exact.text_part + i * part, 1.0f, part));
    return TESS_OK;
}

tess_status tess__exact_cross(tess_pass *p, const tess_view in[3], const tess__set *s,
                              const tess_view d[3])
{
    const tess__sizes *z = &p->z;
    const int64_t n = z->text_rows * z->dim;
    memset(p->exact.text, 0, 2 * (size_t)n * sizeof *p->exact.text);
    for (int64_t sample = 0; sample < z->batch; sample++)
        for (int cut = 0; cut < z->cuts; cut++)
            TESS_TRY(cross_cut(p, in, s, d, sample, z->cut_at[cut],
                               z->cut_at[cut + 1] - z->cut_at[cut]));
    TESS_TRY(sum_ranks(p, p->exact.text, 2 * n));
    for (int i = 0; i < 2; i++)
        p->ctx->kernels->fixed_read(d[i + 1].data, p->exact.text + i * n, n);
    return TESS_OK;
}
