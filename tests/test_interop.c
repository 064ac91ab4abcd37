/* SPDX-License-Identifier: Apache-2.0 */
/* test_interop.c - files of NumPy and of the safetensors library, and ours read by them.
 *
 * The golden files of tests/data are made by make_files.py there. What we write is read back by
 * python3 with numpy and safetensors, where it has them.
 */
#include "base/base_internal.h"
#include "files.h"
#include "tessera/file.h"

static tess_file *open_golden(const char *name)
{
    char path[4096];
    tess_file *file = NULL;
    snprintf(path, sizeof path, "%s/%s", TESS_TEST_DATA, name);
    CHECK_OK(tess_file_open(ctx, path, &file));
    return file;
}

/* Element i as make_files.py sets it. */
static double golden(tess_dtype dtype, int i)
{
    return dtype == TESS_DTYPE_BOOL ? i % 2 : dtype == TESS_DTYPE_U8 ? i : i - 2;
}

static double half_value(uint16_t bits) /* of the small integers at hand */
{
    if ((bits & 0x7fff) == 0)
        return 0;
    double value = 1024 + (bits & 0x3ff);
    for (int e = (bits >> 10 & 31) - 25; e < 0; e++)
        value /= 2;
    return bits & 0x8000 ? -value : value;
}

static double element(const tess_tensor *t, int i)
{
    switch (t->dtype) {
    case TESS_DTYPE_F32: return ((const float *)t->data)[i];
    case TESS_DTYPE_F16: return half_value(((const uint16_t *)t->data)[i]);
    case TESS_DTYPE_F64: return ((const double *)t->data)[i];
    case TESS_DTYPE_I32: return ((const int32_t *)t->data)[i];
    case TESS_DTYPE_I64: return (double)((const int64_t *)t->data)[i];
    default: return ((const uint8_t *)t->data)[i];
    }
}

static void assert_golden(tess_file *file, const char *name, tess_dtype dtype, int rank,
                          const int64_t *shape)
{
    tess_tensor t;
    CHECK_OK(tess_file_tensor(file, name, &t));
    assert_int_equal(t.dtype, dtype);
    assert_int_equal(t.rank, rank);
    int n = 1;
    for (int d = 0; d < rank; d++) {
        assert_int_equal(t.shape[d], shape[d]);
        n *= (int)shape[d];
    }
    for (int i = 0; i < n; i++)
        assert_true(element(&t, i) == golden(dtype, i));
}

static void numpy_arrays_of_every_version_are_read(void **state)
{
    (void)state;
    tess_file *file = open_golden("numpy_1.npy");
    assert_golden(file, "numpy_1", TESS_DTYPE_F32, 2, (int64_t[]){3, 5});
    tess_file_close(file);
    for (int version = 2; version <= 3; version++) {
        char name[32];
        snprintf(name, sizeof name, "numpy_%d.npy", version);
        file = open_golden(name);
        assert_golden(file, NULL, TESS_DTYPE_I64, 1, (int64_t[]){7});
        tess_file_close(file);
    }
}

static void archives_and_safetensors_of_other_libraries_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tess_dtype dtype;
    } arrays[] = {
        {"float32", TESS_DTYPE_F32}, {"float16", TESS_DTYPE_F16}, {"float64", TESS_DTYPE_F64},
        {"int32", TESS_DTYPE_I32},   {"int64", TESS_DTYPE_I64},   {"uint8", TESS_DTYPE_U8},
        {"bool", TESS_DTYPE_BOOL},
    };
    static const char *const files[] = {"numpy_stored.npz", "numpy_deflated.npz",
                                        "library.safetensors"};
    for (int f = 0; f < 3; f++) {
        tess_file *file = open_golden(files[f]);
        tess_file_info info;
        CHECK_OK(tess_file_query(file, &info));
        assert_int_equal(info.tensors, 9);
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            assert_golden(file, arrays[i].name, arrays[i].dtype, 2, (int64_t[]){2, 3});
        assert_golden(file, "scalar", TESS_DTYPE_F32, 0, NULL);
        assert_golden(file, "empty", TESS_DTYPE_F32, 2, (int64_t[]){0, 4});
        assert_int_equal(info.metas, f == 2 ? 2 : 0);
        for (int m = 0; m < info.metas; m++) {
            tess_meta meta;
            CHECK_OK(tess_file_meta(file, m, &meta));
            assert_string_equal(meta.value,
                                strcmp(meta.key, "note") == 0 ? "a \"quoted\" word" : "np");
        }
        tess_file_close(file);
    }
}

