/* SPDX-License-Identifier: Apache-2.0 */
/* test_dist_attn_calls.c - calls of the executor that fail, on one rank or on all, and what they
 * leave behind. */
#include "dist_attn_data.h"

#include "base/base_internal.h"
#include "tessera/advanced/collectives.h"

/* ---- failures -------------------------------------------------------------------------------- */

enum { FAILING = 2 };

static tess_status choose_or_fail(void *user, const tess_share_in *in, tess_selection *lists,
                                  int *dense)
{
    const rank_state *s = user;
    (void)in;
    (void)lists;
    *dense = 1;
    return s->rank == FAILING ? tess__fail(TESS_EIO, "no lists on rank %d", FAILING) : TESS_OK;
}

/* Rank 2 fails to choose; then all go on. */
static tess_status run_failing(void *user, tess_ctx *own, tess_comm *comm)
{
    world *w = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    rank_state s = {.w = w, .rank = info.rank};
    tess_dist_attn *attn = NULL;
    const int64_t first = w->bounds[info.rank];
    const tess_view q = rows_from(&w->p, w->q, 0, w->p.dim, first);
    const tess_view o = rows_from(&w->p, w->got[0].o, 0, w->p.dim, first);
    tess_status status = open_attn(w, own, comm, &attn);
    if (status == TESS_OK) {
        tess_dist_call call = {.save = 0, .choose = choose_or_fail, .user = &s};
        const tess_status failed = tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL);
        w->reports[info.rank].wrong =
            failed != TESS_EIO || strcmp(tess_last_error(), "no lists on rank 2") != 0;
        /* Nothing was written, and the set is void. */
        for (size_t i = 0; i < numbers(&w->p, w->p.dim); i++)
            w->reports[info.rank].wrong += w->got[0].o[i] != 0.0f;
        w->reports[info.rank].wrong +=
            tess_dist_attn_backward(attn, &call, &q, &o, &o, &o) != TESS_EINVAL;
        call.choose = NULL;
        status = tess_comm_agree(comm, TESS_OK); /* all ranks have checked o */
        if (status == TESS_OK)
            status = tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL);
    }
    tess_dist_attn_destroy(attn);
    return status;
}

static tess_status choose_rows_twice(void *user, const tess_share_in *in, tess_selection *lists,
                                     int *dense)
{
    const rank_state *s = user;
    if (s->rank == FAILING)
        in->rows[3] = 2;
    return choose(user, in, lists, dense);
}

/* Rank 2 puts a row into two places. */
static tess_status run_rows_twice(void *user, tess_ctx *own, tess_comm *comm)
{
    world *w = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    const size_t room = (size_t)w->n_groups * (size_t)w->n_units;
    rank_state s = {.w = w, .rank = info.rank};
    tess_dist_attn *attn = NULL;
    const tess_view q = rows_from(&w->p, w->q, 0, w->p.dim, w->bounds[info.rank]);
    const tess_view o = rows_from(&w->p, w->got[0].o, 0, w->p.dim, w->bounds[info.rank]);
    s.offsets = malloc(((size_t)w->n_groups + 1) * sizeof *s.offsets);
    s.indices = malloc(room * sizeof *s.indices);
    tess_status status = s.offsets && s.indices ? open_attn(w, own, comm, &attn) : TESS_ENOMEM;
    const tess_dist_call call = {.save = 0, .choose = choose_rows_twice, .user = &s};
    if (status == TESS_OK) {
        const tess_status failed = tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL);
        w->reports[info.rank].wrong =
            failed != TESS_EINVAL || !strstr(tess_last_error(), "must be each of 0..39 once");
    }
    tess_dist_attn_destroy(attn);
    free(s.offsets);
    free(s.indices);
    return status;
}

static void rows_of_groups_that_are_no_permutation_are_refused(void **state)
{
    (void)state;
    const problem p = {.ranks = 4,
                       .heads = 8,
                       .dim = 8,
                       .batch = 1,
                       .tokens = 40,
                       .lists = ROWS,
                       .grouped = 1,
                       .seed = 1};
    world *w = make_world(&p);
    make_plan(w, TESS_PLAN_CONTIGUOUS);
    CHECK_OK(tess_comm_threads(NULL, p.ranks, NULL, run_rows_twice, w));
    for (int r = 0; r < p.ranks; r++)
        assert_int_equal(w->reports[r].wrong, 0);
    free_world(w);
}

