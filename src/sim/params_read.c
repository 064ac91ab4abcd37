/* SPDX-License-Identifier: Apache-2.0 */
/* params_read.c - the parameters from their JSON file, every value with its rule and its origin.
 *
 *   {"schema": 1, "default_era": name,
 *    "hardware": {name: {"about", "like", "gpus": [beginnings of names], "memory_gib",
 *                        "values": values, "overlap": overlap_read.c}, ...},
 *    "software": {name: {"about", "framework", "version", "launch", "from", "match": [patterns],
 *                        "default": [hardware], "sampling": true, "measured": [sources], "like",
 *                        "values": values}, ...},
 *    "scalars": [{"system", "era", "value", "origin"}, ...], "interval": interval_read.c}
 *
 * "eras" is an older name of "software". values are members {parameter: [number, origin]}. `like`
 * names an entry before this one, whose values hold unless they are given again.
 */
#include "sim_internal.h"

#include "file/json.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { SETS_MAX = 64, SCALARS_MAX = 256 };

typedef struct {
    tess_sim_params *params;
    const tess__param_def *defs;
    int n_defs;
} reader;

static tess_status copy_text(tess_sim_params *p, const char *text, const char **out)
{
    char *copy = TESS_TAKE_STRING(&p->arena, text, strlen(text));
    *out = copy;
    return TESS_OK;
}

/* {parameter: [number, origin]}: the error of an unknown parameter names the nearest one. */
static tess_status read_values(const reader *r, tess__json_node node, tess__param_set *set)
{
    const char *names[TESS__VALUES_MAX];
    tess__json_node values;
    for (int i = 0; i < r->n_defs; i++)
        names[i] = r->defs[i].name;
    TESS_TRY(tess__json_object(node, names, r->n_defs, &values));
    for (int i = 0; i < r->n_defs; i++) {
        const tess__json_node member = tess__json_optional(&values, names[i]);
        tess__json_node pair;
        size_t n = 0;
        if (!member.value)
            continue;
        TESS_TRY(tess__json_array(member, 2, 2, &pair, &n));
        TESS_TRY(tess__json_double(tess__json_element(&pair, 0), r->defs[i].low, r->defs[i].high,
                                   &set->value[i]));
        TESS_TRY(tess__json_text(tess__json_element(&pair, 1), &r->params->arena, &set->origin[i]));
    }
    return TESS_OK;
}

static tess_status read_gpus(const reader *r, tess__json_node node, tess__param_set *set)
{
    tess__json_node list;
    size_t n = 0;
    TESS_TRY(tess__json_array(node, 1, TESS__GPU_NAMES, &list, &n));
    for (size_t i = 0; i < n; i++)
        TESS_TRY(tess__json_text(tess__json_element(&list, i), &r->params->arena, &set->gpus[i]));
    set->n_gpus = (int)n;
    return TESS_OK;
}

/* The usual values, or those of the entry that this one is like: *like_of, or -1. */
static tess_status read_like(const reader *r, const tess__json_node *entry,
                             const tess__param_set *sets, int n, tess__param_set *set, int *like_of)
{
    const char *names[SETS_MAX];
    const tess__json_node like = tess__json_optional(entry, "like");
    int from = -1;
    for (int i = 0; i < n; i++)
        names[i] = sets[i].name;
    if (like.value)
        TESS_TRY(tess__json_enum(like, names, n, &from));
    for (int i = 0; i < r->n_defs; i++) {
        set->value[i] = from < 0 ? r->defs[i].usual : sets[from].value[i];
        set->origin[i] = from < 0 ? "the simulator's default" : sets[from].origin[i];
    }
    *like_of = from;
    return TESS_OK;
}

