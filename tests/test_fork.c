/* SPDX-License-Identifier: Apache-2.0 */
/* test_fork.c - a forked child of a process that has used threads: contexts of one thread, and the
 * same bits from objects of its parent. A child that waits for threads it does not have is ended
 * by an alarm. */
#include "test.h"

#include "tessera/advanced/selection.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEADS = 16, BLOCKS = 512, BLOCK = 8, TOKENS = 256, DIM = 16, PATIENCE = 20 };

/* A selection of 16 x 512 x 512 blocks, large enough for a team in every call, with bounds, so that
 * counting its pairs takes a team too; and small attention. */
typedef struct {
    tess_ctx *ctx;
    tess_selection *sel;
    tess_attn *attn;
    uint8_t *mask;
    int64_t bounds[BLOCKS + 1];
    float *q, *o, *lse, *dq, *dk, *dv;
} world;

static tess_view view_of(float *data)
{
    return (tess_view){
        .data = data, .stride_b = HEADS * TOKENS * DIM, .stride_h = TOKENS * DIM, .stride_s = DIM};
}

static void make(world *w, int threads)
{
    const size_t n = (size_t)HEADS * TOKENS * DIM, blocks = (size_t)HEADS * BLOCKS * BLOCKS;
    float **arrays[] = {&w->q, &w->o, &w->dq, &w->dk, &w->dv};
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &w->ctx));
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = calloc(n, sizeof(float));
    w->lse = calloc((size_t)HEADS * TOKENS, sizeof(float));
    CHECK_OK(tess_random_normal(1, 2, 0, w->q, n));
    w->mask = malloc(blocks);
    for (size_t i = 0; i < blocks; i++)
        w->mask[i] = i * 2654435761u % 7 < 2;
    for (int i = 0; i <= BLOCKS; i++)
        w->bounds[i] = (int64_t)i * BLOCK;
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = HEADS,
                                  .tokens_q = BLOCKS * BLOCK,
                                  .tokens_k = BLOCKS * BLOCK,
                                  .group = BLOCK,
                                  .bounds_k = w->bounds,
                                  .n_k = BLOCKS};
    CHECK_OK(tess_selection_create(w->ctx, &shape, (int64_t)blocks, &w->sel));
    CHECK_OK(tess_attn_create(
        w->ctx,
        &(tess_attn_shape){
            .batch = 1, .heads = HEADS, .head_dim = DIM, .tokens_q = TOKENS, .tokens_k = TOKENS},
        &w->attn));
}

static void drop(world *w)
{
    tess_selection_destroy(w->sel);
    tess_attn_destroy(w->attn);
    tess_ctx_destroy(w->ctx);
    float *arrays[] = {w->q, w->o, w->lse, w->dq, w->dk, w->dv};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(w->mask);
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Everything that takes a team: the hash of all results. */
static uint64_t compute(world *w)
{
    const size_t n = (size_t)HEADS * TOKENS * DIM * sizeof(float);
    tess_selection_lists lists;
    tess_selection *coarse = NULL;
    uint64_t hash = 1;
    CHECK_OK(tess_selection_set_mask(w->sel, w->mask, TESS_MASK_BYTES));
    CHECK_OK(tess_selection_view(w->sel, &lists));
    CHECK_OK(tess_selection_set_lists(w->sel, lists.offsets, lists.indices));
    CHECK_OK(tess_selection_view(w->sel, &lists));
    hash = mix(hash, &lists.pairs, sizeof lists.pairs);
    hash = mix(hash, lists.indices, (size_t)lists.offsets[lists.lists] * sizeof *lists.indices);
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = HEADS,
                                  .tokens_q = BLOCKS * BLOCK,
                                  .tokens_k = BLOCKS * BLOCK,
                                  .group = 96,
                                  .unit = 80};
    CHECK_OK(tess_selection_coarsen(w->ctx, w->sel, &shape, &coarse));
    CHECK_OK(tess_selection_view(coarse, &lists));
    hash = mix(hash, lists.indices, (size_t)lists.offsets[lists.lists] * sizeof *lists.indices);
    tess_selection_destroy(coarse);

    const tess_view q = view_of(w->q), o = view_of(w->o);
    const tess_view dq = view_of(w->dq), dk = view_of(w->dk), dv = view_of(w->dv);
    const tess_attn_saved saved = {.q = &q, .k = &q, .v = &q, .o = &o, .lse = w->lse};
    CHECK_OK(tess_attn_forward(w->attn, NULL, &q, &q, &q, &o, w->lse));
    CHECK_OK(tess_attn_backward(w->attn, NULL, &saved, &q, NULL, &dq, &dk, &dv));
    const float *results[] = {w->o, w->dq, w->dk, w->dv};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        hash = mix(hash, results[i], n);
    return hash;
}

static int threads_of(const tess_ctx *ctx)
{
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    return info.threads;
}

/* The exit code of a child that runs fn on the world. */
static int in_child(int (*fn)(world *w, uint64_t want), world *w, uint64_t want)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        _exit(fn(w, want));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int same_bits(world *w, uint64_t want)
{
    world own = {0};
    if (threads_of(w->ctx) != 1)
        return 2;
    if (compute(w) != want)
        return 3;
    make(&own, 4); /* one of the child's own: one thread whatever is asked for */
    const int threads = threads_of(own.ctx);
    const int same = compute(&own) == want;
    drop(&own);
    return threads != 1 ? 4 : !same ? 5 : 0;
}

static int grandchild_too(world *w, uint64_t want)
{
    const int first = same_bits(w, want);
    return first ? first : in_child(same_bits, w, want);
}

static void a_child_computes_the_same_on_one_thread(void **state)
{
    (void)state;
    world w = {0};
    make(&w, 4);
    const uint64_t want = compute(&w);
    assert_int_equal(in_child(same_bits, &w, want), 0);
    assert_int_equal(in_child(grandchild_too, &w, want), 0);
    assert_int_equal(threads_of(w.ctx), 4); /* the parent's own are as they were */
    assert_true(compute(&w) == want);
    drop(&w);
}

static int destroys_all(world *w, uint64_t want)
{
    (void)want;
    drop(w);
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    tess_ctx_destroy(ctx);
    return 0;
}

static void a_child_destroys_what_its_parent_made(void **state)
{
    (void)state;
    tess_ctx *others[3] = {0};
    world w = {0};
    for (int i = 0; i < 3; i++)
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 3}, &others[i]));
    make(&w, 2);
    tess_ctx_destroy(others[1]); /* from the middle of the list, then its ends */
    assert_int_equal(in_child(destroys_all, &w, 0), 0);
    tess_ctx_destroy(others[0]);
    drop(&w);
    assert_int_equal(threads_of(others[2]), 3);
    tess_ctx_destroy(others[2]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_computes_the_same_on_one_thread),
    cmocka_unit_test(a_child_destroys_what_its_parent_made),
};
RUN_TESTS(tests)
