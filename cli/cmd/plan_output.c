/* SPDX-License-Identifier: Apache-2.0 */
/* plan_output.c - the result of planning: a table by strategy, the reasons, and JSON.
 *
 * The imbalance is that with a barrier per iteration in each ring, which is what ranks wait for;
 * without a ring all forms agree. "Before" is the contiguous assignment at the same degrees. Where
 * the heads do not divide there is none, and no mean over such layers: means before and after are
 * over the same layers.
 */
#include "cmd_plan.h"

#include "tessera/advanced/explain.h"

#include <string.h>

#include <math.h>

typedef struct {
    const tess_plan_layer *view;
    double before, after; /* before is -1 where there is none */
    int64_t ns, bytes;    /* -1: not predicted */
} layer_result;

static void count(plan_strategy *s, const layer_result *r)
{
    s->layers++;
    s->after_sum += r->after;
    s->after_max = r->after > s->after_max ? r->after : s->after_max;
    s->copies_sum += r->view->kv_copies;
    s->predicted_ms += (double)r->ns / 1e6; /* below 0 where it is not predicted */
    s->bytes_sum += r->bytes;
    if (r->before >= 0) {
        s->before_count++;
        s->before_sum += r->before;
        s->before_max = r->before > s->before_max ? r->before : s->before_max;
    }
}

static int is_same(const tess_strategy *a, const tess_strategy *b)
{
    return a->method == b->method && a->ulysses == b->ulysses && a->ring == b->ring &&
           a->selective == b->selective && a->placement == b->placement;
}

/* The line of the table that layers planned like this one belong to; NULL when the table is full.
 */
static plan_strategy *strategy_of(plan_tally *t, const tess_plan_layer *view)
{
    for (int i = 0; i < t->n_strategies; i++) {
        plan_strategy *s = &t->strategies[i];
        if (is_same(&s->strategy, &view->strategy))
            return s;
    }
    if (t->n_strategies == STRATEGIES_MAX)
        return NULL;
    plan_strategy *s = &t->strategies[t->n_strategies++];
    *s = (plan_strategy){.strategy = view->strategy};
    return s;
}

/* ---- one step -------------------------------------------------------------------------------- */

static json_t *json_layer(cli *c, int64_t layer, const layer_result *r)
{
    const tess_plan_layer *view = r->view;
    json_t *o = json_object(), *shares = json_array();
    out_set(c, o, "layer", json_integer(layer));
    out_set(c, o, "method", json_string(tess_plan_method_name(view->strategy.method)));
    out_set(c, o, "ulysses", json_integer(view->strategy.ulysses));
    out_set(c, o, "ring", json_integer(view->strategy.ring));
    out_set(c, o, "selective", json_integer(view->strategy.selective));
    out_set(c, o, "placement", json_string(tess_placement_name(view->strategy.placement)));
    out_set(c, o, "rho_before", out_number(r->before < 0 ? NAN : r->before));
    out_set(c, o, "rho_after", out_number(r->after));
    out_set(c, o, "load_max", json_integer(view->load_max));
    out_set(c, o, "load_bound", json_integer(view->load_bound));
    out_set(c, o, "kv_copies", out_number(view->kv_copies));
    out_set(c, o, "bytes", r->bytes < 0 ? json_null() : json_integer(r->bytes));
    out_set(c, o, "predicted_ms", r->ns < 0 ? json_null() : out_number((double)r->ns / 1e6));
    for (int64_t i = 0; i < view->n_shares; i++) {
        const tess_share *s = &view->shares[i];
        json_t *share = json_array();
        out_append(c, share, json_integer(s->rank));
        out_append(c, share, json_integer(s->head));
        out_append(c, share, json_integer(s->q_begin));
        out_append(c, share, json_integer(s->q_end));
        out_append(c, shares, share);
    }
    out_set(c, o, "shares", shares);
    return o;
}

