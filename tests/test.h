/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - what the tests need beyond cmocka: statuses with their sentence, arrays compared by
 * their worst element, random arrays, a run of named tests. */
#ifndef TESS_TEST_H
#define TESS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tessera/advanced/machine.h"
#include "tessera/base.h"

/* 1: a sanitizer watches, and everything takes five times as long. Loops over seeds, counts and
 * steps that say nothing about memory are shorter then; the release build runs them whole. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

/* Fails with the library's sentence unless the call succeeds. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tess_status check_status_ = (call);                                                        \
        if (check_status_ != TESS_OK)                                                              \
            fail_msg("%s: %s: %s", #call, tess_status_name(check_status_), tess_last_error());     \
    } while (0)

/* The call fails with this status and exactly this sentence. */
#define CHECK_FAILS(call, status, sentence)                                                        \
    do {                                                                                           \
        tess_status check_status_ = (call);                                                        \
        assert_string_equal(tess_status_name(check_status_), tess_status_name(status));            \
        assert_string_equal(tess_last_error(), sentence);                                          \
    } while (0)

/* Runs fn with a context of each instruction set this machine has; names those it skips. */
static inline void on_every_isa(void (*fn)(const tess_ctx *ctx))
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        if (isa.bf16) /* all that is not bf16 is that of another */
            continue;
        if (!isa.available) {
            print_message("skipped on %s: %s\n", isa.name, isa.why);
            continue;
        }
        tess_ctx *ctx = NULL;
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa.name, .threads = 2}, &ctx));
        fn(ctx);
        tess_ctx_destroy(ctx);
    }
}

/* As on_every_isa, for a function that makes objects in the context and frees them all. */
static inline void with_every_isa(void (*fn)(tess_ctx *ctx))
{
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        tess_ctx *ctx = NULL;
        tess_ctx_info info;
        CHECK_OK(tess_isa_query(i, &isa));
        if (isa.bf16) /* all that is not bf16 is that of another */
            continue;
        if (!isa.available) {
            print_message("skipped on %s: %s\n", isa.name, isa.why);
            continue;
        }
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa.name, .threads = 2}, &ctx));
        fn(ctx);
        CHECK_OK(tess_ctx_query(ctx, &info));
        assert_int_equal(info.bytes_now, 0);
        tess_ctx_destroy(ctx);
    }
}

/* max |got - want| / max |want| is at most the tolerance, or the worst element is named. Infinities
 * and zeros must be met exactly where want has them (zeros: where it has nothing else), and a NaN
 * in got never passes. got is float * or double *, want is double *. */
#define CHECK_CLOSE(got, want, n, tolerance)                                                       \
    check_close_(                                                                                  \
        #got,                                                                                      \
        _Generic((got) + 0, float * : 0, const float * : 0, double * : 1, const double * : 1),     \
        (got), (want), (n), (tolerance), __FILE__, __LINE__)

static inline double element_(const void *x, int is_double, size_t i)
{
    return is_double ? ((const double *)x)[i] : ((const float *)x)[i];
}

/* max |got - want| / max |want|, infinite where CHECK_CLOSE asks for the same; *at is its place. */
static inline double worst_element_(const void *got, int is_double, const double *want, size_t n,
                                    size_t *at)
{
    double size = 0.0, worst = 0.0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(want[i]))
            size = fmax(size, fabs(want[i]));
    for (size_t i = 0; i < n; i++) {
        const double x = element_(got, is_double, i);
        const double apart = isfinite(x) && isfinite(want[i]) ? fabs(x - want[i]) / size : INFINITY;
        if (x != want[i] && apart > worst) {
            worst = apart;
            *at = i;
        }
    }
    return worst;
}

static inline void check_close_(const char *name, int is_double, const void *got,
                                const double *want, size_t n, double tolerance, const char *file,
                                int line)
{
    size_t at = 0;
    const double worst = worst_element_(got, is_double, want, n, &at);
    if (worst <= tolerance)
        return;
    print_error("%s[%zu] is %.17g, must be %.17g: off by %.3g of the largest, allowed is %.3g\n",
                name, at, element_(got, is_double, at), want[at], worst, tolerance);
    _fail(file, line);
}

/* n normal numbers of the seed. */
static inline void fill_normal(float *x, size_t n, uint64_t seed)
{
    CHECK_OK(tess_random_normal(seed, 0, 0, x, n));
}

/* Runs the tests of a table; the first argument, if any, selects by name (cmocka's * and ?). The
 * second form calls a function before the first test and one after the last; NULL is none. Where
 * the last one fails the run does: cmocka 1.1 says so, but does not count it. */
#define RUN_TESTS(tests) RUN_TESTS_WITH(tests, NULL, NULL)
#define RUN_TESTS_WITH(tests, setup, teardown)                                                     \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        if (argc > 1)                                                                              \
            cmocka_set_test_filter(argv[1]);                                                       \
        group_teardown_ = teardown;                                                                \
        const int failed_ = cmocka_run_group_tests(tests, setup, run_teardown_);                   \
        return failed_ ? failed_ : teardown_failed_;                                               \
    }

static CMFixtureFunction group_teardown_;
static int teardown_failed_;

static inline int run_teardown_(void **state)
{
    teardown_failed_ = group_teardown_ != NULL; /* an assertion does not come back */
    if (group_teardown_)
        teardown_failed_ = group_teardown_(state) != 0;
    return teardown_failed_;
}

#endif
