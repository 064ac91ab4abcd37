/* SPDX-License-Identifier: Apache-2.0 */
/* comm_thread_run.c - tess_comm_threads: runs a function on ranks that are threads.
 *
 * All objects of the ranks are created before the first thread starts, so that a lack of memory is
 * returned to the caller and is not the failure of one rank.
 */
#include "comm_thread.h"

#include <string.h>

enum { RANKS_MAX = 1024 };

typedef struct {
    tess__world *world;
    tess_ctx *ctx;
    tess_comm *comm;
    tess_rank_fn fn;
    void *user;
    pthread_t thread;
    tess_status status;
    char sentence[TESS_SENTENCE_MAX];
} rank_thread;

void tess__core_acquire(tess__world *world)
{
    if (!world->linked)
        return;
    pthread_mutex_lock(&world->core_mutex);
    while (world->cores == 0)
        pthread_cond_wait(&world->core_free, &world->core_mutex);
    world->cores--;
    pthread_mutex_unlock(&world->core_mutex);
}

void tess__core_release(tess__world *world)
{
    if (!world->linked)
        return;
    pthread_mutex_lock(&world->core_mutex);
    world->cores++;
    pthread_cond_signal(&world->core_free);
    pthread_mutex_unlock(&world->core_mutex);
}

static void *run_rank(void *argument)
{
    rank_thread *s = argument;
    tess__core_acquire(s->world);
    tess__thread_enter(s->comm);
    s->status = s->fn(s->user, s->ctx, s->comm);
    if (s->status != TESS_OK) {
        snprintf(s->sentence, sizeof s->sentence, "%s", tess_last_error());
        tess_comm_fail(s->comm, s->status);
    }
    tess__thread_leave(s->comm);
    tess__core_release(s->world);
    return NULL;
}

static tess_status check_link(const char *name, int64_t latency, double bandwidth)
{
    if (latency < 0 || latency > (int64_t)1 << 50)
        return tess__fail(TESS_EINVAL, "tess_comm_threads: %slatency is %lld, must be 0..2^50 ns",
                          name, (long long)latency);
    if (!(bandwidth == 0.0 || (bandwidth >= 1.0 && bandwidth <= 1e18)))
        return tess__fail(TESS_EINVAL,
                          "tess_comm_threads: %sbandwidth is %g, must be 0 or 1..1e18 bytes/s",
                          name, bandwidth);
    return TESS_OK;
}

static tess_status check(const tess_ctx_opts *opts, int ranks, const tess_link *link,
                         tess_rank_fn fn)
{
    const char *name = "tess_comm_threads";
    TESS_TRY(tess__check_range(name, "ranks", ranks, 1, RANKS_MAX));
    if (!fn)
        return tess__invalid(name, "fn is NULL");
    if (!link)
        return TESS_OK;
    TESS_TRY(check_link("", link->latency, link->bandwidth));
    TESS_TRY(check_link("network_", link->network_latency, link->network_bandwidth));
    TESS_TRY(tess__check_least(name, "node_ranks", link->node_ranks, 0));
    TESS_TRY(tess__check_flag(name, "share_cores", link->share_cores));
    if (opts && opts->threads > 1)
        return tess__invalid(name, "threads is %d, must be 1 with a link", opts->threads);
    return TESS_OK;
}

static void open_world(tess__world *world, int ranks, const tess_link *link,
                       tess__mailbox *mailboxes)
{
    *world =
        (tess__world){.ranks = ranks, .linked = link != NULL, .mailboxes = mailboxes, .tags = 1};
    if (link)
        world->link = *link;
    memset(mailboxes, 0, (size_t)ranks * sizeof *mailboxes);
    if (link)
        world->cores = link->share_cores ? ranks : tess__cores_usable("");
    pthread_mutex_init(&world->mutex, NULL);
    pthread_mutex_init(&world->core_mutex, NULL);
    pthread_cond_init(&world->core_free, NULL);
    for (int p = 0; p < ranks; p++) {
        pthread_mutex_init(&mailboxes[p].mutex, NULL);
        pthread_cond_init(&mailboxes[p].changed, NULL);
    }
}

static void close_world(tess__world *world)
{
    for (int p = 0; p < world->ranks; p++) {
        pthread_mutex_destroy(&world->mailboxes[p].mutex);
        pthread_cond_destroy(&world->mailboxes[p].changed);
    }
    pthread_cond_destroy(&world->core_free);
    pthread_mutex_destroy(&world->core_mutex);
    pthread_mutex_destroy(&world->mutex);
}

static tess_status make_rank_threads(const tess_ctx_opts *opts, tess__world *world,
                                     rank_thread *rank_threads)
{
    for (int p = 0; p < world->ranks; p++) {
        rank_threads[p].world = world;
        TESS_TRY(tess_ctx_create(opts, &rank_threads[p].ctx));
        TESS_TRY(tess__thread_comm(rank_threads[p].ctx, world, p, &rank_threads[p].comm));
    }
    return TESS_OK;
}

static void run_all(tess__world *world, rank_thread *rank_threads)
{
    int started = 0;
    for (; started < world->ranks; started++) {
        rank_thread *s = &rank_threads[started];
        const int error = pthread_create(&s->thread, NULL, run_rank, s);
        if (error) {
            s->status = tess__fail(TESS_EIO, "tess_comm_threads: cannot start rank %d: %s", started,
                                   strerror(error));
            snprintf(s->sentence, sizeof s->sentence, "%s", tess_last_error());
            tess_comm_fail(s->comm, s->status);
            break;
        }
    }
    for (int p = 0; p < started; p++)
        pthread_join(rank_threads[p].thread, NULL);
}

/* Memory is allocated from ctx, which no rank uses. */
static tess_status run(tess_ctx *ctx, const tess_ctx_opts *opts, int ranks, const tess_link *link,
                       const rank_thread *like)
{
    tess__world world;
    tess__arena arena = {.ctx = ctx};
    rank_thread *rank_threads = tess__arena_take(&arena, (size_t)ranks * sizeof *rank_threads);
    tess__mailbox *mailboxes = tess__arena_take(&arena, (size_t)ranks * sizeof *mailboxes);
    tess_status status = TESS_ENOMEM;
    if (rank_threads && mailboxes) {
        for (int p = 0; p < ranks; p++)
            rank_threads[p] = *like;
        open_world(&world, ranks, link, mailboxes);
        status = make_rank_threads(opts, &world, rank_threads);
        if (status == TESS_OK)
            run_all(&world, rank_threads);
        for (int p = ranks - 1; p >= 0; p--) {
            if (rank_threads[p].status != TESS_OK)
                status = tess__fail(rank_threads[p].status, "%s", rank_threads[p].sentence);
            tess_comm_destroy(rank_threads[p].comm);
            tess_ctx_destroy(rank_threads[p].ctx);
        }
        close_world(&world);
    }
    tess__arena_free(&arena);
    return status;
}

tess_status tess_comm_threads(const tess_ctx_opts *opts, int ranks, const tess_link *link,
                              tess_rank_fn fn, void *user)
{
    TESS_TRY(check(opts, ranks, link, fn));
    tess_ctx_opts own = opts ? *opts : (tess_ctx_opts){0};
    tess_ctx *ctx = NULL;
    if (own.threads == 0)
        own.threads = 1;
    TESS_TRY(tess_ctx_create(&own, &ctx));
    const tess_status status = run(ctx, &own, ranks, link, &(rank_thread){.fn = fn, .user = user});
    tess_ctx_destroy(ctx);
    return status;
}
