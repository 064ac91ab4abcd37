/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - what the tests need beyond cmocka: statuses with their sentence, a run of named tests.
 */
#ifndef TESS_TEST_H
#define TESS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tessera/base.h"

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

/* Runs the tests of a table; the first argument, if any, selects by name (cmocka's * and ?). */
#define RUN_TESTS(tests)                                                                           \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        if (argc > 1)                                                                              \
            cmocka_set_test_filter(argv[1]);                                                       \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
