/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_timeline.c - the step of a scenario rank by rank: options, files, critical path. */
#include "cmd_simulate.h"
#include "tessera/advanced/timeline_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_MAX = 32, SLOW_MAX = 4096 };

int simulate_timeline_wanted(const simulate_values *v)
{
    return v->timeline || v->timeline_ranks || v->slow_rank.n || v->scale.n;
}

tess_status simulate_timeline_usage(cli *c, const simulate_values *v)
{
    const char *const given = v->timeline         ? "timeline"
                              : v->html           ? "html"
                              : v->slow_rank.n    ? "slow-rank"
                              : v->scale.n        ? "scale"
                              : v->schedule_out   ? "schedule-out"
                              : v->timeline_ranks ? "timeline-ranks"
                                                  : NULL;
    if (given && v->search)
        return out_usage(c, "--%s is given, which --search does not take", given);
    if (v->timeline_ranks && !v->timeline && !v->html)
        return out_usage(c, "--timeline-ranks is given, but neither --timeline nor --html");
    return TESS_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

/* "17=1.2" as its two numbers. */
static int read_pair(const char *text, long *rank, double *factor)
{
    char *end;
    errno = 0;
    *rank = strtol(text, &end, 10);
    if (end == text || *end != '=' || errno)
        return 0;
    const char *const value = end + 1;
    *factor = strtod(value, &end);
    return end != value && !*end && isfinite(*factor);
}

static tess_status read_slow(const simulate_job *j, tess_slow_rank *slow)
{
    const strings *given = &j->given->slow_rank;
    const int gpus = j->r.scenario.layout.gpus;
    for (int i = 0; i < given->n; i++) {
        long rank;
        double factor;
        if (!read_pair(given->items[i], &rank, &factor) || !(factor >= 0.001 && factor <= 1000))
            return out_usage(j->c, "--slow-rank is \"%.60s\", must be RANK=X, X from 0.001 to 1000",
                             given->items[i]);
        if (rank < 0 || rank >= gpus)
            return out_usage(j->c, "--slow-rank is \"%.60s\", the job has ranks 0..%d",
                             given->items[i], gpus - 1);
        slow[i] = (tess_slow_rank){(int)rank, factor};
    }
    return TESS_OK;
}

static tess_status fail_class(cli *c, const char *text)
{
    char list[256];
    size_t used = 0;
    for (int n = 0; tess_sim_timeline_class(n); n++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "",
                                 tess_sim_timeline_class(n));
    return out_usage(c, "--scale is \"%.60s\", must be CLASS=X, X from 0 to 1000, CLASS one of %s",
                     text, list);
}

static tess_status read_scale(const simulate_job *j, double *scale)
{
    const strings *given = &j->given->scale;
    for (int i = 0; i < CLASSES_MAX; i++)
        scale[i] = 1.0;
    for (int i = 0; i < given->n; i++) {
        const char *text = given->items[i], *equal = strchr(text, '=');
        int class = 0;
        while (equal && tess_sim_timeline_class(class) &&
               (strlen(tess_sim_timeline_class(class)) != (size_t)(equal - text) ||
                memcmp(tess_sim_timeline_class(class), text, (size_t)(equal - text)) != 0))
            class ++;
        if (!equal || !tess_sim_timeline_class(class))
            return fail_class(j->c, text);
        char *end;
        const double value = strtod(equal + 1, &end);
        if (end == equal + 1 || *end || !(value >= 0 && value <= 1000))
            return fail_class(j->c, text);
        scale[class] = value;
    }
    return TESS_OK;
}

static tess_status fail_ranks(const simulate_job *j)
{
    return out_usage(j->c,
                     "--timeline-ranks is \"%.60s\", must be all or ranks 0..%d with commas "
                     "between them",
                     j->given->timeline_ranks, j->r.scenario.layout.gpus - 1);
}

/* The ranks that are to be shown; *ranks NULL: one of each class. */
static tess_status read_ranks(const simulate_job *j, int **ranks, int *n)
{
    const char *text = j->given->timeline_ranks;
    const int gpus = j->r.scenario.layout.gpus;
    *ranks = NULL;
    *n = 0;
    if (!text)
        return TESS_OK;
    const int all = strcmp(text, "all") == 0;
    int count = all ? gpus : 1;
    for (const char *p = text; !all && *p; p++)
        count += *p == ',';
    *ranks = malloc((size_t)count * sizeof **ranks);
    if (!*ranks)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d ranks", count);
    for (; all && *n < gpus; (*n)++)
        (*ranks)[*n] = *n;
    for (const char *p = text; !all; p++) {
        char *end;
        errno = 0;
        const long rank = strtol(p, &end, 10);
        if (end == p || errno || rank < 0 || rank >= gpus || (*end && *end != ','))
            return fail_ranks(j);
        for (int i = 0; i < *n; i++)
            if ((*ranks)[i] == rank)
                return out_usage(j->c, "--timeline-ranks has rank %ld twice", rank);
        (*ranks)[(*n)++] = (int)rank;
        p = end;
        if (!*p)
            break;
    }
    return TESS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static tess_status write_page(const simulate_job *j, const int *ranks, int n)
{
    simulate_part parts[SIMULATE_PARTS];
    tess_timeline_part bars[SIMULATE_PARTS];
    char title[128], subtitle[256];
    const tess_sim_layout *l = &j->r.scenario.layout;
    simulate_parts(&j->r, parts);
    for (int i = 0; i < SIMULATE_PARTS; i++)
        bars[i] = (tess_timeline_part){parts[i].name, 1e3 * parts[i].seconds};
    snprintf(title, sizeof title, "Timeline of a step: %.80s", j->given->scenario);
    snprintf(subtitle, sizeof subtitle, "%d GPUs of %.64s: tp %d, pp %d, cp %d, ep %d, dp %d",
             l->gpus, j->r.scenario.system.cluster, l->tp, l->pp, l->cp, l->ep, l->dp);
    char *const line = out_command(j->c);
    const tess_timeline_report_opts opts = {.title = title,
                                            .subtitle = subtitle,
                                            .command = line,
                                            .ranks = ranks,
                                            .n_ranks = n,
                                            .parts = bars,
                                            .n_parts = SIMULATE_PARTS,
                                            .capacity = j->r.memory.capacity};
    const tess_status status =
        tess_timeline_report_write(j->c->ctx, j->timeline, &opts, j->given->html);
    free(line);
    return status;
}

static tess_status write_files(simulate_job *j)
{
    const simulate_values *v = j->given;
    int *ranks = NULL, n = 0;
    tess_timeline_info info;
    tess_status status = read_ranks(j, &ranks, &n);
    if (status == TESS_OK)
        status = tess_timeline_query(j->timeline, &info);
    if (status == TESS_OK)
        j->ranks = ranks ? n : info.classes;
    if (status == TESS_OK && v->timeline)
        status = tess_timeline_write_ranks(j->timeline, ranks, n, v->timeline, &j->events);
    if (status == TESS_OK && v->html)
        status = write_page(j, ranks, n);
    free(ranks);
    return status;
}

static tess_status write_schedule(simulate_job *j)
{
    tess_schedule *schedule = NULL;
    if (!j->given->schedule_out)
        return TESS_OK;
    TRY(tess_sim_schedule_of(j->sim, &schedule));
    const tess_status status = tess_schedule_write(schedule, j->given->schedule_out);
    tess_schedule_destroy(schedule);
    return status;
}

tess_status simulate_timeline(simulate_job *j)
{
    const simulate_values *v = j->given;
    double scale[CLASSES_MAX];
    TRY(write_schedule(j));
    if (!simulate_timeline_wanted(v))
        return TESS_OK;
    if (v->slow_rank.n > SLOW_MAX)
        return out_usage(j->c, "--slow-rank is given %d times, at most %d", v->slow_rank.n,
                         SLOW_MAX);
    tess_slow_rank *slow = malloc(((size_t)v->slow_rank.n + 1) * sizeof *slow);
    if (!slow)
        return out_fail(j->c, TESS_ENOMEM, "no memory for %d slow ranks", v->slow_rank.n);
    tess_status status = read_slow(j, slow);
    if (status == TESS_OK)
        status = read_scale(j, scale);
    if (status == TESS_OK)
        status = tess_sim_timeline(
            j->sim,
            &(tess_sim_timeline_opts){.slow = slow, .n_slow = v->slow_rank.n, .scale = scale},
            &j->timeline);
    free(slow);
    TRY(status);
    return write_files(j);
}

/* ---- output ---------------------------------------------------------------------------------- */

void simulate_timeline_print(const simulate_job *j)
{
    FILE *f = j->c->out;
    tess_timeline_info info;
    const char *name;
    int64_t ns;
    if (!j->timeline || tess_timeline_query(j->timeline, &info) != TESS_OK)
        return;
    fprintf(f, "event by event  %12.1f ms: %lld operations of %d class%s of equal ranks\n",
            1e-6 * (double)info.ns, (long long)info.operations, info.classes,
            info.classes == 1 ? "" : "es");
    fprintf(f, "critical path\n");
    for (int i = 0; tess_sim_timeline_class(i); i++)
        if (tess_timeline_critical(j->timeline, i, &name, &ns) == TESS_OK && ns > 0)
            fprintf(f, "  %-17s %10.1f  %5.1f %%\n", name, 1e-6 * (double)ns,
                    100.0 * (double)ns / (double)info.ns);
    if (j->given->timeline)
        fprintf(f, "%s: %lld events of %d rank%s\n", j->given->timeline, (long long)j->events,
                j->ranks, out_plural(j->ranks));
}

void simulate_timeline_json(const simulate_job *j)
{
    cli *c = j->c;
    tess_timeline_info info;
    const char *name;
    int64_t ns;
    if (!j->timeline || tess_timeline_query(j->timeline, &info) != TESS_OK)
        return;
    json_t *one = json_object(), *critical = json_array();
    for (int i = 0; tess_sim_timeline_class(i); i++) {
        if (tess_timeline_critical(j->timeline, i, &name, &ns) != TESS_OK || ns == 0)
            continue;
        json_t *part = json_object();
        out_set(c, part, "class", out_text(name));
        out_set(c, part, "ms", out_number(1e-6 * (double)ns));
        out_append(c, critical, part);
    }
    out_set(c, one, "path", j->given->timeline ? out_text(j->given->timeline) : json_null());
    out_set(c, one, "ranks", json_integer(j->ranks));
    out_set(c, one, "classes", json_integer(info.classes));
    out_set(c, one, "events", json_integer(j->events));
    out_set(c, one, "step_ms", out_number(1e-6 * (double)info.ns));
    out_set(c, one, "critical", critical);
    out_set(c, c->json, "timeline", one);
}
