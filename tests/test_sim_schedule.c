/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_schedule.c - the closed forms of pipeline schedules against a replay event by event.
 *
 * The replay knows nothing of the formulas: each stage has the list of its passes in the order that
 * its schedule prescribes, a pass starts when its stage is free and its input has arrived, and a
 * step ends with the last pass. Megatron-LM's order for 1F1B and interleaving; for zero bubble a
 * stage takes what is ready: backward first, then forward within the memory of 1F1B, then weights.
 */
#include "test.h"

#include "sim/sim_internal.h"

enum { STAGES = 16, BATCHES = 128, CHUNKS = 8, PASSES = 2 * BATCHES * CHUNKS };

typedef struct {
    int backward, chunk, batch;
} pass;

typedef struct {
    int p, v, m;
    double forward[STAGES], backward[STAGES], hop;
    pass order[STAGES][PASSES];
    double done[2][STAGES][CHUNKS][BATCHES]; /* end of a pass; below 0: not yet */
} replay;

static replay r;

/* The k-th forward or backward pass of a stage. */
static pass numbered(int backward, int k)
{
    const int round = r.p * r.v, chunk = k % round / r.p;
    return (pass){.backward = backward,
                  .chunk = backward ? r.v - 1 - chunk : chunk,
                  .batch = k / round * r.p + k % r.p};
}

static void fill_orders(void)
{
    const int total = r.m * r.v;
    for (int i = 0; i < r.p; i++) {
        int warm = r.v == 1 ? r.p - 1 - i : 2 * (r.p - 1 - i) + (r.v - 1) * r.p;
        warm = warm < total ? warm : total;
        int n = 0, f = 0, b = 0;
        while (f < warm)
            r.order[i][n++] = numbered(0, f++);
        while (b < total) {
            if (f < total)
                r.order[i][n++] = numbered(0, f++);
            r.order[i][n++] = numbered(1, b++);
        }
    }
}

/* When the input of a pass is there; below 0: not yet. */
static double ready(int i, const pass *q)
{
    int from = q->backward ? i + 1 : i - 1, chunk = q->chunk;
    if (from < 0 || from == r.p) {
        chunk += q->backward ? 1 : -1;
        from = q->backward ? 0 : r.p - 1;
    }
    if (chunk < 0)
        return 0.0;
    if (chunk == r.v) /* the loss: its own forward pass */
        return r.done[0][i][q->chunk][q->batch];
    const double end = r.done[q->backward][from][chunk][q->batch];
    return end < 0.0 ? end : end + r.hop;
}

static double replayed(void)
{
    int next[STAGES] = {0}, left = 2 * r.m * r.v * r.p;
    double free_at[STAGES] = {0}, end = 0.0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < STAGES; i++)
            for (int c = 0; c < CHUNKS; c++)
                for (int b = 0; b < BATCHES; b++)
                    r.done[k][i][c][b] = -1.0;
    fill_orders();
    while (left > 0) {
        const int before = left;
        for (int i = 0; i < r.p; i++)
            while (next[i] < 2 * r.m * r.v) {
                const pass *q = &r.order[i][next[i]];
                const double at = ready(i, q);
                if (at < 0.0)
                    break;
                free_at[i] =
                    fmax(free_at[i], at) + (q->backward ? r.backward[i] : r.forward[i]) / r.v;
                r.done[q->backward][i][q->chunk][q->batch] = free_at[i];
                end = fmax(end, free_at[i]);
                next[i]++;
                left--;
            }
        assert_true(left < before); /* no deadlock */
    }
    return end;
}

static double closed(int schedule, double weight)
{
    int slowest;
    const tess__pipeline p = {.stages = r.p,
                              .chunks = r.v,
                              .schedule = schedule,
                              .batches = r.m,
                              .forward = r.forward,
                              .backward = r.backward,
                              .weight = weight,
                              .hop = r.hop,
                              .hop_waited = r.hop};
    return tess__pipeline_seconds(&p, &slowest);
}

static void set(int p, int v, int m, double hop, double last)
{
    r.p = p;
    r.v = v;
    r.m = m;
    r.hop = hop;
    for (int i = 0; i < p; i++) {
        r.forward[i] = 1.0;
        r.backward[i] = 2.0;
    }
    r.forward[p - 1] *= last; /* the LM head */
    r.backward[p - 1] *= last;
}

static void check_within(double got, double want, double share)
{
    if (fabs(got / want - 1.0) > share)
        fail_msg("p %d v %d m %d hop %g: closed form %g, replay %g", r.p, r.v, r.m, r.hop, got,
                 want);
}

