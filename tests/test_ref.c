/* SPDX-License-Identifier: Apache-2.0 */
/* test_ref.c - the double-precision attention against cases solved by hand and finite differences.
 */
#include "ctx_fixture.h"
#include "ref/ref.h"

#include <stdlib.h>

static int make_ctx_of_one(void **state)
{
    (void)state;
    return open_ctx(&(tess_ctx_opts){.threads = 1});
}

static void a_comparison_finds_the_worst_element(void **state)
{
    (void)state;
    const double want[] = {1, -4, 0, -INFINITY};
    const float same[] = {1, -4, 0, -INFINITY}, off[] = {1.5f, -3, 0.25f, -INFINITY};
    size_t at = 9;
    assert_true(worst_element_(same, 0, want, 4, &at) == 0.0 && at == 9);
    assert_true(worst_element_(off, 0, want, 4, &at) == 0.25 && at == 1);
    assert_true(worst_element_((float[]){1, NAN, 0, -INFINITY}, 0, want, 4, &at) == INFINITY);
    assert_int_equal(at, 1);
    assert_true(worst_element_((double[]){1, -4, 0, INFINITY}, 1, want, 4, &at) == INFINITY);
    assert_int_equal(at, 3);
    assert_true(worst_element_((double[]){0, 1e-300}, 1, (double[]){0, 0}, 2, &at) == INFINITY);
    assert_int_equal(at, 1);
}

/* ---- two queries, three keys, by hand ------------------------------------------------------ */

/* The scores of query 0 are 0, log 2 and log 5, so that its probabilities are 1/8, 2/8, 5/8; those
 * of query 1 are all 0. A result takes about ten operations, each rounded at 2^-53: 2e-15 relative
 * to the largest number on the way, which is below twice the largest result. */
static const double hand_tolerance = 4e-15;
static const double hand_q[] = {1, 0, 0, 0}, hand_v[] = {8, 0, 0, 8, 16, 24};
static const tess_attn_shape hand_shape = {
    .batch = 1, .heads = 1, .head_dim = 2, .tokens_q = 2, .tokens_k = 3, .scale = 1.0f};

static tess_view f64(const double *data, int64_t tokens, int64_t dim, int heads)
{
    return (tess_view){(void *)(uintptr_t)data, TESS_DTYPE_F64, heads * tokens * dim, tokens * dim,
                       dim}; /* a view is not const for the calls that write through it */
}

static void the_forward_pass_gives_what_a_hand_does(void **state)
{
    (void)state;
    const double k[] = {0, 0, log(2), 0, log(5), 0};
    const tess_view vq = f64(hand_q, 2, 2, 1), vk = f64(k, 3, 2, 1), vv = f64(hand_v, 3, 2, 1);
    double o[4], lse[2];
    CHECK_OK(ref_attn_forward(ctx, &hand_shape, NULL, &vq, &vk, &vv, o, lse));
    CHECK_CLOSE(o, ((double[]){11, 17, 8, 32.0 / 3}), 4, hand_tolerance);
    CHECK_CLOSE(lse, ((double[]){log(8), log(3)}), 2, hand_tolerance);
}

static void the_backward_pass_gives_what_a_hand_does(void **state)
{
    (void)state;
    const double k[] = {0, 0, log(2), 0, log(5), 0}, dout[] = {1, 0, 0, 0};
    const float dlse[] = {0, 3};
    const tess_view vq = f64(hand_q, 2, 2, 1), vk = f64(k, 3, 2, 1), vv = f64(hand_v, 3, 2, 1);
    const tess_view vdo = f64(dout, 2, 2, 1);
    double dq[4], dk[6], dv[6];
    CHECK_OK(ref_attn_backward(ctx, &hand_shape, NULL, &vq, &vk, &vv, &vdo, dlse, dq, dk, dv));
    /* Query 0: dp = 8, 0, 16 around their mean 11. Query 1: ds = 3 p = 1, but q is 0. */
    CHECK_CLOSE(dq, ((double[]){(25 * log(5) - 22 * log(2)) / 8, 0, log(2) + log(5), 0}), 4,
                hand_tolerance);
    CHECK_CLOSE(dk, ((double[]){-3.0 / 8, 0, -22.0 / 8, 0, 25.0 / 8, 0}), 6, hand_tolerance);
    CHECK_CLOSE(dv, ((double[]){1.0 / 8, 0, 2.0 / 8, 0, 5.0 / 8, 0}), 6, hand_tolerance);
}

