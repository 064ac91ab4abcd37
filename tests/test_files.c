/* SPDX-License-Identifier: Apache-2.0 */
/* test_files.c - tensor files of every kind: round trips, lookups, sizes, stopping. */
#include "base/base_internal.h"
#include "files.h"
#include "tessera/file.h"

#include <fcntl.h>
#include <time.h>

static const char *const kinds[] = {"t.npy", "t.npz", "t.safetensors", "t.safetensors.index.json"};

static int knows(const char *path, tess_dtype dtype)
{
    return dtype != TESS_DTYPE_BF16 || strstr(path, ".safetensors");
}

/* The file's only tensor equals t: described, mapped and read. */
static void assert_only_tensor(const char *path, const tess_tensor *t, size_t bytes)
{
    tess_file *file = NULL;
    tess_file_info info;
    tess_tensor got;
    CHECK_OK(tess_file_open(ctx, path, &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.tensors, 1);
    assert_int_equal(info.shards, 1);
    assert_int_equal(info.metas, 0);
    CHECK_OK(tess_file_describe(file, 0, &got));
    assert_null(got.data);
    assert_string_equal(got.name, t->name);
    assert_int_equal(got.dtype, t->dtype);
    assert_int_equal(got.rank, t->rank);
    for (int d = 0; d < t->rank; d++)
        assert_int_equal(got.shape[d], t->shape[d]);
    CHECK_OK(tess_file_tensor(file, NULL, &got));
    assert_int_equal((uintptr_t)got.data % tess_dtype_size(t->dtype), 0);
    assert_non_null(got.data);
    assert_memory_equal(got.data, t->data, bytes);
    char *copy = malloc(bytes + 1);
    CHECK_OK(tess_file_read(file, t->name, t->dtype, copy, bytes));
    assert_memory_equal(copy, t->data, bytes);
    free(copy);
    tess_file_close(file);
}

static void every_dtype_and_rank_comes_back_from_every_kind(void **state)
{
    (void)state;
    static const int64_t shape[TESS_RANK_MAX] = {3, 1, 2, 5, 1, 2, 3, 2};
    static unsigned char data[8 * 3 * 2 * 5 * 2 * 3 * 2];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 % 251);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int dtype = 0; dtype < TESS_DTYPE_COUNT; dtype++) {
            for (int rank = 0; rank <= TESS_RANK_MAX; rank += rank < 2 ? 1 : 3) {
                size_t bytes = tess_dtype_size((tess_dtype)dtype);
                tess_tensor t = {.name = "t", .dtype = (tess_dtype)dtype, .rank = rank};
                memcpy(t.shape, shape, sizeof shape);
                t.data = data;
                for (int d = 0; d < rank; d++)
                    bytes *= (size_t)shape[d];
                if (!knows(kinds[k], t.dtype))
                    continue;
                CHECK_OK(
                    tess_file_write(ctx, kinds[k], &t, 1, &(tess_file_opts){.compress = rank % 2}));
                assert_only_tensor(kinds[k], &t, bytes);
            }
        }
    }
}

static void empty_tensors_have_a_shape_and_no_bytes(void **state)
{
    (void)state;
    /* The product of the other lengths overflows, and must not matter. */
    const tess_tensor t = {.name = "t",
                           .dtype = TESS_DTYPE_F32,
                           .rank = 3,
                           .shape = {(int64_t)1 << 62, 0, (int64_t)1 << 62}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        CHECK_OK(tess_file_write(ctx, kinds[k], &t, 1, &(tess_file_opts){.compress = 1}));
        tess_file *file = NULL;
        tess_tensor got;
        CHECK_OK(tess_file_open(ctx, kinds[k], &file));
        CHECK_OK(tess_file_tensor(file, "t", &got));
        assert_int_equal(got.rank, 3);
        assert_int_equal(got.shape[0], t.shape[0]);
        assert_int_equal(got.shape[1], 0);
        CHECK_OK(tess_file_read(file, "t", TESS_DTYPE_F32, NULL, 0));
        tess_file_close(file);
    }
}

