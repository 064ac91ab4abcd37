/* SPDX-License-Identifier: Apache-2.0 */
/* sweep_main.c - all runs of a sweep, one after another, and their comparison.
 *
 * sweep.json in the folder has the options of train that hold for every run: a sweep that goes on
 * must have the same. A run that fails does not end the sweep; a trunk that fails takes its arms
 * with it.
 */
#include "cmd/cmd_compare.h"
#include "cmd_sweep.h"

#include "tessera/advanced/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tess_status check_usage(cli *c, const sweep_values *v)
{
    const train_values *t = &v->train;
    if (!v->out)
        return out_usage(c, "--out is missing, must be the folder of the sweep");
    if (t->resume)
        return out_usage(c, "--resume is no option of sweep: the same command again goes on");
    if (t->branch || t->until || t->trace_out)
        return out_usage(c, "%s is no option of sweep",
                         t->branch  ? "--branch"
                         : t->until ? "--until"
                                    : "--trace-out");
    if (c->ranks > 1)
        return out_usage(c, "a sweep makes its runs on one rank, was started on %d", c->ranks);
    return TESS_OK;
}

/* ---- sweep.json ------------------------------------------------------------------------------ */

static tess_status write_options(sweep_job *j, const char *path, const json_t *now)
{
    char *text = out_json(now);
    FILE *f = text ? fopen(path, "we") : NULL;
    int failed = !f || fputs(text, f) < 0;
    failed |= f && fclose(f) != 0;
    const int why = text ? errno : ENOMEM;
    free(text);
    return failed ? out_fail(j->c, TESS_EIO, "%s: cannot write: %s", path, strerror(why)) : TESS_OK;
}

/* The folder, with the options that were given; EINVAL if they were others before. */
static tess_status open_folder(sweep_job *j)
{
    char path[SWEEP_PATH];
    json_t *now = json_object(), *words = json_array();
    if (mkdir(j->v->out, 0777) != 0 && errno != EEXIST) {
        json_decref(now);
        json_decref(words);
        return out_fail(j->c, TESS_EIO, "%s: cannot create: %s", j->v->out, strerror(errno));
    }
    snprintf(path, sizeof path, "%s/sweep.json", j->v->out);
    for (int i = 0; i < j->n_words; i++)
        out_append(j->c, words, out_text(j->words[i]));
    out_set(j->c, now, "options", words);
    out_set(j->c, now, "trunk", json_integer(j->trunk));
    out_set(j->c, now, "init", j->v->init ? out_text(j->v->init) : json_null());
    json_t *before = json_load_file(path, 0, NULL);
    const tess_status status =
        !before ? write_options(j, path, now)
        : json_equal(before, now)
            ? TESS_OK
            : out_usage(j->c,
                        "%s has other options of train, a trunk or --init: must be the same, "
                        "or --out another folder",
                        path);
    json_decref(before);
    json_decref(now);
    return status;
}

/* ---- the runs -------------------------------------------------------------------------------- */

/* The last line of a run's log that is a sentence of the command. */
static void last_sentence(const sweep_run *r, char *text, size_t bytes)
{
    static const char who[] = "tessera train: ";
    char path[SWEEP_PATH + 8], line[1024];
    snprintf(path, sizeof path, "%s.log", r->path);
    snprintf(text, bytes, "%s.log has its output", r->name);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, who, sizeof who - 1) == 0) {
            line[strcspn(line, "\n")] = 0;
            snprintf(text, bytes, "%.400s", line + sizeof who - 1);
        }
    if (f)
        fclose(f);
}

static void say(const sweep_job *j, const sweep_run *r, const char *what)
{
    char text[768];
    snprintf(text, sizeof text, "%s (run %d of %u): %s", r->name, (int)(r - j->runs) + 1, j->n_runs,
             what);
    if (!j->c->common->quiet)
        out_log(j->c, r->failed ? TESS_LOG_WARN : TESS_LOG_INFO, text);
}

