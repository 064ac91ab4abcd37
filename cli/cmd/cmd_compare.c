/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_compare.c - tessera compare: runs in, arms with intervals out. */
#include "cmd_compare.h"
#include "commands.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    common common;
    strings runs, labels;
    const char *baseline, *out;
    double margin, confidence;
} values;

/* The last component of a path, without slashes behind it, in text. */
static const char *name_of(const char *path, char *text, size_t bytes)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(text, bytes, "%.*s", (int)(n - begin), path + begin);
    return text;
}

/* Whether a path, or its last component, fits the glob of "dense=runs/dense-*". */
static int fits(const char *label, const char *path)
{
    char name[256];
    const char *glob = strchr(label, '=') + 1;
    return fnmatch(glob, path, 0) == 0 || fnmatch(glob, name_of(path, name, sizeof name), 0) == 0;
}

/* The name of the arm that the path belongs to, copied; NULL: to none. */
static char *label_of(const values *v, const char *path)
{
    for (int i = 0; i < v->labels.n; i++)
        if (fits(v->labels.items[i], path))
            return strndup(v->labels.items[i], strcspn(v->labels.items[i], "="));
    return NULL;
}

static tess_status check_labels(cli *c, const values *v)
{
    for (int i = 0; i < v->labels.n; i++) {
        const char *label = v->labels.items[i], *equals = strchr(label, '=');
        if (!equals || equals == label || !equals[1])
            return out_usage(c, "--label is \"%.80s\", must be NAME=GLOB", label);
        int found = 0;
        for (int k = 0; k < v->runs.n; k++)
            found += fits(label, v->runs.items[k]);
        if (!found)
            return out_usage(c, "--label is \"%.80s\", no run fits it", label);
    }
    return TESS_OK;
}

tess_status compare_write(cli *c, const tess_compare_run *runs, int n,
                          const tess_compare_opts *opts, const char *page)
{
    tess_compare *compare = NULL;
    tess_compare_opts with = *opts;
    char *line = out_command(c);
    with.command = line;
    tess_status status = tess_compare_create(c->ctx, runs, n, &with, &compare);
    free(line);
    TRY(status);
    progress_clear(c);
    status = compare_show(c, compare);
    if (status == TESS_OK && page)
        status = tess_compare_write(compare, page);
    tess_compare_destroy(compare);
    TRY(status);
    if (page && c->json)
        out_set(c, c->json, "page", out_text(page));
    else if (page)
        fprintf(c->out, "\nthe page: %s\n", page);
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    TRY(check_labels(c, v));
    tess_compare_run *runs = calloc((size_t)v->runs.n, sizeof *runs);
    if (!runs)
        return out_fail(c, TESS_ENOMEM, "no memory for %d runs", v->runs.n);
    for (int i = 0; i < v->runs.n; i++)
        runs[i] = (tess_compare_run){v->runs.items[i], label_of(v, v->runs.items[i])};
    const tess_compare_opts opts = {
        .baseline = v->baseline, .margin = v->margin / 100, .confidence = v->confidence / 100};
    const tess_status status = compare_write(c, runs, v->runs.n, &opts, v->out);
    for (int i = 0; i < v->runs.n; i++)
        free((char *)runs[i].label);
    free(runs);
    return status;
}

static const opt arguments[] = {
    {"RUN", 0, OPT_PATHS, offsetof(values, runs), .required = 1,
     .help = "folders of training runs, finished or not"},
};

static const opt options[] = {
    {"baseline", 0, OPT_STRING, offsetof(values, baseline), "NAME",
     .help = "the arm that others are compared with; default: that of the first run"},
    {"label", 0, OPT_STRINGS, offsetof(values, labels), "NAME=GLOB",
     .help = "runs whose path or folder name fits GLOB are the arm NAME; may be given several "
             "times"},
    {"margin", 0, OPT_DOUBLE, offsetof(values, margin), "PERCENT", "1", .min = 1e-6, .max = 1000,
     .unit = "percent", .help = "within which losses count as the same"},
    {"confidence", 0, OPT_DOUBLE, offsetof(values, confidence), "PERCENT", "95", .min = 1,
     .max = 99.9999, .unit = "percent", .help = "of the intervals"},
    {"out", 'o', OPT_PATH, offsetof(values, out), "FILE",
     .help = "also write a page: curves with bands, tables by noise level, densities"},
};

static const example examples[] = {
    {"tessera compare runs/dense-* runs/dsv-* -o compare.html",
     "three seeds of each: is dsv as good as dense?"},
    {"tessera compare runs/* --label ours=dsv-* --label dense=dense-* --baseline dense",
     "arms by names of folders"},
};

const command command_compare = {
    .name = "compare",
    .summary = "compare training runs, with intervals over seeds",
    .description =
        "Runs that differ in their seed alone are one arm, named by the settings that differ "
        "between arms. Prints the validation loss of each arm with its interval (Student's t), and "
        "its change against the baseline by pairs of runs with the same seed: at the last step at "
        "which every run was validated, at equal time of steps and at equal work of attention, and "
        "by noise level. A change is inside the margin when all of its interval is.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
};
