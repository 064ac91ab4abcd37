/* SPDX-License-Identifier: Apache-2.0 */
/* replay_write.c - a replay of ranks as a timeline for Perfetto. */
#include "replay_internal.h"
#include "replay_program_row.h"

#include <string.h>

typedef struct {
    const tess_replay *r;
    tess__program_row **programs; /* (files) their streams; NULL: no program */
} names;

/* "0,1,2,3", or "0,1,..,7 (8)" where that is longer than a word. */
static void list_ranks(const int32_t *ranks, int n, char *text, size_t room)
{
    size_t used = 0;
    for (int i = 0; i < n && used < room - 8; i++)
        used += (size_t)snprintf(text + used, room - used, i ? ",%d" : "%d", ranks[i]);
    if (used >= room - 8)
        snprintf(text, room, "%d,%d,..,%d (%d)", ranks[0], ranks[1], ranks[n - 1], n);
}

static void group_text(const void *user, int rank, const tess__tl_call *call, char text[64])
{
    const tess__meet_group *g = &((const names *)user)->r->groups[call->group];
    (void)rank;
    if (g->kind) /* messages of each direction are numbered by themselves */
        snprintf(text, 64, "%d>%d", g->ranks[g->kind == 2], g->ranks[g->kind == 1]);
    else
        list_ranks(g->ranks, g->n, text, 64);
}

static void program_stream(const tess__program_row *row, int stream, char text[64])
{
    static const char *const own[TESS__PROGRAM_STREAMS] = {
        [TESS__PROGRAM_COMPUTE] = "operators",
        [TESS__PROGRAM_PREPARE] = "copies ahead",
        [TESS__PROGRAM_HOST] = "host",
    };
    const int channel = stream - TESS__PROGRAM_STREAMS;
    if (channel < 0) {
        snprintf(text, 64, "%s", own[stream]);
    } else if (channel < row->channels) {
        const tess__program_channel_key *key = &row->channel[channel];
        if (key->group < 0) {
            snprintf(text, 64, "%s rank %d", key->receives ? "from" : "to", key->peer);
        } else {
            const tess__program_group *g = &row->program->groups[key->group];
            memcpy(text, "ranks ", 7);
            list_ranks(g->ranks, g->n, text + 6, 58);
        }
    }
}

static void stream_text(const void *user, int rank, int stream, char text[64])
{
    const names *n = user;
    int i = 0;
    while (n->r->rows[i].rank != rank)
        i++;
    if (n->programs[i])
        program_stream(n->programs[i], stream, text);
    else
        snprintf(text, 64, "stream %d", stream);
}

static tess_status write_view(const tess_replay *r, tess__arena *arena, const char *path)
{
    const char *ops[TESS_CALL_OPS];
    const size_t n = (size_t)r->n;
    int32_t *ranks = TESS_TAKE(arena, n * sizeof *ranks);
    int32_t *rows = TESS_TAKE(arena, n * sizeof *rows);
    const names user = {r, TESS_TAKE_ZERO(arena, n * sizeof *user.programs)};
    int64_t events;
    for (int i = 0; i < r->n; i++) {
        ranks[i] = r->rows[i].rank;
        rows[i] = i;
        if (!r->rows[i].program)
            continue;
        user.programs[i] = TESS_TAKE_ZERO(arena, sizeof **user.programs);
        user.programs[i]->program = r->rows[i].program;
        tess__program_row_streams(user.programs[i]);
    }
    for (int i = 0; i < TESS_CALL_OPS; i++)
        ops[i] = tess_call_op_name((tess_call_op)i);
    return tess__timeline_write(r->timeline,
                                &(tess__view){.stream = stream_text,
                                              .ops = ops,
                                              .ranks = ranks,
                                              .rows = rows,
                                              .n = r->n,
                                              .group = group_text,
                                              .user = &user},
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
