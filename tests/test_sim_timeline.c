/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_timeline.c - the step of a scenario as events: against all ranks simulated apart,
 * against the closed forms, and by what must hold of every timeline. */
#include "sim_data.h"

#include "sim/events/events_internal.h"

#include <stdlib.h>

static tess_cluster *h100;

static int make_all(void **state)
{
    return make_sim(state) || tess_cluster_load(ctx, "h100", &h100) != TESS_OK;
}

static int drop_all(void **state)
{
    tess_cluster_destroy(h100);
    return drop_sim(state);
}

static tess_timeline *timeline_of(const tess_scenario *s, const tess_sim_timeline_opts *opts,
                                  tess_sim_result *r)
{
    tess_timeline *t = NULL;
    CHECK_OK(tess_sim_run(sim, h100, s, r));
    CHECK_OK(tess_sim_timeline(sim, opts, &t));
    return t;
}

static uint64_t seed;

static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static int one_of(const int *list, int n)
{
    return list[below(n)];
}

/* ---- classes against every rank -------------------------------------------------------------- */

static tess_scenario random_scenario(void)
{
    static const int twos[] = {1, 2, 4}, few[] = {1, 2}, stages[] = {1, 2, 3, 4};
    static const char *const eras[] = {"megatron-2022", "megatron-core-2024", "bridge-moe-2025",
                                       "mosaic-2023"};
    tess_scenario s = {
        .model = {.layers = 8, .hidden = 512, .heads = 8, .seq = 1024, .vocab = 4096},
        .layout = {.tp = one_of(twos, 3),
                   .pp = one_of(stages, 4),
                   .cp = one_of(few, 2),
                   .dp = one_of(twos, 3)},
        .training = {.micro_batch = 1}};
    s.model.tied = below(2);
    if (s.layout.tp * s.layout.cp * s.layout.dp * s.layout.pp > 64)
        s.layout.tp = 1;
    s.layout.sequence = below(2);
    s.layout.zero = below(4);
    if (below(3) == 0) {
        s.model.experts = 8;
        s.model.top_k = 2;
        s.model.dense_layers = below(3);
        s.layout.etp = 1;
        s.layout.ep = one_of(few, 2);
        if (s.layout.tp * s.layout.cp * s.layout.dp % s.layout.ep)
            s.layout.ep = 1;
    }
    if (s.layout.zero && s.layout.dp > 1 && s.layout.ep < 2)
        s.layout.replicas = one_of(few, 2);
    s.layout.cp_kind = below(2) ? TESS_SIM_CP_RING : TESS_SIM_CP_ULYSSES;
    s.training.recompute = (tess_sim_recompute)below(3);
    s.training.global_batch = (int64_t)s.layout.dp * s.layout.pp * (1 + below(3));
    static const tess_sim_schedule schedules[] = {
        TESS_SIM_1F1B,         TESS_SIM_INTERLEAVED,    TESS_SIM_ZERO_BUBBLE, TESS_SIM_GPIPE,
        TESS_SIM_GPIPE_LOOPED, TESS_SIM_INTERLEAVED_ZB, TESS_SIM_ZB_V};
    s.layout.schedule = s.layout.pp > 1 ? schedules[below(7)] : TESS_SIM_1F1B;
    if (s.layout.schedule == TESS_SIM_INTERLEAVED || s.layout.schedule == TESS_SIM_GPIPE_LOOPED ||
        s.layout.schedule == TESS_SIM_INTERLEAVED_ZB || s.layout.schedule == TESS_SIM_ZB_V)
        s.layout.vpp = 2;
    snprintf(s.system.era, sizeof s.system.era, "%s", eras[below(4)]);
    return s;
}

/* The operations of a row, in the order they were added. */
static int64_t next_of_row(const tess_timeline *t, int row, int64_t i)
{
    while (i < t->n && t->ops[i].row != row)
        i++;
    return i;
}

