/* SPDX-License-Identifier: Apache-2.0 */
/* ref_model.c - the Wan transformer's forward pass in double precision, one sample at a time, with
 * tokens in raster order and every parameter found by its name. */
#include "ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One sample's network: sizes, and buffers of (tokens, width) or (text_len, width). */
typedef struct {
    const ref_model *m;
    char prefix[32]; /* of parameter names */
    int layer, sample, grid[3];
    int64_t tokens, text, dim, ffn, patch_in, patch_out;
    double *x, *n, *q, *k, *v, *o, *h, *wide; /* wide: for products, the widest */
    double *context, *temb, *six;
} net;

static const double *param(const net *t, const char *name)
{
    char full[112];
    snprintf(full, sizeof full, "%s%s", t->prefix, name);
    return t->m->param(t->m->user, full);
}

/* y = x w^T + b of the layer called name. */
static void linear(const net *t, const char *name, int64_t rows, int64_t in, int64_t out,
                   const double *x, double *y)
{
    char full[80];
    snprintf(full, sizeof full, "%s.weight", name);
    const double *w = param(t, full);
    snprintf(full, sizeof full, "%s.bias", name);
    const double *b = param(t, full);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < out; j++) {
            double sum = b[j];
            for (int64_t c = 0; c < in; c++)
                sum += x[i * in + c] * w[j * in + c];
            y[i * out + j] = sum;
        }
}

