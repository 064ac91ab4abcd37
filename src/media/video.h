/* SPDX-License-Identifier: Apache-2.0 */
/* video.h - what reading and writing by FFmpeg's libraries share.
 *
 * FFmpeg runs on the calling thread alone, so that each line of its log belongs to one file, and
 * its output is the same for any number of threads. Its memory is its own, not the context's.
 */
#ifndef TESS_VIDEO_H
#define TESS_VIDEO_H

#include "media_internal.h"

#include "tess_config.h"

#ifdef TESS_HAVE_FFMPEG
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    AVFormatContext *format;
    AVCodecContext *codec;
    struct SwsContext *scaler;
    AVPacket *packet;
    AVFrame *frame;
    int stream, ended; /* ended: the decoder knows that nothing follows */
    int first;         /* 1: rgb holds the first frame, which next has not returned yet */
    int64_t frames;
    double last;       /* time of the frame before */
    int height, width; /* as stored; 0: before the first frame */
    int as_stored;
    tess__rotation rotation;
    uint8_t *rgb, *rotated; /* rotated: NULL if it is as rgb */
    /* Of at: the frame and one decoded behind it, with the times at which they are shown. */
    AVFrame *ahead;
    int has_frame, has_ahead;
    int64_t stamp, ahead_stamp;
    int64_t count; /* frames decoded since the beginning of the file */
    int whole;     /* 1: decoded without a gap since then */
    int place;     /* the frame of the list that was asked for last; -1: none */
} tess__video;

/* video_read.c: back to the beginning of the file; a frame into `frame`, *there is 0 behind the
 * last; v->frame to RGB. */
tess_status tess__video_rewind(tess__video *v);
tess_status tess__video_decode(tess__video *v, AVFrame *frame, int *there);
tess_status tess__video_convert(tess__video *v);

/* video_seek.c: list and at of the reader. */
tess_status tess__video_list(tess__reader *reader, tess__arena *arena, tess__frames *frames);
tess_status tess__video_at(tess__reader *reader, const tess__frames *frames, int k,
                           const uint8_t **rgb);

/* From here to the end with NULL, FFmpeg's log of this thread goes to the context's. Returns what
 * it was before, to be given back. */
tess_ctx *tess__video_log(tess_ctx *ctx);

/* ENOMEM, or `otherwise` with "path: what: FFmpeg's reason". */
tess_status tess__video_failed(const char *path, const char *what, int error,
                               tess_status otherwise);
#endif

#endif
