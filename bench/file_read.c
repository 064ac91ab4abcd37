/* SPDX-License-Identifier: Apache-2.0 */
/* file_read.c - how fast tensor files are read, against memcpy; how fast a large one opens.
 *
 *   file_read [FOLDER]      where the files go (512 MB, and 10 GB of holes); the current one if
 * none
 *
 * Reading: a warm file of one F32 tensor into memory that has been touched, and memcpy of as many
 * bytes from touched memory with the same number of threads, in turns in one run, so that a busy
 * machine slows both. Printed are medians, quartiles, and the ratio of the medians; the bar is 0.8.
 * Opening: 10 GB of safetensors; the bar is 5 ms. Exit code 3 if a bar is missed.
 */
#include "tessera/advanced/machine.h"
#include "tessera/base.h"
#include "tessera/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 15 };
static const size_t bytes = (size_t)512 << 20;

static void need(tess_status status)
{
    if (status != TESS_OK) {
        fprintf(stderr, "file_read: %s\n", tess_last_error());
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds_since(int64_t start)
{
    return (double)(tess_clock_ns() - start) * 1e-9;
}

/* The same bytes by memcpy: one call in each thread. */
static void copy(char *dst, const char *src, int threads)
{
    const size_t share = bytes / (size_t)threads / 64 * 64;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        const size_t at = (size_t)t * share;
        memcpy(dst + at, src + at, t == threads - 1 ? bytes - at : share);
    }
}

static void print_times(const char *what, int threads, double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    printf("%-28s %d threads  median %7.2f ms  quartiles %7.2f %7.2f  %6.2f GB/s\n", what, threads,
           1e3 * times[n / 2], 1e3 * times[n / 4], 1e3 * times[3 * n / 4],
           (double)bytes / times[n / 2] * 1e-9);
}

/* Reading path, and memcpy, in turns. Returns the ratio of their speeds. */
static double read_against_memcpy(const char *path, int threads, char *src, char *dst)
{
    double reads[SAMPLES], copies[SAMPLES];
    tess_ctx *ctx;
    tess_file *file;
    need(tess_ctx_create(&(tess_ctx_opts){.threads = threads}, &ctx));
    need(tess_file_open(ctx, path, &file));
    for (int i = -1; i < SAMPLES; i++) { /* the first of each warms up */
        int64_t start = tess_clock_ns();
        need(tess_file_read(file, NULL, TESS_DTYPE_F32, dst, bytes));
        reads[i < 0 ? 0 : i] = seconds_since(start);
        start = tess_clock_ns();
        copy(dst, src, threads);
        copies[i < 0 ? 0 : i] = seconds_since(start);
    }
    tess_file_close(file);
    tess_ctx_destroy(ctx);
    print_times(path, threads, reads, SAMPLES);
    print_times("memcpy", threads, copies, SAMPLES);
    const double ratio = copies[SAMPLES / 2] / reads[SAMPLES / 2];
    printf("%-28s %d threads  %.2f of memcpy  (bar 0.80)%s\n", path, threads, ratio,
           ratio < 0.8 ? "  MISSED" : "");
    return ratio;
}

static int bench_reading(void)
{
    static const char *const paths[] = {"bench.safetensors", "bench.npy"};
    tess_ctx *ctx;
    tess_ctx_info info;
    char *src = malloc(bytes), *dst = malloc(bytes);
    int missed = 0;
    if (!src || !dst) {
        fprintf(stderr, "file_read: cannot allocate 1 GB\n");
        exit(1);
    }
    memset(src, 1, bytes);
    memset(dst, 2, bytes);
    need(tess_ctx_create(NULL, &ctx));
    need(tess_ctx_query(ctx, &info));
    const tess_tensor t = {.name = "t",
                           .dtype = TESS_DTYPE_F32,
                           .rank = 1,
                           .shape = {(int64_t)(bytes / 4)},
                           .data = src};
    for (int p = 0; p < 2; p++) {
        need(tess_file_write(ctx, paths[p], &t, 1, NULL));
        missed |= read_against_memcpy(paths[p], 1, src, dst) < 0.8;
        if (info.threads > 1)
            missed |= read_against_memcpy(paths[p], info.threads, src, dst) < 0.8;
        unlink(paths[p]);
    }
    tess_ctx_destroy(ctx);
    free(src);
    free(dst);
    return missed;
}

static int bench_opening(void)
{
    static const char json[] =
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[2500000000],\"data_offsets\":[0,10000000000]}}";
    const uint64_t length = sizeof json - 1;
    double times[SAMPLES];
    tess_ctx *ctx;
    need(tess_ctx_create(NULL, &ctx));
    const int fd = open("sparse.safetensors", O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || pwrite(fd, &length, 8, 0) != 8 ||
        pwrite(fd, json, length, 8) != (ssize_t)length ||
        ftruncate(fd, (off_t)(8 + length) + 10000000000) != 0) {
        perror("file_read: sparse.safetensors");
        exit(1);
    }
    close(fd);
    for (int i = 0; i < SAMPLES; i++) {
        tess_file *file;
        const int64_t start = tess_clock_ns();
        need(tess_file_open(ctx, "sparse.safetensors", &file));
        times[i] = seconds_since(start);
        tess_file_close(file);
    }
    unlink("sparse.safetensors");
    tess_ctx_destroy(ctx);
    qsort(times, SAMPLES, sizeof *times, by_value);
    const int missed = times[SAMPLES / 2] >= 5e-3;
    printf("opening 10 GB of safetensors: median %.3f ms, worst %.3f ms  (bar 5 ms)%s\n",
           1e3 * times[SAMPLES / 2], 1e3 * times[SAMPLES - 1], missed ? "  MISSED" : "");
    return missed;
}

int main(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && chdir(argv[1]) != 0)) {
        fprintf(stderr, "usage: file_read [FOLDER]\n");
        return 2;
    }
    int missed = bench_opening();
    missed |= bench_reading();
    return missed ? 3 : 0;
}
