/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_measure.c - tessera gpu check and tessera gpu bench: runs on the device, as text or JSON.
 *
 * Sparse attention pays where selection, forward and backward pass take less than both passes of
 * dense attention. Between two densities that were measured, times are taken to be on a line.
 */
#include "cmd_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- check ----------------------------------------------------------------------------------- */

enum { INDENT = 10 };

typedef struct {
    cli *c;
    json_t *list;
} cases;

static void print_case(void *user, const tess_gpu_case *found)
{
    cases *const s = user;
    cli *const c = s->c;
    char text[200];
    if (s->list) {
        out_append(c, s->list,
                   json_pack("{s:s,s:b,s:s,s:o,s:f,s:b,s:b}", "name", found->name, "ok", found->ok,
                             "output", found->output, "error", out_number(found->error), "allowed",
                             found->allowed, "same_bits", found->same, "guarded", found->guarded));
        return;
    }
    progress_clear(c);
    fprintf(c->out, "  %s%-6s%s  %s\n", out_style(c, found->ok ? STYLE_GOOD : STYLE_BAD),
            found->ok ? "ok" : "wrong", out_style(c, STYLE_PLAIN), found->name);
    int n = found->allowed > 0.0 ? snprintf(text, sizeof text, "%s off by %.2g, allowed is %.2g",
                                            found->output, found->error, found->allowed)
                                 : snprintf(text, sizeof text, "%g of the %s are wrong",
                                            found->error, found->output);
    if (!found->same)
        n += snprintf(text + n, sizeof text - (size_t)n, "; other bits in another run");
    if (!found->guarded)
        snprintf(text + n, sizeof text - (size_t)n, "; bytes around an output were overwritten");
    fprintf(c->out, "%*s", INDENT, "");
    out_wrap(c->out, text, INDENT, INDENT);
    fputc('\n', c->out);
    out_flush(c);
}

tess_status gpu_check(cli *c, const gpu_values *v, tess_gpu *gpu)
{
    cases found = {c, c->json ? json_array() : NULL};
    tess_gpu_info info;
    tess_gpu_check_result result = {.outcome = TESS_GPU_NOT_CHECKED};
    const tess_gpu_check_opts opts = {.folder = cache_folder(c),
                                      .tokens = v->check_tokens,
                                      .repeats = (int)v->check_repeats,
                                      .found = print_case,
                                      .user = &found};
    const tess_status status = tess_gpu_check(gpu, &opts, &result);
    if (result.outcome == TESS_GPU_NOT_CHECKED) { /* it did not come to its end */
        json_decref(found.list);
        return status;
    }
    TRY(tess_gpu_query(gpu, &info));
    if (result.failed)
        c->code = EXIT_MISMATCH;
    gpu_print_device(c, &info, &result);
    if (c->json) {
        out_set(c, c->json, "outcome", json_string(gpu_outcome_names[result.outcome]));
        out_set(c, c->json, "cases", json_integer(result.cases));
        out_set(c, c->json, "failed", json_integer(result.failed));
        out_set(c, c->json, "keys", json_integer(result.tokens));
        out_set(c, c->json, "runs", json_integer(result.repeats));
        out_set(c, c->json, "results", found.list);
    }
    return status;
}

/* ---- bench ----------------------------------------------------------------------------------- */

enum { DENSITIES_MAX = 32, DENSE_UNIT = 64 };

typedef struct {
    double density;
    tess_gpu_bench_result ms;
} point;

static double total(const tess_gpu_bench_result *r)
{
    return r->select + r->forward + r->backward;
}

static double tflops(double flop_each, const tess_gpu_bench_problem *p,
                     const tess_gpu_bench_result *r, double ms)
{
    return flop_each * r->pairs * p->shape.attn.head_dim / (ms * 1e9);
}

static tess_status read_densities(cli *c, const char *text, point *points, int *n)
{
    double before = 0.0;
    for (const char *p = text;; (*n)++) {
        char *end;
        const double x = strtod(p, &end);
        if (end == p || (*end && *end != ',') || !(x > before) || x > 1.0 || *n == DENSITIES_MAX)
            return out_usage(
                c,
                "--densities is \"%.60s\", must be 1..%d ascending numbers above 0 and "
                "at most 1, with commas between them",
                text, DENSITIES_MAX);
        points[*n].density = before = x;
        if (!*end)
            break;
        p = end + 1;
    }
    (*n)++;
    return TESS_OK;
}

/* The density at which sparse attention takes as long as dense; 0: never less, 1: always. */
static double break_even(const point *points, int n, double dense)
{
    if (total(&points[0].ms) >= dense)
        return 0.0;
    for (int i = 1; i < n; i++) {
        const double a = total(&points[i - 1].ms), b = total(&points[i].ms);
        if (b >= dense)
            return points[i - 1].density +
                   (dense - a) / (b - a) * (points[i].density - points[i - 1].density);
    }
    return points[n - 1].density;
}

static json_t *times(const tess_gpu_bench_problem *p, const point *x)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "density", x->density, "select_ms", x->ms.select,
                     "forward_ms", x->ms.forward, "backward_ms", x->ms.backward, "forward_tflops",
                     tflops(TESS_FLOP_FORWARD, p, &x->ms, x->ms.forward), "backward_tflops",
                     tflops(TESS_FLOP_BACKWARD, p, &x->ms, x->ms.backward));
}

