/* SPDX-License-Identifier: Apache-2.0 */
/* video_read.c - the frames of any video file, through FFmpeg's libraries.
 *
 * The best video stream is decoded; libswscale turns its pixels into RGB by the matrix and range
 * the stream names, or BT.601 and BT.709 by its height where it names none. A frame of another size
 * than the first is scaled to it. Frames are rotated as the file asks for. Frames that FFmpeg calls
 * damaged are an error: a decoder's guesses are no training data. Only local files are opened, also
 * by playlists.
 */
#include "video.h"

#include <string.h>

#ifdef TESS_HAVE_FFMPEG

/* ---- opening --------------------------------------------------------------------------------- */

static tess_status open_format(tess__video *v)
{
    const char *path = v->reader.path;
    AVDictionary *options = NULL;
    const size_t length = strlen(path) + sizeof "file:";
    char *url = TESS_ALLOC(v->reader.ctx, length);
    snprintf(url, length, "file:%s", path); /* a name like http://... is a file here */
    int error = av_dict_set(&options, "protocol_whitelist", "file", 0);
    if (error >= 0 && tess__is_picture(NULL, path)) /* a % in its name is no pattern */
        error = av_dict_set(&options, "pattern_type", "none", 0);
    if (error >= 0)
        error = avformat_open_input(&v->format, url, NULL, &options);
    av_dict_free(&options);
    tess__free(v->reader.ctx, url);
    if (error == AVERROR(ENOENT) || error == AVERROR(EACCES) || error == AVERROR(EIO))
        return tess__video_failed(path, "cannot open", error, TESS_EIO);
    if (error < 0)
        return tess__video_failed(path, "FFmpeg cannot read it", error, TESS_EFORMAT);
    error = avformat_find_stream_info(v->format, NULL);
    if (error < 0)
        return tess__video_failed(path, "FFmpeg finds no streams", error, TESS_EFORMAT);
    return TESS_OK;
}

/* How the stream is to be rotated: its display matrix, if it has one. */
static tess__rotation stream_rotation(const AVStream *stream)
{
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
    const AVCodecParameters *par = stream->codecpar;
    const AVPacketSideData *side = av_packet_side_data_get(
        par->coded_side_data, par->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    const uint8_t *data = side && side->size >= 9 * sizeof(int32_t) ? side->data : NULL;
#else
    size_t bytes = 0;
    const uint8_t *data = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &bytes);
    data = bytes >= 9 * sizeof(int32_t) ? data : NULL;
#endif
    int32_t matrix[9];
    if (!data)
        return (tess__rotation){0};
    memcpy(matrix, data, sizeof matrix);
    return tess__rotation_of(matrix);
}

