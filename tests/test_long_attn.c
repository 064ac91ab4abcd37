/* SPDX-License-Identifier: Apache-2.0 */
/* test_long_attn.c - a million tokens: attention over 1 % of the keys, forward and backward.
 *
 *   test_long_attn [TOKENS]        default 1000000; takes minutes
 *
 * One head, groups of 64 queries, each with its own random list of TOKENS / 100 single keys. Two
 * things are proved. Memory: the library and the caller together hold O(S D + index) bytes, by the
 * formula in library_bytes() and by what the operating system saw. Numbers: some rows of o, lse
 * and dq and some keys' dk and dv agree with double precision, computed for these rows alone; a
 * key's gradients need every query that selected it, here about TOKENS / 100 of them.
 */
#include "tessera/advanced/selection.h"
#include "tessera/attn.h"
#include "test.h"

#include <stdlib.h>
#include <sys/resource.h>

enum { GROUP = 64, STRIDE = 100, DIM_MAX = 128, ROWS = 12, KEYS = 2 };

static int64_t tokens = 1000000;

typedef struct {
    int dim;
    int64_t lists, n; /* lists, and keys in each */
    double scale;
    tess_selection *sel;
    tess_selection_lists lists_of;
    float *q, *k, *v, *o, *dout, *dq, *dk, *dv; /* (tokens, dim) */
    float *lse;
    int64_t bytes; /* of the arrays above */
} setting;

static double since(int64_t start)
{
    return (double)(tess_clock_ns() - start) * 1e-9;
}

/* At most one line in ten seconds. */
static int report(void *user, const char *what, int64_t done, int64_t total)
{
    int64_t *last = user;
    if (since(*last) >= 10.0) {
        *last = tess_clock_ns();
        print_message("  %s: %lld of %lld\n", what, (long long)done, (long long)total);
        fflush(stdout);
    }
    return 0;
}

/* ---- the problem --------------------------------------------------------------------------- */

static void *room(setting *s, int64_t count, size_t size)
{
    void *p = malloc((size_t)count * size);
    assert_non_null(p);
    s->bytes += count * (int64_t)size;
    return p;
}

static float *array(setting *s, uint64_t stream)
{
    const int64_t n = tokens * s->dim;
    float *x = room(s, n, sizeof *x);
    if (stream)
        CHECK_OK(tess_random_normal(1, stream, 0, x, (size_t)n));
    else
        memset(x, 0xff, (size_t)n * sizeof *x); /* NaN: what is not written shows */
    return x;
}

/* One random key out of each STRIDE neighbours: ascending, all different, exactly 1 %. */
static void select_keys(tess_ctx *ctx, setting *s)
{
    const tess_sel_shape shape = {
        .batch = 1, .heads = 1, .tokens_q = tokens, .tokens_k = tokens, .group = GROUP, .unit = 1};
    const size_t total = (size_t)(s->lists * s->n);
    int64_t *offsets = malloc((size_t)(s->lists + 1) * sizeof *offsets);
    int32_t *indices = malloc(total * sizeof *indices);
    assert_true(offsets && indices);
    CHECK_OK(tess_random_bits(2, 0, 0, (uint32_t *)indices, total));
    for (int64_t list = 0; list <= s->lists; list++)
        offsets[list] = list * s->n;
    for (size_t i = 0; i < total; i++)
        indices[i] = (int32_t)(i % (size_t)s->n * STRIDE + (uint32_t)indices[i] % STRIDE);
    CHECK_OK(tess_selection_create(ctx, &shape, (int64_t)total, &s->sel));
    CHECK_OK(tess_selection_set_lists(s->sel, offsets, indices));
    CHECK_OK(tess_selection_view(s->sel, &s->lists_of));
    free(offsets);
    free(indices);
}

static setting make(tess_ctx *ctx, int dim)
{
    setting s = {.dim = dim,
                 .lists = (tokens + GROUP - 1) / GROUP,
                 .n = tokens / STRIDE,
                 .scale = (double)(1.0f / sqrtf((float)dim))};
    select_keys(ctx, &s);
    s.q = array(&s, 1);
    s.k = array(&s, 2);
    s.v = array(&s, 3);
    s.dout = array(&s, 4);
    s.o = array(&s, 0);
    s.dq = array(&s, 0);
    s.dk = array(&s, 0);
    s.dv = array(&s, 0);
    s.lse = room(&s, tokens, sizeof *s.lse);
    return s;
}

