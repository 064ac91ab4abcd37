/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_data.c - a timeline as the data of its page.
 *
 * Operations are stored once for each class of equal ranks, as arrays in base64: begin and end as
 * doubles in ns, and two words: name and category, pass. 24 bytes of an operation; the script draws
 * what is in view, and of what is narrower than a pixel one.
 */
#include "timeline_data.h"

#include <stdlib.h>
#include <string.h>

enum { OPERATIONS_MAX = 400000, CAT_WAIT = 4, CAT_BITS = 4, CRITICAL = 8 };

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t slot_of(const tess__timeline_data *d, const char *name)
{
    uint64_t at = tess__hash(0, &name, sizeof name) & (uint64_t)(d->slots - 1);
    while (d->names[at] && d->names[at] != name)
        at = (at + 1) & (uint64_t)(d->slots - 1);
    return (int64_t)at;
}

static uint32_t name_number(tess__timeline_data *d, const char *name)
{
    const int64_t at = slot_of(d, name);
    if (!d->names[at]) {
        d->names[at] = name;
        d->numbers[at] = (int32_t)d->n_names;
        d->list[d->n_names++] = name;
    }
    return (uint32_t)d->numbers[at];
}

static tess_status reserve_names(tess__timeline_data *d)
{
    d->slots = 1024;
    while (d->slots < 4 * TESS_MIN(d->info.operations, (int64_t)OPERATIONS_MAX))
        d->slots *= 2;
    d->names = TESS_TAKE_ZERO(&d->arena, (size_t)d->slots * sizeof *d->names);
    d->list = TESS_TAKE(&d->arena, (size_t)d->slots * sizeof *d->list);
    d->numbers = TESS_TAKE(&d->arena, (size_t)d->slots * sizeof *d->numbers);
    return TESS_OK;
}

/* ---- which operations ------------------------------------------------------------------------ */

static int shown_index(const tess__timeline_data *d, int rank)
{
    int low = 0, high = d->n_shown;
    while (low < high) {
        const int at = (low + high) / 2;
        if (d->shown[at] < rank)
            low = at + 1;
        else
            high = at;
    }
    return low < d->n_shown && d->shown[low] == rank ? low : -1;
}

/* Classes of the ranks that are wanted, as many as the page holds. */
static tess_status choose_classes(tess__timeline_data *d)
{
    const int n = d->opts->ranks ? d->opts->n_ranks : d->info.classes;
    d->shown = TESS_TAKE(&d->arena, (size_t)TESS_MAX(n, 1) * sizeof *d->shown);
    if (d->opts->ranks) {
        for (int i = 0; i < n; i++)
            TESS_TRY(tess_timeline_class_of(d->t, d->opts->ranks[i], &d->shown[d->n_shown++]));
    } else {
        for (int64_t i = 0, last = -1; i < d->info.ranks && d->n_shown < n; i++) {
            int first;
            TESS_TRY(tess_timeline_class_of(d->t, (int)i, &first));
            if (first == i && first > last)
                d->shown[d->n_shown++] = first;
        }
    }
    qsort(d->shown, (size_t)d->n_shown, sizeof *d->shown, tess__by_int32);
    int unique = 0;
    for (int i = 0; i < d->n_shown; i++)
        if (i == 0 || d->shown[i] != d->shown[i - 1])
            d->shown[unique++] = d->shown[i];
    d->n_shown = unique;
    return TESS_OK;
}

/* Sorts operations by class and stream; those of a stream are in the order of time already. */
static tess_status sort_operations(tess__timeline_data *d)
{
    const int64_t places = (int64_t)d->n_shown * d->info.streams;
    d->first = TESS_TAKE_ZERO(&d->arena, ((size_t)places + 2) * sizeof *d->first);
    d->order = TESS_TAKE(&d->arena, (size_t)d->info.operations * sizeof *d->order);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < d->info.operations; i++) {
            tess_timeline_op op;
            TESS_TRY(tess_timeline_op_query(d->t, i, &op));
            const int at = shown_index(d, op.rank);
            if (at < 0 || (op.end == op.begin && op.ready == op.begin))
                continue;
            const int64_t place = (int64_t)at * d->info.streams + op.stream;
            if (pass == 0)
                d->first[place + 2]++;
            else
                d->order[d->first[place + 1]++] = i;
        }
        for (int64_t k = 1; pass == 0 && k < places; k++)
            d->first[k + 1] += d->first[k];
    }
    int kept = 0;
    while (kept < d->n_shown &&
           (kept == 0 || d->first[(int64_t)(kept + 1) * d->info.streams] <= OPERATIONS_MAX))
        kept++;
    d->left_out = d->n_shown - kept;
    d->n_shown = kept;
    return TESS_OK;
}

