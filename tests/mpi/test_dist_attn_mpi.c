/* SPDX-License-Identifier: Apache-2.0 */
/* test_dist_attn_mpi.c - attention over the ranks of mpirun, against one rank: what
 * test_dist_attn.c does with threads. Every rank checks its own rows. On 2 and 4 ranks everything
 * is tried; on others each strategy with each number of heads once.
 */
#include "dist_attn_data.h"
#include "mpi_ranks.h"

#include "tessera/advanced/collectives.h"

static tess_comm *comm;

static void check_world(world *w)
{
    CHECK_OK(run_rank(w, ctx, comm));
    if (w->p.grouped) /* each rank has written those of its shares */
        CHECK_OK(tess_comm_allreduce(comm, TESS_TRAFFIC_CONTROL, w->rows,
                                     (int64_t)(LAYERS * numbers(&w->p, 1)), TESS_DTYPE_F64,
                                     TESS_REDUCE_SUM));
    answer_alone(w);
    check_answers(w, w->bounds[rank], w->bounds[rank + 1]);
    assert_int_equal(w->reports[rank].wrong, 0);
    check_densities(w, &w->reports[rank]);
}

static void check_problem(const problem *p, tess_plan_method method)
{
    world *w = make_world(p);
    make_plan(w, method);
    check_world(w);
    assert_int_equal(w->reports[rank].allocations, 0);
    free_world(w);
}

static void plans_of_whole_and_cut_heads_equal_one_rank(void **state)
{
    (void)state;
    static const tess_plan_method methods[] = {TESS_PLAN_CONTIGUOUS, TESS_PLAN_REFINED,
                                               TESS_PLAN_FRACTIONAL};
    for (int i = 0; i < 18; i++) {
        const problem p = {.ranks = size,
                           .heads = 7,
                           .dim = 16,
                           .batch = 1 + i % 2,
                           .tokens = 121,
                           .lists = (list_kind)(i / 3 % LIST_KINDS),
                           .shards = (shard_kind)(i / 2 % SHARD_KINDS),
                           .compensate = virtual_keys(i),
                           .tokens_first = i % 5 == 2,
                           .grouped = i % 2,
                           .with_lse = i % 3 == 1,
                           .seed = (uint64_t)i};
        check_problem(&p, methods[i % 3]);
    }
}

static void rings_and_selected_keys_equal_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        const problem p = {.ranks = size,
                           .heads = 6,
                           .dim = 16,
                           .batch = 1 + i % 2,
                           .tokens = 121,
                           .lists = (list_kind)(i / 4 % LIST_KINDS),
                           .shards = (shard_kind)(i / 2 % SHARD_KINDS),
                           .compensate = virtual_keys(i + 1),
                           .grouped = i / 4 == 1 || i > 9,
                           .with_lse = i % 3 == 1,
                           .seed = (uint64_t)i + 50};
        const int parts = i % 4 < 2 ? size : 2; /* alone, or beside groups of heads */
        const mesh ring = {size / parts, parts, 1}, selective = {size / parts, 1, parts};
        world *w = make_world(&p);
        plan_mesh(w, i % 2 ? &selective : &ring, TESS_PLAN_REFINED);
        check_world(w);
        free_world(w);
    }
}

/* Each number of heads by each strategy; lists, shards and the rest go round, and the lists of a
 * pair change with the number of ranks. */
static void every_strategy_equals_one_rank(void **state)
{
    (void)state;
    static const int heads[] = {12, 24, 40, 7};
    const mesh whole = {size, 1, 1}, free_cuts = {0, 0, 0}, ring = {1, size, 1};
    const mesh selective = {1, 1, size}, beside = {2, size / 2, 1};
    const struct {
        const mesh *mesh;
        tess_plan_method method;
    } ways[] = {{&whole, TESS_PLAN_DB_SP},
                {&free_cuts, TESS_PLAN_FRACTIONAL},
                {&ring, TESS_PLAN_REFINED},
                {&selective, TESS_PLAN_REFINED},
                {size == 8 ? &beside : &ring, TESS_PLAN_DB_SP}};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (int i = 0; i < 4 * WAYS; i++) {
        const int n = heads[i % 4], way = i / 4;
        const list_kind lists = (list_kind)((i + way + size) % LIST_KINDS);
        const problem p = {.ranks = size,
                           .heads = n,
                           .dim = 8,
                           .batch = 1 + i % 2,
                           .tokens = 73 + 2 * (i % 5), /* 8 blocks and more */
                           .lists = way == 3 && lists == DENSE ? ROWS : lists,
                           .shards = (shard_kind)(i / 2 % SHARD_KINDS),
                           .compensate = virtual_keys(i),
                           .grouped = i % 3 == 1,
                           .with_lse = i % 2,
                           .seed = (uint64_t)i + 300};
        if (n < size && way == 0)
            continue; /* no such plan */
        world *w = make_world(&p);
        plan_mesh(w, ways[way].mesh, ways[way].method);
        check_world(w);
        free_world(w);
    }
}

/* Messages of a megabyte and more. */
static void long_messages_arrive_whole(void **state)
{
    (void)state;
    const problem p = {
        .ranks = size, .heads = 8, .dim = 128, .batch = 1, .tokens = 701, .lists = ROWS, .seed = 5};
    check_problem(&p, TESS_PLAN_FRACTIONAL);
    for (int i = 0; i < 4; i++) {
        problem q = p;
        q.heads = 3;
        q.compensate = virtual_keys(i);
        q.band = i < 2 ? 0 : 150; /* sums of a ring return to the owner from the next but one */
        const mesh ring = {1, size, 1}, selective = {1, 1, size};
        world *w = make_world(&q);
        plan_mesh(w, i == 1 ? &selective : &ring, TESS_PLAN_CONTIGUOUS);
        check_world(w);
        free_world(w);
    }
}

static void nothing_stays_allocated(void **state)
{
    (void)state;
    tess_ctx_info info;
    tess_comm_destroy(comm);
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_whole_and_cut_heads_equal_one_rank),
        cmocka_unit_test(rings_and_selected_keys_equal_one_rank),
        cmocka_unit_test(long_messages_arrive_whole),
        cmocka_unit_test(nothing_stays_allocated),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(every_strategy_equals_one_rank),
        cmocka_unit_test(nothing_stays_allocated),
    };
    start_ranks(argc, argv);
    if (open_ctx(&(tess_ctx_opts){.threads = 1}) ||
        tess_comm_from_mpi(ctx, MPI_COMM_WORLD, &comm) != TESS_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    const int failed = size == 2 || size == 4
                           ? cmocka_run_group_tests_name("with MPI", tests, NULL, NULL)
                           : cmocka_run_group_tests_name("with MPI", others, NULL, NULL);
    MPI_Finalize();
    tess_ctx_destroy(ctx);
    return failed ? 1 : 0;
}
