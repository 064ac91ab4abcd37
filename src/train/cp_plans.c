/* SPDX-License-Identifier: Apache-2.0 */
/* cp_plans.c - context-parallel training: the group of the pass, and a plan before each step.
 *
 * The context-parallel group is made with the pass, because both depend on the cubes, and reuses
 * the rates that were measured for the group before it. Densities come from the controller, which
 * has the same ones on all ranks: a sparse head counts with its budget, any other one as dense. A
 * new plan is logged as one sentence; the plan of each layer, its times and bytes are added to
 * plans.csv of the run's folder at validations and at the end:
 *
 *   step,layer,strategy,imbalance,predicted_ms,measured_ms,predicted_bytes,sent_bytes
 */
#include "train_internal.h"

#include <math.h>

static const char plans_file[] = "plans.csv";
static const char plans_head[] =
    "step,layer,strategy,imbalance,predicted_ms,measured_ms,predicted_bytes,sent_bytes\n";

/* ---- making ---------------------------------------------------------------------------------- */

/* Rates and plans are reported once for all groups; reasons against candidates go to the log. */
static void print_plan(void *user, const tess_cp_event *event)
{
    const tess_train *t = user;
    if (t->pg.rank > 0 || t->divergence.again || event->kind == TESS_CP_PLAN_REUSED)
        return;
    if (t->opts.event && event->kind != TESS_CP_FALLBACK)
        t->opts.event(t->opts.event_user, event->sentence);
    else
        tess__log(t->ctx, TESS_LOG_INFO, "%s", event->sentence);
}

/* A warning about an option without effect here. */
static void log_index_memory(const tess_train *t)
{
    static const char sentence[] =
        "index_memory has no effect where ranks share tokens: each keeps the lists of what it "
        "computes";
    if (t->pg.rank > 0 || t->cp || t->opts.attention.index_memory == 0)
        return; /* reported already */
    if (t->opts.event)
        t->opts.event(t->opts.event_user, sentence);
    else
        tess__log(t->ctx, TESS_LOG_WARN, "%s", sentence);
}

tess_status tess__plans_create(tess_train *t, const tess_pass_shape *shape)
{
    const tess__sharing sharing = {.config = &t->model->config,
                                   .shape = shape,
                                   .attention = &t->opts.attention,
                                   .strategy = t->opts.strategy,
                                   .cluster = t->opts.cluster,
                                   .like = t->cp,
                                   .event = print_plan,
                                   .user = t};
    tess_cp *made = NULL;
    if (!t->pg.cp_comm)
        return TESS_OK;
    log_index_memory(t);
    TESS_TRY(tess__pass_cp(t->ctx, t->pg.cp_comm, &sharing, &made));
    tess_cp_destroy(t->cp);
    t->cp = made;
    return tess__plans_make(t);
}

/* ---- before a step --------------------------------------------------------------------------- */

tess_status tess__plans_make(tess_train *t)
{
    if (!t->cp)
        return TESS_OK;
    const int64_t begin = tess__pg_clock(&t->pg), waited = tess__train_sent(t).wait_ns;
    const double *densities = t->control ? t->control->table.densities : NULL;
    TESS_TRY(tess_cp_plan(t->cp, t->step + 1, densities, NULL));
    t->plan_ns += tess__pg_clock(&t->pg) - begin - (tess__train_sent(t).wait_ns - waited);
    return TESS_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

double tess__plans_imbalance(const tess_train *t)
{
    const int layers = t->model->config.layers;
    double sum = 0.0;
    for (int layer = 0; t->cp && layer < layers; layer++) {
        tess_cp_layer_info info;
        if (tess_cp_layer(t->cp, layer, &info) != TESS_OK)
            return (double)NAN;
        sum += info.imbalance;
    }
    return t->cp ? sum / layers : 1.0;
}

/* A field of plans.csv with three decimals at most; empty where the value is not known. */
static void format_field(char text[TESS_REAL_TEXT], double value)
{
    text[0] = 0;
    if (value >= 0.0)
        tess__real_text(nearbyint(1e3 * value) / 1e3, 0, text);
}

static double ms_of(int64_t ns)
{
    return ns < 0 ? -1.0 : 1e-6 * (double)ns;
}

static tess_status add_layer(const tess_train *t, const char *path, int layer)
{
    tess_cp_layer_info info;
    char text[5][TESS_REAL_TEXT], line[512];
    TESS_TRY(tess_cp_layer(t->cp, layer, &info));
    format_field(text[0], info.imbalance);
    format_field(text[1], ms_of(info.predicted_ns));
    format_field(text[2], ms_of(info.measured_ns));
    format_field(text[3], (double)info.bytes_predicted);
    format_field(text[4], (double)info.bytes_sent);
    const int n =
        snprintf(line, sizeof line, "%lld,%d,\"%.200s\",%s,%s,%s,%s,%s\n", (long long)t->step,
                 layer, info.words, text[0], text[1], text[2], text[3], text[4]);
    return tess__lines_add(path, line, (size_t)n);
}

tess_status tess__plans_add(const tess_train *t)
{
    char path[PATH_MAX];
    if (!t->cp || !t->opts.folder || t->pg.rank > 0)
        return TESS_OK;
    TESS_TRY(tess__path(path, t->opts.folder, plans_file));
    for (int layer = 0; layer < t->model->config.layers; layer++)
        TESS_TRY(add_layer(t, path, layer));
    return TESS_OK;
}

tess_status tess__plans_open(const tess_train *t)
{
    char path[PATH_MAX];
    if (!t->pg.cp_comm)
        return TESS_OK;
    TESS_TRY(tess__path(path, t->opts.folder, plans_file));
    return tess__lines_cut(t->ctx, path, plans_head, t->step);
}
