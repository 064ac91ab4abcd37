/* SPDX-License-Identifier: Apache-2.0 */
/* emulation.c - runs the blocks of a launch, one after the other, each as coroutines.
 *
 * A step of a warp runs its lanes to their next barrier. Which warp has the next steps, and how
 * many, is drawn; so is the direction of the lanes. A block ends when no thread can move: then each
 * must have returned, and waited for all that it copied. Shared memory begins as NaN patterns.
 */
#include "emulation.h"

#include "coroutine.h"

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
    const void *operand; /* what the lane brings to a collective, which writes to *result */
    void *result;
    int line;
} thread_state;

int emulation_thread, emulation_block;
static thread_state threads[MAX_THREADS];
static int arrived[BARRIERS], n_threads;
static char *stacks;
static const emulation_launch *now;
static u8 *shared;
static u32 random_state;
static emulation_counts counts;
static char problem[200];

static u32 draw(u32 below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

#define PROBLEM(...)                                                                               \
    do {                                                                                           \
        if (!problem[0])                                                                           \
            snprintf(problem, sizeof problem, __VA_ARGS__);                                        \
    } while (0)

u8 *emulation_shared(void)
{
    return shared;
}

emulation_counts emulation_read(void)
{
    return counts;
}

void emulation_reset(void)
{
    counts = (emulation_counts){0};
}

float emulation_fp16(u16 x)
{
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const float sign = x & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                            : ldexpf((float)fraction, -24));
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
    threads[emulation_thread].line = 0;
    arrive(barrier, n);
    yield(); /* the last one too: that it came last gives it no right to go first */
}

void emulation_sync_block(void)
{
    emulation_sync(0, n_threads);
}

/* All lanes of the warp have come: do the work of each from what all have brought. */
typedef void collective(thread_state lane[32]);

static void meet(collective *work, const void *operand, void *result, int line)
{
    thread_state *const self = &threads[emulation_thread];
    thread_state *const lane = &threads[emulation_thread & ~31];
    self->operand = operand;
    self->result = result;
    self->line = line;
    if (arrive(16 + (emulation_thread >> 5), 32)) {
        for (int i = 0; i < 32; i++)
            if (lane[i].line != line)
                PROBLEM("lanes of a warp at lines %d and %d", line, lane[i].line);
        if (!problem[0])
            work(lane);
    }
    yield();
}

/* ---- cp.async ------------------------------------------------------------------------------ */

static int inside_shared(const u8 *p, int bytes)
{
    return p >= shared && p + bytes <= shared + now->shared_bytes && (p - shared) % 16 == 0;
}

void emulation_copy(u8 *sh, const u8 *from, int yes)
{
    thread_state *const t = &threads[emulation_thread];
    if (t->copies == MAX_COPIES || !inside_shared(sh, 16) || (uintptr_t)from % 16 != 0) {
        PROBLEM("a copy out of shared memory, not aligned, or one of more than %d", MAX_COPIES);
        return;
    }
    memset(sh, 0xff, 16);
    counts.copied_bytes += yes ? 16 : 0;
    t->copy[t->copies++] = (copy){sh, from, yes, t->committed};
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

/* ---- collectives --------------------------------------------------------------------------- */

/* Lanes 8i .. 8i + 7 name the rows of matrix i. Eight rows are read at once: those that share a
 * group of four banks come after each other. */
static int count_rows(thread_state lane[32])
{
    counts.ldmatrix++;
    for (int i = 0; i < 32; i += 8) {
        int rows[8] = {0}, most = 0;
        for (int j = 0; j < 8; j++) {
            const u8 *const row = lane[i + j].operand;
            if (!inside_shared(row, 16)) {
                PROBLEM("a row of ldmatrix out of shared memory, or not aligned");
                return 0;
            }
            const int n = ++rows[(row - shared) / 16 % 8];
            most = n > most ? n : most;
        }
        counts.conflicts += most - 1;
    }
    return 1;
}

/* Lane l has elements 2(l%4) and + 1 of row l/4. */
static void load_matrices(thread_state lane[32])
{
    if (!count_rows(lane))
        return;
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++)
            memcpy((u32 *)lane[l].result + i, (const u8 *)lane[8 * i + l / 4].operand + 4 * (l % 4),
                   4);
}

