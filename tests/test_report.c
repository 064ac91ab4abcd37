/* SPDX-License-Identifier: Apache-2.0 */
/* test_report.c - pages: what they say, and what is said of runs that are none. Whether they draw
 * themselves is for tests/browser. */
#include "files.h"
#include "tessera/advanced/mix_report.h"
#include "tessera/advanced/profile_report.h"
#include "tessera/report.h"
#include "tessera/strategy.h"

static char *page_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static char text[1 << 22];
    const size_t n = fread(text, 1, sizeof text - 1, f);
    assert_true(n < sizeof text - 1);
    fclose(f);
    text[n] = '\0';
    return text;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_run(const char *metrics, const char *settings)
{
    (void)mkdir("run", 0777);
    (void)mkdir("run/samples", 0777);
    write_text("run/metrics.jsonl", metrics);
    write_text("run/settings.json", settings);
}

static void the_page_of_a_run_holds_its_numbers(void **state)
{
    (void)state;
    make_run("{\"step\": 1, \"loss\": 0.5, \"step_ms\": 10, \"density\": 1, \"val_loss\": null}\n"
             "{\"step\": 2, \"loss\": 0.25, \"step_ms\": 12, \"val_loss\": 0.125, "
             "\"val_buckets\": [0.1, 0.2, 0.3, 0.4]}\n"
             "{\"step\": 3, \"lo",
             "{\"data\": \"shapes\", \"lr\": 0.003, \"note\": \"<script>&\"}");
    write_text("run/samples/step-000002.png", "abc");
    write_text("run/samples/prompts.txt", "a \"red\" square\na disc\n");
    CHECK_OK(tess_report_run(ctx, "run", "page.html"));
    const char *page = page_text("page.html");
    assert_non_null(strstr(page, "\"prompts\":[\"a \\\"red\\\" square\",\"a disc\"]"));
    assert_true(strstr(page, "<figure id=\"loss\">") < strstr(page, "<figure id=\"samples\">"));
    assert_null(strstr(page, "http-equiv"));
    assert_non_null(strstr(page, "[1,0.5,null,null,10,"));
    assert_non_null(strstr(page, "[2,0.25,null,null,12,"));
    assert_non_null(strstr(page, "\"validation\":[[2,0.125,0.1,0.2,0.3,0.4]]"));
    assert_null(strstr(page, "<figure id=\"density\">")); /* of sparse runs alone */
    assert_non_null(strstr(page, "<td>lr</td><td>0.003</td>"));
    assert_non_null(strstr(page, "&lt;script&gt;&amp;"));
    assert_non_null(strstr(page, "data:image/png;base64,YWJj\""));
}

static void the_page_of_a_sparse_run_holds_decisions(void **state)
{
    (void)state;
    (void)mkdir("sparse", 0777);
    write_text(
        "sparse/metrics.jsonl",
        "{\"step\": 1, \"loss\": 1, \"density\": 1}\n"
        "{\"step\": 2, \"loss\": 1, \"density\": 0.25, \"recall\": 0.5, \"select_ms\": 3}\n");
    write_text("sparse/events.jsonl",
               "{\"step\": 2, \"layer\": 1, \"event\": \"switch\", \"why\": {\"recall\": 0.5}}\n"
               "{\"step\": 3, \"layer\": 1, \"head\": 2, \"event\": \"back\"}\n{\"st");
    CHECK_OK(tess_report_run(ctx, "sparse", "page.html"));
    const char *page = page_text("page.html");
    assert_non_null(strstr(page, "<figure id=\"density\">"));
    assert_non_null(strstr(page, "<b>0.25</b><span>density of attention</span>"));
    assert_non_null(strstr(page, ",0.25,0.5,null,null,3,null,null]"));
    assert_non_null(strstr(page, "\"events\":[[2,\"switch\",1,null,\"{\\\"recall\\\":0.5}\"],"
                                 "[3,\"back\",1,2,\"\"]]"));
    write_text("sparse/events.jsonl", "[]\n");
    CHECK_FAILS(tess_report_run(ctx, "sparse", "page.html"), TESS_EFORMAT,
                "sparse/events.jsonl: line 1: not an event with its step");
}

