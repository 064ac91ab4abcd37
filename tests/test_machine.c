/* SPDX-License-Identifier: Apache-2.0 */
/* test_machine.c - what machine this is, on made-up machines and on this one; timing; peaks. */
#define _GNU_SOURCE
#include "base/base_internal.h"
#include "test.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- a made-up machine: files below a temporary root ------------------------------------- */

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(full, 0777);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tess-machine-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Two sockets of two cores of two hardware threads, as the kernel numbers them. */
static void put_topology(void)
{
    for (int cpu = 0; cpu < 8; cpu++) {
        char path[128], text[16];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
        snprintf(text, sizeof text, "%d\n", cpu / 2 % 2);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                 cpu);
        snprintf(text, sizeof text, "%d\n", cpu / 4);
        put(path, text);
    }
    put("/sys/devices/system/cpu/online", "0-3,4,5-7\n");
    put("/sys/devices/system/node/online", "0-1\n");
    static const char *const caches[][3] = {{"1", "Data", "48K"},
                                            {"1", "Instruction", "32K"},
                                            {"2", "Unified", "2048K"},
                                            {"3", "Unified", "105M"}};
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"level", "type", "size"};
        for (int j = 0; j < 3; j++) {
            char path[128];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i,
                     names[j]);
            put(path, caches[i][j]);
        }
    }
}

static void sysfs_counts_sockets_cores_threads_and_caches(void **state)
{
    (void)state;
    put_topology();
    tess_machine m = {0};
    tess__topology_sysfs(root, &m);
    assert_int_equal(m.sockets, 2);
    assert_int_equal(m.cores, 4);
    assert_int_equal(m.hardware_threads, 8);
    assert_int_equal(m.numa_nodes, 2);
    assert_int_equal(m.cache_l1d, 48 << 10);
    assert_int_equal(m.cache_l2, 2 << 20);
    assert_int_equal(m.cache_l3, 105 << 20);
}

static void an_empty_sysfs_is_one_core(void **state)
{
    (void)state;
    tess_machine m = {0};
    tess__topology_sysfs(root, &m);
    assert_int_equal(m.cores, 1);
    assert_int_equal(m.hardware_threads, 1);
    assert_int_equal(m.numa_nodes, 1);
    assert_int_equal(m.cache_l2, 0);
}

static void a_container_quota_limits_the_usable_cores(void **state)
{
    (void)state;
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    const int alone = tess__cores_usable(root); /* no topology: each cpu is a core */
    assert_int_equal(alone, CPU_COUNT(&mask));
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(tess__cores_usable(root), alone);
    put("/sys/fs/cgroup/cpu.max", "90000 100000\n");
    assert_int_equal(tess__cores_usable(root), 1);
    put("/sys/fs/cgroup/cpu.max", "99900000 100000\n");
    assert_int_equal(tess__cores_usable(root), alone < 999 ? alone : 999);
}

static void hardware_threads_of_one_core_count_once(void **state)
{
    (void)state;
    cpu_set_t mask;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask)) {
            char path[128];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
            put(path, "0\n");
        }
    assert_int_equal(tess__cores_usable(root), 1);
}

static void memory_is_the_tighter_of_machine_and_container(void **state)
{
    (void)state;
    put("/proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree: 5 kB\nMemAvailable:   8000000 kB\n");
    tess_machine m = {0};
    tess__machine_read(root, &m);
    assert_int_equal(m.memory_total, 16000000LL << 10);
    assert_int_equal(m.memory_available, 8000000LL << 10);

    put("/sys/fs/cgroup/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/memory.current", "1294967296\n");
    tess__machine_read(root, &m);
    assert_int_equal(m.memory_total, 4294967296LL);
    assert_int_equal(m.memory_available, 3000000000LL);

    put("/sys/fs/cgroup/memory.max", "max\n");
    m = (tess_machine){0};
    tess__machine_read(root, &m);
    assert_int_equal(m.memory_total, 16000000LL << 10);
}

static void processor_and_huge_pages_are_read(void **state)
{
    (void)state;
    tess_machine m = {0};
    tess__machine_read(root, &m);
    assert_string_equal(m.cpu, "unknown");
    assert_string_equal(m.huge_pages, "unknown");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Made Up 9000 @ 2 GHz\nflags : x\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    tess__machine_read(root, &m);
    assert_string_equal(m.cpu, "Made Up 9000 @ 2 GHz");
    assert_string_equal(m.huge_pages, "madvise");
}

/* ---- this machine ------------------------------------------------------------------------ */

static void hwloc_and_sysfs_agree_on_this_machine(void **state)
{
    (void)state;
    tess_machine a = {0}, b = {0};
    tess__topology_hwloc(&a);
    tess__topology_sysfs("", &b);
    if (!a.topology[0])
        skip();
    assert_int_equal(a.hardware_threads, b.hardware_threads);
    assert_int_equal(a.cores, b.cores);
    assert_int_equal(a.sockets, b.sockets);
    assert_int_equal(a.numa_nodes, b.numa_nodes);
}

static void the_query_is_plausible(void **state)
{
    tess_ctx *ctx = *state;
    tess_machine m;
    CHECK_OK(tess_machine_query(ctx, &m));
    assert_in_range(m.cores, 1, 100000);
    assert_in_range(m.cores_usable, 1, m.cores);
    assert_true(m.hardware_threads >= m.cores);
    assert_true(m.memory_total > 0 && m.memory_available <= m.memory_total);
    CHECK_FAILS(tess_machine_query(ctx, NULL), TESS_EINVAL, "tess_machine_query: machine is NULL");
}

static tess_status sleep_two_ms(void *user)
{
    ++*(int *)user;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return TESS_OK;
}