static void a_rank_that_cannot_choose_fails_all_with_its_sentence(void **state)
{
    (void)state;
    const problem p = {
        .ranks = 4, .heads = 8, .dim = 8, .batch = 1, .tokens = 40, .lists = ROWS, .seed = 1};
    world *w = make_world(&p);
    make_plan(w, TESS_PLAN_CONTIGUOUS);
    CHECK_OK(tess_comm_threads(NULL, p.ranks, NULL, run_failing, w));
    for (int r = 0; r < p.ranks; r++)
        assert_int_equal(w->reports[r].wrong, 0);
    free_world(w);
}

static _Thread_local int stops; /* whether this thread's rank asks to stop */

static int ask_to_stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)what;
    (void)done;
    (void)total;
    return stops;
}

/* Rank 2 is asked to stop while it attends, then while it makes gradients; then all go on. */
static tess_status run_stopped(void *user, tess_ctx *own, tess_comm *comm)
{
    world *w = user;
    tess_comm_info info;
    TESS_TRY(tess_comm_query(comm, &info));
    const tess_dist_call call = {.save = 0};
    tess_dist_attn *attn = NULL;
    const int64_t first = w->bounds[info.rank];
    const tess_view q = rows_from(&w->p, w->q, 0, w->p.dim, first);
    const tess_view o = rows_from(&w->p, w->got[0].o, 0, w->p.dim, first);
    tess_status status = open_attn(w, own, comm, &attn);
    int wrong = 0;
    for (int back = 0; status == TESS_OK && back < 2; back++)
        for (int again = 0; status == TESS_OK && again < 2; again++) {
            stops = info.rank == FAILING && !again;
            status = back ? tess_dist_attn_backward(attn, &call, &q, &o, &o, &o)
                          : tess_dist_attn_forward(attn, &call, &q, &q, &q, &o, NULL);
            wrong += status != (again ? TESS_OK : TESS_ESTOPPED);
            status = TESS_OK;
        }
    w->reports[info.rank].wrong = wrong;
    tess_dist_attn_destroy(attn);
    return status;
}

static void a_rank_that_is_asked_to_stop_stops_all(void **state)
{
    (void)state;
    const problem p = {.ranks = 3, .heads = 3, .dim = 8, .batch = 1, .tokens = 40, .seed = 1};
    world *w = make_world(&p);
    make_plan(w, TESS_PLAN_CONTIGUOUS);
    CHECK_OK(tess_comm_threads(&(tess_ctx_opts){.progress = ask_to_stop}, p.ranks, NULL,
                               run_stopped, w));
    for (int r = 0; r < p.ranks; r++)
        assert_int_equal(w->reports[r].wrong, 0);
    free_world(w);
}

/* ---- plans one after the other, sets --------------------------------------------------------- */

typedef struct {
    tess_comm *comm;
    world *w;
    tess_dist_attn *attn;
    tess_view q, o, dq;
} alone;

/* One rank, an executor of it with one set, and a plan. */
static alone make_alone(void)
{
    const problem p = {
        .ranks = 1, .heads = 3, .dim = 8, .batch = 1, .tokens = 40, .lists = ROWS, .seed = 1};
    alone a = {.w = make_world(&p)};
    make_plan(a.w, TESS_PLAN_CONTIGUOUS);
    CHECK_OK(tess_comm_self(ctx, &a.comm));
    tess_dist_attn_opts opts = options_of(a.w);
    opts.saves = 1;
    CHECK_OK(tess_dist_attn_create(ctx, a.comm, &opts, &a.attn));
    a.q = rows_from(&p, a.w->q, 0, p.dim, 0);
    a.o = rows_from(&p, a.w->got[0].o, 0, p.dim, 0);
    a.dq = rows_from(&p, a.w->got[0].dq, 0, p.dim, 0);
    return a;
}

static void free_alone(alone *a)
{
    tess_dist_attn_destroy(a->attn);
    tess_comm_destroy(a->comm);
    free_world(a->w);
}

