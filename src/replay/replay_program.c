/* SPDX-License-Identifier: Apache-2.0 */
/* replay_program.c - a rank of a program (trace of version 2) in the event engine.
 *
 * An operator takes its measured time, or that of the operation model on the cluster's GPU; a call
 * what cost.h says, and it begins when the last member with a file has come. An event begins when
 *
 *   - the event before it on its stream has ended (program_streams.c),
 *   - the last writers of the storages that it reads or writes have ended, and the last readers of
 *     those that it writes,
 *   - the host has launched it, one after the other: a share of the software's time for a layer,
 *   - of gathers of parameters: the gather two before it has been read, so two are in flight,
 *   - of the optimiser after the last backward pass: every all-reduce and reduce-scatter before it
 *     has ended, for the backward passes of DDP and FSDP2 end with that wait of the stream.
 *
 * Waits that the file has say nothing more: the streams that wait are not known, and what reads a
 * result waits for it. Cost: events and their storages.
 */
#include "replay_internal.h"
#include "replay_program_row.h"

#include <math.h>
#include <string.h>

typedef struct {
    int32_t op, next; /* a reader since the last write; the one before it; -1: none */
} reader;

typedef struct {
    tess_replay *r;
    const tess__program *p;
    tess__program_row *row;
    int number;
    int32_t *writer; /* (storages) operation; -1: none */
    int32_t *readers;
    reader *pool;
    int64_t n_pool, room_pool;
    int32_t *gather_of;  /* (storages) number of the gather that wrote it; -1: none */
    int32_t *first_read; /* (gathers) the operation that first read it; -1: none yet */
    int64_t gathers;
    int64_t host_ns[2]; /* of an operator, forward and backward */
    int32_t host;       /* the last launch; -1: none */
    int32_t *sum;       /* (channels) the last all-reduce or reduce-scatter; -1: none */
    int64_t update;     /* the event of the optimiser that waits for sums; -1: none */
    double collective_us;
} player;

/* ---- times ----------------------------------------------------------------------------------- */

static double model_seconds(const tess_sim *sim, const tess__program_event *e)
{
    const tess__program_work *w = &e->work;
    const double *d = w->d;
    if (w->kind == TESS__WORK_PRODUCT)
        return w->times * tess__gemm_seconds(sim, d[0], d[1], d[2], d[3], w->precision, 0, 0);
    if (w->kind == TESS__WORK_ATTENTION)
        return tess__flash_seconds(sim, d[0], d[1], d[2], d[3], d[4], w->backward);
    return tess__memory_seconds(sim, (double)e->bytes);
}

static tess_status time_of(const player *p, const tess__program_event *e, int64_t *ns)
{
    static const double LONGEST = 1e6; /* seconds */
    *ns = e->ns >= 0 ? llround(p->r->scale * (double)e->ns) : 0;
    if (e->ns >= 0 || !p->r->sim)
        return TESS_OK;
    const double seconds = model_seconds(p->r->sim, e);
    if (!(seconds <= LONGEST))
        return tess__fail(TESS_ENOTSUP,
                          "%s: \"%.60s\" takes %g s on the cluster %s: its peak in that element "
                          "type is not known",
                          p->p->path, e->name, seconds, p->r->sim->cluster->name);
    *ns = llround(1e9 * p->r->scale * seconds);
    return TESS_OK;
}

/* The host's time of a layer, over the operators of a layer. */
static void share_host(player *p)
{
    const tess__program *program = p->p;
    const tess_sim *sim = p->r->sim;
    if (!sim)
        return;
    const double us[2] = {sim->era[TESS__ERA_HOST_FORWARD_US],
                          sim->era[TESS__ERA_HOST_BACKWARD_US]};
    for (int i = 0; i < 2; i++)
        if (program->layers > 0 && program->layer_ops[i] > 0)
            p->host_ns[i] =
                llround(1e3 * us[i] * (double)program->layers / (double)program->layer_ops[i]);
    p->collective_us = sim->era[TESS__ERA_HOST_COMM_US];
}

