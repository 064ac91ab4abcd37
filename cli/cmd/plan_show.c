/* SPDX-License-Identifier: Apache-2.0 */
/* plan_show.c - tessera plan PLAN.json: a plan that was written before, printed, explained, checked
 * with masks or a profile, and drawn. */
#include "cmd_plan.h"

#include "tessera/advanced/explain.h"
#include "tessera/advanced/plan_file.h"
#include "tessera/report.h"

#include <string.h>

typedef struct {
    cli *c;
    const plan_values *given;
    tess_plan_file *file;
    tess_plan_file_view v;
    tess_plan_info info;
    tess_profile *profile; /* of --check */
    tess_profile_view densities;
} shown;

/* ---- work ------------------------------------------------------------------------------------ */

static tess_status work_of_masks(const shown *s, tess_work **work)
{
    const tess_plan_info *info = &s->info;
    if (info->bounds_q || info->bounds_k)
        return out_usage(s->c, "--check: the plan has blocks of unequal sizes, masks have not");
    const tess_mask_opts opts = {.group = info->group,
                                 .unit = info->unit,
                                 .tokens_q = info->tokens_q,
                                 .tokens_k = info->tokens_k};
    TRY(plan_check_masks(s->c, "--check", s->given->check));
    return tess_work_load(s->c->ctx, s->given->check, &opts, work);
}

static tess_status work_of_profile(const shown *s, int i, tess_work **work)
{
    const tess_profile_view *p = &s->densities;
    int at = p->steps == 1 ? 0 : -1;
    for (int k = 0; k < p->steps; k++)
        at = p->step[k] == s->v.step[i] ? k : at;
    if (at < 0)
        return out_usage(s->c, "--check: %s has no step %lld, which the plan has", s->given->check,
                         (long long)s->v.step[i]);
    return tess_work_from_density(s->c->ctx, p->density + (int64_t)at * p->layers * p->heads,
                                  p->layers, p->heads, s->info.tokens_q, s->info.group, work);
}

