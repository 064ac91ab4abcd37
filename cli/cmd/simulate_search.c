/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_search.c - `tessera simulate --search`: the best of all combinations of some settings,
 * with the reasons, as text and as JSON. */
#include "choices.h"
#include "cmd_simulate.h"

#include "tessera/advanced/search.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OVER_MAX = 32, GPUS_MAX = 256, KEY_BYTES = 64, SETTINGS_BYTES = 512 };

const char *const simulate_by[] = {"time", "cost", "gpu-hours", NULL};

/* ---- options --------------------------------------------------------------------------------- */

tess_status simulate_search_usage(cli *c, const simulate_values *v)
{
    const struct {
        const char *name;
        int given;
    } options[] = {{"over", v->over.n > 0},
                   {"gpus", v->gpus != NULL},
                   {"memory-limit", !isnan(v->memory_limit)},
                   {"deadline", !isnan(v->deadline)},
                   {"checkpoint", v->checkpoint != NULL},
                   {"exhaustive", v->exhaustive},
                   {"by", choices_find(simulate_by, v->by) != TESS_SEARCH_TIME}};
    for (size_t i = 0; i < sizeof options / sizeof *options && !v->search; i++)
        if (options[i].given)
            return out_usage(c, "--%s is given, but no --search", options[i].name);
    if (!v->search)
        return TESS_OK;
    if (v->trace.n || v->explain || v->density)
        return out_usage(c, "--search takes no --%s",
                         v->trace.n   ? "trace"
                         : v->explain ? "explain"
                                      : "density");
    if (!isnan(v->deadline) && isnan(v->steps) && isnan(v->tokens))
        return out_usage(c, "--deadline needs --steps or --tokens");
    if (choices_find(simulate_by, v->by) == TESS_SEARCH_COST && isnan(v->price))
        return out_usage(c, "--by cost needs --price");
    return TESS_OK;
}

static tess_status read_gpus(cli *c, const char *text, int gpus[GPUS_MAX], int *n)
{
    for (const char *at = text; text && *n < GPUS_MAX;) {
        char *end;
        const long value = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || value < 1 || value > 10000000)
            return out_usage(c,
                             "--gpus is \"%.80s\", must be integers 1..10000000 with commas "
                             "between them",
                             text);
        gpus[(*n)++] = (int)value;
        if (!*end)
            return TESS_OK;
        at = end + 1;
    }
    return text ? out_usage(c, "--gpus has more than %d values", GPUS_MAX) : TESS_OK;
}

static tess_status read_over(cli *c, const strings *over, char keys[][KEY_BYTES],
                             tess_search_axis axes[])
{
    if (over->n > OVER_MAX)
        return out_usage(c, "--over is given %d times, at most %d", over->n, OVER_MAX);
    for (int i = 0; i < over->n; i++) {
        const char *text = over->items[i], *equal = strchr(text, '=');
        if (!equal || equal == text || (size_t)(equal - text) >= KEY_BYTES)
            return out_usage(c, "--over is \"%.80s\", must be KEY=V1,V2,...", text);
        snprintf(keys[i], KEY_BYTES, "%.*s", (int)(equal - text), text);
        axes[i] = (tess_search_axis){keys[i], equal + 1};
    }
    return TESS_OK;
}

/* ---- a combination --------------------------------------------------------------------------- */

/* "layout.tp=8 layout.pp=12"; without the names of groups where short_names. */
static const char *settings_text(const tess_search *s, int64_t combination, int short_names,
                                 char text[SETTINGS_BYTES])
{
    size_t n = 0;
    for (int i = 0; tess_search_key(s, i); i++) {
        const char *key = tess_search_key(s, i), *dot = strchr(key, '.');
        n += (size_t)snprintf(text + n, n < SETTINGS_BYTES ? SETTINGS_BYTES - n : 0, "%s%s=%s",
                              i ? " " : "", short_names && dot ? dot + 1 : key,
                              tess_search_value(s, i, combination));
        if (n >= SETTINGS_BYTES)
            break;
    }
    return text;
}

