/* SPDX-License-Identifier: Apache-2.0 */
/* test_cost.c - clusters by name and from files, good and bad, and the times computed by hand. */
#include "ctx_fixture.h"

#include "cost/cost_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* Round numbers: 100 GB/s inside after 1 us, 8 adapters of 10 GB/s after 2 us, calls of 3 us,
 * 10 TFLOP/s for sparse attention forward and 5 backward, a row costs 100 keys. */
static const char round_text[] =
    "{\"schema\": 1, \"about\": \"round numbers\",\n"
    " \"gpu\": {\"name\": \"G\", \"peak_tflops\": {\"bf16\": 40}, \"memory_gib\": 2,\n"
    "  \"memory_gbytes_per_s\": 1000, \"origin\": \"none\"},\n"
    " \"node\": {\"gpus\": 8, \"link\": {\"name\": \"L\", \"gbytes_per_s\": 200,\n"
    "  \"latency_us\": 1, \"efficiency\": 0.5, \"origin\": \"none\"}},\n"
    " \"network\": {\"name\": \"N\", \"nics\": 8, \"gbytes_per_s\": 20, \"latency_us\": 2,\n"
    "  \"efficiency\": 0.5, \"oversubscription\": 1, \"origin\": \"none\"},\n"
    " \"launch\": {\"us\": 3, \"origin\": \"none\"},\n"
    " \"attention\": {\"forward\": 0.5, \"backward\": 0.25, \"sparse\": 0.5, \"row_keys\": 100,\n"
    "  \"origin\": \"none\"}}\n";

/* round_text with one part replaced. */
static tess_status parse_with(const char *part, const char *by, tess_cluster **cluster)
{
    char text[2048];
    const char *at = strstr(round_text, part);
    assert_non_null(at);
    const int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - round_text), round_text, by,
                           at + strlen(part));
    return tess__cluster_parse(ctx, "c.json", text, (size_t)n, cluster);
}

static tess_cluster *round_cluster(void)
{
    tess_cluster *cluster = NULL;
    CHECK_OK(tess__cluster_parse(ctx, "round", round_text, strlen(round_text), &cluster));
    return cluster;
}

/* ---- clusters -------------------------------------------------------------------------------- */

static void every_shipped_cluster_loads_and_is_sane(void **state)
{
    (void)state;
    assert_true(tess_cluster_count() >= 11);
    assert_null(tess_cluster_name(-1));
    assert_null(tess_cluster_name(tess_cluster_count()));
    for (int i = 0; i < tess_cluster_count(); i++) {
        tess_cluster *cluster = NULL;
        tess_cluster_info info;
        CHECK_OK(tess_cluster_load(ctx, tess_cluster_name(i), &cluster));
        CHECK_OK(tess_cluster_query(cluster, &info));
        assert_string_equal(info.name, tess_cluster_name(i));
        if (i > 0)
            assert_true(strcmp(tess_cluster_name(i - 1), tess_cluster_name(i)) < 0);
        /* A slip of a unit is a factor of a thousand; published boards are within these. */
        assert_true(info.flops_bf16 == 0.0 ||
                    (info.flops_bf16 >= 1e14 && info.flops_bf16 <= 1e16)); /* none on V100 */
        assert_true(info.memory >= (int64_t)32 << 30 && info.memory <= (int64_t)400 << 30);
        assert_true(info.memory_bandwidth >= 9e11 && info.memory_bandwidth <= 2e13);
        assert_true(info.link_bandwidth >= 1.5e11 && info.link_bandwidth <= 1e12);
        assert_true(info.nic_bandwidth >= 1.25e10 && info.nic_bandwidth <= 1e11);
        assert_true(info.link_latency >= 1000 && info.network_latency <= 10000);
        const char *const origins[] = {info.gpu_origin,     info.link_origin,
                                       info.network_origin, info.launch_origin,
                                       info.attn_origin,    info.collectives.origin};
        for (int k = 0; k < 6; k++)
            assert_true(origins[k] && strlen(origins[k]) > 10);
        tess_cluster_destroy(cluster);
    }
}

