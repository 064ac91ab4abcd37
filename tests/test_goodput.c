/* SPDX-License-Identifier: Apache-2.0 */
/* test_goodput.c - failures and checkpoints: against a job that is run failure by failure, the best
 * interval against a search, Llama 3's own number, and what is refused. */
#include "test.h"

#include "base/base_internal.h"
#include "tessera/advanced/goodput.h"

#include <math.h>

/* A uniform number in (0, 1], of the number of the draw. */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 1.0) / 9007199254740992.0;
}

/* Seconds until `segments` intervals are trained and written, with failures at any time. */
static double played(const tess_goodput_result *g, int segments, uint64_t *state)
{
    const double mean = 3600.0 * g->failure_hours, each = g->interval_s + g->write_s;
    double clock = 0.0, failure = -mean * log(draw(state));
    for (int i = 0; i < segments; i++) {
        double need = each;
        while (failure < clock + need) {
            clock = failure;
            failure += -mean * log(draw(state));
            need = g->restart_s + each; /* a failure while it restarts starts it again */
        }
        clock += need;
    }
    return clock;
}

static void goodput_is_that_of_a_job_that_fails(void **state)
{
    (void)state;
    const tess_goodput_opts cases[] = {
        {.gpus = 16384, .write_s = 60, .restart_s = 600},
        {.gpus = 16384, .write_s = 60, .restart_s = 600, .interval_s = 3600},
        {.gpus = 131072, .write_s = 20, .restart_s = 300, .mtbf_hours = 20000}};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_goodput_result g;
        CHECK_OK(tess_goodput(&cases[i], &g));
        const int n = 400000;
        const double measured = n * g.interval_s / played(&g, n, &seed);
        /* The mean of n segments: some 0.3 % at most; 1 % is three times that. */
        assert_true(fabs(measured / g.goodput - 1.0) < 0.01);
        assert_true(fabs(g.goodput + g.written + g.restarted + g.repeated - 1.0) < 1e-12);
        assert_true(g.written > 0.0 && g.restarted > 0.0 && g.repeated >= 0.0);
    }
}

static void the_interval_is_the_best(void **state)
{
    (void)state;
    for (double write = 1.0; write < 500.0; write *= 3.0) {
        tess_goodput_opts o = {.gpus = 16384, .write_s = write, .restart_s = 600};
        tess_goodput_result best, other;
        CHECK_OK(tess_goodput(&o, &best));
        assert_true(best.interval_s == best.best_s);
        for (double by = 0.5; by < 2.1; by += 0.1) {
            o.interval_s = best.best_s * by;
            CHECK_OK(tess_goodput(&o, &other));
            /* Daly's series ends after three terms: within 0.01 % of the optimum. */
            assert_true(other.goodput <= best.goodput * 1.0001);
        }
    }
}

/* Llama 3: 405 billion parameters on 16,384 GPUs, more than 90 % of the time (arXiv:2407.21783). */
static void published_goodput_is_met(void **state)
{
    (void)state;
    tess_goodput_result g;
    CHECK_OK(tess_goodput(&(tess_goodput_opts){.gpus = 16384, .parameters = 405e9}, &g));
    assert_true(g.goodput > 0.90 && g.goodput < 0.97);
    assert_true(fabs(g.failure_hours - 54 * 24 / 419.0) < 1e-3);
}

static void what_is_out_of_range_is_refused(void **state)
{
    (void)state;
    tess_goodput_result g;
    assert_int_equal(tess_goodput(&(tess_goodput_opts){.gpus = 0}, &g), TESS_EINVAL);
    assert_int_equal(tess_goodput(&(tess_goodput_opts){.gpus = 8}, &g), TESS_EINVAL);
    assert_int_equal(tess_goodput(&(tess_goodput_opts){.gpus = 8, .write_s = -1}, &g), TESS_EINVAL);
    assert_int_equal(
        tess_goodput(&(tess_goodput_opts){.gpus = 8, .write_s = 1, .mtbf_hours = NAN}, &g),
        TESS_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_is_that_of_a_job_that_fails),
        cmocka_unit_test(the_interval_is_the_best),
        cmocka_unit_test(published_goodput_is_met),
        cmocka_unit_test(what_is_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
