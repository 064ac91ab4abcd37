/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c - tessera report: the page of a training run, once or while the run goes on. */
#include "commands.h"
#include "tessera/advanced/machine.h"
#include "tessera/advanced/run_report.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct {
    common common;
    const char *run, *out;
    int watch;
    int64_t every, idle;
} values;

/* ---- a run that goes on ---------------------------------------------------------------------- */

/* Bytes of the metrics; -1: there are none yet. */
static int64_t recorded(const char *run)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static tess_status check_folder(cli *c, const char *run)
{
    struct stat st;
    if (stat(run, &st) != 0)
        return out_fail(c, TESS_EIO, "%s: cannot open: %s", run, strerror(errno));
    return S_ISDIR(st.st_mode) ? TESS_OK
                               : out_fail(c, TESS_EIO, "%s: must be the folder of a run", run);
}

static void show(cli *c, const tess_run_report_info *info)
{
    char text[128];
    if (info->steps > 0)
        snprintf(text, sizeof text, "step %lld of %lld", (long long)info->step,
                 (long long)info->steps);
    else
        snprintf(text, sizeof text, "step %lld", (long long)info->step);
    progress_line(c, text);
}

/* Writes the page whenever steps were added, at most every --every seconds, until the last step, a
 * signal, or --idle seconds without one. The last page does not load itself again. */
static tess_status watch(cli *c, const values *v, const char *path)
{
    static const struct timespec moment = {.tv_nsec = 200000000};
    const int64_t second = 1000000000, every = v->every * second, idle = v->idle * second;
    tess_run_report_info info = {0};
    int64_t bytes = 0, written = 0, changed = tess_clock_ns();
    TRY(check_folder(c, v->run));
    c->progress.hold = 1; /* a signal ends the watch, with a page */
    while (!signals_caught() && (info.steps == 0 || info.step < info.steps)) {
        const int64_t now = tess_clock_ns(), size = recorded(v->run);
        if (size > 0 && size != bytes && now - written >= every) {
            TRY(tess_run_report_write(c->ctx, v->run, path, (int)v->every, &info));
            show(c, &info);
            bytes = size;
            written = changed = now;
        }
        if (now - changed > idle)
            break;
        nanosleep(&moment, NULL);
    }
    progress_clear(c);
    const tess_status status = tess_run_report_write(c->ctx, v->run, path, 0, &info);
    c->progress.hold = 0;
    return status;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    char path[PATH_MAX], clean[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", v->out ? v->out : v->run,
                 v->out ? "" : "/report.html") >= (int)sizeof path)
        return out_usage(c, "RUN is \"%.80s...\", the path is too long", v->run);
    TRY(v->watch ? watch(c, v, path) : tess_run_report_write(c->ctx, v->run, path, 0, NULL));
    if (c->json)
        out_set(c, c->json, "page", out_text(path));
    else
        fprintf(c->out, "%s\n", out_clean(path, clean, sizeof clean));
    return TESS_OK;
}

static const opt arguments[] = {
    {"RUN", 0, OPT_PATH, offsetof(values, run), .required = 1,
     .help = "the folder of a training run, finished or not"},
};

static const opt options[] = {
    {"out", 'o', OPT_PATH, offsetof(values, out), "FILE",
     .help = "where to write the page; report.html in the run's folder unless given"},
    {"watch", 0, OPT_FLAG, offsetof(values, watch),
     .help = "write the page again while the run goes on, until its last step or Ctrl-C; the page "
             "loads itself again"},
    {"every", 0, OPT_INT, offsetof(values, every), "SECONDS", "10", .min = 1, .max = 86400,
     .unit = "seconds", .help = "with --watch: least time between two pages"},
    {"idle", 0, OPT_INT, offsetof(values, idle), "SECONDS", "600", .min = 1, .max = 1e7,
     .unit = "seconds",
     .help = "with --watch: time without a step after which the run counts as ended"},
};

static const example examples[] = {
    {"tessera report runs/shapes", "writes runs/shapes/report.html"},
    {"tessera report --watch runs/shapes", "keeps it up to date while the run goes on"},
};

const command command_report = {
    .name = "report",
    .summary = "make a page of a training run",
    .description = "Writes one HTML file that loads nothing from elsewhere: the loss, the "
                   "validation loss by noise level, the time of a step by part, samples as they "
                   "improved, and the settings. With --json the result has the member page, the "
                   "file's path.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
