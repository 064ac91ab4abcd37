/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - a number that depends on every byte, to see whether two things are the same.
 *
 * Words of 8 bytes by the finaliser of splitmix64; what is left over, and the length, at the end.
 * Not for enemies: who wants two things of one number can make them.
 */
#include "base_internal.h"

#include <string.h>

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

uint64_t tess__hash(uint64_t before, const void *data, size_t bytes)
{
    const char *at = data;
    uint64_t h = mix(before + 0x9e3779b97f4a7c15u), word;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, at + i, sizeof word);
        h = mix(h + word + 0x9e3779b97f4a7c15u);
    }
    word = 0;
    memcpy(&word, at + (bytes & ~(sizeof word - 1)), bytes % sizeof word);
    return mix(mix(h + word) + bytes);
}
