/* SPDX-License-Identifier: Apache-2.0 */
/* activity_event.c - an event of a trace as a record: kernel, copy, launch, annotation, or nothing.
 *
 * The category decides, case apart: kernel, gpu_memcpy and gpu_memset are activity of the GPU;
 * gpu_user_annotation is not, because its spans repeat annotations and cover others' kernels;
 * categories of runtime and driver hold the launches and synchronisations. All else belongs to the
 * host, of which only what is about collectives and steps is kept, by its name.
 */
#include "activity_internal.h"

#include <string.h>
#include <strings.h>

typedef enum { HOST, KERNEL, COPY, FILL, LAUNCH, IGNORED } role;

typedef struct {
    tess__json_slice phase, category, name, process, thread, ts, dur, args;
} event;

/* ---- parts of an event ---------------------------------------------------------------------- */

static inline event parts_of(const tess__json_item *item)
{
    static const tess__json_slice none = {"", 0};
    event e = {none, none, none, none, none, none, none, none};
    for (int i = 0; i < item->n_fields; i++) {
        const tess__json_field *f = &item->fields[i];
        const char *k = f->key.text;
        switch (f->key.length) {
        case 2:
            if (k[0] == 'p' && k[1] == 'h')
                e.phase = f->value;
            else if (k[0] == 't' && k[1] == 's')
                e.ts = f->value;
            break;
        case 3:
            if (memcmp(k, "cat", 3) == 0)
                e.category = f->value;
            else if (memcmp(k, "dur", 3) == 0)
                e.dur = f->value;
            else if (memcmp(k, "tid", 3) == 0)
                e.thread = f->value;
            else if (memcmp(k, "pid", 3) == 0)
                e.process = f->value;
            break;
        case 4:
            if (memcmp(k, "name", 4) == 0)
                e.name = f->value;
            else if (memcmp(k, "args", 4) == 0)
                e.args = f->value;
            break;
        default: break;
        }
    }
    return e;
}

static uint64_t thread_of(const event *e)
{
    const uint64_t h = tess__hash(tess__hash(0, e->process.text, e->process.length), e->thread.text,
                                  e->thread.length);
    return h ? h : 1;
}

/* The stamps of a complete event; 0: they break a rule, which is counted. Bounds keep every sum and
 * difference of stamps inside int64. */
static int times_of(tess_activity *f, const event *e, int64_t *begin, int64_t *ns)
{
    static const int64_t STAMP_MAX = (int64_t)1 << 61, NS_MAX = 10000000000000;
    if (!tess__json_decimal(e->ts, 3, begin) || *begin > STAMP_MAX || *begin < -STAMP_MAX) {
        f->counts.range++;
        return 0;
    }
    if (e->dur.length == 0) {
        f->counts.no_duration++;
        return 0;
    }
    if (!tess__json_decimal(e->dur, 3, ns) || *ns > NS_MAX || *ns < -NS_MAX) {
        f->counts.range++;
        return 0;
    }
    if (*ns < 0) {
        f->counts.negative++;
        return 0;
    }
    return 1;
}

/* ---- categories ----------------------------------------------------------------------------- */

static int holds(tess__json_slice text, const char *part)
{
    const size_t n = strlen(part);
    for (size_t i = 0; i + n <= text.length; i++)
        if (strncasecmp(text.text + i, part, n) == 0)
            return 1;
    return 0;
}

static int equals(tess__json_slice text, const char *word)
{
    return text.length == strlen(word) && strncasecmp(text.text, word, text.length) == 0;
}

static role role_of(tess__json_slice category)
{
    return equals(category, "\"kernel\"")                                                 ? KERNEL
           : equals(category, "\"gpu_memcpy\"")                                           ? COPY
           : equals(category, "\"gpu_memset\"")                                           ? FILL
           : equals(category, "\"gpu_user_annotation\"") || equals(category, "\"trace\"") ? IGNORED
           : holds(category, "runtime") || holds(category, "driver")                      ? LAUNCH
                                                                                          : HOST;
}

/* Counts the event for its category. Events of one category come in runs. */
static role categorise(tess__event_reader *r, tess__json_slice category)
{
    int at = r->last_category;
    const size_t n = category.length;
    if (r->n_categories > 0 && r->categories[at].bytes == n &&
        memcmp(r->categories[at].name, category.text, n) == 0) {
        r->categories[at].events++;
        return (role)r->categories[at].role;
    }
    for (at = 0; at < r->n_categories; at++)
        if (r->categories[at].bytes == n && memcmp(r->categories[at].name, category.text, n) == 0)
            break;
    if (at == r->n_categories) {
        if (at == TESS__CATEGORIES || n >= sizeof r->categories[at].name)
            return role_of(category);
        r->categories[at] = (tess__category){.bytes = n, .role = (int)role_of(category)};
        if (n > 0)
            memcpy(r->categories[at].name, category.text, n);
        r->n_categories++;
    }
    r->last_category = at;
    r->categories[at].events++;
    return (role)r->categories[at].role;
}

/* ---- activity ------------------------------------------------------------------------------- */