static void the_page_of_a_profile_holds_maps_and_masks(void **state)
{
    (void)state;
    const double density[] = {0.25, 0.75}, recall[] = {0.9, 1};
    const double wrong[] = {0.5, 1.5};
    const uint8_t some[] = {1, 0, 0, 1}, pixels[2 * 2 * 2 * 3] = {255};
    const float mass[] = {0.5f, 0.25f, 0.125f, 0.125f};
    tess_profile_report *report = NULL;
    const tess_profile_report_opts opts = {.layers = 1,
                                           .heads = 2,
                                           .subtitle = "<here>",
                                           .input = "run/<7>",
                                           .command = "tessera profile 'a b'"};
    CHECK_OK(tess_profile_report_create(ctx, &opts, &report));
    CHECK_FAILS(tess_profile_report_write(report, "page.html"), TESS_EINVAL,
                "tess_profile_report_write: no map was added");
    const tess_profile_map map = {
        .step = 7, .noise_high = 0.5, .density = density, .recall = recall};
    CHECK_OK(tess_profile_report_add(report, &map));
    CHECK_OK(tess_profile_report_cube(report, &(tess_profile_cube){{1, 2, 2}, 0.95, 0.5}));
    const tess_profile_mask mask = {.head = 1,
                                    .why = "asked for",
                                    .grid = {2, 1, 2},
                                    .frames = 2,
                                    .height = 2,
                                    .width = 2,
                                    .pixels = pixels,
                                    .query = some,
                                    .mass = mass,
                                    .oracle = some,
                                    .predicted = some};
    CHECK_OK(tess_profile_report_mask(report, &mask));
    CHECK_OK(tess_profile_report_write(report, "page.html"));
    const char *page = page_text("page.html");
    assert_non_null(strstr(page, "&lt;here&gt;"));
    assert_non_null(strstr(page, "<title>How sparse attention is: run/&lt;7&gt;</title>"));
    assert_non_null(strstr(page, "<dt>input</dt><dd>run/&lt;7&gt;</dd>\n<dt>date</dt><dd>20"));
    assert_non_null(
        strstr(page, " UTC</dd>\n<dt>command</dt><dd><code>tessera profile 'a b'</code>"));
    assert_non_null(strstr(page, "<b>50.0 %</b><span>mean density</span>"));
    assert_non_null(strstr(page, "\"density\":[0.25,0.75],\"recall\":[0.9,1]}"));
    assert_non_null(strstr(page, "{\"cube\":[1,2,2],\"overlap\":0.95,\"density\":0.5}"));
    assert_non_null(strstr(page, "\"keys\":2,\"oracle_mass\":0.625,\"frames\":[0,1]"));
    assert_non_null(
        strstr(page, "\"oracle\":\"AQAAAQ==\",\"predicted\":\"AQAAAQ==\",\"found\":1}"));
    CHECK_FAILS(tess_profile_report_add(report, &(tess_profile_map){.density = wrong}), TESS_EINVAL,
                "tess_profile_report_add: density[1] is 1.5, must be 0..1");
    CHECK_FAILS(
        tess_profile_report_add(report, &(tess_profile_map){.noise_low = 1, .density = density}),
        TESS_EINVAL, "tess_profile_report_add: noise is 1..0, must ascend in 0..1");
    tess_profile_mask bad = mask;
    bad.head = 2;
    CHECK_FAILS(tess_profile_report_mask(report, &bad), TESS_EINVAL,
                "tess_profile_report_mask: layer 0, head 2, must be below 1 and 2");
    bad = mask;
    bad.grid[1] = 0;
    CHECK_FAILS(tess_profile_report_mask(report, &bad), TESS_EINVAL,
                "tess_profile_report_mask: the grid is 2 x 0 x 2, must have 1..4194304 tokens");
    bad = mask;
    bad.mass = NULL;
    CHECK_FAILS(tess_profile_report_mask(report, &bad), TESS_EINVAL,
                "tess_profile_report_mask: mass is NULL");
    tess_profile_report_destroy(report);
    tess_profile_report_destroy(NULL);
    CHECK_FAILS(tess_profile_report_create(ctx, &(tess_profile_report_opts){.layers = 1}, &report),
                TESS_EINVAL,
                "tess_profile_report_create: 1 layers of 0 heads, must be 1..65536 each");
}

