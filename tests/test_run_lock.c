/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_lock.c - one run in a folder at a time, whatever ended the one before. */
#include "train_data.h"

#include <signal.h>
#include <sys/wait.h>

static const tess_train_opts small = {TESS_TRAIN_OPTS_DEFAULTS, .batch = 1, .steps = 4,
                                      .validate_every = 0};

/* The status of a second run in a folder, and its sentence. */
static tess_status start_second(const tess_train_opts *opts, const run *first)
{
    tess_train *train = NULL;
    const tess_status status = tess_train_create(first->model, first->data, opts, &train);
    tess_train_destroy(train);
    return status;
}

/* A process that has a run in the folder until it is killed. */
static pid_t hold(const tess_train_opts *opts)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        start_run(&(tess_ctx_opts){.threads = 1}, 2, opts);
        _exit(write(ready[1], "", 1) != 1 || pause() != -1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void a_killed_process_blocks_no_other_one(void **state)
{
    (void)state;
    char host[128] = "", want[PATH_MAX + 512];
    tess_train_opts opts = small;
    opts.folder = in_root("held");
    const pid_t child = hold(&opts);
    run other = start_run(&(tess_ctx_opts){.threads = 1}, 2, &small);
    gethostname(host, sizeof host - 1);
    snprintf(want, sizeof want,
             "%s: is the folder of a run in progress, of process %ld on host %s; must be another "
             "folder, or wait for the end of that run",
             opts.folder, (long)child, host);
    CHECK_FAILS(start_second(&opts, &other), TESS_EINVAL, want);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(exists(in_root("held/lock")));
    CHECK_OK(start_second(&opts, &other));
    assert_false(exists(in_root("held/lock")));
    end(&other);
}

static void two_runs_of_a_process_exclude_each_other(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.folder = in_root("shared");
    run first = start_run(&(tess_ctx_opts){.threads = 1}, 2, &opts);
    assert_int_equal(start_second(&opts, &first), TESS_EINVAL);
    CHECK_OK(tess_train_run(first.train, 2, NULL, NULL));
    assert_int_equal(start_second(&opts, &first), TESS_EINVAL);
    assert_true(exists(in_root("shared/lock")));
    end(&first);
    assert_false(exists(in_root("shared/lock")));
    assert_true(exists(in_root("shared/metrics.csv")));
}

static void a_run_without_steps_leaves_no_folder(void **state)
{
    (void)state;
    tess_train_opts opts = small;
    opts.folder = in_root("unused");
    run r = start_run(&(tess_ctx_opts){.threads = 1}, 2, &opts);
    end(&r);
    assert_false(exists(opts.folder));
}

static void the_next_run_removes_temporary_files(void **state)
{
    (void)state;
    static const char *const names[] = {"killed/.tessera-7-0.tmp",
                                        "killed/samples/.tessera-7-1.tmp"};
    tess_train_opts opts = small;
    opts.folder = in_root("killed");
    CHECK_OK(tess__make_folder(in_root("killed")));
    CHECK_OK(tess__make_folder(in_root("killed/samples")));
    for (int i = 0; i < 2; i++)
        fclose(fopen(in_root(names[i]), "w"));
    run r = start_run(&(tess_ctx_opts){.threads = 1}, 2, &opts);
    CHECK_OK(tess_train_run(r.train, 1, NULL, NULL));
    for (int i = 0; i < 2; i++)
        assert_false(exists(in_root(names[i])));
    end(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_process_blocks_no_other_one),
    cmocka_unit_test(two_runs_of_a_process_exclude_each_other),
    cmocka_unit_test(a_run_without_steps_leaves_no_folder),
    cmocka_unit_test(the_next_run_removes_temporary_files),
};

RUN_TESTS_WITH(tests, open_root, close_root)