/* What a software profile has beside its values: which software it is, and when it is meant. */
static tess_status read_software(const reader *r, const tess__json_node *entry,
                                 tess__param_set *set)
{
    static const char *const names[] = {"framework", "version", "launch", "from"};
    tess_sim_params *p = r->params;
    const char **const texts[] = {&set->framework, &set->version, &set->launch, &set->from};
    const char *hardware[SETS_MAX];
    tess__json_node list;
    size_t n = 0;
    for (int i = 0; i < COUNT(names); i++)
        TESS_TRY(tess__json_text(tess__json_optional(entry, names[i]), &p->arena, texts[i]));
    if (tess__json_optional(entry, "match").value)
        TESS_TRY(
            tess__json_array(tess__json_optional(entry, "match"), 1, TESS__MATCHES, &list, &n));
    for (size_t i = 0; i < n; i++)
        TESS_TRY(tess__json_text(tess__json_element(&list, i), &p->arena, &set->match[i]));
    set->n_match = (int)n;
    n = 0;
    if (tess__json_optional(entry, "measured").value)
        TESS_TRY(tess__json_array(tess__json_optional(entry, "measured"), 0, SETS_MAX, &list, &n));
    set->n_measured = (int)n;
    TESS_TRY(tess__json_bool(tess__json_optional(entry, "sampling"), &set->samples));
    n = 0;
    for (int i = 0; i < p->n_hardware; i++)
        hardware[i] = p->hardware[i].name;
    if (tess__json_optional(entry, "default").value)
        TESS_TRY(tess__json_array(tess__json_optional(entry, "default"), 1, SETS_MAX, &list, &n));
    for (size_t i = 0; i < n; i++) {
        int which = 0;
        TESS_TRY(tess__json_enum(tess__json_element(&list, i), hardware, p->n_hardware, &which));
        set->defaults |= (uint64_t)1 << which;
    }
    return TESS_OK;
}

static tess_status read_set(const reader *r, tess__json_node node, const tess__param_set *sets,
                            int n, int hardware, tess__param_set *set)
{
    static const char *const kinds[] = {"about", "like", "values", "gpus", "memory_gib", "overlap"};
    static const char *const profiles[] = {"about",   "like",     "values",  "framework",
                                           "version", "launch",   "from",    "match",
                                           "default", "measured", "sampling"};
    tess__json_node entry;
    *set = (tess__param_set){.about = "", .framework = "", .version = "", .launch = "", .from = ""};
    TESS_TRY(tess__json_object(node, hardware ? kinds : profiles,
                               hardware ? COUNT(kinds) : COUNT(profiles), &entry));
    TESS_TRY(copy_text(r->params, node.key, &set->name));
    TESS_TRY(tess__json_text(tess__json_optional(&entry, "about"), &r->params->arena, &set->about));
    int from = -1;
    TESS_TRY(read_like(r, &entry, sets, n, set, &from));
    if (hardware) {
        tess_sim_params *p = r->params;
        TESS_TRY(read_gpus(r, tess__json_member(&entry, "gpus"), set));
        TESS_TRY(tess__json_double(tess__json_optional(&entry, "memory_gib"), 1.0, 1e6,
                                   &set->memory_gib));
        if (from >= 0)
            TESS_TRY(tess__overlap_inherit(&p->overlaps, &p->arena, from, n));
        TESS_TRY(
            tess__overlap_read(&p->overlaps, &p->arena, n, tess__json_optional(&entry, "overlap")));
    }
    if (!hardware)
        TESS_TRY(read_software(r, &entry, set));
    return read_values(r, tess__json_member(&entry, "values"), set);
}

static tess_status read_sets(const reader *r, tess__json_node node, int hardware,
                             tess__param_set **sets, int *count)
{
    tess__json_node all;
    TESS_TRY(tess__json_object(node, NULL, 0, &all));
    const size_t n = json_object_size(all.value);
    if (n < 1 || n > SETS_MAX)
        return tess__json_fail(all, "has %zu entries, must have 1..%d", n, SETS_MAX);
    tess__param_set *out = TESS_TAKE(&r->params->arena, n * sizeof *out);
    const char *key;
    json_t *value;
    int i = 0;
    json_object_foreach(all.value, key, value)
    {
        TESS_TRY(read_set(r, tess__json_member(&all, key), out, i, hardware, &out[i]));
        i++;
    }
    *sets = out;
    *count = i;
    return TESS_OK;
}