/* Query 0 selects keys 0 and 2, query 1 nothing; key 1 is in no list. */
static void an_empty_row_gives_zero_and_minus_infinity(void **state)
{
    (void)state;
    const double k[] = {0, 0, log(2), 0, log(5), 0}, dout[] = {1, 0, 1, 1};
    const float dlse[] = {6, 7};
    const tess_view vq = f64(hand_q, 2, 2, 1), vk = f64(k, 3, 2, 1), vv = f64(hand_v, 3, 2, 1);
    const tess_view vdo = f64(dout, 2, 2, 1);
    tess_selection *sel = NULL;
    tess_selection_lists lists;
    CHECK_OK(
        tess_selection_create(ctx, &(tess_sel_shape){1, 1, 2, 3, 1, 1, NULL, NULL, 0, 0}, 2, &sel));
    CHECK_OK(tess_selection_set_lists(sel, (int64_t[]){0, 2, 2}, (int32_t[]){0, 2}));
    CHECK_OK(tess_selection_view(sel, &lists));
    double o[4], lse[2], dq[4], dk[6], dv[6];
    CHECK_OK(ref_attn_forward(ctx, &hand_shape, &lists, &vq, &vk, &vv, o, lse));
    CHECK_CLOSE(o, ((double[]){44.0 / 3, 20, 0, 0}), 4, hand_tolerance);
    CHECK_CLOSE(lse, ((double[]){log(6), -INFINITY}), 2, hand_tolerance);
    assert_true(o[2] == 0.0 && o[3] == 0.0);
    /* p = 1/6, 5/6; dp = 8, 16 around their mean 44/3, and 6 for lse. */
    CHECK_OK(ref_attn_backward(ctx, &hand_shape, &lists, &vq, &vk, &vv, &vdo, dlse, dq, dk, dv));
    const double ds0 = (8 - 44.0 / 3 + 6) / 6, ds2 = (16 - 44.0 / 3 + 6) * 5 / 6;
    CHECK_CLOSE(dq, ((double[]){ds2 * log(5), 0, 0, 0}), 4, hand_tolerance);
    CHECK_CLOSE(dk, ((double[]){ds0, 0, 0, 0, ds2, 0}), 6, hand_tolerance);
    CHECK_CLOSE(dv, ((double[]){1.0 / 6, 0, 0, 0, 5.0 / 6, 0}), 6, hand_tolerance);
    assert_true(dq[2] == 0.0 && dq[3] == 0.0 && dk[2] == 0.0 && dv[2] == 0.0 && dv[3] == 0.0);
    tess_selection_destroy(sel);
}

/* Query 0 selects key 0; keys 1 and 2 have scores log 2 and log 8, their mean log 4, with log 2 for
 * their number log 8. So the probabilities are 1/9 and 8/9. Query 1 selects all three. */
