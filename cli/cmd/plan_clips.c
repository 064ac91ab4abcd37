/* SPDX-License-Identifier: Apache-2.0 */
/* plan_clips.c - tessera plan --clips: the clips of a training step, of any sizes, on ranks. */
#include "cmd_plan.h"

#include "tessera/advanced/machine.h"
#include "tessera/advanced/mix_report.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 16 }; /* of the table */

typedef struct {
    cli *c;
    const plan_values *given;
    tess_cluster *cluster;
    int32_t *speeds;
    tess_mix *mix;
    tess_mix_plan *plan;
    tess_mix_view v;
    int64_t plan_ns;
} mixture;

/* ---- options --------------------------------------------------------------------------------- */

static const char *of_one_clip(const plan_values *v)
{
    return v->density                   ? "--density"
           : v->mask                    ? "--mask"
           : v->column                  ? "--column"
           : v->tiles                   ? "--tiles"
           : v->out                     ? "--out"
           : v->tokens                  ? "--tokens"
           : v->reuse                   ? "--reuse"
           : !isnan(v->replan_above)    ? "--replan-above"
           : v->layer >= 0              ? "--layer"
           : v->step >= 0               ? "--step"
           : v->opts.union_share > 0    ? "--union"
           : v->opts.strategy.method    ? "--method"
           : v->opts.strategy.ulysses   ? "--ulysses"
           : v->opts.strategy.ring      ? "--ring"
           : v->opts.strategy.selective ? "--selective"
                                        : NULL;
}

tess_status plan_clips_unused(cli *c, const plan_values *v)
{
    const char *const name = v->steps         ? "--steps"
                             : v->width       ? "--width"
                             : v->heads       ? "--heads"
                             : v->ffn         ? "--ffn"
                             : v->layers      ? "--layers"
                             : v->whole_clips ? "--whole-clips"
                                              : NULL;
    return name ? out_usage(c, "%s belongs to a mixture of clips, needs --clips", name) : TESS_OK;
}

/* KnapFormer's codes begin with g and a digit; a file of such a name is given with its folder. */
static int is_code(const char *text)
{
    return text[0] == 'g' && isdigit((unsigned char)text[1]) && !strchr(text, '.') &&
           !strchr(text, '/');
}

static tess_status read_clips(mixture *m, const tess_mix_opts *o)
{
    const plan_values *v = m->given;
    if (is_code(v->clips))
        return out_option(m->c, "--clips",
                          tess_mix_parse(m->c->ctx, v->clips, o->ranks, o->steps, &m->mix));
    return tess_mix_open(m->c->ctx, v->clips, &m->mix);
}

static tess_mix_opts options_of(const mixture *m)
{
    const plan_values *v = m->given;
    tess_mix_opts o = TESS_MIX_OPTS_INIT;
    o.ranks = v->opts.ranks;
    o.nodes = v->opts.nodes;
    o.steps = v->steps ? (int)v->steps : o.steps;
    o.width = v->width ? (int)v->width : o.width;
    o.heads = (int)v->heads;
    o.ffn = (int)v->ffn;
    o.layers = v->layers ? (int)v->layers : o.layers;
    o.group = (int32_t)v->group;
    o.pass = v->opts.pass;
    o.memory = isnan(v->memory) ? 0 : (int64_t)(v->memory * 1073741824.0);
    o.whole_clips = v->whole_clips;
    o.speeds = m->speeds;
    return o;
}

/* ---- output ---------------------------------------------------------------------------------- */

static int64_t clips_of_step(const tess_mix_view *v, int step)
{
    int64_t n = 0;
    const int64_t begin = v->first[(int64_t)step * v->ranks],
                  end = v->first[(int64_t)(step + 1) * v->ranks];
    for (int64_t i = begin; i < end; i++) {
        const tess_mix_part *p = &v->parts[i];
        n += p->token_begin == 0 && p->begin == 0 && (p->token_end > 0 || p->end > 0);
    }
    return n;
}

