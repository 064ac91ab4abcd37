/* SPDX-License-Identifier: Apache-2.0 */
/* media.h - clips written to files: .mp4, .gif, .y4m, sheets of frames.
 * Link with libtessera_train. */
#ifndef TESSERA_MEDIA_H
#define TESSERA_MEDIA_H

#include "base.h"

TESS_BEGIN_DECLS

/* ---- clips ------------------------------------------------------------------------------- */

typedef struct {
    int frames;            /* 1..65536 */
    int height, width;     /* 1..16384 */
    double fps;            /* frames per second, above 0 and at most 1000 */
    const uint8_t *pixels; /* (frames, height, width, 3): RGB */
} tess_clip;

/* Writes n clips of one shape and rate; the file appears only when it is complete. The end of the
 * path chooses what it is:
 *   .mp4  side by side; H.264, or MPEG-4 where FFmpeg lacks it. ENOTSUP without FFmpeg
 *   .gif  side by side; 256 colours
 *   .y4m  side by side; 4:4:4, one pixel per pixel
 *   .png  a sheet: one row of frames per clip. ENOTSUP without libpng
 * Small clips are enlarged by a whole number, up to about 256 pixels on a side (.mp4, .gif) or 96
 * for each frame of a sheet, so that single pixels are visible. */
TESS_API tess_status tess_clip_write(tess_ctx *ctx, const char *path, const tess_clip *clips,
                                     int n);

TESS_END_DECLS

#endif
