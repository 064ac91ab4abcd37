/* SPDX-License-Identifier: Apache-2.0 */
/* video_read.c - the frames of any video file, through FFmpeg's libraries.
 *
 * The best video stream is decoded; libswscale turns its pixels into RGB by the matrix and range
 * the stream names, or BT.601 and BT.709 by its height where it names none. A frame of another size
 * than the first is scaled to it. Frames that FFmpeg calls damaged are an error: a
 * decoder's guesses are no training data. Only local files are opened, also by playlists.
 */
#include "video.h"

#include <string.h>

#ifdef TESS_HAVE_FFMPEG

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    AVFormatContext *format;
    AVCodecContext *codec;
    struct SwsContext *scaler;
    AVPacket *packet;
    AVFrame *frame;
    int stream, ended; /* ended: the decoder knows that nothing follows */
    int64_t frames;
    double last; /* time of the frame before */
    uint8_t *rgb;
} video;

/* ---- opening --------------------------------------------------------------------------------- */

static tess_status open_format(video *v)
{
    const char *path = v->reader.path;
    AVDictionary *options = NULL;
    const size_t length = strlen(path) + sizeof "file:";
    char *url = tess__alloc(v->reader.ctx, length);
    if (!url)
        return TESS_ENOMEM;
    snprintf(url, length, "file:%s", path); /* a name like http://... is a file here */
    int error = av_dict_set(&options, "protocol_whitelist", "file", 0);
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

static tess_status open_codec(video *v)
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
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    if (!v->packet || !v->frame)
        return tess__video_failed(path, "decoder", AVERROR(ENOMEM), TESS_ENOMEM);
    return TESS_OK;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* The next packet of the stream to the decoder, or the word that there is none. */
static int feed(video *v)
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

/* A frame in v->frame; *there is 0 behind the last. */
static tess_status decode(video *v, int *there)
{
    char what[64];
    snprintf(what, sizeof what, "frame %lld cannot be decoded", (long long)v->frames);
    for (;;) {
        int error = avcodec_receive_frame(v->codec, v->frame);
        if (error == AVERROR(EAGAIN) && !v->ended)
            error = feed(v);
        else if (error >= 0 || error == AVERROR_EOF) {
            *there = error >= 0;
            break;
        }
        if (error < 0)
            return tess__video_failed(v->reader.path, what, error, TESS_EFORMAT);
    }
    if (*there && (v->frame->flags & AV_FRAME_FLAG_CORRUPT || v->frame->decode_error_flags))
        return tess__fail(TESS_EFORMAT, "%s: frame %lld is damaged", v->reader.path,
                          (long long)v->frames);
    return TESS_OK;
}

/* Sets up the conversion of this frame's format; most often the one there is does. */
static tess_status set_scaler(video *v)
{
    const AVFrame *f = v->frame;
    const int full = f->color_range == AVCOL_RANGE_JPEG;
    v->scaler = sws_getCachedContext(
        v->scaler, f->width, f->height, f->format, v->reader.width, v->reader.height,
        AV_PIX_FMT_RGB24, SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, NULL,
        NULL, NULL);
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

static tess_status to_rgb(video *v)
{
    enum { SLACK = 64 }; /* libswscale's vectors may write past the end of the last row */
    if (v->frame->width < 1 || v->frame->height < 1 || v->frame->width > TESS__CLIP_SIDE_MAX ||
        v->frame->height > TESS__CLIP_SIDE_MAX)
        return tess__fail(TESS_ENOTSUP, "%s: frames are %d x %d, sides must be 1..%d",
                          v->reader.path, v->frame->height, v->frame->width, TESS__CLIP_SIDE_MAX);
    if (!v->rgb) {
        v->reader.height = v->frame->height;
        v->reader.width = v->frame->width;
        v->rgb = tess__alloc(v->reader.ctx,
                             (size_t)v->frame->height * (size_t)v->frame->width * 3 + SLACK);
        if (!v->rgb)
            return TESS_ENOMEM;
    }
    TESS_TRY(set_scaler(v));
    uint8_t *const planes[4] = {v->rgb};
    const int strides[4] = {v->reader.width * 3};
    const int rows = sws_scale(v->scaler, (const uint8_t *const *)v->frame->data,
                               v->frame->linesize, 0, v->frame->height, planes, strides);
    if (rows != v->reader.height)
        return tess__fail(TESS_EFORMAT, "%s: frame %lld cannot be converted", v->reader.path,
                          (long long)v->frames);
    return TESS_OK;
}

/* Decodes one frame ahead: the first is needed for the size. */
static tess_status decode_rgb(video *v, int *there, double *time)
{
    TESS_TRY(decode(v, there));
    if (!*there)
        return TESS_OK;
    TESS_TRY(to_rgb(v));
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
    video *v = (video *)reader;
    int there = 1;
    *time = v->last;
    if (v->frames != 0) { /* frame 0 was decoded by the open */
        tess_ctx *before = tess__video_log(reader->ctx);
        const tess_status status = decode_rgb(v, &there, time);
        tess__video_log(before);
        TESS_TRY(status);
    }
    v->frames++;
    *rgb = there ? v->rgb : NULL;
    return TESS_OK;
}

static void close_video(tess__reader *reader)
{
    video *v = (video *)reader;
    tess_ctx *before = tess__video_log(reader->ctx);
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    sws_freeContext(v->scaler);
    avcodec_free_context(&v->codec);
    avformat_close_input(&v->format);
    tess__video_log(before);
    tess__free(reader->ctx, v->rgb);
    tess__free(reader->ctx, v);
}

tess_status tess__video_open(tess_ctx *ctx, const char *path, tess__reader **reader)
{
    video *v = tess__alloc_zero(ctx, sizeof *v);
    if (!v)
        return TESS_ENOMEM;
    v->reader = (tess__reader){.ctx = ctx, .path = path, .next = next_frame, .close = close_video};
    tess_ctx *before = tess__video_log(ctx);
    int there = 0;
    tess_status status = open_format(v);
    if (status == TESS_OK)
        status = open_codec(v);
    if (status == TESS_OK)
        status = decode_rgb(v, &there, &v->last);
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
tess_status tess__video_open(tess_ctx *ctx, const char *path, tess__reader **reader)
{
    (void)ctx;
    (void)reader;
    return tess__fail(TESS_ENOTSUP,
                      "%s: this build has no FFmpeg, clips are read from .y4m and folders of PNGs",
                      path);
}
#endif
