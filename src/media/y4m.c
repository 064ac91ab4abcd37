/* SPDX-License-Identifier: Apache-2.0 */
/* y4m.c - reading YUV4MPEG2: one line of text, then frames of planes as they are.
 *
 *   "YUV4MPEG2 W320 H240 F25:1 Ip A1:1 C420jpeg XCOLORRANGE=LIMITED\n"
 *   "FRAME\n" and the planes Y, Cb, Cr, of every frame
 *
 * W and H are needed; F0:0 or none is a clip without a rate; C is 420 unless given. Taken are 8
 * bits a sample and progressive frames: C420 with any suffix of siting, C422, C444, Cmono; others
 * are ENOTSUP. The range is limited unless XCOLORRANGE=FULL says otherwise; the matrix is BT.601
 * below 720 rows and BT.709 from there on, since the format has no word for it. A chroma sample
 * counts for all pixels it covers. A last frame that is cut short is EFORMAT.
 */
#include "media_internal.h"

#include <errno.h>
#include <string.h>

enum { TEXT_MAX = 4096 };

typedef struct {
    tess__reader reader; /* the first member: the two have one address */
    tess__source source;
    size_t offset;          /* of the next frame */
    int64_t frames;         /* read so far */
    int mono, across, down; /* log2 of pixels per chroma sample */
    size_t luma, chroma;    /* bytes of planes */
    tess__yuv matrix;
    uint8_t *planes, *rgb;
} y4m;

/* ---- the first line -------------------------------------------------------------------------- */

typedef struct {
    const char *text;
    int length;
} word;

/* The next word of the line; 0 at its end. */
static int next_word(const char **at, const char *end, word *w)
{
    while (*at < end && **at == ' ')
        ++*at;
    w->text = *at;
    while (*at < end && **at != ' ')
        ++*at;
    w->length = (int)(*at - w->text);
    return w->length > 0;
}

/* Digits alone, at most nine of them; -1 otherwise. */
static int number(const char *text, int length)
{
    int n = 0;
    if (length < 1 || length > 9)
        return -1;
    for (int i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        n = n * 10 + (text[i] - '0');
    }
    return n;
}

static tess_status bad_word(const y4m *f, const word *w, const char *rule)
{
    return tess__fail(TESS_EFORMAT, "%s: first line: \"%.*s\", %s", f->reader.path,
                      w->length < 40 ? w->length : 40, w->text, rule);
}

static tess_status read_side(const y4m *f, const word *w, int *side)
{
    *side = number(w->text + 1, w->length - 1);
    if (*side < 1 || *side > TESS__CLIP_SIDE_MAX)
        return bad_word(f, w, "must be 1..16384");
    return TESS_OK;
}

static tess_status read_rate(y4m *f, const word *w)
{
    const char *colon = memchr(w->text, ':', (size_t)w->length);
    const int first = colon ? (int)(colon - w->text) - 1 : -1;
    const int n = number(w->text + 1, first);
    const int d = colon ? number(colon + 1, w->length - first - 2) : -1;
    if (n < 0 || d < 0)
        return bad_word(f, w, "must be two numbers and a colon between them");
    f->reader.fps = n && d ? (double)n / d : 0;
    return TESS_OK;
}

