/* SPDX-License-Identifier: Apache-2.0 */
/* oom.h - out of memory, everywhere: each scenario of a table runs with its n-th allocation
 * failing, for n = 1, 2, ... until none fails.
 *
 * With TESS_TEST_ALL in the environment n is every number: minutes, for a scenario of a allocations
 * costs a^2. Without, a scenario of more than 300 gets its first 100, its last 100 and 100 between:
 * those are of the elements of JSON files, one like the other. Slow ones are left out.
 *
 * Allocations are those of the context (which zlib and libpng use too) and of jansson, through its
 * hooks. Each time the call must say ENOMEM, leave no memory, temporary file or half-made output
 * behind, and succeed when it is called again.
 */
#ifndef TESS_TEST_OOM_H
#define TESS_TEST_OOM_H

#include "test.h"

#include "tessera/attn.h"
#include "tessera/file.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- allocations that fail ------------------------------------------------------------------- */

static long countdown; /* the allocation that fails when it reaches 0; negative: none */
static long live;      /* allocations not yet freed */
static int fired;

static int fails(void)
{
    if (countdown > 0 && --countdown == 0) {
        fired = 1;
        return 1;
    }
    return 0;
}

static void *ctx_alloc(void *user, size_t bytes)
{
    (void)user;
    void *p = fails() ? NULL : aligned_alloc(64, bytes);
    live += p != NULL;
    return p;
}

static void ctx_free(void *user, void *p)
{
    (void)user;
    live -= p != NULL;
    free(p);
}

/* What failed once keeps failing until the call ends, as when memory is really short: jansson 2.14
 * ignores that the buffer of a token could not grow, and would go on with a token cut short. */
static void *json_alloc(size_t bytes)
{
    void *p = fails() || fired ? NULL : malloc(bytes ? bytes : 1);
    live += p != NULL;
    return p;
}

static void json_release(void *p)
{
    live -= p != NULL;
    free(p);
}

/* ---- the world a scenario runs in ------------------------------------------------------------ */

static char folder[] = "/tmp/tess-oom-XXXXXX";

typedef struct {
    tess_ctx *ctx;
    tess_file *file;
    tess_selection *sel;
} world;

static const char *in_folder(const char *name)
{
    static char path[2][256];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

/* In a group setup: the folder, and a context that has all memory for the files in it. */
static world begin_folder(void)
{
    world w = {0};
    assert_non_null(mkdtemp(folder));
    countdown = -1;
    CHECK_OK(tess_ctx_create(NULL, &w.ctx));
    return w;
}

static int drop_files(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int files_in_folder(void)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* `file` names a file that is opened before, and `sel` is the shape of a selection made before,
 * both with all the memory they need; NULL: none. */
typedef struct {
    const char *name;
    tess_status (*run)(world *w);
    const char *file;
    const tess_sel_shape *sel;
    int slow; /* 1: takes seconds */
} scenario;

/* One thread: memory does not depend on them but by its size, and threads that wait for each other
 * on a busy machine make minutes of seconds. */
static world make_world(const scenario *s)
{
    world w = {0};
    CHECK_OK(tess_ctx_create(
        &(tess_ctx_opts){.threads = 1, .allocator = {ctx_alloc, ctx_free, NULL}}, &w.ctx));
    if (s->file)
        CHECK_OK(tess_file_open(w.ctx, in_folder(s->file), &w.file));
    if (s->sel)
        CHECK_OK(tess_selection_create(w.ctx, s->sel, 100, &w.sel));
    return w;
}

/* The scenario with allocation n failing. Returns 0 if it did not come so far. */
static int fail_once(const scenario *s, long n)
{
    countdown = -1;
    world w = make_world(s);
    const long before = live;
    const int files = files_in_folder();
    fired = 0;
    countdown = n;
    const tess_status status = s->run(&w);
    countdown = -1;
    const int failed = fired;
    fired = 0;
    if (failed) {
        if (status != TESS_ENOMEM || !tess_last_error()[0])
            fail_msg("%s, allocation %ld: %s: %s", s->name, n, tess_status_name(status),
                     tess_last_error());
        assert_int_equal(files_in_folder(), files);
        /* What an object keeps between calls may have grown; what a call makes is gone. */
        if (!w.file && !w.sel)
            assert_int_equal(live, before);
        CHECK_OK(s->run(&w));
    } else {
        CHECK_OK(status);
    }
    tess_file_close(w.file);
    tess_selection_destroy(w.sel);
    tess_ctx_destroy(w.ctx);
    assert_int_equal(live, 0);
    return failed;
}

/* How many allocations the scenario makes when none fails. */
static long allocations_of(const scenario *s)
{
    const long most = 1L << 40;
    countdown = -1;
    world w = make_world(s);
    countdown = most;
    CHECK_OK(s->run(&w));
    const long made = most - countdown;
    countdown = -1;
    tess_file_close(w.file);
    tess_selection_destroy(w.sel);
    tess_ctx_destroy(w.ctx);
    assert_int_equal(live, 0);
    return made;
}

static void run_scenarios(const scenario *scenarios, size_t count)
{
    const int all = getenv("TESS_TEST_ALL") != NULL;
    const long ends = 100;
    json_set_alloc_funcs(json_alloc, json_release);
    for (size_t i = 0; i < count; i++) {
        if (scenarios[i].slow && !all) {
            print_message("%s: left out, TESS_TEST_ALL is not set\n", scenarios[i].name);
            continue;
        }
        const long made = allocations_of(&scenarios[i]);
        const long step = all || made <= 3 * ends ? 1 : (made - 2 * ends) / ends;
        long n = 1, tried = 0;
        for (; fail_once(&scenarios[i], n); tried++)
            n += n < ends || n + step > made - ends ? 1 : step;
        print_message("%s: %ld of %ld allocations\n", scenarios[i].name, tried, n - 1);
        assert_int_equal(n - 1, made);
    }
    json_set_alloc_funcs(malloc, free);
}

/* The main of a table of scenarios, over files that make_files writes. */
#define RUN_SCENARIOS(scenarios, make_files)                                                       \
    static void every_allocation_may_fail_once(void **state)                                       \
    {                                                                                              \
        (void)state;                                                                               \
        run_scenarios(scenarios, sizeof(scenarios) / sizeof *(scenarios));                         \
    }                                                                                              \
    static const struct CMUnitTest tests[] = {                                                     \
        cmocka_unit_test(every_allocation_may_fail_once),                                          \
    };                                                                                             \
    RUN_TESTS_WITH(tests, make_files, drop_files)

#endif
