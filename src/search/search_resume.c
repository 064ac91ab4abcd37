/* SPDX-License-Identifier: Apache-2.0 */
/* search_resume.c - a search that goes on: which search it is, its checkpoint out and in. */
#include "search_internal.h"

#include "sim/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Everything that decides the answer: settings, axes, options, and what the simulator says of three
 * combinations, which parameters, clusters and versions change. */
static void name_search(tess_search *s)
{
    uint64_t h = 18;
    char text[128];
    for (int i = 0; i < tess__n_fields; i++) {
        const char *value = tess__field_text(&s->space.base, &tess__fields[i], text, sizeof text);
        h = tess__hash(h, value, strlen(value));
    }
    for (int i = 0; i < s->space.n; i++) {
        const tess__axis *axis = &s->space.axes[i];
        h = tess__hash(h, axis->key, strlen(axis->key));
        for (int64_t k = 0; k < axis->n; k++)
            h = tess__hash(h, axis->texts[k], strlen(axis->texts[k]));
    }
    const double numbers[] = {(double)s->opts.by, s->opts.memory_limit, s->opts.deadline,
                              s->opts.steps,      s->opts.price,        s->opts.exhaustive};
    h = tess__hash(h, numbers, sizeof numbers);
    for (int64_t i = 0; i < 3; i++) {
        tess_search_point point;
        const int64_t at = i * (s->space.n_valid - 1) / 2;
        if (tess__search_simulate(s, &s->workers[0], s->space.valid[at], &point) == TESS_OK) {
            const double found[] = {point.result.step_s, point.result.memory.peak};
            h = tess__hash(h, found, sizeof found);
        }
    }
    snprintf(s->hash, sizeof s->hash, "%016llx", (unsigned long long)h);
}

tess_status tess__search_keep(tess_search *s, int64_t now)
{
    const tess__ranking *r = &s->ranking;
    tess__search_state state = {.next = s->next,
                                .evaluated = r->evaluated,
                                .feasible = r->feasible,
                                .refused = r->refused,
                                .nearest = r->nearest.combination,
                                .late = r->late.combination};
    memcpy(state.search, s->hash, sizeof s->hash);
    state.kept = TESS_ALLOC(s->ctx, ((size_t)r->n_groups + TESS__TOP) * sizeof *state.kept);
    for (int i = 0; i < r->n_top; i++)
        state.kept[state.n_kept++] = r->top[i].combination;
    for (int64_t i = 0; i < r->n_groups; i++)
        state.kept[state.n_kept++] = r->groups[i].combination;
    qsort(state.kept, (size_t)state.n_kept, sizeof *state.kept, tess__by_int64);
    int64_t n = 0;
    for (int64_t i = 0; i < state.n_kept; i++)
        if (i == 0 || state.kept[i] != state.kept[i - 1])
            state.kept[n++] = state.kept[i];
    state.n_kept = n;
    s->saved_ns = now;
    const tess_status status = tess__search_save(s->ctx, s->opts.checkpoint, &state);
    tess__search_state_free(s->ctx, &state);
    return status;
}

static tess_status not_ours(const tess_search *s, const char *why)
{
    return tess__fail(TESS_EINVAL, "%s: %s; remove it to begin anew", s->opts.checkpoint, why);
}

/* Simulates again what the checkpoint names. */
static tess_status restore(tess_search *s, const tess__search_state *state)
{
    tess__ranking *r = &s->ranking;
    tess_search_point point;
    if (strcmp(state->search, s->hash) != 0)
        return not_ours(s, "a checkpoint of another search");
    if (state->next > s->space.n_valid)
        return not_ours(s, "its \"next\" is above the combinations of the search");
    for (int64_t i = -2; i < state->n_kept; i++) {
        const int64_t number = i == -2 ? state->nearest : i == -1 ? state->late : state->kept[i];
        if (i < 0 && number < 0)
            continue;
        if (!tess__space_has(&s->space, number) ||
            tess__search_simulate(s, &s->workers[0], number, &point) != TESS_OK)
            return not_ours(s, "it names a combination that breaks the rules");
        if (i == -2)
            r->nearest = point;
        else if (i == -1)
            r->late = point;
        else
            TESS_TRY(tess__ranking_add(s->ctx, r, &point));
    }
    r->evaluated = state->evaluated;
    r->feasible = state->feasible;
    r->refused = state->refused;
    s->next = s->info.resumed = state->next;
    return TESS_OK;
}

tess_status tess__search_resume(tess_search *s)
{
    tess__search_state state;
    name_search(s);
    if (access(s->opts.checkpoint, F_OK) != 0 && errno == ENOENT)
        return TESS_OK;
    TESS_TRY(tess__search_parse(s->ctx, s->opts.checkpoint, NULL, 0, &state));
    const tess_status status = restore(s, &state);
    tess__search_state_free(s->ctx, &state);
    return status;
}
