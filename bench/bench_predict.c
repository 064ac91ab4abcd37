/* SPDX-License-Identifier: Apache-2.0 */
/* bench_predict.c - what learning and profiling cost beside the sparse attention they are for.
 *
 *   bench_predict [tokens [density [rows [every]]]]        32760 0.15 48 64
 *
 * One head of 128, groups of 64, one thread, the best of SAMPLES, as shares of a sparse forward and
 * backward pass (random lists; measured on 1024 queries against all keys, and scaled): the maps of
 * q and k, forward; loss with gradients; the gradient of the maps; density on every n-th group,
 * with and without lse; overlap likewise.
 */
#include "attn/predict_internal.h"
#include "tessera/select.h"

#include <stdlib.h>
#include <string.h>

enum { DIM = 128, RANK = 16, GROUP = 64, QUERIES = 1024, SAMPLES = 3 };

typedef struct {
    tess_ctx *ctx;
    int64_t tokens;
    float *q, *k, *q_low, *k_low, *dq_low, *dk_low, *o, *dq, *dk, *dv, *lse, *w;
    tess_view view_q, view_k, view_q_low, view_k_low, view_dq_low, view_dk_low;
    tess_view view_o, view_dq, view_dk, view_dv;
    tess_predict *predict;
    tess_predict_in in;
    int64_t *rows;
    tess_attn *attn;
    tess_selection *sel;
    tess_sel_shape groups;
    tess_density_in density;
} job;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "bench_predict: %s\n", tess_last_error());
        exit(1);
    }
}

static tess_status run_sparse(job *j)
{
    const tess_attn_saved saved = {&j->view_q, &j->view_k, &j->view_k, &j->view_o, j->lse};
    TESS_TRY(
        tess_attn_forward(j->attn, j->sel, &j->view_q, &j->view_k, &j->view_k, &j->view_o, j->lse));
    return tess_attn_backward(j->attn, j->sel, &saved, &j->view_o, NULL, &j->view_dq, &j->view_dk,
                              &j->view_dv);
}

static tess_status run_map(job *j)
{
    TESS_TRY(tess_predict_map(j->predict, &j->view_q, j->w, &j->view_q_low));
    return tess_predict_map(j->predict, &j->view_k, j->w, &j->view_k_low);
}

static tess_status run_loss(job *j)
{
    double loss;
    return tess_predict_loss_run(j->predict, &j->in, &loss, &j->view_dq_low, &j->view_dk_low);
}

static tess_status run_backward(job *j)
{
    TESS_TRY(tess_predict_map_backward(j->predict, &j->view_q, &j->view_dq_low, j->rows,
                                       j->in.n_rows, j->w));
    return tess_predict_map_backward(j->predict, &j->view_k, &j->view_dk_low, NULL, 0, j->w);
}

static tess_status run_density(job *j)
{
    double density;
    return tess_density_measure(j->ctx, &j->density, &density);
}

static tess_status run_overlap(job *j)
{
    double ratio;
    return tess_overlap_measure(j->ctx, &j->density, 0, &ratio);
}

/* Seconds of the best sample. */
static double best(tess_status (*run)(job *), job *j)
{
    double least = 1e30;
    need(run(j));
    for (int s = 0; s < SAMPLES; s++) {
        const int64_t start = tess_clock_ns();
        need(run(j));
        const double seconds = 1e-9 * (double)(tess_clock_ns() - start);
        least = seconds < least ? seconds : least;
    }
    return least;
}

static tess_view take(job *j, float **data, int64_t n, int dim, uint64_t stream)
{
    const size_t count = (size_t)n * (size_t)dim;
    *data = tess__alloc(j->ctx, sizeof(float) * count);
    if (!*data)
        need(tess__nomem(sizeof(float) * count));
    need(tess_random_normal(1, stream, 0, *data, count));
    return (tess_view){*data, TESS_DTYPE_F32, 0, 0, dim};
}