/* Sizes 1, 8, 2, 4 in this order: only a layout by size aligns them all. */
static void written_tensors_are_aligned_whatever_their_order(void **state)
{
    (void)state;
    static const double data[3] = {1, 2, 3};
    const tess_tensor t[] = {
        {.name = "byte", .dtype = TESS_DTYPE_U8, .rank = 1, .shape = {3}, .data = data},
        {.name = "double", .dtype = TESS_DTYPE_F64, .rank = 1, .shape = {3}, .data = data},
        {.name = "half", .dtype = TESS_DTYPE_F16, .rank = 1, .shape = {3}, .data = data},
        {.name = "long name so that headers have another length",
         .dtype = TESS_DTYPE_F32,
         .rank = 1,
         .shape = {3},
         .data = data},
    };
    static const char *const paths[] = {"align.npz", "align.safetensors"};
    for (int p = 0; p < 2; p++) {
        CHECK_OK(tess_file_write(ctx, paths[p], t, 4, NULL));
        tess_file *file = NULL;
        CHECK_OK(tess_file_open(ctx, paths[p], &file));
        tess_ctx_info before, after;
        CHECK_OK(tess_ctx_query(ctx, &before));
        for (int i = 0; i < 4; i++) {
            tess_tensor got;
            CHECK_OK(tess_file_tensor(file, t[i].name, &got));
            assert_memory_equal(got.data, data, 3 * tess_dtype_size(t[i].dtype));
        }
        CHECK_OK(tess_ctx_query(ctx, &after));
        assert_int_equal(after.allocations, before.allocations); /* no copies */
        tess_file_close(file);
    }
}

