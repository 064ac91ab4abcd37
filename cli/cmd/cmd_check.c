/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_check.c - tessera check: compares the results of a problem with double precision.
 *
 * Every rank checks on its own machine. Rank 0 prints its result; a mismatch on another rank is
 * printed as that rank's failure, with the same exit code.
 */
#include "bench/cp_bench.h"
#include "check/judge.h"
#include "commands.h"

#include <math.h>
#include <string.h>

typedef struct {
    common common;
    strings texts;
    const char *file;
    double tolerance;
    judge_files judge;
} values;

static int passed(const comparison *o)
{
    return o->error <= o->tolerance;
}

/* The output that is farthest beyond, or closest to, what is allowed. */
static const comparison *worst(const verdict *v)
{
    const comparison *w = &v->outputs[0];
    for (int i = 1; i < v->n; i++)
        if (v->outputs[i].error * w->tolerance > w->error * v->outputs[i].tolerance)
            w = &v->outputs[i];
    return w;
}

static tess_status verify(cli *c, const problem *p, const values *given, verdict *v)
{
    workload w = {0};
    *v = (verdict){0};
    if (p->kind == PROBLEM_STEP && p->ranks > 1)
        return out_fail(c, TESS_EINVAL,
                        "step: ranks is %lld, must be 1 here; context problems are checked on many",
                        (long long)p->ranks);
    if (problem_on_mpi(p))
        return out_fail(c, TESS_EINVAL,
                        "context: links is mpi, must be injected here; tessera "
                        "bench measures over MPI");
    tess_status status = workload_make(c, p, 0, &w);
    if (status == TESS_OK && p->kind == PROBLEM_ATTN)
        status = verify_attn(&w, given->judge.all, v);
    else if (status == TESS_OK && p->kind == PROBLEM_SELECT)
        status = verify_select(&w, given->judge.all, v);
    else if (status == TESS_OK && p->kind == PROBLEM_LINEAR)
        status = verify_linear(&w, given->judge.all, v);
    else if (status == TESS_OK && p->kind == PROBLEM_CP)
        status = cp_verify(&w, v);
    else if (status == TESS_OK)
        status = verify_step(&w, given->judge.all, v);
    workload_free(&w);
    for (int i = 0; i < v->n && !isnan(given->tolerance); i++)
        v->outputs[i].tolerance = given->tolerance;
    return status;
}

static void print(const cli *c, const char *text, const verdict *v)
{
    fprintf(c->out, "%s\n", text);
    for (int i = 0; i < v->n; i++) {
        const comparison *o = &v->outputs[i];
        const int good = passed(o);
        fprintf(c->out, "  %s%-8s%s  %-6s off by %.2e, allowed is %.2e\n",
                out_style(c, good ? STYLE_GOOD : STYLE_BAD), good ? "ok" : "mismatch",
                out_style(c, STYLE_PLAIN), o->name, o->error, o->tolerance);
    }
    if (v->products.text[0])
        fprintf(c->out, "  %s\n", v->products.text);
    if (v->checked < v->total)
        fprintf(c->out, "  compared: %lld rows of %lld, chosen at random\n", (long long)v->checked,
                (long long)v->total);
}

static void set_members(cli *c, json_t *object, const problem *p, const char *text,
                        const verdict *v)
{
    json_t *outputs = json_array();
    const comparison *w = worst(v);
    for (int i = 0; i < v->n; i++) {
        json_t *o = json_object();
        out_set(c, o, "name", json_string(v->outputs[i].name));
        out_set(c, o, "ok", json_boolean(passed(&v->outputs[i])));
        out_set(c, o, "max_rel_error", out_number(v->outputs[i].error));
        out_set(c, o, "tolerance", out_number(v->outputs[i].tolerance));
        out_append(c, outputs, o);
    }
    out_set(c, object, "problem", json_string(text));
    out_set(c, object, "precision", json_string(p->precision ? p->precision : "fp32"));
    if (v->products.text[0]) {
        out_set(c, object, "products_isa", json_string(v->products.isa));
        out_set(c, object, "products", json_string(v->products.text));
    }
    out_set(c, object, "ok", json_boolean(passed(w)));
    out_set(c, object, "max_rel_error", out_number(w->error));
    out_set(c, object, "tolerance", out_number(w->tolerance));
    out_set(c, object, "outputs", outputs);
    out_set(c, object, "rows_checked", json_integer(v->checked));
    out_set(c, object, "rows", json_integer(v->total));
}

