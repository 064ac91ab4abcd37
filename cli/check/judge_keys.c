/* SPDX-License-Identifier: Apache-2.0 */
/* judge_keys.c - which keys a query attends to, from a mask or from lists in a file.
 *
 * A mask has the shape (batch, heads, rows, columns) as NumPy broadcasts it: dimensions may lack at
 * the front, and 1 stands for all. So (tokens, tokens) is one mask for all heads, and (batch, 1, 1,
 * tokens) hides padding. Elements that are not 0 select where they are BOOL or integers; of reals 0
 * selects and -10000 or less does not. It stays in the file's mapping.
 *
 * Lists are offsets (lists + 1) and indices, with group and unit, or bounds_q and bounds_k: the
 * members of tess_selection_lists.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- masks ----------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0); /* b may be as large as a file says */
}

static double element(const judge_keys *k, int64_t at)
{
    switch (k->dtype) {
    case TESS_DTYPE_F32: return ((const float *)k->mask)[at];
    case TESS_DTYPE_F64: return ((const double *)k->mask)[at];
    case TESS_DTYPE_I32: return ((const int32_t *)k->mask)[at];
    case TESS_DTYPE_I64: return (double)((const int64_t *)k->mask)[at];
    default: return ((const uint8_t *)k->mask)[at];
    }
}

static int selects(const judge_keys *k, int64_t at)
{
    const double x = element(k, at);
    return k->dtype == TESS_DTYPE_F32 || k->dtype == TESS_DTYPE_F64 ? x == 0 : x != 0;
}

static tess_status check_reals(cli *c, const judge_keys *k, int64_t n)
{
    if (k->dtype != TESS_DTYPE_F32 && k->dtype != TESS_DTYPE_F64)
        return TESS_OK;
    for (int64_t i = 0; i < n; i++)
        if (element(k, i) != 0 && !(element(k, i) <= -1e4))
            return out_fail(c, TESS_EINVAL,
                            "--mask has the element %g, must have 0 for keys that are attended to "
                            "and -inf for the others, or truth values",
                            element(k, i));
    return TESS_OK;
}

