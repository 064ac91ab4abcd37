/* SPDX-License-Identifier: Apache-2.0 */
/* cases.c - the rows of a table as cases: settings applied, measurements in one unit, repeats
 * found.
 *
 * A row gives one case for each quantity it measured. "model.name" and "model.config" are applied
 * first, because other settings change what they give. Two cases are the same configuration if
 * every setting of their scenarios, their collective and their product are equal; the second then
 * counts into the mean of the first. A hash table (case_repeats.c) finds the first: the cost is
 * linear in the rows. A setting that breaks its rule makes the row a skipped one.
 */
#include "case.h"
#include "fields.h"
#include "sim_internal.h"

#include "file/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const tess__measured_def tess__measured_defs[TESS__MEASURED_COUNT] = {
    [TESS__MEASURED_STEP_MS] = {"measured.step_ms", TESS_QUANTITY_STEP, "ms"},
    [TESS__MEASURED_TOKENS_PER_S] = {"measured.tokens_per_s", TESS_QUANTITY_STEP, "ms"},
    [TESS__MEASURED_TOKENS_PER_S_PER_GPU] = {"measured.tokens_per_s_per_gpu", TESS_QUANTITY_STEP,
                                             "ms"},
    [TESS__MEASURED_FORWARD_MS] = {"measured.forward_ms", TESS_QUANTITY_LAYER, "ms"},
    [TESS__MEASURED_BACKWARD_MS] = {"measured.backward_ms", TESS_QUANTITY_LAYER, "ms"},
    [TESS__MEASURED_COLLECTIVE_US] = {"measured.collective_us", TESS_QUANTITY_COLLECTIVE, "us"},
    [TESS__MEASURED_BUSBW] = {"measured.busbw_gbps", TESS_QUANTITY_COLLECTIVE, "us"},
    [TESS__MEASURED_MEMORY] = {"measured.memory_gib", TESS_QUANTITY_MEMORY, "GiB"},
    [TESS__MEASURED_DEVICE_MEMORY] = {"measured.device_memory_gib", TESS_QUANTITY_MEMORY, "GiB"},
    [TESS__MEASURED_STATE] = {"measured.state_gib", TESS_QUANTITY_MEMORY, "GiB"},
    [TESS__MEASURED_ACTIVATIONS] = {"measured.activations_gib", TESS_QUANTITY_MEMORY, "GiB"},
    [TESS__MEASURED_ACTIVATIONS_PCT] = {"measured.activations_pct", TESS_QUANTITY_MEMORY, "%"},
    [TESS__MEASURED_GEMM_SHARE] = {"measured.gemm_share", TESS_QUANTITY_PRODUCT, "of the peak"},
    [TESS__MEASURED_OVERLAPPED_NS] = {"measured.overlapped_ns", TESS_QUANTITY_OVERLAP, "x"},
    [TESS__MEASURED_CLIP_S] = {"measured.clip_s", TESS_QUANTITY_CLIP, "s"},
};

/* ---- lists ----------------------------------------------------------------------------------- */

const char *tess__cases_text(tess__cases *cases, const char *text)
{
    return text && *text ? tess__arena_string(&cases->arena, text, strlen(text)) : "";
}

/* Behind the last one; `reason` is kept as it is. */
static tess_status add_skip(tess__cases *cases, int row, const char *reason)
{
    TESS_GROW(cases->ctx, cases->skips, cases->n_skips, cases->n_skips + 1, cases->skip_room);
    cases->skips[cases->n_skips++] = (tess_validation_skip){row, reason};
    return TESS_OK;
}

static int by_row(const void *a, const void *b)
{
    const int x = ((const tess_validation_skip *)a)->row;
    const int y = ((const tess_validation_skip *)b)->row;
    return (x > y) - (x < y);
}

