/* SPDX-License-Identifier: Apache-2.0 */
/* judge_mistakes.c - which usual mistake explains a tensor that is off.
 *
 * Each mistake is computed in double precision, with the errors that are allowed, and compared with
 * the tensor: first on some rows, among them the worst one, then on all that were compared before.
 * It explains the tensor if no element is beyond what is allowed. What explains most tensors is
 * reported for all of these; the rest is asked again, alone, then on top of the first: a base-2 lse
 * may come with a missing scale. So the order of the tables decides only between mistakes that are
 * the same computation.
 */
#include "judge_mistakes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ROWS = 24, SAMPLE_HEADS = 3 };
enum { ROWS = 1U << JUDGE_O | 1U << JUDGE_LSE | 1U << JUDGE_DQ };
enum { KEYS = 1U << JUDGE_DK | 1U << JUDGE_DV };

/* ---- trying ---------------------------------------------------------------------------------- */

typedef struct {
    const judge *j;
    const judge_plan *all;
    judge_plan some;
    int heads[SAMPLE_HEADS];
    int64_t rows[SAMPLE_ROWS + JUDGE_OUTPUTS];
    judge_scratch scratch;
} search;

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add_head(search *s, int number)
{
    for (int i = 0; i < s->some.n_heads; i++)
        if (s->heads[i] == number)
            return;
    if (s->some.n_heads < SAMPLE_HEADS)
        s->heads[s->some.n_heads++] = number;
}

/* The heads and rows of the worst elements, and some more; whole heads where dk or dv are off. */
static void make_sample(search *s, const judge_worst worst[JUDGE_OUTPUTS], unsigned off)
{
    const judge *j = s->j;
    const int group = j->heads / j->heads_k, all = j->batch * j->heads_k;
    int64_t n = 0;
    s->some = (judge_plan){.outputs = off, .heads = s->heads};
    for (int o = JUDGE_OUTPUTS - 1; o >= 0; o--)
        if (off >> o & 1) {
            const int64_t head = judge_is_keys(o) ? worst[o].head : worst[o].head / group;
            add_head(s, (int)(worst[o].batch * j->heads_k + head));
            if (!judge_is_keys(o))
                s->rows[n++] = worst[o].row;
        }
    if (off & KEYS)
        s->some.n_whole = s->some.n_heads;
    add_head(s, all - 1);
    add_head(s, 0);
    for (int i = 0; i < SAMPLE_ROWS; i++)
        s->rows[n++] = i * (j->tokens_q - 1) / (SAMPLE_ROWS - 1);
    qsort(s->rows, (size_t)n, sizeof *s->rows, ascending);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || s->rows[i] != s->rows[i - 1])
            s->rows[s->some.n_rows++] = s->rows[i];
    s->some.rows = s->rows;
}

/* Which of the outputs a mistake explains. Where it may explain rows of queries and explains none
 * of them, whole heads are not computed for dk and dv. */
static tess_status explained(const search *s, const judge_try *t, unsigned outputs, unsigned *by)
{
    judge_worst worst[JUDGE_OUTPUTS];
    judge_plan some = s->some, all = *s->all;
    *by = 0;
    some.outputs = outputs;
    if (outputs & ROWS && outputs & KEYS) {
        unsigned rows;
        TRY(explained(s, t, outputs & ROWS, &rows));
        if (rows == 0)
            return TESS_OK;
    }
    if (!(outputs & KEYS))
        some.n_whole = 0;
    TRY(judge_run(s->j, &t->variant, &some, &t->reading, worst));
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        if (outputs >> o & 1 && worst[o].compared > 0 && worst[o].ratio <= 1)
            *by |= 1U << o;
    if (*by == 0)
        return TESS_OK;
    all.outputs = *by;
    TRY(judge_run(s->j, &t->variant, &all, &t->reading, worst));
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        if (*by >> o & 1 && !(worst[o].ratio <= 1))
            *by &= ~(1U << o);
    return TESS_OK;
}

static int count(unsigned bits)
{
    return __builtin_popcount(bits);
}

