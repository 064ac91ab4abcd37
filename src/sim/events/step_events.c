/* SPDX-License-Identifier: Apache-2.0 */
/* step_events.c - the step of a job, pass by pass: every row runs the actions of its stage.
 *
 * A pass begins with an operation of no length, which waits for what the pass receives, and runs
 * its parts: forward from the embedding to the LM head, backward in reverse. What a rank sends is
 * a call of two members on streams of that pair and direction, in the order of the sender; the
 * receiver is always ready. Rows of a set take part in the same calls, each in its own order of
 * calls, which is the same for all.
 */
#include "events_internal.h"

#include <math.h>

/* ---- operations ------------------------------------------------------------------------------ */

/* The call of a process group that the row reaches now. */
static int32_t next_call(tess__step *p, const tess__pass_op *op)
{
    const int64_t at = p->used[op->kind]++;
    struct tess__call_list *list =
        &p->calls[op->kind * p->c->rows + p->c->set[op->kind * p->c->rows + p->row]];
    if (at < list->n)
        return list->numbers[at];
    const tess_status status =
        tess__grow(p->t->ctx, &list->numbers, sizeof *list->numbers, list->n, at + 1, &list->room);
    if (status != TESS_OK) {
        p->t->status = p->t->status ? p->t->status : status;
        return -1;
    }
    list->numbers[list->n++] = tess__timeline_call(
        p->t, &(tess__tl_call){
                  .group = op->kind, .number = (int32_t)at, .op = op->op, .bytes = op->bytes});
    return list->numbers[at];
}

int32_t tess__step_add(tess__step *p, const tess__pass_op *op)
{
    const double factor = op->cat == TESS__CAT_COMPUTE ? p->c->factor[p->row] : 1.0;
    const int32_t at = tess__timeline_add(
        p->t, &(tess__tl_op){.row = p->row,
                             .stream = op->stream,
                             .name = op->number,
                             .cat = op->cat,
                             .class = op->class,
                             .tag = p->tag,
                             .call = op->kind >= 0 ? next_call(p, op) : -1,
                             .ns = factor == 1.0 ? op->ns : llround((double)op->ns * factor)});
    if (op->stream == TESS__STREAM_COMPUTE)
        p->last = at;
    if (op->stream == TESS__STREAM_DP)
        p->last_dp = at;
    return at;
}

/* A wait that the order of the stream does not see to. */
static void wait_for(tess__step *p, int32_t after, int32_t before)
{
    if (after < 0 || before < 0 ||
        (p->t->ops[after].stream == p->t->ops[before].stream &&
         p->t->ops[after].row == p->t->ops[before].row))
        return;
    tess__timeline_depend(p->t, after, before);
}

/* Bytes of the row from the end of its last compute operation on. */
static void count_memory(tess__step *p)
{
    tess__timeline_count(
        p->t, &(tess__tl_counter){.op = p->last,
                                  .row = p->row,
                                  .value = {llround(p->state), llround(fmax(p->activations, 0.0)),
                                            llround(p->working)}});
}

/* ---- a part of a pass ------------------------------------------------------------------------ */

static int is_fetch(const tess__pass_op *op)
{
    return op->early;
}

/* Gathers the weights of the part that comes next, while this one runs. */
static void fetch(tess__step *p, const tess__pass *next)
{
    p->n_fetched = 0;
    for (int i = 0; next && i < next->n && p->n_fetched < 4; i++)
        if (is_fetch(&next->ops[i])) {
            const int32_t at = tess__step_add(p, &next->ops[i]);
            wait_for(p, at, p->input);
            p->fetched[p->n_fetched++] = at;
        }
}

static void run_ops(tess__step *p, const tess__pass *pass, const tess__pass *next, int32_t *ids)
{
    int32_t fetched[4];
    int n_fetched = 0, used = 0, fetching = 1;
    while (n_fetched < p->n_fetched) {
        fetched[n_fetched] = p->fetched[n_fetched];
        n_fetched++;
    }
    for (int i = 0; i < pass->n; i++) {
        const tess__pass_op *op = &pass->ops[i];
        if (is_fetch(op) && used < n_fetched) {
            ids[i] = fetched[used++];
            continue;
        }
        if (fetching && !is_fetch(op)) {
            fetching = 0;
            fetch(p, next);
        }
        ids[i] = tess__step_add(p, op);
        if (op->input)
            wait_for(p, ids[i], p->input);
        if (op->early)
            wait_for(p, ids[i], p->before);
        for (int k = 0; k < TESS__PASS_WAITS && op->waits[k] >= 0; k++)
            wait_for(p, ids[i], ids[op->waits[k]]);
    }
}

