/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_job.c - a job file of another framework as the scenario, and what was made of it. */
#include "cmd/cmd_simulate.h"

#include <string.h>

/* Whether a --set gives this key; "model.name" and "model.config" give the model. */
static int is_set(const simulate_job *j, const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < j->given->set.n; i++)
        if (strncmp(j->given->set.items[i], key, n) == 0 && j->given->set.items[i][n] == '=')
            return 1;
    return 0;
}

int simulate_job_model(const simulate_job *j)
{
    return j->job && (is_set(j, "model.name") || is_set(j, "model.config"));
}

/* A job without a model cannot be simulated: the sentence is that of the key that names it. */
static tess_status check_model(const simulate_job *j, const tess_job_info *info)
{
    if (j->s.model.layers > 0)
        return TESS_OK;
    for (int i = 0; i < info->entries; i++) {
        tess_job_entry e;
        TRY(tess_job_entry_query(j->job, i, &e));
        if (e.kind == TESS_JOB_UNKNOWN && strncmp(e.key, "model.", 6) == 0)
            return out_usage(j->c, "%.200s: line %d: %.60s is \"%.60s\", %s", j->given->scenario,
                             e.line, e.key, e.given, e.why);
    }
    return out_usage(j->c, "%.200s: no model is named; use --set model.name=NAME",
                     j->given->scenario);
}

/* Settings of the command line come last, but for the model, which the file's seq belongs to. */
tess_status simulate_job_use(simulate_job *j)
{
    tess_job_info info;
    TRY(tess_job_query(j->job, &info));
    TRY(simulate_set(j, 1));
    TRY(tess_job_apply(j->c->ctx, j->job, simulate_job_model(j), &j->s));
    TRY(simulate_set(j, 0));
    TRY(check_model(j, &info));
    return tess_job_complete(j->job, &j->s);
}

/* ---- what was read --------------------------------------------------------------------------- */

/* An assumption that the command line replaced is none. */
static int is_shown(const simulate_job *j, const tess_job_entry *e, tess_job_kind kind)
{
    return e->kind == kind && !(kind == TESS_JOB_ASSUMED && is_set(j, e->setting));
}

void simulate_job_print(const simulate_job *j)
{
    static const struct {
        tess_job_kind kind;
        const char *title;
    } parts[] = {{TESS_JOB_ASSUMED, "assumed"},
                 {TESS_JOB_UNMODELLED, "not modelled"},
                 {TESS_JOB_UNKNOWN, "unknown"}};
    FILE *f = j->c->out;
    tess_job_info info;
    tess_job_entry e;
    int count[TESS_JOB_KINDS] = {0};
    if (!j->job || tess_job_query(j->job, &info) != TESS_OK)
        return;
    for (int i = 0; tess_job_entry_query(j->job, i, &e) == TESS_OK; i++)
        count[e.kind]++;
    fprintf(f, "read as %s: %d settings; %d keys without meaning for a step\n", info.framework,
            count[TESS_JOB_READ], count[TESS_JOB_IGNORED]);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (int i = 0; tess_job_entry_query(j->job, i, &e) == TESS_OK; i++) {
            char line[512], clean[512];
            if (!is_shown(j, &e, parts[p].kind))
                continue;
            if (e.kind == TESS_JOB_ASSUMED)
                snprintf(line, sizeof line, "%s%s%s: %s", e.setting, *e.value ? " = " : "", e.value,
                         e.why);
            else
                snprintf(line, sizeof line, "%.80s%s%.80s (line %d)%s%s", e.key,
                         *e.given ? " = " : "", e.given, e.line, *e.why ? ": " : "", e.why);
            fprintf(f, "  %-12s  ", parts[p].title);
            out_wrap(f, out_clean(line, clean, sizeof clean), 16, 16);
            fputc('\n', f);
        }
}

static json_t *entry_json(cli *c, const tess_job_entry *e)
{
    json_t *one = json_object();
    if (e->line) {
        out_set(c, one, "key", out_text(e->key));
        out_set(c, one, "given", out_text(e->given));
        out_set(c, one, "line", json_integer(e->line));
    }
    if (*e->setting) {
        out_set(c, one, "setting", out_text(e->setting));
        out_set(c, one, "value", out_text(e->value));
    }
    if (*e->why)
        out_set(c, one, "why", out_text(e->why));
    return one;
}

void simulate_job_json(const simulate_job *j)
{
    cli *c = j->c;
    tess_job_info info;
    tess_job_entry e;
    if (!j->job || tess_job_query(j->job, &info) != TESS_OK)
        return;
    json_t *all = json_object();
    out_set(c, all, "framework", out_text(info.framework));
    for (int kind = 0; kind < TESS_JOB_KINDS; kind++) {
        json_t *list = json_array();
        for (int i = 0; tess_job_entry_query(j->job, i, &e) == TESS_OK; i++)
            if (is_shown(j, &e, (tess_job_kind)kind))
                out_append(c, list, entry_json(c, &e));
        out_set(c, all, tess_job_kind_name((tess_job_kind)kind), list);
    }
    out_set(c, c->json, "job", all);
}