/* The host launches `op` behind what it launched before. */
static void launch(player *p, int64_t ns, int32_t op)
{
    tess_timeline *t = p->r->timeline;
    if (ns > 0)
        p->host = tess__timeline_add(t, &(tess__tl_op){.row = p->number,
                                                       .stream = TESS__PROGRAM_HOST,
                                                       .cat = TESS__CAT_HOST,
                                                       .class = TESS__REPLAY_HOST,
                                                       .name = tess__timeline_name(t, "launch"),
                                                       .call = -1,
                                                       .ns = ns});
    tess__timeline_depend(t, op, p->host);
}

/* ---- storages -------------------------------------------------------------------------------- */

static tess_status note_reader(player *p, int32_t storage, int32_t op)
{
    const tess_timeline *t = p->r->timeline;
    const int32_t head = p->readers[storage];
    if (head >= 0 && t->ops[p->pool[head].op].stream == t->ops[op].stream) {
        p->pool[head].op = op; /* the stream runs in order */
        return TESS_OK;
    }
    TESS_GROW(p->r->ctx, p->pool, p->n_pool, p->n_pool + 1, p->room_pool);
    p->pool[p->n_pool] = (reader){op, head};
    p->readers[storage] = (int32_t)p->n_pool++;
    return TESS_OK;
}

static tess_status depend(player *p, const tess__program_event *e, int32_t op)
{
    tess_timeline *t = p->r->timeline;
    const int32_t *s = p->p->stores + e->stores;
    for (int k = 0; k < e->n_reads; k++) {
        const int32_t gather = p->gather_of[s[k]];
        tess__timeline_depend(t, op, p->writer[s[k]]);
        TESS_TRY(note_reader(p, s[k], op));
        if (gather >= 0 && p->first_read[gather] < 0)
            p->first_read[gather] = op;
    }
    for (int k = 0; k < e->n_writes; k++) {
        const int32_t storage = s[e->n_reads + k];
        tess__timeline_depend(t, op, p->writer[storage]);
        for (int32_t i = p->readers[storage]; i >= 0; i = p->pool[i].next)
            if (p->pool[i].op != op)
                tess__timeline_depend(t, op, p->pool[i].op);
    }
    for (int k = 0; k < e->n_writes; k++) {
        const int32_t storage = s[e->n_reads + k];
        p->writer[storage] = op;
        p->readers[storage] = -1;
        p->gather_of[storage] = -1;
    }
    return TESS_OK;
}

/* A gather of parameters: two are in flight. */
static void limit_gathers(player *p, const tess__program_event *e, int32_t op)
{
    const int32_t *s = p->p->stores + e->stores + e->n_reads;
    if (p->gathers >= 2)
        tess__timeline_depend(p->r->timeline, op, p->first_read[p->gathers - 2]);
    p->first_read[p->gathers] = -1;
    for (int k = 0; k < e->n_writes; k++)
        p->gather_of[s[k]] = (int32_t)p->gathers;
    p->gathers++;
}

/* ---- sums of gradients ----------------------------------------------------------------------- */

/* The first operator of the optimiser behind the last event of a backward pass. Where updates run
 * between backward passes, those before it wait for what they read alone. */
static int64_t find_update(const tess__program *p)
{
    int64_t found = -1;
    for (int64_t i = p->n - 1; i >= 0 && p->events[i].pass != TESS__PROGRAM_BACKWARD; i--)
        if (p->events[i].kind == TESS__PROGRAM_OPERATOR &&
            p->events[i].pass == TESS__PROGRAM_OPTIMIZER)
            found = i;
    return found;
}

static void note_sum(player *p, const tess__program_event *e, int32_t op)
{
    const int16_t stream = p->r->timeline->ops[op].stream;
    if (e->op == TESS_CALL_ALL_REDUCE || e->op == TESS_CALL_REDUCE_SCATTER)
        p->sum[stream - TESS__PROGRAM_STREAMS] = op;
}

/* Each channel runs in order: its last sum ends last. */
static void wait_for_sums(player *p, int32_t op)
{
    for (int i = 0; i < p->row->channels; i++)
        tess__timeline_depend(p->r->timeline, op, p->sum[i]);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int32_t name_of(const player *p, const tess__program_event *e)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s%.200s%s", e->name, e->module[0] ? " " : "", e->module,
             e->pass == TESS__PROGRAM_BACKWARD ? " (backward)" : "");
    return tess__timeline_name(p->r->timeline, text);
}

