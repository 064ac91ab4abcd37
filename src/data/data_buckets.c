/* SPDX-License-Identifier: Apache-2.0 */
/* data_buckets.c - data of several sizes: a bucket for each, which is data of one size.
 *
 *   drawn data   every bucket draws any sample; of each `sum of weights` samples a size has as many
 *                as its weight
 *   clips        every clip is in one bucket, by data_sizes.c; an epoch has each window of all
 *                buckets once
 *
 * Samples are numbers 0 .. n - 1, of which each bucket has a range, in an order that is shuffled
 * for each round of n samples. So the size of a sample depends on the options and its index alone.
 * A folder is listed once to find the bucket of every clip, and once more by each bucket, which
 * reads its own clips. Cost of a sample beside that of its bucket: a search among the buckets.
 */
#include "data_internal.h"

#include <string.h>

static int64_t volume(const tess_data_info *i)
{
    return (int64_t)i->frames * i->height * i->width;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

int tess__bucket_pick(const tess_data *data, tess_split split, int64_t index, int64_t *number)
{
    const tess__buckets *b = data->buckets;
    const int64_t *before = b->before[split], n = before[b->n];
    const int validation = split == TESS_SPLIT_VALIDATION;
    const int64_t round = index / n;
    const int64_t at = validation ? tess__shuffle(0, 0, n, index % n)
                                  : tess__shuffle(data->seed, round, n, index % n);
    int bucket = 0;
    while (before[bucket + 1] <= at)
        bucket++;
    *number =
        data->items ? round * (before[bucket + 1] - before[bucket]) + at - before[bucket] : index;
    return bucket;
}

/* Numbers of each bucket: its windows, or its weight. */
static tess_status make_ranges(tess_data *data, const int64_t *weights)
{
    tess__buckets *b = data->buckets;
    for (int s = 0; s < 2; s++) {
        b->before[s] = TESS_TAKE(&data->arena, ((size_t)b->n + 1) * sizeof *b->before[s]);
        b->before[s][0] = 0;
        for (int i = 0; i < b->n; i++) {
            const tess_data_info *info = &b->data[i]->info;
            const int64_t windows = s ? info->windows_validation : info->windows;
            b->before[s][i + 1] = b->before[s][i] + (data->items ? windows : weights[i]);
        }
    }
    const int64_t *before = b->before[TESS_SPLIT_TRAIN];
    for (int i = 0; i < b->n; i++)
        b->data[i]->info.share = (double)(before[i + 1] - before[i]) / (double)before[b->n];
    return TESS_OK;
}

/* ---- buckets --------------------------------------------------------------------------------- */

static tess_status open_bucket(tess_data *data, const tess_data_opts *opts,
                               const tess__data_size *size, int number)
{
    tess_data_opts o = *opts;
    tess__buckets *b = data->buckets;
    o.sizes = NULL;
    o.frames = size->frames;
    o.height = size->height;
    o.width = size->width;
    o.cache = data->cache_left;
    o.text_len = data->info.text_len;
    o.text_dim = data->info.text_dim;
    const tess__data_part part = {.source = b->source, .bucket_of = b->of, .bucket = number};
    TESS_TRY(tess__data_make(data->ctx, &o, &part, &b->data[b->n]));
    const tess_data *made = b->data[b->n++];
    data->cache_left = made->cache_left;
    return TESS_OK;
}

/* Counts over all buckets; the shape is that of the largest. */
static void describe(tess_data *data)
{
    const tess__buckets *b = data->buckets;
    const tess_data_info *large = &b->data[0]->info;
    tess_data_info sum = {.skipped = data->info.skipped};
    for (int i = 0; i < b->n; i++) {
        const tess_data_info *info = &b->data[i]->info;
        large = volume(info) > volume(large) ? info : large;
        sum.clips += info->clips;
        sum.clips_validation += info->clips_validation;
        sum.windows += info->windows;
        sum.windows_validation += info->windows_validation;
        sum.skipped += info->skipped;
    }
    const double fps = data->info.fps;
    data->info = *large;
    data->info.fps = data->items ? fps : large->fps;
    data->info.sizes = b->n;
    data->info.bytes = 0; /* set by the open */
    data->info.clips = sum.clips;
    data->info.clips_validation = sum.clips_validation;
    data->info.windows = sum.windows;
    data->info.windows_validation = sum.windows_validation;
    data->info.skipped = sum.skipped;
}

/* ---- clips in files -------------------------------------------------------------------------- */

/* The size of a clip; of one that is too short for all the sentence names the shortest. */
static tess_status inspect(tess_data *data, tess__item *item)
{
    const tess__buckets *b = data->buckets;
    tess__reader *reader;
    TESS_TRY(tess__items_prompt(data, item, -1));
    data->items->records[item->number].prompt = item->prompt;
    TESS_TRY(tess__reader_open(data->ctx, item->path, 0, &reader));
    const tess_status status = tess__window_list(data, item, reader);
    if (status == TESS_OK)
        b->of[item->number] =
            tess__data_size_of(b->sizes, b->n_sizes, item->length, reader->height, reader->width);
    reader->close(reader);
    if (status == TESS_OK && data->info.fps == 0)
        data->info.fps = item->fps > 0 ? item->fps : 8;
    return status;
}

static tess_status sort_clips(tess_data *data, const tess_data_opts *opts)
{
    tess__buckets *b = data->buckets;
    data->fps = data->info.fps = opts->fps;
    TESS_TRY(tess__clips_list(data, opts->source, 1));
    TESS_TRY(tess__records_make(data));
    b->of = TESS_TAKE(&data->arena, ((size_t)data->items->n + 1) * sizeof *b->of);
    for (int i = 0; i < data->items->n; i++)
        b->of[i] = -1;
    data->info.frames = b->sizes[0].frames;
    for (int i = 1; i < b->n_sizes; i++)
        data->info.frames = TESS_MIN(data->info.frames, b->sizes[i].frames);
    if (opts->text)
        TESS_TRY(tess__embeddings_open(data, opts));
    TESS_TRY(tess__items_inspect(data, "reading clips", inspect));
    if (data->items->n == 0)
        return tess__items_none_left(data, opts->source);
    tess__items_warn(data);
    return TESS_OK;
}

static int clips_of(const tess_data *data, int bucket)
{
    int n = 0;
    for (int i = 0; i < data->items->n; i++)
        n += data->buckets->of[data->items->items[i].number] == bucket;
    return n;
}

/* What each bucket counted of its clips, and which it could not use after all. */
static void collect_records(tess_data *data)
{
    const tess__buckets *b = data->buckets;
    for (int i = 0; i < b->n; i++) {
        const tess_data *one = b->data[i];
        for (int at = 0; at < one->items->n_listed; at++)
            if (b->of[at] == one->bucket) {
                const tess_data_clip *from = &one->items->records[at];
                tess_data_clip *to = &data->items->records[at];
                to->windows = from->windows;
                to->windows_validation = from->windows_validation;
                to->skipped = from->skipped;
            }
    }
}

/* ---- the source ------------------------------------------------------------------------------ */

static tess_status check(const tess_data *data, const tess_data_opts *opts)
{
    const tess__buckets *b = data->buckets;
    const int clips = b->source == &tess__data_windows;
    if (opts->frames || opts->height || opts->width)
        return tess__invalid("tess_data_open", "%s is %d, must be left out where sizes is given",
                             opts->frames   ? "frames"
                             : opts->height ? "height"
                                            : "width",
                             opts->frames   ? opts->frames
                             : opts->height ? opts->height
                                            : opts->width);
    if (b->source == &tess__data_latents)
        return tess__fail(TESS_ENOTSUP,
                          "tess_data_open: sizes is \"%.100s\", latents have one size",
                          opts->sizes);
    if (b->source == &tess__data_clips)
        return tess__invalid("tess_data_open",
                             "stride is 0, must be 1 or more for clips of several sizes");
    for (int i = 0; clips && i < b->n_sizes; i++)
        if (b->sizes[i].weighted)
            return tess__invalid("tess_data_open",
                                 "sizes gives %dx%dx%d a weight, must not: clips in files are as "
                                 "often as they are",
                                 b->sizes[i].frames, b->sizes[i].height, b->sizes[i].width);
    return TESS_OK;
}

static tess_status buckets_open(tess_data *data, const tess_data_opts *opts)
{
    tess__buckets *b = data->buckets = TESS_TAKE(&data->arena, sizeof *data->buckets);
    int64_t weights[TESS__SIZES_MAX] = {0};
    *b = (tess__buckets){.source = data->base};
    b->sizes = TESS_TAKE(&data->arena, TESS__SIZES_MAX * sizeof *b->sizes);
    TESS_TRY(tess__data_sizes(opts->sizes, b->sizes, &b->n_sizes));
    TESS_TRY(check(data, opts));
    b->data = TESS_TAKE(&data->arena, (size_t)b->n_sizes * sizeof(tess_data *));
    data->seed = tess__data_seed(opts->seed, "sizes");
    data->cache_left = opts->cache;
    if (b->source == &tess__data_windows)
        TESS_TRY(sort_clips(data, opts));
    for (int i = 0; i < b->n_sizes; i++) {
        const tess__data_size *s = &b->sizes[i];
        if (data->items && clips_of(data, i) == 0) {
            tess__log(data->ctx, TESS_LOG_WARN, "%s: no clip gets the size %dx%dx%d", opts->source,
                      s->frames, s->height, s->width);
            continue;
        }
        weights[b->n] = s->weight;
        TESS_TRY(open_bucket(data, opts, s, i));
    }
    describe(data);
    if (data->items)
        collect_records(data);
    return make_ranges(data, weights);
}

static tess_status buckets_sample(const tess_data *data, tess_split split, int64_t index, float *x,
                                  tess__sample_meta *meta)
{
    int64_t number;
    const int bucket = tess__bucket_pick(data, split, index, &number);
    const tess_data *one = data->buckets->data[bucket];
    return one->source->sample(one, split, number, x, meta);
}

static void buckets_close(tess_data *data)
{
    for (int i = 0; data->buckets && i < data->buckets->n; i++)
        tess_data_close(data->buckets->data[i]);
    tess__items_close(data);
}

const tess__data_source tess__data_buckets = {"buckets", buckets_open, buckets_sample,
                                              buckets_close};

/* ---- public ---------------------------------------------------------------------------------- */

tess_status tess_data_bucket(const tess_data *data, int bucket, tess_data_info *info)
{
    TESS_REQUIRE(data, info);
    TESS_TRY(tess__check_range(__func__, "bucket", bucket, 0, data->info.sizes - 1));
    *info = data->buckets ? data->buckets->data[bucket]->info : data->info;
    return TESS_OK;
}

tess_status tess_data_bucket_of(const tess_data *data, tess_split split, int64_t index, int *bucket)
{
    int64_t number;
    TESS_REQUIRE(data, bucket);
    TESS_TRY(tess__check_flag(__func__, "split", (int)split));
    TESS_TRY(tess__check_least(__func__, "index", index, 0));
    *bucket = data->buckets ? tess__bucket_pick(data, split, index, &number) : 0;
    return TESS_OK;
}
