/* SPDX-License-Identifier: Apache-2.0 */
/* test_files_bad.c - malformed .npy, safetensors and index files, and wrong arguments: each gets
 * its sentence. Malformed .npz have test_npz_bad.c. */
#include "base/base_internal.h"
#include "files.h"
#include "tessera/file.h"

static void assert_refused(const char *name, const blob *b, tess_status status,
                           const char *sentence)
{
    tess_file *file = NULL;
    CHECK_FAILS(tess_file_open_memory(ctx, name, b->data, b->bytes, &file), status, sentence);
    assert_null(file);
}

static void what_is_no_tensor_file_is_refused(void **state)
{
    (void)state;
    blob b = {0};
    blob_text(&b, "hello");
    assert_refused("x", &b, TESS_EFORMAT,
                   "x: is no .npy, .npz, .safetensors or .safetensors.index.json file");
    tess_file *file = NULL;
    CHECK_FAILS(tess_file_open_memory(ctx, "x", NULL, 0, &file), TESS_EFORMAT, "x: is empty");
    CHECK_FAILS(tess_file_open(ctx, "nowhere.npy", &file), TESS_EIO,
                "nowhere.npy: cannot open: No such file or directory");
    CHECK_FAILS(
        tess_file_open(ctx, ".", &file), TESS_EIO,
        ".: holds no diffusion_pytorch_model.safetensors and no index of one; weights under "
        "another name are opened by their path");
    CHECK_FAILS(tess_file_open(ctx, "/dev/null", &file), TESS_EIO,
                "/dev/null: cannot read: is not a regular file");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    CHECK_FAILS(tess_file_open(ctx, "pipe", &file), TESS_EIO,
                "pipe: cannot read: is not a regular file");
    const blob nothing = {.data = b.data};
    blob_save(&nothing, "nothing");
    CHECK_FAILS(tess_file_open(ctx, "nothing", &file), TESS_EFORMAT, "nothing: is empty");
    assert_null(file);
    blob_free(&b);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void malformed_safetensors_get_their_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t data;
        const char *sentence;
    } cases[] = {
        {"{" T("a", "F32", "[2,2]", "[0,12]") "}", 12,
         "tensor \"a\": data_offsets [0,12] hold 12 bytes, but F32 [2,2] needs 16"},
        {"{" T("a", "F32", "[]", "[0,4]") "," T("b", "U8", "[2]", "[6,8]") "}", 8,
         "tensor \"b\": data_offsets [6,8] leave a hole, must begin at 4"},
        {"{" T("a", "F32", "[]", "[0,4]") "," T("b", "U8", "[2]", "[3,5]") "}", 5,
         "tensor \"b\": data_offsets [3,5] overlap another tensor's, must begin at 4"},
        {"{" T("a", "F32", "[]", "[1,5]") "}", 5,
         "tensor \"a\": data_offsets [1,5] leave a hole, must begin at 0"},
        {"{" T("a", "F32", "[]", "[0,4]") "}", 6, "data: 6 bytes, but the tensors need 4"},
        {"{}", 1, "data: 1 bytes, but the tensors need 0"},
        {"{" T("a", "F32", "[]", "[0,4]") "}", 3,
         "tensor \"a\": data_offsets [0,4] end beyond the 3 bytes of data"},
        {"{" T("a", "F32", "[]", "[4,0]") "}", 4,
         "tensor \"a\": data_offsets [4,0] end before they begin"},
        {"{" T("a", "F32", "[]", "[-4,0]") "}", 4,
         "header: byte 55: expected an integer from 0 to 2^63 - 1"},
        {"{" T("a", "F32", "[]", "[0]") "}", 4, "header: byte 56: expected ','"},
        {"{" T("a", "F32", "[]", "[0.0,4.0]") "}", 4,
         "header: byte 55: expected an integer from 0 to 2^63 - 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "tensor \"a\": lacks data_offsets"},
        {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4,
         "header: byte 37: expected an integer from 0 to 2^63 - 1"},
        {"{" T("a", "F32", "[1,\"1\"]", "[0,4]") "}", 4,
         "header: byte 39: expected an integer from 0 to 2^63 - 1"},
        {"{" T("a", "F32", "1", "[0,4]") "}", 4, "header: byte 36: expected '['"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor \"a\": lacks dtype"},
        {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "header: byte 22: expected a string"},
        {"{" T("a", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4,
         "tensor \"a\": F32 [4294967296,4294967296] has more than 2^63 bits"},
        {"{" T("a", "F8_E4M3", "[3]", "[0,4]") "}", 4,
         "tensor \"a\": data_offsets [0,4] hold 4 bytes, but F8_E4M3 [3] needs 3"},
        {"{" T("a", "F4", "[3]", "[0,1]") "}", 1,
         "tensor \"a\": data_offsets [0,1] hold 1 bytes, but F4 [3] needs 2"},
        {"{\"a\":1}", 0, "header: byte 13: expected '{'"},
        {"{" T("a\\n", "F32", "[]", "[0,4]") "}", 4,
         "header: the name of tensor number 0 must not hold control characters"},
        {"{" T("a", "U8", "[]", "[0,1]") "," T("a", "U8", "[]", "[1,2]") "}", 2,
         "tensor \"a\" is there twice"},
        {"{" T("a\\u0000b", "F32", "[]", "[0,4]") "}", 4,
         "header: byte 11: expected a valid escape, of a character that is not 0"},
        {"{\"a\xff\":1}", 0, "header: byte 10: expected UTF-8 in a string"},
        {"{\"a\":", 0, "header: byte 13: expected '{'"},
        {"{} x", 0, "header: byte 11: expected nothing but spaces after '}'"},
        {"{\"__metadata__\":1}", 0, "header: byte 24: expected '{'"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "header: byte 29: expected a string"},
        {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0,
         "header: __metadata__: \"k\" is there twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "header: __metadata__ is there twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "tensor \"a\": dtype is there twice"},
        {"{" T("a", "", "[]", "[0,1]") "}", 1,
         "tensor \"a\": dtype must be a name such as \"F32\""},
        {"{" T("a", "U8", "[01]", "[0,1]") "}", 1,
         "header: byte 36: expected an integer from 0 to 2^63 - 1"},
        {"{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1,
         "header: byte 36: expected an integer from 0 to 2^63 - 1"},
        {"{" T("\\ud83d", "U8", "[]", "[0,1]") "}", 1,
         "header: byte 10: expected a valid escape, of a character that is not 0"},
        {"{" T("\\x", "U8", "[]", "[0,1]") "}", 1,
         "header: byte 10: expected a valid escape, of a character that is not 0"},
        {"{\"a\n\":1}", 0, "header: byte 11: expected no control character in a string"},
        {"{\"a", 0, "header: byte 11: expected the end of a string"},
        {"{\"a\\", 0, "header: byte 12: expected the end of a string"},
        {"{,}", 0, "header: byte 9: expected a string"},
        {"{\"a\" 1}", 0, "header: byte 13: expected ':'"},
        {"{\"a\":{\"x\":[1 2]}}", 0, "header: byte 21: expected ',' or ']'"},
        {"{\"a\":{\"x\":?}}", 0, "header: byte 18: expected a value"},
        {" {}", 0, "header: byte 8: must be '{'"},
        {"[]", 0, "header: byte 8: must be '{'"},
        {"", 4, "header: byte 8: must be '{'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[512];
        blob b = make_safetensors(cases[i].json, cases[i].data);
        snprintf(sentence, sizeof sentence, "w.safetensors: %s", cases[i].sentence);
        assert_refused("w.safetensors", &b, TESS_EFORMAT, sentence);
        blob_free(&b);
    }
}

static void a_safetensors_length_is_checked_before_anything_else(void **state)
{
    (void)state;
    blob b = {0};
    blob_number(&b, 100000001, 8);
    blob_text(&b, "{}");
    assert_refused("w.safetensors", &b, TESS_EFORMAT,
                   "w.safetensors: header: length is 100000001, must be at most 100000000");
    memset(b.data, 0xff, 8);
    assert_refused(
        "w.safetensors", &b, TESS_EFORMAT,
        "w.safetensors: header: length is 18446744073709551615, must be at most 100000000");
    memcpy(b.data, "\3\0\0\0\0\0\0\0", 8);
    assert_refused("w.safetensors", &b, TESS_EFORMAT,
                   "w.safetensors: header: length is 3, but the file has 10 bytes");
    b.bytes = 7;
    assert_refused("w.safetensors", &b, TESS_EFORMAT,
                   "w.safetensors: has 7 bytes, must have at least the 8 of its length");
    blob_free(&b);
}

static void a_foreign_tensor_is_refused_by_name_and_the_others_are_read(void **state)
{
    (void)state;
    blob b = make_safetensors(
        "{" T("f8", "F8_E4M3", "[2]", "[0,2]") "," T("new", "F2_SPARSE", "[9]", "[2,3]") "," T(
            "deep", "U8", "[1,1,1,1,1,1,1,1,1]", "[3,4]") "," T("u8", "U8", "[2]", "[4,6]") "}",
        6);
    tess_file *file = NULL;
    tess_tensor got = {0};
    tess_file_info info;
    CHECK_OK(tess_file_open_memory(ctx, "w", b.data, b.bytes, &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.tensors, 4);
    static const char *const sentences[] = {
        "w: tensor \"f8\": dtype F8_E4M3 is not one of F32 BF16 F16 F64 I32 I64 U8 BOOL",
        "w: tensor \"new\": dtype F2_SPARSE is not one of F32 BF16 F16 F64 I32 I64 U8 BOOL",
        "w: tensor \"deep\": rank is 9, must be 0..8",
    };
    static const char *const names[] = {"f8", "new", "deep"};
    for (int i = 0; i < 3; i++) {
        char data[8];
        CHECK_FAILS(tess_file_describe(file, i, &got), TESS_ENOTSUP, sentences[i]);
        CHECK_FAILS(tess_file_tensor(file, names[i], &got), TESS_ENOTSUP, sentences[i]);
        CHECK_FAILS(tess_file_read(file, names[i], TESS_DTYPE_U8, data, 2), TESS_ENOTSUP,
                    sentences[i]);
    }
    assert_null(got.name);
    CHECK_OK(tess_file_tensor(file, "u8", &got));
    assert_memory_equal(got.data, "\4\5", 2);
    tess_file_close(file);
    blob_free(&b);
}

static void escapes_and_unknown_members_of_a_header_are_read(void **state)
{
    (void)state;
    blob b = make_safetensors("{ \"\\u00e9\\ud83d\\ude00\\/\\\"\" :\t{\"x\":{\"y\":[1,-2.5e3,true,"
                              "null,\"\\\"\",{}]},\"shape\":[ 1 ],\r\n\"data_offsets\":[0,1],"
                              "\"dtype\":\"U8\"}} ",
                              1);
    tess_file *file = NULL;
    tess_tensor got;
    CHECK_OK(tess_file_open_memory(ctx, "w", b.data, b.bytes, &file));
    CHECK_OK(tess_file_tensor(file, "\xc3\xa9\xf0\x9f\x98\x80/\"", &got));
    assert_int_equal(got.rank, 1);
    tess_file_close(file);
    blob_free(&b);

    /* Nesting is bounded, and what is at the bound is passed over. */
    for (int depth = 64; depth <= 65; depth++) {
        blob deep = {0};
        char json[300] = "{\"a\":{\"x\":";
        for (int i = 0; i < depth; i++)
            strcat(json, "[");
        for (int i = 0; i < depth; i++)
            strcat(json, "]");
        strcat(json, ",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
        deep = make_safetensors(json, 0);
        if (depth == 64) {
            CHECK_OK(tess_file_open_memory(ctx, "w", deep.data, deep.bytes, &file));
            tess_file_close(file);
        } else {
            assert_refused("w", &deep, TESS_EFORMAT,
                           "w: header: byte 82: expected at most 64 levels of nesting");
        }
        blob_free(&deep);
    }
}

static void tensors_are_listed_in_the_order_of_their_data(void **state)
{
    (void)state;
    blob b = make_safetensors("{" T("c", "U8", "[1]", "[2,3]") "," T(
                                  "a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[0]", "[2,2]") "}",
                              3);
    tess_file *file = NULL;
    tess_tensor got;
    CHECK_OK(tess_file_open_memory(ctx, "w", b.data, b.bytes, &file));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tess_file_describe(file, i, &got));
        assert_int_equal(got.name[0], "abc"[i]);
    }
    tess_file_close(file);
    blob_free(&b);
}

#define D(descr, order, shape)                                                                     \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static void malformed_npy_get_their_sentence(void **state)
{
    (void)state;
    static const struct {
        int major;
        const char *dict;
        size_t data;
        tess_status status;
        const char *sentence;
    } cases[] = {
        {1, D("'<f4'", "False", "(2, 3)"), 20, TESS_EFORMAT,
         "data: 20 bytes, but F32 [2,3] needs 24"},
        {1, D("'<f4'", "False", "(2, 3)"), 25, TESS_EFORMAT,
         "data: 25 bytes, but F32 [2,3] needs 24"},
        {1, D("'>i8'", "False", "(1,)"), 8, TESS_ENOTSUP,
         "header: dtype '>i8' is big-endian, must be little-endian"},
        {1, D("'<i2'", "False", "(1,)"), 2, TESS_ENOTSUP,
         "header: dtype '<i2' is not one of <f2 <f4 <f8 <i4 <i8 |u1 |b1"},
        {1, D("'|O'", "False", "(1,)"), 8, TESS_ENOTSUP,
         "header: dtype '|O' holds pickled Python objects, must be numbers"},
        {1, D("[('x', '<f4')]", "False", "(1,)"), 4, TESS_ENOTSUP,
         "header: has a structured dtype, must be plain numbers"},
        {1, D("'<f4'", "True", "(2, 3)"), 24, TESS_ENOTSUP,
         "header: is in Fortran order, must be in C order"},
        {1, D("'|u1'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 1, TESS_ENOTSUP,
         "header: rank is 9, must be 0..8"},
        {1, D("'<f4'", "False", "(4294967296, 4294967296)"), 24, TESS_EFORMAT,
         "header: shape [4294967296,4294967296] has more than 2^63 bytes"},
        {1, D("'<f4'", "False", "(9223372036854775808,)"), 24, TESS_EFORMAT,
         "header: byte 61: expected a length below 2^63"},
        {1, D("'<f4'", "False", "(-1,)"), 4, TESS_EFORMAT, "header: byte 61: expected a length"},
        {1, D("'<f4'", "False", "(3)"), 12, TESS_EFORMAT,
         "header: byte 63: expected ',' before the ')' of a tuple of one"},
        {1, D("'<f4'", "False", "(3 4)"), 12, TESS_EFORMAT, "header: byte 63: expected ',' or ')'"},
        {1, D("'<f4'", "False", "[3]"), 12, TESS_EFORMAT, "header: byte 60: expected '('"},
        {1, D("'<f4'", "0", "(3,)"), 12, TESS_EFORMAT, "header: byte 44: expected True or False"},
        {1, D("'<f4", "False", "(3,)"), 12, TESS_EFORMAT, "header: byte 27: expected ',' or '}'"},
        {1, D("f4", "False", "(3,)"), 12, TESS_EFORMAT,
         "header: byte 20: expected a quoted string"},
        {1, D("'<f4\\x00'", "False", "(3,)"), 12, TESS_EFORMAT,
         "header: byte 24: expected a quoted string of up to 31 plain characters"},
        {1, "{'descr': '<f4', 'shape': (1,), }", 4, TESS_EFORMAT, "header: lacks 'fortran_order'"},
        {1, "{'descr': '<f4', 'fortran_order': False}", 4, TESS_EFORMAT, "header: lacks 'shape'"},
        {1, "{}", 4, TESS_EFORMAT, "header: lacks 'descr'"},
        {1, "{'descr': '<f4', 'descr': '<f4'}", 4, TESS_EFORMAT,
         "header: byte 27: expected 'descr', 'fortran_order' and 'shape', each once"},
        {1, "{'dtype': '<f4'}", 4, TESS_EFORMAT,
         "header: byte 11: expected 'descr', 'fortran_order' and 'shape', each once"},
        {1, "{'descr' '<f4'}", 4, TESS_EFORMAT, "header: byte 19: expected ':'"},
        {1, "", 0, TESS_EFORMAT, "header: byte 10: expected '{'"},
        {1, D("'<f4'", "False", "()") "x", 4, TESS_EFORMAT,
         "header: byte 66: expected nothing but spaces after '}'"},
        {2, "", 0, TESS_EFORMAT, "header: byte 12: expected '{'"},
        {4, "{}", 0, TESS_ENOTSUP, "header: version is 4.0, must be 1.0, 2.0 or 3.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[512];
        blob b = make_npy(cases[i].major, cases[i].dict, cases[i].data);
        snprintf(sentence, sizeof sentence, "a.npy: %s", cases[i].sentence);
        assert_refused("a.npy", &b, cases[i].status, sentence);
        blob_free(&b);
    }
}

static void a_npy_cut_anywhere_is_an_error(void **state)
{
    (void)state;
    blob b = make_npy(2, D("'<f4'", "False", "(2, 3)"), 24);
    const size_t whole = b.bytes;
    for (b.bytes = 0; b.bytes < whole; b.bytes++) {
        tess_file *file = NULL;
        /* A buffer of exactly this size, so that a sanitizer sees a read beyond it. */
        unsigned char *cut = malloc(b.bytes + 1);
        memcpy(cut, b.data, b.bytes);
        cut = realloc(cut, b.bytes ? b.bytes : 1);
        assert_int_equal(tess_file_open_memory(ctx, "a", cut, b.bytes, &file), TESS_EFORMAT);
        free(cut);
    }
    blob_free(&b);
}

static void harmless_variants_of_npy_are_read(void **state)
{
    (void)state;
    static const char *const dicts[] = {
        D("'<f4'", "False", "(2, 3)"),
        D("'<f4'", "True", "(6,)"),
        D("'<f4'", "True", "(1, 6, 1)"),
        D("\"<f4\"", "False", "(6L,)"),
        "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
        "{ 'shape' : ( 2 , 3 , ) , 'fortran_order' : False , 'descr' : '<f4' , }   \n",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        for (int major = 1; major <= 3; major++) {
            blob b = make_npy(major, dicts[i], 24);
            tess_file *file = NULL;
            tess_tensor t;
            CHECK_OK(tess_file_open_memory(ctx, "dir/name.npy", b.data, b.bytes, &file));
            CHECK_OK(tess_file_tensor(file, "name", &t));
            assert_memory_equal(t.data, b.data + b.bytes - 24, 24);
            tess_file_close(file);
            blob_free(&b);
        }
    }
}

static void a_wrong_index_gets_its_sentence(void **state)
{
    (void)state;
    blob shard = make_safetensors("{" T("a", "U8", "[]", "[0,1]") "}", 1);
    blob_save(&shard, "s1.safetensors");
    blob_free(&shard);
    blob broken = make_safetensors("{}", 1);
    blob_save(&broken, "broken.safetensors");
    blob_free(&broken);
    static const struct {
        const char *json, *sentence;
        tess_status status;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\n\"b\":\"s1.safetensors\"}}",
         "i.json: line 2: tensor \"b\" is not in \"s1.safetensors\"", TESS_EFORMAT},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}",
         "i.json: line 1: \"a\" is in \"../s1.safetensors\", must be a file in the index's folder",
         TESS_EFORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
         "i.json: line 1: \"a\" is in \"/etc/passwd\", must be a file in the index's folder",
         TESS_EFORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}",
         "i.json: line 1: \"a\" is in \"\", must be a file in the index's folder", TESS_EFORMAT},
        {"{\"weight_map\":{\"a\":\"..\"}}",
         "i.json: line 1: \"a\" is in \"..\", must be a file in the index's folder", TESS_EFORMAT},
        {"{\"weight_map\":{\"a\":\"s2.safetensors\"}}",
         "s2.safetensors: cannot open: No such file or directory", TESS_EIO},
        {"{\"weight_map\":{\"a\":\"broken.safetensors\"}}",
         "broken.safetensors: data: 1 bytes, but the tensors need 0", TESS_EFORMAT},
        {"{\n\"weight_map\":{\"a\":1}}", "i.json: line 2: \"a\" is 1, must be a string",
         TESS_EFORMAT},
        {"{\"weight_map\":[]}", "i.json: line 1: \"weight_map\" is an array, must be an object",
         TESS_EFORMAT},
        {"{\"metadata\":{}}", "i.json: line 1: the document lacks \"weight_map\"", TESS_EFORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blob b = {0};
        blob_text(&b, cases[i].json);
        assert_refused("i.json", &b, cases[i].status, cases[i].sentence);
        blob_free(&b);
    }
}

