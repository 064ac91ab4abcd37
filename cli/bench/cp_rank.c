/* SPDX-License-Identifier: Apache-2.0 */
/* cp_rank.c - one rank of a context-parallel problem: runs every strategy, one after the other, on
 * its rows of tensors that all ranks share.
 *
 * The first context-parallel group measures rates, and which keys the lists share, in a pass of its
 * own. The planner and the groups of the strategies reuse both, so that their predictions compare.
 * Samples are taken in rounds over all strategies, so that a slow period of the machine affects all
 * of them. In a sample each layer begins when all ranks have reached it; it ends with the last of
 * them, by their virtual clocks.
 */
#include "cp_bench.h"

#include "tessera/advanced/collectives.h"
#include "tessera/advanced/exchange.h"
#include "tessera/cp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MOST = 5 };

typedef struct {
    cp_job *job;
    cli *c; /* that failures are stored in: of rank 0, and of processes, the command's */
    tess_ctx *ctx;
    tess_comm *comm;
    int rank;
    tess_cp *rates;       /* the first, which measures */
    const double *unions; /* of it */
    tess_cp *context;
    tess_cp_info info;
    cp_run *run;
    int64_t *offsets; /* (groups + 1): a share's lists on their way */
    int32_t *indices;
    float *lse;     /* (heads, local rows); NULL: not wanted */
    uint8_t *marks; /* (heads, units): what a selective rank needs; NULL: not counted */
} state;

static size_t cell(const state *s, int sample, int layer)
{
    const cp_lists *l = s->job->lists;
    return ((size_t)sample * (size_t)l->layers + (size_t)layer) * (size_t)l->ranks +
           (size_t)s->rank;
}