static int64_t most_memory(const tess_mix_view *v, int step)
{
    int64_t most = 0;
    for (int p = 0; p < v->ranks; p++) {
        const int64_t bytes = v->rank[(int64_t)step * v->ranks + p].memory;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void print_steps(const mixture *m)
{
    const tess_mix_view *v = &m->v;
    FILE *f = m->c->out;
    fprintf(f, "%6s %8s %17s %8s %12s %10s\n", "", "", "imbalance", "", "memory", "ms a");
    fprintf(f, "%6s %8s %8s %8s %8s %12s %10s\n", "step", "clips", "before", "after", "parts",
            "at most", "step");
    for (int s = 0; s < v->steps && s < LINES; s++) {
        char memory[32], time[32] = "-";
        const int64_t parts =
            v->first[(int64_t)(s + 1) * v->ranks] - v->first[(int64_t)s * v->ranks];
        if (m->cluster)
            snprintf(time, sizeof time, "%.3f", v->step[s].time / 1e6);
        fprintf(f, "%6d %8lld %8.3f %8.3f %8lld %12s %10s\n", s, (long long)clips_of_step(v, s),
                v->step[s].rho_before, v->step[s].rho, (long long)parts,
                out_bytes(most_memory(v, s), memory), time);
    }
    if (v->steps > LINES)
        fprintf(f, "and %d steps more\n", v->steps - LINES);
}

/* What each rank of the first step has; times as fractions of the slowest rank's. */
static void print_ranks(const mixture *m)
{
    const tess_mix_view *v = &m->v;
    FILE *f = m->c->out;
    double slowest = v->step[0].time;
    fprintf(f, "%6s %6s %5s %8s %10s %12s  %s\n", "rank", "whole", "cut", "tokens", "memory",
            "sent a layer", m->cluster ? "compute, exchange" : "compute");
    for (int p = 0; p < v->ranks; p++) {
        const tess_mix_rank *r = &v->rank[p];
        char memory[32], sent[32];
        int64_t whole = 0, cut = 0;
        for (int64_t i = v->first[p]; i < v->first[p + 1]; i++) {
            int64_t n;
            const tess_mix_part *part = &v->parts[i];
            const int64_t tokens = tess_mix_clips(m->mix, &n)[part->clip].tokens;
            if (part->token_end - part->token_begin == tokens)
                whole++;
            else
                cut++;
        }
        fprintf(f, "%6d %6lld %5lld %8lld %10s %12s  %5.1f %%", p, (long long)whole, (long long)cut,
                (long long)r->tokens, out_bytes(r->memory, memory), out_bytes(r->sent, sent),
                100.0 * r->compute / slowest);
        if (m->cluster)
            fprintf(f, ", %4.1f %%", 100.0 * (double)r->exchange / slowest);
        fputc('\n', f);
    }
}

static void print_all(const mixture *m)
{
    const tess_mix_view *v = &m->v;
    FILE *f = m->c->out;
    int64_t n, least = INT64_MAX, most = 0;
    const tess_mix_clip *clips = tess_mix_clips(m->mix, &n);
    for (int64_t i = 0; i < n; i++) {
        least = clips[i].tokens < least ? clips[i].tokens : least;
        most = clips[i].tokens > most ? clips[i].tokens : most;
    }
    fprintf(f, "%lld clip%s of %lld to %lld tokens, %d rank%s, %d step%s\n", (long long)n,
            out_plural(n), (long long)least, (long long)most, v->ranks, out_plural(v->ranks),
            v->steps, out_plural(v->steps));
    print_steps(m);
    if (m->given->explain)
        print_ranks(m);
    if (v->cut_clips)
        fprintf(f, "%lld clip%s cut, into %lld parts", (long long)v->cut_clips,
                v->cut_clips == 1 ? " is" : "s are", (long long)(v->cut_clips + v->cuts));
    else
        fprintf(f, "no clip is cut");
    if (v->far_clips)
        fprintf(f, "; %lld of them over several nodes", (long long)v->far_clips);
    fprintf(f, "\nplanned in %.1f us a step\n", (double)m->plan_ns / 1e3 / v->steps);
}

static void set_json(const mixture *m)
{
    const tess_mix_view *v = &m->v;
    cli *c = m->c;
    json_t *o = json_object(), *all = json_array();
    out_set(c, o, "method", json_string("clips"));
    out_set(c, o, "ranks", json_integer(v->ranks));
    out_set(c, o, "steps", json_integer(v->steps));
    out_set(c, o, "clips", json_integer(v->clips));
    out_set(c, o, "cut_clips", json_integer(v->cut_clips));
    out_set(c, o, "cuts", json_integer(v->cuts));
    out_set(c, o, "far_clips", json_integer(v->far_clips));
    out_set(c, o, "rho_before_mean", out_number(v->rho_before_mean));
    out_set(c, o, "rho_before_max", out_number(v->rho_before_max));
    out_set(c, o, "rho_after_mean", out_number(v->rho_mean));
    out_set(c, o, "rho_after_max", out_number(v->rho_max));
    out_set(c, o, "memory", json_integer(v->memory));
    out_set(c, o, "predicted_ms", out_number(m->cluster ? v->predicted_ms : NAN));
    out_set(c, o, "plan_us_mean", out_number((double)m->plan_ns / 1e3 / v->steps));
    out_set(c, c->json, "summary", o);
    for (int64_t i = 0; i < v->n_parts; i++) {
        const tess_mix_part *p = &v->parts[i];
        const int64_t numbers[] = {p->step,      p->rank,  p->clip, p->token_begin,
                                   p->token_end, p->begin, p->end};
        json_t *row = json_array();
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            out_append(c, row, json_integer(numbers[k]));
        out_append(c, all, row);
    }
    out_set(c, c->json, "assignment", all);
}

static tess_status write_page(const mixture *m)
{
    const plan_values *v = m->given;
    char *line = out_command(m->c);
    int64_t n;
    if (!line)
        return out_fail(m->c, TESS_ENOMEM, "no memory for the command line");
    const tess_mix_clip *clips = tess_mix_clips(m->mix, &n);
    const char *slash = is_code(v->clips) ? NULL : strrchr(v->clips, '/');
    const tess_mix_report_opts opts = {
        .input = slash ? slash + 1 : v->clips, .cluster = v->cluster, .command = line};
    const tess_status status = tess_mix_report_write(m->c->ctx, m->plan, clips, n, &opts, v->html);
    free(line);
    return status;
}

/* ---- run ------------------------------------------------------------------------------------- */

static tess_status make(mixture *m)
{
    const plan_values *v = m->given;
    cli *c = m->c;
    int64_t n;
    const char *const other = of_one_clip(v);
    if (other)
        return out_usage(c, "%s belongs to a plan of one clip, excludes --clips", other);
    TRY(plan_speeds(c, v, &m->speeds));
    if (v->cluster)
        TRY(plan_cluster(c, v, &m->cluster));
    const tess_mix_opts o = options_of(m);
    TRY(read_clips(m, &o));
    const tess_mix_clip *clips = tess_mix_clips(m->mix, &n);
    const int64_t begin = tess_clock_ns();
    TRY(tess_mix_plan_create(c->ctx, clips, n, m->cluster, &o, &m->plan));
    m->plan_ns = tess_clock_ns() - begin;
    return tess_mix_plan_query(m->plan, &m->v);
}

tess_status plan_clips_run(cli *c, const plan_values *v)
{
    mixture m = {.c = c, .given = v};
    tess_status status = make(&m);
    if (status == TESS_OK && v->html)
        status = write_page(&m);
    if (status == TESS_OK && c->json)
        set_json(&m);
    else if (status == TESS_OK)
        print_all(&m);
    if (status == TESS_OK && v->html && !c->json)
        fprintf(c->out, "%s: the page\n", v->html);
    tess_mix_plan_destroy(m.plan);
    tess_mix_destroy(m.mix);
    tess_cluster_destroy(m.cluster);
    free(m.speeds);
    return out_input(c, status);
}