static void a_long_run_is_thinned(void **state)
{
    (void)state;
    (void)mkdir("long", 0777);
    FILE *f = fopen("long/metrics.jsonl", "wb");
    assert_non_null(f);
    for (int i = 1; i <= 4000; i++)
        fprintf(f, "{\"step\": %d, \"loss\": %d}\n", i, i);
    fclose(f);
    CHECK_OK(tess_report_run(ctx, "long", "page.html"));
    const char *page = page_text("page.html");
    /* Three steps to a point: the mean of 1, 2, 3 at step 3; the last has one step. */
    assert_non_null(strstr(page, "\"points\":[[3,2,"));
    assert_non_null(strstr(page, ",[4000,4000,"));
}

static void what_is_no_run_gets_a_sentence(void **state)
{
    (void)state;
    CHECK_FAILS(tess_report_run(ctx, "nowhere", "x.html"), TESS_EIO,
                "nowhere/metrics.jsonl: cannot open: No such file or directory");
    make_run("", "{}");
    CHECK_FAILS(tess_report_run(ctx, "run", "x.html"), TESS_EFORMAT,
                "run/metrics.jsonl: no step was recorded");
    make_run("{\"step\": 1}\n[]\n", "{}");
    CHECK_FAILS(tess_report_run(ctx, "run", "x.html"), TESS_EFORMAT,
                "run/metrics.jsonl: line 2: not the metrics of a step");
    make_run("{\"step\": 1}\n", "{\"a\": }");
    assert_int_equal(tess_report_run(ctx, "run", "x.html"), TESS_EFORMAT);
    make_run("{\"step\": 1}\n", "{}");
    CHECK_FAILS(tess_report_run(ctx, "run", "none/x.html"), TESS_EIO,
                "none/x.html: cannot create: No such file or directory");
    CHECK_FAILS(tess_report_run(ctx, NULL, "x.html"), TESS_EINVAL, "tess_report_run: run is NULL");
    assert_int_equal(access("x.html", F_OK), -1);
}

/* Four heads on three ranks, as docs/planning.md draws them: loads 4, 3, 1, 1 of three blocks each.
 */
static void the_page_of_a_plan_holds_shares_and_imbalance(void **state)
{
    (void)state;
    const int64_t weights[] = {4, 3, 1, 1};
    tess_work *work = NULL, *other = NULL;
    tess_plan *plan = NULL;
    tess_plan_report *report = NULL;
    CHECK_OK(tess_work_from_weights(ctx, weights, 1, 4, 12, &work));
    CHECK_OK(tess_work_from_weights(ctx, weights, 2, 2, 12, &other));
    const tess_plan_opts opts = {TESS_PLAN_OPTS_DEFAULTS, .ranks = 3,
                                 .strategy.method = TESS_PLAN_FRACTIONAL};
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    const tess_plan_report_opts head = {
        .first_layer = 7, .input = "p.csv", .command = "tessera plan --density p.csv"};
    CHECK_OK(tess_plan_report_create(ctx, &head, &report));
    CHECK_FAILS(tess_plan_report_write(report, "page.html"), TESS_EINVAL,
                "tess_plan_report_write: no step was added");
    CHECK_OK(tess_plan_report_add(report, 1, plan, work));
    CHECK_FAILS(tess_plan_report_add(report, 2, plan, other), TESS_EINVAL,
                "tess_plan_report_add: the work has 2 layers of 2 heads of 12 x 12 blocks, the "
                "plan 1 of 4 of 12 x 12");
    CHECK_OK(tess_plan_report_add(report, 5, plan, work));
    CHECK_OK(tess_plan_report_write(report, "page.html"));
    const char *page = page_text("page.html");
    assert_non_null(strstr(page, "<title>Sparse attention of p.csv on 3 ranks</title>"));
    assert_non_null(strstr(page, "<dt>input</dt><dd>p.csv</dd>\n<dt>date</dt><dd>20"));
    assert_non_null(
        strstr(page, " UTC</dd>\n<dt>command</dt><dd><code>tessera plan --density p.csv</code>"));
    assert_non_null(strstr(page, "\"layers\":[7],"));
    assert_non_null(strstr(page, "\"steps\":2,\"strategies\":[\"fractional\"],"));
    assert_non_null(strstr(page, "\"before\":[[null,null,null]],"));
    assert_non_null(strstr(page, "\"after\":[[1,1,1]],"));
    assert_non_null(strstr(page, "\"shown\":[{\"step\":1,\"strategy\":[0],\"ms\":[null]},"
                                 "{\"step\":5,"));
    /* Head 0: 2 shares, of rank 0 eleven blocks with a rank's mean (80 20: 4096), of rank 1 the
     * last one with a third (d5 0a: 1365); heads 1 to 3 whole on ranks 2, 1, 1. */
    assert_non_null(strstr(page, "{\"step\":5,\"layer\":7,\"shares\":"
                                 "\"AgAAC4AgAgAB1QoBBAAMgCABAgAM1QoBAgAM1Qo=\",\"before\":null}"));
    tess_plan_report_destroy(report);
    tess_plan_destroy(plan);
    tess_work_destroy(other);
    tess_work_destroy(work);
}

