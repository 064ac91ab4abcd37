/* SPDX-License-Identifier: Apache-2.0 */
/* judge_table.c - the usual mistakes, each as a computation of its own.
 *
 * A mistake sets its variant and its sentence; what it has to do with the files is asked first, so
 * that one which changes nothing is left out.
 */
#include "judge_mistakes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FORWARD = 1U << JUDGE_O | 1U << JUDGE_LSE,
    SCORES = 1U << JUDGE_DQ | 1U << JUDGE_DK,
    KEYS = 1U << JUDGE_DK | 1U << JUDGE_DV,
    GRADIENTS = SCORES | KEYS,
    EVERYTHING = FORWARD | GRADIENTS,
};

static const int tiles[] = {16, 32, 64, 128, 256};
enum { N_TILES = sizeof tiles / sizeof *tiles };

/* ---- memory ---------------------------------------------------------------------------------- */

tess_status judge_scratch_make(const judge *j, judge_scratch *s)
{
    const size_t n = (size_t)j->batch * (size_t)j->heads_k * (size_t)j->tokens_k * (size_t)j->dim;
    s->dense = (judge_keys){.tokens_q = j->tokens_q, .tokens_k = j->tokens_k, .heads = j->heads};
    s->has_transposed = judge_keys_transpose(&j->keys, j->batch, &s->transposed, s->made) == 0;
    s->is_padding = judge_keys_padding(&j->keys, j->batch);
    s->k = malloc(n * sizeof *s->k);
    s->v = malloc(n * sizeof *s->v);
    return s->k && s->v ? TESS_OK : out_fail(j->c, TESS_ENOMEM, "no memory for other keys");
}

void judge_scratch_free(judge_scratch *s)
{
    free(s->made[0]);
    free(s->made[1]);
    free(s->k);
    free(s->v);
}

judge_variant judge_right(const judge *j)
{
    return (judge_variant){.scale = j->scale,
                           .q = j->in[JUDGE_Q].data,
                           .k = j->in[JUDGE_K].data,
                           .v = j->in[JUDGE_V].data,
                           .keys = &j->keys};
}

/* ---- the scale ------------------------------------------------------------------------------- */

static int set_scale(const judge *j, judge_try *t, double scale)
{
    if (fabs(scale / t->variant.scale - 1) < 1e-12 || t->variant.scale != j->scale)
        return 0;
    t->variant.scale = scale;
    return 1;
}

static int scale_missing(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s, (void)param;
    snprintf(t->text, sizeof t->text, "the scale is missing: scores are q.k instead of %.4g q.k",
             j->scale);
    return set_scale(j, t, 1);
}

static int scale_twice(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s, (void)param;
    snprintf(t->text, sizeof t->text, "the scale %.4g is applied twice", j->scale);
    return set_scale(j, t, j->scale * j->scale);
}

static int scale_other(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    int padded = 1;
    while (padded < j->dim)
        padded *= 2;
    const struct {
        double value;
        const char *what;
    } scales[] = {{1 / sqrt(j->dim), "1 / sqrt(head_dim)"},
                  {1.0 / j->dim, "1 / head_dim"},
                  {1 / sqrt(padded), "that of a head_dim padded to a power of two"},
                  {sqrt(j->dim), "sqrt(head_dim)"},
                  {1 / sqrt((double)j->dim * j->heads), "1 / sqrt(heads head_dim)"},
                  {1 / sqrt((double)j->tokens_k), "1 / sqrt(keys)"}};
    snprintf(t->text, sizeof t->text, "the scale is wrong: %.4g, %s, instead of %.4g",
             scales[param].value, scales[param].what, j->scale);
    return set_scale(j, t, scales[param].value);
}

static int base_wrong(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    snprintf(t->text, sizeof t->text, "%s",
             param ? "the scale has the factor log2(e), but the softmax is in base e"
                   : "the softmax is in base 2 without the factor log2(e)");
    return set_scale(j, t, param ? j->scale / M_LN2 : j->scale * M_LN2);
}

/* ---- which keys ------------------------------------------------------------------------------ */

static int is_masked(const judge *j)
{
    return j->keys.mask || j->keys.offsets;
}

static int mask_ignored(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)param;
    t->variant.keys = &s->dense;
    snprintf(t->text, sizeof t->text, "%s",
             s->is_padding ? "padding is attended to: the mask of the keys is not applied"
                           : "the selection is ignored: every query attends to all keys");
    return is_masked(j);
}

static int mask_transposed(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)param;
    t->variant.keys = &s->transposed;
    snprintf(t->text, sizeof t->text,
             "the %s transposed: query i attends to key j where query j should attend to key i",
             j->keys.mask ? "mask is" : "lists are");
    return s->has_transposed;
}

