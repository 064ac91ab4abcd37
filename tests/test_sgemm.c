/* SPDX-License-Identifier: Apache-2.0 */
/* test_sgemm.c - products with little memory: a status, never a signal. oneDNN 2.6.3 writes through
 * NULL where it has no memory for the code of a kernel. */
#include "tessera/advanced/pass.h"
#include "tessera/model.h"
#include "test.h"

#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 40, SIDE = 48 };

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu", &pages) != 1)
        abort();
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a process of its own: a layer forward and backward with so many bytes to spare. Exits with the
 * status. */
static void run_with(size_t spare)
{
    static float x[ROWS * SIDE], w[SIDE * SIDE], y[ROWS * SIDE], dx[ROWS * SIDE], dw[SIDE * SIDE];
    const tess_linear_shape shape = {ROWS, SIDE, SIDE};
    tess_ctx *ctx = NULL;
    signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
    if (tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) != TESS_OK)
        _exit(99);
    /* LLVM's OpenMP runtime maps memory when it starts, and aborts where there is none. */
    omp_get_max_threads();
    const struct rlimit limit = {address_space() + spare, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    tess_status status = tess_linear_forward(ctx, &shape, x, w, NULL, y);
    if (status == TESS_OK)
        status = tess_linear_backward(ctx, &shape, x, w, y, dx, dw, NULL);
    _exit((int)status & 0xff);
}

static void little_memory_is_a_status(void **state)
{
    (void)state;
    if (SANITIZED)
        skip(); /* the sanitizers need terabytes of address space */
    int succeeded = 0, failed = 0;
    for (size_t mib = 0; mib <= 48; mib++) {
        int end = 0;
        const pid_t child = fork();
        if (child == 0)
            run_with(mib << 20);
        assert_int_equal(waitpid(child, &end, 0), child);
        if (WIFSIGNALED(end))
            fail_msg("signal %d with %zu MiB", WTERMSIG(end), mib);
        succeeded += WEXITSTATUS(end) == TESS_OK;
        failed += WEXITSTATUS(end) == (TESS_ENOMEM & 0xff);
    }
    print_message("%d succeed, %d have no memory\n", succeeded, failed);
    assert_true(succeeded > 0 && failed > 0 && succeeded + failed == 49);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(little_memory_is_a_status)};
RUN_TESTS(tests)
