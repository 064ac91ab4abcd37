/* SPDX-License-Identifier: Apache-2.0 */
/* activity_names.c - names of kernels, each stored once: a table of hashes with open addressing,
 * at most half full. A name of 1000 bytes and more is cut. */
#include "activity_internal.h"

#include <string.h>

enum { FIRST_SLOTS = 256, NAME_BYTES = 1000 };

static void insert(tess__act_names *t, int64_t number)
{
    uint64_t at = t->items[number].hash & (uint64_t)(t->slots - 1);
    while (t->table[at])
        at = (at + 1) & (uint64_t)(t->slots - 1);
    t->table[at] = (int32_t)number + 1;
}

static tess_status widen(tess_ctx *ctx, tess__act_names *t)
{
    const int64_t slots = t->slots ? 2 * t->slots : FIRST_SLOTS;
    int32_t *table = TESS_ALLOC_ZERO(ctx, (size_t)slots * sizeof *table);
    tess__free(ctx, t->table);
    t->table = table;
    t->slots = slots;
    for (int64_t i = 0; i < t->n; i++)
        insert(t, i);
    return TESS_OK;
}

static tess_status append(tess_activity *f, tess__json_slice name, uint64_t hash)
{
    tess__act_names *t = &f->names;
    char text[NAME_BYTES + 1];
    if (2 * (t->n + 1) > t->slots)
        TESS_TRY(widen(f->ctx, t));
    TESS_GROW(f->ctx, t->items, t->n, t->n + 1, t->room);
    const size_t n = tess__json_slice_text(name, text, sizeof text);
    tess__act_name item = {.raw_bytes = name.length, .hash = hash};
    item.raw = TESS_TAKE_STRING(&f->arena, name.text, name.length);
    item.text = TESS_TAKE_STRING(&f->arena, text, n);
    item.kernel_class = (uint8_t)tess__kernel_class_of(text);
    t->items[t->n] = item;
    insert(t, t->n++);
    return TESS_OK;
}

tess_status tess__act_name_add(tess_activity *f, tess__json_slice name, int32_t *number)
{
    tess__act_names *t = &f->names;
    name.length = TESS_MIN(name.length, (size_t)NAME_BYTES);
    const uint64_t hash = tess__hash(0, name.text, name.length);
    for (uint64_t at = hash & (uint64_t)(t->slots - 1); t->slots && t->table[at];
         at = (at + 1) & (uint64_t)(t->slots - 1)) {
        const tess__act_name *item = &t->items[t->table[at] - 1];
        if (item->hash == hash && item->raw_bytes == name.length &&
            memcmp(item->raw, name.text, name.length) == 0) {
            *number = t->table[at] - 1;
            return TESS_OK;
        }
    }
    TESS_TRY(append(f, name, hash));
    *number = (int32_t)t->n - 1;
    return TESS_OK;
}
