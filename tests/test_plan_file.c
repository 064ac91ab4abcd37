/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_file.c - plans as files: their bytes, back and forth, and what is refused. */
#include "plan_data.h"

#include "files.h"

#include "tessera/advanced/plan_file.h"
#include "tessera/cluster.h"

enum { CASES = 100 }; /* each is written to disk twice */

/* ---- the same bytes -------------------------------------------------------------------------- */

/* What the plan below must look like with every compiler, on every machine. */
static const char frozen[] = "{\n"
                             "  \"format\": \"tessera-plan\",\n"
                             "  \"version\": 1,\n"
                             "  \"ranks\": 3,\n"
                             "  \"nodes\": 1,\n"
                             "  \"heads\": 4,\n"
                             "  \"q_blocks\": 5,\n"
                             "  \"k_blocks\": 5,\n"
                             "  \"tokens_q\": 9,\n"
                             "  \"tokens_k\": 9,\n"
                             "  \"group\": 2,\n"
                             "  \"unit\": 2,\n"
                             "  \"pass\": \"fwd\",\n"
                             "  \"head_dim\": 128,\n"
                             "  \"element_bytes\": 2,\n"
                             "  \"speeds\": [2, 1, 1],\n"
                             "  \"layers\": [\n"
                             "    {\n"
                             "      \"method\": \"refined\",\n"
                             "      \"ulysses\": 1,\n"
                             "      \"ring\": 3,\n"
                             "      \"selective\": 1,\n"
                             "      \"placement\": \"heads-inside\",\n"
                             "      \"load_max\": 40,\n"
                             "      \"load_bound\": 0,\n"
                             "      \"load_total\": 100,\n"
                             "      \"rho_global\": 1.6,\n"
                             "      \"rho_ring\": 1.6,\n"
                             "      \"rho_free\": 1.6,\n"
                             "      \"rho_before\": 1.44,\n"
                             "      \"kv_copies\": 1.0,\n"
                             "      \"moved_q\": 4,\n"
                             "      \"moved_k\": 0,\n"
                             "      \"predicted_ns\": 12345678901234,\n"
                             "      \"head_group\": [0, 0, 0, 0],\n"
                             "      \"q_cuts\": [\n"
                             "        [0, 2, 3, 5]\n"
                             "      ],\n"
                             "      \"k_cuts\": [\n"
                             "        [0, 2, 4, 5]\n"
                             "      ],\n"
                             "      \"q_order\": [\n"
                             "        [4, 2, 3, 1, 0]\n"
                             "      ]\n"
                             "    },\n"
                             "    {\n"
                             "      \"method\": \"fractional\",\n"
                             "      \"ulysses\": 1,\n"
                             "      \"ring\": 1,\n"
                             "      \"selective\": 1,\n"
                             "      \"placement\": \"heads-inside\",\n"
                             "      \"load_max\": 55,\n"
                             "      \"load_bound\": 0,\n"
                             "      \"load_total\": 100,\n"
                             "      \"rho_global\": 1.1,\n"
                             "      \"rho_ring\": 1.1,\n"
                             "      \"rho_free\": 1.1,\n"
                             "      \"rho_before\": null,\n"
                             "      \"kv_copies\": 1.25,\n"
                             "      \"moved_q\": 0,\n"
                             "      \"moved_k\": 0,\n"
                             "      \"predicted_ns\": null,\n"
                             "      \"shares\": [\n"
                             "        [0, 0, 0, 5],\n"
                             "        [0, 1, 0, 5],\n"
                             "        [0, 2, 0, 1],\n"
                             "        [1, 2, 1, 5],\n"
                             "        [2, 3, 0, 5]\n"
                             "      ]\n"
                             "    }\n"
                             "  ]\n"
                             "}\n";