/* Returns the operation after which the gradients of the part's weights are complete. */
static int32_t run_part(tess__step *p, const tess__pass *pass, const tess__pass *next)
{
    int32_t ids[TESS__PASS_OPS];
    run_ops(p, pass, next, ids);
    if (pass->beside >= 0)
        p->beside = ids[pass->beside];
    p->before = p->input;
    if (pass->last >= 0)
        p->input = ids[pass->last];
    return p->last;
}

/* ---- messages between stages ----------------------------------------------------------------- */

static int64_t pass_place(const tess__step *p, int row, int stage, int64_t batch, int direction)
{
    return ((((int64_t)row * p->chunks + p->chunk_of[stage]) * p->s->batches + batch) *
            TESS__DIRECTIONS) +
           direction;
}

static int peer_slot(const tess__step *p, int rank, int other)
{
    int slot = 0;
    while (p->peers[rank * p->n_peers + slot] != other)
        slot++;
    return slot;
}

/* What a pass made goes to virtual stage `to`. */
static void send_to(tess__step *p, int to, int64_t batch, int direction)
{
    const int from_rank = p->stage, to_rank = p->s->rank_of[to];
    const int row = p->row, other = p->c->peer[row * p->c->stages + to_rank];
    const int slot = peer_slot(p, from_rank, to_rank), back = peer_slot(p, to_rank, from_rank);
    int32_t *const number = &p->pair_calls[row * p->n_peers + slot];
    const int32_t call = tess__timeline_call(
        p->t, &(tess__tl_call){.group = TESS__KINDS_MAX + from_rank * p->c->stages + to_rank,
                               .number = *number,
                               .op = TESS_SEND_RECEIVE,
                               .bytes = p->hop_bytes});
    p->pair_calls[other * p->n_peers + back] = ++*number;
    const tess__tl_op op = {
        .cat = TESS__CAT_COMM,
        .class = TESS__TL_PP,
        .name = tess__timeline_name(p->t, direction ? "send gradients" : "send activations"),
        .tag = p->tag,
        .call = call,
        .ns = p->hop_ns};
    tess__tl_op sender = op, receiver = op;
    sender.row = row;
    sender.stream = (int16_t)(TESS__STREAM_PP + 2 * slot);
    receiver.row = other;
    receiver.stream = (int16_t)(TESS__STREAM_PP + 2 * back + 1);
    const int32_t at = tess__timeline_add(p->t, &sender);
    p->arrive[pass_place(p, other, to, batch, direction)] = tess__timeline_add(p->t, &receiver);
    wait_for(p, at, p->input);
    p->sent = p->blocking ? at : -1;
}

