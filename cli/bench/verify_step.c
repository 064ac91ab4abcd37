/* SPDX-License-Identifier: Apache-2.0 */
/* verify_step.c - a training step against the double-precision reference.
 *
 * Output by output, and the gradient as a whole: along a random direction it must be what the
 * reference's loss changes by, relative to the root of the sum of its terms' squares.
 */
#include "verify.h"

#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLI_TRAIN
static const double step = 1e-5;
static const double flop_max = 2e10; /* what the reference does in half a minute */

/* A rounding to bf16, on average: 2^-9 / sqrt(3). Each block rounds some 12 factors on the way to
 * the output, and a gradient passes three times as many; their errors add up like a random walk. */
static const double bf16_error = 1.13e-3;

typedef struct {
    workload *w;
    tess_model_info info;
    double *values, *x, *timestep, *text, *out;
    float *direction;
    const uint8_t *sees; /* of a sparse step; see verify_sparse_step */
    const uint8_t *labels;
} reference;

static tess_status widen(workload *w, const float *from, int64_t n, double **to)
{
    void *data;
    TRY(workload_take(w, n, TESS_DTYPE_F64, &data));
    *to = data;
    return tess_convert(w->c->ctx, TESS_DTYPE_F32, from, TESS_DTYPE_F64, data, n);
}

static const double *param_of(void *user, const char *name)
{
    const reference *r = user;
    for (int i = 0; i < r->info.params; i++) {
        tess_param p;
        if (tess_model_param(r->w->model, i, &p) == TESS_OK && strcmp(p.name, name) == 0)
            return r->values + (p.value - r->info.values);
    }
    return NULL;
}

static int attends(void *user, int layer, int sample, int head, int64_t query, int64_t key)
{
    const reference *r = user;
    const problem *p = &r->w->p;
    const int64_t list = (layer * p->batch + sample) * p->heads + head;
    return r->sees[(list * p->tokens + query) * p->tokens + key];
}

static int cluster_of(void *user, int layer, int sample, int head, int64_t key)
{
    const reference *r = user;
    const problem *p = &r->w->p;
    return r->labels[((layer * p->batch + sample) * p->heads + head) * p->tokens + key];
}

static int64_t elements(const workload *w)
{
    const tess_pass_shape *s = &w->pass_shape;
    return (int64_t)s->batch * s->frames * s->height * s->width;
}

/* The reference's output with parameters moved along the direction, and the loss of dy. */
static tess_status run_reference(reference *r, double along, double *loss)
{
    const workload *w = r->w;
    const tess_pass_shape *s = &w->pass_shape;
    const ref_model m = {.config = &r->info.config,
                         .param = param_of,
                         .user = r,
                         .batch = s->batch,
                         .frames = s->frames,
                         .height = s->height,
                         .width = s->width,
                         .text_len = (int)w->p.text,
                         .x = r->x,
                         .timestep = r->timestep,
                         .text = r->text,
                         .attends = r->sees ? attends : NULL,
                         .compensate = (int)w->p.compensate,
                         .cluster = r->labels ? cluster_of : NULL};
    for (int64_t i = 0; along != 0 && i < r->info.count; i++)
        r->values[i] = r->info.values[i] + along * r->direction[i];
    TRY(ref_model_forward(&m, r->out));
    *loss = 0;
    for (int64_t i = 0; w->dy && i < elements(w) * r->info.config.out_channels; i++)
        *loss += r->out[i] * w->dy[i];
    return TESS_OK;
}

/* Weights that begin as zero hide errors behind them: all become random. */
static tess_status randomise(reference *r)
{
    for (int i = 0; i < r->info.params; i++) {
        tess_param p;
        TRY(tess_model_param(r->w->model, i, &p));
        const float size = p.kind == TESS_PARAM_VECTOR
                               ? 0.3f
                               : (float)(1 / sqrt((double)p.count / (double)p.shape[0]));
        TRY(tess_random_normal((uint64_t)r->w->p.seed, 50 + (uint64_t)i, 0, p.value,
                               (size_t)p.count));
        for (int64_t k = 0; k < p.count; k++)
            p.value[k] *= size;
    }
    return TESS_OK;
}

static tess_status prepare(reference *r)
{
    workload *w = r->w;
    const int64_t n = elements(w), out = r->info.config.out_channels;
    TRY(randomise(r));
    TRY(widen(w, r->info.values, r->info.count, &r->values));
    TRY(widen(w, w->x, n * r->info.config.in_channels, &r->x));
    TRY(widen(w, w->bias, w->p.batch, &r->timestep));
    TRY(widen(w, w->w, w->p.batch * w->p.text * r->info.config.text_dim, &r->text));
    TRY(widen(w, w->x, n * out, &r->out));
    return workload_matrix(w, 1, r->info.count, 5, &r->direction);
}

static tess_status verify_gradient(reference *r, verdict *v)
{
    double up, down, along = 0, size = 0;
    TRY(run_reference(r, step, &up));
    TRY(run_reference(r, -step, &down));
    for (int64_t i = 0; i < r->info.count; i++) {
        const double term = (double)r->info.gradients[i] * r->direction[i];
        along += term;
        size += term * term;
    }
    /* Each term is off by some 2^-24 of what it is a sum of, which may be a thousand times more. */
    verify_add(v, "grad", fabs((up - down) / (2 * step) - along), sqrt(size),
               problem_in_bf16(&r->w->p) ? bf16_error * sqrt(36.0 * (double)r->w->p.layers) : 1e-4);
    return TESS_OK;
}

tess_status verify_step(workload *w, int all, verdict *v)
{
    const problem *p = &w->p;
    reference r = {.w = w};
    double loss, difference = 0, largest = 0;
    const double flop = workload_step_flop(p, 1);
    if (flop > flop_max && !all)
        return out_fail(w->c, TESS_EINVAL,
                        "step: the reference takes %.3g flop; choose fewer tokens, or --all", flop);
    TRY(tess_model_query(w->model, &r.info));
    TRY(prepare(&r));
    if (p->backward)
        TRY(tess_model_zero_gradients(w->model));
    TRY(problem_is_sparse_step(p) ? verify_sparse_step(w, &r.sees, &r.labels) : workload_step(w));
    TRY(run_reference(&r, 0, &loss));
    const int64_t n = elements(w) * r.info.config.out_channels;
    verify_widen(&(verify_rows){w->y, n, r.out, NULL, 1, n}, &difference, &largest);
    /* Sums of up to ffn or dim terms, some 12 of them behind one another in each layer. */
    const double width = (double)(p->ffn > p->heads * p->dim ? p->ffn : p->heads * p->dim);
    const double factors = 12.0 * (double)p->layers + 4;
    verify_add(v, "out", difference, largest,
               problem_in_bf16(p) ? bf16_error * sqrt(factors)
                                  : 4 * 0x1p-24 * sqrt(width * factors));
    if (p->backward)
        TRY(verify_gradient(&r, v));
    v->checked = v->total = p->batch * p->tokens;
    return TESS_OK;
}
#else
tess_status verify_step(workload *w, int all, verdict *v)
{
    (void)all, (void)v;
    return workload_make_step(w);
}
#endif
