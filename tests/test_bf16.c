/* SPDX-License-Identifier: Apache-2.0 */
/* test_bf16.c - attention with products in bf16 against double precision, by each instruction set
 * that multiplies so and by the emulations, and what must hold besides values. */
#include "attn_data.h"

#include "attn/bf16_attention.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/precision.h"

/* Weights and their gradients are rounded to bf16, each off by 2^-8 at most and by 2^-8 / sqrt(3)
 * on the average, times the 3/4 that a mantissa is away from its power of two: 1.7e-3 of sums of
 * many, 2^-8 of a single one. lse sums rounded weights: with one key it is off by 2^-8 itself, with
 * n by 2^-8 / sqrt(n), and so are the weights of the backward pass. The polynomial of the
 * exponential adds 1e-4, twice. */
static const double tol_rms = 3e-3, unit = 0x1p-8, polynomial = 3e-4;
enum { MANY = 4000 };

/* ---- comparing ------------------------------------------------------------------------------- */

/* As the tensors that bf16 stores: rounding of the inputs is not what is tested. */
static void round_inputs(setting *s)
{
    const problem *p = s->p;
    const size_t heads = (size_t)(p->batch * p->heads) * (size_t)p->dim;
    float *all[] = {s->q, s->dout, s->k, s->v};
    for (int i = 0; i < 4; i++) {
        const size_t n = heads * (size_t)(i < 2 ? p->tq : p->tk);
        uint16_t *half = round_bf16(all[i], n);
        for (size_t j = 0; j < n; j++) {
            const uint32_t bits = (uint32_t)half[j] << 16;
            memcpy(&all[i][j], &bits, sizeof bits);
        }
        free(half);
    }
}

/* By the worst element and by the root of the mean square. Where every query has one key, gradients
 * by q and k are 0 and rounding is left, of terms of the size `least`. */
static void check_errors(const char *name, const float *got, const double *want, size_t n,
                         double keys, double least)
{
    double most = 0, off = 0, sum = 0, wanted = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - want[i]);
        if (isinf(want[i])) {
            assert_true(got[i] == want[i]);
            continue;
        }
        assert_true(isfinite(d));
        off = fmax(off, d);
        most = fmax(most, fabs(want[i]));
        sum += d * d;
        wanted += want[i] * want[i];
    }
    const double rms = sqrt(sum / fmax(wanted, least * least * (double)n));
    const double worst = unit * (1.0 + 1.0 / sqrt(keys)) + polynomial;
    if (off > worst * fmax(most, least) || (n > 0 && rms > (n > MANY ? tol_rms : worst)))
        fail_msg("%s: off by %.2e of %.2e, rms %.2e", name, off, most, rms);
}

/* Keys of a query, on the average. */
static double keys_of(const problem *p)
{
    return fmax(1.0, (p->pattern == DENSE ? 1.0 : p->density) * (double)p->tk);
}

static void check_view(const char *name, const problem *p, const tess_view *view,
                       const double *want, int64_t tokens, double least)
{
    float *x = in_order(p, view, tokens);
    check_errors(name, x, want, (size_t)(p->batch * p->heads * tokens * p->dim), keys_of(p), least);
    free(x);
}

/* least: the size of the terms of dq and dk, where these cancel: scale |k| |dP|, and |dP| is 8, the
 * root of head_dim. */
static void compare(tess_ctx *ctx, const setting *s, double least)
{
    const problem *p = s->p;
    tess_selection_lists lists;
    if (s->sel)
        CHECK_OK(tess_selection_view(s->sel, &lists));
    const size_t heads = (size_t)(p->batch * p->heads), rows = heads * (size_t)p->tq;
    const size_t nq = rows * (size_t)p->dim, nk = heads * (size_t)p->tk * (size_t)p->dim;
    double *want = malloc((nq + rows + 2 * nk + 1) * sizeof *want);
    assert_non_null(want);
    double *lse = want + nq, *dk = lse + rows, *dv = dk + nk;
    const tess_selection_lists *given = s->sel ? &lists : NULL;
    CHECK_OK(
        ref_cluster_forward(ctx, &s->shape, given, s->labels, &s->vq, &s->vk, &s->vv, want, lse));
    check_view("o", p, &s->vo, want, p->tq, 0.1);
    check_errors("lse", s->lse, lse, rows, keys_of(p), 1.0);
    CHECK_OK(ref_cluster_backward(ctx, &s->shape, given, s->labels, &s->vq, &s->vk, &s->vv,
                                  &s->vdout, s->dlse, want, dk, dv));
    check_view("dq", p, &s->vdq, want, p->tq, least);
    check_view("dk", p, &s->vdk, dk, p->tk, least);
    check_view("dv", p, &s->vdv, dv, p->tk, 0.1);
    free(want);
}

