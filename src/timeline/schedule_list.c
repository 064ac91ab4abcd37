/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_list.c - a pipeline schedule: lists of actions, and the check that none is missing.
 *
 * Every (stage, micro-batch) has one forward pass, and one backward pass or both of its parts.
 */
#include "timeline_internal.h"

#include <string.h>

enum { STAGES_MAX = 1 << 20, ACTIONS_MAX = 1 << 28 };

static const char *const schedules[] = {
    "gpipe",          /* all forward passes, then all backward passes */
    "gpipe-looped",   /* the same with several stages of a rank, stage by stage (looped BFS) */
    "1f1b",           /* one forward, one backward pass */
    "interleaved",    /* 1f1b with several stages of a rank */
    "zero-bubble",    /* backward passes in two parts, the weights' fill the bubble (ZB-H1) */
    "interleaved-zb", /* the same with several stages of a rank */
    "zb-v",           /* two stages of a rank, the second in reverse order of ranks (ZB-V) */
};

enum { SCHEDULES = (int)(sizeof schedules / sizeof *schedules) };

const char *tess_schedule_name(int index)
{
    return index < 0 || index >= SCHEDULES ? NULL : schedules[index];
}

tess_status tess__schedule_create(tess_ctx *ctx, int ranks, tess_schedule **schedule)
{
    tess_schedule *s = TESS_ALLOC_ZERO(ctx, sizeof *s);
    s->ctx = ctx;
    s->ranks = ranks;
    s->first = tess__alloc_zero(ctx, ((size_t)ranks + 1) * sizeof *s->first);
    if (!s->first) {
        tess__free(ctx, s);
        return TESS_ENOMEM;
    }
    *schedule = s;
    return TESS_OK;
}

void tess_schedule_destroy(tess_schedule *s)
{
    if (!s)
        return;
    tess__free(s->ctx, s->actions);
    tess__free(s->ctx, s->first);
    tess__free(s->ctx, s->rank_of);
    tess__free(s->ctx, s);
}

tess_status tess__schedule_copy(const tess_schedule *from, tess_schedule **schedule)
{
    tess_schedule *s = NULL;
    TESS_TRY(tess__schedule_create(from->ctx, from->ranks, &s));
    s->actions = tess__alloc(s->ctx, (size_t)from->n * sizeof *s->actions);
    s->rank_of = tess__alloc(s->ctx, (size_t)from->stages * sizeof *s->rank_of);
    if (!s->actions || !s->rank_of) {
        tess_schedule_destroy(s);
        return TESS_ENOMEM;
    }
    memcpy(s->actions, from->actions, (size_t)from->n * sizeof *s->actions);
    memcpy(s->rank_of, from->rank_of, (size_t)from->stages * sizeof *s->rank_of);
    memcpy(s->first, from->first, ((size_t)from->ranks + 1) * sizeof *s->first);
    s->stages = from->stages;
    s->batches = from->batches;
    s->n = s->room = from->n;
    *schedule = s;
    return TESS_OK;
}

tess_status tess__schedule_put(tess_schedule *s, int kind, int stage, int64_t batch)
{
    if (s->n == ACTIONS_MAX)
        return tess__fail(TESS_EINVAL, "schedule: more than %d actions", ACTIONS_MAX);
    TESS_GROW(s->ctx, s->actions, s->n, s->n + 1, s->room);
    s->actions[s->n++] =
        (tess__action){.kind = (uint8_t)kind, .stage = stage, .batch = (int32_t)batch};
    return TESS_OK;
}

const char *tess__action_text(const tess__action *a, char text[40])
{
    snprintf(text, 40, "%d%c%d", a->stage, a->kind, a->batch);
    return text;
}

tess_status tess_schedule_query(const tess_schedule *s, tess_schedule_info *info)
{
    TESS_REQUIRE(s, info);
    *info = (tess_schedule_info){s->ranks, s->stages, s->batches, s->n};
    return TESS_OK;
}

/* ---- completeness ---------------------------------------------------------------------------- */

enum { HAS_F = 1, HAS_I = 2, HAS_W = 4 };

static int parts_of(int kind)
{
    return kind == TESS__ACT_F   ? HAS_F
           : kind == TESS__ACT_I ? HAS_I
           : kind == TESS__ACT_W ? HAS_W
                                 : HAS_I | HAS_W;
}

