/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm.c - communicators without MPI: one rank alone, ranks as threads, virtual clocks. */
#include "comm/comm_thread.h"
#include "comm_ranks.h"
#include "ctx_fixture.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static void threads_do_what_every_communicator_must(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int i = 0; i < WORKS; i++)
            if (tess_comm_threads(NULL, ranks, NULL, run_work, &i) != TESS_OK)
                fail_msg("%s on %d ranks: %s", rank_works[i].name, ranks, tess_last_error());
}

static void a_rank_alone_does_too(void **state)
{
    (void)state;
    for (int i = 0; i < WORKS; i++) {
        tess_comm *comm = NULL;
        tess_comm_info info;
        CHECK_OK(tess_comm_self(ctx, &comm));
        CHECK_OK(tess_comm_query(comm, &info));
        assert_string_equal(info.kind, "self");
        assert_int_equal(info.size, 1);
        assert_int_equal(run_work(&i, ctx, comm), TESS_OK);
        tess_comm_destroy(comm);
    }
}

/* ---- failures of ranks ----------------------------------------------------------------------- */

static tess_status fail_alone(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)own;
    tess_comm_info info;
    tess_comm_query(comm, &info);
    if (info.rank == *(int *)user)
        return fail_here(info.rank);
    return tess_comm_agree(comm, TESS_OK);
}

static void a_rank_that_returns_a_failure_ends_the_others(void **state)
{
    (void)state;
    char sentence[200], expected[240];
    for (int who = 0; who < 4; who++) {
        sentence_of(who, sentence);
        /* The failure of the lowest rank: rank 0's own, or what it heard. */
        if (who == 0)
            snprintf(expected, sizeof expected, "%s", sentence);
        else
            snprintf(expected, sizeof expected, "rank %d: %s", who, sentence);
        CHECK_FAILS(tess_comm_threads(NULL, 4, NULL, fail_alone, &who), TESS_EINVAL, expected);
    }
}

static tess_status return_early(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)user;
    (void)own;
    tess_comm_info info;
    tess_comm_query(comm, &info);
    return info.rank == 1 ? TESS_OK : tess_comm_agree(comm, TESS_OK);
}

static void waiting_for_a_rank_that_has_returned_is_an_error(void **state)
{
    (void)state;
    CHECK_FAILS(tess_comm_threads(NULL, 2, NULL, return_early, NULL), TESS_EIO,
                "rank 0 waits for rank 1, which has returned");
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    const tess_rank_fn fn = run_work;
    CHECK_FAILS(tess_comm_self(NULL, &comm), TESS_EINVAL, "tess_comm_self: ctx is NULL");
    CHECK_FAILS(tess_comm_self(ctx, NULL), TESS_EINVAL, "tess_comm_self: comm is NULL");
    CHECK_FAILS(tess_comm_threads(NULL, 0, NULL, fn, NULL), TESS_EINVAL,
                "tess_comm_threads: ranks is 0, must be 1..1024");
    CHECK_FAILS(tess_comm_threads(NULL, 1, NULL, NULL, NULL), TESS_EINVAL,
                "tess_comm_threads: fn is NULL");
    CHECK_FAILS(tess_comm_threads(NULL, 1, &(tess_link){.latency = -1}, fn, NULL), TESS_EINVAL,
                "tess_comm_threads: latency is -1, must be 0..2^50 ns");
    CHECK_FAILS(tess_comm_threads(NULL, 1, &(tess_link){.network_bandwidth = -1.0}, fn, NULL),
                TESS_EINVAL,
                "tess_comm_threads: network_bandwidth is -1, must be 0 or 1..1e18 bytes/s");
    CHECK_FAILS(tess_comm_threads(NULL, 1, &(tess_link){.node_ranks = -1}, fn, NULL), TESS_EINVAL,
                "tess_comm_threads: node_ranks is -1, must be 0 or more");
    CHECK_FAILS(tess_comm_threads(NULL, 1, &(tess_link){.share_cores = 2}, fn, NULL), TESS_EINVAL,
                "tess_comm_threads: share_cores is 2, must be 0 or 1");
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = 2}, 1, &(tess_link){0}, fn, NULL),
                TESS_EINVAL, "tess_comm_threads: threads is 2, must be 1 with a link");
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = -2}, 1, NULL, fn, NULL), TESS_EINVAL,
                "tess_ctx_create: threads is -2, must be 1..1024, or 0 for all usable cores");
}

/* ---- virtual time ---------------------------------------------------------------------------- */

/* Waits for all others without a call that gives the core away. */
static tess_status meet(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)own;
    atomic_int *here = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < info.size)
        sched_yield();
    return TESS_OK;
}

