/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c - the word a mistyped one was meant to be, for "did you mean" in error sentences.
 *
 * Edits are counted by optimal string alignment: inserting, dropping or replacing a character and
 * swapping two neighbours cost one each; the case of ASCII letters costs nothing. Three rows of the
 * table are kept:
 *
 *   d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a_i != b_j),
 *                 d[i-2][j-2] + 1 where a_i = b_(j-1) and a_(i-1) = b_j)
 *
 * Cost: length * length per candidate, and nothing for one whose length alone rules it out.
 */
#include "base_internal.h"

#include "tessera/advanced/nearest.h"

#include <string.h>

enum { WORD_MAX = 64 };

static int fold(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static int min2(int a, int b)
{
    return TESS_MIN(a, b);
}

/* Edits between a and b, both at most WORD_MAX long. */
static int edits(const char *a, int na, const char *b, int nb)
{
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= nb; j++)
        above[j] = before[j] = j;
    for (int i = 1; i <= na; i++) {
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            const int differ = fold(a[i - 1]) != fold(b[j - 1]);
            row[j] = min2(min2(above[j], row[j - 1]) + 1, above[j - 1] + differ);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]))
                row[j] = min2(row[j], before[j - 2] + 1);
        }
        int *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[nb];
}

const char *tess_nearest(const char *word, const char *const *candidates, int n)
{
    if (!word || !candidates)
        return NULL;
    const size_t length = strnlen(word, WORD_MAX + 1);
    if (length == 0 || length > WORD_MAX)
        return NULL;

    const char *best = NULL;
    int best_edits = WORD_MAX;
    for (int i = 0; i < n; i++) {
        const size_t other = candidates[i] ? strnlen(candidates[i], WORD_MAX + 1) : 0;
        if (other == 0 || other > WORD_MAX)
            continue;
        /* A third of the longer word may be wrong; in a word of one letter nothing is left to
         * recognise. */
        const int longer = (int)TESS_MAX(length, other);
        const int shorter = (int)(length + other) - longer;
        const int allowed = longer < 2 ? 0 : longer < 6 ? 1 : longer / 3;
        if (longer - shorter > allowed)
            continue;
        const int count = edits(word, (int)length, candidates[i], (int)other);
        if (count <= allowed && count < best_edits) {
            best = candidates[i];
            best_edits = count;
        }
    }
    return best;
}