/* Messages come to a row while others are built: each stream by itself is in the same order. */
static void check_same_rank(const tess_timeline *a, const tess_timeline *b, int rank)
{
    for (int stream = 0; stream < a->streams; stream++) {
        int64_t i = 0, k = 0;
        for (;; i++, k++) {
            do
                i = next_of_row(a, a->row_of[rank], i);
            while (i < a->n && a->ops[i].stream != stream && ++i);
            do
                k = next_of_row(b, b->row_of[rank], k);
            while (k < b->n && b->ops[k].stream != stream && ++k);
            if (i == a->n || k == b->n)
                break;
            assert_int_equal(a->ops[i].ready, b->ops[k].ready);
            assert_int_equal(a->ops[i].begin, b->ops[k].begin);
            assert_int_equal(a->ops[i].end, b->ops[k].end);
            assert_string_equal(a->names[a->ops[i].name], b->names[b->ops[k].name]);
        }
        assert_true(i == a->n && k == b->n);
    }
}

static void classes_of_ranks_are_as_all_ranks_apart(void **state)
{
    (void)state;
    int classes = 0, ranks = 0;
    for (int round = 0; round < 40; round++) {
        seed = (uint64_t)round + 7;
        const tess_scenario s = random_scenario();
        tess_sim_result r;
        tess_slow_rank slow[3];
        const int n_slow = below(4);
        const int gpus = s.layout.tp * s.layout.cp * s.layout.dp * s.layout.pp;
        for (int i = 0; i < n_slow; i++)
            slow[i] = (tess_slow_rank){below(gpus), 1.0 + 0.1 * (1 + below(3))};
        tess_sim_timeline_opts opts = {.slow = slow, .n_slow = n_slow};
        tess_timeline *few = timeline_of(&s, &opts, &r);
        opts.every_rank = 1;
        tess_timeline *all = timeline_of(&s, &opts, &r);
        assert_int_equal(all->rows, gpus);
        assert_true(few->rows <= all->rows);
        if (n_slow == 0)
            assert_int_equal(few->rows, s.layout.pp);
        assert_int_equal(few->end, all->end);
        for (int rank = 0; rank < gpus; rank++)
            check_same_rank(few, all, rank);
        classes += few->rows;
        ranks += gpus;
        tess_timeline_destroy(few);
        tess_timeline_destroy(all);
    }
    assert_true(3 * classes < 2 * ranks); /* the classes save work */
}

/* ---- what holds of every timeline ------------------------------------------------------------ */

static void critical_path_adds_up_and_members_run_together(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        seed = (uint64_t)round + 1000;
        const tess_scenario s = random_scenario();
        tess_sim_result r;
        tess_timeline *t = timeline_of(&s, NULL, &r);
        int64_t sum = 0, ns, last = 0;
        const char *name;
        for (int i = 0; tess_sim_timeline_class(i); i++) {
            CHECK_OK(tess_timeline_critical(t, i, &name, &ns));
            assert_string_equal(name, tess_sim_timeline_class(i));
            sum += ns;
        }
        assert_int_equal(sum, t->end);
        for (int64_t i = 0; i < t->n; i++) {
            const tess__tl_op *op = &t->ops[i];
            last = TESS_MAX(last, op->end);
            if (op->call >= 0) {
                const tess__tl_op *first = &t->ops[t->calls[op->call].first];
                assert_int_equal(op->begin, first->begin);
                assert_int_equal(op->end, first->end);
            }
            if (t->next[i] >= 0)
                assert_true(t->ops[t->next[i]].ready >= op->end);
        }
        assert_int_equal(last, t->end);
        tess_timeline_destroy(t);
    }
}

