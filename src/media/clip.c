/* SPDX-License-Identifier: Apache-2.0 */
/* clip.c - tess_clip_open: finds the reader, and gathers its frames at the wanted size and rate.
 *
 * With a rate, frame k of the clip is the one that the file shows at k / fps: each frame is shown
 * from its time to that of the next one, the last for 1 / (the file's rate). Without, every frame
 * is taken once. Either way the file is read only as far as needed.
 */
#include "media_internal.h"

#include <string.h>
#include <sys/stat.h>

struct tess_clip_file {
    tess_ctx *ctx;
    tess_clip clip;
    uint8_t *pixels;
};

typedef struct {
    tess__reader *reader;
    tess__resizer *resizer;
    int wanted;    /* frames; 0: all */
    double fps;    /* 0: every frame */
    size_t bytes;  /* of a frame */
    uint8_t *held; /* the frame that is shown, when there is a rate */
    uint8_t *pixels;
    int frames, room;
} job;

/* ---- frames ---------------------------------------------------------------------------------- */

static tess_status make_room(job *j)
{
    if (j->frames < j->room)
        return TESS_OK;
    if (j->room == TESS__CLIP_FRAMES_MAX)
        return tess__fail(TESS_ENOTSUP, "%s: has more than %d frames", j->reader->path,
                          TESS__CLIP_FRAMES_MAX);
    int room = j->wanted ? j->wanted : j->room ? 2 * j->room : 16;
    room = TESS_MIN(room, TESS__CLIP_FRAMES_MAX);
    uint8_t *more = TESS_ALLOC(j->reader->ctx, tess__bytes(j->bytes, (size_t)room));
    if (j->pixels)
        memcpy(more, j->pixels, (size_t)j->frames * j->bytes);
    tess__free(j->reader->ctx, j->pixels);
    j->pixels = more;
    j->room = room;
    return TESS_OK;
}

static int complete(const job *j)
{
    return j->wanted > 0 && j->frames == j->wanted;
}

static tess_status read_every(job *j)
{
    while (!complete(j)) {
        const uint8_t *rgb;
        double time;
        TESS_TRY(j->reader->next(j->reader, &rgb, &time));
        if (!rgb)
            return TESS_OK;
        TESS_TRY(make_room(j));
        tess__resizer_run(j->resizer, rgb, j->pixels + (size_t)j->frames * j->bytes);
        j->frames++;
    }
    return TESS_OK;
}

static tess_status read_at_rate(job *j)
{
    const double blink = 1e-6; /* seconds: times are rounded by the file */
    double shown = 0, origin = 0;
    for (int first = 1; !complete(j); first = 0) {
        const uint8_t *rgb;
        double time;
        TESS_TRY(j->reader->next(j->reader, &rgb, &time));
        if (!rgb && first)
            return TESS_OK;
        if (first)
            origin = time;
        const double until = rgb ? time - origin : shown + 1 / j->reader->fps;
        while (!first && !complete(j) && j->frames / j->fps < until - blink) {
            TESS_TRY(make_room(j));
            memcpy(j->pixels + (size_t)j->frames * j->bytes, j->held, j->bytes);
            j->frames++;
        }
        if (!rgb)
            return TESS_OK;
        if (!complete(j))
            tess__resizer_run(j->resizer, rgb, j->held);
        shown = until;
    }
    return TESS_OK;
}

static tess_status check_length(const job *j)
{
    if (j->frames == 0)
        return tess__fail(TESS_EFORMAT, "%s: has no frames", j->reader->path);
    if (j->frames >= j->wanted)
        return TESS_OK;
    if (j->fps > 0)
        return tess__fail(TESS_EFORMAT, "%s: has %d frames at %g fps, %d are wanted",
                          j->reader->path, j->frames, j->fps, j->wanted);
    return tess__fail(TESS_EFORMAT, "%s: has %d frames, %d are wanted", j->reader->path, j->frames,
                      j->wanted);
}

