/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_mask.c - any bytes as a file of block masks; work that is read adds up. */
#include "plan/work.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const tess_work *work)
{
    tess_work_info info;
    int64_t total = 0;
    double rho[3];
    if (tess_work_query(work, &info) != TESS_OK)
        abort();
    for (int l = 0; l < info.layers; l++)
        for (int h = 0; h < info.heads; h++) {
            if (tess__work_prefix(work, l, h, info.q_blocks) != tess__work_head(work, l, h))
                abort();
            total += tess__work_head(work, l, h);
        }
    if (total != info.total)
        abort();
    for (int form = 0; form < 3; form++)
        if (tess_work_imbalance(work, 0, 2, 3, (tess_rho_form)form, &rho[form]) != TESS_OK)
            abort();
    if (!(rho[0] >= rho[1] && rho[1] >= rho[2] && rho[2] > 0.999))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Blocks of 64 rows fit masks of four blocks; other masks must be refused for them. */
    const tess_mask_opts sizes = {.tokens_q = 200, .tokens_k = 256, .group = 64, .unit = 64};
    const tess_mask_opts *const blocks[] = {NULL, &sizes};
    tess_ctx *ctx;
    tess_file *file;
    if (tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) != TESS_OK)
        abort();
    if (tess_file_open_memory(ctx, "fuzz.npy", data, size, &file) == TESS_OK) {
        for (int i = 0; i < 2; i++) {
            tess_work *work = NULL;
            if (tess__work_read(ctx, "fuzz.npy", file, blocks[i], &work) == TESS_OK)
                read_all(work);
            else if (work || !tess_last_error()[0])
                abort();
            tess_work_destroy(work);
        }
        tess_file_close(file);
    }
    tess_ctx_info left;
    if (tess_ctx_query(ctx, &left) != TESS_OK || left.bytes_now != 0)
        abort();
    tess_ctx_destroy(ctx);
    return 0;
}
