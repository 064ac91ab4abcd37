/* SPDX-License-Identifier: Apache-2.0 */
/* case_repeats.c - whether a configuration of a table was there before: a hash table of its cases.
 *
 * Open addressing with linear probing: a slot has the number of a case and 1, or 0. At most half of
 * the slots are used, so that a search takes constant time on average and always ends. A case that
 * was taken back (cases->n fell) leaves its slot: the case that has its number next is found by
 * that slot too, and is compared in full.
 */
#include "case.h"
#include "fields.h"

#include <string.h>

static int same(const tess__case *a, const tess__case *b)
{
    if (a->what != b->what || a->cluster != b->cluster || a->collective.op != b->collective.op ||
        a->collective.bytes != b->collective.bytes || a->collective.gpus != b->collective.gpus ||
        a->collective.per_node != b->collective.per_node || a->product.m != b->product.m ||
        a->product.n != b->product.n || a->product.k != b->product.k ||
        a->product.batch != b->product.batch || a->product.weight != b->product.weight)
        return 0;
    for (int i = 0; i < tess__n_fields; i++)
        if (!tess__field_equal(&a->scenario, &b->scenario, &tess__fields[i]))
            return 0;
    return 1;
}

static uint64_t hash_of(const tess__case *c)
{
    const tess_collective *w = &c->collective;
    const tess__product *p = &c->product;
    const int64_t whole[] = {c->what, c->cluster, w->op, w->bytes, w->gpus, w->per_node, p->weight};
    const double real[] = {p->batch, p->m, p->n, p->k};
    uint64_t hash = tess__hash(tess__hash(0, whole, sizeof whole), real, sizeof real);
    for (int i = 0; i < tess__n_fields; i++) {
        const tess__field *f = &tess__fields[i];
        const char *at = (const char *)&c->scenario + f->offset;
        hash = tess__hash(hash, at, f->type == TESS__FIELD_TEXT ? strlen(at) : f->size);
    }
    return hash;
}

void tess__repeats_put(tess__repeats *repeats, int number)
{
    const uint64_t mask = (uint64_t)repeats->n - 1;
    uint64_t at = hash_of(&repeats->cases->cases[number]) & mask;
    while (repeats->slots[at])
        at = (at + 1) & mask;
    repeats->slots[at] = number + 1;
    repeats->used++;
}

tess_status tess__repeats_reserve(tess__repeats *repeats)
{
    if (2 * (repeats->used + 1) <= repeats->n)
        return TESS_OK;
    tess_ctx *ctx = repeats->cases->ctx;
    const int64_t n = repeats->n ? 2 * repeats->n : 64;
    int *slots = TESS_ALLOC_ZERO(ctx, (size_t)n * sizeof *slots);
    tess__free(ctx, repeats->slots);
    *repeats = (tess__repeats){repeats->cases, repeats->begin, slots, n, 0};
    for (int i = repeats->begin; i < repeats->cases->n; i++)
        tess__repeats_put(repeats, i);
    return TESS_OK;
}

tess__case *tess__repeats_find(const tess__repeats *repeats, const tess__case *c)
{
    const uint64_t mask = (uint64_t)repeats->n - 1;
    for (uint64_t at = hash_of(c) & mask; repeats->slots[at]; at = (at + 1) & mask) {
        const int number = repeats->slots[at] - 1;
        if (number < repeats->cases->n && same(&repeats->cases->cases[number], c))
            return &repeats->cases->cases[number];
    }
    return NULL;
}

void tess__repeats_free(tess__repeats *repeats)
{
    tess__free(repeats->cases->ctx, repeats->slots);
}
