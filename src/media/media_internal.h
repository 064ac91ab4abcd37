/* SPDX-License-Identifier: Apache-2.0 */
/* media_internal.h - image and video files.
 *
 * What lives here: pictures and clips in and out, through libpng, FFmpeg and formats of our own.
 * What comes in: pixels, paths. What goes out: pixels of the wanted size and rate; files that
 * appear only when they are complete.
 *
 *   clip.c -> y4m.c, pictures.c, video_read.c (readers of frames) -> resize.c -> tess_clip
 *   a reader's list and at: any frame of a long file, without those before it
 *   clip_write.c -> montage.c (frames to show) -> y4m_write.c, gif.c, video_write.c, png.c
 */
#ifndef TESS_MEDIA_INTERNAL_H
#define TESS_MEDIA_INTERNAL_H

#include "base/base_internal.h"
#include "file/file_internal.h"
#include "tessera/advanced/clip.h"
#include "tessera/media.h"

enum { TESS__CLIP_FRAMES_MAX = 1 << 16, TESS__CLIP_SIDE_MAX = 16384 };

/* ---- folder.c -------------------------------------------------------------------------------- */

int tess__ends_in(const char *name,
                  const char *ending); /* ASCII case apart; not the ending alone */

/* The paths of what `wanted` takes, in the arena. */
tess_status tess__folder_list(tess__arena *arena, const char *folder,
                              int (*wanted)(const char *folder, const char *name), char ***paths,
                              int *n);

/* 1: there is something that `wanted` takes; 0: nothing, or the folder cannot be read. */
int tess__folder_has(const char *folder, int (*wanted)(const char *folder, const char *name));

/* ---- readers: frames of a file, one after the other ------------------------------------------ */

enum { TESS__LIST_MAX = 1 << 24 }; /* frames of a file */

/* The frames of a file, in the order in which they are shown. */
typedef struct {
    int n;
    double *times;   /* when each is shown, in seconds; NULL: they have no times */
    int64_t *places; /* the reader's own: offsets, presentation times; NULL: none */
    int *keys;       /* frames that decoding may begin with */
    int n_keys;
} tess__frames;

typedef struct tess__reader tess__reader;
struct tess__reader {
    tess_ctx *ctx;
    const char *path;  /* what errors call it; outlives the reader */
    int height, width; /* of every frame */
    double fps;        /* 0: it has no rate of its own */
    /* The next frame, (height, width, 3), in the reader's memory until the following call, and when
     * it is shown, in seconds. *rgb is NULL behind the last one. */
    tess_status (*next)(tess__reader *reader, const uint8_t **rgb, double *time);
    /* The list of all frames, in the arena; reads the file and decodes as little as it can. */
    tess_status (*list)(tess__reader *reader, tess__arena *arena, tess__frames *frames);
    /* Frame k of the list, in the reader's memory until the following call. A reader whose list or
     * at was called has no next. */
    tess_status (*at)(tess__reader *reader, const tess__frames *frames, int k, const uint8_t **rgb);
    void (*close)(tess__reader *reader);
};

tess_status tess__y4m_open(tess_ctx *ctx, const char *path, tess__reader **reader);
/* folder: 1: the pictures of a folder, 0: the picture of that path. */
tess_status tess__pictures_open(tess_ctx *ctx, const char *path, int folder, tess__reader **reader);
/* as_stored: 1: frames are not rotated as the file asks for. */
tess_status tess__video_open(tess_ctx *ctx, const char *path, int as_stored, tess__reader **reader);

/* The reader for a path, by what it is and by its ending. */
tess_status tess__reader_open(tess_ctx *ctx, const char *path, int as_stored,
                              tess__reader **reader);

/* The Y4M reader on bytes in memory, which must stay there. */
tess_status tess__y4m_open_memory(tess_ctx *ctx, const char *name, const void *data, size_t bytes,
                                  tess__reader **reader);

/* Everything a reader has, at the wanted size and rate: what tess_clip_open does once it has a
 * reader. */
