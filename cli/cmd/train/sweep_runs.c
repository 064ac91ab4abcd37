/* SPDX-License-Identifier: Apache-2.0 */
/* sweep_runs.c - the runs of a sweep: their names, order and commands, and how far they are.
 *
 *   trunk-0  dense-0  dsv-0  window-0  trunk-1  dense-1 ...
 *
 * A trunk is dense and ends early in the schedule of the whole run (--until), so that a dense arm
 * has the bits of one dense run. With dsv among the kinds the trunk's predictors learn, which does
 * not touch the model; its tokens lie in cubes then, and sums have another order. A run that has a
 * checkpoint is resumed.
 */
#define _GNU_SOURCE /* vasprintf */
#include "cmd_sweep.h"
#include "commands.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- the runs -------------------------------------------------------------------------------- */

static const opt *train_option(const char *name)
{
    const opt *o = command_train.options;
    while (strcmp(o->name, name) != 0)
        o++;
    return o;
}

/* The next kind of the list, *at moves behind it; NULL at the end or if it is none. */
static const char *next_kind(const char **at)
{
    const char *const *kinds = opt_choices(train_option("attention"));
    const size_t n = strcspn(*at, ",");
    for (int i = 0; kinds[i]; i++)
        if (strlen(kinds[i]) == n && memcmp(kinds[i], *at, n) == 0) {
            *at += n + ((*at)[n] == ',' && (*at)[n + 1]);
            return kinds[i];
        }
    return NULL;
}

enum { KINDS = 16 };

static tess_status read_kinds(sweep_job *j, const char *kinds[KINDS], int *n)
{
    char rule[256];
    const char *list = j->v->attention;
    if (!list)
        return out_usage(j->c, "--attention is missing, must be kinds such as dense,dsv,window");
    for (const char *at = list; *at;) {
        const char *kind = next_kind(&at);
        opt_rule(train_option("attention"), rule, sizeof rule);
        if (!kind)
            return out_usage(j->c,
                             "--attention is \"%.80s\", must be kinds with commas between: %s",
                             list, rule);
        for (int i = 0; i < *n; i++)
            if (kinds[i] == kind)
                return out_usage(j->c, "--attention has %s twice, must have each kind once", kind);
        kinds[(*n)++] = kind;
    }
    return TESS_OK;
}

static tess_status add_run(sweep_job *j, const char *kind, int64_t seed, int64_t end,
                           const char *trunk)
{
    sweep_run *r = &j->runs[j->n_runs++];
    *r = (sweep_run){.kind = kind, .seed = seed, .end = end, .is_trunk = kind == NULL};
    snprintf(r->name, sizeof r->name, "%s-%lld", kind ? kind : "trunk", (long long)seed);
    if (snprintf(r->path, sizeof r->path, "%s/%s", j->v->out, r->name) >= (int)sizeof r->path - 8)
        return out_usage(j->c, "--out is \"%.80s...\", the path is too long", j->v->out);
    snprintf(r->trunk, sizeof r->trunk, "%s", trunk);
    r->first = r->step = sweep_steps_done(j, r);
    return TESS_OK;
}

tess_status sweep_plan(sweep_job *j)
{
    const sweep_values *v = j->v;
    const char *kinds[KINDS];
    int n = 0, learns = 0;
    TRY(read_kinds(j, kinds, &n));
    for (int i = 0; i < n; i++)
        learns |= strcmp(kinds[i], "dsv") == 0;
    j->trunk = v->trunk < 0 ? v->train.opts.steps / 2 : v->trunk;
    if (j->trunk >= v->train.opts.steps)
        return out_usage(j->c, "--trunk is %lld, must be less than --steps, %lld",
                         (long long)j->trunk, (long long)v->train.opts.steps);
    j->runs = calloc((size_t)v->seeds * (size_t)(n + 1), sizeof *j->runs);
    if (!j->runs)
        return out_fail(j->c, TESS_ENOMEM, "no memory for the runs");
    for (int64_t s = 0; s < v->seeds; s++) {
        const int64_t seed = v->train.common.seed + s;
        const char *trunk = "";
        if (j->trunk > 0) {
            TRY(add_run(j, NULL, seed, j->trunk, ""));
            j->runs[j->n_runs - 1].kind = learns ? "dsv" : "dense";
            trunk = j->runs[j->n_runs - 1].path;
        }
        for (int i = 0; i < n; i++)
            TRY(add_run(j, kinds[i], seed, v->train.opts.steps, trunk));
    }
    return TESS_OK;
}

