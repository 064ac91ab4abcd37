/* SPDX-License-Identifier: Apache-2.0 */
/* search_text.c - the result of `tessera simulate --search` as text: the best combination, the ten
 * best with the parts of their steps, why the second lost, what does not fit, and two fronts. */
#include "search_report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A line, wrapped; `first` columns of it are indented, further lines by 4. */
static void say(FILE *f, int first, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(FILE *f, int first, const char *format, ...)
{
    char text[2 * SEARCH_SETTINGS_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(f, "%*s", first, "");
    out_wrap(f, text, first, first > 4 ? first : 4);
    fputc('\n', f);
}

/* Appends to a text of SEARCH_SETTINGS_BYTES. */
static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char *text, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, SEARCH_SETTINGS_BYTES - n, format, args);
    va_end(args);
}

/* "layout.pp 8 instead of 4, ...". */
static const char *changes_text(const tess_search *s, int64_t from, int64_t to,
                                char text[SEARCH_SETTINGS_BYTES])
{
    text[0] = 0;
    for (int i = 0; tess_search_key(s, i); i++) {
        const char *a = tess_search_value(s, i, from), *b = tess_search_value(s, i, to);
        if (strcmp(a, b) != 0)
            append(text, "%s%s %s instead of %s", text[0] ? ", " : "", tess_search_key(s, i), b, a);
    }
    return text;
}

static void print_second(FILE *f, const tess_search *s, const tess_search_point *best,
                         const tess_search_point *second)
{
    search_difference list[SIMULATE_PARTS];
    char text[SEARCH_SETTINGS_BYTES];
    const double more = 1e3 * (second->result.step_s - best->result.step_s);
    say(f, 0, "why the second lost: %s",
        changes_text(s, best->combination, second->combination, text));
    const int n = search_differences(&best->result, &second->result, list);
    int shown = 0;
    text[0] = 0;
    for (int i = 0; i < n; i++)
        if (fabs(list[i].ms) >= 0.05)
            append(text, "%s%s %+.1f", shown++ ? ", " : ": ", list[i].name, list[i].ms);
    if (!shown)
        append(text, "; memory decides: %.1f and %.1f GiB", best->result.memory.peak / SIMULATE_GIB,
               second->result.memory.peak / SIMULATE_GIB);
    say(f, 2, "its step takes %+.1f ms%s", more, text);
}

static void print_nearest(FILE *f, const tess_search *s, const tess_search_point *nearest,
                          const tess_search_point *best)
{
    char settings[SEARCH_SETTINGS_BYTES];
    const tess_sim_result *r = &nearest->result;
    say(f, 0, "nearest that %s: %s",
        nearest->fit == TESS_FIT_MAYBE ? "may fit, with less than predicted" : "does not fit",
        search_settings(s, nearest->combination, 0, settings));
    say(f, 2,
        "it lacks %.3g GiB: %.1f of %.1f GiB, most of it %s; its step would take %.1f ms, %+.1f ms",
        nearest->lacking / SIMULATE_GIB, r->memory.peak / SIMULATE_GIB,
        (r->memory.peak - nearest->lacking) / SIMULATE_GIB, r->memory.largest, 1e3 * r->step_s,
        1e3 * (r->step_s - best->result.step_s));
}

/* Columns of a table: parts of a step, "other" the last; 80 columns have room for a few. */
enum { PARTS_SHOWN = 5, OTHER = SIMULATE_PARTS - 1 };

/* The parts of a listed step in ms, those without a column of their own added to "other". */
static int list_parts(const tess_search *s, int i, const int shown[SIMULATE_PARTS],
                      tess_search_point *p, double ms[SIMULATE_PARTS])
{
    simulate_part parts[SIMULATE_PARTS];
    if (tess_search_get(s, TESS_SEARCH_TOP, i, p) != TESS_OK)
        return 0;
    simulate_parts(&p->result, parts);
    memset(ms, 0, SIMULATE_PARTS * sizeof *ms);
    for (int k = 0; k < SIMULATE_PARTS; k++)
        ms[shown[k] ? k : OTHER] += 1e3 * parts[k].seconds;
    return 1;
}

