/* SPDX-License-Identifier: Apache-2.0 */
/* ctx_fixture.h - one context for all tests of a file, made before the first and destroyed after
 * the last, where memory that a test left behind is a failure. */
#ifndef TEST_CTX_FIXTURE_H
#define TEST_CTX_FIXTURE_H

#include "test.h"

static tess_ctx *ctx;

/* For setups that want a context of their own kind. */
static inline int open_ctx(const tess_ctx_opts *opts)
{
    return tess_ctx_create(opts, &ctx) != TESS_OK;
}

static inline int make_ctx(void **state)
{
    (void)state;
    return open_ctx(NULL);
}

static inline int drop_ctx(void **state)
{
    (void)state;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
    return 0;
}

#endif
