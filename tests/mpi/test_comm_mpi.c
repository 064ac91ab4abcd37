/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm_mpi.c - a communicator over MPI, run by every rank of mpirun -n 1, 2 and 4.
 *
 * All ranks run the same tests, so a test that fails on one rank may leave the others waiting in a
 * collective call: ctest's time limit ends them.
 */
#include "comm_ranks.h"
#include "mpi_ranks.h"

static tess_ctx *ctx;
static int no_nodes; /* 1: MPI does not know which ranks share a node */

/* In the place of MPI's, for the library too: not every mpi.h makes it visible. */
__attribute__((visibility("default"))) int MPI_Comm_split_type(MPI_Comm comm, int type, int key,
                                                               MPI_Info info, MPI_Comm *made)
{
    if (!no_nodes)
        return PMPI_Comm_split_type(comm, type, key, info, made);
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
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
    assert_int_equal(info.nodes, 1);
    assert_int_equal(info.node, 0);
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

static void mpi_does_what_every_communicator_must(void **state)
{
    (void)state;
    for (int i = 0; i < WORKS; i++) {
        tess_comm *comm = NULL;
        CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
        if (run_work(&i, ctx, comm) != TESS_OK)
            fail_msg("%s on %d ranks: %s", rank_works[i].name, size, tess_last_error());
        tess_comm_destroy(comm);
    }
}

/* Several chunks each way between ranks 0 and 1, two messages at a time, waited for in the order in
 * which the other side does not. */
static void long_messages_arrive_whole(void **state)
{
    enum { BYTES = (1 << 26) + 3 };
    (void)state;
    tess_comm *comm = NULL;
    CHECK_OK(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm));
    if (rank < 2 && size > 1) {
        tess_request *requests[2];
        unsigned char *out = malloc(BYTES), *in[2] = {calloc(1, BYTES), calloc(1, BYTES)};
        assert_true(out && in[0] && in[1]);
        for (int i = 0; i < BYTES; i++)
            out[i] = (unsigned char)(i * 7 + (i >> 20) + rank);
        for (int i = 0; i < 2; i++)
            CHECK_OK(tess_comm_start_sendrecv(comm, TESS_TRAFFIC_PAYLOAD, out, BYTES - i, 1 - rank,
                                              in[i], BYTES - i, 1 - rank, &requests[i]));
        CHECK_OK(tess_comm_wait(comm, requests[rank]));
        CHECK_OK(tess_comm_wait(comm, requests[1 - rank]));
        for (int i = 0; i < BYTES; i++)
            out[i] = (unsigned char)(i * 7 + (i >> 20) + 1 - rank);
        assert_memory_equal(in[0], out, BYTES);
        assert_memory_equal(in[1], out, BYTES - 1);
        free(out);
        free(in[0]);
        free(in[1]);
    }
    CHECK_OK(tess_comm_agree(comm, TESS_OK));
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
    assert_int_equal(tess_comm_agree(comm, rank == 0 ? fail_here(0) : TESS_OK), TESS_EINVAL);
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

/* The world's errors end the process; those of its duplicate are ours, from the first call on. */
static void an_error_of_mpi_gets_a_sentence(void **state)
{
    (void)state;
    tess_comm *comm = NULL;
    no_nodes = 1;
    assert_int_equal(tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm), TESS_EIO);
    no_nodes = 0;
    const char *begin = "duplicating the MPI communicator failed: ";
    assert_int_equal(strncmp(tess_last_error(), begin, strlen(begin)), 0);
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
        cmocka_unit_test(mpi_does_what_every_communicator_must),
        cmocka_unit_test(long_messages_arrive_whole),
        cmocka_unit_test(messages_of_the_caller_and_of_the_library_do_not_mix),
        cmocka_unit_test(wrong_arguments_get_a_sentence),
        cmocka_unit_test(an_error_of_mpi_gets_a_sentence),
        cmocka_unit_test(nothing_stays_allocated),
    };
    if (tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) != TESS_OK)
        return 1;
    int failed = cmocka_run_group_tests_name("before MPI_Init", outside, NULL, NULL);
    start_ranks(argc, argv);
    failed += cmocka_run_group_tests_name("with MPI", tests, NULL, NULL);
    MPI_Finalize();
    failed += cmocka_run_group_tests_name("after MPI_Finalize", outside, NULL, NULL);
    tess_ctx_destroy(ctx);
    return failed ? 1 : 0;
}
