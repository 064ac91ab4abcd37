/* SPDX-License-Identifier: Apache-2.0 */
/* test_strategy.c - the choice between candidates, its reasons, and reuse. */
#include "test.h"

#include "plan/strategy_internal.h"
#include "strategy_data.h"

#include <stdlib.h>

static const uint64_t PLANS_HASH = 0x6a2b188a7238aceb;

/* ---- candidates and reasons ------------------------------------------------------------------ */

static void every_factorisation_is_tried_and_explained(void **state)
{
    (void)state;
    tess_work *work = even_work(12, 6400, 64, 0.2);
    tess_plan *plan = NULL;
    found f = {0};
    CHECK_OK(tess_plan_create(ctx, work, round_cluster,
                              &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 16}, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    /* By six methods: 16x1; 8, 4 and 2 by ring and selective in two placements each; 1 x 16 twice.
     * And fractional, over all ranks, and inside of nodes by ring and selective. */
    assert_int_equal(f.n, 6 * (1 + 3 * 4 + 2) + 3);
    assert_string_equal(f.c[0].reason, "12 heads on 16 ranks");
    assert_int_equal(f.c[0].ns, -1);
    int chosen = 0;
    for (int i = 0; i < f.n; i++) {
        const tess_candidate *c = &f.c[i];
        chosen += c->chosen;
        assert_true(c->strategy.method == TESS_PLAN_FRACTIONAL
                        ? i >= f.n - 3
                        : c->strategy.ulysses * c->strategy.ring * c->strategy.selective == 16);
        assert_true(c->strategy.ring == 1 || c->strategy.selective == 1);
        assert_true(c->reason[0] != '\0');
        if (c->strategy.selective > 1)
            assert_true(
                strcmp(c->reason, "not predictable: selective needs masks or a union share") == 0 ||
                strncmp(c->reason, "the same as ", 12) == 0);
        if (c->chosen) {
            assert_string_equal(c->reason, "chosen: fastest");
            for (int k = 0; k < f.n; k++)
                assert_true(f.c[k].ns < 0 || f.c[k].ns >= c->ns);
        }
    }
    assert_int_equal(chosen, 1);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

static void the_reason_names_what_is_worse(void **state)
{
    (void)state;
    const double density[3] = {0.5, 0.1, 0.1};
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    found f = {0};
    CHECK_OK(tess_work_from_density(ctx, density, 1, 3, 32000, 64, &work));
    CHECK_OK(tess_plan_create(ctx, work, round_cluster,
                              &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2}, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    assert_int_equal(f.n, 6 * 3 + 1);
    assert_memory_equal(f.c[0].reason, "not chosen: 1.", 14);
    assert_non_null(strstr(f.c[0].reason, "x slower, attention +"));
    assert_non_null(strstr(f.c[0].reason, " ms, imbalance 1.43 against 1.00"));
    tess_plan_destroy(plan);

    /* Without a cluster balance decides, then bytes. */
    f.n = 0;
    CHECK_OK(tess_plan_create(ctx, work, NULL,
                              &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2}, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    assert_string_equal(f.c[0].reason,
                        "not chosen: no better balanced, imbalance 1.43 against 1.00, "
                        "1.17x the bytes");
    tess_plan_layer layer;
    CHECK_OK(tess_plan_layer_view(plan, 0, &layer));
    assert_int_equal(layer.predicted_ns, -1);
    assert_true(layer.rho[TESS_RHO_RING] <= 1.01);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

static void as_many_heads_on_every_rank_may_be_the_fastest(void **state)
{
    (void)state;
    /* One head has most of the work: balance puts it alone, and five heads travel to the other. */
    const double density[6] = {0.5, 0.1, 0.1, 0.1, 0.1, 0.1};
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .whole_heads = 1};
    tess_cluster_info info;
    tess_cluster *slow = NULL, *assumed = NULL; /* packing rows has a measured price; it has none */
    tess_work *work = NULL;
    CHECK_OK(tess_cluster_query(round_cluster, &info));
    info.link_bandwidth = 1e6;
    CHECK_OK(tess_cluster_create(ctx, &info, &assumed));
    info.pack_ns = 0.1;
    CHECK_OK(tess_cluster_create(ctx, &info, &slow));
    CHECK_OK(tess_work_from_density(ctx, density, 1, 6, 6400, 64, &work));
    const tess_cluster *const clusters[] = {slow, assumed, round_cluster, NULL};
    for (int i = 0; i < 4; i++) {
        tess_plan *plan = NULL;
        tess_plan_layer layer;
        CHECK_OK(tess_plan_create(ctx, work, clusters[i], &opts, &plan));
        CHECK_OK(tess_plan_layer_view(plan, 0, &layer));
        assert_int_equal(layer.strategy.method,
                         i <= 1 ? TESS_PLAN_REFINED_EQUAL : TESS_PLAN_REFINED);
        CHECK_OK(tess_plan_check(plan, work));
        tess_plan_destroy(plan);
    }
    tess_work_destroy(work);
    tess_cluster_destroy(assumed);
    tess_cluster_destroy(slow);
}

static void limits_of_executors_are_respected(void **state)
{
    (void)state;
    tess_work *work = random_masks(3, 12, 24, 24, 40);
    static const struct {
        tess_plan_opts opts;
        int ring, selective, fractional; /* allowed */
    } cases[] = {
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .whole_keys = 1}, 0, 1, 1},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .whole_keys = 2}, 0, 0, 1},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .whole_heads = 1}, 0, 0, 0},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .equal_heads = 1}, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_plan *plan = NULL;
        found f = {0};
        CHECK_OK(tess_plan_create(ctx, work, round_cluster, &cases[i].opts, &plan));
        CHECK_OK(tess_plan_explain(plan, find_all, &f));
        for (int k = 0; k < f.n; k++) {
            const tess_candidate *c = &f.c[k];
            const int may = c->strategy.method == TESS_PLAN_FRACTIONAL ? cases[i].fractional
                            : c->strategy.ring > 1                     ? cases[i].ring
                            : c->strategy.selective > 1                ? cases[i].selective
                                                                       : 1;
            const int barred = strstr(c->reason, "splits") || strstr(c->reason, "unequal");
            assert_int_equal(barred, !may);
            assert_true(may || !c->chosen);
        }
        tess_plan_destroy(plan);
    }
    tess_work_destroy(work);
    work = even_work(6, 6400, 64, 0.2);
    tess_plan *plan = NULL;
    found f = {0};
    CHECK_OK(tess_plan_create(
        ctx, work, NULL, &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .equal_heads = 1},
        &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    assert_string_equal(f.c[0].reason, "6 heads do not divide by 4");
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

static void a_plan_that_does_not_fit_names_the_amount(void **state)
{
    (void)state;
    /* 2 GiB a GPU: 8 heads of 300,000 tokens need 1.1 GiB locally, as much again on 2 ranks. */
    tess_work *work = even_work(8, 300000, 64, 0.02);
    tess_plan *plan = NULL;
    CHECK_FAILS(tess_plan_create(ctx, work, round_cluster,
                                 &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2}, &plan),
                TESS_EINVAL,
                "tess_plan_create: layer 0: no candidate fits, the smallest needs 2.3 GiB of 2");
    assert_null(plan);
    found f = {0};
    CHECK_OK(tess_plan_create(
        ctx, work, round_cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .memory = (int64_t)5 << 29}, &plan));
    CHECK_OK(tess_plan_explain(plan, find_all, &f));
    for (int i = 0; i < f.n; i++)
        if (f.c[i].strategy.ring == 2 && f.c[i].strategy.method == TESS_PLAN_REFINED)
            assert_string_equal(f.c[i].reason, "needs 2.9 GiB of 2.5");
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