/* What the plan says of the layer, and how it does on this work. */
static tess_status layer_judge(const tess_plan *plan, const tess_work *work, int layer,
                               tess_plan_layer *view, layer_result *r)
{
    TRY(tess_plan_layer_view(plan, layer, view));
    r->view = view;
    r->ns = view->predicted_ns;
    r->bytes = view->bytes;
    r->after = view->rho[TESS_RHO_RING]; /* of the work it was made for */
    r->before = view->rho_before;
    if (!work)
        return TESS_OK;
    TRY(tess_plan_imbalance(plan, layer, work, TESS_RHO_RING, &r->after));
    TRY(tess_plan_imbalance_before(plan, layer, work, &r->before));
    return TESS_OK;
}

tess_status plan_tally_step(plan_tally *t, int64_t step, int fresh, const tess_plan *plan,
                            const tess_work *work)
{
    cli *c = t->c;
    tess_plan_info info;
    TRY(tess_plan_query(plan, &info));
    tess_status status = TESS_OK;
    json_t *layers = t->plans ? json_array() : NULL;
    for (int i = 0; i < info.layers && status == TESS_OK; i++) {
        tess_plan_layer view;
        layer_result r;
        status = layer_judge(plan, work, i, &view, &r);
        if (status != TESS_OK)
            break;
        plan_strategy *line = strategy_of(t, &view);
        if (line)
            count(line, &r);
        count(&t->all, &r);
        if (layers)
            out_append(c, layers, json_layer(c, plan_input_layer(t->input, i), &r));
    }
    if (layers) {
        json_t *o = json_object();
        out_set(c, o, "step", json_integer(step));
        out_set(c, o, "fresh", json_boolean(fresh));
        out_set(c, o, "layers", layers);
        out_append(c, t->plans, o);
    }
    return status;
}

/* ---- reasons --------------------------------------------------------------------------------- */

typedef struct {
    cli *c;
    const plan_input *input;
    int64_t step;
    int layer; /* of the candidate before; -1 at first */
} reasons;

static void print_candidate(void *user, int layer, const tess_candidate *k)
{
    reasons *r = user;
    FILE *f = r->c->out;
    if (strncmp(k->reason, "the same as ", 12) == 0)
        return; /* methods that put heads alike are printed once */
    char text[TESS_STRATEGY_TEXT], time[32] = "-", rho[32] = "-", copies[32] = "-", bytes[32] = "-";
    if (layer != r->layer) {
        if (r->input->profile)
            fprintf(f, "step %lld, ", (long long)r->step);
        fprintf(f, "layer %lld\n  %-22s %-9s %9s %7s %6s %10s\n",
                (long long)plan_input_layer(r->input, layer), "candidate", "in a node", "ms", "rho",
                "copies", "bytes");
        r->layer = layer;
    }
    tess_strategy strategy = k->strategy;
    strategy.placement = TESS_PLACE_HEADS_INSIDE; /* has a column of its own */
    tess_strategy_format(&strategy, text);
    if (k->ns >= 0)
        snprintf(time, sizeof time, "%.3f", (double)k->ns / 1e6);
    if (k->rho > 0) { /* else it was given up before it was planned */
        snprintf(rho, sizeof rho, "%.3f", k->rho);
        snprintf(copies, sizeof copies, "%.2f", k->kv_copies);
        out_bytes(k->bytes, bytes);
    }
    fprintf(f, "%s%c %-22s %-9s %9s %7s %6s %10s\n      ",
            k->chosen ? out_style(r->c, STYLE_GOOD) : "", k->chosen ? '*' : ' ', text,
            k->strategy.placement == TESS_PLACE_HEADS_INSIDE ? "heads" : "sequence", time, rho,
            copies, bytes);
    out_wrap(f, k->reason, 6, 6);
    fprintf(f, "%s\n", k->chosen ? out_style(r->c, STYLE_PLAIN) : "");
}

tess_status plan_print_reasons(cli *c, const plan_input *in, int64_t step, const tess_plan *plan)
{
    reasons r = {c, in, step, -1};
    return tess_plan_explain(plan, print_candidate, &r);
}

/* ---- the end --------------------------------------------------------------------------------- */

enum { NAME = 21 }; /* columns of a strategy */