tess_status tess__timeline_choose(tess__timeline_data *d)
{
    TESS_TRY(reserve_names(d));
    TESS_TRY(choose_classes(d));
    return sort_operations(d);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct {
    double *times;   /* begin, end */
    uint32_t *words; /* name and category, pass */
    size_t n;
} track;

static void put_event(tess__timeline_data *d, track *k, const tess_timeline_op *op, int wait)
{
    static const char *const cats[] = {"compute", "communication", "copy", "wait"};
    uint32_t cat = CAT_WAIT;
    for (uint32_t i = 0; i < 4 && !wait; i++)
        if (strcmp(cats[i], op->cat) == 0)
            cat = i;
    k->times[2 * k->n] = (double)(wait ? op->ready : op->begin);
    k->times[2 * k->n + 1] = (double)(wait ? op->begin : op->end);
    k->words[2 * k->n] = name_number(d, op->name) << CAT_BITS | cat |
                         (op->critical && !wait ? (uint32_t)CRITICAL : 0);
    k->words[2 * k->n + 1] = name_number(d, op->pass);
    k->n++;
}

static tess_status add_track(tess__timeline_data *d, tess__jw *w, int64_t place, const char *name)
{
    const int64_t n = d->first[place + 1] - d->first[place];
    track k = {.times = tess__alloc(d->ctx, 4 * (size_t)n * sizeof *k.times),
               .words = tess__alloc(d->ctx, 4 * (size_t)n * sizeof *k.words)};
    tess_status status = k.times && k.words ? TESS_OK : TESS_ENOMEM;
    for (int64_t i = 0; i < n && status == TESS_OK; i++) {
        tess_timeline_op op;
        status = tess_timeline_op_query(d->t, d->order[d->first[place] + i], &op);
        if (status == TESS_OK && op.begin > op.ready && strcmp(op.cat, "communication") == 0)
            put_event(d, &k, &op, 1);
        if (status == TESS_OK && op.end > op.begin)
            put_event(d, &k, &op, 0);
    }
    if (status == TESS_OK) {
        tess__jw_begin(w, NULL, '{');
        tess__jw_text(w, "name", name);
        tess__markup_bytes(w, "times", k.times, 2 * k.n * sizeof *k.times);
        tess__markup_bytes(w, "words", k.words, 2 * k.n * sizeof *k.words);
        tess__jw_end(w, '}');
    }
    tess__free(d->ctx, k.times);
    tess__free(d->ctx, k.words);
    return status;
}

/* Bytes over time of the class whose lowest rank is `rank`, from the counter *at on. */
static tess_status add_memory(tess__timeline_data *d, tess__jw *w, int rank, int64_t *at)
{
    tess_timeline_memory m;
    int64_t n = 0;
    while (*at < d->info.counters && tess_timeline_memory_query(d->t, *at, &m) == TESS_OK &&
           m.rank < rank)
        ++*at;
    while (*at + n < d->info.counters && tess_timeline_memory_query(d->t, *at + n, &m) == TESS_OK &&
           m.rank == rank)
        n++;
    double *values = TESS_ALLOC(d->ctx, 4 * (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        if (tess_timeline_memory_query(d->t, *at + i, &m) != TESS_OK)
            break;
        values[4 * i] = (double)m.ns;
        values[4 * i + 1] = (double)m.state;
        values[4 * i + 2] = (double)m.activations;
        values[4 * i + 3] = (double)m.working;
    }
    tess__markup_bytes(w, "memory", values, 4 * (size_t)n * sizeof *values);
    tess__free(d->ctx, values);
    return TESS_OK;
}

static tess_status add_classes(tess__timeline_data *d, tess__jw *w)
{
    int64_t counter = 0;
    tess__jw_begin(w, "classes", '[');
    for (int i = 0; i < d->n_shown; i++) {
        tess__jw_begin(w, NULL, '{');
        tess__jw_int(w, "rank", d->shown[i]);
        tess__jw_begin(w, "tracks", '[');
        for (int s = 0; s < d->info.streams; s++) {
            const int64_t place = (int64_t)i * d->info.streams + s;
            char name[64];
            TESS_TRY(tess_timeline_stream(d->t, d->shown[i], s, name));
            if (d->first[place + 1] > d->first[place])
                TESS_TRY(add_track(d, w, place, name));
        }
        tess__jw_end(w, ']');
        TESS_TRY(add_memory(d, w, d->shown[i], &counter));
        tess__jw_end(w, '}');
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

/* The ranks that are shown, each with the number of its class. */
static tess_status add_ranks(const tess__timeline_data *d, tess__jw *w)
{
    const int n = d->opts->ranks ? d->opts->n_ranks : d->n_shown;
    tess__jw_begin(w, "ranks", '[');
    for (int i = 0; i < n; i++) {
        const int rank = d->opts->ranks ? d->opts->ranks[i] : d->shown[i];
        int first;
        TESS_TRY(tess_timeline_class_of(d->t, rank, &first));
        const int at = shown_index(d, first);
        if (at < 0)
            continue;
        tess__jw_begin(w, NULL, '[');
        tess__jw_int(w, NULL, rank);
        tess__jw_int(w, NULL, at);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
    return TESS_OK;
}

static void add_bars(tess__jw *w, const char *key, const tess_timeline_part *parts, int n)
{
    tess__jw_begin(w, key, '[');
    for (int i = 0; i < n; i++) {
        if (parts[i].ms == 0.0)
            continue;
        tess__jw_begin(w, NULL, '[');
        tess__jw_text(w, NULL, parts[i].name);
        tess__jw_real(w, NULL, parts[i].ms);
        tess__jw_end(w, ']');
    }
    tess__jw_end(w, ']');
}

tess_status tess__timeline_json(tess__timeline_data *d, tess__markup *text)
{
    tess_timeline_part critical[64];
    int n = 0;
    const char *name;
    int64_t ns;
    while (n < 64 && tess_timeline_critical(d->t, n, &name, &ns) == TESS_OK)
        critical[n++] = (tess_timeline_part){name, 1e-6 * (double)ns};
    tess__jw w = tess__markup_json(text, 9);
    tess__jw_begin(&w, NULL, '{');
    tess__jw_int(&w, "ns", d->info.ns);
    tess__jw_real(&w, "capacity", d->opts->capacity);
    add_bars(&w, "critical", critical, n);
    add_bars(&w, "parts", d->opts->parts, d->opts->n_parts);
    TESS_TRY(add_ranks(d, &w));
    TESS_TRY(add_classes(d, &w));
    tess__jw_begin(&w, "names", '[');
    for (int64_t i = 0; i < d->n_names; i++)
        tess__jw_text(&w, NULL, d->list[i]);
    tess__jw_end(&w, ']');
    tess__jw_end(&w, '}');
    return tess__jw_finish(&w);
}