static tess_status place_stages(tess_schedule *s, const char *name)
{
    char text[40];
    s->rank_of = TESS_ALLOC(s->ctx, (size_t)s->stages * sizeof *s->rank_of);
    memset(s->rank_of, 0xff, (size_t)s->stages * sizeof *s->rank_of);
    for (int r = 0; r < s->ranks; r++)
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            int32_t *rank = &s->rank_of[s->actions[i].stage];
            if (*rank >= 0 && *rank != r)
                return tess__fail(TESS_EINVAL, "%s: rank %d runs %s, but stage %d is rank %d's",
                                  name, r, tess__action_text(&s->actions[i], text),
                                  s->actions[i].stage, *rank);
            *rank = r;
        }
    for (int k = 0; k < s->stages; k++)
        if (s->rank_of[k] < 0)
            return tess__fail(TESS_EINVAL, "%s: no rank runs %dF0, the last stage is %d", name, k,
                              s->stages - 1);
    return TESS_OK;
}

static tess_status check_actions(const tess_schedule *s, const char *name, uint8_t *has)
{
    char text[40];
    for (int r = 0; r < s->ranks; r++)
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            const tess__action *a = &s->actions[i];
            uint8_t *parts = &has[(int64_t)a->stage * s->batches + a->batch];
            if (*parts & parts_of(a->kind))
                return tess__fail(TESS_EINVAL, "%s: rank %d runs %s twice", name, r,
                                  tess__action_text(a, text));
            *parts |= (uint8_t)parts_of(a->kind);
        }
    for (int k = 0; k < s->stages; k++)
        for (int64_t m = 0; m < s->batches; m++) {
            const int parts = has[k * s->batches + m];
            const int lacks = !(parts & HAS_F)             ? TESS__ACT_F
                              : !(parts & (HAS_I | HAS_W)) ? TESS__ACT_B
                              : !(parts & HAS_I)           ? TESS__ACT_I
                              : !(parts & HAS_W)           ? TESS__ACT_W
                                                           : 0;
            if (lacks)
                return tess__fail(TESS_EINVAL, "%s: rank %d never runs %d%c%lld", name,
                                  s->rank_of[k], k, lacks, (long long)m);
        }
    return TESS_OK;
}

tess_status tess__schedule_check(tess_schedule *s, const char *name)
{
    s->stages = 0;
    s->batches = 0;
    for (int64_t i = 0; i < s->n; i++) {
        s->stages = TESS_MAX(s->stages, s->actions[i].stage + 1);
        s->batches = TESS_MAX(s->batches, (int64_t)s->actions[i].batch + 1);
    }
    if (s->n == 0)
        return tess__fail(TESS_EINVAL, "%s: has no action", name);
    if (s->stages > STAGES_MAX || s->stages * s->batches > ACTIONS_MAX)
        return tess__fail(TESS_EINVAL, "%s: %d stages of %lld micro-batches are too many", name,
                          s->stages, (long long)s->batches);
    TESS_TRY(place_stages(s, name));
    uint8_t *has = TESS_ALLOC_ZERO(s->ctx, (size_t)(s->stages * s->batches));
    const tess_status status = check_actions(s, name, has);
    tess__free(s->ctx, has);
    return status;
}

/* ---- by name --------------------------------------------------------------------------------- */

static tess_status fail_name(const char *name)
{
    char names[256];
    size_t n = 0;
    for (int i = 0; i < SCHEDULES; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s",
                              i == 0              ? ""
                              : i < SCHEDULES - 1 ? ", "
                                                  : " or ",
                              schedules[i]);
    return tess__fail(TESS_EINVAL, "schedule is \"%.60s\", must be %s", name, names);
}

tess_status tess_schedule_make(tess_ctx *ctx, const char *name, int ranks, int chunks,
                               int64_t batches, tess_schedule **schedule)
{
    TESS_REQUIRE(ctx, name, schedule);
    int kind = 0;
    while (kind < SCHEDULES && strcmp(schedules[kind], name) != 0)
        kind++;
    if (kind == SCHEDULES)
        return fail_name(name);
    TESS_TRY(tess__check_range(__func__, "ranks", ranks, 1, 65536));
    TESS_TRY(tess__check_range(__func__, "chunks", chunks, 1, 4096));
    TESS_TRY(tess__check_range(__func__, "batches", batches, 1, 1 << 24));
    if ((int64_t)ranks * chunks * batches > ACTIONS_MAX / 4)
        return tess__fail(TESS_EINVAL,
                          "schedule: %d ranks x %d chunks x %lld micro-batches are "
                          "too many",
                          ranks, chunks, (long long)batches);
    tess_schedule *s = NULL;
    TESS_TRY(tess__schedule_create(ctx, ranks, &s));
    tess_status status = tess__schedule_order(s, kind, chunks, batches);
    if (status == TESS_OK)
        status = tess__schedule_check(s, name);
    if (status != TESS_OK) {
        tess_schedule_destroy(s);
        return status;
    }
    *schedule = s;
    return TESS_OK;
}
