/* SPDX-License-Identifier: Apache-2.0 */
/* replay_read.c - the trace of a rank from its file; docs/formats.md lists the members.
 *
 * Events that are no calls (other phases of the Chrome format) are passed over, so that a trace may
 * be merged with others. Sizes are bounded so that no sum of them overflows.
 */
#include "comm/comm_internal.h"
#include "file/json.h"
#include "replay_calls.h"

#include <math.h>

static const int64_t EVENTS_MAX = 4000000, BYTES_MAX = (int64_t)1 << 53, NS_MAX = 1000000000000;
enum { RANKS_MAX = 1 << 20, OPEN_MAX = 4096 };

static const char *const op_names[TESS_TRACE_OPS + 1] = {
    "alltoall", "exchange", "gather", "broadcast", "sum", "max", "agree", "same", "wait"};

const char *tess_trace_op_name(tess_trace_op op)
{
    return (int)op >= 0 && op < TESS_TRACE_OPS ? op_names[op] : NULL;
}

/* Operations that are on their way: request and number of the call. */
typedef struct {
    int64_t request, call;
} pending;

typedef struct {
    tess_trace *trace;
    pending *open; /* (OPEN_MAX) */
    int n_open;
} reader;

static tess_status read_group(const reader *r, tess__json_node node, tess__replay_call *call)
{
    tess__json_node group, part;
    size_t n;
    const int ranks = r->trace->info.ranks;
    TESS_TRY(tess__json_array(node, 3, 3, &group, &n));
    part = tess__json_element(&group, 0);
    TESS_TRY(tess__json_int(part, 0, ranks - 1, &call->first));
    part = tess__json_element(&group, 1);
    TESS_TRY(tess__json_int(part, 1, ranks, &call->count));
    part = tess__json_element(&group, 2);
    TESS_TRY(tess__json_int(part, 0, ranks, &call->stride));
    if ((call->stride == 0 && call->count > 1) ||
        call->first + (int64_t)(call->count - 1) * call->stride >= ranks)
        return tess__json_fail(group, "\"group\" is [%d, %d, %d], must lie in %d ranks",
                               call->first, call->count, call->stride, ranks);
    return TESS_OK;
}

/* Which call a wait ends; or remembers that one was started. */
static tess_status read_request(reader *r, const tess__json_node *args, int64_t number,
                                tess__replay_call *call)
{
    int64_t request = 0;
    const tess__json_node node = tess__json_optional(args, "request");
    TESS_TRY(tess__json_int64(node, 1, BYTES_MAX, &request));
    const int wait = call->op == TESS_TRACE_OPS;
    int at = r->n_open - 1;
    while (at >= 0 && r->open[at].request != request)
        at--;
    if (wait && at < 0)
        return tess__json_fail(node.value ? node : *args,
                               request ? "\"request\" is %lld, which no operation before it started"
                                       : "\"wait\" lacks \"request\"",
                               (long long)request);
    if (wait) {
        call->of = r->open[at].call;
        r->open[at] = r->open[--r->n_open];
        return TESS_OK;
    }
    if (request == 0)
        return TESS_OK;
    if (at >= 0 || r->n_open == OPEN_MAX)
        return tess__json_fail(node, "\"request\" is %lld, %s", (long long)request,
                               at >= 0 ? "which has not been waited for"
                                       : "more than 4096 are on their way");
    call->started = 1;
    r->open[r->n_open++] = (pending){request, number};
    return TESS_OK;
}

