/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_replay.c - any bytes as the trace of a rank among two, of a profiler or of the trace
 * recorder: refused with a sentence, or a replay whose parts fit in its step; as recorded and on a
 * cluster. */
#include "replay/replay_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

/* Rank 1, which has one call of ranks 0 and 1. */
static const char other[] =
    "{\"otherData\": {\"tessera_trace\": 1, \"rank\": 1, \"ranks\": 2}, \"traceEvents\": [\n"
    "{\"ph\": \"X\", \"dur\": 2, \"args\": {\"op\": \"sum\", \"traffic\": \"payload\", \"group\": "
    "[0, 2, 1], \"sent\": 4000, \"received\": 4000, \"peer\": 1, \"compute_ns\": 100}}]}";

static void write_file(char *path, const void *data, size_t size)
{
    const int file = mkstemp(path);
    MUST(file >= 0 && write(file, data, size) == (ssize_t)size && close(file) == 0);
}

static void use(const tess_replay *r)
{
    tess_replay_info info;
    MUST(tess_replay_query(r, &info) == TESS_OK && info.step_ns >= 0);
    MUST(info.unpriced <= info.calls && info.unmatched <= info.calls);
    for (int i = 0; i < info.files; i++) {
        tess_replay_rank k;
        MUST(tess_replay_rank_query(r, i, &k) == TESS_OK);
        MUST(k.span_ns >= 0 && k.span_ns <= info.step_ns);
        MUST(k.compute_ns >= 0 && k.compute_ns <= k.span_ns);
        MUST(k.wait_ns >= 0 && k.exposed_ns >= 0 && k.comm_ns >= 0);
    }
    for (int i = 0; i < info.notes; i++)
        MUST(tess_replay_note(r, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char first[] = "/tmp/fuzz-replay-0-XXXXXX", second[] = "/tmp/fuzz-replay-1-XXXXXX";
    const char *const files[] = {first, second};
    tess_ctx *ctx = NULL;
    tess_cluster *cluster = NULL;
    tess_ctx_info left;
    write_file(first, data, size);
    write_file(second, other, sizeof other - 1);
    MUST(tess_ctx_create(&(tess_ctx_opts){.isa = "base", .threads = 1}, &ctx) == TESS_OK);
    MUST(tess_cluster_load(ctx, "a100-80", &cluster) == TESS_OK);
    for (int n = 1; n <= 2; n++)
        for (int recorded = 0; recorded < 2; recorded++) {
            tess_replay *r = NULL;
            const tess_status status = tess_replay_run(
                ctx, files, n, cluster, &(tess_replay_opts){.as_recorded = recorded}, &r);
            MUST((status == TESS_OK) == (r != NULL));
            if (status == TESS_OK)
                use(r);
            else
                MUST(status == TESS_EFORMAT || status == TESS_EINVAL || status == TESS_ENOTSUP);
            tess_replay_destroy(r);
        }
    tess_cluster_destroy(cluster);
    MUST(tess_ctx_query(ctx, &left) == TESS_OK && left.bytes_now == 0);
    tess_ctx_destroy(ctx);
    unlink(first);
    unlink(second);
    return 0;
}