static setting make_bf16(tess_ctx *ctx, const problem *p)
{
    setting s = make(ctx, p);
    s.shape.precision = TESS_PRECISION_BF16;
    if (!p->bf16)
        round_inputs(&s);
    return s;
}

static void check(tess_ctx *ctx, const problem *p)
{
    setting s = make_bf16(ctx, p);
    run(ctx, &s);
    if (p->bf16) { /* dout is rounded for the products alone: compare with what they see */
        round_inputs(&s);
        run(ctx, &s);
    }
    compare(ctx, &s, 0.1);
    drop(&s);
}

/* ---- every instruction set ------------------------------------------------------------------- */

static void on_every_set(void (*fn)(tess_ctx *ctx))
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (!isa.bf16)
            continue;
        if (!isa.available) {
            print_message("skipped %s: %s\n", isa.name, isa.why);
            continue;
        }
        print_message("%s\n", isa.name);
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa.name, .threads = 3}, &ctx));
        fn(ctx);
        tess_ctx_destroy(ctx);
    }
}

static const problem problems[] = {
    PROBLEM(1, 1, 8, 1, 1, .dlse = 1),            /* the smallest: dq comes from dlse alone */
    PROBLEM(1, 2, 64, 100, 300, .dlse = 1),       /* cross-attention, tails everywhere */
    PROBLEM(2, 3, 72, 97, 193, .token_major = 1), /* a head_dim no block divides */
    PROBLEM(1, 2, 128, 200, 200, .token_major = 1, .bf16 = 1, .dlse = 1), /* bf16 storage */
    PROBLEM(1, 1, 256, 65, 130),                                          /* the largest head_dim */
    PROBLEM(1, 1, 64, 300, 1100),                                         /* ranges of keys */
    PROBLEM(1, 1, 40, 50, 0),                                             /* no keys */
    PROBLEM(1, 1, 40, 0, 50),                                             /* no queries */
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

static void check_dense(tess_ctx *ctx)
{
    for (int i = 0; i < PROBLEMS; i++)
        check(ctx, &problems[i]);
}

static void dense_attention_is_as_exact_as_bf16(void **state)
{
    (void)state;
    on_every_set(check_dense);
}

static void check_lists(tess_ctx *ctx)
{
    static const int virtual_keys[] = {0, 1, 5};
    problem p[LIST_PROBLEMS];
    for (int from = 0; from < (SANITIZED ? 1 : 3); from++) {
        with_virtual_keys(virtual_keys, 3, from, p);
        for (int i = 0; i < LIST_PROBLEMS; i++) {
            print_message("list %d, virtual keys %d\n", i, p[i].compensate);
            check(ctx, &p[i]);
        }
    }
}

static void lists_and_virtual_keys_are_as_exact_as_bf16(void **state)
{
    (void)state;
    on_every_set(check_lists);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Queries and keys of length 1 but for rounding, along one axis or against it, so that the bound of
 * |q| |k| is reached: scores are +-scale. */
static void check_logits(tess_ctx *ctx, float logit, int bounded)
{
    static const problem p = PROBLEM(1, 1, 64, 70, 300);
    setting s = make_bf16(ctx, &p);
    for (int i = 0; i < 70 * 64; i++)
        s.q[i] = i % 64 == 3 ? 1.0f : 0.0f;
    for (int i = 0; i < 300 * 64; i++)
        s.k[i] =
            i % 64 == 3 ? (i / 64 % 7 == 6 ? 1.0f : -1.0f + 0.125f * (float)(i / 64 % 7)) : 0.0f;
    s.shape.scale = logit;
    run(ctx, &s);
    compare(ctx, &s, 8.0 * (double)logit);
    tess_attn *attn = NULL;
    CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
    CHECK_OK(tess_attn_forward(attn, NULL, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
    assert_int_equal(attn->bf16->bounded[0], bounded);
    tess_attn_destroy(attn);
    drop(&s);
}

static void check_limits(tess_ctx *ctx)
{
    check_logits(ctx, 10.0f, 1);
    check_logits(ctx, 44.3f, 1); /* 63.9 in base 2 */
    check_logits(ctx, 44.4f, 0); /* 64.06 */
    check_logits(ctx, 80.0f, 0);
    check_logits(ctx, 3000.0f, 0);
}

static void logits_at_and_beyond_the_bound_are_exact(void **state)
{
    (void)state;
    on_every_set(check_limits);
}

/* Maxima that grow with every group of keys, from far below to far above, for some queries. */
static void check_growing(tess_ctx *ctx)
{
    static const problem p = PROBLEM(1, 1, 64, 100, 1000);
    setting s = make_bf16(ctx, &p);
    for (int i = 0; i < 1000; i++)
        s.k[i * 64 + 5] = (float)(i / 8);
    for (int q = 0; q < 100; q++)
        s.q[q * 64 + 5] = (float)(q % 5 - 2);
    s.shape.scale = 0.5f;
    run(ctx, &s);
    compare(ctx, &s, 8.0 * 0.5 * 125);
    drop(&s);
}

static void a_growing_maximum_is_followed(void **state)
{
    (void)state;
    on_every_set(check_growing);
}

static void check_nan(tess_ctx *ctx)
{
    static const problem p = PROBLEM(1, 1, 16, 40, 50);
    static const uint32_t bits[] = {0x7fc00000, 0x7fc00001, 0xffc12345, 0x7f800000};
    for (int i = 0; i < 4; i++) {
        setting s = make_bf16(ctx, &p);
        memcpy(&s.q[7 * 16 + 3], &bits[i], sizeof bits[i]);
        run(ctx, &s);
        for (int q = 0; q < 40; q++) {
            assert_int_equal(isnan(s.o[q * 16]) != 0, q == 7);
            assert_int_equal(isnan(s.lse[q]) != 0, q == 7);
        }
        drop(&s);
    }
}

static void nan_and_infinity_reach_their_row_alone(void **state)
{
    (void)state;
    on_every_set(check_nan);
}

/* ---- what must hold besides ------------------------------------------------------------------ */

static void check_full(tess_ctx *ctx)
{
    static const problem dense = PROBLEM(1, 2, 64, 200, 300);
    static const int32_t groups[] = {200, 64, 1, 64}, units[] = {300, 32, 1, 7};
    setting d = make_bf16(ctx, &dense);
    run(ctx, &d);
    for (int i = 0; i < 4; i++) {
        problem full = dense;
        full.pattern = FULL;
        full.group = groups[i];
        full.unit = units[i];
        full.density = 1.0;
        setting f = make_bf16(ctx, &full);
        run(ctx, &f);
        assert_memory_equal(d.o, f.o, 2 * 200 * 64 * sizeof(float));
        assert_memory_equal(d.lse, f.lse, 2 * 200 * sizeof(float));
        drop(&f);
    }
    drop(&d);
}

static void a_full_list_gives_the_bits_of_dense_attention(void **state)
{
    (void)state;
    on_every_set(check_full);
}

static void check_threads(tess_ctx *ctx)
{
    static const problem many[] = {
        PROBLEM(1, 2, 64, 300, 1100),
        PROBLEM(2, 2, 64, 256, 256, LISTS(RANDOM, 64, 64, 0.4), .dlse = 1),
        PROBLEM(1, 3, 72, 256, 700, LISTS(RANDOM, 64, 1, 0.2), .dlse = 1, .compensate = 3),
    };
    static const int counts[] = {1, 2, 7};
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    for (size_t n = 0; n < sizeof many / sizeof many[0]; n++) {
        setting s[3];
        for (int i = 0; i < 3; i++) {
            tess_ctx *own = NULL;
            CHECK_OK(
                tess_ctx_create(&(tess_ctx_opts){.isa = info.isa, .threads = counts[i]}, &own));
            s[i] = make_bf16(own, &many[n]);
            run(own, &s[i]);
            tess_selection_destroy(s[i].sel);
            s[i].sel = NULL;
            tess_ctx_destroy(own);
        }
        check_same_bits(&s[0], &s[1]);
        check_same_bits(&s[0], &s[2]);
        for (int i = 0; i < 3; i++)
            drop(&s[i]);
    }
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    on_every_set(check_threads);
}

static void check_steady(tess_ctx *ctx)
{
    static const problem p = PROBLEM(1, 3, 64, 256, 700, LISTS(RANDOM, 64, 1, 0.2), .dlse = 1);
    setting s = make_bf16(ctx, &p);
    tess_attn *attn = NULL;
    tess_attn_precision what;
    tess_ctx_info made, before, after;
    CHECK_OK(tess_attn_create(ctx, &s.shape, &attn));
    CHECK_OK(tess_ctx_query(ctx, &made));
    CHECK_OK(tess_attn_precision_query(attn, &what));
    assert_int_equal(what.products, TESS_PRECISION_BF16);
    assert_string_equal(what.isa, made.isa);
    const tess_attn_saved saved = {&s.vq, &s.vk, &s.vv, &s.vo, s.lse};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_attn_forward(attn, s.sel, &s.vq, &s.vk, &s.vv, &s.vo, s.lse));
        CHECK_OK(tess_attn_backward(attn, s.sel, &saved, &s.vdout, NULL, &s.vdq, &s.vdk, &s.vdv));
        if (i == 0)
            CHECK_OK(tess_ctx_query(ctx, &before));
    }
    CHECK_OK(tess_ctx_query(ctx, &after));
    assert_int_equal(before.allocations, after.allocations);
    tess_attn_destroy(attn);
    drop(&s);
}

static void the_steady_state_allocates_nothing(void **state)
{
    (void)state;
    on_every_set(check_steady);
}

/* ---- which precision ------------------------------------------------------------------------- */

static void without_the_instructions_fp32_computes_and_says_so(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_attn *attn = NULL;
    tess_attn_precision what;
    tess_bf16_use use;
    static const problem p = PROBLEM(1, 1, 64, 50, 70);
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = "base"}, &ctx));
    CHECK_OK(tess_bf16_query(ctx, &use));
    assert_int_equal(use.precision, TESS_PRECISION_FP32);
    assert_string_equal(use.isa, "base");
    assert_string_equal(use.why, "base was asked for, which has no products in bf16");
    setting half = make_bf16(ctx, &p), single = make_bf16(ctx, &p);
    CHECK_OK(tess_attn_create(ctx, &half.shape, &attn));
    CHECK_OK(tess_attn_precision_query(attn, &what));
    assert_int_equal(what.asked, TESS_PRECISION_BF16);
    assert_int_equal(what.products, TESS_PRECISION_FP32);
    tess_attn_destroy(attn);
    single.shape.precision = TESS_PRECISION_FP32;
    run(ctx, &half);
    run(ctx, &single);
    check_same_bits(&half, &single);
    drop(&half);
    drop(&single);
    tess_ctx_destroy(ctx);
}