static void a_virtual_key_stands_for_what_is_left_out(void **state)
{
    (void)state;
    const double k[] = {0, 0, log(2), 0, log(8), 0}, dout[] = {9, 0, 0, 0};
    const tess_view vq = f64(hand_q, 2, 2, 1), vk = f64(k, 3, 2, 1), vv = f64(hand_v, 3, 2, 1);
    const tess_view vdo = f64(dout, 2, 2, 1);
    tess_attn_shape with = hand_shape;
    with.compensate = 1;
    tess_selection *sel = NULL;
    tess_selection_lists lists;
    CHECK_OK(
        tess_selection_create(ctx, &(tess_sel_shape){1, 1, 2, 3, 1, 1, NULL, NULL, 0, 0}, 4, &sel));
    CHECK_OK(tess_selection_set_lists(sel, (int64_t[]){0, 1, 4}, (int32_t[]){0, 0, 1, 2}));
    CHECK_OK(tess_selection_view(sel, &lists));
    double o[4], lse[2], dq[4], dk[6], dv[6];
    CHECK_OK(ref_attn_forward(ctx, &with, &lists, &vq, &vk, &vv, o, lse));
    /* The mean value is (8, 16). */
    CHECK_CLOSE(o, ((double[]){8, 128.0 / 9, 8, 32.0 / 3}), 4, hand_tolerance);
    CHECK_CLOSE(lse, ((double[]){log(9), log(3)}), 2, hand_tolerance);
    /* dp is 72 for both, so ds is 0; dv of the virtual key is 8, of which each gets half. */
    CHECK_OK(ref_attn_backward(ctx, &with, &lists, &vq, &vk, &vv, &vdo, NULL, dq, dk, dv));
    CHECK_CLOSE(dv, ((double[]){1, 0, 4, 0, 4, 0}), 6, hand_tolerance);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(dk[i]) < 72 * hand_tolerance);
    tess_selection_destroy(sel);
}

static void no_keys_and_no_queries_are_allowed(void **state)
{
    (void)state;
    const tess_view vq = f64(hand_q, 2, 2, 1), none = {NULL, TESS_DTYPE_F64, 0, 0, 0};
    tess_attn_shape shape = hand_shape;
    shape.tokens_k = 0;
    double o[4] = {9, 9, 9, 9}, lse[2] = {9, 9}, dq[4] = {9, 9, 9, 9}, nothing[1] = {5};
    CHECK_OK(ref_attn_forward(ctx, &shape, NULL, &vq, &none, &none, o, lse));
    CHECK_CLOSE(o, ((double[]){0, 0, 0, 0}), 4, 0.0);
    CHECK_CLOSE(lse, ((double[]){-INFINITY, -INFINITY}), 2, 0.0);
    CHECK_OK(
        ref_attn_backward(ctx, &shape, NULL, &vq, &none, &none, &vq, NULL, dq, nothing, nothing));
    CHECK_CLOSE(dq, ((double[]){0, 0, 0, 0}), 4, 0.0);
    shape = hand_shape;
    shape.tokens_q = 0;
    double dk[6] = {9}, dv[6] = {9};
    const tess_view vk = f64(hand_v, 3, 2, 1);
    CHECK_OK(ref_attn_backward(ctx, &shape, NULL, &none, &vk, &vk, &none, NULL, nothing, dk, dv));
    CHECK_CLOSE(dk, ((double[6]){0}), 6, 0.0);
    CHECK_CLOSE(dv, ((double[6]){0}), 6, 0.0);
    assert_true(nothing[0] == 5.0);
}

/* ---- finite differences ------------------------------------------------------------------- */

enum { B = 2, H = 2, TQ = 7, TK = 9, D = 8, NQ = B * H * TQ * D, NK = B * H * TK * D };
static const tess_attn_shape shape = {
    .batch = B, .heads = H, .head_dim = D, .tokens_q = TQ, .tokens_k = TK};

/* Queries stored as [B,S,H,D], keys and values as [B,H,S,D]. */
typedef struct {
    double q[NQ], k[NK], v[NK], dout[NQ];
    float dlse[B * H * TQ];
    const tess_selection_lists *sel;
    int compensate;
    const uint8_t *labels;
} problem;

static tess_view view_q(const double *data)
{
    return (tess_view){(void *)(uintptr_t)data, TESS_DTYPE_F64, TQ * H * D, D, H * D};
}

static tess_view view_k(const double *data)
{
    return f64(data, TK, D, H);
}

/* Where element (b, h, i, c) of a query lies in q, for its number in a contiguous result. */
static size_t place_q(size_t n)
{
    const size_t c = n % D, i = n / D % TQ, h = n / D / TQ % H, b = n / D / TQ / H;
    return ((b * TQ + i) * H + h) * D + c;
}

static void widen_normal(double *x, size_t n, uint64_t seed)
{
    float *narrow = malloc(n * sizeof *narrow);
    assert_non_null(narrow);
    fill_normal(narrow, n, seed);
    for (size_t i = 0; i < n; i++)
        x[i] = narrow[i];
    free(narrow);
}

