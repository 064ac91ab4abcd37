/* SPDX-License-Identifier: Apache-2.0 */
/* axes.c - the settings that a search gives values: those that were named, or those of a layout.
 *
 * Without names every value that some rule of tess_scenario_fill could accept is taken: divisors of
 * the GPUs, heads, experts and of the batch, numbers of chunks up to the layers. space.c leaves out
 * what breaks a rule together with the others.
 */
#include "search_internal.h"

#include "sim/fields.h"
#include "tessera/advanced/nearest.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { VALUES_MAX = 100000, KEY_BYTES = 64, NAMES_MAX = 256 };

static const tess__field *find_field(const char *key, int *n)
{
    const tess__field *found = NULL;
    const char *dot = strchr(key, '.');
    *n = 0;
    for (int i = 0; i < tess__n_fields; i++) {
        const tess__field *f = &tess__fields[i];
        const int here = dot ? strcmp(f->name, dot + 1) == 0 &&
                                   strlen(f->group) == (size_t)(dot - key) &&
                                   strncmp(f->group, key, (size_t)(dot - key)) == 0
                             : strcmp(f->name, key) == 0;
        if (here) {
            found = f;
            ++*n;
        }
    }
    return found;
}

static tess_status no_setting(const char *key)
{
    char texts[NAMES_MAX][KEY_BYTES];
    const char *names[2 * NAMES_MAX];
    int n = 0;
    for (; n < tess__n_fields && n < NAMES_MAX; n++) {
        snprintf(texts[n], sizeof texts[n], "%s.%s", tess__fields[n].group, tess__fields[n].name);
        names[n] = strchr(key, '.') ? texts[n] : tess__fields[n].name;
    }
    const char *near = tess_nearest(key, names, n);
    if (near)
        return tess__fail(TESS_EINVAL, "no setting \"%.60s\"; did you mean \"%s\"?", key, near);
    return tess__fail(TESS_EINVAL, "no setting \"%.60s\"", key);
}

/* Place and size of a setting; "model.name" and "model.config" are the whole model. */
static tess_status find_place(const char *key, tess__space *space, tess__axis *axis)
{
    char full[KEY_BYTES];
    int n = 0;
    if (strcmp(key, "model.name") == 0 || strcmp(key, "model.config") == 0) {
        axis->offset = offsetof(tess_scenario, model);
        axis->size = sizeof(tess_sim_model);
        snprintf(full, sizeof full, "%s", key);
    } else {
        const tess__field *f = find_field(key, &n);
        if (n == 0)
            return no_setting(key);
        if (n > 1)
            return tess__fail(TESS_EINVAL, "\"%.60s\" is a setting of several groups: name one",
                              key);
        axis->offset = f->offset;
        axis->size = f->size;
        snprintf(full, sizeof full, "%s.%s", f->group, f->name);
    }
    for (int i = 0; i < space->n; i++)
        if (strcmp(space->axes[i].key, full) == 0)
            return tess__fail(TESS_EINVAL, "%s is given twice", full);
    if (space->n == TESS__AXES_MAX)
        return tess__fail(TESS_EINVAL, "more than %d settings are searched", TESS__AXES_MAX);
    axis->key = tess__arena_string(&space->arena, full, strlen(full));
    return axis->key ? TESS_OK : tess__nomem(strlen(full));
}

static tess_status make_room(tess__space *space, tess__axis *axis, int64_t n, char **values,
                             const char ***texts)
{
    *values = TESS_TAKE(&space->arena, (size_t)n * axis->size);
    *texts = TESS_TAKE(&space->arena, (size_t)n * sizeof **texts);
    axis->values = *values;
    axis->texts = *texts;
    axis->n = n;
    return TESS_OK;
}

/* One value as the scenario holds it. */
static tess_status add_value(tess__space *space, const tess__axis *axis, const char *text,
                             size_t length, int64_t at, char *values, const char **texts)
{
    char *copy = TESS_TAKE_STRING(&space->arena, text, length);
    tess_scenario s = space->base;
    TESS_TRY(tess_scenario_set(space->ctx, &s, axis->key, copy));
    memcpy(values + (size_t)at * axis->size, (const char *)&s + axis->offset, axis->size);
    texts[at] = copy;
    return TESS_OK;
}

