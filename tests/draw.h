/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - random numbers for cases drawn at random, and a context that notices what is left. */
#ifndef TESS_TEST_DRAW_H
#define TESS_TEST_DRAW_H

#include "test.h"

static uint64_t draws; /* numbers drawn so far, of one stream */

static inline uint32_t draw(uint32_t below)
{
    uint32_t bits;
    CHECK_OK(tess_random_bits(11, 0, draws++, &bits, 1));
    return (uint32_t)(((uint64_t)bits * below) >> 32);
}

static inline int between(int least, int most)
{
    return least + (int)draw((uint32_t)(most - least + 1));
}

static inline tess_ctx *context(void)
{
    static tess_ctx *ctx;
    if (!ctx)
        CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx));
    return ctx;
}

/* For the end of a group of tests: all memory is back. */
static inline int drop_context(void **state)
{
    (void)state;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(context(), &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(context());
    return 0;
}

#endif
