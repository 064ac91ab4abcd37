/* SPDX-License-Identifier: Apache-2.0 */
/* test_doctor.c - the doctor's findings on made-up machines, and a run on this machine. */
#include "base/doctor.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

/* Nothing is wrong with this one. */
static tess__facts healthy(void)
{
    return (tess__facts){
        .machine = {.cores = 8,
                    .cores_usable = 8,
                    .hardware_threads = 16,
                    .memory_total = (int64_t)64 << 30,
                    .memory_available = (int64_t)60 << 30,
                    .huge_pages = "madvise"},
        .isa = "avx2",
        .isa_best = "avx2",
        .threads = 8,
        .runtimes = "libgomp.so.1",
        .n_runtimes = 1,
        .shm_free = (int64_t)8 << 30,
        .dir = ".",
        .disk_free = (int64_t)100 << 30,
        .disk_wanted = (int64_t)1 << 30,
        .build_type = "Release",
        .sanitizers = "",
    };
}

/* The diagnosis on a topic. */
static tess__diagnosis on(const tess__facts *facts, const char *topic)
{
    tess__diagnosis found[TESS_DOCTOR_MAX];
    const int n = tess__doctor_judge(facts, found);
    for (int i = 0; i < n; i++)
        if (strcmp(found[i].topic, topic) == 0)
            return found[i];
    fail_msg("no diagnosis on %s", topic);
    return found[0];
}

static void check(const tess__facts *facts, const char *topic, tess_finding_level level,
                  const char *sentence)
{
    const tess__diagnosis d = on(facts, topic);
    assert_string_equal(d.sentence, sentence);
    assert_int_equal(d.level, level);
    if (level <= TESS_FINDING_WARNING)
        assert_true(d.advice[0]);
}

static void a_healthy_machine_has_nothing_to_complain_of(void **state)
{
    (void)state;
    const tess__facts f = healthy();
    tess__diagnosis found[TESS_DOCTOR_MAX];
    const int n = tess__doctor_judge(&f, found);
    assert_int_equal(n, 10);
    for (int i = 0; i < n; i++)
        assert_int_equal(found[i].level, TESS_FINDING_FINE);
}

static void threads_are_compared_with_cores_and_limits(void **state)
{
    (void)state;
    tess__facts f = healthy();
    f.threads = 16;
    check(&f, "threads", TESS_FINDING_WARNING,
          "16 threads share 8 usable cores: each waits for the others");
    f.thread_limit = 4;
    check(&f, "threads", TESS_FINDING_PROBLEM,
          "16 threads are asked for, but OMP_THREAD_LIMIT allows 4");
    f = healthy();
    f.launcher_ranks = f.launcher_local = f.mpi_ranks = 2;
    check(&f, "threads", TESS_FINDING_WARNING,
          "2 ranks on this machine with 8 threads each share 8 cores");
    f.threads = 4;
    check(&f, "threads", TESS_FINDING_FINE, "4 threads on 8 usable cores");
    f.machine.cores_usable = 4;
    check(&f, "threads", TESS_FINDING_NOTE,
          "4 threads; this process may use 4 of the machine's 8 cores");
}

static void two_openmp_runtimes_are_found(void **state)
{
    (void)state;
    tess__facts f = healthy();
    f.n_runtimes = 2;
    strcpy(f.runtimes, "libgomp.so.1 libomp.so.5");
    check(&f, "openmp", TESS_FINDING_WARNING,
          "2 OpenMP runtimes are loaded (libgomp.so.1 libomp.so.5): each keeps threads of its own, "
          "and "
          "they compete");
}

static void a_launcher_without_its_mpi_is_a_problem(void **state)
{
    (void)state;
    tess__facts f = healthy();
    f.launcher_ranks = 4;
    check(
        &f, "mpi", TESS_FINDING_PROBLEM,
        "an MPI launcher started 4 processes, but MPI is not in use: each would do the whole job");
    f.mpi_ranks = 1;
    check(&f, "mpi", TESS_FINDING_PROBLEM,
          "the launcher started 4 processes, but MPI sees 1: launcher and library are of different "
          "MPIs");
    f.mpi_ranks = 4;
    check(&f, "mpi", TESS_FINDING_FINE, "4 ranks, as the launcher says");
    f.shm_free = 64 << 20;
    check(&f, "shared memory", TESS_FINDING_WARNING,
          "/dev/shm has 64 MiB free; MPI between ranks of one machine wants 256 MiB");
}

