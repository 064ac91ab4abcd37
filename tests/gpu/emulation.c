/* SPDX-License-Identifier: Apache-2.0 */
/* emulation.c - runs the blocks of a launch, one after the other, each as coroutines: barriers,
 * deferred copies, and the order of warps.
 *
 * A step of a warp runs its lanes to their next barrier. Which warp has the next steps, and how
 * many, is drawn; so is the direction of the lanes. A block ends when no thread can move: then each
 * must have returned, and waited for all that it copied. Shared memory begins as NaN patterns.
 */
#include "emulation_internal.h"

#include "coroutine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    MAX_THREADS = 1024,
    STACK = 128 * 1024,
    MAX_COPIES = 256,
    BARRIERS = 16 + MAX_THREADS / 32,
};

typedef struct {
    u8 *to;
    const u8 *from;
    int yes, group;
} copy;

typedef struct {
    coroutine c;
    int done, barrier;     /* the barrier it waits at; -1: it can run */
    int copies, committed; /* in flight; groups so far */
    copy copy[MAX_COPIES];
} thread_state;

int emulation_thread, emulation_block;
emulation_counts emulation_counted;
static thread_state threads[MAX_THREADS];
static emulation_lane lanes[MAX_THREADS];
static int arrived[BARRIERS], n_threads;
static char *stacks;
static const emulation_launch *now;
static u8 *shared;
static u32 random_state;
static char problem[200];