static tess_status add_operator(player *p, int64_t i)
{
    const tess__program_event *e = &p->p->events[i];
    tess__tl_op op = {.row = p->number,
                      .stream = p->row->prepares[i] ? TESS__PROGRAM_PREPARE : TESS__PROGRAM_COMPUTE,
                      .cat = TESS__CAT_COMPUTE,
                      .class = e->class,
                      .name = name_of(p, e),
                      .call = -1};
    TESS_TRY(time_of(p, e, &op.ns));
    const int32_t added = tess__timeline_add(p->r->timeline, &op);
    if (e->pass != TESS__PROGRAM_OPTIMIZER)
        launch(p, p->host_ns[e->pass == TESS__PROGRAM_BACKWARD], added);
    if (added >= 0 && i == p->update)
        wait_for_sums(p, added);
    return added < 0 ? p->r->timeline->status : depend(p, e, added);
}

static tess_status add_call(player *p, int64_t i, int32_t meet)
{
    const tess__program_event *e = &p->p->events[i];
    tess_timeline *t = p->r->timeline;
    tess__tl_op op = {.row = p->number, .name = name_of(p, e)};
    op.stream = (int16_t)tess__program_channel(p->row, e);
    tess__replay_join(p->r, meet, TESS_MAX(e->ns, (int64_t)0), &op);
    const int32_t added = tess__timeline_add(t, &op);
    if (added < 0)
        return t->status;
    const double ranks = (double)p->p->groups[e->group].n;
    launch(p, llround(1e3 * p->collective_us * log2(TESS_MAX(ranks, 1.0))), added);
    TESS_TRY(depend(p, e, added));
    note_sum(p, e, added);
    if (e->op == TESS_CALL_ALL_GATHER && p->row->prepares[i])
        limit_gathers(p, e, added);
    p->r->rows[p->number].result.calls += meet >= 0;
    return TESS_OK;
}

static tess_status reserve(player *p, tess__arena *arena)
{
    const size_t storages = (size_t)p->p->storages + 1, bytes = storages * sizeof(int32_t);
    p->row = TESS_TAKE_ZERO(arena, sizeof *p->row);
    p->row->program = p->p;
    p->row->arena = arena;
    p->writer = TESS_TAKE(arena, bytes);
    p->readers = TESS_TAKE(arena, bytes);
    p->gather_of = TESS_TAKE(arena, bytes);
    p->first_read = TESS_TAKE(arena, ((size_t)p->p->n + 1) * sizeof *p->first_read);
    p->sum = TESS_TAKE(arena, TESS__PROGRAM_CHANNELS * sizeof *p->sum);
    p->update = find_update(p->p);
    memset(p->sum, 0xff, TESS__PROGRAM_CHANNELS * sizeof *p->sum);
    memset(p->writer, 0xff, bytes);
    memset(p->readers, 0xff, bytes);
    memset(p->gather_of, 0xff, bytes);
    return tess__program_row_prepare(p->row);
}

static tess_status play(player *p)
{
    const tess__replay_row *row = &p->r->rows[p->number];
    int64_t call = 0;
    for (int64_t i = 0; i < p->p->n; i++) {
        const int kind = p->p->events[i].kind;
        if (kind == TESS__PROGRAM_OPERATOR)
            TESS_TRY(add_operator(p, i));
        else if (kind == TESS__PROGRAM_CALL)
            TESS_TRY(add_call(p, i, row->meets[call++]));
    }
    return p->r->timeline->status;
}

tess_status tess__replay_program(tess_replay *r, int number)
{
    tess__arena arena = {.ctx = r->ctx};
    player p = {.r = r, .p = r->rows[number].program, .number = number, .host = -1};
    tess_status status = reserve(&p, &arena);
    if (status == TESS_OK) {
        share_host(&p);
        status = play(&p);
    }
    tess__free(r->ctx, p.pool);
    tess__arena_free(&arena);
    return status;
}
