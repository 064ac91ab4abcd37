/* SPDX-License-Identifier: Apache-2.0 */
/* video_data.h - video files of any codec, keyframes, order and rotation, written with FFmpeg's
 * libraries for the tests of reading them. Frame t is grey of the value grey_of(t), but for a
 * bright corner at the top left. */
#ifndef TESS_TEST_VIDEO_DATA_H
#define TESS_TEST_VIDEO_DATA_H

#include "clips.h"

#include "tess_config.h"

static inline int grey_of(int t)
{
    return 20 + (t * 37) % 180;
}

#ifdef TESS_HAVE_FFMPEG
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>

typedef struct {
    const char *name;  /* its ending chooses the container */
    const char *codec; /* of FFmpeg */
    int frames, height, width, fps;
    int gop, b_frames; /* frames from one keyframe to the next; frames between references */
    int open_gop;
    double rotation; /* degrees clockwise that a player rotates frames by */
} video_case;

typedef struct {
    AVFormatContext *format;
    AVCodecContext *codec;
    AVStream *stream;
    AVPacket *packet;
} video_out;

static inline void video_drain(video_out *o, const AVFrame *frame)
{
    assert_true(avcodec_send_frame(o->codec, frame) >= 0);
    while (avcodec_receive_packet(o->codec, o->packet) >= 0) {
        av_packet_rescale_ts(o->packet, o->codec->time_base, o->stream->time_base);
        o->packet->stream_index = 0;
        assert_true(av_interleaved_write_frame(o->format, o->packet) >= 0);
    }
}

static inline void video_paint(AVFrame *f, int t)
{
    for (int p = 0; p < 3; p++)
        for (int y = 0; y < (p ? (f->height + 1) / 2 : f->height); y++) {
            uint8_t *row = f->data[p] + y * f->linesize[p];
            memset(row, p ? 128 : grey_of(t), (size_t)(p ? (f->width + 1) / 2 : f->width));
            if (p == 0 && y < f->height / 2)
                memset(row, 235, (size_t)f->width / 4);
        }
}

static inline void video_rotate(AVStream *stream, double degrees)
{
    int32_t *matrix = (int32_t *)(void *)av_malloc(9 * sizeof *matrix);
    assert_non_null(matrix);
    av_display_rotation_set(matrix, degrees);
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100)
    assert_non_null(av_packet_side_data_add(
        &stream->codecpar->coded_side_data, &stream->codecpar->nb_coded_side_data,
        AV_PKT_DATA_DISPLAYMATRIX, matrix, 9 * sizeof *matrix, 0));
#else
    assert_true(av_stream_add_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, (uint8_t *)matrix,
                                        9 * sizeof *matrix) >= 0);
#endif
}

/* 1 if this FFmpeg has the encoder; 0, with a line that names it, otherwise. */
static inline int put_video(const video_case *c)
{
    const AVCodec *codec = avcodec_find_encoder_by_name(c->codec);
    if (!codec) {
        print_message("skipped: this FFmpeg has no encoder %s\n", c->codec);
        return 0;
    }
    const char *path = in_folder(c->name);
    video_out o = {.packet = av_packet_alloc(), .codec = avcodec_alloc_context3(codec)};
    AVFrame *frame = av_frame_alloc();
    const int jpeg = strcmp(c->codec, "mjpeg") == 0;
    assert_true(avformat_alloc_output_context2(&o.format, NULL, jpeg ? "image2" : NULL, path) >= 0);
    o.codec->width = frame->width = c->width;
    o.codec->height = frame->height = c->height;
    o.codec->pix_fmt = jpeg ? AV_PIX_FMT_YUVJ420P : AV_PIX_FMT_YUV420P;
    frame->format = o.codec->pix_fmt;
    o.codec->time_base = (AVRational){1, c->fps};
    o.codec->framerate = (AVRational){c->fps, 1};
    o.codec->gop_size = c->gop;
    o.codec->max_b_frames = c->b_frames;
    o.codec->thread_count = 1;
    if (strcmp(c->codec, "libx264") == 0)
        (void)av_opt_set(o.codec->priv_data, "x264-params", c->open_gop ? "open-gop=1" : "", 0);
    o.codec->bit_rate = 4000000;
    if (o.format->oformat->flags & AVFMT_GLOBALHEADER)
        o.codec->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    assert_true(avcodec_open2(o.codec, codec, NULL) >= 0);
    o.stream = avformat_new_stream(o.format, NULL);
    assert_true(avcodec_parameters_from_context(o.stream->codecpar, o.codec) >= 0);
    o.stream->time_base = o.codec->time_base;
    o.stream->avg_frame_rate = o.codec->framerate;
    if (c->rotation != 0)
        video_rotate(o.stream, c->rotation);
    if (!(o.format->oformat->flags & AVFMT_NOFILE))
        assert_true(avio_open(&o.format->pb, path, AVIO_FLAG_WRITE) >= 0);
    AVDictionary *options = NULL;
    if (jpeg)
        assert_true(av_dict_set(&options, "update", "1", 0) >= 0);
    assert_true(avformat_write_header(o.format, &options) >= 0);
    av_dict_free(&options);
    for (int t = 0; t < c->frames; t++) {
        assert_true(av_frame_get_buffer(frame, 0) >= 0);
        video_paint(frame, t);
        frame->pts = t;
        video_drain(&o, frame);
        av_frame_unref(frame);
        frame->width = c->width;
        frame->height = c->height;
        frame->format = o.codec->pix_fmt;
    }
    video_drain(&o, NULL);
    assert_true(av_write_trailer(o.format) >= 0);
    if (!(o.format->oformat->flags & AVFMT_NOFILE))
        avio_closep(&o.format->pb);
    av_frame_free(&frame);
    av_packet_free(&o.packet);
    avcodec_free_context(&o.codec);
    avformat_free_context(o.format);
    return 1;
}
#endif

#endif
