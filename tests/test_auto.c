/* SPDX-License-Identifier: Apache-2.0 */
/* test_auto.c - no strategy that a caller can ask for is predicted to be faster than auto: every
 * method at every degree, on the shipped clusters, with densities, random and published, and with
 * masks. */
#include "test.h"

#include "plan/strategy_internal.h"
#include "strategy_data.h"

/* Predicted time of one strategy; INT64_MAX where it is no candidate or not predictable. */
static int64_t time_of(const tess_work *work, const tess_cluster *cluster,
                       const tess_plan_opts *opts, const tess_strategy *strategy)
{
    tess_plan_opts one = *opts;
    tess_plan *plan = NULL;
    one.strategy = *strategy;
    if (tess_plan_create(ctx, work, cluster, &one, &plan) != TESS_OK)
        return INT64_MAX;
    const int64_t ns = plan->layers[0].predicted_ns;
    tess_plan_destroy(plan);
    return ns < 0 ? INT64_MAX : ns;
}

static int inside, inside_best; /* plans that were possible, and those that auto takes */

/* Heads cut inside of nodes, a ring or selected keys between them. */
static void check_inside(uint64_t seed, const tess_work *work, const tess_cluster *cluster,
                         const tess_plan_opts *opts, int64_t best)
{
    for (int nodes = 2; nodes <= opts->ranks; nodes++)
        for (int selective = 0; selective < 2 && opts->ranks % nodes == 0; selective++) {
            const tess_strategy s = {.method = TESS_PLAN_FRACTIONAL,
                                     .ulysses = opts->ranks / nodes,
                                     .ring = selective ? 1 : nodes,
                                     .selective = selective ? nodes : 1};
            const int64_t ns = time_of(work, cluster, opts, &s);
            inside += ns != INT64_MAX;
            inside_best += ns == best;
            if (ns < best)
                fail_msg("seed %llu, %d ranks: fractional on %d nodes, selective %d, takes %lld "
                         "ns, auto %lld",
                         (unsigned long long)seed, opts->ranks, nodes, selective, (long long)ns,
                         (long long)best);
        }
}

static void check_none_is_faster(uint64_t seed, const tess_work *work, const tess_cluster *cluster,
                                 const tess_plan_opts *opts)
{
    const int64_t best = time_of(work, cluster, opts, &(tess_strategy){0});
    if (best == INT64_MAX)
        fail_msg("seed %llu: %s", (unsigned long long)seed, tess_last_error());
    check_inside(seed, work, cluster, opts, best);
    for (int m = TESS_PLAN_CONTIGUOUS; m < TESS_PLAN_METHOD_COUNT; m++)
        for (int u = 1; u <= opts->ranks; u++)
            for (int selective = 0; selective < 2 && opts->ranks % u == 0; selective++) {
                const int parts = opts->ranks / u;
                tess_strategy s = {.method = (tess_plan_method)m};
                if (m != TESS_PLAN_FRACTIONAL) {
                    s.ulysses = u;
                    s.ring = selective ? 1 : parts;
                    s.selective = selective ? parts : 1;
                }
                const int64_t ns = time_of(work, cluster, opts, &s);
                char text[TESS_STRATEGY_TEXT];
                tess_strategy_format(&s, text);
                if (ns < best)
                    fail_msg("seed %llu, %d ranks: %s takes %lld ns, auto %lld",
                             (unsigned long long)seed, opts->ranks, text, (long long)ns,
                             (long long)best);
            }
}

static void nothing_is_faster_than_auto(void **state)
{
    (void)state;
    static const char *const names[] = {"a100-40", "a100-80",  "a800",      "azure-ndv4", "b200",
                                        "b300",    "gb200",    "h100",      "h20",        "h200",
                                        "h800",    "jean-zay", "a100-4nic", "gb300"};
    static const int ranks[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 96, 128, 512};
    for (uint64_t seed = 0; seed < 120; seed++) {
        tess_cluster *cluster = NULL;
        tess_work *work = NULL;
        double density[40];
        const int heads = draw(seed, 0, 3, 40), n = ranks[seed % (sizeof ranks / sizeof *ranks)];
        const int masks = seed % 3 == 0 && n <= 32;
        for (int h = 0; h < heads; h++)
            density[h] = draw(seed, 1 + (uint64_t)h, 1, 1000) / 1000.0;
        if (masks)
            work = seed % 2 ? large_masks(seed) : random_masks(seed, 1 + heads / 4, 48, 40, 20);
        else
            CHECK_OK(tess_work_from_density(ctx, density, 1, heads, 75600, 64, &work));
        CHECK_OK(tess_cluster_load(ctx, names[seed % (sizeof names / sizeof *names)], &cluster));
        const int nodes = n <= 8 && n % 2 == 0 && seed % 2 ? 2 : 0;
        check_none_is_faster(seed, work, cluster,
                             &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = n, .nodes = nodes,
                                               .pass = (tess_plan_pass)(seed / 2 % 2),
                                               .memory = (int64_t)1 << 40,
                                               .union_share = seed % 4 ? 0.0 : 0.6});
        tess_cluster_destroy(cluster);
        tess_work_destroy(work);
    }
    print_message("heads cut inside of nodes: %d plans, %d of them the best\n", inside,
                  inside_best);
    assert_true(inside > 20);
}

/* Wan2.1-14B at 75,600 tokens, where unequal numbers of heads lost to contiguous ones. */
static void nothing_is_faster_on_published_densities(void **state)
{
    (void)state;
    static const char *const names[] = {"h100", "a800"};
    static const int ranks[] = {8, 16, 128, 512};
    tess_profile *profile = NULL;
    tess_profile_view p;
    CHECK_OK(tess_profile_open(ctx, PROFILE, NULL, &profile));
    CHECK_OK(tess_profile_query(profile, &p));
    for (uint64_t i = 0; i < 24; i++) {
        tess_cluster *cluster = NULL;
        tess_work *work = NULL;
        const int layer = (int)(i / 8) * (p.layers - 1) / 2;
        CHECK_OK(tess_work_from_density(ctx, p.density + (int64_t)layer * p.heads, 1, p.heads,
                                        75600, 64, &work));
        CHECK_OK(tess_cluster_load(ctx, names[i / 4 % 2], &cluster));
        check_none_is_faster(i, work, cluster,
                             &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = ranks[i % 4],
                                               .pass = (tess_plan_pass)(i / 2 % 2)});
        tess_cluster_destroy(cluster);
        tess_work_destroy(work);
    }
    tess_profile_close(profile);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_faster_than_auto),
    cmocka_unit_test(nothing_is_faster_on_published_densities),
};

RUN_TESTS_WITH(tests, make_world, drop_world)