static void a_tensor_at_an_unaligned_place_is_copied_once(void **state)
{
    (void)state;
    const char json[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                        "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}";
    blob b = make_safetensors(json, 9);
    blob_save(&b, "unaligned.safetensors");
    for (int memory = 0; memory < 2; memory++) {
        tess_file *file = NULL;
        tess_tensor got, again;
        if (memory)
            CHECK_OK(tess_file_open_memory(ctx, "m", b.data, b.bytes, &file));
        else
            CHECK_OK(tess_file_open(ctx, "unaligned.safetensors", &file));
        CHECK_OK(tess_file_tensor(file, "f", &got));
        assert_int_equal((uintptr_t)got.data % 4, 0);
        assert_memory_equal(got.data, b.data + b.bytes - 8, 8);
        CHECK_OK(tess_file_tensor(file, "f", &again));
        assert_ptr_equal(got.data, again.data);
        float read[2];
        CHECK_OK(tess_file_read(file, "f", TESS_DTYPE_F32, read, sizeof read));
        assert_memory_equal(read, b.data + b.bytes - 8, 8);
        tess_file_close(file);
    }
    blob_free(&b);
}

static void metadata_come_back_with_every_character(void **state)
{
    (void)state;
    const tess_meta metas[] = {{"format", "pt"},
                               {"quote", "a \"b\" \\ c"},
                               {"control", "\x01\n\t\r\x1f end"},
                               {"", "\xc3\xa9\xe2\x82\xac"}};
    static const char *const paths[] = {"meta.safetensors", "meta.safetensors.index.json"};
    const tess_tensor t = {.name = "\xc3\xbc \"x\"", .dtype = TESS_DTYPE_U8, .data = "a"};
    for (int p = 0; p < 2; p++) {
        CHECK_OK(
            tess_file_write(ctx, paths[p], &t, 1, &(tess_file_opts){.metas = metas, .n_metas = 4}));
        tess_file *file = NULL;
        tess_file_info info;
        tess_meta meta;
        tess_tensor got;
        CHECK_OK(tess_file_open(ctx, paths[p], &file));
        CHECK_OK(tess_file_query(file, &info));
        assert_int_equal(info.metas, 4);
        for (int i = 0; i < 4; i++) {
            CHECK_OK(tess_file_meta(file, i, &meta));
            assert_string_equal(meta.key, metas[i].key);
            assert_string_equal(meta.value, metas[i].value);
        }
        CHECK_OK(tess_file_tensor(file, t.name, &got));
        assert_memory_equal(got.data, "a", 1);
        tess_file_close(file);
    }
}

static void shards_are_cut_by_bytes_and_read_as_one(void **state)
{
    (void)state;
    static float data[6][10];
    static char names[6][8];
    tess_tensor t[6];
    for (int i = 0; i < 6; i++) {
        snprintf(names[i], sizeof names[i], "t%d", 5 - i);
        for (int j = 0; j < 10; j++)
            data[i][j] = (float)(100 * i + j);
        t[i] = (tess_tensor){
            .name = names[i], .dtype = TESS_DTYPE_F32, .rank = 1, .shape = {10}, .data = data[i]};
    }
    /* 40 bytes each, 100 to a shard: two, two, two. */
    CHECK_OK(tess_file_write(ctx, "s.safetensors.index.json", t, 6,
                             &(tess_file_opts){.shard_bytes = 100}));
    assert_int_equal(access("s-00003-of-00003.safetensors", R_OK), 0);
    tess_file *file = NULL;
    tess_file_info info;
    CHECK_OK(tess_file_open(ctx, "./s.safetensors.index.json", &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.shards, 3);
    assert_int_equal(info.tensors, 6);
    assert_string_equal(info.kind_name, "safetensors index");
    for (int i = 0; i < 6; i++) {
        tess_tensor got;
        CHECK_OK(tess_file_describe(file, i, &got));
        assert_string_equal(got.name, names[i]);
        CHECK_OK(tess_file_tensor(file, names[i], &got));
        assert_memory_equal(got.data, data[i], sizeof data[i]);
    }
    tess_file_close(file);
    /* A tensor above the limit has a shard of its own; nothing at all has none. */
    CHECK_OK(tess_file_write(ctx, "one.safetensors.index.json", t, 2,
                             &(tess_file_opts){.shard_bytes = 1}));
    assert_int_equal(access("one-00002-of-00002.safetensors", R_OK), 0);
    CHECK_OK(tess_file_write(ctx, "none.safetensors.index.json", NULL, 0, NULL));
    CHECK_OK(tess_file_open(ctx, "none.safetensors.index.json", &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.tensors, 0);
    assert_int_equal(info.shards, 0);
    tess_file_close(file);
}

static void files_without_tensors_are_files(void **state)
{
    (void)state;
    static const char *const paths[] = {"none.npz", "none.safetensors"};
    for (int p = 0; p < 2; p++) {
        CHECK_OK(tess_file_write(ctx, paths[p], NULL, 0, NULL));
        tess_file *file = NULL;
        tess_file_info info;
        tess_tensor got;
        CHECK_OK(tess_file_open(ctx, paths[p], &file));
        CHECK_OK(tess_file_query(file, &info));
        assert_int_equal(info.tensors, 0);
        assert_int_equal(tess_file_tensor(file, NULL, &got), TESS_EINVAL);
        assert_int_equal(tess_file_tensor(file, "x", &got), TESS_EINVAL);
        tess_file_close(file);
    }
}

/* Also more members than a zip directory of 16 bits can count. The bound is far above what it takes
 * (under 0.3 s each, unsanitized) and far below what a linear lookup would: 10^10 comparisons. It
 * is processor time, so that other processes do not count. */
static void a_hundred_thousand_tensors_open_and_are_found_fast(void **state)
{
    (void)state;
    enum { N = 100000 };
    static const char *const paths[] = {"many.safetensors", "many.npz"};
    tess_tensor *t = calloc(N, sizeof *t);
    char(*names)[40] = calloc(N, sizeof *names);
    int32_t *data = calloc(N, sizeof *data);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "blocks.%d.weight", i * 7919 % N);
        data[i] = i;
        t[i] = (tess_tensor){.name = names[i], .dtype = TESS_DTYPE_I32, .data = &data[i]};
    }
    for (int p = 0; p < 2; p++) {
        CHECK_OK(tess_file_write(ctx, paths[p], t, N, NULL));
        const clock_t start = clock();
        tess_file *file = NULL;
        CHECK_OK(tess_file_open(ctx, paths[p], &file));
        for (int i = 0; i < N; i++) {
            int32_t got;
            CHECK_OK(tess_file_read(file, names[i], TESS_DTYPE_I32, &got, sizeof got));
            assert_int_equal(got, i);
        }
        tess_file_close(file);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        print_message("%s: %.3f s\n", paths[p], seconds);
        assert_true(seconds < 20);
    }
    free(t);
    free(names);
    free(data);
}

/* 10 GB of holes with one number in each of two tensors, the second beyond 32 bits. To read them
 * would take seconds of the processor. */
static void a_sparse_file_of_ten_gigabytes_opens_at_once(void **state)
{
    (void)state;
    const char json[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2500000000],\"data_offsets\":[0,10000000000]},"
        "\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[10000000000,10000000008]}}   ";
    blob b = make_safetensors(json, 0);
    blob_save(&b, "sparse.safetensors");
    const int fd = open("sparse.safetensors", O_RDWR);
    if (ftruncate(fd, (off_t)b.bytes + 10000000008) != 0) {
        print_message("skipped: the file system holds no sparse file of 10 GB\n");
        close(fd);
        blob_free(&b);
        skip();
    }
    const int32_t seven = 7;
    assert_int_equal(pwrite(fd, &seven, 4, (off_t)b.bytes + 10000000004), 4);
    close(fd);
    tess_file *file = NULL;
    const clock_t start = clock();
    CHECK_OK(tess_file_open(ctx, "sparse.safetensors", &file));
    assert_true(clock() - start < CLOCKS_PER_SEC);
    tess_tensor got;
    CHECK_OK(tess_file_tensor(file, "b", &got));
    assert_int_equal(((const int32_t *)got.data)[0], 0);
    assert_int_equal(((const int32_t *)got.data)[1], 7);
    int32_t read[2];
    CHECK_OK(tess_file_read(file, "b", TESS_DTYPE_I32, read, sizeof read));
    assert_int_equal(read[1], 7);
    tess_file_close(file);
    unlink("sparse.safetensors");
    blob_free(&b);
}

/* 36 MB: several waves of pieces, and threads in each. */
static void any_number_of_threads_reads_the_same(void **state)
{
    (void)state;
    enum { N = 9 * 1000 * 1000 + 3 };
    uint32_t *data = malloc(sizeof *data * N), *got = malloc(sizeof *got * N);
    for (uint32_t i = 0; i < N; i++)
        data[i] = i * 2654435761u;
    const tess_tensor t = {
        .name = "t", .dtype = TESS_DTYPE_I32, .rank = 1, .shape = {N}, .data = data};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        CHECK_OK(tess_file_write(ctx, kinds[k], &t, 1, NULL));
        for (int threads = 1; threads <= 5; threads += 4) {
            tess_ctx *other = NULL;
            tess_file *file = NULL;
            CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &other));
            CHECK_OK(tess_file_open(other, kinds[k], &file));
            for (int twice = 0; twice < 2; twice++) { /* .npz: checked, then plain */
                memset(got, 0, sizeof *got * N);
                CHECK_OK(tess_file_read(file, NULL, TESS_DTYPE_I32, got, sizeof *got * N));
                assert_memory_equal(got, data, sizeof *got * N);
            }
            tess_file_close(file);
            tess_ctx_destroy(other);
        }
    }
    free(data);
    free(got);
}