/* The mistake that explains most of the outputs, on top of a variant; *by: which. */
static tess_status find(search *s, const judge_variant *base, int stacked, unsigned outputs,
                        judge_try *found, unsigned *by)
{
    *by = 0;
    for (int i = 0; count(*by) < count(outputs); i++) {
        judge_try t = {.variant = *base};
        const int made = judge_mistake(s->j, &s->scratch, i, stacked, &t);
        if (made < 0)
            break;
        unsigned mine = 0;
        const unsigned asked = outputs & t.outputs;
        if (made > 0 && count(asked) > count(*by))
            TRY(explained(s, &t, asked, &mine));
        if (count(mine) > count(*by)) {
            *by = mine;
            *found = t;
        }
        if (progress_call(s->j->c, "looking for the mistake", i, 0))
            return TESS_ESTOPPED;
    }
    return TESS_OK;
}

/* ---- a constant factor ----------------------------------------------------------------------- */

static void name_factor(const judge *j, double factor, char *text, size_t bytes)
{
    const struct {
        double value;
        const char *name;
    } known[] = {{-1, "-1"},
                 {j->scale, "the scale"},
                 {1 / j->scale, "1 / scale"},
                 {M_LN2, "ln 2"},
                 {1 / M_LN2, "1 / ln 2"},
                 {j->batch, "the batch"},
                 {1.0 / j->batch, "1 / batch"},
                 {j->heads, "the number of heads"},
                 {1.0 / j->heads, "1 / heads"}};
    snprintf(text, bytes, "%.4g", factor);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(factor / known[i].value - 1) < 1e-3)
            snprintf(text, bytes, "%.4g, %s", factor, known[i].name);
}

static tess_status find_factor(const search *s, const judge_worst *worst, int output, char *text)
{
    const double factor = worst->got_want / worst->want_want;
    if (!isfinite(factor) || factor == 0)
        return TESS_OK;
    judge_try t = {.variant = judge_right(s->j), .reading = {.factor = factor}};
    unsigned by;
    TRY(explained(s, &t, 1U << output, &by));
    char name[80];
    name_factor(s->j, factor, name, sizeof name);
    if (by)
        snprintf(text, JUDGE_TEXT_MAX, "every element is the reference times %s", name);
    return TESS_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void copy_text(char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX], unsigned outputs, const char *first,
                      const char *second)
{
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        if (outputs >> o & 1)
            snprintf(text[o], JUDGE_TEXT_MAX, "%s%s%s", first, *first && *second ? "; and " : "",
                     second);
}

static tess_status explain(search *s, const judge_worst worst[JUDGE_OUTPUTS], unsigned off,
                           char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX])
{
    const judge_variant right = judge_right(s->j);
    judge_try first = {0}, other;
    unsigned by = 1, asked = off;
    while (asked) {
        TRY(find(s, &right, 0, asked, &other, &by));
        copy_text(text, by, "", by ? other.text : "");
        off &= ~by;
        asked = by ? off : asked & ROWS ? off & KEYS : 0; /* dk and dv by themselves at last */
        if (by && !first.text[0] && !other.reading.data && !other.reading.other_layout)
            first = other;
    }
    for (by = first.text[0] != 0; off && by; off &= ~by) {
        TRY(find(s, &first.variant, 1, off, &other, &by));
        copy_text(text, by, first.text, by ? other.text : "");
    }
    for (int o = 0; o < JUDGE_OUTPUTS; o++)
        if (off >> o & 1)
            TRY(find_factor(s, &worst[o], o, text[o]));
    return TESS_OK;
}

tess_status judge_explain(const judge *j, const judge_plan *plan,
                          const judge_worst worst[JUDGE_OUTPUTS], unsigned off,
                          char text[JUDGE_OUTPUTS][JUDGE_TEXT_MAX])
{
    search s = {.j = j, .all = plan};
    make_sample(&s, worst, off);
    tess_status status = judge_scratch_make(j, &s.scratch);
    if (status == TESS_OK)
        status = explain(&s, worst, off, text);
    judge_scratch_free(&s.scratch);
    return status;
}
