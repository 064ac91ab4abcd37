/* SPDX-License-Identifier: Apache-2.0 */
/* data_skipped.c - records of all clips that were listed, and what is said about the skipped ones.
 *
 * Each skipped clip is a line of the log at the level of information; a warning sums them up, so
 * that a folder of a thousand short clips is one sentence with the frames that would keep them.
 */
#include "data_internal.h"

#include <string.h>

tess_status tess__records_make(tess_data *data)
{
    tess__items *list = data->items;
    list->n_listed = list->n;
    list->records = TESS_TAKE(&data->arena, (size_t)(list->n + 1) * sizeof *list->records);
    for (int i = 0; i < list->n; i++)
        list->records[i] = (tess_data_clip){.name = list->items[i].name,
                                            .path = list->items[i].path,
                                            .prompt = list->items[i].prompt};
    return TESS_OK;
}

/* 1: it was skipped because it has fewer frames than a sample. */
static int is_short(const tess_data *data, const tess_data_clip *r)
{
    return r->skipped && r->frames > 0 && r->frames < data->info.frames;
}

tess_status tess__items_skip(tess_data *data, int number)
{
    tess__items *list = data->items;
    const char *sentence = tess_last_error();
    tess__log(data->ctx, TESS_LOG_INFO, "%s; the clip is skipped", sentence);
    sentence = TESS_TAKE_STRING(&data->arena, sentence, strlen(sentence));
    data->info.skipped++;
    list->first_sentence = list->first_sentence ? list->first_sentence : sentence;
    if (list->records && number >= 0)
        list->records[number].skipped = sentence;
    return TESS_OK;
}

typedef struct {
    int n, shortest, longest; /* clips that are too short, and their frames */
    const char *other;        /* sentence of the first that was skipped for another reason */
} skips;

static skips count(const tess_data *data)
{
    const tess__items *list = data->items;
    skips s = {.shortest = INT32_MAX};
    for (int i = 0; list->records && i < list->n_listed; i++) {
        const tess_data_clip *r = &list->records[i];
        if (is_short(data, r)) {
            s.n++;
            s.shortest = TESS_MIN(s.shortest, r->frames);
            s.longest = TESS_MAX(s.longest, r->frames);
        } else if (r->skipped && !s.other) {
            s.other = r->skipped;
        }
    }
    s.other = s.other || s.n ? s.other : list->first_sentence;
    return s;
}

tess_status tess__items_none_left(const tess_data *data, const char *source)
{
    const skips s = count(data);
    const long long skipped = (long long)data->info.skipped;
    if (skipped == 0)
        return tess__fail(TESS_EFORMAT, "%s: has no clips", source);
    if (s.n > 1 && s.n == skipped)
        return tess__fail(TESS_EFORMAT,
                          "%s: none of its %d clips has %d frames, the longest has %d: --frames %d "
                          "keeps one, --frames %d keeps all",
                          source, s.n, data->info.frames, s.longest, s.longest, s.shortest);
    return tess__fail(TESS_EFORMAT, "%s: none of its %lld clips can be used; the first: %s", source,
                      skipped, data->items->first_sentence);
}

void tess__items_warn(const tess_data *data)
{
    const skips s = count(data);
    const long long skipped = (long long)data->info.skipped, others = skipped - s.n;
    const long long all = skipped + data->items->n;
    if (s.n == 1 && others == 0)
        tess__log(data->ctx, TESS_LOG_WARN, "%s; the clip is skipped", data->items->first_sentence);
    else if (s.n > 0)
        tess__log(data->ctx, TESS_LOG_WARN,
                  "%d of %lld clips are shorter than %d frames: --frames %d keeps all", s.n, all,
                  data->info.frames, s.shortest);
    if (others == 1)
        tess__log(data->ctx, TESS_LOG_WARN, "%s; the clip is skipped", s.other);
    else if (others > 1)
        tess__log(data->ctx, TESS_LOG_WARN, "%lld of %lld clips cannot be used; the first: %s",
                  others, all, s.other);
}

/* ---- public ---------------------------------------------------------------------------------- */

int tess_data_clip_count(const tess_data *data)
{
    return data && data->items && data->items->records ? data->items->n_listed : 0;
}

tess_status tess_data_clip_query(const tess_data *data, int index, tess_data_clip *clip)
{
    TESS_REQUIRE(data, clip);
    if (index < 0 || index >= tess_data_clip_count(data))
        return tess__fail(TESS_EINVAL, "tess_data_clip_query: index is %d, must be 0..%d", index,
                          tess_data_clip_count(data) - 1);
    *clip = data->items->records[index];
    return TESS_OK;
}

tess_status tess_data_locate(const tess_data *data, tess_split split, int64_t index, int *clip,
                             int *start)
{
    TESS_REQUIRE(data, clip, start);
    if ((split != TESS_SPLIT_TRAIN && split != TESS_SPLIT_VALIDATION) || index < 0)
        return tess__fail(TESS_EINVAL,
                          "tess_data_locate: split is %d and index %lld, must be 0 or 1 and 0 or "
                          "more",
                          (int)split, (long long)index);
    tess__sample_meta meta = {.prompt = ""};
    TESS_TRY(data->source->sample(data, split, index, NULL, &meta));
    *clip = meta.item ? meta.item->number : -1;
    *start = meta.start;
    return TESS_OK;
}
