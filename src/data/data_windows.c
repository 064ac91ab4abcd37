/* SPDX-License-Identifier: Apache-2.0 */
/* data_windows.c - windows of clips of any length: video files, .y4m, pictures and folders of them.
 *
 * A clip is a row of frames at the wanted rate: frame k is what the file shows at k / fps, or its
 * frame k. Window w of a clip is the frames from w stride on, or, with a random start, from one of
 * the following stride - 1 places, drawn anew in every epoch. An epoch has every window once, in
 * the order of shuffle.c over the windows of all clips. Start, crop and mirror of sample i are
 * numbers of the random stream i: a sample depends on its index alone.
 *
 * Validation. From 20 clips on some are held out whole, as data_items.c says. Of fewer, each clip
 * of two windows or more gives its end: a twentieth of its frames, a window at least; training
 * windows end before it. If no clip is so long, clips are held out whole as well. Windows of
 * validation begin one behind the other, are cut at the centre and have one order for every seed.
 *
 * Opening lists the frames of every file (video_seek.c). The frames of as many clips as fit into
 * the cache are decoded then, at the wanted size, and stay; of the others a window is decoded
 * whenever it is sampled, from the keyframe before it, or before that, for a loader, together with
 * other windows of its clip (windows_ahead.c). Cost of a sample from the cache: a copy.
 */
#include "data_internal.h"

#include <math.h>
#include <string.h>

enum { WHOLE_FROM = 20, ONE_IN = 20 };

/* ---- frames at the wanted rate --------------------------------------------------------------- */

static const double blink = 1e-6; /* seconds: times are rounded by the file */

static int has_rate(const tess_data *data, const tess__item *item)
{
    return data->fps > 0 && item->fps > 0;
}

/* Seconds from the first frame to the end of frame j. */
static double end_of(const tess__item *item, int j)
{
    const tess__frames *f = &item->frames;
    return (j + 1 < f->n ? f->times[j + 1] : f->times[j] + 1 / item->fps) - f->times[0];
}

static int length_at_rate(const tess_data *data, const tess__item *item)
{
    if (!has_rate(data, item))
        return item->frames.n;
    const double end = end_of(item, item->frames.n - 1) - blink;
    const double n = floor(end * data->fps);
    if (!(n < TESS__LIST_MAX))
        return TESS__LIST_MAX;
    int length = TESS_MAX((int)n - 1, 0);
    while (length / data->fps < end)
        length++;
    return length;
}