/* The failure of a rank other than 0 that found a mismatch. */
static tess_status fail_mismatch(cli *c, const char *text, const verdict *v)
{
    const comparison *w = worst(v);
    c->code = EXIT_MISMATCH;
    return out_fail(c, TESS_EINVAL, "%.400s: %s is off by %.2e, allowed is %.2e", text, w->name,
                    w->error, w->tolerance);
}

/* One problem's members are the result's; several are a list. */
static tess_status check_all(cli *c, const problems *list, const values *given)
{
    json_t *several = c->json && list->n > 1 ? json_array() : NULL;
    int bad = 0;
    tess_status status = TESS_OK;
    for (int i = 0; i < list->n && status == TESS_OK; i++) {
        char text[PROBLEM_TEXT_MAX];
        verdict v;
        problem_text(&list->items[i], text);
        status = verify(c, &list->items[i], given, &v);
        if (status != TESS_OK)
            break;
        bad += !passed(worst(&v));
        if (c->rank != 0 && bad)
            return fail_mismatch(c, text, &v);
        if (several) {
            json_t *object = json_object();
            set_members(c, object, &list->items[i], text, &v);
            out_append(c, several, object);
        } else if (c->json) {
            set_members(c, c->json, &list->items[i], text, &v);
        } else {
            progress_clear(c);
            if (i == 0)
                workload_head(c);
            print(c, text, &v);
            if (out_flush(c) != 0)
                break;
        }
    }
    if (several) {
        out_set(c, c->json, "ok", json_boolean(bad == 0));
        out_set(c, c->json, "problems", several);
    } else if (!c->json && status == TESS_OK && list->n > 1) {
        fprintf(c->out, "%d problems, %d with a mismatch\n", list->n, bad);
    }
    c->code = bad ? EXIT_MISMATCH : 0;
    return status;
}

/* 1: tensors of files are judged, not a problem of ours. */
static int has_files(const judge_files *f)
{
    int given = f->mask || f->lists || f->layout || f->precision || f->dump || f->group ||
                f->unit || !isnan(f->scale);
    for (int i = 0; i < JUDGE_INPUTS; i++)
        given |= f->in[i] != NULL;
    for (int i = 0; i < JUDGE_OUTPUTS; i++)
        given |= f->out[i] != NULL;
    return given;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    problems list;
    if (has_files(&v->judge)) {
        if (v->texts.n != 1 || strcmp(v->texts.items[0], "attn") != 0 || v->file)
            return out_usage(c, "tensors in files are checked as: tessera check attn --q FILE ...");
        return c->rank == 0 ? judge_attn(c, &v->judge) : TESS_OK;
    }
    tess_status status = problems_read(c, &v->texts, v->file, &list);
    if (status == TESS_OK)
        status = check_all(c, &list, v);
    problems_free(&list);
    return status;
}

static const opt arguments[] = {
    {"PROBLEM", 0, OPT_STRINGS, offsetof(values, texts),
     .help = "what to check: a kind and its keys, such as attn,heads=8,tokens=4096"},
};

#define AT(member) offsetof(values, judge.member)

static const char *const layouts[] = {"hsd", "shd", NULL};
static const char *const precisions[] = {"fp64", "fp32", "tf32", "fp16", "bf16", NULL};

