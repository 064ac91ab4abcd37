/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_forward.c - attention of one tile of queries over a list of keys, products in bf16.
 *
 *   S = K Q^T,  P = 2^(scale log2(e) S - m) rounded to bf16,  O^T = V^T P / l,
 *   lse = (m + log2 l) / log2(e)
 *
 * Scores are kept by key, as in fp32 (attn_forward.c): K is the first operand as it lies, and P's
 * rows, two keys side by side, are the second operand of the next product without a transpose. A
 * block is 32 keys by 32 queries. A chunk of 8 blocks is taken for 32 queries at a time:
 *
 *   products   S_0 | S_1 | S_2      | S_3      | ... | S_7      | V^T P by 32 dimensions each
 *   weights                P_0 of S_0 P_1 of S_1 ...   P_5        P_6  P_7
 *
 * Weights are computed between the products of the block after next: tiles multiply meanwhile, and
 * two blocks of scores stay in the first-level cache. l sums the rounded weights.
 *
 * Where no score of the head can be beyond +-TESS_BF16_BOUND in base 2 (|q| |k| <= the bound for
 * all of its rows), m is 0. Else m is a running maximum, an integer which is raised only where a
 * score is above it by more than LAZY: what was summed before is then multiplied by a power of two,
 * which rounds nothing. Either way a row's bits depend on its list of keys and on the head.
 *
 * Work: 4 n D flop and 4 D bytes for each key of n queries. Scratch: bf16.h.
 */
#include "bf16_entries.h"
#include "chunks.h"

enum { LAG = 2, PAIR_OPS = 32 };
static const float M_START = -1e30f, LAZY = 8.0f;

/* What weights of one block of 32 queries need. */
typedef struct {
    int online;
    vf scale, m[2], top[2], l[2][2];
    const float *s;    /* scores that become weights; NULL: none */
    uint16_t *p;       /* and where these go */
    const float *next; /* scores whose maximum is taken; NULL: none */
} weights;

/* Operation u of PAIR_OPS: the weights of two keys and 16 queries. */
VINLINE void weigh(weights *w, int u)
{
    const int pair = u / 2, h = u % 2;
    const float *s = w->s + (ptrdiff_t)pair * 64 + (ptrdiff_t)h * 16;
    vf a = vf_load(s) * w->scale - w->m[h], b = vf_load(s + BLOCK) * w->scale - w->m[h];
    if (w->online) {
        a = vf_max(vf_set1(EXP_LEAST), a);
        b = vf_max(vf_set1(EXP_LEAST), b);
    }
    const vi p = cut_pairs(bf16_exp2(a, 0x1p-8f), bf16_exp2(b, 0x1p-8f));
    w->l[h][pair % 2] = add_pairs(w->l[h][pair % 2], p);
    words_store(w->p + (ptrdiff_t)h * HALF_SIZE + (ptrdiff_t)pair * 32, p);
}

VINLINE void take_top(weights *w, int u)
{
    w->top[0] = vf_max(vf_load(w->next + (ptrdiff_t)u * BLOCK), w->top[0]);
    w->top[1] = vf_max(vf_load(w->next + (ptrdiff_t)u * BLOCK + 16), w->top[1]);
}

PRODUCTS void between_weights(void *user, int i, int n, int part)
{
    weights *w = user;
    const int begin = PAIR_OPS * (PARTS * i + part) / (PARTS * n);
    const int end = PAIR_OPS * (PARTS * i + part + 1) / (PARTS * n);
    VUNROLL
    for (int u = begin; u < end; u++)
        weigh(w, u);
}

PRODUCTS void between_both(void *user, int i, int n, int part)
{
    weights *w = user;
    const int begin = PAIR_OPS * (PARTS * i + part) / (PARTS * n);
    const int end = PAIR_OPS * (PARTS * i + part + 1) / (PARTS * n);
    for (int u = begin; u < end; u++) {
        if (w->s)
            weigh(w, u);
        if (w->next)
            take_top(w, u);
    }
}

/* One tile of queries. */
typedef struct {
    const tess__attn_tile *t;
    tess__bf16_scratch *w;
    float scale; /* times log2(e) */
    int online;
    const float *bias; /* of the chunk's keys, base 2, or NULL */
} tile_run;