/* A run that did not reach its end. Arms of a trunk cannot begin without it. */
static void fail_run(sweep_job *j, sweep_run *r, int code)
{
    char why[480];
    last_sentence(r, why, sizeof why);
    if (code > 128)
        snprintf(why, sizeof why, "ended by signal %d", code - 128);
    r->failed = 1;
    say(j, r, why);
    if (!j->why[0])
        snprintf(j->why, sizeof j->why, "%s: %s", r->name, why);
    for (unsigned i = 0; i < j->n_runs && r->is_trunk; i++)
        j->runs[i].failed |= strcmp(j->runs[i].trunk, r->path) == 0;
}

static tess_status make_run(sweep_job *j, sweep_run *r)
{
    char text[128];
    int code = 0;
    if (r->failed)
        return TESS_OK;
    if (r->step >= r->end) {
        say(j, r, "complete");
        return TESS_OK;
    }
    const tess_status status = sweep_process(j, r, &code);
    if (status == TESS_ESTOPPED) {
        j->c->code = EXIT_SIGNAL + 2;
        return out_fail(j->c, status, "interrupted by a signal in %s; the same command goes on",
                        r->name);
    }
    TRY(status);
    if (code == 2) { /* a wrong option is wrong for all of them */
        last_sentence(r, j->why, sizeof j->why);
        return out_usage(j->c, "%s", j->why);
    }
    if (code != 0 || sweep_steps_done(j, r) < r->end) {
        fail_run(j, r, code);
        return TESS_OK;
    }
    snprintf(text, sizeof text, "step %lld, loss %.4f", (long long)r->step, r->loss);
    say(j, r, text);
    return TESS_OK;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static tess_status compare(sweep_job *j)
{
    const sweep_values *v = j->v;
    char page[SWEEP_PATH];
    int n = 0, dense = 0;
    tess_compare_run *runs = calloc(j->n_runs, sizeof *runs);
    if (!runs)
        return out_fail(j->c, TESS_ENOMEM, "no memory for the runs");
    for (unsigned i = 0; i < j->n_runs; i++)
        if (!j->runs[i].is_trunk && !j->runs[i].failed) {
            runs[n++] = (tess_compare_run){.path = j->runs[i].path};
            dense |= strcmp(j->runs[i].kind, "dense") == 0;
        }
    snprintf(page, sizeof page, "%s/compare.html", v->out);
    const tess_compare_opts opts = {.baseline = v->baseline ? v->baseline
                                                : dense     ? "dense"
                                                            : NULL,
                                    .margin = v->margin / 100,
                                    .confidence = v->confidence / 100};
    const tess_status status = n ? compare_write(j->c, runs, n, &opts, page) : TESS_OK;
    free(runs);
    return status;
}

static tess_status print_commands(const sweep_job *j)
{
    for (unsigned i = 0; i < j->n_runs; i++) {
        char **words = sweep_command(j, &j->runs[i]);
        if (!words)
            return out_fail(j->c, TESS_ENOMEM, "no memory for the commands");
        for (char **w = words; *w; w++)
            fprintf(j->c->out, "%s%s", *w, w[1] ? " " : "\n");
        sweep_words_free(words);
    }
    return TESS_OK;
}

static tess_status make_all(sweep_job *j)
{
    int failed = 0;
    TRY(sweep_plan(j));
    if (j->v->dry_run)
        return print_commands(j);
    TRY(open_folder(j));
    j->begun = tess_clock_ns();
    j->c->progress.hold = 1; /* a signal stops the run, which writes its checkpoint */
    for (unsigned i = 0; i < j->n_runs; i++)
        TRY(make_run(j, &j->runs[i]));
    j->c->progress.hold = 0;
    for (unsigned i = 0; i < j->n_runs; i++)
        failed += j->runs[i].failed;
    TRY(compare(j));
    return failed ? out_fail(j->c, TESS_EIO, "%d of %u runs failed, first %s", failed, j->n_runs,
                             j->why)
                  : TESS_OK;
}

tess_status sweep_main(cli *c, const sweep_values *v)
{
    sweep_job j = {.c = c, .v = v};
    tess_status status = check_usage(c, v);
    j.words = calloc((size_t)c->argc + 1, sizeof *j.words);
    if (status == TESS_OK && !j.words)
        status = out_fail(c, TESS_ENOMEM, "no memory for the options");
    if (status == TESS_OK) {
        j.n_words = opt_passed(c->cmd, c->argc, c->argv, j.words);
        status = make_all(&j);
    }
    free(j.runs);
    free(j.words);
    return status;
}