tess_status tess__act_add(tess_activity *f, const tess__act *act)
{
    TESS_GROW(f->ctx, f->acts, f->n_acts, f->n_acts + 1, f->room_acts);
    f->acts[f->n_acts] = *act;
    f->acts[f->n_acts].order = (int32_t)f->n_acts;
    f->n_acts++;
    return TESS_OK;
}

static int32_t number_of(tess__json_slice value)
{
    int64_t x;
    return tess__json_decimal(value, 0, &x) && x >= INT32_MIN && x <= INT32_MAX ? (int32_t)x : -1;
}

static void read_place(const tess__json_field *fields, int n, tess__act *act)
{
    for (int i = 0; i < n; i++) {
        const tess__json_slice key = fields[i].key;
        if (key.length == 6 && memcmp(key.text, "stream", 6) == 0)
            act->stream = number_of(fields[i].value);
        else if (key.length == 6 && memcmp(key.text, "device", 6) == 0)
            act->device = number_of(fields[i].value);
        else if (key.length == 11 && memcmp(key.text, "correlation", 11) == 0 &&
                 !tess__json_decimal(fields[i].value, 0, &act->correlation))
            act->correlation = -1;
    }
}

static tess_status draft_call(tess_activity *f, const tess__json_field *fields, int n,
                              tess__act *act)
{
    int direction;
    TESS_GROW(f->ctx, f->drafts, f->n_drafts, f->n_drafts + 1, f->room_drafts);
    TESS_TRY(tess__call_args_read(f, fields, n, &f->drafts[f->n_drafts], &direction));
    act->call = (int32_t)f->n_drafts++;
    return TESS_OK;
}

static tess_status read_act(tess__event_reader *r, const event *e, role what)
{
    tess_activity *f = r->file;
    tess__act act = {.correlation = -1,
                     .launch = TESS__NO_LAUNCH,
                     .call = -1,
                     .stream = number_of(e->thread),
                     .device = -1,
                     .kind = (uint8_t)(what == KERNEL ? TESS__ACT_KERNEL
                                       : what == COPY ? TESS__ACT_COPY
                                                      : TESS__ACT_FILL)};
    if (f->n_acts == INT32_MAX)
        return tess__fail(TESS_EFORMAT, "%s: more than 2^31 - 1 kernels", f->path);
    if (!times_of(f, e, &act.begin, &act.ns))
        return TESS_OK;
    const int n = tess__json_fields(e->args, r->fields);
    read_place(r->fields, n, &act);
    TESS_TRY(tess__act_name_add(f, e->name, &act.name));
    act.kernel_class =
        what == KERNEL ? f->names.items[act.name].kernel_class : (uint8_t)TESS_KERNEL_COPY;
    if (act.kernel_class == TESS_KERNEL_COMMUNICATION)
        TESS_TRY(draft_call(f, r->fields, n, &act));
    return tess__act_add(f, &act);
}

/* ---- the host ------------------------------------------------------------------------------- */

/* Calls that put work on the GPU have one of these words in their names; others are many. */
static int may_launch(tess__json_slice name)
{
    for (size_t i = 0; i + 6 < name.length; i++) {
        const char *p = name.text + i;
        if ((p[0] == 'L' || p[0] == 'l') ? memcmp(p + 1, "aunch", 5) == 0
            : (p[0] == 'M' || p[0] == 'm')
                ? memcmp(p + 1, "emcpy", 5) == 0 || memcmp(p + 1, "emset", 5) == 0
                : 0)
            return 1;
    }
    return 0;
}

/* "cudaStreamSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize". */
static int is_sync(tess__json_slice name)
{
    static const char end[] = "Synchronize\"";
    const size_t n = sizeof end - 1;
    return name.length > n && memcmp(name.text + name.length - n, end, n) == 0;
}

static tess_status read_sync(tess_activity *f, const event *e)
{
    tess__host_sync sync = {.thread = thread_of(e),
                            .device = holds(e->name, "Device") || holds(e->name, "Ctx")};
    int64_t ns;
    if (!times_of(f, e, &sync.begin, &ns))
        return TESS_OK;
    sync.end = sync.begin + ns;
    TESS_GROW(f->ctx, f->syncs, f->n_syncs, f->n_syncs + 1, f->room_syncs);
    f->syncs[f->n_syncs++] = sync;
    return TESS_OK;
}

static tess_status read_launch(tess__event_reader *r, const event *e)
{
    tess_activity *f = r->file;
    tess__act place = {.correlation = -1};
    tess__launch launch;
    if (!may_launch(e->name))
        return is_sync(e->name) ? read_sync(f, e) : TESS_OK;
    read_place(r->fields, tess__json_fields(e->args, r->fields), &place);
    if (place.correlation < 0 || !times_of(f, e, &launch.begin, &launch.ns))
        return TESS_OK;
    launch.correlation = place.correlation;
    launch.thread = thread_of(e);
    TESS_GROW(f->ctx, f->launches, f->n_launches, f->n_launches + 1, f->room_launches);
    f->launches[f->n_launches++] = launch;
    return TESS_OK;
}

