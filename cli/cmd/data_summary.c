/* SPDX-License-Identifier: Apache-2.0 */
/* data_summary.c - tessera data: what a run would see of clips in files, and which sizes keep most
 * of it.
 *
 * A frame is scaled to cover the sample and cut: of a frame of w : h, a sample of W : H keeps
 * min(r, 1 / r) of the area, r = (w / h) / (W / H).
 */
#include "cmd_data.h"

#ifdef CLI_TRAIN
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 4 }; /* sizes and rates that are named */

typedef struct {
    tess_data_clip *clips;
    int n, used;
    double *numbers; /* room for one of each clip */
} found;

static int by_value(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static int words_of(const char *prompt)
{
    int words = 0, inside = 0;
    for (const char *s = prompt; *s; s++) {
        const int letter = (unsigned char)*s > ' ';
        words += letter && !inside;
        inside = letter;
    }
    return words;
}

/* ---- lengths, sizes, rates, words ------------------------------------------------------------ */

/* "120 to 250, median 132", or the one number. */
static void range_text(found *f, int n, char *text, size_t bytes)
{
    qsort(f->numbers, (size_t)n, sizeof *f->numbers, by_value);
    if (n == 0)
        snprintf(text, bytes, "not known");
    else if (f->numbers[0] == f->numbers[n - 1])
        snprintf(text, bytes, "%.6g", f->numbers[0]);
    else
        snprintf(text, bytes, "%.6g to %.6g, median %.6g", f->numbers[0], f->numbers[n - 1],
                 f->numbers[n / 2]);
}

typedef struct {
    char name[32];
    int n;
} kind;

static int most_first(const void *x, const void *y)
{
    const kind *a = x, *b = y;
    return a->n != b->n ? b->n - a->n : strcmp(a->name, b->name);
}

/* "1280 x 720 (2), 320 x 176": the most frequent kinds of what `name` says of a clip. */
static void kinds_text(const found *f, void (*name)(const tess_data_clip *, char[32]), char *text,
                       size_t bytes)
{
    kind *kinds = calloc((size_t)f->n + 1, sizeof *kinds);
    int n = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; kinds && i < f->n; i++) {
        char called[32];
        int k = 0;
        name(&f->clips[i], called);
        if (!called[0])
            continue;
        while (k < n && strcmp(kinds[k].name, called) != 0)
            k++;
        memcpy(kinds[k].name, called, sizeof called);
        n += k == n;
        kinds[k].n++;
    }
    if (n > 0)
        qsort(kinds, (size_t)n, sizeof *kinds, most_first);
    for (int k = 0; k < n && k < MOST_KINDS && at < bytes; k++) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", k ? ", " : "", kinds[k].name);
        if (kinds[k].n > 1 && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, " (%d)", kinds[k].n);
    }
    if (n > MOST_KINDS && at < bytes)
        snprintf(text + at, bytes - at, ", %d more", n - MOST_KINDS);
    if (n == 0)
        snprintf(text, bytes, "not known");
    free(kinds);
}

static void size_name(const tess_data_clip *clip, char name[32])
{
    name[0] = '\0';
    if (clip->height > 0)
        snprintf(name, 32, "%d x %d", clip->height, clip->width);
}

static void rate_name(const tess_data_clip *clip, char name[32])
{
    name[0] = '\0';
    if (clip->fps > 0)
        snprintf(name, 32, "%.4g fps", clip->fps);
}

/* ---- advice ---------------------------------------------------------------------------------- */

/* Mean share of the frames' area that samples of this size keep; NaN: sizes are not known. */
static double kept_area(const found *f, double height, double width)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        const tess_data_clip *c = &f->clips[i];
        if (c->height < 1 || c->width < 1)
            continue;
        const double r = (double)c->width / c->height * height / width;
        sum += r < 1 ? r : 1 / r;
        n++;
    }
    return sum / n;
}

/* The width, a multiple of 8, that keeps most at this height; the narrower of equals. */
static int best_width(const found *f, int height)
{
    int best = 8;
    for (int width = 8; width <= 4 * height + 8; width += 8)
        if (kept_area(f, height, width) > kept_area(f, height, best) + 1e-9)
            best = width;
    return best;
}

typedef struct {
    int frames_all,
        frames_most;        /* the most frames that keep every clip, and nine in ten; 0: none */
    double kept, kept_best; /* share of the area that the size keeps, and another width */
    int width_best;
    int enlarged; /* clips that are smaller than samples */
} advice;

