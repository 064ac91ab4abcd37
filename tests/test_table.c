/* SPDX-License-Identifier: Apache-2.0 */
/* test_table.c - tables, patterns and maps: what they make of rows, and what they refuse. */
#include "ctx_fixture.h"

#include "sim/table.h"

/* ---- patterns and numbers -------------------------------------------------------------------- */

static void patterns_fit_as_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        int fits;
    } cases[] = {
        {"", "", 1},          {"", "a", 0},           {"!", "a", 1},     {"!", "", 0},
        {"*", "", 1},         {"a*c", "abbc", 1},     {"a*c", "abb", 0}, {"LLAMA*", "llama3_8B", 1},
        {"*b*b*", "abab", 1}, {"!x*", "yx", 1},       {">=16", "16", 1}, {">16", "16", 0},
        {"<8", "n/a", 0},     {"<8", "about 7.5", 1}, {"!<8", "n/a", 1}, {"<x", "<x", 1},
        {"!!a", "a", 1},      {"a**", "a", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (tess__pattern_fits(cases[i].pattern, cases[i].text) != cases[i].fits)
            fail_msg("\"%s\" on \"%s\"", cases[i].pattern, cases[i].text);
}

static void numbers_are_found_in_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *after;
        double value; /* NAN: none */
    } cases[] = {
        {"4096 (default in repo scripts; verify)", NULL, 4096},
        {"37556 (36108)", NULL, 37556},
        {"475[^note]", NULL, 475},
        {"1,024 GPUs", NULL, 1024},
        {"b=1, m=4096, k=5120", "m=", 4096},
        {"-1.5e-3s", NULL, -1.5e-3},
        {"2e", NULL, 2},
        {"n/a", NULL, NAN},
        {"", NULL, NAN},
        {"m=4", "k=", NAN},
        {".5", NULL, 0.5},
        {"7.", NULL, 7},
        {"x-", NULL, NAN},
        {"1.2.3", NULL, NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = -77;
        const int found = tess__first_number(cases[i].text, cases[i].after, &value);
        if (found != !isnan(cases[i].value) || (found && value != cases[i].value))
            fail_msg("\"%s\": %g", cases[i].text, value);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static tess__table table_of(const char *text)
{
    tess__table table;
    CHECK_OK(tess__table_read(ctx, "t.csv", text, strlen(text), &table));
    return table;
}

static void cells_are_read_without_their_quotes(void **state)
{
    (void)state;
    tess__table t = table_of("a,\"b \"\"c\"\"\",d\n\n1,\"x, \"\"y\"\"\nz\",\r\n2\n3,4,5,6\n");
    assert_int_equal(t.columns, 3);
    assert_int_equal(t.rows, 3);
    assert_int_equal(tess__table_column(&t, "b \"c\""), 1);
    assert_int_equal(tess__table_column(&t, "B"), -1);
    assert_string_equal(tess__table_cell(&t, 0, 1), "x, \"y\" z");
    assert_string_equal(tess__table_cell(&t, 0, 2), "");
    assert_string_equal(tess__table_cell(&t, 1, 2), "");
    assert_int_equal(t.fields[1], 1);
    assert_int_equal(t.fields[2], 4);
    assert_int_equal(t.lines[1], 5);
    tess__table_close(&t);
    tess__table_close(&t);
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    tess__table t;
    CHECK_FAILS(tess__table_read(ctx, "t.csv", "", 0, &t), TESS_EFORMAT,
                "t.csv: empty, must begin with a header");
    CHECK_FAILS(tess__table_read(ctx, "t.csv", "a,a\n", 4, &t), TESS_EFORMAT,
                "t.csv: the column \"a\" is there twice");
    CHECK_FAILS(tess__table_read(ctx, "t.csv", "a\n\"b", 4, &t), TESS_EFORMAT,
                "t.csv: line 2: a quote has no end");
}

/* ---- maps ------------------------------------------------------------------------------------ */

static const char map_text[] =
    "{\"schema\": 1, \"detect\": [\"model\", \"tp\"],\n"
    " \"constants\": {\"system.cluster\": \"h100\", \"layout.pp\": 4},\n"
    " \"columns\": {\"layout.tp\": \"tp\",\n"
    "  \"layout.vpp\": {\"column\": \"vpp\", \"take\": \"number\", \"values\": {\"n/a\": null}},\n"
    "  \"measured.step_ms\": {\"column\": \"s\", \"scale\": 1000, \"times\": [\"tp\"]},\n"
    "  \"model.name\": {\"column\": \"model\", \"values\": {\"L8*\": \"llama3-8b\", \"?\": 3}}},\n"
    " \"rules\": [{\"when\": {\"model\": [\"*LoRA*\", \"*SFT*\"]}, \"skip\": \"fine-tuning\"},\n"
    "  {\"when\": {\"tp\": \">4\", \"s\": \"!\"}, \"set\": {\"layout.sequence\": true}}]}\n";

static tess__map map_of(const char *text)
{
    tess__map map;
    CHECK_OK(tess__map_parse(ctx, "m.json", text, strlen(text), &map));
    return map;
}

static void rows_become_settings(void **state)
{
    (void)state;
    tess__table t = table_of("model,tp,vpp,s\n"
                             "L8 base,8,5 (1),2.5\n"
                             "L8,2,n/a,\n");
    tess__map m = map_of(map_text);
    tess__row row;
    CHECK_OK(tess__row_read(&m, &t, 0, &row));
    assert_string_equal(row.reason, "");
    assert_string_equal(tess__row_value(&row, "system.cluster"), "h100");
    assert_string_equal(tess__row_value(&row, "layout.pp"), "4");
    assert_string_equal(tess__row_value(&row, "layout.tp"), "8");
    assert_string_equal(tess__row_value(&row, "layout.vpp"), "5");
    assert_string_equal(tess__row_value(&row, "model.name"), "llama3-8b");
    assert_string_equal(tess__row_value(&row, "measured.step_ms"), "20000");
    assert_string_equal(tess__row_value(&row, "layout.sequence"), "true");
    CHECK_OK(tess__row_read(&m, &t, 1, &row));
    assert_string_equal(row.reason, "");
    assert_null(tess__row_value(&row, "layout.vpp"));
    assert_null(tess__row_value(&row, "measured.step_ms"));
    assert_null(tess__row_value(&row, "layout.sequence"));
    tess__map_close(&m);
    tess__table_close(&t);
}

static void rows_that_cannot_be_used_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *row, *reason;
    } cases[] = {
        {"L8 LoRA,8,1,2", "fine-tuning"},
        {"B7,8,1,2", "model is \"B7\", which the map does not know"},
        {"L8,8,none,2", "vpp is \"none\", which holds no number"},
        {"L8,x,1,2", "tp is \"x\", which holds no number"},
        {"L8,,1,2", "tp is empty"},
        {",8,1,2", "model is empty"},
        {"L8,8,1", "the row has 3 fields, the header 4"},
        {"L8,8,1,2,3", "the row has 5 fields, the header 4"},
    };
    tess__map m = map_of(map_text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        tess__row row;
        snprintf(text, sizeof text, "model,tp,vpp,s\n%s\n", cases[i].row);
        tess__table t = table_of(text);
        CHECK_OK(tess__row_read(&m, &t, 0, &row));
        assert_string_equal(row.reason, cases[i].reason);
        tess__table_close(&t);
    }
    tess__table t = table_of("model,tp\nL8,1\n");
    tess__row row;
    CHECK_FAILS(tess__row_read(&m, &t, 0, &row), TESS_EFORMAT,
                "t.csv: no column \"vpp\", which the map m.json reads");
    tess__table_close(&t);
    tess__map_close(&m);
}

