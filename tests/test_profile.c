/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile.c - density profiles: what is read, and the errors of other files. */
#include "ctx_fixture.h"

#include "plan/work.h"

#include <stdlib.h>

/* ---- reading a text -------------------------------------------------------------------------- */

static char warned[512];

static void keep_warning(void *user, tess_log_level level, const char *message)
{
    (void)user;
    assert_int_equal(level, TESS_LOG_WARN);
    snprintf(warned, sizeof warned, "%s", message);
}

static int make_logging_ctx(void **state)
{
    (void)state;
    return open_ctx(&(tess_ctx_opts){.threads = 1, .log = keep_warning});
}

/* From a buffer of exactly its size, so that a sanitizer sees any step beyond it. */
static tess_status read_text(const char *text, const char *column, tess_profile **profile)
{
    const size_t n = strlen(text);
    char *exact = malloc(n + 1);
    assert_non_null(exact);
    memcpy(exact + 1, text, n);
    warned[0] = '\0';
    const tess_status status = tess__profile_read(ctx, "p.csv", exact + 1, n,
                                                  &(tess_profile_opts){.column = column}, profile);
    free(exact);
    return status;
}

/* The text is a profile of these sizes and densities, and earns no warning. */
static void check_text(const char *text, int steps, int layers, int heads, const double *density)
{
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(read_text(text, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_int_equal(v.steps, steps);
    assert_int_equal(v.layers, layers);
    assert_int_equal(v.heads, heads);
    for (int i = 0; i < steps * layers * heads; i++)
        assert_true(v.density[i] == density[i]);
    assert_string_equal(warned, "");
    tess_profile_close(profile);
}

static void check_bad(const char *text, const char *sentence)
{
    tess_profile *profile = NULL;
    CHECK_FAILS(read_text(text, NULL, &profile), TESS_EFORMAT, sentence);
    assert_null(profile);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void tables_of_any_dress_are_read(void **state)
{
    (void)state;
    static const double want[] = {0.25, 0.5, 0.0, 1.0};
    static const char *const texts[] = {
        "step,layer,head,density\n1,0,0,0.25\n1,0,1,0.5\n1,3,0,0\n1,3,1,1\n",
        "step,layer,head,density\r\n1,0,0,0.25\r\n1,0,1,0.5\r\n1,3,0,0\r\n1,3,1,1\r\n",
        "step,layer,head,density\r1,0,0,0.25\r1,0,1,0.5\r1,3,0,0\r1,3,1,1",
        "\xef\xbb\xbfstep,layer,head,density\n1,0,0,0.25\n1,0,1,0.5\n1,3,0,0\n1,3,1,1",
        "\n  \nStep, LAYER ,\thead\t,\"Density\"\n\n 1 , 0 , \"0\" , "
        "2.5e-1\n1,0,1,.5\n\t\n1,3,0,0.\n"
        "1,3,1,1E0\n\n",
        ("density,note,head,layer,step\n0.25,\"a, \"\"b\"\"\nc\",0,0,1\n0.5,,1,0,1\n-0,d\"e,0,3,1\n"
         "+1.000,\"\",1,3,1\n"),
        "step,layer,head,density\n1,3,1,1\n1,0,0,0.25\n1,3,0,0\n1,0,1,0.5\n",
        "step,layer,head,density\n1,3,2,1\n1,0,1,0.25\n1,3,1,0\n1,0,2,0.5\n", /* heads from 1 */
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_text(texts[i], 1, 2, 2, want);
}

static void numbers_of_steps_and_layers_are_kept(void **state)
{
    (void)state;
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(read_text("step,layer,head,density\n50,7,0,0.1\n1,7,0,0.2\n50,9000000000,0,0.3\n"
                       "1,9000000000,0,0.4\n",
                       NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_int_equal(v.step[0], 1);
    assert_int_equal(v.step[1], 50);
    assert_int_equal(v.layer[0], 7);
    assert_int_equal(v.layer[1], 9000000000);
    const double want[] = {0.2, 0.4, 0.1, 0.3};
    for (int i = 0; i < 4; i++)
        assert_true(v.density[i] == want[i]);
    tess_profile_close(profile);
}

/* Lines of a large table, in an order that visits each once. */
static void large_tables_are_read_in_any_order(void **state)
{
    (void)state;
    enum { STEPS = 5, LAYERS = 40, HEADS = 40, LINES = STEPS * LAYERS * HEADS, LINE = 40 };
    char *text = malloc(LINES * LINE + 64);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "head,step,density,layer\n");
    for (int64_t i = 0; i < LINES; i++) {
        const int line = (int)(i * 4999 % LINES); /* 4999 is prime, and divides nothing here */
        at +=
            (size_t)sprintf(text + at, "%d,%d,%.4f,%d\n", line % HEADS, line / HEADS / LAYERS * 10,
                            line / (double)(2 * LINES), line / HEADS % LAYERS);
    }
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(read_text(text, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_int_equal(v.steps, STEPS);
    assert_int_equal(v.layers, LAYERS);
    assert_int_equal(v.heads, HEADS);
    for (int i = 0; i < LINES; i++)
        assert_true(fabs(v.density[i] - i / (double)(2 * LINES)) <= 0.5e-4 + 1e-12);
    tess_profile_close(profile);
    free(text);
}

/* ---- the column ------------------------------------------------------------------------------ */

static void the_kept_fraction_may_have_another_name(void **state)
{
    (void)state;
    static const char text[] = "step,layer,head,Sparsity,density\n0,0,0,0.25,0.75\n0,0,1,0.5,1\n";
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(read_text(text, "sparsity", &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_true(v.density[0] == 0.25 && v.density[1] == 0.5);
    assert_string_equal(warned,
                        "p.csv: column \"Sparsity\" is taken as the kept fraction, mean 0.375, "
                        "though its name says the dropped one");
    tess_profile_close(profile);

    CHECK_OK(read_text(text, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_true(v.density[0] == 0.75 && v.density[1] == 1.0);
    assert_string_equal(warned,
                        "p.csv: column \"density\" is taken as the kept fraction, though its mean, "
                        "0.875, looks like the dropped one");
    tess_profile_close(profile);
}

static void a_column_may_be_the_dropped_fraction(void **state)
{
    (void)state;
    static const char text[] = "step,layer,head,Sparsity\n0,0,0,0.25\n0,0,1,1\n";
    static const double wanted[3][2] = {{0.25, 1.0}, {0.25, 1.0}, {0.75, 0.0}};
    for (int meaning = 1; meaning <= 2; meaning++) {
        const tess_profile_opts opts = {.column = "Sparsity", .meaning = meaning};
        tess_profile *profile = NULL;
        tess_profile_view v;
        warned[0] = '\0';
        CHECK_OK(tess__profile_read(ctx, "p.csv", text, sizeof text - 1, &opts, &profile));
        CHECK_OK(tess_profile_query(profile, &v));
        assert_memory_equal(v.density, wanted[meaning], sizeof wanted[meaning]);
        assert_string_equal(warned, "");
        tess_profile_close(profile);
    }
    tess_profile *none = NULL;
    CHECK_FAILS(tess_profile_open(ctx, "p.csv", &(tess_profile_opts){.meaning = 3}, &none),
                TESS_EINVAL, "tess_profile_open: meaning is 3, must be 0..2");
}

static void a_table_without_steps_is_step_0(void **state)
{
    (void)state;
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(read_text("layer,head,density\n3,1,0.5\n3,0,0.25\n", NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_int_equal(v.steps, 1);
    assert_int_equal(v.step[0], 0);
    assert_int_equal(v.layer[0], 3);
    assert_true(v.density[0] == 0.25 && v.density[1] == 0.5);
    tess_profile_close(profile);
    check_bad("layer,head,density\n0,0,0.5\n0,0,0.5\n",
              "p.csv: line 3: step 0, layer 0, head 0 is in line 2 too");
}

static void names_that_fit_earn_no_warning(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
    } cases[] = {{"density", "0.75"}, {"density", "1"}, {"kept", "0.9"}, {"share", "0.1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[100];
        tess_profile *profile = NULL;
        snprintf(text, sizeof text, "step,layer,head,%s\n0,0,0,%s\n", cases[i].name,
                 cases[i].value);
        CHECK_OK(read_text(text, cases[i].name, &profile));
        assert_string_equal(warned, "");
        tess_profile_close(profile);
    }
}

static void columns_that_are_not_there_are_reported(void **state)
{
    (void)state;
    check_bad("step,layer,head,Sparsity\n0,0,0,1\n",
              "p.csv: line 1: no column \"density\" among step,layer,head,Sparsity");
    check_bad("\n\nstep;layer;head;density\r\n0;0;0;1\n",
              "p.csv: line 3: no column \"layer\" among step;layer;head;density");
    check_bad("step,layer,head,density,Density\n",
              "p.csv: line 1: two columns are called \"Density\"");
    check_bad("", "p.csv: line 1: no names of columns");
    check_bad("\n \n", "p.csv: line 1: no names of columns");
    check_bad("step,layer,head,density\n\n", "p.csv: no lines after the names of columns");
}

/* ---- errors --------------------------------------------------------------------------------- */

#define HEADER "step,layer,head,density\n"

static void bad_values_are_reported_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"0,0,0,nan\n", "p.csv: line 2: density is \"nan\", must be a number 0..1"},
        {"0,0,0,inf\n", "p.csv: line 2: density is \"inf\", must be a number 0..1"},
        {"0,0,0,-0.1\n", "p.csv: line 2: density is \"-0.1\", must be a number 0..1"},
        {"\n0,0,0,1.0001\n", "p.csv: line 3: density is \"1.0001\", must be a number 0..1"},
        {"0,0,0,\n", "p.csv: line 2: density is \"\", must be a number 0..1"},
        {"0,0,0,0x1p-1\n", "p.csv: line 2: density is \"0x1p-1\", must be a number 0..1"},
        {"0,0,0,12%\n", "p.csv: line 2: density is \"12%\", must be a number 0..1"},
        {"0,0,0,0.5.1\n", "p.csv: line 2: density is \"0.5.1\", must be a number 0..1"},
        {"0,0,0,1e\n", "p.csv: line 2: density is \"1e\", must be a number 0..1"},
        {"0,0,0,.\n", "p.csv: line 2: density is \".\", must be a number 0..1"},
        {"0,0,0,\x01\x80\n", "p.csv: line 2: density is \"??\", must be a number 0..1"},
        {"0,0,0,0123456789012345678901234567890123456789012345678901234567890x\n",
         "p.csv: line 2: density is \"01234567890123456789012345678901234567890123...\", must be a "
         "number 0..1"},
        {"-1,0,0,1\n", "p.csv: line 2: step is \"-1\", must be an integer, 0 or more"},
        {"0,1.5,0,1\n", "p.csv: line 2: layer is \"1.5\", must be an integer, 0 or more"},
        {"0,0,,1\n", "p.csv: line 2: head is \"\", must be an integer, 0 or more"},
        {"9223372036854775808,0,0,1\n",
         "p.csv: line 2: step is \"9223372036854775808\", must be an integer, 0 or more"},
        {"0,0,70000,1\n", "p.csv: line 2: head is 70000, must be 0..65536"},
        {"0,0,0,1\n0,0,1\n", "p.csv: line 3: 3 fields, the first line has 4"},
        {"0,0,0,1,5\n", "p.csv: line 2: 5 fields, the first line has 4"},
        {"0,0,\"0,1\n\n", "p.csv: line 2: a quote has no end"},
        {"0,0,\"0\" 1,1\n", "p.csv: line 2: text follows a closing quote"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, HEADER "%s", cases[i].text);
        check_bad(text, cases[i].sentence);
    }
}

static void tables_with_holes_are_reported(void **state)
{
    (void)state;
    check_bad(HEADER "1,0,0,0\n1,0,1,0\n1,1,1,0\n1,1,2,0\n",
              "p.csv: step 1, layer 0: head 2 is missing");
    check_bad(HEADER "1,0,0,0\n1,0,1,0\n1,1,1,0\n", "p.csv: step 1, layer 1: head 0 is missing");
    check_bad(HEADER "1,0,0,0\n1,1,0,0\n2,1,0,0\n", "p.csv: step 2: layer 0 is missing");
    check_bad(HEADER "1,0,0,0\n1,1,0,0\n2,0,0,0\n", "p.csv: step 2: layer 1 is missing");
    check_bad(HEADER "1,0,0,0\n1,0,65536,0\n", "p.csv: 65537 heads, must be 1..65536");
    check_bad(HEADER "1,0,3,0\n", "p.csv: step 1, layer 0: head 1 is missing");
    check_bad(HEADER "1,0,0,0\n1,0,1,0\n\n1,0,0,0.5\n",
              "p.csv: line 5: step 1, layer 0, head 0 is in line 2 too");
}

static void bad_calls_are_reported(void **state)
{
    (void)state;
    tess_profile *profile = NULL;
    tess_profile_view view;
    CHECK_FAILS(tess_profile_open(ctx, NULL, NULL, &profile), TESS_EINVAL,
                "tess_profile_open: path is NULL");
    CHECK_FAILS(tess_profile_open(ctx, "x", &(tess_profile_opts){.column = "Head"}, &profile),
                TESS_EINVAL,
                "tess_profile_open: column is \"Head\", must be that of the kept fraction");
    CHECK_FAILS(tess_profile_open(ctx, "x", &(tess_profile_opts){.column = ""}, &profile),
                TESS_EINVAL,
                "tess_profile_open: column is \"\", must be that of the kept fraction");
    CHECK_FAILS(tess_profile_open(ctx, "/nowhere/p.csv", NULL, &profile), TESS_EIO,
                "/nowhere/p.csv: cannot open: No such file or directory");
    CHECK_FAILS(tess_profile_query(NULL, &view), TESS_EINVAL,
                "tess_profile_query: profile is NULL");
    tess_profile_close(NULL);
    assert_null(profile);
}

/* ---- published profiles ---------------------------------------------------------------------- */

static void check_published(const char *folder, const char *name, int steps, int layers, int heads)
{
    char path[1024];
    tess_profile *profile = NULL;
    tess_profile_view v;
    snprintf(path, sizeof path, "%s/sparsity/%s", folder, name);
    CHECK_OK(tess_profile_open(ctx, path, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_int_equal(v.steps, steps);
    assert_int_equal(v.layers, layers);
    assert_int_equal(v.heads, heads);
    tess_profile_close(profile);
}

static void published_profiles_are_read(void **state)
{
    (void)state;
    const char *folder = getenv("TESS_REFERENCE");
    if (!folder) {
        print_message("skipped published_profiles_are_read: TESS_REFERENCE is not set\n");
        skip();
    }
    check_published(folder, "wan2.1_1.3b_t2v.csv", 5, 30, 12);
    check_published(folder, "wan2.1_14b_t2v.csv", 5, 40, 40);
}

/* Six digits are kept, so that what is read back is within half a millionth. */
static void what_is_written_is_read_again(void **state)
{
    (void)state;
    char folder[] = "/tmp/tess-profile-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.csv", folder);
    const int64_t step[] = {0, 7}, layer[] = {3, 4, 9};
    const double density[] = {0.0,         1.0,  0.5,  1.0 / 3.0, 0.1234567, 1e-9,
                              0.999999999, 0.25, 0.75, 0.03,      0.3,       0.9};
    const tess_profile_view written = {2, 3, 2, step, layer, density};
    tess_profile *profile = NULL;
    tess_profile_view v;
    CHECK_OK(tess_profile_write(ctx, path, &written));
    CHECK_OK(tess_profile_open(ctx, path, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    assert_true(v.steps == 2 && v.layers == 3 && v.heads == 2);
    assert_memory_equal(v.step, step, sizeof step);
    assert_memory_equal(v.layer, layer, sizeof layer);
    for (int i = 0; i < 12; i++)
        assert_true(fabs(v.density[i] - density[i]) <= 0.5000001e-6);
    tess_profile_close(profile);
    remove(path);
    remove(folder);
}

static void what_is_no_profile_is_not_written(void **state)
{
    (void)state;
    static const char path[] = "/nowhere/p.csv";
    const int64_t step[] = {1, 2}, layer[] = {0, 0};
    const double density[] = {0.5, NAN, 0.5, 0.5};
    const tess_profile_view good = {2, 1, 1, step, layer, density + 2};
    tess_profile_view v;
#define CASE(change, sentence)                                                                     \
    v = good;                                                                                      \
    change;                                                                                        \
    CHECK_FAILS(tess_profile_write(ctx, path, &v), TESS_EINVAL, "tess_profile_write: " sentence)
    CASE(v.heads = 0, "view has 2 steps, 1 layers, 0 heads, needs 1 of each");
    CASE(v.step = NULL, "view.step is NULL");
    CASE(v.layer = NULL, "view.layer is NULL");
    CASE(v.density = NULL, "view.density is NULL");
    CASE(v.step = layer, "step[1] is 0, must be 0 or more and ascend");
    CASE((v.steps = 1, v.layers = 2), "layer[1] is 0, must be 0 or more and ascend");
    CASE(v.density = density, "density[1] is nan, must be 0..1");
#undef CASE
    CHECK_FAILS(tess_profile_write(NULL, path, &good), TESS_EINVAL,
                "tess_profile_write: ctx is NULL");
    CHECK_FAILS(tess_profile_write(ctx, NULL, &good), TESS_EINVAL,
                "tess_profile_write: path is NULL");
    CHECK_FAILS(tess_profile_write(ctx, path, NULL), TESS_EINVAL,
                "tess_profile_write: view is NULL");
    assert_int_equal(tess_profile_write(ctx, path, &good), TESS_EIO);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tables_of_any_dress_are_read),
    cmocka_unit_test(numbers_of_steps_and_layers_are_kept),
    cmocka_unit_test(large_tables_are_read_in_any_order),
    cmocka_unit_test(the_kept_fraction_may_have_another_name),
    cmocka_unit_test(a_column_may_be_the_dropped_fraction),
    cmocka_unit_test(a_table_without_steps_is_step_0),
    cmocka_unit_test(names_that_fit_earn_no_warning),
    cmocka_unit_test(columns_that_are_not_there_are_reported),
    cmocka_unit_test(bad_values_are_reported_with_their_line),
    cmocka_unit_test(tables_with_holes_are_reported),
    cmocka_unit_test(bad_calls_are_reported),
    cmocka_unit_test(what_is_written_is_read_again),
    cmocka_unit_test(what_is_no_profile_is_not_written),
    cmocka_unit_test(published_profiles_are_read),
};
RUN_TESTS_WITH(tests, make_logging_ctx, drop_ctx)
