/* SPDX-License-Identifier: Apache-2.0 */
/* search_json.c - the result of `tessera simulate --search` as JSON. */
#include "search_report.h"

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
        search_difference list[SIMULATE_PARTS];
        json_t *second = json_object(), *parts = json_object();
        const int n = search_differences(&best.result, &other.result, list);
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

void simulate_search_json(const simulate_job *j, const tess_search *s, const tess_search_info *info)
{
    cli *c = j->c;
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
    out_set(c, c->json, "by", out_text(j->given->by));
    out_set(c, c->json, "memory_limit_gib", out_number(info->limit / SIMULATE_GIB));
    out_set(c, c->json, "best", point_json(c, s, &best));
    out_set(c, c->json, "top", list_json(c, s, TESS_SEARCH_TOP));
    out_set(c, pareto, "time_gpus", list_json(c, s, TESS_SEARCH_FRONT_GPUS));
    out_set(c, pareto, "cost_time", list_json(c, s, TESS_SEARCH_FRONT_COST));
    out_set(c, c->json, "pareto", pareto);
    out_set(c, c->json, "why", why_json(c, s));
}
