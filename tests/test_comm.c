/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm.c - communicators without MPI: one rank alone, ranks as threads, virtual clocks. */
#include "comm_ranks.h"
#include "context.h"

enum { WORKS = sizeof rank_works / sizeof *rank_works };

static void threads_do_what_every_communicator_must(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++)
        for (int i = 0; i < WORKS; i++)
            if (tess_comm_threads(NULL, ranks, NULL, rank_works[i].fn, NULL) != TESS_OK)
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
        assert_int_equal(rank_works[i].fn(NULL, ctx, comm), TESS_OK);
        tess_comm_destroy(comm);
    }
}

/* ---- failures of ranks -------------------------------------------------------------------------
 */

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
    const tess_rank_fn fn = rank_agree;
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
                "tess_comm_threads: node_ranks is -1, must be at least 0");
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = 2}, 1, &(tess_link){0}, fn, NULL),
                TESS_EINVAL, "tess_comm_threads: threads is 2, must be 1 with a link");
    CHECK_FAILS(tess_comm_threads(&(tess_ctx_opts){.threads = -2}, 1, NULL, fn, NULL), TESS_EINVAL,
                "tess_ctx_create: threads is -2, must be 1..1024, or 0 for all usable cores");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_do_what_every_communicator_must),
    cmocka_unit_test(a_rank_alone_does_too),
    cmocka_unit_test(a_rank_that_returns_a_failure_ends_the_others),
    cmocka_unit_test(waiting_for_a_rank_that_has_returned_is_an_error),
    cmocka_unit_test(wrong_arguments_get_a_sentence),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
