/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.c - tessera data: the training data as numbers, captions and a picture.
 */
#include "cmd_data.h"
#include "commands.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    common common;
    tess_data_opts data;
    const char *source, *out, *split;
    int64_t count, first;
    int judge;
} values;

#ifdef CLI_TRAIN
#include "tessera/file.h"
#include "tessera/media.h"

enum { PROMPT = 4096 };

typedef struct {
    tess_data *data;
    tess_data_info info;
    tess_split split;
    int numbers;     /* 1: samples are written as they are, not as pictures */
    float *x;        /* one sample, or all of them */
    uint8_t *pixels; /* all samples */
    tess_clip *clips;
} show;

static tess_status open_data(cli *c, const values *v, show *s)
{
    tess_data_opts opts = v->data;
    opts.source = v->source;
    opts.seed = (uint64_t)c->common->seed;
    if (v->judge && !opts.frames) { /* clips of any length: each is read whole later */
        const char *kind;
        TRY(tess_data_kind(v->source, &kind));
        if (strcmp(kind, "clips") == 0) {
            opts.frames = 1;
            opts.stride = 0;
        }
    }
    TRY(tess_data_open(c->ctx, &opts, &s->data));
    TRY(tess_data_query(s->data, &s->info));
    s->split =
        v->split && strcmp(v->split, "validation") == 0 ? TESS_SPLIT_VALIDATION : TESS_SPLIT_TRAIN;
    return TESS_OK;
}

