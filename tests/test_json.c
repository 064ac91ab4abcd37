/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - JSON documents: what is read, and the exact sentence for everything that is wrong.
 */
#define _GNU_SOURCE
#include "ctx_fixture.h"
#include "file/json.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static tess_status open_text(const char *text, tess__json *doc)
{
    return tess__json_open(ctx, "s.json", text, strlen(text), doc);
}

static const char scenario[] = "{\n"
                               "  \"model\": {\n"
                               "    \"heads\": 12, \"rate\": 0.25,\n"
                               "    \"kind\": \"ring\",\n"
                               "    \"causal\": true,\n"
                               "    \"big\":\n"
                               "      1e9,\n"
                               "    \"none\": null,\n"
                               "    \"shape\": [1,\n"
                               "      [2, 3],\n"
                               "      {\"x\": \"a\\\"}]\", \"deep\": [[\n"
                               "        7]]}]\n"
                               "  }\n"
                               "}\n";

static const char *const kinds[] = {"ulysses", "ring", "hybrid"};

static void values_are_read_with_their_types(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text(scenario, &doc));
    tess__json_node root = tess__json_root(&doc), model, shape;
    CHECK_OK(tess__json_object(tess__json_member(&root, "model"), NULL, 0, &model));
    int heads = 0, causal = 0, kind = -1;
    int64_t big = 0;
    double rate = 0.0, whole = 0.0;
    const char *text = NULL;
    CHECK_OK(tess__json_int(tess__json_member(&model, "heads"), 12, 12, &heads));
    CHECK_OK(tess__json_int64(tess__json_member(&model, "big"), 0, INT64_MAX, &big));
    CHECK_OK(tess__json_double(tess__json_member(&model, "rate"), 0.25, 0.25, &rate));
    CHECK_OK(tess__json_double(tess__json_member(&model, "heads"), -INFINITY, INFINITY, &whole));
    CHECK_OK(tess__json_bool(tess__json_member(&model, "causal"), &causal));
    CHECK_OK(tess__json_enum(tess__json_member(&model, "kind"), kinds, 3, &kind));
    CHECK_OK(tess__json_string(tess__json_member(&model, "kind"), &text));
    assert_int_equal(heads, 12);
    assert_int_equal(big, 1000000000);
    assert_true(rate == 0.25 && whole == 12.0);
    assert_int_equal(causal, 1);
    assert_int_equal(kind, 1);
    assert_string_equal(text, "ring");

    size_t count = 0;
    CHECK_OK(tess__json_array(tess__json_member(&model, "shape"), 3, 3, &shape, &count));
    assert_int_equal(count, 3);
    CHECK_OK(tess__json_int(tess__json_element(&shape, 0), 0, 5, &heads));
    assert_int_equal(heads, 1);
    tess__json_close(&doc);
    tess__json_close(&doc);
}

static void an_absent_optional_keeps_its_default(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text("{\"a\": 1}", &doc));
    tess__json_node root = tess__json_root(&doc), inner, list;
    int x = 7, flag = 1, name = 2;
    double y = 0.5;
    const char *text = "default";
    size_t count = 9;
    CHECK_OK(tess__json_int(tess__json_optional(&root, "x"), 0, 1, &x));
    CHECK_OK(tess__json_double(tess__json_optional(&root, "y"), 0, 1, &y));
    CHECK_OK(tess__json_bool(tess__json_optional(&root, "flag"), &flag));
    CHECK_OK(tess__json_string(tess__json_optional(&root, "text"), &text));
    CHECK_OK(tess__json_enum(tess__json_optional(&root, "name"), kinds, 3, &name));
    CHECK_OK(tess__json_object(tess__json_optional(&root, "inner"), NULL, 0, &inner));
    CHECK_OK(tess__json_array(tess__json_optional(&root, "list"), 1, 2, &list, &count));
    assert_null(inner.value);
    assert_int_equal(count, 0);
    CHECK_OK(tess__json_int(tess__json_member(&inner, "x"), 0, 1, &x)); /* all of it is absent */
    assert_true(x == 7 && flag == 1 && name == 2 && y == 0.5);
    assert_string_equal(text, "default");
    tess__json_close(&doc);
}