/* Which parts have columns: all that show a digit; of more than fit, the largest and "other". */
static void choose_parts(const tess_search *s, int shown[SIMULATE_PARTS])
{
    const int n = tess_search_count(s, TESS_SEARCH_TOP);
    double largest[SIMULATE_PARTS] = {0}, ms[SIMULATE_PARTS];
    tess_search_point p;
    int count = 0;
    for (int k = 0; k < SIMULATE_PARTS; k++)
        shown[k] = 1;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < SIMULATE_PARTS && list_parts(s, i, shown, &p, ms); k++)
            largest[k] = fmax(largest[k], fabs(ms[k]));
    for (int k = 0; k < SIMULATE_PARTS; k++)
        count += shown[k] = largest[k] >= 0.05;
    while (count > PARTS_SHOWN) {
        int least = -1;
        for (int k = 0; k < OTHER; k++)
            if (shown[k] && (least < 0 || largest[k] < largest[least]))
                least = k;
        shown[least] = 0;
        count += !shown[OTHER] - 1;
        shown[OTHER] = 1;
    }
}

static void print_top(FILE *f, const tess_search *s, const simulate_values *v)
{
    static const char *const heads[SIMULATE_PARTS] = {"compute", "tp",     "cp",   "ep",   "pp",
                                                      "dp",      "bubble", "opt.", "host", "other"};
    char settings[SEARCH_SETTINGS_BYTES];
    int shown[SIMULATE_PARTS];
    double ms[SIMULATE_PARTS];
    tess_search_point p;
    choose_parts(s, shown);
    fprintf(f, "\n    %9s %6s %6s %9s", "step ms", "GiB", "GPUs",
            isnan(v->price) ? "GPU-hours" : "cost");
    for (int k = 0; k < SIMULATE_PARTS; k++)
        if (shown[k])
            fprintf(f, " %7s", heads[k]);
    fprintf(f, "\n");
    for (int i = 0; i < tess_search_count(s, TESS_SEARCH_TOP) && list_parts(s, i, shown, &p, ms);
         i++) {
        fprintf(f, "%2d. %9.1f %6.1f %6d %9.4g", i + 1, 1e3 * p.result.step_s,
                p.result.memory.peak / SIMULATE_GIB, p.result.scenario.layout.gpus, p.cost);
        for (int k = 0; k < SIMULATE_PARTS; k++)
            if (shown[k])
                fprintf(f, " %7.1f", ms[k]);
        fputc('\n', f);
        if (p.fit == TESS_FIT_YES)
            say(f, 4, "%s", search_settings(s, p.combination, 1, settings));
        else
            say(f, 4, "%s; may fit: %.1f to %.1f GiB",
                search_settings(s, p.combination, 1, settings), p.peak_low / SIMULATE_GIB,
                p.peak_high / SIMULATE_GIB);
    }
}

/* A best one that may not fit after all, and the first of the list that surely does. */
static void print_sure(FILE *f, const tess_search *s, const tess_search_point *best)
{
    char settings[SEARCH_SETTINGS_BYTES];
    tess_search_point p;
    if (best->fit == TESS_FIT_YES)
        return;
    say(f, 2, "it may fit: 80 %% of runs need %.1f to %.1f GiB", best->peak_low / SIMULATE_GIB,
        best->peak_high / SIMULATE_GIB);
    for (int i = 1; i < tess_search_count(s, TESS_SEARCH_TOP); i++)
        if (tess_search_get(s, TESS_SEARCH_TOP, i, &p) == TESS_OK && p.fit == TESS_FIT_YES) {
            say(f, 2, "the best that fits for sure: %.1f ms, %s", 1e3 * p.result.step_s,
                search_settings(s, p.combination, 0, settings));
            return;
        }
    say(f, 2, "none of the best ten fits for sure");
}