static json_t *settings_json(cli *c, const tess_search *s, int64_t combination)
{
    json_t *settings = json_object();
    for (int i = 0; tess_search_key(s, i); i++)
        out_set(c, settings, tess_search_key(s, i), out_text(tess_search_value(s, i, combination)));
    return settings;
}

static json_t *point_json(cli *c, const tess_search *s, const tess_search_point *p)
{
    const tess_sim_result *r = &p->result;
    simulate_part parts[SIMULATE_PARTS];
    json_t *one = json_object(), *breakdown = json_object();
    simulate_parts(r, parts);
    for (int i = 0; i < SIMULATE_PARTS; i++)
        out_set(c, breakdown, parts[i].name, out_number(1e3 * parts[i].seconds));
    out_set(c, one, "settings", settings_json(c, s, p->combination));
    out_set(c, one, "step_ms", out_number(1e3 * r->step_s));
    out_set(c, one, "memory_gib", out_number(r->memory.peak / SIMULATE_GIB));
    out_set(c, one, "memory_gib_low", out_number(p->peak_low / SIMULATE_GIB));
    out_set(c, one, "memory_gib_high", out_number(p->peak_high / SIMULATE_GIB));
    out_set(c, one, "fit", out_text(tess_fit_name(p->fit)));
    out_set(c, one, "gpus", json_integer(r->scenario.layout.gpus));
    out_set(c, one, "dp", json_integer(r->scenario.layout.dp));
    out_set(c, one, "gpu_hours", out_number(r->gpu_hours));
    out_set(c, one, "cost", out_number(p->cost));
    out_set(c, one, "tokens_per_s", out_number(r->tokens_per_s));
    out_set(c, one, "mfu", out_number(r->mfu));
    out_set(c, one, "breakdown", breakdown);
    return one;
}

static json_t *list_json(cli *c, const tess_search *s, tess_search_list list)
{
    json_t *array = json_array();
    tess_search_point p;
    for (int i = 0; i < tess_search_count(s, list); i++)
        if (tess_search_get(s, list, i, &p) == TESS_OK)
            out_append(c, array, point_json(c, s, &p));
    return array;
}

/* ---- reasons --------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    double ms;
} difference;

static int by_size(const void *a, const void *b)
{
    const double x = fabs(((const difference *)a)->ms), y = fabs(((const difference *)b)->ms);
    return (x < y) - (x > y);
}

/* Parts by which b's step differs from a's, the largest first. */
static int differences(const tess_sim_result *a, const tess_sim_result *b,
                       difference list[SIMULATE_PARTS])
{
    simulate_part of_a[SIMULATE_PARTS], of_b[SIMULATE_PARTS];
    int n = 0;
    simulate_parts(a, of_a);
    simulate_parts(b, of_b);
    for (int i = 0; i < SIMULATE_PARTS; i++)
        if (of_a[i].seconds != of_b[i].seconds)
            list[n++] = (difference){of_a[i].name, 1e3 * (of_b[i].seconds - of_a[i].seconds)};
    qsort(list, (size_t)n, sizeof *list, by_size);
    return n;
}

/* A line, wrapped; `first` columns of it are indented, further lines by 4. */
static void say(FILE *f, int first, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(FILE *f, int first, const char *format, ...)
{
    char text[2 * SETTINGS_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(f, "%*s", first, "");
    out_wrap(f, text, first, first > 4 ? first : 4);
    fputc('\n', f);
}

/* Appends to a text of SETTINGS_BYTES. */
static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char *text, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, SETTINGS_BYTES - n, format, args);
    va_end(args);
}

