/* SPDX-License-Identifier: Apache-2.0 */
/* ctx.c - the context: instruction set, threads, allocator, log, progress; and fork.
 *
 * The threads of a process do not live on in its forked child, and an OpenMP runtime that had a
 * team waits for them there without end. Live contexts are in a list, and a pthread_atfork handler
 * gives those of a child one thread: objects ask their context for its threads in every call, and
 * results do not depend on their number.
 */
#include "base_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS_MAX = 1024 };

/* ---- fork ------------------------------------------------------------------------------------ */

static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static tess_ctx *live;      /* all contexts that are not freed yet */
static int is_forked_child; /* of a process that had contexts */

static void before_fork(void)
{
    pthread_mutex_lock(&live_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&live_lock);
}

static void after_fork_in_child(void)
{
    for (tess_ctx *ctx = live; ctx; ctx = ctx->next)
        ctx->threads = 1;
    is_forked_child = 1;
    pthread_mutex_unlock(&live_lock);
}

/* A process that cannot register the handlers runs as well, and is not to fork. */
static void register_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Takes a context out of the list and frees it. Contexts hold this function's address, for
 * tess__ctx_release is also in libraries that have no list. */
static void retire(tess_ctx *ctx)
{
    pthread_mutex_lock(&live_lock);
    *(ctx->previous ? &ctx->previous->next : &live) = ctx->next;
    if (ctx->next)
        ctx->next->previous = ctx->previous;
    pthread_mutex_unlock(&live_lock);
    ctx->allocator.free(ctx->allocator.user, ctx);
}

static void enlist(tess_ctx *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&live_lock);
    if (is_forked_child)
        ctx->threads = 1;
    ctx->next = live;
    if (live)
        live->previous = ctx;
    live = ctx;
    pthread_mutex_unlock(&live_lock);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Large blocks ask for huge pages, whole ones only: passes over tensors spend 1 to 2 % less time on
 * address translation and page faults. Where the system grants none, nothing changes. */
static void *libc_alloc(void *user, size_t bytes)
{
    enum { HUGE = 2 << 20, LARGE = 4 * HUGE };
    (void)user;
    if (bytes < LARGE)
        return aligned_alloc(TESS_ALIGN, bytes); /* mem.c rounds bytes up to the alignment */
    void *memory;
    if (posix_memalign(&memory, HUGE, bytes) != 0) /* any size, unlike aligned_alloc */
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes / HUGE * HUGE, MADV_HUGEPAGE);
#endif
    return memory;
}

static void libc_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* The index of the instruction set called name, or the best one if name is NULL. */
static tess_status find_isa(const char *name, int *index)
{
    for (int i = 0; i < tess__isa_total; i++) {
        const char *why = tess__isa_missing(i);
        if (!name && !*why && !tess__isas[i].test_only && !tess__isas[i].products) {
            *index = i;
            return TESS_OK;
        }
        if (name && strcmp(name, tess__isas[i].name) == 0) {
            if (*why)
                return tess__fail(TESS_ENOTSUP, "tess_ctx_create: isa \"%s\" cannot be used: %s",
                                  name, why);
            *index = i;
            return TESS_OK;
        }
    }
    return tess__fail(TESS_EINVAL,
                      "tess_ctx_create: isa is \"%s\", must be avx512, avx2, neon, base, "
                      "wide, amx, avx512-bf16, neon-bf16, wide-tiles or wide-pairs",
                      name ? name : "");
}

static tess_status find_threads(int wanted, int *threads)
{
    const char *text = getenv("TESS_THREADS");
    if (wanted == 0 && text && *text) {
        char *end;
        errno = 0;
        const long value = strtol(text, &end, 10);
        if (*end || errno || value < 1 || value > THREADS_MAX)
            return tess__fail(TESS_EINVAL, "tess_ctx_create: TESS_THREADS is \"%s\", must be 1..%d",
                              text, THREADS_MAX);
        wanted = (int)value;
    }
    if (wanted < 0 || wanted > THREADS_MAX)
        return tess__fail(
            TESS_EINVAL, "tess_ctx_create: threads is %d, must be 1..%d, or 0 for all usable cores",
            wanted, THREADS_MAX);
    *threads = wanted ? wanted : tess__cores_usable("");
    return TESS_OK;
}

tess_status tess_ctx_create(const tess_ctx_opts *opts, tess_ctx **ctx)
{
    static const tess_ctx_opts defaults;
    TESS_REQUIRE(ctx);
    if (!opts)
        opts = &defaults;
    if (!opts->allocator.alloc != !opts->allocator.free)
        return tess__invalid(__func__, "allocator has only one of alloc and free, needs both");
    TESS_TRY(tess__check_range(__func__, "log_level", (int)opts->log_level, TESS_LOG_OFF,
                               TESS_LOG_DEBUG));

    const char *name = opts->isa ? opts->isa : getenv("TESS_ISA");
    int isa = 0, threads = 0;
    TESS_TRY(find_isa(name && *name ? name : NULL, &isa));
    TESS_TRY(find_threads(opts->threads, &threads));

    tess_allocator allocator = opts->allocator;
    if (!allocator.alloc)
        allocator = (tess_allocator){libc_alloc, libc_free, NULL};
    const size_t bytes = tess__arena_round(sizeof(tess_ctx));
    tess_ctx *made = allocator.alloc(allocator.user, bytes);
    if (!made)
        return tess__nomem(bytes);
    *made = (tess_ctx){
        .kernels = tess__isas[isa].kernels,
        .products_of = -1,
        .isa = tess__isas[isa].name,
        .isa_given = name && *name,
        .threads = threads,
        .allocator = allocator,
        .log = opts->log,
        .log_user = opts->log_user,
        .log_level = opts->log_level ? opts->log_level : TESS_LOG_WARN,
        .progress = opts->progress,
        .progress_user = opts->progress_user,
        .references = 1,
        .retire = retire,
    };
    enlist(made);
    *ctx = made;
    return TESS_OK;
}

tess_status tess_ctx_query(const tess_ctx *ctx, tess_ctx_info *info)
{
    TESS_REQUIRE(ctx, info);
    *info = (tess_ctx_info){
        .isa = ctx->isa,
        .threads = ctx->threads,
        .bytes_now = atomic_load(&ctx->bytes_now),
        .bytes_peak = atomic_load(&ctx->bytes_peak),
        .allocations = atomic_load(&ctx->allocations),
    };
    return TESS_OK;
}

void tess_ctx_destroy(tess_ctx *ctx)
{
    if (ctx)
        tess__ctx_release(ctx);
}

int tess_isa_count(void)
{
    return tess__isa_total;
}

tess_status tess_isa_query(int index, tess_isa *isa)
{
    TESS_REQUIRE(isa);
    TESS_TRY(tess__check_range(__func__, "index", index, 0, tess__isa_total - 1));
    const char *why = tess__isa_missing(index);
    *isa = (tess_isa){
        .name = tess__isas[index].name,
        .bytes = tess__isas[index].bytes,
        .available = !*why,
        .test_only = tess__isas[index].test_only,
        .bf16 = tess__isas[index].products != NULL,
        .why = why,
    };
    return TESS_OK;
}
