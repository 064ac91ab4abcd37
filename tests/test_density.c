/* SPDX-License-Identifier: Apache-2.0 */
/* test_density.c - how many keys groups need, and what sharing them costs, against brute force. */
#include "select_data.h"

#include "tessera/advanced/predict.h"

/* Masses err by 5e-5 (see test_select.c), and so do the ratios of their sums. How many units reach
 * a share may be off where a sum comes as close to it as this. */
static const double TOL = 5e-5;

enum { UNITS_MAX = 4096, HEADS_MAX = 6 };

/* ---- brute force --------------------------------------------------------------------------- */

/* Share of the k best of n masses. */
static double top_share(const double *mass, int32_t n, int64_t k)
{
    ranked *r = rank_units(mass, n);
    double sum = 0.0, total = 0.0;
    for (int32_t i = 0; i < n; i++) {
        total += r[i].score;
        sum += i < k ? r[i].score : 0.0;
    }
    free(r);
    return sum / total;
}

static int64_t count_units(const double *mass, int32_t n, double share)
{
    ranked *r = rank_units(mass, n);
    double total = 0.0, sum = 0.0;
    for (int32_t i = 0; i < n; i++)
        total += r[i].score;
    int64_t k = 0;
    while (k < n && (k == 0 || sum < share * total))
        sum += r[k++].score;
    free(r);
    return k;
}

static double group_density(tess_ctx *ctx, const problem *p, int64_t head, int32_t g, double share)
{
    double mass[UNITS_MAX];
    ref_mass(ctx, p, head, bound_q(p, g), bound_q(p, g + 1), 0.0f, mass, NULL);
    return (double)count_units(mass, p->n_k, share) / p->n_k;
}

static double group_overlap(tess_ctx *ctx, const problem *p, int64_t head, int32_t g, double share,
                            int64_t k)
{
    double mass[UNITS_MAX], needed = 0.0, own = 0.0;
    const int64_t begin = bound_q(p, g), end = bound_q(p, g + 1);
    for (int64_t i = begin; i < end && k == 0; i++) {
        ref_mass(ctx, p, head, i, i + 1, 0.0f, mass, NULL);
        needed += (double)count_units(mass, p->n_k, share);
    }
    k = k == 0 ? (int64_t)ceil(needed / (double)(end - begin)) : k;
    for (int64_t i = begin; i < end; i++) {
        ref_mass(ctx, p, head, i, i + 1, 0.0f, mass, NULL);
        own += top_share(mass, p->n_k, k) / (double)(end - begin);
    }
    ref_mass(ctx, p, head, begin, end, 0.0f, mass, NULL);
    return top_share(mass, p->n_k, k) / own;
}

/* Mean over the measured groups of a head, weighted by queries; k below 0: density. */
static double ref_mean(tess_ctx *ctx, const problem *p, int64_t head, int32_t every, int32_t first,
                       double share, int64_t k)
{
    double sum = 0.0, queries = 0.0;
    for (int32_t g = first; g < p->n_q; g += every) {
        const double rows = (double)(bound_q(p, g + 1) - bound_q(p, g));
        sum += rows * (k < 0 ? group_density(ctx, p, head, g, share)
                             : group_overlap(ctx, p, head, g, share, k));
        queries += rows;
    }
    return sum / queries;
}

static tess_density_in in_of(const problem *p, double mass, int32_t every, int32_t first)
{
    return (tess_density_in){.q = &p->q,
                             .k = &p->k,
                             .head_dim = p->dim,
                             .groups = &p->shape,
                             .mass = mass,
                             .every = every,
                             .first = first};
}

/* ---- measures ------------------------------------------------------------------------------ */

static void compare_density(tess_ctx *ctx)
{
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], 16, 0);
        const int32_t every = p.n_q > 3 ? 3 : 1, first = every > 1 ? 1 : 0;
        const tess_density_in in = in_of(&p, 0.9, every, first);
        double got[HEADS_MAX];
        CHECK_OK(tess_density_measure(ctx, &in, got));
        for (int64_t head = 0; head < (int64_t)p.shape.batch * p.shape.heads; head++) {
            const double least = ref_mean(ctx, &p, head, every, first, 0.9 - TOL, -1);
            const double most = ref_mean(ctx, &p, head, every, first, 0.9 + TOL, -1);
            if (got[head] < least - 1e-12 || got[head] > most + 1e-12)
                fail_msg("shape %d, head %d: %.9g, must be %.9g..%.9g", s, (int)head, got[head],
                         least, most);
        }
        problem_free(&p);
    }
}

static void density_is_the_share_of_units_that_reach_the_mass(void **state)
{
    (void)state;
    with_every_isa(compare_density);
}

