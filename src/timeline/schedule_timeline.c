/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_timeline.c - the passes of a schedule as a timeline. */
#include "timeline_internal.h"

static tess_status add_passes(const tess_schedule *s, const int64_t *begins, const int64_t *ends,
                              tess_timeline *t)
{
    for (int r = 0; r < s->ranks; r++)
        for (int64_t i = s->first[r]; i < s->first[r + 1]; i++) {
            char text[40];
            const int32_t at = tess__timeline_add(
                t, &(tess__tl_op){
                       .row = r,
                       .name = tess__timeline_name(t, tess__action_text(&s->actions[i], text)),
                       .call = -1,
                       .tag = -1,
                       .ns = ends[i] - begins[i]});
            if (at < 0)
                return t->status;
            t->ops[at].ready = t->ops[at].begin = begins[i];
            t->ops[at].end = ends[i];
            if (t->last_op < 0 || ends[i] > t->end) {
                t->end = ends[i];
                t->last_op = at;
            }
        }
    t->ran = 1;
    return t->status;
}

tess_status tess__schedule_timeline(const tess_schedule *s, const tess_schedule_times *times,
                                    tess_timeline **timeline)
{
    tess__arena arena = {.ctx = s->ctx};
    tess_timeline *t = NULL;
    int64_t length, *begins = tess__arena_take(&arena, (size_t)s->n * sizeof *begins);
    int64_t *ends = tess__arena_take(&arena, (size_t)s->n * sizeof *ends);
    tess_status status = begins && ends ? TESS_OK : TESS_ENOMEM;
    if (status == TESS_OK)
        status = tess__schedule_run(s, times, begins, ends, &length);
    if (status == TESS_OK)
        status = tess__timeline_create(s->ctx, s->ranks, 1, &t);
    if (status == TESS_OK)
        status = add_passes(s, begins, ends, t);
    tess__arena_free(&arena);
    if (status != TESS_OK) {
        tess_timeline_destroy(t);
        return status;
    }
    *timeline = t;
    return TESS_OK;
}
