/* SPDX-License-Identifier: Apache-2.0 */
/* activity_ours.c - a call of a trace that tess_comm_trace_write wrote, as activity.
 *
 * What the rank computed before the call is a kernel "compute" on stream 0 that ends when the call
 * begins; the call is communication on stream 1 that takes as long as it was recorded, and a
 * collective unless it is the wait that ends a started one. Bytes are those to and from others.
 */
#include "activity_internal.h"

#include <string.h>

typedef struct {
    tess__json_slice op, group;
    int64_t sent, received, compute;
} call_event;

static const struct {
    const char *name; /* in quotes, as it stands in the file */
    int op;           /* -1: no call */
} ops[] = {{"\"alltoall\"", TESS_CALL_ALL_TO_ALL},
           {"\"exchange\"", TESS_CALL_SEND_RECEIVE},
           {"\"gather\"", TESS_CALL_ALL_GATHER},
           {"\"broadcast\"", TESS_CALL_BROADCAST},
           {"\"sum\"", TESS_CALL_ALL_REDUCE},
           {"\"max\"", TESS_CALL_ALL_REDUCE},
           {"\"agree\"", TESS_CALL_ALL_REDUCE},
           {"\"same\"", TESS_CALL_ALL_REDUCE},
           {"\"wait\"", -1}};

static call_event gather(const tess__json_field *fields, int n)
{
    call_event e = {.sent = -1, .received = -1};
    for (int i = 0; i < n; i++) {
        const tess__json_slice key = fields[i].key, value = fields[i].value;
        int64_t x = -1;
        if (tess__json_slice_is(key, "op"))
            e.op = value;
        else if (tess__json_slice_is(key, "group"))
            e.group = value;
        else if (!tess__json_decimal(value, 0, &x))
            continue;
        else if (tess__json_slice_is(key, "sent"))
            e.sent = x;
        else if (tess__json_slice_is(key, "received"))
            e.received = x;
        else if (tess__json_slice_is(key, "compute_ns"))
            e.compute = x;
    }
    return e;
}

/* [first, count, stride] */
static tess_status read_group(tess_activity *f, tess__json_slice group, int32_t *number)
{
    tess__json_slice parts[3];
    int64_t x[3];
    *number = -1;
    if (tess__json_elements(group, parts, 3) != 3)
        return TESS_OK;
    for (int i = 0; i < 3; i++)
        if (!tess__json_decimal(parts[i], 0, &x[i]))
            return TESS_OK;
    return tess__group_stride(f, x[0], x[2], x[1], number);
}

static tess_status add_compute(tess_activity *f, int64_t begin, int64_t ns)
{
    static const char name[] = "\"compute\"";
    tess__act act = {.begin = begin - ns,
                     .ns = ns,
                     .correlation = -1,
                     .launch = TESS__NO_LAUNCH,
                     .call = -1,
                     .device = -1,
                     .kernel_class = TESS_KERNEL_OTHER};
    TESS_TRY(tess__act_name_add(f, (tess__json_slice){name, sizeof name - 1}, &act.name));
    return tess__act_add(f, &act);
}

tess_status tess__event_ours(tess__event_reader *r, tess__json_slice args, int64_t begin,
                             int64_t ns)
{
    static const int64_t NS_MAX = 10000000000000;
    tess_activity *f = r->file;
    const call_event e = gather(r->fields, tess__json_fields(args, r->fields));
    tess__act act = {.begin = begin,
                     .ns = ns,
                     .correlation = -1,
                     .launch = TESS__NO_LAUNCH,
                     .call = -1,
                     .stream = 1,
                     .device = -1,
                     .kernel_class = TESS_KERNEL_COMMUNICATION};
    tess__call_args draft = {.op = TESS_CALL_UNKNOWN,
                             .in_bytes = e.sent,
                             .out_bytes = e.received,
                             .dtype = -1,
                             .label = -1};
    if (e.op.length == 0)
        return TESS_OK;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (tess__json_slice_is(e.op, ops[i].name))
            draft.op = ops[i].op;
    if (e.compute > 0 && e.compute <= NS_MAX)
        TESS_TRY(add_compute(f, begin, e.compute));
    TESS_TRY(tess__act_name_add(f, e.op, &act.name));
    TESS_TRY(read_group(f, e.group, &draft.group));
    if (draft.op >= 0) {
        TESS_GROW(f->ctx, f->drafts, f->n_drafts, f->n_drafts + 1, f->room_drafts);
        f->drafts[f->n_drafts] = draft;
        act.call = (int32_t)f->n_drafts++;
    }
    return tess__act_add(f, &act);
}