/* ---- the rest of the contract ---------------------------------------------------------------- */

static void the_same_input_gives_the_same_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        tess_work *work = random_masks(seed, 8, 20, 22, 30);
        tess_plan *a = NULL, *b = NULL;
        found fa = {0}, fb = {0};
        const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 8, .nodes = 2};
        CHECK_OK(tess_plan_create(ctx, work, round_cluster, &opts, &a));
        CHECK_OK(tess_plan_create(ctx, work, round_cluster, &opts, &b));
        CHECK_OK(tess_plan_explain(a, find_all, &fa));
        CHECK_OK(tess_plan_explain(b, find_all, &fb));
        assert_int_equal(fa.n, fb.n);
        for (int i = 0; i < fa.n; i++) {
            assert_int_equal(fa.c[i].ns, fb.c[i].ns);
            assert_int_equal(fa.c[i].bytes, fb.c[i].bytes);
            assert_string_equal(fa.c[i].reason, fb.c[i].reason);
        }
        assert_int_equal(a->layers[0].n_shares, b->layers[0].n_shares);
        assert_memory_equal(a->layers[0].shares, b->layers[0].shares,
                            (size_t)a->layers[0].n_shares * sizeof(tess_share));
        CHECK_OK(tess_plan_check(a, work));
        tess_plan_destroy(a);
        tess_plan_destroy(b);
        tess_work_destroy(work);
    }
}

