/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_offsets.c - offsets of which 32 bits would wrap: rows 256 MiB apart, lists that begin at
 * 2^33, a workspace beyond 2^34 bytes. By strides and displaced pointers, not by memory: a page for
 * each row. The results have the bits of the same rows side by side. */
#include "gpu_passes.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { DIM = 64, TQ = 20, TK = 18, ROWS_AWAY = 1 << 28, TENSORS = 9, ORDER = 3 };
#define LISTS_AWAY ((i64)1 << 33)
#define ENTRIES_AWAY ((i64)1 << 26) /* times 64 floats: 2^34 bytes */

typedef struct {
    gpu_case c;
    int far;
    void *map[TENSORS];
    size_t bytes[TENSORS];
    int n;
    long long *offsets;
    float *dq, *dk, *dv, *lse, *delta; /* as rows side by side */
    int *first, *group, *place;
} run_data;

/* Rows of a tensor, side by side or far apart; `data` are copied there unless NULL. */
static tess_gpu_rows rows(run_data *r, const void *data, i64 tokens, int bytes)
{
    const i64 own = (i64)DIM * bytes, stride = r->far ? ROWS_AWAY : own;
    const size_t all = (size_t)(stride * tokens);
    u8 *const to =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(to != MAP_FAILED);
    madvise(to, all, MADV_NOHUGEPAGE);
    for (i64 t = 0; t < tokens; t++)
        if (data)
            memcpy(to + t * stride, (const u8 *)data + t * own, (size_t)own);
        else
            memset(to + t * stride, 0xff, (size_t)own);
    assert_true(r->n < TENSORS);
    r->map[r->n] = to;
    r->bytes[r->n++] = all;
    return (tess_gpu_rows){to, stride * tokens, stride * tokens, (int)stride, 0};
}

static void read_rows(const tess_gpu_rows *from, void *to, i64 tokens, int bytes)
{
    for (i64 t = 0; t < tokens; t++)
        memcpy((u8 *)to + t * DIM * bytes, from->data + t * from->s, (size_t)DIM * (size_t)bytes);
}

/* A pointer as if `n` elements more were in front of the data. */
static void *displaced(const void *data, i64 n, i64 size, int far)
{
    return (void *)((uintptr_t)data - (far ? (uintptr_t)(n * size) : 0));
}

static run_data make_run(int far, int unit)
{
    const gpu_problem p = {1, 1, DIM, TQ, TK, 7, unit, unit > 1 ? 0.9 : 0.5, FULL};
    run_data r = {.c = make_case(&p, 4), .far = far};
    const tess_selection_lists *const l = &r.c.lists;
    const size_t entries = (size_t)l->offsets[l->lists];
    r.offsets = malloc(sizeof *r.offsets * (size_t)(l->lists + 1));
    for (i64 i = 0; i <= l->lists; i++)
        r.offsets[i] = l->offsets[i] + (far ? LISTS_AWAY : 0);
    r.dq = malloc(TQ * DIM * sizeof(float));
    r.dk = malloc(TK * DIM * sizeof(float));
    r.dv = malloc(TK * DIM * sizeof(float));
    r.lse = malloc(TQ * sizeof(float));
    r.delta = malloc(TQ * sizeof(float));
    r.first = malloc((size_t)(l->shape.n_k + 1) * sizeof(int));
    r.group = malloc(entries * sizeof(int) + 1);
    r.place = malloc(entries * sizeof(int) + 1);
    return r;
}

static void free_run(run_data *r)
{
    void *const all[] = {r->offsets, r->dq,    r->dk,    r->dv,   r->lse,
                         r->delta,   r->first, r->group, r->place};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < r->n; i++)
        munmap(r->map[i], r->bytes[i]);
    free_case(&r->c);
}

static tess_gpu_lists far_lists(const run_data *r)
{
    tess_gpu_lists lists = lists_of(&r->c);
    lists.offsets = r->offsets;
    lists.indices = displaced(lists.indices, LISTS_AWAY, sizeof(int), r->far);
    return lists;
}

