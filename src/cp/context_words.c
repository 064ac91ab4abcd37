/* SPDX-License-Identifier: Apache-2.0 */
/* context_words.c - strategies in words.
 *
 *   auto                              free: each layer takes what is predicted to be fastest
 *   contiguous, db-sp, refined, ...   the methods of plan.h: heads over all ranks
 *   fractional                        heads cut between ranks
 *   ring, selective                   the sequence alone is split, heads are not
 *   4x2r, 2x4s, 8x1                   groups of heads x parts of the sequence
 */
#include "context_internal.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 3 + TESS_PLAN_METHOD_COUNT };

/* All words but degrees. */
static int list_words(const char *words[WORDS_MAX])
{
    int n = 0;
    words[n++] = "auto";
    words[n++] = "ring";
    words[n++] = "selective";
    for (int m = TESS_PLAN_CONTIGUOUS; m < TESS_PLAN_METHOD_COUNT; m++)
        words[n++] = tess_plan_method_name((tess_plan_method)m);
    return n;
}

static tess_status fail_word(const char *who, const char *text)
{
    const char *words[WORDS_MAX];
    const char *near = tess_nearest(text, words, list_words(words));
    if (near)
        return tess__fail(TESS_EINVAL, "%s: strategy is \"%.40s\", did you mean %s?", who, text,
                          near);
    return tess__fail(TESS_EINVAL,
                      "%s: strategy is \"%.40s\", must be auto, ring, selective, a method such as "
                      "refined or fractional, or degrees such as 4x2r, 2x4s or 8x1",
                      who, text);
}

/* "4x2r": 1 if it is of this form. */
static int read_degrees(const char *text, long degrees[2], char *kind)
{
    char *end;
    if (*text < '1' || *text > '9')
        return 0;
    degrees[0] = strtol(text, &end, 10);
    if (*end != 'x' || end[1] < '1' || end[1] > '9')
        return 0;
    degrees[1] = strtol(end + 1, &end, 10);
    *kind = *end;
    return *end == '\0' || ((*end == 'r' || *end == 's') && end[1] == '\0');
}

static tess_status set_degrees(const char *who, const char *text, int ranks, const long degrees[2],
                               char kind, tess__strategy *s)
{
    if (degrees[0] > ranks || degrees[1] > ranks || degrees[0] * degrees[1] != ranks)
        return tess__fail(TESS_EINVAL,
                          "%s: strategy is \"%.40s\", must be degrees that make %d "
                          "ranks",
                          who, text, ranks);
    if (degrees[1] > 1 && kind == '\0')
        return tess__fail(TESS_EINVAL,
                          "%s: strategy is \"%.40s\", must say what splits the sequence: "
                          "%ldx%ldr, a ring, or %ldx%lds, selective",
                          who, text, degrees[0], degrees[1], degrees[0], degrees[1]);
    const int parts = (int)degrees[1];
    *s = (tess__strategy){.method = TESS_PLAN_REFINED,
                          .ulysses = (int)degrees[0],
                          .ring = kind == 'r' ? parts : 1,
                          .selective = kind == 's' ? parts : 1};
    return TESS_OK;
}

tess_status tess__strategy_parse(const char *who, const char *text, int ranks,
                                 tess__strategy *strategy)
{
    long degrees[2];
    char kind;
    if (!text || strcmp(text, "auto") == 0) {
        *strategy = (tess__strategy){.method = TESS_PLAN_AUTO};
        return TESS_OK;
    }
    if (read_degrees(text, degrees, &kind))
        return set_degrees(who, text, ranks, degrees, kind, strategy);
    if (strcmp(text, "ring") == 0 || strcmp(text, "selective") == 0)
        return set_degrees(who, text, ranks, (long[2]){1, ranks}, text[0], strategy);
    for (int m = TESS_PLAN_CONTIGUOUS; m < TESS_PLAN_METHOD_COUNT; m++)
        if (strcmp(text, tess_plan_method_name((tess_plan_method)m)) == 0) {
            const int whole = m != TESS_PLAN_FRACTIONAL;
            *strategy = (tess__strategy){.method = (tess_plan_method)m,
                                         .ulysses = whole ? ranks : 0,
                                         .ring = whole,
                                         .selective = whole};
            return TESS_OK;
        }
    return fail_word(who, text);
}

void tess__strategy_words(const tess_plan_layer *layer, char words[TESS_WORDS])
{
    const char *method = tess_plan_method_name(layer->method);
    const int parts = layer->ring * layer->selective;
    if (parts == 1)
        snprintf(words, TESS_WORDS, "%s", method);
    else
        snprintf(words, TESS_WORDS, "%dx%d %s, %s", layer->ulysses, parts,
                 layer->ring > 1 ? "ring" : "selective", method);
}