/* Multiplies what was summed for 32 queries, and n blocks of weights, by powers of two. */
__attribute__((noinline)) static void rescale(float *o, int wide, uint16_t *p, int n,
                                              const float *factor)
{
    for (int r = 0; r < wide; r++)
        for (int h = 0; h < 2; h++) {
            float *x = o + (ptrdiff_t)r * BLOCK + (ptrdiff_t)h * 16;
            vf_store(x, vf_load(x) * vf_load(factor + (ptrdiff_t)h * 16));
        }
    for (int b = 0; b < n * 2; b++)
        for (int r = 0; r < 16; r++, p += 32) {
            const vf f = vf_load(factor + (ptrdiff_t)(b % 2) * 16);
            const vi x = words_load(p);
            words_store(p, cut_pairs((vf)(x << 16) * f, (vf)(x & vi_set1(-65536)) * f));
        }
}

/* Raises m where the maximum asks for it; n blocks of weights are those of the old one. */
PRODUCTS void raise_maximum(weights *x, const tile_run *run, float *o, uint16_t *p, int n,
                            float *factor)
{
    const vf magic = vf_set1(12582912.0f), limit = vf_set1(4e6f);
    vi any = {0};
    vf m[2];
    VUNROLL
    for (int h = 0; h < 2; h++) {
        const vf top = x->top[h] * x->scale;
        const vf whole = vf_choose(top < limit, (top + magic) - magic, top);
        const vi raise = ~(top <= x->m[h] + vf_set1(LAZY)); /* NaN too */
        m[h] = vf_choose(raise, whole, x->m[h]);
        any |= raise;
        x->top[h] = vf_set1(-INFINITY);
    }
    int32_t lanes[VL], some = 0;
    memcpy(lanes, &any, sizeof lanes);
    for (int i = 0; i < VL; i++)
        some |= lanes[i];
    if (!some)
        return;
    VUNROLL
    for (int h = 0; h < 2; h++) {
        const vf f = vf_exp2(x->m[h] - m[h]);
        vf_store(factor + (ptrdiff_t)h * 16, f);
        x->l[h][0] *= f;
        x->l[h][1] *= f;
        x->m[h] = m[h];
    }
    rescale(o, tess__wide(run->t->dim), p, n, factor);
}

/* Scores of the last group, which is not whole, and of keys that have a bias. */
PRODUCTS void finish_scores(const tile_run *run, const chunk *c, int g, float *s)
{
    const int left = g == c->n - 1 ? c->left : BLOCK;
    for (int i = 0; run->bias && i < left; i++) {
        const vf bias = vf_set1(run->bias[g * BLOCK + i] / run->scale);
        vf_store(s + (ptrdiff_t)i * BLOCK, vf_load(s + (ptrdiff_t)i * BLOCK) + bias);
        vf_store(s + (ptrdiff_t)i * BLOCK + 16, vf_load(s + (ptrdiff_t)i * BLOCK + 16) + bias);
    }
    if (left < BLOCK)
        mask_rows(s, left);
}

/* S of all groups, and the weights of all but the last two. */
PRODUCTS void score_groups(const int steps, const int online, const tile_run *run, const chunk *c,
                           const uint16_t *q, float *o, weights *x)
{
    const operand queries = {.base = q, .step = BLOCK_SIZE};
    float *s = run->w->s;
    uint16_t *p = run->w->p;
    float factor[BLOCK];
    for (int g = 0; g < c->n; g++) {
        float *own = s + (ptrdiff_t)(g & 1) * BLOCK_SIZE;
        const operand keys = {.base = c->k[g], .step = BLOCK_SIZE};
        x->s = g >= LAG ? own : NULL;
        x->p = p + (ptrdiff_t)(g - LAG) * BLOCK_SIZE;
        if (online && g >= LAG)
            raise_maximum(x, run, o, p, g - LAG, factor);
        if (online) {
            x->next = g > 0 ? s + (ptrdiff_t)((g - 1) & 1) * BLOCK_SIZE : NULL;
            block_products(own, 0, steps, keys, queries, between_both, x);
        } else if (g >= LAG) {
            block_products(own, 0, steps, keys, queries, between_weights, x);
        } else {
            block_products(own, 0, steps, keys, queries, between_nothing, NULL);
        }
        finish_scores(run, c, g, own);
    }
    if (!online)
        return;
    x->next = s + (ptrdiff_t)((c->n - 1) & 1) * BLOCK_SIZE;
    for (int u = 0; u < PAIR_OPS; u++)
        take_top(x, u);
    raise_maximum(x, run, o, p, c->n > LAG ? c->n - LAG : 0, factor);
}