/* Two layers of 4 heads and 5 x 5 full blocks on 3 ranks, the first of double speed. */
static tess_plan *small_plan(void)
{
    uint8_t mask[2 * 4 * 5 * 5];
    memset(mask, 1, sizeof mask);
    const tess_mask_set set = {2, 4, 5, 5, mask, TESS_MASK_BYTES, 9, 9, 2, 2};
    const int32_t speeds[] = {2, 1, 1}, group[] = {0, 0, 0, 0}, order[] = {4, 2, 3, 1, 0};
    const int32_t cuts[] = {0, 2, 3, 5};
    const tess_share shares[] = {{2, 3, 0, 5}, {0, 2, 0, 1}, {0, 0, 0, 5},
                                 {1, 2, 3, 5}, {0, 1, 0, 5}, {1, 2, 1, 3}};
    tess_work *work;
    tess_plan *plan;
    tess_plan_info info;
    CHECK_OK(tess_work_from_masks(context(), &set, &work));
    tess__plan_info_of_work(work, &info);
    info.ranks = 3;
    info.nodes = 1;
    info.head_dim = 128;
    info.element_bytes = 2;
    info.speeds = speeds;
    CHECK_OK(tess__plan_new(context(), "test", &info, &plan));
    const tess__layer_heads ring = {
        .strategy = {.method = TESS_PLAN_REFINED, .ulysses = 1, .ring = 3, .selective = 1},
        .head_group = group,
        .q_cuts = cuts,
        .q_order = order};
    const tess__layer_heads cut = {
        .strategy = {.method = TESS_PLAN_FRACTIONAL, .ulysses = 1, .ring = 1, .selective = 1}};
    CHECK_OK(tess__layer_from_heads(&plan->arena, &plan->info, &ring, &plan->layers[0]));
    CHECK_OK(tess__layer_from_shares(&plan->arena, &plan->info, &cut, shares, 6, &plan->layers[1]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(tess__layer_measure(context(), &plan->info, work, i, &plan->layers[i]));
    plan->layers[0].predicted_ns = 12345678901234;
    tess_work_destroy(work);
    return plan;
}

/* All bytes of a file as a string, to be freed. */
static char *text_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = memory_of(1 << 20, 1);
    const size_t n = fread(text, 1, (1 << 20) - 1, file);
    assert_true(n < (1 << 20) - 1);
    fclose(file);
    return text;
}

static void check_text(const char *path, const char *want)
{
    char *got = text_of(path);
    assert_string_equal(got, want);
    free(got);
}

static void a_plan_has_these_bytes_everywhere(void **state)
{
    (void)state;
    tess_plan *plan = small_plan(), *back = NULL;
    CHECK_OK(tess_plan_save(plan, "plan.json"));
    check_text("plan.json", frozen);
    CHECK_OK(tess_plan_load(context(), "plan.json", &back));
    CHECK_OK(tess_plan_check(back, NULL));
    CHECK_OK(tess_plan_save(back, "again.json"));
    check_text("again.json", frozen);
    tess_plan_destroy(plan);
    tess_plan_destroy(back);
}

/* A plan of any kind, its sizes of blocks given by bounds now and then. */
static void a_plan_that_was_loaded_is_the_plan_that_was_saved(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        plan_case c = draw_case((kind)(i % KINDS), 9, 5, 12);
        tess_plan_info *info = &c.plan->info;
        int64_t bounds[13];
        for (int b = 0; b <= info->q_blocks; b++)
            bounds[b] = tess__plan_q_row(info, b);
        if (i % 3 == 0) {
            info->bounds_q = bounds;
            info->group = 0;
        }
        CHECK_OK(tess__layer_measure(context(), info, c.work, 0, &c.plan->layers[0]));
        tess_plan *back = NULL;
        CHECK_OK(tess_plan_save(c.plan, "one.json"));
        CHECK_OK(tess_plan_load(context(), "one.json", &back));
        CHECK_OK(tess_plan_save(back, "two.json"));
        char *one = text_of("one.json"), *two = text_of("two.json");
        assert_string_equal(one, two);
        const tess_plan_layer *a = &c.plan->layers[0], *b = &back->layers[0];
        assert_int_equal(a->n_shares, b->n_shares);
        assert_memory_equal(a->shares, b->shares, (size_t)a->n_shares * sizeof *a->shares);
        assert_memory_equal(a->rho, b->rho, sizeof a->rho);
        assert_true(a->rho_before == b->rho_before && a->kv_copies == b->kv_copies);
        free(one);
        free(two);
        tess_plan_destroy(back);
        drop_case(&c);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* The frozen text with `from`, from its n-th place on, replaced. */
static void write_changed(const char *path, int n, const char *from, const char *to)
{
    const char *at = strstr(frozen, from);
    for (; at && n > 0; n--)
        at = strstr(at + 1, from);
    assert_non_null(at);
    blob b = {0};
    blob_add(&b, frozen, (size_t)(at - frozen));
    blob_text(&b, to);
    blob_text(&b, at + strlen(from));
    blob_save(&b, path);
    blob_free(&b);
}

static void files_that_are_no_plan_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        int n;
        const char *from, *to, *sentence;
    } wrong[] = {
        {0, "tessera-plan", "cluster", "line 2: \"format\" is \"cluster\", must be tessera-plan"},
        {0, "  \"format\": \"tessera-plan\",\n", "", "line 1: the document lacks \"format\""},
        {0, "\"version\": 1", "\"version\": 3", "line 3: \"version\" is 3, must be 1..2"},
        {0, "\"nodes\"", "\"node\"", "line 5: unknown member \"node\"; did you mean \"nodes\"?"},
        {0, "\"ranks\": 3", "\"ranks\": 0", "line 4: \"ranks\" is 0, must be 1..65536"},
        {0, "\"ranks\": 3", "\"ranks\": 99999999999",
         "line 4: \"ranks\" is 99999999999, must be 1..65536"},
        {0, "\"nodes\": 1", "\"nodes\": 4", "line 5: \"nodes\" is 4, must be 1..3"},
        {0, "\"q_blocks\": 5", "\"q_blocks\": 6",
         "line 1: group is 2, which does not cut 9 tokens into 6 blocks"},
        {0, "\"group\": 2", "\"bounds_q\": [0, 2, 4, 4, 8, 9]",
         "line 1: bounds_q: block 2 goes from 4 to 4, must have rows"},
        {0, "\"group\": 2", "\"bounds_q\": [0, 2, 4, 6, 9]",
         "line 11: \"bounds_q\" has 5 elements, must have 6"},
        {0, "\"group\": 2", "\"group\": 2, \"bounds_q\": [0]",
         "line 11: \"group\" and \"bounds_q\", must be one of them"},
        {0, "[2, 1, 1]", "[2, 1]", "line 16: \"speeds\" has 2 elements, must have 3"},
        {0, "[2, 1, 1]", "[2, 0, 1]", "line 16: \"speeds\"[1] is 0, must be 1..1000000"},
        {0, "\"refined\"", "\"auto\"",
         "line 19: \"method\" is \"auto\", must be contiguous, snake, lpt, db-sp, refined, "
         "fractional or refined-equal"},
        {0, "\"ulysses\": 1", "\"ulysses\": 3",
         "line 18: ulysses 3 x ring 3 x selective 1, must be 3 ranks"},
        {0, "\"ring\": 3", "\"ring\": 1",
         "line 18: ulysses 1 x ring 1 x selective 1, must be 3 ranks"},
        {0, "\"load_max\": 40", "\"load_max\": 101",
         "line 24: \"load_max\" is 101, must be 0..100"},
        {0, "\"rho_ring\": 1.6", "\"rho_ring\": -1.6",
         "line 28: \"rho_ring\" is -1.6, must be at least 0"},
        {0, "[0, 0, 0, 0]", "[0, 0, 1, 0]", "line 35: \"head_group\"[2] is 1, must be 0"},
        {0, "[0, 0, 0, 0]", "[0, 0, 0]", "line 35: \"head_group\" has 3 elements, must have 4"},
        {0, "[0, 2, 3, 5]", "[0, 3, 2, 5]",
         "line 18: layer 0: the query cuts of group 0: part 1 goes from 3 to 2, must ascend"},
        {0, "[0, 2, 4, 5]", "[1, 2, 4, 5]",
         "line 18: layer 0: the key cuts of group 0 go from 1 to 5, must go from 0 to 5"},
        {0, "[0, 2, 4, 5]", "[0, 2, 5]", "line 40: \"k_cuts\"[0] has 3 elements, must have 4"},
        {0, "[4, 2, 3, 1, 0]", "[4, 2, 3, 1, 1]",
         "line 18: layer 0: the query order of group 0: block 1 is there twice, again at place 4"},
        {0, "[4, 2, 3, 1, 0]", "[4, 2, 3, 1, 5]", "line 43: \"q_order\"[0][4] is 5, must be 0..4"},
        {0, "\"ring\": 1", "\"ring\": 3",
         "line 46: layer 1: ring 0: rank 0 has 3 shares and rank 1 1"},
        {0, "\"predicted_ns\": null", "\"k_cuts\": [], \"predicted_ns\": null",
         "line 62: \"k_cuts\" in a layer of shares"},
        {0, "[1, 2, 1, 5]", "[1, 2, 2, 5]",
         "line 46: layer 1: head 2: query block 1 is in no share"},
        {0, "[1, 2, 1, 5]", "[1, 2, 0, 5]",
         "line 46: layer 1: head 2: query block 0 is in two shares, of ranks 0 and 1"},
        {0, "[2, 3, 0, 5]", "[2, 3, 0, 6]",
         "line 63: share 4: query places 0..6, must ascend within 0..5"},
        {0, "[2, 3, 0, 5]", "[3, 3, 0, 5]", "line 63: share 4: rank is 3, must be 0..2"},
        {0, "[2, 3, 0, 5]", "[2, 4, 0, 5]", "line 63: share 4: head is 4, must be 0..3"},
        {0, "[0, 1, 0, 5]", "[2, 1, 0, 5]",
         "line 63: share 2: rank 0, head 2, must not follow rank 2, head 1"},
        {0, "[1, 2, 1, 5]", "[1, 2, 1, 3],[1, 2, 3, 5]",
         "line 63: share 4: begins at place 3, must be behind place 3, where the one before ends"},
        {0, ",\n        [2, 3, 0, 5]", "",
         "line 46: layer 1: head 3: query block 0 is in no share"},
        {0, "[2, 3, 0, 5]", "[2, 3, 0]", "line 68: \"shares\"[4] has 3 elements, must have 4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tess_plan *plan = NULL;
        char sentence[512];
        write_changed("bad.json", wrong[i].n, wrong[i].from, wrong[i].to);
        snprintf(sentence, sizeof sentence, "bad.json: %s", wrong[i].sentence);
        CHECK_FAILS(tess_plan_load(context(), "bad.json", &plan), TESS_EFORMAT, sentence);
        assert_null(plan);
    }
}

static void a_plan_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t n = 0; n + 2 < sizeof frozen - 1; n += 7) {
        tess_plan *plan = NULL;
        blob b = {0};
        blob_add(&b, frozen, n);
        blob_save(&b, "cut.json");
        blob_free(&b);
        assert_int_equal(tess_plan_load(context(), "cut.json", &plan), TESS_EFORMAT);
        assert_int_equal(strncmp(tess_last_error(), "cut.json: line ", 15), 0);
        assert_null(plan);
    }
}

