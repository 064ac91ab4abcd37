/* SPDX-License-Identifier: Apache-2.0 */
/* y4m_write.c - writing YUV4MPEG2: 4:4:4 of the limited range, with the matrix that y4m.c reads. */
#include "media_internal.h"

/* The rate as a fraction: 30000:1001 and its like come out as they went in. */
static void rate(double fps, int64_t *n, int64_t *d)
{
    static const int64_t below[] = {1, 2, 1001, 1000};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        *d = below[i];
        *n = (int64_t)(fps * (double)*d + 0.5);
        const double off = (double)*n / (double)*d - fps;
        if (*n > 0 && off < 1e-6 && off > -1e-6)
            return;
    }
    *d = 1000000;
    *n = (int64_t)(fps * 1e6 + 0.5);
    *n = *n > 0 ? *n : 1;
}

static tess_status write_frames(tess__out *out, const tess__montage *m, uint8_t *rgb,
                                uint8_t *planes)
{
    const size_t n = (size_t)m->height * (size_t)m->width;
    const tess__yuv matrix = tess__yuv_of(tess__yuv_is_709(m->height), 0);
    for (int t = 0; t < m->frames; t++) {
        tess__montage_frame(m, t, rgb);
        for (size_t i = 0; i < n; i++) {
            uint8_t yuv[3];
            tess__rgb_to_yuv(&matrix, (int[]){rgb[i * 3], rgb[i * 3 + 1], rgb[i * 3 + 2]}, yuv);
            for (size_t c = 0; c < 3; c++)
                planes[c * n + i] = yuv[c];
        }
        TESS_TRY(tess__out_write(out, "FRAME\n", 6));
        TESS_TRY(tess__out_write(out, planes, n * 3));
    }
    return TESS_OK;
}

tess_status tess__y4m_write(tess_ctx *ctx, const char *path, const tess__montage *m)
{
    const size_t bytes = (size_t)m->height * (size_t)m->width * 3;
    char head[128];
    int64_t num, den;
    rate(m->fps, &num, &den);
    const int length = snprintf(head, sizeof head,
                                "YUV4MPEG2 W%d H%d F%lld:%lld Ip A1:1 C444 XCOLORRANGE=LIMITED\n",
                                m->width, m->height, (long long)num, (long long)den);
    uint8_t *rgb = tess__alloc(ctx, bytes), *planes = rgb ? tess__alloc(ctx, bytes) : NULL;
    tess__out *out = NULL;
    tess_status status = planes ? tess__out_open(ctx, path, &out) : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess__out_write(out, head, (size_t)length);
    if (status == TESS_OK)
        status = write_frames(out, m, rgb, planes);
    if (status == TESS_OK)
        status = tess__out_commit(out);
    else
        tess__out_abort(out);
    tess__free(ctx, rgb);
    tess__free(ctx, planes);
    return status;
}