static const opt options[] = {
    {"file", 0, OPT_PATH, offsetof(values, file), "FILE",
     .help = "also check the problems in a file, one to a line; # begins a comment"},
    {"all", 0, OPT_FLAG, AT(all), .help = "compare every row, however long that takes"},
    {"tolerance", 0, OPT_DOUBLE, offsetof(values, tolerance), "X", .max = 1,
     .help = "allow this relative error instead of the one derived from the problem's sizes"},
    {"q", 0, OPT_PATH, AT(in[JUDGE_Q]), "FILE",
     .help = "queries of attention that was computed elsewhere: .npy, .npz or .safetensors"},
    {"k", 0, OPT_PATH, AT(in[JUDGE_K]), "FILE", .help = "its keys; their heads divide those of q"},
    {"v", 0, OPT_PATH, AT(in[JUDGE_V]), "FILE", .help = "its values"},
    {"do", 0, OPT_PATH, AT(in[JUDGE_DOUT]), "FILE", .help = "gradient of the loss by the output"},
    {"o", 0, OPT_PATH, AT(out[JUDGE_O]), "FILE", .help = "output to compare"},
    {"lse", 0, OPT_PATH, AT(out[JUDGE_LSE]), "FILE",
     .help = "log-sum-exp to compare: batch, heads, tokens, in natural logarithms"},
    {"dq", 0, OPT_PATH, AT(out[JUDGE_DQ]), "FILE", .help = "gradient of the queries to compare"},
    {"dk", 0, OPT_PATH, AT(out[JUDGE_DK]), "FILE", .help = "gradient of the keys to compare"},
    {"dv", 0, OPT_PATH, AT(out[JUDGE_DV]), "FILE", .help = "gradient of the values to compare"},
    {"mask", 0, OPT_PATH, AT(mask), "FILE",
     .help = "keys that each query attends to: truth values, or 0 and -inf, that broadcast to "
             "batch, heads, queries, keys"},
    {"group", 0, OPT_INT, AT(group), "N", .min = 1, .max = 1e9, .unit = "queries",
     .help = "queries of a row of the mask; 1 unless given"},
    {"unit", 0, OPT_INT, AT(unit), "N", .min = 1, .max = 1e9, .unit = "keys",
     .help = "keys of a column of the mask; 1 unless given"},
    {"lists", 0, OPT_PATH, AT(lists), "FILE",
     .help = "the same as lists: .npz with offsets, indices, and group and unit or bounds_q and "
             "bounds_k"},
    {"layout", 0, OPT_CHOICE, AT(layout), "L", .choices = layouts,
     .help = "order of heads and tokens in the files, behind the batch; hsd unless given"},
    {"scale", 0, OPT_DOUBLE, AT(scale), "X", .min = -1e6, .max = 1e6,
     .help = "factor of the scores; 1 / sqrt(head_dim) unless given"},
    {"precision", 0, OPT_CHOICE, AT(precision), "P", .choices = precisions,
     .help = "precision of the computation, which the tolerances follow; unless given the "
             "narrowest that holds the values of any tensor"},
    {"old-k", 0, OPT_PATH, AT(in[JUDGE_OLD_K]), "FILE",
     .help = "keys of an earlier step, to recognise that they were used"},
    {"old-v", 0, OPT_PATH, AT(in[JUDGE_OLD_V]), "FILE", .help = "values of an earlier step"},
    {"dump", 0, OPT_PATH, AT(dump), "FOLDER",
     .help = "write the reference in double precision: o, lse, and with --do dq, dk, dv"},
};

static const example examples[] = {
    {"tessera check attn,heads=2,dim=64,tokens=1000,pass=both", "dense attention and gradients"},
    {"tessera check --file bench/standard.txt", "everything that is measured"},
    {"tessera check attn,density=0.1,unit=1 --isa base", "token lists, without SIMD extensions"},
    {"tessera check attn --q q.npy --k k.npy --v v.npy --o o.npy", "the output of another kernel"},
};

const command command_check = {
    .name = "check",
    .summary = "verify a problem against double precision",
    .description =
        "Runs each problem and the same computation in double precision, and compares "
        "every output: the largest difference, relative to the largest value. A large "
        "problem is compared at rows of queries chosen at random, whose number is printed. "
        "A context problem is compared with attention on one rank, over all its "
        "strategies. "
        "Exits with 3 if a difference is beyond the tolerance. Under a launcher every "
        "rank checks on its machine: rank 0 prints, and a mismatch elsewhere is "
        "printed with its rank.\n"
        "With --q, --k and --v the output and the gradients of any program are judged: which "
        "tensor is off, where, and which usual mistake explains it; docs/check.md.\n"
        "With --json each problem has the members problem, precision, ok, "
        "max_rel_error and tolerance, and outputs with these for each output; several "
        "problems are the list problems.\n",
    TABLE(arguments),
    .tables = problem_keys,
    .n_tables = PROBLEM_KINDS,
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .everywhere = 1,
    .run = run,
};