static void sizes_that_no_machine_has_are_refused_before_memory_is_taken(void **state)
{
    (void)state;
    tess_plan *plan = NULL;
    tess_ctx_info before, after;
    write_changed("big.json", 0, "\"heads\": 4,", "\"heads\": 65536,");
    CHECK_OK(tess_ctx_query(context(), &before));
    CHECK_FAILS(tess_plan_load(context(), "big.json", &plan), TESS_EFORMAT,
                "big.json: line 35: \"head_group\" has 4 elements, must have 65536");
    CHECK_OK(tess_ctx_query(context(), &after));
    assert_int_equal(before.bytes_now, after.bytes_now);
    assert_true(after.bytes_peak < 16 << 20);
}

/* ---- several steps --------------------------------------------------------------------------- */

static void steps_and_origin_come_back(void **state)
{
    (void)state;
    FILE *source = fopen("source.csv", "w");
    assert_non_null(source);
    fputs("some bytes", source);
    fclose(source);
    plan_case cases[2] = {{0}};
    tess_plan_file *file = NULL, *other = NULL;
    tess_plan_file_view v;
    tess_plan_opts opts = TESS_PLAN_OPTS_INIT;
    const double density[2][6] = {{0.9, 0.1, 0.2, 0.5, 0.5, 0.7}, {0.3, 0.3, 0.2, 0.1, 0.5, 0.7}};
    const tess_plan_origin origin = {.command = "tessera plan \"x\"",
                                     .source = "source.csv",
                                     .cluster = "h100",
                                     .first_layer = 7};
    tess_cluster *cluster = NULL;
    opts.ranks = 4;
    CHECK_OK(tess_cluster_load(context(), "h100", &cluster));
    CHECK_OK(tess_plan_file_create(context(), &origin, &file));
    CHECK_FAILS(tess_plan_file_save(file, "x"), TESS_EINVAL,
                "tess_plan_file_save: no step was added");
    CHECK_FAILS(tess_plan_file_add(file, 1, NULL, NULL), TESS_EINVAL,
                "tess_plan_file_add: the first step needs a plan");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tess_work_from_density(context(), density[i], 2, 3, 4096, 64, &cases[i].work));
        CHECK_OK(tess_plan_create(context(), cases[i].work, cluster, &opts, &cases[i].plan));
    }
    CHECK_OK(tess_plan_file_add(file, 1, cases[0].plan, cases[0].work));
    CHECK_OK(tess_plan_file_add(file, 2, NULL, NULL));
    CHECK_OK(tess_plan_file_add(file, 5, cases[1].plan, cases[1].work));
    CHECK_FAILS(tess_plan_file_add(file, 5, NULL, NULL), TESS_EINVAL,
                "tess_plan_file_add: step is 5, must be 0 or more, and above the one before");
    CHECK_FAILS(tess_plan_file_query(file, &v), TESS_EINVAL,
                "tess_plan_file_query: the file was created, not opened");
    CHECK_OK(tess_plan_file_save(file, "steps.plan.json"));
    tess_plan_file_destroy(file);

    CHECK_OK(tess_plan_file_open(context(), "steps.plan.json", &other));
    CHECK_OK(tess_plan_file_query(other, &v));
    assert_int_equal(v.steps, 3);
    assert_int_equal(v.step[2], 5);
    assert_ptr_equal(v.plan[0], v.plan[1]);
    assert_ptr_not_equal(v.plan[1], v.plan[2]);
    assert_string_equal(v.origin.command, "tessera plan \"x\"");
    assert_string_equal(v.origin.source, "source.csv");
    assert_string_equal(v.origin.cluster, "h100");
    assert_int_equal(v.origin.first_layer, 7);
    assert_int_equal(strlen(v.origin.source_hash), 16);
    assert_non_null(strstr(v.runner_up[0], ": "));
    for (int i = 0; i < 2; i++) {
        tess_work *work = NULL;
        int64_t loads[2][3];
        const int step = i ? 2 : 1;
        CHECK_OK(tess_plan_check(v.plan[step], cases[i].work));
        CHECK_OK(tess_plan_save(v.plan[step], "a.json"));
        CHECK_OK(tess_plan_save(cases[i].plan, "b.json"));
        assert_int_equal(system("cmp a.json b.json"), 0);
        CHECK_OK(tess_plan_file_work(other, step, &work));
        for (int layer = 0; layer < 2; layer++) {
            CHECK_OK(tess_work_loads(work, layer, loads[0]));
            CHECK_OK(tess_work_loads(cases[i].work, layer, loads[1]));
            assert_memory_equal(loads[0], loads[1], sizeof loads[0]);
        }
        tess_work_destroy(work);
    }
    tess_plan *last = NULL; /* the plan of the last step */
    CHECK_OK(tess_plan_load(context(), "steps.plan.json", &last));
    CHECK_OK(tess_plan_save(last, "a.json"));
    assert_int_equal(system("cmp a.json b.json"), 0);
    tess_plan_destroy(last);
    tess_plan_file_destroy(other);

    CHECK_OK(tess_plan_file_open(context(), "a.json", &other)); /* of one plan */
    CHECK_OK(tess_plan_file_query(other, &v));
    assert_int_equal(v.steps, 1);
    assert_null(v.origin.command);
    assert_string_equal(v.runner_up[1], "");
    tess_work *none = NULL;
    CHECK_FAILS(tess_plan_file_work(other, 0, &none), TESS_EINVAL,
                "tess_plan_file_work: the file has no loads of heads");
    tess_plan_file_destroy(other);
    for (int i = 0; i < 2; i++) {
        tess_plan_destroy(cases[i].plan);
        tess_work_destroy(cases[i].work);
    }
    tess_cluster_destroy(cluster);
}