static void bad_maps_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{\"schema\": 1}", "m.json: line 1: the document lacks \"detect\""},
        {"{\"schema\": 2, \"detect\": [\"a\"]}", "m.json: line 1: \"schema\" is 2, must be 1"},
        {"{\"schema\": 1, \"detect\": [\"a\"], \"colums\": {}}",
         "m.json: line 1: unknown member \"colums\"; did you mean \"columns\"?"},
        {"{\"schema\": 1, \"detect\": [\"a\"],\n\"rules\": [{\"when\": {}}]}",
         "m.json: line 2: a rule has either \"skip\" or \"set\""},
        {"{\"schema\": 1, \"detect\": [\"a\"],\n\"constants\": {\"x\": [1]}}",
         "m.json: line 2: must be a text, a number, true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess__map m;
        CHECK_FAILS(tess__map_parse(ctx, "m.json", cases[i].text, strlen(cases[i].text), &m),
                    TESS_EFORMAT, cases[i].sentence);
    }
}

static void shipped_maps_are_found_by_their_columns(void **state)
{
    (void)state;
    tess__table t = table_of("release,tokens_per_s_per_gpu,model_tflops_per_gpu,grad_accum,fsdp,"
                             "source,system,n_gpus,model,precision,vpp\n");
    tess__map m;
    CHECK_OK(tess__map_find(ctx, &t, &m));
    assert_string_equal(m.name, "megatron_bridge");
    tess__map_close(&m);
    tess__table_close(&t);
    t = table_of("a,b\n");
    CHECK_FAILS(
        tess__map_find(ctx, &t, &m), TESS_EFORMAT,
        "t.csv: no shipped map knows these columns; give a map that says what they mean, or "
        "use the canonical columns "
        "(docs/scenarios.md)");
    tess__table_close(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(patterns_fit_as_they_say),
    cmocka_unit_test(numbers_are_found_in_text),
    cmocka_unit_test(cells_are_read_without_their_quotes),
    cmocka_unit_test(bad_tables_are_refused),
    cmocka_unit_test(rows_become_settings),
    cmocka_unit_test(rows_that_cannot_be_used_say_why),
    cmocka_unit_test(bad_maps_are_refused),
    cmocka_unit_test(shipped_maps_are_found_by_their_columns),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
