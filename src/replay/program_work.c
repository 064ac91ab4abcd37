/* SPDX-License-Identifier: Apache-2.0 */
/* program_work.c - what an operator of PyTorch computes, by its name and shapes.
 *
 *   mm (m,k)(k,n); addmm (c)(m,k)(k,n); bmm (b,m,k)(b,k,n); baddbmm (c)(b,m,k)(b,k,n)
 *   convolution (n,c,..)(o,c/g,..) -> (n,o,..): g products of n * places, o / g and c/g * filter
 *   convolution_backward (grad)(input)(weight): two of these
 *   _scaled_dot_product_* (b,h,s,d)(b,.,t,d)(b,.,t,e); _backward has the gradient in front
 *
 * A causal mask leaves half of the keys. Everything else takes its bytes.
 */
#include "replay_program.h"

#include "tessera/sim.h"

#include <string.h>

static int precision_of(const char *dtype)
{
    return strcmp(dtype, "bfloat16") == 0     ? TESS_SIM_BF16
           : strcmp(dtype, "half") == 0       ? TESS_SIM_FP16
           : strncmp(dtype, "float8", 6) == 0 ? TESS_SIM_FP8
                                              : TESS_SIM_FP32;
}

/* Shape i has these dimensions, and no length is 0. */
static int has(const tess__program_shapes *s, int i, int dims)
{
    if (i >= TESS_MIN(s->n, TESS__PROGRAM_SHAPES) || s->dims[i] != dims)
        return 0;
    for (int k = 0; k < dims; k++)
        if (s->size[i][k] == 0)
            return 0;
    return 1;
}

static void set_product(tess__program_event *e, const char *dtype, int times, const double d[4])
{
    e->class = TESS_KERNEL_GEMM;
    e->work = (tess__program_work){.kind = TESS__WORK_PRODUCT,
                                   .precision = precision_of(dtype),
                                   .times = times,
                                   .d = {d[0], d[1], d[2], d[3]}};
}

/* Matrices at `first`, of `dims` dimensions. */
static void product(tess__program_event *e, const tess__program_shapes *in, int first, int dims,
                    const char *dtype)
{
    if (!has(in, first, dims) || !has(in, first + 1, dims))
        return;
    const int64_t *a = in->size[first] + dims - 2, *b = in->size[first + 1] + dims - 2;
    set_product(e, dtype, 1,
                (double[]){dims == 3 ? (double)in->size[first][0] : 1.0, (double)a[0], (double)b[1],
                           (double)a[1]});
}

/* y: the shape of the result; w: of the weight. */
static void convolution(tess__program_event *e, const int64_t *x, const int64_t *y,
                        const int64_t *w, int dims, int times, const char *dtype)
{
    const double groups = (double)x[1] / (double)w[1];
    double places = (double)y[0], depth = (double)w[1];
    for (int i = 2; i < dims; i++) {
        places *= (double)y[i];
        depth *= (double)w[i];
    }
    if (groups >= 1.0)
        set_product(e, dtype, times, (double[]){groups, places, (double)w[0] / groups, depth});
}

static void attention(tess__program_event *e, const tess__program_shapes *in, int backward,
                      int causal)
{
    const int q = backward;
    if (!has(in, q, 4) || !has(in, q + 1, 4) || !has(in, q + 2, 4))
        return;
    const int64_t *x = in->size[q], *k = in->size[q + 1];
    e->class = TESS_KERNEL_ATTENTION;
    e->work = (tess__program_work){.kind = TESS__WORK_ATTENTION,
                                   .backward = backward,
                                   .times = 1,
                                   .d = {(double)x[0] * (double)x[1], (double)x[2],
                                         (double)k[2] / (causal ? 2.0 : 1.0), (double)x[3],
                                         (double)in->size[q + 2][3]}};
}

static int has_part(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

void tess__program_work_of(tess__program_event *e, const tess__program_shapes *in,
                           const tess__program_shapes *out, const char *dtype, int causal)
{
    const char *name = e->name;
    const int dims = in->n > 0 ? in->dims[0] : 0;
    e->work = (tess__program_work){.kind = TESS__WORK_BYTES, .times = 1};
    e->class = has_part(name, "norm") ? TESS_KERNEL_NORM : TESS_KERNEL_ELEMENTWISE;
    if (has_part(name, "copy") || has_part(name, "fsdp::"))
        e->class = TESS_KERNEL_COPY;
    else if (has_part(name, "softmax") || strcmp(name, "sum") == 0 || strcmp(name, "mean") == 0)
        e->class = TESS_KERNEL_REDUCTION;
    if (strcmp(name, "mm") == 0 || strcmp(name, "_scaled_mm") == 0)
        product(e, in, 0, 2, dtype);
    else if (strcmp(name, "addmm") == 0)
        product(e, in, 1, 2, dtype);
    else if (strcmp(name, "bmm") == 0)
        product(e, in, 0, 3, dtype);
    else if (strcmp(name, "baddbmm") == 0)
        product(e, in, 1, 3, dtype);
    else if (strncmp(name, "_scaled_dot_product_", 20) == 0)
        attention(e, in, has_part(name, "backward"), causal);
    else if (strcmp(name, "convolution_backward") == 0 && has(in, 0, dims) && has(in, 1, dims) &&
             has(in, 2, dims) && dims >= 3 && dims <= TESS__PROGRAM_DIMS)
        convolution(e, in->size[1], in->size[0], in->size[2], dims, 2, dtype);
    else if (strcmp(name, "convolution") == 0 && has(in, 0, dims) && has(in, 1, dims) &&
             has(out, 0, dims) && dims >= 3 && dims <= TESS__PROGRAM_DIMS)
        convolution(e, in->size[0], out->size[0], in->size[1], dims, 1, dtype);
}