static void fill_problem(problem *p, const tess_selection_lists *sel)
{
    widen_normal(p->q, NQ, 1);
    widen_normal(p->k, NK, 2);
    widen_normal(p->v, NK, 3);
    widen_normal(p->dout, NQ, 4);
    fill_normal(p->dlse, B * H * TQ, 5);
    p->sel = sel;
    p->compensate = 0;
    p->labels = NULL;
}

static tess_attn_shape shape_of(const problem *p)
{
    tess_attn_shape s = shape;
    s.compensate = p->compensate;
    return s;
}

/* The sum of dout * o + dlse * lse over the rows that see anything. */
static double loss(const problem *p)
{
    const tess_view q = view_q(p->q), k = view_k(p->k), v = view_k(p->v);
    const tess_attn_shape s = shape_of(p);
    double o[NQ], lse[B * H * TQ], sum = 0.0;
    CHECK_OK(ref_cluster_forward(ctx, &s, p->sel, p->labels, &q, &k, &v, o, lse));
    for (size_t n = 0; n < NQ; n++)
        sum += p->dout[place_q(n)] * o[n];
    for (size_t i = 0; i < B * H * TQ; i++)
        sum += lse[i] > -INFINITY ? (double)p->dlse[i] * lse[i] : 0.0;
    return sum;
}

static double slope(problem *p, double *x)
{
    const double step = 1e-5, at = *x;
    *x = at + step;
    const double up = loss(p);
    *x = at - step;
    const double down = loss(p);
    *x = at;
    return (up - down) / (2 * step);
}

/* A central difference is off by step^2 / 6 times the third derivative, which stays below 20 for
 * numbers of normal size: 3.4e-10. The terms of the loss add up to less than 100 in absolute value,
 * each right to about 4 roundings of 2^-53: 4.4e-14 of the loss, 4.4e-9 of the slope. The largest
 * gradients are above 0.3. */
static const double slope_tolerance = (3.4e-10 + 4.4e-9) / 0.3;

static void check_gradients(problem *p)
{
    const tess_view q = view_q(p->q), k = view_k(p->k), v = view_k(p->v), dout = view_q(p->dout);
    static double dq[NQ], dk[NK], dv[NK], slopes_q[NQ], slopes_k[NK], slopes_v[NK];
    const tess_attn_shape s = shape_of(p);
    CHECK_OK(
        ref_cluster_backward(ctx, &s, p->sel, p->labels, &q, &k, &v, &dout, p->dlse, dq, dk, dv));
    for (size_t n = 0; n < NQ; n++)
        slopes_q[n] = slope(p, &p->q[place_q(n)]);
    for (size_t n = 0; n < NK; n++) {
        slopes_k[n] = slope(p, &p->k[n]);
        slopes_v[n] = slope(p, &p->v[n]);
    }
    CHECK_CLOSE(dq, slopes_q, NQ, slope_tolerance);
    CHECK_CLOSE(dk, slopes_k, NK, slope_tolerance);
    CHECK_CLOSE(dv, slopes_v, NK, slope_tolerance);
}

static void dense_gradients_are_the_slopes_of_a_loss(void **state)
{
    (void)state;
    static problem p;
    fill_problem(&p, NULL);
    check_gradients(&p);
    /* The lse alone, and o alone. */
    memset(p.dout, 0, sizeof p.dout);
    check_gradients(&p);
    fill_problem(&p, NULL);
    memset(p.dlse, 0, sizeof p.dlse);
    check_gradients(&p);
}

static const int64_t bounds_q[] = {0, 3, 4, 7}, bounds_k[] = {0, 2, 3, 8, 9};
static const tess_sel_shape uneven = {B, H, TQ, TK, 0, 0, bounds_q, bounds_k, 3, 4};