static void log_to_buffer(void *user, tess_log_level level, const char *message)
{
    (void)level;
    snprintf(user, 256, "%s", message);
}

static void a_tensor_that_the_index_does_not_name_is_logged(void **state)
{
    (void)state;
    char message[256] = "";
    tess_ctx *logging = NULL;
    tess_file *file = NULL;
    tess_file_info info;
    blob shard =
        make_safetensors("{" T("a", "U8", "[]", "[0,1]") "," T("b", "U8", "[]", "[1,2]") "}", 2);
    blob_save(&shard, "two.safetensors");
    blob_free(&shard);
    const char json[] = "{\"weight_map\":{\"b\":\"two.safetensors\"}}";
    CHECK_OK(
        tess_ctx_create(&(tess_ctx_opts){.log = log_to_buffer, .log_user = message}, &logging));
    CHECK_OK(tess_file_open_memory(logging, "i.json", json, strlen(json), &file));
    assert_string_equal(message,
                        "i.json: the shards hold 1 tensors that \"weight_map\" does not name");
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.tensors, 1);
    tess_file_close(file);
    tess_ctx_destroy(logging);
}

static void wrong_arguments_of_reading_get_their_sentence(void **state)
{
    (void)state;
    blob b =
        make_safetensors("{" T("a", "F32", "[2]", "[0,8]") "," T("b", "U8", "[]", "[8,9]") "}", 9);
    tess_file *file = NULL;
    tess_tensor t;
    tess_meta meta;
    double data[2];
    CHECK_OK(tess_file_open_memory(ctx, "w", b.data, b.bytes, &file));
    CHECK_FAILS(tess_file_tensor(file, "c", &t), TESS_EINVAL, "w: has no tensor \"c\"");
    CHECK_FAILS(tess_file_tensor(file, NULL, &t), TESS_EINVAL,
                "tess_file_tensor: name is NULL, but w has 2 tensors");
    CHECK_FAILS(tess_file_describe(file, 2, &t), TESS_EINVAL,
                "tess_file_describe: index is 2, but w has 2 tensors");
    CHECK_FAILS(tess_file_describe(file, -1, &t), TESS_EINVAL,
                "tess_file_describe: index is -1, but w has 2 tensors");
    CHECK_FAILS(tess_file_meta(file, 0, &meta), TESS_EINVAL,
                "tess_file_meta: index is 0, but w has 0 metadata pairs");
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_F32, data, 4), TESS_EINVAL,
                "tess_file_read: bytes is 4, but \"a\" as F32 [2] needs 8");
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_F64, data, 8), TESS_EINVAL,
                "tess_file_read: bytes is 8, but \"a\" as F64 [2] needs 16");
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_COUNT, data, 8), TESS_EINVAL,
                "tess_file_read: dtype is 8, must be 0..7");
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_F32, NULL, 8), TESS_EINVAL,
                "tess_file_read: dst is NULL");
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_F32, (char *)data + 1, 8), TESS_EINVAL,
                "tess_file_read: dst must be aligned to the 4 bytes of F32");
    CHECK_FAILS(tess_file_read(NULL, "a", TESS_DTYPE_F32, data, 8), TESS_EINVAL,
                "tess_file_read: file is NULL");
    CHECK_FAILS(tess_file_query(file, NULL), TESS_EINVAL, "tess_file_query: info is NULL");
    CHECK_FAILS(tess_file_open(NULL, "w", &file), TESS_EINVAL, "tess_file_open: ctx is NULL");
    CHECK_FAILS(tess_file_open_memory(ctx, "w", NULL, 3, &file), TESS_EINVAL,
                "tess_file_open_memory: data is NULL");
    tess_file_close(file);
    tess_file_close(NULL);
    blob_free(&b);
}

