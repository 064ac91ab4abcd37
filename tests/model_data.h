/* SPDX-License-Identifier: Apache-2.0 */
/* model_data.h - a model with random parameters, a pass over it and its input, for the tests. */
#ifndef TESS_MODEL_DATA_H
#define TESS_MODEL_DATA_H

#include "ref/ref.h"
#include "tessera/advanced/pass.h"
#include "test.h"

#include <stdlib.h>

/* Buffers of exactly the sizes needed. */
typedef struct {
    tess_ctx *ctx;
    tess_model *model;
    tess_pass *pass;
    tess_model_info info;
    tess_pass_shape shape;
    size_t n_x, n_text, n_out;
    float *x, *timestep, *text, *dout; /* in */
    float *out, *dx;
} world;

static inline float *floats(size_t n, uint64_t seed)
{
    float *data = malloc(n * sizeof *data);
    assert_non_null(data);
    fill_normal(data, n, seed);
    return data;
}

/* No parameter is zero or one, and all matter about as much: matrices keep the size of what they
 * multiply, vectors are a third of it. */
static inline void randomise(tess_model *model, int params)
{
    for (int i = 0; i < params; i++) {
        tess_param p;
        CHECK_OK(tess_model_param(model, i, &p));
        CHECK_OK(tess_random_normal(99, (uint64_t)i, 0, p.value, (size_t)p.count));
        const int norm = strstr(p.name, "norm") != NULL && strstr(p.name, "weight") != NULL;
        const float size =
            p.kind == TESS_PARAM_VECTOR ? 0.3f : 1.0f / sqrtf((float)(p.count / p.shape[0]));
        for (int64_t k = 0; k < p.count; k++)
            p.value[k] = (norm ? 1.0f : 0.0f) + size * p.value[k];
    }
}

static inline world make_world_on(const char *isa, int threads, const tess_model_config *config,
                                  const tess_pass_shape *shape)
{
    world w = {.shape = *shape};
    const int text_len = shape->text_len ? shape->text_len : config->text_len;
    const size_t volume =
        (size_t)shape->batch * (size_t)shape->frames * (size_t)shape->height * (size_t)shape->width;
    w.shape.text_len = text_len;
    CHECK_OK(tess_ctx_create(&(tess_ctx_opts){.isa = isa, .threads = threads}, &w.ctx));
    CHECK_OK(tess_model_create(w.ctx, config, &(tess_model_opts){shape->train, 1}, &w.model));
    CHECK_OK(tess_model_query(w.model, &w.info));
    randomise(w.model, w.info.params);
    CHECK_OK(tess_pass_create(w.model, shape, &w.pass));
    w.n_x = volume * (size_t)config->in_channels;
    w.n_out = volume * (size_t)config->out_channels;
    w.n_text = (size_t)shape->batch * (size_t)text_len * (size_t)config->text_dim;
    w.x = floats(w.n_x, 1);
    w.text = floats(w.n_text, 2);
    w.dout = floats(w.n_out, 3);
    w.out = floats(w.n_out, 4);
    w.dx = floats(w.n_x, 5);
    w.timestep = floats((size_t)shape->batch, 6);
    for (int i = 0; i < shape->batch; i++)
        w.timestep[i] = 123.5f + 400.0f * (float)i;
    return w;
}

static inline world make_world(int threads, const tess_model_config *config,
                               const tess_pass_shape *shape)
{
    return make_world_on(NULL, threads, config, shape);
}

static inline void drop_world(world *w)
{
    float *all[] = {w->x, w->text, w->dout, w->out, w->dx, w->timestep};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    tess_pass_destroy(w->pass);
    tess_model_destroy(w->model);
    tess_ctx_destroy(w->ctx);
}

static inline void run_forward(world *w)
{
    CHECK_OK(tess_pass_forward(w->pass, &(tess_model_in){w->x, w->timestep, w->text}, w->out));
}

/* Forward and backward, from gradients of zero. */
static inline void run_both(world *w)
{
    CHECK_OK(tess_model_zero_gradients(w->model));
    run_forward(w);
    CHECK_OK(tess_pass_backward(w->pass, w->dout, w->dx));
}