static int ends_in(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static size_t numbers(const tess_data_info *i)
{
    return (size_t)i->channels * (size_t)i->frames * (size_t)i->height * (size_t)i->width;
}

/* Room for the pixels of all samples: a clip of bytes has as many as a sample has numbers. */
static tess_status take_memory(cli *c, const values *v, show *s)
{
    const size_t n = numbers(&s->info), count = (size_t)v->count;
    size_t bytes;
    if (!v->out)
        return TESS_OK;
    s->numbers = ends_in(v->out, ".npy");
    if (s->info.sizes > 1)
        return out_usage(c,
                         "-o shows clips of one size, --sizes gives %d: give --frames, --height "
                         "and --width",
                         s->info.sizes);
    if (strcmp(s->info.kind, "latents") == 0 && !s->numbers)
        return out_fail(c, TESS_EINVAL, "-o shows pixels, %.200s has latents: give a .npy",
                        v->source);
    if (__builtin_mul_overflow(n * sizeof *s->x, count, &bytes))
        return out_fail(c, TESS_ENOMEM, "no memory for %lld clips", (long long)v->count);
    s->x = malloc(s->numbers ? bytes : n * sizeof *s->x);
    s->pixels = malloc(s->numbers ? 1 : bytes / sizeof *s->x);
    s->clips = calloc(count, sizeof *s->clips);
    if (!s->x || !s->pixels || !s->clips)
        return out_fail(c, TESS_ENOMEM, "no memory for %lld clips", (long long)v->count);
    return TESS_OK;
}

/* The clips of each size, where there are several: a line, or a member of "sizes". */
static tess_status report_sizes(cli *c, const show *s)
{
    json_t *list = c->json && s->info.sizes > 1 ? json_array() : NULL;
    for (int i = 0; i < s->info.sizes && s->info.sizes > 1; i++) {
        tess_data_info b;
        TRY(tess_data_bucket(s->data, i, &b));
        if (list) {
            json_t *o = json_object();
            out_set(c, o, "frames", json_integer(b.frames));
            out_set(c, o, "height", json_integer(b.height));
            out_set(c, o, "width", json_integer(b.width));
            out_set(c, o, "share", out_number(b.share));
            out_set(c, o, "clips", json_integer(b.clips));
            out_set(c, o, "clips_validation", json_integer(b.clips_validation));
            out_set(c, o, "windows", json_integer(b.windows));
            out_set(c, o, "windows_validation", json_integer(b.windows_validation));
            out_append(c, list, o);
            continue;
        }
        fprintf(c->out, "  %3d x %d x %d: %.3g %% of the samples", b.frames, b.height, b.width,
                100.0 * b.share);
        if (b.clips + b.clips_validation)
            fprintf(c->out, ", %lld clip%s to train on, %lld for validation", (long long)b.clips,
                    out_plural(b.clips), (long long)b.clips_validation);
        fputc('\n', c->out);
    }
    if (list)
        out_set(c, c->json, "sizes", list);
    return TESS_OK;
}

static void report_head(cli *c, const show *s)
{
    const tess_data_info *i = &s->info;
    if (c->json) {
        out_set(c, c->json, "kind", json_string(i->kind));
        out_set(c, c->json, "channels", json_integer(i->channels));
        out_set(c, c->json, "frames", json_integer(i->frames));
        out_set(c, c->json, "height", json_integer(i->height));
        out_set(c, c->json, "width", json_integer(i->width));
        out_set(c, c->json, "pack", json_integer(i->pack));
        out_set(c, c->json, "fps", out_number(i->fps));
        out_set(c, c->json, "text_len", json_integer(i->text_len));
        out_set(c, c->json, "text_dim", json_integer(i->text_dim));
        out_set(c, c->json, "clips", json_integer(i->clips));
        out_set(c, c->json, "clips_validation", json_integer(i->clips_validation));
        out_set(c, c->json, "windows", json_integer(i->windows));
        out_set(c, c->json, "windows_validation", json_integer(i->windows_validation));
        out_set(c, c->json, "skipped", json_integer(i->skipped));
        out_set(c, c->json, "memory_bytes", json_integer(i->bytes));
        out_set(c, c->json, "samples", json_array());
        return;
    }
    fprintf(c->out, "%s: samples of %d x %d x %d x %d (channels, frames, height, width)", i->kind,
            i->channels, i->frames, i->height, i->width);
    if (i->sizes > 1)
        fprintf(c->out, " and %d smaller size%s", i->sizes - 1, out_plural(i->sizes - 1));
    if (i->clips)
        fprintf(c->out, "\n%lld clip%s to train on, %lld for validation, %lld skipped",
                (long long)i->clips, out_plural(i->clips), (long long)i->clips_validation,
                (long long)i->skipped);
    fputc('\n', c->out);
}

/* The clip that a sample is of, and its first frame; "" for drawn data. */
static tess_status place_of(const show *s, int64_t index, tess_data_clip *clip, int *start)
{
    int number;
    *clip = (tess_data_clip){.name = ""};
    TRY(tess_data_locate(s->data, s->split, index, &number, start));
    return number < 0 ? TESS_OK : tess_data_clip_query(s->data, number, clip);
}

static tess_status report_sample(cli *c, const show *s, int64_t index, const char *prompt)
{
    char clean[PROMPT], name[64];
    tess_data_clip clip;
    int start, bucket;
    tess_data_info one;
    TRY(place_of(s, index, &clip, &start));
    TRY(tess_data_bucket_of(s->data, s->split, index, &bucket));
    TRY(tess_data_bucket(s->data, bucket, &one));
    if (c->json) {
        json_t *o = json_object();
        out_set(c, o, "index", json_integer(index));
        if (s->info.sizes > 1)
            out_set(c, o, "size", json_integer(bucket));
        out_set(c, o, "prompt", out_text(prompt));
        if (clip.name[0]) {
            out_set(c, o, "clip", out_text(clip.name));
            out_set(c, o, "start", json_integer(start));
        }
        out_append(c, json_object_get(c->json, "samples"), o);
        return TESS_OK;
    }
    fprintf(c->out, "%6lld  ", (long long)index);
    if (s->info.sizes > 1)
        fprintf(c->out, "%d x %d x %d  ", one.frames, one.height, one.width);
    if (clip.name[0])
        fputs(out_clean(clip.name, name, sizeof name), c->out);
    if (clip.windows + clip.windows_validation > 1)
        fprintf(c->out, ", frame %d", start);
    if (clip.name[0] && prompt[0])
        fputs(": ", c->out);
    fprintf(c->out, "%s\n", out_clean(prompt, clean, sizeof clean));
    return TESS_OK;
}

static tess_status take_sample(cli *c, const values *v, show *s, int64_t i)
{
    char prompt[PROMPT];
    float *x = s->numbers ? s->x + (size_t)i * numbers(&s->info) : s->x;
    TRY(tess_data_sample(s->data, s->split, v->first + i, x, NULL, prompt, sizeof prompt));
    TRY(report_sample(c, s, v->first + i, prompt));
    if (!s->x || s->numbers)
        return TESS_OK;
    uint8_t *pixels = s->pixels + (size_t)i * numbers(&s->info);
    TRY(tess_data_pixels(&s->info, s->x, pixels));
    s->clips[i] = (tess_clip){.frames = s->info.frames,
                              .height = s->info.height * s->info.pack,
                              .width = s->info.width * s->info.pack,
                              .fps = s->info.fps,
                              .pixels = pixels};
    return TESS_OK;
}

static tess_status write_samples(cli *c, const values *v, const show *s)
{
    const tess_data_info *i = &s->info;
    const tess_tensor all = {.name = "samples",
                             .dtype = TESS_DTYPE_F32,
                             .rank = 5,
                             .shape = {v->count, i->channels, i->frames, i->height, i->width},
                             .data = s->x};
    return s->numbers ? tess_file_write(c->ctx, v->out, &all, 1, NULL)
                      : tess_clip_write(c->ctx, v->out, s->clips, (int)v->count);
}

static tess_status show_all(cli *c, const values *v, show *s)
{
    TRY(open_data(c, v, s));
    if (v->judge && s->info.sizes > 1)
        return out_usage(c, "--judge reads clips of one size, --sizes gives %d", s->info.sizes);
    if (v->judge)
        return data_judge(c, s->data, &s->info, &(data_judge_range){s->split, v->first, v->count});
    TRY(take_memory(c, v, s));
    progress_clear(c);
    report_head(c, s);
    TRY(report_sizes(c, s));
    TRY(data_summary(c, s->data, &s->info));
    for (int64_t i = 0; i < v->count; i++)
        TRY(take_sample(c, v, s, i));
    if (!v->out)
        return TESS_OK;
    TRY(write_samples(c, v, s));
    if (c->json)
        out_set(c, c->json, "out", out_text(v->out));
    return TESS_OK;
}

static tess_status run(cli *c, const void *given)
{
    const values *v = given;
    show s = {0};
    const tess_status status = show_all(c, v, &s);
    tess_data_close(s.data);
    free(s.x);
    free(s.pixels);
    free(s.clips);
    return status;
}

#else

static tess_status run(cli *c, const void *given)
{
    (void)given;
    return out_fail(c, TESS_ENOTSUP, "data needs libtessera_train, which this build lacks");
}

#endif

static const char *const splits[] = {"train", "validation", NULL};

static const opt arguments[] = {
    {"SOURCE", 0, OPT_PATH, offsetof(values, source), .required = 1,
     .help =
         "shapes, recall or recall-aligned, which are drawn; a folder of clips; a folder or file "
         "of latents"},
};

static const values defaults = {.data = {TESS_DATA_OPTS_DEFAULTS, .stride = 1}};

#define DATA(name, kind, metavar) OPT_OF(DATA, offsetof(values, data), #name, kind, metavar, name)

static opt options[] = {
    DATA(frames, 0, "N"),
    DATA(height, 0, "N"),
    DATA(width, 0, "N"),
    DATA(sizes, OPT_STRING, "LIST"),
    DATA(pack, 0, "P"),
    DATA(fps, 0, "X"),
    DATA(stride, 0, "N"),
    OPT_OF(DATA, offsetof(values, data), "random-start", 0, NULL, random_start),
    OPT_OF(DATA, offsetof(values, data), "random-crop", 0, NULL, random_crop),
    DATA(flip, 0, NULL),
    OPT_OF(DATA, offsetof(values, data), "data-memory", OPT_SIZE, "SIZE", cache),
    DATA(token, 0, "N"),
    DATA(text, OPT_PATH, "PATH"),
    {"split", 0, OPT_CHOICE, offsetof(values, split), "NAME", .initial = "train", .choices = splits,
     .help = "which samples"},
    {"first", 0, OPT_INT, offsetof(values, first), "I", .max = 1e15,
     .help = "number of the first sample; 0 unless given"},
    {"count", 0, OPT_INT, offsetof(values, count), "N", .initial = "8", .min = 1, .max = 1000,
     .unit = "samples", .help = "samples"},
    {"judge", 0, OPT_FLAG, offsetof(values, judge),
     .help = "count how many clips show what their prompts say: colour, shape and direction of "
             "objects like those of shapes, and stray pixels"},
    {"output", 'o', OPT_PATH, offsetof(values, out), "FILE",
     .help = "also show them: a .png has a row of frames for each, a .mp4, .gif or .y4m plays them "
             "side by side; a .npy has their numbers, (samples, channels, frames, height, width)"},
};

static void bind(void)
{
    opt_bind(options, (int)(sizeof options / sizeof *options), &defaults);
}

static const example examples[] = {
    {"tessera data shapes -o shapes.png", "eight clips with their prompts"},
    {"tessera data recall --count 1 -o recall.gif", "the board of cards, moving"},
    {"tessera data clips/ --frames 16 --height 64 --width 64 --fps 8 -o clips.png",
     "what is left of your own clips"},
    {"tessera data latents.safetensors --text t5/ --json", "shapes, counts and prompts"},
};

const command command_data = {
    .name = "data",
    .summary = "what a model would be trained on",
    .description =
        "Opens a source of training data as the trainer does, and prints the shape of its samples "
        "and what a run would see: clips, windows, lengths, sizes, rates and words, which --frames "
        "and --width keep most of it, and the prompts of some samples. Clips that cannot be used "
        "are counted in a warning, with -v each is named. A text file beside a clip, with the same "
        "name and the ending .txt, is its prompt.\n"
        "A sample depends on the seed, the split and its number alone.\n",
    TABLE(arguments),
    TABLE(options),
    TABLE(examples),
    .size = sizeof(values),
    .defaults = &defaults,
    .bind = bind,
    .run = run,
};