static void wrong_arguments_of_writing_get_their_sentence(void **state)
{
    (void)state;
    static const float data[4];
    const tess_tensor good = {
        .name = "a", .dtype = TESS_DTYPE_F32, .rank = 1, .shape = {4}, .data = data};
#define WRITE_FAILS(path, change, sentence)                                                        \
    do {                                                                                           \
        tess_tensor t = good;                                                                      \
        change;                                                                                    \
        CHECK_FAILS(tess_file_write(ctx, path, &t, 1, NULL), TESS_EINVAL,                          \
                    "tess_file_write: " sentence);                                                 \
        assert_int_not_equal(access(path, F_OK), 0);                                               \
    } while (0)
    WRITE_FAILS("x.bin", (void)0,
                "path is \"x.bin\", must end in .npy, .npz, .safetensors or "
                ".safetensors.index.json");
    WRITE_FAILS("x.npz", t.name = NULL, "name of tensor 0 is NULL");
    WRITE_FAILS("x.npz", t.name = "\xff", "the name of tensor 0 must be UTF-8");
    WRITE_FAILS("x.npz", t.name = "a\n", "the name of tensor 0 must not hold control characters");
    WRITE_FAILS("x.safetensors", t.name = "__metadata__",
                "a tensor of .safetensors must not be called \"__metadata__\"");
    WRITE_FAILS("x.npy", t.dtype = TESS_DTYPE_COUNT, "dtype of tensor 0 is 8, must be 0..7");
    WRITE_FAILS("x.npy", t.dtype = TESS_DTYPE_BF16,
                "tensor 0 is BF16, which .npy and .npz do not know");
    WRITE_FAILS("x.npy", t.rank = 9, "rank of tensor 0 is 9, must be 0..8");
    WRITE_FAILS("x.npy", t.shape[0] = -1, "shape[0] of tensor 0 is -1, must be 0 or more");
    WRITE_FAILS("x.npy", t.shape[0] = INT64_MAX, "tensor 0 has more than 2^63 bytes");
    WRITE_FAILS("x.npy", t.data = NULL, "data of tensor 0 is NULL");

    const tess_tensor two[] = {good, good};
    const tess_meta metas[] = {{"k", "v"}, {"k", "w"}}, bad[] = {{"k", NULL}},
                    byte[] = {{"k", "\x80"}};
#define TWO_FAIL(path, n, sentence, ...)                                                           \
    CHECK_FAILS(tess_file_write(ctx, path, two, n, &(tess_file_opts){__VA_ARGS__}), TESS_EINVAL,   \
                "tess_file_write: " sentence)
    TWO_FAIL("x.npy", 2, "n is 2, must be 1 for .npy", .compress = 0);
    TWO_FAIL("x.npz", 2, "two tensors are called \"a\"", .compress = 0);
    TWO_FAIL("x.npz", -1, "n is -1, but tensors is given", .compress = 0);
    TWO_FAIL("x.npz", 1, "compress is 2, must be 0 or 1", .compress = 2);
    TWO_FAIL("x.npz", 1, "n_metas is 2, must be 0 for .npy and .npz", .metas = metas, .n_metas = 2);
    TWO_FAIL("x.safetensors", 1, "two metadata pairs have the key \"k\"", .metas = metas,
             .n_metas = 2);
    TWO_FAIL("x.safetensors", 1, "value of metadata pair 0 is NULL", .metas = bad, .n_metas = 1);
    TWO_FAIL("x.safetensors", 1, "metadata pair 0 must be UTF-8", .metas = byte, .n_metas = 1);
    TWO_FAIL("x.safetensors", 1, "n_metas is 1, but metas is NULL", .n_metas = 1);
    TWO_FAIL("x.safetensors", 1, "shard_bytes is -1, must be 0 or more", .shard_bytes = -1);
    CHECK_FAILS(tess_file_write(ctx, "nowhere/x.npy", &good, 1, NULL), TESS_EIO,
                "nowhere/x.npy: cannot create: No such file or directory");
    CHECK_FAILS(tess_file_write(ctx, "x.npz", NULL, 2, NULL), TESS_EINVAL,
                "tess_file_write: n is 2, but tensors is NULL");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_no_tensor_file_is_refused),
    cmocka_unit_test(malformed_safetensors_get_their_sentence),
    cmocka_unit_test(a_safetensors_length_is_checked_before_anything_else),
    cmocka_unit_test(a_foreign_tensor_is_refused_by_name_and_the_others_are_read),
    cmocka_unit_test(escapes_and_unknown_members_of_a_header_are_read),
    cmocka_unit_test(tensors_are_listed_in_the_order_of_their_data),
    cmocka_unit_test(malformed_npy_get_their_sentence),
    cmocka_unit_test(a_npy_cut_anywhere_is_an_error),
    cmocka_unit_test(harmless_variants_of_npy_are_read),
    cmocka_unit_test(a_wrong_index_gets_its_sentence),
    cmocka_unit_test(a_tensor_that_the_index_does_not_name_is_logged),
    cmocka_unit_test(wrong_arguments_of_reading_get_their_sentence),
    cmocka_unit_test(wrong_arguments_of_writing_get_their_sentence),
};
RUN_TESTS_IN_FOLDER(tests)