static void a_sleep_takes_the_time_it_asks_for(void **state)
{
    tess_ctx *ctx = *state;
    int calls = 0;
    tess_timing t;
    CHECK_OK(tess_timing_run(ctx, &(tess_timing_opts){.samples = 5, .samples_max = 9}, sleep_two_ms,
                             &calls, &t));
    assert_true(t.best >= 0.002); /* a sleep never ends early */
    assert_true(t.best <= t.low && t.low <= t.median && t.median <= t.high);
    assert_int_equal(calls, 1 + t.kept + t.dropped);
    assert_true(t.kept == 5 || (t.disturbed && t.kept + t.dropped == 9));
    assert_true(t.flops > 1e6);
}

static tess_status fail_third(void *user)
{
    return ++*(int *)user == 3 ? tess__fail(TESS_EIO, "third call") : TESS_OK;
}

static void timing_stops_at_a_failure_and_checks_its_options(void **state)
{
    tess_ctx *ctx = *state;
    int calls = 0;
    tess_timing t = {.kept = 77};
    CHECK_FAILS(tess_timing_run(ctx, NULL, fail_third, &calls, &t), TESS_EIO, "third call");
    assert_int_equal(calls, 3);
    assert_int_equal(t.kept, 77);
    CHECK_FAILS(tess_timing_run(ctx, NULL, NULL, NULL, &t), TESS_EINVAL,
                "tess_timing_run: fn is NULL");
    CHECK_FAILS(tess_timing_run(ctx, &(tess_timing_opts){.samples = -1}, fail_third, &calls, &t),
                TESS_EINVAL, "tess_timing_run: samples is -1, must be 1..10000, or 0 for 7");
    CHECK_FAILS(tess_timing_run(ctx, &(tess_timing_opts){.samples = 5, .samples_max = 4},
                                fail_third, &calls, &t),
                TESS_EINVAL, "tess_timing_run: samples_max is 4, must be 5..40000");
    CHECK_FAILS(
        tess_timing_run(ctx, &(tess_timing_opts){.quiet = (double)NAN}, fail_third, &calls, &t),
        TESS_EINVAL, "tess_timing_run: quiet is nan, must be 0..1");
}

static void every_isa_reads_what_is_there_and_counts_its_flop(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 17); /* small integers: sums are exact in any order */
    for (int i = 0; i < tess__isa_total; i++) {
        if (*tess__isa_missing(i)) {
            print_message("skipped %s: %s\n", tess__isas[i].name, tess__isa_missing(i));
            continue;
        }
        for (size_t n = 0; n <= N; n += n < 70 ? 1 : 93) {
            float sum = 0.0f;
            for (size_t j = 0; j < n; j++)
                sum += x[j];
            assert_float_equal(tess__isas[i].kernels->read(x, n), sum, 0.0f);
        }
        float sink = 0.0f;
        const int64_t flop = tess__isas[i].kernels->fma(10, &sink);
        assert_int_equal(flop, 10 * 12 * (tess__isas[i].bytes / 4) * 2);
        assert_float_equal(sink, 0.0f, 0.0f);
    }
}

static void measured_peaks_are_consistent(void **state)
{
    tess_ctx *ctx = *state;
    tess_speed s;
    CHECK_OK(tess_machine_measure(ctx, &s));
    assert_true(s.flops_one > 1e7 && s.read_one > 1e7 && s.copy_one > 1e7);
    /* Other processes may hold the other cores; a team that waits for them all the time still
     * does its share. A wrong unit or count of threads is what this finds. */
    assert_true(s.flops_all > 0.05 * s.flops_one);
    assert_true(s.kept + s.dropped >= 6 * 5);
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(ctx, &info));
    assert_int_equal(info.bytes_now, 0);
}

static void every_component_has_a_name_and_an_effect(void **state)
{
    (void)state;
    for (int i = 0; i < tess_component_count(); i++) {
        tess_component c;
        CHECK_OK(tess_component_query(i, &c));
        assert_true(c.name[0] && c.effect[0]);
        assert_int_equal(c.version[0] != '\0', c.found);
    }
    tess_component c;
    CHECK_FAILS(tess_component_query(-1, &c), TESS_EINVAL,
                "tess_component_query: index is -1, must be 0..5");
}

static int make_ctx(void **state)
{
    return tess_ctx_create(NULL, (tess_ctx **)state);
}

static int drop_ctx(void **state)
{
    tess_ctx_destroy(*state);
    return 0;
}

#define MADE_UP(test) cmocka_unit_test_setup_teardown(test, make_root, drop_root)
#define REAL(test) cmocka_unit_test_setup_teardown(test, make_ctx, drop_ctx)

static const struct CMUnitTest tests[] = {
    MADE_UP(sysfs_counts_sockets_cores_threads_and_caches),
    MADE_UP(an_empty_sysfs_is_one_core),
    MADE_UP(a_container_quota_limits_the_usable_cores),
    MADE_UP(hardware_threads_of_one_core_count_once),
    MADE_UP(memory_is_the_tighter_of_machine_and_container),
    MADE_UP(processor_and_huge_pages_are_read),
    cmocka_unit_test(hwloc_and_sysfs_agree_on_this_machine),
    REAL(the_query_is_plausible),
    REAL(a_sleep_takes_the_time_it_asks_for),
    REAL(timing_stops_at_a_failure_and_checks_its_options),
    cmocka_unit_test(every_isa_reads_what_is_there_and_counts_its_flop),
    REAL(measured_peaks_are_consistent),
    cmocka_unit_test(every_component_has_a_name_and_an_effect),
};
RUN_TESTS(tests)
