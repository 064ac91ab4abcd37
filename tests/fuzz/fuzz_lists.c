/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_lists.c - any bytes as a file of key lists or of a mask for `tessera check attn`: keys that
 * are read ascend below the number of keys, also transposed. */
#include "check/judge.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BATCH = 2, HEADS = 2, TOKENS = 12 };

static void ask_all(const judge_keys *k)
{
    int64_t keys[2 * TOKENS];
    for (int64_t i = 0; i < (int64_t)BATCH * HEADS * TOKENS; i++) {
        const int64_t n =
            judge_keys_of(k, i / TOKENS / HEADS, i / TOKENS % HEADS, i % TOKENS, keys);
        for (int64_t a = 0; a < n; a++)
            if (keys[a] < 0 || keys[a] >= TOKENS || (a > 0 && keys[a] <= keys[a - 1]))
                abort();
    }
}

static void read_keys(cli *c, tess_file *file, int lists)
{
    const judge_files files = {.scale = NAN, .group = lists ? 0 : 4, .unit = lists ? 0 : 4};
    judge_keys keys = {.tokens_q = TOKENS, .tokens_k = TOKENS, .heads = HEADS}, turned;
    void *memory[4] = {NULL}, *made[2];
    const tess_status status = lists ? judge_keys_lists(c, &files, file, BATCH, &keys, memory)
                                     : judge_keys_mask(c, &files, file, BATCH, &keys);
    if (status == TESS_OK) {
        ask_all(&keys);
        judge_keys_padding(&keys, BATCH);
        if (judge_keys_transpose(&keys, BATCH, &turned, made) == 0)
            ask_all(&turned);
        free(made[0]);
        free(made[1]);
    }
    for (int i = 0; i < 4; i++)
        free(memory[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli c = {.common = &(common){0}};
    tess_file *file;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &c.ctx) != TESS_OK)
        abort();
    if (tess_file_open_memory(c.ctx, "fuzz", data, size, &file) == TESS_OK) {
        read_keys(&c, file, 0);
        read_keys(&c, file, 1);
        tess_file_close(file);
    }
    tess_ctx_destroy(c.ctx);
    return 0;
}
