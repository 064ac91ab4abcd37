/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check_attn.c - attention on the device against that of the CPU, in float, on the same values.
 *
 * A case has two heads, ragged groups, lists of which some are empty, and dlse. Every output lies
 * between guards of 256 bytes; it is filled with NaN before every run.
 */
#include "gpu_internal.h"

#include <math.h>
#include <string.h>

enum { HEADS = 2, GUARD = 256, OUTPUTS = 5 };

static const char who[] = "tess_gpu_check";

typedef struct {
    int dim;
    tess_dtype dtype;
    int32_t group, unit;
    int atomic;
} kind;

enum { O, LSE, DQ, DK, DV };
static const char *const output_names[OUTPUTS] = {"o", "lse", "dq", "dk", "dv"};

typedef struct {
    tess_gpu *gpu;
    const tess_gpu_check_opts *opts;
    kind kind;
    int64_t tq, tk;
    tess__arena arena;
    tess_gpu_memory memory;
    tess_selection *sel;
    tess_gpu_selection *lists;
    tess_attn *attn;
    tess_attn_shape shape;
    float *q, *k, *v, *dout, *dlse;          /* host: the values that the device has */
    void *d_q, *d_k, *d_v, *d_dout, *d_dlse; /* device */
    float *want[OUTPUTS];                    /* host, by the CPU */
    unsigned char *raw[OUTPUTS], *other;     /* host: of a run, with its guards */
    void *out[OUTPUTS];                      /* device, without the guard before */
    size_t n[OUTPUTS], bytes[OUTPUTS];       /* elements; bytes without guards */
    void *work;
    int64_t work_bytes;
} check;

static tess_view view_of(const check *c, void *data, tess_dtype dtype, int64_t tokens)
{
    const int64_t d = c->kind.dim;
    return (tess_view){data, dtype, HEADS * tokens * d, tokens * d, d};
}

tess_status tess__gpu_random(tess__arena *arena, uint64_t stream, size_t n, float **x)
{
    float *const u = TESS_TAKE(arena, sizeof *u * (2 * n + 2));
    *x = TESS_TAKE(arena, sizeof **x * (n + 1));
    TESS_TRY(tess_random_uniform(24, stream, 0, u, 2 * n));
    for (size_t i = 0; i < n; i++)
        (*x)[i] = sqrtf(-2.0f * logf(1.0f - u[2 * i])) * cosf(6.2831853f * u[2 * i + 1]);
    return TESS_OK;
}

/* Values that the type of the case has, on the host as floats and on the device. */
static tess_status make_input(check *c, uint64_t stream, int64_t tokens, float **host,
                              void **device)
{
    const size_t n = (size_t)(HEADS * tokens * c->kind.dim);
    TESS_TRY(tess__gpu_random(&c->arena, stream, n, host));
    void *const half = TESS_TAKE(&c->arena, 2 * n);
    TESS_TRY(tess_convert(c->gpu->ctx, TESS_DTYPE_F32, *host, c->kind.dtype, half, n));
    TESS_TRY(tess_convert(c->gpu->ctx, c->kind.dtype, half, TESS_DTYPE_F32, *host, n));
    TESS_TRY(tess__gpu_allocate(&c->memory, 2 * n, device));
    return tess__gpu_copy_in(&c->memory, *device, half, 2 * n);
}

