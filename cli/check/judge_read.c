/* SPDX-License-Identifier: Apache-2.0 */
/* judge_read.c - tensors of attention from files: layout, sizes, precision.
 *
 * A file is .npy, .npz or .safetensors. One with several tensors has the one named like its option.
 * (heads, tokens, head_dim) is the layout hsd, (tokens, heads, head_dim) is shd; a batch stands
 * before either, and one head needs neither. The precision of a tensor is that of the narrowest
 * type that holds all its values: what PyTorch saves through NumPy as F32 may be BF16.
 */
#include "judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const judge_in_names[JUDGE_INPUTS] = {"q", "k", "v", "do", "old-k", "old-v"};
const char *const judge_out_names[JUDGE_OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};

int judge_is_keys(int output)
{
    return output == JUDGE_DK || output == JUDGE_DV;
}

int judge_width(const judge *j, int output)
{
    return output == JUDGE_LSE ? 1 : j->dim;
}

int64_t judge_rows_of(const judge *j, int output)
{
    return judge_is_keys(output) ? j->tokens_k : j->tokens_q;
}

int judge_heads_of(const judge *j, int output)
{
    return judge_is_keys(output) ? j->heads_k : j->heads;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

typedef struct {
    int64_t batch, heads, tokens, dim;
} sizes;

/* "2x8x100x64" */
static const char *shape_text(const tess_tensor *t, char text[160])
{
    int used = snprintf(text, 160, "%s", t->rank ? "" : "one number");
    for (int i = 0; i < t->rank; i++)
        used += snprintf(text + used, 160 - (size_t)used, "%s%lld", i ? "x" : "",
                         (long long)t->shape[i]);
    return text;
}

/* The sizes of a tensor in the layout; lse has no head_dim and its heads always come first. */
static tess_status read_sizes(const judge *j, const char *name, const tess_tensor *t, int lse,
                              sizes *z)
{
    char text[160];
    tess_tensor whole = *t;
    if (lse) {
        if (!(t->rank == j->rank && t->shape[t->rank - 1] == 1))
            whole.shape[whole.rank++] = 1;
    }
    if (whole.rank < 2 || whole.rank > 4)
        return out_fail(j->c, TESS_EINVAL, "--%s has the shape %s, must have %d to %d dimensions%s",
                        name, shape_text(t, text), lse ? 1 : 2, lse ? 3 : 4,
                        lse ? ": batch, heads, tokens" : "");
    const int64_t *s = whole.shape + whole.rank - 2;
    *z = (sizes){1, 1, s[0], s[1]};
    if (whole.rank > 2 && j->shd && !lse)
        z->tokens = s[-1], z->heads = s[0];
    else if (whole.rank > 2)
        z->heads = s[-1];
    if (whole.rank > 3)
        z->batch = s[-2];
    if (z->batch < 1 || z->heads < 1 || z->tokens < 1 || z->dim < 1 || z->batch > 65536 ||
        z->heads > 65536 || z->dim > 65536 || z->tokens > INT32_MAX)
        return out_fail(j->c, TESS_EINVAL,
                        "--%s has the shape %s, must have 1 or more of everything, at most 65536 "
                        "batches, heads and head_dim",
                        name, shape_text(t, text));
    return TESS_OK;
}

static tess_status fail_sizes(const judge *j, const char *name, const tess_tensor *t,
                              const sizes *want)
{
    char text[160];
    sizes other;
    judge exchanged = *j;
    exchanged.shd = !j->shd;
    const char *hint = "";
    if (read_sizes(&exchanged, name, t, 0, &other) == TESS_OK && t->rank > 2 &&
        memcmp(&other, want, sizeof other) == 0)
        hint = j->shd ? "; its layout is hsd" : "; its layout is shd";
    return out_fail(
        j->c, TESS_EINVAL,
        "--%s has the shape %s, must have batch %lld, heads %lld, tokens %lld, head_dim "
        "%lld in the layout %s%s",
        name, shape_text(t, text), (long long)want->batch, (long long)want->heads,
        (long long)want->tokens, (long long)want->dim, j->shd ? "shd" : "hsd", hint);
}

/* ---- precision ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    double unit; /* half of the distance from 1 to the next number */
} precisions[] = {
    {"bf16", 0x1p-8}, {"fp16", 0x1p-11}, {"tf32", 0x1p-11}, {"fp32", 0x1p-24}, {"fp64", 0x1p-53}};