static void amx_and_isa_are_reported(void **state)
{
    (void)state;
    tess__facts f = healthy();
    f.machine.amx = TESS_AMX_PALETTE_HIDDEN;
    assert_int_equal(on(&f, "amx").level, TESS_FINDING_WARNING);
    assert_non_null(strstr(on(&f, "amx").sentence, "SIGILL"));
    f.machine.amx = TESS_AMX_REFUSED;
    assert_int_equal(on(&f, "amx").level, TESS_FINDING_NOTE);
    f.isa_best = "avx512";
    check(&f, "isa", TESS_FINDING_NOTE, "avx2 is in use, but this machine also runs avx512");
    f.isa = f.isa_best = "base";
    assert_int_equal(on(&f, "isa").level, TESS_FINDING_WARNING);
}

static void disk_memory_pages_and_build_are_reported(void **state)
{
    (void)state;
    tess__facts f = healthy();
    f.dir = "results";
    f.disk_free = 500 << 20;
    check(&f, "disk", TESS_FINDING_WARNING, "results has 0.49 GiB free, less than 1.00 GiB");
    f.dir_error = ENOENT;
    check(&f, "disk", TESS_FINDING_PROBLEM, "results cannot be written: No such file or directory");
    f.machine.memory_available = (int64_t)1 << 30;
    check(&f, "memory", TESS_FINDING_WARNING, "1.0 GiB of 64.0 GiB memory are available");
    strcpy(f.machine.huge_pages, "never");
    assert_int_equal(on(&f, "huge pages").level, TESS_FINDING_NOTE);
    f.build_type = "Debug";
    check(&f, "build", TESS_FINDING_NOTE, "a Debug build: timings mean nothing");
    f.sanitizers = "address";
    check(&f, "build", TESS_FINDING_NOTE, "built with sanitizers (address): timings mean nothing");
}

typedef struct {
    int calls, last, problems;
} findings;

static void collect(void *user, const tess_finding *finding)
{
    findings *s = user;
    assert_true((int)finding->level >= s->last); /* worst first */
    s->last = (int)finding->level;
    s->calls++;
    s->problems += finding->level == TESS_FINDING_PROBLEM && strcmp(finding->topic, "disk") == 0;
}

static void a_run_on_this_machine_finds_the_missing_folder(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    findings s = {0};
    CHECK_OK(tess_doctor_run(ctx, NULL, collect, &s));
    assert_int_equal(s.calls, 10);
    assert_int_equal(s.problems, 0);
    s = (findings){0};
    CHECK_OK(tess_doctor_run(ctx, &(tess_doctor_opts){.dir = "no/such/folder"}, collect, &s));
    assert_int_equal(s.problems, 1);
    CHECK_FAILS(tess_doctor_run(ctx, &(tess_doctor_opts){.mpi_ranks = -1}, collect, &s),
                TESS_EINVAL, "tess_doctor_run: mpi_ranks is -1, must be 0 or more");
    CHECK_FAILS(tess_doctor_run(ctx, NULL, NULL, NULL), TESS_EINVAL, "tess_doctor_run: fn is NULL");
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_healthy_machine_has_nothing_to_complain_of),
    cmocka_unit_test(threads_are_compared_with_cores_and_limits),
    cmocka_unit_test(two_openmp_runtimes_are_found),
    cmocka_unit_test(a_launcher_without_its_mpi_is_a_problem),
    cmocka_unit_test(amx_and_isa_are_reported),
    cmocka_unit_test(disk_memory_pages_and_build_are_reported),
    cmocka_unit_test(a_run_on_this_machine_finds_the_missing_folder),
};
RUN_TESTS(tests)
