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

/* From here to the end with NULL, FFmpeg's log of this thread goes to the context's. Returns what
 * it was before, to be given back. */
tess_ctx *tess__video_log(tess_ctx *ctx);

/* ENOMEM, or `otherwise` with "path: what: FFmpeg's reason". */
tess_status tess__video_failed(const char *path, const char *what, int error,
                               tess_status otherwise);
#endif

#endif
