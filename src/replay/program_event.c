/* SPDX-License-Identifier: Apache-2.0 */
/* program_event.c - one event of a trace of version 2: an operator, a collective or a wait.
 *
 * Numbers of storages ascend by their first use, so tables of them stay as small as the file.
 */
#include "replay_program.h"

#include <string.h>

static const int64_t EVENTS_MAX = 20000000, BYTES_MAX = (int64_t)1 << 53, NS_MAX = 1000000000000;
static const int64_t GROUP_RANKS_MAX = 1 << 24, DIM_MAX = (int64_t)1 << 40;
enum { NAME_MAX_BYTES = 200, GROUPS_MAX = 65536 };

static const struct {
    const char *name; /* in quotes, as it stands in the file */
    int op, peer;     /* peer: 1: a send, 2: a receive */
} ops[] = {{"\"all_reduce\"", TESS_CALL_ALL_REDUCE, 0},
           {"\"all_gather\"", TESS_CALL_ALL_GATHER, 0},
           {"\"reduce_scatter\"", TESS_CALL_REDUCE_SCATTER, 0},
           {"\"all_to_all\"", TESS_CALL_ALL_TO_ALL, 0},
           {"\"broadcast\"", TESS_CALL_BROADCAST, 0},
           {"\"reduce\"", TESS_CALL_REDUCE, 0},
           {"\"gather\"", TESS_CALL_GATHER, 0},
           {"\"scatter\"", TESS_CALL_SCATTER, 0},
           {"\"send\"", TESS_CALL_SEND_RECEIVE, 1},
           {"\"receive\"", TESS_CALL_SEND_RECEIVE, 2}};

static tess_status wrong(const tess__program *p, const char *key, const tess__json_slice *value,
                         const char *rule)
{
    if (!value)
        return tess__fail(TESS_EFORMAT, "%s: event %lld: lacks \"%s\"", p->path, (long long)p->n,
                          key);
    return tess__fail(TESS_EFORMAT, "%s: event %lld: \"%s\" is %.*s, must be %s", p->path,
                      (long long)p->n, key, (int)TESS_MIN(value->length, (size_t)60), value->text,
                      rule);
}

static const tess__json_slice *find(const tess__json_field *fields, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (tess__json_slice_is(fields[i].key, key))
            return &fields[i].value;
    return NULL;
}

typedef struct {
    tess__program *p;
    tess__json_field fields[TESS__SCAN_FIELDS]; /* of args */
    int n;
} reader;

enum { ABSENT = -1, REQUIRED = -2 };

/* A number of args; where there is none it is ABSENT, or an error if it is REQUIRED. */
static tess_status number(const reader *r, const char *key, int64_t if_none, int64_t high,
                          int64_t *out)
{
    const tess__json_slice *value = find(r->fields, r->n, key);
    *out = if_none;
    if (!value && if_none != REQUIRED)
        return TESS_OK;
    if (!value || value->text[0] == '"' || !tess__json_decimal(*value, 0, out) || *out < 0 ||
        *out > high) {
        char rule[40];
        snprintf(rule, sizeof rule, "a number of 0..%lld", (long long)high);
        return wrong(r->p, key, value, rule);
    }
    return TESS_OK;
}

/* A text; one that equals `last` shares its memory. */
static tess_status text(tess__program *p, const char *key, const tess__json_slice *value,
                        const char *last, const char **out)
{
    char copy[NAME_MAX_BYTES + 1];
    if (value && value->text[0] != '"')
        return wrong(p, key, value, "a text");
    const size_t n = value ? tess__json_slice_text(*value, copy, sizeof copy) : 0;
    copy[n] = '\0';
    *out = last && strcmp(last, copy) == 0 ? last : TESS_TAKE_STRING(&p->arena, copy, n);
    return TESS_OK;
}

/* ---- storages -------------------------------------------------------------------------------- */

