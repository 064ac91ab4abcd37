/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm_mpi.c - a communicator over MPI, run by every rank of mpirun -n 1, 2 and 4.
 *
 * All ranks run the same tests, so a test that fails on one rank may leave the others waiting in a
 * collective call: ctest's time limit ends them.
 */
#include "tessera/mpi.h"
#include "test.h"

#include <stdlib.h>

static tess_ctx *ctx;
static int rank, size;

/* A failure whose sentence tells the rank that had it. */
static tess_status fail_as(int who)
{
    tess_ctx *none = NULL;
    return tess_ctx_create(&(tess_ctx_opts){.threads = -1 - who}, &none);
}

static void check_sentence_of(int who)
{
    char expected[128];
    snprintf(expected, sizeof expected,
             "tess_ctx_create: threads is %d, must be 1..1024, or 0 for all usable cores",
             -1 - who);
    assert_string_equal(tess_last_error(), expected);
}

static void a_communicator_knows_its_rank_and_size(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    tess_comm_info info;
    CHECK_OK(tess_comm_query(comm, &info));
    assert_string_equal(info.kind, "mpi");
    assert_int_equal(info.rank, rank);
    assert_int_equal(info.size, size);
    tess_comm_destroy(comm);
}

static void a_communicator_outlives_the_one_it_was_made_from(void **state)
{
    (void)state;
    MPI_Comm reversed;
    assert_int_equal(MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reversed), MPI_SUCCESS);
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, reversed, &comm));
    MPI_Comm_free(&reversed);
    tess_comm_info info;
    CHECK_OK(tess_comm_query(comm, &info));
    assert_int_equal(info.rank, size - 1 - rank);
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    tess_comm_destroy(comm);
}

static void ranks_that_all_succeed_agree_on_success(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
    tess_comm_destroy(comm);
}

static void a_failure_on_any_one_rank_reaches_all_with_its_sentence(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    for (int who = 0; who < size; who++) {
        const tess_status mine = rank == who ? fail_as(who) : TESS_OK;
        assert_int_equal(tess_comm_agree(comm, mine), TESS_EINVAL);
        check_sentence_of(who);
        CHECK_OK(tess_comm_agree(comm, TESS_OK)); /* a failure leaves the communicator usable */
    }
    tess_comm_destroy(comm);
}

static void the_lowest_failing_rank_wins(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    for (int lowest = 0; lowest < size; lowest++) {
        /* Those above fail with another status, so that status and sentence must come together. */
        tess_status mine = TESS_OK;
        if (rank >= lowest)
            mine = fail_as(rank);
        if (rank > lowest)
            mine = TESS_EIO;
        assert_int_equal(tess_comm_agree(comm, mine), TESS_EINVAL);
        check_sentence_of(lowest);
    }
    tess_comm_destroy(comm);
}

static void messages_of_the_caller_and_of_the_library_do_not_mix(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    int received = -1, arrived = 0;
    MPI_Request request;
    MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    assert_int_equal(tess_comm_agree(comm, rank == 0 ? fail_as(0) : TESS_OK), TESS_EINVAL);
    MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
    assert_int_equal(arrived, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    assert_int_equal(received, (rank + size - 1) % size);
    tess_comm_destroy(comm);
}

static void wrong_arguments_get_a_sentence(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_FAILS(tess_comm_from_mpi(NULL, MPI_COMM_WORLD, &comm), TESS_EINVAL,
                "tess_comm_from_mpi: ctx is NULL");
    CHECK_FAILS(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, NULL), TESS_EINVAL,
                "tess_comm_from_mpi: comm is NULL");
    CHECK_FAILS(tess_comm_from_mpi(ctx, MPI_COMM_NULL, &comm), TESS_EINVAL,
                "tess_comm_from_mpi: mpi is MPI_COMM_NULL");
    assert_null(comm);
}

static void nothing_stays_allocated(void **state)
{
    (void)state;
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
}

static void mpi_that_is_not_running_is_an_error(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    CHECK_FAILS(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm), TESS_EINVAL,
                "tess_comm_from_mpi: MPI is not running (MPI_Init comes first)");
    assert_null(comm);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest outside[] = {
        cmocka_unit_test(mpi_that_is_not_running_is_an_error),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_communicator_knows_its_rank_and_size),
        cmocka_unit_test(a_communicator_outlives_the_one_it_was_made_from),
        cmocka_unit_test(ranks_that_all_succeed_agree_on_success),
        cmocka_unit_test(a_failure_on_any_one_rank_reaches_all_with_its_sentence),
        cmocka_unit_test(the_lowest_failing_rank_wins),
        cmocka_unit_test(messages_of_the_caller_and_of_the_library_do_not_mix),
        cmocka_unit_test(wrong_arguments_get_a_sentence),
        cmocka_unit_test(nothing_stays_allocated),
    };
    if (tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) != TESS_OK)
        return 1;
    int failed = cmocka_run_group_tests_name("before MPI_Init", outside, NULL, NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && atoi(argv[1]) != size) {
        fprintf(stderr, "%d ranks, expected %s: is this the launcher of another MPI?\n", size,
                argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    failed += cmocka_run_group_tests_name("with MPI", tests, NULL, NULL);
    MPI_Finalize();
    failed += cmocka_run_group_tests_name("after MPI_Finalize", outside, NULL, NULL);
    tess_ctx_destroy(ctx);
    return failed ? 1 : 0;
}