static void compare_overlap(tess_ctx *ctx)
{
    for (int s = 0; s < SHAPES; s++) {
        problem p = problem_make(&shapes[s], 16, 0);
        const tess_density_in in = in_of(&p, 0.7, 2, 0);
        const int32_t every = p.n_q < 2 ? 1 : 2, some = 1 + p.n_k / 8;
        double given[HEADS_MAX], found[HEADS_MAX];
        CHECK_OK(tess_overlap_measure(ctx, &in, some, given));
        CHECK_OK(tess_overlap_measure(ctx, &in, 0, found));
        for (int64_t head = 0; head < (int64_t)p.shape.batch * p.shape.heads; head++) {
            const double want = ref_mean(ctx, &p, head, every, 0, 0.7, some);
            assert_float_equal(given[head], want, 2 * TOL);
            double least = INFINITY, most = -INFINITY;
            for (int i = -1; i <= 1; i++) {
                const double near = ref_mean(ctx, &p, head, every, 0, 0.7 + i * TOL, 0);
                least = fmin(least, near);
                most = fmax(most, near);
            }
            if (found[head] < least - 2 * TOL || found[head] > most + 2 * TOL)
                fail_msg("shape %d, head %d: %.9g, must be %.9g..%.9g", s, (int)head, found[head],
                         least, most);
        }
        problem_free(&p);
    }
}

static void overlap_is_the_mass_of_the_shared_set_over_that_of_their_own(void **state)
{
    (void)state;
    with_every_isa(compare_overlap);
}

static const tess_sel_shape square = {
    .batch = 2, .heads = 3, .tokens_q = 96, .tokens_k = 96, .group = 10, .unit = 1};