static tess_status open_codec(tess__video *v)
{
    const char *path = v->reader.path;
    const AVCodec *codec = NULL;
    v->stream = av_find_best_stream(v->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (v->stream == AVERROR_DECODER_NOT_FOUND)
        return tess__fail(TESS_ENOTSUP, "%s: this FFmpeg has no decoder for its video", path);
    if (v->stream < 0)
        return tess__fail(TESS_EFORMAT, "%s: has no video", path);
    const AVStream *stream = v->format->streams[v->stream];
    v->codec = avcodec_alloc_context3(codec);
    if (!v->codec)
        return tess__video_failed(path, "decoder", AVERROR(ENOMEM), TESS_ENOMEM);
    int error = avcodec_parameters_to_context(v->codec, stream->codecpar);
    if (error >= 0) {
        v->codec->thread_count = 1;
        v->codec->pkt_timebase = stream->time_base;
        v->codec->max_pixels = (int64_t)TESS__CLIP_SIDE_MAX * TESS__CLIP_SIDE_MAX;
        error = avcodec_open2(v->codec, codec, NULL);
    }
    if (error < 0)
        return tess__video_failed(path, "cannot decode", error, TESS_EFORMAT);
    const AVRational rate = av_guess_frame_rate(v->format, v->format->streams[v->stream], NULL);
    v->reader.fps = rate.num > 0 && rate.den > 0 ? av_q2d(rate) : 25;
    if (!v->as_stored)
        v->rotation = stream_rotation(stream);
    return TESS_OK;
}

static tess_status open_file(tess__video *v)
{
    TESS_TRY(open_format(v));
    return open_codec(v);
}

static void close_file(tess__video *v)
{
    avcodec_free_context(&v->codec);
    avformat_close_input(&v->format);
}

tess_status tess__video_rewind(tess__video *v)
{
    close_file(v);
    v->frames = 0;
    v->first = 0;
    v->count = 0;
    v->ended = 0;
    return open_file(v);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* The next packet of the stream to the decoder, or the word that there is none. */
static int feed(tess__video *v)
{
    int error;
    do {
        av_packet_unref(v->packet);
        error = av_read_frame(v->format, v->packet);
    } while (error >= 0 && v->packet->stream_index != v->stream);
    if (error == AVERROR_EOF) {
        v->ended = 1;
        return avcodec_send_packet(v->codec, NULL);
    }
    if (error >= 0)
        error = avcodec_send_packet(v->codec, v->packet);
    av_packet_unref(v->packet);
    return error;
}

tess_status tess__video_decode(tess__video *v, AVFrame *frame, int *there)
{
    char what[64];
    snprintf(what, sizeof what, "frame %lld cannot be decoded", (long long)v->frames);
    for (;;) {
        int error = avcodec_receive_frame(v->codec, frame);
        if (error == AVERROR(EAGAIN) && !v->ended)
            error = feed(v);
        else if (error >= 0 || error == AVERROR_EOF) {
            *there = error >= 0;
            break;
        }
        if (error < 0)
            return tess__video_failed(v->reader.path, what, error, TESS_EFORMAT);
    }
    return TESS_OK;
}

/* Sets up the conversion of this frame's format; most often the one there is does. */
static tess_status set_scaler(tess__video *v)
{
    const AVFrame *f = v->frame;
    const int full = f->color_range == AVCOL_RANGE_JPEG;
    v->scaler = sws_getCachedContext(
        v->scaler, f->width, f->height, f->format, v->width, v->height, AV_PIX_FMT_RGB24,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, NULL, NULL, NULL);
    if (!v->scaler)
        return tess__fail(TESS_ENOTSUP, "%s: pixels of the kind %s cannot be converted",
                          v->reader.path, av_get_pix_fmt_name(f->format));
    const int space = f->colorspace != AVCOL_SPC_UNSPECIFIED ? (int)f->colorspace
                      : tess__yuv_is_709(f->height)          ? SWS_CS_ITU709
                                                             : SWS_CS_ITU601;
    /* Fails for RGB, which needs no matrix. */
    (void)sws_setColorspaceDetails(v->scaler, sws_getCoefficients(space), full,
                                   sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
    return TESS_OK;
}

/* Room for the first frame's size, which all have. */
static tess_status set_size(tess__video *v)
{
    enum { SLACK = 64 }; /* libswscale's vectors may write past the end of the last row */
    const AVFrameSideData *side = av_frame_get_side_data(v->frame, AV_FRAME_DATA_DISPLAYMATRIX);
    if (side && side->size >= 9 * sizeof(int32_t) && !v->as_stored) { /* of a photo */
        int32_t matrix[9];
        memcpy(matrix, side->data, sizeof matrix);
        v->rotation = tess__rotation_of(matrix);
    }
    const size_t bytes = (size_t)v->frame->height * (size_t)v->frame->width * 3;
    v->rgb = TESS_ALLOC(v->reader.ctx, bytes + SLACK);
    if (!tess__rotation_is_none(v->rotation)) {
        v->rotated = TESS_ALLOC(v->reader.ctx, bytes);
    }
    v->height = v->frame->height;
    v->width = v->frame->width;
    v->reader.height = v->rotation.transpose ? v->width : v->height;
    v->reader.width = v->rotation.transpose ? v->height : v->width;
    return TESS_OK;
}

tess_status tess__video_convert(tess__video *v)
{
    if (v->frame->width < 1 || v->frame->height < 1 || v->frame->width > TESS__CLIP_SIDE_MAX ||
        v->frame->height > TESS__CLIP_SIDE_MAX)
        return tess__fail(TESS_ENOTSUP, "%s: frames are %d x %d, sides must be 1..%d",
                          v->reader.path, v->frame->height, v->frame->width, TESS__CLIP_SIDE_MAX);
    if (!v->height)
        TESS_TRY(set_size(v));
    TESS_TRY(set_scaler(v));
    uint8_t *const planes[4] = {v->rgb};
    const int strides[4] = {v->width * 3};
    const int rows = sws_scale(v->scaler, (const uint8_t *const *)v->frame->data,
                               v->frame->linesize, 0, v->frame->height, planes, strides);
    if (rows != v->height)
        return tess__fail(TESS_EFORMAT, "%s: frame %lld cannot be converted", v->reader.path,
                          (long long)v->frames);
    if (v->rotated)
        tess__rotate_frame(v->rotation, v->height, v->width, v->rgb, v->rotated);
    return TESS_OK;
}

/* Decodes one frame ahead: the first is needed for the size. */
static tess_status decode_rgb(tess__video *v, int *there, double *time)
{
    TESS_TRY(tess__video_decode(v, v->frame, there));
    if (!*there)
        return TESS_OK;
    if (v->frame->flags & AV_FRAME_FLAG_CORRUPT || v->frame->decode_error_flags)
        return tess__fail(TESS_EFORMAT, "%s: frame %lld is damaged", v->reader.path,
                          (long long)v->frames);
    TESS_TRY(tess__video_convert(v));
    const int64_t stamp = v->frame->best_effort_timestamp;
    const AVRational base = v->format->streams[v->stream]->time_base;
    *time = stamp != AV_NOPTS_VALUE ? (double)stamp * av_q2d(base)
            : v->frames > 0         ? v->last + 1 / v->reader.fps
                                    : 0;
    v->last = *time;
    av_frame_unref(v->frame);
    return TESS_OK;
}

static tess_status next_frame(tess__reader *reader, const uint8_t **rgb, double *time)
{
    tess__video *v = (tess__video *)reader;
    int there = 1;
    *time = v->last;
    if (!v->first) { /* the first was decoded by the open */
        tess_ctx *before = tess__video_log(reader->ctx);
        const tess_status status = decode_rgb(v, &there, time);
        tess__video_log(before);
        TESS_TRY(status);
    }
    v->first = 0;
    v->frames++;
    *rgb = !there ? NULL : v->rotated ? v->rotated : v->rgb;
    return TESS_OK;
}

static void close_video(tess__reader *reader)
{
    tess__video *v = (tess__video *)reader;
    tess_ctx *before = tess__video_log(reader->ctx);
    av_frame_free(&v->frame);
    av_frame_free(&v->ahead);
    av_packet_free(&v->packet);
    sws_freeContext(v->scaler);
    close_file(v);
    tess__video_log(before);
    tess__free(reader->ctx, v->rgb);
    tess__free(reader->ctx, v->rotated);
    tess__free(reader->ctx, v);
}

tess_status tess__video_open(tess_ctx *ctx, const char *path, int as_stored, tess__reader **reader)
{
    tess__video *v = TESS_ALLOC_ZERO(ctx, sizeof *v);
    v->reader = (tess__reader){.ctx = ctx,
                               .path = path,
                               .next = next_frame,
                               .list = tess__video_list,
                               .at = tess__video_at,
                               .close = close_video};
    v->as_stored = as_stored;
    v->place = -1;
    tess_ctx *before = tess__video_log(ctx);
    int there = 0;
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    v->ahead = av_frame_alloc();
    tess_status status = v->packet && v->frame && v->ahead
                             ? open_file(v)
                             : tess__video_failed(path, "decoder", AVERROR(ENOMEM), TESS_ENOMEM);
    if (status == TESS_OK)
        status = decode_rgb(v, &there, &v->last);
    v->first = 1;
    if (status == TESS_OK && !there)
        status = tess__fail(TESS_EFORMAT, "%s: has no frames", path);
    tess__video_log(before);
    if (status != TESS_OK) {
        close_video(&v->reader);
        return status;
    }
    *reader = &v->reader;
    return TESS_OK;
}

#else
tess_status tess__video_open(tess_ctx *ctx, const char *path, int as_stored, tess__reader **reader)
{
    (void)ctx;
    (void)as_stored;
    (void)reader;
    return tess__fail(TESS_ENOTSUP,
                      "%s: this build has no FFmpeg, clips are read from .y4m and PNGs", path);
}
#endif
