/* SPDX-License-Identifier: Apache-2.0 */
/* test_break_even.c - measured break-even densities: what they say, and how they are kept. Times
 * are not compared with anything: only what must hold whatever they are. */
#include "attn/break_even.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tess_break_even_XXXXXX";
static char warning[1024];
static int warnings;

static void listen(void *user, tess_log_level level, const char *message)
{
    (void)user, (void)level;
    warnings++;
    snprintf(warning, sizeof warning, "%s", message);
}

static tess_ctx *make_ctx(void)
{
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = 2, .log = listen}, &ctx));
    warnings = 0;
    return ctx;
}

/* An allocator that reads the context at each request. */
typedef struct {
    tess_ctx *ctx;
    long live, calls;
} watch;

static void *watched_alloc(void *user, size_t bytes)
{
    watch *w = user;
    tess_ctx_info info;
    if (w->ctx) {
        CHECK_OK(tess_ctx_query(w->ctx, &info));
        assert_int_equal(info.threads, 2);
    }
    w->calls++;
    w->live++;
    return aligned_alloc(64, bytes);
}

static void watched_free(void *user, void *p)
{
    ((watch *)user)->live -= p != NULL;
    free(p);
}

#define SHAPE(dim, n, group_rows, unit_rows, virtual_key, proj, with_backward)                     \
    {                                                                                              \
        .head_dim = (dim), .queries = (n), .keys = (n), .group = (group_rows),                     \
        .unit = (unit_rows), .compensate = (virtual_key), .proj_dim = (proj),                      \
        .backward = (with_backward)                                                                \
    }

static const tess_attn_rates_shape small = {
    .head_dim = 8, .queries = 64, .keys = 64, .group = 8, .unit = 1, .proj_dim = 8, .backward = 1};

static void check_result(const tess_break_even_result *r)
{
    assert_true(r->ns_dense > 0 && r->ns_sparse_fixed >= 0 && r->ns_sparse_per_density >= 0);
    assert_true(r->density >= 0 && r->density <= 1);
    if (r->density > 0 && r->density < 1) {
        const double sparse = r->ns_sparse_fixed + r->density * r->ns_sparse_per_density;
        assert_true(fabs(sparse - r->ns_dense) < 1e-9 * r->ns_dense);
    }
}

static void measured_times_of_every_shape_are_finite(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    static const tess_attn_rates_shape shapes[] = {
        SHAPE(8, 64, 8, 1, 0, 8, 1),      SHAPE(16, 33, 8, 4, 1, 16, 1), SHAPE(8, 1, 1, 1, 1, 8, 0),
        SHAPE(8, 40, 64, 64, 1, 0, 1),    SHAPE(8, 5000, 8, 1, 1, 8, 0), /* some of its queries */
        SHAPE(8, 40000, 64, 64, 0, 0, 0),                                /* and some of its keys */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        tess_break_even_result r;
        CHECK_OK(tess_break_even(ctx, &shapes[i], NULL, &r));
        check_result(&r);
        assert_int_equal(r.cached, 0);
    }
    assert_int_equal(warnings, 0);
    tess_ctx_destroy(ctx);
}

/* Times of this machine: only their signs are known. */
static void rates_of_every_kind_of_shape_are_finite(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    static const tess_attn_rates_shape shapes[] = {
        SHAPE(8, 1, 1, 1, 0, 0, 0), SHAPE(64, 300, 64, 1, 0, 0, 1),
        SHAPE(128, 2048, 100, 16, 0, 0, 0), SHAPE(72, 20, 64, 64, 1, 8, 1)};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        tess_attn_rates_shape shape = shapes[i];
        tess_attn_rates r[2] = {0};
        shape.seconds = 0.01;
        CHECK_OK(tess_attn_measure(ctx, &shape, r));
        for (int pass = 0; pass <= shape.backward; pass++) {
            assert_true(r[pass].dense > 0 && isfinite(r[pass].dense));
            assert_true(r[pass].sparse >= 0 && isfinite(r[pass].sparse));
            assert_true(r[pass].per_row >= 0 && isfinite(r[pass].per_row));
        }
        assert_true(r[0].per_row_cold > 0 && r[0].per_part >= r[0].per_row_cold);
        assert_true(shape.backward || r[1].dense == 0); /* not written */
    }
    assert_int_equal(warnings, 0);
    tess_ctx_destroy(ctx);
}

static void measuring_leaves_the_context_as_it_is(void **state)
{
    (void)state;
    watch w = {0};
    tess_ctx *ctx = NULL;
    tess_break_even_result r;
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 2, .allocator = {watched_alloc, watched_free, &w}}, &ctx));
    w = (watch){.ctx = ctx, .live = w.live};
    CHECK_OK(tess_break_even(ctx, &small, NULL, &r));
    check_result(&r);
    assert_true(w.calls > 0);
    assert_int_equal(w.live, 1); /* the context itself */
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
    assert_int_equal(info.threads, 2);
    tess_ctx_destroy(ctx);
    assert_int_equal(w.live, 0);
}

