/* SPDX-License-Identifier: Apache-2.0 */
/* test_judge.c - the judge of attention in files: its reference is that of src/ref, the library's
 * outputs and those stored in 16 bits pass, and a small error is found where it is. */
#include "check/judge.h"

#include "attn_data.h"

#include <unistd.h>

typedef struct {
    char folder[32], paths[16][64];
    int n;
    judge_files files;
} case_files;

static const char *tensor_path(case_files *c, const char *name, const char *ending)
{
    char text[64];
    snprintf(text, sizeof text, "%.30s/%s%s", c->folder, name, ending);
    return strcpy(c->paths[c->n++], text);
}

static const char *write_one(tess_ctx *ctx, case_files *c, const char *name, tess_dtype dtype,
                             const void *data, int rank, const int64_t *shape)
{
    const char *path = tensor_path(c, name, ".safetensors");
    tess_tensor t = {.name = name, .dtype = dtype, .rank = rank, .data = data};
    memcpy(t.shape, shape, (size_t)rank * sizeof *shape);
    CHECK_OK(tess_file_write(ctx, path, &t, 1, NULL));
    return path;
}

/* Lists with bounds, as tess_selection_view gives them. */
static const char *write_lists(tess_ctx *ctx, case_files *c, const tess_selection *sel)
{
    tess_selection_lists l;
    CHECK_OK(tess_selection_view(sel, &l));
    const char *path = tensor_path(c, "lists", ".npz");
    const tess_tensor all[] = {
        {"offsets", TESS_DTYPE_I64, 1, {l.lists + 1}, l.offsets},
        {"indices", TESS_DTYPE_I32, 1, {l.offsets[l.lists]}, l.indices},
        {"bounds_q", TESS_DTYPE_I64, 1, {l.shape.n_q + 1}, l.shape.bounds_q},
        {"bounds_k", TESS_DTYPE_I64, 1, {l.shape.n_k + 1}, l.shape.bounds_k},
    };
    CHECK_OK(tess_file_write(ctx, path, all, 4, NULL));
    return path;
}

static void write_all(tess_ctx *ctx, const setting *s, case_files *c)
{
    const problem *p = s->p;
    *c = (case_files){.folder = "/tmp/test_judge_XXXXXX", .files = {.scale = NAN, .all = 1}};
    assert_non_null(mkdtemp(c->folder));
    const int64_t heads = p->token_major ? p->tq : p->heads,
                  tokens = p->token_major ? p->heads : p->tq;
    const int64_t q[4] = {p->batch, heads, tokens, p->dim};
    const int64_t k[4] = {p->batch, p->token_major ? p->tk : p->heads,
                          p->token_major ? p->heads : p->tk, p->dim};
    const int64_t lse[3] = {p->batch, p->heads, p->tq};
    judge_files *f = &c->files;
    f->layout = p->token_major ? "shd" : "hsd";
    const tess_dtype stored = p->bf16 ? TESS_DTYPE_BF16 : TESS_DTYPE_F32;
    f->in[JUDGE_Q] = write_one(ctx, c, "q", TESS_DTYPE_F32, s->q, 4, q);
    f->in[JUDGE_K] = write_one(ctx, c, "k", stored, p->bf16 ? (void *)s->k16 : s->k, 4, k);
    f->in[JUDGE_V] = write_one(ctx, c, "v", stored, p->bf16 ? (void *)s->v16 : s->v, 4, k);
    f->in[JUDGE_DOUT] = write_one(ctx, c, "do", TESS_DTYPE_F32, s->dout, 4, q);
    f->out[JUDGE_O] = write_one(ctx, c, "o", TESS_DTYPE_F32, s->o, 4, q);
    f->out[JUDGE_LSE] = write_one(ctx, c, "lse", TESS_DTYPE_F32, s->lse, 3, lse);
    f->out[JUDGE_DQ] = write_one(ctx, c, "dq", TESS_DTYPE_F32, s->dq, 4, q);
    f->out[JUDGE_DK] = write_one(ctx, c, "dk", TESS_DTYPE_F32, s->dk, 4, k);
    f->out[JUDGE_DV] = write_one(ctx, c, "dv", TESS_DTYPE_F32, s->dv, 4, k);
    if (s->sel)
        f->lists = write_lists(ctx, c, s->sel);
}

static void remove_all(case_files *c)
{
    for (int i = 0; i < c->n; i++)
        unlink(c->paths[i]);
    assert_int_equal(rmdir(c->folder), 0);
}

static void judge_all(tess_ctx *ctx, const judge_files *files, double *const reference[],
                      judge_worst worst[JUDGE_OUTPUTS])
{
    cli c = {.ctx = ctx, .common = &(common){0}};
    judge j;
    if (judge_open(&c, files, &j) != TESS_OK)
        fail_msg("%s: %s", c.sentence, tess_last_error());
    for (int o = 0; reference && o < JUDGE_OUTPUTS; o++)
        j.reference[o] = reference[o];
    const judge_variant right = {.scale = j.scale,
                                 .q = j.in[JUDGE_Q].data,
                                 .k = j.in[JUDGE_K].data,
                                 .v = j.in[JUDGE_V].data,
                                 .keys = &j.keys};
    const int heads = j.batch * j.heads_k;
    const judge_plan plan = {.outputs = 31, .n_heads = heads, .n_whole = heads};
    CHECK_OK(judge_run(&j, &right, &plan, NULL, worst));
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        j.reference[o] = NULL;
    judge_close(&j);
}