static void print_front(FILE *f, const tess_search *s, tess_search_list list, const char *title,
                        const simulate_values *v)
{
    const int n = tess_search_count(s, list);
    char settings[SEARCH_SETTINGS_BYTES];
    tess_search_point p;
    if (n < 2)
        return;
    fprintf(f, "\n%s\n    %10s %7s %10s\n", title, "step ms", "GPUs",
            isnan(v->price) ? "GPU-hours" : "cost");
    for (int i = 0; i < n; i++)
        if (tess_search_get(s, list, i, &p) == TESS_OK) {
            fprintf(f, "    %10.1f %7d %10.4g  ", 1e3 * p.result.step_s,
                    p.result.scenario.layout.gpus, p.cost);
            out_wrap(f, search_settings(s, p.combination, 1, settings), 35, 35);
            fputc('\n', f);
        }
}

void simulate_search_print(const simulate_job *j, const tess_search *s,
                           const tess_search_info *info)
{
    FILE *f = j->c->out;
    char settings[SEARCH_SETTINGS_BYTES];
    tess_search_point best, other;
    if (tess_search_get(s, TESS_SEARCH_TOP, 0, &best) != TESS_OK)
        return;
    if (info->stopped)
        fprintf(f, "stopped: the best so far\n");
    say(f, 0,
        "%s: %lld combination%s, %lld valid, %lld fit in %.1f GiB%s; %lld simulated to their "
        "end",
        j->given->scenario, (long long)info->combinations, out_plural(info->combinations),
        (long long)info->valid, (long long)info->feasible, info->limit / SIMULATE_GIB,
        isnan(j->given->deadline) ? "" : " and the deadline", (long long)info->evaluated);
    say(f, 0, "best by %s: %.1f ms, %s", j->given->by, 1e3 * best.result.step_s,
        search_settings(s, best.combination, 0, settings));
    print_sure(f, s, &best);
    print_top(f, s, j->given);
    fputc('\n', f);
    if (tess_search_count(s, TESS_SEARCH_TOP) > 1 &&
        tess_search_get(s, TESS_SEARCH_TOP, 1, &other) == TESS_OK)
        print_second(f, s, &best, &other);
    if (tess_search_count(s, TESS_SEARCH_NEAREST) > 0 &&
        tess_search_get(s, TESS_SEARCH_NEAREST, 0, &other) == TESS_OK)
        print_nearest(f, s, &other, &best);
    print_front(f, s, TESS_SEARCH_FRONT_GPUS, "faster with more GPUs", j->given);
    print_front(f, s, TESS_SEARCH_FRONT_COST,
                isnan(j->given->price) ? "fewer GPU-hours for more time" : "cheaper for more time",
                j->given);
}

/* Nothing can be listed: which combination is nearest, and what it lacks. */
tess_status simulate_search_empty(const simulate_job *j, const tess_search *s,
                                  const tess_search_info *info)
{
    char settings[SEARCH_SETTINGS_BYTES];
    tess_search_point p;
    const char *what = info->stopped ? "so far nothing" : "nothing";
    j->c->code = info->stopped ? EXIT_SIGNAL + signals_caught() : EXIT_FAILED;
    if (tess_search_count(s, TESS_SEARCH_LATE) > 0 &&
        tess_search_get(s, TESS_SEARCH_LATE, 0, &p) == TESS_OK)
        return out_fail(j->c, TESS_EINVAL,
                        "%s is done in %g hours: the nearest takes %.4g hours, %.4g too many (%s)",
                        what, j->given->deadline, j->steps * p.result.step_s / 3600,
                        j->steps * p.result.step_s / 3600 - j->given->deadline,
                        search_settings(s, p.combination, 0, settings));
    if (tess_search_count(s, TESS_SEARCH_NEAREST) > 0 &&
        tess_search_get(s, TESS_SEARCH_NEAREST, 0, &p) == TESS_OK)
        return out_fail(j->c, TESS_EINVAL,
                        "%s of %lld combinations fits: the nearest lacks %.3g GiB, %.1f of %.1f "
                        "GiB, most of it %s (%s)",
                        what, (long long)info->valid, p.lacking / SIMULATE_GIB,
                        p.result.memory.peak / SIMULATE_GIB,
                        (p.result.memory.peak - p.lacking) / SIMULATE_GIB, p.result.memory.largest,
                        search_settings(s, p.combination, 0, settings));
    j->c->code = 0;
    return out_fail(j->c, TESS_ESTOPPED, "stopped before a combination was simulated");
}