/* Every number and every share of these plans, folded into one: the same for every compiler and
 * instruction set. A change of the model changes it; nothing else may. */
static void plans_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    static const char *const names[] = {"a100-40", "a100-80", "a800", "azure-ndv4", "b200", "b300",
                                        "gb200",   "h100",    "h20",  "h200",       "h800"};
    uint64_t hash = 1469598103934665603u;
    for (uint64_t seed = 0; seed < 30; seed++) {
        tess_work *work = random_masks(seed, 3 + (int)(seed % 8), 20, 22, 30);
        tess_cluster *cluster = NULL;
        tess_plan *plan = NULL;
        found f = {0};
        CHECK_OK(tess_cluster_load(ctx, names[seed % (sizeof names / sizeof names[0])], &cluster));
        CHECK_OK(tess_plan_create(ctx, work, cluster,
                                  &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8,
                                                    .nodes = 1 + (int)(seed % 4),
                                                    .pass = (tess_plan_pass)(seed % 2)},
                                  &plan));
        CHECK_OK(tess_plan_explain(plan, find_all, &f));
        for (int i = 0; i < f.n; i++) {
            const int64_t numbers[] = {f.c[i].ns, f.c[i].compute_ns, f.c[i].bytes, f.c[i].memory};
            for (int n = 0; n < 4; n++)
                hash = (hash ^ (uint64_t)numbers[n]) * 1099511628211u;
            for (const char *c = f.c[i].reason; *c; c++)
                hash = (hash ^ (uint64_t)(unsigned char)*c) * 1099511628211u;
        }
        for (int64_t i = 0; i < plan->layers[0].n_shares; i++) {
            const tess_share *share = &plan->layers[0].shares[i];
            hash = (hash ^ (uint64_t)(share->rank * 31 + share->head)) * 1099511628211u;
            hash = (hash ^ (uint64_t)(share->q_begin * 31 + share->q_end)) * 1099511628211u;
        }
        tess_plan_destroy(plan);
        tess_cluster_destroy(cluster);
        tess_work_destroy(work);
    }
    if (hash != PLANS_HASH)
        fail_msg("plans fold to 0x%016llx, must be 0x%016llx", (unsigned long long)hash,
                 (unsigned long long)PLANS_HASH);
}

static void the_largest_world_is_planned(void **state)
{
    (void)state;
    tess_work *work = even_work(16, 1 << 20, 64, 0.01);
    tess_plan *plan = NULL;
    const tess_plan_opts most = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 65536,
                                 .strategy.method = TESS_PLAN_FRACTIONAL};
    CHECK_OK(tess_plan_create(ctx, work, round_cluster, &most, &plan));
    CHECK_OK(tess_plan_check(plan, work));
    tess_plan_destroy(plan);
    plan = NULL;
    CHECK_FAILS(tess_plan_create(ctx, work, round_cluster,
                                 &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 8192,
                                                   .strategy.ring = 8192},
                                 &plan),
                TESS_EINVAL,
                "tess_plan_create: layer 0: no candidate can be planned: 8192 parts of the "
                "sequence, at most 4096 are planned");
    tess_work_destroy(work);
}