static tess_status read_scalar(tess_sim_params *p, tess__json_node node, const char *const *eras,
                               tess__scalar *scalar)
{
    static const char *const names[] = {"system", "era", "value", "origin"};
    char owner[160];
    tess__json_node entry;
    TESS_TRY(tess__json_object(node, names, COUNT(names), &entry));
    TESS_TRY(tess__json_text(tess__json_member(&entry, "system"), &p->arena, &scalar->system));
    TESS_TRY(tess__json_enum(tess__json_member(&entry, "era"), eras, p->n_eras, &scalar->era));
    TESS_TRY(tess__json_double(tess__json_member(&entry, "value"), 0.2, 5.0, &scalar->value));
    TESS_TRY(tess__json_text(tess__json_member(&entry, "origin"), &p->arena, &scalar->origin));
    snprintf(owner, sizeof owner, "%.64s %.64s", scalar->system, eras[scalar->era]);
    return copy_text(p, owner, &scalar->owner);
}

static tess_status read_scalars(tess_sim_params *p, tess__json_node node)
{
    const char *eras[SETS_MAX];
    tess__json_node list;
    size_t n = 0;
    for (int i = 0; i < p->n_eras; i++)
        eras[i] = p->eras[i].name;
    TESS_TRY(tess__json_array(node, 0, SCALARS_MAX, &list, &n));
    p->scalars = TESS_TAKE(&p->arena, n * sizeof *p->scalars);
    for (size_t i = 0; i < n; i++)
        TESS_TRY(read_scalar(p, tess__json_element(&list, i), eras, &p->scalars[i]));
    p->n_scalars = (int)n;
    return TESS_OK;
}

static tess_status read_all(tess_sim_params *p, const tess__json *doc)
{
    static const char *const names[] = {"schema", "default_era", "hardware", "software",
                                        "eras",   "scalars",     "interval"};
    const char *eras[SETS_MAX];
    const reader hardware = {p, tess__hw_defs, TESS__HW_COUNT};
    const reader era = {p, tess__era_defs, TESS__ERA_COUNT};
    tess__json_node root;
    int schema;
    TESS_TRY(tess__json_object(tess__json_root(doc), names, COUNT(names), &root));
    TESS_TRY(tess__json_int(tess__json_member(&root, "schema"), 1, 1, &schema));
    TESS_TRY(copy_text(p, doc->name, &p->name));
    TESS_TRY(read_sets(&hardware, tess__json_member(&root, "hardware"), 1, &p->hardware,
                       &p->n_hardware));
    const int old = tess__json_optional(&root, "eras").value != NULL;
    TESS_TRY(read_sets(&era, tess__json_member(&root, old ? "eras" : "software"), 0, &p->eras,
                       &p->n_eras));
    for (int i = 0; i < p->n_eras; i++)
        eras[i] = p->eras[i].name;
    TESS_TRY(
        tess__json_enum(tess__json_member(&root, "default_era"), eras, p->n_eras, &p->default_era));
    TESS_TRY(read_scalars(p, tess__json_member(&root, "scalars")));
    return tess__interval_read(&p->interval, &p->arena, tess__json_optional(&root, "interval"));
}

tess_status tess__params_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                               tess_sim_params **params)
{
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    tess_sim_params *p = tess__alloc(ctx, sizeof *p);
    tess_status status = p ? TESS_OK : TESS_ENOMEM;
    if (p) {
        *p = (tess_sim_params){.ctx = ctx, .arena = {.ctx = ctx}, .overlaps = {.ctx = ctx}};
        status = read_all(p, &doc);
    }
    tess__json_close(&doc);
    if (status == TESS_OK)
        *params = p;
    else
        tess_sim_params_destroy(p);
    return status;
}

tess_status tess_sim_params_load(tess_ctx *ctx, const char *path, tess_sim_params **params)
{
    TESS_REQUIRE(ctx, params);
    if (path)
        return tess__params_parse(ctx, path, NULL, 0, params);
    for (int i = 0; i < tess__n_shipped_simulator; i++)
        if (strcmp(tess__shipped_simulator[i].name, "parameters") == 0)
            return tess__params_parse(ctx, "share/simulator/parameters.json",
                                      (const char *)tess__shipped_simulator[i].text,
                                      tess__shipped_simulator[i].bytes, params);
    return tess__fail(TESS_EFORMAT, "share/simulator/parameters.json: is not part of this build");
}