static void one_forward_one_backward_agrees_within_a_percent(void **state)
{
    (void)state;
    static const struct {
        int p, m;
        double hop, last;
    } cases[] = {{1, 1, 0, 1},     {1, 8, 0, 1},      {2, 2, 0, 1},     {4, 4, 0, 1},
                 {4, 64, 0, 1},    {8, 32, 0, 1.3},   {16, 16, 0, 1},   {16, 128, 0, 1.1},
                 {8, 64, 0.03, 1}, {16, 64, 0.05, 1}, {4, 32, 0.05, 1}, {8, 8, 0.02, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set(cases[i].p, 1, cases[i].m, cases[i].hop, cases[i].last);
        check_within(closed(TESS_SIM_1F1B, 0.0), replayed(), 0.01);
    }
    set(4, 1, 8, 0.0, 1.0); /* (m + p - 1) (F + B) */
    assert_true(closed(TESS_SIM_1F1B, 0.0) == 33.0);
}

static void interleaved_agrees_within_a_percent(void **state)
{
    (void)state;
    static const struct {
        int p, v, m;
        double last;
    } cases[] = {{2, 2, 4, 1},  {4, 2, 8, 1},   {4, 4, 32, 1},  {8, 3, 64, 1},
                 {8, 6, 24, 1}, {16, 3, 64, 1}, {16, 8, 16, 1}, {8, 2, 64, 1.02}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set(cases[i].p, cases[i].v, cases[i].m, 0.0, cases[i].last);
        check_within(closed(TESS_SIM_INTERLEAVED, 0.0), replayed(), 0.01);
    }
    set(8, 3, 64, 0.0, 1.0); /* m (F + B) + (p - 1) (F + B) / v */
    assert_true(fabs(closed(TESS_SIM_INTERLEAVED, 0.0) - (64 * 3.0 + 7.0)) < 1e-9);
}

/* ---- zero bubble ----------------------------------------------------------------------------- */

/* What a stage has done, and when: of F, B and W, each in the order of batches. */
typedef struct {
    int count[3];
    double end[3][BATCHES], free_at;
} worker;

/* When the next pass of a kind could start at a stage; infinite: not yet known or not allowed. */
static double zero_ready(const worker *w, int i, int kind)
{
    const int k = w[i].count[kind];
    if (k == r.m)
        return INFINITY;
    if (kind == 0) {
        if (w[i].count[0] - w[i].count[1] >= r.p - i)
            return INFINITY; /* the memory of 1F1B */
        return i == 0 ? 0.0 : k < w[i - 1].count[0] ? w[i - 1].end[0][k] : INFINITY;
    }
    if (kind == 2)
        return k < w[i].count[1] ? w[i].end[1][k] : INFINITY;
    if (i == r.p - 1)
        return k < w[i].count[0] ? w[i].end[0][k] : INFINITY;
    return k < w[i + 1].count[1] ? w[i + 1].end[1][k] : INFINITY;
}

/* Always lets the pass start next that can start first; of equals B before F before W. */
static double zero_replayed(const double seconds[3])
{
    static worker w[STAGES];
    static const int priority[] = {1, 0, 2};
    double end = 0.0;
    memset(w, 0, sizeof w);
    for (int left = 3 * r.m * r.p; left > 0; left--) {
        int at = -1, kind = 0;
        double best = INFINITY;
        for (int i = 0; i < r.p; i++)
            for (int q = 0; q < 3; q++) {
                const double start = fmax(w[i].free_at, zero_ready(w, i, priority[q]));
                if (start < best) {
                    best = start;
                    at = i;
                    kind = priority[q];
                }
            }
        assert_true(at >= 0);
        w[at].free_at = best + seconds[kind];
        w[at].end[kind][w[at].count[kind]++] = w[at].free_at;
        end = fmax(end, w[at].free_at);
    }
    return end;
}

static void zero_bubble_agrees_within_a_percent(void **state)
{
    (void)state;
    static const int sizes[][2] = {{2, 8}, {4, 32}, {8, 64}, {16, 128}};
    static const double equal[] = {1.0, 1.0, 1.0}, uneven[] = {1.0, 1.2, 0.8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        set(sizes[i][0], 1, sizes[i][1], 0.0, 1.0);
        check_within(closed(TESS_SIM_ZERO_BUBBLE, 1.0), zero_replayed(equal), 0.01);
        check_within(closed(TESS_SIM_ZERO_BUBBLE, 0.8), zero_replayed(uneven), 0.01);
        assert_true(closed(TESS_SIM_ZERO_BUBBLE, 1.0) < closed(TESS_SIM_1F1B, 0.0));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_forward_one_backward_agrees_within_a_percent),
    cmocka_unit_test(interleaved_agrees_within_a_percent),
    cmocka_unit_test(zero_bubble_agrees_within_a_percent),
};

RUN_TESTS(tests)