static void a_result_is_found_again_in_its_folder(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    char path[256];
    tess_break_even_result first, second, other;
    snprintf(path, sizeof path, "%s/made", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    CHECK_OK(tess_break_even(ctx, &small, path, &first));
    CHECK_OK(tess_break_even(ctx, &small, path, &second));
    assert_int_equal(first.cached, 0);
    assert_int_equal(second.cached, 1);
    check_result(&second);
    second.cached = 0;
    assert_memory_equal(&first, &second, sizeof first);
    tess_attn_rates_shape shape = small; /* every member of the shape counts */
    shape.proj_dim = 16;
    CHECK_OK(tess_break_even(ctx, &shape, path, &other));
    assert_int_equal(other.cached, 0);
    assert_int_equal(warnings, 0);
    tess_ctx_destroy(ctx);
    /* And so does the instruction set. */
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = "base"}, &ctx));
    CHECK_OK(tess_break_even(ctx, &small, path, &other));
    assert_int_equal(other.cached, 0);
    tess_ctx_destroy(ctx);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_file_that_does_not_fit_is_measured_again(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    static const struct {
        const char *text, *sentence; /* after the path */
    } files[] = {
        {"", ": line 1: "},
        {"{\"format\": 1", ": line 1: "},
        {"[]", ": line 1: the document is an array, must be an object"},
        {"{\"format\": 2}", ": line 1: \"format\" is 2, must be 1"},
        {"{\"format\": 1, \"key\": \"another machine\"}",
         ": line 1: \"key\" is \"another machine\", must be \""},
        {"{\"format\": 1, \"hint\": 3}", ": line 1: unknown member \"hint\""},
    };
    char path[TESS_BREAK_EVEN_PATH];
    CHECK_OK(tess__break_even_path(ctx, &small, folder, path));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        tess_break_even_result r;
        put(path, files[i].text);
        warnings = 0;
        CHECK_OK(tess_break_even(ctx, &small, folder, &r));
        assert_int_equal(r.cached, 0);
        assert_int_equal(warnings, 1);
        assert_memory_equal(warning, path, strlen(path));
        if (strncmp(warning + strlen(path), files[i].sentence, strlen(files[i].sentence)) != 0)
            fail_msg("file %zu: %s", i, warning);
        assert_non_null(strstr(warning, "; measured again"));
        CHECK_OK(tess_break_even(ctx, &small, folder, &r)); /* and now it fits */
        assert_int_equal(r.cached, 1);
    }
    tess_ctx_destroy(ctx);
}

/* A kept file with a number out of its range, written by the library but for that number. */
static void a_number_out_of_range_is_refused(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    char path[TESS_BREAK_EVEN_PATH];
    CHECK_OK(tess__break_even_path(ctx, &small, folder, path));
    tess_break_even_result r = {.ns_dense = -1, .ns_sparse_fixed = 1, .ns_sparse_per_density = 1};
    CHECK_OK(tess__break_even_write(ctx, &small, path, &r));
    tess_break_even_result read = {.density = 7};
    assert_int_equal(tess__break_even_read(ctx, &small, path, &read), TESS_EFORMAT);
    assert_non_null(strstr(tess_last_error(), "\"ns_dense\" is -1"));
    assert_true(read.density == 7);
    tess_ctx_destroy(ctx);
}

static void a_folder_that_cannot_be_written_costs_a_warning(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    char path[256];
    snprintf(path, sizeof path, "%s/a file", folder);
    put(path, "no folder");
    tess_break_even_result r;
    CHECK_OK(tess_break_even(ctx, &small, path, &r));
    check_result(&r);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "; break-even is measured at each start"));
    tess_ctx_destroy(ctx);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_ctx *ctx = make_ctx();
    tess_break_even_result r;
    const struct {
        tess_attn_rates_shape shape;
        const char *sentence;
    } wrong[] = {
        {SHAPE(12, 64, 8, 1, 0, 8, 1), "head_dim is 12, must be a multiple of 8 up to 256"},
        {SHAPE(8, 0, 8, 1, 0, 8, 1), "queries is 0, must be 1..2147483647"},
        {SHAPE(8, 64, 0, 1, 0, 8, 1), "group is 0, must be 1 or more"},
        {SHAPE(8, 64, 8, -1, 0, 8, 1), "unit is -1, must be 1 or more"},
        {SHAPE(8, 64, 8, 1, 65, 8, 1), "compensate is 65, must be 0..64"},
        {SHAPE(8, 64, 8, 1, 0, 72, 1), "proj_dim is 72, must be 0 or a multiple of 8 up to 64"},
        {SHAPE(8, 64, 8, 1, 0, 8, 3), "backward is 3, must be 0..1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "tess_break_even: %s", wrong[i].sentence);
        CHECK_FAILS(tess_break_even(ctx, &wrong[i].shape, NULL, &r), TESS_EINVAL, sentence);
    }
    CHECK_FAILS(tess_break_even(ctx, NULL, NULL, &r), TESS_EINVAL,
                "tess_break_even: shape is NULL");
    CHECK_FAILS(tess_break_even(ctx, &small, NULL, NULL), TESS_EINVAL,
                "tess_break_even: result is NULL");
    tess_ctx_destroy(ctx);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(measured_times_of_every_shape_are_finite),
    cmocka_unit_test(rates_of_every_kind_of_shape_are_finite),
    cmocka_unit_test(measuring_leaves_the_context_as_it_is),
    cmocka_unit_test(a_result_is_found_again_in_its_folder),
    cmocka_unit_test(a_file_that_does_not_fit_is_measured_again),
    cmocka_unit_test(a_number_out_of_range_is_refused),
    cmocka_unit_test(a_folder_that_cannot_be_written_costs_a_warning),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};
RUN_TESTS_WITH(tests, make_folder, drop_folder)