static void numpy_arrays_of_another_order_are_refused(void **state)
{
    (void)state;
    char path[4096];
    tess_file *file = NULL;
    snprintf(path, sizeof path, "%s/numpy_fortran.npy", TESS_TEST_DATA);
    assert_int_equal(tess_file_open(ctx, path, &file), TESS_ENOTSUP);
    assert_non_null(strstr(tess_last_error(), "header: is in Fortran order, must be in C order"));
    snprintf(path, sizeof path, "%s/numpy_big_endian.npy", TESS_TEST_DATA);
    assert_int_equal(tess_file_open(ctx, path, &file), TESS_ENOTSUP);
    assert_non_null(
        strstr(tess_last_error(), "header: dtype '>f4' is big-endian, must be little-endian"));
    assert_null(file);
}

/* Reads one file; x is -2 ... 3 in shape (2, 3), as every dtype but bf16; s a scalar; e empty. */
static const char script[] =
    "import sys, zipfile\n"
    "import numpy as np\n"
    "path = sys.argv[1]\n"
    "if path.endswith('.npy'):\n"
    "    got = {'f4': np.load(path)}\n"
    "elif path.endswith('.npz'):\n"
    "    assert zipfile.ZipFile(path).testzip() is None\n"
    "    got = dict(np.load(path))\n"
    "else:\n"
    "    from safetensors import safe_open\n"
    "    with safe_open(path, 'numpy') as f:\n"
    "        got = {k: f.get_tensor(k) for k in f.keys()}\n"
    "        assert f.metadata() == {'note': 'a \"b\"\\n'}, f.metadata()\n"
    "if not path.endswith('.npy'):\n"
    "    assert len(got) == 5, got.keys()\n"
    "    assert got['s'].shape == () and got['s'] == -2 and got['e'].shape == (4, 0)\n"
    "    assert got['u1'].dtype == np.uint8 and got['u1'].tolist() == [0, 1, 2]\n"
    "    assert got['f8'].dtype == np.float64 and got['f8'].tolist() == [[-2, -1, 0], [1, 2, 3]]\n"
    "assert got['f4'].dtype == np.float32 and got['f4'].tolist() == [[-2, -1, 0], [1, 2, 3]]\n";

static void what_we_write_is_read_by_the_formats_own_libraries(void **state)
{
    (void)state;
    if (system("python3 -c 'import numpy, safetensors' 2> /dev/null") != 0) {
        print_message("skipped: python3 lacks numpy or safetensors\n");
        skip();
    }
    static const float f4[] = {-2, -1, 0, 1, 2, 3};
    static const double f8[] = {-2, -1, 0, 1, 2, 3};
    const tess_tensor t[] = {
        {.name = "f4", .dtype = TESS_DTYPE_F32, .rank = 2, .shape = {2, 3}, .data = f4},
        {.name = "u1", .dtype = TESS_DTYPE_U8, .rank = 1, .shape = {3}, .data = "\0\1\2"},
        {.name = "f8", .dtype = TESS_DTYPE_F64, .rank = 2, .shape = {2, 3}, .data = f8},
        {.name = "s", .dtype = TESS_DTYPE_F32, .data = f4},
        {.name = "e", .dtype = TESS_DTYPE_F32, .rank = 2, .shape = {4, 0}},
    };
    const tess_meta meta = {"note", "a \"b\"\n"};
    FILE *file = fopen("read.py", "w");
    fputs(script, file);
    fclose(file);
    CHECK_OK(tess_file_write(ctx, "ours.npy", t, 1, NULL));
    assert_int_equal(system("python3 read.py ours.npy"), 0);
    CHECK_OK(tess_file_write(ctx, "ours.npz", t, 5, NULL));
    assert_int_equal(system("python3 read.py ours.npz"), 0);
    CHECK_OK(tess_file_write(ctx, "ours.npz", t, 5, &(tess_file_opts){.compress = 1}));
    assert_int_equal(system("python3 read.py ours.npz"), 0);
    CHECK_OK(tess_file_write(ctx, "ours.safetensors", t, 5,
                             &(tess_file_opts){.metas = &meta, .n_metas = 1}));
    assert_int_equal(system("python3 read.py ours.safetensors"), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numpy_arrays_of_every_version_are_read),
    cmocka_unit_test(archives_and_safetensors_of_other_libraries_are_read),
    cmocka_unit_test(numpy_arrays_of_another_order_are_refused),
    cmocka_unit_test(what_we_write_is_read_by_the_formats_own_libraries),
};
RUN_TESTS_IN_FOLDER(tests)
