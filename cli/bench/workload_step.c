/* SPDX-License-Identifier: Apache-2.0 */
/* workload_step.c - a model and one pass over it: the training step of a problem.
 *
 * The model is Wan's in everything but its sizes: patches of 1 x 2 x 2 on 16 channels, text vectors
 * of 4096. The tokens form a grid as near to a cube as their divisors allow.
 */
#include "workload.h"

#include "tessera/cp.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 16, PATCH = 2, TEXT_DIM = 4096, FREQ_DIM = 256, ROPE_MAX = 1 << 20 };

double workload_step_flop(const problem *p, double density)
{
    const double d = (double)(p->heads * p->dim), f = (double)p->ffn, layers = (double)p->layers;
    const double rows = (double)(p->batch * p->tokens), text = (double)(p->batch * p->text);
    const double patch = CHANNELS * PATCH * PATCH;
    const double linear = rows * (layers * (6 * d * d + 2 * d * f) + 2 * patch * d) +
                          text * (TEXT_DIM * d + d * d + layers * 2 * d * d);
    const double pairs = rows * (density * (double)p->tokens + (double)p->text) * d * layers;
    return (2.0 + 4.0 * p->backward) * linear +
           (TESS_FLOP_FORWARD + TESS_FLOP_BACKWARD * (double)p->backward) * pairs;
}

#ifdef CLI_TRAIN
/* The largest divisor of n that is not above the limit. */
static int64_t divisor(int64_t n, double limit)
{
    int64_t best = 1;
    for (int64_t i = 1; (double)i <= limit && i <= n; i++)
        best = n % i == 0 ? i : best;
    return best;
}

static tess_model_config config_of(const problem *p)
{
    return (tess_model_config){.patch = {1, PATCH, PATCH},
                               .heads = (int)p->heads,
                               .head_dim = (int)p->dim,
                               .in_channels = CHANNELS,
                               .out_channels = CHANNELS,
                               .text_dim = TEXT_DIM,
                               .text_len = (int)p->text,
                               .freq_dim = FREQ_DIM,
                               .ffn_dim = (int)p->ffn,
                               .layers = (int)p->layers,
                               .cross_attn_norm = 1,
                               .qk_norm = 1,
                               .eps = 1e-6,
                               .rope_max = ROPE_MAX};
}

static tess_pass_shape shape_of(const problem *p)
{
    const int64_t frames = divisor(p->tokens, cbrt((double)p->tokens) + 0.5);
    const int64_t area = p->tokens / frames;
    const int64_t rows = divisor(area, sqrt((double)area) + 0.5);
    return (tess_pass_shape){
        .batch = (int)p->batch,
        .frames = (int)frames,
        .height = (int)(PATCH * rows),
        .width = (int)(PATCH * (area / rows)),
        .train = p->backward,
        .keep = strcmp(p->keep, "all") == 0 ? TESS_KEEP_ALL : TESS_KEEP_BLOCKS,
        .store = strcmp(p->storage, "f32") == 0 ? TESS_DTYPE_F32 : TESS_DTYPE_BF16,
        .precision = problem_in_bf16(p) ? TESS_PRECISION_BF16 : TESS_PRECISION_FP32};
}

/* Everything a step needs is known before it is taken. */
static tess_status check_memory(workload *w, const tess_model_config *config,
                                const tess_pass_shape *shape)
{
    tess_ctx_info info;
    tess_model_memory need;
    char wanted[32], have[32];
    TRY(tess_ctx_query(w->c->ctx, &info));
    TRY(tess_model_need(config, &(tess_model_opts){.gradients = shape->train}, shape, info.threads,
                        &need));
    w->step_bytes = need.total;
    if (need.total <= w->bytes_max)
        return TESS_OK;
    return out_fail(w->c, TESS_ENOMEM, "the problem needs %s, and %s are available",
                    out_bytes(need.total, wanted), out_bytes(w->bytes_max, have));
}

