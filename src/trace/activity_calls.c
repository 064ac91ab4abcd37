/* SPDX-License-Identifier: Apache-2.0 */
/* activity_calls.c - the collectives of a file, each from the best source there is.
 *
 *   1. the kernel's own arguments (profilers since 2024);
 *   2. the nccl:* annotation around the launch, on the launching thread: its first tensor is the
 *      input, the c10d operator around it has output and input, record_param_comms around it may
 *      have the process group. It wins over the kernel's name, which lies: an all-reduce may run as
 *      SendRecv;
 *   3. the kernel's name: the operation alone.
 *
 * A kernel under nccl:coalesced has the sends (in) and receives (out) that record_param_comms notes
 * on the thread since the annotation before it. Host operations are sorted by thread and begin; the
 * innermost one around a launch is the last that began before it and has not ended.
 */
#include "activity_internal.h"

enum { WALK = 1000 }; /* host operations between an annotation and the launch in it */

/* ---- host operations ------------------------------------------------------------------------ */

/* The number of the first host operation of the thread that begins after a time. */
static int64_t host_after(const tess_activity *f, uint64_t thread, int64_t time)
{
    int64_t low = 0, high = f->n_host;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const tess__host_op *op = &f->host[middle];
        if (op->thread < thread || (op->thread == thread && op->begin <= time))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The innermost host operation of these kinds around the launch; -1: none. */
static int64_t host_around(const tess_activity *f, const tess__act *act, unsigned kinds)
{
    if (act->launch == TESS__NO_LAUNCH)
        return -1;
    const int64_t from = host_after(f, act->thread, act->launch);
    for (int64_t i = from - 1; i >= 0 && i >= from - WALK; i--) {
        const tess__host_op *op = &f->host[i];
        if (op->thread != act->thread)
            return -1;
        if ((kinds >> op->kind & 1) && op->end >= act->launch)
            return i;
    }
    return -1;
}

static int32_t group_of(const tess_activity *f, const tess__call_args *args)
{
    if (args->group >= 0 || args->label < 0)
        return args->group;
    return f->labels[args->label].group;
}

/* ---- nccl:coalesced ------------------------------------------------------------------------- */

static int64_t sum_known(int64_t sum, int64_t x)
{
    int64_t total;
    return sum < 0 || x < 0 || __builtin_add_overflow(sum, x, &total) ? -1 : total;
}

/* Adds one call of a coalesced kernel to what is known of it. first: it is the first. */
static void join(const tess_activity *f, tess__call_args *all, const tess__host_op *op, int first)
{
    const tess__call_args *a = &op->args;
    const int one_way = op->sends || op->receives;
    const int64_t received = a->out_bytes >= 0 ? a->out_bytes : a->in_bytes;
    if (!op->receives)
        all->in_bytes = sum_known(all->in_bytes, a->in_bytes);
    if (!op->sends)
        all->out_bytes = sum_known(all->out_bytes, one_way ? received : a->out_bytes);
    if (first) {
        all->op = a->op;
        all->dtype = a->dtype;
        all->group = group_of(f, a);
        return;
    }
    if (all->op != a->op)
        all->op = TESS_CALL_UNKNOWN;
    if (all->dtype != a->dtype)
        all->dtype = -1;
    if (all->group != group_of(f, a))
        all->group = -1;
}

static tess__call_args coalesced(const tess_activity *f, int64_t annotation, int64_t launch)
{
    const uint64_t thread = f->host[annotation].thread;
    int64_t before = annotation - 1, since = INT64_MIN;
    tess__call_args all = {.op = TESS_CALL_UNKNOWN, .dtype = -1, .group = -1, .label = -1};
    int n = 0;
    while (before >= 0 && f->host[before].thread == thread &&
           f->host[before].kind != TESS__HOST_ANNOTATION &&
           f->host[before].kind != TESS__HOST_COALESCED)
        before--;
    if (before >= 0 && f->host[before].thread == thread)
        since = f->host[before].begin;
    for (int64_t i = before + 1;
         i < f->n_host && f->host[i].thread == thread && f->host[i].begin <= launch; i++) {
        const tess__host_op *op = &f->host[i];
        if (op->kind == TESS__HOST_PARAMS && op->args.op >= 0 && op->begin > since)
            join(f, &all, op, n++ == 0);
    }
    if (n == 0)
        all.in_bytes = all.out_bytes = -1;
    return all;
}

/* ---- annotations ---------------------------------------------------------------------------- */

/* What record_param_comms and the c10d operator around the launch know beyond the annotation. */
static void complete(const tess_activity *f, const tess__act *act, tess__call_args *args)
{
    const int64_t params = host_around(f, act, 1u << TESS__HOST_PARAMS);
    const int64_t operator_at = host_around(f, act, 1u << TESS__HOST_OPERATOR);
    if (params >= 0) {
        const tess__call_args *p = &f->host[params].args;
        args->group = group_of(f, p);
        if (args->in_bytes < 0 && p->op == args->op) {
            args->in_bytes = p->in_bytes;
            args->out_bytes = p->out_bytes;
            args->dtype = p->dtype;
        }
    }
    if (operator_at >= 0 && args->out_bytes < 0) {
        const tess__call_args *o = &f->host[operator_at].args;
        if (args->in_bytes < 0) {
            args->in_bytes = o->in_bytes;
            args->dtype = o->dtype;
        }
        if (args->in_bytes == o->in_bytes)
            args->out_bytes = o->out_bytes;
    }
    /* Input and output of these are as large as each other. */
    if (args->out_bytes < 0 &&
        (args->op == TESS_CALL_ALL_REDUCE || args->op == TESS_CALL_BROADCAST))
        args->out_bytes = args->in_bytes;
}

static tess__call_args describe(const tess_activity *f, const tess__act *act,
                                tess_call_source *source)
{
    const char *name = f->names.items[act->name].text;
    tess__call_args args = f->drafts[act->call];
    if (args.op >= 0) {
        *source = TESS_CALL_FROM_KERNEL;
        args.group = group_of(f, &args);
        return args;
    }
    const int64_t at =
        host_around(f, act, 1u << TESS__HOST_ANNOTATION | 1u << TESS__HOST_COALESCED);
    *source = at >= 0 ? TESS_CALL_FROM_ANNOTATION : TESS_CALL_FROM_NAME;
    if (at >= 0 && f->host[at].kind == TESS__HOST_COALESCED) {
        args = coalesced(f, at, act->launch);
    } else if (at >= 0) {
        args = f->host[at].args;
        complete(f, act, &args);
    } else {
        args.group = group_of(f, &args);
    }
    if (args.op < 0 || args.op == TESS_CALL_UNKNOWN) {
        size_t n = 0;
        while (name[n] && name[n] != '(' && name[n] != '<')
            n++;
        args.op = (int)tess__call_op_of(name, n);
    }
    return args;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void count_unknown(tess_activity *f, const tess_activity_call *call)
{
    f->counts.no_op += call->op == TESS_CALL_UNKNOWN;
    f->counts.no_bytes += call->in_bytes < 0;
    f->counts.no_group += !call->ranks;
}

static void add_call(tess_activity *f, tess__act *act)
{
    tess_activity_call *call = &f->calls[f->info.calls];
    tess_call_source source;
    const tess__call_args args = describe(f, act, &source);
    *call = (tess_activity_call){.op = (tess_call_op)args.op,
                                 .source = source,
                                 .stream = act->stream,
                                 .in_bytes = args.in_bytes,
                                 .out_bytes = args.out_bytes,
                                 .dtype = tess__dtype_text(args.dtype),
                                 .begin_ns = act->begin,
                                 .ns = act->ns};
    if (args.group >= 0) {
        call->ranks = f->groups[args.group].ranks;
        call->n_ranks = f->groups[args.group].n;
        call->call = f->groups[args.group].calls++;
    } else {
        call->call = f->unnamed_calls++;
    }
    count_unknown(f, call);
    act->call = (int32_t)f->info.calls++;
}

tess_status tess__activity_find_calls(tess_activity *f)
{
    TESS_GROW(f->ctx, f->calls, 0, f->n_drafts, f->room_calls);
    for (int64_t i = 0; i < f->n_acts; i++)
        if (f->acts[i].call >= 0)
            add_call(f, &f->acts[i]);
    tess__free(f->ctx, f->drafts);
    tess__free(f->ctx, f->host);
    f->drafts = NULL;
    f->host = NULL;
    f->n_drafts = f->n_host = 0;
    return TESS_OK;
}
