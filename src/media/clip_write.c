/* SPDX-License-Identifier: Apache-2.0 */
/* clip_write.c - tess_clip_write: checks, the kind of file by its ending, and the sheet of frames.
 */
#include "media_internal.h"

#include <string.h>

enum { GOAL_VIDEO = 256, GOAL_SHEET = 96, SHEET_WIDE = 4096, SHEET_GAP = 2, SHEET_GREY = 40 };

static tess_status check_clip(const tess_clip *clip, const tess_clip *first)
{
    if (!clip->pixels)
        return tess__fail(TESS_EINVAL, "tess_clip_write: pixels is NULL");
    TESS_TRY(
        tess__check_range("tess_clip_write", "frames", clip->frames, 1, TESS__CLIP_FRAMES_MAX));
    if (clip->height < 1 || clip->height > TESS__CLIP_SIDE_MAX || clip->width < 1 ||
        clip->width > TESS__CLIP_SIDE_MAX)
        return tess__fail(TESS_EINVAL, "tess_clip_write: frames are %d x %d, sides must be 1..%d",
                          clip->height, clip->width, TESS__CLIP_SIDE_MAX);
    if (!(clip->fps > 0) || clip->fps > 1000)
        return tess__fail(
            TESS_EINVAL, "tess_clip_write: fps is %g, must be above 0 and at most 1000", clip->fps);
    if (clip->frames != first->frames || clip->height != first->height ||
        clip->width != first->width || clip->fps != first->fps)
        return tess__fail(
            TESS_EINVAL,
            "tess_clip_write: a clip is %d x %d x %d at %g fps, the first is %d x %d x "
            "%d at %g, must be the same",
            clip->frames, clip->height, clip->width, clip->fps, first->frames, first->height,
            first->width, first->fps);
    return TESS_OK;
}

/* ---- the sheet ------------------------------------------------------------------------------- */

typedef struct {
    const tess_clip *clips;
    int n;
    size_t factor, height, width; /* of a frame on the sheet */
} sheet;

static void place(const sheet *s, int row, int t, uint8_t *pixels, size_t stride)
{
    const tess_clip *clip = &s->clips[row];
    const uint8_t *frame =
        clip->pixels + (size_t)t * (size_t)clip->height * (size_t)clip->width * 3;
    uint8_t *corner = pixels + (SHEET_GAP + (size_t)row * (s->height + SHEET_GAP)) * stride +
                      (SHEET_GAP + (size_t)t * (s->width + SHEET_GAP)) * 3;
    for (size_t y = 0; y < s->height; y++)
        for (size_t x = 0; x < s->width; x++)
            memcpy(corner + y * stride + x * 3,
                   frame + (y / s->factor * (size_t)clip->width + x / s->factor) * 3, 3);
}

static tess_status write_sheet(tess_ctx *ctx, const char *path, const tess_clip *clips, int n)
{
    enum { SIDE_MAX = 65535 };
    const int side = clips->height > clips->width ? clips->height : clips->width;
    sheet s = {
        .clips = clips, .n = n, .factor = side < GOAL_SHEET ? (size_t)(GOAL_SHEET / side) : 1};
    while (s.factor > 1 && (size_t)clips->frames * (size_t)clips->width * s.factor > SHEET_WIDE)
        s.factor--;
    s.height = (size_t)clips->height * s.factor;
    s.width = (size_t)clips->width * s.factor;
    const size_t height = SHEET_GAP + (size_t)n * (s.height + SHEET_GAP);
    const size_t width = SHEET_GAP + (size_t)clips->frames * (s.width + SHEET_GAP);
    if (height > SIDE_MAX || width > SIDE_MAX)
        return tess__fail(TESS_EINVAL,
                          "tess_clip_write: the sheet would be %zu x %zu, sides must be at most %d",
                          height, width, SIDE_MAX);
    const size_t stride = width * 3, bytes = height * stride;
    uint8_t *pixels = TESS_ALLOC(ctx, bytes);
    memset(pixels, SHEET_GREY, bytes);
    for (int row = 0; row < n; row++)
        for (int t = 0; t < clips->frames; t++)
            place(&s, row, t, pixels, stride);
    const tess_status status =
        tess_image_write(ctx, path, &(tess_image){(int)width, (int)height, 3, pixels});
    tess__free(ctx, pixels);
    return status;
}

/* ---- public ---------------------------------------------------------------------------------- */

tess_status tess_clip_write(tess_ctx *ctx, const char *path, const tess_clip *clips, int n)
{
    tess__montage m;
    TESS_REQUIRE(ctx, path, clips);
    TESS_TRY(tess__check_least(__func__, "n", n, 1));
    for (int i = 0; i < n; i++)
        TESS_TRY(check_clip(&clips[i], &clips[0]));
    if (tess__ends_in(path, ".png"))
        return write_sheet(ctx, path, clips, n);
    if (tess__ends_in(path, ".y4m")) {
        TESS_TRY(tess__montage_make(clips, n, 0, &m));
        return tess__y4m_write(ctx, path, &m);
    }
    TESS_TRY(tess__montage_make(clips, n, GOAL_VIDEO, &m));
    if (tess__ends_in(path, ".gif"))
        return tess__gif_write(ctx, path, &m);
    if (tess__ends_in(path, ".mp4"))
        return tess__video_write(ctx, path, &m);
    return tess__invalid(__func__, "path is \"%.200s\", must end in .mp4, .gif, .y4m or .png",
                         path);
}