static u32 draw(u32 below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

void emulation_problem(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (!problem[0]) /* the first one counts */
        vsnprintf(problem, sizeof problem, format, values);
    va_end(values);
}

u8 *emulation_shared(void)
{
    return shared;
}

emulation_counts emulation_read(void)
{
    return emulation_counted;
}

void emulation_reset(void)
{
    emulation_counted = (emulation_counts){0};
}

/* ---- barriers ------------------------------------------------------------------------------ */

static void yield(void)
{
    coroutine_yield(&threads[emulation_thread].c, 0);
}

/* The last thread to come releases the others and goes on. */
static int arrive(int barrier, int n)
{
    if (++arrived[barrier] < n) {
        threads[emulation_thread].barrier = barrier;
        return 0;
    }
    arrived[barrier] = 0;
    for (int t = 0; t < n_threads; t++)
        if (threads[t].barrier == barrier && !threads[t].done)
            threads[t].barrier = -1;
    return 1;
}

void emulation_sync(int barrier, int n)
{
    lanes[emulation_thread].line = 0;
    arrive(barrier, n);
    yield(); /* the last one too: that it came last gives it no right to go first */
}

void emulation_sync_block(void)
{
    emulation_sync(0, n_threads);
}

void emulation_meet(collective *work, const void *operand, void *result, int line)
{
    emulation_lane *const lane = &lanes[emulation_thread & ~31];
    lanes[emulation_thread] = (emulation_lane){operand, result, line};
    if (arrive(16 + (emulation_thread >> 5), 32)) {
        for (int i = 0; i < 32; i++)
            if (lane[i].line != line)
                emulation_problem("lanes of a warp at lines %d and %d", line, lane[i].line);
        if (!problem[0])
            work(lane);
    }
    yield();
}

/* ---- cp.async ------------------------------------------------------------------------------ */

int emulation_inside_shared(const u8 *p, int bytes)
{
    return p >= shared && p + bytes <= shared + now->shared_bytes && (p - shared) % 16 == 0;
}

void emulation_copy(u8 *sh, const u8 *from, int yes)
{
    thread_state *const t = &threads[emulation_thread];
    if (t->copies == MAX_COPIES || !emulation_inside_shared(sh, 16) || (uintptr_t)from % 16 != 0) {
        emulation_problem("a copy out of shared memory, not aligned, or one of more than %d",
                          MAX_COPIES);
        return;
    }
    memset(sh, 0xff, 16);
    emulation_counted.copied_bytes += yes ? 16 : 0;
    t->copy[t->copies++] = (copy){sh, from, yes, t->committed};
}

void emulation_stored(int bytes)
{
    emulation_counted.stored_bytes += bytes;
}

void emulation_commit(void)
{
    threads[emulation_thread].committed++;
}

void emulation_wait(int groups)
{
    thread_state *const t = &threads[emulation_thread];
    int kept = 0;
    for (int i = 0; i < t->copies; i++) {
        const copy c = t->copy[i];
        if (c.group >= t->committed - groups)
            t->copy[kept++] = c;
        else if (c.yes)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
    }
    t->copies = kept;
}

/* ---- blocks -------------------------------------------------------------------------------- */

static void entry(void)
{
    coroutine_entered();
    now->kernel(now->args);
    threads[emulation_thread].done = 1;
    coroutine_yield(&threads[emulation_thread].c, 1);
    abort();
}

/* Runs the lanes of a warp to their next barrier; 0 if none could move. */
static int advance(int warp, int descending)
{
    int moved = 0;
    for (int i = 0; i < 32; i++) {
        const int t = 32 * warp + (descending ? 31 - i : i);
        if (t < n_threads && !threads[t].done && threads[t].barrier < 0) {
            emulation_thread = t;
            coroutine_resume(&threads[t].c);
            moved = 1;
        }
    }
    return moved;
}

static void check_end(void)
{
    for (int t = 0; t < n_threads; t++) {
        if (!threads[t].done)
            emulation_problem("thread %d of block %d waits for ever at barrier %d, after line %d",
                              t, emulation_block, threads[t].barrier, lanes[t].line);
        else if (threads[t].copies > 0)
            emulation_problem("thread %d of block %d never waits for a copy", t, emulation_block);
    }
}

static void run_block(int block)
{
    const u32 seed = now->seed;
    const int warps = (n_threads + 31) / 32;
    emulation_block = block;
    memset(arrived, 0, sizeof arrived);
    memset(shared, 0xff, (size_t)now->shared_bytes);
    for (int t = 0; t < n_threads; t++) {
        threads[t].done = threads[t].copies = threads[t].committed = lanes[t].line = 0;
        threads[t].barrier = -1;
        coroutine_start(&threads[t].c, stacks + (size_t)t * STACK, STACK, entry);
    }
    for (int idle = 0; idle < 2 && !problem[0];) {
        int moved = 0;
        for (int i = 0; i < warps; i++) {
            const int w = seed == 0 ? i : seed == 1 ? warps - 1 - i : (int)draw((u32)warps);
            const int down = seed == 0 ? 0 : seed == 1 ? 1 : (int)draw(2);
            int steps = seed < 2 ? 1 << 30 : 1 + (int)draw(200);
            for (; steps > 0 && !problem[0] && advance(w, down); steps--)
                moved = 1;
        }
        if (!moved) /* a drawn order may have left out a warp that can run */
            for (int w = 0; w < warps; w++)
                moved |= advance(w, 0);
        idle = moved ? 0 : idle + 1;
    }
    check_end();
}

const char *emulation_run(const emulation_launch *launch)
{
    if (!stacks)
        stacks = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    now = launch;
    n_threads = launch->threads;
    problem[0] = '\0';
    random_state = launch->seed;
    const size_t bytes = ((size_t)launch->shared_bytes + 127) / 128 * 128;
    shared = aligned_alloc(128, bytes > 0 ? bytes : 128);
    if (stacks == MAP_FAILED || !shared || n_threads > MAX_THREADS || n_threads % 32 != 0)
        return free(shared), "no memory, or a number of threads that is not possible";
    const i64 n = launch->blocks, from = launch->seed < 2 || n == 0 ? 0 : draw((u32)n);
    for (i64 i = 0; i < n && !problem[0]; i++) {
        const i64 at = (from + i) % n;
        run_block((int)(launch->seed % 2 ? n - 1 - at : at));
    }
    free(shared);
    shared = NULL;
    return problem[0] ? problem : NULL;
}