static int mask_inverted(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)param;
    s->changed = j->keys;
    s->changed.inverted = 1;
    t->variant.keys = &s->changed;
    snprintf(t->text, sizeof t->text, "the %s inverted: the keys left out are attended to",
             j->keys.mask ? "mask is" : "selection is");
    return is_masked(j);
}

static int lists_padded(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    s->changed = j->keys;
    s->changed.pad = param ? PAD_LAST : PAD_FIRST;
    t->variant.keys = &s->changed;
    snprintf(t->text, sizeof t->text,
             "padding is attended to: short lists are filled up with %s, which counts again",
             param ? "their last unit" : "unit 0");
    return j->keys.offsets != NULL;
}

static int causal(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)param;
    s->changed = j->keys;
    s->changed.causal = 1;
    t->variant.keys = &s->changed;
    snprintf(t->text, sizeof t->text, "a causal mask is applied: query i attends to keys 0..i");
    return j->tokens_q > 1;
}

static int zeros_attended(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    const int64_t tile = tiles[param], rest = j->tokens_k % tile;
    t->variant.zeros = tile - rest;
    snprintf(t->text, sizeof t->text,
             "padding is attended to: %lld rows of zeros behind the %lld keys, up to a multiple of "
             "%lld",
             (long long)(tile - rest), (long long)j->tokens_k, (long long)tile);
    return rest != 0;
}

static int tail_dropped(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    const int64_t tile = tiles[param], rest = j->tokens_k % tile;
    s->changed = j->keys;
    s->changed.limit = j->tokens_k - rest;
    t->variant.keys = &s->changed;
    snprintf(t->text, sizeof t->text,
             "the last %lld keys are left out: %lld is not a multiple of %lld", (long long)rest,
             (long long)j->tokens_k, (long long)tile);
    return rest != 0 && rest != j->tokens_k;
}

/* ---- which rows of k and v ------------------------------------------------------------------- */

static int old_keys(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    static const char *const what[] = {
        "stale keys: k is that of --old-k", "stale keys and values: those of --old-k and --old-v",
        "stale values: v is that of --old-v", "stale keys: the last row of k is that of --old-k"};
    const double *k = j->in[JUDGE_OLD_K].data, *v = j->in[JUDGE_OLD_V].data;
    snprintf(t->text, sizeof t->text, "%s", what[param]);
    if ((param != 2 && !k) || ((param == 1 || param == 2) && !v))
        return 0;
    if (param == 3) {
        const int64_t head = j->tokens_k * j->dim, n = j->batch * (int64_t)j->heads_k;
        memcpy(s->k, j->in[JUDGE_K].data, (size_t)(n * head) * sizeof *s->k);
        for (int64_t h = 0; h < n; h++)
            memcpy(s->k + (h + 1) * head - j->dim, k + (h + 1) * head - j->dim,
                   (size_t)j->dim * sizeof *k);
        k = s->k;
    }
    t->variant.k = param == 2 ? t->variant.k : k;
    t->variant.v = param == 1 || param == 2 ? v : t->variant.v;
    return 1;
}

/* Row i of a head from row i - by; rows without one are their own, or come from the other end. */
static void shift_rows(const judge *j, double *to, const double *from, int64_t by, int wrap)
{
    const int64_t rows = j->tokens_k, dim = j->dim;
    for (int64_t i = 0; i < j->batch * j->heads_k * rows; i++) {
        int64_t row = i % rows - by;
        if (row < 0 || row >= rows)
            row = wrap ? (row + rows) % rows : i % rows;
        memcpy(to + i * dim, from + (i - i % rows + row) * dim, (size_t)dim * sizeof *to);
    }
}

/* param: 4 for each distance: keys, keys round the end, values, both. */
static int shifted(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    static const int distances[] = {1, -1, 8, 16, 32, 64, 128, 256};
    const int by = distances[param / 4], kind = param % 4, wrap = kind == 1;
    static const char *const what[] = {"stale keys: k is", "stale keys: k is", "stale values: v is",
                                       "stale keys and values: k and v are"};
    snprintf(t->text, sizeof t->text, "%s read %d row%s too %s%s", what[kind], by < 0 ? -by : by,
             by == 1 || by == -1 ? "" : "s", by > 0 ? "early" : "late",
             wrap ? ", round the end" : "");
    if (j->tokens_k <= abs(by))
        return 0;
    if (kind != 2) {
        shift_rows(j, s->k, j->in[JUDGE_K].data, by, wrap);
        t->variant.k = s->k;
    }
    if (kind >= 2) {
        shift_rows(j, s->v, j->in[JUDGE_V].data, by, wrap);
        t->variant.v = s->v;
    }
    return 1;
}

