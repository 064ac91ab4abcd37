/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_backward.c - gradients of one tile of queries and a list of keys, products in bf16.
 *
 *   S = K Q^T    P = 2^(scale log2(e) S - lse)    dV += P dO       dQ^T += K^T dS
 *   dP = V dO^T  dS = P (dP - delta)              dK += scale dS Q       dQ = scale dQ^T
 *
 * P and dS are rounded to bf16, to nearest. By key, as S is, they are the first operand of dV and
 * dK, with queries j and j + 16 side by side; and dS with keys side by side is the second operand
 * of dQ: no block is transposed. Rows of dK and dV are summed in fp32 over the queries of the tile
 * and then added to those of the caller, which owns them as in attn_backward.c.
 *
 *   chunk of 8 blocks of keys   for each, and each 32 queries: S, dP -> P, dS (three blocks)
 *                               for each and 32 dimensions: dV, dK over all queries
 *                               for each 32 queries and 32 dimensions: dQ^T over the chunk
 *
 * Elementwise work is done between the products of the next block. Work: 10 n D flop for each key.
 */
#include "bf16_entries.h"
#include "chunks.h"

enum { ROW_PAIRS = 16 };

/* What becomes of one block of S and dP. */
typedef struct {
    vf scale, lse[2], delta[2];
    const float *s;   /* S, behind it dP; NULL: none */
    uint16_t *p, *ds; /* P and dS, rows of keys */
    uint16_t *pairs;  /* dS, keys side by side */
} gradient;

/* To nearest, in the high half; halves are rounded up. A NaN stays one. */
VINLINE vi rounded(vf x)
{
    return (vi)x + vi_set1(0x8000);
}

/* Two keys and 32 queries. */
VINLINE void differentiate(const gradient *g, int u)
{
    const float *s = g->s + (ptrdiff_t)u * 64, *dp = s + BLOCK_SIZE;
    vi p[2][2], ds[2][2];
    VUNROLL
    for (int r = 0; r < 2; r++)
        for (int h = 0; h < 2; h++) {
            const ptrdiff_t at = (ptrdiff_t)r * BLOCK + (ptrdiff_t)h * 16;
            const vf x = bf16_exp2(vf_load(s + at) * g->scale - g->lse[h], 0.0f);
            p[r][h] = rounded(x);
            ds[r][h] = rounded(x * (vf_load(dp + at) - g->delta[h]));
        }
    VUNROLL
    for (int r = 0; r < 2; r++) {
        const ptrdiff_t row = (ptrdiff_t)(2 * u + r) * 32;
        words_store(g->p + row, cut_pairs((vf)p[r][0], (vf)p[r][1]));
        words_store(g->ds + row, cut_pairs((vf)ds[r][0], (vf)ds[r][1]));
    }
    VUNROLL
    for (int h = 0; h < 2; h++)
        words_store(g->pairs + (ptrdiff_t)h * HALF_SIZE + (ptrdiff_t)u * 32,
                    cut_pairs((vf)ds[0][h], (vf)ds[1][h]));
}

PRODUCTS void between_scores(void *user, int i, int n, int part)
{
    const gradient *g = user;
    const int begin = ROW_PAIRS / 2 * (PARTS * i + part) / (PARTS * n);
    const int end = ROW_PAIRS / 2 * (PARTS * i + part + 1) / (PARTS * n);
    for (int u = begin; g->s && u < end; u++)
        differentiate(g, u);
}

PRODUCTS void between_gradients(void *user, int i, int n, int part)
{
    const gradient *g = user;
    const int begin = ROW_PAIRS / 2 * (PARTS * i + part) / (PARTS * n);
    const int end = ROW_PAIRS / 2 * (PARTS * i + part + 1) / (PARTS * n);
    for (int u = begin; g->s && u < end; u++)
        differentiate(g, ROW_PAIRS / 2 + u);
}

/* Takes from the weights of a block's keys what virtual keys by cluster give to all of them. */
static void take_back(const tess__attn_bwd *job, const int32_t *numbers, int n, int query,
                      uint16_t *p, uint16_t *ds)
{
    const tess__attn_tile *t = &job->tile;
    const int left = t->n - query < BLOCK ? t->n - query : BLOCK;
    for (int i = 0; i < n; i++) {
        const size_t label = t->labels[numbers[i]], clusters = (size_t)t->clusters;
        const float *less = job->weights + label * (size_t)t->n + query;
        uint16_t *rows[2] = {p + (ptrdiff_t)i * 32, ds + (ptrdiff_t)i * 32};
        for (int r = 0; r < 2; r++, less += clusters * (size_t)t->n)
            for (int q = 0; q < left; q++) {
                uint16_t *x = rows[r] + (ptrdiff_t)(q % 16) * 2 + q / 16;
                const uint32_t bits = (uint32_t)*x << 16;
                float value;
                memcpy(&value, &bits, sizeof value);
                value -= less[q];
                narrow_row(x, &value, 1, 1);
            }
    }
}

