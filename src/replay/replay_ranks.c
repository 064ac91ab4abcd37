/* SPDX-License-Identifier: Apache-2.0 */
/* replay_ranks.c - tess_replay: files in, the event engine, results out. */
#include "replay_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slowdowns ------------------------------------------------------------------------------- */

static double slowdown(const tess_replay *r, const char *name, int class)
{
    if (r->hardware < 0 || class == TESS__REPLAY_HOST || class == TESS_KERNEL_COMMUNICATION ||
        class == TESS_KERNEL_COPY)
        return 0.0;
    return tess__overlap_find(&r->params->overlaps, r->hardware, name, class);
}

static int32_t slow(const void *user, const char *name, int class)
{
    const tess_replay *r = user;
    if (class > TESS__REPLAY_HOST || r->hardware < 0)
        return 0;
    const double s = class == TESS_KERNEL_COMMUNICATION
                         ? tess__overlap_comm(&r->params->overlaps, r->hardware)
                         : slowdown(r, name, class);
    return (int32_t)lround(1e6 * s);
}

int64_t tess__replay_alone(const tess_replay *r, const char *name, int kernel_class, int64_t ns,
                           int64_t beside)
{
    if (beside == 0)
        return ns;
    return ns - beside + llround((double)beside / (1.0 + slowdown(r, name, kernel_class)));
}

static tess_status find_hardware(tess_replay *r, const tess_sim_params *params)
{
    const tess__param_set *set = NULL;
    tess_cluster_info info;
    r->hardware = -1;
    if (r->as_recorded)
        return TESS_OK;
    if (!params)
        TESS_TRY(tess_sim_params_load(r->ctx, NULL, &r->own_params));
    r->params = params ? params : r->own_params;
    TESS_TRY(tess_cluster_query(r->cluster, &info));
    if (tess__params_hardware(r->params, info.gpu, (double)info.memory, &set) == TESS_OK)
        r->hardware = (int)(set - r->params->hardware);
    else
        TESS_TRY(TESS_NOTE(r,
                           "no parameters for the GPU \"%.60s\": kernels are as fast "
                           "beside communication as alone",
                           info.gpu));
    return TESS_OK;
}

/* The profile of a program where none is given: uncompiled PyTorch, if the parameters know it. */
static const char *usual_software(const tess_sim_params *params)
{
    for (int i = 0; i < params->n_eras; i++)
        if (strcmp(params->eras[i].name, "pytorch-eager-2024") == 0)
            return params->eras[i].name;
    return "";
}