static tess_status read_step(tess_activity *f, const event *e, tess__json_slice number)
{
    tess__step_span span;
    int64_t ns;
    if (!tess__json_decimal(number, 0, &span.step) || !times_of(f, e, &span.begin, &ns))
        return TESS_OK;
    span.end = span.begin + ns;
    TESS_GROW(f->ctx, f->steps, f->n_steps, f->n_steps + 1, f->room_steps);
    f->steps[f->n_steps++] = span;
    return TESS_OK;
}

/* Operators with output and input: c10d::_allgather_base_(output, input, ...). */
static void read_operator(const tess__json_field *fields, int n, tess__call_args *args)
{
    int32_t other;
    args->out_bytes = tess__call_tensor_bytes(fields, n, 0, &other);
    args->in_bytes = tess__call_tensor_bytes(fields, n, 1, &args->dtype);
}

static tess_status read_host(tess__event_reader *r, const event *e, tess__host_kind kind)
{
    tess_activity *f = r->file;
    tess__host_op op = {.kind = kind, .thread = thread_of(e)};
    int64_t ns;
    int direction = 0;
    if (!times_of(f, e, &op.begin, &ns))
        return TESS_OK;
    op.end = op.begin + ns;
    const int n = tess__json_fields(e->args, r->fields);
    TESS_TRY(tess__call_args_read(f, r->fields, n, &op.args, &direction));
    op.sends = direction == 1;
    op.receives = direction == 2;
    if (kind == TESS__HOST_ANNOTATION) {
        op.args.op = (int)tess__call_op_of(e->name.text + 6, e->name.length - 7);
        op.args.in_bytes = tess__call_tensor_bytes(r->fields, n, 0, &op.args.dtype);
    } else if (kind == TESS__HOST_OPERATOR) {
        read_operator(r->fields, n, &op.args);
    }
    TESS_GROW(f->ctx, f->host, f->n_host, f->n_host + 1, f->room_host);
    f->host[f->n_host++] = op;
    return TESS_OK;
}

static int begins(tess__json_slice text, const char *prefix, size_t n)
{
    return text.length > n && memcmp(text.text, prefix, n) == 0;
}

static tess_status read_named(tess__event_reader *r, const event *e)
{
    const tess__json_slice name = e->name;
    if (name.length < 8)
        return TESS_OK;
    switch (name.text[1]) {
    case 'n':
        if (!begins(name, "\"nccl:", 6))
            return TESS_OK;
        return read_host(r, e,
                         equals(name, "\"nccl:coalesced\"") ? TESS__HOST_COALESCED
                                                            : TESS__HOST_ANNOTATION);
    case 'r':
        return tess__json_slice_is(name, "\"record_param_comms\"")
                   ? read_host(r, e, TESS__HOST_PARAMS)
                   : TESS_OK;
    case 'c':
        return begins(name, "\"c10d::", 7) && holds(name, "_base_\"")
                   ? read_host(r, e, TESS__HOST_OPERATOR)
                   : TESS_OK;
    case 'P':
        return begins(name, "\"ProfilerStep#", 14)
                   ? read_step(r->file, e, (tess__json_slice){name.text + 14, name.length - 15})
                   : TESS_OK;
    default: return TESS_OK;
    }
}

/* ---- phases --------------------------------------------------------------------------------- */

/* B opens and E closes on a thread; those without the other are counted. */
static void count_pair(tess__event_reader *r, const event *e, int opens)
{
    const uint64_t thread = thread_of(e);
    int at = 0;
    while (at < r->n_threads && r->threads[at] != thread)
        at++;
    if (at == r->n_threads) {
        if (at == TESS__THREADS)
            return;
        r->threads[r->n_threads++] = thread;
    }
    if (opens)
        r->depth[at]++;
    else if (r->depth[at] > 0)
        r->depth[at]--;
    else
        r->file->counts.unpaired++;
}

static tess_status read_complete(tess__event_reader *r, const event *e)
{
    int64_t begin, ns;
    const role what = categorise(r, e->category);
    if (r->ours)
        return times_of(r->file, e, &begin, &ns) ? tess__event_ours(r, e->args, begin, ns)
                                                 : TESS_OK;
    switch (what) {
    case KERNEL:
    case COPY:
    case FILL: return read_act(r, e, what);
    case LAUNCH: return read_launch(r, e);
    case HOST: return read_named(r, e);
    case IGNORED: break;
    }
    return TESS_OK;
}

tess_status tess__event_read(tess__event_reader *r, const tess__json_item *item)
{
    r->file->info.events++;
    if (item->n_fields == 0) {
        r->file->counts.not_objects += item->value.text[0] != '{';
        return TESS_OK;
    }
    const event e = parts_of(item);
    if (e.phase.length != 3)
        return TESS_OK;
    if (e.phase.text[1] == 'X')
        return read_complete(r, &e);
    if (e.phase.text[1] == 'B' || e.phase.text[1] == 'E')
        count_pair(r, &e, e.phase.text[1] == 'B');
    return TESS_OK;
}
