/* SPDX-License-Identifier: Apache-2.0 */
/* replay_write.c - a replay of ranks as a timeline for Perfetto. */
#include "replay_internal.h"

#include <string.h>

/* "0,1,2,3", or "0,1,..,7 (8)" where that is longer than a word. */
static void group_text(const void *user, int rank, const tess__tl_call *call, char text[64])
{
    const tess_replay *r = user;
    const tess__meet_group *g = &r->groups[call->group];
    size_t used = 0;
    (void)rank;
    for (int i = 0; i < g->n && used < 56; i++)
        used += (size_t)snprintf(text + used, 64 - used, i ? ",%d" : "%d", g->ranks[i]);
    if (used >= 56)
        snprintf(text, 64, "%d,%d,..,%d (%d)", g->ranks[0], g->ranks[1], g->ranks[g->n - 1], g->n);
}

static tess_status write_view(const tess_replay *r, tess__arena *arena, const char *path)
{
    const char *ops[TESS_CALL_OPS];
    const size_t n = (size_t)r->n, streams = (size_t)r->streams;
    int32_t *ranks = TESS_TAKE(arena, n * sizeof *ranks);
    int32_t *rows = TESS_TAKE(arena, n * sizeof *rows);
    const char **names = TESS_TAKE(arena, streams * sizeof *names);
    int64_t events;
    for (int i = 0; i < r->n; i++) {
        ranks[i] = r->rows[i].rank;
        rows[i] = i;
    }
    for (size_t i = 0; i < streams; i++) {
        char text[32];
        snprintf(text, sizeof text, "stream %zu", i);
        names[i] = TESS_TAKE_STRING(arena, text, strlen(text));
    }
    for (int i = 0; i < TESS_CALL_OPS; i++)
        ops[i] = tess_call_op_name((tess_call_op)i);
    return tess__timeline_write(r->timeline,
                                &(tess__view){.streams = names,
                                              .ops = ops,
                                              .ranks = ranks,
                                              .rows = rows,
                                              .n = r->n,
                                              .group = group_text,
                                              .user = r},
                                path, &events);
}

tess_status tess_replay_write(const tess_replay *replay, const char *path)
{
    TESS_REQUIRE(replay, path);
    tess__arena arena = {.ctx = replay->ctx};
    const tess_status status = write_view(replay, &arena, path);
    tess__arena_free(&arena);
    return status;
}
