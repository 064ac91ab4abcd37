/* SPDX-License-Identifier: Apache-2.0 */
/* replay_files.h - traces that a test writes, and their ranks in the event engine on one cluster.
 *
 * A test opens with replay_files_open(cluster) and closes with replay_files_close(), which fails
 * where memory was left. */
#ifndef TESS_TESTS_REPLAY_FILES_H
#define TESS_TESTS_REPLAY_FILES_H

#include "replay/replay_internal.h"
#include "tessera/advanced/cost.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { REPLAY_FILES = 4 };

static tess_ctx *ctx;
static tess_cluster *cluster;
static char folder[] = "/tmp/tessera-replay-XXXXXX";
static char paths[REPLAY_FILES][64];

static int replay_files_open(const char *cluster_name)
{
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < REPLAY_FILES; i++)
        snprintf(paths[i], sizeof paths[i], "%s/rank%d.json", folder, i);
    return tess_ctx_create(&(tess_ctx_opts){.threads = 1}, &ctx) != TESS_OK ||
           tess_cluster_load(ctx, cluster_name, &cluster) != TESS_OK;
}

static int replay_files_close(void **state)
{
    (void)state;
    tess_ctx_info info;
    for (int i = 0; i < REPLAY_FILES; i++)
        unlink(paths[i]);
    rmdir(folder);
    tess_cluster_destroy(cluster);
    const int left = tess_ctx_query(ctx, &info) != TESS_OK || info.bytes_now != 0;
    tess_ctx_destroy(ctx);
    return left;
}

/* A file of these parts, one behind the other. */
static void write_parts(int i, const char *const *parts, size_t n)
{
    FILE *f = fopen(paths[i], "w");
    assert_non_null(f);
    for (size_t k = 0; k < n; k++)
        fputs(parts[k], f);
    fclose(f);
}

static void write_file(int i, const char *text)
{
    write_parts(i, &text, 1);
}

static tess_replay *replay(int n, const tess_replay_opts *opts)
{
    const char *files[REPLAY_FILES] = {paths[0], paths[1], paths[2], paths[3]};
    tess_replay *r = NULL;
    CHECK_OK(tess_replay_run(ctx, files, n, cluster, opts, &r));
    return r;
}

static tess_replay_rank rank_of(const tess_replay *r, int i)
{
    tess_replay_rank rank;
    CHECK_OK(tess_replay_rank_query(r, i, &rank));
    return rank;
}

static tess_replay_info info_of(const tess_replay *r)
{
    tess_replay_info info;
    CHECK_OK(tess_replay_query(r, &info));
    return info;
}

static int64_t price(tess_collective_op op, int64_t bytes, int n)
{
    const tess_collective work = {.op = op, .bytes = bytes, .gpus = n, .per_node = n};
    tess_collective_result result;
    CHECK_OK(tess_collective_time(cluster, &work, &result));
    return result.ns;
}

#endif
