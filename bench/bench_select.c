/* SPDX-License-Identifier: Apache-2.0 */
/* bench_select.c - what selecting costs beside the sparse attention it is for.
 *
 *   bench_select [tokens [density [kind]]]        16384 0.1 predictor
 *
 * One head, groups of 64, units of 1 (64 for pooled), one thread, the best of SAMPLES: the parts of
 * the predictor (scores, top-K) per key and group, the whole run of the selector, and the forward
 * pass over what it selected, for head_dim 64 and 128. $TESS_ISA forces an instruction set.
 */
#include "attn/select_internal.h"

#include <stdlib.h>
#include <string.h>

enum { RANK = 16, GROUP = 64, SAMPLES = 7 };

typedef struct {
    tess_ctx *ctx;
    int64_t tokens;
    double density;
    tess_selector *selector;
    tess_selection *sel;
    tess_select_in in;
    tess_attn *attn;
    tess_view q, k, o;
    float *memory, *panels, *rows;
    int32_t *index, *scratch;
    int keys;
} job;

static tess_status run_score(job *j)
{
    j->ctx->kernels->score(j->rows, j->tokens + TESS_PANEL, j->memory, RANK, TESS__ROWS, j->panels,
                           j->tokens / TESS_PANEL, RANK);
    return TESS_OK;
}

static tess_status run_topk(job *j)
{
    for (int i = 0; i < TESS__ROWS; i++)
        j->ctx->kernels->topk(j->index, j->rows + i * (j->tokens + TESS_PANEL), (int32_t)j->tokens,
                              j->keys, j->scratch);
    return TESS_OK;
}

static tess_status run_select(job *j)
{
    return tess_selector_run(j->selector, &j->in, j->sel);
}

static tess_status run_forward(job *j)
{
    return tess_attn_forward(j->attn, j->sel, &j->q, &j->k, &j->k, &j->o, NULL);
}

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "bench_select: %s\n", tess_last_error());
        exit(1);
    }
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

static void *take(job *j, size_t n)
{
    void *memory = tess__alloc(j->ctx, 4 * n);
    if (!memory)
        need(tess__nomem(4 * n));
    return memory;
}

/* The two loops of the predictor, for TESS__ROWS groups at a time. */
static void bench_parts(job *j)
{
    const size_t n = (size_t)j->tokens, list = n + TESS_TOPK_PAD;
    j->panels = take(j, n * RANK);
    j->rows = take(j, TESS__ROWS * (n + TESS_PANEL));
    j->index = take(j, list);
    j->scratch = take(j, 2 * list);
    j->keys = (int)(j->density * (double)n) > 0 ? (int)(j->density * (double)n) : 1;
    j->ctx->kernels->panel_pack(j->panels, j->memory, RANK, (int)n, RANK);
    const double per = 1e9 / TESS__ROWS / (double)n;
    const double score = best(run_score, j), topk = best(run_topk, j);
    printf("rank %d, top %d of %zu: scores %.3f, top-K %.3f ns per key and group\n", RANK, j->keys,
           n, per * score, per * topk);
    void *const all[] = {j->panels, j->rows, j->index, j->scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tess__free(j->ctx, all[i]);
}

/* The selector, and attention of this head_dim over its lists. */
static void bench_share(job *j, tess_select_kind kind, int dim)
{
    const int low = kind == TESS_SELECT_PREDICTOR ? RANK : dim;
    const tess_view view = {j->memory, TESS_DTYPE_F32, 0, 0, low};
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = 1,
                                  .tokens_q = j->tokens,
                                  .tokens_k = j->tokens,
                                  .group = GROUP,
                                  .unit = kind == TESS_SELECT_POOLED ? GROUP : 1};
    const tess_attn_shape attn = {
        .batch = 1, .heads = 1, .head_dim = dim, .tokens_q = j->tokens, .tokens_k = j->tokens};
    int64_t capacity;
    j->in = (tess_select_in){
        .q = &view, .k = &view, .head_dim = low, .budget = {.density = j->density}};
    need(tess_selector_create(j->ctx, &(tess_selector_opts){.kind = kind}, &j->selector));
    need(tess_selector_capacity(j->selector, &shape, &j->in, &capacity));
    need(tess_selection_create(j->ctx, &shape, capacity, &j->sel));
    need(tess_attn_create(j->ctx, &attn, &j->attn));
    j->q = j->k = (tess_view){j->memory, TESS_DTYPE_F32, 0, 0, dim};
    j->o = (tess_view){j->memory + j->tokens * dim, TESS_DTYPE_F32, 0, 0, dim};
    const double select = best(run_select, j), forward = best(run_forward, j);
    const double groups = (double)((j->tokens + GROUP - 1) / GROUP);
    printf("%s for head_dim %3d: %.2f us per group (%.3f ns per key), forward %.1f us: %.1f %%\n",
           tess_select_kind_name(kind), dim, 1e6 * select / groups,
           1e9 * select / groups / (double)j->tokens, 1e6 * forward / groups,
           100.0 * select / forward);
    tess_attn_destroy(j->attn);
    tess_selection_destroy(j->sel);
    tess_selector_destroy(j->selector);
}

int main(int argc, char **argv)
{
    job j = {.tokens = argc > 1 ? atoll(argv[1]) : 16384,
             .density = argc > 2 ? atof(argv[2]) : 0.1};
    int kind = TESS_SELECT_PREDICTOR;
    for (kind = 0; argc > 3 && kind < TESS_SELECT_COUNT; kind++)
        if (strcmp(argv[3], tess_select_kind_name((tess_select_kind)kind)) == 0)
            break;
    if (j.tokens < TESS_PANEL || j.tokens % TESS_PANEL != 0 || kind == TESS_SELECT_WINDOW ||
        kind == TESS_SELECT_EDGES || kind == TESS_SELECT_COUNT) {
        fprintf(stderr, "usage: bench_select [tokens (a multiple of 16) [density [kind]]]\n");
        return 2;
    }
    need(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &j.ctx));
    const size_t floats = (size_t)j.tokens * 256;
    j.memory = take(&j, floats);
    need(tess_random_normal(1, 0, 0, j.memory, floats));
    printf("isa %s\n", j.ctx->isa);
    if (kind == TESS_SELECT_PREDICTOR)
        bench_parts(&j);
    for (int dim = 64; dim <= 128; dim *= 2)
        bench_share(&j, (tess_select_kind)kind, dim);
    tess__free(j.ctx, j.memory);
    tess_ctx_destroy(j.ctx);
    return 0;
}