static void drop(setting *s)
{
    tess_selection_destroy(s->sel);
    float *all[] = {s->q, s->k, s->v, s->dout, s->o, s->dq, s->dk, s->dv, s->lse};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static tess_view view_of(const setting *s, float *x)
{
    return (tess_view){x, TESS_DTYPE_F32, tokens * s->dim, tokens * s->dim, s->dim};
}

static void run(tess_ctx *ctx, const setting *s)
{
    const tess_attn_shape shape = {
        .batch = 1, .heads = 1, .head_dim = s->dim, .tokens_q = tokens, .tokens_k = tokens};
    const tess_view q = view_of(s, s->q), k = view_of(s, s->k), v = view_of(s, s->v);
    const tess_view o = view_of(s, s->o), dout = view_of(s, s->dout), dq = view_of(s, s->dq);
    const tess_view dk = view_of(s, s->dk), dv = view_of(s, s->dv);
    const double flop = 2.0 * (double)s->lists_of.pairs * s->dim;
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &shape, &attn));
    int64_t start = tess_clock_ns();
    CHECK_OK(tess_attn_forward(attn, s->sel, &q, &k, &v, &o, s->lse));
    print_message("  forward  %.1f s, %.1f GFLOP/s\n", since(start),
                  2 * flop / since(start) * 1e-9);
    fflush(stdout);
    start = tess_clock_ns();
    const tess_attn_saved saved = {&q, &k, &v, &o, s->lse};
    CHECK_OK(tess_attn_backward(attn, s->sel, &saved, &dout, NULL, &dq, &dk, &dv));
    print_message("  backward %.1f s, %.1f GFLOP/s\n", since(start),
                  5 * flop / since(start) * 1e-9);
    fflush(stdout);
    tess_attn_destroy(attn);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The index: 4 bytes a listed key, 24 a group (offset, bound, tile) and 8 a key (bound). The
 * workspace: 4 KiB per element of head_dim and 192 KiB for each thread, whatever the tokens. */
static int64_t library_bytes(const setting *s, int threads)
{
    const int64_t index = 4 * s->lists * s->n + 24 * (s->lists + 1) + 8 * (tokens + 1);
    return index + threads * (4096 * (int64_t)s->dim + (192 << 10)) + (64 << 10);
}

static void check_memory(const tess_ctx *ctx, const setting *s)
{
    tess_ctx_info info;
    struct rusage usage;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    const int64_t most = library_bytes(s, info.threads), resident = (int64_t)usage.ru_maxrss * 1024;
    print_message("  memory: library %.1f MB (formula %.1f), caller %.1f MB, process %.1f MB\n",
                  (double)info.bytes_peak * 1e-6, (double)most * 1e-6, (double)s->bytes * 1e-6,
                  (double)resident * 1e-6);
    assert_in_range(info.bytes_peak, 1, most);
    /* The program itself, its libraries and stacks fit into 64 MiB. While the lists are copied the
     * caller's are there a second time, but most of its arrays are not yet. */
    assert_in_range(resident, 1, most + s->bytes + (64 << 20));
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* What double precision says of one query. */
typedef struct {
    double lse, delta, o[DIM_MAX], dq[DIM_MAX];
} truth;

static double dot(const float *a, const float *b, int dim)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int d = 0; d < dim; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

static const int32_t *list_of(const setting *s, int64_t query)
{
    return s->lists_of.indices + s->lists_of.offsets[query / GROUP];
}

/* o, lse and delta = do . o of a query; p (n) is left with its probabilities. */
static void true_row(const setting *s, int64_t query, double *p, truth *t)
{
    const int32_t *keys = list_of(s, query);
    double top = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < s->n; j++) {
        p[j] = s->scale * dot(s->q + query * s->dim, s->k + (int64_t)keys[j] * s->dim, s->dim);
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < s->n; j++)
        sum += p[j] = exp(p[j] - top);
    *t = (truth){.lse = top + log(sum)};
    for (int64_t j = 0; j < s->n; j++) {
        const float *v = s->v + (int64_t)keys[j] * s->dim;
        p[j] /= sum;
        for (int d = 0; d < s->dim; d++)
            t->o[d] += p[j] * (double)v[d];
    }
    for (int d = 0; d < s->dim; d++)
        t->delta += t->o[d] * (double)s->dout[query * s->dim + d];
}

static double slope(const setting *s, int64_t query, int64_t key, double p, double delta)
{
    return s->scale * p * (dot(s->dout + query * s->dim, s->v + key * s->dim, s->dim) - delta);
}

/* A sum of n = 10^4 terms of either sign in fp32 is off by sqrt(n) 2^-24 = 6e-6 of its size, and so
 * is the sum of the probabilities; a score, a dot product near 6 at most of 128 terms, by 4e-6,
 * which averages over the keys. Gradients pass through two such products. */
static const double tol_forward = 1e-5, tol_backward = 4e-5;

