/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_decisions.c - any bytes as decisions.json of a checkpoint: refused with a sentence, or
 * within rules. */
#include "dsv/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void check(const tess__dsv_state *d)
{
    const int n = d->layers * TESS_NOISE_BUCKETS * d->heads;
    MUST(d->layers >= 1 && d->heads >= 1 && d->n_cubes >= 1 && d->n_cubes <= TESS_CUBES);
    MUST(!d->cube_chosen || d->n_cubes == 1);
    for (int c = 0; c < d->n_cubes; c++)
        for (int i = 0; i < n; i++) {
            const double density = d->cubes[c].density[i];
            MUST(isnan(density) || (density >= 0 && density <= 1));
        }
    for (int i = 0; i < n; i++)
        MUST(d->choice[i] <= 1);
    for (int i = 0; i < d->layers; i++)
        MUST(d->sparse[i] == 0 || d->sparse[i] == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tess_ctx *ctx = NULL;
    tess__dsv_state d;
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    const tess_status status =
        tess__dsv_state_read(ctx, "decisions.json", (const char *)data, size, &d);
    if (status == TESS_OK) {
        check(&d);
        tess__dsv_state_destroy(&d);
    } else {
        MUST(status == TESS_EFORMAT);
        MUST(strncmp(tess_last_error(), "decisions.json: ", 16) == 0);
    }
    tess_ctx_info info;
    MUST(tess_ctx_query(ctx, &info) == TESS_OK && info.bytes_now == 0);
    tess_ctx_destroy(ctx);
    return 0;
}