static tess_status read_call(reader *r, tess__json_node event, int64_t number,
                             tess__replay_call *call)
{
    tess__json_node args;
    int traffic;
    double took = 0.0;
    TESS_TRY(
        tess__json_double(tess__json_optional(&event, "dur"), 0, 1e-3 * (double)NS_MAX, &took));
    call->took = llround(1e3 * took);
    TESS_TRY(tess__json_object(tess__json_member(&event, "args"), NULL, 0, &args));
    TESS_TRY(
        tess__json_enum(tess__json_member(&args, "op"), op_names, TESS_TRACE_OPS + 1, &call->op));
    TESS_TRY(tess__json_enum(tess__json_member(&args, "traffic"), tess__traffic_names,
                             TESS_TRAFFIC_COUNT, &traffic));
    TESS_TRY(read_group(r, tess__json_member(&args, "group"), call));
    TESS_TRY(tess__json_int64(tess__json_member(&args, "sent"), 0, BYTES_MAX, &call->sent));
    TESS_TRY(tess__json_int64(tess__json_member(&args, "received"), 0, BYTES_MAX, &call->received));
    TESS_TRY(tess__json_int64(tess__json_member(&args, "compute_ns"), 0, NS_MAX, &call->compute));
    return read_request(r, &args, number, call);
}

/* 1: a complete event; others are somebody else's. */
static tess_status is_call(tess__json_node event, int *yes)
{
    const char *phase;
    TESS_TRY(tess__json_string(tess__json_member(&event, "ph"), &phase));
    *yes = phase[0] == 'X' && phase[1] == 0;
    return TESS_OK;
}

static tess_status read_events(reader *r, tess__json_node node)
{
    tess_trace *t = r->trace;
    tess__json_node events, event;
    size_t n;
    TESS_TRY(tess__json_array(node, 0, (size_t)EVENTS_MAX, &events, &n));
    t->calls = TESS_ALLOC(t->ctx, tess__bytes(n, sizeof *t->calls));
    for (size_t i = 0; i < n; i++) {
        const tess__json_node element = tess__json_element(&events, i);
        tess__replay_call call = {.of = -1};
        int yes = 0;
        TESS_TRY(tess__json_object(element, NULL, 0, &event));
        TESS_TRY(is_call(event, &yes));
        if (!yes)
            continue;
        TESS_TRY(read_call(r, event, t->info.calls, &call));
        t->info.compute_s += 1e-9 * (double)call.compute;
        t->calls[t->info.calls++] = call;
    }
    return TESS_OK;
}

static tess_status read_root(reader *r, const tess__json *doc)
{
    tess_trace_info *info = &r->trace->info;
    tess__json_node root, other;
    int version;
    TESS_TRY(tess__json_object(tess__json_root(doc), NULL, 0, &root));
    TESS_TRY(tess__json_object(tess__json_member(&root, "otherData"), NULL, 0, &other));
    TESS_TRY(tess__json_int(tess__json_member(&other, "tessera_trace"), 1, 1, &version));
    TESS_TRY(tess__json_int(tess__json_member(&other, "ranks"), 1, RANKS_MAX, &info->ranks));
    TESS_TRY(tess__json_int(tess__json_member(&other, "rank"), 0, info->ranks - 1, &info->rank));
    return read_events(r, tess__json_member(&root, "traceEvents"));
}

static tess_status read_document(tess_ctx *ctx, const tess__json *doc, tess_trace **trace)
{
    const size_t bytes = OPEN_MAX * sizeof(pending);
    tess_trace *made = TESS_ALLOC_ZERO(ctx, sizeof *made);
    made->ctx = ctx;
    reader r = {.trace = made, .open = tess__alloc(ctx, bytes)};
    const tess_status status = r.open ? read_root(&r, doc) : tess__nomem(bytes);
    tess__free(ctx, r.open);
    if (status == TESS_OK)
        *trace = made;
    else
        tess_trace_destroy(made);
    return status;
}

tess_status tess__trace_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                              tess_trace **trace)
{
    tess__json doc;
    TESS_TRY(tess__json_open(ctx, name, text, bytes, &doc));
    const tess_status status = read_document(ctx, &doc, trace);
    tess__json_close(&doc);
    return status;
}

void tess_trace_destroy(tess_trace *trace)
{
    if (!trace)
        return;
    tess__free(trace->ctx, trace->calls);
    tess__free(trace->ctx, trace);
}

tess_status tess_trace_query(const tess_trace *trace, tess_trace_info *info)
{
    TESS_REQUIRE(trace, info);
    *info = trace->info;
    return TESS_OK;
}