/* Weights of the last groups, from group `done` on. */
typedef struct {
    weights *x;
    const float *s;
    uint16_t *p;
    int done;
} rest;

VINLINE void weigh_rest(const rest *r, int group, int part)
{
    r->x->s = r->s + (ptrdiff_t)(group & 1) * BLOCK_SIZE;
    r->x->p = r->p + (ptrdiff_t)group * BLOCK_SIZE;
    VUNROLL
    for (int u = 0; u < PAIR_OPS / PARTS; u++)
        weigh(r->x, part * (PAIR_OPS / PARTS) + u);
}

PRODUCTS void between_rest(void *user, int i, int n, int part)
{
    const rest *r = user;
    (void)n;
    if (i < LAG)
        weigh_rest(r, r->done + i, part);
}

/* O^T += V^T P, 32 dimensions at a time. Weights of the last groups are computed beside the first
 * products, before they are wanted where there are enough of these. */
PRODUCTS void add_values(const int steps, const tile_run *run, const chunk *c, int first, float *o,
                         weights *x)
{
    const operand p = {.base = run->w->p, .step = BLOCK_SIZE};
    rest r = {x, run->w->s, run->w->p, c->n > LAG ? c->n - LAG : 0};
    const int beside = c->n >= 2 * LAG;
    for (int g = r.done; !beside && g < c->n; g++)
        for (int part = 0; part < PARTS; part++)
            weigh_rest(&r, g, part);
    for (int d = 0; d < steps; d++) {
        const operand v = {.list = c->v, .step = (ptrdiff_t)d * BLOCK_SIZE};
        float *out = o + (ptrdiff_t)d * BLOCK_SIZE;
        if (d == 0 && beside)
            block_products(out, !first, c->n, v, p, between_rest, &r);
        else
            block_products(out, !first, c->n, v, p, between_nothing, NULL);
    }
}

/* One chunk for 32 queries. */
PRODUCTS void take_chunk(const int steps, const int online, const tile_run *run, const chunk *c,
                         int block, int first)
{
    tess__bf16_scratch *w = run->w;
    const ptrdiff_t size = (ptrdiff_t)steps * BLOCK_SIZE, at = (ptrdiff_t)block * BLOCK;
    float *o = w->sum + block * size;
    weights x = {.online = online, .scale = vf_set1(run->scale)};
    for (int h = 0; h < 2; h++) {
        x.m[h] = vf_load(w->m + at + (ptrdiff_t)h * 16);
        x.l[h][0] = vf_load(w->l + at + (ptrdiff_t)h * 16);
        x.l[h][1] = (vf){0};
        x.top[h] = vf_set1(-INFINITY);
    }
    if (online && first)
        memset(o, 0, (size_t)size * sizeof *o);
    score_groups(steps, online, run, c, w->q + block * size, o, &x);
    add_values(steps, run, c, first, o, &x);
    for (int h = 0; h < 2; h++) {
        vf_store(w->m + at + (ptrdiff_t)h * 16, x.m[h]);
        vf_store(w->l + at + (ptrdiff_t)h * 16, x.l[h][0] + x.l[h][1]);
    }
}

static void take_all(const tile_run *run, const chunk *c, int first)
{
    const int blocks = (run->t->n + BLOCK - 1) / BLOCK, steps = tess__wide(run->t->dim) / BLOCK;
    for (int b = 0; b < blocks; b++) {
        if (run->online)
            take_chunk(steps, 1, run, c, b, first);
        else if (steps == 2)
            take_chunk(2, 0, run, c, b, first);
        else if (steps == 4)
            take_chunk(4, 0, run, c, b, first);
        else
            take_chunk(steps, 0, run, c, b, first);
    }
}

/* Queries as pairs, and what nothing has been added to. */
static void start(const tess__attn_tile *t, float m, tess__bf16_scratch *w)
{
    const int wide = tess__wide(t->dim);
    for (int b = 0; b < t->n; b += BLOCK) {
        const uint16_t *rows[BLOCK];
        const int left = t->n - b < BLOCK ? t->n - b : BLOCK;
        const float *q = (const float *)t->q.data + (t->rows ? 0 : b * t->q.stride);
        stage_rows(rows, w->stage, q, 0, t->q.stride, t->rows ? t->rows + b : NULL, left, t->dim);
        for (int d = 0; d < wide; d += BLOCK)
            block_pairs(w->q + (ptrdiff_t)b * wide + (ptrdiff_t)d * BLOCK, rows, d);
    }
    for (int q = 0; q < t->n; q += BLOCK)
        for (int i = q; i < q + BLOCK; i++) {
            w->m[i] = m;
            w->l[i] = 0.0f;
        }
}