static void published_facts_are_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double bf16, link, nic;
        int gpus, gib;
    } facts[] = {
        {"a100-80", 312e12, 300e9, 25e9, 8, 80},    {"a100-40", 312e12, 300e9, 25e9, 8, 40},
        {"azure-ndv4", 312e12, 300e9, 25e9, 8, 40}, {"a800", 312e12, 200e9, 25e9, 8, 80},
        {"h100", 989e12, 450e9, 50e9, 8, 80},       {"h800", 989e12, 200e9, 50e9, 8, 80},
        {"h200", 989e12, 450e9, 25e9, 8, 141},      {"h20", 148e12, 450e9, 50e9, 8, 96},
        {"b200", 2250e12, 900e9, 50e9, 8, 180},     {"gb200", 2450e12, 900e9, 50e9, 72, 186},
        {"b300", 2250e12, 900e9, 100e9, 8, 288},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        tess_cluster *cluster = NULL;
        tess_cluster_info info;
        CHECK_OK(tess_cluster_load(ctx, facts[i].name, &cluster));
        CHECK_OK(tess_cluster_query(cluster, &info));
        assert_true(info.flops_bf16 == facts[i].bf16);
        assert_true(info.link_bandwidth == facts[i].link);
        assert_true(info.nic_bandwidth == facts[i].nic);
        assert_int_equal(info.node_gpus, facts[i].gpus);
        assert_true(info.memory == (int64_t)facts[i].gib << 30);
        tess_cluster_destroy(cluster);
    }
}

static void a_name_that_is_not_shipped_gets_the_nearest(void **state)
{
    (void)state;
    tess_cluster *cluster = NULL;
    CHECK_FAILS(tess_cluster_load(ctx, "h1000", &cluster), TESS_EINVAL,
                "tess_cluster_load: no cluster \"h1000\"; did you mean \"h100\"?");
    CHECK_FAILS(tess_cluster_load(ctx, "my machine", &cluster), TESS_EINVAL,
                "tess_cluster_load: no cluster \"my machine\"; a file needs a '/' or .json");
    CHECK_FAILS(tess_cluster_load(ctx, "", &cluster), TESS_EINVAL,
                "tess_cluster_load: no cluster \"\"; a file needs a '/' or .json");
    CHECK_FAILS(tess_cluster_load(ctx, NULL, &cluster), TESS_EINVAL,
                "tess_cluster_load: name is NULL");
    CHECK_FAILS(tess_cluster_load(NULL, "h100", &cluster), TESS_EINVAL,
                "tess_cluster_load: ctx is NULL");
    CHECK_FAILS(tess_cluster_load(ctx, "h100", NULL), TESS_EINVAL,
                "tess_cluster_load: cluster is NULL");
    CHECK_FAILS(tess_cluster_load(ctx, "nowhere.json", &cluster), TESS_EIO,
                "nowhere.json: cannot open: No such file or directory");
    assert_null(cluster);
    CHECK_FAILS(tess_cluster_query(NULL, NULL), TESS_EINVAL, "tess_cluster_query: cluster is NULL");
    tess_cluster_destroy(NULL);
}

static void a_file_is_a_cluster_too(void **state)
{
    (void)state;
    char path[] = "/tmp/tess-cluster-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, round_text, strlen(round_text)) > 0 && close(fd) == 0);
    tess_cluster *cluster = NULL;
    tess_cluster_info info;
    CHECK_OK(tess_cluster_load(ctx, path, &cluster));
    CHECK_OK(tess_cluster_query(cluster, &info));
    unlink(path);
    assert_string_equal(info.name, path);
    assert_string_equal(info.about, "round numbers");
    assert_true(info.flops_bf16 == 40e12 && info.flops_fp32 == 0.0);
    assert_true(info.link_latency == 1000 && info.network_latency == 2000 && info.launch == 3000);
    tess_cluster_destroy(cluster);
}