static tess_status read_stores(reader *r, const char *key, int32_t *count)
{
    static const char rule[] =
        "an array of numbers of storages, each at most one above those before it";
    tess__program *p = r->p;
    const tess__json_slice *value = find(r->fields, r->n, key);
    const int64_t n = value ? tess__json_elements(*value, NULL, 0) : -1;
    if (n < 0 || n > INT32_MAX)
        return wrong(p, key, value, rule);
    tess__json_slice few[64];
    tess__json_slice *items = few;
    if (n > 64)
        items = TESS_ALLOC(p->ctx, (size_t)n * sizeof *items);
    tess__json_elements(*value, items, n);
    tess_status status = tess__grow(p->ctx, &p->stores, sizeof *p->stores, p->n_stores,
                                    p->n_stores + n, &p->room_stores);
    for (int64_t i = 0; status == TESS_OK && i < n; i++) {
        int64_t x = -1;
        if (!tess__json_decimal(items[i], 0, &x) || x < 0 || x > p->storages || x >= INT32_MAX)
            status = wrong(p, key, value, rule);
        else
            p->storages = TESS_MAX(p->storages, (int32_t)x + 1);
        p->stores[p->n_stores + i] = (int32_t)x;
    }
    if (status == TESS_OK)
        p->n_stores += n;
    *count = (int32_t)n;
    if (items != few)
        tess__free(p->ctx, items);
    return status;
}

/* ---- process groups -------------------------------------------------------------------------- */

static tess_status keep_group(tess__program *p, const tess__program_group *g, int32_t *number)
{
    for (int64_t i = p->n_groups - 1; i >= 0; i--) {
        const tess__program_group *o = &p->groups[i];
        if (o->n == g->n && o->stride == g->stride && o->first == g->first &&
            (g->stride >= 0 || memcmp(o->ranks, g->ranks, (size_t)g->n * sizeof *g->ranks) == 0)) {
            *number = (int32_t)i;
            return TESS_OK;
        }
    }
    p->group_ranks += g->n;
    if (p->group_ranks > GROUP_RANKS_MAX || p->n_groups == GROUPS_MAX)
        return tess__fail(TESS_EFORMAT,
                          "%s: event %lld: more than %d process groups, or %lld ranks "
                          "in them",
                          p->path, (long long)p->n, GROUPS_MAX, (long long)GROUP_RANKS_MAX);
    int32_t *ranks = TESS_TAKE(&p->arena, (size_t)g->n * sizeof *ranks);
    for (int32_t i = 0; i < g->n; i++)
        ranks[i] = g->stride >= 0 ? g->first + i * g->stride : g->ranks[i];
    TESS_GROW(p->ctx, p->groups, p->n_groups, p->n_groups + 1, p->room_groups);
    p->groups[p->n_groups] = *g;
    p->groups[p->n_groups].ranks = ranks;
    *number = (int32_t)p->n_groups++;
    return TESS_OK;
}

static int is_member(const tess__program *p, const tess__program_group *g)
{
    for (int32_t i = 0; g->stride < 0 && i < g->n; i++)
        if (g->ranks[i] == p->rank)
            return 1;
    const int64_t from = (int64_t)p->rank - g->first;
    return g->stride > 0 ? from >= 0 && from % g->stride == 0 && from / g->stride < g->n
                         : g->stride == 0 && from == 0;
}

static tess_status read_list(reader *r, const tess__json_slice *value, int32_t *group)
{
    static const char rule[] = "an ascending array of ranks with this one among them";
    tess__program *p = r->p;
    const int64_t n = tess__json_elements(*value, NULL, 0);
    if (n < 1 || n > p->ranks)
        return wrong(p, "ranks", value, rule);
    tess__json_slice *items = TESS_ALLOC(p->ctx, (size_t)n * sizeof *items);
    int32_t *ranks = tess__alloc(p->ctx, (size_t)n * sizeof *ranks);
    tess_status status = ranks ? TESS_OK : TESS_ENOMEM;
    tess__json_elements(*value, items, n);
    for (int64_t i = 0; status == TESS_OK && i < n; i++) {
        int64_t x = -1;
        if (!tess__json_decimal(items[i], 0, &x) || x < 0 || x >= p->ranks ||
            (i > 0 && x <= ranks[i - 1]))
            status = wrong(p, "ranks", value, rule);
        ranks[i] = (int32_t)x;
    }
    tess__program_group g = {.ranks = ranks, .n = (int32_t)n, .stride = -1};
    if (status == TESS_OK && !is_member(p, &g))
        status = wrong(p, "ranks", value, rule);
    if (status == TESS_OK)
        status = keep_group(p, &g, group);
    tess__free(p->ctx, items);
    tess__free(p->ctx, ranks);
    return status;
}