/* Queries and dout as pairs and side by side; lse and delta. */
static void prepare(const tess__attn_bwd *job, tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int wide = tess__wide(t->dim);
    for (int b = 0; b < t->n; b += BLOCK) {
        const uint16_t *rows[BLOCK];
        const int left = t->n - b < BLOCK ? t->n - b : BLOCK;
        const int32_t *numbers = t->rows ? t->rows + b : NULL;
        for (int x = 0; x < 2; x++) {
            const int64_t stride = x ? job->stride_dout : t->q.stride;
            const float *from =
                (x ? job->dout : (const float *)t->q.data) + (numbers ? 0 : b * stride);
            uint16_t *pairs = (x ? w->g : w->q) + (ptrdiff_t)b * wide;
            uint16_t *beside = (x ? w->gn : w->qn) + (ptrdiff_t)b * wide;
            stage_rows(rows, w->stage, from, 0, stride, numbers, left, t->dim);
            for (ptrdiff_t d = 0; d < wide; d += BLOCK) {
                block_pairs(pairs + d * BLOCK, rows, (int)d);
                block_beside(beside + d * BLOCK, rows, (int)d);
            }
        }
    }
    for (int q = 0; q < t->n; q++) {
        const int64_t row = tess__query_row(t, q);
        const float *o = job->o + row * job->stride_o, *g = job->dout + row * job->stride_dout;
        vf sum = {0};
        int d = 0;
        for (; d + VL <= t->dim; d += VL)
            sum += vf_load(o + d) * vf_load(g + d);
        float delta = vf_sum(sum);
        for (; d < t->dim; d++)
            delta += o[d] * g[d];
        w->l[q] = delta - (job->dlse ? job->dlse[row] : 0.0f);
        /* A query that saw nothing has no probabilities. */
        w->m[q] = job->lse[row] == -INFINITY ? 1e30f : job->lse[row] * (float)M_LOG2E;
    }
    for (int q = t->n; q % BLOCK != 0; q++) {
        w->m[q] = 1e30f;
        w->l[q] = 0.0f;
    }
    memset(w->sum, 0, (size_t)((t->n + BLOCK - 1) / BLOCK * BLOCK * wide) * sizeof *w->sum);
}

/* P and dS of a chunk: block g of keys and b of queries at g * blocks + b, pairs at b * 8 + g. */
PRODUCTS void weigh_chunk(const int steps, const tess__attn_bwd *job, const chunk *c,
                          tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int blocks = (t->n + BLOCK - 1) / BLOCK, total = c->n * blocks;
    gradient x = {.scale = vf_set1(t->scale * (float)M_LOG2E)};
    for (int i = 0; i <= total; i++) {
        const int g = i / blocks, b = i % blocks;
        float *s = w->s + (ptrdiff_t)(i & 1) * 2 * BLOCK_SIZE;
        if (i > 0) {
            const int gp = (i - 1) / blocks, bp = (i - 1) % blocks;
            x.s = w->s + (ptrdiff_t)((i - 1) & 1) * 2 * BLOCK_SIZE;
            x.p = w->p + (ptrdiff_t)(i - 1) * BLOCK_SIZE;
            x.ds = w->ds + (ptrdiff_t)(i - 1) * BLOCK_SIZE;
            x.pairs = w->pairs + ((ptrdiff_t)bp * TESS_BF16_CHUNK + gp) * BLOCK_SIZE;
            for (int h = 0; h < 2; h++) {
                x.lse[h] = vf_load(w->m + (ptrdiff_t)bp * BLOCK + (ptrdiff_t)h * 16);
                x.delta[h] = vf_load(w->l + (ptrdiff_t)bp * BLOCK + (ptrdiff_t)h * 16);
            }
        }
        if (i == total) {
            for (int u = 0; u < ROW_PAIRS; u++)
                differentiate(&x, u);
            break;
        }
        const ptrdiff_t at = (ptrdiff_t)b * steps * BLOCK_SIZE;
        const operand k = {.base = c->k[g], .step = BLOCK_SIZE};
        const operand v = {.base = c->v[g], .step = BLOCK_SIZE};
        const operand q = {.base = w->q + at, .step = BLOCK_SIZE};
        const operand dout = {.base = w->g + at, .step = BLOCK_SIZE};
        block_products(s, 0, steps, k, q, between_scores, &x);
        block_products(s + BLOCK_SIZE, 0, steps, v, dout, between_gradients, &x);
        if (g == c->n - 1 && c->left < BLOCK)
            mask_rows(s, c->left);
    }
}