tess_status tess__cases_skip(tess__cases *cases, const char *const *reasons)
{
    int left = 0;
    for (int i = 0; i < cases->n; i++)
        if (!reasons[cases->cases[i].row - 1])
            cases->cases[left++] = cases->cases[i];
    cases->n = left;
    for (int i = 0; i < cases->rows; i++) {
        const char *reason = cases->first[i] ? reasons[cases->first[i] - 1] : NULL;
        if (!reason)
            continue;
        cases->first[i] = 0;
        TESS_TRY(add_skip(cases, i + 1, reason));
    }
    qsort(cases->skips, (size_t)cases->n_skips, sizeof *cases->skips, by_row);
    return TESS_OK;
}

void tess__cases_free(tess__cases *cases)
{
    for (int i = 0; i < cases->n_clusters; i++)
        tess_cluster_destroy(cases->clusters[i].cluster);
    tess__free(cases->ctx, cases->cases);
    tess__free(cases->ctx, cases->skips);
    tess__free(cases->ctx, cases->first);
    if (cases->arena.ctx)
        tess__arena_free(&cases->arena);
    *cases = (tess__cases){0};
}

static tess_status find_cluster(tess__cases *cases, const char *name, int *index)
{
    for (*index = 0; *index < cases->n_clusters; (*index)++)
        if (strcmp(cases->clusters[*index].name, name) == 0)
            return TESS_OK;
    if (!*name)
        return tess__fail(TESS_EINVAL, "no cluster is given");
    if (cases->n_clusters == TESS__CASE_CLUSTERS)
        return tess__fail(TESS_EINVAL, "more than %d clusters", TESS__CASE_CLUSTERS);
    tess__case_cluster *c = &cases->clusters[*index];
    TESS_TRY(tess_cluster_load(cases->ctx, name, &c->cluster));
    snprintf(c->name, sizeof c->name, "%s", name);
    cases->n_clusters++;
    return TESS_OK;
}

/* ---- settings -------------------------------------------------------------------------------- */

static tess_status number_of(const tess__setting *s, double low, double high, double *value)
{
    if (tess__csv_number(&(tess__csv_field){s->value, strlen(s->value)}, value) && *value >= low &&
        *value <= high)
        return TESS_OK;
    return tess__fail(TESS_EINVAL, "%s is \"%.60s\", must be a number %g..%g", s->key, s->value,
                      low, high);
}

static tess_status set_collective(const tess__setting *s, tess__case *c)
{
    double value;
    if (strcmp(s->key, "collective.op") == 0) {
        for (int i = 0; i < TESS_COLLECTIVE_OPS; i++)
            if (strcmp(s->value, tess_collective_name((tess_collective_op)i)) == 0) {
                c->collective.op = (tess_collective_op)i;
                return TESS_OK;
            }
        return tess__fail(TESS_EINVAL, "collective.op is \"%.60s\", which is not known", s->value);
    }
    TESS_TRY(number_of(s, 1, 9e15, &value));
    if (value != floor(value))
        return tess__fail(TESS_EINVAL, "%s is \"%.60s\", must be an integer", s->key, s->value);
    if (strcmp(s->key, "collective.bytes") == 0)
        c->collective.bytes = (int64_t)value;
    else if (strcmp(s->key, "collective.gpus") == 0)
        c->collective.gpus = (int)fmin(value, 1 << 30);
    else if (strcmp(s->key, "collective.nodes") == 0)
        c->collective.per_node = (int)fmin(value, 1 << 30); /* turned into GPUs of a node below */
    else
        return tess__column_unknown(s->key);
    return TESS_OK;
}

static tess_status set_product(const tess__setting *s, tess__case *c)
{
    double value;
    if (strcmp(s->key, "product.weight") == 0) {
        c->product.weight = strcmp(s->value, "true") == 0;
        return TESS_OK;
    }
    TESS_TRY(number_of(s, 1, 1e9, &value));
    const char *name = s->key + strlen("product.");
    double *at = strcmp(name, "m") == 0       ? &c->product.m
                 : strcmp(name, "n") == 0     ? &c->product.n
                 : strcmp(name, "k") == 0     ? &c->product.k
                 : strcmp(name, "batch") == 0 ? &c->product.batch
                                              : NULL;
    if (!at)
        return tess__column_unknown(s->key);
    *at = value;
    return TESS_OK;
}