/* Heads of k and v in another order: `from` for each (batch, head). */
static void move_heads(const judge *j, double *to, const double *from, int how)
{
    const int64_t head = j->tokens_k * j->dim;
    const int heads = j->heads_k;
    for (int b = 0; b < j->batch; b++)
        for (int h = 0; h < heads; h++) {
            const int at = how == 0   ? (h > 0 ? h - 1 : 0)
                           : how == 1 ? (h + heads - 1) % heads
                           : how == 2 ? (h + 1) % heads
                           : how == 3 ? heads - 1 - h
                           : how == 4 ? 0
                                      : h;
            const int batch = how == 5 ? 0 : how == 6 ? (b > 0 ? b - 1 : 0) : b;
            memcpy(to + ((int64_t)b * heads + h) * head,
                   from + ((int64_t)batch * heads + at) * head, (size_t)head * sizeof *to);
        }
}

/* param: 2 for each order: keys alone, keys and values. */
static int heads_moved(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    static const char *const what[] = {
        "of the head before (the first head: its own)",
        "of the head before",
        "of the head behind",
        "of the heads in reverse order",
        "of head 0 in every head",
        "of batch 0 in every batch",
        "of the batch before",
    };
    const int how = param / 2, both = param % 2;
    snprintf(t->text, sizeof t->text, "%s: %s %s", both ? "wrong head order" : "stale keys",
             both ? "k and v are those" : "k is that", what[how]);
    if (how >= 5 ? j->batch < 2 : j->heads_k < 2)
        return 0;
    move_heads(j, s->k, j->in[JUDGE_K].data, how);
    t->variant.k = s->k;
    if (both) {
        move_heads(j, s->v, j->in[JUDGE_V].data, how);
        t->variant.v = s->v;
    }
    return 1;
}

static int heads_interleaved(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s, (void)param;
    t->variant.interleaved = 1;
    snprintf(t->text, sizeof t->text,
             "wrong head order: head h of q reads head h %% %d of k and v instead of h / %d",
             j->heads_k, j->heads / j->heads_k);
    return j->heads_k > 1 && j->heads > j->heads_k;
}

static int roles_swapped(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    if (param == 0) {
        t->variant.k = j->in[JUDGE_V].data;
        t->variant.v = j->in[JUDGE_K].data;
    } else {
        t->variant.q = j->in[JUDGE_K].data;
        t->variant.k = j->in[JUDGE_Q].data;
    }
    snprintf(t->text, sizeof t->text, "%s are exchanged", param ? "q and k" : "k and v");
    return param == 0 || (j->heads == j->heads_k && j->tokens_q == j->tokens_k);
}

/* ---- formulas -------------------------------------------------------------------------------- */

static const struct {
    unsigned wrong, outputs;
    const char *text;
} formulas[] = {
    {WRONG_LSE_BASE2, 1U << JUDGE_LSE, "lse is in base 2: it is the natural one / ln 2"},
    {WRONG_LSE_MAX, 1U << JUDGE_LSE, "lse is the largest score alone, without the log of the sum"},
    {WRONG_LSE_SUM, 1U << JUDGE_LSE, "lse is the log of the sum without the largest score"},
    {WRONG_O_SUM, 1U << JUDGE_O, "o is not divided by the sum of the softmax"},
    {WRONG_DS_UNSCALED, SCORES,
     "right only at scale 1: the gradient of the scores is not multiplied by the scale"},
    {WRONG_DS_TWICE, SCORES, "the gradient of the scores is multiplied by the scale twice"},
    {WRONG_P_UNSCALED, GRADIENTS,
     "right only at scale 1: backward recomputes p = exp(q.k - lse) without the scale"},
    {WRONG_P_UNSCALED | WRONG_DS_UNSCALED, GRADIENTS,
     "right only at scale 1: neither p nor the gradient of the scores has the scale in backward"},
    {WRONG_DELTA, SCORES, "delta = sum(do * o) is not subtracted: ds = p dp"},
    {WRONG_DELTA | WRONG_DS_UNSCALED, SCORES,
     "delta = sum(do * o) is not subtracted, and the gradient of the scores lacks the scale"},
    {WRONG_P_SUM, GRADIENTS, "p is not normalised in backward: p = exp(s - max)"},
    {WRONG_P_BASE2, GRADIENTS, "a base-2 lse is used as a natural one: p = exp(s - lse / ln 2)"},
};
enum { N_FORMULAS = sizeof formulas / sizeof *formulas };