/* Chunks of keys that are floats: virtual keys. */
static void take_extra(tile_run *run, const tess__bf16_extra *extra, int first)
{
    const tess__attn_tile *t = run->t;
    tess__bf16_scratch *w = run->w;
    const int wide = tess__wide(t->dim);
    const ptrdiff_t size = (ptrdiff_t)BLOCK * wide;
    chunk c = {.keys = extra->n, .n = (extra->n + BLOCK - 1) / BLOCK};
    c.left = extra->n - (c.n - 1) * BLOCK;
    for (int g = 0; g < c.n; g++) {
        const uint16_t *rows[BLOCK];
        const int left = g == c.n - 1 ? c.left : BLOCK;
        const ptrdiff_t from = (ptrdiff_t)g * BLOCK * wide;
        stage_rows(rows, w->stage, extra->k + from, 0, wide, NULL, left, t->dim);
        for (int d = 0; d < wide; d += BLOCK)
            block_rows(w->gathered + g * size + (ptrdiff_t)d * BLOCK, rows, d);
        stage_rows(rows, w->stage, extra->v + from, 0, wide, NULL, left, t->dim);
        for (int d = 0; d < wide; d += BLOCK)
            block_columns(w->gathered + (TESS_BF16_CHUNK + g) * size + (ptrdiff_t)d * BLOCK, rows,
                          d);
        c.k[g] = w->gathered + g * size;
        c.v[g] = w->gathered + (TESS_BF16_CHUNK + g) * size;
    }
    run->bias = extra->bias;
    take_all(run, &c, first);
}

static void finish(const tess__attn_fwd *job, int any, tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    const int wide = tess__wide(t->dim);
    float factor[BLOCK];
    for (int b = 0; b < t->n; b += BLOCK) {
        const int n = t->n - b < BLOCK ? t->n - b : BLOCK;
        for (int i = 0; i < n; i++) {
            const float l = w->l[b + i];
            factor[i] = l != 0.0f ? 1.0f / l : 0.0f;
            if (job->lse)
                job->lse[tess__query_row(t, b + i)] =
                    l != 0.0f ? (w->m[b + i] + log2f(l)) * (float)M_LN2 : -INFINITY;
        }
        for (int i = n; i < BLOCK; i++)
            factor[i] = 0.0f;
        float *rows = t->rows ? (float *)w->s : job->o + b * job->stride_o;
        for (int d = 0; d < t->dim; d += BLOCK) {
            const float *x = w->sum + (ptrdiff_t)b * wide + (ptrdiff_t)d * BLOCK;
            const int left = t->dim - d < BLOCK ? t->dim - d : BLOCK;
            if (!any)
                memset(w->sum + (ptrdiff_t)b * wide + (ptrdiff_t)d * BLOCK, 0,
                       BLOCK_SIZE * sizeof *x);
            block_transposed(t->rows ? rows : rows + d, t->rows ? BLOCK : job->stride_o, x, factor,
                             n, left);
            for (int i = 0; t->rows && i < n; i++)
                memcpy(job->o + t->rows[b + i] * job->stride_o + d, rows + (ptrdiff_t)i * BLOCK,
                       (size_t)left * sizeof *rows);
        }
    }
}

void TESS_K(tess__bf16_forward)(const tess__attn_fwd *job, const tess__bf16_keys *keys,
                                const tess__bf16_extra *extra, tess__bf16_scratch *w)
{
    const tess__attn_tile *t = &job->tile;
    tile_run run = {.t = t, .w = w, .scale = t->scale * (float)M_LOG2E, .online = !keys->bounded};
    tess__key_cursor at = chunk_start(&t->keys);
    int first = 1;
    chunk c;
    products_begin();
    start(t, run.online ? M_START : 0.0f, w);
    for (chunk_next(&c, t, keys, 0, &at, w); c.n > 0; chunk_next(&c, t, keys, 0, &at, w)) {
        take_all(&run, &c, first);
        first = 0;
    }
    if (extra && extra->n > 0) {
        take_extra(&run, extra, first);
        first = 0;
    }
    finish(job, !first, w);
    products_end();
}
