/* SPDX-License-Identifier: Apache-2.0 */
/* plan_scaling.c - tessera plan --ranks 4,8,16: predicted time, imbalance, bytes and memory over
 * the number of ranks, and where more ranks stop paying.
 *
 * Going from P ranks to Q pays while the time falls by half of what it would fall at best:
 * t(P) / t(Q) - 1 >= (Q / P - 1) / 2.
 */
#include "cmd_plan.h"

#include "tessera/advanced/explain.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 64, BAR = 18 };

/* One number of ranks. */
typedef struct {
    int ranks;
    int64_t layers; /* planned, over all steps; 0: it cannot be planned */
    double rho_sum, rho_max, ms;
    int64_t bytes, memory; /* of the layer that has most */
    char why[256];         /* it cannot be planned */
} point;

static void note_memory(void *user, int layer, const tess_candidate *k)
{
    point *p = user;
    (void)layer;
    if (k->chosen && k->memory > p->memory)
        p->memory = k->memory;
}

static tess_status add_plan(point *p, const tess_plan *plan)
{
    tess_plan_info info;
    TRY(tess_plan_query(plan, &info));
    for (int i = 0; i < info.layers; i++) {
        tess_plan_layer view;
        TRY(tess_plan_layer_view(plan, i, &view));
        const double rho = view.rho[TESS_RHO_RING];
        p->layers++;
        p->rho_sum += rho;
        p->rho_max = rho > p->rho_max ? rho : p->rho_max;
        p->bytes = view.bytes > p->bytes ? view.bytes : p->bytes;
        p->ms += view.predicted_ns < 0 ? NAN : (double)view.predicted_ns / 1e6;
    }
    return tess_plan_explain(plan, note_memory, p);
}