static void gelu(double *x, int64_t n)
{
    const double factor = sqrt(2.0 / acos(-1.0));
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.5 * x[i] * (1.0 + tanh(factor * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
}

static void silu(const double *x, int64_t n, double *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / (1.0 + exp(-x[i]));
}

/* n = norm(x) (one + scale) + shift, over the rows of x. */
static void norm(const net *t, const double *shift, const double *scale, double one)
{
    const int64_t dim = t->dim;
    for (int64_t i = 0; i < t->tokens; i++) {
        const double *x = t->x + i * dim;
        double mean = 0.0, square = 0.0;
        for (int64_t c = 0; c < dim; c++)
            mean += x[c] / (double)dim;
        for (int64_t c = 0; c < dim; c++)
            square += (x[c] - mean) * (x[c] - mean) / (double)dim;
        for (int64_t c = 0; c < dim; c++)
            t->n[i * dim + c] =
                (x[c] - mean) / sqrt(square + t->m->config->eps) * (one + scale[c]) + shift[c];
    }
}

static void rms_norm(const net *t, const char *name, int64_t rows, double *x)
{
    if (!t->m->config->qk_norm)
        return;
    const double *weight = param(t, name);
    for (int64_t i = 0; i < rows; i++, x += t->dim) {
        double square = 0.0;
        for (int64_t c = 0; c < t->dim; c++)
            square += x[c] * x[c] / (double)t->dim;
        for (int64_t c = 0; c < t->dim; c++)
            x[c] *= weight[c] / sqrt(square + t->m->config->eps);
    }
}

/* Rotates one part of a head, of n elements, by its place along an axis. */
static void rotate_part(double *x, int n, double place)
{
    for (int i = 0; i < n; i += 2) {
        const double angle = place * pow(10000.0, -(double)i / n), a = x[i], b = x[i + 1];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + 1] = a * sin(angle) + b * cos(angle);
    }
}

static void rotate(const net *t, double *x)
{
    const int dim = t->m->config->head_dim, side = 2 * (dim / 6), time = dim - 2 * side;
    for (int64_t i = 0; i < t->tokens; i++)
        for (int h = 0; h < t->m->config->heads; h++) {
            double *head = x + i * t->dim + h * dim;
            const int64_t row = i / t->grid[2], frame = row / t->grid[1];
            rotate_part(head, time, (double)frame);
            rotate_part(head + time, side, (double)(row % t->grid[1]));
            rotate_part(head + time + side, side, (double)(i % t->grid[2]));
        }
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0.0;
    for (int c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/* The virtual key of one cluster: its score, -INFINITY where no key is dropped, and its value. */
static double virtual_key(const net *t, const double *q, const double *k, const double *v, int h,
                          const double *s, int64_t keys, int cluster, double *value)
{
    const int dim = t->m->config->head_dim;
    double mean[256] = {0}, n = 0.0;
    memset(value, 0, (size_t)dim * sizeof *value);
    for (int64_t j = 0; j < keys; j++) {
        const int of =
            t->m->cluster ? t->m->cluster(t->m->user, t->layer, t->sample, h, j) : cluster;
        if (s[j] > -INFINITY || of != cluster)
            continue;
        n++;
        for (int c = 0; c < dim; c++) {
            mean[c] += k[j * t->dim + c];
            value[c] += v[j * t->dim + c];
        }
    }
    for (int c = 0; c < dim && n > 0.0; c++) {
        mean[c] /= n;
        value[c] /= n;
    }
    return n > 0.0 ? dot(q, mean, dim) / sqrt((double)dim) + log(n) : -INFINITY;
}

/* One query of one head: o = softmax(s) v over the keys it attends to, and over one more for each
 * cluster of the rest, with score q kbar / sqrt(dim) + log of their number. */
static void attend(const net *t, int64_t i, int h, int64_t keys, int self)
{
    const int dim = t->m->config->head_dim, virtual = self ? t->m->compensate : 0;
    const int64_t at = h * dim;
    const double *q = t->q + i * t->dim + at, *k = t->k + at, *v = t->v + at;
    double *s = t->wide, *o = t->o + i * t->dim + at, most = -INFINITY, sum = 0.0;
    double scores[64], values[64][256];
    for (int64_t j = 0; j < keys; j++) {
        const int sees =
            !self || !t->m->attends || t->m->attends(t->m->user, t->layer, t->sample, h, i, j);
        s[j] = sees ? dot(q, k + j * t->dim, dim) / sqrt((double)dim) : -INFINITY;
        most = fmax(most, s[j]);
    }
    for (int c = 0; c < virtual; c++) {
        scores[c] = virtual_key(t, q, k, v, h, s, keys, c, values[c]);
        most = fmax(most, scores[c]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += s[j] = exp(s[j] - most);
    for (int c = 0; c < virtual; c++)
        sum += scores[c] = exp(scores[c] - most);
    memset(o, 0, (size_t)dim * sizeof *o);
    for (int64_t j = 0; j < keys; j++)
        for (int d = 0; d < dim && s[j] > 0.0; d++)
            o[d] += s[j] / sum * v[j * t->dim + d];
    for (int c = 0; c < virtual; c++)
        for (int d = 0; d < dim && scores[c] > 0.0; d++)
            o[d] += scores[c] / sum * values[c][d];
}

static void attention(const net *t, int64_t keys, int self)
{
    for (int64_t i = 0; i < t->tokens; i++)
        for (int h = 0; h < t->m->config->heads; h++)
            attend(t, i, h, keys, self);
}

/* x += gate (y in wide), gate NULL being 1. */
static void add(const net *t, const double *gate)
{
    for (int64_t i = 0; i < t->tokens; i++)
        for (int64_t c = 0; c < t->dim; c++)
            t->x[i * t->dim + c] += (gate ? gate[c] : 1.0) * t->wide[i * t->dim + c];
}

static void block(const net *t)
{
    const int64_t dim = t->dim, tokens = t->tokens;
    const double *table = param(t, "scale_shift_table");
    double *mod = t->six + 6 * dim; /* behind the six vectors */
    for (int64_t c = 0; c < 6 * dim; c++)
        mod[c] = table[c] + t->six[c];

    norm(t, mod, mod + dim, 1.0);
    linear(t, "attn1.to_q", tokens, dim, dim, t->n, t->q);
    linear(t, "attn1.to_k", tokens, dim, dim, t->n, t->k);
    linear(t, "attn1.to_v", tokens, dim, dim, t->n, t->v);
    rms_norm(t, "attn1.norm_q.weight", tokens, t->q);
    rms_norm(t, "attn1.norm_k.weight", tokens, t->k);
    rotate(t, t->q);
    rotate(t, t->k);
    attention(t, tokens, 1);
    linear(t, "attn1.to_out.0", tokens, dim, dim, t->o, t->wide);
    add(t, mod + 2 * dim);

    if (t->m->config->cross_attn_norm)
        norm(t, param(t, "norm2.bias"), param(t, "norm2.weight"), 0.0);
    else
        memcpy(t->n, t->x, (size_t)(tokens * dim) * sizeof *t->n);
    linear(t, "attn2.to_q", tokens, dim, dim, t->n, t->q);
    linear(t, "attn2.to_k", t->text, dim, dim, t->context, t->k);
    linear(t, "attn2.to_v", t->text, dim, dim, t->context, t->v);
    rms_norm(t, "attn2.norm_q.weight", tokens, t->q);
    rms_norm(t, "attn2.norm_k.weight", t->text, t->k);
    attention(t, t->text, 0);
    linear(t, "attn2.to_out.0", tokens, dim, dim, t->o, t->wide);
    add(t, NULL);

    norm(t, mod + 3 * dim, mod + 4 * dim, 1.0);
    linear(t, "ffn.net.0.proj", tokens, dim, t->ffn, t->n, t->h);
    gelu(t->h, tokens * t->ffn);
    linear(t, "ffn.net.2", tokens, t->ffn, dim, t->h, t->wide);
    add(t, mod + 5 * dim);
}

static void condition(const net *t)
{
    const tess_model_config *c = t->m->config;
    const int half = c->freq_dim / 2;
    const double time = t->m->timestep[t->sample];
    for (int i = 0; i < half; i++) {
        const double angle = time * pow(10000.0, -(double)i / half);
        t->wide[i] = cos(angle);
        t->wide[half + i] = sin(angle);
    }
    linear(t, "condition_embedder.time_embedder.linear_1", 1, c->freq_dim, t->dim, t->wide, t->n);
    silu(t->n, t->dim, t->n);
    linear(t, "condition_embedder.time_embedder.linear_2", 1, t->dim, t->dim, t->n, t->temb);
    silu(t->temb, t->dim, t->n);
    linear(t, "condition_embedder.time_proj", 1, t->dim, 6 * t->dim, t->n, t->six);
    linear(t, "condition_embedder.text_embedder.linear_1", t->text, c->text_dim, t->dim,
           t->m->text + t->sample * t->text * c->text_dim, t->wide);
    gelu(t->wide, t->text * t->dim);
    linear(t, "condition_embedder.text_embedder.linear_2", t->text, t->dim, t->dim, t->wide,
           t->context);
}

/* The place in a latent of number i of a token: (channel, frame, row, column) in a patch on the way
 * in, (frame, row, column, channel) on the way out. */
static int64_t place(const net *t, int64_t token, int64_t i, int channels, int out)
{
    const int *patch = t->m->config->patch;
    const int64_t volume = (int64_t)patch[0] * patch[1] * patch[2];
    const int64_t channel = out ? i % channels : i / volume, j = out ? i / channels : i % volume;
    const int64_t f = token / t->grid[2] / t->grid[1] * patch[0] + j / patch[2] / patch[1];
    const int64_t y = token / t->grid[2] % t->grid[1] * patch[1] + j / patch[2] % patch[1];
    const int64_t x = token % t->grid[2] * patch[2] + j % patch[2];
    const int64_t plane = (t->sample * (int64_t)channels + channel) * t->m->frames + f;
    return (plane * t->m->height + y) * t->m->width + x;
}

static void run_sample(net *t, double *out)
{
    const tess_model_config *c = t->m->config;
    const int64_t dim = t->dim;
    condition(t);
    for (int64_t i = 0; i < t->tokens * t->patch_in; i++)
        t->wide[i] = t->m->x[place(t, i / t->patch_in, i % t->patch_in, c->in_channels, 0)];
    linear(t, "patch_embedding", t->tokens, t->patch_in, dim, t->wide, t->x);
    for (int layer = 0; layer < c->layers; layer++) {
        t->layer = layer;
        snprintf(t->prefix, sizeof t->prefix, "blocks.%d.", layer);
        block(t);
    }
    t->prefix[0] = 0;
    const double *table = param(t, "scale_shift_table");
    double *mod = t->six;
    for (int64_t i = 0; i < 2 * dim; i++)
        mod[i] = table[i] + t->temb[i % dim];
    norm(t, mod, mod + dim, 1.0);
    linear(t, "proj_out", t->tokens, dim, t->patch_out, t->n, t->wide);
    for (int64_t i = 0; i < t->tokens * t->patch_out; i++)
        out[place(t, i / t->patch_out, i % t->patch_out, c->out_channels, 1)] = t->wide[i];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

tess_status ref_model_forward(const ref_model *model, double *out)
{
    const tess_model_config *c = model->config;
    const int64_t volume = (int64_t)c->patch[0] * c->patch[1] * c->patch[2];
    net t = {.m = model,
             .grid = {model->frames / c->patch[0], model->height / c->patch[1],
                      model->width / c->patch[2]},
             .text = model->text_len,
             .dim = (int64_t)c->heads * c->head_dim,
             .ffn = c->ffn_dim,
             .patch_in = volume * c->in_channels,
             .patch_out = volume * c->out_channels};
    t.tokens = (int64_t)t.grid[0] * t.grid[1] * t.grid[2];
    const int64_t rows = larger(t.tokens, t.text),
                  width = larger(t.dim, larger(t.patch_in, t.patch_out));
    const int64_t wide = larger(rows * width, c->freq_dim);
    double **const buffers[] = {&t.x, &t.n,    &t.q,       &t.k,    &t.v,  &t.o,
                                &t.h, &t.wide, &t.context, &t.temb, &t.six};
    const int64_t sizes[] = {rows * t.dim, rows * t.dim, rows * t.dim, rows * t.dim,
                             rows * t.dim, rows * t.dim, rows * t.ffn, wide,
                             rows * t.dim, t.dim,        12 * t.dim};
    tess_status status = TESS_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!(*buffers[i] = malloc((size_t)sizes[i] * sizeof(double))))
            status = TESS_ENOMEM;
    for (t.sample = 0; status == TESS_OK && t.sample < model->batch; t.sample++)
        run_sample(&t, out);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        free(*buffers[i]);
    return status;
}