/* Enough elements for several pieces in each of several waves, and a rest. */
static void reading_as_another_dtype_converts(void **state)
{
    (void)state;
    enum { N = 9 * 1000 * 1000 + 1 };
    int32_t *data = malloc(sizeof *data * N);
    double *got = malloc(sizeof *got * N), *want = malloc(sizeof *want * N);
    for (int i = 0; i < N; i++) {
        data[i] = (int32_t)((uint32_t)i * 2654435761u);
        want[i] = data[i];
    }
    const tess_tensor t = {
        .name = "t", .dtype = TESS_DTYPE_I32, .rank = 1, .shape = {N}, .data = data};
    static const char *const paths[] = {"convert.npz", "convert.npz", "convert.safetensors"};
    for (int p = 0; p < 3; p++) {
        const int n = p == 0 ? 300001 : N; /* deflating takes long */
        tess_tensor part = t;
        part.shape[0] = n;
        CHECK_OK(tess_file_write(ctx, paths[p], &part, 1, &(tess_file_opts){.compress = p == 0}));
        tess_file *file = NULL;
        CHECK_OK(tess_file_open(ctx, paths[p], &file));
        memset(got, 0, sizeof *got * N);
        CHECK_OK(tess_file_read(file, "t", TESS_DTYPE_F64, got, sizeof *got * (size_t)n));
        assert_memory_equal(got, want, sizeof *got * (size_t)n);
        if (p == 0) { /* from the copy that the file keeps */
            tess_tensor mapped;
            CHECK_OK(tess_file_tensor(file, "t", &mapped));
            memset(got, 0, sizeof *got * N);
            CHECK_OK(tess_file_read(file, "t", TESS_DTYPE_F64, got, sizeof *got * (size_t)n));
            assert_memory_equal(got, want, sizeof *got * (size_t)n);
        }
        tess_file_close(file);
    }
    free(data);
    free(got);
    free(want);
}

static int stop_at_half(void *user, const char *what, int64_t done, int64_t total)
{
    (void)what;
    ++*(int *)user;
    return done >= total / 2;
}