/* Values with commas between them. */
static tess_status add_named(tess__space *space, const char *key, const char *list)
{
    tess__axis axis = {0};
    char *values;
    const char **texts;
    int64_t n = 1, at = 0;
    TESS_TRY(find_place(key, space, &axis));
    for (const char *c = list; *c; c++)
        n += *c == ',';
    if (n > VALUES_MAX)
        return tess__fail(TESS_EINVAL, "%s has more than %d values", axis.key, VALUES_MAX);
    TESS_TRY(make_room(space, &axis, n, &values, &texts));
    for (const char *from = list; at < n; at++) {
        const size_t length = strcspn(from, ",");
        if (length == 0)
            return tess__fail(TESS_EINVAL, "%s has an empty value in \"%.60s\"", axis.key, list);
        TESS_TRY(add_value(space, &axis, from, length, at, values, texts));
        for (int64_t k = 0; k < at; k++)
            if (strcmp(texts[k], texts[at]) == 0)
                return tess__fail(TESS_EINVAL, "%s has the value %s twice", axis.key, texts[at]);
        from += length + 1;
    }
    space->axes[space->n++] = axis;
    return TESS_OK;
}

/* The model as a whole comes before its parts, so that these change it. */
static tess_status add_all_named(tess__space *space, const tess_search_opts *opts)
{
    for (int whole = 1; whole >= 0; whole--)
        for (int i = 0; i < opts->n_over; i++) {
            const char *key = opts->over[i].key;
            if ((strcmp(key, "model.name") == 0 || strcmp(key, "model.config") == 0) == whole)
                TESS_TRY(add_named(space, key, opts->over[i].values));
        }
    return TESS_OK;
}

/* ---- values by the rules --------------------------------------------------------------------- */

/* Numbers from 1 to `most` that `keep` accepts. */
static tess_status add_numbers(tess__space *space, const char *key, int64_t most,
                               int (*keep)(const tess__space *space, int64_t value), int checked)
{
    tess__axis axis = {.checked = checked};
    char *values, text[24];
    const char **texts;
    int64_t n = 0, at = 0;
    TESS_TRY(find_place(key, space, &axis));
    for (int64_t v = 1; v <= most; v++)
        n += keep(space, v);
    TESS_TRY(make_room(space, &axis, n, &values, &texts));
    for (int64_t v = 1; v <= most; v++) {
        if (!keep(space, v))
            continue;
        snprintf(text, sizeof text, "%lld", (long long)v);
        TESS_TRY(add_value(space, &axis, text, strlen(text), at++, values, texts));
    }
    space->axes[space->n++] = axis;
    return TESS_OK;
}

/* Whether some number of GPUs that is searched is a multiple of v. */
static int divides_gpus(const tess__space *space, int64_t v)
{
    const tess__axis *gpus = &space->axes[0];
    for (int64_t i = 0; i < gpus->n; i++) {
        int n;
        memcpy(&n, gpus->values + (size_t)i * gpus->size, sizeof n);
        if (n % v == 0)
            return 1;
    }
    return 0;
}

static int keep_tp(const tess__space *space, int64_t v)
{
    return space->base.model.heads % v == 0 && divides_gpus(space, v);
}

static int keep_experts(const tess__space *space, int64_t v)
{
    return v == 1 || space->base.model.experts % v == 0;
}

static int keep_batch(const tess__space *space, int64_t v)
{
    return space->base.training.global_batch % v == 0;
}

static int keep_all(const tess__space *space, int64_t v)
{
    (void)space;
    (void)v;
    return 1;
}

/* The scenario with every searched degree at its least, and the model's defaults; its batch is that
 * of the scenario as given. */
static tess_status make_base(const tess_search_opts *opts, tess__space *space)
{
    tess_scenario given = space->base, full;
    tess_sim_layout *l = &space->base.layout;
    const int fixed = given.layout.gpus && given.training.global_batch;
    if (!fixed && opts->n_gpus == 0)
        TESS_TRY(tess_scenario_fill(&given, &full));
    l->gpus = given.layout.gpus || opts->n_gpus ? given.layout.gpus : full.layout.gpus;
    if (opts->n_gpus)
        l->gpus = opts->gpus[0];
    l->tp = l->pp = l->vpp = l->cp = l->ep = 1;
    l->dp = l->zero = l->sequence = 0;
    space->base.training.micro_batch = 1;
    space->base.training.recompute = TESS_SIM_RECOMPUTE_NONE;
    space->base.training.recompute_modules = 0;
    if (!given.training.global_batch && opts->n_gpus)
        return tess__fail(TESS_EINVAL, "training.global_batch is 0, must be given to compare "
                                       "numbers of GPUs");
    space->base.training.global_batch =
        given.training.global_batch ? given.training.global_batch : full.training.global_batch;
    /* One GPU keeps every rule that a layout can keep: the model's own rules are left. */
    full = space->base;
    full.layout.gpus = 1;
    full.layout.etp = full.layout.first_layers = full.layout.last_layers = 0;
    TESS_TRY(tess_scenario_fill(&full, &full));
    space->base.model = full.model;
    return TESS_OK;
}