static inline void check_same(const world *a, const world *b)
{
    assert_memory_equal(a->out, b->out, a->n_out * sizeof(float));
    assert_memory_equal(a->dx, b->dx, a->n_x * sizeof(float));
    assert_memory_equal(a->info.gradients, b->info.gradients,
                        (size_t)a->info.count * sizeof(float));
}

/* |a - b| / |b|, by Euclidean lengths. */
static inline double apart(const float *a, const float *b, int64_t n)
{
    double off = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        off += pow((double)a[i] - b[i], 2);
        size += pow(b[i], 2);
    }
    return sqrt(off / size);
}

/* ---- the same in double precision ------------------------------------------------------------ */

typedef struct {
    const world *w;
    double *values, *x, *timestep, *text, *out;
    /* Of a sparse pass: as in ref_model. */
    int (*attends)(void *user, int layer, int sample, int head, int64_t query, int64_t key);
    int compensate;
    int (*cluster)(void *user, int layer, int sample, int head, int64_t key);
    const void *lists; /* for attends, whose user is the doubles */
} doubles;

static inline double *widened(const float *x, size_t n)
{
    double *y = malloc(n * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static inline doubles make_doubles(const world *w)
{
    return (doubles){.w = w,
                     .values = widened(w->info.values, (size_t)w->info.count),
                     .x = widened(w->x, w->n_x),
                     .timestep = widened(w->timestep, (size_t)w->shape.batch),
                     .text = widened(w->text, w->n_text),
                     .out = widened(w->out, w->n_out)};
}

static inline void drop_doubles(doubles *d)
{
    free(d->values);
    free(d->x);
    free(d->timestep);
    free(d->text);
    free(d->out);
}

static inline const double *param_of(void *user, const char *name)
{
    const doubles *d = user;
    tess_param p;
    for (int i = 0; i < d->w->info.params; i++) {
        CHECK_OK(tess_model_param(d->w->model, i, &p));
        if (strcmp(p.name, name) == 0)
            return d->values + (p.value - d->w->info.values);
    }
    fail_msg("the reference asks for %s", name);
    return NULL;
}

/* Sets d->out and returns the loss whose gradient by it is dout. */
static inline double reference(doubles *d)
{
    const world *w = d->w;
    const ref_model m = {.config = &w->info.config,
                         .param = param_of,
                         .user = d,
                         .batch = w->shape.batch,
                         .frames = w->shape.frames,
                         .height = w->shape.height,
                         .width = w->shape.width,
                         .text_len = w->shape.text_len,
                         .x = d->x,
                         .timestep = d->timestep,
                         .text = d->text,
                         .attends = d->attends,
                         .compensate = d->compensate,
                         .cluster = d->cluster};
    CHECK_OK(ref_model_forward(&m, d->out));
    double loss = 0.0;
    for (size_t i = 0; i < w->n_out; i++)
        loss += d->out[i] * w->dout[i];
    return loss;
}

/* The output, and the whole gradient at once, along a random direction: what a sample of elements
 * may miss. The sum of n terms with roundings of their own is as far off as its terms' root mean
 * square shows. */
static inline void check_direction(const world *w, doubles *d, double tolerance, double step)
{
    reference(d);
    CHECK_CLOSE(w->out, d->out, w->n_out, tolerance);
    const size_t n = (size_t)w->info.count;
    float *direction = floats(n, 7);
    double along = 0.0, size = 0.0, loss[2];
    for (size_t i = 0; i < n; i++) {
        along += (double)w->info.gradients[i] * direction[i];
        size += pow((double)w->info.gradients[i] * direction[i], 2);
    }
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            d->values[i] = w->info.values[i] + (side ? -step : step) * direction[i];
        loss[side] = reference(d);
    }
    const double off = fabs((loss[0] - loss[1]) / (2.0 * step) - along);
    if (!(off < 1e-4 * sqrt(size)))
        fail_msg("off by %g of %g", off, sqrt(size));
    free(direction);
}

#endif
