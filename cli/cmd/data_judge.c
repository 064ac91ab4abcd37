/* SPDX-License-Identifier: Apache-2.0 */
/* data_judge.c - tessera data --judge: how many clips show what their prompts say.
 *
 * Drawn data are judged sample by sample, which is the judge's own test; of files every clip is
 * judged whole, at its own size, whatever a run would read of it.
 */
#include "cmd_data.h"

#ifdef CLI_TRAIN
#include "tessera/advanced/clip.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 4096, MISTAKES = 10 };

typedef struct {
    cli *c;
    int64_t clips, perfect, skipped; /* perfect: every word is right */
    int mistakes;                    /* printed */
    tess_word_count colour, shape, direction;
    double stray;
    json_t *rows;
} totals;

static void add(tess_word_count *sum, tess_word_count n)
{
    sum->asked += n.asked;
    sum->right += n.right;
}

static int all_right(const tess_shapes_score *s)
{
    return s->colour.right == s->colour.asked && s->shape.right == s->shape.asked &&
           s->direction.right == s->direction.asked;
}

static void row(totals *t, const char *name, const char *prompt, const tess_shapes_score *s)
{
    cli *c = t->c;
    char clean[PROMPT], plain[256];
    if (c->json) {
        json_t *o = json_object();
        out_set(c, o, "clip", out_text(name));
        out_set(c, o, "prompt", out_text(prompt));
        out_set(c, o, "found", out_text(s->found));
        out_set(c, o, "right", json_boolean(all_right(s)));
        out_set(c, o, "stray", json_real(s->stray));
        out_append(c, t->rows, o);
        return;
    }
    if (all_right(s) || (t->mistakes++ >= MISTAKES && !c->common->verbose))
        return;
    fprintf(c->out, "%s: %s; found %s\n", out_clean(name, plain, sizeof plain),
            out_clean(prompt, clean, sizeof clean), s->found);
}

/* A prompt that cannot be judged is counted; any other failure ends the command. */
static tess_status judge_clip(totals *t, const char *name, const char *prompt,
                              const tess_clip *clip)
{
    tess_shapes_score s;
    const tess_status status = tess_shapes_judge(t->c->ctx, clip, prompt, &s);
    if (status == TESS_EINVAL) {
        t->skipped++;
        if (t->c->common->verbose && !t->c->json) {
            char plain[256], sentence[512];
            snprintf(sentence, sizeof sentence, "%s", tess_last_error());
            fprintf(t->c->out, "%s: not judged: %s\n", out_clean(name, plain, sizeof plain),
                    out_plain(sentence));
        }
        return TESS_OK;
    }
    TRY(status);
    t->clips++;
    t->perfect += all_right(&s);
    add(&t->colour, s.colour);
    add(&t->shape, s.shape);
    add(&t->direction, s.direction);
    t->stray += s.stray;
    row(t, name, prompt, &s);
    return TESS_OK;
}

static tess_status judge_files(totals *t, const tess_data *data)
{
    const int n = tess_data_clip_count(data);
    for (int i = 0; i < n; i++) {
        tess_data_clip clip;
        tess_clip_file *file;
        tess_clip view;
        TRY(tess_data_clip_query(data, i, &clip));
        TRY(tess_clip_open(t->c->ctx, clip.path, &(tess_clip_opts){0}, &file));
        tess_status status = tess_clip_view(file, &view);
        if (status == TESS_OK)
            status = judge_clip(t, clip.name, clip.prompt, &view);
        tess_clip_close(file);
        TRY(status);
    }
    return TESS_OK;
}

static tess_status judge_drawn(totals *t, const tess_data *data, const tess_data_info *info,
                               const data_judge_range *range)
{
    const size_t n =
        (size_t)info->channels * (size_t)info->frames * (size_t)info->height * (size_t)info->width;
    float *x = malloc(n * sizeof *x);
    uint8_t *pixels = malloc(n);
    tess_status status =
        x && pixels ? TESS_OK : out_fail(t->c, TESS_ENOMEM, "no memory for a clip");
    for (int64_t i = range->first; i < range->first + range->count && status == TESS_OK; i++) {
        char prompt[PROMPT], name[32];
        const tess_clip clip = {.frames = info->frames,
                                .height = info->height * info->pack,
                                .width = info->width * info->pack,
                                .fps = info->fps,
                                .pixels = pixels};
        snprintf(name, sizeof name, "%lld", (long long)i);
        status = tess_data_sample(data, range->split, i, x, NULL, prompt, sizeof prompt);
        if (status == TESS_OK)
            status = tess_data_pixels(info, x, pixels);
        if (status == TESS_OK)
            status = judge_clip(t, name, prompt, &clip);
    }
    free(x);
    free(pixels);
    return status;
}

static void words(cli *c, const char *name, tess_word_count n)
{
    if (c->json) {
        json_t *o = json_object();
        out_set(c, o, "asked", json_integer(n.asked));
        out_set(c, o, "right", json_integer(n.right));
        out_set(c, c->json, name, o);
    } else if (n.asked)
        fprintf(c->out, "%-10s %5.1f %% (%d of %d)\n", name, 100.0 * n.right / n.asked, n.right,
                n.asked);
}

static void report(totals *t)
{
    cli *c = t->c;
    if (c->json) {
        out_set(c, c->json, "clips", json_integer(t->clips));
        out_set(c, c->json, "perfect", json_integer(t->perfect));
        out_set(c, c->json, "not_judged", json_integer(t->skipped));
        out_set(c, c->json, "stray", json_real(t->stray / (double)t->clips));
        out_set(c, c->json, "judged", t->rows);
    } else {
        if (t->mistakes > MISTAKES && !c->common->verbose)
            fprintf(c->out, "and %d more with mistakes: -v lists them\n", t->mistakes - MISTAKES);
        fprintf(c->out, "%lld clip%s judged, %lld with every word right", (long long)t->clips,
                out_plural(t->clips), (long long)t->perfect);
        if (t->skipped)
            fprintf(c->out, ", %lld whose prompt cannot be judged", (long long)t->skipped);
        fputc('\n', c->out);
    }
    words(c, "colour", t->colour);
    words(c, "shape", t->shape);
    words(c, "direction", t->direction);
    if (!c->json)
        fprintf(c->out, "%-10s %5.2f %% of the pixels are neither background nor object\n", "stray",
                100 * t->stray / (double)t->clips);
}

tess_status data_judge(cli *c, const tess_data *data, const tess_data_info *info,
                       const data_judge_range *range)
{
    totals t = {.c = c, .rows = c->json ? json_array() : NULL};
    if (strcmp(info->kind, "latents") == 0)
        return out_usage(c, "--judge needs clips of pixels, the source has latents");
    const tess_status status =
        info->clips ? judge_files(&t, data) : judge_drawn(&t, data, info, range);
    if (status == TESS_OK && t.clips > 0) {
        report(&t);
        return TESS_OK;
    }
    json_decref(t.rows);
    TRY(status);
    return out_fail(c, TESS_EFORMAT,
                    "no clip has a prompt that --judge understands, such as \"a red disc moving "
                    "left\": %lld have others, or none",
                    (long long)t.skipped);
}

#endif