static void a_broken_rule_is_reported_with_its_line(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text(scenario, &doc));
    tess__json_node root = tess__json_root(&doc), model, shape;
    CHECK_OK(tess__json_object(tess__json_member(&root, "model"), NULL, 0, &model));
    const tess__json_node heads = tess__json_member(&model, "heads"),
                          kind = tess__json_member(&model, "kind"),
                          rate = tess__json_member(&model, "rate"),
                          none = tess__json_member(&model, "none");
    int i = 5;
    int64_t l = 5;
    double d = 5.0;
    const char *s = "as it was";
    size_t count = 5;
    CHECK_FAILS(tess__json_int(heads, 13, 65536, &i), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be 13..65536");
    CHECK_FAILS(tess__json_int(heads, 13, 13, &i), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be 13");
    CHECK_FAILS(tess__json_int64(heads, 13, INT64_MAX, &l), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be at least 13");
    CHECK_FAILS(tess__json_int64(heads, INT64_MIN, -1, &l), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be at most -1");
    CHECK_FAILS(tess__json_int64(rate, INT64_MIN, INT64_MAX, &l), TESS_EFORMAT,
                "s.json: line 3: \"rate\" is 0.25, must be an integer");
    CHECK_FAILS(tess__json_int(kind, 1, 65536, &i), TESS_EFORMAT,
                "s.json: line 4: \"kind\" is \"ring\", must be an integer 1..65536");
    CHECK_FAILS(tess__json_int64(tess__json_member(&model, "big"), 1, 5, &l), TESS_EFORMAT,
                "s.json: line 7: \"big\" is 1000000000, must be 1..5");
    CHECK_FAILS(tess__json_double(rate, 0.3, 1.0, &d), TESS_EFORMAT,
                "s.json: line 3: \"rate\" is 0.25, must be 0.3..1");
    CHECK_FAILS(tess__json_double(none, 0.0, INFINITY, &d), TESS_EFORMAT,
                "s.json: line 8: \"none\" is null, must be a number of at least 0");
    CHECK_FAILS(tess__json_bool(heads, &i), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be true or false");
    CHECK_FAILS(tess__json_string(none, &s), TESS_EFORMAT,
                "s.json: line 8: \"none\" is null, must be a string");
    CHECK_FAILS(tess__json_int(tess__json_optional(&model, "none"), 0, 1, &i), TESS_EFORMAT,
                "s.json: line 8: \"none\" is null, must be an integer 0..1");
    CHECK_FAILS(tess__json_object(heads, NULL, 0, &shape), TESS_EFORMAT,
                "s.json: line 3: \"heads\" is 12, must be an object");
    CHECK_FAILS(tess__json_array(tess__json_member(&root, "model"), 0, 9, &shape, &count),
                TESS_EFORMAT, "s.json: line 2: \"model\" is an object, must be an array");
    CHECK_FAILS(tess__json_fail(kind, "\"kind\" needs %d ranks", 4), TESS_EFORMAT,
                "s.json: line 4: \"kind\" needs 4 ranks");
    assert_true(i == 5 && l == 5 && d == 5.0 && count == 5);
    assert_string_equal(s, "as it was");
    tess__json_close(&doc);
}

static void a_name_off_the_list_gets_a_suggestion(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text("{\"kind\": \"rign\", \"other\": \"zzz\", \"n\": 3}", &doc));
    const tess__json_node root = tess__json_root(&doc);
    int kind = 5;
    CHECK_FAILS(tess__json_enum(tess__json_member(&root, "kind"), kinds, 3, &kind), TESS_EFORMAT,
                "s.json: line 1: \"kind\" is \"rign\", must be ulysses, ring or hybrid; "
                "did you mean \"ring\"?");
    CHECK_FAILS(tess__json_enum(tess__json_member(&root, "other"), kinds, 2, &kind), TESS_EFORMAT,
                "s.json: line 1: \"other\" is \"zzz\", must be ulysses or ring");
    CHECK_FAILS(tess__json_enum(tess__json_member(&root, "n"), kinds, 1, &kind), TESS_EFORMAT,
                "s.json: line 1: \"n\" is 3, must be ulysses");
    const char *many[100];
    for (int i = 0; i < 100; i++)
        many[i] = "a_long_name_of_many";
    assert_int_equal(tess__json_enum(tess__json_member(&root, "n"), many, 100, &kind),
                     TESS_EFORMAT);
    assert_non_null(strstr(tess_last_error(), "a_long_name_of_many, ..."));
    assert_int_equal(kind, 5);
    tess__json_close(&doc);
}

static void a_missing_member_is_named_with_what_lacks_it(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text("{\n\"list\": [1, 2],\n\n\"model\": {\n\"x\": 1}, \"n\": 1}", &doc));
    tess__json_node root = tess__json_root(&doc), model, list, none;
    size_t count;
    int x = 5;
    CHECK_OK(tess__json_object(tess__json_member(&root, "model"), NULL, 0, &model));
    CHECK_OK(tess__json_array(tess__json_member(&root, "list"), 0, 9, &list, &count));
    CHECK_FAILS(tess__json_int(tess__json_member(&model, "heads"), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 4: \"model\" lacks \"heads\"");
    CHECK_FAILS(tess__json_int(tess__json_member(&root, "steps"), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 1: the document lacks \"steps\"");
    CHECK_FAILS(tess__json_int(tess__json_element(&list, 2), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 2: \"list\" has 2 elements, lacks element 2");
    none = tess__json_member(&root, "nothing");
    CHECK_FAILS(tess__json_int(tess__json_member(&none, "x"), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 1: the document lacks \"nothing\"");
    none = tess__json_member(&root, "n");
    CHECK_FAILS(tess__json_int(tess__json_optional(&none, "x"), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 5: \"n\" is 1, must be an object");
    CHECK_FAILS(tess__json_int(tess__json_element(&none, 0), 1, 2, &x), TESS_EFORMAT,
                "s.json: line 5: \"n\" is 1, must be an array");
    CHECK_FAILS(tess__json_fail(tess__json_member(&model, "y"), "no y"), TESS_EFORMAT,
                "s.json: line 4: no y");
    assert_int_equal(x, 5);
    tess__json_close(&doc);
}

static void elements_are_named_by_their_array(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text(scenario, &doc));
    tess__json_node root = tess__json_root(&doc), model, shape, pair, last, deep, inner;
    CHECK_OK(tess__json_object(tess__json_member(&root, "model"), NULL, 0, &model));
    size_t count;
    int x;
    const tess__json_node node = tess__json_member(&model, "shape");
    CHECK_FAILS(tess__json_array(node, 4, 8, &shape, &count), TESS_EFORMAT,
                "s.json: line 9: \"shape\" has 3 elements, must have 4..8");
    CHECK_FAILS(tess__json_array(node, 2, 2, &shape, &count), TESS_EFORMAT,
                "s.json: line 9: \"shape\" has 3 elements, must have 2");
    CHECK_FAILS(tess__json_array(node, 4, SIZE_MAX, &shape, &count), TESS_EFORMAT,
                "s.json: line 9: \"shape\" has 3 elements, must have at least 4");
    CHECK_OK(tess__json_array(node, 0, SIZE_MAX, &shape, &count));
    CHECK_OK(tess__json_array(tess__json_element(&shape, 1), 2, 2, &pair, &count));
    CHECK_FAILS(tess__json_int(tess__json_element(&pair, 1), 0, 2, &x), TESS_EFORMAT,
                "s.json: line 10: \"shape\"[1][1] is 3, must be 0..2");
    CHECK_OK(tess__json_object(tess__json_element(&shape, 2), NULL, 0, &last));
    CHECK_FAILS(tess__json_int(tess__json_member(&last, "y"), 0, 2, &x), TESS_EFORMAT,
                "s.json: line 11: \"shape\"[2] lacks \"y\"");
    CHECK_OK(tess__json_array(tess__json_member(&last, "deep"), 1, 1, &deep, &count));
    CHECK_OK(tess__json_array(tess__json_element(&deep, 0), 1, 1, &inner, &count));
    CHECK_FAILS(tess__json_int(tess__json_element(&inner, 0), 0, 2, &x), TESS_EFORMAT,
                "s.json: line 12: \"deep\"[0][0] is 7, must be 0..2");
    tess__json_close(&doc);

    CHECK_OK(open_text("\n\n[1, 2]", &doc));
    root = tess__json_root(&doc);
    CHECK_FAILS(tess__json_object(root, NULL, 0, &model), TESS_EFORMAT,
                "s.json: line 3: the document is an array, must be an object");
    CHECK_FAILS(tess__json_int(tess__json_element(&root, 1), 5, 6, &x), TESS_EFORMAT,
                "s.json: line 3: the document[1] is 2, must be 5..6");
    tess__json_close(&doc);
}

static void unknown_members_are_errors_with_a_suggestion(void **state)
{
    (void)state;
    static const char *const members[] = {"heads", "layers"};
    tess__json doc;
    tess__json_node object;
    CHECK_OK(open_text("{\"heads\": 1,\n\"haeds\"\n:\n2}", &doc));
    CHECK_FAILS(tess__json_object(tess__json_root(&doc), members, 2, &object), TESS_EFORMAT,
                "s.json: line 2: unknown member \"haeds\"; did you mean \"heads\"?");
    tess__json_close(&doc);
    CHECK_OK(open_text("{\n\n\"tokens\": 1}", &doc));
    CHECK_FAILS(tess__json_object(tess__json_root(&doc), members, 2, &object), TESS_EFORMAT,
                "s.json: line 3: unknown member \"tokens\"");
    tess__json_close(&doc);
    CHECK_OK(open_text("{\"layers\": 1}", &doc));
    CHECK_OK(tess__json_object(tess__json_root(&doc), members, 2, &object));
    tess__json_close(&doc);
}

static void keys_with_escapes_are_found_in_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key;
    } cases[] = {
        {"{\"\\u0061b\": 1,\n\"\\u00e9\\ud83d\\ude00z\": 2}", "\xc3\xa9\xf0\x9f\x98\x80z"},
        {"{\"a\": 1,\n\"\xc3\xa9\": 2}", "\xc3\xa9"},
        {"{\"q\\\"\\\\\": [\"}\", {\"x\\\\\": 1}],\n\"a\\\"b\\\\\\/\\n\\t\": 2}", "a\"b\\/\n\t"},
        {"{\"\\u20ac\": {\"\\u20AC2\": 1},\n\"\\u20AC2\": 2}", "\xe2\x82\xac\x32"},
        {"{\"ab\": 1, \"abcd\": 1,\n\"abc\": 2}", "abc"},
        {"{\"a\": -1.5e-3, \"b\": true , \"c\": [[], {}],\n\"\": 2}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess__json doc;
        CHECK_OK(open_text(cases[i].text, &doc));
        const tess__json_node root = tess__json_root(&doc),
                              node = tess__json_member(&root, cases[i].key);
        int x = 0;
        CHECK_OK(tess__json_int(node, 2, 2, &x));
        assert_int_equal(tess__json_line(&node, TESS_JSON_AT_VALUE), 2);
        assert_int_equal(tess__json_line(&node, TESS_JSON_AT_KEY), 2);
        tess__json_close(&doc);
    }
}

static void long_and_dirty_texts_are_shown_on_one_line(void **state)
{
    (void)state;
    tess__json doc;
    CHECK_OK(open_text("{\"a\\nb\": \"0123456789012345678901234567890123456789012345\xc3\xa9"
                       "\xc3\xa9more\", \"c\": \"\\u0001\\u007f\"}",
                       &doc));
    const tess__json_node root = tess__json_root(&doc);
    int x;
    CHECK_FAILS(tess__json_int(tess__json_member(&root, "a\nb"), 0, 1, &x), TESS_EFORMAT,
                "s.json: line 1: \"a?b\" is \"0123456789012345678901234567890123456789012345\xc3"
                "\xa9...\", must be an integer 0..1");
    CHECK_FAILS(tess__json_int(tess__json_member(&root, "c"), 0, 1, &x), TESS_EFORMAT,
                "s.json: line 1: \"c\" is \"\?\?\", must be an integer 0..1");
    tess__json_close(&doc);
}

static void text_that_is_no_json_is_reported_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "s.json: line 1: '[' or '{' expected near end of file"},
        {"{\n\n\"a\": }", "s.json: line 3: unexpected token near '}'"},
        {"{\"a\": 1\n", "s.json: line 2: '}' expected near end of file"},
        {"[1, 2] 3", "s.json: line 1: end of file expected near '3'"},
        {"{\"heads\": 1,\n\"heads\": 2}", "s.json: line 2: the member \"heads\" is there twice"},
        {"{\"a key beyond twenty \\\\\\\" bytes\": 1,\n\"a key beyond twenty \\\\\\\" bytes\": 2}",
         "s.json: line 2: the member \"a key beyond twenty \\\\\\\" bytes\" is there twice"},
        {"{\"a\": \"\\u0000\"}", "s.json: line 1: a string holds \\u0000"},
        {"{\"\\u0000\": 1}", "s.json: line 1: a string holds \\u0000"},
        {"[1e999]", "s.json: line 1: real number overflow near '1e999'"},
        {"[99999999999999999999]", "s.json: line 1: too big integer near '99999999999999999999'"},
        {"[NaN]", "s.json: line 1: invalid token near 'NaN'"},
        {"[\"\n\"]", "s.json: line 1: unexpected newline near '\"'"},
    };
    tess__json doc = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_FAILS(open_text(cases[i].text, &doc), TESS_EFORMAT, cases[i].sentence);
    CHECK_FAILS(tess__json_open(ctx, "s.json", "[1,\n\0]", 6, &doc), TESS_EFORMAT,
                "s.json: line 2: a NUL byte");
    CHECK_FAILS(tess__json_open(ctx, "s.json", "[", TESS_JSON_BYTES_MAX + (size_t)1, &doc),
                TESS_EFORMAT, "s.json: more than 268435456 bytes, the limit of a JSON file");
    char deep[5001];
    memset(deep, '[', 5000);
    deep[5000] = '\0';
    CHECK_FAILS(open_text(deep, &doc), TESS_EFORMAT,
                "s.json: line 1: maximum parsing depth reached near '['");
    assert_null(doc.root);
}

static void files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    tess__json doc = {0};
    CHECK_FAILS(tess__json_open(ctx, "no_such_file.json", NULL, 0, &doc), TESS_EIO,
                "no_such_file.json: cannot open: No such file or directory");
    CHECK_FAILS(tess__json_open(ctx, ".", NULL, 0, &doc), TESS_EIO,
                ".: cannot read: Is a directory");
    assert_null(doc.text);
}

static void what_is_written_reads_back_the_same(void **state)
{
    (void)state;
    const char *path = "test_json_out.json";
    json_t *value = json_pack("{s:i, s:[f,f,f], s:{}, s:s}", "zeta", 1, "alpha", 0.1, 1.0 / 3.0,
                              5e-324, "inner", "text", "\xc3\xa9\n");
    assert_non_null(value);
    CHECK_OK(tess__json_write(ctx, path, value));
    tess__json doc;
    CHECK_OK(tess__json_open(ctx, path, NULL, 0, &doc));
    assert_true(json_equal(doc.root, value));
    const char *const start = "{\n  \"zeta\": 1,\n  \"alpha\": [\n    0.1";
    assert_memory_equal(doc.text, start, strlen(start));
    assert_int_equal(doc.text[doc.bytes - 1], '\n');
    tess__json_close(&doc);
    json_decref(value);
    unlink(path);
    CHECK_FAILS(tess__json_write(ctx, path, NULL), TESS_ENOMEM,
                "test_json_out.json: cannot write: out of memory");
    assert_int_equal(access(path, F_OK), -1);
}

static void reals_have_the_fewest_digits_that_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        {0.0, 0, "0"},
        {-0.0, 0, "-0"},
        {0.824, 0, "0.824"},
        {0.1 + 0.2, 0, "0.30000000000000004"},
        {1e-6, 0, "1e-06"},
        {0.0001, 0, "0.0001"},
        {1e15, 0, "1000000000000000"},
        {1e16, 0, "1e+16"},
        {-2.5e-7, 0, "-2.5e-07"},
        {5e-324, 0, "5e-324"},
        {1.0 / 3.0, 9, "0.333333333"},
        {1234567890.0, 9, "1.23456789e+09"},
        {100.0, 3, "100"},
        {1.7976931348623157e308, 0, "1.7976931348623157e+308"},
    };
    char text[TESS_REAL_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(tess__real_text(cases[i].value, cases[i].digits, text), cases[i].text);
    uint64_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        double value;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            assert_true(strtod(tess__real_text(value, 0, text), NULL) == value);
    }
}