tess_status tess__clip_gather(tess__reader *reader, const tess_clip_opts *opts,
                              tess_clip_file **file);

/* 1: the name ends like a picture, .png, .jpg or .jpeg. */
int tess__is_picture(const char *folder, const char *name);

/* A PNG as (height, width, 3), in memory of the context that the caller frees. */
tess_status tess__png_read(tess_ctx *ctx, const char *path, int *height, int *width,
                           uint8_t **pixels);

/* ---- resize.c -------------------------------------------------------------------------------- */

typedef struct tess__resizer tess__resizer;

/* Scales (height, width, 3) to cover (to_height, to_width, 3), cut at the centre. */
tess_status tess__resizer_create(tess_ctx *ctx, int height, int width, int to_height, int to_width,
                                 tess__resizer **resizer);
void tess__resizer_run(tess__resizer *resizer, const uint8_t *from, uint8_t *to);
void tess__resizer_destroy(tess__resizer *resizer); /* NULL accepted */

/* ---- rotate.c -------------------------------------------------------------------------------- */

/* How a stored frame becomes the shown one: first rows become columns, then sides are mirrored. */
typedef struct {
    int transpose, mirror_x, mirror_y;
} tess__rotation;

tess__rotation tess__rotation_of(const int32_t matrix[9]); /* a display matrix */
int tess__rotation_is_none(tess__rotation rotation);
/* (height, width, 3), or (width, height, 3) if it is transposed. */
void tess__rotate_frame(tess__rotation rotation, int height, int width, const uint8_t *from,
                        uint8_t *to);

/* ---- yuv.c ----------------------------------------------------------------------------------- */

/* Factors of 2^16. */
typedef struct {
    int y_zero;
    int y_scale, r_v, g_u, g_v, b_u;                 /* to RGB */
    int y_r, y_g, y_b, u_r, u_g, u_b, v_r, v_g, v_b; /* from RGB */
} tess__yuv;

/* BT.709 for frames of 720 rows and more, BT.601 for smaller ones, as players do. */
int tess__yuv_is_709(int height);
tess__yuv tess__yuv_of(int is_709, int full_range);
void tess__yuv_to_rgb(const tess__yuv *yuv, int y, int u, int v, uint8_t rgb[3]);
void tess__rgb_to_yuv(const tess__yuv *yuv, const int rgb[3], uint8_t out[3]);

/* ---- montage.c: what a viewer sees ----------------------------------------------------------- */

/* Clips side by side, each pixel factor x factor ones. */
typedef struct {
    const tess_clip *clips;
    int n, factor, gap; /* gap: pixels between clips */
    int frames, height, width;
    double fps;
} tess__montage;

/* goal: the side to enlarge small clips to; 0: not at all. EINVAL if it is too large for a file. */
tess_status tess__montage_make(const tess_clip *clips, int n, int goal, tess__montage *montage);
void tess__montage_frame(const tess__montage *montage, int t, uint8_t *rgb);

tess_status tess__y4m_write(tess_ctx *ctx, const char *path, const tess__montage *montage);
tess_status tess__gif_write(tess_ctx *ctx, const char *path, const tess__montage *montage);
tess_status tess__video_write(tess_ctx *ctx, const char *path, const tess__montage *montage);

/* ---- palette.c ------------------------------------------------------------------------------- */

enum { TESS__PALETTE_MAX = 256, TESS__PALETTE_BINS = 1 << 15 };

typedef struct {
    int n;
    uint8_t rgb[TESS__PALETTE_MAX][3];
    int exact;                           /* 1: the frames have no other colours */
    uint8_t nearest[TESS__PALETTE_BINS]; /* of the middle of each bin of 5 + 5 + 5 bits */
} tess__palette;

/* The colours for all frames of a montage; frame is room for one of them. */
tess_status tess__palette_make(tess_ctx *ctx, const tess__montage *montage, uint8_t *frame,
                               tess__palette *palette);
int tess__palette_index(const tess__palette *palette, const uint8_t rgb[3]);

#endif
