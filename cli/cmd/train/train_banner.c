/* SPDX-License-Identifier: Apache-2.0 */
/* train_banner.c - what is trained, before the first step; the next commands, after the last.
 *
 *   model        tiny: 39.3 thousand parameters, dim 32, 2 heads, 2 layers; random weights
 *   data         shapes: drawn clips of 8 frames, 32 x 32; 512 tokens a clip
 *   steps        1 to 1500, of 4 clips each; attention dense
 *   machine      2 threads, avx512
 *   precision    bf16, products in bf16 by avx512-bf16
 *   folder       run
 */
#include "bf16_use.h"
#include "train_job.h"

#include <string.h>

static void model_text(const train_job *j, int64_t count, char *text, size_t bytes)
{
    const char *name = j->start[0] ? "weights" : j->v->config ? j->v->config : j->v->preset;
    char from[256] = "random weights";
    if (j->start[0])
        snprintf(from, sizeof from, "from %.200s", j->start);
    const int millions = count >= 1000000;
    snprintf(text, bytes, "%.80s: %.3g %s parameters, dim %d, %d heads, %d layers; %s", name,
             (millions ? 1e-6 : 1e-3) * (double)count, millions ? "million" : "thousand",
             j->config.heads * j->config.head_dim, j->config.heads, j->config.layers, from);
}

static void data_text(const train_job *j, char *text, size_t bytes)
{
    const tess_data_info *d = &j->info;
    const int *patch = j->config.patch;
    char clips[64] = "drawn clips";
    if (d->clips > 0)
        snprintf(clips, sizeof clips, "%lld clips and %lld for validation,", (long long)d->clips,
                 (long long)d->clips_validation);
    const long long tokens =
        (long long)(d->frames / patch[0]) * (d->height / patch[1]) * (d->width / patch[2]);
    if (d->sizes > 1)
        snprintf(text, bytes, "%.80s: %s of %d sizes up to %d frames, %d x %d; %lld tokens at most",
                 j->v->data.source, clips, d->sizes, d->frames, d->height * d->pack,
                 d->width * d->pack, tokens);
    else
        snprintf(text, bytes, "%.80s: %s of %d frames, %d x %d; %lld tokens a clip",
                 j->v->data.source, clips, d->frames, d->height * d->pack, d->width * d->pack,
                 tokens);
}

tess_status train_banner(const train_job *j)
{
    const cli *c = j->c;
    tess_model_info model;
    tess_train_info run;
    tess_ctx_info ctx;
    tess_bf16_use use;
    char text[512], clean[512], products[PRECISION_TEXT];
    if (c->common->quiet || c->rank != 0)
        return TESS_OK;
    TRY(tess_model_query(j->model, &model));
    TRY(tess_train_query(j->train, &run));
    TRY(tess_ctx_query(c->ctx, &ctx));
    model_text(j, model.count, text, sizeof text);
    fprintf(stderr, "model        %s\n", out_clean(text, clean, sizeof clean));
    data_text(j, text, sizeof text);
    fprintf(stderr, "data         %s\n", out_clean(text, clean, sizeof clean));
    fprintf(stderr, "steps        %lld to %lld, of %lld clip%s each; attention %s\n",
            (long long)run.step + 1, (long long)run.steps,
            (long long)j->opts.batch * j->opts.accumulate,
            out_plural((int64_t)j->opts.batch * j->opts.accumulate),
            tess_option_find(TESS_OPTIONS_ATTENTION, "kind")->words[j->opts.attention.kind]);
    if (c->ranks > 1)
        fprintf(stderr, "machine      %d ranks of %d thread%s, %s\n", c->ranks, ctx.threads,
                out_plural(ctx.threads), ctx.isa);
    else
        fprintf(stderr, "machine      %d thread%s, %s\n", ctx.threads, out_plural(ctx.threads),
                ctx.isa);
    if (j->opts.precision == TESS_PRECISION_BF16) {
        TRY(precision_text(j->c, &use, products));
        fprintf(stderr, "precision    bf16, %s\n", products);
    }
    fprintf(stderr, "folder       %s\n", out_clean(j->v->out, clean, sizeof clean));
    return TESS_OK;
}

/* A word of a shell: in quotes, if it has anything but usual characters. */
static void print_word(FILE *f, const char *word)
{
    static const char usual[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:+=@%";
    if (*word && strspn(word, usual) == strlen(word)) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, f);
    fputc('\'', f);
}

void train_next(const train_job *j)
{
    const cli *c = j->c;
    const tess_data_info *d = &j->info;
    const int pixels = d->channels == 3 * d->pack * d->pack;
    char prompt[256] = "", path[PATH_BYTES];
    const int words = !j->v->data.text && tess_data_sample(j->data, TESS_SPLIT_VALIDATION, 0, NULL,
                                                           NULL, prompt, sizeof prompt) == TESS_OK;
    snprintf(path, sizeof path, "%s/sample.%s", j->v->out, pixels ? "gif" : "npy");
    fputs("next         tessera sample ", c->out);
    print_word(c->out, j->v->out);
    if (words && *prompt) {
        fputs(" --prompt ", c->out);
        print_word(c->out, prompt);
    }
    if (pixels && d->width * d->pack < 128)
        fprintf(c->out, " --scale %d", 256 / (d->width * d->pack));
    fputs(" -o ", c->out);
    print_word(c->out, path);
    fputs("\n             tessera report ", c->out);
    print_word(c->out, j->v->out);
    fputc('\n', c->out);
}
