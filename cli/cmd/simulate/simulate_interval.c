/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_interval.c - how far a predicted step and its memory may be off, and why. */
#include "cmd/cmd_simulate.h"

enum { SHOWN = 3 };

void simulate_fit_print(const simulate_job *j)
{
    static const char *const texts[] = {"does not fit", "fits", "may fit"};
    const tess_sim_memory *m = &j->r.memory;
    const tess_interval *i = &j->interval;
    FILE *f = j->c->out;
    if (i->fits != TESS_FIT_YES)
        fputs(out_style(j->c, STYLE_BAD), f);
    fprintf(f, "%s: ", texts[i->fits]);
    if (i->known)
        fprintf(f, "%.1f to %.1f", i->peak_low / SIMULATE_GIB, i->peak_high / SIMULATE_GIB);
    else
        fprintf(f, "%.1f", m->peak / SIMULATE_GIB);
    fprintf(f, " of %.0f GiB", m->capacity / SIMULATE_GIB);
    if (i->fits != TESS_FIT_YES)
        fprintf(f, ", largest part: %s%s", m->largest, out_style(j->c, STYLE_PLAIN));
    fputc('\n', f);
}

static void print_widest(const simulate_job *j, const char *what,
                         const tess_interval_input *residual, const tess_interval_input *inputs,
                         int n)
{
    fprintf(j->c->out, "%-8s %-14s %6.1f %%  %s; %s\n", what, residual->name, residual->pct,
            residual->about, residual->origin);
    for (int k = 0; k < n && k < SHOWN; k++)
        fprintf(j->c->out, "%-8s %-14s %6.1f %%  %s; %s\n", what, inputs[k].name, inputs[k].pct,
                inputs[k].about, inputs[k].origin);
}

void simulate_interval_print(const simulate_job *j)
{
    if (!j->interval.known)
        return;
    const tess_interval *i = &j->interval;
    fprintf(j->c->out, "\nsoftware: %s, %s\n", i->software,
            i->software_known             ? "whose runs were measured"
            : j->r.scenario.system.era[0] ? "of which no run was measured"
                                          : "by hardware and date, since system.era is not given");
    fprintf(j->c->out,
            "half of the intervals without inputs, and with each of the widest inputs by "
            "itself\n");
    print_widest(j, "step", &i->residual[0], i->step, i->n_step);
    print_widest(j, "memory", &i->residual[1], i->memory, i->n_memory);
}

static json_t *widest_json(cli *c, const tess_interval_input *inputs, int n)
{
    json_t *list = json_array();
    for (int k = 0; k < n && k < SHOWN; k++) {
        json_t *one = json_object();
        out_set(c, one, "name", out_text(inputs[k].name));
        out_set(c, one, "about", out_text(inputs[k].about));
        out_set(c, one, "pct", out_number(inputs[k].pct));
        out_set(c, one, "origin", out_text(inputs[k].origin));
        out_append(c, list, one);
    }
    return list;
}

void simulate_interval_json(const simulate_job *j)
{
    cli *c = j->c;
    const tess_interval *i = &j->interval;
    out_set(c, c->json, "fit", out_text(tess_fit_name(i->fits)));
    if (!i->known)
        return;
    json_t *widest = json_object();
    out_set(c, widest, "step", widest_json(c, i->step, i->n_step));
    out_set(c, widest, "memory", widest_json(c, i->memory, i->n_memory));
    out_set(c, c->json, "interval_pct", json_integer(TESS_INTERVAL_PCT));
    if (!j->r.clips) {
        out_set(c, c->json, "step_ms_low", out_number(1e3 * i->step_low_s));
        out_set(c, c->json, "step_ms_high", out_number(1e3 * i->step_high_s));
    }
    out_set(c, c->json, "memory_gib_low", out_number(i->peak_low / SIMULATE_GIB));
    out_set(c, c->json, "memory_gib_high", out_number(i->peak_high / SIMULATE_GIB));
    out_set(c, c->json, "widest", widest);
    out_set(c, c->json, "software", out_text(i->software));
    out_set(c, c->json, "software_measured", json_boolean(i->software_known));
}
