/* SPDX-License-Identifier: Apache-2.0 */
/* clips.h - what the tests of clips share: a folder of their own, moving pictures, files of bytes.
 */
#ifndef TESS_TEST_CLIPS_H
#define TESS_TEST_CLIPS_H

#include "tessera/advanced/clip.h"
#include "tessera/advanced/machine.h"
#include "tessera/media.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tess-clips-XXXXXX";

static inline const char *in_folder(const char *name)
{
    static char path[4][512];
    static int slot;
    slot = (slot + 1) % 4;
    snprintf(path[slot], sizeof path[slot], "%s/%s", folder, name);
    return path[slot];
}

static inline int have(const char *component)
{
    tess_component c;
    for (int i = 0; i < tess_train_component_count(); i++)
        if (tess_train_component_query(i, &c) == TESS_OK && strcmp(c.name, component) == 0)
            return c.found;
    return 0;
}

/* Names what a test cannot do here; 1 if it can. */
static inline int need(const char *component)
{
    if (have(component))
        return 1;
    print_message("skipped: this build has no %s\n", component);
    return 0;
}

/* A bright square that walks over soft colours. Free the pixels. */
static inline tess_clip make_clip(int frames, int height, int width, double fps)
{
    uint8_t *pixels = malloc((size_t)frames * (size_t)height * (size_t)width * 3), *p = pixels;
    assert_non_null(pixels);
    for (int t = 0; t < frames; t++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++, p += 3) {
                const int inside = x >= 2 + t && x < 2 + t + width / 4 && y >= height / 4 &&
                                   y < height / 4 + height / 3;
                p[0] = (uint8_t)(inside ? 240 : 40 + 100 * x / width);
                p[1] = (uint8_t)(inside ? 200 : 60 + 80 * y / height);
                p[2] = (uint8_t)(inside ? 40 : 120);
            }
    return (tess_clip){frames, height, width, fps, pixels};
}

static inline size_t clip_bytes(const tess_clip *c)
{
    return (size_t)c->frames * (size_t)c->height * (size_t)c->width * 3;
}

static inline void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The whole file; free it. */
static inline uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static inline int make_world(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    return tess_ctx_create(&(tess_ctx_opts){.threads = 2}, (tess_ctx **)state);
}

static inline int drop_world(void **state)
{
    char command[128];
    tess_ctx_info info;
    CHECK_OK(tess_ctx_query(*state, &info));
    assert_int_equal(info.bytes_now, 0);
    tess_ctx_destroy(*state);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
