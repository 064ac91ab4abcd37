/* SPDX-License-Identifier: Apache-2.0 */
/* video_write.c - MP4 through FFmpeg's libraries.
 *
 * H.264 by libx264 where FFmpeg has it, else MPEG-4 part 2: 4:2:0 of the limited range, which every
 * player shows, with the matrix named in the stream. Sides are made even by repeating the last row
 * or column. The muxer writes through tess__out, so that the file appears whole or not at all; it
 * goes back to patch sizes, which tess__out_patch does. The same frames give the same bytes.
 */
#include "video.h"

#include <string.h>

#ifdef TESS_HAVE_FFMPEG
#include <libavutil/opt.h>

typedef struct {
    tess_ctx *ctx;
    const char *path;
    const tess__montage *montage;
    tess__out *out;
    int64_t at, end;    /* where the muxer writes, and how much there is */
    tess_status status; /* of the write that failed, whose sentence stands */
    AVIOContext *io;
    AVFormatContext *format;
    AVStream *stream;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    uint8_t *rgb;
} video;

/* ---- bytes ----------------------------------------------------------------------------------- */

static tess_status write_bytes(video *v, const uint8_t *bytes, size_t n)
{
    const size_t over = v->at < v->end ? (size_t)(v->end - v->at) : 0;
    const size_t old = TESS_MIN(over, n);
    if (old > 0)
        TESS_TRY(tess__out_patch(v->out, (uint64_t)v->at, bytes, old));
    if (n > old)
        TESS_TRY(tess__out_write(v->out, bytes + old, n - old));
    v->at += (int64_t)n;
    v->end = v->at > v->end ? v->at : v->end;
    return TESS_OK;
}

static int on_write(void *user, uint8_t *bytes, int n)
{
    video *v = user;
    if (v->status == TESS_OK)
        v->status = write_bytes(v, bytes, (size_t)n);
    return v->status == TESS_OK ? n : AVERROR(EIO);
}