static tess_status set_overlap(tess__cases *cases, const tess__setting *s, tess__case *c)
{
    if (strcmp(s->key, "overlap.share") == 0)
        return number_of(s, 0, 1, &c->overlap.share);
    if (strcmp(s->key, "overlap.alone_ns") == 0)
        return number_of(s, 1, 1e15, &c->overlap.alone_ns);
    if (strcmp(s->key, "overlap.kernel") != 0)
        return tess__column_unknown(s->key);
    c->overlap.kernel = TESS_MEMORY(tess__cases_text(cases, s->value));
    c->overlap.kernel_class = tess__kernel_class_of(c->overlap.kernel);
    return TESS_OK;
}

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int is_note(const char *key)
{
    return begins(key, "measured.") || strcmp(key, "label") == 0 || strcmp(key, "group") == 0 ||
           strcmp(key, "source") == 0;
}

/* The settings of a row in a case without a measurement. */
static tess_status apply(tess__cases *cases, const tess__row *row, tess__case *c)
{
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < row->n; i++) {
            const tess__setting *s = &row->settings[i];
            const int model =
                strcmp(s->key, "model.name") == 0 || strcmp(s->key, "model.config") == 0;
            if (model != first || is_note(s->key))
                continue;
            TESS_TRY(tess__column_check(s->key));
            if (begins(s->key, "collective."))
                TESS_TRY(set_collective(s, c));
            else if (begins(s->key, "product."))
                TESS_TRY(set_product(s, c));
            else if (begins(s->key, "overlap."))
                TESS_TRY(set_overlap(cases, s, c));
            else
                TESS_TRY(tess_scenario_set(cases->ctx, &c->scenario, s->key, s->value));
        }
    tess_collective *work = &c->collective;
    if (work->per_node > 0 && work->gpus % work->per_node != 0)
        return tess__fail(TESS_EINVAL, "%d GPUs cannot be spread over %d nodes", work->gpus,
                          work->per_node);
    if (work->per_node > 0)
        work->per_node = work->gpus / work->per_node;
    return find_cluster(cases, c->scenario.system.cluster, &c->cluster);
}

/* ---- measurements ---------------------------------------------------------------------------- */

