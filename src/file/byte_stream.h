/* SPDX-License-Identifier: Apache-2.0 */
/* byte_stream.h - the bytes of a file from front to back, unpacked where the file is gzip. */
#ifndef TESS_BYTE_STREAM_H
#define TESS_BYTE_STREAM_H

#include "base/base_internal.h"

typedef struct tess__byte_stream tess__byte_stream;

/* Gzip is recognised by the content, not by the name. The name must outlive the stream. A pipe is
 * accepted. */
tess_status tess__byte_stream_open(tess_ctx *ctx, const char *name, tess__byte_stream **stream);

/* The same over n bytes of memory, which must outlive it. */
tess_status tess__byte_stream_memory(tess_ctx *ctx, const char *name, const void *data, size_t n,
                                     tess__byte_stream **stream);

/* The next n bytes or fewer, at least 1 until the end; *got 0: the end. */
tess_status tess__byte_stream_read(tess__byte_stream *stream, void *dst, size_t n, size_t *got);

/* Why the end came early ("its gzip stream ends too early"); NULL: it did not. */
const char *tess__byte_stream_broken(const tess__byte_stream *stream);

/* Bytes of the file taken so far and in all; *total 0: not known. */
void tess__byte_stream_progress(const tess__byte_stream *stream, int64_t *done, int64_t *total);

void tess__byte_stream_close(tess__byte_stream *stream); /* NULL accepted */

#endif