/* Every prefix of a file of several steps is refused, and nothing is left allocated. */
static void steps_cut_short_anywhere_are_refused(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *f = fopen("steps.plan.json", "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    for (size_t cut = 0; cut + 2 < n; cut += 7) {
        tess_plan_file *file = NULL;
        f = fopen("short.json", "w");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, cut, f), cut);
        fclose(f);
        assert_int_equal(tess_plan_file_open(context(), "short.json", &file), TESS_EFORMAT);
        assert_null(file);
    }
}

static void calls_without_a_plan_or_path_are_refused(void **state)
{
    (void)state;
    tess_plan *plan = NULL;
    CHECK_FAILS(tess_plan_load(context(), NULL, &plan), TESS_EINVAL,
                "tess_plan_load: path is NULL");
    CHECK_FAILS(tess_plan_load(NULL, "x", &plan), TESS_EINVAL, "tess_plan_load: ctx is NULL");
    CHECK_FAILS(tess_plan_load(context(), "x", NULL), TESS_EINVAL, "tess_plan_load: plan is NULL");
    CHECK_FAILS(tess_plan_load(context(), "none.json", &plan), TESS_EIO,
                "none.json: cannot open: No such file or directory");
    CHECK_FAILS(tess_plan_save(NULL, "x"), TESS_EINVAL, "tess_plan_save: plan is NULL");
    plan = small_plan();
    CHECK_FAILS(tess_plan_save(plan, NULL), TESS_EINVAL, "tess_plan_save: path is NULL");
    CHECK_FAILS(tess_plan_save(plan, "no/where.json"), TESS_EIO,
                "no/where.json: cannot create: No such file or directory");
    tess_plan_destroy(plan);
}

static int leave(void **state)
{
    return leave_folder(state) | drop_context(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_plan_has_these_bytes_everywhere),
    cmocka_unit_test(a_plan_that_was_loaded_is_the_plan_that_was_saved),
    cmocka_unit_test(files_that_are_no_plan_are_refused_with_their_line),
    cmocka_unit_test(a_plan_cut_short_anywhere_is_refused),
    cmocka_unit_test(sizes_that_no_machine_has_are_refused_before_memory_is_taken),
    cmocka_unit_test(steps_and_origin_come_back),
    cmocka_unit_test(steps_cut_short_anywhere_are_refused),
    cmocka_unit_test(calls_without_a_plan_or_path_are_refused),
};
RUN_TESTS_WITH(tests, enter_folder, leave)