static double *doubles(size_t n)
{
    double *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    return x;
}

static void check_same(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = isfinite(b[i]) ? fmax(largest, fabs(b[i])) : largest;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(fabs(a[i] - b[i]) <= 1e-13 * largest))
            fail_msg("element %zu is %.17g, the reference's %.17g", i, a[i], b[i]);
}

static const problem problems[] = {
    {2, 3, 40, 50, 50, DENSE, 1, 1, 1, 0, 0, 0, 0, NULL},
    {1, 2, 64, 70, 33, RANDOM, 16, 1, 0.3, 0, 0, 0, 0, NULL},
    {2, 2, 32, 48, 96, EMPTY_ROWS, 0, 0, 0.3, 1, 0, 0, 0, NULL},
    {1, 2, 16, 64, 64, RANDOM, 8, 8, 0.4, 1, 1, 0, 0, NULL},
};
enum { N_PROBLEMS = sizeof problems / sizeof *problems };

static void the_reference_is_that_of_the_library_s_tests(void **state)
{
    for (int i = 0; i < N_PROBLEMS; i++) {
        const problem *p = &problems[i];
        setting s = make(*state, p);
        run(*state, &s);
        case_files c;
        write_all(*state, &s, &c);
        const size_t heads = (size_t)(p->batch * p->heads), rows = heads * (size_t)p->tq;
        const size_t nq = rows * (size_t)p->dim, nk = heads * (size_t)p->tk * (size_t)p->dim;
        const size_t sizes[JUDGE_OUTPUTS] = {nq, rows, nq, nk, nk};
        double *got[JUDGE_OUTPUTS], *want[JUDGE_OUTPUTS];
        for (int o = 0; o < JUDGE_OUTPUTS; o++) {
            got[o] = doubles(sizes[o]);
            want[o] = doubles(sizes[o]);
        }
        judge_worst worst[JUDGE_OUTPUTS];
        judge_all(*state, &c.files, got, worst);
        tess_selection_lists lists;
        if (s.sel)
            CHECK_OK(tess_selection_view(s.sel, &lists));
        const tess_selection_lists *sel = s.sel ? &lists : NULL;
        CHECK_OK(ref_attn_forward(*state, &s.shape, sel, &s.vq, &s.vk, &s.vv, want[JUDGE_O],
                                  want[JUDGE_LSE]));
        CHECK_OK(ref_attn_backward(*state, &s.shape, sel, &s.vq, &s.vk, &s.vv, &s.vdout, NULL,
                                   want[JUDGE_DQ], want[JUDGE_DK], want[JUDGE_DV]));
        for (int o = 0; o < JUDGE_OUTPUTS; o++) {
            check_same(got[o], want[o], sizes[o]);
            assert_true(worst[o].ratio <= 1); /* and the library's fp32 passes */
            assert_int_equal(worst[o].compared, sizes[o]);
            free(got[o]);
            free(want[o]);
        }
        remove_all(&c);
        drop(&s);
    }
}

/* One wrong element in any tensor, by 1e-4 of its size: found at its place. */
static void one_wrong_element_is_found(void **state)
{
    const problem *p = &problems[0];
    setting s = make(*state, p);
    run(*state, &s);
    float *const tensors[JUDGE_OUTPUTS] = {s.o, s.lse, s.dq, s.dk, s.dv};
    for (int o = 0; o < JUDGE_OUTPUTS; o++) {
        const int width = o == JUDGE_LSE ? 1 : p->dim;
        float *x = tensors[o] + ((1 * 3 + 2) * 50 + 31) * width + width / 2;
        const float before = *x;
        *x += (float)(o == JUDGE_LSE ? 1e-3 : 1e-3 * fmax(1, fabs((double)before)));
        case_files c;
        write_all(*state, &s, &c);
        judge_worst worst[JUDGE_OUTPUTS];
        judge_all(*state, &c.files, NULL, worst);
        for (int i = 0; i < JUDGE_OUTPUTS; i++)
            assert_int_equal(worst[i].beyond, i == o);
        assert_int_equal(worst[o].batch, 1);
        assert_int_equal(worst[o].head, 2);
        assert_int_equal(worst[o].row, 31);
        assert_int_equal(worst[o].column, width / 2);
        *x = before;
        remove_all(&c);
    }
    drop(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(the_reference_is_that_of_the_library_s_tests, make_ctx,
                                    drop_ctx),
    cmocka_unit_test_setup_teardown(one_wrong_element_is_found, make_ctx, drop_ctx),
};
RUN_TESTS(tests)