/* The operation model of the cluster's GPU and of the software; nothing where no file needs it. */
static tess_status find_model(tess_replay *r, const char *software)
{
    int programs = 0;
    for (int i = 0; i < r->n; i++)
        programs += r->rows[i].program != NULL;
    if (!programs) {
        return software
                   ? tess__fail(TESS_EINVAL, "%s: has times: no software profile can change them",
                                r->rows[0].path)
                   : TESS_OK;
    }
    if (r->as_recorded)
        return TESS_OK;
    TESS_TRY(tess_sim_create(r->ctx, r->params, &r->sim));
    r->sim->s.training.precision = TESS_SIM_BF16;
    snprintf(r->sim->s.system.era, sizeof r->sim->s.system.era, "%s",
             software ? software : usual_software(r->params));
    TESS_TRY(tess__sim_find_params(r->sim, r->cluster));
    r->info.software = r->params->eras[r->sim->i_era].name;
    return TESS_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct {
    int64_t begin, end;
} span;

static int by_begin(const void *x, const void *y)
{
    const span *a = x, *b = y;
    return a->begin != b->begin ? (a->begin > b->begin ? 1 : -1)
                                : (a->end > b->end) - (a->end < b->end);
}

/* Length of the union; the spans become disjoint ones in order, *n of them. */
static int64_t unite(span *spans, int64_t *n)
{
    int64_t length = 0, kept = 0;
    qsort(spans, (size_t)*n, sizeof *spans, by_begin);
    for (int64_t i = 0; i < *n; i++) {
        if (kept > 0 && spans[i].begin <= spans[kept - 1].end)
            spans[kept - 1].end = TESS_MAX(spans[kept - 1].end, spans[i].end);
        else
            spans[kept++] = spans[i];
    }
    for (int64_t i = 0; i < kept; i++)
        length += spans[i].end - spans[i].begin;
    *n = kept;
    return length;
}

/* What two unions share. */
static int64_t shared(const span *a, int64_t n, const span *b, int64_t m)
{
    int64_t length = 0;
    for (int64_t i = 0, k = 0; i < n && k < m;) {
        const int64_t from = TESS_MAX(a[i].begin, b[k].begin), to = TESS_MIN(a[i].end, b[k].end);
        length += to > from ? to - from : 0;
        if (a[i].end < b[k].end)
            i++;
        else
            k++;
    }
    return length;
}

/* Of one row; `compute` and `comm` have room for all operations. */
static void measure(tess_replay *r, int number, span *compute, span *comm, span *step)
{
    const tess_timeline *t = r->timeline;
    tess_replay_rank *out = &r->rows[number].result;
    int64_t n = 0, m = 0;
    span all = {INT64_MAX, INT64_MIN};
    for (int64_t i = r->rows[number].first_op; i < r->rows[number].end_op; i++) {
        const tess__tl_op *op = &t->ops[i];
        if (op->cat == TESS__CAT_HOST)
            continue;
        if (op->class < TESS_KERNEL_CLASSES)
            out->class_ns[op->class] += op->end - op->begin;
        all.begin = TESS_MIN(all.begin, op->begin);
        all.end = TESS_MAX(all.end, op->end);
        if (op->cat == TESS__CAT_COMPUTE)
            compute[n++] = (span){op->begin, op->end};
        if (op->cat != TESS__CAT_COMM)
            continue;
        comm[m++] = (span){op->ready, op->end};
        out->comm_ns += op->end - op->begin;
        out->wait_ns += op->begin - op->ready;
    }
    out->span_ns = all.end > all.begin ? all.end - all.begin : 0;
    out->compute_ns = unite(compute, &n);
    out->exposed_ns = unite(comm, &m) - shared(compute, n, comm, m);
    step->begin = TESS_MIN(step->begin, all.begin);
    step->end = TESS_MAX(step->end, all.end);
}

static void measure_program(tess__replay_row *row)
{
    tess_replay_rank *out = &row->result;
    out->program = 1;
    out->peak_bytes = row->program->peak_bytes;
    for (int k = 0; k < TESS__PROGRAM_PARTS; k++) {
        out->memory[k] = row->program->parts[k];
        if (k == 0 || out->memory[k] > row->program->parts[out->largest])
            out->largest = k;
    }
    for (int64_t i = 0; i < row->program->n; i++)
        out->flop += row->program->events[i].flop;
}

static tess_status measure_all(tess_replay *r)
{
    const size_t bytes = (size_t)r->timeline->n * sizeof(span);
    span *compute = tess__alloc(r->ctx, bytes), *comm = tess__alloc(r->ctx, bytes);
    span step = {INT64_MAX, INT64_MIN};
    const tess_status status = compute && comm ? TESS_OK : TESS_ENOMEM;
    for (int i = 0; status == TESS_OK && i < r->n; i++) {
        tess_replay_rank *out = &r->rows[i].result;
        measure(r, i, compute, comm, &step);
        out->path = r->rows[i].path;
        out->rank = r->rows[i].rank;
        out->kineto = r->rows[i].kineto != NULL;
        if (r->rows[i].program)
            measure_program(&r->rows[i]);
    }
    r->info.step_ns = step.end > step.begin ? step.end - step.begin : 0;
    tess__free(r->ctx, compute);
    tess__free(r->ctx, comm);
    return status;
}

/* ---- run ------------------------------------------------------------------------------------- */

static tess_status count_streams(tess_replay *r)
{
    r->streams = TESS__OURS_STREAMS;
    for (int i = 0; i < r->n; i++) {
        const int n = r->rows[i].kineto    ? tess__replay_kineto_streams(r->rows[i].kineto)
                      : r->rows[i].program ? tess__program_streams(r->rows[i].program)
                                           : 0;
        if (n < 0)
            return tess__fail(TESS_EINVAL, "%s: more than 4096 streams or threads",
                              r->rows[i].path);
        r->streams = TESS_MAX(r->streams, n);
    }
    return TESS_OK;
}

/* The computing of a file stays far below what an int64_t holds. */
static tess_status check_length(const tess_replay *r)
{
    static const double LONGEST = 1e17; /* ns, three years */
    for (int i = 0; i < r->n; i++) {
        const tess__replay_row *row = &r->rows[i];
        double ns = 0.0;
        for (int64_t k = 0; row->ours && k < row->ours->info.calls; k++)
            ns += (double)row->ours->calls[k].compute;
        for (int64_t k = 0; row->program && k < row->program->n; k++)
            ns += (double)TESS_MAX(row->program->events[k].ns, (int64_t)0);
        for (int64_t k = 0; row->kineto && k < row->kineto->n_acts; k++)
            ns += (double)row->kineto->acts[k].ns;
        if (!(ns * r->scale <= LONGEST))
            return tess__fail(TESS_EINVAL, "%s: computes %g s times %g, must be at most %g s",
                              row->path, 1e-9 * ns, r->scale, 1e-9 * LONGEST);
    }
    return TESS_OK;
}

static tess_status run(tess_replay *r, const char *const *paths, int n,
                       const tess_replay_opts *opts)
{
    TESS_TRY(tess__replay_load(r, paths, n));
    TESS_TRY(check_length(r));
    TESS_TRY(find_hardware(r, opts->params));
    TESS_TRY(find_model(r, opts->software));
    TESS_TRY(tess__replay_find_meets(r));
    TESS_TRY(count_streams(r));
    TESS_TRY(tess__timeline_create(r->ctx, n, r->streams, &r->timeline));
    for (int i = 0; i < n; i++) {
        r->rows[i].first_op = r->timeline->n;
        TESS_TRY(r->rows[i].ours     ? tess__replay_ours(r, i)
                 : r->rows[i].kineto ? tess__replay_kineto(r, i)
                                     : tess__replay_program(r, i));
        r->rows[i].end_op = r->timeline->n;
    }
    if (!r->as_recorded)
        tess__timeline_slow(r->timeline, slow, r);
    const tess_status status = tess__timeline_run(r->timeline);
    if (status == TESS_EINVAL && n > 1) {
        char why[256];
        snprintf(why, sizeof why, "%s", tess_last_error());
        return tess__fail(TESS_EINVAL, "%s: the files are not of the same step", why);
    }
    TESS_TRY(status);
    int64_t critical[TESS__CLASS_MAX];
    tess__timeline_critical(r->timeline, critical);
    memcpy(r->info.critical_ns, critical, sizeof r->info.critical_ns);
    return measure_all(r);
}

static tess_status check(const tess_cluster *cluster, const tess_replay_opts *o)
{
    static const char fn[] = "tess_replay_run";
    if (!cluster && !o->as_recorded)
        return tess__invalid(fn, "cluster is NULL, and as_recorded is 0");
    if (o->compute_scale != 0.0 && !(o->compute_scale >= 1e-9 && o->compute_scale <= 1e9))
        return tess__invalid(fn, "compute_scale is %g, must be 1e-9..1e9, or 0 for 1",
                             o->compute_scale);
    return tess__check_least(fn, "per_node", o->per_node, 0);
}

tess_status tess_replay_run(tess_ctx *ctx, const char *const *paths, int n,
                            const tess_cluster *cluster, const tess_replay_opts *opts,
                            tess_replay **replay)
{
    const tess_replay_opts o = opts ? *opts : (tess_replay_opts){0};
    tess_cluster_info info = {.node_gpus = 1};
    TESS_REQUIRE(ctx, paths, replay);
    TESS_TRY(tess__check_range(__func__, "n", n, 1, 1 << 20));
    TESS_TRY(check(cluster, &o));
    if (cluster)
        TESS_TRY(tess_cluster_query(cluster, &info));
    tess_replay *r = TESS_ALLOC_ZERO(ctx, sizeof *r);
    r->ctx = r->arena.ctx = ctx;
    r->cluster = o.as_recorded ? NULL : cluster;
    r->as_recorded = o.as_recorded != 0;
    r->scale = o.compute_scale != 0.0 ? o.compute_scale : 1.0;
    r->per_node = o.per_node ? o.per_node : info.node_gpus;
    const tess_status status = run(r, paths, n, &o);
    if (status == TESS_OK)
        *replay = r;
    else
        tess_replay_destroy(r);
    return status;
}

void tess_replay_destroy(tess_replay *r)
{
    if (!r)
        return;
    tess__replay_unload(r);
    tess_timeline_destroy(r->timeline);
    tess_sim_destroy(r->sim);
    tess_sim_params_destroy(r->own_params);
    tess__arena_free(&r->arena);
    tess__free(r->ctx, r);
}

/* ---- asking ---------------------------------------------------------------------------------- */

tess_status tess_replay_query(const tess_replay *replay, tess_replay_info *info)
{
    TESS_REQUIRE(replay, info);
    *info = replay->info;
    return TESS_OK;
}

const char *tess_replay_note(const tess_replay *replay, int index)
{
    return replay && index >= 0 && index < replay->info.notes ? replay->notes[index] : NULL;
}

tess_status tess_replay_rank_query(const tess_replay *replay, int index, tess_replay_rank *rank)
{
    TESS_REQUIRE(replay, rank);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, replay->n - 1));
    *rank = replay->rows[index].result;
    return TESS_OK;
}

const char *tess_replay_memory_name(int part)
{
    return part >= 0 && part < TESS__PROGRAM_PARTS ? tess__program_parts[part] : NULL;
}