enum { N_PRECISIONS = sizeof precisions / sizeof *precisions };

static int is_bf16(double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return isnan(x) || ((double)f == x && (bits & 0xffff) == 0);
}

/* 11 bits, multiples of 2^-24, below 65536. */
static int is_fp16(double x)
{
    int exponent;
    if (!isfinite(x) || x == 0)
        return 1;
    const double m = frexp(x, &exponent);
    return fabs(x) < 65520 && ldexp(m, 11) == trunc(ldexp(m, 11)) &&
           x * 0x1p24 == trunc(x * 0x1p24);
}

static double narrowest(const double *x, int64_t n)
{
    int bf16 = 1, fp16 = 1, fp32 = 1;
    for (int64_t i = 0; i < n && fp32; i++) {
        bf16 = bf16 && is_bf16(x[i]);
        fp16 = fp16 && is_fp16(x[i]);
        fp32 = isnan(x[i]) || (double)(float)x[i] == x[i];
    }
    return bf16 ? 0x1p-8 : fp16 ? 0x1p-11 : fp32 ? 0x1p-24 : 0x1p-53;
}

/* The precision of all tensors together: the option's, or the coarsest of theirs. */
static void set_precision(judge *j)
{
    j->unit = 0x1p-53;
    for (int i = 0; i < JUDGE_INPUTS; i++)
        if (j->in[i].data && i <= JUDGE_DOUT)
            j->unit = fmax(j->unit, j->in[i].unit);
    for (int i = 0; i < JUDGE_OUTPUTS; i++)
        if (j->out[i].data)
            j->unit = fmax(j->unit, j->out[i].unit);
    for (int i = 0; i < N_PRECISIONS; i++)
        if (j->files->precision && strcmp(precisions[i].name, j->files->precision) == 0)
            j->unit = precisions[i].unit;
    j->precision = j->files->precision;
    for (int i = 0; i < N_PRECISIONS && !j->precision; i++)
        if (precisions[i].unit == j->unit)
            j->precision = precisions[i].name;
    j->sum_unit = fmin(j->unit, 0x1p-24);
    j->least = strcmp(j->precision, "fp16") == 0 ? 0x1p-25 : 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static tess_status open_tensor(const judge *j, const char *path, const char *name, tess_file **file,
                               tess_tensor *t)
{
    tess_file_info info;
    TRY(tess_file_open(j->c->ctx, path, file));
    TRY(tess_file_query(*file, &info));
    for (int i = 0; i < info.tensors; i++) {
        const tess_status status = tess_file_describe(*file, i, t);
        if (info.tensors == 1 || (status == TESS_OK && strcmp(t->name, name) == 0))
            return status;
    }
    return out_fail(j->c, TESS_EINVAL, "%.200s has %d tensors, none of them named %s", path,
                    info.tensors, name);
}

/* from: (batch, tokens, heads, dim) to (batch, heads, tokens, dim) */
static void exchange(double *to, const double *from, const sizes *z)
{
    for (int64_t i = 0; i < z->batch * z->tokens * z->heads; i++) {
        const int64_t h = i % z->heads, s = i / z->heads % z->tokens, b = i / z->heads / z->tokens;
        memcpy(to + ((b * z->heads + h) * z->tokens + s) * z->dim, from + i * z->dim,
               (size_t)z->dim * sizeof *to);
    }
}

static tess_status load(const judge *j, tess_file *file, const tess_tensor *t, int exchanged,
                        const sizes *z, judge_tensor *out)
{
    const int64_t n = z->batch * z->heads * z->tokens * z->dim;
    double *data = malloc((size_t)n * sizeof *data), *made = NULL;
    if (data && exchanged)
        made = malloc((size_t)n * sizeof *made);
    if (!data || (exchanged && !made)) {
        free(data);
        return out_fail(j->c, TESS_ENOMEM, "no memory for %lld numbers", (long long)n);
    }
    tess_status status =
        tess_file_read(file, t->name, TESS_DTYPE_F64, data, (size_t)n * sizeof *data);
    if (exchanged) {
        if (status == TESS_OK)
            exchange(made, data, z);
        free(data);
        data = made;
    }
    *out = (judge_tensor){t->dtype, narrowest(data, n), data};
    return status;
}

static int is_real(tess_dtype d)
{
    return d == TESS_DTYPE_F32 || d == TESS_DTYPE_BF16 || d == TESS_DTYPE_F16 ||
           d == TESS_DTYPE_F64;
}

/* want: NULL: any sizes, which are returned in z. */
static tess_status read_tensor(const judge *j, const char *path, const char *name, int lse,
                               const sizes *want, sizes *z, int *rank, judge_tensor *out)
{
    tess_file *file = NULL;
    tess_tensor t;
    tess_status status = out_input(j->c, open_tensor(j, path, name, &file, &t));
    if (status == TESS_OK && !is_real(t.dtype))
        status = out_fail(j->c, TESS_EINVAL, "--%s is %s, must be F32, BF16, F16 or F64", name,
                          tess_dtype_name(t.dtype));
    if (status == TESS_OK && rank)
        *rank = t.rank;
    if (status == TESS_OK)
        status = read_sizes(j, name, &t, lse, z);
    if (status == TESS_OK && want && memcmp(z, want, sizeof *z) != 0)
        status = fail_sizes(j, name, &t, want);
    if (status == TESS_OK)
        status = load(j, file, &t, j->shd && !lse && t.rank > 2, z, out);
    tess_file_close(file);
    return status;
}

static tess_status read_inputs(judge *j, sizes *zq, sizes *zk)
{
    const judge_files *f = j->files;
    sizes z;
    TRY(read_tensor(j, f->in[JUDGE_Q], "q", 0, NULL, zq, &j->rank, &j->in[JUDGE_Q]));
    TRY(read_tensor(j, f->in[JUDGE_K], "k", 0, NULL, zk, NULL, &j->in[JUDGE_K]));
    if (zk->batch != zq->batch || zk->dim != zq->dim || zq->heads % zk->heads != 0)
        return out_fail(j->c, TESS_EINVAL,
                        "--k has batch %lld, heads %lld, head_dim %lld in the layout %s; q has "
                        "%lld, %lld, %lld: batch and head_dim must be the same, and the heads of k "
                        "divide those of q",
                        (long long)zk->batch, (long long)zk->heads, (long long)zk->dim,
                        j->shd ? "shd" : "hsd", (long long)zq->batch, (long long)zq->heads,
                        (long long)zq->dim);
    for (int i = JUDGE_V; i < JUDGE_INPUTS; i++)
        if (f->in[i])
            TRY(read_tensor(j, f->in[i], judge_in_names[i], 0, i == JUDGE_DOUT ? zq : zk, &z, NULL,
                            &j->in[i]));
    return TESS_OK;
}

static tess_status read_keys(judge *j)
{
    const judge_files *f = j->files;
    j->keys = (judge_keys){.tokens_q = j->tokens_q, .tokens_k = j->tokens_k, .heads = j->heads};
    if (!f->mask && !f->lists)
        return TESS_OK;
    TRY(tess_file_open(j->c->ctx, f->mask ? f->mask : f->lists, &j->keys_file));
    return f->mask ? judge_keys_mask(j->c, f, j->keys_file, j->batch, &j->keys)
                   : judge_keys_lists(j->c, f, j->keys_file, j->batch, &j->keys, j->memory);
}

tess_status judge_open(cli *c, const judge_files *files, judge *j)
{
    sizes zq, zk, z;
    *j = (judge){.c = c, .files = files, .shd = files->layout && !strcmp(files->layout, "shd")};
    TRY(read_inputs(j, &zq, &zk));
    j->batch = (int)zq.batch;
    j->heads = (int)zq.heads;
    j->heads_k = (int)zk.heads;
    j->dim = (int)zq.dim;
    j->tokens_q = zq.tokens;
    j->tokens_k = zk.tokens;
    j->scale = isnan(files->scale) ? 1 / sqrt(j->dim) : files->scale;
    for (int i = 0; i < JUDGE_OUTPUTS; i++) {
        sizes want = judge_is_keys(i) ? zk : zq;
        want.dim = judge_width(j, i);
        if (files->out[i])
            TRY(read_tensor(j, files->out[i], judge_out_names[i], i == JUDGE_LSE, &want, &z, NULL,
                            &j->out[i]));
    }
    set_precision(j);
    return out_input(c, read_keys(j));
}

void judge_close(judge *j)
{
    for (int i = 0; i < JUDGE_INPUTS; i++)
        free(j->in[i].data);
    for (int i = 0; i < JUDGE_OUTPUTS; i++) {
        free(j->out[i].data);
        free(j->reference[i]);
    }
    for (int i = 0; i < 4; i++)
        free(j->memory[i]);
    tess_file_close(j->keys_file);
}
