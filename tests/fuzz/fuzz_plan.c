/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_plan.c - any bytes as a plan file: refused with a sentence, or a plan that holds its rules.
 *
 * A plan that loads passes the check, and its ranks' pieces and exchange lists are derived, so that
 * a sanitizer sees what a rule forgot.
 */
#include "plan/plan_internal.h"
#include "tessera/advanced/exchange.h"
#include "tessera/advanced/plan_file.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

enum { RANKS_MAX = 16, BLOCKS_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const tess_plan *plan, int layer)
{
    const tess_plan_info *info = &plan->info;
    int64_t bounds[2][RANKS_MAX + 1], n = 0;
    if (info->ranks > RANKS_MAX || info->q_blocks > BLOCKS_MAX || info->k_blocks > BLOCKS_MAX)
        return;
    for (int r = 0; r <= info->ranks; r++) {
        bounds[0][r] = info->tokens_q * r / info->ranks;
        bounds[1][r] = info->tokens_k * r / info->ranks;
    }
    for (int r = 0; r < info->ranks; r++) {
        tess_exchange *x;
        MUST(tess_plan_pieces(plan, layer, r, NULL, &n) == TESS_OK);
        if (plan->layers[layer].strategy.selective > 1)
            continue;
        MUST(tess_plan_exchange(plan, NULL, layer, r, bounds[0], bounds[1], &x) == TESS_OK);
        tess_exchange_destroy(x);
    }
}

static void walk_file(tess_plan_file *file)
{
    tess_plan_file_view v;
    tess_work *work;
    MUST(tess_plan_file_query(file, &v) == TESS_OK && v.steps > 0);
    for (int i = 0; i < v.steps; i++) {
        MUST(tess_plan_check(v.plan[i], NULL) == TESS_OK);
        if (tess_plan_file_work(file, i, &work) == TESS_OK)
            tess_work_destroy(work);
    }
    tess_plan_file_destroy(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess__json doc;
    tess_plan *plan = NULL;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    tess_status status = tess__json_open(ctx, "fuzz.json", (const char *)data, size, &doc);
    if (status == TESS_OK) {
        tess_plan_file *file = NULL;
        if (tess__plan_file_read(ctx, &doc, &file) == TESS_OK)
            walk_file(file);
        else
            MUST(!file);
        status = tess__plan_read(ctx, &doc, &plan);
        tess__json_close(&doc);
    }
    if (status == TESS_OK) {
        MUST(tess_plan_check(plan, NULL) == TESS_OK);
        for (int i = 0; i < plan->info.layers && i < 4; i++)
            walk(plan, i);
        tess_plan_destroy(plan);
    } else {
        MUST(status == TESS_EFORMAT);
        MUST(strncmp(tess_last_error(), "fuzz.json: ", 11) == 0);
    }
    tess_ctx_info left;
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