static void a_faster_rank_gets_more(void **state)
{
    (void)state;
    tess_work *work = even_work(16, 6400, 64, 0.2);
    const int32_t speeds[4] = {3, 1, 1, 1};
    tess_plan *plan = NULL;
    CHECK_OK(tess_plan_create(
        ctx, work, round_cluster,
        &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .speeds = speeds}, &plan));
    int64_t loads[4];
    tess__layer_loads(&plan->info, &plan->layers[0], work, 0, loads);
    assert_true(loads[0] > 2 * loads[1]);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    tess_work *work = even_work(4, 6400, 64, 0.2), *weights = NULL;
    const int64_t loads[2] = {3, 5};
    const int32_t speeds[2] = {1, 0};
    static const char w[] = "tess_plan_create: ";
    const struct {
        tess_plan_opts opts;
        const char *sentence;
    } bad[] = {
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 0}, "ranks is 0, must be 1..65536 ranks"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .nodes = 3}, "nodes is 3, must be 0..2"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .strategy.method = (tess_plan_method)99},
         "method is 99, must be one of auto, contiguous, snake, lpt, db-sp, refined, fractional, "
         "refined-equal"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .strategy.ulysses = 3},
         "ulysses is 3, must be 0..2"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .strategy.ring = -1},
         "ring is -1, must be 0..65536"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 4, .strategy = {.ring = 2, .selective = 2}},
         "ring is 2 and selective is 2, one must be 1"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 8, .strategy.ulysses = 3},
         "ulysses 3, ring 0, selective 0: no such degrees make 8 ranks"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 8,
          .strategy = {.ulysses = 2, .ring = 2, .selective = 1}},
         "ulysses 2, ring 2, selective 1: no such degrees make 8 ranks"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .head_dim = -8}, "head_dim is -8, must be 1..4096"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .element_bytes = 3},
         "element_bytes is 3, must be one of 2, 4"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .proj_dim = -1}, "proj_dim is -1, must be 0..65536"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .lse = 2}, "lse is 2, must be 0 or 1"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .union_share = 1.5},
         "union_share is 1.5, must be 0..1"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .union_share = NAN},
         "union_share is nan, must be 0..1"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .union_shares = (const double[]){0.5, 1.0, -0.5}},
         "union_shares[2] is -0.5, must be 0..1"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .memory = -1},
         "memory is -1, must be 0..9.2e+18 bytes"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 2, .speeds = speeds},
         "speeds[1] is 0, must be 1..1000000"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 16, .nodes = 1},
         "16 ranks on 1 nodes, but a node of round has 8 GPUs"},
        {{TESS_PLAN_OPTS_DEFAULTS, .ranks = 8, .strategy.ulysses = 8},
         "layer 0: no candidate can be planned: 4 heads on 8 ranks"},
    };
    tess_plan *plan = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s%s", w, bad[i].sentence);
        CHECK_FAILS(tess_plan_create(ctx, work, round_cluster, &bad[i].opts, &plan), TESS_EINVAL,
                    sentence);
    }
    CHECK_FAILS(tess_plan_create(ctx, NULL, NULL, &bad[0].opts, &plan), TESS_EINVAL,
                "tess_plan_create: work is NULL");
    CHECK_FAILS(tess_plan_create(ctx, work, NULL, NULL, &plan), TESS_EINVAL,
                "tess_plan_create: opts is NULL");
    CHECK_OK(tess_work_from_weights(ctx, loads, 1, 2, 8, &weights));
    CHECK_FAILS(tess_plan_create(ctx, weights, round_cluster,
                                 &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 2}, &plan),
                TESS_EINVAL,
                "tess_plan_create: the work is of weights or of blocks without tokens, whose time "
                "on a cluster is not known");
    assert_null(plan);
    CHECK_FAILS(tess_plan_explain(NULL, find_all, NULL), TESS_EINVAL,
                "tess_plan_explain: plan is NULL");
    tess_work_destroy(weights);
    tess_work_destroy(work);
}

/* ---- reuse ----------------------------------------------------------------------------------- */