/* Adds start and factor times 32 dimensions of a block of keys to the caller's rows. */
static void add_rows(float *rows, int64_t stride, const int32_t *numbers, int n, int left,
                     const float *block, float factor, const float *start)
{
    const vf f = vf_set1(factor);
    for (int i = 0; i < n; i++) {
        float *to = rows + numbers[i] * stride;
        const float *x = block + (ptrdiff_t)i * BLOCK;
        int d = 0;
        for (; d + 16 <= left; d += 16) {
            const vf more = start ? vf_load(start + d) : (vf){0};
            vf_store(to + d, vf_load(to + d) + (f * vf_load(x + d) + more));
        }
        for (; d < left; d++)
            to[d] += factor * x[d] + (start ? start[d] : 0.0f);
    }
}

static void add_keys(const tess__attn_bwd *job, const chunk *c, tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int wide = tess__wide(t->dim), blocks = (t->n + BLOCK - 1) / BLOCK;
    for (int g = 0; g < c->n; g++) {
        const int32_t *numbers = w->rows + (ptrdiff_t)g * BLOCK;
        const int n = g == c->n - 1 ? c->left : BLOCK;
        const ptrdiff_t from = (ptrdiff_t)g * blocks * BLOCK_SIZE;
        for (int d = 0; d < t->dim; d += BLOCK) {
            const int left = t->dim - d < BLOCK ? t->dim - d : BLOCK;
            for (int x = 0; x < 2; x++) {
                const operand a = {.base = (x ? w->ds : w->p) + from, .step = BLOCK_SIZE};
                const operand b = {.base = (x ? w->qn : w->gn) + (ptrdiff_t)d * BLOCK,
                                   .step = (ptrdiff_t)BLOCK * wide};
                const float *start = job->start ? job->start + (x ? 0 : t->dim) + d : NULL;
                block_products(w->block, 0, blocks, a, b, between_nothing, NULL);
                add_rows((x ? job->dk : job->dv) + d, x ? job->stride_dk : job->stride_dv, numbers,
                         n, left, w->block, x ? t->scale : 1.0f, start);
            }
        }
    }
}

static void add_queries(const tess__attn_tile *t, const chunk *c, tess__bf16_scratch *w)
{
    const int wide = tess__wide(t->dim);
    for (int b = 0; b < (t->n + BLOCK - 1) / BLOCK; b++)
        for (int d = 0; d < wide; d += BLOCK) {
            const operand k = {.list = c->t, .step = (ptrdiff_t)d * BLOCK};
            const operand ds = {.base = w->pairs + (ptrdiff_t)b * TESS_BF16_CHUNK * BLOCK_SIZE,
                                .step = BLOCK_SIZE};
            block_products(w->sum + ((ptrdiff_t)b * wide + d) * BLOCK, 1, c->n, k, ds,
                           between_nothing, NULL);
        }
}

/* dq as rows of D floats. */
static void finish(const tess__attn_tile *t, tess__bf16_scratch *w)
{
    const int wide = tess__wide(t->dim);
    float factor[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        factor[i] = t->scale;
    for (int b = 0; b < t->n; b += BLOCK)
        for (int d = 0; d < wide; d += BLOCK)
            block_transposed(w->acc + (ptrdiff_t)b * wide + d, wide,
                             w->sum + (ptrdiff_t)b * wide + (ptrdiff_t)d * BLOCK, factor,
                             t->n - b < BLOCK ? t->n - b : BLOCK, BLOCK);
}

void TESS_K(tess__bf16_backward)(const tess__attn_bwd *job, const tess__bf16_keys *keys,
                                 tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int steps = tess__wide(t->dim) / BLOCK, blocks = (t->n + BLOCK - 1) / BLOCK;
    tess__key_cursor at = chunk_start(&t->keys);
    chunk c;
    products_begin();
    prepare(job, w);
    for (chunk_next(&c, t, keys, 1, &at, w); c.n > 0; chunk_next(&c, t, keys, 1, &at, w)) {
        if (steps == 2)
            weigh_chunk(2, job, &c, w);
        else if (steps == 4)
            weigh_chunk(4, job, &c, w);
        else
            weigh_chunk(steps, job, &c, w);
        for (int i = 0; job->weights && i < c.n * blocks; i++)
            take_back(job, w->rows + (ptrdiff_t)(i / blocks) * BLOCK,
                      i / blocks == c.n - 1 ? c.left : BLOCK, i % blocks * BLOCK,
                      w->p + (ptrdiff_t)i * BLOCK_SIZE, w->ds + (ptrdiff_t)i * BLOCK_SIZE);
        add_keys(job, &c, w);
        add_queries(t, &c, w);
    }
    finish(t, w);
    products_end();
}