/* The ranks that share the tokens, and their first plan. */
static tess_status make_ranks(workload *w, tess_pass_shape *shape)
{
    const problem *p = &w->p;
    const int sparse = problem_is_sparse_step(p);
    tess_cp_opts opts = {.layers = (int)p->layers,
                         .heads = (int)p->heads,
                         .head_dim = (int)p->dim,
                         .batch = (int)p->batch,
                         .tokens = p->tokens,
                         .strategy = p->strategy,
                         .precision = shape->precision,
                         .saves = !shape->train                  ? 0
                                  : shape->keep == TESS_KEEP_ALL ? (int)p->layers
                                                                 : 1,
                         .train = shape->train};
    if (sparse) {
        TRY(workload_groups(w));
        opts.n_groups = w->sparse.groups;
        opts.groups = w->sparse.bounds;
        opts.proj_dim = w->sparse.room.proj_dim;
        opts.compensate = w->sparse.room.compensate;
        opts.whole_keys = opts.compensate > 0;
        const double most = w->sparse.room.max_density;
        opts.units_most = (int32_t)ceil((most > 0 ? most : 1) * (double)p->tokens);
    }
    TRY(tess_cp_create(w->c->ctx, w->comm, &opts, &w->context));
    shape->context = w->context;
    return tess_cp_plan(w->context, 0, NULL, NULL);
}

tess_status workload_make_step(workload *w)
{
    const problem *p = &w->p;
    const tess_model_config config = config_of(p);
    tess_pass_shape shape = shape_of(p);
    const int64_t n = p->batch * p->tokens * CHANNELS * PATCH * PATCH;
    if (problem_is_sparse_step(p))
        TRY(workload_plan_sparse(w, &shape));
    if (w->comm)
        TRY(make_ranks(w, &shape));
    TRY(check_memory(w, &config, &shape));
    w->bytes_max -= w->step_bytes;
    TRY(tess_model_create(w->c->ctx, &config,
                          &(tess_model_opts){.gradients = shape.train, .seed = (uint64_t)p->seed},
                          &w->model));
    TRY(tess_pass_create(w->model, &shape, &w->pass));
    w->pass_shape = shape;
    if (problem_is_sparse_step(p))
        TRY(workload_make_sparse(w, &config));
    TRY(workload_matrix(w, 1, n, 1, &w->x));
    TRY(workload_matrix(w, p->batch * p->text, TEXT_DIM, 2, &w->w));
    TRY(workload_matrix(w, 1, p->batch, 3, &w->bias));
    TRY(workload_matrix(w, 1, n, 0, &w->y));
    for (int64_t i = 0; i < p->batch; i++) /* timesteps: anywhere in 0..1000 */
        w->bias[i] = fmodf(fabsf(500.0f * w->bias[i]), 1000.0f);
    return p->backward ? workload_matrix(w, 1, n, 4, &w->dy) : TESS_OK;
}

tess_status workload_step(workload *w)
{
    const tess_model_in in = {.x = w->x, .timestep = w->bias, .text = w->w};
    TRY(tess_pass_forward(w->pass, &in, w->y));
    return w->p.backward ? tess_pass_backward(w->pass, w->dy, NULL) : TESS_OK;
}

tess_status workload_step_dense(workload *w)
{
    TRY(tess_pass_attend(w->pass, NULL));
    return workload_step(w);
}

tess_status workload_step_times(const workload *w, tess_pass_times *times)
{
    return tess_pass_times_read(w->pass, times);
}

void workload_free_step(workload *w)
{
    tess_pass_destroy(w->pass);
    workload_free_sparse(w);
    tess_model_destroy(w->model);
    tess_cp_destroy(w->context);
}
#else
tess_status workload_make_step(workload *w)
{
    return out_fail(w->c, TESS_ENOTSUP, "step: this build has no oneDNN");
}

tess_status workload_step(workload *w)
{
    return workload_make_step(w);
}

tess_status workload_step_sparse(workload *w)
{
    return workload_make_step(w);
}

tess_status workload_step_dense(workload *w)
{
    return workload_make_step(w);
}

tess_status workload_step_learned(workload *w)
{
    return workload_make_step(w);
}

tess_status workload_step_times(const workload *w, tess_pass_times *times)
{
    (void)times;
    return out_fail(w->c, TESS_ENOTSUP, "step: this build has no oneDNN");
}

void workload_free_step(workload *w)
{
    (void)w;
}
#endif