/* Which set is found depends on the machine; that it is the fastest is measured again. */
static void the_fastest_set_of_the_machine_is_found(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_bf16_use use, again;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    CHECK_OK(tess_bf16_query(ctx, &use));
    CHECK_OK(tess_bf16_query(ctx, &again));
    assert_string_equal(use.isa, again.isa);
    print_message("%s %s\n", use.isa, use.why);
    double rate = tess__rate_measure(tess__rate_of(ctx, TESS_PRECISION_BF16));
    for (int i = 0; i < tess__isa_total; i++)
        if (tess__isas[i].products && !tess__isas[i].test_only && !*tess__isa_missing(i))
            assert_true(rate > 0.5 * tess__rate_measure(tess__isas[i].products->rate));
    assert_int_equal(use.precision == TESS_PRECISION_FP32, *use.why != '\0');
    tess_ctx_destroy(ctx);
}

/* A dot product of pairs is twice the flop of an FMA, and no processor issues more of them: a rate
 * above that has left work out. The FMAs may have been disturbed, so there are several attempts.
 * The checks of a sanitizer slow the loop of FMAs more than that of pairs. */
static void a_rate_of_pairs_is_at_most_twice_that_of_fmas(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    if (SANITIZED ||
        tess_ctx_create(&(tess_ctx_opts){.isa = "avx512-bf16", .threads = 1}, &ctx) != TESS_OK)
        skip();
    double ratio = INFINITY;
    for (int attempt = 0; attempt < 5 && ratio > 2.3; attempt++)
        ratio = tess__rate_measure(tess__rate_of(ctx, TESS_PRECISION_BF16)) /
                tess__rate_measure(tess__rate_of(ctx, TESS_PRECISION_FP32));
    assert_true(ratio > 0.0 && ratio <= 2.3);
    tess_ctx_destroy(ctx);
}

