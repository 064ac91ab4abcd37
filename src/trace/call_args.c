/* SPDX-License-Identifier: Apache-2.0 */
/* call_args.c - what the arguments of an event say about a collective.
 *
 *   "Collective name": "allreduce", "In msg nelems": 2049000, "Out msg nelems": 2049000,
 *   "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2,
 *   "Global rank start": 0, "Global rank stride": 1
 *
 * of kernels (since 2024) and of record_param_comms; and of older annotations and operators
 *
 *   "Input Dims": [[1073741824], [16777216], []], "Input type": ["signed char", "signed char", ""]
 */
#include "activity_internal.h"

#include <string.h>

typedef struct {
    tess__json_slice name, dtype, label, ranks;
    int64_t in, out, size, first, stride;
} raw_args;

static void take_number(tess__json_slice value, int64_t *out)
{
    if (!tess__json_decimal(value, 0, out))
        *out = -1;
}

/* A string without its quotes. */
static tess__json_slice inside(tess__json_slice value)
{
    if (value.length < 2 || value.text[0] != '"')
        return (tess__json_slice){value.text, 0};
    return (tess__json_slice){value.text + 1, value.length - 2};
}

static raw_args gather(const tess__json_field *fields, int n)
{
    static const tess__json_slice none = {"", 0};
    raw_args a = {.name = none,
                  .dtype = none,
                  .label = none,
                  .ranks = none,
                  .in = -1,
                  .out = -1,
                  .size = -1,
                  .first = -1,
                  .stride = -1};
    const struct {
        const char *key;
        tess__json_slice *text;
        int64_t *number;
    } wanted[] = {{"Collective name", &a.name, NULL},     {"dtype", &a.dtype, NULL},
                  {"Process Group Name", &a.label, NULL}, {"Process Group Ranks", &a.ranks, NULL},
                  {"In msg nelems", NULL, &a.in},         {"Out msg nelems", NULL, &a.out},
                  {"Group size", NULL, &a.size},          {"Global rank start", NULL, &a.first},
                  {"Global rank stride", NULL, &a.stride}};
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
            if (tess__json_slice_is(fields[i].key, wanted[k].key)) {
                if (wanted[k].text)
                    *wanted[k].text = fields[i].value;
                else
                    take_number(fields[i].value, wanted[k].number);
            }
    return a;
}

static int64_t bytes_of(int64_t elements, int32_t dtype)
{
    int64_t bytes;
    if (elements < 0 || dtype < 0 ||
        __builtin_mul_overflow(elements, (int64_t)tess__dtype_bytes(dtype), &bytes))
        return -1;
    return bytes;
}

static tess_status read_group(tess_activity *f, const raw_args *a, tess__call_args *args)
{
    TESS_TRY(tess__group_text(f, a->ranks, &args->group));
    if (args->group < 0)
        TESS_TRY(tess__group_stride(f, a->first, a->stride, a->size, &args->group));
    const tess__json_slice label = inside(a->label);
    return label.length ? tess__group_label_add(f, label, args->group, &args->label) : TESS_OK;
}

tess_status tess__call_args_read(tess_activity *f, const tess__json_field *fields, int n,
                                 tess__call_args *args, int *direction)
{
    const raw_args a = gather(fields, n);
    const tess__json_slice name = inside(a.name), dtype = inside(a.dtype);
    *direction = tess__json_slice_is(name, "send") ? 1 : tess__json_slice_is(name, "recv") ? 2 : 0;
    *args = (tess__call_args){
        .op = -1, .in_bytes = -1, .out_bytes = -1, .dtype = -1, .group = -1, .label = -1};
    TESS_TRY(read_group(f, &a, args));
    if (name.length == 0 || tess__json_slice_is(name, "wait") || tess__json_slice_is(name, "init"))
        return TESS_OK;
    args->op = (int)tess__call_op_of(name.text, name.length);
    args->dtype = tess__dtype_find(dtype.text, dtype.length);
    args->in_bytes = bytes_of(a.in, args->dtype);
    args->out_bytes = bytes_of(a.out, args->dtype);
    return TESS_OK;
}

/* ---- tensors of an operator ----------------------------------------------------------------- */

/* Elements of a tensor [2, 3], or of a list of tensors [[2, 3], [4]]; -1: neither. */
static int64_t elements_of(tess__json_slice dims, int depth)
{
    enum { DIMS = 64 };
    tess__json_slice parts[DIMS];
    const int64_t n = tess__json_elements(dims, parts, DIMS);
    int64_t product = 1, sum = 0;
    if (n < 0 || n > DIMS)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t x;
        const int list = parts[i].text[0] == '[';
        if (list && (depth > 0 || (x = elements_of(parts[i], depth + 1)) < 0))
            return -1;
        if (!list && (!tess__json_decimal(parts[i], 0, &x) || x < 0))
            return -1;
        if (list ? __builtin_add_overflow(sum, x, &sum)
                 : __builtin_mul_overflow(product, x, &product))
            return -1;
    }
    return n > 0 && parts[0].text[0] == '[' ? sum : product;
}

int64_t tess__call_tensor_bytes(const tess__json_field *fields, int n, int which, int32_t *dtype)
{
    tess__json_slice dims[2], types[2];
    int64_t n_dims = 0, n_types = 0;
    *dtype = -1;
    for (int i = 0; i < n; i++) {
        if (tess__json_slice_is(fields[i].key, "Input Dims"))
            n_dims = tess__json_elements(fields[i].value, dims, 2);
        else if (tess__json_slice_is(fields[i].key, "Input type"))
            n_types = tess__json_elements(fields[i].value, types, 2);
    }
    if (n_dims <= which || n_types <= which)
        return -1;
    const tess__json_slice type = inside(types[which]);
    *dtype = tess__dtype_find(type.text, type.length);
    return bytes_of(elements_of(dims[which], 0), *dtype);
}
