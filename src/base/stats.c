/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - what is in a tensor: counts of special values, range, mean and deviation.
 *
 * The elements are cut into chunks of fixed size, whatever the threads. Each is scanned by a kernel
 * into its counts, mean and sum of squared deviations; these are merged in the order of the chunks
 * (Chan, Golub and LeVeque, 1979), with d = mean_b - mean_a and n = n_a + n_b:
 *
 *   mean = mean_a + d n_b / n,    m2 = m2_a + m2_b + d^2 n_a n_b / n
 *
 * so that every number of threads and every instruction set give the same bits. A slice is as many
 * chunks as the threads share at a time; between slices the caller may stop the scan.
 * F32, BF16 and F16 are scanned as they are; integers go through F64, a chunk at a time.
 */
#include "base_internal.h"

#include <math.h>
#include <string.h>

enum { SLICE = 512 }; /* chunks: 4 Mi elements */

/* Scans a chunk, its elements multiplied by scale. */
static void scan_chunk(const tess__kernels *kernels, tess_dtype dtype, const void *data, size_t n,
                       double scale, tess__scan *scan)
{
    if (dtype == TESS_DTYPE_F32) {
        kernels->scan_f32(data, n, scan);
    } else if (dtype == TESS_DTYPE_BF16) {
        kernels->scan_bf16(data, n, scan);
    } else if (dtype == TESS_DTYPE_F16) {
        kernels->scan_f16(data, n, scan);
    } else if (dtype == TESS_DTYPE_F64 && scale == 1.0) {
        kernels->scan_f64(data, n, scan);
    } else {
        double wide[TESS_SCAN_CHUNK];
        tess__convert_chunk(kernels, dtype, data, TESS_DTYPE_F64, wide, n);
        for (size_t i = 0; i < n; i++)
            wide[i] *= scale;
        kernels->scan_f64(wide, n, scan);
    }
}

static void merge(tess__scan *a, const tess__scan *b)
{
    a->nan += b->nan;
    a->inf += b->inf;
    a->zero += b->zero;
    a->min = b->min < a->min ? b->min : a->min;
    a->max = b->max > a->max ? b->max : a->max;
    if (b->finite == 0)
        return;
    const double n_a = (double)a->finite, n_b = (double)b->finite, n = n_a + n_b;
    const double d = b->mean - a->mean;
    a->mean += d * (n_b / n);
    a->m2 += b->m2 + d * d * (n_a * (n_b / n));
    a->finite += b->finite;
}

/* Scans count elements. */
static tess_status scan_all(const tess_ctx *ctx, tess_dtype dtype, const char *data, size_t count,
                            double scale, tess__scan *total)
{
    const size_t size = tess_dtype_size(dtype), slice = (size_t)SLICE * TESS_SCAN_CHUNK;
    tess__scan parts[SLICE];
    *total = (tess__scan){.min = (double)INFINITY, .max = -(double)INFINITY};
    for (size_t start = 0; start < count; start += slice) {
        if (start > 0)
            TESS_TRY(tess__progress(ctx, "scanning elements", (int64_t)start, (int64_t)count));
        const size_t n = TESS_MIN(count - start, slice);
        const int chunks = (int)((n + TESS_SCAN_CHUNK - 1) / TESS_SCAN_CHUNK);
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (chunks > 8)
        for (int c = 0; c < chunks; c++) {
            const size_t at = (size_t)c * TESS_SCAN_CHUNK, left = n - at;
            scan_chunk(ctx->kernels, dtype, data + (start + at) * size,
                       left < TESS_SCAN_CHUNK ? left : TESS_SCAN_CHUNK, scale, &parts[c]);
        }
        for (int c = 0; c < chunks; c++)
            merge(total, &parts[c]);
    }
    return TESS_OK;
}

/* Checks the tensor and counts its elements. */
static tess_status check_tensor(const tess_tensor *tensor, size_t *count)
{
    const size_t size = tess_dtype_size(tensor->dtype);
    if (size == 0)
        return tess__fail(TESS_EINVAL, "tess_tensor_stats: dtype is %d, must be a tess_dtype",
                          (int)tensor->dtype);
    TESS_TRY(tess__check_range("tess_tensor_stats", "rank", tensor->rank, 0, TESS_RANK_MAX));
    size_t product = 1;
    int empty = 0, overflow = 0;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return tess__fail(TESS_EINVAL,
                              "tess_tensor_stats: shape[%d] is %lld, must be 0 or more", i,
                              (long long)tensor->shape[i]);
        empty |= tensor->shape[i] == 0;
        overflow |= tess__mul(product, (size_t)tensor->shape[i], &product);
    }
    if (!empty && (overflow || product > PTRDIFF_MAX / size))
        return tess__fail(TESS_EINVAL,
                          "tess_tensor_stats: the shape has more than %zu elements, "
                          "all that memory can hold",
                          PTRDIFF_MAX / size);
    *count = empty ? 0 : product;
    if (*count > 0 && !tensor->data)
        return tess__fail(TESS_EINVAL, "tess_tensor_stats: data is NULL");
    if ((uintptr_t)tensor->data % size != 0)
        return tess__fail(TESS_EINVAL,
                          "tess_tensor_stats: data is not aligned to %zu bytes, an element", size);
    return TESS_OK;
}

/* The power of two that keeps squares of doubles within range; 1 if they were. */
static double rescue(const tess__scan *scan)
{
    if (!isfinite(scan->mean) || !isfinite(scan->m2))
        return 0x1p-600;
    return scan->m2 < 0x1p-900 && scan->min < scan->max ? 0x1p600 : 1.0;
}

tess_status tess_tensor_stats(const tess_ctx *ctx, const tess_tensor *tensor, tess_stats *stats)
{
    TESS_REQUIRE(ctx, tensor, stats);
    size_t count = 0;
    TESS_TRY(check_tensor(tensor, &count));

    tess__scan scan, scaled;
    TESS_TRY(scan_all(ctx, tensor->dtype, tensor->data, count, 1.0, &scan));
    const double scale = tensor->dtype == TESS_DTYPE_F64 ? rescue(&scan) : 1.0;
    if (scale != 1.0) {
        TESS_TRY(scan_all(ctx, tensor->dtype, tensor->data, count, scale, &scaled));
        scan.mean = scaled.mean / scale;
        scan.m2 = scaled.m2;
    }
    const int any = scan.nan < (int64_t)count;
    *stats = (tess_stats){
        .count = (int64_t)count,
        .nan = scan.nan,
        .inf = scan.inf,
        .zero = scan.zero,
        .min = any ? scan.min : (double)NAN,
        .max = any ? scan.max : (double)NAN,
        .mean = scan.finite ? scan.mean : (double)NAN,
        .deviation = scan.finite ? sqrt(scan.m2 / (double)scan.finite) / scale : (double)NAN,
    };
    return TESS_OK;
}
