/* SPDX-License-Identifier: Apache-2.0 */
/* judge_compare.c - a row of a tensor against the reference: the worst element, and counts. */
#include "judge.h"

#include <math.h>

/* Element c of a row as the reading takes it. */
static double read_one(const judge *j, const judge_reading *g, int output, int64_t b, int64_t h,
                       int64_t row, int c)
{
    const int64_t heads = judge_heads_of(j, output), rows = judge_rows_of(j, output);
    const int width = judge_width(j, output);
    const double *data = g && g->data ? g->data : j->out[output].data;
    if (!g || !g->other_layout)
        return data[((b * heads + h) * rows + row) * width + c];
    /* The file's element at the place that (h, row) has in the other order. The data lie here as
     * (batch, heads, tokens): find the element whose place in the file is that one. */
    const int64_t place = j->shd ? (b * heads + h) * rows + row : (b * rows + row) * heads + h;
    const int64_t inside = place - b * heads * rows;
    const int64_t at_h = j->shd ? inside % heads : inside / rows;
    const int64_t at_row = j->shd ? inside / heads : inside % rows;
    return data[((b * heads + at_h) * rows + at_row) * width + c];
}

void judge_compare(const judge *j, const judge_reading *g, int output, int64_t b, int64_t h,
                   int64_t row, const double *want, const double *allowed, judge_worst *worst)
{
    const int64_t heads = judge_heads_of(j, output), rows = judge_rows_of(j, output);
    const int width = judge_width(j, output);
    const double factor = g && g->factor != 0 ? g->factor : 1;
    double *kept = j->reference[output];
    for (int c = 0; kept && c < width; c++)
        kept[((b * heads + h) * rows + row) * width + c] = want[c];
    for (int c = 0; j->out[output].data && c < width; c++) {
        const double got = read_one(j, g, output, b, h, row, c) / factor;
        const double off = got == want[c] ? 0 : fabs(got - want[c]) / allowed[c];
        const double ratio = isfinite(off) ? off : INFINITY;
        worst->compared++;
        worst->beyond += ratio > 1;
        worst->got_want += isfinite(got) && isfinite(want[c]) ? got * want[c] : 0;
        worst->want_want += isfinite(want[c]) ? want[c] * want[c] : 0;
        if (worst->compared == 1 || ratio > worst->ratio) {
            worst->ratio = ratio;
            worst->got = got;
            worst->want = want[c];
            worst->allowed = allowed[c];
            worst->batch = b;
            worst->head = h;
            worst->row = row;
            worst->column = c;
        }
    }
}

void judge_merge(judge_worst *to, const judge_worst *from)
{
    const judge_worst before = *to;
    if (before.compared == 0 || (from->compared > 0 && from->ratio > before.ratio))
        *to = *from;
    to->compared = before.compared + from->compared;
    to->beyond = before.beyond + from->beyond;
    to->got_want = before.got_want + from->got_want;
    to->want_want = before.want_want + from->want_want;
}
