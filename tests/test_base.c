/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c - status, context, memory. */
#include "base/base_internal.h"
#include "test.h"

#include <stdlib.h>

static void a_context_says_what_it_uses(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 2}, &ctx));
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_string_equal(info.isa, "base");
    assert_int_equal(info.threads, 2);
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(ctx);
    tess_ctx_destroy(NULL);
}

static void a_wrong_context_gets_a_sentence(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_FAILS(tess_ctx_create(&(tess_ctx_opts){.isa = "sse9"}, &ctx), TESS_EINVAL,
                "tess_ctx_create: isa is \"sse9\", must be avx512, avx2, neon, base, "
                "wide, amx, avx512-bf16, neon-bf16, wide-tiles or wide-pairs");
    CHECK_FAILS(tess_ctx_create(&(tess_ctx_opts){.threads = -1}, &ctx), TESS_EINVAL,
                "tess_ctx_create: threads is -1, must be 1..1024, or 0 for all usable cores");
    setenv("TESS_THREADS", "2x", 1);
    CHECK_FAILS(tess_ctx_create(NULL, &ctx), TESS_EINVAL,
                "tess_ctx_create: TESS_THREADS is \"2x\", must be 1..1024");
    unsetenv("TESS_THREADS");
    setenv("TESS_ISA", "vax", 1);
    CHECK_FAILS(tess_ctx_create(NULL, &ctx), TESS_EINVAL,
                "tess_ctx_create: isa is \"vax\", must be avx512, avx2, neon, base, "
                "wide, amx, avx512-bf16, neon-bf16, wide-tiles or wide-pairs");
    unsetenv("TESS_ISA");
    assert_null(ctx);
}

static void an_isa_the_machine_lacks_is_an_error_with_its_reason(void **state)
{
    (void)state;
    int usable = 0;
    for (int i = 0; i < tess_isa_count(); i++) {
        tess_isa isa;
        CHECK_OK(tess_isa_query(i, &isa));
        tess_ctx *ctx = NULL;
        const tess_status status = tess_ctx_create(&(tess_ctx_opts){.isa = isa.name}, &ctx);
        assert_int_equal(status, isa.available ? TESS_OK : TESS_ENOTSUP);
        if (!isa.available)
            assert_non_null(strstr(tess_last_error(), isa.why));
        usable += isa.available;
        tess_ctx_destroy(ctx);
    }
    assert_true(usable >= 2); /* base and wide, at least */
}

static void memory_is_aligned_and_counted(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *p = tess__alloc_zero(ctx, bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % TESS_ALIGN, 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(p[i], 0);
        tess__free(ctx, p);
    }
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    assert_true(info.bytes_peak >= 294 && info.bytes_peak < 500);
    assert_int_equal(info.allocations, 43);
    assert_null(tess__alloc(ctx, SIZE_MAX - 3));
    assert_non_null(strstr(tess_last_error(), "cannot allocate"));
    tess_ctx_destroy(ctx);
}

static void an_arena_serves_reserved_pieces_from_one_allocation(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    tess__arena arena = {.ctx = ctx};
    CHECK_OK(tess__arena_reserve(&arena, tess__arena_round(100) + tess__arena_round(0) +
                                             tess__arena_round(64)));
    char *a = tess__arena_take(&arena, 100), *b = tess__arena_take(&arena, 0),
         *c = tess__arena_take(&arena, 64);
    assert_ptr_equal(b, a + 128);
    assert_ptr_equal(c, b + 64);
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.allocations, 1);

    char *text = tess__arena_string(&arena, "abcdef", 3); /* beyond the reserve: a chunk more */
    assert_string_equal(text, "abc");
    memset(tess__arena_take(&arena, 1 << 20), 1, 1 << 20);
    tess__arena_free(&arena);
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    assert_null(tess__arena_take(&arena, SIZE_MAX / 2));
    tess_ctx_destroy(ctx);
}

static int stop_at_three(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what, (void)total;
    *(int64_t *)user = done;
    return done >= 3;
}

static void a_progress_callback_can_stop(void **state)
{
    (void)state;
    int64_t found = -1;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_at_three, .progress_user = &found},
                             &ctx));
    CHECK_OK(tess__progress(ctx, "counting", 2, 10));
    CHECK_FAILS(tess__progress(ctx, "counting", 3, 10), TESS_ESTOPPED,
                "stopped by the caller while counting");
    assert_int_equal(found, 3);
    tess_ctx_destroy(ctx);
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int s = 0; s >= TESS_ESTOPPED; s--)
        assert_string_not_equal(tess_status_name((tess_status)s), "unknown");
    assert_string_equal(tess_status_name((tess_status)-7), "unknown");
}

static void every_dtype_has_a_size_and_a_name(void **state)
{
    (void)state;
    static const struct {
        tess_dtype dtype;
        const char *name;
        size_t size;
    } want[] = {
        {TESS_DTYPE_F32, "F32", 4}, {TESS_DTYPE_BF16, "BF16", 2}, {TESS_DTYPE_F16, "F16", 2},
        {TESS_DTYPE_F64, "F64", 8}, {TESS_DTYPE_I32, "I32", 4},   {TESS_DTYPE_I64, "I64", 8},
        {TESS_DTYPE_U8, "U8", 1},   {TESS_DTYPE_BOOL, "BOOL", 1},
    };
    assert_int_equal(sizeof want / sizeof *want, TESS_DTYPE_COUNT);
    for (int i = 0; i < TESS_DTYPE_COUNT; i++) {
        assert_int_equal(tess_dtype_size(want[i].dtype), want[i].size);
        assert_string_equal(tess_dtype_name(want[i].dtype), want[i].name);
    }
    assert_int_equal(tess_dtype_size(TESS_DTYPE_COUNT), 0);
    assert_string_equal(tess_dtype_name((tess_dtype)-1), "unknown");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_context_says_what_it_uses),
    cmocka_unit_test(a_wrong_context_gets_a_sentence),
    cmocka_unit_test(an_isa_the_machine_lacks_is_an_error_with_its_reason),
    cmocka_unit_test(memory_is_aligned_and_counted),
    cmocka_unit_test(an_arena_serves_reserved_pieces_from_one_allocation),
    cmocka_unit_test(a_progress_callback_can_stop),
    cmocka_unit_test(every_status_has_a_name),
    cmocka_unit_test(every_dtype_has_a_size_and_a_name),
};
RUN_TESTS(tests)
