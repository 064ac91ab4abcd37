/* SPDX-License-Identifier: Apache-2.0 */
/* test_mixture_rates.c - ranks of unequal speeds: measured times give the next plan.
 *
 * Times are computed from the plan's own work in place of a clock, so that the numbers are the same
 * on any machine. The clips of the step are those of a real training step.
 */
#include "train_ranks.h"

#include <math.h>

static const char four_sizes[] = "2x16x16:6,4x16x24:3,4x32x32:2,8x32x32";
static const double PAIR = 0.7, TOKEN = 900.0; /* ns of one layer, of a pair of all heads */

enum { RANKS = 4, EVEN = 8, SLOW = 16, MOST = EVEN + SLOW };

/* Steps whose times are given. */
typedef struct {
    const tess_train_opts *opts;
    double speed[MOST][RANKS]; /* of each rank in each step */
    int steps;
    double ideal[MOST], time[MOST];   /* of the step: with no rank waiting, and as planned */
    double work[MOST][RANKS];         /* of each rank, its time at speed 1 */
    int adopted[MOST];                /* how often rates had come into force after the step */
    int32_t speeds_found[RANKS], cut; /* at the end; clips that were cut in all steps */
    tess_status status[RANKS];
} history;

/* The ranks of a cut clip end it together, when the slowest of them has its equal share. */
static double finish(const tess__mixture *m, int rank, const double *speed)
{
    double time = 0.0;
    for (int i = 0; i < m->n; i++) {
        const tess__step_clip *clip = &m->clips[i];
        const double n = (double)clip->tokens;
        double slowest = INFINITY;
        if (rank < clip->first || rank >= clip->first + clip->width)
            continue;
        for (int p = clip->first; p < clip->first + clip->width; p++)
            slowest = fmin(slowest, speed[p]);
        time += (n * n * PAIR + n * TOKEN) / clip->width / slowest;
    }
    return time;
}

static void note(history *h, int step, const tess__mixture *m)
{
    double sum = 0.0, speeds = 0.0;
    h->time[step] = 0.0;
    for (int p = 0; p < RANKS; p++) {
        h->work[step][p] = m->rates.work[p] * PAIR + m->rates.work[RANKS + p] * TOKEN;
        h->time[step] = fmax(h->time[step], finish(m, p, h->speed[step]));
        sum += h->work[step][p];
        speeds += h->speed[step][p];
    }
    h->ideal[step] = sum / speeds;
    h->adopted[step] = m->rates.adopted;
    h->cut += (int32_t)m->view.cut_clips;
    memcpy(h->speeds_found, m->rates.speeds, sizeof h->speeds_found);
}

static tess_status go_through(runner *t, history *h)
{
    TESS_TRY(begin_story(t));
    TESS_TRY(tess_train_run(t->r.train, 1, NULL, NULL));
    for (int step = 0; step < h->steps; step++) {
        tess__mixture *m = t->r.train->mixture;
        TESS_TRY(tess__mixture_plan(t->r.train));
        const double speed = h->speed[step][t->rank], *work = m->rates.work;
        const double attention = work[t->rank] * PAIR / speed;
        const double rest = work[RANKS + t->rank] * TOKEN / speed;
        TESS_TRY(tess__rates_step(t->r.train, attention, attention + rest));
        if (t->rank == 0)
            note(h, step, m);
    }
    return TESS_OK;
}

static tess_status run_history_rank(void *user, tess_ctx *ctx, tess_comm *comm)
{
    history *h = user;
    story s = {.opts = h->opts, .ranks = RANKS, .sizes = four_sizes};
    runner t = {.s = &s, .ctx = ctx, .comm = comm};
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    t.rank = info.rank;
    h->status[t.rank] = go_through(&t, h);
    tess_train_destroy(t.r.train);
    tess_data_close(t.r.data);
    tess_model_destroy(t.r.model);
    return TESS_OK;
}

static void run_history(history *h)
{
    for (int step = 0; step < h->steps; step++)
        for (int p = 0; p < RANKS; p++)
            h->speed[step][p] = h->speed[step][p] > 0.0 ? h->speed[step][p] : 1.0;
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.threads = 1}, RANKS, NULL, run_history_rank, h));
    for (int p = 0; p < RANKS; p++)
        assert_int_equal(h->status[p], TESS_OK);
}

static const tess_train_opts plain = {
    TESS_TRAIN_OPTS_DEFAULTS, .batch = 48, .steps = 8, .warmup = 2, .validate_every = 0, .seed = 3};

/* From step EVEN on the last rank has half of its speed: the fourth slow step is planned with it,
 * and takes at most 1.08 times as long as it would if no rank waited. */
static void check_half_speed(int whole)
{
    tess_train_opts opts = plain;
    opts.ranks_context = whole;
    history h = {.opts = &opts, .steps = MOST};
    for (int step = EVEN; step < MOST; step++)
        h.speed[step][RANKS - 1] = 0.5;
    run_history(&h);
    for (int step = 0; step < MOST; step++)
        print_message("step %2d: %.4f of the ideal\n", step, h.time[step] / h.ideal[step]);
    assert_true(h.time[EVEN - 1] / h.ideal[EVEN - 1] <= 1.05);
    assert_true(h.time[EVEN] / h.ideal[EVEN] > 1.5); /* before anyone knows */
    for (int step = EVEN + 3; step < MOST; step++)
        assert_true(h.time[step] / h.ideal[step] <= 1.08);
    assert_in_range(h.speeds_found[RANKS - 1], 495, 505);
    for (int p = 0; p < RANKS - 1; p++)
        assert_in_range(h.speeds_found[p], 990, 1000);
    assert_true(whole ? h.cut == 0 : 1);
}

static void a_rank_of_half_speed_gets_half(void **state)
{
    (void)state;
    check_half_speed(1);
    check_half_speed(0);
}

static void one_slow_step_changes_nothing(void **state)
{
    (void)state;
    history h = {.opts = &plain, .steps = EVEN + 4};
    h.speed[EVEN][1] = 0.3;
    run_history(&h);
    for (int step = EVEN; step < h.steps; step++)
        assert_int_equal(h.adopted[step], h.adopted[EVEN - 1]);
    assert_int_equal(h.speeds_found[1], 1000);
}

/* Speeds that were given: ranks get work in their proportion, whatever is measured. */
static void given_speeds_are_kept(void **state)
{
    (void)state;
    tess_train_opts opts = plain;
    opts.speeds = "30,10,20,30";
    opts.ranks_context = 1;
    history h = {.opts = &opts, .steps = EVEN};
    run_history(&h);
    const double *work = h.work[EVEN - 1];
    const double unit = (work[0] + work[1] + work[2] + work[3]) / 9.0;
    const double share[] = {3.0, 1.0, 2.0, 3.0};
    for (int p = 0; p < RANKS; p++)
        assert_true(fabs(work[p] / unit / share[p] - 1.0) < 0.03);
    assert_int_equal(h.speeds_found[1], 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_of_half_speed_gets_half),
    cmocka_unit_test(one_slow_step_changes_nothing),
    cmocka_unit_test(given_speeds_are_kept),
};
RUN_TESTS_WITH(tests, open_root, close_root)
