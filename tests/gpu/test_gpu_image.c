/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_image.c - the image that nvcc made, by what ptxas says of it: no spills, no stack,
 * shared memory and registers within what each device has, eight warps on a multiprocessor. */
#include "gpu/gpu_internal.h"
#include "test.h"

#include <stdlib.h>

typedef struct {
    const char *name, *kind;
    int threads, shared_bytes;
} row;

#define TESS_GPU_TABLE(name, kind, type, dim, rows, threads, bytes) ROW_(name, kind, threads, bytes)
#define ROW_(name, kind, threads, bytes) {#name, #kind, threads, bytes},
static const row rows[] = {
#include "gpu/kernels/gpu_variants.h"
};
enum { ROWS = sizeof rows / sizeof *rows };

#ifndef IMAGE_LOG
#define IMAGE_LOG ""
#define IMAGE_ARCHS ""
#endif

/* Shared memory of a block, in KiB: CUDA's programming guide, table of compute capabilities. */
static int shared_kib(int arch)
{
    return arch == 80 ? 163 : arch == 90 || arch == 100 ? 227 : 99;
}

static const row *find(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    fail_msg("the image has a kernel %s, the table has not", name);
    return NULL;
}

/* Warps that a multiprocessor of compute capability 8.0 holds: 64, in 32 blocks, with 65,536
 * registers, given to warps in units of 256, and 164 KiB of shared memory, of which each block
 * takes 1 KiB more. */
static int warps_resident(const row *r, int registers)
{
    const int warps = r->threads / 32, each = (registers + 7) / 8 * 8 * 32;
    const int most[] = {32, 64 / warps, 65536 / each / warps,
                        164 * 1024 / (r->shared_bytes + 1024)};
    int blocks = most[0];
    for (int i = 1; i < 4; i++)
        blocks = most[i] < blocks ? most[i] : blocks;
    return warps * blocks;
}

static void check_kernel(const char *name, int arch, int stack, int spills, int registers)
{
    const row *const r = find(name);
    if (stack != 0 || spills != 0)
        fail_msg("%s, sm_%d: %d bytes of stack, %d of spills, must be 0", name, arch, stack,
                 spills);
    if (r->shared_bytes > shared_kib(arch) * 1024)
        fail_msg("%s, sm_%d: %d bytes of shared memory", name, arch, r->shared_bytes);
    assert_true(registers * r->threads <= 65536);
    if (arch == 80 && warps_resident(r, registers) < 8)
        fail_msg("%s: %d warps on a multiprocessor, must be 8", name, warps_resident(r, registers));
    if (arch == 80)
        print_message("%-28s %3d registers, %6d bytes shared, %2d warps\n", name, registers,
                      r->shared_bytes, warps_resident(r, registers));
}

static void test_what_ptxas_says(void **state)
{
    (void)state;
    char line[512], name[128] = "";
    int arch = 0, stack = -1, spills = -1, found = 0, archs = 0;
    FILE *const log = fopen(IMAGE_LOG, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        const char *const entry = strstr(line, "entry function '");
        if (entry)
            assert_int_equal(sscanf(entry, "entry function '%127[^']' for 'sm_%d'", name, &arch),
                             2);
        const char *const frame = strstr(line, " bytes stack frame");
        int stores, loads;
        if (frame && name[0]) {
            assert_int_equal(sscanf(line, " %d bytes stack frame, %d bytes spill stores, %d",
                                    &stack, &stores, &loads),
                             3);
            spills = stores + loads;
        }
        const char *const used = strstr(line, "Used ");
        if (used && name[0]) {
            check_kernel(name, arch, stack, spills, atoi(used + 5));
            name[0] = '\0';
            found++;
        }
    }
    fclose(log);
    for (const char *p = IMAGE_ARCHS; *p; p = strchr(p, ' ') ? strchr(p, ' ') + 1 : "")
        archs++;
    assert_int_equal(found, archs * ROWS);
    assert_true(tess__gpu_image_bytes > 0);
    assert_non_null(strstr(tess__gpu_image_code, "PTX"));
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_ptxas_says)};

int main(void)
{
    if (tess__gpu_image_bytes == 0) {
        print_message("skipped: the build has no image of GPU kernels (TESS_GPU_IMAGE)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