tess_status judge_keys_mask(cli *c, const judge_files *f, tess_file *file, int batch, judge_keys *k)
{
    tess_tensor t;
    tess_file_info info;
    TRY(tess_file_query(file, &info));
    TRY(tess_file_tensor(file, info.tensors == 1 ? NULL : "mask", &t));
    k->group = f->group ? f->group : 1;
    k->unit = f->unit ? f->unit : 1;
    const int64_t want[4] = {batch, k->heads, ceil_div(k->tokens_q, k->group),
                             ceil_div(k->tokens_k, k->unit)};
    int64_t stride = 1;
    int fits = t.rank >= 1 && t.rank <= 4;
    for (int i = 3, d = t.rank - 1; fits && d >= 0; i--, d--) {
        fits = t.shape[d] == want[i] || t.shape[d] == 1;
        k->strides[i] = t.shape[d] == 1 ? 0 : stride;
        stride *= t.shape[d];
    }
    if (!fits || t.dtype == TESS_DTYPE_F16 || t.dtype == TESS_DTYPE_BF16)
        return out_fail(c, TESS_EINVAL,
                        "--mask is %s of %d dimensions, must be truth values, integers, F32 or F64 "
                        "that broadcast to %lldx%lldx%lldx%lld (batch, heads, queries, keys)",
                        tess_dtype_name(t.dtype), t.rank, (long long)want[0], (long long)want[1],
                        (long long)want[2], (long long)want[3]);
    k->mask = t.data;
    k->dtype = t.dtype;
    k->n_q = (int32_t)want[2];
    k->n_k = (int32_t)want[3];
    return check_reals(c, k, stride);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* A tensor of integers as int64_t; *n: its elements. Absent: NULL, where that is allowed. */
static tess_status read_integers(cli *c, tess_file *file, const char *name, int required,
                                 int64_t **data, int64_t *n, void **memory)
{
    tess_file_info info;
    tess_tensor t = {0};
    int found = 0;
    *data = NULL;
    TRY(tess_file_query(file, &info));
    for (int i = 0; i < info.tensors && !found; i++)
        found = tess_file_describe(file, i, &t) == TESS_OK && strcmp(t.name, name) == 0;
    if (!found && required)
        return out_fail(c, TESS_EINVAL, "--lists has no array %s, must have offsets and indices",
                        name);
    if (!found)
        return TESS_OK;
    *n = 1;
    for (int i = 0; i < t.rank; i++)
        *n *= t.shape[i];
    if (t.dtype != TESS_DTYPE_I32 && t.dtype != TESS_DTYPE_I64)
        return out_fail(c, TESS_EINVAL, "--lists: %s is %s, must be I32 or I64", name,
                        tess_dtype_name(t.dtype));
    *memory = *data = malloc((size_t)*n * sizeof **data + 1);
    if (!*data)
        return out_fail(c, TESS_ENOMEM, "no memory for %lld integers", (long long)*n);
    return tess_file_read(file, name, TESS_DTYPE_I64, *data, (size_t)*n * sizeof **data);
}

/* Row ranges from an array of bounds, or of a uniform size. */
static tess_status read_bounds(cli *c, tess_file *file, const char *array, const char *size,
                               int64_t tokens, const int64_t **bounds, int32_t *count,
                               void **memory)
{
    int64_t *given, n = 0, uniform = 1;
    TRY(read_integers(c, file, array, 0, &given, &n, memory));
    if (given) {
        int good = n >= 2 && n <= INT32_MAX && given[0] == 0 && given[n - 1] == tokens;
        for (int64_t i = 1; good && i < n; i++)
            good = given[i] > given[i - 1];
        if (!good)
            return out_fail(c, TESS_EINVAL, "--lists: %s must ascend from 0 to %lld tokens", array,
                            (long long)tokens);
        *bounds = given;
        *count = (int32_t)(n - 1);
        return TESS_OK;
    }
    void *scalar = NULL;
    const tess_status status = read_integers(c, file, size, 0, &given, &n, &scalar);
    if (status == TESS_OK && given && n == 1)
        uniform = *given;
    free(scalar);
    TRY(status);
    if (uniform < 1)
        return out_fail(c, TESS_EINVAL, "--lists: %s is %lld, must be 1 or more", size,
                        (long long)uniform);
    const int64_t ranges = ceil_div(tokens, uniform);
    int64_t *made = malloc((size_t)(ranges + 1) * sizeof *made);
    if (!made)
        return out_fail(c, TESS_ENOMEM, "no memory for %lld bounds", (long long)ranges);
    for (int64_t i = 0; i <= ranges; i++)
        made[i] = i < ranges ? i * uniform : tokens;
    *memory = made;
    *bounds = made;
    *count = (int32_t)ranges;
    return TESS_OK;
}

static tess_status check_lists(cli *c, judge_keys *k, int64_t lists, const int64_t *indices,
                               int64_t n)
{
    if (k->offsets[0] != 0 || k->offsets[lists] != n)
        return out_fail(c, TESS_EINVAL,
                        "--lists: offsets begin with %lld and end with %lld, must begin with 0 and "
                        "end with %lld, the number of indices",
                        (long long)k->offsets[0], (long long)k->offsets[lists], (long long)n);
    for (int64_t l = 0; l < lists; l++) {
        const int64_t begin = k->offsets[l], end = k->offsets[l + 1];
        if (begin > end || end > n || begin < 0)
            return out_fail(c, TESS_EINVAL, "--lists: offsets[%lld] is %lld, must not fall",
                            (long long)l + 1, (long long)end);
        for (int64_t i = begin; i < end; i++)
            if (indices[i] < 0 || indices[i] >= k->n_k ||
                (i > begin && indices[i] <= indices[i - 1]))
                return out_fail(c, TESS_EINVAL,
                                "--lists: indices[%lld] of list %lld is %lld, must ascend below %d",
                                (long long)i, (long long)l, (long long)indices[i], k->n_k);
        k->longest = end - begin > k->longest ? end - begin : k->longest;
    }
    return TESS_OK;
}

tess_status judge_keys_lists(cli *c, const judge_files *f, tess_file *file, int batch,
                             judge_keys *k, void *memory[4])
{
    int64_t *offsets, *indices, n_offsets = 0, n = 0;
    (void)f;
    TRY(read_integers(c, file, "offsets", 1, &offsets, &n_offsets, &memory[0]));
    TRY(read_integers(c, file, "indices", 1, &indices, &n, &memory[1]));
    TRY(read_bounds(c, file, "bounds_q", "group", k->tokens_q, &k->bounds_q, &k->n_q, &memory[2]));
    TRY(read_bounds(c, file, "bounds_k", "unit", k->tokens_k, &k->bounds_k, &k->n_k, &memory[3]));
    const int64_t lists = (int64_t)batch * k->heads * k->n_q;
    if (n_offsets != lists + 1)
        return out_fail(c, TESS_EINVAL,
                        "--lists: offsets has %lld elements, must have %lld: batch %d x heads %d x "
                        "groups %d, and 1",
                        (long long)n_offsets, (long long)lists + 1, batch, k->heads, k->n_q);
    k->offsets = offsets;
    TRY(check_lists(c, k, lists, indices, n));
    int32_t *narrow = (int32_t *)indices; /* in place: element i is read before it is written */
    for (int64_t i = 0; i < n; i++) {
        const int32_t unit = (int32_t)indices[i];
        memcpy(&narrow[i], &unit, sizeof unit);
    }
    k->indices = narrow;
    return TESS_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int64_t range_of(const int64_t *bounds, int32_t n, int64_t row)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (bounds[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The rows of one unit; at most `room`. */
static int64_t add_unit(const judge_keys *k, int32_t unit, int64_t *out, int64_t n, int64_t room)
{
    for (int64_t j = k->bounds_k[unit]; j < k->bounds_k[unit + 1] && n < room; j++)
        out[n++] = j;
    return n;
}

static int64_t keys_of_lists(const judge_keys *k, int64_t bh, int64_t row, int64_t *out)
{
    const int64_t list = bh * k->n_q + range_of(k->bounds_q, k->n_q, row), room = 2 * k->tokens_k;
    const int64_t begin = k->offsets[list], end = k->offsets[list + 1];
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++)
        n = add_unit(k, k->indices[i], out, n, room);
    for (int64_t i = end - begin; k->pad != PAD_NONE && i < k->longest; i++)
        n = add_unit(k, k->pad == PAD_FIRST || begin == end ? 0 : k->indices[end - 1], out, n,
                     room);
    return n;
}

static int64_t keys_of_mask(const judge_keys *k, int64_t b, int64_t h, int64_t row, int64_t *out)
{
    const int64_t base = b * k->strides[0] + h * k->strides[1] + row / k->group * k->strides[2];
    int64_t n = 0;
    for (int64_t j = 0; j < k->tokens_k; j++)
        if (selects(k, base + j / k->unit * k->strides[3]))
            out[n++] = j;
    return n;
}

/* What is not among n ascending keys. */
static int64_t invert(int64_t *keys, int64_t n, int64_t tokens)
{
    int64_t *in = keys + tokens, m = 0;
    memmove(in, keys, (size_t)n * sizeof *keys);
    for (int64_t j = 0, at = 0; j < tokens; j++)
        if (at < n && in[at] == j)
            at++;
        else
            keys[m++] = j;
    return m;
}

int64_t judge_keys_of(const judge_keys *k, int64_t b, int64_t h, int64_t row, int64_t *out)
{
    int64_t n = 0, left = 0;
    if (k->mask)
        n = keys_of_mask(k, b, h, row, out);
    else if (k->offsets)
        n = keys_of_lists(k, b * k->heads + h, row, out);
    else
        for (; n < k->tokens_k; n++)
            out[n] = n;
    if (k->inverted)
        n = invert(out, n, k->tokens_k);
    for (int64_t i = 0; i < n; i++)
        if (!(k->causal && out[i] > row) && !(k->limit && out[i] >= k->limit))
            out[left++] = out[i];
    return left;
}

int judge_keys_padding(const judge_keys *k, int batch)
{
    if (k->mask && k->strides[2] == 0)
        return 1;
    int64_t *first = malloc((size_t)(4 * k->tokens_k + 1) * sizeof *first);
    int64_t *other = first ? first + 2 * k->tokens_k : NULL;
    int same = first != NULL && (k->mask || k->offsets);
    for (int64_t bh = 0; same && bh < (int64_t)batch * k->heads; bh++) {
        const int64_t b = bh / k->heads, h = bh % k->heads;
        const int64_t n = judge_keys_of(k, b, h, 0, first);
        for (int64_t i = 1; same && i < k->tokens_q; i++)
            same = judge_keys_of(k, b, h, i, other) == n &&
                   memcmp(first, other, (size_t)n * sizeof *first) == 0;
    }
    free(first);
    return same;
}

/* Lists of units that have this one, by counting. */
static int transpose_lists(const judge_keys *k, int batch, judge_keys *to, void *made[2])
{
    const int64_t bh = (int64_t)batch * k->heads, lists = bh * k->n_q, n = k->offsets[lists];
    int64_t *offsets = calloc((size_t)lists + 2, sizeof *offsets);
    int32_t *indices = malloc((size_t)n * sizeof *indices + 1);
    made[0] = offsets;
    made[1] = indices;
    if (!offsets || !indices)
        return -1;
    /* offsets[l + 2] counts list l, then offsets[l + 1] is where its next index goes. */
    for (int64_t l = 0; l < lists; l++)
        for (int64_t i = k->offsets[l]; i < k->offsets[l + 1]; i++)
            offsets[l / k->n_q * k->n_q + k->indices[i] + 2]++;
    for (int64_t l = 2; l <= lists; l++)
        offsets[l] += offsets[l - 1];
    for (int64_t l = 0; l < lists; l++)
        for (int64_t i = k->offsets[l]; i < k->offsets[l + 1]; i++)
            indices[offsets[l / k->n_q * k->n_q + k->indices[i] + 1]++] = (int32_t)(l % k->n_q);
    to->offsets = offsets;
    to->indices = indices;
    return 0;
}

int judge_keys_transpose(const judge_keys *k, int batch, judge_keys *to, void *made[2])
{
    *to = *k;
    made[0] = made[1] = NULL;
    if (k->tokens_q != k->tokens_k || k->n_q != k->n_k)
        return -1;
    if (k->mask) {
        to->strides[2] = k->strides[3];
        to->strides[3] = k->strides[2];
        return k->group == k->unit ? 0 : -1;
    }
    return k->offsets ? transpose_lists(k, batch, to, made) : -1;
}
