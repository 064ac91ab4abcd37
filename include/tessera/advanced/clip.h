/* SPDX-License-Identifier: Apache-2.0 */
/* clip.h - clips read from files, pictures, and what libtessera_train was built with.
 * Link with libtessera_train.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_CLIP_H
#define TESSERA_CLIP_H

#include "../media.h"
#include "machine.h"

TESS_BEGIN_DECLS

/* What libtessera_train was built with, as tess_component_query does for libtessera. */
TESS_API int tess_train_component_count(void);
TESS_API tess_status tess_train_component_query(int index, tess_component *component);

typedef struct {
    int width, height;     /* 1..65535 */
    int channels;          /* 1 grey, 3 RGB */
    const uint8_t *pixels; /* (height, width, channels) */
} tess_image;

/* Writes a PNG; the file appears only when it is complete. ENOTSUP without libpng. */
TESS_API tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image);

/* ---- clips in files ---------------------------------------------------------------------- */

typedef struct {
    int frames;        /* wanted; 0: all. The first ones are taken */
    int height, width; /* wanted; 0: the file's. Scaled to cover them, then cut at the centre */
    double fps;        /* wanted, 0..1000: the frame shown at each k / fps; 0: every frame */
    int as_stored;     /* 1: frames are not rotated as the file asks for */
} tess_clip_opts;

typedef struct tess_clip_file tess_clip_file;

/* Decodes a clip into memory: a .y4m (8 bits; 4:2:0, 4:2:2, 4:4:4 or mono, progressive), a folder
 * of PNGs or JPEGs of one size in the order of their names (which has no rate: fps is taken as
 * given, or 8), one of these pictures, or any video file that FFmpeg reads. The same file gives the
 * same pixels on every machine where FFmpeg has no part in it.
 *
 * EFORMAT: it is not what it claims to be, is cut short, or has fewer frames than wanted.
 * ENOTSUP: this build lacks FFmpeg or libpng, or the file is of a kind that is not read.
 * While a call works on a video file, what FFmpeg logs on that thread goes to the context's log at
 * debug level; for this FFmpeg's log callback, of which a process has one, is replaced. What comes
 * from other threads goes to FFmpeg's default callback. */
TESS_API tess_status tess_clip_open(tess_ctx *ctx, const char *path, const tess_clip_opts *opts,
                                    tess_clip_file **file);
TESS_API tess_status tess_clip_view(const tess_clip_file *file, tess_clip *clip);
TESS_API void tess_clip_close(tess_clip_file *file);

TESS_END_DECLS

#endif
