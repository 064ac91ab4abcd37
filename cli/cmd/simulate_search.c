/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_search.c - `tessera simulate --search`: the best of all combinations of some settings.
 * simulate/search_text.c and search_json.c report it. */
#include "choices.h"
#include "cmd_simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OVER_MAX = 32, GPUS_MAX = 256, KEY_BYTES = 64 };

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

/* ---- the search ------------------------------------------------------------------------------ */

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
        status = simulate_search_empty(j, s, &info);
    else if (status == TESS_OK && c->json)
        simulate_search_json(j, s, &info);
    else if (status == TESS_OK)
        simulate_search_print(j, s, &info);
    if (status == TESS_OK && c->json)
        simulate_job_json(j);
    else if (status == TESS_OK)
        simulate_job_print(j);
    if (status == TESS_OK && info.stopped)
        c->code = EXIT_SIGNAL + signals_caught();
    tess_search_destroy(s);
    return status;
}