/* About an eighth of all units in each list, none in every fifth. */
static tess_status make_lists(check *c)
{
    const tess_sel_shape shape = {.batch = 1,
                                  .heads = HEADS,
                                  .tokens_q = c->tq,
                                  .tokens_k = c->tk,
                                  .group = c->kind.group,
                                  .unit = c->kind.unit};
    const int64_t lists = HEADS * ((c->tq + c->kind.group - 1) / c->kind.group);
    const int64_t n_k = (c->tk + c->kind.unit - 1) / c->kind.unit;
    const float density = n_k < 64 ? 0.5f : 0.125f;
    int64_t *const offsets = TESS_TAKE_ZERO(&c->arena, sizeof *offsets * (size_t)(lists + 1));
    int32_t *const indices = TESS_TAKE(&c->arena, sizeof *indices * (size_t)(lists * n_k));
    float *const u = TESS_TAKE(&c->arena, sizeof *u * (size_t)n_k);
    for (int64_t i = 0; i < lists; i++) {
        offsets[i + 1] = offsets[i];
        TESS_TRY(tess_random_uniform(25, (uint64_t)i, 0, u, (size_t)n_k));
        for (int32_t j = 0; j < n_k; j++)
            if (i % 5 != 3 && u[j] < density)
                indices[offsets[i + 1]++] = j;
    }
    TESS_TRY(tess_selection_create(c->gpu->ctx, &shape, offsets[lists], &c->sel));
    TESS_TRY(tess_selection_set_lists(c->sel, offsets, indices));
    TESS_TRY(tess_gpu_selection_create(c->gpu, &shape, offsets[lists], &c->lists));
    return tess_gpu_selection_upload(c->lists, c->sel, NULL);
}

static tess_status make_outputs(check *c)
{
    const size_t rows_q = (size_t)(HEADS * c->tq), rows_k = (size_t)(HEADS * c->tk);
    const size_t dim = (size_t)c->kind.dim;
    const size_t n[OUTPUTS] = {rows_q * dim, rows_q, rows_q * dim, rows_k * dim, rows_k * dim};
    size_t most = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        void *memory = NULL;
        c->n[i] = n[i];
        c->bytes[i] = n[i] * (i == O ? 2 : sizeof(float));
        most = TESS_MAX(most, c->bytes[i] + 2 * GUARD);
        c->want[i] = TESS_TAKE(&c->arena, n[i] * sizeof(float));
        c->raw[i] = TESS_TAKE(&c->arena, c->bytes[i] + 2 * GUARD);
        TESS_TRY(tess__gpu_allocate(&c->memory, c->bytes[i] + 2 * GUARD, &memory));
        c->out[i] = (unsigned char *)memory + GUARD;
    }
    c->other = TESS_TAKE(&c->arena, most);
    return TESS_OK;
}

static tess_status prepare(check *c)
{
    c->shape = (tess_attn_shape){
        .batch = 1, .heads = HEADS, .head_dim = c->kind.dim, .tokens_q = c->tq, .tokens_k = c->tk};
    TESS_TRY(make_input(c, 1, c->tq, &c->q, &c->d_q));
    TESS_TRY(make_input(c, 2, c->tk, &c->k, &c->d_k));
    TESS_TRY(make_input(c, 3, c->tk, &c->v, &c->d_v));
    TESS_TRY(make_input(c, 4, c->tq, &c->dout, &c->d_dout));
    const size_t rows = (size_t)(HEADS * c->tq);
    TESS_TRY(tess__gpu_random(&c->arena, 5, rows, &c->dlse));
    TESS_TRY(tess__gpu_allocate(&c->memory, rows * sizeof(float), &c->d_dlse));
    TESS_TRY(tess__gpu_copy_in(&c->memory, c->d_dlse, c->dlse, rows * sizeof(float)));
    TESS_TRY(make_lists(c));
    TESS_TRY(make_outputs(c));
    const tess_gpu_attn_shape shape = {c->shape, c->kind.atomic};
    TESS_TRY(tess_gpu_attn_workspace(c->gpu, &shape, c->lists, 0, &c->work_bytes));
    return tess__gpu_allocate(&c->memory, (size_t)c->work_bytes, &c->work);
}