static tess_status read_group(reader *r, int32_t *group)
{
    static const char rule[] = "[first, count, stride] in the ranks, with this one among them";
    tess__program *p = r->p;
    const tess__json_slice *value = find(r->fields, r->n, "group");
    const tess__json_slice *list = find(r->fields, r->n, "ranks");
    tess__json_slice parts[3];
    int64_t x[3];
    if (!value && list)
        return read_list(r, list, group);
    if (!value || tess__json_elements(*value, parts, 3) != 3)
        return wrong(p, "group", value, rule);
    for (int i = 0; i < 3; i++)
        if (!tess__json_decimal(parts[i], 0, &x[i]) || x[i] < 0 || x[i] > p->ranks)
            return wrong(p, "group", value, rule);
    const tess__program_group g = {
        .n = (int32_t)x[1], .first = (int32_t)x[0], .stride = x[1] > 1 ? (int32_t)x[2] : 0};
    if (x[1] < 1 || (x[1] > 1 && x[2] == 0) || x[0] + (x[1] - 1) * x[2] >= p->ranks ||
        !is_member(p, &g))
        return wrong(p, "group", value, rule);
    return keep_group(p, &g, group);
}

/* ---- events ---------------------------------------------------------------------------------- */

static tess_status read_shapes(const reader *r, const char *key, tess__program_shapes *s)
{
    const tess__json_slice *value = find(r->fields, r->n, key);
    tess__json_slice all[TESS__PROGRAM_SHAPES], dims[TESS__PROGRAM_DIMS];
    const int64_t n = value ? tess__json_elements(*value, all, TESS__PROGRAM_SHAPES) : -1;
    if (n < 0)
        return wrong(r->p, key, value, "an array of shapes");
    s->n = (int)TESS_MIN(n, (int64_t)1 << 20);
    for (int i = 0; i < TESS_MIN(s->n, TESS__PROGRAM_SHAPES); i++) {
        const int64_t d = tess__json_elements(all[i], dims, TESS__PROGRAM_DIMS);
        if (d < 0)
            return wrong(r->p, key, &all[i], "an array of lengths");
        s->dims[i] = (int)TESS_MIN(d, (int64_t)TESS__PROGRAM_DIMS + 1);
        for (int k = 0; k < TESS_MIN(s->dims[i], TESS__PROGRAM_DIMS); k++)
            if (!tess__json_decimal(dims[k], 0, &s->size[i][k]) || s->size[i][k] < 0 ||
                s->size[i][k] > DIM_MAX)
                return wrong(r->p, key, &all[i], "lengths of 0..1099511627776");
    }
    return TESS_OK;
}

/* "layers.3" of "layers.3.attn.q": as many layers as there are numbers below the same name. */
static void count_layer(tess__program *p, const tess__program_event *e)
{
    if (e->pass == TESS__PROGRAM_OPTIMIZER)
        return;
    for (const char *at = e->module; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (*at < '0' || *at > '9')
            continue;
        int64_t x = 0;
        for (const char *d = at; *d >= '0' && *d <= '9' && x < 1 << 20; d++)
            x = 10 * x + (*d - '0');
        p->layers = TESS_MAX(p->layers, x + 1);
        p->layer_ops[e->pass == TESS__PROGRAM_BACKWARD]++;
        return;
    }
}

static tess_status read_operator(reader *r, tess__program_event *e)
{
    tess__program_shapes in, out;
    const char *dtype = "";
    const tess__json_slice *causal = find(r->fields, r->n, "causal");
    TESS_TRY(number(r, "flop", REQUIRED, INT64_MAX / 4, &e->flop));
    TESS_TRY(number(r, "bytes", REQUIRED, BYTES_MAX, &e->bytes));
    TESS_TRY(number(r, "ns", ABSENT, NS_MAX, &e->ns));
    TESS_TRY(read_shapes(r, "shapes", &in));
    TESS_TRY(read_shapes(r, "out", &out));
    TESS_TRY(text(r->p, "dtype", find(r->fields, r->n, "dtype"), NULL, &dtype));
    tess__program_work_of(e, &in, &out, dtype, causal && causal->text[0] == 't');
    count_layer(r->p, e);
    return TESS_OK;
}

