/* SPDX-License-Identifier: Apache-2.0 */
/* train_records.c - the records of a run: its settings are those of its steps.
 *
 * A resumed run has its model and its data, so that other ones are refused; settings.json names the
 * weights that a run began with; a learning rate that does not continue is said.
 */
#include "train_job.h"

#include "tessera/advanced/step.h"

#include <string.h>

/* Folders with and without a slash at the end are the same. */
static int same_text(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    size_t n = strlen(a), m = strlen(b);
    while (n > 1 && a[n - 1] == '/')
        n--;
    while (m > 1 && b[m - 1] == '/')
        m--;
    return n == m && strncmp(a, b, n) == 0;
}

tess_status train_check_resume(const train_job *j)
{
    const train_values *v = j->v, *own = j->from->own;
    if (!v->resume || !own)
        return TESS_OK;
    const struct {
        const char *name, *is, *was;
    } fixed[] = {{"preset", v->preset, own->preset},
                 {"config", v->config, own->config},
                 {"data", v->data.source, own->data.source}};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const char *name = fixed[i].name;
        const int known = train_settings_has(j->from, name);
        if (!train_settings_given(j->c, j->from, name) ||
            (known && same_text(fixed[i].is, fixed[i].was)))
            continue;
        if (known)
            return out_usage(j->c,
                             "--%s is %.80s, the run in %.200s has %.80s, which --resume keeps",
                             name, fixed[i].is, v->out, fixed[i].was);
        return out_usage(j->c, "--%s is %.80s, the model of the run in %.200s is %.200s", name,
                         fixed[i].is, v->out,
                         own->init     ? own->init
                         : own->config ? own->config
                                       : own->preset);
    }
    return TESS_OK;
}

char *train_record_text(const train_job *j)
{
    train_values record = *j->v;
    if (!record.data.sizes) { /* latents have sides of their own */
        record.data.frames = j->info.frames;
        record.data.height = j->info.height * j->info.pack;
        record.data.width = j->info.width * j->info.pack;
    }
    if (j->branched)
        record.init = NULL; /* of the run that it branches off */
    else if (record.init && !j->resumed)
        record.init = j->start;
    if (record.init || record.config)
        record.preset = NULL;
    if (record.init)
        record.config = NULL;
    return train_settings_text(j->c->cmd, &record);
}

void train_say_schedule(const train_job *j, int64_t step)
{
    const train_values *own = j->from->own;
    char text[256];
    if (!own || step < 1 || step >= j->opts.steps || j->c->common->quiet)
        return;
    const double was = own->opts.lr * tess_train_schedule(&own->opts, step);
    const double last = own->opts.lr * tess_train_schedule(&own->opts, step - 1);
    const double now = j->opts.lr * tess_train_schedule(&j->opts, step);
    if (step < own->opts.steps && now == was)
        return;
    const int used =
        snprintf(text, sizeof text,
                 "the learning rate does not continue as planned: %.3g in step %lld, %.3g "
                 "in step %lld",
                 last, (long long)step, now, (long long)step + 1);
    if (j->opts.steps != own->opts.steps)
        snprintf(text + used, sizeof text - (size_t)used, "; --steps is %lld, was %lld",
                 (long long)j->opts.steps, (long long)own->opts.steps);
    out_log(j->c, TESS_LOG_INFO, text);
}
