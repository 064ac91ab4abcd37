/* SPDX-License-Identifier: Apache-2.0 */
/* video_seek.c - any frame of a video file: the list of its frames, and decoding from the keyframe
 * before a frame.
 *
 * The list comes from the packets, which are read and not decoded: each has the time at which its
 * frame is shown, and says whether decoding may begin with it. A packet whose frame is never shown
 * counts as the frame before it. Frame k is decoded from the last keyframe that is shown at k or
 * earlier, or onward from the frame before, where that is nearer. A decoder that begins within a
 * file may damage or drop frames that it shows otherwise, where frames refer to others before the
 * keyframe: then the file is decoded from its beginning. Files whose packets have no times are
 * decoded once to count their frames, and from the beginning whenever a frame is asked for.
 */
#include "video.h"

#include <stdlib.h>
#include <string.h>

#ifdef TESS_HAVE_FFMPEG

enum { NEAR = 8 }; /* frames that are decoded rather than a keyframe sought */

typedef struct {
    tess_ctx *ctx;
    int64_t *items;
    int n, room;
} numbers;

static tess_status push(numbers *list, int64_t item)
{
    if (list->n == list->room) {
        const int room = list->room ? 2 * list->room : 256;
        int64_t *items = TESS_ALLOC(list->ctx, (size_t)room * sizeof *items);
        if (list->n > 0)
            memcpy(items, list->items, (size_t)list->n * sizeof *items);
        tess__free(list->ctx, list->items);
        list->items = items;
        list->room = room;
    }
    list->items[list->n++] = item;
    return TESS_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

/* The times of all packets of the stream, and those of keyframes; *timed is 0 if one has none. */
static tess_status read_packets(tess__video *v, numbers *all, numbers *keys, int *timed)
{
    const char *path = v->reader.path;
    *timed = 1;
    for (;;) {
        av_packet_unref(v->packet);
        const int error = av_read_frame(v->format, v->packet);
        if (error == AVERROR_EOF)
            return TESS_OK;
        if (error < 0)
            return tess__video_failed(path, "cannot be read to its end", error, TESS_EFORMAT);
        const AVPacket *p = v->packet;
        if (p->stream_index != v->stream || p->flags & AV_PKT_FLAG_DISCARD)
            continue;
        if (all->n == TESS__LIST_MAX)
            return tess__fail(TESS_ENOTSUP, "%s: has more than %d frames", path, TESS__LIST_MAX);
        *timed &= p->pts != AV_NOPTS_VALUE;
        TESS_TRY(push(all, p->pts));
        if (p->flags & AV_PKT_FLAG_KEY)
            TESS_TRY(push(keys, p->pts));
    }
}

/* Sorted times become the list; 0: two of them are the same. */
static int is_strict(const numbers *all)
{
    for (int i = 1; i < all->n; i++)
        if (all->items[i] <= all->items[i - 1])
            return 0;
    return 1;
}

static tess_status take_packets(tess__video *v, tess__arena *arena, const numbers *all,
                                const numbers *keys, tess__frames *frames)
{
    const double base = av_q2d(v->format->streams[v->stream]->time_base);
    frames->n = all->n;
    frames->n_keys = 0;
    frames->times = TESS_TAKE(arena, (size_t)all->n * sizeof *frames->times);
    frames->places = TESS_TAKE(arena, (size_t)all->n * sizeof *frames->places);
    frames->keys = TESS_TAKE(arena, (size_t)(keys->n + 1) * sizeof *frames->keys);
    for (int i = 0, k = 0; i < all->n; i++) {
        frames->places[i] = all->items[i];
        frames->times[i] = (double)all->items[i] * base;
        if (k < keys->n && keys->items[k] == all->items[i]) {
            frames->keys[frames->n_keys++] = i;
            k++;
        }
    }
    return TESS_OK;
}

/* Times of the frames as they are decoded one after the other. */
static tess_status list_decoded(tess__video *v, tess__arena *arena, tess__frames *frames)
{
    numbers bits = {.ctx = v->reader.ctx};
    tess_status status = tess__video_rewind(v);
    const uint8_t *rgb = v->rgb;
    while (status == TESS_OK) {
        double time;
        int64_t item;
        status = v->reader.next(&v->reader, &rgb, &time);
        if (status != TESS_OK || !rgb)
            break;
        memcpy(&item, &time, sizeof item);
        status = bits.n < TESS__LIST_MAX ? push(&bits, item)
                                         : tess__fail(TESS_ENOTSUP, "%s: has more than %d frames",
                                                      v->reader.path, TESS__LIST_MAX);
    }
    if (status == TESS_OK) {
        frames->times = tess__arena_take(arena, (size_t)(bits.n + 1) * sizeof *frames->times);
        status = frames->times ? TESS_OK : TESS_ENOMEM;
    }
    if (status == TESS_OK) {
        frames->n = bits.n;
        memcpy(frames->times, bits.items, (size_t)bits.n * sizeof *frames->times);
    }
    tess__free(v->reader.ctx, bits.items);
    return status;
}

static tess_status list(tess__video *v, tess__arena *arena, tess__frames *frames)
{
    numbers all = {.ctx = v->reader.ctx}, keys = all;
    int timed = 0;
    TESS_TRY(tess__video_rewind(v));
    tess_status status = read_packets(v, &all, &keys, &timed);
    if (status == TESS_OK && timed) {
        if (all.n > 0)
            qsort(all.items, (size_t)all.n, sizeof *all.items, tess__by_int64);
        if (keys.n > 0)
            qsort(keys.items, (size_t)keys.n, sizeof *keys.items, tess__by_int64);
        timed = is_strict(&all) && all.n > 0;
    }
    if (status == TESS_OK && timed)
        status = take_packets(v, arena, &all, &keys, frames);
    tess__free(v->reader.ctx, all.items);
    tess__free(v->reader.ctx, keys.items);
    TESS_TRY(status);
    return timed ? TESS_OK : list_decoded(v, arena, frames);
}

tess_status tess__video_list(tess__reader *reader, tess__arena *arena, tess__frames *frames)
{
    tess__video *v = (tess__video *)reader;
    tess_ctx *before = tess__video_log(reader->ctx);
    const tess_status status = list(v, arena, frames);
    tess__video_log(before);
    v->place = -1; /* the file was read to its end */
    return status;
}

/* ---- one frame ------------------------------------------------------------------------------- */

/* The last keyframe at frame k or before; -1: none. */
static int key_before(const tess__frames *frames, int k)
{
    int low = -1, high = frames->n_keys;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (frames->keys[middle] <= k)
            low = middle;
        else
            high = middle;
    }
    return low < 0 ? -1 : frames->keys[low];
}

