/* SPDX-License-Identifier: Apache-2.0 */
/* base_internal.h - status, memory, log, context: what every room above uses.
 *
 * What comes in: options, the machine. What goes out: statuses with one sentence, memory, numbers,
 * time.
 */
#ifndef TESS_BASE_INTERNAL_H
#define TESS_BASE_INTERNAL_H

#include "kernels/kernels.h"
#include "tessera/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- fail.c: one sentence per failure, written where the failure is decided -------------- */

/* tess_error_set with a formatted sentence, of which TESS_ERROR_MAX - 1 bytes are stored. */
enum { TESS_ERROR_MAX = 1024 };
tess_status tess__fail(tess_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tess_status tess__vfail(tess_status status, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* EINVAL and "<who>: <the sentence>"; who is the function called, or the file. */
tess_status tess__invalid(const char *who, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define TESS_TRY(call)                                                                             \
    do {                                                                                           \
        tess_status tess_try_status_ = (call);                                                     \
        if (tess_try_status_ != TESS_OK)                                                           \
            return tess_try_status_;                                                               \
    } while (0)

/* EINVAL and "<the function>: <name> is NULL" for the first of these pointers that is NULL. */
#define TESS_REQUIRE(...)                                                                          \
    TESS_TRY(tess__require(__func__, #__VA_ARGS__, (const void *const[]){__VA_ARGS__}))

/* names: as many as pointers, separated by ", ". */
tess_status tess__require(const char *who, const char *names, const void *const *pointers);

/* The smaller and the larger of two numbers, in their common type; each is evaluated once. */
#define TESS_MIN(a, b)                                                                             \
    ({                                                                                             \
        const __typeof__(1 ? (a) : (b)) tess_min_a_ = (a), tess_min_b_ = (b);                      \
        tess_min_a_ < tess_min_b_ ? tess_min_a_ : tess_min_b_;                                     \
    })
#define TESS_MAX(a, b)                                                                             \
    ({                                                                                             \
        const __typeof__(1 ? (a) : (b)) tess_max_a_ = (a), tess_max_b_ = (b);                      \
        tess_max_a_ > tess_max_b_ ? tess_max_a_ : tess_max_b_;                                     \
    })

/* ---- range.c: numbers against their rules -------------------------------------------------- */

/* EINVAL unless low <= value <= high. */
tess_status tess__check_range(const char *who, const char *name, int64_t value, int64_t low,
                              int64_t high);
/* EINVAL unless value is at least `least`. */
tess_status tess__check_least(const char *who, const char *name, int64_t value, int64_t least);
/* The same of each of n values, called name[0], name[1] ... */
tess_status tess__check_each(const char *who, const char *name, const int *values, int n,
                             int least);
/* EINVAL unless value is 0 or 1. */
tess_status tess__check_flag(const char *who, const char *name, int value);
/* EINVAL unless value is one of the `count` values of an enum, counted from 0. */
tess_status tess__check_enum(const char *who, const char *name, int value, int count,
                             const char *type);
/* EINVAL unless value is a multiple of 8, from 8 to high. */
tess_status tess__check_eights(const char *who, const char *name, int64_t value, int64_t high);
/* EINVAL unless low <= value <= high; NaN is refused. */
tess_status tess__check_number(const char *who, const char *name, double value, double low,
                               double high);
/* The same, or 0. */
tess_status tess__check_number_or_0(const char *who, const char *name, double value, double low,
                                    double high);

/* ---- hash.c, ascending.c ---------------------------------------------------------------- */

/* A number that depends on every byte, and on the one before. */
uint64_t tess__hash(uint64_t before, const void *data, size_t bytes);

/* For qsort and bsearch of arrays of such numbers, ascending. */
int tess__by_int32(const void *a, const void *b);
int tess__by_int64(const void *a, const void *b);

/* Ascending; no NaN among them. */
void tess__sort(double *x, size_t n);

/* Sorts x; the mean of the two in the middle where n is even. n > 0. */
double tess__median(double *x, size_t n);

/* ---- ctx.c, log.c ------------------------------------------------------------------------ */

struct tess_ctx {
    const tess__kernels *kernels;
    const char *isa;
    int isa_given;           /* 1: not found by itself */
    _Atomic int products_of; /* products.c: the instruction set whose products in bf16 are used, or
                                 -1: not measured yet, -2: none */
    int threads;
    tess_allocator allocator;
    tess_log_fn log;
    void *log_user;
    tess_log_level log_level;
    tess_progress_fn progress;
    void *progress_user;
    /* Counted in mem.c, by any thread that allocates. references: one for the caller until
     * tess_ctx_destroy, and one for each block in use; the context is freed with the last. */
    _Atomic int64_t bytes_now, bytes_peak, allocations, references;
    tess_ctx *next, *previous;     /* in ctx.c's list of live contexts */
    void (*retire)(tess_ctx *ctx); /* takes it from there and frees it */
};

void tess__log(const tess_ctx *ctx, tess_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* TESS_OK to go on, or TESS_ESTOPPED with its sentence when the caller's callback asks to stop.
 * Call it at most every few milliseconds, from the thread of the entry point. */
tess_status tess__progress(const tess_ctx *ctx, const char *what, int64_t done, int64_t total);

/* ---- mem.c: all memory comes from here --------------------------------------------------- */

enum { TESS_ALIGN = 64 };

/* 64-byte aligned, not cleared; NULL with ENOMEM's sentence set when there is none (ask
 * tess__nomem for the status). bytes 0 gives a valid pointer. The ctx is not const for its
 * counters. */
void *tess__alloc(tess_ctx *ctx, size_t bytes);
void *tess__alloc_zero(tess_ctx *ctx, size_t bytes);
void tess__free(tess_ctx *ctx, void *memory); /* NULL accepted */

/* Drops one reference. */
void tess__ctx_release(tess_ctx *ctx);

/* ENOMEM and its sentence: "cannot allocate 123 bytes". */
tess_status tess__nomem(size_t bytes);

/* Makes room for `need` elements of `size` bytes in an array, at least doubling it: `array` is the
 * address of the pointer to it, n its elements in use, *room those allocated. */
tess_status tess__grow(tess_ctx *ctx, void *array, size_t size, int64_t n, int64_t need,
                       int64_t *room);
#define TESS_GROW(ctx, array, n, need, room)                                                       \
    TESS_TRY(tess__grow(ctx, &(array), sizeof *(array), n, need, &(room)))

/* *product = a * b; returns 0, or 1 if it overflows. */
int tess__mul(size_t a, size_t b, size_t *product);

/* n * size, or SIZE_MAX, which every allocation refuses, if that overflows. */
size_t tess__bytes(size_t n, size_t size);

/* An arena hands out 64-byte aligned pieces that are freed together. {.ctx = ctx} is a valid empty
 * one. reserve makes one piece of memory from which the next takes are served, so that an object
 * that knows its size makes one allocation; take grows by further chunks when it must. */
typedef struct tess__chunk tess__chunk;
typedef struct {
    tess_ctx *ctx;
    tess__chunk *chunks; /* newest first */
} tess__arena;

tess_status tess__arena_reserve(tess__arena *arena, size_t bytes);
void *tess__arena_take(tess__arena *arena, size_t bytes);      /* NULL: ENOMEM, sentence set */
void *tess__arena_take_zero(tess__arena *arena, size_t bytes); /* every byte is 0 */
char *tess__arena_string(tess__arena *arena, const char *s, size_t length); /* copy, NUL added */
void tess__arena_free(tess__arena *arena); /* all pieces; the arena is empty again */

/* The memory of the function of the same name; where there is none, the function that asks returns
 * TESS_ENOMEM. */
#define TESS_ALLOC(ctx, bytes) TESS_MEMORY(tess__alloc(ctx, bytes))
#define TESS_ALLOC_ZERO(ctx, bytes) TESS_MEMORY(tess__alloc_zero(ctx, bytes))
#define TESS_TAKE(arena, bytes) TESS_MEMORY(tess__arena_take(arena, bytes))
#define TESS_TAKE_ZERO(arena, bytes) TESS_MEMORY(tess__arena_take_zero(arena, bytes))
#define TESS_TAKE_STRING(arena, s, length) TESS_MEMORY(tess__arena_string(arena, s, length))
#define TESS_MEMORY(call)                                                                          \
    ({                                                                                             \
        __auto_type tess_memory_ = (call);                                                         \
        if (!tess_memory_)                                                                         \
            return TESS_ENOMEM;                                                                    \
        tess_memory_;                                                                              \
    })

/* What a chunk of an arena costs beyond the bytes it was reserved for, and any other allocation. */
enum { TESS_ALLOC_OVERHEAD = TESS_ALIGN, TESS_CHUNK_OVERHEAD = 2 * TESS_ALIGN };

/* Bytes that takes of these sizes occupy in a reserved arena: sum of sizes, each rounded up. */
size_t tess__arena_round(size_t bytes);

/* ---- notes.c: what a caller should know of a result ------------------------------------------ */

/* Adds a sentence to the notes of an object with the members arena, notes, room_notes and info. */
#define TESS_NOTE(object, ...)                                                                     \
    tess__note(&(object)->arena, &(object)->notes, &(object)->room_notes, &(object)->info.notes,   \
               __VA_ARGS__)
tess_status tess__note(tess__arena *arena, const char ***notes, int64_t *room, int *n,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- shipped files -------------------------------------------------------------------------- */

/* A file of share/, compiled in by cmake/shipped.cmake; tables of them ascend by name. */
typedef struct {
    const char *name; /* of the file, without .json */
    const unsigned char *text;
    size_t bytes;
} tess__shipped;

/* ---- convert.c ------------------------------------------------------------------------------- */

/* tess_convert on the calling thread, its arguments checked before. */
void tess__convert_chunk(const tess__kernels *kernels, tess_dtype from, const void *src,
                         tess_dtype to, void *dst, size_t n);

/* ---- random.c: for the tests ----------------------------------------------------------------- */

/* One block of Philox4x32-10. */
void tess__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Two normal numbers of two words, before they are rounded to float. */
void tess__normal_pair(uint32_t w, uint32_t v, double pair[2]);

/* ---- machine.c, topology.c --------------------------------------------------------------- */

/* Small files of /proc and /sys below a root; "" is the machine's own. */
int tess__sys_text(const char *root, const char *path, char *text, size_t size); /* length, or -1 */
int64_t tess__sys_number(const char *root, const char *path, int64_t otherwise);

/* Cores this process may use: distinct cores of its affinity mask, at most the container's quota.
 */
int tess__cores_usable(const char *root);

/* Fills sockets, cores, hardware_threads, numa_nodes, caches and topology. */
void tess__topology_hwloc(tess_machine *machine);
void tess__topology_sysfs(const char *root, tess_machine *machine);

/* Everything else of tess_machine that /proc and /sys know. */
void tess__machine_read(const char *root, tess_machine *machine);

/* ---- sums in any order ------------------------------------------------------------------- */

/* x in units of 2^-40: sums of such numbers below 2^13 are exact, whatever their order. */
static inline double tess__in_units(double x)
{
    return nearbyint(x * 0x1p40) * 0x1p-40;
}

/* ---- timing.c ---------------------------------------------------------------------------- */

/* CPU time of the calling thread. */
int64_t tess__cpu_ns(void);

/* tess_timing_run with the probes on `threads` threads; progress reports `what`. Options have no
 * defaults here. */
/* products.c: the products in bf16 of a context, or NULL where fp32 computes. */
const tess__products *tess__products_of(tess_ctx *ctx, const char **isa);

/* The rate of multiply-adds that probes use: the context's, or of products in bf16. */
typedef int64_t (*tess__rate_fn)(int64_t rounds, float *sink);
tess__rate_fn tess__rate_of(tess_ctx *ctx, tess_precision precision);

/* FLOP/s of one thread, the best of a few short probes. */
double tess__rate_measure(tess__rate_fn rate);

tess_status tess__timing_run(tess_ctx *ctx, const char *what, int threads,
                             const tess_timing_opts *opts, tess_timed_fn fn, void *user,
                             tess_timing *timing);

#endif
