/* SPDX-License-Identifier: Apache-2.0 */
/* same_files.h - files that may differ in their numbers alone. */
#ifndef TESS_SAME_FILES_H
#define TESS_SAME_FILES_H

#include "tessera/file.h"
#include "test.h"

#include <jansson.h>

/* The same tensors, but for their numbers. */
static inline void check_same_tensors(tess_ctx *ctx, const char *path[2])
{
    tess_file *files[2] = {NULL, NULL};
    tess_file_info info[2];
    for (int k = 0; k < 2; k++) {
        CHECK_OK(tess_file_open(ctx, path[k], &files[k]));
        CHECK_OK(tess_file_query(files[k], &info[k]));
    }
    assert_true(info[0].tensors > 0);
    assert_int_equal(info[0].tensors, info[1].tensors);
    for (int i = 0; i < info[0].tensors; i++) {
        tess_tensor a, b;
        CHECK_OK(tess_file_describe(files[0], i, &a));
        CHECK_OK(tess_file_describe(files[1], i, &b));
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.rank, b.rank);
        assert_memory_equal(a.shape, b.shape, (size_t)a.rank * sizeof *a.shape);
    }
    tess_file_close(files[0]);
    tess_file_close(files[1]);
}

/* The same members in the same places, and arrays as long. */
static inline void check_same_members(const char *path, json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_number(a) ? !json_is_number(b) : json_typeof(a) != json_typeof(b))
        fail_msg("%s: values of other kinds: %d and %d", path, json_typeof(a), json_typeof(b));
    assert_int_equal(json_object_size(a), json_object_size(b));
    json_object_foreach(a, key, value)
    {
        if (!json_object_get(b, key))
            fail_msg("%s: \"%s\" is there for one rank alone", path, key);
        check_same_members(path, value, json_object_get(b, key));
    }
    assert_int_equal(json_array_size(a), json_array_size(b));
    json_array_foreach(a, i, value) check_same_members(path, value, json_array_get(b, i));
}

static inline void check_same_json(const char *path[2])
{
    json_t *a = json_load_file(path[0], 0, NULL), *b = json_load_file(path[1], 0, NULL);
    assert_true(a && b);
    assert_true(json_object_size(a) > 0);
    check_same_members(path[0], a, b);
    json_decref(a);
    json_decref(b);
}

#endif