/* Groups and units of uneven size; some lists empty, one full, unit 1 of head 3 in no list. */
static void sparse_gradients_are_the_slopes_of_a_loss(void **state)
{
    (void)state;
    static const uint8_t mask[B * H * 3 * 4] = {1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, /* head 0 */
                                                0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, /* head 1 */
                                                1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, /* head 2 */
                                                1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 1};
    tess_selection *sel = NULL;
    tess_selection_lists lists;
    CHECK_OK(tess_selection_create(ctx, &uneven, 100, &sel));
    CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
    CHECK_OK(tess_selection_view(sel, &lists));
    static problem p;
    fill_problem(&p, &lists);
    check_gradients(&p);
    p.compensate = 1;
    check_gradients(&p);
    /* Three clusters, one of them empty in some heads. */
    static uint8_t labels[B * H * TK];
    for (int i = 0; i < B * H * TK; i++)
        labels[i] = (uint8_t)(i % 5 % (i / TK % 2 ? 3 : 2));
    p.compensate = 3;
    p.labels = labels;
    check_gradients(&p);
    tess_selection_destroy(sel);
}

/* ---- invariants --------------------------------------------------------------------------- */

static tess_selection *from_units(const uint8_t units[4], tess_selection_lists *lists)
{
    uint8_t mask[B * H * 3 * 4];
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = units[i % 4];
    tess_selection *sel = NULL;
    CHECK_OK(tess_selection_create(ctx, &uneven, sizeof mask, &sel));
    CHECK_OK(tess_selection_set_mask(sel, mask, TESS_MASK_BYTES));
    CHECK_OK(tess_selection_view(sel, lists));
    return sel;
}

static void a_full_selection_gives_the_bits_of_dense(void **state)
{
    (void)state;
    static problem p;
    fill_problem(&p, NULL);
    const tess_view q = view_q(p.q), k = view_k(p.k), v = view_k(p.v);
    tess_selection_lists lists;
    tess_selection *sel = from_units((const uint8_t[]){1, 1, 1, 1}, &lists);
    double o[2][NQ], lse[2][B * H * TQ];
    CHECK_OK(ref_attn_forward(ctx, &shape, NULL, &q, &k, &v, o[0], lse[0]));
    CHECK_OK(ref_attn_forward(ctx, &shape, &lists, &q, &k, &v, o[1], lse[1]));
    assert_memory_equal(o[0], o[1], sizeof o[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    tess_selection_destroy(sel);
}

static void threads_do_not_change_the_bits(void **state)
{
    (void)state;
    tess_ctx *three = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 3}, &three));
    static problem p;
    fill_problem(&p, NULL);
    const tess_view q = view_q(p.q), k = view_k(p.k), v = view_k(p.v), dout = view_q(p.dout);
    double o[2][NQ], dq[2][NQ], dk[2][NK], dv[2][NK];
    for (int i = 0; i < 2; i++) {
        tess_ctx *with = i ? three : ctx;
        CHECK_OK(ref_attn_forward(with, &shape, NULL, &q, &k, &v, o[i], NULL));
        CHECK_OK(
            ref_attn_backward(with, &shape, NULL, &q, &k, &v, &dout, NULL, dq[i], dk[i], dv[i]));
    }
    assert_memory_equal(o[0], o[1], sizeof o[0]);
    assert_memory_equal(dq[0], dq[1], sizeof dq[0]);
    assert_memory_equal(dk[0], dk[1], sizeof dk[0]);
    assert_memory_equal(dv[0], dv[1], sizeof dv[0]);
    tess_ctx_destroy(three);
}

/* The weights of a merge are correctly rounded within a few operations, as are the softmaxes of
 * the parts, whose sums have at most nine terms: 30 roundings of 2^-53. */