static tess_status gather(job *j, int height, int width)
{
    tess__reader *r = j->reader;
    TESS_TRY(tess__resizer_create(r->ctx, r->height, r->width, height, width, &j->resizer));
    if (j->fps > 0) {
        j->held = TESS_ALLOC(r->ctx, j->bytes);
    }
    TESS_TRY(j->fps > 0 ? read_at_rate(j) : read_every(j));
    return check_length(j);
}

tess_status tess__clip_gather(tess__reader *reader, const tess_clip_opts *opts,
                              tess_clip_file **file)
{
    tess_ctx *ctx = reader->ctx;
    const int height = opts->height ? opts->height : reader->height;
    const int width = opts->width ? opts->width : reader->width;
    const double own = reader->fps > 0 ? reader->fps : 8;
    job j = {.reader = reader,
             .wanted = opts->frames,
             .fps = reader->fps > 0 ? opts->fps : 0,
             .bytes = (size_t)height * (size_t)width * 3};
    tess_clip_file *made = tess__alloc(ctx, sizeof *made);
    tess_status status = made ? gather(&j, height, width) : TESS_ENOMEM;
    tess__resizer_destroy(j.resizer);
    tess__free(ctx, j.held);
    if (status != TESS_OK) {
        tess__free(ctx, j.pixels);
        tess__free(ctx, made);
        return status;
    }
    *made = (tess_clip_file){.ctx = ctx,
                             .pixels = j.pixels,
                             .clip = {.frames = j.frames,
                                      .height = height,
                                      .width = width,
                                      .fps = opts->fps > 0 ? opts->fps : own,
                                      .pixels = j.pixels}};
    *file = made;
    return TESS_OK;
}

/* ---- public ---------------------------------------------------------------------------------- */

static tess_status check_opts(const tess_clip_opts *o)
{
    TESS_TRY(tess__check_range("tess_clip_open", "frames", o->frames, 0, TESS__CLIP_FRAMES_MAX));
    TESS_TRY(tess__check_range("tess_clip_open", "height", o->height, 0, TESS__CLIP_SIDE_MAX));
    TESS_TRY(tess__check_range("tess_clip_open", "width", o->width, 0, TESS__CLIP_SIDE_MAX));
    TESS_TRY(tess__check_number("tess_clip_open", "fps", o->fps, 0, 1000));
    return TESS_OK;
}

tess_status tess__reader_open(tess_ctx *ctx, const char *path, int as_stored, tess__reader **reader)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) /* a clip is read more than once */
        return tess__fail(TESS_EIO, "%s: cannot read: is not a regular file", path);
    if (S_ISDIR(st.st_mode) || tess__is_picture(NULL, path))
        return tess__pictures_open(ctx, path, S_ISDIR(st.st_mode), reader);
    if (tess__ends_in(path, ".y4m"))
        return tess__y4m_open(ctx, path, reader);
    return tess__video_open(ctx, path, as_stored, reader);
}

tess_status tess_clip_open(tess_ctx *ctx, const char *path, const tess_clip_opts *opts,
                           tess_clip_file **file)
{
    const tess_clip_opts o = opts ? *opts : (tess_clip_opts){0};
    tess__reader *reader;
    TESS_REQUIRE(ctx, path, file);
    TESS_TRY(check_opts(&o));
    TESS_TRY(tess__reader_open(ctx, path, o.as_stored, &reader));
    const tess_status status = tess__clip_gather(reader, &o, file);
    reader->close(reader);
    return status;
}

tess_status tess_clip_view(const tess_clip_file *file, tess_clip *clip)
{
    TESS_REQUIRE(file, clip);
    *clip = file->clip;
    return TESS_OK;
}

void tess_clip_close(tess_clip_file *file)
{
    if (!file)
        return;
    tess__free(file->ctx, file->pixels);
    tess__free(file->ctx, file);
}