static void ranks_that_share_cores_compute_at_once(void **state)
{
    (void)state;
    atomic_int here = 0;
    CHECK_OK(tess_comm_threads(NULL, tess__cores_usable("") + 3, &(tess_link){.share_cores = 1},
                               meet, &here));
}

static void messages_share_a_wire_one_after_the_other(void **state)
{
    (void)state;
    const tess_link link = {.latency = 1000,
                            .bandwidth = 1e9, /* a byte per ns */
                            .node_ranks = 2,
                            .network_latency = 7000,
                            .network_bandwidth = 1e8};
    tess__clock sender = {.now = 100}, receiver = {.now = 0};
    int64_t sent = 0;
    assert_int_equal(tess__link_leave(&link, &sender, 0, 500, &sent), 100);
    assert_int_equal(sent, 600);
    assert_int_equal(tess__link_leave(&link, &sender, 0, 300, &sent), 600);
    assert_int_equal(sent, 900);
    /* The wire to other nodes is another one. */
    assert_int_equal(tess__link_leave(&link, &sender, 1, 50, &sent), 100);
    assert_int_equal(sent, 600);
    sender.now = 5000;
    assert_int_equal(tess__link_leave(&link, &sender, 0, 0, &sent), 5000);

    assert_int_equal(tess__link_arrive(&link, &receiver, 0, 500, 100), 1600);
    assert_int_equal(tess__link_arrive(&link, &receiver, 0, 300, 600), 1900);
    /* From another sender at the same time: it waits for the receiver's wire. */
    assert_int_equal(tess__link_arrive(&link, &receiver, 0, 300, 600), 2200);
    assert_int_equal(tess__link_arrive(&link, &receiver, 1, 50, 100), 7600);
    /* No bandwidth is an infinite one. */
    const tess_link free = {.latency = 10};
    assert_int_equal(tess__link_arrive(&free, &receiver, 0, 1 << 30, 5000), 5010);
}

/* Seconds of the rank's clock are what they must be, and up to a tenth more: what the rank computes
 * between its calls counts too, and takes microseconds. */
static tess_status expect_seconds(const tess_comm *comm, double want)
{
    const double got = (double)tess_comm_clock(comm) * 1e-9;
    if (got < want || got > want + 0.1)
        fprintf(stderr, "the clock is at %g s, expected %g\n", got, want);
    EXPECT(got >= want && got <= want + 0.1);
    return TESS_OK;
}

enum { HALF_A_SECOND = 500000 }; /* bytes at 1e6 bytes/s */

/* Rank 0 sends to rank 1 and to rank 2, then both to rank 0. */
static tess_status congested(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)user;
    (void)own;
    tess_comm_info info;
    tess_comm_counts counts;
    static char out[2 * HALF_A_SECOND];
    char *in = calloc(2, HALF_A_SECOND);
    EXPECT(in != NULL);
    EXPECT_OK(tess_comm_query(comm, &info));
    const int64_t some = HALF_A_SECOND, scatter[] = {0, some, some}, none[3] = {0};
    const int64_t one[] = {info.rank ? some : 0, 0, 0};
    if (info.rank == 0)
        EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, out, scatter, in, none));
    else
        EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, out, none, in, one));
    /* The last byte leaves rank 0 after 1 s; it arrives half a second and the latency after it
     * began to leave. */
    EXPECT_OK(expect_seconds(comm, info.rank == 0 ? 1.0 : 1.0 + 0.5 * info.rank));
    if (info.rank == 0)
        EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, out, none, in, scatter));
    else
        EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, out, one, in, none));
    /* Rank 1 sends from 1.5 s to 2 s, rank 2 from 2 s to 2.5 s: no two arrive at once. */
    EXPECT_OK(expect_seconds(comm, info.rank == 0 ? 3.5 : 1.5 + 0.5 * info.rank));
    EXPECT_OK(tess_comm_counts_read(comm, &counts));
    EXPECT_OK(expect_seconds(comm, (double)counts.wait_ns * 1e-9)); /* there was little else */
    free(in);
    return TESS_OK;
}

/* Ranks 0 and 1, 2 and 3 share nodes. Everyone sends to everyone. */
static tess_status two_nodes(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)user;
    (void)own;
    tess_comm_info info;
    tess_comm *row = NULL, *column = NULL;
    char *data = calloc(8, HALF_A_SECOND);
    EXPECT(data != NULL);
    EXPECT_OK(tess_comm_query(comm, &info));
    EXPECT(info.nodes == 2 && info.node == info.rank / 2);
    const int64_t sizes[] = {HALF_A_SECOND, HALF_A_SECOND, HALF_A_SECOND, HALF_A_SECOND};
    EXPECT_OK(tess_comm_alltoallv(comm, TESS_TRAFFIC_PAYLOAD, data, sizes, data + 4 * HALF_A_SECOND,
                                  sizes));
    /* Inside the node 1 + 0.5 s; outside two messages of 5 s, one after the other, after 3 s. */
    EXPECT_OK(expect_seconds(comm, 13.0));
    free(data);
    EXPECT_OK(tess_comm_grid(comm, 2, &row, &column));
    EXPECT_OK(tess_comm_query(row, &info));
    EXPECT(info.nodes == 1 && info.node == 0);
    EXPECT_OK(tess_comm_query(column, &info));
    EXPECT(info.nodes == 2 && info.node == info.rank);
    tess_comm_destroy(column);
    tess_comm_destroy(row);
    return TESS_OK;
}