static void a_wrong_precision_gets_a_sentence(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    tess_attn *attn = NULL;
    tess_attn_shape shape = {.batch = 1, .heads = 1, .head_dim = 8, .precision = 7};
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    assert_int_equal(tess_attn_create(ctx, &shape, &attn), TESS_EINVAL);
    assert_non_null(strstr(tess_last_error(), "tess_attn_create: precision is 7"));
    CHECK_FAILS(tess_attn_precision_query(NULL, NULL), TESS_EINVAL,
                "tess_attn_precision_query: attn is NULL");
    CHECK_FAILS(tess_bf16_query(NULL, NULL), TESS_EINVAL, "tess_bf16_query: ctx is NULL");
    tess_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_attention_is_as_exact_as_bf16),
        cmocka_unit_test(lists_and_virtual_keys_are_as_exact_as_bf16),
        cmocka_unit_test(logits_at_and_beyond_the_bound_are_exact),
        cmocka_unit_test(a_growing_maximum_is_followed),
        cmocka_unit_test(nan_and_infinity_reach_their_row_alone),
        cmocka_unit_test(a_full_list_gives_the_bits_of_dense_attention),
        cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(the_steady_state_allocates_nothing),
        cmocka_unit_test(without_the_instructions_fp32_computes_and_says_so),
        cmocka_unit_test(the_fastest_set_of_the_machine_is_found),
        cmocka_unit_test(a_rate_of_pairs_is_at_most_twice_that_of_fmas),
        cmocka_unit_test(a_wrong_precision_gets_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
