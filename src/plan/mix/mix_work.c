/* SPDX-License-Identifier: Apache-2.0 */
/* mix_work.c - the time of a clip, and where cuts of it lie.
 *
 *   linear      tokens x time of a token
 *   attention   sum over heads of (density tokens^2 x time of a pair + tokens x time of a row)
 *
 * Attention is a line of places, head by head and query block by query block; linear layers are a
 * line of tokens. A cut of the clip cuts both at the same fraction of their time. Places are
 * coarse, a query block of one head, so the token of the cut makes up for their rounding: a part
 * has the time it was asked for within one token, as long as it has tokens to give.
 */
#include "mix_internal.h"

tess__mix_work tess__mix_work_of(const tess__mix_rules *rules, const tess_mix_clip *clip,
                                 double *heads)
{
    const double tokens = (double)clip->tokens, pairs = tokens * tokens;
    const int32_t blocks = (int32_t)((clip->tokens + rules->group - 1) / rules->group);
    tess__mix_work w = {.tokens = clip->tokens,
                        .linear = tokens * rules->token,
                        .blocks = blocks,
                        .places = (int64_t)blocks * rules->heads};
    if (clip->heads) {
        heads[0] = 0.0;
        for (int h = 0; h < rules->heads; h++)
            heads[h + 1] = heads[h] + clip->heads[h] * pairs * rules->pair + tokens * rules->row;
        w.prefix = heads;
        w.attention = heads[rules->heads];
    } else {
        w.attention = (clip->density * pairs * rules->pair + tokens * rules->row) * rules->heads;
    }
    w.total = w.linear + w.attention;
    return w;
}

/* Rows of a head before block `block`. */
static int64_t head_rows(const tess__mix_rules *rules, const tess__mix_work *work, int64_t block)
{
    return TESS_MIN(block * rules->group, work->tokens);
}

int64_t tess__mix_rows(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place)
{
    return place / work->blocks * work->tokens + head_rows(rules, work, place % work->blocks);
}

int64_t tess__mix_rows_of(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place,
                          int64_t begin, int64_t end)
{
    const int64_t rows = head_rows(rules, work, place % work->blocks);
    return place / work->blocks * (end - begin) + TESS_MAX(TESS_MIN(rows, end) - begin, 0);
}

double tess__mix_before(const tess__mix_rules *rules, const tess__mix_work *work, int64_t place)
{
    const int64_t head = place / work->blocks;
    const double part = (double)head_rows(rules, work, place % work->blocks) / (double)work->tokens;
    if (!work->prefix)
        return ((double)head + part) * (work->attention / rules->heads);
    return work->prefix[head] +
           (part > 0.0 ? part * (work->prefix[head + 1] - work->prefix[head]) : 0.0);
}

/* The place nearest to a time of attention. */
static int64_t place_at(const tess__mix_rules *rules, const tess__mix_work *work, double time)
{
    int64_t head = 0;
    double begin = 0.0, whole;
    if (work->prefix) {
        int64_t high = rules->heads; /* the last head that does not begin after the time */
        while (high - head > 1) {
            const int64_t middle = head + (high - head) / 2;
            if (work->prefix[middle] <= time)
                head = middle;
            else
                high = middle;
        }
        begin = work->prefix[head];
        whole = work->prefix[head + 1] - begin;
    } else {
        whole = work->attention / rules->heads;
        head = whole > 0.0 ? TESS_MIN((int64_t)(time / whole), rules->heads - 1) : 0;
        begin = whole * (double)head;
    }
    double part = whole > 0.0 ? (time - begin) / whole : 1.0;
    part = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
    const int64_t block = (int64_t)(part * (double)work->tokens / (double)rules->group + 0.5);
    return head * work->blocks + TESS_MIN(block, (int64_t)work->blocks);
}

void tess__mix_cut(const tess__mix_rules *rules, const tess__mix_work *work, double time,
                   int64_t *token, int64_t *place)
{
    const double fraction = work->total > 0.0 ? time / work->total : 0.0;
    const int64_t nearest = place_at(rules, work, fraction * work->attention);
    *place = TESS_MAX(*place, TESS_MIN(nearest, work->places));
    const double left = time - tess__mix_before(rules, work, *place);
    const double tokens = left > 0.0 ? left / rules->token + 0.5 : 0.0;
    const int64_t at = tokens < (double)work->tokens ? (int64_t)tokens : work->tokens;
    *token = TESS_MAX(*token, at);
}
