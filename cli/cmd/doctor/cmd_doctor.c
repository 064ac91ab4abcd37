/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c - tessera doctor: problems of this machine, worst first, and the text of a bug
 * report. */
#include "cmd_doctor.h"
#include "commands.h"

typedef struct {
    common common;
    const char *dir;
    int64_t disk;
    int report;
} values;

enum { INDENT = 9 }; /* of sentences, behind the level */

typedef struct {
    cli *c;
    json_t *list;
    int masked; /* 1: without private names */
    int count[TESS_FINDING_FINE + 1];
} findings;

static const char *const level_names[] = {"problem", "warning", "note", "fine"};
static const style level_styles[] = {STYLE_BAD, STYLE_WARN, STYLE_PLAIN, STYLE_GOOD};

static void print_finding(cli *c, const tess_finding *finding)
{
    fprintf(c->out, "%s%-8s%s ", out_style(c, level_styles[finding->level]),
            level_names[finding->level], out_style(c, STYLE_PLAIN));
    const int column = INDENT + fprintf(c->out, "%s:", finding->topic);
    out_wrap(c->out, finding->sentence, column, INDENT);
    fputc('\n', c->out);
    if (*finding->advice) {
        fprintf(c->out, "%*s", INDENT, "");
        out_wrap(c->out, finding->advice, INDENT, INDENT);
        fputc('\n', c->out);
    }
}

static void add_finding(void *user, const tess_finding *given)
{
    findings *f = user;
    cli *c = f->c;
    char sentence[512];
    tess_finding finding = *given;
    f->count[finding.level]++;
    if (f->masked)
        finding.sentence = doctor_mask(given->sentence, sentence, sizeof sentence);
    if (!f->list) {
        print_finding(c, &finding);
        return;
    }
    json_t *o = json_object();
    out_set(c, o, "level", json_string(level_names[finding.level]));
    out_set(c, o, "topic", out_text(finding.topic));
    out_set(c, o, "sentence", out_text(finding.sentence));
    out_set(c, o, "advice", out_text(finding.advice));
    out_append(c, f->list, o);
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    if (v->report)
        TRY(doctor_report(c));
    findings f = {.c = c, .list = c->json ? json_array() : NULL, .masked = v->report};
    const tess_doctor_opts opts = {.dir = v->dir, .mpi_ranks = c->ranks, .disk_bytes = v->disk};
    tess_status status = tess_doctor_run(c->ctx, &opts, add_finding, &f);
    if (status == TESS_OK)
        status = doctor_ranks(c, v->report, add_finding, &f);
    if (status != TESS_OK) {
        json_decref(f.list);
        return status;
    }
    const int problems = f.count[TESS_FINDING_PROBLEM], warnings = f.count[TESS_FINDING_WARNING];
    if (c->json) {
        out_set(c, c->json, "problems", json_integer(problems));
        out_set(c, c->json, "warnings", json_integer(warnings));
        out_set(c, c->json, "findings", f.list);
    } else {
        fprintf(c->out, "\n%d problem%s, %d warning%s\n", problems, out_plural(problems), warnings,
                out_plural(warnings));
    }
    c->code = problems ? EXIT_FAILED : 0;
    return TESS_OK;
}

/* The other ranks send their facts to rank 0 and take part in measuring. */
static tess_status serve(cli *c, const void *given)
{
    return doctor_ranks(c, ((const values *)given)->report, NULL, NULL);
}

static const opt options[] = {
    {"dir", 0, OPT_PATH, offsetof(values, dir), "DIR", ".",
     .help = "folder that results will be written to"},
    {"disk", 0, OPT_SIZE, offsetof(values, disk), "SIZE", "1G",
     .help = "free space that the results will need there"},
    {"report", 0, OPT_FLAG, offsetof(values, report),
     .help = "print what a bug report needs: also version, build, machine, MPI and environment, "
             "without private paths and names"},
};

static const example examples[] = {
    {"tessera doctor", "before the first run on a machine"},
    {"mpirun -n 8 tessera doctor -j 4", "before the first run of 8 ranks with 4 threads each"},
    {"tessera doctor --report", "the text to paste into an issue"},
    {"tessera doctor --dir /scratch --disk 200G", "is there room for the results"},
};

const command command_doctor = {
    .name = "doctor",
    .summary = "what would go wrong on this machine",
    .description =
        "Compares threads with cores, checks the OpenMP runtimes in the process, the MPI "
        "launcher, the instruction set, memory and disk. Each finding is a sentence "
        "with its numbers and, if something can be done, an advice. Exits with 1 if "
        "there is a problem; warnings and notes do not change the exit code.\n"
        "Under a launcher it also checks all ranks: whether they are of one build, the "
        "ranks, threads, cores and memory of each host, and the latency and bandwidth "
        "of the links between them, measured.\n",
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .run = run,
    .serve = serve,
};