static int64_t on_seek(void *user, int64_t offset, int whence)
{
    video *v = user;
    if (whence == AVSEEK_SIZE)
        return v->end;
    const int64_t to = whence == SEEK_SET   ? offset
                       : whence == SEEK_CUR ? v->at + offset
                       : whence == SEEK_END ? v->end + offset
                                            : -1;
    if (to < 0 || to > v->end)
        return AVERROR(EINVAL);
    v->at = to;
    return to;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static tess_status failed(const video *v, const char *what, int error)
{
    return v->status != TESS_OK ? v->status : tess__video_failed(v->path, what, error, TESS_EIO);
}

static tess_status open_io(video *v)
{
    enum { BUFFER = 1 << 16 };
    uint8_t *buffer = av_malloc(BUFFER);
    v->io = buffer ? avio_alloc_context(buffer, BUFFER, 1, v, NULL, on_write, on_seek) : NULL;
    if (!v->io) {
        av_free(buffer);
        return failed(v, "cannot write", AVERROR(ENOMEM));
    }
    const int error = avformat_alloc_output_context2(&v->format, NULL, "mp4", NULL);
    if (error < 0)
        return failed(v, "cannot write MP4", error);
    v->format->pb = v->io;
    v->format->flags |= AVFMT_FLAG_CUSTOM_IO | AVFMT_FLAG_BITEXACT; /* no times in the file */
    return TESS_OK;
}

static void describe(const video *v, AVCodecContext *c)
{
    const int is_709 = tess__yuv_is_709(c->height);
    c->pix_fmt = AV_PIX_FMT_YUV420P;
    c->color_range = AVCOL_RANGE_MPEG;
    c->colorspace = is_709 ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M;
    c->color_primaries = is_709 ? AVCOL_PRI_BT709 : AVCOL_PRI_SMPTE170M;
    c->color_trc = is_709 ? AVCOL_TRC_BT709 : AVCOL_TRC_SMPTE170M;
    c->framerate = av_d2q(v->montage->fps, 60000);
    c->time_base = av_inv_q(c->framerate);
    c->thread_count = 1;
    c->flags |= AV_CODEC_FLAG_BITEXACT;
    if (v->format->oformat->flags & AVFMT_GLOBALHEADER)
        c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
}

static tess_status open_codec(video *v)
{
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    const int is_264 = codec != NULL;
    if (!codec)
        codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
    if (!codec)
        return tess__fail(TESS_ENOTSUP, "%s: this FFmpeg has no encoder of H.264 or MPEG-4",
                          v->path);
    AVCodecContext *c = v->codec = avcodec_alloc_context3(codec);
    if (!c)
        return failed(v, "encoder", AVERROR(ENOMEM));
    c->height = v->montage->height + v->montage->height % 2;
    c->width = v->montage->width + v->montage->width % 2;
    describe(v, c);
    int error = 0;
    if (is_264) {
        error = av_opt_set(c->priv_data, "crf", "16", 0);
    } else {
        c->flags |= AV_CODEC_FLAG_QSCALE;
        c->global_quality = 2 * FF_QP2LAMBDA;
    }
    if (error >= 0)
        error = avcodec_open2(c, codec, NULL);
    if (error < 0)
        return failed(v, "cannot encode", error);
    return TESS_OK;
}

static tess_status open_stream(video *v)
{
    v->stream = avformat_new_stream(v->format, NULL);
    v->packet = av_packet_alloc();
    v->frame = av_frame_alloc();
    v->rgb = TESS_ALLOC(v->ctx, (size_t)v->montage->height * (size_t)v->montage->width * 3);
    if (!v->stream || !v->packet || !v->frame)
        return failed(v, "encoder", AVERROR(ENOMEM));
    v->stream->time_base = v->codec->time_base;
    v->stream->avg_frame_rate = v->codec->framerate;
    int error = avcodec_parameters_from_context(v->stream->codecpar, v->codec);
    v->frame->format = v->codec->pix_fmt;
    v->frame->height = v->codec->height;
    v->frame->width = v->codec->width;
    if (error >= 0)
        error = av_frame_get_buffer(v->frame, 0);
    if (error >= 0)
        error = avformat_write_header(v->format, NULL);
    return error < 0 ? failed(v, "cannot write", error) : TESS_OK;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The pixel at (y, x), or the nearest there is. */
static const uint8_t *pixel(const video *v, int y, int x)
{
    const tess__montage *m = v->montage;
    y = y < m->height ? y : m->height - 1;
    x = x < m->width ? x : m->width - 1;
    return v->rgb + ((size_t)y * (size_t)m->width + (size_t)x) * 3;
}

/* Each 2 x 2 pixels: four lumas, and the chroma of their mean. */
static void fill_frame(video *v, const tess__yuv *matrix)
{
    AVFrame *f = v->frame;
    for (int y = 0; y < f->height; y += 2)
        for (int x = 0; x < f->width; x += 2) {
            int mean[3] = {2, 2, 2};
            uint8_t yuv[3];
            for (int k = 0; k < 4; k++) {
                const uint8_t *p = pixel(v, y + k / 2, x + k % 2);
                tess__rgb_to_yuv(matrix, (int[]){p[0], p[1], p[2]}, yuv);
                f->data[0][(y + k / 2) * f->linesize[0] + x + k % 2] = yuv[0];
                for (int c = 0; c < 3; c++)
                    mean[c] += p[c];
            }
            tess__rgb_to_yuv(matrix, (int[]){mean[0] / 4, mean[1] / 4, mean[2] / 4}, yuv);
            f->data[1][y / 2 * f->linesize[1] + x / 2] = yuv[1];
            f->data[2][y / 2 * f->linesize[2] + x / 2] = yuv[2];
        }
}

/* Sends a frame, or NULL for the end, and writes the packets that are ready. */
static tess_status encode(video *v, const AVFrame *frame)
{
    int error = avcodec_send_frame(v->codec, frame);
    while (error >= 0) {
        error = avcodec_receive_packet(v->codec, v->packet);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return TESS_OK;
        if (error >= 0) {
            v->packet->stream_index = v->stream->index;
            v->packet->duration = 1;
            av_packet_rescale_ts(v->packet, v->codec->time_base, v->stream->time_base);
            error = av_interleaved_write_frame(v->format, v->packet);
        }
    }
    return failed(v, "cannot write", error);
}

static tess_status write_frames(video *v)
{
    const tess__yuv matrix = tess__yuv_of(tess__yuv_is_709(v->codec->height), 0);
    for (int t = 0; t < v->montage->frames; t++) {
        const int error = av_frame_make_writable(v->frame);
        if (error < 0)
            return failed(v, "cannot encode", error);
        tess__montage_frame(v->montage, t, v->rgb);
        fill_frame(v, &matrix);
        v->frame->pts = t;
        TESS_TRY(encode(v, v->frame));
    }
    TESS_TRY(encode(v, NULL));
    const int error = av_write_trailer(v->format);
    if (error < 0)
        return failed(v, "cannot write", error);
    avio_flush(v->io);
    return v->io->error < 0 ? failed(v, "cannot write", v->io->error) : v->status;
}

static void release(video *v)
{
    av_frame_free(&v->frame);
    av_packet_free(&v->packet);
    avcodec_free_context(&v->codec);
    avformat_free_context(v->format);
    if (v->io)
        av_freep(&v->io->buffer);
    avio_context_free(&v->io);
    tess__free(v->ctx, v->rgb);
}

tess_status tess__video_write(tess_ctx *ctx, const char *path, const tess__montage *montage)
{
    video v = {.ctx = ctx, .path = path, .montage = montage};
    TESS_TRY(tess__out_open(ctx, path, &v.out));
    tess_ctx *before = tess__video_log(ctx);
    tess_status status = open_io(&v);
    if (status == TESS_OK)
        status = open_codec(&v);
    if (status == TESS_OK)
        status = open_stream(&v);
    if (status == TESS_OK)
        status = write_frames(&v);
    release(&v);
    tess__video_log(before);
    if (status == TESS_OK)
        return tess__out_commit(v.out);
    tess__out_abort(v.out);
    return status;
}

#else
tess_status tess__video_write(tess_ctx *ctx, const char *path, const tess__montage *montage)
{
    (void)ctx;
    (void)montage;
    return tess__fail(TESS_ENOTSUP,
                      "%s: this build has no FFmpeg, clips are written as .gif, .y4m or .png",
                      path);
}
#endif
