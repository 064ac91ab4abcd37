/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_stream.c - the streaming JSON reader against jansson on random documents: whole, cut at
 * every byte, with one byte changed, longer than the buffer, and packed by gzip. */
#include "ctx_fixture.h"

#include "file/json_stream.h"

#include <jansson.h>
#include <stdlib.h>
#include <zlib.h>

/* ---- random documents ------------------------------------------------------------------------ */

typedef struct {
    char *text;
    size_t n, room;
    uint64_t state;
} maker;

static unsigned draw(maker *m, unsigned n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(m->state >> 33) % n;
}

static void put(maker *m, const char *text)
{
    const size_t n = strlen(text);
    if (m->n + n + 1 > m->room)
        m->text = realloc(m->text, m->room = 2 * (m->room + n) + 64);
    memcpy(m->text + m->n, text, n + 1);
    m->n += n;
}

static void put_space(maker *m)
{
    static const char *const spaces[] = {"", "", "", " ", "\n  ", "\t", "\r\n"};
    put(m, spaces[draw(m, 7)]);
}

static void put_string(maker *m)
{
    static const char *const parts[] = {"a",
                                        "name",
                                        "\\\"",
                                        "\\\\",
                                        "\\n",
                                        "\\u00e9",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "\xc3\xa9",
                                        ":",
                                        " ",
                                        "\\/",
                                        "0123456789abcdef",
                                        "void k<int>()"};
    put(m, "\"");
    for (unsigned i = draw(m, 5); i > 0; i--)
        put(m, parts[draw(m, 17)]);
    put(m, "\"");
}

static void put_value(maker *m, int depth)
{
    static const char *const scalars[] = {"0",    "-1",    "12.5", "1e3", "-0.25E-2", "true",
                                          "null", "false", "77",   "3.0", "1234"};
    const unsigned kind = draw(m, depth > 3 ? 2 : 4);
    if (kind == 0) {
        put(m, scalars[draw(m, 11)]);
    } else if (kind == 1) {
        put_string(m);
    } else {
        put(m, kind == 2 ? "[" : "{");
        put_space(m);
        for (unsigned i = draw(m, 4), first = 1; i > 0; i--, first = 0) {
            put(m, first ? "" : ",");
            put_space(m);
            if (kind == 3) {
                put_string(m);
                put_space(m);
                put(m, ":");
                put_space(m);
            }
            put_value(m, depth + 1);
            put_space(m);
        }
        put(m, kind == 2 ? "]" : "}");
    }
}