/* A page of a plan of 40 heads with rings of 8 x `ring` ranks, drawn for so many steps. */
static const char *page_of_rings(int layers, int ring, int steps)
{
    int64_t *weights = calloc((size_t)layers * 40, sizeof *weights);
    tess_work *work = NULL;
    tess_plan *plan = NULL;
    tess_plan_report *report = NULL;
    assert_non_null(weights);
    for (int i = 0; i < layers * 40; i++)
        weights[i] = 100 + i % 41;
    CHECK_OK(tess_work_from_weights(ctx, weights, layers, 40, 512, &work));
    const tess_plan_opts opts = {
        TESS_PLAN_OPTS_DEFAULTS, .ranks = 8 * ring,
        .strategy = {.method = TESS_PLAN_LPT, .ulysses = 8, .ring = ring, .selective = 1}};
    CHECK_OK(tess_plan_create(ctx, work, NULL, &opts, &plan));
    CHECK_OK(tess_plan_report_create(ctx, NULL, &report));
    for (int step = 0; step < steps; step++)
        CHECK_OK(tess_plan_report_add(report, 10 + step, plan, work));
    CHECK_OK(tess_plan_report_write(report, "page.html"));
    tess_plan_report_destroy(report);
    tess_plan_destroy(plan);
    tess_work_destroy(work);
    free(weights);
    return page_text("page.html");
}

/* What is drawn is spread over all steps, or layers, and the page stays below 2 MB. */
static void the_page_of_a_large_plan_is_thinned(void **state)
{
    (void)state;
    const char *page = page_of_rings(2, 8, 20);
    assert_null(strstr(page, "is drawn.</p>"));
    assert_non_null(strstr(page, "{\"step\":29,\"layer\":1,"));
    page = page_of_rings(2, 8, 700);
    assert_in_range(strlen(page), 900000, 2000000);
    assert_non_null(strstr(page, "<p>One step in 2 is drawn.</p>"));
    assert_non_null(strstr(page, "\"steps\":700,"));
    assert_non_null(strstr(page, "{\"step\":708,\"layer\":1,"));
    assert_null(strstr(page, "{\"step\":709,"));
    page = page_of_rings(300, 32, 1);
    assert_in_range(strlen(page), 900000, 2000000);
    assert_non_null(strstr(page, "<p>One layer in 2 is drawn.</p>"));
    assert_non_null(strstr(page, "{\"step\":10,\"layer\":298,"));
    assert_null(strstr(page, "{\"step\":10,\"layer\":299,"));
}

