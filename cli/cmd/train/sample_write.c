/* SPDX-License-Identifier: Apache-2.0 */
/* sample_write.c - writes sampled clips to a file, and prints the result. */
#include "bf16_use.h"
#include "cmd_sample.h"
#include "tessera/file.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tess_status write_latents(const sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    const tess_tensor tensor = {
        .name = "latents",
        .dtype = TESS_DTYPE_F32,
        .rank = 5,
        .shape = {j->clips, d->channels, d->frames, d->height, d->width},
        .data = j->latents,
    };
    return tess_file_write(j->c->ctx, j->v->output, &tensor, 1, NULL);
}

/* Each pixel of (rows, width, 3) becomes scale x scale of them. */
static void enlarge(const uint8_t *from, int64_t rows, int width, int scale, uint8_t *to)
{
    const size_t line = (size_t)width * (size_t)scale * 3;
    for (int64_t y = 0; y < rows; y++, from += 3 * width) {
        uint8_t *first = to;
        for (int x = 0; x < width * scale; x++)
            memcpy(first + 3 * x, from + 3 * (x / scale), 3);
        for (int i = 0; i < scale; i++, to += line)
            if (i > 0)
                memcpy(to, first, line);
    }
}

/* ---- a folder of clips ----------------------------------------------------------------------- */

/* Clips of an earlier call would be taken for those of this one. */
tess_status sample_folder(const sample_job *j)
{
    const char *path = j->v->output;
    if (!sample_ends_with(path, "/") || mkdir(path, 0777) == 0)
        return TESS_OK;
    DIR *d = errno == EEXIST ? opendir(path) : NULL;
    if (!d)
        return out_fail(j->c, TESS_EIO, "%.200s: cannot create: %s", path, strerror(errno));
    int files = 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        files += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    if (files)
        return out_fail(j->c, TESS_EIO, "%.200s: has %d file%s, must be new or empty", path, files,
                        out_plural(files));
    return TESS_OK;
}

static tess_status write_prompt(const sample_job *j, const char *path, const char *prompt)
{
    FILE *f = fopen(path, "w");
    const int failed = !f || fprintf(f, "%s\n", prompt) < 0;
    if (failed | (f && fclose(f) != 0))
        return out_fail(j->c, TESS_EIO, "%.200s: cannot write: %s", path, strerror(errno));
    return TESS_OK;
}

/* 0000.y4m and 0000.txt, 0001.y4m, ...: pixels are not compressed, and need no FFmpeg. */
static tess_status write_folder(const sample_job *j)
{
    for (int64_t i = 0; i < j->clips; i++) {
        char path[SAMPLE_PATH];
        snprintf(path, sizeof path, "%.4000s%04lld.y4m", j->v->output, (long long)i);
        TRY(tess_clip_write(j->c->ctx, path, &j->list[i], 1));
        snprintf(path, sizeof path, "%.4000s%04lld.txt", j->v->output, (long long)i);
        if (sample_prompt_of(j, i)[0])
            TRY(write_prompt(j, path, sample_prompt_of(j, i)));
    }
    return TESS_OK;
}

static tess_status write_clips(sample_job *j)
{
    const tess_data_info *d = &j->trained.data;
    const int scale = (int)j->v->scale, height = d->height * d->pack, width = d->width * d->pack;
    const int64_t large = j->size * scale * scale; /* bytes: as many as the latent has numbers */
    uint8_t *small = malloc((size_t)j->size);
    tess_status status = TESS_OK;
    j->pixels = malloc((size_t)(j->clips * large));
    j->list = calloc((size_t)j->clips, sizeof *j->list);
    if (!small || !j->pixels || !j->list)
        status = sample_no_memory(j);
    for (int64_t i = 0; i < j->clips && status == TESS_OK; i++) {
        uint8_t *pixels = j->pixels + i * large;
        status = tess_data_pixels(d, j->latents + i * j->size, small);
        if (status == TESS_OK)
            enlarge(small, (int64_t)d->frames * height, width, scale, pixels);
        j->list[i] = (tess_clip){d->frames, height * scale, width * scale, d->fps, pixels};
    }
    free(small);
    TRY(status);
    if (sample_ends_with(j->v->output, "/"))
        return write_folder(j);
    return tess_clip_write(j->c->ctx, j->v->output, j->list, (int)j->clips);
}

tess_status sample_write(sample_job *j)
{
    return sample_ends_with(j->v->output, ".npy") ? write_latents(j) : write_clips(j);
}

static tess_status report_json(const sample_job *j)
{
    cli *c = j->c;
    const tess_data_info *d = &j->trained.data;
    out_set(c, c->json, "weights", out_text(j->folder));
    out_set(c, c->json, "step", json_integer(j->trained.step));
    out_set(c, c->json, "clips", json_integer(j->clips));
    out_set(c, c->json, "frames", json_integer(d->frames));
    out_set(c, c->json, "height", json_integer(d->height * d->pack));
    out_set(c, c->json, "width", json_integer(d->width * d->pack));
    out_set(c, c->json, "output", out_text(j->v->output));
    out_set(c, c->json, "attention", json_string(sample_kind_name(j->attention.kind)));
    out_set(c, c->json, "density", json_real(sample_density_mean(&j->densities)));
    out_set(c, c->json, "seconds", json_real(j->seconds));
    TRY(precision_json(c, c->json, j->v->opts.precision));
    if (c->ranks > 1)
        out_set(c, c->json, "ranks", json_integer(c->ranks));
    TRY(world_sent(c, NULL, &j->sent));
    if (j->v->density_out)
        out_set(c, c->json, "density_out", out_text(j->v->density_out));
    if (!j->v->compare)
        return TESS_OK;
    /* Clips that are the same have no finite PSNR. */
    out_set(c, c->json, "psnr_db", isinf(j->psnr) ? json_null() : json_real(j->psnr));
    out_set(c, c->json, "dense_seconds", json_real(j->dense_seconds));
    return TESS_OK;
}

tess_status sample_report(const sample_job *j)
{
    cli *c = j->c;
    const tess_data_info *d = &j->trained.data;
    tess_bf16_use use;
    char products[PRECISION_TEXT];
    if (c->json)
        return report_json(j);
    fprintf(c->out, "%s: %lld clip%s of %d frames, %d x %d\n", j->v->output, (long long)j->clips,
            out_plural(j->clips), d->frames, d->height * d->pack, d->width * d->pack);
    if (j->attention.kind != TESS_ATTENTION_DENSE)
        fprintf(c->out, "attention %s, density %.3f\n", sample_kind_name(j->attention.kind),
                sample_density_mean(&j->densities));
    if (j->v->opts.precision == TESS_PRECISION_BF16) {
        TRY(precision_text(c, &use, products));
        fprintf(c->out, "precision bf16, %s\n", products);
    }
    if (c->ranks > 1)
        fprintf(c->out, "%d ranks, %.2f s\n", c->ranks, j->seconds);
    TRY(world_sent(c, "sent ", &j->sent));
    if (j->v->density_out)
        fprintf(c->out, "%s: density of %d steps, %d layers, %d heads\n", j->v->density_out,
                j->densities.steps, j->densities.layers, j->densities.heads);
    if (!j->v->compare)
        return TESS_OK;
    if (isinf(j->psnr))
        fprintf(c->out, "the same clip as by dense attention\n");
    else
        fprintf(c->out, "PSNR %.1f dB against dense attention\n", j->psnr);
    fprintf(c->out, "%.2f s, dense %.2f s: %.2fx\n", j->seconds, j->dense_seconds,
            j->dense_seconds / j->seconds);
    return TESS_OK;
}
