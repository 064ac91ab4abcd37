/* SPDX-License-Identifier: Apache-2.0 */
/* windows_ahead.c - windows of clips outside the cache, decoded before they are sampled.
 *
 * A window costs the frames from the keyframe before it to its end: with a keyframe in every 250
 * frames about 125 + T for a window of T. Which samples follow is known, so windows of one clip are
 * decoded together. The samples are taken in groups of n. Those of a group that lie in one clip
 * share a pass over its file, in which each frame is decoded and scaled once, and copied to all
 * windows that have it. There are two groups: one is sampled while the other is decoded, a frame at
 * a time, whenever the loader has nothing else to do.
 *
 * Cost of a sample: the frames of a pass over the number of its windows, so that clips with many
 * windows in a group gain, and a clip with one costs what it did. A clip that fails in a pass is
 * left to tess_data_sample, which reports the failure at the sample that has it.
 */
#include "data_internal.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the windows of both groups; the most windows of a group. */
enum { AHEAD_BYTES = 32 << 20, GROUP_MAX = 1024 };

typedef enum { WANTED, DECODED, LEFT } entry_state; /* LEFT: to tess_data_sample */

typedef struct {
    tess__window window;
    entry_state state;
    uint8_t *pixels; /* (frames, height, width, 3) of the window, before it is cut */
} entry;

