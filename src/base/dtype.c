/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - the element types: their sizes and names. */
#include "base_internal.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[TESS_DTYPE_COUNT] = {
    [TESS_DTYPE_F32] = {"F32", 4}, [TESS_DTYPE_BF16] = {"BF16", 2}, [TESS_DTYPE_F16] = {"F16", 2},
    [TESS_DTYPE_F64] = {"F64", 8}, [TESS_DTYPE_I32] = {"I32", 4},   [TESS_DTYPE_I64] = {"I64", 8},
    [TESS_DTYPE_U8] = {"U8", 1},   [TESS_DTYPE_BOOL] = {"BOOL", 1},
};

static int known(tess_dtype dtype)
{
    return (int)dtype >= 0 && dtype < TESS_DTYPE_COUNT;
}

size_t tess_dtype_size(tess_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].size : 0;
}

const char *tess_dtype_name(tess_dtype dtype)
{
    return known(dtype) ? dtypes[dtype].name : "unknown";
}