/* The frame of the file that is shown at k / fps. */
int tess__window_frame(const tess_data *data, const tess__item *item, int k)
{
    if (!has_rate(data, item))
        return k;
    int low = 0, high = item->frames.n - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (k / data->fps < end_of(item, middle) - blink)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The size of stored frames: what samples have, or, to be cut at random, all that covers it. */
static void set_cover(const tess_data *data, tess__item *item, const tess__reader *reader)
{
    const int height = data->info.height * data->info.pack;
    const int width = data->info.width * data->info.pack;
    item->height = height;
    item->width = width;
    if (!data->random_crop)
        return;
    const double down = (double)reader->height / height, across = (double)reader->width / width;
    const double ratio = TESS_MIN(down, across);
    item->height = TESS_MAX((int)(reader->height / ratio + 1e-9), height);
    item->width = TESS_MAX((int)(reader->width / ratio + 1e-9), width);
}

size_t tess__window_frame_bytes(const tess__item *item)
{
    return (size_t)item->height * (size_t)item->width * 3;
}

/* n frames at the wanted rate from `first` on, scaled. report: progress is called. */
static tess_status read_frames(const tess_data *data, const tess__item *item, tess__reader *reader,
                               int first, int n, int report, uint8_t *pixels)
{
    tess__resizer *resizer;
    const size_t bytes = tess__window_frame_bytes(item);
    TESS_TRY(tess__resizer_create(data->ctx, reader->height, reader->width, item->height,
                                  item->width, &resizer));
    tess_status status = TESS_OK;
    int last = -1;
    for (int i = 0; i < n && status == TESS_OK; i++, pixels += bytes) {
        const int k = tess__window_frame(data, item, first + i);
        const uint8_t *rgb;
        if (report)
            status =
                tess__progress(data->ctx, "reading clips", item->number, data->items->n_listed);
        if (status == TESS_OK && k == last) {
            memcpy(pixels, pixels - bytes, bytes);
        } else if (status == TESS_OK) {
            status = reader->at(reader, &item->frames, k, &rgb);
            if (status == TESS_OK)
                tess__resizer_run(resizer, rgb, pixels);
        }
        last = k;
    }
    tess__resizer_destroy(resizer);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static tess_status check_length(const tess_data *data, const tess__item *item)
{
    const int wanted = data->info.frames;
    if (item->frames.n == 0)
        return tess__fail(TESS_EFORMAT, "%s: has no frames", item->path);
    if (item->length >= wanted)
        return TESS_OK;
    if (has_rate(data, item))
        return tess__fail(TESS_EFORMAT, "%s: has %d frames at %g fps, %d are wanted", item->path,
                          item->length, data->fps, wanted);
    return tess__fail(TESS_EFORMAT, "%s: has %d frames, %d are wanted", item->path, item->length,
                      wanted);
}

/* Decodes all frames into the cache if they fit, else the first window, to know that it can. */
static tess_status decode(tess_data *data, tess__item *item, tess__reader *reader)
{
    const size_t bytes = tess__window_frame_bytes(item);
    const int keep = (double)bytes * item->length <= (double)data->cache_left;
    const int n = keep ? item->length : data->info.frames;
    uint8_t *pixels = TESS_ALLOC(data->ctx, bytes * (size_t)n);
    const tess_status status = read_frames(data, item, reader, 0, n, 1, pixels);
    if (status == TESS_OK && keep) {
        item->pixels = pixels;
        data->cache_left -= (int64_t)(bytes * (size_t)n);
        return TESS_OK;
    }
    tess__free(data->ctx, pixels);
    return status;
}

tess_status tess__window_list(tess_data *data, tess__item *item, tess__reader *reader)
{
    tess_data_clip *record = &data->items->records[item->number];
    record->height = reader->height;
    record->width = reader->width;
    record->fps = item->fps = reader->fps;
    TESS_TRY(reader->list(reader, &data->arena, &item->frames));
    item->length = item->frames.n > 0 ? length_at_rate(data, item) : 0;
    record->frames = item->length;
    return check_length(data, item);
}

static tess_status inspect(tess_data *data, tess__item *item)
{
    tess__reader *reader;
    TESS_TRY(tess__items_prompt(data, item, -1));
    data->items->records[item->number].prompt = item->prompt;
    TESS_TRY(tess__reader_open(data->ctx, item->path, 0, &reader));
    tess_status status = tess__window_list(data, item, reader);
    if (status == TESS_OK) {
        set_cover(data, item, reader);
        status = decode(data, item, reader);
    }
    reader->close(reader);
    if (status == TESS_OK && data->info.fps == 0)
        data->info.fps = item->fps > 0 ? item->fps : 8;
    return status;
}

/* ---- splits ---------------------------------------------------------------------------------- */

static int64_t windows_in(int frames, int window, int stride)
{
    return frames < window ? 0 : (frames - window) / stride + 1;
}

/* Which frames of each clip are for training: those before item->held_out. */
static void hold_out(tess_data *data)
{
    tess__items *list = data->items;
    const int window = data->info.frames;
    int by_time = 0;
    for (int i = 0; i < list->n && list->n < WHOLE_FROM; i++)
        by_time |= list->items[i].length >= 2 * window;
    for (int i = 0; i < list->n; i++) {
        tess__item *item = &list->items[list->order[i]];
        if (by_time)
            item->held_out = item->length < 2 * window
                                 ? item->length
                                 : item->length - TESS_MAX(window, item->length / ONE_IN);
        else
            item->held_out = i < list->n_validation ? 0 : item->length;
    }
}

/* Windows before each clip, by split. */
static tess_status count_windows(tess_data *data)
{
    tess__items *list = data->items;
    tess_data_info *info = &data->info;
    const int alone = list->n == 1 && list->items[0].held_out == list->items[0].length;
    for (int s = 0; s < 2; s++) {
        list->before[s] = TESS_TAKE(&data->arena, (size_t)(list->n + 1) * sizeof *list->before[s]);
        list->before[s][0] = 0;
    }
    info->clips = info->clips_validation = 0;
    for (int i = 0; i < list->n; i++) {
        tess__item *item = &list->items[i];
        tess_data_clip *record = &list->records[item->number];
        item->validation_from = alone ? 0 : item->held_out;
        record->windows = windows_in(item->held_out, info->frames, data->stride);
        record->windows_validation =
            windows_in(item->length - item->validation_from, info->frames, info->frames);
        list->before[0][i + 1] = list->before[0][i] + record->windows;
        list->before[1][i + 1] = list->before[1][i] + record->windows_validation;
        info->clips += record->windows > 0;
        info->clips_validation += record->windows_validation > 0;
    }
    info->windows = list->before[0][list->n];
    info->windows_validation = list->before[1][list->n];
    return TESS_OK;
}

static tess_status windows_open(tess_data *data, const tess_data_opts *opts)
{
    data->seed = tess__data_seed(opts->seed, "clips");
    data->fps = opts->fps;
    data->info.fps = opts->fps; /* 0: that of the first clip */
    data->cache_left = opts->cache;
    data->stride = opts->stride;
    data->random_start = opts->random_start;
    data->random_crop = opts->random_crop;
    data->flip = opts->flip;
    TESS_TRY(tess__clips_list(data, opts->source, 1));
    TESS_TRY(tess__records_make(data));
    if (opts->text)
        TESS_TRY(tess__embeddings_open(data, opts));
    TESS_TRY(tess__items_inspect(data, "reading clips", inspect));
    TESS_TRY(tess__items_split(data, opts->source));
    hold_out(data);
    TESS_TRY(count_windows(data));
    return tess__ahead_make(data);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* A number of 0..n-1 from 32 random bits. */
static int below(uint32_t bits, int n)
{
    return (int)((uint64_t)bits * (uint64_t)n >> 32);
}

static const tess__item *find_clip(const tess_data *data, int split, int64_t number, int64_t *w)
{
    const int64_t *before = data->items->before[split];
    int low = 0, high = data->items->n;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (before[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    *w = number - before[low];
    return &data->items->items[low];
}

tess__window tess__window_choose(const tess_data *data, tess_split split, int64_t index)
{
    const int validation = split == TESS_SPLIT_VALIDATION;
    const int64_t n = validation ? data->info.windows_validation : data->info.windows;
    /* The order of validation is that of one epoch of the seed 0. */
    const int64_t number = validation ? tess__shuffle(0, 0, n, index % n)
                                      : tess__shuffle(data->seed, index / n, n, index % n);
    int64_t at;
    uint32_t bits[4] = {0};
    tess__window w = {.item = find_clip(data, validation, number, &at)};
    const int free_y = w.item->height - data->info.height * data->info.pack;
    const int free_x = w.item->width - data->info.width * data->info.pack;
    w.y = free_y / 2;
    w.x = free_x / 2;
    if (validation) {
        w.start = w.item->validation_from + (int)at * data->info.frames;
        return w;
    }
    /* A seed of its own: the order of clips takes numbers of data->seed. */
    (void)tess_random_bits(tess__data_seed(data->seed, "windows"), (uint64_t)index, 0, bits, 4);
    w.start = (int)at * data->stride + (data->random_start ? below(bits[0], data->stride) : 0);
    w.start = TESS_MIN(w.start, w.item->held_out - data->info.frames);
    w.y = data->random_crop ? below(bits[1], free_y + 1) : w.y;
    w.x = data->random_crop ? below(bits[2], free_x + 1) : w.x;
    w.mirror = data->flip && bits[3] >> 31;
    return w;
}

/* Cut and mirrored rows of the window's frames to x. row: room for one. */
static void pack(const tess_data *data, const tess__window *w, const uint8_t *pixels, uint8_t *row,
                 float *x)
{
    const int height = data->info.height * data->info.pack;
    const int width = data->info.width * data->info.pack;
    const size_t stride = (size_t)w->item->width * 3;
    for (int t = 0; t < data->info.frames; t++, pixels += tess__window_frame_bytes(w->item))
        for (int y = 0; y < height; y++) {
            const uint8_t *from = pixels + (size_t)(w->y + y) * stride + (size_t)w->x * 3;
            for (int i = 0; i < width; i++)
                memcpy(row + (size_t)i * 3, from + (size_t)(w->mirror ? width - 1 - i : i) * 3, 3);
            tess__pack_row(&data->info, t, y, row, x);
        }
}

static tess_status decode_window(const tess_data *data, const tess__window *w, uint8_t *pixels)
{
    tess__reader *reader;
    TESS_TRY(tess__reader_open(data->ctx, w->item->path, 0, &reader));
    const tess_status status =
        read_frames(data, w->item, reader, w->start, data->info.frames, 0, pixels);
    reader->close(reader);
    return status;
}

static tess_status windows_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                  tess__sample_meta *meta)
{
    const tess__window w = tess__window_choose(data, split, index);
    meta->item = w.item;
    meta->prompt = w.item->prompt;
    meta->start = w.start;
    if (!x)
        return TESS_OK;
    const uint8_t *pixels =
        w.item->pixels ? w.item->pixels + (size_t)w.start * tess__window_frame_bytes(w.item)
                       : meta->decoded;
    const size_t frames = pixels ? 0 : tess__window_frame_bytes(w.item) * (size_t)data->info.frames;
    const size_t row = (size_t)data->info.width * (size_t)data->info.pack * 3;
    uint8_t *room = TESS_ALLOC(data->ctx, frames + row);
    tess_status status = pixels ? TESS_OK : decode_window(data, &w, room);
    if (status == TESS_OK)
        pack(data, &w, pixels ? pixels : room, room + frames, x);
    tess__free(data->ctx, room);
    return status;
}

const tess__data_source tess__data_windows = {"clips", windows_open, windows_sample,
                                              tess__items_close};