/* Forward, then backward: ordered, or by blocks of keys. */
static void run(run_data *r)
{
    const gpu_case *const c = &r->c;
    const i64 lists = c->lists.lists;
    const int owned = c->p.unit >= 16;
    const float scale = 0.125f;
    tess_gpu_backward_args back = {.lists = far_lists(r),
                                   .q = rows(r, c->q, TQ, 2),
                                   .k = rows(r, c->k, TK, 2),
                                   .v = rows(r, c->v, TK, 2),
                                   .o = rows(r, NULL, TQ, 2),
                                   .dout = rows(r, c->dout, TQ, 2),
                                   .dq = rows(r, NULL, TQ, 4),
                                   .dk = rows(r, NULL, TK, 4),
                                   .dv = rows(r, NULL, TK, 4),
                                   .lse = r->lse,
                                   .dlse = c->dlse,
                                   .tiles = 1,
                                   .mode = owned ? TESS_GPU_QUERIES : TESS_GPU_ORDERED,
                                   .scale = scale};
    const tess_gpu_forward_args forward = {.lists = back.lists,
                                           .q = back.q,
                                           .k = back.k,
                                           .v = back.v,
                                           .o = back.o,
                                           .lse = r->lse,
                                           .tiles = 1,
                                           .scale2 = scale * 1.44269504f};
    int *const group = displaced(r->group, LISTS_AWAY, sizeof(int), r->far);
    int *const place = displaced(r->place, LISTS_AWAY, sizeof(int), r->far);
    const tess_gpu_transpose_args transpose = {back.lists, r->first, group, place};
    launch("forward_d64_g16_bf16", &forward, lists, ORDER);
    transpose_lists(&transpose, 1, ORDER);
    if (owned) {
        const tess_gpu_delta_args delta = {back.o, back.dout, c->dlse, r->delta, 1, TQ};
        const tess_gpu_keys_args own = {back.lists, back.q, back.k,   back.v,   back.dout, back.dk,
                                        back.dv,    r->lse, r->delta, r->first, group,     scale};
        launch("backward_d64_g32_bf16", &back, lists, ORDER);
        launch("delta_d64_bf16", &delta, (TQ + 3) / 4, ORDER);
        launch("key_blocks_d64_k16_bf16", &own, (TK + 15) / 16, ORDER);
    }
    if (!owned) {
        const i64 n = r->offsets[lists] - r->offsets[0], away = ENTRIES_AWAY * c->p.unit * DIM;
        const size_t bytes = (size_t)(n * c->p.unit * DIM) * sizeof(float) + 16;
        float *const work[2] = {malloc(bytes), malloc(bytes)};
        back.entry0 = r->offsets[0] - (r->far ? ENTRIES_AWAY : 0);
        back.row_dk = displaced(work[0], away, sizeof(float), r->far);
        back.row_dv = displaced(work[1], away, sizeof(float), r->far);
        const tess_gpu_sum_args sum = {.lists = back.lists,
                                       .dk = back.dk,
                                       .dv = back.dv,
                                       .first = r->first,
                                       .group = group,
                                       .place = place,
                                       .row_dk = back.row_dk,
                                       .row_dv = back.row_dv,
                                       .entry0 = back.entry0,
                                       .entry1 = r->offsets[lists],
                                       .tiles = 1,
                                       .rows = 32,
                                       .begin = 1,
                                       .scale = scale};
        launch("backward_d64_g32_bf16", &back, lists, ORDER);
        launch("sum_rows_d64", &sum, TK, ORDER);
        free(work[0]);
        free(work[1]);
    }
    read_rows(&back.o, c->o, TQ, 2);
    read_rows(&back.dq, r->dq, TQ, 4);
    read_rows(&back.dk, r->dk, TK, 4);
    read_rows(&back.dv, r->dv, TK, 4);
}