static void forget(tess__video *v)
{
    av_frame_unref(v->frame);
    av_frame_unref(v->ahead);
    v->has_frame = v->has_ahead = 0;
}

static tess_status move_to_start(tess__video *v)
{
    forget(v);
    v->whole = 1;
    return tess__video_rewind(v);
}

/* Moves to a keyframe; if that cannot be, to the beginning of the file. */
static tess_status move(tess__video *v, const tess__frames *frames, int key)
{
    if (key < 0 ||
        av_seek_frame(v->format, v->stream, frames->places[key], AVSEEK_FLAG_BACKWARD) < 0)
        return move_to_start(v);
    forget(v);
    v->ended = 0;
    v->whole = 0;
    avcodec_flush_buffers(v->codec);
    return TESS_OK;
}

/* Decodes until v->frame is the one that is shown at frame k: its own, or, if the decoder shows
 * none for it, the one before. */
static tess_status decode_to(tess__video *v, const tess__frames *frames, int64_t target)
{
    while (!v->has_frame || v->stamp != target) {
        if (!v->has_ahead) {
            TESS_TRY(tess__video_decode(v, v->ahead, &v->has_ahead));
            if (!v->has_ahead)
                return TESS_OK;
            v->ahead_stamp = !frames->places                   ? v->count
                             : v->ahead->pts != AV_NOPTS_VALUE ? v->ahead->pts
                                                               : v->ahead->best_effort_timestamp;
            v->count++;
        }
        if (v->ahead_stamp > target)
            return TESS_OK;
        av_frame_unref(v->frame);
        av_frame_move_ref(v->frame, v->ahead);
        v->stamp = v->ahead_stamp;
        v->has_ahead = 0;
        v->has_frame = 1;
    }
    return TESS_OK;
}

static int is_damaged(const tess__video *v)
{
    return v->frame->flags & AV_FRAME_FLAG_CORRUPT || v->frame->decode_error_flags;
}

static tess_status fetch(tess__video *v, const tess__frames *frames, int k)
{
    const int64_t target = frames->places ? frames->places[k] : k;
    const int key = frames->places ? key_before(frames, k) : -1;
    const int onward = v->place >= 0 && v->place <= k && key <= v->place + NEAR;
    v->place = -1; /* until it is there */
    if (!onward)
        TESS_TRY(move(v, frames, key));
    tess_status status = decode_to(v, frames, target);
    const int exact = status == TESS_OK && v->has_frame && v->stamp == target && !is_damaged(v);
    if (!exact && !v->whole && (status == TESS_OK || status == TESS_EFORMAT)) {
        TESS_TRY(move_to_start(v));
        status = decode_to(v, frames, target);
    }
    TESS_TRY(status);
    if (!v->has_frame || is_damaged(v))
        return tess__fail(TESS_EFORMAT, "%s: frame %d is %s", v->reader.path, k,
                          v->has_frame ? "damaged" : "missing");
    v->place = k;
    return tess__video_convert(v);
}

tess_status tess__video_at(tess__reader *reader, const tess__frames *frames, int k,
                           const uint8_t **rgb)
{
    tess__video *v = (tess__video *)reader;
    tess_ctx *before = tess__video_log(reader->ctx);
    const tess_status status = fetch(v, frames, k);
    tess__video_log(before);
    *rgb = v->rotated ? v->rotated : v->rgb;
    return status;
}

#else
typedef int tess__no_video_seek; /* a source must not be empty */
#endif
