/* SPDX-License-Identifier: Apache-2.0 */
/* mixture_pass.c - training on clips of several sizes: the pass at hand.
 *
 * Every clip has a pass of its own. One pass is held at a time, made anew where the next clip has
 * another size or is shared with other ranks: a rank holds what its largest clip takes. Making one
 * is a thousandth of running it, the pages of its memory included. A range keeps the group of its
 * last pass, whose measured rates the next one takes over. Whether a group is made anew depends on
 * the passes of its range alone, which all its ranks have alike, and not on the pass at hand.
 */
#include "mixture.h"

#include "dsv/control.h"

#include <string.h>

/* ---- times ----------------------------------------------------------------------------------- */

static void add_times(tess_pass_times *sum, const tess_pass_times *more)
{
    sum->attention_ns += more->attention_ns;
    sum->linear_ns += more->linear_ns;
    sum->other_ns += more->other_ns;
    sum->cross_ns += more->cross_ns;
    sum->select_ns += more->select_ns;
    sum->learn_ns += more->learn_ns;
    sum->observe_ns += more->observe_ns;
    sum->exchange_ns += more->exchange_ns;
    sum->forwards += more->forwards;
    sum->backwards += more->backwards;
}

tess_status tess__train_times(const tess_train *t, tess_pass_times *times)
{
    tess_pass_times now = {0};
    if (t->pass)
        TESS_TRY(tess_pass_times_read(t->pass, &now));
    if (t->mixture)
        add_times(&now, &t->mixture->times);
    *times = now;
    return TESS_OK;
}

void tess__mixture_counts(const tess__mixture *m, tess_comm_counts *sum)
{
    for (int i = 0; m && i < m->n_ranges - 1; i++)
        tess__counts_add(m->ranges[i].comm, 1, sum);
}

/* ---- the pass -------------------------------------------------------------------------------- */

int tess__mixture_alone(const tess__mixture *m)
{
    return m->n_ranges - 1;
}

const tess_data_info *tess__train_info(const tess_train *t)
{
    return t->mixture ? &t->mixture->info[t->mixture->bucket] : &t->info;
}

/* Times and exact sums of the pass stay. */
static void drop_pass(tess_train *t)
{
    tess__mixture *m = t->mixture;
    if (!t->pass)
        return;
    tess__train_times(t, &m->times); /* cannot fail: there is a pass */
    m->beyond |= tess__pass_beyond(t->pass);
    tess_pass_destroy(t->pass);
    t->pass = NULL;
}

int tess__mixture_beyond(tess_train *t)
{
    const int beyond = t->mixture->beyond;
    t->mixture->beyond = 0;
    return (t->pass && tess__pass_beyond(t->pass)) || beyond;
}

void tess__mixture_restart(tess_train *t, int remake)
{
    for (int i = 0; i < t->mixture->n_ranges; i++)
        t->mixture->ranges[i].planned = 0;
    if (remake)
        drop_pass(t);
}

tess_status tess__mixture_context(tess_train *t, const tess_pass_shape *shape, tess_cp **cp)
{
    tess__mixture_range *range = &t->mixture->ranges[t->mixture->range];
    const tess__sharing sharing = {.config = &t->model->config,
                                   .shape = shape,
                                   .attention = &t->opts.attention,
                                   .strategy = t->opts.strategy,
                                   .cluster = t->opts.cluster,
                                   .like = range->cp};
    tess_cp *made = NULL;
    *cp = range->cp;
    if (!range->comm || (range->cp && range->bucket >= 0))
        return TESS_OK;
    TESS_TRY(tess__pass_cp(t->ctx, range->comm, &sharing, &made));
    tess_cp_destroy(range->cp);
    *cp = range->cp = made;
    range->planned = 0;
    range->bucket = t->mixture->bucket;
    range->room = t->mixture->room;
    return TESS_OK;
}

/* What a pass made now would be made for; zeros without sparse attention. */
static tess__mixture_room room_now(const tess_train *t)
{
    tess__mixture_room room;
    tess_pass_shape shape;
    memset(&room, 0, sizeof room);
    if (t->control) {
        tess__control_shape(t->control, &shape, &room.opts);
        memcpy(room.cube, shape.cube, sizeof room.cube);
    }
    return room;
}

static int same_room(const tess__mixture_room *a, const tess__mixture_room *b)
{
    return memcmp(a->cube, b->cube, sizeof a->cube) == 0 && a->opts.dense == b->opts.dense &&
           a->opts.max_density == b->opts.max_density;
}

static tess_status plan_range(tess_train *t)
{
    tess__mixture_range *range = &t->mixture->ranges[t->mixture->range];
    const double *densities = t->control ? t->control->table.densities : NULL;
    if (!range->comm || range->planned)
        return TESS_OK;
    TESS_TRY(tess_cp_plan(range->cp, t->step + 1, densities, NULL));
    range->planned = 1;
    return TESS_OK;
}

tess_status tess__mixture_pass(tess_train *t, int bucket, int range)
{
    tess__mixture *m = t->mixture;
    tess__mixture_range *group = &m->ranges[range];
    const int64_t begin = tess__pg_clock(&t->pg), waited = tess__train_sent(t).wait_ns;
    if (t->control)
        TESS_TRY(tess__control_resize(t->control, m->grids[bucket]));
    const tess__mixture_room room = room_now(t);
    const int regroups =
        group->comm && (!group->cp || group->bucket != bucket || !same_room(&group->room, &room));
    if (regroups || m->bucket != bucket || m->range != range || !same_room(&m->room, &room))
        drop_pass(t);
    if (regroups)
        group->bucket = -1; /* made anew with the pass */
    m->bucket = bucket;
    m->range = range;
    m->room = room;
    if (!t->pass)
        TESS_TRY(tess__train_pass(t));
    TESS_TRY(plan_range(t));
    t->plan_ns += tess__pg_clock(&t->pg) - begin - (tess__train_sent(t).wait_ns - waited);
    return TESS_OK;
}