static void print_line(const plan_tally *t, const char *name, const plan_strategy *s)
{
    char before_mean[32] = "-", before_max[32] = "-", bytes[32] = "-", time[32] = "-";
    const double n = (double)s->layers;
    if (s->before_count == s->layers) {
        snprintf(before_mean, 32, "%.3f", s->before_sum / n);
        snprintf(before_max, 32, "%.3f", s->before_max);
    }
    if (s->bytes_sum >= 0)
        out_bytes(s->bytes_sum / s->layers, bytes);
    if (s->predicted_ms >= 0)
        snprintf(time, 32, "%.3f", s->predicted_ms / n);
    if (strlen(name) > NAME) /* on a line of its own, so that lines have 80 columns at most */
        fprintf(t->c->out, "%s\n", name);
    fprintf(t->c->out, "%-*s %6lld %6s %6s %6.3f %6.3f %5.2f %8s %8s\n", NAME,
            strlen(name) > NAME ? "" : name, (long long)s->layers, before_mean, before_max,
            s->after_sum / n, s->after_max, s->copies_sum / n, bytes, time);
}

void plan_print(const plan_tally *t)
{
    FILE *f = t->c->out;
    fprintf(f, "%lld rank%s, %d step%s of %d layer%s\n", (long long)t->given->opts.ranks,
            out_plural(t->given->opts.ranks), t->input->steps, out_plural(t->input->steps),
            t->input->layers, out_plural(t->input->layers));
    fprintf(f, "%-*s %6s %13s %13s %5s %8s %8s\n", NAME, "", "", "imbal. before", "after", "K/V",
            "sent", "ms a");
    fprintf(f, "%-*s %6s %6s %6s %6s %6s %5s %8s %8s\n", NAME, "strategy", "layers", "mean",
            "worst", "mean", "worst", "cop.", "at most", "layer");
    for (int i = 0; i < t->n_strategies; i++) {
        const plan_strategy *s = &t->strategies[i];
        char name[TESS_STRATEGY_TEXT];
        tess_strategy_format(&s->strategy, name);
        print_line(t, name, s);
    }
    if (t->n_strategies > 1)
        print_line(t, "all", &t->all);
    if (!t->made) /* of a file */
        return;
    fprintf(f, "planned in %.1f us a layer", (double)t->plan_ns / 1e3 / (double)t->made);
    if (t->input->steps > 1)
        fprintf(f, "; %lld new plan%s after the first", (long long)t->replans,
                out_plural(t->replans));
    fputc('\n', f);
}

void plan_set_json(plan_tally *t)
{
    cli *c = t->c;
    const plan_strategy *s = &t->all;
    const double n = (double)s->layers;
    const int before = s->before_count == s->layers;
    json_t *o = json_object();
    out_set(
        c, o, "method",
        json_string(
            tess_option_find(TESS_OPTIONS_PLAN, "method")->words[t->given->opts.strategy.method]));
    out_set(c, o, "ranks", json_integer(t->given->opts.ranks));
    out_set(c, o, "layers", json_integer(t->input->layers));
    out_set(c, o, "steps", json_integer(t->input->steps));
    out_set(c, o, "rho_before_mean", out_number(before ? s->before_sum / n : NAN));
    out_set(c, o, "rho_before_max", out_number(before ? s->before_max : NAN));
    out_set(c, o, "rho_after_mean", out_number(s->after_sum / n));
    out_set(c, o, "rho_after_max", out_number(s->after_max));
    out_set(c, o, "kv_copies_mean", out_number(s->copies_sum / n));
    out_set(c, o, "replans", json_integer(t->replans));
    out_set(c, o, "predicted_ms",
            out_number(s->predicted_ms >= 0 ? s->predicted_ms / t->input->steps : NAN));
    out_set(c, o, "plan_us_mean",
            out_number(t->made ? (double)t->plan_ns / 1e3 / (double)t->made : NAN));
    out_set(c, c->json, "summary", o);
    out_set(c, c->json, "plans", t->plans);
    t->plans = NULL;
}