/* "layout.pp 8 instead of 4, ...". */
static const char *changes_text(const tess_search *s, int64_t from, int64_t to,
                                char text[SETTINGS_BYTES])
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
    difference list[SIMULATE_PARTS];
    char text[SETTINGS_BYTES];
    const double more = 1e3 * (second->result.step_s - best->result.step_s);
    say(f, 0, "why the second lost: %s",
        changes_text(s, best->combination, second->combination, text));
    const int n = differences(&best->result, &second->result, list);
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
    char settings[SETTINGS_BYTES];
    const tess_sim_result *r = &nearest->result;
    say(f, 0, "nearest that %s: %s",
        nearest->fit == TESS_FIT_MAYBE ? "may fit, with less than predicted" : "does not fit",
        settings_text(s, nearest->combination, 0, settings));
    say(f, 2,
        "it lacks %.3g GiB: %.1f of %.1f GiB, most of it %s; its step would take %.1f ms, %+.1f ms",
        nearest->lacking / SIMULATE_GIB, r->memory.peak / SIMULATE_GIB,
        (r->memory.peak - nearest->lacking) / SIMULATE_GIB, r->memory.largest, 1e3 * r->step_s,
        1e3 * (r->step_s - best->result.step_s));
}

static json_t *nearest_json(cli *c, const tess_search *s, const tess_search_point *nearest)
{
    json_t *one = point_json(c, s, nearest);
    out_set(c, one, "lacking_gib", out_number(nearest->lacking / SIMULATE_GIB));
    out_set(c, one, "largest", out_text(nearest->result.memory.largest));
    return one;
}

static json_t *why_json(cli *c, const tess_search *s)
{
    tess_search_point best, other;
    json_t *why = json_object();
    if (tess_search_get(s, TESS_SEARCH_TOP, 0, &best) == TESS_OK &&
        tess_search_count(s, TESS_SEARCH_TOP) > 1 &&
        tess_search_get(s, TESS_SEARCH_TOP, 1, &other) == TESS_OK) {
        difference list[SIMULATE_PARTS];
        json_t *second = json_object(), *parts = json_object();
        const int n = differences(&best.result, &other.result, list);
        for (int i = 0; i < n; i++)
            out_set(c, parts, list[i].name, out_number(list[i].ms));
        out_set(c, second, "settings", settings_json(c, s, other.combination));
        out_set(c, second, "longer_ms",
                out_number(1e3 * (other.result.step_s - best.result.step_s)));
        out_set(c, second, "parts_ms", parts);
        out_set(c, why, "second", second);
    } else {
        out_set(c, why, "second", json_null());
    }
    if (tess_search_count(s, TESS_SEARCH_NEAREST) > 0 &&
        tess_search_get(s, TESS_SEARCH_NEAREST, 0, &other) == TESS_OK)
        out_set(c, why, "not_fitting", nearest_json(c, s, &other));
    else
        out_set(c, why, "not_fitting", json_null());
    return why;
}

/* ---- results --------------------------------------------------------------------------------- */

static void set_json(cli *c, const tess_search *s, const tess_search_info *info,
                     const simulate_values *v)
{
    tess_search_point best;
    json_t *pareto = json_object();
    if (tess_search_get(s, TESS_SEARCH_TOP, 0, &best) != TESS_OK)
        return;
    out_set(c, c->json, "combinations", json_integer(info->combinations));
    out_set(c, c->json, "valid", json_integer(info->valid));
    out_set(c, c->json, "evaluated", json_integer(info->evaluated));
    out_set(c, c->json, "feasible", json_integer(info->feasible));
    out_set(c, c->json, "resumed", json_integer(info->resumed));
    out_set(c, c->json, "stopped", json_boolean(info->stopped));
    out_set(c, c->json, "by", out_text(v->by));
    out_set(c, c->json, "memory_limit_gib", out_number(info->limit / SIMULATE_GIB));
    out_set(c, c->json, "best", point_json(c, s, &best));
    out_set(c, c->json, "top", list_json(c, s, TESS_SEARCH_TOP));
    out_set(c, pareto, "time_gpus", list_json(c, s, TESS_SEARCH_FRONT_GPUS));
    out_set(c, pareto, "cost_time", list_json(c, s, TESS_SEARCH_FRONT_COST));
    out_set(c, c->json, "pareto", pareto);
    out_set(c, c->json, "why", why_json(c, s));
}