static void print_row(const cli *c, const char *name, const tess_gpu_bench_problem *p,
                      const tess_gpu_bench_result *r)
{
    fprintf(c->out, "  %-9s %10.3f %10.3f %8.1f %10.3f %8.1f\n", name, r->select, r->forward,
            tflops(TESS_FLOP_FORWARD, p, r, r->forward), r->backward,
            tflops(TESS_FLOP_BACKWARD, p, r, r->backward));
}

static void print_bench(cli *c, const gpu_values *v, const tess_gpu_bench_problem *p,
                        const point *points, int n, const tess_gpu_bench_result *dense)
{
    char name[32];
    const int own = isnan(v->dense_forward);
    const double even = break_even(points, n, total(dense));
    if (c->json) {
        json_t *const list = json_array();
        const point all = {1.0, *dense};
        for (int i = 0; i < n; i++)
            out_append(c, list, times(p, &points[i]));
        json_t *const d = times(p, &all);
        out_set(c, d, "from", json_string(own ? "these kernels" : "given"));
        out_set(c, c->json, "problem",
                json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:b}", "tokens", (json_int_t)v->tokens,
                          "heads", (json_int_t)v->heads, "dim", (json_int_t)v->head_dim, "group",
                          (json_int_t)v->group, "unit", (json_int_t)v->unit, "rank",
                          (json_int_t)v->rank, "dtype", v->dtype, "atomic", v->atomic));
        out_set(c, c->json, "densities", list);
        out_set(c, c->json, "dense", d);
        out_set(c, c->json, "break_even", out_number(even));
        return;
    }
    fprintf(c->out, "%lld tokens, %lld heads of %lld, %s, groups of %lld, units of %lld%s\n",
            (long long)v->tokens, (long long)v->heads, (long long)v->head_dim, v->dtype,
            (long long)v->group, (long long)v->unit, v->atomic ? ", atomic" : "");
    fprintf(c->out, "  %-9s %10s %10s %8s %10s %8s\n", "density", "select ms", "forward ms",
            "TFLOP/s", "backw. ms", "TFLOP/s");
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%g", points[i].density);
        print_row(c, name, p, &points[i].ms);
    }
    print_row(c, "dense", p, dense);
    fprintf(c->out, "  dense is %s\n",
            own ? "these kernels on all keys, in blocks of 64; --dense-forward and\n"
                  "  --dense-backward compare with others"
                : "as given");
    if (even <= 0.0)
        fprintf(c->out, "sparse attention takes longer than dense at all of these densities\n");
    else if (total(&points[n - 1].ms) < total(dense))
        fprintf(c->out, "sparse attention takes less than dense at all of these densities\n");
    else
        fprintf(c->out, "sparse attention takes less than dense below a density of %.3g\n", even);
}

static tess_status measure(cli *c, const gpu_values *v, tess_gpu *gpu, tess_gpu_bench_problem *p,
                           point *points, int n, tess_gpu_bench_result *dense)
{
    for (int i = 0; i < n; i++) {
        p->density = points[i].density;
        TRY(tess_gpu_bench(gpu, p, &points[i].ms));
        progress_step(c, "measured a density");
    }
    if (!isnan(v->dense_forward)) {
        *dense = (tess_gpu_bench_result){.forward = v->dense_forward,
                                         .backward = v->dense_backward,
                                         .pairs = (double)v->heads * (double)v->tokens *
                                                  (double)v->tokens};
        return TESS_OK;
    }
    tess_gpu_bench_problem all = *p;
    all.density = 1.0;
    all.unit = DENSE_UNIT;
    all.group = 128;
    TRY(tess_gpu_bench(gpu, &all, dense));
    dense->select = 0.0; /* dense attention selects nothing */
    return TESS_OK;
}

tess_status gpu_bench(cli *c, const gpu_values *v, tess_gpu *gpu)
{
    point points[DENSITIES_MAX];
    int n = 0;
    tess_gpu_info info;
    tess_gpu_check_result checked = {.outcome = TESS_GPU_NOT_CHECKED};
    tess_gpu_bench_result dense;
    tess_gpu_bench_problem p = {.shape = {{.batch = 1,
                                           .heads = (int)v->heads,
                                           .head_dim = (int)v->head_dim,
                                           .tokens_q = v->tokens,
                                           .tokens_k = v->tokens},
                                          v->atomic},
                                .dtype = strcmp(v->dtype, "fp16") == 0 ? TESS_DTYPE_F16
                                                                       : TESS_DTYPE_BF16,
                                .group = (int32_t)v->group,
                                .unit = (int32_t)v->unit,
                                .rank = (int)v->rank,
                                .repeats = (int)v->repeats};
    if (isnan(v->dense_forward) != isnan(v->dense_backward))
        return out_usage(c, "--dense-forward and --dense-backward belong together");
    TRY(read_densities(c, v->densities, points, &n));
    if (cache_folder(c))
        TRY(tess_gpu_checked(gpu, cache_folder(c), &checked));
    TRY(out_input(c, measure(c, v, gpu, &p, points, n, &dense)));
    TRY(tess_gpu_query(gpu, &info));
    progress_clear(c);
    gpu_print_device(c, &info, &checked);
    print_bench(c, v, &p, points, n, &dense);
    return TESS_OK;
}