/* The work of a step, from --check; else NULL, or for a page the loads that the file has. */
static tess_status work_of(const shown *s, int i, tess_work **work)
{
    *work = NULL;
    if (s->profile)
        TRY(work_of_profile(s, i, work));
    else if (s->given->check)
        TRY(work_of_masks(s, work));
    else if (s->given->html)
        return tess_plan_file_work(s->file, i, work);
    if (!*work)
        return TESS_OK;
    const tess_status status = tess_plan_check(s->v.plan[i], *work);
    if (status != TESS_OK) {
        tess_work_destroy(*work);
        *work = NULL;
        return out_option(s->c, "--check", status);
    }
    return TESS_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_origin(const shown *s)
{
    const tess_plan_origin *o = &s->v.origin;
    FILE *f = s->c->out;
    fprintf(f, "%s: %d heads, %lld tokens in blocks of %d, pass %s\n", s->given->file,
            s->info.heads, (long long)s->info.tokens_q, s->info.group,
            tess_plan_pass_name(s->info.pass));
    if (o->command)
        fprintf(f, "command  %s\n", o->command);
    if (o->source)
        fprintf(f, "source   %s, hash %s\n", o->source, o->source_hash);
    if (o->cluster)
        fprintf(f, "cluster  %s\n", o->cluster);
}

/* A line for each layer, and why the second best strategy lost. */
static tess_status print_layers(const shown *s, int i)
{
    FILE *f = s->c->out;
    fprintf(f, "step %lld\n%6s %-24s %9s %8s %8s\n", (long long)s->v.step[i], "layer", "strategy",
            "imbalance", "copies", "ms");
    for (int k = 0; k < s->info.layers; k++) {
        tess_plan_layer view;
        char text[TESS_STRATEGY_TEXT], time[32] = "-";
        TRY(tess_plan_layer_view(s->v.plan[i], k, &view));
        tess_strategy_format(&view.strategy, text);
        if (view.predicted_ns >= 0)
            snprintf(time, sizeof time, "%.3f", (double)view.predicted_ns / 1e6);
        fprintf(f, "%6lld %-24s %9.3f %8.2f %8s\n", (long long)(s->v.origin.first_layer + k), text,
                view.rho[TESS_RHO_RING], view.kv_copies, time);
        const char *second = s->v.runner_up[(int64_t)i * s->info.layers + k];
        if (second[0]) {
            fprintf(f, "%6s ", "");
            out_wrap(f, second, 7, 9);
            fputc('\n', f);
        }
    }
    return TESS_OK;
}

/* Counts, explains and draws one step. */
static tess_status add_step(const shown *s, int i, plan_tally *t, tess_plan_report *report)
{
    tess_work *work;
    TRY(work_of(s, i, &work));
    tess_status status = TESS_OK;
    const int fresh = i == 0 || s->v.plan[i] != s->v.plan[i - 1];
    if (s->given->explain && !s->c->json && fresh)
        status = print_layers(s, i);
    if (status == TESS_OK)
        status =
            plan_tally_step(t, s->v.step[i], fresh, s->v.plan[i], s->given->check ? work : NULL);
    if (status == TESS_OK && report)
        status = tess_plan_report_add(report, s->v.step[i], s->v.plan[i], work);
    tess_work_destroy(work);
    t->replans += fresh && i > 0;
    return status;
}

static tess_status show(shown *s)
{
    const plan_values *v = s->given;
    cli *c = s->c;
    plan_values facts = *v;
    plan_input input = {.given = &facts,
                        .steps = s->v.steps,
                        .layers = s->info.layers,
                        .layer = (int)s->v.origin.first_layer,
                        .heads = s->info.heads};
    facts.opts.ranks = s->info.ranks;
    plan_tally t = {
        .c = c, .given = &facts, .input = &input, .plans = c->json ? json_array() : NULL};
    tess_plan_report *report = NULL;
    tess_status status = TESS_OK;
    if (v->html)
        status =
            tess_plan_report_create(c->ctx,
                                    &(tess_plan_report_opts){.first_layer = s->v.origin.first_layer,
                                                             .command = s->v.origin.command,
                                                             .input = s->v.origin.source,
                                                             .cluster = s->v.origin.cluster},
                                    &report);
    if (!c->json)
        print_origin(s);
    for (int i = 0; status == TESS_OK && i < s->v.steps; i++)
        status = add_step(s, i, &t, report);
    if (status == TESS_OK && v->html)
        status = tess_plan_report_write(report, v->html);
    if (status == TESS_OK && c->json)
        plan_set_json(&t);
    else if (status == TESS_OK)
        plan_print(&t);
    if (status == TESS_OK && v->check && !c->json)
        fprintf(c->out,
                "%s: the plan computes every block of it once; the imbalance is that of "
                "this work\n",
                v->check);
    if (status == TESS_OK && v->html && !c->json)
        fprintf(c->out, "%s: the page\n", v->html);
    json_decref(t.plans);
    tess_plan_report_destroy(report);
    return status;
}

static tess_status open_all(shown *s)
{
    const plan_values *v = s->given;
    const char *const other = v->density ? "--density"
                              : v->mask  ? "--mask"
                              : v->clips ? "--clips"
                              : v->out   ? "--out"
                              : v->reuse ? "--reuse"
                                         : NULL;
    if (other)
        return out_usage(s->c, "%s makes a new plan, excludes PLAN.json", other);
    TRY(plan_check_plan(s->c, v->file));
    TRY(tess_plan_file_open(s->c->ctx, v->file, &s->file));
    TRY(tess_plan_file_query(s->file, &s->v));
    TRY(tess_plan_query(s->v.plan[0], &s->info));
    if (v->tiles && !v->check)
        return out_usage(s->c, "--tiles belongs to a profile, needs --check");
    if (!v->check || (!plan_ends_in(v->check, ".csv") && !v->tiles))
        return TESS_OK;
    TRY(plan_open_profile(s->c, v, v->check, &s->profile));
    return tess_profile_query(s->profile, &s->densities);
}

/* Every step of the plan computes the work of --check; said before anything is printed. */
static tess_status check_all(const shown *s)
{
    for (int i = 0; s->given->check && i < s->v.steps; i++) {
        tess_work *work;
        TRY(work_of(s, i, &work));
        tess_work_destroy(work);
    }
    return TESS_OK;
}

tess_status plan_show_run(cli *c, const plan_values *v)
{
    shown s = {.c = c, .given = v};
    tess_status status = open_all(&s);
    if (status == TESS_OK)
        status = check_all(&s);
    if (status == TESS_OK)
        status = show(&s);
    tess_profile_close(s.profile);
    tess_plan_file_destroy(s.file);
    return out_input(c, status);
}
