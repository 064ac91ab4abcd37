/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - the one place that allocates, and the arena.
 *
 * A block carries its size in front, so that the context can say how much is in use:
 *
 *   | 64 bytes: size | the caller's bytes, 64-byte aligned |
 *
 * Every block in use holds a reference to its context, so that objects may outlive the caller's
 * tess_ctx_destroy: the last block frees the context.
 *
 * An arena is a list of chunks, newest first; takes are served from the newest that has room:
 *
 *   | chunk header | taken | taken | ... free |
 */
#include "base_internal.h"

#include <stdlib.h>
#include <string.h>

tess_status tess__nomem(size_t bytes)
{
    return tess__fail(TESS_ENOMEM, "cannot allocate %zu bytes", bytes);
}

int tess__mul(size_t a, size_t b, size_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

size_t tess__bytes(size_t n, size_t size)
{
    size_t product;
    return tess__mul(n, size, &product) ? SIZE_MAX : product;
}

size_t tess__arena_round(size_t bytes)
{
    /* A take of nothing still gets a place of its own. */
    return bytes == 0 ? TESS_ALIGN : (bytes + TESS_ALIGN - 1) / TESS_ALIGN * TESS_ALIGN;
}

void *tess__alloc(tess_ctx *ctx, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        tess__nomem(bytes);
        return NULL;
    }
    const size_t whole = TESS_ALIGN + tess__arena_round(bytes);
    char *block = ctx->allocator.alloc(ctx->allocator.user, whole);
    if (!block) {
        tess__nomem(bytes);
        return NULL;
    }
    memcpy(block, &whole, sizeof whole);

    atomic_fetch_add(&ctx->references, 1);
    atomic_fetch_add(&ctx->allocations, 1);
    const int64_t now = atomic_fetch_add(&ctx->bytes_now, (int64_t)whole) + (int64_t)whole;
    int64_t peak = atomic_load(&ctx->bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&ctx->bytes_peak, &peak, now))
        ;
    return block + TESS_ALIGN;
}

void *tess__alloc_zero(tess_ctx *ctx, size_t bytes)
{
    void *p = tess__alloc(ctx, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

void tess__free(tess_ctx *ctx, void *memory)
{
    if (!memory)
        return;
    char *block = (char *)memory - TESS_ALIGN;
    size_t whole;
    memcpy(&whole, block, sizeof whole);
    atomic_fetch_sub(&ctx->bytes_now, (int64_t)whole);
    ctx->allocator.free(ctx->allocator.user, block);
    tess__ctx_release(ctx);
}

tess_status tess__grow(tess_ctx *ctx, void *array, size_t size, int64_t n, int64_t need,
                       int64_t *room)
{
    enum { FIRST = 64 };
    if (need <= *room)
        return TESS_OK;
    const int64_t wanted = TESS_MAX(need, *room < FIRST ? FIRST : 2 * *room);
    void *old, *larger = TESS_ALLOC(ctx, tess__bytes((size_t)wanted, size));
    memcpy(&old, array, sizeof old);
    if (n > 0)
        memcpy(larger, old, (size_t)n * size);
    tess__free(ctx, old);
    memcpy(array, &larger, sizeof larger);
    *room = wanted;
    return TESS_OK;
}

void tess__ctx_release(tess_ctx *ctx)
{
    if (atomic_fetch_sub(&ctx->references, 1) == 1)
        ctx->retire(ctx);
}

struct tess__chunk {
    tess__chunk *next;
    size_t used, size; /* of the bytes behind the header */
};

enum { CHUNK_HEADER = TESS_ALIGN, CHUNK_SMALLEST = 16 * 1024 };
_Static_assert(sizeof(tess__chunk) <= CHUNK_HEADER,
               "the chunk's header fits in front of its bytes");

tess_status tess__arena_reserve(tess__arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return tess__nomem(bytes);
    const size_t size = tess__arena_round(bytes);
    tess__chunk *chunk = TESS_ALLOC(arena->ctx, CHUNK_HEADER + size);
    *chunk = (tess__chunk){.next = arena->chunks, .size = size};
    arena->chunks = chunk;
    return TESS_OK;
}

void *tess__arena_take(tess__arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) {
        tess__nomem(bytes);
        return NULL;
    }
    const size_t size = tess__arena_round(bytes);
    if (!arena->chunks || arena->chunks->size - arena->chunks->used < size) {
        if (tess__arena_reserve(arena, TESS_MAX(size, CHUNK_SMALLEST)) != TESS_OK)
            return NULL;
    }
    tess__chunk *chunk = arena->chunks;
    void *piece = (char *)chunk + CHUNK_HEADER + chunk->used;
    chunk->used += size;
    return piece;
}

void *tess__arena_take_zero(tess__arena *arena, size_t bytes)
{
    void *piece = tess__arena_take(arena, bytes);
    if (piece)
        memset(piece, 0, bytes);
    return piece;
}

char *tess__arena_string(tess__arena *arena, const char *s, size_t length)
{
    if (length > SIZE_MAX / 4) {
        tess__nomem(length);
        return NULL;
    }
    char *copy = tess__arena_take(arena, length + 1);
    if (copy) {
        memcpy(copy, s, length);
        copy[length] = '\0';
    }
    return copy;
}

void tess__arena_free(tess__arena *arena)
{
    while (arena->chunks) {
        tess__chunk *next = arena->chunks->next;
        tess__free(arena->ctx, arena->chunks);
        arena->chunks = next;
    }
}