static tess_status read_call(reader *r, tess__program_event *e)
{
    tess__program *p = r->p;
    const tess__json_slice *op = find(r->fields, r->n, "op");
    size_t i = 0;
    while (op && i < sizeof ops / sizeof *ops && !tess__json_slice_is(*op, ops[i].name))
        i++;
    if (!op || i == sizeof ops / sizeof *ops)
        return wrong(p, "op", op, "an operation of docs/formats.md");
    e->op = (uint8_t)ops[i].op;
    e->receives = ops[i].peer == 2;
    TESS_TRY(number(r, "in_bytes", REQUIRED, BYTES_MAX, &e->in_bytes));
    TESS_TRY(number(r, "out_bytes", REQUIRED, BYTES_MAX, &e->out_bytes));
    TESS_TRY(number(r, "ns", ABSENT, NS_MAX, &e->ns));
    TESS_TRY(read_group(r, &e->group));
    if (ops[i].peer) {
        int64_t peer;
        TESS_TRY(number(r, "peer", REQUIRED, p->ranks - 1, &peer));
        if (peer == p->rank)
            return wrong(p, "peer", find(r->fields, r->n, "peer"), "another rank");
        e->peer = (int32_t)peer;
    }
    return TESS_OK;
}

static tess_status read_pass(const reader *r, tess__program_event *e)
{
    static const char *const names[] = {"\"forward\"", "\"backward\"", "\"optimizer\""};
    const tess__json_slice *value = find(r->fields, r->n, "pass");
    for (int i = 0; value && i < 3; i++)
        if (tess__json_slice_is(*value, names[i])) {
            e->pass = (uint8_t)i;
            return TESS_OK;
        }
    return value ? wrong(r->p, "pass", value, "forward, backward or optimizer") : TESS_OK;
}

tess_status tess__program_event_read(tess__program *p, const tess__json_item *item)
{
    const tess__json_slice *phase = find(item->fields, item->n_fields, "ph");
    const tess__json_slice *cat = find(item->fields, item->n_fields, "cat");
    const tess__json_slice *args = find(item->fields, item->n_fields, "args");
    const tess__program_event *last = p->n ? &p->events[p->n - 1] : NULL;
    tess__program_event e = {.peer = -1, .ns = ABSENT, .stores = p->n_stores};
    reader r = {.p = p};
    if (!phase)
        return wrong(p, "ph", NULL, "");
    if (!tess__json_slice_is(*phase, "\"X\""))
        return TESS_OK;
    if (p->n == EVENTS_MAX)
        return tess__fail(TESS_EFORMAT, "%s: more than %lld events", p->path,
                          (long long)EVENTS_MAX);
    if (!args || args->text[0] != '{')
        return wrong(p, "args", args, "an object");
    TESS_TRY(text(p, "name", find(item->fields, item->n_fields, "name"), NULL, &e.name));
    r.n = TESS_MIN(tess__json_fields(*args, r.fields), (int)TESS__SCAN_FIELDS);
    TESS_TRY(
        text(p, "module", find(r.fields, r.n, "module"), last ? last->module : NULL, &e.module));
    TESS_TRY(read_pass(&r, &e));
    TESS_TRY(read_stores(&r, "reads", &e.n_reads));
    TESS_TRY(read_stores(&r, "writes", &e.n_writes));
    if (cat && tess__json_slice_is(*cat, "\"compute\"")) {
        e.kind = TESS__PROGRAM_OPERATOR;
        TESS_TRY(read_operator(&r, &e));
    } else if (cat && tess__json_slice_is(*cat, "\"communication\"")) {
        e.kind = TESS__PROGRAM_CALL;
        TESS_TRY(read_call(&r, &e));
    } else if (cat && tess__json_slice_is(*cat, "\"wait\"")) {
        e.kind = TESS__PROGRAM_WAIT;
    } else {
        return wrong(p, "cat", cat, "compute, communication or wait");
    }
    TESS_GROW(p->ctx, p->events, p->n, p->n + 1, p->room);
    p->events[p->n++] = e;
    return TESS_OK;
}