static void a_given_lse_changes_nothing_but_the_cost(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    double mass[96], row[96], got[6], plain[6];
    float lse[6 * 96];
    for (int64_t head = 0; head < 6; head++) {
        ref_mass(ctx, &p, head, 0, 96, 0.0f, mass, row);
        for (int i = 0; i < 96; i++)
            lse[head * 96 + i] = (float)row[i];
    }
    tess_density_in in = in_of(&p, 0.8, 1, 0);
    CHECK_OK(tess_density_measure(ctx, &in, plain));
    in.lse = lse;
    CHECK_OK(tess_density_measure(ctx, &in, got));
    for (int head = 0; head < 6; head++)
        assert_float_equal(got[head], plain[head], 1.0 / 96.0 / 10.0);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void a_quantile_is_one_of_the_groups(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    double each[10][6], got[6];
    for (int32_t g = 0; g < 10; g++) {
        const tess_density_in one = in_of(&p, 0.9, 10, g);
        CHECK_OK(tess_density_measure(ctx, &one, each[g]));
    }
    static const struct {
        double quantile;
        int above; /* groups that may exceed it */
    } cases[] = {{1.0, 0}, {0.999, 0}, {0.9, 1}, {0.5, 5}, {1e-9, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_density_in in = in_of(&p, 0.9, 1, 0);
        in.quantile = cases[i].quantile;
        CHECK_OK(tess_density_measure(ctx, &in, got));
        for (int head = 0; head < 6; head++) {
            int above = 0, equal = 0;
            for (int g = 0; g < 10; g++) {
                above += each[g][head] > got[head];
                equal += each[g][head] == got[head];
            }
            assert_true(above <= cases[i].above && equal > 0 && above + equal > cases[i].above);
        }
    }
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void equal_keys_need_their_share_and_one_key_needs_one(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    const tess_density_in in = in_of(&p, 0.5, 0, 7);
    double got[6];
    memset(p.q_data, 0, sizeof(float) * 2 * 96 * 3 * (16 + GAP));
    CHECK_OK(tess_density_measure(ctx, &in, got));
    for (int head = 0; head < 6; head++)
        assert_float_equal(got[head], 0.5, 1e-12);
    CHECK_OK(tess_overlap_measure(ctx, &in, 0, got));
    for (int head = 0; head < 6; head++)
        assert_float_equal(got[head], 1.0, 1e-6);
    /* Every query points along the first dimension, where one key lies far out. */
    memset(p.k_data, 0, sizeof(float) * 2 * 96 * 3 * (16 + GAP));
    for (int i = 0; i < 2 * 96 * 3; i++)
        p.q_data[i * (16 + GAP)] = 10.0f;
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 3; h++)
            p.k_data[((b * 96 + 50) * 3 + h) * (16 + GAP)] = 10.0f;
    CHECK_OK(tess_density_measure(ctx, &in, got));
    for (int head = 0; head < 6; head++)
        assert_float_equal(got[head], 1.0 / 96.0, 1e-12);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void queries_that_are_not_finite_are_left_out(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    const tess_density_in in = in_of(&p, 0.9, 1, 0);
    double before[6], got[6], overlap[6];
    CHECK_OK(tess_density_measure(ctx, &in, before));
    p.k_data[0] = NAN; /* head 0 of sample 0: no softmax is finite */
    CHECK_OK(tess_density_measure(ctx, &in, got));
    CHECK_OK(tess_overlap_measure(ctx, &in, 0, overlap));
    assert_true(got[0] == 1.0 && overlap[0] == 0.0);
    for (int head = 1; head < 6; head++)
        assert_true(got[head] == before[head] && overlap[head] > 0.0);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    problem p = problem_make(&shapes[2], 32, 0);
    const tess_density_in in = in_of(&p, 0.9, 1, 0);
    double first[2][6], got[2][6];
    for (int threads = 1; threads <= 4; threads++) {
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
        CHECK_OK(tess_density_measure(ctx, &in, got[0]));
        CHECK_OK(tess_overlap_measure(ctx, &in, 0, got[1]));
        if (threads == 1)
            memcpy(first, got, sizeof got);
        assert_memory_equal(got, first, sizeof got);
        tess_ctx_destroy(ctx);
    }
    problem_free(&p);
}

/* ---- bad input, stopping ------------------------------------------------------------------- */

static void wrong_inputs_are_named(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    problem p = problem_make(&square, 16, 0);
    tess_sel_shape none = square, odd = square;
    none.tokens_k = 0;
    odd.group = 0;
    double out[6];
    tess_density_in in;
#define CASE(change, sentence)                                                                     \
    in = in_of(&p, 0.9, 1, 0);                                                                     \
    change;                                                                                        \
    CHECK_FAILS(tess_density_measure(ctx, &in, out), TESS_EINVAL,                                  \
                "tess_density_measure: " sentence);                                                \
    CHECK_FAILS(tess_overlap_measure(ctx, &in, 0, out), TESS_EINVAL,                               \
                "tess_overlap_measure: " sentence)
    CASE(in.q = NULL, "q is NULL");
    CASE(in.k = NULL, "k is NULL");
    CASE(in.groups = NULL, "groups is NULL");
    CASE(in.groups = &none, "groups has 96 queries and 0 keys, needs both");
    CASE(in.groups = &odd, "group is 0, must be 1 or more, or bounds_q given");
    CASE(in.head_dim = 10, "head_dim is 10, must be a multiple of 8 up to 256");
    CASE(in.scale = -1.0f, "scale is -1, must be finite and not below 0");
    CASE(in.mass = 0.0, "mass is 0, must be above 0 and at most 1");
    CASE(in.mass = NAN, "mass is nan, must be above 0 and at most 1");
    CASE(in.quantile = 1.5, "quantile is 1.5, must be 0..1");
    CASE(in.every = -1, "every is -1, must be 0 or more");
    CASE(in.first = -2, "first is -2, must be 0 or more");
#undef CASE
    in = in_of(&p, 0.9, 1, 0);
    CHECK_FAILS(tess_overlap_measure(ctx, &in, 97, out), TESS_EINVAL,
                "tess_overlap_measure: keys is 97, must be 0..96");
    CHECK_FAILS(tess_overlap_measure(ctx, &in, -1, out), TESS_EINVAL,
                "tess_overlap_measure: keys is -1, must be 0..96");
    CHECK_FAILS(tess_density_measure(NULL, &in, out), TESS_EINVAL,
                "tess_density_measure: ctx is NULL");
    CHECK_FAILS(tess_density_measure(ctx, NULL, out), TESS_EINVAL,
                "tess_density_measure: in is NULL");
    CHECK_FAILS(tess_density_measure(ctx, &in, NULL), TESS_EINVAL,
                "tess_density_measure: density is NULL");
    CHECK_FAILS(tess_overlap_measure(ctx, &in, 0, NULL), TESS_EINVAL,
                "tess_overlap_measure: ratio is NULL");
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static int stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)what, (void)done, (void)total;
    return 1;
}

static void a_stopped_call_writes_nothing(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop}, &ctx));
    problem p = problem_make(&square, 16, 0);
    const tess_density_in in = in_of(&p, 0.9, 1, 0);
    double out[6] = {-1.0, -1.0, -1.0, -1.0, -1.0, -1.0};
    CHECK_FAILS(tess_density_measure(ctx, &in, out), TESS_ESTOPPED,
                "stopped by the caller while measuring density");
    CHECK_FAILS(tess_overlap_measure(ctx, &in, 0, out), TESS_ESTOPPED,
                "stopped by the caller while measuring overlap");
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == -1.0);
    problem_free(&p);
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(density_is_the_share_of_units_that_reach_the_mass),
    cmocka_unit_test(overlap_is_the_mass_of_the_shared_set_over_that_of_their_own),
    cmocka_unit_test(a_given_lse_changes_nothing_but_the_cost),
    cmocka_unit_test(a_quantile_is_one_of_the_groups),
    cmocka_unit_test(equal_keys_need_their_share_and_one_key_needs_one),
    cmocka_unit_test(queries_that_are_not_finite_are_left_out),
    cmocka_unit_test(bits_do_not_depend_on_threads),
    cmocka_unit_test(wrong_inputs_are_named),
    cmocka_unit_test(a_stopped_call_writes_nothing),
};

RUN_TESTS(tests)