/* The same of the transposed matrices: elements (2(l%4), l/4) and (2(l%4) + 1, l/4). */
static void load_transposed(thread_state lane[32])
{
    if (!count_rows(lane))
        return;
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            u16 x[2];
            for (int e = 0; e < 2; e++)
                memcpy(x + e, (const u8 *)lane[8 * i + 2 * (l % 4) + e].operand + 2 * (l / 4), 2);
            ((u32 *)lane[l].result)[i] = x[0] | (u32)x[1] << 16;
        }
}

void emulation_ldmatrix(u32 r[4], const u8 *row, int transposed, int line)
{
    meet(transposed ? load_transposed : load_matrices, row, r, line);
}

typedef struct {
    u32 a[4], b[2];
} mma_operand;

static float element(u32 x, int high, int fp16)
{
    const u16 half = (u16)(high ? x >> 16 : x);
    return fp16 ? emulation_fp16(half) : as_float((u32)half << 16);
}

/* c(row, column) += the sum over k of a(row, k) b(k, column), of the operands of all lanes. */
static void multiply(thread_state lane[32], int fp16)
{
    float a[16][16], b[16][8];
    counts.mma++;
    for (int l = 0; l < 32; l++) {
        const mma_operand *const x = lane[l].operand;
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < 2; e++)
                a[l / 4 + 8 * (i & 1)][2 * (l % 4) + e + 8 * (i >> 1)] = element(x->a[i], e, fp16);
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < 2; e++)
                b[2 * (l % 4) + e + 8 * i][l / 4] = element(x->b[i], e, fp16);
    }
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            const int row = l / 4 + 8 * (e >> 1), column = 2 * (l % 4) + (e & 1);
            float *const c = (float *)lane[l].result + e;
            for (int k = 0; k < 16; k++)
                *c += a[row][k] * b[k][column];
        }
}

static void multiply_bf16(thread_state lane[32])
{
    multiply(lane, 0);
}

static void multiply_fp16(thread_state lane[32])
{
    multiply(lane, 1);
}

void emulation_mma(float c[4], const u32 a[4], u32 b0, u32 b1, int fp16, int line)
{
    const mma_operand operand = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    meet(fp16 ? multiply_fp16 : multiply_bf16, &operand, c, line);
}

typedef struct {
    u32 x;
    int mask;
} shuffle_operand;

static void shuffle(thread_state lane[32])
{
    for (int l = 0; l < 32; l++) {
        const shuffle_operand *const self = lane[l].operand;
        *(u32 *)lane[l].result = ((const shuffle_operand *)lane[l ^ self->mask].operand)->x;
    }
}

u32 emulation_shuffle(u32 x, int mask, int line)
{
    const shuffle_operand operand = {x, mask};
    u32 y = 0;
    meet(shuffle, &operand, &y, line);
    return y;
}

static void any(thread_state lane[32])
{
    int found = 0;
    for (int l = 0; l < 32; l++)
        found |= *(const int *)lane[l].operand;
    for (int l = 0; l < 32; l++)
        *(int *)lane[l].result = found != 0;
}

int emulation_any(int x, int line)
{
    int y = 0;
    meet(any, &x, &y, line);
    return y;
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
            PROBLEM("thread %d of block %d waits for ever at barrier %d, after line %d", t,
                    emulation_block, threads[t].barrier, threads[t].line);
        else if (threads[t].copies > 0)
            PROBLEM("thread %d of block %d never waits for a copy", t, emulation_block);
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
        threads[t].done = threads[t].copies = threads[t].committed = threads[t].line = 0;
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
