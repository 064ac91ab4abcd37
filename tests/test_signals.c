/* SPDX-License-Identifier: Apache-2.0 */
/* test_signals.c - a program whose signal handlers run on the threads that train: the same bits,
 * and a heap that stays intact. oneDNN up to 3.11.1 computes with its stack pointer in the heap.
 *
 * TESS_TEST_SECONDS: how long the run under signals takes; 2 if it is not set.
 */
#define _GNU_SOURCE /* gettid */
#include "train_data.h"

#include <omp.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 2, EVERY_NS = 200000 }; /* 5 kHz on each thread */

static atomic_long handled;

static void handle(int number)
{
    (void)number;
    atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
}

/* A timer for each thread of the OpenMP pool, whose signal that thread takes. */
static void start_timers(timer_t timers[THREADS])
{
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    int failed = 0;
#pragma omp parallel num_threads(THREADS) reduction(| : failed)
    {
        const int i = omp_get_thread_num();
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
        event._sigev_un._tid = gettid();
        const struct itimerspec times = {{0, EVERY_NS}, {0, EVERY_NS}};
        failed |= timer_create(CLOCK_MONOTONIC, &event, &timers[i]) != 0 ||
                  timer_settime(timers[i], 0, &times, NULL) != 0;
    }
    assert_int_equal(failed, 0);
}

static int stop_in_time(void *user, const tess_step *step)
{
    const int64_t *until = user;
    (void)step;
    return tess_clock_ns() > *until;
}

static void training_under_signals_has_the_same_bits(void **state)
{
    (void)state;
    const char *text = getenv("TESS_TEST_SECONDS");
    const tess_train_opts opts = {TESS_TRAIN_OPTS_DEFAULTS, .batch = 2,          .steps = 1000000,
                                  .validate_every = 50,     .validate_clips = 2, .seed = 3};
    const tess_ctx_opts ctx = {.threads = THREADS};
    timer_t timers[THREADS];
    run disturbed = start_run(&ctx, 4, &opts), quiet = start_run(&ctx, 4, &opts);
    int64_t until = tess_clock_ns() + (int64_t)(1e9 * (text ? atof(text) : 2.0));
    start_timers(timers);
    assert_int_equal(tess_train_run(disturbed.train, 0, stop_in_time, &until), TESS_ESTOPPED);
    for (int i = 0; i < THREADS; i++)
        timer_delete(timers[i]);
    print_message("%lld steps, %ld signals\n", (long long)disturbed.train->step,
                  atomic_load(&handled));
    assert_true(atomic_load(&handled) > 1000);
    CHECK_OK(tess_train_run(quiet.train, disturbed.train->step, NULL, NULL));
    check_same_training(&disturbed, &quiet);
    end(&disturbed);
    end(&quiet);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(training_under_signals_has_the_same_bits),
};

RUN_TESTS(tests)