static void the_merge_of_two_halves_is_the_whole(void **state)
{
    (void)state;
    static problem p;
    fill_problem(&p, NULL);
    const tess_view q = view_q(p.q), k = view_k(p.k), v = view_k(p.v);
    tess_selection_lists left, right, empty;
    tess_selection *sel[] = {from_units((const uint8_t[]){1, 0, 1, 0}, &left),
                             from_units((const uint8_t[]){0, 1, 0, 1}, &right),
                             from_units((const uint8_t[]){0, 0, 0, 0}, &empty)};
    double o[NQ], lse[B * H * TQ], o_part[NQ], lse_part[B * H * TQ];
    double o_all[NQ], lse_all[B * H * TQ];
    CHECK_OK(ref_attn_forward(ctx, &shape, NULL, &q, &k, &v, o_all, lse_all));
    CHECK_OK(ref_attn_forward(ctx, &shape, &left, &q, &k, &v, o, lse));
    CHECK_OK(ref_attn_forward(ctx, &shape, &right, &q, &k, &v, o_part, lse_part));
    ref_attn_merge(&shape, o_part, lse_part, o, lse);
    CHECK_CLOSE(o, o_all, NQ, 30 * 1.2e-16);
    CHECK_CLOSE(lse, lse_all, B * H * TQ, 30 * 1.2e-16);
    /* Nothing on either side changes nothing; nothing on both is nothing. */
    double o_none[NQ], lse_none[B * H * TQ];
    CHECK_OK(ref_attn_forward(ctx, &shape, &empty, &q, &k, &v, o_none, lse_none));
    memcpy(o, o_all, sizeof o);
    memcpy(lse, lse_all, sizeof lse);
    ref_attn_merge(&shape, o_none, lse_none, o, lse);
    CHECK_CLOSE(o, o_all, NQ, 0.0);
    CHECK_CLOSE(lse, lse_all, B * H * TQ, 0.0);
    memcpy(o, o_none, sizeof o);
    memcpy(lse, lse_none, sizeof lse);
    ref_attn_merge(&shape, o_none, lse_none, o, lse);
    CHECK_CLOSE(o, o_none, NQ, 0.0);
    CHECK_CLOSE(lse, lse_none, B * H * TQ, 0.0);
    ref_attn_merge(&shape, o_all, lse_all, o, lse);
    CHECK_CLOSE(o, o_all, NQ, 0.0);
    CHECK_CLOSE(lse, lse_all, B * H * TQ, 0.0);
    for (int i = 0; i < 3; i++)
        tess_selection_destroy(sel[i]);
}

static void bf16_and_f32_views_are_widened_exactly(void **state)
{
    (void)state;
    float f32[NK];
    uint16_t bf16[NK];
    double wide[NK], o[3][NQ];
    fill_normal(f32, NK, 6);
    for (int i = 0; i < NK; i++) {
        uint32_t bits;
        memcpy(&bits, &f32[i], sizeof bits);
        bf16[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000;
        memcpy(&f32[i], &bits, sizeof bits);
        wide[i] = f32[i];
    }
    const void *data[] = {wide, f32, bf16};
    const tess_dtype dtypes[] = {TESS_DTYPE_F64, TESS_DTYPE_F32, TESS_DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        const tess_view k = {(void *)(uintptr_t)data[i], dtypes[i], H * TK * D, TK * D, D};
        tess_view q = k; /* its first queries */
        q.stride_h = TQ * D;
        CHECK_OK(ref_attn_forward(ctx, &shape, NULL, &q, &k, &k, o[i], NULL));
    }
    assert_memory_equal(o[1], o[0], sizeof o[0]);
    assert_memory_equal(o[2], o[0], sizeof o[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_comparison_finds_the_worst_element),
    cmocka_unit_test(the_forward_pass_gives_what_a_hand_does),
    cmocka_unit_test(the_backward_pass_gives_what_a_hand_does),
    cmocka_unit_test(an_empty_row_gives_zero_and_minus_infinity),
    cmocka_unit_test(a_virtual_key_stands_for_what_is_left_out),
    cmocka_unit_test(no_keys_and_no_queries_are_allowed),
    cmocka_unit_test(dense_gradients_are_the_slopes_of_a_loss),
    cmocka_unit_test(sparse_gradients_are_the_slopes_of_a_loss),
    cmocka_unit_test(a_full_selection_gives_the_bits_of_dense),
    cmocka_unit_test(threads_do_not_change_the_bits),
    cmocka_unit_test(the_merge_of_two_halves_is_the_whole),
    cmocka_unit_test(bf16_and_f32_views_are_widened_exactly),
};
RUN_TESTS_WITH(tests, make_ctx_of_one, drop_ctx)