static void check_rows(const setting *s)
{
    double *p = malloc((size_t)s->n * sizeof *p), worst[3] = {0.0, 0.0, 0.0};
    assert_non_null(p);
    for (int i = 0; i < ROWS; i++) {
        const int64_t query = (tokens - 1) * i / (ROWS - 1);
        const int32_t *keys = list_of(s, query);
        truth t;
        true_row(s, query, p, &t);
        for (int64_t j = 0; j < s->n; j++) {
            const double ds = slope(s, query, keys[j], p[j], t.delta);
            for (int d = 0; d < s->dim; d++)
                t.dq[d] += ds * (double)s->k[(int64_t)keys[j] * s->dim + d];
        }
        const float *o = s->o + query * s->dim, *dq = s->dq + query * s->dim;
        size_t at;
        worst[0] = fmax(worst[0], worst_element_(o, 0, t.o, (size_t)s->dim, &at));
        worst[1] = fmax(worst[1], worst_element_(s->lse + query, 0, &t.lse, 1, &at));
        worst[2] = fmax(worst[2], worst_element_(dq, 0, t.dq, (size_t)s->dim, &at));
        CHECK_CLOSE(o, t.o, (size_t)s->dim, tol_forward);
        CHECK_CLOSE(s->lse + query, &t.lse, 1, tol_forward);
        CHECK_CLOSE(dq, t.dq, (size_t)s->dim, tol_backward);
    }
    print_message("  %d rows: off by %.1e (o), %.1e (lse), %.1e (dq)\n", ROWS, worst[0], worst[1],
                  worst[2]);
    fflush(stdout);
    free(p);
}

/* dk and dv of one key, from the groups that selected it, and how many queries these have. */
static int64_t true_key(const setting *s, int64_t key, double *dk, double *dv)
{
    const int64_t j = key / STRIDE; /* its place in every list that has it */
    const int dim = s->dim;
    int64_t queries = 0;
#pragma omp parallel reduction(+ : queries)
    {
        double *p = malloc((size_t)s->n * sizeof *p), part[2][DIM_MAX] = {{0.0}};
#pragma omp for schedule(dynamic)
        for (int64_t group = 0; group < (tokens + GROUP - 1) / GROUP; group++) {
            if (j >= s->n || list_of(s, group * GROUP)[j] != key)
                continue;
            const int64_t end = (group + 1) * GROUP;
            for (int64_t i = group * GROUP; p && i < end && i < tokens; i++, queries++) {
                truth t;
                true_row(s, i, p, &t);
                const double ds = slope(s, i, key, p[j], t.delta);
                for (int d = 0; d < dim; d++) {
                    part[0][d] += ds * (double)s->q[i * dim + d];
                    part[1][d] += p[j] * (double)s->dout[i * dim + d];
                }
            }
        }
#pragma omp critical
        for (int d = 0; d < dim; d++) {
            dk[d] += part[0][d];
            dv[d] += part[1][d];
        }
        free(p);
    }
    return queries;
}

static void check_keys(setting *s)
{
    CHECK_OK(tess_selection_view(s->sel, &s->lists_of));
    for (int i = 0; i < KEYS; i++) {
        const int64_t key = i == 0 ? list_of(s, 0)[0] : list_of(s, tokens - 1)[s->n * 2 / 3];
        double dk[DIM_MAX] = {0.0}, dv[DIM_MAX] = {0.0};
        const int64_t queries = true_key(s, key, dk, dv);
        const float *got_dk = s->dk + key * s->dim, *got_dv = s->dv + key * s->dim;
        size_t at;
        assert_true(queries > 0);
        print_message("  key %lld, selected by %lld queries: off by %.1e (dk), %.1e (dv)\n",
                      (long long)key, (long long)queries,
                      worst_element_(got_dk, 0, dk, (size_t)s->dim, &at),
                      worst_element_(got_dv, 0, dv, (size_t)s->dim, &at));
        fflush(stdout);
        CHECK_CLOSE(got_dk, dk, (size_t)s->dim, tol_backward);
        CHECK_CLOSE(got_dv, dv, (size_t)s->dim, tol_backward);
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

static void check_dim(int dim)
{
    int64_t last = tess_clock_ns();
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = report, .progress_user = &last}, &ctx));
    setting s = make(ctx, dim);
    print_message("  %lld tokens, head_dim %d, density %.5f, lists of %lld keys\n",
                  (long long)tokens, dim, s.lists_of.density, (long long)s.n);
    fflush(stdout);
    run(ctx, &s);
    check_memory(ctx, &s);
    check_rows(&s);
    check_keys(&s);
    drop(&s);
    tess_ctx_destroy(ctx);
}

static void a_million_tokens_of_head_dim_64_fit_and_agree_with_double(void **state)
{
    (void)state;
    check_dim(64);
}

static void a_million_tokens_of_head_dim_128_fit_and_agree_with_double(void **state)
{
    (void)state;
    check_dim(128);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_tokens_of_head_dim_64_fit_and_agree_with_double),
        cmocka_unit_test(a_million_tokens_of_head_dim_128_fit_and_agree_with_double),
    };
    if (argc > 1)
        tokens = strtoll(argv[1], NULL, 10);
    if (tokens < STRIDE || tokens > INT32_MAX) {
        print_error("TOKENS is %s, must be %d..2147483647\n", argv[1], STRIDE);
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