static void link_messages(tess__step *p)
{
    const int64_t n = (int64_t)p->c->rows * p->chunks * p->s->batches * TESS__DIRECTIONS;
    for (int64_t i = 0; i < n; i++)
        if (p->begin[i] >= 0 && p->arrive[i] >= 0)
            tess__timeline_depend(p->t, p->begin[i], p->arrive[i]);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void begin_pass(tess__step *p, const tess__action *a)
{
    char text[40];
    p->tag = tess__timeline_name(p->t, tess__action_text(a, text));
    const tess__pass_op marker = {
        .number = p->tag, .kind = -1, .class = TESS__TL_HOST, .cat = TESS__CAT_HOST};
    const int32_t at = tess__step_add(p, &marker);
    if (a->kind != TESS__ACT_W)
        p->begin[pass_place(p, p->row, a->stage, a->batch, a->kind != TESS__ACT_F)] = at;
    wait_for(p, at, p->input);
    wait_for(p, at, p->sent);
    p->sent = -1;
    p->input = at;
    p->n_fetched = 0;
}

/* The host's time of a micro-batch, in front of its forward pass. */
static void run_host(tess__step *p)
{
    const double seconds = p->sim->era[TESS__ERA_HOST_BATCH_MS] * 1e-3 * p->s->ranks / p->s->stages;
    if (seconds <= 0.0)
        return;
    p->input =
        tess__step_add(p, &(tess__pass_op){.number = p->host,
                                           .ns = tess__pass_ns(&p->in, seconds, TESS__TL_HOST),
                                           .kind = -1,
                                           .class = TESS__TL_HOST,
                                           .cat = TESS__CAT_HOST});
}

static double kept_by(const tess__step *p, int part)
{
    if (part == TESS__EMBED || part == TESS__HEAD)
        return p->sim->parts[part].saved;
    const int layers = part == TESS__LAYER ? p->sim->layers[p->stage] : p->sim->later[p->stage];
    return tess__kept(p->sim, part, TESS_MAX(layers, 1)) / TESS_MAX(layers, 1);
}

static int pass_kind(const tess__action *a)
{
    return a->kind == TESS__ACT_F   ? TESS__PASS_F
           : a->kind == TESS__ACT_B ? TESS__PASS_B
           : a->kind == TESS__ACT_I ? TESS__PASS_I
                                    : TESS__PASS_W;
}

static void run_parts(tess__step *p, const tess__action *a, int64_t index)
{
    const int kind = pass_kind(a), n = p->places[a->stage], forward = kind == TESS__PASS_F;
    const uint8_t *parts = &p->parts[(int64_t)a->stage * p->places_max];
    const int reduce = p->last_weight[a->stage] == index && tess__overlaps_dp(p->sim, 0);
    for (int i = 0; i < n; i++) {
        const int place = forward ? i : n - 1 - i;
        const tess__pass *next =
            i + 1 < n ? &p->passes[parts[forward ? place + 1 : place - 1]][kind] : NULL;
        const int32_t gathered = p->gathers[p->chunk_of[a->stage] * p->places_max + place];
        if (forward && p->first_forward[a->stage] == index && gathered >= 0) {
            const tess__pass_op marker = {
                .number = p->tag, .kind = -1, .class = TESS__TL_HOST, .cat = TESS__CAT_HOST};
            const int32_t at = tess__step_add(p, &marker);
            wait_for(p, at, gathered);
            wait_for(p, at, p->input);
            p->input = at;
        }
        const int32_t end = run_part(p, &p->passes[parts[place]][kind], next);
        if (reduce)
            tess__step_reduce(p, &p->ends[p->stage], parts[place], end);
        p->activations += kind == TESS__PASS_W ? 0.0
                          : forward            ? kept_by(p, parts[place])
                                               : -kept_by(p, parts[place]);
        if (kind != TESS__PASS_W)
            count_memory(p);
    }
}

static void run_action(tess__step *p, int64_t index, double working)
{
    const tess__action *a = &p->s->actions[index];
    const int forward = a->kind == TESS__ACT_F, to = forward ? a->stage + 1 : a->stage - 1;
    begin_pass(p, a);
    if (forward)
        run_host(p);
    p->working = forward || a->kind == TESS__ACT_W ? 0.0 : working;
    if (p->working > 0.0)
        count_memory(p);
    run_parts(p, a, index);
    if (p->working > 0.0) {
        p->working = 0.0;
        count_memory(p);
    }
    if (a->kind != TESS__ACT_W && to >= 0 && to < p->s->stages && p->s->rank_of[to] != p->stage)
        send_to(p, to, a->batch, !forward);
}

static void run_row(tess__step *p, int row)
{
    tess_sim_memory memory;
    p->row = row;
    p->stage = p->c->first_rank[row] / p->c->size;
    p->input = p->before = p->last = p->last_dp = p->sent = p->beside = -1;
    p->n_fetched = 0;
    p->tag = -1;
    for (int i = 0; i < TESS__KINDS_MAX; i++)
        p->used[i] = 0;
    tess__stage_memory(p->sim, p->stage, &memory);
    p->state = memory.weights + memory.gradients + memory.optimiser + memory.buffers;
    p->activations = p->working = 0.0;
    tess__step_gathers(p, &p->ends[p->stage]);
    for (int64_t i = p->s->first[p->stage]; i < p->s->first[p->stage + 1]; i++)
        run_action(p, i, memory.working);
    p->tag = -1;
    tess__step_finish(p, &p->ends[p->stage]);
}

tess_status tess__step_build(tess__step *p)
{
    for (int row = 0; row < p->c->rows && p->t->status == TESS_OK; row++)
        run_row(p, row);
    if (p->t->status == TESS_OK)
        link_messages(p);
    return p->t->status;
}