static tess_status no_memory(const state *s, size_t bytes)
{
    return out_fail(s->c, TESS_ENOMEM, "no memory for %zu bytes", bytes);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The lists of a share's query groups, out of those of the whole head. */
static tess_status choose(void *user, const tess_share_in *in, tess_selection *lists, int *dense)
{
    state *s = user;
    const cp_lists *l = s->job->lists;
    tess_selection_lists all;
    int64_t n = 0;
    if (!l->keys[in->layer * l->heads + in->head]) {
        *dense = 1;
        return TESS_OK;
    }
    TRY(tess_selection_view(l->chosen[in->layer], &all));
    for (int32_t g = 0; g < in->n_groups; g++) {
        const int64_t list = (int64_t)in->head * l->groups + in->groups[g];
        const int64_t length = all.offsets[list + 1] - all.offsets[list];
        s->offsets[g] = n;
        memcpy(s->indices + n, all.indices + all.offsets[list], (size_t)length * sizeof(int32_t));
        for (int64_t i = 0; s->marks && i < length; i++)
            s->marks[(size_t)in->head * (size_t)l->units + (size_t)s->indices[n + i]] = 1;
        n += length;
    }
    s->offsets[in->n_groups] = n;
    return tess_selection_set_lists(lists, s->offsets, s->indices);
}

/* Bytes of the marked units' keys and values that lie on other ranks. */
static int64_t bytes_apart(const state *s)
{
    const cp_lists *l = s->job->lists;
    int64_t rows = 0;
    for (int h = 0; h < l->heads; h++)
        for (int32_t u = 0; u < l->units; u++)
            for (int64_t row = l->unit_bounds[u]; row < l->unit_bounds[u + 1]; row++)
                rows += s->marks[(size_t)h * (size_t)l->units + (size_t)u] &&
                        (row < s->info.first || row >= s->info.first + s->info.rows);
    return rows * 2 * s->job->w->p.dim * (int64_t)sizeof(float);
}

/* ---- one layer ------------------------------------------------------------------------------- */

/* The local rows of a tensor. */
static tess_view local_rows(const state *s, const tess_view *whole)
{
    tess_view v = *whole;
    v.data = (float *)v.data + s->info.first * v.stride_s;
    return v;
}

static tess_status run_layer(state *s, int layer)
{
    workload *w = s->job->w;
    const tess_dist_call call = {.layer = layer,
                                 .save = w->p.backward ? 0 : -1,
                                 .choose = choose,
                                 .user = s,
                                 .unions = s->info.unions};
    const tess_view q = local_rows(s, &w->q), k = local_rows(s, &w->k), v = local_rows(s, &w->v),
                    o = local_rows(s, &w->o);
    TRY(tess_dist_attn_forward(s->info.attn, &call, &q, &k, &v, &o, s->lse));
    if (!w->p.backward)
        return TESS_OK;
    const tess_view dout = local_rows(s, &w->dout), dq = local_rows(s, &w->dq),
                    dk = local_rows(s, &w->dk), dv = local_rows(s, &w->dv);
    return tess_dist_attn_backward(s->info.attn, &call, &dout, &dq, &dk, &dv);
}

/* Collective: all ranks stop if a signal came to one of them. */
static tess_status poll_signals(state *s)
{
    return world_agree(s->c, s->comm, signals_caught() ? TESS_ESTOPPED : TESS_OK);
}

static tess_status time_layer(state *s, int sample, int layer)
{
    const size_t at = cell(s, sample, layer), bytes = cell(s, 0, layer);
    tess_dist_stats stats;
    TRY(poll_signals(s)); /* a barrier too */
    const int64_t now = tess_comm_clock(s->comm);
    const int64_t zero = s->job->comm ? now : 0; /* processes may have clocks that differ */
    s->run->start[at] = now - zero;
    TRY(run_layer(s, layer));
    s->run->end[at] = tess_comm_clock(s->comm) - zero;
    TRY(tess_dist_attn_stats(s->info.attn, layer, &stats));
    s->run->cpu[at] = stats.cpu_ns;
    s->run->payload[bytes] = stats.bytes[TESS_TRAFFIC_PAYLOAD];
    s->run->index[bytes] = stats.bytes[TESS_TRAFFIC_INDEX];
    s->run->attend[bytes] = stats.attend_ns;
    s->run->exchange[bytes] = stats.exchange_ns;
    s->run->rest[bytes] = stats.move_ns + stats.select_ns + stats.index_ns;
    return TESS_OK;
}

/* The lse of the local rows is copied to where one rank would have it; then rank 0 compares. */
static tess_status compare_layer(state *s, int layer)
{
    cp_job *job = s->job;
    const int64_t tokens = job->lists->tokens;
    for (int h = 0; h < job->lists->heads; h++)
        memcpy(job->w->lse + h * tokens + s->info.first, s->lse + h * s->info.rows,
               (size_t)s->info.rows * sizeof *s->lse);
    TRY(tess_comm_agree(s->comm, TESS_OK));
    const tess_status status =
        s->rank == 0 ? job->compare(job->user, (int)(s->run - job->runs), layer) : TESS_OK;
    return world_agree(s->c, s->comm, status);
}

/* A pass that is not timed: it warms memory, shows what selective ranks need, and is compared. */
static tess_status first_pass(state *s)
{
    const cp_lists *l = s->job->lists;
    const size_t marks = (size_t)l->heads * (size_t)l->units;
    s->marks = malloc(marks);
    TRY(world_agree(s->c, s->comm, s->marks ? TESS_OK : no_memory(s, marks)));
    for (int layer = 0; layer < l->layers; layer++) {
        memset(s->marks, 0, marks);
        TRY(poll_signals(s));
        TRY(run_layer(s, layer));
        s->run->apart[cell(s, 0, layer)] = bytes_apart(s);
        if (s->job->compare)
            TRY(compare_layer(s, layer));
    }
    free(s->marks);
    s->marks = NULL;
    return TESS_OK;
}

/* ---- one strategy ---------------------------------------------------------------------------- */

/* Bytes of q that the rank sends for a layer. */
static tess_status count_queries(const state *s, int layer, int64_t *bytes)
{
    tess_exchange *x = NULL;
    tess_rows_view rows;
    TRY(tess_plan_exchange(s->info.plan, NULL, layer, s->rank, s->info.bounds, NULL, &x));
    tess_status status = tess_exchange_view(x, TESS_ROWS_Q, &rows);
    if (status == TESS_OK)
        *bytes =
            (rows.send_total - rows.send_rows[s->rank]) * s->job->w->p.dim * (int64_t)sizeof(float);
    tess_exchange_destroy(x);
    return status;
}

static tess_status record_layers(state *s)
{
    for (int layer = 0; layer < s->job->lists->layers; layer++) {
        tess_cp_layer_info info;
        tess_plan_layer planned;
        TRY(tess_cp_layer(s->context, layer, &info));
        TRY(tess_plan_layer_view(s->info.plan, layer, &planned));
        TRY(count_queries(s, layer, &s->run->moved[cell(s, 0, layer)]));
        if (s->rank > 0)
            continue;
        snprintf(s->run->words[layer], CP_WORDS, "%s", info.words);
        s->run->predicted[layer] = info.predicted_ns < 0 ? -1 : (double)info.predicted_ns * 1e-9;
        s->run->imbalance[layer] = info.imbalance;
        s->run->modelled[layer] = info.bytes_predicted;
        s->run->selective[layer] = planned.strategy.selective > 1;
    }
    return TESS_OK;
}

static void record_rates(void *user, const tess_cp_event *event)
{
    cp_job *job = user;
    if (event->kind == TESS_CP_RATES && event->step < 0)
        snprintf(job->rates, sizeof job->rates, "%s", event->sentence);
}

static tess_status make(state *s, const char *strategy, tess_cp **context)
{
    const cp_lists *l = s->job->lists;
    const problem *p = &s->job->w->p;
    const tess_cp_opts opts = {.layers = l->layers,
                               .heads = l->heads,
                               .head_dim = (int)p->dim,
                               .batch = 1,
                               .tokens = l->tokens,
                               .n_groups = l->groups,
                               .groups = l->group_bounds,
                               .n_units = p->unit > 1 ? l->units : 0,
                               .units = p->unit > 1 ? l->unit_bounds : NULL,
                               .units_most = l->keys_most,
                               .saves = p->backward,
                               .train = p->backward,
                               .strategy = strategy,
                               .union_shares = s->unions,
                               .rates_from = s->rates,
                               .on_event = s->rank == 0 && !s->rates ? record_rates : NULL,
                               .user = s->job};
    return tess_cp_create(s->ctx, s->comm, &opts, context);
}

/* Samples [from, to). Fails where the group is lost; what makes a strategy impossible is agreed on
 * and kept. */
static tess_status run_strategy(state *s, int from, int to)
{
    tess_status status = make(s, s->run->name, &s->context);
    if (status == TESS_OK)
        status = tess_cp_plan(s->context, 0, s->job->lists->density, NULL);
    if (status == TESS_EINVAL || status == TESS_ENOTSUP) {
        if (s->rank == 0)
            snprintf(s->run->why, CP_WHY, "%s", tess_last_error());
        out_plain(s->run->why);
        return TESS_OK;
    }
    TRY(status);
    TRY(tess_cp_view(s->context, &s->info));
    if (s->job->compare) {
        const size_t bytes = (size_t)s->job->lists->heads * (size_t)s->info.rows * sizeof *s->lse;
        s->lse = malloc(bytes);
        TRY(world_agree(s->c, s->comm, s->lse ? TESS_OK : no_memory(s, bytes)));
    }
    TRY(record_layers(s));
    TRY(first_pass(s));
    for (int sample = from; sample < to; sample++)
        for (int layer = 0; layer < s->job->lists->layers; layer++)
            TRY(time_layer(s, sample, layer));
    if (s->rank == 0)
        s->run->possible = 1;
    return TESS_OK;
}

static void drop_strategy(state *s)
{
    tess_cp_destroy(s->context);
    free(s->lse);
    free(s->marks);
    s->context = NULL;
    s->lse = NULL;
    s->marks = NULL;
}

/* ---- result arrays --------------------------------------------------------------------------- */

enum { BY_SAMPLE = 3, ARRAYS = 10 };

static int64_t **array_of(cp_run *run, int i)
{
    int64_t **const all[ARRAYS] = {&run->cpu,      &run->start, &run->end,   &run->payload,
                                   &run->index,    &run->apart, &run->moved, &run->attend,
                                   &run->exchange, &run->rest};
    return all[i];
}

static size_t array_cells(const cp_job *job, int i)
{
    const size_t cells = (size_t)job->lists->layers * (size_t)job->lists->ranks;
    return i < BY_SAMPLE && job->samples ? cells * (size_t)job->samples : cells;
}

/* ---- all strategies -------------------------------------------------------------------------- */

/* Rates, and the unions of a pass over all layers: heads cut nowhere or seldom show most of them.
 */
static tess_status measure(state *s)
{
    const cp_lists *l = s->job->lists;
    TRY(make(s, "fractional", &s->rates));
    TRY(tess_cp_plan(s->rates, 0, l->density, NULL));
    TRY(tess_cp_view(s->rates, &s->info));
    for (int layer = 0; layer < l->layers; layer++)
        TRY(run_layer(s, layer));
    TRY(tess_cp_plan(s->rates, 1, l->density, NULL)); /* ranks exchange the measured unions */
    TRY(tess_cp_view(s->rates, &s->info));
    s->unions = s->info.union_shares;
    return TESS_OK;
}

/* The strategy that the planner chooses for each layer; none where the executor cannot run it. */
static tess_status ask_planner(state *s)
{
    tess_cp_layer_info info;
    TRY(make(s, "auto", &s->context));
    const tess_status status = tess_cp_plan(s->context, 0, s->job->lists->density, NULL);
    if (status == TESS_EINVAL || status == TESS_ENOTSUP)
        return TESS_OK;
    TRY(status);
    for (int layer = 0; s->rank == 0 && layer < s->job->lists->layers; layer++) {
        TRY(tess_cp_layer(s->context, layer, &info));
        snprintf(s->job->choice[layer], CP_WORDS, "%s", info.words);
    }
    return TESS_OK;
}

static tess_status run_all(state *s)
{
    TRY(measure(s));
    tess_status status = ask_planner(s);
    drop_strategy(s);
    const int samples = s->job->samples;
    const int rounds = samples < 1 ? 1 : samples < ROUNDS_MOST ? samples : ROUNDS_MOST;
    for (int i = 0; status == TESS_OK && i < rounds * s->job->n; i++) {
        const int round = i / s->job->n;
        TRY(poll_signals(s));
        s->run = &s->job->runs[i % s->job->n];
        status = run_strategy(s, samples * round / rounds, samples * (round + 1) / rounds);
        drop_strategy(s);
    }
    return status;
}

static tess_status rank_main(void *user, tess_ctx *ctx, tess_comm *comm)
{
    cp_job *job = user;
    const cp_lists *l = job->lists;
    tess_comm_info info;
    cli own = {.ctx = ctx};
    TRY(tess_comm_query(comm, &info));
    state s = {.job = job,
               .c = job->comm || info.rank == 0 ? job->w->c : &own,
               .ctx = ctx,
               .comm = comm,
               .rank = info.rank};
    const size_t most = (size_t)l->groups * (size_t)l->keys_most;
    const size_t offsets = ((size_t)l->groups + 1) * sizeof *s.offsets;
    const size_t indices = (most ? most : 1) * sizeof *s.indices;
    s.offsets = malloc(offsets);
    s.indices = malloc(indices);
    tess_status status = s.offsets && s.indices ? TESS_OK : no_memory(&s, offsets + indices);
    status = world_agree(s.c, comm, status);
    if (status == TESS_OK)
        status = run_all(&s);
    tess_cp_destroy(s.rates);
    free(s.offsets);
    free(s.indices);
    return status == TESS_OK ? TESS_OK : tess_comm_fail(comm, status);
}

/* The cells of all ranks on each; those that are not its own are 0 so far. */
static tess_status collect(cp_job *job)
{
    for (int i = 0; i < job->n; i++)
        for (int k = 0; k < ARRAYS; k++)
            TRY(tess_comm_allreduce(job->comm, TESS_TRAFFIC_CONTROL, *array_of(&job->runs[i], k),
                                    (int64_t)array_cells(job, k), TESS_DTYPE_I64, TESS_REDUCE_SUM));
    return TESS_OK;
}

tess_status cp_job_run(cp_job *job)
{
    const problem *p = &job->w->p;
    if (job->comm) {
        TRY(rank_main(job, job->w->c->ctx, job->comm));
        return collect(job);
    }
    const tess_link link = {.latency = (int64_t)round(p->latency * 1e3),
                            .bandwidth = p->bandwidth * 1e9,
                            .node_ranks = (int)p->node_ranks,
                            .network_latency = (int64_t)round(p->network_latency * 1e3),
                            .network_bandwidth = p->network_bandwidth * 1e9,
                            .share_cores = problem_shares_cores(p)};
    tess_ctx_info info;
    TRY(tess_ctx_query(job->w->c->ctx, &info));
    const tess_ctx_opts opts = {.isa = info.isa, .threads = 1, .progress = signals_progress};
    return tess_comm_threads(&opts, (int)p->ranks, &link, rank_main, job);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int make_run(const cp_job *job, cp_run *run)
{
    const size_t layers = (size_t)job->lists->layers;
    int good = 1;
    for (int k = 0; k < ARRAYS; k++)
        good &= (*array_of(run, k) = calloc(array_cells(job, k), sizeof(int64_t))) != NULL;
    run->words = calloc(layers, sizeof *run->words);
    run->predicted = calloc(layers, sizeof *run->predicted);
    run->imbalance = calloc(layers, sizeof *run->imbalance);
    run->modelled = calloc(layers, sizeof *run->modelled);
    run->selective = calloc(layers, 1);
    return good && run->words && run->predicted && run->imbalance && run->modelled &&
           run->selective;
}

tess_status cp_job_make(workload *w, const cp_lists *lists, int samples, int n, cp_job *job)
{
    *job = (cp_job){.w = w, .lists = lists, .samples = samples};
    job->runs = calloc((size_t)n, sizeof *job->runs);
    job->choice = calloc((size_t)lists->layers, sizeof *job->choice);
    int good = job->runs && job->choice;
    while (good && job->n < n)
        good = make_run(job, &job->runs[job->n++]);
    return good ? TESS_OK : out_fail(w->c, TESS_ENOMEM, "no memory for %d strategies", n);
}

void cp_job_free(cp_job *job)
{
    for (int i = 0; i < job->n; i++) {
        cp_run *run = &job->runs[i];
        void *const parts[] = {run->words, run->predicted, run->imbalance, run->modelled,
                               run->selective};
        for (int k = 0; k < ARRAYS; k++)
            free(*array_of(run, k));
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            free(parts[k]);
    }
    free(job->runs);
    free(job->choice);
    *job = (cp_job){0};
}