/* {"a": .., "traceEvents": [..], "z": ..}, or an array. */
static void put_document(maker *m, unsigned elements)
{
    const int object = draw(m, 4) > 0;
    m->n = 0;
    put(m, "");
    put_space(m);
    if (object) {
        put(m, "{\"a\":");
        put_value(m, 0);
        put(m, ", \"traceEvents\" : ");
    }
    put(m, "[");
    for (unsigned i = 0; i < elements; i++) {
        put(m, i ? "," : "");
        put_space(m);
        put_value(m, 0);
        put_space(m);
    }
    put(m, "]");
    if (object) {
        put(m, ",\"z\":");
        put_value(m, 0);
        put(m, "}");
    }
    put_space(m);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* All items of a text; equal to those of jansson's document, where that is not NULL. Returns how
 * many, or -1 after a failure; *broken as the stream says. */
static int64_t read_all(const char *text, size_t n, const json_t *whole, const char **broken)
{
    static char why[128];
    tess__byte_stream *bytes = NULL;
    tess__json_stream *s = NULL;
    tess__json_item item;
    int64_t count = 0, elements = 0, end;
    const json_t *list = json_is_array(whole) ? whole : json_object_get(whole, "traceEvents");
    CHECK_OK(tess__byte_stream_memory(ctx, "x.json", text, n, &bytes));
    CHECK_OK(tess__json_stream_open(ctx, bytes, "x.json", "traceEvents", &s));
    for (;; count++) {
        if (tess__json_stream_next(s, &item) != TESS_OK) {
            assert_int_equal(strncmp(tess_last_error(), "x.json: ", 8), 0);
            tess__json_stream_close(s);
            return -1;
        }
        if (item.kind == TESS__ITEM_END)
            break;
        if (!whole)
            continue;
        const json_t *want = item.kind == TESS__ITEM_ELEMENT
                                 ? json_array_get(list, (size_t)elements++)
                                 : json_object_getn(whole, item.key.text, item.key.length);
        json_t *got = json_loadb(item.value.text, item.value.length, JSON_DECODE_ANY, NULL);
        assert_non_null(got);
        assert_true(json_equal(got, want));
        json_decref(got);
        if (item.kind == TESS__ITEM_ELEMENT && json_is_object(want))
            assert_true(item.n_fields >= (int)json_object_size(want)); /* a key may come twice */
    }
    const char *reason = tess__json_stream_broken(s, &end);
    assert_true(end <= (int64_t)n || (n > 2 && (unsigned char)text[0] == 0x1f));
    snprintf(why, sizeof why, "%s", reason ? reason : "");
    *broken = reason ? why : NULL;
    tess__json_stream_close(s);
    return count;
}

static void random_documents_are_read_as_jansson_reads_them_cut_at_every_byte(void **state)
{
    (void)state;
    maker m = {.state = 7};
    for (int round = 0; round < 150; round++) {
        const char *broken;
        put_document(&m, round % 7);
        json_t *whole = json_loadb(m.text, m.n, 0, NULL);
        assert_non_null(whole);
        const size_t expected = json_is_array(whole)
                                    ? json_array_size(whole)
                                    : 2 + json_array_size(json_object_get(whole, "traceEvents"));
        assert_int_equal(read_all(m.text, m.n, whole, &broken), expected);
        assert_null(broken);
        int64_t before = 0;
        size_t trimmed = m.n;
        while (strchr(" \t\r\n", m.text[trimmed - 1]))
            trimmed--;
        for (size_t cut = strspn(m.text, " \t\r\n") + 1; cut < trimmed; cut++) {
            char *part = malloc(cut); /* so that a sanitizer sees a byte too many */
            memcpy(part, m.text, cut);
            const int64_t got = read_all(part, cut, whole, &broken);
            assert_true(got >= before && got <= (int64_t)expected);
            assert_string_equal(broken, "its JSON is not complete");
            before = got;
            free(part);
        }
        json_decref(whole);
    }
    free(m.text);
}

static void a_changed_byte_is_refused_where_jansson_refuses_it(void **state)
{
    (void)state;
    static const char others[] = "\"{}[],: 0-.ext\n\\";
    maker m = {.state = 11};
    int refused = 0, accepted = 0;
    for (int round = 0; round < 4000; round++) {
        const char *broken = NULL;
        put_document(&m, 1 + round % 3);
        const size_t at = draw(&m, (unsigned)m.n);
        if ((unsigned char)m.text[at] >= 0x80)
            continue; /* half a character is jansson's concern */
        m.text[at] = others[draw(&m, sizeof others - 1)];
        if (strstr(m.text, "\\u") && at > 0)
            continue; /* half a surrogate pair is jansson's concern */
        json_t *whole = json_loadb(m.text, m.n, 0, NULL);
        /* The member may have another name now, or come twice: count, do not compare. */
        const int64_t got = read_all(m.text, m.n, NULL, &broken);
        const int taken = got >= 0 && !broken;
        if (taken != (whole != NULL))
            fail_msg("jansson %s what the stream %s: %s", whole ? "takes" : "refuses",
                     taken ? "takes" : "refuses", m.text);
        refused += !whole;
        accepted += whole != NULL;
        json_decref(whole);
    }
    assert_true(refused > 300 && accepted > 300);
    free(m.text);
}

static void documents_longer_than_the_buffer_are_complete(void **state)
{
    (void)state;
    maker m = {.state = 3};
    const char *broken;
    put_document(&m, 150000);
    assert_true(m.n > 3 << 20);
    json_t *whole = json_loadb(m.text, m.n, 0, NULL);
    assert_non_null(whole);
    assert_true(read_all(m.text, m.n, whole, &broken) >= 150000);
    assert_null(broken);
    json_decref(whole);
    free(m.text);
}

/* ---- gzip ------------------------------------------------------------------------------------ */

static size_t pack(const char *text, size_t n, unsigned char *to, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = (unsigned)n;
    z.next_out = to;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static void gzip_is_recognised_by_content_and_cut_at_every_byte(void **state)
{
    (void)state;
    maker m = {.state = 5};
    unsigned char packed[65536];
    const char *broken;
    do
        put_document(&m, 60);
    while (m.text[0] != '{');
    json_t *whole = json_loadb(m.text, m.n, 0, NULL);
    /* Two members, one after the other. */
    const size_t half = pack(m.text, m.n / 2, packed, sizeof packed);
    const size_t n =
        half + pack(m.text + m.n / 2, m.n - m.n / 2, packed + half, sizeof packed - half);
    assert_int_equal(read_all((char *)packed, n, whole, &broken), 62);
    assert_null(broken);
    for (size_t cut = half + 1; cut < n; cut++) {
        assert_true(read_all((char *)packed, cut, whole, &broken) <= 62);
        assert_string_equal(broken, "its gzip stream ends too early");
    }
    assert_true(read_all((char *)packed, half, whole, &broken) < 62);
    assert_string_equal(broken, "its JSON is not complete");
    packed[n - 5] ^= 1; /* the checksum */
    assert_int_equal(read_all((char *)packed, n, whole, &broken), 62);
    assert_string_equal(broken, "its gzip stream is damaged (incorrect data check)");
    json_decref(whole);
    free(m.text);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void decimals_become_integers_from_their_digits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int places, ok;
        int64_t value;
    } cases[] = {{"4458676522690.655", 3, 1, 4458676522690655},
                 {"1695835543008415", 3, 1, 1695835543008415000},
                 {"1682725898236567.0", 3, 1, 1682725898236567000},
                 {"0.0004", 3, 1, 0},
                 {"0.0005", 3, 1, 1},
                 {"-0.0005", 3, 1, -1},
                 {"12.3456", 3, 1, 12346},
                 {"1e3", 3, 1, 1000000},
                 {"1.682725898236567e+15", 3, 1, 1682725898236567000},
                 {"25E-4", 3, 1, 3},
                 {"\"17.25\"", 3, 1, 17250},
                 {"9223372036854775.807", 3, 1, INT64_MAX},
                 {"9223372036854775.808", 3, 0, 0},
                 {"1e30", 0, 0, 0},
                 {"0e999999999999", 3, 1, 0},
                 {"1e-999999999999", 3, 1, 0},
                 {"0.00000000000000000000000000000000000001e38", 0, 1, 1},
                 {"123456789012345678901e-21", 3, 1, 123},
                 {"inf", 3, 0, 0},
                 {"\"\"", 3, 0, 0},
                 {"null", 3, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t x = 0;
        const int ok = tess__json_decimal((tess__json_slice){cases[i].text, strlen(cases[i].text)},
                                          cases[i].places, &x);
        if (ok != cases[i].ok || (ok && x != cases[i].value))
            fail_msg("%s: %d, %lld", cases[i].text, ok, (long long)x);
    }
}

static void strings_lose_quotes_and_escapes(void **state)
{
    (void)state;
    static const char text[] = "\"a\\\"\\u00e9\\n\\ud83d\\ude00\"";
    char out[32];
    assert_int_equal(tess__json_slice_text((tess__json_slice){text, sizeof text - 1}, out, 32), 9);
    assert_string_equal(out, "a\"\xc3\xa9\n\xf0\x9f\x98\x80");
    assert_int_equal(tess__json_slice_text((tess__json_slice){text, sizeof text - 1}, out, 8), 5);
}

static void fails(const char *text, size_t n, const char *sentence)
{
    const char *broken;
    assert_int_equal(read_all(text, n, NULL, &broken), -1);
    assert_string_equal(tess_last_error(), sentence);
}

static void what_is_wrong_is_said_with_its_byte(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "x.json: is empty, must be a JSON object or array"},
        {" \n", "x.json: has white space only, must be a JSON object or array"},
        {"hello", "x.json: byte 0: a JSON object or array must begin"},
        {"{\"a\" 1}", "x.json: byte 5: a key without its colon"},
        {"{\"a\": 01}", "x.json: byte 7: a number begins with 0, or has two points"},
        {"{\"a\": 1,}", "x.json: byte 8: a member must begin with its key in quotes"},
        {"[1 2]", "x.json: byte 3: elements must have a comma between them"},
        {"[1,]", "x.json: byte 3: no JSON value begins so"},
        {"[\"\t\"]", "x.json: byte 2: a control character in a string"},
        {"[\"\\q\"]", "x.json: byte 3: an escape that JSON has not"},
        {"[] x", "x.json: byte 3: text behind the end of the document"},
        {"[1.]", "x.json: byte 3: a number ends with its point"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fails(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    char *deep = malloc(600);
    memset(deep, '[', 600);
    fails(deep, 600, "x.json: byte 257: values nest more than 256 deep");
    free(deep);
}

static void numbers_that_profilers_write_are_accepted(void **state)
{
    (void)state;
    static const char text[] = "[inf, -inf, nan, NaN, Infinity, -Infinity]";
    const char *broken;
    assert_int_equal(read_all(text, sizeof text - 1, NULL, &broken), 6);
    assert_null(broken);
}

static void a_value_above_16_mib_is_refused(void **state)
{
    (void)state;
    const size_t n = (17 << 20) + 10;
    char *text = malloc(n);
    memset(text, 'x', n);
    memcpy(text, "[1,\"", 4);
    memcpy(text + n - 2, "\"]", 2);
    fails(text, n, "x.json: the value at byte 2 has more than 16 MiB");
    free(text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_documents_are_read_as_jansson_reads_them_cut_at_every_byte),
    cmocka_unit_test(a_changed_byte_is_refused_where_jansson_refuses_it),
    cmocka_unit_test(documents_longer_than_the_buffer_are_complete),
    cmocka_unit_test(gzip_is_recognised_by_content_and_cut_at_every_byte),
    cmocka_unit_test(decimals_become_integers_from_their_digits),
    cmocka_unit_test(strings_lose_quotes_and_escapes),
    cmocka_unit_test(what_is_wrong_is_said_with_its_byte),
    cmocka_unit_test(numbers_that_profilers_write_are_accepted),
    cmocka_unit_test(a_value_above_16_mib_is_refused),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