static tess_status read_chroma(y4m *f, const word *w)
{
    static const struct {
        const char *name;
        int mono, across, down;
    } kinds[] = {
        {"C420jpeg", 0, 1, 1}, {"C420mpeg2", 0, 1, 1}, {"C420paldv", 0, 1, 1}, {"C420", 0, 1, 1},
        {"C422", 0, 1, 0},     {"C444", 0, 0, 0},      {"Cmono", 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((size_t)w->length == strlen(kinds[i].name) &&
            memcmp(w->text, kinds[i].name, (size_t)w->length) == 0) {
            f->mono = kinds[i].mono;
            f->across = kinds[i].across;
            f->down = kinds[i].down;
            return TESS_OK;
        }
    return tess__fail(
        TESS_ENOTSUP,
        "%s: first line: \"%.*s\", only C420, C422, C444 and Cmono of 8 bits are read",
        f->reader.path, TESS_MIN(w->length, 40), w->text);
}

static tess_status read_word(y4m *f, const word *w, int *full_range)
{
    switch (w->text[0]) {
    case 'W': return read_side(f, w, &f->reader.width);
    case 'H': return read_side(f, w, &f->reader.height);
    case 'F': return read_rate(f, w);
    case 'C': return read_chroma(f, w);
    case 'I':
        if (w->length == 2 && (w->text[1] == 'p' || w->text[1] == '?'))
            return TESS_OK;
        return tess__fail(TESS_ENOTSUP, "%s: first line: \"%.*s\", interlaced frames are not read",
                          f->reader.path, TESS_MIN(w->length, 40), w->text);
    case 'X':
        if (w->length == 16 && memcmp(w->text, "XCOLORRANGE=FULL", 16) == 0)
            *full_range = 1;
        return TESS_OK;
    default: /* the shape of pixels (A), and whatever else there may be */ return TESS_OK;
    }
}

static tess_status read_head(y4m *f)
{
    static const char magic[] = "YUV4MPEG2";
    const char *text = (const char *)f->source.data;
    const size_t most = TESS_MIN(f->source.bytes, TEXT_MAX);
    const char *end = most > 0 ? memchr(text, '\n', most) : NULL;
    if (most < sizeof magic - 1 || memcmp(text, magic, sizeof magic - 1) != 0)
        return tess__fail(TESS_EFORMAT, "%s: must begin with YUV4MPEG2", f->reader.path);
    if (!end)
        return tess__fail(TESS_EFORMAT, "%s: first line: must end within %d bytes", f->reader.path,
                          TEXT_MAX);
    const char *at = text + sizeof magic - 1;
    word w;
    int full_range = 0;
    f->across = f->down = 1;
    while (next_word(&at, end, &w))
        TESS_TRY(read_word(f, &w, &full_range));
    if (!f->reader.width || !f->reader.height)
        return tess__fail(TESS_EFORMAT, "%s: first line: has no %s", f->reader.path,
                          f->reader.width ? "H, the height" : "W, the width");
    const size_t width = (size_t)f->reader.width, height = (size_t)f->reader.height;
    f->luma = width * height;
    f->chroma = f->mono ? 0
                        : ((width + (size_t)f->across) >> f->across) *
                              ((height + (size_t)f->down) >> f->down);
    f->matrix = tess__yuv_of(tess__yuv_is_709(f->reader.height), full_range);
    f->offset = (size_t)(end - text) + 1;
    return TESS_OK;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void to_rgb(const y4m *f)
{
    const size_t width = (size_t)f->reader.width, height = (size_t)f->reader.height;
    const size_t stride = (width + (size_t)f->across) >> f->across;
    const uint8_t *cb = f->planes + f->luma, *cr = cb + f->chroma;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            const size_t i = y * width + x, c = (y >> f->down) * stride + (x >> f->across);
            tess__yuv_to_rgb(&f->matrix, f->planes[i], f->mono ? 128 : cb[c], f->mono ? 128 : cr[c],
                             f->rgb + i * 3);
        }
}

/* Where the planes of the next frame begin: bytes behind f->offset. 0: there is no frame. */
static tess_status find_planes(const y4m *f, size_t *start)
{
    const tess__reader *reader = &f->reader;
    const size_t left = f->source.bytes - f->offset, bytes = f->luma + 2 * f->chroma;
    *start = 0;
    if (left == 0)
        return TESS_OK;
    const char *text = (const char *)f->source.data + f->offset;
    const size_t most = TESS_MIN(left, TEXT_MAX);
    const char *end = memchr(text, '\n', most);
    if (!end || end - text < 5 || memcmp(text, "FRAME", 5) != 0)
        return tess__fail(TESS_EFORMAT, "%s: frame %lld: must begin with a line FRAME",
                          reader->path, (long long)f->frames);
    *start = (size_t)(end - text) + 1;
    if (left - *start < bytes)
        return tess__fail(TESS_EFORMAT, "%s: frame %lld: has %zu bytes, must be %zu", reader->path,
                          (long long)f->frames, left - *start, bytes);
    return TESS_OK;
}

static tess_status next_frame(tess__reader *reader, const uint8_t **rgb, double *time)
{
    y4m *f = (y4m *)reader;
    const size_t bytes = f->luma + 2 * f->chroma;
    size_t start;
    TESS_TRY(find_planes(f, &start));
    *rgb = NULL;
    if (start == 0)
        return TESS_OK;
    if (tess__source_copy(&f->source, f->offset + start, f->planes, bytes))
        return tess__source_failed(&f->source, errno);
    to_rgb(f);
    f->offset += start + bytes;
    *time = reader->fps > 0 ? (double)f->frames / reader->fps : 0;
    f->frames++;
    *rgb = f->rgb;
    return TESS_OK;
}

static tess_status list_frames(tess__reader *reader, tess__arena *arena, tess__frames *frames)
{
    y4m *f = (y4m *)reader;
    const size_t bytes = f->luma + 2 * f->chroma, first = f->offset;
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        f->offset = first;
        for (f->frames = 0;; f->frames++, n++) {
            size_t start;
            TESS_TRY(find_planes(f, &start));
            if (start == 0)
                break;
            if (n == TESS__LIST_MAX)
                return tess__fail(TESS_ENOTSUP, "%s: has more than %d frames", reader->path, n);
            if (pass == 1) {
                frames->places[n] = (int64_t)f->offset;
                frames->times[n] = reader->fps > 0 ? n / reader->fps : 0;
            }
            f->offset += start + bytes;
        }
        frames->n = n;
        if (pass == 1)
            break;
        frames->places = TESS_TAKE(arena, (size_t)(n + 1) * sizeof *frames->places);
        frames->times = TESS_TAKE(arena, (size_t)(n + 1) * sizeof *frames->times);
    }
    return TESS_OK;
}

static tess_status frame_at(tess__reader *reader, const tess__frames *frames, int k,
                            const uint8_t **rgb)
{
    y4m *f = (y4m *)reader;
    double time;
    if ((uint64_t)frames->places[k] >= f->source.bytes)
        return tess__fail(TESS_EFORMAT, "%s: frame %d is missing", reader->path, k);
    f->offset = (size_t)frames->places[k];
    f->frames = k;
    return next_frame(reader, rgb, &time);
}

static void close_file(tess__reader *reader)
{
    y4m *f = (y4m *)reader;
    tess__free(reader->ctx, f->planes);
    tess__free(reader->ctx, f->rgb);
    tess__source_close(&f->source);
    tess__free(reader->ctx, f);
}

/* Takes the source over, also on failure. The buffers are not larger than what the file says it
 * holds: a first frame that cannot be there is refused before they are taken. */
static tess_status open_source(tess_ctx *ctx, const char *path, tess__source source,
                               tess__reader **reader)
{
    y4m *f = tess__alloc_zero(ctx, sizeof *f);
    if (!f) {
        tess__source_close(&source);
        return TESS_ENOMEM;
    }
    f->reader = (tess__reader){.ctx = ctx,
                               .path = path,
                               .next = next_frame,
                               .list = list_frames,
                               .at = frame_at,
                               .close = close_file};
    f->source = source;
    tess_status status = read_head(f);
    const size_t left = source.bytes - f->offset, bytes = f->luma + 2 * f->chroma;
    if (status == TESS_OK && left == 0)
        status = tess__fail(TESS_EFORMAT, "%s: has no frames", path);
    if (status == TESS_OK && left < bytes)
        status = tess__fail(TESS_EFORMAT, "%s: frame 0: has fewer than %zu bytes", path, bytes);
    if (status == TESS_OK) {
        f->planes = tess__alloc(ctx, bytes);
        f->rgb = f->planes ? tess__alloc(ctx, f->luma * 3) : NULL;
        status = f->rgb ? TESS_OK : TESS_ENOMEM;
    }
    if (status != TESS_OK) {
        close_file(&f->reader);
        return status;
    }
    *reader = &f->reader;
    return TESS_OK;
}

tess_status tess__y4m_open(tess_ctx *ctx, const char *path, tess__reader **reader)
{
    tess__source source;
    TESS_TRY(tess__source_open(path, &source));
    return open_source(ctx, path, source, reader);
}

tess_status tess__y4m_open_memory(tess_ctx *ctx, const char *name, const void *data, size_t bytes,
                                  tess__reader **reader)
{
    return open_source(
        ctx, name, (tess__source){.name = name, .data = data, .bytes = bytes, .fd = -1}, reader);
}