static void a_bad_file_is_reported_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *part, *by, *sentence;
    } bad[] = {
        {"\"schema\": 1", "\"schema\": 2", "c.json: line 1: \"schema\" is 2, must be 1"},
        {"\"gpus\": 8", "\"gpus\": 0", "c.json: line 4: \"gpus\" is 0, must be 1..4096"},
        {"\"gpus\": 8", "\"gpu\": 8",
         "c.json: line 4: unknown member \"gpu\"; did you mean \"gpus\"?"},
        {"\"bf16\": 40", "\"bf16\": -1", "c.json: line 2: \"bf16\" is -1, must be 0.001..1000000"},
        {"\"memory_gib\": 2", "\"memory_gib\": \"2\"",
         "c.json: line 2: \"memory_gib\" is \"2\", must be a number 0.125..1000000"},
        {"\"launch\"", "\"lunch\"",
         "c.json: line 8: unknown member \"lunch\"; did you mean \"launch\"?"},
        {"\"nics\": 8, ", "", "c.json: line 6: \"network\" lacks \"nics\""},
        {"\"efficiency\": 0.5, \"origin\"", "\"efficiency\": 1.5, \"origin\"",
         "c.json: line 5: \"efficiency\" is 1.5, must be 0.01..1"},
        {"\"oversubscription\": 1", "\"oversubscription\": 0.5",
         "c.json: line 7: \"oversubscription\" is 0.5, must be 1..64"},
        {"\"about\": \"round numbers\"", "\"about\": null",
         "c.json: line 1: \"about\" is null, must be a string"},
        {"{\"forward\"", "[\"forward\"", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tess_cluster *cluster = NULL;
        assert_int_equal(parse_with(bad[i].part, bad[i].by, &cluster), TESS_EFORMAT);
        if (bad[i].sentence)
            assert_string_equal(tess_last_error(), bad[i].sentence);
        assert_null(cluster);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attention_takes_its_flops_over_its_rate(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    int64_t ns;
    /* 1e9 pairs * 4 * 128 FLOP at 40 * 0.5 * 0.5 = 10 TFLOP/s are 51.2 ms. */
    tess_attn_work work = {.pairs = 1e9, .head_dim = 128, .precision = TESS_PRECISION_BF16};
    CHECK_OK(tess_cost_attention(cluster, &work, &ns));
    assert_true(ns == 51200000);
    /* 1e6 rows at 100 keys each add a tenth. */
    work.rows = 1000000;
    CHECK_OK(tess_cost_attention(cluster, &work, &ns));
    assert_true(ns == 56320000);
    /* The backward pass has 2.5 times the FLOP, here at half the rate. */
    work.backward = 1;
    CHECK_OK(tess_cost_attention(cluster, &work, &ns));
    assert_true(ns == 281600000);
    /* A measured rate replaces peak and shares, in both directions, also where no peak is known. */
    work.flops = 20e12;
    work.precision = TESS_PRECISION_FP32;
    CHECK_OK(tess_cost_attention(cluster, &work, &ns));
    assert_true(ns == 70400000);
    work.flops = 0.0;
    CHECK_FAILS(tess_cost_attention(cluster, &work, &ns), TESS_ENOTSUP,
                "cluster round: the peak in fp32 is not known");
    assert_true(ns == 70400000);
    tess_cluster_destroy(cluster);
}

static void sparse_attention_loses_efficiency_with_density(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    double last = 0.0;
    for (int k = 10; k <= 10000; k *= 10) {
        int64_t ns;
        const tess_attn_work work = {
            .pairs = 1e4 * k, .rows = 10000, .head_dim = 64, .precision = TESS_PRECISION_BF16};
        CHECK_OK(tess_cost_attention(cluster, &work, &ns));
        const double rate = work.pairs * 256.0 / (double)ns * 1e9; /* FLOP/s */
        assert_true(rate > last && rate < 10e12);
        /* k / (k + 100) of the rate; the time is rounded to a ns of at least 28,160. */
        assert_true(fabs(rate / 10e12 - k / (k + 100.0)) < 2e-5);
        last = rate;
    }
    tess_cluster_destroy(cluster);
}

/* The time of the published kernel at each density follows the law behind attn_row_keys: relative
 * to dense, 2.35 * density * (1 + 620 / keys), within 5 %. */
static void row_keys_meets_the_times_it_was_fitted_to(void **state)
{
    (void)state;
    static const struct {
        double density, sparse, dense;
    } log[] = {{0.20, 9.25, 18.76}, {0.15, 7.08, 18.78}, {0.10, 4.90, 18.82},
               {0.08, 4.05, 18.70}, {0.05, 2.75, 18.81}, {0.02, 1.31, 18.84}};
    for (size_t i = 0; i < sizeof log / sizeof log[0]; i++) {
        const double keys = log[i].density * 64000.0;
        const double law = 2.35 * log[i].density * (1.0 + 620.0 / keys);
        assert_true(fabs(log[i].sparse / log[i].dense / law - 1.0) < 0.05);
    }
}

static void attention_says_what_is_wrong(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    int64_t ns = 7;
    static const struct {
        tess_attn_work work;
        const char *sentence;
    } bad[] = {
        {{.pairs = -1, .head_dim = 8}, "tess_cost_attention: pairs is -1, must be 0..1e30"},
        {{.pairs = NAN, .head_dim = 8}, "tess_cost_attention: pairs is nan, must be 0..1e30"},
        {{.rows = -2, .head_dim = 8}, "tess_cost_attention: rows is -2, must be 0 or more"},
        {{.head_dim = 0}, "tess_cost_attention: head_dim is 0, must be 1..4096"},
        {{.head_dim = 8, .flops = 5}, "tess_cost_attention: flops is 5, must be 0 or 1e3..1e21"},
        {{.head_dim = 8, .precision = (tess_precision)9},
         "tess_cost_attention: precision is 9, must be a tess_precision"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(tess_cost_attention(cluster, &bad[i].work, &ns), TESS_EINVAL, bad[i].sentence);
    CHECK_FAILS(tess_cost_attention(NULL, &bad[0].work, &ns), TESS_EINVAL,
                "tess_cost_attention: cluster is NULL");
    assert_true(ns == 7);
    tess_cluster_destroy(cluster);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void an_exchange_takes_its_slower_wire(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    int64_t ns[16];
    /* 1 MB inside at 100 GB/s: 10 us, after 1 us and a launch of 3 us. The larger direction
     * counts, because links are full duplex. */
    tess_traffic traffic[16] = {{.near_out = 1000000, .near_in = 500000}};
    CHECK_OK(tess_cost_exchange(cluster, traffic, 16, 8, ns));
    assert_true(ns[0] == 14000);
    for (int p = 1; p < 16; p++)
        assert_true(ns[p] == 0); /* nothing moves, nothing is waited for */
    /* 1 MB between nodes at 10 GB/s: 100 us after 2 us, beside the 10 us inside. */
    traffic[0].far_in = 1000000;
    CHECK_OK(tess_cost_exchange(cluster, traffic, 16, 8, ns));
    assert_true(ns[0] == 105000);
    tess_cluster_destroy(cluster);
}

static void ranks_of_a_node_share_its_adapters(void **state)
{
    (void)state;
    tess_cluster *cluster = NULL;
    /* Two adapters for eight GPUs: 8 MB of the node at 20 GB/s are 400 us, though one rank alone
     * would need 100 us for its 1 MB. */
    CHECK_OK(parse_with("\"nics\": 8", "\"nics\": 2", &cluster));
    tess_traffic traffic[16] = {{0}};
    int64_t ns[16];
    for (int p = 0; p < 8; p++)
        traffic[p].far_out = traffic[p + 8].far_in = 1000000;
    CHECK_OK(tess_cost_exchange(cluster, traffic, 16, 8, ns));
    for (int p = 0; p < 16; p++)
        assert_true(ns[p] == 405000);
    tess_cluster_destroy(cluster);
    /* Sixteen adapters: a rank drives two of them. */
    CHECK_OK(parse_with("\"nics\": 8", "\"nics\": 16", &cluster));
    CHECK_OK(tess_cost_exchange(cluster, traffic, 16, 8, ns));
    assert_true(ns[3] == 55000);
    tess_cluster_destroy(cluster);
    /* An oversubscribed fabric passes on its share. */
    CHECK_OK(parse_with("\"oversubscription\": 1", "\"oversubscription\": 4", &cluster));
    CHECK_OK(tess_cost_exchange(cluster, traffic, 16, 8, ns));
    assert_true(ns[3] == 405000);
    tess_cluster_destroy(cluster);
}

/* More than 2^31 elements: 520,000 tokens x 256 x 24 heads x 2 bytes. */
static void volumes_beyond_32_bits_are_right(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    int64_t ns;
    const tess_traffic traffic = {.near_out = (int64_t)520000 * 256 * 24 * 2};
    CHECK_OK(tess_cost_exchange(cluster, &traffic, 1, 8, &ns));
    assert_true(ns == 4000 + 63897600); /* 6.39 GB at 100 GB/s */
    tess_cluster_destroy(cluster);
}

static void a_cluster_without_network_is_one_node(void **state)
{
    (void)state;
    char text[2048];
    const char *from = strstr(round_text, " \"network\""), *to = strstr(round_text, " \"launch\"");
    const int n = snprintf(text, sizeof text, "%.*s%s", (int)(from - round_text), round_text, to);
    tess_cluster *cluster = NULL;
    tess_cluster_info info;
    int64_t ns[2] = {5, 5};
    CHECK_OK(tess__cluster_parse(ctx, "alone", text, (size_t)n, &cluster));
    CHECK_OK(tess_cluster_query(cluster, &info));
    assert_int_equal(info.nics, 0);
    const tess_traffic near[2] = {{.near_out = 1}, {.near_in = 1}};
    CHECK_OK(tess_cost_exchange(cluster, near, 2, 2, ns));
    const tess_traffic far[2] = {{.far_out = 1}, {.far_in = 1}};
    CHECK_FAILS(tess_cost_exchange(cluster, far, 2, 1, ns), TESS_ENOTSUP,
                "cluster alone: traffic between nodes needs a network");
    tess_cluster_destroy(cluster);
}

static void an_exchange_says_what_is_wrong(void **state)
{
    (void)state;
    tess_cluster *cluster = round_cluster();
    int64_t ns[2];
    const tess_traffic traffic[2] = {{0}, {.near_in = -1}};
    CHECK_FAILS(tess_cost_exchange(cluster, traffic, 0, 1, ns), TESS_EINVAL,
                "tess_cost_exchange: n is 0, must be 1 or more");
    CHECK_FAILS(tess_cost_exchange(cluster, traffic, 2, 0, ns), TESS_EINVAL,
                "tess_cost_exchange: per_node is 0, must be 1 or more");
    CHECK_FAILS(tess_cost_exchange(cluster, NULL, 2, 1, ns), TESS_EINVAL,
                "tess_cost_exchange: traffic is NULL");
    CHECK_FAILS(tess_cost_exchange(cluster, traffic, 2, 2, ns), TESS_EINVAL,
                "tess_cost_exchange: rank 1 moves -1 bytes, must be 0..1152921504606846975");
    tess_cluster_destroy(cluster);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_shipped_cluster_loads_and_is_sane),
    cmocka_unit_test(published_facts_are_as_published),
    cmocka_unit_test(a_name_that_is_not_shipped_gets_the_nearest),
    cmocka_unit_test(a_file_is_a_cluster_too),
    cmocka_unit_test(a_bad_file_is_reported_with_its_line),
    cmocka_unit_test(attention_takes_its_flops_over_its_rate),
    cmocka_unit_test(sparse_attention_loses_efficiency_with_density),
    cmocka_unit_test(row_keys_meets_the_times_it_was_fitted_to),
    cmocka_unit_test(attention_says_what_is_wrong),
    cmocka_unit_test(an_exchange_takes_its_slower_wire),
    cmocka_unit_test(ranks_of_a_node_share_its_adapters),
    cmocka_unit_test(volumes_beyond_32_bits_are_right),
    cmocka_unit_test(a_cluster_without_network_is_one_node),
    cmocka_unit_test(an_exchange_says_what_is_wrong),
};

RUN_TESTS_WITH(tests, make_ctx, drop_ctx)