static void memory_over_time_reaches_the_peak_of_the_closed_form(void **state)
{
    (void)state;
    static const tess_sim_schedule schedules[] = {
        TESS_SIM_1F1B,           TESS_SIM_ZERO_BUBBLE, TESS_SIM_GPIPE,       TESS_SIM_INTERLEAVED,
        TESS_SIM_INTERLEAVED_ZB, TESS_SIM_ZB_V,        TESS_SIM_GPIPE_LOOPED};
    for (int i = 0; i < 7; i++) {
        tess_scenario s = gpt(48, 6144, 64, 4);
        s.training.global_batch = 16;
        s.layout.schedule = schedules[i];
        s.layout.vpp = i > 2 ? 2 : 1;
        snprintf(s.system.era, sizeof s.system.era, "megatron-core-2024");
        tess_sim_result r;
        tess_timeline *t = timeline_of(&s, NULL, &r);
        double peak = 0.0;
        for (int64_t k = 0; k < t->n_counters; k++) {
            const tess__tl_counter *c = &t->counters[k];
            assert_true(c->value[1] >= 0 && c->value[2] >= 0);
            peak = fmax(peak, (double)c->value[0] + (double)c->value[1] + (double)c->value[2]);
        }
        /* Rounded to bytes. */
        if (fabs(peak / r.memory.allocated - 1.0) > 1e-6)
            fail_msg("schedule %d: peak %g, closed form %g", (int)schedules[i], peak,
                     r.memory.allocated);
        tess_timeline_destroy(t);
    }
}

/* ---- closed forms ---------------------------------------------------------------------------- */