/* Densities of 2 layers x 8 heads that drift over steps: heads swap their loads slowly. */
static tess_work *drifting(int step)
{
    double density[16];
    for (int i = 0; i < 16; i++) {
        const double from = 0.05 + 0.02 * (i * 7 % 16), to = 0.05 + 0.02 * (i * 5 % 16);
        density[i] = from + (to - from) * step / 30.0;
    }
    tess_work *work = NULL;
    CHECK_OK(tess_work_from_density(ctx, density, 2, 8, 16000, 64, &work));
    return work;
}

/* Re-plans over 30 steps by the rule, and the mean imbalance. */
static int count_replans(const tess_plan_opts *opts, const tess_cluster *cluster, double *rho)
{
    tess_plan *plan = NULL;
    int replans = 0;
    int64_t carried = 0;
    *rho = 0.0;
    for (int step = 0; step < 30; step++) {
        tess_work *work = drifting(step);
        tess_plan_verdict keep = {0};
        if (plan) {
            CHECK_OK(tess_plan_keep(plan, work, cluster, opts, carried, &keep));
            tess_plan_verdict again;
            CHECK_OK(tess_plan_keep(plan, work, cluster, opts, carried, &again));
            assert_int_equal(keep.keep, again.keep);
            carried = keep.carried_ns;
            *rho += keep.rho / 29.0;
        }
        if (!plan || !keep.keep) {
            replans += plan != NULL;
            tess_plan_destroy(plan);
            carried = 0;
            CHECK_OK(tess_plan_create(ctx, work, cluster, opts, &plan));
        }
        tess_work_destroy(work);
    }
    tess_plan_destroy(plan);
    return replans;
}

static void a_lower_threshold_plans_more_often(void **state)
{
    (void)state;
    static const double thresholds[] = {0.5, 1.02, 1.05, 1.1, 1.2, 1e9};
    int last = 30;
    double rho;
    for (size_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
        const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                                     .strategy = {.ulysses = 4, .method = TESS_PLAN_REFINED},
                                     .replan_above = thresholds[i]};
        const int replans = count_replans(&opts, NULL, &rho);
        if (i == 0)
            assert_int_equal(replans, 29);
        assert_true(replans <= last);
        last = replans;
    }
    assert_int_equal(last, 0);
}

static void cost_decides_where_a_cluster_is_known(void **state)
{
    (void)state;
    double slow_rho, fast_rho;
    tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4,
                           .strategy = {.ulysses = 4, .method = TESS_PLAN_REFINED}};
    /* The slower the ranks, the dearer imbalance, and the more often planning pays. */
    tess_cluster *const clusters[] = {round_with(offsetof(tess_cluster_info, attn_flops), 1e12),
                                      round_with(offsetof(tess_cluster_info, attn_flops), 1e15)};
    const int slow = count_replans(&opts, clusters[0], &slow_rho);
    const int fast = count_replans(&opts, clusters[1], &fast_rho);
    tess_cluster_destroy(clusters[0]);
    tess_cluster_destroy(clusters[1]);
    assert_true(slow > fast);
    assert_true(slow_rho <= fast_rho);

    tess_work *first = drifting(0), *later = drifting(15);
    tess_plan *plan = NULL;
    tess_plan_verdict keep;
    CHECK_OK(tess_plan_create(ctx, first, round_cluster, &opts, &plan));
    CHECK_OK(tess_plan_keep(plan, first, round_cluster, &opts, 0, &keep));
    assert_true(keep.keep && keep.loss_ns == 0 && keep.carried_ns == 0);
    /* 2 layers of 50 us, and 8 x 2 loads of 8 bytes at 100 GB/s after 1 us and a launch of 3. */
    assert_int_equal(keep.cost_ns, 2 * 50000 + 4000 + 1);
    CHECK_OK(tess_plan_keep(plan, later, round_cluster, &opts, keep.cost_ns, &keep));
    assert_true(!keep.keep && keep.loss_ns > 0);
    assert_int_equal(keep.carried_ns, keep.cost_ns + keep.loss_ns);
    tess_plan_destroy(plan);
    tess_work_destroy(first);
    tess_work_destroy(later);
}