static void test_far_apart(void **state)
{
    (void)state;
    static const int units[] = {1, 2, 16};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        run_data near = make_run(0, units[i]), far = make_run(1, units[i]);
        run(&near);
        run(&far);
        assert_memory_equal(far.c.o, near.c.o, TQ * DIM * 2);
        assert_memory_equal(far.lse, near.lse, TQ * sizeof(float));
        assert_memory_equal(far.dq, near.dq, TQ * DIM * sizeof(float));
        assert_memory_equal(far.dk, near.dk, TK * DIM * sizeof(float));
        assert_memory_equal(far.dv, near.dv, TK * DIM * sizeof(float));
        for (int j = 0; j < TQ * DIM; j++)
            assert_true(isfinite(far.dq[j]));
        for (int j = 0; j < TK * DIM; j++)
            assert_true(isfinite(far.dk[j]) && isfinite(far.dv[j]));
        free_run(&near);
        free_run(&far);
    }
}

/* Lists of the selection, and of units as rows, that begin at 2^33; rows of q and k far apart. */
static void test_far_lists(void **state)
{
    (void)state;
    enum { N_Q = 17, N_K = 20, RANK = 16, KEEP = 6 };
    int near[N_Q * KEEP], far[N_Q * KEEP], rows_near[64], rows_far[64];
    float q[N_Q * RANK], k[N_K * RANK];
    long long offsets[N_Q + 1];
    const int keep = KEEP;
    fill_normal(q, N_Q * RANK, 1);
    fill_normal(k, N_K * RANK, 2);
    for (int away = 0; away < 2; away++) {
        const size_t stride = away ? ROWS_AWAY : RANK * sizeof(float);
        u8 *to[2];
        for (int i = 0; i < 2; i++) {
            const int n = i ? N_K : N_Q;
            to[i] = mmap(NULL, stride * (size_t)n, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            assert_true(to[i] != MAP_FAILED);
            madvise(to[i], stride * (size_t)n, MADV_NOHUGEPAGE);
            for (int j = 0; j < n; j++)
                memcpy(to[i] + (size_t)j * stride, (i ? k : q) + j * RANK, RANK * sizeof(float));
        }
        for (int g = 0; g <= N_Q; g++)
            offsets[g] = g * KEEP + (away ? LISTS_AWAY : 0);
        const tess_gpu_select_args args = {
            .q = {to[0], 0, 0, (int)stride, 0},
            .k = {to[1], 0, 0, (int)stride, 0},
            .keep = &keep,
            .offsets = offsets,
            .indices = displaced(away ? far : near, LISTS_AWAY, sizeof(int), away),
            .heads = 1,
            .n_q = N_Q,
            .n_k = N_K,
            .rank = RANK,
        };
        launch("select_r16", &args, 2, ORDER);
        munmap(to[0], stride * N_Q);
        munmap(to[1], stride * N_K);

        static const int bounds_k[] = {0, 3, 4, 9, 15}, units[] = {0, 2, 1, 3};
        const long long at = away ? LISTS_AWAY : 0;
        const long long unit_offsets[] = {at, at + 2, at + 4},
                        row_offsets[] = {at, at + 8, at + 15};
        const tess_gpu_expand_args expand = {
            unit_offsets, displaced(units, LISTS_AWAY, sizeof(int), away), bounds_k, row_offsets,
            displaced(away ? rows_far : rows_near, LISTS_AWAY, sizeof(int), away)};
        launch("expand_units", &expand, 2, ORDER);
    }
    assert_memory_equal(far, near, sizeof near);
    assert_memory_equal(rows_far, rows_near, 15 * sizeof(int));
    for (int i = 0; i < N_Q * KEEP; i++)
        assert_in_range(near[i], 0, N_K - 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_far_apart),
    cmocka_unit_test(test_far_lists),
};
RUN_GPU_TESTS(tests)