static void make_tensors(job *j, int n_rows)
{
    const int64_t n = j->tokens;
    float *w;
    j->view_q = take(j, &j->q, n, DIM, 1);
    j->view_k = take(j, &j->k, n, DIM, 2);
    j->view_q_low = take(j, &j->q_low, n, RANK, 3);
    j->view_k_low = take(j, &j->k_low, n, RANK, 4);
    j->view_dq_low = take(j, &j->dq_low, n_rows, RANK, 5);
    j->view_dk_low = take(j, &j->dk_low, n, RANK, 6);
    j->view_o = take(j, &j->o, QUERIES, DIM, 7);
    j->view_dq = take(j, &j->dq, QUERIES, DIM, 8);
    j->view_dk = take(j, &j->dk, n, DIM, 9);
    j->view_dv = take(j, &j->dv, n, DIM, 10);
    (void)take(j, &j->lse, n, 1, 11);
    (void)take(j, &w, RANK, DIM, 12);
    j->w = w;
    j->rows = tess__alloc(j->ctx, sizeof *j->rows * (size_t)n_rows);
    if (!j->rows)
        need(tess__nomem(sizeof *j->rows * (size_t)n_rows));
    for (int i = 0; i < n_rows; i++)
        j->rows[i] = i * n / n_rows;
}

static void make_sparse(job *j, double density)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = QUERIES,
                                  .tokens_k = j->tokens,
                                  .group = GROUP,
                                  .unit = 1};
    const tess_attn_shape attn = {
        .batch = 1, .heads = 1, .head_dim = DIM, .tokens_q = QUERIES, .tokens_k = j->tokens};
    const tess_select_in in = {.budget = {.density = density}};
    tess_selector *selector;
    int64_t capacity;
    need(
        tess_selector_create(j->ctx, &(tess_selector_opts){.kind = TESS_SELECT_RANDOM}, &selector));
    need(tess_selector_capacity(selector, &shape, &in, &capacity));
    need(tess_selection_create(j->ctx, &shape, capacity, &j->sel));
    need(tess_selector_run(selector, &in, j->sel));
    need(tess_attn_create(j->ctx, &attn, &j->attn));
    tess_selector_destroy(selector);
}

static void report(job *j, int32_t every)
{
    const double sparse = best(run_sparse, j) * (double)j->tokens / QUERIES;
    printf("sparse forward and backward of a head: %.1f ms\n", 1e3 * sparse);
    const double map = best(run_map, j), loss = best(run_loss, j), back = best(run_backward, j);
    printf("learning: maps %.2f %%, loss with gradients %.2f %%, maps' gradient %.2f %%: %.2f %%\n",
           100.0 * map / sparse, 100.0 * loss / sparse, 100.0 * back / sparse,
           100.0 * (map + loss + back) / sparse);
    const double density = best(run_density, j), overlap = best(run_overlap, j);
    /* The lse of these random vectors is wrong, and costs as much as a right one. */
    j->density.lse = j->lse;
    const double given = best(run_density, j);
    printf("1 group in %d: density %.2f %%, with lse %.2f %%, overlap %.2f %%\n", every,
           100.0 * density / sparse, 100.0 * given / sparse, 100.0 * overlap / sparse);
}

int main(int argc, char **argv)
{
    job j = {.tokens = argc > 1 ? atoll(argv[1]) : 32760};
    const double density = argc > 2 ? atof(argv[2]) : 0.15;
    const int n_rows = argc > 3 ? atoi(argv[3]) : 48, every = argc > 4 ? atoi(argv[4]) : 64;
    const tess_predict_shape shape = {1, 1, DIM, RANK, j.tokens, n_rows};
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &j.ctx));
    make_tensors(&j, n_rows);
    make_sparse(&j, density);
    need(tess_predict_create(j.ctx, &shape, &j.predict));
    j.in = (tess_predict_in){.q = &j.view_q,
                             .k = &j.view_k,
                             .q_low = &j.view_q_low,
                             .k_low = &j.view_k_low,
                             .rows = j.rows,
                             .n_rows = n_rows};
    j.groups = (tess_sel_shape){.batch = 1,
                                .heads = 1,
                                .tokens_q = j.tokens,
                                .tokens_k = j.tokens,
                                .group = GROUP,
                                .unit = 1};
    j.density = (tess_density_in){.q = &j.view_q,
                                  .k = &j.view_k,
                                  .head_dim = DIM,
                                  .groups = &j.groups,
                                  .mass = 0.9,
                                  .every = every};
    report(&j, every);
    tess_predict_destroy(j.predict);
    tess_attn_destroy(j.attn);
    tess_selection_destroy(j.sel);
    float *const all[] = {j.q, j.k,  j.q_low, j.k_low, j.dq_low, j.dk_low,
                          j.o, j.dq, j.dk,    j.dv,    j.lse,    j.w};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tess__free(j.ctx, all[i]);
    tess__free(j.ctx, j.rows);
    tess_ctx_destroy(j.ctx);
    return 0;
}