/* Plans every step for so many ranks. What cannot be planned is a reason, not a failure. */
static tess_status plan_point(cli *c, const plan_values *v, const tess_cluster *cluster, point *p)
{
    plan_input in;
    plan_values own = *v;
    own.opts.ranks = p->ranks;
    tess_status status = plan_input_open(c, &own, &in);
    tess_plan_opts opts = own.opts;
    opts.memory = isnan(v->memory) ? 0 : (int64_t)(v->memory * 1073741824.0);
    opts.whole_keys = v->whole_keys;
    if (status == TESS_OK)
        opts.strategy.ulysses = plan_default_ulysses(&own.opts, in.heads);
    for (int i = 0; status == TESS_OK && i < in.steps; i++) {
        tess_work *work = NULL;
        tess_plan *plan = NULL;
        status = plan_input_work(c, &in, i, &work);
        if (status == TESS_OK && tess_plan_create(c->ctx, work, cluster, &opts, &plan) != TESS_OK) {
            snprintf(p->why, sizeof p->why, "%s", tess_last_error());
            out_plain(p->why);
            p->layers = 0;
            tess_work_destroy(work);
            break;
        }
        if (status == TESS_OK)
            status = add_plan(p, plan);
        tess_plan_destroy(plan);
        tess_work_destroy(work);
    }
    if (p->layers)
        p->ms /= in.steps;
    plan_input_close(&in);
    return status;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* The last number of ranks up to which each further one pays; *next: the first that does not, or -1
 * where all do. */
static int pays_up_to(const point *points, int n, int *next)
{
    int last = -1;
    *next = -1;
    for (int i = 0; i < n; i++) {
        const point *p = &points[i];
        if (!p->layers || isnan(p->ms))
            continue;
        if (last >= 0) {
            const point *q = &points[last];
            if (q->ms / p->ms - 1.0 < 0.5 * ((double)p->ranks / q->ranks - 1.0)) {
                *next = i;
                return last;
            }
        }
        last = i;
    }
    return last;
}

static void print_point(FILE *f, const point *p, const point *first, double longest)
{
    char bytes[32], memory[32], bar[BAR + 1] = "";
    if (!p->layers) {
        fprintf(f, "%6d ", p->ranks);
        out_wrap(f, p->why, 7, 7);
        fputc('\n', f);
        return;
    }
    fprintf(f, "%6d %7.3f %7.3f %9s %9s", p->ranks, p->rho_sum / (double)p->layers, p->rho_max,
            out_bytes(p->bytes, bytes), out_bytes(p->memory, memory));
    if (!isnan(p->ms)) {
        const int wide = (int)(p->ms / longest * BAR + 0.5);
        memset(bar, '#', (size_t)wide);
        bar[wide] = '\0';
        fprintf(f, " %10.3f %7.2fx %s", p->ms, first->ms / p->ms, bar);
    }
    fputc('\n', f);
}

static void print_points(FILE *f, const point *points, int n)
{
    const point *first = NULL;
    double longest = 0.0;
    int next;
    for (int i = 0; i < n; i++) {
        if (!points[i].layers || isnan(points[i].ms))
            continue;
        first = first ? first : &points[i];
        longest = points[i].ms > longest ? points[i].ms : longest;
    }
    fprintf(f, "%6s %15s %9s %9s%s\n", "", "imbalance", "sent", "memory",
            first ? "       ms a" : "");
    fprintf(f, "%6s %7s %7s %9s %9s%s\n", "ranks", "mean", "worst", "at most", "at most",
            first ? "       step  faster" : "");
    for (int i = 0; i < n; i++)
        print_point(f, &points[i], first, longest);
    const int last = pays_up_to(points, n, &next);
    if (last < 0)
        return;
    if (next < 0)
        fprintf(f, "more ranks pay up to %d, the most that were asked for\n", points[last].ranks);
    else
        fprintf(f, "more ranks pay up to %d: %d are %.2fx as many, and %.2fx as fast\n",
                points[last].ranks, points[next].ranks,
                (double)points[next].ranks / points[last].ranks, points[last].ms / points[next].ms);
}

static void set_json(cli *c, const point *points, int n)
{
    json_t *all = json_array();
    int next;
    for (int i = 0; i < n; i++) {
        const point *p = &points[i];
        json_t *o = json_object();
        out_set(c, o, "ranks", json_integer(p->ranks));
        out_set(c, o, "rho_after_mean",
                out_number(p->layers ? p->rho_sum / (double)p->layers : NAN));
        out_set(c, o, "rho_after_max", out_number(p->layers ? p->rho_max : NAN));
        out_set(c, o, "bytes", p->layers ? json_integer(p->bytes) : json_null());
        out_set(c, o, "memory", p->layers ? json_integer(p->memory) : json_null());
        out_set(c, o, "predicted_ms", out_number(p->layers ? p->ms : NAN));
        out_set(c, o, "why", p->layers ? json_null() : out_sentence(p->why));
        out_append(c, all, o);
    }
    const int last = pays_up_to(points, n, &next);
    out_set(c, c->json, "ranks", all);
    out_set(c, c->json, "pays_up_to", last < 0 ? json_null() : json_integer(points[last].ranks));
}

/* ---- run ------------------------------------------------------------------------------------- */

tess_status plan_ranks(cli *c, const char *text, int *ranks, int room, int *n)
{
    const char *at = text;
    for (*n = 0;; at++) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        const int previous = *n > 0 ? ranks[*n - 1] : 0;
        if (end == at || errno || value < 1 || value > 65536 || (*end && *end != ',') ||
            *n == room || value <= previous)
            return out_usage(c,
                             "--ranks is \"%.80s\", must be an integer 1..65536, or up to %d of "
                             "them, ascending, with commas between them",
                             text, room);
        ranks[(*n)++] = (int)value;
        at = end;
        if (!*end)
            return TESS_OK;
    }
}

tess_status plan_scaling_run(cli *c, const plan_values *v, const int *ranks, int n)
{
    const char *const other = v->file      ? "PLAN.json"
                              : v->clips   ? "--clips"
                              : v->speeds  ? "--speeds"
                              : v->out     ? "--out"
                              : v->html    ? "--html"
                              : v->explain ? "--explain"
                              : v->reuse   ? "--reuse"
                                           : NULL;
    if (other)
        return out_usage(c, "%s belongs to one number of ranks, --ranks has %d", other, n);
    point *points = calloc((size_t)n, sizeof *points);
    if (!points)
        return out_fail(c, TESS_ENOMEM, "no memory for a table");
    tess_cluster *cluster = NULL;
    tess_status status = v->cluster ? plan_cluster(c, v, &cluster) : TESS_OK;
    for (int i = 0; status == TESS_OK && i < n; i++) {
        points[i].ranks = ranks[i];
        progress_span(c, "planning numbers of ranks", n);
        progress_part(c, i, 1);
        status = plan_point(c, v, cluster, &points[i]);
    }
    progress_span(c, NULL, 0);
    if (status == TESS_OK && c->json)
        set_json(c, points, n);
    else if (status == TESS_OK)
        print_points(c->out, points, n);
    tess_cluster_destroy(cluster);
    free(points);
    return out_input(c, status);
}
