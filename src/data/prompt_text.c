/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_text.c - the vectors of a prompt without a text encoder: one frozen random vector per
 * word.
 *
 * A word is lower-cased (ASCII) and hashed by FNV-1a of 64 bits; the hash names a stream of normal
 * numbers, whose first text_dim are the word's vector. Two words share a vector only if their
 * hashes collide, and random vectors of 64 numbers are nearly orthogonal, so that a model can
 * distinguish words without having learned to. The same word is the same vector in every run, on
 * every machine; a longer text_dim continues a shorter one.
 */
#include "data_internal.h"

#include <string.h>

static const uint64_t WORD_SEED = 0x7465737365726121; /* "tessera!" */

static int is_letter(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

/* The hash of the word that *s begins with; *s is moved behind it. */
static uint64_t word_hash(const char **s)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (; is_letter((unsigned char)**s); ++*s) {
        const unsigned char c = (unsigned char)**s;
        hash = (hash ^ (c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c)) * 0x100000001b3;
    }
    return hash;
}

void tess__text_vectors(const char *prompt, int text_len, int text_dim, float *text)
{
    const size_t dim = (size_t)text_dim;
    int row = 0;
    for (const char *s = prompt; row < text_len;) {
        while (*s && !is_letter((unsigned char)*s))
            s++;
        if (!*s)
            break;
        (void)tess_random_normal(WORD_SEED, word_hash(&s), 0, text + (size_t)row * dim, dim);
        row++;
    }
    memset(text + (size_t)row * dim, 0, (size_t)(text_len - row) * dim * sizeof *text);
}

tess_status tess_text_vectors(const char *prompt, int text_len, int text_dim, float *text)
{
    TESS_REQUIRE(prompt, text);
    TESS_TRY(tess__check_least(__func__, "text_len", text_len, 1));
    TESS_TRY(tess__check_least(__func__, "text_dim", text_dim, 1));
    tess__text_vectors(prompt, text_len, text_dim, text);
    return TESS_OK;
}
