/* SPDX-License-Identifier: Apache-2.0 */
/* space.c - the combinations of a search that keep the rules of tess_scenario_fill.
 *
 * A walk in depth over the axes. Where an axis is checked, the scenario with all further axes at
 * their least (1, none, off) is filled in: no rule that a larger value keeps is broken by the least
 * one, so that what is refused there is refused with all that follows, and billions of combinations
 * are passed over unread. Cost: one tess_scenario_fill for each node that is checked.
 */
#include "search_internal.h"

#include <stdio.h>
#include <string.h>

static const int64_t VALID_MAX = 20000000, NUMBER_MAX = INT64_MAX / 2, POLL = 1024;

static void apply(const tess__axis *axis, int64_t at, tess_scenario *s)
{
    memcpy((char *)s + axis->offset, axis->values + (size_t)at * axis->size, axis->size);
}

int64_t tess__space_place(const tess__space *space, int axis, int64_t combination)
{
    for (int i = space->n - 1; i > axis; i--)
        combination /= space->axes[i].n;
    return combination % space->axes[axis].n;
}

void tess__space_scenario(const tess__space *space, int64_t combination, tess_scenario *scenario)
{
    int64_t at[TESS__AXES_MAX];
    for (int i = space->n - 1; i >= 0; i--) {
        at[i] = combination % space->axes[i].n;
        combination /= space->axes[i].n;
    }
    *scenario = space->base;
    for (int i = 0; i < space->n; i++)
        apply(&space->axes[i], at[i], scenario);
}

int tess__space_has(const tess__space *space, int64_t combination)
{
    int64_t low = 0, high = space->n_valid;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (space->valid[middle] < combination)
            low = middle + 1;
        else
            high = middle;
    }
    return low < space->n_valid && space->valid[low] == combination;
}

/* Where no settings were named: sequence parallelism of one rank, which is none, and chunks of
 * unequally many layers, which the simulator counts as equal. */
static int left_out(const tess__space *space, const tess_scenario *s)
{
    const tess_sim_layout *l = &s->layout;
    const int layers = s->model.layers + 2 * l->outer_layers;
    if (!space->by_rules)
        return 0;
    if (l->sequence && l->tp == 1)
        return 1;
    return l->vpp > 1 && !l->first_layers && !l->last_layers && layers % (l->pp * l->vpp);
}

static tess_status keep(tess__space *space, int64_t number)
{
    if (space->n_valid == VALID_MAX)
        return tess__fail(TESS_EINVAL,
                          "more than %lld combinations keep the rules; name fewer values",
                          (long long)VALID_MAX);
    TESS_GROW(space->ctx, space->valid, space->n_valid, space->n_valid + 1, space->room);
    space->valid[space->n_valid++] = number;
    return TESS_OK;
}

/* Lets the caller stop a long listing. */
static tess_status poll_stop(tess__space *space)
{
    return ++space->visited % POLL == 0
               ? tess__progress(space->ctx, "listing combinations",
                                TESS_MIN(space->visited, space->combinations), space->combinations)
               : TESS_OK;
}

/* s has the axes before `depth` set, and the others at their least; `number` is that of these
 * axes. */
static tess_status walk(tess__space *space, int depth, const tess_scenario *s, int64_t number)
{
    const tess__axis *axis = &space->axes[depth];
    for (int64_t i = 0; i < axis->n; i++) {
        tess_scenario next = *s, full;
        const int64_t here = number * axis->n + i;
        apply(axis, i, &next);
        TESS_TRY(poll_stop(space));
        if (left_out(space, &next))
            continue;
        if (axis->checked && tess_scenario_fill(&next, &full) != TESS_OK) {
            if (!*space->refusal)
                snprintf(space->refusal, sizeof space->refusal, "%s", tess_last_error());
            continue;
        }
        if (depth + 1 < space->n)
            TESS_TRY(walk(space, depth + 1, &next, here));
        else
            TESS_TRY(keep(space, here));
    }
    return TESS_OK;
}

tess_status tess__space_list(tess__space *space)
{
    int64_t product = 1;
    for (int i = 0; i < space->n; i++) {
        if (space->axes[i].n > NUMBER_MAX / product)
            return tess__fail(TESS_EINVAL, "the settings have too many combinations to number");
        product *= space->axes[i].n;
    }
    space->combinations = product;
    TESS_TRY(walk(space, 0, &space->base, 0));
    if (space->by_rules)
        space->combinations = space->n_valid;
    if (space->n_valid == 0)
        return tess__fail(TESS_EINVAL, "no combination keeps the rules; the first: %s",
                          space->refusal);
    return TESS_OK;
}

void tess__space_free(tess__space *space)
{
    tess__free(space->ctx, space->valid);
    tess__arena_free(&space->arena);
}
