/* SPDX-License-Identifier: Apache-2.0 */
/* files.h - what the tests of tensor files share: a folder of their own, bytes put together. */
#ifndef TESS_TEST_FILES_H
#define TESS_TEST_FILES_H

#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char test_dir[] = "/tmp/tessera-files-XXXXXX";
static tess_ctx *ctx;

/* Group setup: a context, and a folder that is the current one. */
static int enter_folder(void **state)
{
    (void)state;
    if (!mkdtemp(test_dir) || chdir(test_dir) != 0)
        return -1;
    return tess_ctx_create(NULL, &ctx);
}

/* Group teardown: nothing may be left allocated. */
static int leave_folder(void **state)
{
    (void)state;
    tess_ctx_info info = {0};
    tess_ctx_query(ctx, &info);
    tess_ctx_destroy(ctx);
    char command[sizeof test_dir + 16];
    snprintf(command, sizeof command, "rm -rf %s", test_dir);
    if (info.bytes_now != 0)
        print_error("%lld bytes are still allocated\n", (long long)info.bytes_now);
    return chdir("/") != 0 || system(command) != 0 || info.bytes_now != 0;
}

#define RUN_TESTS_IN_FOLDER(tests) RUN_TESTS_WITH(tests, enter_folder, leave_folder)

/* Bytes put together piece by piece. */
typedef struct {
    unsigned char *data;
    size_t bytes;
} blob;

static inline void blob_add(blob *b, const void *data, size_t n)
{
    b->data = realloc(b->data, b->bytes + n + 1);
    assert_non_null(b->data);
    memcpy(b->data + b->bytes, data, n);
    b->bytes += n;
}

static inline void blob_number(blob *b, uint64_t value, int bytes) /* little-endian */
{
    unsigned char p[8];
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(value >> 8 * i);
    blob_add(b, p, (size_t)bytes);
}

static inline void blob_text(blob *b, const char *text)
{
    blob_add(b, text, strlen(text));
}

static inline void blob_fill(blob *b, size_t n) /* n bytes 0, 1, 2, ... */
{
    for (size_t i = 0; i < n; i++)
        blob_number(b, i & 0xff, 1);
}

static inline void blob_save(const blob *b, const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->bytes, file), b->bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void blob_free(blob *b)
{
    free(b->data);
    *b = (blob){0};
}

/* A .safetensors file of this header and n bytes of data. */
static inline blob make_safetensors(const char *json, size_t n)
{
    blob b = {0};
    blob_number(&b, strlen(json), 8);
    blob_text(&b, json);
    blob_fill(&b, n);
    return b;
}

/* A .npy file of this dict and n bytes of data. */
static inline blob make_npy(int major, const char *dict, size_t n)
{
    blob b = {0};
    blob_add(&b, "\x93NUMPY", 6);
    blob_number(&b, (uint64_t)major, 2);
    blob_number(&b, strlen(dict), major == 1 ? 2 : 4);
    blob_text(&b, dict);
    blob_fill(&b, n);
    return b;
}

#endif
