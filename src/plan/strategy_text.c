/* SPDX-License-Identifier: Apache-2.0 */
/* strategy_text.c - the text of a strategy: the one writer and the one reader.
 *
 *   auto                       the planner chooses
 *   fractional                 heads cut between ranks
 *   fractional U8 x R4         inside of 4 nodes of 8, a ring (C: selected keys) between nodes
 *   refined U4 x R2            method, head groups x ranks of a ring
 *   db-sp U2 x C4              head groups x selective ranks
 *   lpt U4 x R2 sequence-inside   the placement, where it is not heads-inside
 *
 * The reader also takes what is quicker to type: a method alone (heads over all ranks), ring and
 * selective (the sequence over all ranks), and degrees of refined heads: 4x2r, 2x4s, 8x1.
 */
#include "strategy_internal.h"

#include "tessera/advanced/nearest.h"

#include <stdlib.h>
#include <string.h>

#define SEQUENCE_INSIDE " sequence-inside"

void tess_strategy_format(const tess_strategy *s, char text[TESS_STRATEGY_TEXT])
{
    const char *method = tess_plan_method_name(s->method);
    const char *inside = s->placement == TESS_PLACE_SEQUENCE_INSIDE ? SEQUENCE_INSIDE : "";
    const int fractional = s->method == TESS_PLAN_FRACTIONAL;
    if (s->ulysses == 0 || (fractional && s->ulysses * s->ring * s->selective == 1))
        snprintf(text, TESS_STRATEGY_TEXT, "%s%s", method ? method : "unknown", inside);
    else
        snprintf(text, TESS_STRATEGY_TEXT, "%s U%d x %c%d%s", method ? method : "unknown",
                 s->ulysses, s->selective > 1 ? 'C' : 'R',
                 s->selective > 1 ? s->selective : s->ring, inside);
}

/* ---- reading --------------------------------------------------------------------------------- */

enum { WORDS_MAX = 3 + TESS_PLAN_METHOD_COUNT };

static tess_status fail_unknown(const char *who, const char *text)
{
    const char *words[WORDS_MAX] = {"auto", "ring", "selective"};
    int n = 3;
    for (int m = TESS_PLAN_CONTIGUOUS; m < TESS_PLAN_METHOD_COUNT; m++)
        words[n++] = tess_plan_method_name((tess_plan_method)m);
    const char *near = tess_nearest(text, words, n);
    if (near)
        return tess__invalid(who, "strategy is \"%.40s\", did you mean %s?", text, near);
    return tess__invalid(who,
                         "strategy is \"%.40s\", must be auto, ring, selective, a method such as "
                         "refined or fractional, or degrees such as 4x2r, 2x4s or 8x1",
                         text);
}

/* A whole number above 0 without sign or zeros before it. */
static const char *read_degree(const char *at, long *degree)
{
    char *end;
    if (!at || *at < '1' || *at > '9')
        return NULL;
    *degree = strtol(at, &end, 10);
    return end;
}

static const char *skip(const char *at, const char *word)
{
    const size_t n = strlen(word);
    return at && strncmp(at, word, n) == 0 ? at + n : NULL;
}

/* "4x2r": 1 if the text has this form. kind is 'r', 's', or 0 without a letter. */
static int read_short(const char *text, long degrees[2], char *kind)
{
    const char *at = read_degree(text, &degrees[0]);
    at = read_degree(skip(at, "x"), &degrees[1]);
    if (!at)
        return 0;
    *kind = *at;
    return *at == '\0' || ((*at == 'r' || *at == 's') && at[1] == '\0');
}

/* " U4 x R2": returns what follows; NULL if the text has another form. */
static const char *read_degrees(const char *at, long degrees[2], char *kind)
{
    at = read_degree(skip(at, " U"), &degrees[0]);
    at = skip(at, " x ");
    if (!at || (*at != 'R' && *at != 'C'))
        return NULL;
    *kind = *at == 'R' ? 'r' : 's';
    return read_degree(at + 1, &degrees[1]);
}

static tess_status set_degrees(const char *who, const char *text, int ranks, const long degrees[2],
                               char kind, tess_strategy *s)
{
    if (degrees[0] > ranks || degrees[1] > ranks || degrees[0] * degrees[1] != ranks)
        return tess__invalid(who,
                             "strategy is \"%.40s\", must be degrees that make %d "
                             "ranks",
                             text, ranks);
    if (degrees[1] > 1 && kind == '\0')
        return tess__invalid(who,
                             "strategy is \"%.40s\", must say what splits the sequence: "
                             "%ldx%ldr, a ring, or %ldx%lds, selective",
                             text, degrees[0], degrees[1], degrees[0], degrees[1]);
    s->ulysses = (int)degrees[0];
    s->ring = kind == 'r' ? (int)degrees[1] : 1;
    s->selective = kind == 's' ? (int)degrees[1] : 1;
    return TESS_OK;
}

/* The method that the text begins with, followed by a space or the end; AUTO: none. */
static tess_plan_method read_method(const char *text, const char **rest)
{
    for (int m = TESS_PLAN_CONTIGUOUS; m < TESS_PLAN_METHOD_COUNT; m++) {
        *rest = skip(text, tess_plan_method_name((tess_plan_method)m));
        if (*rest && (**rest == '\0' || **rest == ' '))
            return (tess_plan_method)m;
    }
    return TESS_PLAN_AUTO;
}

tess_status tess__strategy_parse(const char *who, const char *text, int ranks,
                                 tess_strategy *strategy)
{
    tess_strategy s = {.method = TESS_PLAN_AUTO};
    long degrees[2] = {ranks, 1};
    char kind = '\0';
    const char *rest = "";
    if (!text || strcmp(text, "auto") == 0) {
        *strategy = s;
        return TESS_OK;
    }
    s.method = read_method(text, &rest);
    if (s.method == TESS_PLAN_AUTO) {
        s.method = TESS_PLAN_REFINED;
        rest = "";
        if (strcmp(text, "ring") == 0 || strcmp(text, "selective") == 0) {
            degrees[0] = 1;
            degrees[1] = ranks;
            kind = text[0];
        } else if (!read_short(text, degrees, &kind)) {
            return fail_unknown(who, text);
        }
    } else if (skip(rest, " U")) {
        rest = read_degrees(rest, degrees, &kind);
    } else if (s.method == TESS_PLAN_FRACTIONAL) {
        degrees[0] = ranks = 1;
    }
    if (rest && strcmp(rest, SEQUENCE_INSIDE) == 0)
        s.placement = TESS_PLACE_SEQUENCE_INSIDE;
    else if (!rest || *rest)
        return fail_unknown(who, text);
    TESS_TRY(set_degrees(who, text, ranks, degrees, kind, &s));
    *strategy = s;
    return TESS_OK;
}

tess_status tess_strategy_parse(const char *text, int ranks, tess_strategy *strategy)
{
    TESS_REQUIRE(strategy);
    TESS_TRY(tess__check_range(__func__, "ranks", ranks, 1, TESS_PLAN_RANKS_MAX));
    return tess__strategy_parse(__func__, text, ranks, strategy);
}