static void reading_and_writing_can_be_stopped(void **state)
{
    (void)state;
    enum { BYTES = 40 * 1000 * 1000 };
    char *data = calloc(1, BYTES);
    const tess_tensor t = {
        .name = "t", .dtype = TESS_DTYPE_U8, .rank = 1, .shape = {BYTES}, .data = data};
    static const char *const paths[] = {"stop.npy", "stop.npz", "stop.safetensors",
                                        "stop.safetensors.index.json"};
    int calls = 0;
    tess_ctx *stopping = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_at_half, .progress_user = &calls},
                             &stopping));
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        CHECK_FAILS(tess_file_write(stopping, paths[k], &t, 1, NULL), TESS_ESTOPPED,
                    "stopped by the caller while writing bytes");
        assert_int_not_equal(access(paths[k], F_OK), 0);
        CHECK_OK(tess_file_write(ctx, paths[k], &t, 1, NULL));
        tess_file *file = NULL;
        CHECK_OK(tess_file_open(stopping, paths[k], &file));
        calls = 0;
        CHECK_FAILS(tess_file_read(file, NULL, TESS_DTYPE_U8, data, BYTES), TESS_ESTOPPED,
                    "stopped by the caller while reading bytes");
        assert_in_range(calls, 1, 100);
        tess_file_close(file);
        unlink(paths[k]);
    }
    tess_ctx_destroy(stopping);
    free(data);
}

/* Small copies go through pread, large ones through the mapping: both must notice. */
static void a_file_that_shrinks_is_an_error_of_the_read(void **state)
{
    (void)state;
    static const size_t sizes[] = {5000, 3 << 20, 20 << 20};
    for (int i = 0; i < 3; i++) {
        char *data = calloc(1, sizes[i]);
        tess_file *file = NULL;
        const tess_tensor t = {.name = "t",
                               .dtype = TESS_DTYPE_U8,
                               .rank = 1,
                               .shape = {(int64_t)sizes[i]},
                               .data = data};
        CHECK_OK(tess_file_write(ctx, "shrinks.npy", &t, 1, NULL));
        CHECK_OK(tess_file_open(ctx, "shrinks.npy", &file));
        assert_int_equal(truncate("shrinks.npy", 3000), 0);
        CHECK_FAILS(tess_file_read(file, NULL, TESS_DTYPE_U8, data, sizes[i]), TESS_EIO,
                    "shrinks.npy: cannot read: the file has shrunk since it was opened");
        tess_file_close(file);
        free(data);
    }
}

static void a_failed_write_leaves_what_was_there(void **state)
{
    (void)state;
    static const char *const paths[] = {"keep.npy", "keep.npz", "keep.safetensors",
                                        "keep.safetensors.index.json"};
    char *data = calloc(1, 40 << 20);
    const tess_tensor small = {.name = "t", .dtype = TESS_DTYPE_U8, .data = "s"};
    const tess_tensor large = {
        .name = "t", .dtype = TESS_DTYPE_U8, .rank = 1, .shape = {40 << 20}, .data = data};
    int calls = 0;
    tess_ctx *stopping = NULL;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.progress = stop_at_half, .progress_user = &calls},
                             &stopping));
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        CHECK_OK(tess_file_write(ctx, paths[k], &small, 1, NULL));
        assert_int_equal(tess_file_write(stopping, paths[k], &large, 1, NULL), TESS_ESTOPPED);
        tess_file *file = NULL;
        tess_tensor got;
        CHECK_OK(tess_file_open(ctx, paths[k], &file));
        CHECK_OK(tess_file_tensor(file, NULL, &got));
        assert_memory_equal(got.data, "s", 1);
        tess_file_close(file);
    }
    assert_int_equal(system("test -z \"$(ls -A | grep tmp)\""), 0);
    tess_ctx_destroy(stopping);
    free(data);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_dtype_and_rank_comes_back_from_every_kind),
    cmocka_unit_test(empty_tensors_have_a_shape_and_no_bytes),
    cmocka_unit_test(written_tensors_are_aligned_whatever_their_order),
    cmocka_unit_test(a_tensor_at_an_unaligned_place_is_copied_once),
    cmocka_unit_test(metadata_come_back_with_every_character),
    cmocka_unit_test(shards_are_cut_by_bytes_and_read_as_one),
    cmocka_unit_test(files_without_tensors_are_files),
    cmocka_unit_test(a_hundred_thousand_tensors_open_and_are_found_fast),
    cmocka_unit_test(a_sparse_file_of_ten_gigabytes_opens_at_once),
    cmocka_unit_test(any_number_of_threads_reads_the_same),
    cmocka_unit_test(reading_as_another_dtype_converts),
    cmocka_unit_test(reading_and_writing_can_be_stopped),
    cmocka_unit_test(a_file_that_shrinks_is_an_error_of_the_read),
    cmocka_unit_test(a_failed_write_leaves_what_was_there),
};
RUN_TESTS_IN_FOLDER(tests)