/* Stages of equally many layers, without embedding and LM head, nothing overlapped but messages. */
static void events_agree_with_closed_forms_for_equal_stages(void **state)
{
    (void)state;
    static const struct {
        tess_sim_schedule schedule;
        int pp, vpp, batches, tp;
    } cases[] = {{TESS_SIM_1F1B, 1, 1, 4, 1},          {TESS_SIM_1F1B, 4, 1, 16, 8},
                 {TESS_SIM_1F1B, 8, 1, 32, 1},         {TESS_SIM_GPIPE, 4, 1, 16, 8},
                 {TESS_SIM_INTERLEAVED, 4, 2, 16, 8},  {TESS_SIM_INTERLEAVED, 8, 3, 64, 1},
                 {TESS_SIM_GPIPE_LOOPED, 4, 2, 16, 1}, {TESS_SIM_ZERO_BUBBLE, 4, 1, 16, 1},
                 {TESS_SIM_ZERO_BUBBLE, 8, 1, 64, 1},  {TESS_SIM_INTERLEAVED_ZB, 4, 3, 16, 1},
                 {TESS_SIM_ZB_V, 4, 2, 16, 1},         {TESS_SIM_ZB_V, 8, 2, 32, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tess_scenario s = gpt(48, 12288, 96, cases[i].pp);
        s.model.vocab = 0;
        s.model.tied = s.model.learned_positions = 0;
        s.layout.schedule = cases[i].schedule;
        s.layout.vpp = cases[i].vpp;
        s.layout.tp = cases[i].tp;
        s.layout.sequence = cases[i].tp > 1;
        s.training.global_batch = cases[i].batches;
        s.training.overlap_pp = TESS_SIM_ON;
        snprintf(s.system.era, sizeof s.system.era, "bridge-2025");
        tess_sim_result r;
        tess_timeline *t = timeline_of(&s, NULL, &r);
        const double events = 1e-9 * (double)t->end;
        if (fabs(events / r.step_s - 1.0) > 0.01)
            fail_msg(
                "schedule %d, pp %d, vpp %d, %d micro-batches: closed form %g ms, events %g ms",
                (int)cases[i].schedule, cases[i].pp, cases[i].vpp, cases[i].batches, 1e3 * r.step_s,
                1e3 * events);
        tess_timeline_destroy(t);
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static void slow_rank_and_scale_change_the_step(void **state)
{
    (void)state;
    tess_scenario s = gpt(24, 4096, 32, 2);
    s.layout.dp = 2;
    s.training.global_batch = 16;
    tess_sim_result r;
    tess_timeline *t = timeline_of(&s, NULL, &r);
    const int64_t even = t->end;
    assert_int_equal(t->rows, 2);
    tess_timeline_destroy(t);
    const tess_slow_rank slow = {17, 1.2};
    t = timeline_of(&s, &(tess_sim_timeline_opts){.slow = &slow, .n_slow = 1}, &r);
    assert_true(t->end > even && (double)t->end < 1.2 * (double)even);
    assert_int_equal(t->rows, 8); /* (in its tp group or not) x (its dp group or not) x stage */
    tess_timeline_destroy(t);
    double scale[TESS__TL_CLASSES];
    for (int i = 0; i < TESS__TL_CLASSES; i++)
        scale[i] = 1.0;
    scale[TESS__TL_TP] = 0.0;
    t = timeline_of(&s, &(tess_sim_timeline_opts){.scale = scale}, &r);
    assert_true(t->end < even);
    tess_timeline_destroy(t);
    t = NULL;
    const tess_slow_rank outside = {32, 1.2};
    CHECK_FAILS(
        tess_sim_timeline(sim, &(tess_sim_timeline_opts){.slow = &outside, .n_slow = 1}, &t),
        TESS_EINVAL, "timeline: slow rank 32, must be 0..31");
    scale[TESS__TL_TP] = -1.0;
    CHECK_FAILS(tess_sim_timeline(sim, &(tess_sim_timeline_opts){.scale = scale}, &t), TESS_EINVAL,
                "timeline: tp is -1, must be 0..1000");
}

static void schedule_from_a_file_is_the_one_by_name(void **state)
{
    (void)state;
    tess_scenario s = gpt(24, 4096, 32, 4);
    s.training.global_batch = 8;
    s.layout.schedule = TESS_SIM_INTERLEAVED;
    s.layout.vpp = 2;
    tess_sim_result named, filed;
    tess_timeline *a = timeline_of(&s, NULL, &named), *b = NULL;
    tess_schedule *schedule = NULL, *other = NULL;
    CHECK_OK(tess_sim_schedule_of(sim, &schedule));
    s.layout.schedule = TESS_SIM_SCHEDULE_FILE;
    snprintf(s.layout.schedule_file, sizeof s.layout.schedule_file, "x.csv");
    CHECK_FAILS(tess_sim_run(sim, h100, &s, &filed), TESS_EINVAL,
                "scenario: layout.schedule is the file \"x.csv\", which was not given to "
                "tess_sim_use_schedule");
    CHECK_OK(tess_sim_use_schedule(sim, schedule));
    b = timeline_of(&s, NULL, &filed);
    assert_int_equal(a->end, b->end);
    assert_true(fabs(filed.step_s / named.step_s - 1.0) < 0.02);
    assert_true(fabs(filed.memory.peak / named.memory.peak - 1.0) < 1e-9);
    CHECK_OK(tess_sim_schedule_of(sim, &other));
    tess_schedule_info info;
    CHECK_OK(tess_schedule_query(other, &info));
    assert_int_equal(info.actions, 2 * 4 * 2 * 8);
    s.training.global_batch = 16;
    CHECK_FAILS(tess_sim_run(sim, h100, &s, &filed), TESS_EINVAL,
                "scenario: x.csv has 8 micro-batches, but global_batch / (dp x micro_batch) is 16");
    CHECK_OK(tess_sim_use_schedule(sim, NULL));
    tess_schedule_destroy(schedule);
    tess_schedule_destroy(other);
    tess_timeline_destroy(a);
    tess_timeline_destroy(b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(classes_of_ranks_are_as_all_ranks_apart),
    cmocka_unit_test(critical_path_adds_up_and_members_run_together),
    cmocka_unit_test(memory_over_time_reaches_the_peak_of_the_closed_form),
    cmocka_unit_test(events_agree_with_closed_forms_for_equal_stages),
    cmocka_unit_test(slow_rank_and_scale_change_the_step),
    cmocka_unit_test(schedule_from_a_file_is_the_one_by_name),
};

RUN_TESTS_WITH(tests, make_all, drop_all)