static tess_status run_cpu(check *c)
{
    const tess_view q = view_of(c, c->q, TESS_DTYPE_F32, c->tq);
    const tess_view k = view_of(c, c->k, TESS_DTYPE_F32, c->tk);
    const tess_view v = view_of(c, c->v, TESS_DTYPE_F32, c->tk);
    const tess_view o = view_of(c, c->want[O], TESS_DTYPE_F32, c->tq);
    const tess_view dout = view_of(c, c->dout, TESS_DTYPE_F32, c->tq);
    const tess_view dq = view_of(c, c->want[DQ], TESS_DTYPE_F32, c->tq);
    const tess_view dk = view_of(c, c->want[DK], TESS_DTYPE_F32, c->tk);
    const tess_view dv = view_of(c, c->want[DV], TESS_DTYPE_F32, c->tk);
    const tess_attn_saved saved = {&q, &k, &v, &o, c->want[LSE]};
    TESS_TRY(tess_attn_create(c->gpu->ctx, &c->shape, &c->attn));
    TESS_TRY(tess_attn_forward(c->attn, c->sel, &q, &k, &v, &o, c->want[LSE]));
    return tess_attn_backward(c->attn, c->sel, &saved, &dout, c->dlse, &dq, &dk, &dv);
}

/* Outputs become NaN, guards a pattern; then both passes, and all comes back with its guards. */
static tess_status run_device(check *c, unsigned char *const raw[OUTPUTS])
{
    for (int i = 0; i < OUTPUTS; i++) {
        memset(raw[i], 0xa5, c->bytes[i] + 2 * GUARD);
        memset(raw[i] + GUARD, 0xff, c->bytes[i]);
        TESS_TRY(tess__gpu_copy_in(&c->memory, (unsigned char *)c->out[i] - GUARD, raw[i],
                                   c->bytes[i] + 2 * GUARD));
    }
    const tess_view q = view_of(c, c->d_q, c->kind.dtype, c->tq);
    const tess_view k = view_of(c, c->d_k, c->kind.dtype, c->tk);
    const tess_view v = view_of(c, c->d_v, c->kind.dtype, c->tk);
    const tess_view o = view_of(c, c->out[O], c->kind.dtype, c->tq);
    const tess_view dout = view_of(c, c->d_dout, c->kind.dtype, c->tq);
    const tess_view dq = view_of(c, c->out[DQ], TESS_DTYPE_F32, c->tq);
    const tess_view dk = view_of(c, c->out[DK], TESS_DTYPE_F32, c->tk);
    const tess_view dv = view_of(c, c->out[DV], TESS_DTYPE_F32, c->tk);
    const tess_attn_saved saved = {&q, &k, &v, &o, c->out[LSE]};
    const tess_gpu_attn_shape shape = {c->shape, c->kind.atomic};
    TESS_TRY(tess_gpu_attn_forward(c->gpu, &shape, c->lists, &q, &k, &v, &o, c->out[LSE], NULL));
    TESS_TRY(tess_gpu_attn_backward(c->gpu, &shape, c->lists, &saved, &dout, c->d_dlse, &dq, &dk,
                                    &dv, c->work, c->work_bytes, NULL));
    for (int i = 0; i < OUTPUTS; i++)
        TESS_TRY(tess__gpu_copy_out(&c->memory, raw[i], (unsigned char *)c->out[i] - GUARD,
                                    c->bytes[i] + 2 * GUARD));
    return TESS_OK;
}

/* The largest difference over the largest element; -inf where both have it is none. */
static tess_status error_of(check *c, int i, double *error)
{
    const float *got = (const float *)(const void *)(c->raw[i] + GUARD);
    double most = 0.0, worst = 0.0;
    if (i == O) {
        float *const wide = (float *)(void *)c->other; /* holds the largest output, of floats */
        TESS_TRY(tess_convert(c->gpu->ctx, c->kind.dtype, c->raw[i] + GUARD, TESS_DTYPE_F32, wide,
                              c->n[i]));
        got = wide;
    }
    for (size_t j = 0; j < c->n[i]; j++) {
        const double want = c->want[i][j], off = fabs((double)got[j] - want);
        most = isfinite(want) ? fmax(most, fabs(want)) : most;
        if ((double)got[j] != want)
            worst = isfinite(off) ? fmax(worst, off) : INFINITY;
    }
    *error = worst > 0.0 ? worst / most : 0.0;
    return TESS_OK;
}

static int guarded(const check *c, int i)
{
    for (size_t j = 0; j < GUARD; j++)
        if (c->raw[i][j] != 0xa5 || c->raw[i][GUARD + c->bytes[i] + j] != 0xa5)
            return 0;
    return 1;
}