/* Sleeping is nothing, computing is what it takes, waiting is what the link takes. */
static tess_status compute(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)user;
    (void)own;
    usleep(200000);
    EXPECT_OK(expect_seconds(comm, 0.0));
    const int64_t begin = tess__cpu_ns();
    while (tess__cpu_ns() - begin < 50000000)
        ;
    EXPECT_OK(expect_seconds(comm, 0.05));
    int64_t x = 1;
    EXPECT_OK(
        tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, &x, 1, TESS_DTYPE_I64, TESS_REDUCE_SUM));
    return expect_seconds(comm, 1.05);
}

static void clocks_advance_by_computing_and_by_links(void **state)
{
    (void)state;
    const tess_link link = {.latency = 1000000000,
                            .bandwidth = 1e6,
                            .node_ranks = 2,
                            .network_latency = 3000000000,
                            .network_bandwidth = 1e5};
    const tess_link one_node = {.latency = link.latency, .bandwidth = link.bandwidth};
    CHECK_OK(tess_comm_threads(NULL, 3, &one_node, congested, NULL));
    CHECK_OK(tess_comm_threads(NULL, 4, &link, two_nodes, NULL));
    CHECK_OK(tess_comm_threads(NULL, 2, &link, compute, NULL));
}

static tess_status measure(void *user, tess_ctx *own, tess_comm *comm)
{
    (void)own;
    const tess_link *want = user;
    tess_link got;
    EXPECT_OK(tess_comm_measure(comm, &got));
    /* The clock also counts what is computed between messages: 1 % of the latency is 20 ms. Ranks
     * begin a round up to a latency apart, which is 0.5 % of its 420 s. */
    EXPECT(got.latency >= want->latency && (double)got.latency < 1.01 * (double)want->latency);
    EXPECT(fabs(got.bandwidth / want->bandwidth - 1.0) < 0.01);
    EXPECT(got.node_ranks == want->node_ranks);
    if (want->node_ranks > 0) {
        EXPECT(fabs((double)got.network_latency / (double)want->network_latency - 1.0) < 0.01);
        EXPECT(fabs(got.network_bandwidth / want->network_bandwidth - 1.0) < 0.01);
        EXPECT(fabs(got.network_alone / want->network_bandwidth - 1.0) < 0.01);
    }
    return TESS_OK;
}

static void measuring_finds_the_links_that_were_injected(void **state)
{
    (void)state;
    tess_link link = {.latency = 2000000000, .bandwidth = 1e4};
    for (int ranks = 2; ranks <= 4; ranks++)
        CHECK_OK(tess_comm_threads(NULL, ranks, &link, measure, &link));
    link.node_ranks = 2;
    link.network_latency = 7000000000;
    link.network_bandwidth = 1e3;
    CHECK_OK(tess_comm_threads(NULL, 4, &link, measure, &link));
    CHECK_OK(tess_comm_threads(NULL, 6, &link, measure, &link));

    tess_comm *alone = NULL;
    tess_link nothing = {.latency = 5};
    CHECK_OK(tess_comm_self(ctx, &alone));
    CHECK_OK(tess_comm_measure(alone, &nothing));
    assert_true(nothing.latency == 0 && nothing.bandwidth == 0.0 && nothing.node_ranks == 0);
    CHECK_FAILS(tess_comm_measure(alone, NULL), TESS_EINVAL, "tess_comm_measure: link is NULL");
    tess_comm_destroy(alone);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_do_what_every_communicator_must),
    cmocka_unit_test(a_rank_alone_does_too),
    cmocka_unit_test(a_rank_that_returns_a_failure_ends_the_others),
    cmocka_unit_test(waiting_for_a_rank_that_has_returned_is_an_error),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
    cmocka_unit_test(ranks_that_share_cores_compute_at_once),
    cmocka_unit_test(messages_share_a_wire_one_after_the_other),
    cmocka_unit_test(clocks_advance_by_computing_and_by_links),
    cmocka_unit_test(measuring_finds_the_links_that_were_injected),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
