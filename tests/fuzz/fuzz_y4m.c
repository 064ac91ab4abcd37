/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_y4m.c - any bytes as a .y4m file, at its own rate and at another. */
#include "media/media_internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void gather(tess_ctx *ctx, const uint8_t *data, size_t size, const tess_clip_opts *opts)
{
    tess__reader *reader;
    tess_clip_file *file = NULL;
    tess_clip clip;
    if (tess__y4m_open_memory(ctx, "fuzz.y4m", data, size, &reader) != TESS_OK)
        return;
    if (tess__clip_gather(reader, opts, &file) == TESS_OK) {
        if (tess_clip_view(file, &clip) != TESS_OK || clip.frames < 1)
            abort();
        /* The last byte is read, so that a sanitizer sees pixels that are not there. */
        const volatile uint8_t *p = clip.pixels;
        (void)p[(size_t)clip.frames * (size_t)clip.height * (size_t)clip.width * 3 - 1];
    }
    tess_clip_close(file);
    reader->close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx;
    tess_ctx_info left;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) != TESS_OK)
        abort();
    gather(ctx, data, size, &(tess_clip_opts){.height = 5, .width = 7});
    gather(ctx, data, size, &(tess_clip_opts){.height = 3, .width = 2, .fps = 7, .frames = 40});
    if (tess_ctx_query(ctx, &left) != TESS_OK || left.bytes_now != 0)
        abort();
    tess_ctx_destroy(ctx);
    return 0;
}
