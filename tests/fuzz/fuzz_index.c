/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_index.c - any bytes as an index, in a folder with one good shard, a.safetensors.
 *
 * An index in memory finds its shards in the current folder: the target makes one once, and is in
 * it only while it runs, so that the fuzzer's own paths keep their meaning.
 */
#include "fuzz_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int folder = -1;
static char folder_path[] = "/tmp/tessera-fuzz-XXXXXX";

static void remove_folder(void)
{
    unlinkat(folder, "a.safetensors", 0);
    rmdir(folder_path);
}

static void make_folder(void)
{
    static const float data[4] = {1, 2, 3, 4};
    const tess_tensor t[] = {
        {.name = "x", .dtype = TESS_DTYPE_F32, .rank = 1, .shape = {4}, .data = data},
        {.name = "y", .dtype = TESS_DTYPE_U8, .data = data},
    };
    char path[64];
    tess_ctx *ctx;
    if (!mkdtemp(folder_path) || tess_ctx_create(NULL, &ctx) != TESS_OK)
        abort();
    folder = open(folder_path, O_RDONLY | O_DIRECTORY);
    snprintf(path, sizeof path, "%s/a.safetensors", folder_path);
    atexit(remove_folder);
    if (folder < 0 || tess_file_write(ctx, path, t, 2, NULL) != TESS_OK)
        abort();
    tess_ctx_destroy(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder < 0)
        make_folder();
    const int before = open(".", O_RDONLY | O_DIRECTORY);
    if (before < 0 || fchdir(folder) != 0)
        abort();
    fuzz_file("fuzz.index.json", data, size);
    if (fchdir(before) != 0)
        abort();
    close(before);
    return 0;
}