static int formula(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    const unsigned wrong = formulas[param].wrong;
    t->variant.wrong |= wrong;
    t->outputs = formulas[param].outputs;
    snprintf(t->text, sizeof t->text, "%s", formulas[param].text);
    return j->scale != 1 || !(wrong & (WRONG_DS_UNSCALED | WRONG_DS_TWICE | WRONG_P_UNSCALED));
}

static int backward_unmasked(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)param;
    t->variant.wrong |= WRONG_P_ALL;
    snprintf(t->text, sizeof t->text, "%s in backward, whose p = exp(s - lse) is of all keys",
             s->is_padding ? "padding is attended to" : "the selection is ignored");
    return is_masked(j);
}

static int heads_not_summed(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    t->variant.wrong |= param ? WRONG_HEAD_MEAN : WRONG_HEAD_LAST;
    snprintf(t->text, sizeof t->text,
             "%s over the %d heads of q that share a head of k, instead of the sum",
             param ? "the mean" : "the last one", j->heads / j->heads_k);
    return j->heads > j->heads_k;
}

static int last_tile(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    const int64_t tile = tiles[param], rest = j->tokens_q % tile;
    t->variant.last_rows = rest ? rest : tile;
    snprintf(t->text, sizeof t->text,
             "gradients of the last %lld queries alone: tiles of %lld overwrite instead of adding",
             (long long)t->variant.last_rows, (long long)tile);
    return j->tokens_q > tile;
}

/* ---- reading a tensor ------------------------------------------------------------------------ */

static int layout_exchanged(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s, (void)param;
    t->reading.other_layout = 1;
    snprintf(t->text, sizeof t->text,
             "the data are in the order %s under a shape of %s: reshaped instead of transposed",
             j->shd ? "heads, tokens" : "tokens, heads",
             j->shd ? "tokens, heads" : "heads, tokens");
    return j->heads > 1;
}

static int gradients_swapped(const judge *j, judge_scratch *s, int param, judge_try *t)
{
    (void)s;
    static const int pairs[][2] = {
        {JUDGE_DK, JUDGE_DV}, {JUDGE_DV, JUDGE_DK}, {JUDGE_DQ, JUDGE_DK}, {JUDGE_DK, JUDGE_DQ}};
    const int of = pairs[param][0], is = pairs[param][1];
    t->outputs = 1U << of;
    t->reading.data = j->out[is].data;
    snprintf(t->text, sizeof t->text, "%s and %s are exchanged", judge_out_names[of],
             judge_out_names[is]);
    return j->out[of].data && j->out[is].data &&
           (param < 2 || (j->heads == j->heads_k && j->tokens_q == j->tokens_k));
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    int (*make)(const judge *j, judge_scratch *s, int param, judge_try *t);
    int params;
    unsigned outputs;
    int stacks; /* 1: may come on top of another one */
} mistakes[] = {
    {scale_missing, 1, EVERYTHING, 0},
    {scale_twice, 1, EVERYTHING, 0},
    {scale_other, 6, EVERYTHING, 0},
    {base_wrong, 2, EVERYTHING, 0},
    {mask_ignored, 1, EVERYTHING, 0},
    {mask_transposed, 1, EVERYTHING, 0},
    {mask_inverted, 1, EVERYTHING, 0},
    {lists_padded, 2, EVERYTHING, 0},
    {zeros_attended, N_TILES, EVERYTHING, 0},
    {tail_dropped, N_TILES, EVERYTHING, 0},
    {old_keys, 4, EVERYTHING, 0},
    {formula, N_FORMULAS, 0, 1},
    {backward_unmasked, 1, GRADIENTS, 1},
    {heads_not_summed, 2, KEYS, 1},
    {last_tile, N_TILES, KEYS, 1},
    {layout_exchanged, 1, EVERYTHING, 0},
    {gradients_swapped, 4, 0, 0},
    {heads_interleaved, 1, EVERYTHING, 0},
    {heads_moved, 14, EVERYTHING, 0},
    {shifted, 32, EVERYTHING, 0},
    {causal, 1, EVERYTHING, 0},
    {roles_swapped, 2, EVERYTHING, 0},
};

int judge_mistake(const judge *j, judge_scratch *s, int index, int stacked, judge_try *t)
{
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        if (index < mistakes[i].params) {
            t->outputs = mistakes[i].outputs;
            return stacked && !mistakes[i].stacks ? 0 : mistakes[i].make(j, s, index, t);
        }
        index -= mistakes[i].params;
    }
    return -1;
}
