/* SPDX-License-Identifier: Apache-2.0 */
/* media.h - images, and what libtessera_train was built with.
 * Link with libtessera_train. */
#ifndef TESSERA_MEDIA_H
#define TESSERA_MEDIA_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What libtessera_train was built with, as tess_component_query does for libtessera. */
TESS_API int tess_train_component_count(void);
TESS_API tess_status tess_train_component_query(int index, tess_component *component);

typedef struct {
    int width, height;     /* 1..65535 */
    int channels;          /* 1 grey, 3 RGB */
    const uint8_t *pixels; /* (height, width, channels) */
} tess_image;

/* Writes a PNG; the file appears only when it is complete. ENOTSUP without libpng. */
TESS_API tess_status tess_image_write(tess_ctx *ctx, const char *path, const tess_image *image);

#ifdef __cplusplus
}
#endif

#endif