static void print_top(FILE *f, const tess_search *s, const simulate_values *v)
{
    static const char *const heads[SIMULATE_PARTS] = {"compute", "tp",     "cp",   "ep",   "pp",
                                                      "dp",      "bubble", "opt.", "host", "other"};
    const int n = tess_search_count(s, TESS_SEARCH_TOP);
    simulate_part parts[SIMULATE_PARTS];
    char settings[SETTINGS_BYTES];
    tess_search_point p;
    int used[SIMULATE_PARTS] = {0};
    for (int i = 0; i < n; i++) {
        if (tess_search_get(s, TESS_SEARCH_TOP, i, &p) != TESS_OK)
            return;
        simulate_parts(&p.result, parts);
        for (int k = 0; k < SIMULATE_PARTS; k++)
            used[k] |= 1e3 * fabs(parts[k].seconds) >= 0.05;
    }
    fprintf(f, "\n    %9s %6s %6s %9s", "step ms", "GiB", "GPUs",
            isnan(v->price) ? "GPU-hours" : "cost");
    for (int k = 0; k < SIMULATE_PARTS; k++)
        if (used[k])
            fprintf(f, " %7s", heads[k]);
    fprintf(f, "\n");
    for (int i = 0; i < n; i++) {
        if (tess_search_get(s, TESS_SEARCH_TOP, i, &p) != TESS_OK)
            return;
        simulate_parts(&p.result, parts);
        fprintf(f, "%2d. %9.1f %6.1f %6d %9.4g", i + 1, 1e3 * p.result.step_s,
                p.result.memory.peak / SIMULATE_GIB, p.result.scenario.layout.gpus, p.cost);
        for (int k = 0; k < SIMULATE_PARTS; k++)
            if (used[k])
                fprintf(f, " %7.1f", 1e3 * parts[k].seconds);
        fputc('\n', f);
        if (p.fit == TESS_FIT_YES)
            say(f, 4, "%s", settings_text(s, p.combination, 1, settings));
        else
            say(f, 4, "%s; may fit: %.1f to %.1f GiB", settings_text(s, p.combination, 1, settings),
                p.peak_low / SIMULATE_GIB, p.peak_high / SIMULATE_GIB);
    }
}

/* A best one that may not fit after all, and the first of the list that surely does. */
static void print_sure(FILE *f, const tess_search *s, const tess_search_point *best)
{
    char settings[SETTINGS_BYTES];
    tess_search_point p;
    if (best->fit == TESS_FIT_YES)
        return;
    say(f, 2, "it may fit: 80 %% of runs need %.1f to %.1f GiB", best->peak_low / SIMULATE_GIB,
        best->peak_high / SIMULATE_GIB);
    for (int i = 1; i < tess_search_count(s, TESS_SEARCH_TOP); i++)
        if (tess_search_get(s, TESS_SEARCH_TOP, i, &p) == TESS_OK && p.fit == TESS_FIT_YES) {
            say(f, 2, "the best that fits for sure: %.1f ms, %s", 1e3 * p.result.step_s,
                settings_text(s, p.combination, 0, settings));
            return;
        }
    say(f, 2, "none of the best ten fits for sure");
}

static void print_front(FILE *f, const tess_search *s, tess_search_list list, const char *title,
                        const simulate_values *v)
{
    const int n = tess_search_count(s, list);
    char settings[SETTINGS_BYTES];
    tess_search_point p;
    if (n < 2)
        return;
    fprintf(f, "\n%s\n    %10s %7s %10s\n", title, "step ms", "GPUs",
            isnan(v->price) ? "GPU-hours" : "cost");
    for (int i = 0; i < n; i++)
        if (tess_search_get(s, list, i, &p) == TESS_OK) {
            fprintf(f, "    %10.1f %7d %10.4g  ", 1e3 * p.result.step_s,
                    p.result.scenario.layout.gpus, p.cost);
            out_wrap(f, settings_text(s, p.combination, 1, settings), 35, 35);
            fputc('\n', f);
        }
}

