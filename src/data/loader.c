/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - batches prefetched by one thread into a ring.
 *
 *   produced, consumed: batches so far. The thread fills slot produced % depth while produced <
 *   consumed + depth; next has slot consumed % depth once produced > consumed. The slot that next
 *   returned stays the caller's until the following next, which is when consumed moves on.
 *
 * A failed sample is a batch too: its slot carries the status and the sentence, and the thread ends
 * behind it, so that the caller meets the failure exactly where the batch would have been.
 *
 * With a queue, the sample of batch number n is at place n of a second ring, of sample numbers; the
 * thread waits while it is empty.
 *
 * While the ring is full, the thread decodes windows of samples to come (windows_ahead.c).
 *
 * Memory, in one piece: the loader, then depth times x, text and the slot.
 */
#include "loader.h"
#include "data_internal.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { DEPTH = 3, DEPTH_MAX = 1024, SENTENCE = 1024 };

typedef struct {
    float *x, *text;
    tess_status status;
    char sentence[SENTENCE];
} slot;

struct tess__loader {
    tess__arena arena; /* holds the slots; the loader itself is an allocation of its own */
    tess_ctx *ctx;
    tess__loader_opts opts;
    size_t x_one, text_one; /* numbers of a sample */
    slot *slots;
    tess__ahead *ahead; /* NULL: none */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t *queue;             /* (opts.queue): samples to read; NULL: batches in turn */
    int64_t produced, consumed; /* under the mutex, as are ordered and stopping */
    int64_t ordered;
    int stopping;
    int held; /* 1: the caller has the slot consumed % depth; of the caller's thread alone */
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void fill(const tess__loader *l, int64_t number, slot *s)
{
    s->status = TESS_OK;
    const int64_t first = l->queue ? l->queue[(number - l->opts.first) % l->opts.queue]
                                   : number * l->opts.of + l->opts.skip;
    const int64_t place = (number - l->opts.first) * l->opts.batch;
    for (int i = 0; i < l->opts.batch && s->status == TESS_OK; i++) {
        const uint8_t *decoded = tess__ahead_take(l->ahead, place + i);
        s->status =
            tess__data_sample(l->opts.data, l->opts.split, first + i, decoded,
                              s->x + (size_t)i * l->x_one, s->text + (size_t)i * l->text_one);
    }
    if (s->status != TESS_OK)
        snprintf(s->sentence, sizeof s->sentence, "%s", tess_last_error());
}

/* Under the mutex: returns when a slot is free and a sample is ordered, or the loader stops. */
static void wait_for_slot(tess__loader *l)
{
    int work = 1;
    while (!l->stopping && (l->produced == l->consumed + l->opts.depth ||
                            (l->queue && l->produced == l->ordered))) {
        if (!work) {
            pthread_cond_wait(&l->changed, &l->mutex);
            continue;
        }
        pthread_mutex_unlock(&l->mutex);
        work = tess__ahead_work(l->ahead);
        pthread_mutex_lock(&l->mutex);
    }
}

static void *produce(void *user)
{
    tess__loader *l = user;
    int failed = 0;
    pthread_mutex_lock(&l->mutex);
    while (!failed) {
        wait_for_slot(l);
        if (l->stopping)
            break;
        slot *s = &l->slots[l->produced % l->opts.depth];
        const int64_t number = l->opts.first + l->produced;
        pthread_mutex_unlock(&l->mutex);
        fill(l, number, s);
        failed = s->status != TESS_OK;
        pthread_mutex_lock(&l->mutex);
        l->produced++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Bytes of x and text in one slot; returns 1 if they overflow. */
static int slot_bytes(const tess_data_info *info, int batch, size_t *x, size_t *text)
{
    const size_t sides[] = {(size_t)info->frames, (size_t)info->height, (size_t)info->width,
                            (size_t)batch, sizeof(float)};
    *x = (size_t)info->channels;
    *text = (size_t)info->text_len;
    int over = 0;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        over |= tess__mul(*x, sides[i], x);
    over |= tess__mul(*text, (size_t)info->text_dim, text);
    over |= tess__mul(*text, (size_t)batch * sizeof(float), text);
    return over || *x > PTRDIFF_MAX / 4 || *text > PTRDIFF_MAX / 4;
}

int64_t tess__loader_bytes(const tess_data_info *info, int batch, int depth)
{
    size_t x, text, all;
    const size_t n = (size_t)(depth ? depth : DEPTH);
    if (slot_bytes(info, batch, &x, &text) ||
        tess__mul(tess__arena_round(x) + tess__arena_round(text), n, &all) || all > PTRDIFF_MAX / 2)
        return 0;
    return (int64_t)(all + tess__arena_round(n * sizeof(slot)) +
                     tess__arena_round(sizeof(tess__loader)));
}

static tess_status take_memory(tess__loader *l, const tess_data_info *info)
{
    size_t x, text;
    const size_t n = (size_t)l->opts.depth;
    const int64_t all = tess__loader_bytes(info, l->opts.batch, l->opts.depth);
    const size_t queue = tess__arena_round((size_t)l->opts.queue * sizeof *l->queue);
    if (all == 0 || slot_bytes(info, l->opts.batch, &x, &text))
        return tess__nomem(SIZE_MAX);
    const size_t object = tess__arena_round(sizeof *l);
    TESS_TRY(tess__arena_reserve(&l->arena, (size_t)all - object + queue));
    l->slots = TESS_TAKE(&l->arena, n * sizeof *l->slots);
    if (l->opts.queue)
        l->queue = TESS_TAKE(&l->arena, (size_t)l->opts.queue * sizeof *l->queue);
    for (size_t i = 0; i < n; i++) {
        l->slots[i].x = TESS_TAKE(&l->arena, x);
        l->slots[i].text = TESS_TAKE(&l->arena, text);
    }
    l->x_one = x / sizeof(float) / (size_t)l->opts.batch;
    l->text_one = text / sizeof(float) / (size_t)l->opts.batch;
    return TESS_OK;
}

/* Signals are for the threads of the program: all are blocked in this one. */
static tess_status start_thread(tess__loader *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->changed, NULL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&l->thread, NULL, produce, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        return TESS_OK;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    return tess__fail(TESS_ENOMEM, "cannot start a thread to load data: %s", strerror(failed));
}

tess_status tess__loader_start(tess_ctx *ctx, const tess__loader_opts *opts, tess__loader **loader)
{
    tess_data_info info;
    TESS_TRY(tess_data_query(opts->data, &info));
    tess__loader *l = TESS_ALLOC_ZERO(ctx, sizeof *l);
    l->ctx = ctx;
    l->arena.ctx = ctx;
    l->opts = *opts;
    l->opts.depth = opts->depth ? opts->depth : DEPTH;
    l->opts.of = opts->of ? opts->of : opts->batch;
    tess_status status = take_memory(l, &info);
    if (status == TESS_OK) {
        l->ahead = tess__ahead_begin(l->opts.data, &(tess__ahead_opts){.split = l->opts.split,
                                                                       .batch = l->opts.batch,
                                                                       .of = l->opts.of,
                                                                       .skip = l->opts.skip,
                                                                       .first = l->opts.first});
        status = start_thread(l);
    }
    if (status != TESS_OK) {
        tess__ahead_end(l->ahead);
        tess__arena_free(&l->arena);
        tess__free(ctx, l);
        return status;
    }
    *loader = l;
    return TESS_OK;
}

void tess__loader_order(tess__loader *l, const int64_t *samples, int n)
{
    pthread_mutex_lock(&l->mutex);
    assert(l->ordered + n - l->consumed <= l->opts.queue + l->held);
    for (int i = 0; i < n; i++)
        l->queue[l->ordered++ % l->opts.queue] = samples[i];
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

tess_status tess__loader_next(tess__loader *l, tess__batch *batch)
{
    pthread_mutex_lock(&l->mutex);
    const slot *s = &l->slots[l->consumed % l->opts.depth];
    if (l->held && s->status == TESS_OK) { /* release the slot; a failure stays */
        l->consumed++;
        pthread_cond_broadcast(&l->changed);
    }
    while (l->produced == l->consumed)
        pthread_cond_wait(&l->changed, &l->mutex);
    l->held = 1;
    s = &l->slots[l->consumed % l->opts.depth];
    const int64_t number = l->opts.first + l->consumed;
    pthread_mutex_unlock(&l->mutex);
    if (s->status != TESS_OK)
        return tess__fail(s->status, "%s", s->sentence);
    *batch = (tess__batch){number, s->x, s->text};
    return TESS_OK;
}

void tess__loader_stop(tess__loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->mutex);
    l->stopping = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    tess__ahead_end(l->ahead);
    tess__arena_free(&l->arena);
    tess__free(l->ctx, l);
}