static void the_writer_lays_out_commas_lines_and_escapes(void **state)
{
    (void)state;
    char text[256];
    tess__jw_buffer buffer = {.text = text, .room = sizeof text};
    tess__jw w = {.write = tess__jw_to_buffer, .to = &buffer, .indent = 2};
    tess__jw_begin(&w, NULL, '{');
    tess__jw_text(&w, "\"", "<\n\x01\\");
    tess__jw_begin(&w, "none", '[');
    tess__jw_end(&w, ']');
    tess__jw_row(&w, "row", '[');
    tess__jw_row_i32(&w, NULL, (const int32_t[]){1, 2}, 2);
    tess__jw_real(&w, NULL, 3.0);
    tess__jw_end(&w, ']');
    tess__jw_real(&w, "nan", NAN);
    tess__jw_end(&w, '}');
    CHECK_OK(tess__jw_finish(&w));
    assert_string_equal(text, "{\n  \"\\\"\": \"<\\n\\u0001\\\\\",\n  \"none\": [],\n"
                              "  \"row\": [[1, 2], 3.0],\n  \"nan\": null\n}\n");
    assert_int_equal(w.bytes, strlen(text));

    buffer.used = 0;
    w = (tess__jw){.write = tess__jw_to_buffer, .to = &buffer, .compact = 1, .html = 1};
    tess__jw_begin(&w, NULL, '[');
    tess__jw_bool(&w, NULL, 1);
    tess__jw_text(&w, NULL, "</");
    tess__jw_end(&w, ']');
    CHECK_OK(tess__jw_finish(&w));
    assert_string_equal(text, "[true,\"\\u003c/\"]");

    buffer = (tess__jw_buffer){.text = text, .room = 4};
    w = (tess__jw){.write = tess__jw_to_buffer, .to = &buffer};
    tess__jw_text(&w, NULL, "too long");
    assert_int_equal(tess__jw_finish(&w), TESS_EINVAL);
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    /* More than the reader's first buffer and the pipe's usual 64 KiB. */
    static char text[200000];
    char path[64];
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 1 << 18) >= (int)sizeof text);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    memset(text, ' ', sizeof text);
    memcpy(text, "[1,", 3);
    memcpy(text + sizeof text - 2, "2]", 2);
    assert_int_equal(write(ends[1], text, sizeof text), sizeof text);
    close(ends[1]);
    tess__json doc;
    CHECK_OK(tess__json_open(ctx, path, NULL, 0, &doc));
    close(ends[0]);
    assert_int_equal(doc.bytes, sizeof text);
    assert_int_equal(json_array_size(doc.root), 2);
    tess__json_close(&doc);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_are_read_with_their_types),
    cmocka_unit_test(an_absent_optional_keeps_its_default),
    cmocka_unit_test(a_broken_rule_is_reported_with_its_line),
    cmocka_unit_test(a_name_off_the_list_gets_a_suggestion),
    cmocka_unit_test(a_missing_member_is_named_with_what_lacks_it),
    cmocka_unit_test(elements_are_named_by_their_array),
    cmocka_unit_test(unknown_members_are_errors_with_a_suggestion),
    cmocka_unit_test(keys_with_escapes_are_found_in_the_text),
    cmocka_unit_test(long_and_dirty_texts_are_shown_on_one_line),
    cmocka_unit_test(text_that_is_no_json_is_reported_with_its_line),
    cmocka_unit_test(files_that_cannot_be_read_are_named),
    cmocka_unit_test(what_is_written_reads_back_the_same),
    cmocka_unit_test(reals_have_the_fewest_digits_that_read_back),
    cmocka_unit_test(the_writer_lays_out_commas_lines_and_escapes),
    cmocka_unit_test(a_pipe_is_read_to_its_end),
};
RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