static void print_text(const simulate_job *j, const tess_search *s, const tess_search_info *info)
{
    FILE *f = j->c->out;
    char settings[SETTINGS_BYTES];
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
        settings_text(s, best.combination, 0, settings));
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
static tess_status fail_empty(const simulate_job *j, const tess_search *s,
                              const tess_search_info *info)
{
    char settings[SETTINGS_BYTES];
    tess_search_point p;
    const char *what = info->stopped ? "so far nothing" : "nothing";
    j->c->code = info->stopped ? EXIT_SIGNAL + signals_caught() : EXIT_FAILED;
    if (tess_search_count(s, TESS_SEARCH_LATE) > 0 &&
        tess_search_get(s, TESS_SEARCH_LATE, 0, &p) == TESS_OK)
        return out_fail(j->c, TESS_EINVAL,
                        "%s is done in %g hours: the nearest takes %.4g hours, %.4g too many (%s)",
                        what, j->given->deadline, j->steps * p.result.step_s / 3600,
                        j->steps * p.result.step_s / 3600 - j->given->deadline,
                        settings_text(s, p.combination, 0, settings));
    if (tess_search_count(s, TESS_SEARCH_NEAREST) > 0 &&
        tess_search_get(s, TESS_SEARCH_NEAREST, 0, &p) == TESS_OK)
        return out_fail(j->c, TESS_EINVAL,
                        "%s of %lld combinations fits: the nearest lacks %.3g GiB, %.1f of %.1f "
                        "GiB, most of it %s (%s)",
                        what, (long long)info->valid, p.lacking / SIMULATE_GIB,
                        p.result.memory.peak / SIMULATE_GIB,
                        (p.result.memory.peak - p.lacking) / SIMULATE_GIB, p.result.memory.largest,
                        settings_text(s, p.combination, 0, settings));
    j->c->code = 0;
    return out_fail(j->c, TESS_ESTOPPED, "stopped before a combination was simulated");
}

tess_status simulate_search(simulate_job *j)
{
    cli *c = j->c;
    const simulate_values *v = j->given;
    char keys[OVER_MAX][KEY_BYTES];
    tess_search_axis axes[OVER_MAX];
    int gpus[GPUS_MAX], n_gpus = 0;
    TRY(read_over(c, &v->over, keys, axes));
    TRY(read_gpus(c, v->gpus, gpus, &n_gpus));
    const tess_search_opts opts = {
        .over = axes,
        .n_over = v->over.n,
        .gpus = gpus,
        .n_gpus = n_gpus,
        .by = (tess_search_by)choices_find(simulate_by, v->by),
        .memory_limit = isnan(v->memory_limit) ? 0.0 : v->memory_limit * SIMULATE_GIB,
        .deadline = isnan(v->deadline) ? 0.0 : v->deadline * 3600,
        .steps = isnan(j->steps) ? 0.0 : j->steps,
        .price = isnan(v->price) ? 0.0 : v->price,
        .exhaustive = v->exhaustive,
        .checkpoint = v->checkpoint};
    tess_search *s = NULL;
    tess_search_info info;
    TRY(tess_search_run(c->ctx, j->params, j->measured, &j->s, &opts, &s));
    tess_status status = tess_search_query(s, &info);
    progress_clear(c);
    if (status == TESS_OK && tess_search_count(s, TESS_SEARCH_TOP) == 0)
        status = fail_empty(j, s, &info);
    else if (status == TESS_OK && c->json)
        set_json(c, s, &info, v);
    else if (status == TESS_OK)
        print_text(j, s, &info);
    if (status == TESS_OK && c->json)
        simulate_job_json(j);
    else if (status == TESS_OK)
        simulate_job_print(j);
    if (status == TESS_OK && info.stopped)
        c->code = EXIT_SIGNAL + signals_caught();
    tess_search_destroy(s);
    return status;
}
