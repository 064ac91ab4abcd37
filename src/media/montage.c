/* SPDX-License-Identifier: Apache-2.0 */
/* montage.c - clips side by side in one frame, enlarged by a whole number. */
#include "media_internal.h"

#include <string.h>

enum { GAP_GREY = 40 };

tess_status tess__montage_make(const tess_clip *clips, int n, int goal, tess__montage *m)
{
    const tess_clip *first = &clips[0];
    const int side = first->height > first->width ? first->height : first->width;
    *m = (tess__montage){.clips = clips,
                         .n = n,
                         .factor = goal > side ? goal / side : 1,
                         .gap = n > 1 ? 1 : 0,
                         .frames = first->frames,
                         .fps = first->fps};
    const int64_t width = ((int64_t)first->width * n + (int64_t)m->gap * (n - 1)) * m->factor;
    if (width > TESS__CLIP_SIDE_MAX)
        return tess__fail(
            TESS_EINVAL,
            "tess_clip_write: %d clips of %d pixels side by side are %lld wide, must be "
            "at most %d",
            n, first->width, (long long)width, TESS__CLIP_SIDE_MAX);
    m->height = first->height * m->factor;
    m->width = (int)width;
    return TESS_OK;
}

/* One row of all clips; then as many copies below it as the factor asks for. */
void tess__montage_frame(const tess__montage *m, int t, uint8_t *rgb)
{
    const size_t stride = (size_t)m->width * 3, factor = (size_t)m->factor;
    const size_t width = (size_t)m->clips[0].width, height = (size_t)m->clips[0].height;
    for (size_t y = 0; y < height; y++) {
        uint8_t *const row = rgb + y * factor * stride;
        uint8_t *to = row;
        for (int k = 0; k < m->n; k++) {
            const uint8_t *p = m->clips[k].pixels + ((size_t)t * height + y) * width * 3;
            for (size_t x = 0; x < width * factor; x++, to += 3)
                memcpy(to, p + x / factor * 3, 3);
            const size_t gap = k + 1 < m->n ? (size_t)m->gap * factor * 3 : 0;
            memset(to, GAP_GREY, gap);
            to += gap;
        }
        for (size_t copy = 1; copy < factor; copy++)
            memcpy(row + copy * stride, row, stride);
    }
}
