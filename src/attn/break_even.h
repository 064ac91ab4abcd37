/* SPDX-License-Identifier: Apache-2.0 */
/* break_even.h - what break_even.c measures and break_even_file.c keeps. */
#ifndef TESS_BREAK_EVEN_H
#define TESS_BREAK_EVEN_H

#include "attn_internal.h"
#include "tessera/advanced/predict.h"

/* ---- rates.c ------------------------------------------------------------------------------- */

/* EINVAL unless the shape is one that can be measured; who starts the sentence. */
tess_status tess__attn_rates_check(const char *who, const tess_ctx *ctx,
                                   const tess_attn_rates_shape *shape, const void *result);

/* ---- break_even_file.c --------------------------------------------------------------------- */

enum { TESS_BREAK_EVEN_PATH = 4096 };

/* Where the folder keeps the measurement of a shape on this machine. ENOTSUP: the path is too long.
 */
tess_status tess__break_even_path(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                  const char *folder, char path[TESS_BREAK_EVEN_PATH]);

/* Reads a kept measurement; EFORMAT unless it is whole and of this machine and shape. */
tess_status tess__break_even_read(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                  const char *path, tess_break_even_result *result);

/* The same for a text, NULL: that of the file `name`, which must have this key. */
tess_status tess__break_even_parse(tess_ctx *ctx, const char *name, const char *text, size_t bytes,
                                   const char *key, tess_break_even_result *result);

tess_status tess__break_even_write(tess_ctx *ctx, const tess_attn_rates_shape *shape,
                                   const char *path, const tess_break_even_result *result);

#endif