struct tess__ahead {
    const tess_data *data;
    tess__ahead_opts opts;
    atomic_int taken; /* 1: by a loader */
    int n;            /* windows of a group */
    int64_t group;    /* number of the group that is sampled */
    entry *groups[2]; /* group g is groups[g % 2] */
    /* The pass in progress: windows of one clip by their starts, `finished` of them decoded. */
    tess__reader *reader; /* NULL: none */
    tess__resizer *resizer;
    entry **row;
    int n_row, finished;
    uint8_t *frame; /* one, scaled */
    int place,
        held; /* the next frame at the wanted rate; the frame of the file in `frame`, or -1 */
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of the largest frame of a clip outside the cache; 0: all clips are in it. */
static size_t largest_frame(const tess_data *data)
{
    size_t largest = 0;
    for (int i = 0; i < data->items->n; i++)
        if (!data->items->items[i].pixels)
            largest = TESS_MAX(largest, tess__window_frame_bytes(&data->items->items[i]));
    return largest;
}

tess_status tess__ahead_make(tess_data *data)
{
    const size_t frame = largest_frame(data), window = frame * (size_t)data->info.frames;
    const int64_t most = TESS_MIN(GROUP_MAX, data->info.windows);
    const int n = window ? (int)TESS_MIN(AHEAD_BYTES / 2 / (int64_t)window, most) : 0;
    if (n < 2)
        return TESS_OK;
    tess__ahead *a = tess__arena_take(&data->arena, sizeof *a);
    if (!a)
        return TESS_ENOMEM;
    memset(a, 0, sizeof *a);
    a->data = data;
    a->n = n;
    a->row = tess__arena_take(&data->arena, (size_t)n * sizeof(entry *));
    a->frame = tess__arena_take(&data->arena, frame);
    for (int g = 0; g < 2; g++) {
        a->groups[g] = tess__arena_take(&data->arena, (size_t)n * sizeof(entry));
        uint8_t *pixels = tess__arena_take(&data->arena, (size_t)n * window);
        if (!a->row || !a->frame || !a->groups[g] || !pixels)
            return TESS_ENOMEM;
        for (int i = 0; i < n; i++)
            a->groups[g][i] = (entry){.pixels = pixels + (size_t)i * window};
    }
    data->ahead = a;
    return TESS_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The sample of a place in the loader's order, which has `batch` of each `of` samples. */
static int64_t index_of(const tess__ahead_opts *o, int64_t place)
{
    return (o->first + place / o->batch) * o->of + o->skip + place % o->batch;
}

static void plan_group(tess__ahead *a, int64_t group)
{
    entry *entries = a->groups[group % 2];
    for (int i = 0; i < a->n; i++) {
        entries[i].window =
            tess__window_choose(a->data, a->opts.split, index_of(&a->opts, group * a->n + i));
        entries[i].state = entries[i].window.item->pixels ? LEFT : WANTED;
    }
}

static entry *first_wanted(const tess__ahead *a, int64_t group)
{
    entry *entries = a->groups[group % 2];
    for (int i = 0; i < a->n; i++)
        if (entries[i].state == WANTED)
            return &entries[i];
    return NULL;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int by_start(const void *x, const void *y)
{
    return (*(entry *const *)x)->window.start - (*(entry *const *)y)->window.start;
}

static void end_pass(tess__ahead *a)
{
    for (int i = a->finished; i < a->n_row; i++)
        a->row[i]->state = LEFT;
    tess__resizer_destroy(a->resizer);
    if (a->reader)
        a->reader->close(a->reader);
    a->resizer = NULL;
    a->reader = NULL;
    a->n_row = a->finished = 0;
}

/* Over all wanted windows of a group in one clip. */
static void begin_pass(tess__ahead *a, int64_t group, const tess__item *item)
{
    entry *entries = a->groups[group % 2];
    for (int i = 0; i < a->n; i++)
        if (entries[i].state == WANTED && entries[i].window.item == item)
            a->row[a->n_row++] = &entries[i];
    qsort(a->row, (size_t)a->n_row, sizeof *a->row, by_start);
    a->place = a->row[0]->window.start;
    a->held = -1;
    tess_status status = tess__reader_open(a->data->ctx, item->path, 0, &a->reader);
    if (status == TESS_OK)
        status = tess__resizer_create(a->data->ctx, a->reader->height, a->reader->width,
                                      item->height, item->width, &a->resizer);
    if (status != TESS_OK)
        end_pass(a);
}

/* Copies the frame to the windows that have it. */
static void hand_out(tess__ahead *a, size_t bytes)
{
    const int frames = a->data->info.frames;
    for (int i = a->finished; i < a->n_row && a->row[i]->window.start <= a->place; i++) {
        const int t = a->place - a->row[i]->window.start;
        memcpy(a->row[i]->pixels + (size_t)t * bytes, a->frame, bytes);
        if (t == frames - 1) {
            a->row[i]->state = DECODED;
            a->finished = i + 1;
        }
    }
}

static void next_frame(tess__ahead *a)
{
    const tess__item *item = a->row[0]->window.item;
    const int k = tess__window_frame(a->data, item, a->place);
    if (k != a->held) {
        const uint8_t *rgb;
        if (a->reader->at(a->reader, &item->frames, k, &rgb) != TESS_OK) {
            end_pass(a);
            return;
        }
        tess__resizer_run(a->resizer, rgb, a->frame);
        a->held = k;
    }
    hand_out(a, tess__window_frame_bytes(item));
    if (a->finished == a->n_row) {
        end_pass(a);
        return;
    }
    a->place = TESS_MAX(a->place + 1, a->row[a->finished]->window.start);
}

/* ---- the loader's calls ---------------------------------------------------------------------- */

tess__ahead *tess__ahead_begin(const tess_data *data, const tess__ahead_opts *opts)
{
    tess__ahead *a = data->ahead;
    if (!a || atomic_exchange(&a->taken, 1)) /* by another loader */
        return NULL;
    a->opts = *opts;
    a->group = 0;
    plan_group(a, 0);
    plan_group(a, 1);
    return a;
}

int tess__ahead_work(tess__ahead *a)
{
    if (!a)
        return 0;
    for (int64_t g = a->group; !a->reader && g < a->group + 2; g++) {
        const entry *wanted = first_wanted(a, g);
        if (wanted) {
            begin_pass(a, g, wanted->window.item);
            return 1;
        }
    }
    if (!a->reader)
        return 0;
    next_frame(a);
    return 1;
}

const uint8_t *tess__ahead_take(tess__ahead *a, int64_t place)
{
    if (!a)
        return NULL;
    if (place / a->n != a->group) {
        a->group = place / a->n;
        plan_group(a, a->group + 1);
    }
    const entry *e = &a->groups[a->group % 2][place % a->n];
    while (e->state == WANTED)
        tess__ahead_work(a);
    return e->state == DECODED ? e->pixels : NULL;
}

void tess__ahead_end(tess__ahead *a)
{
    if (!a)
        return;
    end_pass(a);
    atomic_store(&a->taken, 0);
}