static void gradients_need_the_set_of_their_layer(void **state)
{
    (void)state;
    alone a = make_alone();
    tess_dist_call call = {.layer = 1, .save = 0};
    CHECK_FAILS(tess_dist_attn_forward(a.attn, &call, &a.q, &a.q, &a.q, &a.o, NULL), TESS_EINVAL,
                "tess_dist_attn_forward: no plan (tess_dist_attn_plan comes first)");
    CHECK_OK(tess_dist_attn_plan(a.attn, a.w->plan));
    CHECK_OK(tess_dist_attn_forward(a.attn, &call, &a.q, &a.q, &a.q, &a.o, NULL));
    CHECK_OK(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq));
    CHECK_OK(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq));
    call.layer = 0;
    CHECK_FAILS(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq), TESS_EINVAL,
                "tess_dist_attn_backward: set 0 has no forward call of layer 0");
    call = (tess_dist_call){.layer = 1, .save = -1};
    CHECK_FAILS(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq), TESS_EINVAL,
                "tess_dist_attn_backward: save is -1, must be the set of a forward call");
    CHECK_OK(tess_dist_attn_forward(a.attn, &call, &a.q, &a.q, &a.q, &a.o, NULL));
    call.save = 0; /* a call without a set has worked in the last one */
    CHECK_FAILS(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq), TESS_EINVAL,
                "tess_dist_attn_backward: set 0 has no forward call of layer 1");
    CHECK_OK(tess_dist_attn_forward(a.attn, &call, &a.q, &a.q, &a.q, &a.o, NULL));
    CHECK_OK(tess_dist_attn_plan(a.attn, a.w->plan));
    CHECK_FAILS(tess_dist_attn_backward(a.attn, &call, &a.q, &a.dq, &a.dq, &a.dq), TESS_EINVAL,
                "tess_dist_attn_backward: set 0 has no forward call of layer 1");
    free_alone(&a);
}

/* ---- wrong arguments ------------------------------------------------------------------------- */

static tess_status forward_of(const alone *a, const tess_dist_call *call, const tess_view *q,
                              const tess_view *o)
{
    return tess_dist_attn_forward(a->attn, call, q, &a->q, &a->q, o, NULL);
}