int64_t sweep_steps_done(const sweep_job *j, const sweep_run *r)
{
    char path[SWEEP_PATH];
    tess_checkpoint checkpoint;
    if (tess_checkpoint_find(j->c->ctx, r->path, path, sizeof path) != TESS_OK ||
        tess_checkpoint_read(j->c->ctx, path, &checkpoint) != TESS_OK)
        return 0;
    return checkpoint.step;
}

/* ---- commands -------------------------------------------------------------------------------- */

typedef struct {
    char **words;
    int n, failed;
} list;

enum { OWN_WORDS = 32 }; /* room for the words that a run adds */

__attribute__((format(printf, 2, 3))) static void add(list *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (vasprintf(&l->words[l->n], format, args) < 0) {
        l->words[l->n] = NULL;
        l->failed = 1;
    } else {
        l->n++;
    }
    va_end(args);
}

static int is_given(const sweep_job *j, const char *option)
{
    const size_t n = strlen(option);
    for (int i = 0; i < j->n_words; i++)
        if (strncmp(j->words[i], option, n) == 0 && (!j->words[i][n] || j->words[i][n] == '='))
            return 1;
    return 0;
}

/* When layers become sparse: never in a trunk; in an arm of it as the user wrote, else at once or
 * by the default rule, not by those of its trunk. */
static void add_switch(const sweep_job *j, const sweep_run *r, list *l)
{
    if (r->is_trunk && strcmp(r->kind, "dsv") == 0) {
        add(l, "--switch=step");
        add(l, "--switch-step=1000000000");
    } else if (!r->is_trunk && j->trunk > 0) {
        if (!is_given(j, "--switch"))
            add(l, "--switch=%s", train_option("switch")->initial);
        if (!is_given(j, "--switch-step"))
            add(l, "--switch-step=%lld", (long long)j->trunk);
    }
}

/* Where it begins: its own checkpoint, its trunk, or --init. */
static void add_start(const sweep_job *j, const sweep_run *r, list *l)
{
    if (sweep_steps_done(j, r) > 0)
        add(l, "--resume");
    else if (r->trunk[0])
        add(l, "--branch=%s", r->trunk);
    else if (j->v->init)
        add(l, "--init=%s", j->v->init);
}

char **sweep_command(const sweep_job *j, const sweep_run *r)
{
    const common *given = j->c->common;
    list l = {.words = calloc((size_t)j->n_words + OWN_WORDS, sizeof(char *))};
    if (!l.words)
        return NULL;
    add(&l, "tessera");
    add(&l, "train");
    for (int i = 0; i < j->n_words; i++)
        add(&l, "%s", j->words[i]);
    add(&l, "--attention=%s", r->kind);
    add_switch(j, r, &l);
    if (r->is_trunk)
        add(&l, "--until=%lld", (long long)r->end);
    add(&l, "--seed=%lld", (long long)r->seed);
    if (given->threads)
        add(&l, "--threads=%lld", (long long)given->threads);
    if (given->isa)
        add(&l, "--isa=%s", given->isa);
    if (given->verbose)
        add(&l, "--verbose");
    add_start(j, r, &l);
    add(&l, "--out=%s", r->path);
    if (!l.failed)
        return l.words;
    sweep_words_free(l.words);
    return NULL;
}

void sweep_words_free(char **words)
{
    for (char **w = words; words && *w; w++)
        free(*w);
    free(words);
}