static tess_status add_by_rules(tess__space *space)
{
    const tess_scenario *s = &space->base;
    const int layers = s->model.layers + 2 * s->layout.outer_layers;
    int64_t most = 0;
    const tess__axis *gpus = &space->axes[0];
    for (int64_t i = 0; i < gpus->n; i++) {
        int n;
        memcpy(&n, gpus->values + (size_t)i * gpus->size, sizeof n);
        most = TESS_MAX(most, n);
    }
    const int64_t stages = TESS_MIN(layers, TESS__STAGES_MAX), ranks = TESS_MIN(most, 65536);
    const int64_t samples = TESS_MIN(s->training.global_batch, 1000000);
    const int64_t experts = TESS_MAX(s->model.experts, 1), chunks = TESS_MAX(stages / 2, 1);
    TESS_TRY(add_numbers(space, "layout.tp", s->model.heads, keep_tp, 0));
    TESS_TRY(add_numbers(space, "layout.pp", stages, divides_gpus, 0));
    TESS_TRY(add_numbers(space, "layout.cp", ranks, divides_gpus, 1));
    TESS_TRY(add_numbers(space, "layout.ep", experts, keep_experts, 1));
    TESS_TRY(add_numbers(space, "training.micro_batch", samples, keep_batch, 1));
    TESS_TRY(add_named(space, "layout.sequence", "false,true"));
    TESS_TRY(add_named(space, "training.recompute", "none,selective,full"));
    TESS_TRY(add_named(space, "layout.zero", "0,1,2,3"));
    return add_numbers(space, "layout.vpp", chunks, keep_all, 1);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* layout.gpus: those given, or the scenario's. */
static tess_status add_gpus(tess__space *space, const int *gpus, int n_gpus)
{
    tess__axis axis = {0};
    char *values, text[24];
    const char **texts;
    TESS_TRY(find_place("layout.gpus", space, &axis));
    TESS_TRY(make_room(space, &axis, n_gpus, &values, &texts));
    for (int i = 0; i < n_gpus; i++) {
        snprintf(text, sizeof text, "%d", gpus[i]);
        TESS_TRY(tess__check_range("tess_search_run", "gpus", gpus[i], 1, 10000000));
        TESS_TRY(add_value(space, &axis, text, strlen(text), i, values, texts));
        for (int k = 0; k < i; k++)
            if (gpus[k] == gpus[i])
                return tess__fail(TESS_EINVAL, "layout.gpus has the value %d twice", gpus[i]);
    }
    space->axes[space->n++] = axis;
    return TESS_OK;
}

/* Data parallelism follows from the GPUs, where both are given and a degree beside it is searched.
 */
static void free_dp(tess__space *space)
{
    static const char *const degrees[] = {"layout.gpus", "layout.tp", "layout.pp", "layout.cp"};
    tess_sim_layout *l = &space->base.layout;
    int searched = 0, dp = 0;
    for (int i = 0; i < space->n; i++) {
        dp |= strcmp(space->axes[i].key, "layout.dp") == 0;
        for (int k = 0; k < 4; k++)
            searched |= strcmp(space->axes[i].key, degrees[k]) == 0;
    }
    if (searched && !dp && l->dp && (l->gpus || strcmp(space->axes[0].key, "layout.gpus") == 0))
        l->dp = 0;
}

tess_status tess__axes_make(const tess_scenario *scenario, const tess_search_opts *opts,
                            tess__space *space)
{
    space->base = *scenario;
    space->by_rules = opts->n_over == 0;
    if (space->by_rules) {
        TESS_TRY(make_base(opts, space));
        TESS_TRY(add_gpus(space, opts->n_gpus ? opts->gpus : &space->base.layout.gpus,
                          opts->n_gpus ? opts->n_gpus : 1));
        return add_by_rules(space);
    }
    if (opts->n_gpus)
        TESS_TRY(add_gpus(space, opts->gpus, opts->n_gpus));
    TESS_TRY(add_all_named(space, opts));
    space->axes[space->n - 1].checked = 1;
    free_dp(space);
    return TESS_OK;
}