static advice advise(found *f, const tess_data_info *info)
{
    const int height = info->height * info->pack, width = info->width * info->pack;
    advice a = {.kept = kept_area(f, height, width), .width_best = best_width(f, height)};
    int n = 0;
    a.kept_best = kept_area(f, height, a.width_best);
    for (int i = 0; i < f->n; i++) {
        const tess_data_clip *c = &f->clips[i];
        a.enlarged += c->height > 0 && (c->height < height || c->width < width);
        if (c->frames > 0)
            f->numbers[n++] = c->frames;
    }
    if (n > 0) {
        qsort(f->numbers, (size_t)n, sizeof *f->numbers, by_value);
        a.frames_all = (int)f->numbers[0];
        a.frames_most = (int)f->numbers[n / 10];
    }
    return a;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_advice(cli *c, const tess_data_info *info, const advice *a)
{
    const int height = info->height * info->pack, width = info->width * info->pack;
    if (a->frames_all > 0 && a->frames_all != a->frames_most)
        fprintf(c->out, "--frames up to %d keep every clip, up to %d nine in ten\n", a->frames_all,
                a->frames_most);
    else if (a->frames_all > 0)
        fprintf(c->out, "--frames up to %d keep every clip\n", a->frames_all);
    fprintf(c->out, "size %d x %d keeps %.0f %% of the frames' area", height, width, 100 * a->kept);
    if (a->kept_best > a->kept + 0.01)
        fprintf(c->out, ", --width %d keeps %.0f %%", a->width_best, 100 * a->kept_best);
    fputc('\n', c->out);
    if (a->enlarged > 0)
        fprintf(c->out, "%d clip%s smaller than that, and enlarged\n", a->enlarged,
                a->enlarged == 1 ? " is" : "s are");
}

static void print_text(cli *c, found *f, const tess_data_info *info)
{
    char text[256];
    const int clips = strcmp(info->kind, "clips") == 0;
    int n = 0, bare = 0;
    if (clips)
        fprintf(c->out, "%-9s %lld to train on, %lld for validation\n", "windows",
                (long long)info->windows, (long long)info->windows_validation);
    for (int i = 0; i < f->n; i++)
        if (f->clips[i].frames > 0)
            f->numbers[n++] = f->clips[i].frames;
    range_text(f, n, text, sizeof text);
    fprintf(c->out, "%-9s %s\n", "frames", text);
    kinds_text(f, size_name, text, sizeof text);
    fprintf(c->out, "%-9s %s\n", "sizes", text);
    kinds_text(f, rate_name, text, sizeof text);
    if (clips)
        fprintf(c->out, "%-9s %s\n", "rates", text);
    for (int i = 0; i < f->n; i++) {
        f->numbers[i] = words_of(f->clips[i].prompt);
        bare += f->numbers[i] == 0;
    }
    range_text(f, f->n, text, sizeof text);
    fprintf(c->out, "%-9s %s", "words", text);
    if (bare > 0 && bare < f->n)
        fprintf(c->out, "; %d clip%s without a prompt", bare, out_plural(bare));
    fprintf(c->out, "\n%-9s %s\n", "memory", out_bytes(info->bytes, text));
}

static json_t *clip_json(cli *c, const tess_data_clip *clip)
{
    json_t *o = json_object();
    out_set(c, o, "name", out_text(clip->name));
    out_set(c, o, "path", out_text(clip->path));
    out_set(c, o, "frames", json_integer(clip->frames));
    out_set(c, o, "height", json_integer(clip->height));
    out_set(c, o, "width", json_integer(clip->width));
    out_set(c, o, "fps", out_number(clip->fps));
    out_set(c, o, "windows", json_integer(clip->windows));
    out_set(c, o, "windows_validation", json_integer(clip->windows_validation));
    out_set(c, o, "words", json_integer(words_of(clip->prompt)));
    out_set(c, o, "skipped", clip->skipped ? out_sentence(clip->skipped) : json_null());
    return o;
}

static void print_json(cli *c, const found *f, const advice *a)
{
    json_t *list = json_array(), *o = json_object();
    for (int i = 0; i < f->n; i++)
        out_append(c, list, clip_json(c, &f->clips[i]));
    out_set(c, c->json, "files", list);
    out_set(c, o, "frames_all", json_integer(a->frames_all));
    out_set(c, o, "frames_most", json_integer(a->frames_most));
    out_set(c, o, "kept", out_number(a->kept));
    out_set(c, o, "width", json_integer(a->width_best));
    out_set(c, o, "kept_width", out_number(a->kept_best));
    out_set(c, o, "enlarged", json_integer(a->enlarged));
    out_set(c, c->json, "advice", o);
}

tess_status data_summary(cli *c, const tess_data *data, const tess_data_info *info)
{
    const int n = tess_data_clip_count(data);
    found f = {.clips = calloc((size_t)n + 1, sizeof *f.clips),
               .numbers = calloc((size_t)n + 1, sizeof *f.numbers),
               .n = n};
    tess_status status =
        f.clips && f.numbers ? TESS_OK : out_fail(c, TESS_ENOMEM, "no memory for %d clips", n);
    for (int i = 0; i < n && status == TESS_OK; i++)
        status = tess_data_clip_query(data, i, &f.clips[i]);
    if (status == TESS_OK && n > 0) {
        const advice a = advise(&f, info);
        if (c->json)
            print_json(c, &f, &a);
        else
            print_text(c, &f, info);
        if (!c->json && strcmp(info->kind, "clips") == 0 && info->sizes == 1)
            print_advice(c, info, &a);
    }
    free(f.clips);
    free(f.numbers);
    return status;
}
#endif