/* Throughputs as ms of a step, bus bandwidths as us, times beside communication as ratios. */
static tess_status convert(const tess__case *c, double value, double *out)
{
    tess_scenario full;
    const tess_collective *w = &c->collective;
    switch (c->what) {
    case TESS__MEASURED_TOKENS_PER_S:
    case TESS__MEASURED_TOKENS_PER_S_PER_GPU:
        TESS_TRY(tess_scenario_fill(&c->scenario, &full));
        if (c->what == TESS__MEASURED_TOKENS_PER_S_PER_GPU)
            value *= full.layout.gpus;
        *out = 1e3 * (double)full.training.global_batch * (double)full.model.seq / value;
        return TESS_OK;
    case TESS__MEASURED_BUSBW:
        /* nccl-tests: busbw = bytes / time x 2 (n - 1) / n of an all-reduce, (n - 1) / n of others.
         */
        if (w->gpus < 2)
            return tess__fail(TESS_EINVAL, "a bus bandwidth of %d GPU", w->gpus);
        *out = 1e-3 * (double)w->bytes / value * (w->op == TESS_ALL_REDUCE ? 2 : 1) *
               (w->gpus - 1) / w->gpus;
        return TESS_OK;
    case TESS__MEASURED_OVERLAPPED_NS:
        if (!c->overlap.kernel || c->overlap.alone_ns <= 0)
            return tess__fail(TESS_EINVAL, "overlap.kernel and overlap.alone_ns must be given");
        *out = value / c->overlap.alone_ns;
        return TESS_OK;
    default: *out = value; return TESS_OK;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static tess_status add_case(tess__repeats *repeats, const tess__case *c)
{
    tess__cases *cases = repeats->cases;
    TESS_TRY(tess__repeats_reserve(repeats));
    tess__case *known =
        c->what == TESS__MEASURED_OVERLAPPED_NS ? NULL : tess__repeats_find(repeats, c);
    if (known) {
        known->measured = (known->measured * known->repeats + c->measured) / (known->repeats + 1);
        known->repeats++;
        cases->first[c->row - 1] = known->row;
        return TESS_OK;
    }
    TESS_GROW(cases->ctx, cases->cases, cases->n, cases->n + 1, cases->room);
    cases->cases[cases->n++] = *c;
    tess__repeats_put(repeats, cases->n - 1);
    return TESS_OK;
}

static tess_status measure(tess__repeats *repeats, const tess__row *row, tess__case *c)
{
    int measured = 0;
    for (int i = 0; i < row->n; i++)
        for (int k = 0; k < TESS__MEASURED_COUNT; k++) {
            double value;
            if (strcmp(row->settings[i].key, tess__measured_defs[k].key) != 0)
                continue;
            TESS_TRY(number_of(&row->settings[i], 1e-9, 1e15, &value));
            c->what = (tess__measured_kind)k;
            TESS_TRY(convert(c, value, &c->measured));
            TESS_TRY(add_case(repeats, c));
            measured = 1;
        }
    return measured ? TESS_OK : tess__fail(TESS_EINVAL, "nothing was measured");
}

/* A row that names no software takes that of its source. */
static void name_software(const tess__cases *cases, const tess__row *row, tess__case *c)
{
    char text[1024];
    const char *source = tess__row_value(row, "source");
    tess_sim_system *system = &c->scenario.system;
    if (!cases->params || system->era[0])
        return;
    snprintf(text, sizeof text, "%s %s %s", source ? source : "", c->group, c->label);
    const int software = tess__software_of(cases->params, text);
    if (software >= 0)
        snprintf(system->era, sizeof system->era, "%s", cases->params->eras[software].name);
}

static tess_status add_row(tess__repeats *repeats, int number, const tess__row *row)
{
    tess__cases *cases = repeats->cases;
    tess__case c = {.row = number, .repeats = 1};
    c.label = TESS_MEMORY(tess__cases_text(cases, tess__row_value(row, "label")));
    c.group = TESS_MEMORY(tess__cases_text(cases, tess__row_value(row, "group")));
    c.model = TESS_MEMORY(tess__cases_text(cases, tess__row_value(row, "model.name")));
    if (!*c.model)
        c.model = c.label;
    TESS_TRY(apply(cases, row, &c));
    name_software(cases, row, &c);
    return measure(repeats, row, &c);
}

/* Reads and adds the next row; one that cannot be expressed is skipped with its reason. */
static tess_status add_next(tess__repeats *repeats, const tess__map *map, const tess__table *table,
                            int i)
{
    tess__cases *cases = repeats->cases;
    tess__row row;
    TESS_TRY(tess__row_read(map, table, i, &row));
    TESS_GROW(cases->ctx, cases->first, cases->rows, cases->rows + 1, cases->row_room);
    const int n = cases->n, number = ++cases->rows;
    cases->first[number - 1] = number;
    if (!row.reason[0]) {
        const tess_status status = add_row(repeats, number, &row);
        if (status == TESS_OK || status == TESS_ENOMEM)
            return status;
        snprintf(row.reason, sizeof row.reason, "%s", tess_last_error());
        cases->n = n;
    }
    cases->first[number - 1] = 0;
    const char *reason = tess__cases_text(cases, row.reason);
    return reason ? add_skip(cases, number, reason) : TESS_ENOMEM;
}

tess_status tess__cases_add(tess__cases *cases, const tess__map *map, const tess__table *table)
{
    tess__repeats repeats = {.cases = cases, .begin = cases->n};
    tess_status status = TESS_OK;
    for (int i = 0; status == TESS_OK && i < table->rows; i++) {
        status = tess__progress(cases->ctx, "reading rows", i, table->rows);
        if (status == TESS_OK)
            status = add_next(&repeats, map, table, i);
    }
    tess__repeats_free(&repeats);
    return status;
}
