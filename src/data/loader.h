/* SPDX-License-Identifier: Apache-2.0 */
/* loader.h - batches prefetched during training.
 *
 * One thread samples ahead into a ring of `depth` batches. Batch k always holds samples k * batch
 * to (k + 1) * batch - 1 of its split (or, where ranks share batches, `batch` of the k-th `of`
 * samples), so that nothing depends on timing: a run that resumes starts the loader at the batch
 * where it stopped. All memory is allocated by start; after it only the decoding of clips outside
 * the data's cache allocates.
 *
 *   tess__loader *loader;
 *   TESS_TRY(tess__loader_start(ctx, &(tess__loader_opts){.data = data, .batch = 4, .first = step},
 *                               &loader));
 *   for (...) {
 *       tess__batch batch;
 *       status = tess__loader_next(loader, &batch); // valid until the following next or stop
 *       ...
 *   }
 *   tess__loader_stop(loader);
 *
 * With `queue`, a batch is one sample, and which one comes next is what tess__loader_order says.
 */
#ifndef TESS_LOADER_H
#define TESS_LOADER_H

#include "base/base_internal.h"
#include "tessera/data.h"

typedef struct tess__loader tess__loader;

typedef struct {
    const tess_data *data; /* outlives the loader */
    tess_split split;
    int batch;     /* samples, 1 or more */
    int of;        /* samples of a batch over all ranks; 0: batch */
    int64_t skip;  /* samples of `of` before those of this rank */
    int depth;     /* batches in the ring, 1..1024; 0: 3 */
    int queue;     /* samples that may be ordered and not yet returned; 0: batches in turn */
    int64_t first; /* number of the first batch */
} tess__loader_opts;

typedef struct {
    int64_t number;    /* first, first + 1, ... */
    const float *x;    /* (batch, channels, frames, height, width) */
    const float *text; /* (batch, text_len, text_dim) */
} tess__batch;

tess_status tess__loader_start(tess_ctx *ctx, const tess__loader_opts *opts, tess__loader **loader);

/* Of a loader with a queue: the samples that follow those ordered before. */
void tess__loader_order(tess__loader *loader, const int64_t *samples, int n);

/* The next batch. A sample that failed fails the call that would return its batch, with its status
 * and sentence, and every call after that. The batch stays valid until the next call. */
tess_status tess__loader_next(tess__loader *loader, tess__batch *batch);

/* Waits at most for the sample that is being read. NULL accepted. */
void tess__loader_stop(tess__loader *loader);

/* What start will allocate, for the prediction of memory; 0 if it does not fit in an int64. */
int64_t tess__loader_bytes(const tess_data_info *info, int batch, int depth);

#endif