/* A published profile, whose folder the environment variable TESS_REFERENCE names: five steps far
 * apart, 40 layers, 40 heads on 8 ranks. Each step is planned afresh or keeps the plan. */
static void reuse_on_a_published_profile(void **state)
{
    (void)state;
    static const double thresholds[] = {0.5, 1.02, 1.1, 1.5, 1e9};
    const char *folder = getenv("TESS_REFERENCE");
    if (!folder) {
        print_message("skipped reuse_on_a_published_profile: TESS_REFERENCE is not set\n");
        skip();
    }
    char path[4096];
    tess_profile *profile = NULL;
    tess_profile_view v;
    snprintf(path, sizeof path, "%s/sparsity/wan2.1_14b_t2v.csv", folder);
    CHECK_OK(tess_profile_open(ctx, path, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &v));
    int last = v.steps;
    for (size_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
        const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 8,
                                     .strategy = {.ulysses = 8, .method = TESS_PLAN_REFINED},
                                     .replan_above = thresholds[i]};
        tess_plan *plan = NULL;
        int replans = 0;
        double rho = 0.0;
        for (int step = 0; step < v.steps; step++) {
            tess_work *work = NULL;
            tess_plan_verdict keep = {0};
            CHECK_OK(tess_work_from_density(ctx, v.density + step * v.layers * v.heads, v.layers,
                                            v.heads, 75600, 64, &work));
            if (plan)
                CHECK_OK(tess_plan_keep(plan, work, NULL, &opts, 0, &keep));
            if (!keep.keep) {
                replans += plan != NULL;
                tess_plan_destroy(plan);
                CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
                CHECK_OK(tess_plan_keep(plan, work, NULL, &opts, 0, &keep));
            }
            rho += keep.rho / v.steps;
            tess_work_destroy(work);
        }
        print_message("re-plan above %g: %d re-plans, mean imbalance %.4f\n", thresholds[i],
                      replans, rho);
        assert_true(replans <= last);
        last = replans;
        tess_plan_destroy(plan);
    }
    assert_int_equal(last, 0);
    tess_profile_close(profile);
}

static void keep_says_what_is_wrong(void **state)
{
    (void)state;
    tess_work *work = drifting(0), *other = even_work(8, 16000, 64, 0.1);
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 4};
    tess_plan *plan = NULL;
    tess_plan_verdict keep;
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    CHECK_FAILS(tess_plan_keep(NULL, work, NULL, &opts, 0, &keep), TESS_EINVAL,
                "tess_plan_keep: plan is NULL");
    CHECK_FAILS(tess_plan_keep(plan, other, NULL, &opts, 0, &keep), TESS_EINVAL,
                "tess_plan_keep: the work has 1 layers, the plan 2");
    CHECK_FAILS(tess_plan_keep(plan, work, NULL,
                               &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 3}, 0, &keep),
                TESS_EINVAL, "tess_plan_keep: ranks is 3, must be the plan's 4");
    CHECK_FAILS(tess_plan_keep(plan, work, NULL, &opts, -5, &keep), TESS_EINVAL,
                "tess_plan_keep: carried_ns is -5, must be 0 or more");
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    tess_work_destroy(other);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_factorisation_is_tried_and_explained),
    cmocka_unit_test(the_reason_names_what_is_worse),
    cmocka_unit_test(as_many_heads_on_every_rank_may_be_the_fastest),
    cmocka_unit_test(limits_of_executors_are_respected),
    cmocka_unit_test(a_plan_that_does_not_fit_names_the_amount),
    cmocka_unit_test(the_same_input_gives_the_same_plan),
    cmocka_unit_test(plans_have_the_same_bits_everywhere),
    cmocka_unit_test(the_largest_world_is_planned),
    cmocka_unit_test(a_faster_rank_gets_more),
    cmocka_unit_test(bad_options_are_refused),
    cmocka_unit_test(a_lower_threshold_plans_more_often),
    cmocka_unit_test(cost_decides_where_a_cluster_is_known),
    cmocka_unit_test(reuse_on_a_published_profile),
    cmocka_unit_test(keep_says_what_is_wrong),
};

RUN_TESTS_WITH(tests, make_world, drop_world)