static void wrong_calls_get_a_sentence(void **state)
{
    (void)state;
    alone a = make_alone();
    tess_dist_stats stats;
    CHECK_FAILS(tess_dist_attn_stats(a.attn, 0, &stats), TESS_EINVAL,
                "tess_dist_attn_stats: no plan (tess_dist_attn_plan comes first)");
    CHECK_OK(tess_dist_attn_plan(a.attn, a.w->plan));
    const tess_dist_call fine = {.save = 0};
    tess_dist_call call = fine;
    call.layer = 2;
    CHECK_FAILS(forward_of(&a, &call, &a.q, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: layer is 2, must be 0..1");
    call = (tess_dist_call){.save = 1};
    CHECK_FAILS(forward_of(&a, &call, &a.q, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: save is 1, must be -1..0");
    call = (tess_dist_call){.k_low = &a.q};
    CHECK_FAILS(forward_of(&a, &call, &a.q, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: k_low is given, but proj_dim is 0");
    CHECK_FAILS(forward_of(&a, NULL, &a.q, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: call is NULL");
    CHECK_FAILS(forward_of(&a, &fine, NULL, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: q is NULL");
    tess_view view = a.q;
    view.dtype = TESS_DTYPE_BF16;
    CHECK_FAILS(forward_of(&a, &fine, &view, &a.o), TESS_EINVAL,
                "tess_dist_attn_forward: q.dtype is BF16, must be F32");
    view = a.o;
    view.stride_s = 4;
    CHECK_FAILS(forward_of(&a, &fine, &a.q, &view), TESS_EINVAL,
                "tess_dist_attn_forward: o has token stride 4, its rows of 8 overlap");
    CHECK_FAILS(tess_dist_attn_plan(a.attn, NULL), TESS_EINVAL,
                "tess_dist_attn_plan: plan is NULL");
    CHECK_FAILS(tess_dist_attn_stats(a.attn, 2, &stats), TESS_EINVAL,
                "tess_dist_attn_stats: layer is 2, must be 0..1");
    free_alone(&a);
}

static void choosing_needs_groups(void **state)
{
    (void)state;
    alone a = make_alone();
    tess_dist_attn *attn = NULL;
    tess_dist_attn_opts opts = options_of(a.w);
    opts.n_groups = 0;
    CHECK_OK(tess_dist_attn_create(ctx, a.comm, &opts, &attn));
    CHECK_OK(tess_dist_attn_plan(attn, a.w->plan));
    const tess_dist_call call = {.choose = choose};
    CHECK_FAILS(tess_dist_attn_forward(attn, &call, &a.q, &a.q, &a.q, &a.o, NULL), TESS_EINVAL,
                "tess_dist_attn_forward: choose is given, but n_groups is 0");
    tess_dist_attn_destroy(attn);
    free_alone(&a);
}

static void check_options(const alone *a, const tess_dist_attn_opts *opts, const char *sentence)
{
    tess_dist_attn *attn = NULL;
    CHECK_FAILS(tess_dist_attn_create(ctx, a->comm, opts, &attn), TESS_EINVAL, sentence);
    assert_null(attn);
}

static void wrong_options_get_a_sentence(void **state)
{
    (void)state;
    alone a = make_alone();
    const tess_dist_attn_opts fine = options_of(a.w);
    static const int64_t late[] = {1, 40}, falling[] = {0, 9, 9, 40};
#define WITH(member, value, sentence)                                                              \
    do {                                                                                           \
        tess_dist_attn_opts opts = fine;                                                           \
        opts.member = value;                                                                       \
        check_options(&a, &opts, "tess_dist_attn_create: " sentence);                              \
    } while (0)
    WITH(batch, 0, "batch is 0, must be 1..65536");
    WITH(heads, 65537, "heads is 65537, must be 1..65536");
    WITH(head_dim, 20, "head_dim is 20, must be a multiple of 8 up to 256");
    WITH(scale, -1.0f, "scale is -1, must be positive, or 0 for 1/sqrt(head_dim)");
    WITH(compensate, 65, "compensate is 65, must be 0..64");
    WITH(tokens, 0, "tokens is 0, must be 1..2147483647");
    WITH(proj_dim, -1, "proj_dim is -1, must be 0..65536");
    WITH(saves, -1, "saves is -1, must be 0..65536");
    WITH(group_rows, 2, "group_rows is 2, must be 0..1");
    WITH(n_groups, -1, "n_groups is -1, must be 0..40");
    WITH(bounds, NULL, "bounds is NULL");
    WITH(groups, NULL, "groups is NULL");
    WITH(bounds, late, "bounds go from 1 to 40, must go from 0 to 40");
    WITH(units_most, 41, "units_most is 41, must be 0..40");
#undef WITH
    tess_dist_attn_opts opts = fine;
    opts.groups = falling;
    opts.n_groups = 3;
    check_options(&a, &opts, "tess_dist_attn_create: groups[2] is 9, must be above 9 before it");
    opts = fine;
    opts.units = falling;
    opts.n_units = 41;
    check_options(&a, &opts, "tess_dist_attn_create: n_units is 41, must be 1..40");
    opts = fine;
    opts.batch = opts.heads = 65536;
    opts.tokens = INT32_MAX;
    check_options(&a, &opts,
                  "tess_dist_attn_create: 2147483647 x 2147483647 tokens in 4294967296 heads, must "
                  "be below 2^63");
    opts.tokens = 40000;
    opts.head_dim = 256;
    check_options(&a, &opts,
                  "tess_dist_attn_create: 40000 tokens in 4294967296 heads of 256 numbers, must be "
                  "below 2^55");
    tess_dist_attn *attn = NULL;
    CHECK_FAILS(tess_dist_attn_create(NULL, a.comm, &fine, &attn), TESS_EINVAL,
                "tess_dist_attn_create: ctx is NULL");
    CHECK_FAILS(tess_dist_attn_create(ctx, a.comm, NULL, &attn), TESS_EINVAL,
                "tess_dist_attn_create: opts is NULL");
    free_alone(&a);
}

static void plans_of_another_shape_get_a_sentence(void **state)
{
    (void)state;
    alone a = make_alone();
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    const double density[] = {1, 1, 1};
    CHECK_OK(tess_work_from_density(ctx, density, 1, 3, 40, 10, &work));
    CHECK_OK(tess_plan_create(ctx, work, NULL,
                              &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 1}, &plan));
    CHECK_FAILS(tess_dist_attn_plan(a.attn, plan), TESS_EINVAL,
                "tess_dist_attn_plan: query block 1 begins at row 10, inside of a group");
    tess_plan_destroy(plan);
    CHECK_OK(tess_plan_create(ctx, work, NULL,
                              &(tess_plan_opts){TESS_PLAN_OPTS_DEFAULTS, .ranks = 3}, &plan));
    CHECK_FAILS(tess_dist_attn_plan(a.attn, plan), TESS_EINVAL,
                "tess_dist_attn_plan: the plan's ranks is 3, must be 1");
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    CHECK_OK(tess_dist_attn_plan(a.attn, a.w->plan));
    free_alone(&a);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_rank_that_cannot_choose_fails_all_with_its_sentence),
    cmocka_unit_test(rows_of_groups_that_are_no_permutation_are_refused),
    cmocka_unit_test(a_rank_that_is_asked_to_stop_stops_all),
    cmocka_unit_test(gradients_need_the_set_of_their_layer),
    cmocka_unit_test(wrong_calls_get_a_sentence),
    cmocka_unit_test(choosing_needs_groups),
    cmocka_unit_test(wrong_options_get_a_sentence),
    cmocka_unit_test(plans_of_another_shape_get_a_sentence),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
