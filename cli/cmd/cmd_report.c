/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_report.c - tessera report: the page of a training run. */
#include "commands.h"
#include "tessera/report.h"

#include <limits.h>

typedef struct {
    common common;
    const char *run, *out;
} values;

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    char path[PATH_MAX], clean[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", v->out ? v->out : v->run,
                 v->out ? "" : "/report.html") >= (int)sizeof path)
        return out_usage(c, "RUN is \"%.80s...\", the path is too long", v->run);
    TRY(tess_report_run(c->ctx, v->run, path));
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
};

static const example examples[] = {
    {"tessera report runs/shapes", "writes runs/shapes/report.html"},
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