/* What fp16 and bf16 lose: half a unit in the last place of each rounding, and a margin. */
static double allowed(const kind *k, int i)
{
    if (i == LSE)
        return 2e-6;
    return k->dtype == TESS_DTYPE_F16 ? 6e-4 : i == O ? 4e-3 : 5e-3;
}

static tess_status judge(check *c, tess_gpu_case *found)
{
    const double none = -1.0;
    double worst = none;
    for (int i = 0; i < OUTPUTS; i++) {
        double error;
        TESS_TRY(error_of(c, i, &error));
        found->guarded &= guarded(c, i);
        if (error / allowed(&c->kind, i) > worst) {
            worst = error / allowed(&c->kind, i);
            found->output = output_names[i];
            found->error = error;
            found->allowed = allowed(&c->kind, i);
        }
    }
    return TESS_OK;
}

/* Further runs give the bits of the first; sums by atomics need not. */
static tess_status repeat(check *c, tess_gpu_case *found)
{
    unsigned char *again[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++)
        again[i] = TESS_TAKE(&c->arena, c->bytes[i] + 2 * GUARD);
    for (int n = 1; n < c->opts->repeats; n++) {
        TESS_TRY(run_device(c, again));
        for (int i = 0; i < OUTPUTS; i++)
            if (!(c->kind.atomic && (i == DK || i == DV)) &&
                memcmp(again[i] + GUARD, c->raw[i] + GUARD, c->bytes[i]) != 0)
                found->same = 0;
    }
    return TESS_OK;
}

static tess_status check_case(tess_gpu *gpu, const tess_gpu_check_opts *opts, const kind *k,
                              tess_gpu_check_result *result)
{
    char name[128];
    check c = {.gpu = gpu,
               .opts = opts,
               .kind = *k,
               .tq = opts->tokens - 3,
               .tk = opts->tokens,
               .arena = {.ctx = gpu->ctx},
               .memory = {.gpu = gpu, .who = who}};
    tess_gpu_case found = {.name = name, .same = 1, .guarded = 1};
    const char *const type = k->dtype == TESS_DTYPE_F16 ? "fp16" : "bf16";
    char units[32] = "single keys";
    if (k->unit > 1)
        snprintf(units, sizeof units, "units of %d keys", (int)k->unit);
    snprintf(name, sizeof name, "%s, head_dim %d, groups of %d, %s%s", type, k->dim, (int)k->group,
             units, k->atomic ? ", atomic" : "");
    tess_status status = prepare(&c);
    if (status == TESS_OK)
        status = run_cpu(&c);
    if (status == TESS_OK)
        status = run_device(&c, c.raw);
    if (status == TESS_OK)
        status = judge(&c, &found);
    if (status == TESS_OK)
        status = repeat(&c, &found);
    if (status == TESS_OK)
        tess__gpu_count_case(opts, result, &found);
    tess_attn_destroy(c.attn);
    tess_gpu_selection_destroy(c.lists);
    tess_selection_destroy(c.sel);
    tess__gpu_free(&c.memory);
    tess__arena_free(&c.arena);
    return status;
}

/* Every kernel: groups of 16 to 128 and beyond, each way to sum dk and dv, rows made of units. */
tess_status tess__gpu_check_attn(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                                 tess_gpu_check_result *result)
{
    static const struct {
        int32_t group, unit;
        int atomic;
    } cases[] = {{16, 1, 0}, {32, 1, 0}, {64, 1, 0},  {128, 1, 0}, {300, 4, 0},
                 {24, 1, 1}, {48, 1, 1}, {32, 16, 0}, {64, 64, 0}, {20, 3, 0}};
    for (int dim = 64; dim <= 128; dim += 64)
        for (int fp16 = 0; fp16 < 2; fp16++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const kind k = {dim, fp16 ? TESS_DTYPE_F16 : TESS_DTYPE_BF16, cases[i].group,
                                cases[i].unit, cases[i].atomic};
                TESS_TRY(check_case(gpu, opts, &k, result));
            }
    return TESS_OK;
}