/* A clip of 600 tokens and four of 100 on two ranks: 1000 tokens, and the long one is cut. */
static void the_page_of_a_mixture_holds_ranks_and_sizes(void **state)
{
    (void)state;
    tess_mix_clip clips[5];
    for (int i = 0; i < 5; i++)
        clips[i] = (tess_mix_clip){.tokens = i ? 100 : 600, .density = 1.0, .drawn_by = -1};
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    opts.ranks = 2;
    opts.group = 1;
    tess_mix_plan *plan = NULL;
    CHECK_OK(tess_mix_plan_create(ctx, clips, 5, NULL, &opts, &plan));
    const tess_mix_report_opts head = {.input = "<mix>.csv", .command = "tessera plan --clips"};
    CHECK_OK(tess_mix_report_write(ctx, plan, clips, 5, &head, "page.html"));
    const char *page = page_text("page.html");
    assert_non_null(strstr(page, "<h1>Clips of several sizes on 2 ranks</h1>"));
    assert_non_null(strstr(page, "<dt>input</dt><dd>&lt;mix&gt;.csv</dd>"));
    assert_non_null(strstr(page, "<b>1</b><span>clips cut</span>"));
    assert_non_null(strstr(page, "{\"timed\":0,\"sizes\":[[600,600,1,1],[100,100,4,0]],"));
    tess_mix_view v;
    CHECK_OK(tess_mix_plan_query(plan, &v));
    for (int rank = 0; rank < 2; rank++) {
        int64_t whole = 0, tokens = 0;
        char text[128];
        for (int64_t i = v.first[rank]; i < v.first[rank + 1]; i++) {
            whole += v.parts[i].clip > 0;
            tokens += v.parts[i].clip > 0 ? 0 : v.parts[i].token_end - v.parts[i].token_begin;
        }
        snprintf(text, sizeof text, whole ? ",[0,0,0,%lld,1,%lld,%lld,0]]" : ",[0,0,0,%lld]]",
                 (long long)tokens, (long long)whole, (long long)(100 * whole));
        assert_non_null(strstr(page, text));
    }
    CHECK_FAILS(tess_mix_report_write(ctx, plan, clips, 4, NULL, "page.html"), TESS_EINVAL,
                "tess_mix_report_write: n is 4, must be 5, the clips of the plan");
    tess_mix_plan_destroy(plan);
}

/* 40,000 clips of as many sizes on 2,000 ranks: runs of sizes, and as many ranks as fit in 2 MB. */
static void the_page_of_many_sizes_is_thinned(void **state)
{
    (void)state;
    enum { CLIPS = 40000 };
    tess_mix_clip *clips = calloc(CLIPS, sizeof *clips);
    tess_mix_plan *plan = NULL;
    tess_mix_opts opts = TESS_MIX_OPTS_INIT;
    assert_non_null(clips);
    for (int i = 0; i < CLIPS; i++)
        clips[i] = (tess_mix_clip){.tokens = 1 + i, .density = 0.5, .drawn_by = -1};
    opts.ranks = 2000;
    opts.steps = 2;
    opts.whole_clips = 1;
    CHECK_OK(tess_mix_plan_create(ctx, clips, CLIPS, NULL, &opts, &plan));
    CHECK_OK(tess_mix_report_write(ctx, plan, clips, CLIPS, NULL, "page.html"));
    const char *page = page_text("page.html");
    assert_in_range(strlen(page), 100000, 2000000);
    assert_non_null(strstr(page, "<p>One rank in 2 is drawn.</p>"));
    assert_non_null(
        strstr(page, "{\"timed\":0,\"sizes\":[[37501,40000,2500,0],[35001,37500,2500,0],"));
    assert_non_null(strstr(page, ",[1,2500,2500,0]],\"before\":[[0,"));
    tess_mix_plan_destroy(plan);
    free(clips);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_page_of_many_sizes_is_thinned),
    cmocka_unit_test(the_page_of_a_plan_holds_shares_and_imbalance),
    cmocka_unit_test(the_page_of_a_large_plan_is_thinned),
    cmocka_unit_test(the_page_of_a_mixture_holds_ranks_and_sizes),
    cmocka_unit_test(the_page_of_a_run_holds_its_numbers),
    cmocka_unit_test(the_page_of_a_sparse_run_holds_decisions),
    cmocka_unit_test(the_page_of_a_profile_holds_maps_and_masks),
    cmocka_unit_test(a_long_run_is_thinned),
    cmocka_unit_test(what_is_no_run_gets_a_sentence),
};

RUN_TESTS_IN_FOLDER(tests)
